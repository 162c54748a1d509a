# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import datetime as dt
import sys
import threading
import time

import anyio
import pytest
from fastmcp import Client, FastMCP
from fastmcp.client.elicitation import ElicitResult
from fastmcp.exceptions import ToolError
from haystack.tools import Tool

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPHandlers, MCPToolset
from haystack_integrations.tools.mcp.handlers import answer_later
from haystack_integrations.tools.mcp.serving import HaystackProvider, ServeOptions, create_mcp_server
from tests.serving.test_approvals import Shop
from tests.serving.test_gateway import Upstream
from tests.support.scripted_chat import call, say
from tests.support.waiting import LIMIT, wait_until_async

# It needs exactly the version of FastMCP that it was released with.
tasks = pytest.importorskip("fastmcp_tasks.client", reason="fastmcp-tasks does not support the newest FastMCP yet")
Timeout = pytest.importorskip("docket").Timeout

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
TASK = ServeOptions(task=True, timeout=0.1)


def _slow(text: str) -> str:
    time.sleep(0.3)
    return text.upper()


def _fail(text: str) -> str:
    raise ValueError(text)


def _leave(text: str) -> str:
    sys.exit(text)


def _server(name: str = "shop", **options) -> FastMCP:
    tools = [(Tool(each.__name__[1:], "Does it.", TEXT, each), TASK) for each in (_slow, _fail, _leave)]
    return create_mcp_server(name, tools=tools, **options)


async def test_the_log_suggests_a_background_task_for_a_call_that_timed_out(caplog):
    async with Client(_server(), mode="legacy") as client:
        with pytest.raises(ToolError, match=r"did not finish within 0\.1 s\.$"):
            await client.call_tool("slow", {"text": "tea"})
    assert "A background task has no such limit: `ServeOptions(task=True)`" in caplog.text


async def test_a_task_checks_its_arguments_and_masks_its_errors_as_a_call_does():
    async with Client(_server()) as client:
        with pytest.raises(ToolError, match="there is no argument 'txt'"):
            await client.call_tool("slow", {"txt": "tea"})
        # The last one calls `sys.exit`, which ends only its own task.
        for name in ("fail", "leave"):
            task = await tasks.call_tool_task(client, name, {"text": "secret"})
            with pytest.raises(ToolError, match=f"^Error calling tool '{name}'$"):
                await task.result()
        task = await tasks.call_tool_task(client, "slow", {"text": "tea"})
        assert (await task.result()).content[0].text == "TEA"


async def test_a_task_can_be_cancelled():
    started, cancelled = threading.Event(), threading.Event()

    async def hang(text: str) -> str:
        started.set()
        try:
            await anyio.sleep(60)
        finally:
            cancelled.set()
        return text

    async with Client(create_mcp_server("shop", tools=[(hang, TASK)])) as client:
        task = await tasks.call_tool_task(client, "hang", {"text": "x"})
        await wait_until_async(started.is_set, "the task to begin")
        await task.cancel()
        await wait_until_async(cancelled.is_set, "its end", limit=LIMIT / 2)


_SHORT, _LONG = Timeout(dt.timedelta(seconds=0.2)), Timeout(dt.timedelta(seconds=60))


async def _remaining(text: str, limit: Timeout = _LONG) -> str:
    return str(limit.remaining() > dt.timedelta(seconds=50))


async def _late(text: str, limit: Timeout = _SHORT) -> str:
    await anyio.sleep(60)
    return text


def _late_in_thread(text: str, limit: Timeout = _SHORT) -> str:
    time.sleep(2)
    return text


async def test_the_timeout_of_docket_applies_to_tasks():
    served = [(each, ServeOptions(task=True)) for each in (_remaining, _late, _late_in_thread)]
    async with Client(create_mcp_server("shop", tools=served)) as client:
        for tool in await client.list_tools():
            assert list(tool.input_schema["properties"]) == ["text"]
        task = await tasks.call_tool_task(client, "_remaining", {"text": "tea"})
        assert (await task.result()).content[0].text == "True"
        for name in ("_late", "_late_in_thread"):
            task = await tasks.call_tool_task(client, name, {"text": "tea"})
            with anyio.fail_after(30), pytest.raises(Exception, match=r"exceeded timeout of 0\.2s"):
                await task.result()


async def test_a_task_asks_for_an_approval():
    shop = Shop(call("pay", amount=1), say("Done."))
    server = create_mcp_server("shop", agents={"shop": shop.agent}, options={"shop": ServeOptions(task=True)})
    async with shop.client(server, "auto") as client:
        task = await tasks.call_tool_task(client, "shop", {"task": "Shop."})
        assert (await task.result()).structured_content == {"answer": "Done."}
    assert (len(shop.questions), shop.did) == (1, [1])


async def test_a_task_forwards_the_question_of_another_server():
    async def answer(message: str, *_) -> ElicitResult:
        assert message == "Which size?"
        return ElicitResult(action="accept", content={"size": "large"})

    handlers = MCPHandlers(elicitation=answer_later)
    with MCPToolset(InProcessServerInfo(Upstream().server), handlers=handlers) as toolset:
        server = create_mcp_server("gate", tools=[(toolset, ServeOptions(task=True))])
        async with Client(server, elicitation_handler=answer) as client:
            task = await tasks.call_tool_task(client, "brew", {"drink": "tea"})
            assert (await task.result()).content[0].text == "a large tea"


async def test_a_tool_of_a_provider_that_requires_tasks_refuses_clients_without_tasks():
    tools = [(Tool("slow", "Slow.", TEXT, _slow), ServeOptions(task="required"))]
    server = FastMCP("shop", providers=[HaystackProvider(tools=tools)])
    async with Client(server) as client:
        assert (await client.call_tool("slow", {"text": "tea"})).content[0].text == "TEA"
    async with Client(server, mode="legacy") as client:
        with pytest.raises(Exception, match="requires the tasks extension"):
            await client.call_tool("slow", {"text": "tea"})


def test_the_error_without_fastmcp_tasks_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastmcp_tasks", None)
    with pytest.raises(ImportError, match=r'need .*pip install "mcp-haystack\[tasks\]"'):
        create_mcp_server("shop", tools=[(_slow, TASK)])
