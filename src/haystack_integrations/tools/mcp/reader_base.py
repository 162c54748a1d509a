# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Self, TypeVar

from haystack_integrations.tools.mcp.client.server_info import MCPServerInfo, server_info_from_dict
from haystack_integrations.tools.mcp.connection.connection import MCPConnection
from haystack_integrations.tools.mcp.connection.context_managed import ContextManaged
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.transports.shorthand import server_info_from

T = TypeVar("T")


class ReaderBase(ContextManaged):
    """
    Base of what reads the resources or the prompts of one server for a pipeline or an Agent: its connection.

    Nothing is opened before warm-up or the first reading.
    """

    _connection: MCPConnection
    _handlers: MCPHandlers | None

    def _connect_to(
        self,
        server_info: MCPServerInfo | Any,
        *,
        connection_timeout: float,
        invocation_timeout: float | None,
        share: bool,
        handlers: MCPHandlers | None,
    ) -> None:
        """
        Set the connection. Nothing is opened yet.

        :param server_info: A server info, or what `server_info_from` takes.
        :param connection_timeout: Timeout in seconds for connecting.
        :param invocation_timeout: Timeout in seconds for each reading.
        :param share: Whether to share the connection.
        :param handlers: What to do for a server that asks for something.
        :raises ValueError: If a parameter is invalid.
        """
        self._handlers = handlers
        self._connection = MCPConnection(
            server_info_from(server_info),
            connection_timeout=connection_timeout,
            invocation_timeout=invocation_timeout,
            share=share,
            handlers=handlers,
        )

    @property
    def server_info(self) -> MCPServerInfo:
        """
        How the server is reached.
        """
        return self._connection.server_info

    @property
    def connection(self) -> MCPConnection:
        """
        The connection to the server; its `status()` is a health check.
        """
        return self._connection

    def warm_up(self) -> None:
        """
        Connect to the server. Cheap while the connection is open; reopens it if it was closed or lost.

        :raises MCPConnectionError: If connecting fails.
        """
        if not self._connection.is_ready:
            self._connection.open()

    async def warm_up_async(self) -> None:
        """
        Connect to the server like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: If connecting fails.
        """
        if not self._connection.is_ready:
            await self._connection.open_async()

    def close(self) -> None:
        """
        Release the connection to the server. It is closed when its last user has released it.

        Safe to call before warm-up and repeatedly; the next `warm_up` or reading connects again.
        """
        self._connection.close()

    async def close_async(self) -> None:
        """
        Release the connection like `close`, without blocking the event loop.
        """
        await self._connection.close_async()

    def _enter(self) -> None:
        self.warm_up()

    async def _enter_async(self) -> None:
        await self.warm_up_async()

    def _leave(self) -> None:
        self._connection._leave()

    def __copy__(self) -> Self:
        """
        Return the object itself: an open connection cannot be copied.
        """
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """
        Return the object itself: an open connection cannot be copied.
        """
        return self

    def _run(self, read: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """
        Do several readings at once, in the executor's loop, and wait for them.

        :param read: Does them. Each reading has its own timeout.
        :returns: Its result.
        :raises MCPConnectionError: If the server cannot be reached.
        """
        with self._connection._start_errors():
            executor = AsyncExecutor.get_instance()
        try:
            return executor.run(read())
        except MCPConnectionError as error:
            # The frames of the executor's tasks help nobody.
            raise error.with_traceback(None)  # noqa: B904

    def _stored_connection(self, method: str = "to_dict") -> dict[str, Any]:
        """
        Return the parameters of `_connect_to` as they are stored.

        :param method: Which method stores the server info and the handlers.
        :returns: The parameters.
        """
        return {
            "server_info": getattr(self.server_info, method)(),
            "connection_timeout": self._connection.connection_timeout,
            "invocation_timeout": self._connection.invocation_timeout,
            "share": self._connection.share,
            "handlers": None if self._handlers is None else getattr(self._handlers, method)(),
        }


def loaded_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """
    Build the server info and the handlers that stored parameters describe, without connecting.

    :param parameters: What a reader stored.
    :returns: The parameters as its constructor takes them.
    :raises ValueError: If there is no server info among them.
    """
    loaded = dict(parameters)
    if isinstance(loaded.get("server_info"), Mapping):
        loaded["server_info"] = server_info_from_dict(dict(loaded["server_info"]))
    if isinstance(loaded.get("handlers"), Mapping):
        loaded["handlers"] = MCPHandlers.from_dict(dict(loaded["handlers"]))
    return loaded
