# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
MCPConnection as users have it: a server without tool objects, sync and async, and its health.
"""

import asyncio
import itertools
import pickle
import threading
from time import monotonic
from typing import Any

import pytest
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import AsyncExecutor, InProcessServerInfo, MCPConnection, MCPInvocationError
from haystack_integrations.tools.mcp.connection.gate import Gate
from haystack_integrations.tools.mcp.connection.requests import call_request
from haystack_integrations.tools.mcp.connection.supervisor import Supervisor
from haystack_integrations.tools.mcp.errors import MCPTimeoutError
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from tests.support.background import text
from tests.support.rows import rows
from tests.support.waiting import LIMIT

COUNTER = InProcessServerInfo("tests.servers.inprocess:server")


def test_an_open_connection_is_pickled_as_its_configuration():
    with MCPConnection(COUNTER, invocation_timeout=7, call_options={"ping_interval": 5}) as connection:
        other = pickle.loads(pickle.dumps(connection))  # noqa: S301
        assert other.status().state == "idle"
        assert (other.invocation_timeout, other.call_options) == (7, connection.call_options)
        assert text(other.call_tool("add", {"a": 5, "b": 3})) == "8"
        other.close()
        assert connection.is_ready


def test_the_status_follows_the_whole_life_of_a_connection():
    connection = MCPConnection(COUNTER, share=False)
    assert connection.status().state == "idle"
    assert connection.generation == 0
    generation, tools = connection.open()
    assert connection.generation == generation > 0
    assert tools
    with pytest.raises(MCPInvocationError, match="no luck"):
        connection.call_tool("fail", {"message": "no luck"})
    connection.call_tool("add", {"a": 1, "b": 1})
    status = connection.status()
    assert (status.state, status.server_name, status.server_version) == ("ready", "inprocess", "1.2.3")
    assert (status.users, status.sessions, status.calls, status.failed_calls, status.in_flight) == (1, 1, 2, 1, 0)
    assert status.protocol_version
    assert "tools" in (status.capabilities or {})
    assert "no luck" in (status.last_error or "")
    assert repr(connection) == f"MCPConnection({COUNTER!r}, state='ready')"
    connection.close()
    assert connection.status().state == "closed"
    assert connection.generation == 0


def test_a_session_that_ends_and_a_connection_that_is_closed_while_they_are_looked_at_do_no_harm():
    def now_and_then(value: Any) -> Any:
        values = itertools.cycle([value, None])
        return property(lambda _: next(values), lambda *_: None)

    with MCPConnection(COUNTER, share=False) as connection:
        sessions = connection._server_sessions
        assert sessions is not None
        supervisor, gate = sessions.default, sessions.default.gate
        session = supervisor.session
        gate.__class__ = type("Gate", (type(gate),), {"_open_until": now_and_then(monotonic() + LIMIT)})
        supervisor.__class__ = type("Supervisor", (type(supervisor),), {"session": now_and_then(session)})
        for _ in range(2):
            connection.status()
            connection._latest_definition("add")
        supervisor.__class__, gate.__class__ = Supervisor, Gate
        connection.__class__ = type("Connection", (MCPConnection,), {"_server_sessions": now_and_then(sessions)})
        connection._call(call_request("add", {}))[0].close()
        connection.__class__ = MCPConnection


def test_a_timeout_reports_a_blocked_event_loop(monkeypatch):
    go_on = threading.Event()
    server: MCPServer[Any] = MCPServer("blocking")

    @server.tool()
    async def block() -> str:
        go_on.wait(LIMIT)
        return "done"

    monkeypatch.setattr("haystack_integrations.tools.mcp.executor._PULSE_TIMEOUT", 0.1)
    connection = MCPConnection(InProcessServerInfo(server), connection_timeout=1, invocation_timeout=0.5)
    connection.open()
    with pytest.raises(MCPTimeoutError, match=r"event loop is blocked\)\. The tool may have run"):
        connection.call_tool("block")
    with pytest.raises(MCPTimeoutError, match="event loop is blocked"):
        asyncio.run(connection.call_tool_async("block"))
    go_on.set()
    connection.close()


def test_a_connection_does_not_block_the_thread_of_the_executor():
    connection = MCPConnection(COUNTER)

    async def use() -> str:
        async with MCPConnection(COUNTER) as inside:
            answer = text(await inside.call_tool_async("echo", {"text": "inside"}))
        with pytest.raises(MCPInvocationError, match=r"own event loop.*The tool did not run"):
            connection.call_tool("add", {"a": 1, "b": 1})
        connection.close()
        return answer

    assert AsyncExecutor.get_instance().run(use(), timeout=LIMIT) == "inside"


@rows(
    ("parameters", "message"),
    ({"server_info": "http://localhost:8000/mcp"}, "`server_info` must be an MCPServerInfo .*`server_info_from`"),
    ({"handlers": "none"}, "`handlers` must be of type MCPHandlers, or a dict"),
    *[
        ({name: value}, f"`{name}` must be a positive number of seconds")
        for name in ("connection_timeout", "invocation_timeout")
        for value in (0, -1, "30", True, float("nan"), float("inf"))
    ],
    ({"call_options": {"ping_interval": "5"}}, "`ping_interval` must be a valid number, got '5'"),
    ({"call_options": {"reset_timeout_on_progress": 1}}, "`reset_timeout_on_progress` must be a valid boolean"),
)
def test_an_invalid_parameter_is_refused_with_the_valid_values(parameters, message):
    with pytest.raises(ValueError, match=message):
        MCPConnection(**{"server_info": COUNTER, **parameters})


CONTINUED = MCPPendingCall(tool_name="add", arguments={}, request_state="begun")


@rows(
    ("method", "arguments", "message"),
    ("read_resource", {"resource": 5}, "`resource` must be a URI or a Resource, got int"),
    ("get_prompt", {"name": "a", "arguments": {"times": 5}}, "`arguments` must be a dictionary of strings"),
    ("complete", {"ref": "a", "argument": {"name": "a"}}, "`ref` must be a Prompt, a ResourceTemplate"),
    ("call_tool", {"tool_name": "add", "on_progress": asyncio.sleep}, "must not be asynchronous"),
    ("continue_call", {"call": CONTINUED, "secrets": "hunter2"}, "`secrets` must be"),
    ("subscribe_resource", {"resource": None, "callback": print}, "`resource` must be a URI or a Resource"),
    ("on_list_change", {"callback": print, "lists": 3}, "`lists` must be some of 'tools', 'prompts', 'resources'"),
    ("on_list_change", {"callback": None}, "`callback` must be a function, got NoneType"),
    ("subscribe_resource", {"resource": "note://a", "callback": "print"}, "`callback` must be a function, got str"),
)
def test_invalid_arguments_of_methods_are_refused_before_anything_is_sent(method, arguments, message):
    connection = MCPConnection(COUNTER)
    with pytest.raises(ValueError, match=message):
        getattr(connection, method)(**arguments)
    with pytest.raises(ValueError, match="`invocation_timeout`"):
        connection.invocation_timeout = -1
    with pytest.raises(TypeError, match="call_tool\\(\\) got an unexpected keyword argument 'limits'"):
        connection.call_tool("add", {"a": 1, "b": 1}, limits=None)  # type: ignore[call-arg]
    assert connection.status().state == "idle"
