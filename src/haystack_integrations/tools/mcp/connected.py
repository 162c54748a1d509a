# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from haystack_integrations.tools.mcp.connection import MCPConnection, check_timeout
from haystack_integrations.tools.mcp.errors import MCPToolNotFoundError

if TYPE_CHECKING:
    from mcp import types


class Connected:
    """
    What tools and toolsets have in common: a connection, which they open at warm-up and stop using at `close`.
    """

    eager_connect: bool
    tool_name_prefix: str | None
    result_format: str
    retry_idempotent: bool
    _connection: MCPConnection
    # Number of the session whose listing was taken over last; 0 before the first.
    _generation: int

    @abstractmethod
    def warm_up(self) -> None:
        """Open the connection if need be, and take over what the server says of its tools."""

    @abstractmethod
    async def warm_up_async(self) -> None:
        """Do the same without blocking the event loop."""

    @abstractmethod
    def _load(self, generation: int, definitions: list[types.Tool]) -> None:
        """Take over what the server says of its tools."""

    @abstractmethod
    def _parameters_of_init(self) -> dict[str, Any]:
        """Give the parameters that an equal one is made with."""

    @property
    def connection_timeout(self) -> float:
        """
        Timeout in seconds for server connection.
        """
        return self._connection.connection_timeout

    @connection_timeout.setter
    def connection_timeout(self, value: float) -> None:
        self._connection.connection_timeout = check_timeout("connection_timeout", value)

    @property
    def invocation_timeout(self) -> float:
        """
        Timeout in seconds for tool invocations.
        """
        return self._connection.invocation_timeout

    @invocation_timeout.setter
    def invocation_timeout(self, value: float) -> None:
        self._connection.invocation_timeout = check_timeout("invocation_timeout", value)

    @property
    def connection(self) -> MCPConnection:
        """
        The connection to the server, e.g. for its `status()`.
        """
        return self._connection

    def _is_warm(self) -> bool:
        return self._generation > 0 and self._connection.is_ready and self._generation == self._connection.generation

    def _take_over(self, generation: int, definitions: list[types.Tool]) -> None:
        try:
            self._load(generation, definitions)
        except (MCPToolNotFoundError, ValueError):
            if not self._generation and not self._connection.status().in_flight:  # this server is of no use
                self._connection._leave()
            raise

    def close(self) -> None:
        """
        Close the connection to the server, which ends with the last tool or toolset that uses it.

        Safe before warm-up and repeatedly; the next `warm_up` or call connects again. The tool of a toolset closes the
        toolset.
        """
        self._connection.close()

    async def close_async(self) -> None:
        """
        Close the connection to the server without blocking the event loop.
        """
        await self._connection.close_async()

    def __enter__(self) -> Self:
        """
        Warm up.

        :returns: The tool or toolset.
        """
        self._warm_up_or_leave()
        return self

    def _warm_up_or_leave(self) -> None:
        try:
            self.warm_up()
        except BaseException:
            self._connection._leave()
            raise

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """
        Close the connection.
        """
        self.close()

    async def __aenter__(self) -> Self:
        """
        Warm up.

        :returns: The tool or toolset.
        """
        try:
            await self.warm_up_async()
        except BaseException:
            self._connection._leave()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """
        Close the connection.
        """
        await self.close_async()

    def __copy__(self) -> Self:
        """
        Give the object itself, as Haystack does with tools: a copy of a connection is the connection.
        """
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """
        Give the object itself, as Haystack does with tools: a copy of a connection is the connection.
        """
        return self

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle the configuration; what is unpickled connects by itself.
        """
        return rebuild, (type(self), self._parameters_of_init())

    def _optional_parameters(self) -> dict[str, Any]:
        # Those that 2.1 does not have are written only where they are set, so that it can read all else.
        values = {
            "tool_name_prefix": (self.tool_name_prefix, None),
            "result_format": (self.result_format, "text"),
            "share": (self._connection.share, True),
            "retry_idempotent": (self.retry_idempotent, False),
        }
        return {name: value for name, (value, default) in values.items() if value != default}


def rebuild(cls: Any, parameters: dict[str, Any]) -> Any:
    """
    Build a tool or toolset from parameters that were stored, without connecting.

    :param cls: Its class.
    :param parameters: Its parameters.
    :returns: The tool or toolset.
    """
    eager_connect = parameters.get("eager_connect", False)
    rebuilt = cls(**{**parameters, "eager_connect": False})
    rebuilt.eager_connect = eager_connect
    return rebuilt
