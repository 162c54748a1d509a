# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Fixtures: the servers of the tests in this folder.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from haystack_integrations.tools.mcp import MCPServerInfo
from tests.support.processes import SERVERS, CallLog, StdioServer, python_script
from tests.support.raw import raw_server


@pytest.fixture
def picky_server(tmp_path: Path) -> Callable[..., StdioServer]:
    """
    Describes servers over stdio that give the test's answers: `picky_server(results)`, with the results of
    `tests/servers/raw_server.py`.
    """

    def describe(results: dict[str, Any]) -> StdioServer:
        log = CallLog(tmp_path / "picky.txt")
        command, *args = python_script(SERVERS / "raw_server.py", json.dumps(results), str(log.path))
        return StdioServer(command, args, log)

    return describe


REVISIONS = {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}
NEWEST = {"initialize": {"error": {"code": -32022, "message": "not like this"}}, "server/discover": REVISIONS}
HELLO = {"content": [{"type": "text", "text": "hello"}]}


@pytest.fixture(params=["stdio 2026", "http"])
def start(request: pytest.FixtureRequest) -> Callable[..., MCPServerInfo]:
    """
    Describes a server with the given answers to `tools/list` and to calls: `start(page, called)`.
    """

    def describe(page: dict[str, Any], called: dict[str, Any] = HELLO) -> MCPServerInfo:
        results = {"tools/list": page, "tools/call": called}
        return raw_server("json", results) if request.param == "http" else raw_server("stdio", {**NEWEST, **results})

    return describe
