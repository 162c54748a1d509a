# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Served code that ends processes, or raises what else is no Exception.
"""

import asyncio
import sys
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.tools import ComponentTool, Tool
from mcp import MCPError
from mcp.types import PromptReference

from haystack_integrations.tools.mcp.haystack_compat import HAS_ASYNC_FUNCTION
from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from tests.serving.components import LIMIT, AsyncPipeline
from tests.support.reachable import reachable
from tests.support.scripted_chat import ScriptedChatGenerator, call, say

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class PanicError(BaseException):
    """As libraries in Rust raise it."""


def _exit(text: str) -> str:
    sys.exit(text)


def _interrupt(text: str) -> str:
    raise KeyboardInterrupt


def _panic(text: str) -> str:
    raise PanicError


def _cancelled(text: str) -> str:
    raise asyncio.CancelledError


def _server(raising: Any) -> FastMCP[Any]:
    def tool_raises(text: str) -> str:
        return raising(text)

    def function_raises(text: str) -> str:
        return raising(text)

    async def coroutine_raises(text: str) -> str:
        return raising(text)

    async def child_task_raises(text: str) -> str:
        await asyncio.gather(coroutine_raises(text))
        return text

    async def completion_raises(value: str, _known: Any) -> list[str]:
        return [raising(value)]

    @component
    class Raises:
        @component.output_types(text=str)
        def run(self, text: str) -> dict[str, str]:
            return {"text": raising(text)}

    @component
    class RaisesAsync:
        @component.output_types(text=str)
        def run(self, text: str) -> dict[str, str]:
            return {"text": raising(text)}

        @component.output_types(text=str)
        async def run_async(self, text: str) -> dict[str, str]:
            return {"text": raising(text)}

    @component
    class Prompt:
        variables = ("text",)
        required_variables = ("text",)

        @component.output_types(prompt=str)
        def run(self, text: str) -> dict[str, str]:
            return {"prompt": raising(text)}

    def pipeline(kind: Any, raises: Any) -> Any:
        made = kind()
        made.add_component("raises", raises)
        return made

    tools = [
        Tool("tool", "Raises.", TEXT, tool_raises),
        function_raises,
        coroutine_raises,
        child_task_raises,
        ComponentTool(Raises(), name="component", description="Raises."),
    ]
    if HAS_ASYNC_FUNCTION:
        tools.append(Tool("async_tool", "Raises.", TEXT, async_function=coroutine_raises))
    server = create_mcp_server(
        "shop",
        tools=tools,
        pipelines={
            "pipeline": pipeline(Pipeline, Raises()),
            "async_pipeline": pipeline(AsyncPipeline, RaisesAsync()),
            "async_pipeline_of_threads": pipeline(AsyncPipeline, Raises()),
        },
        agents={
            f"agent_{tool.name}": Agent(
                chat_generator=ScriptedChatGenerator([call(tool.name, text="x"), say("Done.")]), tools=[tool]
            )
            for tool in tools
            if isinstance(tool, Tool)
        },
        prompts={"prompt": Prompt()},
        options={"prompt": ServeOptions(completions={"text": completion_raises})},
    )
    server.tool(function_raises, name="of_fastmcp")

    @server.resource("made://text")
    def resource() -> str:
        return raising("text")

    @server.resource("made://{text}")
    async def template(text: str) -> str:
        return raising(text)

    @server.prompt
    def prompt_of_fastmcp(text: str) -> str:
        return raising(text)

    return server


@pytest.mark.parametrize(
    ("raising", "over_http"), [(_exit, False), (_exit, True), (_interrupt, False), (_panic, False), (_cancelled, False)]
)
async def test_what_ends_processes_fails_its_own_call_only(raising: Any, over_http: bool):
    server = _server(raising)
    async with asyncio.timeout(LIMIT), reachable(server, over_http=over_http) as target, Client(target) as client:
        names = [tool.name for tool in await client.list_tools()]
        for name in names:
            arguments = {"task" if name.startswith("agent") else "text": "secret"}
            result = await client.call_tool(name, arguments, raise_on_error=False)
            assert result.is_error, name
            assert "secret" not in str(result)
        for name in ("prompt", "prompt_of_fastmcp"):
            with pytest.raises(MCPError):
                await client.get_prompt(name, {"text": "x"})
        with pytest.raises(MCPError):
            await client.complete(PromptReference(type="ref/prompt", name="prompt"), {"name": "text", "value": "x"})
        for uri in ("made://text", "made://x"):
            with pytest.raises(MCPError):
                await client.read_resource(uri)
