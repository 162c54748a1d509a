# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The features of FastMCP's tools, for every kind of served object.
"""

import asyncio
import threading
import time
from contextlib import asynccontextmanager
from typing import Any

import anyio
import pytest
from fastmcp import Client, FastMCP
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ToolError
from fastmcp.server.dependencies import get_context
from haystack import component
from haystack.components.agents import Agent
from haystack.tools import Tool
from mcp import MCPError
from mcp.types import Icon, PromptReference, ToolAnnotations

from haystack_integrations.tools.mcp.haystack_compat import HAS_ASYNC_FUNCTION
from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from tests.serving.components import LIMIT, AsyncPipeline, chain
from tests.serving.served_kinds import KINDS, NAME
from tests.support.reachable import reachable
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, say


@pytest.fixture(params=KINDS, ids=str)
def kind(request):
    return request.param


@rows("strict", False, True)
async def test_it_is_listed_called_with_valid_arguments_and_removed(kind, strict):
    server = kind.server(strict_input_validation=strict)
    async with Client(server) as client:
        [tool] = await client.list_tools()
        assert (tool.name, tool.input_schema["required"]) == (NAME, [kind.argument])
        assert tool.input_schema["properties"][kind.argument]["type"] == "string"
        result = await client.call_tool(NAME, kind.arguments("tea"))
        assert "TEA" in result.content[0].text
        assert result.structured_content == {kind.answer: "TEA"}
        for wrong in (None, 3, ["tea"], {"text": "tea"}):
            with pytest.raises(ToolError, match=f"Invalid arguments.*'{kind.argument}'"):
                await client.call_tool(NAME, kind.arguments(wrong))
        with pytest.raises(ToolError, match=rf"'{kind.argument}'.*[Mm]issing|[Mm]issing.*'{kind.argument}'"):
            await client.call_tool(NAME, {})
        with pytest.raises(ToolError, match="'other'"):
            await client.call_tool(NAME, {**kind.arguments("tea"), "other": 1})
        server.local_provider.remove_tool(NAME)
        assert await client.list_tools() == []
        with pytest.raises(ToolError, match="Unknown tool"):
            await client.call_tool(NAME, kind.arguments("tea"))


async def test_its_whole_description_reaches_the_client(kind):
    options = ServeOptions(
        name="find",
        title="Find It",
        description="Finds it.",
        tags={"catalog", "search"},
        icons=["https://example.com/icon.png", Icon(src="https://example.com/big.png", sizes=["96x96"])],
        meta={"author": "product-team"},
        annotations={"readOnlyHint": True, "openWorldHint": False},
        version="1.2",
    )
    async with Client(kind.server(options=options)) as client:
        [tool] = await client.list_tools()
    assert (tool.name, tool.title, tool.description) == ("find", "Find It", "Finds it.")
    assert [icon.src for icon in tool.icons] == ["https://example.com/icon.png", "https://example.com/big.png"]
    assert tool.meta["author"] == "product-team"
    assert tool.meta["fastmcp"]["tags"] == ["catalog", "search"]
    assert tool.meta["fastmcp"]["version"] == "1.2"
    assert tool.annotations == ToolAnnotations(read_only_hint=True, open_world_hint=False)


async def test_the_timeout_covers_dependencies_and_opened_dependencies_are_closed(kind):
    closed, may_end = asyncio.Event(), threading.Event()

    async def too_slow():
        await asyncio.sleep(60)

    @asynccontextmanager
    async def opened():
        try:
            async with anyio.create_task_group():
                yield "tea"
        finally:
            await asyncio.sleep(0)
            closed.set()

    try:
        for injected in (too_slow, opened):
            options = ServeOptions(bound={kind.argument: Depends(injected)}, timeout=0.2)
            async with Client(kind.server(lambda text: str(may_end.wait(60)), options)) as client:
                with anyio.fail_after(30), pytest.raises(ToolError, match=r"did not finish within 0\.2 s\.$"):
                    await client.call_tool(NAME, {})
    finally:
        may_end.set()
    assert closed.is_set()


async def test_it_has_no_timeout_as_a_background_task(kind):
    def slow(text):
        time.sleep(0.3)
        return text.upper()

    tasks = pytest.importorskip("fastmcp_tasks.client")
    async with Client(kind.server(slow, ServeOptions(task=True, timeout=0.1))) as client:
        task = await tasks.call_tool_task(client, NAME, kind.arguments("tea"))
        assert (await task.result()).structured_content == {kind.answer: "TEA"}


async def test_the_chosen_number_of_calls_runs_at_the_same_time(kind):
    inside, most, two_run = [], [], threading.Event()

    def note(text):
        inside.append(text)
        most.append(len(inside))
        if len(inside) == 2:
            two_run.set()
        assert two_run.wait(60)
        time.sleep(0.05)
        inside.remove(text)
        return text

    async with Client(kind.server(note, ServeOptions(max_concurrency=2))) as client:
        async with anyio.create_task_group() as calls:
            for number in range(6):
                calls.start_soon(client.call_tool, NAME, kind.arguments(str(number)))
    assert max(most) == 2


@rows(("masked", "told"), (True, f"^Error calling tool '{NAME}'$"), (False, "hunter2"))
async def test_details_of_errors_are_masked_by_default_except_those_of_tool_errors(kind, masked, told):
    def fail(text):
        raise ToolError("Out of tea.") if text == "tea" else ValueError("the password is hunter2")

    async with Client(kind.server(fail, mask_error_details=masked)) as client:
        with pytest.raises(ToolError, match=told):
            await client.call_tool(NAME, kind.arguments("jam"))
        with pytest.raises(ToolError, match="Out of tea"):
            await client.call_tool(NAME, kind.arguments("tea"))


async def test_its_code_has_the_context_of_the_request(kind):
    def look(text):
        context = get_context()
        anyio.from_thread.run(context.report_progress, 1, 2, "half of it")
        return f"{context.fastmcp.name} {bool(context.request_id)}"

    seen = []

    async def note(progress, total, message):
        seen.append(message)

    async with Client(kind.server(look)) as client:
        result = await client.call_tool(NAME, kind.arguments("tea"), progress_handler=note)
    assert result.structured_content == {kind.answer: "shop True"}
    assert "half of it" in seen


async def test_injected_arguments_are_neither_seen_nor_set_by_clients(kind):
    options = ServeOptions(bound={kind.argument: Depends(lambda: "injected")})
    async with Client(kind.server(options=options)) as client:
        [tool] = await client.list_tools()
        assert tool.input_schema.get("properties", {}) == {}
        assert (await client.call_tool(NAME, {})).structured_content == {kind.answer: "INJECTED"}
        with pytest.raises(ToolError, match=kind.argument):
            await client.call_tool(NAME, kind.arguments("mine"))


async def test_a_long_answer_is_cut_and_its_structured_content_stays_valid(kind):
    async with Client(kind.server(lambda text: text * 100, ServeOptions(max_characters=10))) as client:
        result = await client.call_tool(NAME, kind.arguments("tea"))
    assert result.structured_content == {kind.answer: "teateateat..."}
    assert "cut to 10 characters" in result.content[-1].text
    assert result.meta["haystack"]["truncated"]


async def test_a_given_output_schema_is_sent_and_respected_and_without_one_only_objects_are_structured(kind):
    schema = {"type": "object", "properties": {kind.answer: {"enum": ["TEA"]}}, "required": [kind.answer]}
    if kind.answer == "result":
        schema["x-fastmcp-wrap-result"] = True
    async with Client(kind.server(options=ServeOptions(output_schema=schema))) as client:
        [tool] = await client.list_tools()
        assert tool.output_schema["properties"] == schema["properties"]
        assert (await client.call_tool(NAME, kind.arguments("tea"))).structured_content == {kind.answer: "TEA"}
        with pytest.raises(ToolError, match=r"does not conform to its output schema \(\$\.\w+: 'enum' is violated\)"):
            await client.call_tool(NAME, kind.arguments("jam"))
    async with Client(kind.server(options=ServeOptions(output_schema=False))) as client:
        [tool] = await client.list_tools()
        result = await client.call_tool(NAME, kind.arguments("tea"))
    structured = None if kind.answer == "result" else {kind.answer: "TEA"}
    assert (tool.output_schema, result.structured_content) == (None, structured)


TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class PanicError(BaseException):
    """An error like those that Rust libraries raise."""


def raises(error: BaseException) -> Any:
    def raising(text: str) -> str:
        raise error

    return raising


def failing_server(raising: Any) -> FastMCP[Any]:
    async def coroutine_raises(text: str) -> str:
        return raising(text)

    async def child_task_raises(text: str) -> str:
        await asyncio.gather(coroutine_raises(text))
        return text

    @component
    class Raises:
        variables = ("text",)
        required_variables = ("text",)

        @component.output_types(prompt=str)
        def run(self, text: str) -> dict[str, str]:
            return {"prompt": raising(text)}

    @component
    class RaisesAsync(Raises):
        @component.output_types(prompt=str)
        async def run_async(self, text: str) -> dict[str, str]:
            return {"prompt": raising(text)}

    tools = [
        Tool("tool", "Raises.", TEXT, raising),
        *([Tool("async_tool", "Raises.", TEXT, async_function=coroutine_raises)] if HAS_ASYNC_FUNCTION else []),
    ]
    server = create_mcp_server(
        "shop",
        tools=[*tools, raising, coroutine_raises, child_task_raises],
        pipelines={
            "pipeline": chain(Raises()),
            "async_pipeline": chain(RaisesAsync(), kind=AsyncPipeline),
        },
        agents={
            f"agent_{tool.name}": Agent(
                chat_generator=ScriptedChatGenerator([call(tool.name, text="x"), say("Done.")]),
                tools=[tool],
                raise_on_tool_invocation_failure=True,
            )
            for tool in tools
        },
        prompts={"prompt": Raises()},
        options={"prompt": ServeOptions(completions={"text": lambda value, _known: [raising(value)]})},
    )
    server.tool(raising, name="of_fastmcp")
    server.prompt(raising, name="prompt_of_fastmcp")
    server.resource("made://text", name="resource")(lambda: raising("text"))
    server.resource("made://{text}")(coroutine_raises)
    return server


@pytest.mark.parametrize(
    ("error", "over_http"),
    [
        (SystemExit, True),
        *((each, False) for each in (ValueError, SystemExit, PanicError, asyncio.CancelledError)),
    ],
)
async def test_an_error_fails_only_its_own_call_and_its_details_are_not_shown(error: Any, over_http: bool):
    server = failing_server(raises(error("secret")))
    async with asyncio.timeout(LIMIT), reachable(server, over_http=over_http) as target, Client(target) as client:
        names = [tool.name for tool in await client.list_tools()]
        for name in names:
            arguments = {"task" if name.startswith("agent") else "text": "secret"}
            result = await client.call_tool(name, arguments, raise_on_error=False)
            assert result.is_error, name
            assert "secret" not in str(result)
        with pytest.raises(MCPError):  # whose text contains that of the ValueError
            await client.get_prompt("prompt_of_fastmcp", {"text": "x"})
        prompt = PromptReference(type="ref/prompt", name="prompt")
        for fails in (
            client.get_prompt("prompt", {"text": "x"}),
            client.complete(prompt, {"name": "text", "value": "x"}),
            *(client.read_resource(uri) for uri in ("made://text", "made://x")),
        ):
            with pytest.raises(MCPError) as failed:
                await fails
            assert "secret" not in str(failed.value)
