# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The transport and the client of servers in the same process.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self

from haystack import logging
from mcp import MCPError
from mcp.server import Server
from mcp.server.runner import serve_dual_era_loop
from mcp.shared.memory import create_client_server_memory_streams
from mcp_types import INTERNAL_ERROR

from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.convert.odd_messages import Unreadable
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.import_paths import import_object
from haystack_integrations.tools.mcp.protocol.channel import Transport
from haystack_integrations.tools.mcp.protocol.request_errors import ProtocolError
from haystack_integrations.tools.mcp.protocol.wire_client import WireClient
from haystack_integrations.tools.mcp.transports.sdk_streams import Streams, StreamsTransport
from haystack_integrations.tools.mcp.transports.server_infos import InProcessServerInfo

if TYPE_CHECKING:
    from mcp.server.context import CallNext, HandlerResult, ServerRequestContext

__all__ = ["InProcessClient"]


logger: logging.PatchedLogger = logging.getLogger(__name__)

# How long a server may take to end after the end of its input, and again after its cancellation, in seconds.
_GRACE = 2.0


class InProcessTransport(StreamsTransport):
    """
    Runs a server of the SDK in a task of this event loop.

    A BaseException from the server fails its request, and ends neither the loop nor the caller's program.
    """

    def __init__(self, server: Server[Any]) -> None:
        """
        Initialize the InProcessTransport.

        :param server: The low-level server. It may have other clients at the same time.
        """
        super().__init__(self._served)
        self._server = server

    @asynccontextmanager
    async def _served(self) -> AsyncIterator[Streams]:
        async with create_client_server_memory_streams() as (ours, theirs):
            started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            serving = asyncio.create_task(self._serve(*theirs, started))
            try:
                await asyncio.wait([started, serving], return_when=asyncio.FIRST_COMPLETED)
                if not started.done():
                    await serving
                yield ours
            finally:
                await ours[1].aclose()
                await theirs[1].aclose()  # the output of the server is not read any more
                await self._stop(serving)

    async def _serve(self, incoming: Any, outgoing: Any, started: asyncio.Future[None]) -> None:
        # A copy with its own list of middleware, so that other clients of the server are not affected.
        guarded = copy.copy(self._server)
        guarded.middleware = [self._guard, *guarded.middleware]
        try:
            async with self._server.lifespan(self._server) as state:
                started.set_result(None)
                options = guarded.create_initialization_options()
                await serve_dual_era_loop(guarded, incoming, outgoing, lifespan_state=state, init_options=options)
        except (Exception, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            raise ConnectionError(_raised(error)) from error

    async def _guard(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        # A task that raises SystemExit or KeyboardInterrupt ends the event loop.
        try:
            return await call_next(ctx)
        except (Exception, asyncio.CancelledError, GeneratorExit):
            raise
        except BaseException as error:
            if ctx.request_id is not None:
                self.channel.received(Unreadable(ctx.request_id, _raised(error)))
            raise MCPError(code=INTERNAL_ERROR, message=_raised(error)) from error

    async def _stop(self, serving: asyncio.Task[None]) -> None:
        _, running = await asyncio.wait([serving], timeout=_GRACE)
        if running:
            serving.cancel()
            _, running = await asyncio.wait([serving], timeout=_GRACE)
        if running:
            logger.warning("An MCP server in this process still runs after it was cancelled")
        elif not serving.cancelled() and (error := serving.exception()) is not None:
            logger.debug("A server in this process ended with {kind}", kind=type(error).__name__)


def _raised(error: BaseException) -> str:
    return f"the server raised {type(error).__name__}"


class InProcessClient(WireClient):
    """
    MCP client for a server in the same process.
    """

    # Other errors come from the user's own code, and the user wants to see its frames.
    _explained_by_message: ClassVar[tuple[type[Exception], ...]] = (ProtocolError,)

    def __init__(self, server: Any) -> None:
        """
        Initialize an in-process MCP client.

        :param server: The server object, or its import path `"package.module:attribute"`.
        """
        super().__init__()
        self.server = server
        self._server_info = InProcessServerInfo(server)

    @classmethod
    def of(cls, server_info: InProcessServerInfo) -> Self:
        """
        Make the client of a server info.

        :param server_info: The server info.
        :returns: The client.
        """
        client = cls(server_info.server)
        client._server_info = server_info
        return client

    async def _make_transport(self) -> Transport:
        server = self.server
        if isinstance(server, str):
            # Not in a worker thread of asyncio, where an import that hangs would delay the interpreter's exit.
            server = await start_in_thread(import_object, server)
        server = getattr(server, "_mcp_server", server)  # the SDK server inside a FastMCP server
        server = getattr(server, "_lowlevel_server", server)  # the one inside an MCPServer
        if not isinstance(server, Server):
            msg = f"Failed to connect to {self._describe()}: it is a {type(server).__name__}, not an MCP server object"
            raise MCPConnectionError(msg, server_info=self._server_info, operation="connect")
        return InProcessTransport(server)
