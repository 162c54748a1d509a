# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers in this very process, and what they could do to it.
"""

import os
import sys
import textwrap
from pathlib import Path
from typing import Any

import pytest
from mcp import types
from mcp.server import MCPServer, Server

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPToolset,
)
from tests.support.processes import run_to_end
from tests.support.scripts import SOURCE, finalized
from tests.support.waiting import LIMIT

SECRET = "sk-s3ntinel-4711"


class Odd(BaseException):
    pass


FATAL = [SystemExit(2), KeyboardInterrupt(), Odd(), BaseExceptionGroup("two", [KeyboardInterrupt()])]
fatal = pytest.mark.parametrize("error", FATAL, ids=lambda error: type(error).__name__)


@fatal
def test_a_server_in_this_process_that_exits_ends_nothing_else(error: BaseException) -> None:
    server = MCPServer("quitter")

    @server.tool()
    async def leave() -> str:
        raise error

    @server.tool()
    def leave_from_a_thread() -> str:
        raise error

    @server.tool()
    def stay() -> str:
        return "here"

    other = InProcessServerInfo("tests.servers.inprocess:server")
    with MCPConnection(other) as connection, MCPToolset(InProcessServerInfo(server)) as tools:
        connection.open()
        with pytest.raises(MCPOutcomeUnknownError, match=f"{type(error).__name__}.*may have run"):
            tools["leave"].invoke()
        with pytest.raises(MCPInvocationError):
            tools["leave_from_a_thread"].invoke()
        assert "here" in str(tools["stay"].invoke())
        assert tools.connection.status().sessions == 1
        assert connection.call_tool("add", {"a": 1, "b": 2}).content[0].text == "3"


@fatal
def test_a_server_in_this_process_that_exits_at_connect_or_in_a_listing_is_a_connection_error(error):
    failing = True

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        if failing:
            raise error
        return types.ListToolsResult(tools=[])

    connection = MCPConnection(InProcessServerInfo(Server("quitter", on_list_tools=list_tools)))
    with pytest.raises(MCPConnectionError, match=f"Failed to connect to .*the server raised {type(error).__name__}"):
        connection.open()
    failing = False
    assert connection.list_tools() == []
    failing = True
    with pytest.raises(MCPConnectionError, match=f"`list_tools` of .*the server raised {type(error).__name__}"):
        connection.list_tools()
    failing = False
    assert connection.list_tools() == []
    connection.close()


def test_a_module_that_exits_when_it_is_imported_is_a_connection_error(tmp_path, monkeypatch):
    (tmp_path / "module_that_exits.py").write_text("raise SystemExit(2)")
    monkeypatch.syspath_prepend(tmp_path)
    connection = MCPConnection(InProcessServerInfo("module_that_exits:server"))
    with pytest.raises(MCPConnectionError, match="'module_that_exits:server': it raised SystemExit"):
        connection.open()
    connection.close()


def test_a_module_whose_import_hangs_does_not_hold_up_the_end_of_the_program(tmp_path: Path) -> None:
    (tmp_path / "module_that_hangs.py").write_text("import threading; print('importing'); threading.Event().wait()")
    program = """
        from haystack_integrations.tools.mcp import InProcessServerInfo, MCPConnection, MCPConnectionError
        try:
            MCPConnection(InProcessServerInfo("module_that_hangs:server"), connection_timeout=3).open()
        except MCPConnectionError as error:
            print(error)
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(SOURCE), str(tmp_path)])}
    command = [sys.executable, "-c", textwrap.dedent(program)]
    ended = run_to_end(command, limit=LIMIT, start=finalized, env=environment, check=True)
    assert ended.stdout.startswith("importing")
    assert "timed out after 3 seconds" in ended.stdout
    assert ended.stderr == ""
