# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serving over Streamable HTTP.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
from fastmcp import FastMCP
from fastmcp.exceptions import FastMCPError, PromptError, ResourceError, ToolError
from fastmcp.server.http import HostOriginGuardMiddleware
from fastmcp.server.middleware import CallNext, MiddlewareContext
from fastmcp.server.middleware import Middleware as ServerMiddleware
from haystack import logging
from mcp.server.streamable_http import EventStore
from mcp.server.transport_security import RequestBodyLimitMiddleware
from sse_starlette.sse import AppStatus
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haystack_integrations.tools.mcp.parameters import texts
from haystack_integrations.tools.mcp.serving.calls import guard_of
from haystack_integrations.tools.mcp.serving.changes import announcer_of
from haystack_integrations.tools.mcp.serving.safety import LARGEST_BODY, ExplainRefusals
from haystack_integrations.tools.mcp.serving.sessions import ExplainSessions, RefuseQuestions
from haystack_integrations.tools.mcp.serving.stdio import well_formed_json
from haystack_integrations.tools.mcp.serving.stopping import Stop

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Where load balancers and supervisors ask whether the server takes calls.
_HEALTH = "/health"

# What may go on in the next part of a body: an escape in JSON, or a pair of them.
_BEGUN_ESCAPE = re.compile(
    rb"(?<!\\)\\++(?:u(?:[0-9a-fA-F]{0,3}|[dD][89abAB][0-9a-fA-F]{2}(?:\\(?:u[0-9a-fA-F]{0,3})?)?))?\Z"
)


async def _answer_health(_request: Request) -> JSONResponse:
    return JSONResponse({"status": "ok"})


