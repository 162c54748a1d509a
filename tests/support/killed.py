# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Runs code in a process that is killed in the middle of its work.
"""

import json
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any

from haystack_integrations.tools.mcp import MCPServerInfo
from tests.support.prepared import SOURCE, PreparedProcess
from tests.support.processes import end


def run_in_killed_process(folder: Path, info: MCPServerInfo, code: str) -> dict[str, Any]:
    """
    Run code that uses `info`, in a process that is killed as soon as it has printed JSON; return that.
    """
    script = folder / "begin.py"
    preamble = """
    import json, sys, time
    from haystack_integrations.tools.mcp import *
    from haystack_integrations.tools.mcp.errors import *
    from haystack_integrations.tools.mcp.handlers import *
    from haystack_integrations.tools.mcp.protocol.server_info import server_info_from_dict

    info = server_info_from_dict(json.loads(sys.argv[1]))
    """
    script.write_text(textwrap.dedent(preamble) + textwrap.dedent(code) + "\ntime.sleep(600)\n")
    command = [sys.executable, str(script), json.dumps(info.to_dict())]
    process = PreparedProcess(command, env={"PYTHONPATH": str(SOURCE)}, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        printed: dict[str, Any] = json.loads(process.stdout.readline())
    finally:
        end(process)
    return printed
