# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The fixtures do what the other tests rely on, shown with the plain MCP SDK client.
"""

import asyncio
import os
import subprocess
import sys
import threading
from typing import Any

import anyio
import httpx
import pytest
from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import create_tool_from_function
from mcp import Client
from mcp.client.sse import sse_client

from tests.servers import fastmcp_server, inprocess
from tests.support import external
from tests.support.leaks import Footprint, assert_nothing_left
from tests.support.processes import is_alive
from tests.support.scripted_chat import ScriptedChatGenerator, call, say
from tests.support.waiting import wait_until_async

LIMIT = 30


def reach(url: str) -> Any:
    """What `mcp.Client` takes for the URL."""
    return sse_client(url) if url.endswith("/sse") else url


def text(result: Any) -> str:
    return "".join(block.text for block in result.content)


class TestCounterServer:
    @pytest.mark.parametrize("mode", ["auto", "legacy"])
    @pytest.mark.parametrize("protocol", ["auto", "legacy"])
    async def test_speaks_both_eras_over_stdio(self, sdk_stdio_server, protocol, mode):
        server = sdk_stdio_server("--protocol", protocol)
        async with Client(server.parameters(), mode=mode) as client:
            modern = client.session.protocol_version >= "2026"
            assert modern == (protocol == mode == "auto")
            assert text(await client.call_tool("add", {"a": 2, "b": 3})) == "5"
        assert server.calls() == ["add"]
        assert server.requests("tools/call") == ["tools/call"]

    @pytest.mark.parametrize("mode", ["auto", "legacy"])
    @pytest.mark.parametrize(
        "options",
        [
            ["sse"],
            ["sse", "--protocol", "legacy"],
            ["streamable-http"],
            ["streamable-http", "--json"],
            ["streamable-http", "--stateless"],
            ["streamable-http", "--protocol", "legacy"],
        ],
        ids=" ".join,
    )
    async def test_speaks_both_eras_over_http(self, shared_http_server, options, mode):
        server = shared_http_server(*options)
        async with Client(reach(server.url), mode=mode) as client:
            modern = client.session.protocol_version >= "2026"
            assert modern == (mode == "auto" and "legacy" not in options)
            assert text(await client.call_tool("echo", {"text": "hello"})) == "hello"

    async def test_runs_in_the_given_environment_and_folder(self, sdk_stdio_server, tmp_path):
        server = sdk_stdio_server(env={"GREETING": "hello"}, cwd=str(tmp_path))
        async with Client(server.parameters()) as client:
            assert text(await client.call_tool("env", {"name": "GREETING"})) == "hello"
            assert text(await client.call_tool("cwd")) == str(tmp_path)
            assert int(text(await client.call_tool("pid"))) == server.pids()[0]

    async def test_gives_every_kind_of_content(self, sdk_stdio_server):
        kinds = {
            "image": "image",
            "audio": "audio",
            "resource": "resource",
            "blob": "resource",
            "link": "resource_link",
        }
        async with Client(sdk_stdio_server().parameters()) as client:
            for tool, kind in kinds.items():
                assert [block.type for block in (await client.call_tool(tool)).content] == [kind]
            assert [block.type for block in (await client.call_tool("mixed")).content] == ["text", "image", "text"]
            assert (await client.call_tool("structured")).structured_content["city"] == "Berlin"
            only = await client.call_tool("structured_only")
            assert (only.content, only.structured_content) == ([], {"answer": 42})
            assert len(text(await client.call_tool("big", {"size": 100_000}))) == 100_000
            failed = await client.call_tool("fail", {"message": "no luck"})
            assert failed.is_error
            assert "no luck" in text(failed)

    async def test_lists_in_pages(self, sdk_stdio_server):
        server = sdk_stdio_server("--tools", "25", "--page-size", "10")
        async with Client(server.parameters()) as client:
            pages, cursor = [], None
            while not pages or cursor:
                page = await client.list_tools(cursor=cursor)
                pages.append(page.tools)
                cursor = page.next_cursor
        assert [len(page) for page in pages[:-1]] == [10] * (len(pages) - 1)
        names = [tool.name for page in pages for tool in page]
        assert len(names) == len(set(names))
        assert {"add", "tool_0000", "tool_0024"} <= set(names)

    async def test_lists_the_same_page_for_ever(self, sdk_stdio_server):
        async with Client(sdk_stdio_server("--page-size", "5", "--repeat-cursor").parameters()) as client:
            first = await client.list_tools()
            second = await client.list_tools(cursor=first.next_cursor)
        assert first.next_cursor == second.next_cursor is not None

    async def test_records_a_cancelled_call(self, sdk_stdio_server):
        server = sdk_stdio_server()
        async with Client(server.parameters()) as client, anyio.create_task_group() as group:
            group.start_soon(client.call_tool, "sleep", {"seconds": 600})
            await server.wait_for_async("sleep")
            group.cancel_scope.cancel()
        await server.wait_for_async("sleep-cancelled")
        assert "sleep-finished" not in server.calls()

    async def test_dies_on_request(self, sdk_stdio_server):
        server = sdk_stdio_server()
        with anyio.fail_after(LIMIT):
            async with Client(server.parameters()) as client:
                with pytest.raises(Exception, match=r"(?i)closed"):
                    await client.call_tool("die")
        assert server.calls() == ["die"]
        assert server.alive() == []

    async def test_asks_for_its_token(self, http_server):
        server = http_server("streamable-http", "--token", "sesame")
        async with httpx.AsyncClient() as client:
            refused = await client.post(server.url, json={})
            accepted = await client.post(server.url, json={}, headers={"Authorization": "Bearer sesame"})
        assert refused.status_code == 401
        assert accepted.status_code != 401

    async def test_hangs_on_request(self, http_server):
        server = http_server("streamable-http", "--hang-at-start")
        async with httpx.AsyncClient(timeout=0.3) as client:
            with pytest.raises(httpx.ReadTimeout):
                await client.get(server.url)


class TestHttpServer:
    @pytest.mark.parametrize("transport", ["sse", "streamable-http"])
    async def test_restarts_on_the_same_port_and_keeps_its_record(self, http_server, transport):
        server = http_server(transport)
        url = server.url
        for count in (1, 2):
            async with Client(reach(url)) as client:
                await client.call_tool("add", {"a": 1, "b": 1})
            assert server.calls("add") == ["add"] * count
            server.restart()
            assert server.url == url
        assert len(set(server.pids())) == 3

    async def test_refuses_connections_while_it_is_down(self, http_server):
        server = http_server()
        server.kill()
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(server.url)
        server.start()
        async with Client(server.url) as client:
            assert (await client.list_tools()).tools

    async def test_stops_when_asked(self, http_server):
        server = http_server()
        pid = server.pid
        server.stop()
        assert not server.running
        assert not is_alive(pid)

    async def test_freezes_and_thaws(self, http_server):
        server = http_server()
        server.freeze()
        async with httpx.AsyncClient(timeout=0.3) as client:
            with pytest.raises(httpx.ReadTimeout):
                await client.get(server.url)
        server.thaw()
        async with Client(server.url) as client:
            assert (await client.list_tools()).tools

    def test_says_why_a_server_did_not_start(self, http_server):
        with pytest.raises(AssertionError, match="unrecognized arguments: --no-such-option"):
            http_server("sse", "--no-such-option")

    def test_shows_what_the_server_wrote_to_stderr(self, http_server):
        assert "counter server: starting" in http_server().stderr()


class TestCuttingProxy:
    @pytest.mark.parametrize("transport", ["sse", "streamable-http"])
    async def test_passes_on_what_it_gets(self, shared_http_server, cutting_proxy, transport):
        proxy = cutting_proxy(shared_http_server(transport).url)
        async with Client(reach(proxy.url)) as client:
            assert len(text(await client.call_tool("big", {"size": 1_000_000}))) == 1_000_000
        assert proxy.accepted > 0
        assert b'"tools/call"' in proxy.sent

    @pytest.mark.parametrize("transport", ["sse", "streamable-http"])
    async def test_cuts_after_the_request_was_forwarded(self, http_server, cutting_proxy, transport):
        server = http_server(transport)
        proxy = cutting_proxy(server.url)
        trap = proxy.cut_when(b'"tools/call"')
        await self._call_that_is_cut(proxy, "add", {"a": 1, "b": 1}, trap)
        await server.wait_for_async("add")
        assert server.calls() == ["add"]

    @pytest.mark.parametrize("transport", ["sse", "streamable-http"])
    async def test_cuts_before_the_request_is_forwarded(self, http_server, cutting_proxy, transport):
        server = http_server(transport)
        proxy = cutting_proxy(server.url)
        trap = proxy.cut_when(b'"tools/call"', when="before")
        await self._call_that_is_cut(proxy, "add", {"a": 1, "b": 1}, trap)
        async with Client(reach(proxy.url)) as client:
            await client.call_tool("echo", {"text": "again"})
        assert server.calls() == ["echo"]

    async def test_lets_the_server_see_the_cut(self, http_server, cutting_proxy):
        server = http_server()
        proxy = cutting_proxy(server.url)
        trap = proxy.cut_when(b'"tools/call"', server_sees=True)
        await self._call_that_is_cut(proxy, "sleep", {"seconds": 600}, trap)
        await server.wait_for_async("sleep-cancelled")

    @staticmethod
    async def _call_that_is_cut(proxy: Any, tool: str, arguments: dict[str, Any], trap: Any) -> None:
        """Call through the proxy, and leave once the trap has sprung: the SDK itself would wait for long."""
        with anyio.fail_after(LIMIT):
            try:
                async with Client(reach(proxy.url)) as client, anyio.create_task_group() as group:
                    group.start_soon(client.call_tool, tool, arguments)
                    await wait_until_async(trap.sprung.is_set, "the cut")
                    group.cancel_scope.cancel()
            except* Exception:  # noqa: S110 - the SDK's error depends on where it noticed the cut
                pass

    async def test_cuts_now(self, shared_http_server, cutting_proxy):
        proxy = cutting_proxy(shared_http_server("sse").url)
        async with httpx.AsyncClient(timeout=LIMIT) as client, client.stream("GET", proxy.url) as response:
            chunks = response.aiter_bytes()
            await anext(chunks)
            assert proxy.cut() == 1
            with pytest.raises((httpx.ReadError, httpx.RemoteProtocolError)):
                await anext(chunks)

    async def test_refuses_and_accepts_again_on_the_same_port(self, shared_http_server, cutting_proxy):
        proxy = cutting_proxy(shared_http_server("streamable-http").url)
        url = proxy.url
        proxy.refuse()
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.ConnectError):
                await client.get(url)
            proxy.accept()
            assert proxy.url == url
            assert (await client.get(url)).status_code >= 400

    async def test_holds_and_releases(self, shared_http_server, cutting_proxy):
        proxy = cutting_proxy(shared_http_server("streamable-http").url)
        async with Client(proxy.url) as client:
            proxy.hold()
            call_under_way = asyncio.ensure_future(client.call_tool("echo", {"text": "late"}))
            await wait_until_async(lambda: b'"late"' in proxy.sent, "the request")
            assert not call_under_way.done()
            proxy.release()
            assert text(await call_under_way) == "late"

    async def test_breaks_the_connection_when_the_server_is_down(self, http_server, cutting_proxy):
        server = http_server()
        proxy = cutting_proxy(server.url)
        server.kill()
        async with httpx.AsyncClient() as client:
            with pytest.raises(httpx.TransportError):
                await client.get(proxy.url)


class TestInProcess:
    @pytest.mark.parametrize("mode", ["auto", "legacy"])
    async def test_counts(self, mode):
        inprocess.calls.clear()
        async with Client(inprocess.server, mode=mode) as client:
            assert text(await client.call_tool("add", {"a": 2, "b": 2})) == "4"
        assert inprocess.calls == ["add"]


class TestFastMCP:
    async def test_over_stdio(self, fastmcp_stdio):
        async with Client(fastmcp_stdio.parameters()) as client:
            assert text(await client.call_tool("add", {"a": 2, "b": 2})) == "4"

    async def test_over_http(self, fastmcp_http):
        async with Client(fastmcp_http.url) as client:
            person = await client.call_tool("person", {"name": "Ada"})
        assert person.structured_content == {"name": "Ada", "age": 42}

    def test_is_importable(self):
        assert fastmcp_server.server.name == "fastmcp"


@pytest.mark.integration
class TestServersFromOutside:
    async def test_everything_over_stdio(self, everything_stdio):
        async with Client(everything_stdio.parameters()) as client:
            assert "hello" in text(await client.call_tool("echo", {"message": "hello"}))

    async def test_everything_over_sse(self, everything_sse):
        async with Client(sse_client(everything_sse.url)) as client:
            assert "hello" in text(await client.call_tool("echo", {"message": "hello"}))

    async def test_everything_over_streamable_http(self, everything_http):
        async with Client(everything_http.url) as client:
            assert "hello" in text(await client.call_tool("echo", {"message": "hello"}))

    async def test_everything_listens_on_the_loopback_interface_only(self, everything_http):
        import psutil

        processes = [psutil.Process(everything_http.pid), *psutil.Process(everything_http.pid).children(recursive=True)]
        listening = [
            connection.laddr
            for process in processes
            for connection in process.net_connections(kind="inet")
            if connection.status == psutil.CONN_LISTEN
        ]
        assert listening == [("127.0.0.1", everything_http.port)]

    async def test_time(self, time_server):
        async with Client(time_server.parameters()) as client:
            assert client.session.protocol_version >= "2026"
            assert "UTC" in text(await client.call_tool("get_current_time", {"timezone": "UTC"}))

    async def test_time_with_an_earlier_sdk(self, old_time_server):
        async with Client(old_time_server.parameters()) as client:
            assert client.session.protocol_version < "2026"
            assert "UTC" in text(await client.call_tool("get_current_time", {"timezone": "UTC"}))

    async def test_git(self, git_server):
        async with Client(git_server.parameters()) as client:
            log = text(await client.call_tool("git_log", {"repo_path": git_server.cwd}))
        assert "first" in log

    def test_what_is_missing_skips_here_and_fails_in_ci(self, monkeypatch):
        monkeypatch.setenv("PATH", "")
        monkeypatch.delenv("CI", raising=False)
        with pytest.raises(pytest.skip.Exception, match="npx was not found"):
            external.npx()
        monkeypatch.setenv("CI", "true")
        with pytest.raises(pytest.fail.Exception, match="npx was not found"):
            external.npx()


class TestLeakCheck:
    def test_names_a_child_process_and_ends_it(self):
        before = Footprint.take()
        child = subprocess.Popen([sys.executable, "-c", "import signal; signal.pause()"])
        with pytest.raises(AssertionError, match=rf"process {child.pid}: .*signal.pause"):
            assert_nothing_left(before, limit=0)
        child.wait()
        assert_nothing_left(before)

    @pytest.mark.skipif(sys.platform != "linux", reason="orphans are adopted on Linux only")
    def test_names_a_process_whose_parent_has_ended(self):
        before = Footprint.take()
        orphan_maker = (
            "import subprocess, sys;"
            "quiet = {'stdout': subprocess.DEVNULL, 'stderr': subprocess.DEVNULL};"
            "print(subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'], **quiet).pid)"
        )
        finished = subprocess.run([sys.executable, "-c", orphan_maker], capture_output=True, check=True)
        orphan = int(finished.stdout)
        with pytest.raises(AssertionError, match=f"process {orphan}"):
            assert_nothing_left(before, limit=0)
        assert_nothing_left(before)
        os.waitpid(orphan, 0)

    def test_names_a_thread_and_a_listening_socket(self):
        import socket

        before = Footprint.take()
        go_on = threading.Event()
        thread = threading.Thread(target=go_on.wait, name="forgotten")
        thread.start()
        listener = socket.create_server(("127.0.0.1", 0))
        try:
            with pytest.raises(AssertionError, match=r"thread 'forgotten'.*\n.*port \d+"):
                assert_nothing_left(before, limit=0)
        finally:
            go_on.set()
            thread.join()
            listener.close()
        assert_nothing_left(before)


def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


class TestScriptedChat:
    def test_drives_an_agent_and_remembers_what_it_saw(self):
        tool = create_tool_from_function(double)
        generator = ScriptedChatGenerator([call("double", number=21), say("It is 42.")])
        result = Agent(chat_generator=generator, tools=[tool]).run(messages=[ChatMessage.from_user("Double 21!")])
        assert result["last_message"].text == "It is 42."
        assert [turn.tool_names for turn in generator.turns] == [["double"], ["double"]]
        assert generator.turns[1].tool_results == ["42"]

    async def test_drives_an_agent_asynchronously(self):
        generator = ScriptedChatGenerator([say("Hello.")])
        result = await Agent(chat_generator=generator).run_async(messages=[ChatMessage.from_user("Hi!")])
        assert result["last_message"].text == "Hello."

    def test_goes_through_yaml(self):
        pipeline = Pipeline()
        pipeline.add_component("chat", ScriptedChatGenerator([say("Hello.")]))
        loaded = Pipeline.loads(pipeline.dumps())
        assert loaded.run({"chat": {"messages": [ChatMessage.from_user("Hi!")]}})["chat"]["replies"][0].text == "Hello."

    def test_says_when_the_script_is_over(self):
        with pytest.raises(RuntimeError, match="only 0 replies"):
            ScriptedChatGenerator([]).run([ChatMessage.from_user("Hi!")])
