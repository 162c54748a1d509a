# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Base classes of tools, toolsets and readers of a server: their connection, their options, and how they are stored.

Also the base class of toolsets whose tools change over time.
"""

from __future__ import annotations

import copy
import inspect
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeAlias

from haystack import logging
from haystack.core.serialization import generate_qualified_class_name
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.connection.connection import MCPConnection
from haystack_integrations.tools.mcp.connection.context_managed import ContextManaged
from haystack_integrations.tools.mcp.connection.interceptors import load_interceptors
from haystack_integrations.tools.mcp.connection.limits import CallOptions
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices
from haystack_integrations.tools.mcp.convert.tool_schemas import permissive_schema
from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPDriftError, MCPToolNotFoundError
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.haystack_compat import HANDLERS, combine
from haystack_integrations.tools.mcp.options import ToolOptions, load_bound_arguments
from haystack_integrations.tools.mcp.parameters import Options, own_parameters, parameters_of
from haystack_integrations.tools.mcp.protocol.changes import next_tick
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo, server_info_from_dict
from haystack_integrations.tools.mcp.snapshot import MCPToolSnapshot, OnDrift, SnapshotCheck, SnapshotGuard, ToolChoice
from haystack_integrations.tools.mcp.transports.shorthand import server_info_from

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.connection.requests import ToolListing

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Serializes or deserializes the configuration of one tool.
HandlerConverter: TypeAlias = Callable[[dict[str, Any]], dict[str, Any]]


class HasConnection(ContextManaged):
    """
    Base class of objects with a connection to one server, which warm-up opens and `close` releases.
    """

    _connection: MCPConnection
    required: bool = True
    # Why the server could not be reached, if it is not required.
    _unreachable_error: MCPConnectionError | None = None
    # When the connection was released last, by the clock of `next_tick`.
    _released_at: int = 0
    # Number of the session whose tool listing is in use; 0 before the first.
    _generation: int = 0

    def _connect_to(self, server_info: MCPServerInfo | Any, *, required: bool = True, **options: Any) -> None:
        """
        Set the connection. Nothing is opened yet.

        :param server_info: A server info, or the shorthand that `server_info_from` takes.
        :param required: Whether it is an error if the server cannot be reached.
        :param options: Parameters of MCPConnection.
        :raises ValueError: If a parameter is invalid.
        """
        self.required = required
        self._connection = MCPConnection(server_info_from(server_info), **options)
        self._users = self._connection._users

    @property
    def server_info(self) -> MCPServerInfo:
        """
        The server info, which describes how to reach the server.
        """
        return self._connection.server_info

    @property
    def connection(self) -> MCPConnection:
        """
        The connection to the server; its `status()` is a health check.
        """
        return self._connection

    @property
    def share(self) -> bool:
        """
        Whether the connection is shared with all other objects that have an equal `server_info`.
        """
        return self._connection.share

    @property
    def handlers(self) -> MCPHandlers:
        """
        The handlers for the server's requests.
        """
        return self._connection.handlers

    @property
    def connection_timeout(self) -> float:
        """
        Timeout in seconds for connecting and listing the tools.
        """
        return self._connection.connection_timeout

    @property
    def invocation_timeout(self) -> float | None:
        """
        Default timeout in seconds for tool invocations; None for no limit.
        """
        return self._connection.invocation_timeout

    def _is_current(self) -> bool:
        """
        Return whether warm-up has nothing to do.
        """
        return self._connection.is_ready and self._unreachable_error is None

    def _is_warm(self) -> bool:
        """
        Return whether the tools in use come from the open session, so that they only need to be listed again.
        """
        return False

    def _requested(self) -> Sequence[str]:
        """
        Return the server's names of the tools that must exist.
        """
        return ()

    def _load_listing(self, listing: ToolListing) -> None:
        """
        Use the tools that the server listed.
        """

    def warm_up(self) -> None:
        """
        Connect to the server. Cheap while the connection is open; reopens it if it was closed or lost.

        :raises MCPConnectionError: If connecting fails and `required` is True.
        """
        if not self._is_current():
            with self._tracking_reachability():
                connection = self._connection
                self._load_or_leave(connection._list() if self._is_warm() else connection._open(self._requested()))

    async def warm_up_async(self) -> None:
        """
        Connect to the server like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: If connecting fails and `required` is True.
        """
        if not self._is_current():
            with self._tracking_reachability():
                connection = self._connection
                is_warm = self._is_warm()
                listing = await (connection._list_async() if is_warm else connection._open_async(self._requested()))
                self._load_or_leave(listing)

    def _load_or_leave(self, listing: ToolListing) -> None:
        try:
            self._load_listing(listing)
        except (MCPDriftError, MCPToolNotFoundError, ValueError):
            # A server need not keep running if its definitions could never be used.
            if not self._generation and not self._users.is_used:
                self._leave()
            raise

    @contextmanager
    def _tracking_reachability(self) -> Iterator[None]:
        began = next_tick()
        try:
            yield
        except MCPConnectionError as error:
            # What was released meanwhile is not tried again in the background.
            if self.required or self._released_at < began:
                self._raise_or_leave_out(error)
        else:
            self._note_reachable()

    def _raise_or_leave_out(self, error: MCPConnectionError) -> None:
        """
        Raise the error if the server is required; otherwise continue without it, and log that once until it is back.

        :param error: Why it could not be reached.
        """
        if self.required:
            raise error
        if self._unreachable_error is None:
            logger.warning(
                "{server} is left out until it can be reached: {error}",
                server=self.server_info.describe(),
                error=str(error),
            )
        self._unreachable_error = error.with_traceback(None)

    def _note_reachable(self) -> None:
        if self._unreachable_error is not None:
            self._unreachable_error = None
            logger.info("{server} can be reached again", server=self.server_info.describe())

    def _enter(self) -> None:
        self.warm_up()

    async def _enter_async(self) -> None:
        await self.warm_up_async()

    def _forget(self) -> None:
        """
        Drop state that is needed only while the connection is in use. Called when it is released.
        """
        self._released_at = next_tick()

    def _leave(self) -> None:
        self._forget()
        self._connection._leave()

    def close(self) -> None:
        """
        Release the connection for all users of this object, even in open `with` blocks. Their calls fail.

        It is closed when the last tool, toolset or reader that shares it has released it. Safe to call before warm-up
        and repeatedly; the next use connects again. Closing a tool of a toolset closes the toolset. Background attempts
        to reach a server that is not required end.
        """
        self._forget()
        self._connection.close()

    async def close_async(self) -> None:
        """
        Release the connection like `close`, without blocking the event loop.
        """
        self._forget()
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


class ReaderBase(HasConnection):
    """
    Base class of objects that read resources, prompts or skills of one server for a pipeline or an Agent.

    Nothing is opened before warm-up or the first request.
    """

    def _stored_parameters(self, cls: Any, method: str = "to_dict") -> dict[str, Any]:
        """
        Return the serialized parameters of a reader.

        :param cls: The class whose constructor has these parameters; its subclasses have the same.
        :param method: The method that serializes the server info and the handlers.
        :returns: The parameters.
        """
        values = own_parameters(self, cls)
        stored = {name: store() if (store := getattr(each, method, None)) else each for name, each in values.items()}
        stored["handlers"] = stored["handlers"] or None
        if self.required:
            stored.pop("required", None)
        return stored

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize an object, without connecting.

        :param data: The result of `to_dict`.
        :returns: The object.
        """
        # Not `default_from_dict`: it would treat a user's dictionary with the key "type" as an object to import.
        return cls(**loaded_parameters(data.get("init_parameters", {})))


