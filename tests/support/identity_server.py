# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server over HTTP in this process that knows the user of each message, by its headers, and of each session.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Annotated, Any

from mcp.server.caching import CacheHint
from mcp.server.mcpserver import Context, MCPServer, Resolve, Sample
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import Completion, CreateMessageResult, SamplingMessage, TextContent

from tests.servers.counter_server import handshake_era_only, serve_handshake_era_only
from tests.support.reachable import AppThread
from tests.support.waiting import LIMIT


def _sample() -> Sample:
    return Sample([SamplingMessage(role="user", content=TextContent(type="text", text="Hello?"))], max_tokens=5)


def _token(context: Any) -> str:
    # Without "Bearer", because any text after it is redacted by its shape.
    return str(context.request_context.request.headers["authorization"].removeprefix("Bearer "))


class IdentityServer(AppThread):
    """
    `whoami(name)` and the resource `who://…` return the identity of the message, and the one that opened the session.

    `anonymous` counts messages without a token, which are refused; `openers` has the open sessions.
    """

    def __init__(self, transport: str = "streamable-http", *, handshake: bool = False) -> None:
        super().__init__(self._ask)
        self.anonymous = 0
        self.messages = 0
        self.most_sessions = 0
        self.openers: dict[str, str] = {}
        # The tokens of the requests that ended sessions.
        self.ended: list[str] = []
        # Method, token and `_meta` of each request.
        self.requests: list[tuple[str, str, dict[str, Any]]] = []
        # Clients may cache resources.
        server = MCPServer("identities", cache_hints={"resources/read": CacheHint(ttl_ms=600_000)})
        owner = self
        # If set, the calls of `whoami` wait for each other here.
        self.barrier: asyncio.Barrier | None = None

        @server.tool()
        async def whoami(name: str, context: Context) -> dict[str, Any]:
            headers = context.request_context.request.headers
            if owner.barrier is not None:
                await asyncio.wait_for(owner.barrier.wait(), LIMIT)
            opener = owner.openers.get(headers.get("mcp-session-id", ""))
            meta = dict(context.request_context.meta or {})
            return {
                "name": name,
                "token": headers.get("authorization", ""),
                "tenant": headers.get("x-tenant", ""),
                "opener": opener,
                "marker": meta.get("marker"),
            }

        @server.tool()
        def leak(context: Context) -> str:
            msg = f"no access for {_token(context)}"
            raise ToolError(msg)

        @server.tool()
        async def steps(count: int, context: Context) -> str:
            for step in range(count):
                await context.report_progress(step, count)
            return "done"

        @server.tool()
        async def sleep(seconds: float) -> str:
            await asyncio.sleep(seconds)
            return "slept"

        @server.tool()
        def ask_model(reply: Annotated[CreateMessageResult, Resolve(_sample)]) -> str:
            return reply.content.text

        @server.tool()
        async def log_token(context: Context) -> str:
            await context.log("error", f"asked by {_token(context)}")
            return "logged"

        @server.resource("who://{name}")
        def who(name: str, context: Context) -> str:
            return context.request_context.request.headers.get("authorization", "")

        @server.prompt()
        def greet(name: str) -> str:
            return f"Greet {name}."

        @server.completion()
        async def complete(ref: Any, argument: Any, context: Any) -> Completion:
            return Completion(values=["Ada"])

        async def note_requests(context: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
            token = context.request.headers.get("authorization", "") if context.request is not None else ""
            owner.requests.append((context.method, token, dict(context.meta or {})))
            return await call_next(context)

        server.middleware.append(note_requests)
        if handshake:
            serve_handshake_era_only(server)
        app: Any = server.sse_app() if transport == "sse" else server.streamable_http_app()
        app = handshake_era_only(app) if handshake else app
        self._app = app
        self.url = f"{self.origin}/{'sse' if transport == 'sse' else 'mcp'}"

    async def _ask(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = {name.decode(): value.decode() for name, value in scope["headers"]}
        self.messages += 1
        if "authorization" not in headers:
            self.anonymous += 1
            await send({"type": "http.response.start", "status": 401, "headers": []})
            await send({"type": "http.response.body"})
            return

        async def note(message: Any) -> None:
            for name, value in message.get("headers", ()):
                if name == b"mcp-session-id" and "mcp-session-id" not in headers:
                    self.openers[value.decode()] = headers["authorization"]
                    self.most_sessions = max(self.most_sessions, len(self.openers))
            await send(message)

        if scope["method"] == "DELETE":
            self.ended.append(headers["authorization"])
        await self._app(scope, receive, note)
        if scope["method"] == "DELETE":
            self.openers.pop(headers.get("mcp-session-id", ""), None)
