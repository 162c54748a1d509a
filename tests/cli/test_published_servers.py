# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The commands with servers that others have published.
"""

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.processes import StdioServer

pytestmark = pytest.mark.integration


def words_for(server: StdioServer) -> list[str]:
    variables = [word for name, value in (server.env or {}).items() for word in ("--env", f"{name}={value}")]
    return [shlex.join([server.command, *server.args]), *variables, "--timeout", "100"]


def test_all_that_the_everything_server_offers_is_shown(
    run: Run, everything_stdio: StdioServer, tmp_path: Path
) -> None:
    command, *options = words_for(everything_stdio)
    report = json.loads(run("inspect", command, *options, "--json").screen)
    assert report["resourceTemplates"] and report["prompts"]
    assert {"echo", "get-sum"} <= {tool["name"] for tool in report["tools"]}
    assert "10" in run("call", command, "get-sum", "a=4", "b=6", *options).screen
    assert run("call", command, "get-tiny-image", "--save", str(tmp_path), *options).code == 0
    assert list(tmp_path.glob("get-tiny-image-*.png"))
    assert run("doctor", command, *options).code == 0
