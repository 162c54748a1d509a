# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Changes that servers announce to connections and toolsets, over every transport, in both eras, and after a loss.
"""

import asyncio
import gc
import queue
import threading
import time
import weakref
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from fastmcp import Context as FastMCPContext
from fastmcp import FastMCP
from mcp import MCPError, types
from mcp.server.mcpserver import Context

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    InProcessServerInfo,
    MCPAuthorizationError,
    MCPConnection,
    MCPConnectionError,
    MCPToolset,
    StreamableHttpServerInfo,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.connection import listening
from haystack_integrations.tools.mcp.protocol.changes import WantedChanges, Watcher
from haystack_integrations.tools.mcp.protocol.negotiation import ServerDetails
from tests.servers.changing_server import NOTE, build_server
from tests.support.background import in_thread
from tests.support.in_process import COUNTER
from tests.support.kinds import KINDS
from tests.support.processes import SERVERS
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until, wait_until_async

CHANGING_SERVER = SERVERS / "changing_server.py"


@pytest.fixture
def reach(http_server, sdk_stdio_server) -> Callable[[str], SimpleNamespace]:
    def start(way: str) -> SimpleNamespace:
        if way == "in process":
            events: list[str] = []
            server = build_server(lambda event, **_: events.append(event))
            return SimpleNamespace(info=InProcessServerInfo(server), asked=events.count)
        if way == "stdio":
            server = sdk_stdio_server(script=CHANGING_SERVER, env={"PYTHONPATH": str(SERVERS.parent.parent)})
            return SimpleNamespace(info=server.info())
        kind = KINDS[way]
        server = http_server(kind.transport, *kind.options, script=CHANGING_SERVER)
        return SimpleNamespace(info=kind.reach(server.url), server=server)

    return start


def wait_for_listing(toolset: MCPToolset, name: str, *, is_there: bool = True) -> None:
    """Wait until a listing in the background has, or no longer has, a certain tool."""

    def is_known() -> bool:
        fetched = toolset._unpublished
        return fetched is not None and (name in [tool.name for tool in fetched]) is is_there

    wait_until(is_known, "the tools are listed again")


@pytest.mark.parametrize("way", ["in process", "stdio", "2026", "sessions", "sse"])
def test_subscribers_get_changes_and_a_toolset_gets_new_tools_at_the_next_warm_up(reach, way):
    updates: queue.Queue[str] = queue.Queue()
    with MCPToolset(reach(way).info) as toolset:
        before = [tool.name for tool in toolset]
        toolset["offer"].invoke(name="extra")
        wait_for_listing(toolset, "extra")
        assert [tool.name for tool in toolset] == before
        toolset.warm_up()
        extra = toolset["extra"]
        assert extra.call(text="hello").text == "extra: hello"
        toolset["offer"].invoke(name="extra", description="Newer.")
        wait_until(lambda: toolset.warm_up() or extra.description == "Newer.", "the tools are listed again")
        assert toolset["extra"] is extra

        unsubscribe = toolset.subscribe_resource(NOTE, updates.put)
        toolset["write"].invoke(text="second")
        assert updates.get(timeout=LIMIT) == NOTE
        assert toolset.read_resource(NOTE).contents[0].text == "second"
        unsubscribe()
        unsubscribe()
        toolset["write"].invoke(text="third")
        toolset["withdraw"].invoke(name="extra")
        wait_for_listing(toolset, "extra", is_there=False)
        assert updates.empty()
        toolset.warm_up()
        assert [tool.name for tool in toolset] == before


@pytest.mark.parametrize("way", ["2026", "sessions", "sse"])
def test_after_a_loss_it_listens_again_and_notifies_subscribers_that_may_have_missed_changes(reach, way):
    reached = reach(way)
    updates: queue.Queue[str] = queue.Queue()
    with MCPToolset(reached.info) as toolset:
        toolset["offer"].invoke(name="extra")
        toolset.refresh()
        assert "extra" in toolset
        toolset.subscribe_resource(NOTE, updates.put)
        reached.server.kill()
        reached.server.start()  # the restarted server no longer has the other tool
        if way != "2026":  # in 2026, the stream is reopened without a call
            wait_until(lambda: _call(toolset, "write", text="x"), "a call is answered again")
        wait_for_listing(toolset, "extra", is_there=False)
        assert updates.get(timeout=LIMIT) == NOTE
        while not updates.empty():
            updates.get()
        wait_until(lambda: _call(toolset, "write", text="y") and not updates.empty(), "it is subscribed again")


def test_a_server_with_sessions_that_was_restarted_is_listed_at_the_next_warm_up_without_a_call(reach):
    reached = reach("sessions")
    with MCPToolset(reached.info) as toolset:
        toolset["offer"].invoke(name="extra")
        toolset.refresh()
        reached.server.kill()
        reached.server.start()  # the restarted server no longer has the other tool
        wait_until(lambda: toolset.connection.status().state == "lost", "the loss")
        toolset.warm_up()
        assert "extra" not in toolset


def _call(toolset, name, /, **arguments):
    try:
        return toolset[name].invoke(**arguments)
    except Exception:
        return None


def test_changes_while_the_stream_of_a_session_is_broken_are_noticed_when_it_is_back(reach, cutting_proxy):
    updates: queue.Queue[str] = queue.Queue()
    proxy = cutting_proxy(reach("sessions").server.url)
    with MCPToolset(StreamableHttpServerInfo(proxy.url, base_delay=0.05)) as toolset:
        toolset.subscribe_resource(NOTE, updates.put)
        proxy.cut()
        toolset["offer"].invoke(name="extra")
        wait_for_listing(toolset, "extra")
        assert updates.get(timeout=LIMIT) == NOTE
        assert toolset.connection.status().sessions == 1


def test_all_subscribers_share_one_stream_which_is_opened_only_on_demand(reach):
    reached, heard = reach("in process"), set()
    with MCPConnection(reached.info) as connection:
        connection.call_tool("write", {"text": "x"})
        assert not reached.asked("@subscriptions/listen")
        connection.on_list_change(heard.add)
        connection.subscribe_resource(NOTE, heard.add)
        with MCPToolset(reached.info) as toolset:
            toolset["write"].invoke(text="x")
            wait_until(lambda: heard == {"tools", "prompts", "resources", NOTE}, "all changes")
            # The first stream was only for lists, and was replaced when the resource was added.
            assert reached.asked("@subscriptions/listen") <= 2
    assert reached.asked("@server/discover") == 1


def test_a_toolset_that_joins_a_session_gets_tools_from_before_anything_listened(reach):
    server_info, changed = reach("in process").info, queue.Queue()
    with MCPConnection(server_info) as connection:
        connection.call_tool("offer", {"name": "extra"})
        connection.on_list_change(changed.put, "tools")
        changed.get(timeout=LIMIT)  # it listens now
        with MCPToolset(server_info) as toolset:
            assert "extra" in toolset


def test_subscribers_do_not_keep_a_connection_open(reach):
    info = reach("stdio").info

    def listen() -> "weakref.ref[MCPToolset]":
        toolset = MCPToolset(info)
        toolset.warm_up()
        toolset.on_list_change(lambda _: toolset.warm_up(), "tools")
        toolset.subscribe_resource(NOTE, lambda _: toolset.read_resource(NOTE))
        toolset.close()
        assert toolset.connection.status().state == "closed"
        toolset.warm_up()
        return weakref.ref(toolset)

    forgotten = listen()
    wait_until(lambda: gc.collect() is not None and forgotten() is None, "the toolset is collected")


def test_a_change_during_a_listing_leads_to_another_listing():
    """The change comes after the server has read its list, and before the client has the answer."""
    server = build_server()
    to_hold, held, go, listening = (threading.Event() for _ in range(4))

    async def hold(ctx, call_next):
        result = await call_next(ctx)
        if ctx.method == "tools/list" and to_hold.is_set():
            to_hold.clear()
            held.set()
            await asyncio.to_thread(go.wait, LIMIT)
        return result

    server._lowlevel_server.middleware.append(hold)
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        toolset.on_list_change(lambda _: listening.set(), "tools")
        wait_until(lambda: _call(toolset, "offer", name="warm") and listening.is_set(), "it listens")
        to_hold.set()
        refreshing = in_thread(toolset.refresh)
        assert held.wait(LIMIT)
        toolset["offer"].invoke(name="extra")
        toolset.warm_up()  # it does not use the listing that began before the change
        assert "extra" in toolset
        go.set()
        refreshing.result(LIMIT)
        assert "extra" in toolset  # the older answer did not win


async def test_async_functions_run_in_the_loop_of_the_sessions_and_failing_ones_are_called_again(reach, caplog):
    threads: queue.Queue[int] = queue.Queue()

    async def fail(_: str) -> None:
        threads.put(threading.get_ident())
        raise LookupError("no such thing")

    async with MCPConnection(reach("in process").info) as connection:
        await connection.subscribe_resource_async(NOTE, fail)
        for text in ("one", "two"):
            await connection.call_tool_async("write", {"text": text})
            assert await asyncio.to_thread(threads.get, timeout=LIMIT) == AsyncExecutor.get_instance()._thread.ident
    assert "`subscribe_resource` failed: LookupError: no such thing" in caplog.text


def test_a_change_that_a_fastmcp_server_announces_in_the_answer_to_a_call_is_noticed():
    """FastMCP has no stream for changes, and does not declare one."""
    server = FastMCP("fastmcp")

    @server.tool
    async def offer(name: str, ctx: FastMCPContext) -> None:
        server.tool(lambda: "new", name=name)
        await ctx.send_notification(types.ToolListChangedNotification())

    with MCPToolset(InProcessServerInfo(server)) as toolset:
        assert not toolset.capabilities["tools"]["listChanged"]
        toolset["offer"].invoke(name="extra")
        wait_for_listing(toolset, "extra")
        toolset.warm_up()
        assert toolset["extra"].call().text == "new"


@asynccontextmanager
async def listening_in(watcher: Watcher, **client: Any) -> AsyncIterator[listening.ChangeListener]:
    """Return the listener of a session with the given client."""
    served = listening.Watchers("a server")
    served.add(watcher)
    details = ServerDetails(capabilities={"resources": {"subscribe": True}})
    session: Any = SimpleNamespace(client=SimpleNamespace(**client), uncounted=lambda request: request, details=details)
    listener = served.listen_in(session, is_first=True, on_gap=bool)
    running = asyncio.create_task(listener.run())
    yield listener
    running.cancel()


@rows(
    ("failure", "attempts"),
    (MCPConnectionError("HTTP 502 Bad Gateway"), 3),
    (MCPAuthorizationError("the person has declined"), 1),
)
async def test_subscribing_to_a_resource_is_retried_in_a_new_session_unless_a_person_has_declined(
    failure, attempts, monkeypatch, caplog
):
    async def subscribe(_: str) -> None:
        sent.append("subscribe")
        if len(sent) < 3:
            raise failure

    sent, told = [], []
    monkeypatch.setattr(listening, "_FIRST_PAUSE", 0.01)
    watcher = Watcher(WantedChanges(uris=frozenset([NOTE])), told.append, is_subscribed=True)
    async with listening_in(watcher, listens=False, subscribe_resource=subscribe):
        await wait_until_async(lambda: told or "No more changes of resource" in caplog.text, "the outcome")
    assert len(sent) == attempts


async def test_a_new_subscription_waits_for_the_end_of_the_previous_one():
    async def subscribe(_: str) -> None:
        sent.append("subscribe")

    async def unsubscribe(_: str) -> None:
        await may_end.wait()
        sent.append("unsubscribe")

    sent, may_end = [], asyncio.Event()
    watcher = Watcher(WantedChanges(uris=frozenset([NOTE])), print)
    client = {"listens": False, "subscribe_resource": subscribe, "unsubscribe_resource": unsubscribe}
    async with listening_in(watcher, **client) as listener:
        await listener.wait_until_served(NOTE)
        listener._watchers.remove(watcher)
        await wait_until_async(lambda: listener._unsubscribing, "the end of the subscription")
        listener._watchers.add(watcher)
        again = asyncio.create_task(listener.wait_until_served(NOTE))
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.wait_for(again, LIMIT)
    assert sent == ["subscribe", "unsubscribe", "subscribe"]


@rows(("is_refused", "said"), (True, "does not report changes of resource"), (False, "the session ended meanwhile"))
async def test_all_who_wait_for_a_subscription_are_told_that_it_failed(is_refused, said):
    async def listen(_: WantedChanges, acknowledged: Callable[[WantedChanges], None]) -> None:
        if is_refused:
            acknowledged(WantedChanges())
        await asyncio.Event().wait()

    watcher = Watcher(WantedChanges(uris=frozenset([NOTE])), print)
    async with listening_in(watcher, listens=True, listen=listen) as listener:
        waiting = [asyncio.create_task(listener.wait_until_served(NOTE)) for _ in range(2)]
        await asyncio.wait(waiting, timeout=LIMIT if is_refused else 0.01)
    errors = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), LIMIT)
    assert [said in str(error) for error in errors] == [True, True]


def test_a_failed_subscription_is_an_error_with_the_reason(reach, stdio_server):
    with MCPConnection(stdio_server().info()) as connection:
        with pytest.raises(MCPConnectionError, match=r"`subscribe_resource` of.*the server does not offer it"):
            connection.subscribe_resource("memo://x", print)
    with MCPConnection(reach("in process").info) as connection:
        with mcp_request_context(user="alice"), pytest.raises(MCPConnectionError, match="not to a user's"):
            connection.subscribe_resource(NOTE, print)


@pytest.mark.parametrize("code", [types.METHOD_NOT_FOUND, types.INVALID_PARAMS])
def test_a_server_that_says_that_it_reports_changes_and_refuses_is_not_asked_again(code):
    server, asked = build_server(), []

    async def refuse(ctx, call_next):
        if ctx.method != "subscriptions/listen":
            return await call_next(ctx)
        asked.append(ctx)
        raise MCPError(code=code, message="no streams here")

    server._lowlevel_server.middleware.append(refuse)
    with MCPConnection(InProcessServerInfo(server)) as connection:
        for _ in range(2):
            with pytest.raises(MCPConnectionError, match="no streams here"):
                connection.subscribe_resource(NOTE, print)
    assert code == types.INVALID_PARAMS or len(asked) == 1


@pytest.mark.parametrize("keeps_session", [False, True])
def test_a_resource_is_subscribed_to_again_when_a_closed_connection_is_used_again(keeps_session):
    requests: list[str] = []
    server_info = InProcessServerInfo(build_server(lambda event, **_: requests.append(event)), negotiation="handshake")
    connection = MCPConnection(server_info)
    with MCPConnection(server_info, share=keeps_session):
        with connection:
            connection.subscribe_resource(NOTE, print)
        with connection:
            wait_until(lambda: requests.count("@resources/subscribe") == 2, "it is subscribed to again")


def test_a_server_that_announces_changes_all_the_time_is_listed_with_pauses():
    requests: list[str] = []
    server = build_server(lambda event, **_: requests.append(event))

    @server.tool()
    async def flood(ctx: Context) -> None:
        for _ in range(300):
            await ctx.notify_tools_changed()
            await asyncio.sleep(0.001)

    with MCPToolset(InProcessServerInfo(server)) as toolset:
        wait_until(lambda: "@subscriptions/listen" in requests, "it listens")
        began, listed = time.monotonic(), requests.count("@tools/list")
        toolset["flood"].call()
        listings = requests.count("@tools/list") - listed
        assert 1 <= listings <= (time.monotonic() - began) / 0.2 + 2


def test_a_further_function_does_not_wake_what_still_listens_in_the_loop_before():
    listeners = listening.Watchers("a server")

    async def listen() -> listening.ChangeListener:
        return listeners.listen_in(SimpleNamespace(), is_first=True, on_gap=bool)

    async def add() -> None:
        listeners.add(Watcher(WantedChanges(lists=frozenset({"tools"})), print))

    listener = in_thread(asyncio.run, listen()).result(LIMIT)
    in_thread(asyncio.run, add()).result(LIMIT)
    assert not listener.wake_event.is_set()


def test_a_listing_in_the_background_uses_no_session_of_the_loop_before():
    with MCPConnection(COUNTER) as connection:
        supervisor = connection._server_sessions.default
        with pytest.raises(MCPConnectionError, match="there is no open session"):
            in_thread(asyncio.run, supervisor.list_tools_if_open(LIMIT)).result(LIMIT)
