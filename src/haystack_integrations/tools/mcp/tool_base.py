# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from haystack.core.serialization import generate_qualified_class_name

from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.connection.connection import MCPConnection
from haystack_integrations.tools.mcp.connection.context_managed import ContextManaged, Holds
from haystack_integrations.tools.mcp.connection.interceptors import load_interceptors
from haystack_integrations.tools.mcp.connection.limits import CallOptions, check_timeout
from haystack_integrations.tools.mcp.errors import MCPDriftError, MCPToolNotFoundError
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.haystack_compat import (
    HANDLER_PARAMETERS,
    deserialize_handlers,
    serialize_handlers,
)
from haystack_integrations.tools.mcp.options import ToolOptions
from haystack_integrations.tools.mcp.parameters import combine_options
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo, server_info_from_dict
from haystack_integrations.tools.mcp.snapshot.guard import OnDrift, SnapshotCheck, SnapshotGuard, ToolChoice
from haystack_integrations.tools.mcp.snapshot.snapshot import MCPToolSnapshot

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.requests import ToolListing

# Takes the name of a parameter and its configuration for one tool, and returns the (de)serialized configuration.
HandlerConverter: TypeAlias = Callable[[str, dict[str, Any]], dict[str, Any]]


class ToolBase(ContextManaged):
    """
    Base of MCPTool and MCPToolset: the shared options, and a connection that warm-up opens and `close` releases.
    """

    server_info: MCPServerInfo
    eager_connect: bool
    tool_options: ToolOptions
    # What the server should say of its tools, as it was given.
    _snapshot: SnapshotCheck | None
    _connection: MCPConnection
    # Number of the session whose tool listing is in use; 0 before the first.
    _generation: int
    # The name of its server in a registry.
    _provider_name: str | None = None
    # The alias of a registry that it is part of.
    _tool_alias: str | None = None
    # Compares what the server says of its tools with the snapshot, if there is one.
    _guard: SnapshotGuard | None = None

    def _pin(self, choice: ToolChoice) -> SnapshotGuard | None:
        """
        Use the snapshot, if there is one.

        :param choice: Which tools of the server there are here. It must not refer to this object.
        :returns: What compares the server's tools with it.
        :raises FileNotFoundError: If its file does not exist.
        :raises ValueError: If its file cannot be used.
        """
        check = self._snapshot
        if check is None:
            return None
        snapshot = (
            check.snapshot if isinstance(check.snapshot, MCPToolSnapshot) else MCPToolSnapshot.load(check.snapshot)
        )
        self._guard = SnapshotGuard(snapshot, check.on_drift, choice, self.server_info.describe())
        self._connection._admission = self._guard
        return self._guard

    def _stays_cold(self) -> bool:
        """
        Tell whether warm-up has nothing to do: the tools are known, and the first call opens the session.
        """
        guard = self._guard
        if guard is None or self.eager_connect or self._connection.is_ready:
            return False
        # What has drifted is looked at again.
        return guard.latest is None or not guard.latest.is_error

    @property
    def snapshot(self) -> MCPToolSnapshot | None:
        """
        The tools that the server should have.
        """
        return self._guard.snapshot if self._guard is not None else None

    @property
    def on_drift(self) -> OnDrift | None:
        """
        What is done if the server says something else of its tools than the snapshot; None without a snapshot.
        """
        return None if self._snapshot is None else self._snapshot.on_drift

    def _guarded_instructions(self, own: str | None) -> str | None:
        """
        Return what the server says of its use: that of the snapshot, unless the server's own is to be used.

        :param own: The server's own.
        """
        guard = self._guard
        if guard is None or guard.snapshot.instructions is None:
            return own
        has_drifted = guard.latest is not None and "instructions" in guard.latest.report.kinds
        if has_drifted and self.on_drift == "warn":
            return own
        return guard.snapshot.instructions or None

    def _included_instructions(self) -> str | None:
        """
        Return the instructions for the descriptions of tools.
        """
        return self._guarded_instructions(self._connection.instructions)

    def _known_name(self) -> str:
        """
        Return the name under which a model is told of the server.
        """
        given = self._provider_name or getattr(self, "tool_name_prefix", None)
        # With a snapshot, what a model sees is the same before the server is connected to.
        own = self._connection.status().server_name if self.snapshot is None else self.snapshot.server_name
        return given or own or self.server_info.describe()

    def _check_usable(self, missing: Iterable[str]) -> None:
        """
        Raise a ValueError if the server has one of the tools that were not found, but it cannot be used.
        """
        for name in missing:
            reason = self._connection._why_unusable(name)
            if reason is not None:
                msg = f"Tool '{name}' of {self.server_info.describe()} cannot be used: {reason}"
                raise ValueError(msg)

    @abstractmethod
    def _init_parameters(self) -> dict[str, Any]:
        """Return the constructor arguments that rebuild the object."""

    def _shared_parameters(self) -> dict[str, Any]:
        """
        Return the constructor arguments that tools and toolsets share, and mcp-haystack 2.1 does not know.

        :returns: Those that differ from their defaults.
        """
        connection = self._connection
        values = {
            "tool_options": (self.tool_options, ToolOptions()),
            "call_options": (connection.call_options, CallOptions()),
            "handlers": (connection.handlers, MCPHandlers()),
            "interceptors": (connection._interceptors, ()),
            "share": (connection.share, True),
            "snapshot": (self._snapshot, None),
        }
        return {name: value for name, (value, default) in values.items() if value != default}

    @property
    def call_options(self) -> CallOptions:
        """
        How calls are made: how long the server may be silent, and what progress does.
        """
        return self._connection.call_options

    @property
    def share(self) -> bool:
        """
        Whether the connection is shared with every other user of an equal `server_info`.
        """
        return self._connection.share

    @property
    def interceptors(self) -> list[Any]:
        """
        What wraps each call, outermost first, as it was given.
        """
        return self._connection.interceptors

    @property
    def handlers(self) -> MCPHandlers:
        """
        What is done for a server that asks for something.
        """
        return self._connection.handlers

    @property
    def connection_timeout(self) -> float:
        """
        Timeout in seconds for connecting and listing the tools.
        """
        return self._connection.connection_timeout

    @connection_timeout.setter
    def connection_timeout(self, value: float) -> None:
        self._connection.connection_timeout = check_timeout("connection_timeout", value)

    @property
    def invocation_timeout(self) -> float | None:
        """
        Default timeout in seconds for tool invocations; None for no limit.
        """
        return self._connection.invocation_timeout

    @invocation_timeout.setter
    def invocation_timeout(self, value: float | None) -> None:
        self._connection.invocation_timeout = value

    @property
    def connection(self) -> MCPConnection:
        """
        The connection to the server; its `status()` is a health check.
        """
        return self._connection

    @property
    def _holds(self) -> Holds:
        return self._connection._holds

    def _has_unknown_changes(self) -> bool:
        """
        Tell whether the server has said that its tools changed, and not yet how.
        """
        return False

    def _is_warm(self) -> bool:
        return self._generation > 0 and self._connection.is_ready and self._generation == self._connection.generation

    def warm_up(self) -> None:
        """
        Connect and load the tool definitions.

        Agents, pipelines and ToolInvokers call this. Idempotent and cheap while the connection is open; reopens it if
        it was closed or lost. With a `snapshot` it does not connect: the first call does.

        :raises MCPConnectionError: If connecting fails.
        :raises MCPDriftError: If the server is connected to, and its tools are not those of the `snapshot`.
        :raises MCPToolNotFoundError: If the server does not have a tool that was requested by name.
        :raises ValueError: If `inputs_from_state` names a parameter that a tool does not have, two tools get the same
            name, or the schema of a tool that was requested by name is unusable.
        """
        if not self._is_warm() and not self._stays_cold():
            self._load_or_leave(self._connection._open())

    async def warm_up_async(self) -> None:
        """
        Connect and load the tool definitions like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: As `warm_up`.
        :raises MCPToolNotFoundError: As `warm_up`.
        :raises ValueError: As `warm_up`.
        """
        if not self._is_warm() and not self._stays_cold():
            await self._load_or_leave_async(await self._connection._open_async())

    @abstractmethod
    def _load_listing(self, listing: ToolListing) -> None:
        """Use what the server listed."""

    def _load_or_leave(self, listing: ToolListing) -> None:
        try:
            self._load_listing(listing)
        except (MCPDriftError, MCPToolNotFoundError, ValueError):
            # A server whose definitions could never be used need not keep running.
            if not self._generation and not self._holds.is_held:
                self._leave()
            raise

    async def _load_or_leave_async(self, listing: ToolListing) -> None:
        # The loop of all sessions, where several are warmed up at once, must not wait for a function of the user.
        if self._has_filter and AsyncExecutor.get_instance().in_loop_thread():
            await start_in_thread(self._load_or_leave, listing, name="mcp-haystack-filter")
        else:
            self._load_or_leave(listing)

    @property
    def _has_filter(self) -> bool:
        """
        Whether a function of the user chooses the tools.
        """
        return False

    def _enter(self) -> None:
        self.warm_up()

    async def _enter_async(self) -> None:
        await self.warm_up_async()

    def _leave(self) -> None:
        self._connection._leave()

    def close(self) -> None:
        """
        Release the connection, for all who use this object: open `with` blocks do not prevent it, and calls fail.

        It is closed when the last tool or toolset that shares it has released it. Safe to call before warm-up and
        repeatedly; the next `warm_up` or call connects again. Closing a tool of a toolset closes the toolset.
        """
        self._connection.close()

    async def close_async(self) -> None:
        """
        Release the connection like `close`, without blocking the event loop.
        """
        await self._connection.close_async()

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

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle the configuration. The unpickled object opens its own connection.
        """
        return rebuild, (type(self), self._init_parameters())

    @classmethod
    @abstractmethod
    def _convert_handlers(cls, convert: HandlerConverter, parameter: str, config: Any) -> Any:
        """Apply `convert`, which (de)serializes handlers, to every tool's configuration in the value of a parameter."""

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the parameters to a dictionary, with handlers as import paths.

        :returns: A dictionary of the form `{"type": fully qualified class name, "data": {parameters}}`.
        """
        return self._as_dict("to_dict")

    def _to_trace_dict(self) -> dict[str, Any]:
        return self._as_dict("_to_trace_dict")

    def _as_dict(self, method: str) -> dict[str, Any]:
        data = {
            name: to_dict() if (to_dict := getattr(value, method, None)) else value
            for name, value in self._init_parameters().items()
        }
        for parameter in HANDLER_PARAMETERS:
            if config := data[parameter]:
                data[parameter] = self._convert_handlers(serialize_handlers, parameter, config)
        return {"type": generate_qualified_class_name(type(self)), "data": data}

    @classmethod
    def _load_dict(cls, data: dict[str, Any]) -> Self:
        parameters = combine_options(cls.__name__, data["data"])
        parameters["server_info"] = server_info_from_dict(parameters["server_info"])
        for parameter in HANDLER_PARAMETERS:
            if config := parameters.get(parameter):
                parameters[parameter] = cls._convert_handlers(deserialize_handlers, parameter, config)
        if isinstance(parameters.get("handlers"), dict):
            parameters["handlers"] = MCPHandlers.from_dict(parameters["handlers"])
        if "interceptors" in parameters:
            parameters["interceptors"] = load_interceptors(parameters["interceptors"])
        loaded: Self = rebuild(cls, parameters)
        return loaded


def rebuild(cls: Any, parameters: dict[str, Any]) -> Any:
    """
    Build a tool or toolset from serialized parameters, without connecting.

    :param cls: The class, MCPTool or MCPToolset.
    :param parameters: The constructor arguments. With `eager_connect` the object connects at warm-up.
    :returns: The tool or toolset.
    """
    eager_connect = parameters.get("eager_connect", False)
    rebuilt = cls(**{**parameters, "eager_connect": False})
    rebuilt.eager_connect = eager_connect
    return rebuilt
