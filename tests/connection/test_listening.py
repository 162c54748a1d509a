# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What servers say of changes: to connections and toolsets, over every transport, in both eras, and after a loss.
"""

import asyncio
import contextlib
import gc
import queue
import threading
import time
import weakref
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from fastmcp import Context as FastMCPContext
from fastmcp import FastMCP
from mcp import types
from mcp.server.mcpserver import Context

from haystack_integrations.tools.mcp import (
    AsyncExecutor,
    InProcessServerInfo,
    MCPAuthorizationError,
    MCPConnection,
    MCPConnectionError,
    MCPToolset,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.connection import listening
from haystack_integrations.tools.mcp.connection.listening import Attendant, Listening
from haystack_integrations.tools.mcp.protocol.changes import WantedChanges, Watcher
from haystack_integrations.tools.mcp.protocol.mcp_client import ServerDetails
from tests.servers.changing_server import NOTE, build_server
from tests.support.background import in_thread
from tests.support.processes import SERVERS, CallLog, HttpServer, prepared_script, python_script
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until, wait_until_async

CHANGING_SERVER = SERVERS / "changing_server.py"
ROOT = SERVERS.parent.parent

WAYS = ["in process", "stdio", "2026", "sessions", "sse"]


@pytest.fixture
def reach(tmp_path) -> Iterator[object]:
    started: list[HttpServer] = []

    def start(way: str) -> SimpleNamespace:
        if way == "in process":
            events: list[str] = []
            server = build_server(lambda event, **_: events.append(event))
            return SimpleNamespace(info=InProcessServerInfo(server), asked=events.count)
        log = CallLog(tmp_path / "calls.txt")
        arguments = (CHANGING_SERVER, "--calls-file", str(log.path))
        if way == "stdio":
            command = prepared_script(*arguments)
            return SimpleNamespace(info=StdioServerInfo(command[0], command[1:], env={"PYTHONPATH": str(ROOT)}))
        transport = "sse" if way == "sse" else "streamable-http"
        era = ["--protocol", "auto" if way == "2026" else "legacy"]
        path = "/sse" if way == "sse" else "/mcp"
        command = python_script(*arguments, "--transport", transport, *era)
        server = HttpServer(command, path, tmp_path, log)
        started.append(server)
        server.start()
        kind = SSEServerInfo if way == "sse" else StreamableHttpServerInfo
        return SimpleNamespace(info=kind(server.url, base_delay=0.05, max_delay=0.2), server=server)

    yield start
    for server in started:
        server.close()


every_way = pytest.mark.parametrize("way", WAYS)


def wait_for_listing(toolset: MCPToolset, name: str, *, is_there: bool = True) -> None:
    """Wait until the tools were listed in the background, with a certain one or without it."""

    def is_known() -> bool:
        fetched = toolset._fetched
        return fetched is not None and (name in [tool.name for tool in fetched]) is is_there

    wait_until(is_known, "the tools are listed again")


@every_way
def test_a_toolset_hears_of_new_tools_and_has_them_at_the_next_warm_up(reach, way):
    reached = reach(way)
    with MCPToolset(reached.info) as toolset:
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

        toolset["withdraw"].invoke(name="extra")
        wait_for_listing(toolset, "extra", is_there=False)
        toolset.warm_up()
        assert [tool.name for tool in toolset] == before


@every_way
def test_who_subscribes_to_a_resource_is_told_of_its_changes_until_it_unsubscribes(reach, way):
    reached = reach(way)
    updates: queue.Queue[str] = queue.Queue()
    with MCPConnection(reached.info) as connection:
        unsubscribe = connection.subscribe_resource(NOTE, updates.put)
        connection.call_tool("write", {"text": "second"})
        assert updates.get(timeout=LIMIT) == NOTE
        assert connection.read_resource(NOTE).contents[0].text == "second"
        unsubscribe()
        unsubscribe()
        connection.call_tool("write", {"text": "third"})
        told = threading.Event()
        connection.on_list_change(lambda _: told.set(), "tools")
        connection.call_tool("offer", {"name": "later"})
        assert told.wait(LIMIT)  # either of this change, or because listening began after it
        assert updates.empty()


@pytest.mark.parametrize("way", ["2026", "sessions", "sse"])
def test_after_a_loss_it_listens_again_and_tells_who_may_have_missed_something(reach, way):
    reached = reach(way)
    updates: queue.Queue[str] = queue.Queue()
    with MCPToolset(reached.info) as toolset:
        toolset["offer"].invoke(name="extra")
        toolset.refresh()
        assert "extra" in toolset
        toolset.subscribe_resource(NOTE, updates.put)
        reached.server.kill()
        reached.server.start()  # it does not have the other tool any more
        if way != "2026":  # where a stream is opened again without a call
            wait_until(lambda: _call(toolset, "write", text="x"), "a call is answered again")
        wait_for_listing(toolset, "extra", is_there=False)
        assert updates.get(timeout=LIMIT) == NOTE
        while not updates.empty():
            updates.get()
        wait_until(lambda: _call(toolset, "write", text="y") and not updates.empty(), "it is subscribed again")


def _call(toolset, name, /, **arguments):
    try:
        return toolset[name].invoke(**arguments)
    except Exception:
        return None


def test_what_changes_while_the_stream_of_a_session_is_away_is_noticed_when_it_is_back(reach, cutting_proxy):
    updates: queue.Queue[str] = queue.Queue()
    proxy = cutting_proxy(reach("sessions").server.url)
    with MCPToolset(StreamableHttpServerInfo(proxy.url, base_delay=0.05)) as toolset:
        toolset.subscribe_resource(NOTE, updates.put)
        proxy.cut()
        toolset["offer"].invoke(name="extra")
        wait_for_listing(toolset, "extra")
        assert updates.get(timeout=LIMIT) == NOTE
        assert toolset.connection.status().sessions == 1


def test_there_is_one_stream_for_all_and_none_for_those_who_do_not_want_any(reach):
    reached = reach("in process")
    with MCPConnection(reached.info) as connection:
        connection.call_tool("write", {"text": "x"})
        assert not reached.asked("@subscriptions/listen")
        heard: queue.Queue[str] = queue.Queue()
        connection.on_list_change(heard.put)
        connection.subscribe_resource(NOTE, heard.put)
        with MCPToolset(reached.info) as toolset:
            toolset["write"].invoke(text="x")
            told = {heard.get(timeout=LIMIT)}
            while NOTE not in told:
                told.add(heard.get(timeout=LIMIT))
            assert told == {"tools", "prompts", "resources", NOTE}
            # The first one was only for the lists, and was replaced when the resource came in addition.
            assert reached.asked("@subscriptions/listen") <= 2
    assert reached.asked("@server/discover") == 1


def test_a_connection_is_not_kept_open_by_those_who_listen(reach):
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


def test_what_changes_while_it_is_listed_leads_to_one_more_listing():
    """The change comes after the server has read its list, and before its answer is there."""
    server = build_server()
    to_hold, held, go = threading.Event(), threading.Event(), threading.Event()

    async def hold(ctx, call_next):
        result = await call_next(ctx)
        if ctx.method == "tools/list" and to_hold.is_set():
            to_hold.clear()
            held.set()
            await asyncio.to_thread(go.wait, LIMIT)
        return result

    server._lowlevel_server.middleware.append(hold)
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        listening = threading.Event()
        toolset.on_list_change(lambda _: listening.set(), "tools")
        wait_until(lambda: _call(toolset, "offer", name="warm") and listening.is_set(), "it listens")
        to_hold.set()
        refreshing = in_thread(toolset.refresh)
        assert held.wait(LIMIT)
        toolset["offer"].invoke(name="extra")
        toolset.warm_up()  # it does not take the listing that began before the change
        assert "extra" in toolset
        go.set()
        refreshing.result(LIMIT)
        assert "extra" in toolset  # the older answer did not win


async def test_an_async_function_runs_in_the_loop_of_the_sessions_and_one_that_fails_is_called_again(reach, caplog):
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


def test_a_server_of_fastmcp_that_says_it_in_the_answer_to_a_call_is_heard():
    """FastMCP has no stream for changes, and says that it has not."""
    server = FastMCP("fastmcp")

    @server.tool
    async def offer(name: str, ctx: FastMCPContext) -> str:
        server.tool(lambda: "new", name=name)
        await ctx.send_notification(types.ToolListChangedNotification())
        return "offered"

    with MCPToolset(InProcessServerInfo(server)) as toolset:
        assert not toolset.capabilities["tools"]["listChanged"]
        toolset["offer"].invoke(name="extra")
        wait_for_listing(toolset, "extra")
        toolset.warm_up()
        assert toolset["extra"].call().text == "new"


@contextlib.asynccontextmanager
async def attending(*watchers: Watcher, is_first: bool = True, **client: Any) -> AsyncIterator[Attendant]:
    """What listens in a session with a client that is given."""

    async def uncounted(request: Awaitable[Any]) -> Any:
        return await request

    details = ServerDetails(capabilities={"resources": {"subscribe": True}})
    session: Any = SimpleNamespace(client=SimpleNamespace(**client), uncounted=uncounted, details=details)
    served = Listening("a server")
    for watcher in watchers:
        served.add(watcher)
    attendant = served.attend(session, is_first=is_first, on_gap=bool)
    running = asyncio.create_task(attendant.run())
    yield attendant
    running.cancel()
    await asyncio.wait({running})


async def test_a_subscription_that_is_not_answered_holds_up_no_other():
    async def subscribe(uri: str) -> None:
        if uri != NOTE:
            await asyncio.Event().wait()

    async with attending(listens=False, subscribe_resource=subscribe) as attendant:
        silent = asyncio.create_task(attendant.served("memo://silent"))
        await asyncio.wait_for(attendant.served(NOTE), LIMIT)
        assert not silent.done()
        silent.cancel()


async def test_who_subscribes_again_is_not_overtaken_by_the_end_of_the_subscription_before():
    async def subscribe(_: str) -> None:
        sent.append("subscribe")

    async def unsubscribe(_: str) -> None:
        await may_end.wait()
        sent.append("unsubscribe")

    sent: list[str] = []
    may_end = asyncio.Event()
    watcher = Watcher(WantedChanges(uris=frozenset([NOTE])), print)
    async with attending(watcher, listens=False, subscribe_resource=subscribe, unsubscribe_resource=unsubscribe) as (
        attendant
    ):
        await attendant.served(NOTE)
        attendant._listening.remove(watcher)
        await wait_until_async(lambda: attendant._ending, "the end of the subscription")
        attendant._listening.add(watcher)
        again = asyncio.create_task(attendant.served(NOTE))
        await asyncio.sleep(0)
        may_end.set()
        await asyncio.wait_for(again, LIMIT)
    assert sent == ["subscribe", "unsubscribe", "subscribe"]


@rows(
    ("failure", "attempts"),
    [(MCPConnectionError("HTTP 502 Bad Gateway"), 3), (MCPAuthorizationError("the person has declined"), 1)],
)
async def test_a_resource_is_subscribed_to_again_in_a_new_session_although_that_fails_unless_a_person_has_declined(
    failure, attempts, monkeypatch, caplog
):
    async def subscribe(_: str) -> None:
        sent.append("subscribe")
        if len(sent) < 3:
            raise failure

    sent: list[str] = []
    told: list[Any] = []
    watcher = Watcher(WantedChanges(uris=frozenset([NOTE])), told.append)
    monkeypatch.setattr(listening, "_FIRST_PAUSE", 0.01)
    async with attending(watcher, is_first=False, listens=False, subscribe_resource=subscribe):
        await wait_until_async(lambda: told or "No more changes of resource" in caplog.text, "the outcome")
    assert len(sent) == attempts


async def test_all_who_wait_for_a_subscription_hear_that_it_is_refused():
    async def listen(_: WantedChanges, acknowledged: Callable[[WantedChanges], None]) -> None:
        await may_answer.wait()
        acknowledged(WantedChanges())
        await asyncio.Event().wait()

    may_answer = asyncio.Event()
    watcher = Watcher(WantedChanges(uris=frozenset([NOTE])), print)
    async with attending(listens=True, listen=listen) as attendant:
        attendant._listening.add(watcher)
        waiting = [asyncio.create_task(attendant.served(NOTE)) for _ in range(2)]
        await asyncio.sleep(0)
        may_answer.set()
        errors = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), LIMIT)
        assert [str(error) for error in errors] == [f"a server does not report changes of resource '{NOTE}'"] * 2


def test_what_cannot_be_subscribed_to_is_an_error_that_says_why(reach, stdio_server):
    with MCPConnection(stdio_server().info()) as connection:
        with pytest.raises(MCPConnectionError, match=r"`subscribe_resource` of.*the server does not offer it"):
            connection.subscribe_resource("memo://x", print)
    with MCPConnection(reach("in process").info) as connection:
        with mcp_request_context(user="alice"), pytest.raises(MCPConnectionError, match="on nobody's behalf"):
            connection.subscribe_resource(NOTE, print)
        for subscribe, arguments, named in (
            (connection.on_list_change, (None,), "callback"),
            (connection.on_list_change, (print, ["skills"]), "lists"),
            (connection.subscribe_resource, (NOTE, "print"), "callback"),
        ):
            with pytest.raises(ValueError, match=f"`{named}`"):
                subscribe(*arguments)


def test_a_server_that_says_all_the_time_that_its_tools_changed_is_not_asked_without_a_pause():
    requests: list[str] = []
    server = build_server(lambda event, **_: requests.append(event))

    @server.tool()
    async def flood(ctx: Context) -> str:
        for _ in range(1_000):
            await ctx.notify_tools_changed()
            await asyncio.sleep(0.001)
        return "flooded"

    with MCPToolset(InProcessServerInfo(server)) as toolset:
        wait_until(lambda: "@subscriptions/listen" in requests, "it listens")
        began, listed = time.monotonic(), requests.count("@tools/list")
        assert toolset["flood"].call().text == "flooded"
        listings = requests.count("@tools/list") - listed
        assert 1 <= listings <= (time.monotonic() - began) / 0.2 + 2