def is_out_of_reach(error: Exception, operation: str) -> bool:
    """
    Return whether an error means that the server cannot be reached, so that other requests would fail as well.

    :param error: The error of a request.
    :param operation: Name of the request. Its own timeout or an answer that is too large does not count.
    :returns: True if the server cannot be reached.
    """
    if not isinstance(error, MCPConnectionError) or error.code is not None:
        return False
    return not (error.operation == operation and (error._others_may_succeed or isinstance(error, TimeoutError)))


def loaded_parameters(parameters: Mapping[str, Any]) -> dict[str, Any]:
    """
    Deserialize the server info and the handlers in stored parameters, without connecting.

    :param parameters: The stored parameters.
    :returns: The parameters for the constructor.
    :raises ValueError: If the server info is invalid.
    """
    loaded = dict(parameters)
    if isinstance(loaded.get("server_info"), Mapping):
        loaded["server_info"] = server_info_from_dict(dict(loaded["server_info"]))
    if isinstance(loaded.get("handlers"), Mapping):
        loaded["handlers"] = MCPHandlers.from_dict(dict(loaded["handlers"]))
    return loaded


class ToolBase(HasConnection):
    """
    Base class of MCPTool and MCPToolset: the options that they share, and the definitions that the server lists.
    """

    eager_connect: bool
    tool_options: ToolOptions
    # The value of the parameter `snapshot`.
    _snapshot: SnapshotCheck | None
    # The name of its server in a registry.
    _provider_name: str | None = None
    # The registry alias that it belongs to.
    _tool_alias: str | None = None
    # The tick (`next_tick`) of the listing in use.
    _listed_at: int = 0
    # Compares the server's definitions with the snapshot, if there is one.
    _guard: SnapshotGuard | None = None

    @property
    def call_options(self) -> CallOptions:
        """
        The options of calls, such as how long the server may be silent.
        """
        return self._connection.call_options

    @property
    def interceptors(self) -> list[Any]:
        """
        The interceptors that wrap each call, outermost first.
        """
        return self._connection.interceptors

    @property
    def _owner(self) -> ToolBase:
        """
        The toolset that a tool belongs to; otherwise the object itself.
        """
        return self

    @abstractmethod
    def _choice(self) -> ToolChoice:
        """Return which of the server's tools belong to this object. The result must not refer to this object."""

    def _pin(self, value: Any) -> None:
        """
        Use the snapshot, if there is one, and show its tools.

        :param value: The value of the parameter `snapshot`.
        :raises FileNotFoundError: If its file does not exist.
        :raises ValueError: If it or its file cannot be used.
        """
        self._snapshot = check = SnapshotCheck.of(value)
        if check is not None:
            given = check.snapshot
            snapshot = given if isinstance(given, MCPToolSnapshot) else MCPToolSnapshot.load(given)
            guard = SnapshotGuard(snapshot, check.on_drift, self._choice(), self.server_info.describe())
            self._guard = self._connection._admission = guard
            self._show_pinned(guard)

    @abstractmethod
    def _show_pinned(self, guard: SnapshotGuard) -> None:
        """Show the tools of the snapshot, before any are requested from the server."""

    @property
    def snapshot(self) -> MCPToolSnapshot | None:
        """
        The tools that the server should have.
        """
        return self._guard.snapshot if self._guard is not None else None

    @property
    def on_drift(self) -> OnDrift | None:
        """
        What happens if the server's tools differ from the snapshot; None without a snapshot.
        """
        return None if self._snapshot is None else self._snapshot.on_drift

    def _guarded_instructions(self) -> str | None:
        """
        Return the instructions to use: the snapshot's, or the server's if it has none or on drift with "warn".
        """
        current, guard = self._connection.instructions, self._guard
        if guard is None or guard.snapshot.instructions is None:
            return current
        has_drifted = guard.latest is not None and "instructions" in guard.latest.kinds
        if has_drifted and self.on_drift == "warn":
            return current
        return guard.snapshot.instructions or None

    def _name_for_model(self) -> str:
        """
        Return the name of the server for a model.
        """
        configured = self._provider_name or getattr(self, "tool_name_prefix", None)
        # With a snapshot, a model sees the same name before the server is connected.
        reported = self._connection.status().server_name if self.snapshot is None else self.snapshot.server_name
        return configured or reported or self.server_info.describe()

    def _has_unknown_changes(self) -> bool:
        """
        Return whether the server has announced changed tools since the listing in use, which others may have listed.
        """
        return self._connection._has_changed_since(self._listed_at)

    def _is_warm(self) -> bool:
        return self._generation > 0 and self._connection.is_ready and self._generation == self._connection.generation

    def _may_stay_cold(self) -> bool:
        """
        Return whether warm-up has nothing to do: the tools are known, and the first call opens the session.
        """
        guard = self._guard
        if guard is None or self.eager_connect or self._connection.is_ready:
            return False
        # Drift that is an error is checked again.
        return guard.latest is None or not guard.is_error(guard.latest)

    def _is_current(self) -> bool:
        return (self._is_warm() and not self._has_unknown_changes()) or self._may_stay_cold()

    def _check_found(self, what: str, wanted: Iterable[str], available: list[str]) -> None:
        """
        Check that the server has the tools that were requested by name.

        :param what: The text before the names in the message.
        :param wanted: The requested names.
        :param available: The names of the tools that can be used.
        :raises MCPToolNotFoundError: If the server does not have one of them.
        :raises ValueError: If one of them cannot be used.
        """
        missing = [name for name in wanted if name not in available]
        if not missing:
            return
        for name in missing:
            reason = self._connection._unusable_tools().get(name)
            if reason is not None:
                msg = f"Tool '{name}' of {self.server_info.describe()} cannot be used: {reason}"
                raise ValueError(msg)
        choices = describe_choices(missing, available, "The server")
        msg = f"{what} {', '.join(map(repr, missing))} not found on {self.server_info.describe()}. {choices}"
        raise MCPToolNotFoundError(msg, tool_name=missing[0], available_tools=available)

    # The class whose parameters are stored; its subclasses have the same.
    _stored_as: ClassVar[str]

    def _init_parameters(self) -> dict[str, Any]:
        """
        Return the constructor arguments that rebuild the object: all those of mcp-haystack 2.1, and changed new ones.
        """
        parameters = parameters_of(self._stored_as).items()
        values = {name: (parameter, self._original_value(name)) for name, parameter in parameters}
        return {name: value for name, (parameter, value) in values.items() if not _is_left_out(parameter, value)}

    def _original_value(self, name: str) -> Any:
        """
        Return the original value of a parameter.
        """
        stored = {"snapshot": self._snapshot, "interceptors": self._connection._interceptors}
        return stored[name] if name in stored else getattr(self, name)

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle the configuration. The unpickled object opens its own connection.
        """
        return rebuild, (type(self), self._init_parameters())

    @classmethod
    @abstractmethod
    def _convert_handlers(cls, convert: HandlerConverter, config: Any) -> Any:
        """Apply `convert` to every tool's configuration in the value of a parameter."""

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the parameters to a dictionary, with handlers as import paths.

        :returns: A dictionary of the form `{"type": fully qualified class name, "data": {parameters}}`.
        """
        # A copy: YAML would write anchors for lists that two components of a pipeline share.
        return copy.deepcopy(self._as_dict("to_dict"))

    def _to_trace_dict(self) -> dict[str, Any]:
        return self._as_dict("_to_trace_dict")

    def _as_dict(self, method: str) -> dict[str, Any]:
        data = {
            name: to_dict() if (to_dict := getattr(value, method, None)) else value
            for name, value in self._init_parameters().items()
        }
        for parameter, (serialize, _) in HANDLERS.items():
            if config := data[parameter]:
                data[parameter] = self._convert_handlers(serialize, config)
        return {"type": generate_qualified_class_name(type(self)), "data": data}

    @classmethod
    def _loaded(cls, data: dict[str, Any]) -> Self:
        # Not named `from_dict`: a class that is not a Tool cannot override the method of Tool.
        parameters = loaded_parameters(data["data"])
        for parameter, (_, deserialize) in HANDLERS.items():
            if config := parameters.get(parameter):
                parameters[parameter] = cls._convert_handlers(deserialize, config)
        if "interceptors" in parameters:
            parameters["interceptors"] = load_interceptors(parameters["interceptors"])
        if "bound_arguments" in parameters:
            parameters["bound_arguments"] = load_bound_arguments(parameters["bound_arguments"])
        loaded: Self = rebuild(cls, parameters)
        return loaded


def _is_left_out(parameter: inspect.Parameter, value: Any) -> bool:
    # Positional parameters exist in mcp-haystack 2.1 and are always stored, so that it can load them.
    if parameter.kind is not parameter.KEYWORD_ONLY:
        return False
    is_empty = not value.changed() if isinstance(value, Options) else not value
    return value == parameter.default or (parameter.default is None and is_empty)


def rebuild(cls: Any, parameters: dict[str, Any]) -> Any:
    """
    Build a tool or toolset from serialized parameters, without connecting.

    :param cls: The class, MCPTool or MCPToolset.
    :param parameters: The constructor arguments. Even with `eager_connect`, the object connects only at warm-up.
    :returns: The tool or toolset.
    """
    eager_connect = parameters.get("eager_connect", False)
    rebuilt = cls(**{**parameters, "eager_connect": False})
    rebuilt.eager_connect = eager_connect
    return rebuilt


class _Placeholder(Tool):
    """
    A Tool whose schema is not checked: Haystack's check would take most of the time of creating a toolset.
    """

    def __post_init__(self) -> None:
        """
        Check nothing.
        """


class LiveToolset(Toolset):
    """
    A Toolset whose tools may change; iterating over it yields the current ones.
    """

    def _add_placeholder(self) -> None:
        # Haystack 2 ignores a toolset with an empty `tools` list. Iteration skips this placeholder.
        self._placeholder = _Placeholder(
            name=f"mcp_not_connected_placeholder_{uuid.uuid4().hex[:8]}",
            description="",
            parameters=permissive_schema(),
            function=_not_connected,
        )
        Toolset.__init__(self, tools=[self._placeholder])

    def __len__(self) -> int:
        """
        Count the tools that iteration yields.
        """
        return sum(1 for _ in self)

    def __bool__(self) -> bool:
        """
        Return True even while there are no tools yet, because Haystack ignores falsy toolsets.
        """
        return True

    def __getitem__(self, index: Any) -> Any:
        """
        Get a tool by its position or its name.

        :param index: The position, the name, or a slice of positions.
        :returns: The tool; a list of tools for a slice.
        :raises IndexError: If there is no such position. The message says which tools exist.
        :raises KeyError: If there is no such name. The message suggests the closest names.
        """
        tools = self._lookup_tools()
        if isinstance(index, str):
            for tool in tools:
                if tool.name == index:
                    return tool
            raise KeyError(self._describe_missing(f"no tool '{index}'", [index]))
        try:
            return tools[index]
        except IndexError:
            raise IndexError(self._describe_missing(f"no tool at position {index}", [])) from None

    def _lookup_tools(self) -> list[Tool]:
        """
        Return the tools that can be looked up.
        """
        return list(self)

    def _describe_missing(self, missing: str, wanted: list[str], why: str = "") -> str:
        """
        Return the message of an error about a tool that does not exist.

        :param missing: What is missing, as in "no tool 'search'".
        :param wanted: The name that was looked up, if it was a name.
        :param why: A colon and the reason why it is missing, in place of the existing tools.
        """
        choices = describe_choices(wanted, [tool.name for tool in self], "It")
        return f"{self._label()} has {missing}{why or f'. {choices}'}"

    def _label(self) -> str:
        return type(self).__name__

    def __contains__(self, item: Any) -> bool:
        """
        Return whether a tool is in the toolset.

        :param item: Tool instance or tool name.
        """
        return any(tool is item or tool.name == item for tool in self._lookup_tools())

    def get_selectable_tools(self) -> list[Tool]:
        """
        Return the tools available for selection by name, as in `Agent.run(tools=["tool_name"])`.
        """
        return list(self)

    def __add__(self, other: Tool | Toolset | list[Tool]) -> Toolset:
        """
        Combine this toolset with other tools, on Haystack 2.

        The combination contains the toolset itself, not a snapshot of its current tools.

        :param other: A Tool, a Toolset or a list of Tools.
        :returns: The combination.
        """
        combination: Toolset = combine(self, other)
        return combination

    def __radd__(self, other: Tool | Toolset | list[Tool]) -> Toolset:
        """
        Combine other tools with this toolset, on Haystack 2.

        Python calls this before `Toolset.__add__`, whose combination would serialize a snapshot of the tools.

        :param other: A Tool, a Toolset or a list of Tools.
        :returns: The combination.
        """
        combination: Toolset = combine(other, self)
        return combination

    def __copy__(self) -> Self:
        """
        Return the object itself: open connections cannot be copied.
        """
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """
        Return the object itself: open connections cannot be copied.
        """
        return self

    @abstractmethod
    def _as_dict(self, method: str) -> dict[str, Any]:
        """Serialize the toolset, and its parts by their method of this name."""

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the parameters of the toolset, but none of its tools.

        :returns: A dictionary of the form `{"type": fully qualified class name, "data": {parameters}}`.
        :raises ValueError: If it contains a token-based `Secret`, which Haystack does not serialize.
        """
        return copy.deepcopy(self._as_dict("to_dict"))  # as for MCPToolset

    def _to_trace_dict(self) -> dict[str, Any]:
        return self._as_dict("_to_trace_dict")

    def __hash__(self) -> int:
        """
        Hash the toolset by its identity.
        """
        return id(self)

    def __eq__(self, other: object) -> bool:
        """
        Return whether the other object is this object.
        """
        return self is other


def _not_connected(**_arguments: Any) -> str:
    msg = "The toolset is not connected yet. Call warm_up() before using its tools."
    raise MCPConnectionError(msg)