class _ForPages:
    """
    Lets web pages send what MCP clients send, and read what they have to read.

    The guard has refused all those that may not call the server.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self._for_pages = CORSMiddleware(
            app,
            allow_origins=["*"],
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["Mcp-Session-Id", "Mcp-Protocol-Version", "WWW-Authenticate"],
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        is_of_page = any(name == b"origin" for name, _ in scope.get("headers", ()))
        await (self._for_pages if is_of_page else self._app)(scope, receive, send)


def http_app(
    server: FastMCP[Any],
    *,
    path: str = "/mcp",
    stateless: bool = False,
    allowed_hosts: Sequence[str] | None = None,
    allowed_origins: Sequence[str] | None = None,
    max_body_size: int = LARGEST_BODY,
    event_store: EventStore | None = None,
    retry_interval: int | None = None,
    grace_period: float = 10.0,
) -> Starlette:
    """
    Make the ASGI application that serves a server, for uvicorn or any other ASGI server.

    It answers `GET /health` with `{"status": "ok"}`, and checks the Host and the Origin of requests. When the process
    is told to stop, it ends the streams that would never end by themselves, so that only calls are waited for.

    :param server: What is served.
    :param path: Path of the endpoint.
    :param stateless: True to keep no sessions, so that any worker can answer any request.
    :param allowed_hosts: Names that requests may have in `Host`. By default the names of this machine if the server is
        bound to a loopback address, and any otherwise.
    :param allowed_origins: Origins of web pages that may call the server, like `"https://app.example.com"`. By default
        only pages from this machine, if the server is bound to a loopback address.
    :param max_body_size: The largest request in bytes, at most 4 MiB; a larger one is answered with 413.
    :param event_store: Keeps what was sent in sessions, so that clients which lost a connection get the rest of it, as
        `fastmcp.server.event_store.EventStore` does.
    :param retry_interval: How long these clients wait before they connect again, in milliseconds.
    :param grace_period: Seconds that the process may take to end once it is told to.
    :returns: The application. The server lives as long as the application's lifespan.
    """
    stop = Stop(grace_period)
    # The SDK keeps to the largest limit by itself.
    is_smaller = max_body_size < LARGEST_BODY
    smaller_bodies = [Middleware(RequestBodyLimitMiddleware, max_body_size=max_body_size)] if is_smaller else []
    app = server.http_app(
        path=path,
        stateless_http=stateless,
        event_store=event_store,
        retry_interval=retry_interval,
        middleware=[
            Middleware(_EndStreams, stop=stop, path=path),
            Middleware(_ReadRequests, path=path),
            Middleware(ExplainSessions, path=path, stateless=stateless),
            *smaller_bodies,
        ],
        # FastMCP's default lets every host and every web page in. Lists that are empty, but not None, are what makes it
        # look at the Origin of requests to an address that is not a loopback one.
        host_origin_protection="auto",
        allowed_hosts=texts("allowed_hosts", allowed_hosts) if allowed_hosts is not None else None,
        allowed_origins=texts("allowed_origins", allowed_origins or ()),
    )
    # After the server's own routes, so that one of its own at the same path is taken.
    app.router.routes.append(Route(_HEALTH, _answer_health))
    kinds: list[Any] = [each.cls for each in app.user_middleware]
    guard = kinds.index(HostOriginGuardMiddleware)
    # Before authorization: a browser asks without a token whether its page may call.
    app.user_middleware[guard : guard + 1] = [
        Middleware(ExplainRefusals),
        app.user_middleware[guard],
        Middleware(_ForPages),
    ]
    if stateless:
        server.add_middleware(RefuseQuestions())
    calls = _EndCalls(stop.time_for_calls, with_connection=event_store is None)
    server.add_middleware(calls)
    lifespan = app.router.lifespan_context

    announcer = announcer_of(server)
    guard_of(server)

    @asynccontextmanager
    async def stoppable(app: Starlette) -> AsyncIterator[Any]:
        loop = asyncio.get_running_loop()

        def end_streams() -> None:
            announcer.close()
            loop.call_later(stop.time_for_calls, calls.cancel_all)
            # Those that are not of this server, once its own have had their answers.
            loop.call_later((stop.time_for_calls + stop.time_for_answers) / 2, _end_all_event_streams)

        with _keeping_event_streams(), stop.on_signals():
            with stop.calling(lambda: loop.call_soon_threadsafe(end_streams)):
                async with lifespan(app) as state:
                    yield state

    app.router.lifespan_context = stoppable
    return app


_keeping = 0


@contextmanager
def _keeping_event_streams() -> Iterator[None]:
    """
    Have `sse_starlette` not cut event streams at the signal to stop: most answers to calls are sent in one.
    """
    global _keeping  # noqa: PLW0603 - as global as what it counts for
    _keeping += 1
    AppStatus.enable_automatic_graceful_drain = False
    try:
        yield
    finally:
        _keeping -= 1
        if not _keeping:
            AppStatus.enable_automatic_graceful_drain = True
            # Or later servers in this process would end their streams at once.
            AppStatus.should_exit = False


def _end_all_event_streams() -> None:
    AppStatus.should_exit = True


class _EndCalls(ServerMiddleware):
    """
    Cancels what nobody can be answered any more, or not much longer.

    * What has not ended when the server is to stop and the time for calls is over, is answered with an error. Otherwise
      the connection would just break. So it is for a call that waits for an answer of the user, which cannot reach a
      server that takes no new connections.
    * What a client of a session does not wait for any more, because its connection is closed. Without an event store
      the answer could not be sent any more, and a call that asks the user would wait for ever and keep its place. Where
      there are no sessions, the SDK does the same.
    """

    def __init__(self, time_for_calls: float, *, with_connection: bool) -> None:
        self._time_for_calls = time_for_calls
        self._with_connection = with_connection
        self._calls: set[anyio.CancelScope] = set()

    def cancel_all(self) -> None:
        """
        Cancel what has not ended now that the time for calls is over.
        """
        for scope in list(self._calls):
            scope.cancel()

    async def on_call_tool(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        return await self._call(context, call_next, ToolError)

    async def on_read_resource(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        return await self._call(context, call_next, ResourceError)

    async def on_get_prompt(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        return await self._call(context, call_next, PromptError)

    async def _call(
        self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any], failure: type[FastMCPError]
    ) -> Any:
        connection = (self._with_connection and _connection_of(context)) or _Connection()
        with anyio.CancelScope() as scope:
            self._calls.add(scope)
            connection.calls.add(scope)
            if connection.is_closed:
                scope.cancel()
            try:
                return await call_next(context)
            finally:
                self._calls.discard(scope)
                connection.calls.discard(scope)
        if connection.is_closed:
            msg = "The client closed its connection"  # and does not read this
        else:
            msg = f"The server is stopping, and this did not end within {self._time_for_calls:g} s. It was given up"
        raise failure(msg)


class _Connection:
    """
    The connection of one request, which may be closed by the client, and the calls that end with it.
    """

    SCOPE_KEY = "mcp_haystack.connection"

    def __init__(self) -> None:
        self.is_closed = False
        self.calls: set[anyio.CancelScope] = set()

    def close(self) -> None:
        self.is_closed = True
        for scope in list(self.calls):
            scope.cancel()


class _ReadRequests:
    """
    Mends what the SDK could not read, and lets calls know when their connection is closed.
    """

    def __init__(self, app: ASGIApp, path: str) -> None:
        self._app = app
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        connection = scope[_Connection.SCOPE_KEY] = _Connection()
        begun = b""

        async def read() -> Message:
            nonlocal begun
            message = await receive()
            if message["type"] == "http.request":
                body, begun = begun + message.get("body", b""), b""
                if message.get("more_body") and (escape := _BEGUN_ESCAPE.search(body)):
                    body, begun = body[: escape.start()], escape[0]
                message["body"] = well_formed_json(body)
            elif message["type"] == "http.disconnect":
                connection.close()
            return message

        try:
            await self._app(scope, read, send)
        except ClientDisconnect:
            # Before it had sent all of its request. Any client may do that, and would fill the log with tracebacks.
            logger.debug("A client closed its connection before the end of its request")


def _connection_of(context: MiddlewareContext[Any]) -> _Connection | None:
    request = context.fastmcp_context and context.fastmcp_context.request_context
    http_request = request and request.request
    return http_request.scope.get(_Connection.SCOPE_KEY) if http_request else None


class _EndStreams:
    """
    Ends the streams of notifications when the server stops, as if their clients had gone.
    """

    def __init__(self, app: ASGIApp, stop: Stop, path: str) -> None:
        self._app = app
        self._stop = stop
        self._path = path

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "GET" or scope["path"] != self._path:
            await self._app(scope, receive, send)
            return
        loop = asyncio.get_running_loop()
        stopping = asyncio.Event()

        async def receive_or_stop() -> Message:
            received = asyncio.ensure_future(receive())
            stopped = asyncio.ensure_future(stopping.wait())
            try:
                await asyncio.wait({received, stopped}, return_when=asyncio.FIRST_COMPLETED)
                return received.result() if received.done() else {"type": "http.disconnect"}
            finally:
                received.cancel()
                stopped.cancel()

        with self._stop.calling(lambda: loop.call_soon_threadsafe(stopping.set)):
            await self._app(scope, receive_or_stop, send)
