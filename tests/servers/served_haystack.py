# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server of what was built in Haystack, one of each kind, as a process:

    python served_haystack.py '{"transport": "http", "port": 8000}'

It tells on stderr that a call has begun, and that it was cancelled.
"""

import asyncio
import json
import sys
from typing import Any

from fastmcp.exceptions import ToolError
from fastmcp.tools import Tool as ServedTool
from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.components.builders import PromptBuilder
from haystack.dataclasses import ChatMessage, Document, StreamingCallbackT
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import Toolset, ToolsType, tool

from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from haystack_integrations.tools.mcp.serving import (
    BearerToken,
    ClientConfirmationStrategy,
    ServeOptions,
    create_mcp_server,
    run_server,
)
from tests.servers.served import tell
from tests.support.scripted_chat import call, say


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def order(name: str) -> str:
    """Order something."""
    return f"{name} ordered"


def fail() -> None:
    """Fail, saying why."""
    raise ToolError("out of stock")


def leak() -> None:
    """Fail with a secret in the text."""
    raise RuntimeError("the password is hunter2")


async def wait() -> str:
    """Wait until somebody cancels it."""
    tell("wait")
    try:
        await asyncio.sleep(3600)
    except asyncio.CancelledError:
        tell("cancelled")
        raise
    return "waited"


@component
class Shout:
    @component.output_types(text=str, documents=list[Document])
    def run(self, text: str, times: int = 1) -> dict[str, Any]:
        return {"text": text.upper() * times, "documents": [Document(id="1", content=text, embedding=[0.5])]}


@component
class OrdersOnce:
    """
    In place of a model: it orders what it is asked for, and says what came of it.
    """

    @component.output_types(replies=list[ChatMessage])
    def run(
        self,
        messages: list[ChatMessage],
        streaming_callback: StreamingCallbackT | None = None,
        tools: ToolsType | None = None,
    ) -> dict[str, list[ChatMessage]]:
        result = messages[-1].tool_call_result
        return {"replies": [call("order", name=messages[-1].text) if result is None else say(str(result.result))]}


def with_approval() -> dict[str, Any]:
    strategies = {"order": ClientConfirmationStrategy()}
    if not HAS_HOOKS:
        return {"confirmation_strategies": strategies}
    from haystack.hooks.human_in_the_loop import ConfirmationHook

    return {"hooks": {"before_tool": [ConfirmationHook(strategies)]}}


def make_server(token: str | None = None) -> Any:
    pipeline = Pipeline()
    pipeline.add_component("shout", Shout())
    store = InMemoryDocumentStore()
    store.write_documents([Document(id="chair", content="It has four legs.")])
    server = create_mcp_server(
        "Built in Haystack",
        tools=[Toolset([add]), fail, leak, wait, (wait, ServeOptions(name="hasty", timeout=0.3))],
        pipelines={"shout": pipeline},
        agents={"clerk": Agent(chat_generator=OrdersOnce(), tools=[order], **with_approval())},
        document_stores={"shop": store},
        prompts={"ask": PromptBuilder("What costs {{ thing }}?")},
        auth=BearerToken(token) if token else None,
    )

    @server.tool
    async def grow() -> None:
        """Add a tool while the server runs."""
        server.add_tool(ServedTool.from_function(lambda: "grown", name="grown"))

    return server


def main() -> None:
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    run_server(make_server(options.pop("token", None)), **options)


if __name__ == "__main__":
    main()
