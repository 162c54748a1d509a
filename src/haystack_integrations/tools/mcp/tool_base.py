# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from abc import abstractmethod
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Self

from haystack.core.serialization import generate_qualified_class_name

from haystack_integrations.tools.mcp.connection.connection import MCPConnection, check_timeout
from haystack_integrations.tools.mcp.connection.managed import Managed
from haystack_integrations.tools.mcp.convert.results import result_handler
from haystack_integrations.tools.mcp.convert.tool_names import check_prefix
from haystack_integrations.tools.mcp.errors import MCPToolNotFoundError

if TYPE_CHECKING:
    from mcp import types

    from haystack_integrations.tools.mcp.client.server_info import MCPServerInfo


@dataclass(frozen=True, kw_only=True)
class ToolOptions:
    """
    The keyword parameters that MCPTool and MCPToolset share. They are explained at MCPTool.

    :param tool_name_prefix: 1 to 32 characters of `A-Z a-z 0-9 _ -`, or None.
    :param result_format: "text", "content" or "json".
    :param share: Whether to share the connection with all others of an equal server info.
    :param retry_idempotent: Whether a call whose outcome is unknown is sent again if the tool is annotated as read-only
        or idempotent.
    """

    tool_name_prefix: str | None = None
    result_format: str = "text"
    share: bool = True
    retry_idempotent: bool = False

    def __post_init__(self) -> None:
        """
        Refuse invalid options.

        :raises ValueError: Naming the parameter and the valid choices.
        """
        if self.tool_name_prefix is not None:
            check_prefix(self.tool_name_prefix)
        result_handler(self.result_format)

    def changed(self) -> dict[str, Any]:
        """
        Give the options that differ from their defaults.

        Only these are stored, so that mcp-haystack 2.1 can load tools that do not use them.

        :returns: The values by name.
        """
        values = {field.name: (getattr(self, field.name), field.default) for field in dataclasses.fields(self)}
        return {name: value for name, (value, default) in values.items() if value != default}


class Connected(Managed):
    """
    What tools and toolsets share: options, and a connection that they open at warm-up and stop using at `close`.
    """

    server_info: MCPServerInfo
    eager_connect: bool
    options: ToolOptions
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
    def tool_name_prefix(self) -> str | None:
        """
        Prefix of the names that the model sees.
        """
        return self.options.tool_name_prefix

    @property
    def result_format(self) -> str:
        """
        What the model sees of a result: "text", "content" or "json".
        """
        return self.options.result_format

    @property
    def retry_idempotent(self) -> bool:
        """
        Whether a call whose outcome is unknown may be sent again, if the server annotates the tool accordingly.
        """
        return self.options.retry_idempotent

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
                self._leave()
            raise

    def _enter(self) -> None:
        self.warm_up()

    async def _enter_async(self) -> None:
        await self.warm_up_async()

    def _leave(self) -> None:
        self._connection._leave()

    def close(self) -> None:
        """
        Close the connection to the server, which ends with the last tool or toolset that uses it.

        Safe before warm-up and repeatedly; the next `warm_up` or call connects again. The tool of a toolset closes the
        toolset.
        """
        self._connection.close()

    async def close_async(self) -> None:
        """
        Do the same as `close` without blocking the event loop.
        """
        await self._connection.close_async()

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

    @abstractmethod
    def _handlers(self, data: dict[str, Any]) -> dict[str, Any]:
        """Replace the handlers in the parameters by their import paths."""

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize to a dictionary: the parameters, handlers by their import paths, and never an open connection.

        :returns: A dictionary of the form `{"type": fully qualified class name, "data": {parameters}}`.
        """
        return self._as_dict(self.server_info.to_dict())

    def _to_trace_dict(self) -> dict[str, Any]:
        return self._as_dict(self.server_info._to_trace_dict())

    def _as_dict(self, server_info: dict[str, Any]) -> dict[str, Any]:
        data = self._handlers({**self._parameters_of_init(), "server_info": server_info})
        return {"type": generate_qualified_class_name(type(self)), "data": data}


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
