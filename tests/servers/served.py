# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that `run_server` runs as a process:

    python served.py '{"transport": "http", "port": 8000}'

It tells on stderr, a line each, that a call has begun and that the server has closed what it opened.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Literal

import anyio
from fastmcp import Context, FastMCP
from fastmcp.server.auth import AuthProvider, require_scopes
from fastmcp.server.providers import Provider
from fastmcp.tools import Tool
from fastmcp.tools.base import ToolResult
from mcp.types import ElicitRequest, ElicitRequestFormParams, InputRequiredResult

from haystack_integrations.tools.mcp.serving import BearerToken, run_server
from haystack_integrations.tools.mcp.serving.changes import announcer_of
from haystack_integrations.tools.mcp.serving.server import request_state_security
from haystack_integrations.tools.mcp.serving.sources import Source
from tests.support.background import in_thread


def tell(event: str) -> None:
    print(f"EVENT {event}", file=sys.stderr, flush=True)


class Changing(Provider):
    """
    A provider that serves nothing, and says that it has changed.
    """

    def __init__(self) -> None:
        super().__init__()
        self.source = Source()
        self.on_change = self.source.on_change


async def _leave() -> None:
    sys.exit("hunter2")


@asynccontextmanager
async def lifespan(server: Any) -> AsyncIterator[None]:
    if "FAILS_TO_OPEN" in os.environ:
        raise OSError(os.environ["FAILS_TO_OPEN"])
    tell("opened")
    yield
    tell("closed")


def make_server(auth: AuthProvider | None = None) -> FastMCP[Any]:
    changing = Changing()
    server = FastMCP(
        "Served",
        auth=auth,
        lifespan=lifespan,
        providers=[changing],
        mask_error_details=True,
        request_state_security=request_state_security(),
    )

    @server.tool
    def add(a: int, b: int) -> int:
        """Add two numbers."""
        return a + b

    @server.tool
    async def wait(seconds: float) -> str:
        """Wait without a thread."""
        tell("wait")
        try:
            await asyncio.sleep(seconds)
        except asyncio.CancelledError:
            tell("cancelled")
            raise
        return "waited"

    @server.tool
    def block(seconds: float) -> str:
        """Keep a thread busy."""
        tell("block")
        time.sleep(seconds)
        return "blocked"

    @server.tool
    def block_forever() -> None:
        """Keep a thread busy for ever."""
        tell("block_forever")
        threading.Event().wait()

    @server.tool
    def fail() -> None:
        """Fail with a secret in the text."""
        raise RuntimeError("the password is hunter2")

    @server.tool
    async def leave() -> None:
        """Want to end the process, from a task of its own."""
        await asyncio.gather(_leave())

    @server.tool
    async def ask(context: Context) -> str:
        """Ask the user."""
        tell("ask")
        try:
            answer = await context.elicit("Really?", response_type=bool)
        except asyncio.CancelledError:
            tell("cancelled")
            raise
        return answer.action

    @server.tool
    async def remember(context: Context) -> Any:
        """Want a name, with something for the client to keep meanwhile."""
        if context.input_responses:
            return f"{context.input_responses['name'].content['name']} {context.request_state} {os.getpid()}"
        schema = {"type": "object", "properties": {"name": {"type": "string"}}}
        question = ElicitRequest(params=ElicitRequestFormParams(message="Who?", requested_schema=schema))
        return InputRequiredResult(input_requests={"name": question}, request_state="kept")

    @server.tool
    def prints() -> str:
        """Write to stdout and read from stdin, as code that knows nothing of the protocol does."""
        print("noise on stdout", flush=True)
        return os.read(0, 1).decode()

    @server.tool
    async def runs() -> str:
        """Run an event loop in a thread that gets the context variables of the call."""
        return str(await asyncio.to_thread(anyio.run, anyio.sleep, 0))

    @server.tool
    async def half_an_emoji() -> ToolResult:
        """Send half an emoji, which no UTF-8 has."""
        return ToolResult("sent", structured_content={"text": "\ud83d"})

    @server.tool(auth=require_scopes("admin"))
    def administer() -> str:
        """What only administrators may do."""
        return "done"

    @server.tool
    async def grow(name: str) -> None:
        """Add a tool to this server, while it runs."""

        async def grown() -> str:
            return name

        server.add_tool(Tool.from_function(grown, name=name))

    @server.tool
    def change_elsewhere(listing: Literal["tools", "resources", "prompts"]) -> None:
        """Tell of a change in a thread that knows nothing of the server."""
        in_thread(changing.source.changed, listing).result(30)

    @server.tool
    def update(uri: str) -> None:
        """Tell that a resource has changed."""
        announcer_of(server).resource_updated(uri)

    return server


def main() -> None:
    options = json.loads(sys.argv[1]) if len(sys.argv) > 1 else {}
    scopes = options.pop("scopes", None)
    token = options.pop("token", None)
    if options.get("workers", 1) > 1:
        run_server(make_server, **options)
    else:
        run_server(make_server(BearerToken(token, scopes=scopes or ()) if token else None), **options)
    tell("returned")


if __name__ == "__main__":
    main()
