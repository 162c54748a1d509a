# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import concurrent.futures
import importlib
import itertools
import threading
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, ClassVar

import mcp
import mcp.server
import mcp.server.mcpserver
from mcp import types

from haystack_integrations.tools.mcp.client.sdk_client import SDKClient
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.transports.in_process.server_info import InProcessServerInfo

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.inputs import Continuation
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo, Negotiation


class InProcessClient(SDKClient):
    """
    MCP client for a server in the same process.
    """

    # The rest comes from the user's own code, whose frames the user wants to see.
    _told: ClassVar[tuple[type[Exception], ...]] = (mcp.MCPError,)

    def __init__(self, server: Any, *, negotiation: Negotiation = "auto") -> None:
        """
        Initialize an in-process MCP client.

        :param server: The server object, or its import path `"package.module:attribute"`.
        :param negotiation: How the revision of the protocol is agreed on.
        """
        super().__init__()
        self.server = server
        self._info = InProcessServerInfo(server, negotiation=negotiation)
        # The calls under way that want progress, by the tokens that the server reports it with.
        self._reports: dict[str, Callable[..., Awaitable[None]]] = {}
        self._tokens = (f"mcp-haystack-{number}" for number in itertools.count(1))

    def _server_info(self) -> MCPServerInfo:
        return self._info

    def _describe(self) -> str:
        return self._info.describe()

    async def _open_transport(self) -> mcp.Client:
        server = await _imported(self.server) if isinstance(self.server, str) else self.server
        server = getattr(server, "_mcp_server", server)  # the SDK server inside a FastMCP server
        if not isinstance(server, (mcp.server.Server, mcp.server.mcpserver.MCPServer)):
            msg = f"Failed to connect to {self._describe()}: it is a {type(server).__name__}, not an MCP server object"
            raise MCPConnectionError(msg, server_info=self._server_info(), operation="connect")
        return mcp.Client(server, **self._client_options())

    async def request_tool(
        self,
        tool_name: str,
        tool_args: dict[str, Any],
        *,
        meta: dict[str, Any] | None = None,
        on_progress: Any = None,
        continuation: Continuation | None = None,
    ) -> types.CallToolResult:
        """
        Call a tool for a session, as SDKClient does, with a token for progress among the `_meta`.

        Where there are no messages, the SDK gives the server a function for progress and no token. FastMCP and many
        low-level servers know only the token, and would report nothing.

        :param tool_name: As of SDKClient, like the other parameters.
        :param tool_args: Likewise.
        :param meta: Likewise.
        :param on_progress: Likewise.
        :param continuation: Likewise.
        :returns: The result.
        """
        if on_progress is None or self._negotiation == "handshake":  # which brings messages
            return await super().request_tool(
                tool_name, tool_args, meta=meta, on_progress=on_progress, continuation=continuation
            )
        token = next(self._tokens)
        self._reports[token] = on_progress
        try:
            return await super().request_tool(
                tool_name,
                tool_args,
                meta={**(meta or {}), "progressToken": token},
                on_progress=on_progress,
                continuation=continuation,
            )
        finally:
            del self._reports[token]

    def _message_handler(self, following: Callable[[Any], Awaitable[None]] | None) -> Callable[[Any], Awaitable[None]]:
        handle = super()._message_handler(following)

        async def with_progress(message: Any) -> None:
            if isinstance(message, types.ProgressNotification):
                report = self._reports.get(str(message.params.progress_token))
                if report is not None:
                    await report(message.params.progress, message.params.total, message.params.message)
            await handle(message)

        return with_progress

    def _counts_calls(self) -> bool:
        return False  # there are no streams in which to count them


async def _imported(path: str) -> Any:
    # In a daemon thread: in one of asyncio's own, an import that hangs would hold up the interpreter's exit.
    outcome: concurrent.futures.Future[Any] = concurrent.futures.Future()
    outcome.set_running_or_notify_cancel()

    def run() -> None:
        try:
            outcome.set_result(_import(path))
        except Exception as error:
            outcome.set_exception(error)
        except BaseException as error:  # e.g. of a script that parses its arguments when it is imported
            msg = f"importing it raised {type(error).__name__}"
            failure = ImportError(msg)
            failure.__cause__ = error
            outcome.set_exception(failure)

    threading.Thread(target=run, name="mcp-haystack-import", daemon=True).start()
    return await asyncio.wrap_future(outcome)


def _import(path: str) -> Any:
    module, _, attribute = path.partition(":")
    found: Any = importlib.import_module(module)
    for name in attribute.split("."):
        found = getattr(found, name)
    return found
