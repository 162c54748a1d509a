# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Served code that fails, ends processes, or raises what else is no Exception.
"""

import asyncio
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from haystack import component
from haystack.components.agents import Agent
from haystack.tools import Tool
from mcp import MCPError
from mcp.types import PromptReference

from haystack_integrations.tools.mcp.haystack_compat import HAS_ASYNC_FUNCTION
from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from tests.serving.components import LIMIT, AsyncPipeline, chain
from tests.support.reachable import reachable
from tests.support.scripted_chat import ScriptedChatGenerator, call, say

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class PanicError(BaseException):
    """As libraries in Rust raise it."""


def raises(error: BaseException) -> Any:
    def raising(text: str) -> str:
        raise error

    return raising


def _server(raising: Any) -> FastMCP[Any]:
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
    ("kind", "over_http"),
    [
        (SystemExit, True),
        *((kind, False) for kind in (ValueError, SystemExit, KeyboardInterrupt, PanicError, asyncio.CancelledError)),
    ],
)
async def test_what_fails_fails_its_own_call_only_and_shows_nothing_of_it(kind: Any, over_http: bool):
    server = _server(raises(kind("secret")))
    async with asyncio.timeout(LIMIT), reachable(server, over_http=over_http) as target, Client(target) as client:
        names = [tool.name for tool in await client.list_tools()]
        for name in names:
            arguments = {"task" if name.startswith("agent") else "text": "secret"}
            result = await client.call_tool(name, arguments, raise_on_error=False)
            assert result.is_error, name
            assert "secret" not in str(result)
        with pytest.raises(MCPError):  # which shows the ValueError
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
