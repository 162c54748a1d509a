# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers in this process must not harm it.
"""

import asyncio
import os
import sys
import textwrap
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import anyio
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
from haystack_integrations.tools.mcp.errors import MCPConnectionTimeoutError, MCPTimeoutError
from haystack_integrations.tools.mcp.transports import in_process
from tests.support.background import in_thread
from tests.support.processes import run_to_end
from tests.support.rows import rows
from tests.support.scripts import SOURCE, finalized
from tests.support.waiting import LIMIT

SECRET = "sk-s3ntinel-4711"


class Odd(BaseException):
    pass


FATAL = [SystemExit(2), KeyboardInterrupt(), Odd(), BaseExceptionGroup("two", [KeyboardInterrupt()])]


@rows("error", *FATAL)
def test_a_server_in_this_process_that_exits_ends_only_its_own_call(error: BaseException) -> None:
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


@rows("error", *FATAL)
def test_a_server_in_this_process_that_exits_at_connect_or_in_a_listing_is_a_connection_error(error):
    failing = {"lifespan": True, "listing": True}

    @asynccontextmanager
    async def live(_server: Any) -> AsyncIterator[None]:
        if failing["lifespan"]:
            raise error
        yield

    async def list_tools(context: Any, params: Any) -> types.ListToolsResult:
        if failing["listing"]:
            raise error
        return types.ListToolsResult(tools=[])

    said = f"the server raised {type(error).__name__}"
    connection = MCPConnection(InProcessServerInfo(Server("quitter", on_list_tools=list_tools, lifespan=live)))
    for where in failing:
        with pytest.raises(MCPConnectionError, match=f"Failed to connect to .*{said}"):
            connection.open()
        failing[where] = False
    assert connection.list_tools() == []
    failing["listing"] = True
    with pytest.raises(MCPConnectionError, match=f"`list_tools` of .*{said}"):
        connection.list_tools()
    failing["listing"] = False
    assert connection.list_tools() == []
    connection.close()


def test_an_error_of_the_lifespan_is_the_error_of_the_connect() -> None:
    @asynccontextmanager
    async def live(_server: Any) -> AsyncIterator[None]:
        raise LookupError("no database")
        yield

    with pytest.raises(MCPConnectionError, match="no database"):
        MCPConnection(InProcessServerInfo(Server("broken", lifespan=live))).open()


def test_the_server_ends_if_opening_it_is_given_up() -> None:
    was_cancelled = threading.Event()

    @asynccontextmanager
    async def live(_server: Any) -> AsyncIterator[None]:
        try:
            await asyncio.Event().wait()
        finally:
            was_cancelled.set()
        yield

    with pytest.raises(MCPConnectionTimeoutError):
        MCPConnection(InProcessServerInfo(Server("slow", lifespan=live)), connection_timeout=0.1).open()
    assert was_cancelled.wait(LIMIT)


def test_a_server_runs_as_long_as_its_session_and_an_abandoned_call_is_cancelled() -> None:
    was_cancelled, has_ended = threading.Event(), threading.Event()

    @asynccontextmanager
    async def live(_server: Any) -> AsyncIterator[None]:
        yield
        has_ended.set()

    server = MCPServer("sleeper", lifespan=live)

    @server.tool()
    async def sleep() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            was_cancelled.set()
            raise

    middleware = list(server._lowlevel_server.middleware)
    with MCPConnection(InProcessServerInfo(server), invocation_timeout=0.2) as connection:
        with pytest.raises(MCPTimeoutError):
            connection.call_tool("sleep")
        assert was_cancelled.wait(LIMIT)
        assert len(connection.list_tools()) == 1
        assert not has_ended.is_set()
    assert has_ended.wait(LIMIT)
    assert server._lowlevel_server.middleware == middleware


def test_closing_ends_running_calls_within_a_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(in_process, "_GRACE", 0.2)
    is_running, goes_on = threading.Event(), threading.Event()
    server = MCPServer("stubborn")

    @server.tool()
    async def resist() -> None:
        is_running.set()
        with anyio.CancelScope(shield=True):
            while not goes_on.is_set():
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.05)

    connection = MCPConnection(InProcessServerInfo(server))
    call = in_thread(connection.call_tool, "resist")
    assert is_running.wait(LIMIT)
    connection.close()
    with pytest.raises(MCPOutcomeUnknownError):
        call.result(LIMIT)
    goes_on.set()


def test_a_module_that_exits_on_import_is_a_connection_error(tmp_path, monkeypatch):
    (tmp_path / "module_that_exits.py").write_text("raise SystemExit(2)")
    monkeypatch.syspath_prepend(tmp_path)
    connection = MCPConnection(InProcessServerInfo("module_that_exits:server"))
    with pytest.raises(MCPConnectionError, match="'module_that_exits:server': it raised SystemExit"):
        connection.open()
    connection.close()


def test_the_sdk_need_not_have_its_modules_as_attributes(monkeypatch: pytest.MonkeyPatch) -> None:
    # An import hook that fails, as an instrumentation's may, leaves the SDK without them.
    monkeypatch.delattr(sys.modules["mcp"], "server")
    with MCPToolset(InProcessServerInfo(MCPServer("bakery"))) as toolset:
        assert list(toolset) == []


def test_a_module_whose_import_hangs_does_not_delay_the_end_of_the_program(tmp_path: Path) -> None:
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
