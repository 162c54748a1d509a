# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self, TypeVar

from haystack import logging

from haystack_integrations.tools.mcp.connection.connection import MCPConnection
from haystack_integrations.tools.mcp.connection.context_managed import ContextManaged, Holds
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo, server_info_from_dict
from haystack_integrations.tools.mcp.transports.shorthand import server_info_from

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")


class ReaderBase(ContextManaged):
    """
    Base of what reads the resources or the prompts of one server for a pipeline or an Agent: its connection.

    Nothing is opened before warm-up or the first reading.
    """

    _connection: MCPConnection

    def _connect_to(self, server_info: MCPServerInfo | Any, *, required: bool = True, **options: Any) -> None:
        """
        Set the connection. Nothing is opened yet.

        :param server_info: A server info, or what `server_info_from` takes.
        :param required: Whether it is an error if the server cannot be reached.
        :param options: Parameters of MCPConnection.
        :raises ValueError: If a parameter is invalid.
        """
        if not isinstance(required, bool):
            msg = f"`required` must be True or False, got {required!r}"
            raise ValueError(msg)
        self.required: bool = required
        self._is_absent = False
        self._connection = MCPConnection(server_info_from(server_info), **options)

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

        :raises MCPConnectionError: If connecting fails and `required` is True.
        """
        with self._reaching():
            if not self._connection.is_ready:
                self._connection.open()

    async def warm_up_async(self) -> None:
        """
        Connect to the server like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: If connecting fails and `required` is True.
        """
        with self._reaching():
            if not self._connection.is_ready:
                await self._connection.open_async()

    @contextmanager
    def _reaching(self) -> Iterator[None]:
        try:
            yield
        except MCPConnectionError as error:
            self._note_absence(error)
        else:
            self._is_absent = False

    def _note_absence(self, error: MCPConnectionError) -> None:
        """
        Go on without the server, or raise the error if the server is required. Said once until it is back.

        :param error: Why it could not be reached.
        """
        if self.required:
            raise error
        if not self._is_absent:
            logger.warning(
                "Nothing is read of {server} until it can be reached: {error}",
                server=self.server_info.describe(),
                error=str(error),
            )
        self._is_absent = True

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

    @property
    def _holds(self) -> Holds:
        return self._connection._holds

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
        return self._connection._submit(read())

    def _stored_connection(self, method: str = "to_dict") -> dict[str, Any]:
        """
        Return the parameters of `_connect_to` as they are stored.

        :param method: Which method stores the server info and the handlers.
        :returns: The parameters.
        """
        connection = self._connection
        stored = {
            "server_info": getattr(self.server_info, method)(),
            "connection_timeout": connection.connection_timeout,
            "invocation_timeout": connection.invocation_timeout,
            "share": connection.share,
            "handlers": None if connection.handlers == MCPHandlers() else getattr(connection.handlers, method)(),
        }
        return stored if self.required else {**stored, "required": False}


def is_out_of_reach(error: Exception, operation: str) -> bool:
    """
    Tell whether an error means that the server cannot be reached, rather than what it answered.

    :param error: The error of a reading.
    :param operation: The reading: a timeout of the reading itself is no such error.
    :returns: True if every other reading would fail, too.
    """
    if not isinstance(error, MCPConnectionError) or error.code is not None:
        return False
    return not (isinstance(error, TimeoutError) and error.operation == operation)


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
