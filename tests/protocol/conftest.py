# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The servers of this folder.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.support.processes import SERVERS, CallLog, StdioServer, python_script


@pytest.fixture
def picky_server(tmp_path: Path) -> Callable[..., StdioServer]:
    """
    Says how to start servers over stdio that are particular: `picky_server(*options)`, with the options of
    `tests/servers/picky_server.py`.
    """

    def describe(*options: str) -> StdioServer:
        log = CallLog(tmp_path / "picky.txt")
        command, *args = python_script(SERVERS / "picky_server.py", "--calls-file", str(log.path), *options)
        return StdioServer(command, args, log)

    return describe
