# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that `run_server` runs as a process. It serves one object of each kind that Haystack has:

    python served.py '{"transport": "http", "port": 8000}'

It writes a line to stderr when a call has begun or was cancelled, and when the server has closed its resources.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import anyio
from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.tools import Tool
from haystack import Pipeline, component
from haystack.components.builders import PromptBuilder
from haystack.dataclasses import ChatMessage, Document
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import Toolset, tool
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

from haystack_integrations.tools.mcp.serving import (
    BearerToken,
    ClientConfirmationStrategy,
    ServeOptions,
    create_mcp_server,
    run_server,
)
from tests.serving.components import approving
from tests.support.scripted_chat import call, say


def tell(event: str) -> None:
    print(f"EVENT {event}", file=sys.stderr, flush=True)


@asynccontextmanager
async def lifespan(server: Any) -> AsyncIterator[None]:
    if "FAILS_TO_OPEN" in os.environ:
        raise OSError(os.environ["FAILS_TO_OPEN"])
    tell("opened")
    yield
    tell("closed")


@tool
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


@tool
def order(name: str) -> str:
    """Order something."""
    return f"{name} ordered"


def refuse() -> None:
    """Fail, saying why."""
    raise ToolError("out of stock")


def fail() -> None:
    """Fail with a secret in the text."""
    raise RuntimeError("the password is hunter2")


async def wait(seconds: float = 3600) -> str:
    """Wait without a thread."""
    tell("wait")
    try:
        await asyncio.sleep(seconds)
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
    Replaces a model: orders the item that the user asks for, and replies with the result.
    """

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None, **_parameters: Any) -> dict[str, list[ChatMessage]]:
        result = messages[-1].tool_call_result
        return {"replies": [call("order", name=messages[-1].text) if result is None else say(str(result.result))]}


def make_server(**options: Any) -> FastMCP[Any]:
    pipeline = Pipeline()
    pipeline.add_component("shout", Shout())
    store = InMemoryDocumentStore()
    store.write_documents([Document(id="chair", content="It has four legs.")])
    clerk = approving({"order": ClientConfirmationStrategy()}, chat_generator=OrdersOnce(), tools=[order])
    server = create_mcp_server(
        "Served",
        tools=[Toolset([add]), refuse, fail, (wait, ServeOptions(name="hasty", timeout=0.3))],
        pipelines={"shout": pipeline},
        agents={"clerk": clerk},
        document_stores={"shop": store},
        prompts={"ask": PromptBuilder("What costs {{ thing }}?")},
        lifespan=lifespan,
        **options,
    )
    server.tool(wait)

    @server.tool
    def block(seconds: float) -> str:
        """Keep a thread busy."""
        tell("block")
        time.sleep(seconds)
        return "blocked"

    @server.tool
    def block_forever() -> None:
        """Keep a thread busy forever."""
        tell("block_forever")
        threading.Event().wait()

    @server.tool
    async def leave() -> None:
        """Try to end the process."""
        sys.exit("hunter2")

    @server.tool
    async def ask(context: Context) -> str:
        """Ask the user."""
        tell("ask")
        return (await context.elicit("Really?", response_type=bool)).action

    @server.tool
    async def remember(context: Context) -> Any:
        """Ask for a name, with a request state for the client to keep."""
        if context.input_responses:
            return f"{context.input_responses['name'].content['name']} {context.request_state} {os.getpid()}"
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        question = ElicitRequest(params=ElicitRequestFormParams(message="Who?", requested_schema=schema))
        return InputRequiredResult(input_requests={"name": question}, request_state="kept")

    @server.tool
    def prints() -> str:
        """Write to stdout and read from stdin, like code that does not know the protocol."""
        print("noise on stdout", flush=True)
        return os.read(0, 1).decode()

    @server.tool
    async def runs() -> str:
        """Run an event loop in a thread that gets the context variables of the call."""
        return str(await asyncio.to_thread(anyio.run, anyio.sleep, 0))

    @server.tool
    async def grow(name: str) -> None:
        """Add a tool to this server, while it runs."""
        server.add_tool(Tool.from_function(lambda: name, name=name))

    return server


# A worker creates its server while it imports this module, as in programs with a server at the top of a module.
SERVER = make_server() if __name__ == "__mp_main__" else None


def server_of_module() -> FastMCP[Any]:
    return SERVER or make_server()


def main() -> None:
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    token = options.pop("token", None)
    if options.get("workers", 1) > 1:
        run_server(server_of_module, **options)
    else:
        run_server(make_server(auth=BearerToken(token) if token else None), **options)
    tell("returned")


if __name__ == "__main__":
    main()
