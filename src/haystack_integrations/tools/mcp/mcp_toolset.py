# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The tools of a server as a Haystack Toolset. How it follows changes of the server's tools:

.. code-block:: text

    the server reports that its tools changed ──> they are listed in the background
                                                        │
                        `warm_up`, `refresh` or the start of an Agent's run: from then on, the toolset has them
                                                        │
                               runs that began earlier keep the tools with which they began
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
import weakref
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload

from haystack import logging
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from pydantic import SkipValidation

from haystack_integrations.tools.mcp.any_tools import warm_up_tools, warm_up_tools_async
from haystack_integrations.tools.mcp.connection.context_managed import OperationRunner
from haystack_integrations.tools.mcp.connection.limits import BackgroundRetry, CallOptions
from haystack_integrations.tools.mcp.connection.listening import Watching
from haystack_integrations.tools.mcp.connection.reading import Reading
from haystack_integrations.tools.mcp.convert.server_texts import html_table, text_table
from haystack_integrations.tools.mcp.convert.tool_names import ToolNamePrefix, assign_tool_names, describe_choices
from haystack_integrations.tools.mcp.convert.tool_schemas import normalize_parameters
from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPDriftError, MCPToolNotFoundError
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.haystack_compat import MCPToolsetCombination
from haystack_integrations.tools.mcp.mcp_tool import MCPTool, usable_parameters
from haystack_integrations.tools.mcp.options import ToolOptions, ToolOverride, ToolSelection, check_overrides
from haystack_integrations.tools.mcp.parameters import Text, checked, explains_options
from haystack_integrations.tools.mcp.protocol.changes import (
    ServerChange,
    WantedChanges,
    Watcher,
    next_tick,
)
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.server_instructions import with_instructions
from haystack_integrations.tools.mcp.snapshot import MCPToolSnapshot, SnapshotCheck, SnapshotGuard, ToolChoice
from haystack_integrations.tools.mcp.tool_base import HandlerConverter, LiveToolset, ToolBase

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.requests import ToolListing

# Stored pipelines of Haystack 2 import `MCPToolsetCombination` from this module.
__all__ = ["MCPToolset", "MCPToolsetCombination"]

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# The shortest time between two listings in the background, in seconds, because a server may report a thousand changes
# per second.
_LISTING_INTERVAL = 0.2

# The pauses between attempts to reach a server that is not required, in seconds.
_FIRST_PAUSE = 1.0
_MAX_PAUSE = 60.0

# Parameters that map tools to their configurations.
_PARAMETERS_PER_TOOL = ("inputs_from_state", "outputs_to_state", "outputs_to_string")


def _while_alive(method: Callable[[T], None]) -> Callable[[T], None]:
    """
    Wrap a method so that a connection holding the wrapper does not keep the object alive.

    :param method: The method.
    :returns: The wrapper. It does nothing after the object is gone.
    """
    reference = weakref.WeakMethod(method)

    def called(argument: T) -> None:
        bound = reference()
        if bound is not None:
            bound(argument)

    return called


@explains_options
class MCPToolset(Reading, Watching, ToolBase, LiveToolset):
    """
    A Toolset that connects to an MCP (Model Context Protocol) server and provides access to its tools.

    It loads all tools of a server, or those in `tool_names`, over Streamable HTTP, SSE, stdio or in process. The tools
    share one supervised connection, with each other and with every other tool or toolset of an equal `server_info`.

    Agents, pipelines and ToolInvokers warm the toolset up. A bare chat generator of Haystack 3 and
    `Agent.run(tools=toolset)` of Haystack 2 do not: call `warm_up()` first. Iterating over a toolset never connects.
    Before warm-up it yields a placeholder for every tool in `tool_names`, or nothing; the placeholders get their
    descriptions and schemas at warm-up.

    ### Usage example

    ```python
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack.dataclasses import ChatMessage
    from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo

    toolset = MCPToolset(
        server_info=StdioServerInfo(command="uvx", args=["mcp-server-time", "--local-timezone=Europe/Berlin"]),
        tool_names=["get_current_time"],  # optional: only these tools
    )
    agent = Agent(chat_generator=OpenAIChatGenerator(), tools=toolset)
    result = agent.run(messages=[ChatMessage.from_user("What is the time in New York?")])
    toolset.close()
    ```

    Tools that read from and write to the State of an Agent:

    ```python
    toolset = MCPToolset(
        server_info=StdioServerInfo(command="uvx", args=["mcp-server-git"]),
        tool_names=["git_status", "git_diff"],
        inputs_from_state={"git_status": {"repository": "repo_path"}, "git_diff": {"repository": "repo_path"}},
        outputs_to_state={"git_status": {"status": {"source": "result"}}},
    )
    ```
    """

    _stored_as = "MCPToolset"

    @checked()
    def __init__(
        self,
        server_info: MCPServerInfo | Any,
        tool_names: Sequence[Text] | None = None,
        connection_timeout: SkipValidation[float] = 30.0,
        invocation_timeout: SkipValidation[float | None] = 30.0,
        eager_connect: bool = False,
        inputs_from_state: dict[str, dict[str, str] | None] | None = None,
        outputs_to_state: dict[str, dict[str, dict[str, Any]] | None] | None = None,
        outputs_to_string: dict[str, dict[str, Any] | None] | None = None,
        *,
        tool_name_prefix: ToolNamePrefix | None = None,
        tool_selection: ToolSelection | Mapping[str, Any] | None = None,
        tool_options: ToolOptions | Mapping[str, Any] | None = None,
        tool_overrides: Mapping[str, ToolOverride | dict[str, Any]] | None = None,
        call_options: CallOptions | Mapping[str, Any] | None = None,
        handlers: MCPHandlers | Mapping[str, Any] | None = None,
        interceptors: Sequence[Any] | None = None,
        share: bool = True,
        required: bool = True,
        snapshot: SnapshotCheck | MCPToolSnapshot | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    ) -> None:
        """
        Initialize the MCP toolset.

        All parameters use the server's tool names, without a prefix. A mapping or an exclusion for a tool that does not
        exist is ignored with a warning.

        Tools that the server declares to be for apps only, or callable only as tasks, are left out. Without
        `tool_names`, the tools are sorted by name, so that equal tools produce equal prompts.

        :param server_info: How to reach the server: a server info, or the shorthand that `server_info_from` takes, such
            as a URL, a command line as a list or a server object.
        :param tool_names: Names of the tools to load. Default: all tools of the server.
        :param connection_timeout: Timeout in seconds for connecting and listing the tools.
        :param invocation_timeout: Timeout in seconds for a tool call. None for no limit.
        :param eager_connect: If True, connect and load the tools during initialization. If False (default), do so at
            warm-up. A toolset loaded from YAML never connects before that.
        :param inputs_from_state: Optional dictionary from tool names to the `inputs_from_state` of each tool: State
            keys mapped to parameter names. The model does not see these parameters.
            Example: `{"git_status": {"repository": "repo_path"}}`
        :param outputs_to_state: Optional dictionary from tool names to the `outputs_to_state` of each tool: State keys
            mapped to parts of the result, with optional handlers.
            Example: `{"git_status": {"status_result": {"source": "status"}}}`
        :param outputs_to_string: Optional dictionary from tool names to the `outputs_to_string` of each tool: how the
            result is converted to a string for the model.
            Example: `{"git_diff": {"source": "diff", "handler": format_diff}}`
        :param tool_name_prefix: Optional prefix for the names of all tools, as in `prefix_name`. Use it for several
            servers whose tools have the same names.
        :param tool_selection: Selects tools of the server, and when new ones appear: a ToolSelection, or a dictionary
            of its fields. Example: `ToolSelection(exclude_tools=["delete_*"])`
        :param tool_options: Options for what the model sees of the tools and their results, and for calls that fail: a
            ToolOptions, or a dictionary of its fields. Example: `ToolOptions(max_result_size=10_000)`
        :param tool_overrides: Optional dictionary from tool names to a ToolOverride, or a dictionary of its fields:
            another name or description, arguments that the model does not see, a timeout, or other ToolOptions.
            Example: `{"search": ToolOverride(name="search_docs", bound_arguments={"tenant": FromState("tenant")})}`
        :param call_options: Options for making calls: a CallOptions, or a dictionary of its fields.
            Example: `CallOptions(reset_timeout_on_progress=True)`
        :param handlers: Handlers for the server's requests; see MCPHandlers.
        :param interceptors: Functions that wrap each call, outermost first. They take an MCPToolCall and `call_next`,
            which passes the call on and returns the result. Other callables with these parameters, and import paths
            `"package.module:name"`, are allowed as well.
        :param share: Whether to share the connection with all other objects that have an equal `server_info`.
        :param required: Whether it is an error if the server cannot be reached. If False, `warm_up` logs a warning and
            the toolset is empty until it can be reached: an Agent runs without its tools. It is tried again in the
            background, with growing pauses, and at the next `warm_up`.
        :param snapshot: The tools that the server should have: an MCPToolSnapshot, the path of its file, or a
            SnapshotCheck, which also sets what happens if the server's tools differ. They are shown without connecting,
            and compared with the server's tools. Default: the server's tools are used.
        :raises MCPConnectionError: If connecting fails (with `eager_connect`).
        :raises MCPToolNotFoundError: If the server does not have a tool in `tool_names` (with `eager_connect`).
        :raises FileNotFoundError: If the file of the `snapshot` does not exist.
        :raises ValueError: If a parameter is invalid; with `eager_connect` also as `warm_up`.
        """
        self.tool_names: list[str] | None = None if tool_names is None else list(tool_names)
        self.eager_connect = eager_connect
        self.inputs_from_state: dict[str, dict[str, str] | None] = inputs_from_state or {}
        self.outputs_to_state: dict[str, dict[str, dict[str, Any]] | None] = outputs_to_state or {}
        self.outputs_to_string: dict[str, dict[str, Any] | None] = outputs_to_string or {}
        self.tool_name_prefix = tool_name_prefix
        self.tool_selection: ToolSelection = ToolSelection.of(tool_selection)
        self.tool_options: ToolOptions = ToolOptions.of(tool_options)
        self.tool_overrides: dict[str, ToolOverride] = check_overrides(tool_overrides)
        self._connect_to(
            server_info,
            connection_timeout=connection_timeout,
            invocation_timeout=invocation_timeout,
            share=share,
            handlers=handlers,
            interceptors=interceptors,
            call_options=call_options,
            required=required,
        )
        # The reasons why tools of the server are not in this toolset, by tool name.
        self._left_out: dict[str, str] = {}
        # One lock for each process: a lock held by another thread during a fork would stay locked in the child.
        self._locks: dict[int, threading.RLock] = {}
        self._retry = BackgroundRetry(self._try_to_connect, base=_FIRST_PAUSE, max_pause=_MAX_PAUSE)
        # The server's tools by remote name. A tool remains the same object across reconnects.
        self._children: dict[str, MCPTool] = {}
        self._add_placeholder()
        # The tick (`next_tick`) of the last change.
        self._changed_at = 0
        self._expires_at: float | None = None
        # Listed tools that are not published in the toolset yet.
        self._unpublished: list[MCPTool] | None = None
        self._listing_task: asyncio.Task[None] | None = None
        self._next_listing_at = 0.0
        # The tools with which runs of Agents of Haystack 3 began.
        self._tools_of_runs: weakref.WeakKeyDictionary[ToolsOfRun, list[Tool]] = weakref.WeakKeyDictionary()
        self._connection._watch(Watcher(WantedChanges(lists=frozenset({"tools"})), _while_alive(self._note_change)))
        self._pin(snapshot)
        if self._guard is not None:
            self._guard.on_new_listing = _while_alive(self._load_new_listing)
        else:
            for remote_name, name in self._assign_names(dict.fromkeys(tool_names or [])).items():
                self._children[remote_name] = self._make_child(remote_name, name)
        if eager_connect:
            self._enter_or_leave()

    def _choice(self) -> ToolChoice:
        selection, names = self.tool_selection, self.tool_names

        def may_have(name: str) -> bool:
            return (names is None or name in names) and not selection.excludes(name)

        def selects(definition: types.Tool) -> bool:
            return may_have(definition.name) and selection.reason_against(definition) is None and _is_usable(definition)

        return ToolChoice(may_have, selects)

    @property
    def instructions(self) -> str | None:
        """
        The server's own instructions for its use. `instructions_for_model` prepares them for a model.

        If the snapshot contains instructions, they are returned, unless the server's differ and `on_drift` is "warn".
        Otherwise None without an open session, or if the server has no instructions.
        """
        return self._guarded_instructions()

    @property
    def _runner(self) -> OperationRunner:
        return self._connection

    def _lock(self) -> threading.RLock:
        # Held only to read and change this object, never while waiting for a server. Reentrant, because an attribute of
        # an added tool may be a property that uses the toolset.
        return self._locks.setdefault(os.getpid(), threading.RLock())

    # The current tools are those in `tools`, which users of mcp-haystack 2.1 change as well.

    @property
    def _server_tools(self) -> list[Tool]:
        tools = self.tools
        return [*self._children.values()] if self._placeholder in tools else list(filter(self._is_child, tools))

    @property
    def _added_tools(self) -> list[Tool]:
        return [tool for tool in self.tools if tool is not self._placeholder and not self._is_child(tool)]

    def _is_child(self, tool: Tool) -> bool:
        return isinstance(tool, MCPTool) and tool._toolset is self

    def _if_reachable(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        return tools if self._unreachable_error is None else ()

    def _lookup_tools(self) -> list[Tool]:
        if self.tool_selection.update_between_steps:
            self._publish()
        return [*self._if_reachable(self._server_tools), *self._added_tools]

    def __iter__(self) -> Iterator[Tool]:
        """
        Iterate over the tools, without connecting.

        :returns: The loaded tools; before warm-up, placeholders for the tools in `tool_names`. Without the server's
            tools if it is not required and cannot be reached.
        """
        return iter(with_instructions(self._lookup_tools()))

    def add(self, tool: Tool | Toolset) -> None:
        """
        Add a tool that does not come from the server.

        Added tools are warmed up with the toolset, but neither closed nor serialized with it: `to_dict` contains only
        the toolset's own parameters.

        :param tool: A Tool, or a Toolset, whose current tools are added.
        :raises ValueError: If the toolset already has a tool of the same name.
        :raises TypeError: If `tool` is neither.
        """
        added = [tool] if isinstance(tool, Tool) else list(tool) if isinstance(tool, Toolset) else None
        if added is None:
            msg = f"Expected Tool or Toolset, got {type(tool).__name__}"
            raise TypeError(msg)
        with self._lock():
            owners = Counter(each.name for each in [*self._server_tools, *self._added_tools, *added])
            if duplicates := sorted(name for name, count in owners.items() if count > 1):
                msg = f"Duplicate tool names found: {', '.join(duplicates)}"
                raise ValueError(msg)
            self.tools = [*self.tools, *added]

    def spawn(self, selected_tool_names: set[str] | None = None) -> Toolset:
        """
        Return the current tools for a run of an Agent. Haystack 3 calls this at the start of each run.

        :param selected_tool_names: Names of the tools that the run may use. Default: all.
        :returns: A toolset that keeps these tools; with `update_between_steps`, one that follows changes.
        """
        server_tools = [*self._if_reachable(self._server_tools)]

        def tools() -> Iterable[Tool]:
            return self if self.tool_selection.update_between_steps else [*server_tools, *self._added_tools]

        run = ToolsOfRun(self, tools, selected_tool_names)
        with self._lock():
            self._tools_of_runs[run] = server_tools
        return run

    # Warm-up

    def warm_up(self) -> None:
        """
        Connect and load the tool definitions, and warm up the tools that were added.

        Agents, pipelines and ToolInvokers call this. Idempotent and cheap while the connection is open; reopens it if
        it was closed or lost. With a `snapshot` and without `eager_connect` it does not connect: the first call does.

        :raises MCPConnectionError: If connecting fails and the server is required.
        :raises MCPDriftError: If the server is connected, and its tools differ from the `snapshot`.
        :raises MCPToolNotFoundError: If the server does not have a tool that was requested by name.
        :raises ValueError: If `inputs_from_state` names a parameter that a tool does not have, `bound_arguments` names
            a tool or a parameter that does not exist, two tools have the same name, or the schema of a tool that was
            requested by name is unusable.
        """
        super().warm_up()
        warm_up_tools(self._added_tools)

    async def warm_up_async(self) -> None:
        """
        Connect and load the tool definitions like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: As `warm_up`.
        :raises MCPDriftError: As `warm_up`.
        :raises MCPToolNotFoundError: As `warm_up`.
        :raises ValueError: As `warm_up`.
        """
        await super().warm_up_async()
        await warm_up_tools_async(self._added_tools)

    def _is_current(self) -> bool:
        # Retry a server that refuses connections at once. A server that does not answer would delay every run of an
        # Agent, so only the background retries it.
        if isinstance(self._unreachable_error, TimeoutError) and self._retry.is_running:
            return True
        self._publish()
        return self._unreachable_error is None and (
            self._may_stay_cold() or (self._is_warm() and not self._needs_listing)
        )

    def refresh(self) -> None:
        """
        List the tools of the server now. From then on, the toolset has them; Agent runs that began earlier do not.

        :raises MCPConnectionError: If the request fails.
        :raises MCPToolNotFoundError: As `warm_up`.
        :raises ValueError: As `warm_up`.
        """
        self._load_listing(self._connection._list())
        self._note_reachable()

    async def refresh_async(self) -> None:
        """
        List the tools of the server now like `refresh`, without blocking the event loop.
        """
        self._load_listing(await self._connection._list_async())
        self._note_reachable()

    @property
    def _needs_listing(self) -> bool:
        """
        Whether the tools must be listed again.
        """
        has_expired = self._expires_at is not None and monotonic() >= self._expires_at
        return not self.tool_selection.cache_tools or has_expired or self._has_unknown_changes()

    @property
    def _is_outdated(self) -> bool:
        """
        Whether the server has reported changed tools since the listing in use.
        """
        return self._listed_at < self._changed_at

    def _has_unknown_changes(self) -> bool:
        return self._is_outdated or super()._has_unknown_changes()

    # A server that is not required

    def _raise_or_leave_out(self, error: MCPConnectionError) -> None:
        super()._raise_or_leave_out(error)
        self._retry.start()

    def _note_reachable(self) -> None:
        if self._unreachable_error is not None:
            super()._note_reachable()
            self._retry.stop()

    async def _try_to_connect(self) -> bool:
        """
        Try to reach the server in the background.

        :returns: True if no further attempt is needed.
        """
        if self._unreachable_error is None:
            return True
        try:
            if not super()._is_current():
                # Not counted as a use of the connection: the end of a `with` block ends the attempt, too.
                self._load_listing(await self._connection._cached_listing())
        except MCPConnectionError as error:
            if self._unreachable_error is not None:
                self._unreachable_error = error.with_traceback(None)
            return self._unreachable_error is None
        except (MCPDriftError, MCPToolNotFoundError, ValueError) as error:  # the next `warm_up` raises it
            logger.warning(
                "The tools of {server} cannot be used: {error}", server=self.server_info.describe(), error=str(error)
            )
            return True
        self._note_reachable()
        return True

    def _forget(self) -> None:
        super()._forget()
        self._retry.stop()
        self._unreachable_error = None

    # From a listing to tools

    def _requested(self) -> Sequence[str]:
        return self.tool_names or []

    def _show_pinned(self, guard: SnapshotGuard) -> None:
        known = guard.snapshot.tool_names
        if missing := [name for name in self.tool_names or [] if name not in known]:
            choices = describe_choices(missing, known, "It")
            msg = f"The `snapshot` lacks tools of `tool_names`: {', '.join(map(repr, missing))}. {choices}"
            raise ValueError(msg)
        definitions = {tool.name: guard.pinned(tool.name) for tool in guard.snapshot.tools}
        pinned = {name: tool for name, tool in definitions.items() if self.tool_selection.shows_pinned(tool)}
        names = sorted(pinned) if self.tool_names is None else self.tool_names
        by_name = {name: pinned[name] for name in names if name in pinned}
        self._check_names(known, by_name)
        self._children = {child.remote_name: child for child in self._make_children(by_name)}

    def _load_listing(self, listing: ToolListing, *, publish: bool = True) -> None:
        """
        Load the tools that the server listed.

        :param listing: The tools.
        :param publish: Whether the toolset has them at once.
        """
        # Do not hold the lock here, because `tool_filter` is the user's function.
        reasons = {each.name: reason for each in listing.tools if (reason := self.tool_selection.reason_against(each))}
        definitions, hidden = (listing.tools, []) if self._guard is None else self._guard.admit(listing)
        reasons |= dict.fromkeys(hidden, "it is not as in the snapshot")
        with self._lock():
            # Listings may arrive out of order; the newest one wins.
            if listing.tick > self._listed_at:
                self._unpublished = self._load_children(definitions, hidden, reasons)
                self._generation = max(listing.generation, self._generation)
                self._listed_at, self._expires_at = listing.tick, listing.expires_at
                if self._is_outdated:
                    AsyncExecutor.get_instance().post(self._start_listing)
            if publish:
                self._publish_locked()

    def _load_new_listing(self, listing: ToolListing) -> None:
        try:
            self._load_listing(listing, publish=False)
        except (MCPDriftError, MCPToolNotFoundError, ValueError) as error:  # the next `warm_up` raises it
            logger.debug("The tools cannot be used as they are now: {error}", error=str(error))

    def _load_children(
        self, definitions: Iterable[types.Tool], hidden: Sequence[str], reasons: dict[str, str]
    ) -> list[MCPTool]:
        """
        Choose among the server's tools.

        :param definitions: The server's definitions.
        :param hidden: Names of the tools that the snapshot hides.
        :param reasons: The reasons why tools are left out, by tool name.
        :returns: The chosen tools: new objects, or existing objects of unchanged tools.
        """
        by_name: dict[str, types.Tool] = {}
        for definition in definitions:
            if definition.name in by_name and not self._generation:  # warn once, not after each reconnect
                text = "{server} lists tool {tool!r} twice; the first one is used"
                logger.warning(text, server=self.server_info.describe(), tool=definition.name)
            by_name.setdefault(definition.name, definition)
        listed = list(by_name)
        if self.tool_names is not None:
            wanted = [name for name in self.tool_names if name not in hidden]
            self._check_found("`tool_names`:", wanted, listed)
            for name in wanted:
                if name in reasons:
                    msg = (
                        f"Tool '{name}' of {self.server_info.describe()} is in `tool_names`, but cannot be loaded: "
                        f"{reasons[name]}"
                    )
                    raise ValueError(msg)
            # Keep the order of `tool_names`, as before warm-up.
            by_name = {name: by_name[name] for name in wanted}
            self._log_left_out({name: reasons[name] for name in hidden})
        else:
            # Sort the tools: providers cache prompts by their beginning, and servers may list tools in any order.
            by_name = {name: by_name[name] for name in sorted(by_name) if name not in reasons}
            self._log_left_out(reasons)
        if not self._generation and self._guard is None:  # warn once, not after each reconnect
            self._check_names(listed, by_name)
        children = self._make_children(by_name)
        duplicates = {child.name for child in children} & {tool.name for tool in self._added_tools}
        if duplicates:
            msg = (
                f"Duplicate tool names found: {', '.join(sorted(duplicates))}. The server has tools with the same "
                "names as tools that were added to the toolset. Pass `tool_name_prefix` to rename the server's."
            )
            raise ValueError(msg)
        return children

    def _make_children(self, definitions: dict[str, types.Tool]) -> list[MCPTool]:
        usable: dict[str, dict[str, Any]] = {}
        for name, definition in definitions.items():
            known = self._children.get(name)
            try:
                usable[name] = usable_parameters(definition, None if known is None else known._definition)
            except ValueError as error:
                if self.tool_names:
                    raise
                text = "Skipped a tool of {server}: {error}"
                logger.warning(text, server=self.server_info.describe(), error=str(error))
                self._left_out = {**self._left_out, name: "its schema is unusable"}
        children: list[MCPTool] = []
        for remote_name, name in self._assign_names(usable).items():
            child = self._children.get(remote_name)
            if child is None or child._definition not in (None, definitions[remote_name]):
                child = self._make_child(remote_name, name)
            child._use_definition(definitions[remote_name], usable[remote_name])
            children.append(child)
        return children

    def _make_child(self, remote_name: str, name: str) -> MCPTool:
        override = self.tool_overrides.get(remote_name, ToolOverride())
        return MCPTool._for_toolset(
            self,
            remote_name,
            name,
            inputs_from_state=self.inputs_from_state.get(remote_name),
            outputs_to_state=self.outputs_to_state.get(remote_name),
            outputs_to_string=self.outputs_to_string.get(remote_name),
            options=override.over(self.tool_options),
            description=override.description,
            bound_arguments=override.bound_arguments,
            invocation_timeout=override.invocation_timeout,
        )

    def _assign_names(self, remote_names: Iterable[str]) -> dict[str, str]:
        # A tool keeps its name if the server adds another tool that would have the same name.
        renamed = {tool: child.name for tool, child in self._children.items()}
        renamed |= {tool: override.name for tool, override in self.tool_overrides.items() if override.name is not None}
        return assign_tool_names(remote_names, self.tool_name_prefix, renamed)

    def _log_left_out(self, reasons: dict[str, str]) -> None:
        for name, reason in reasons.items():
            if self._left_out.get(name) != reason:
                text = "Tool {tool!r} of {server} is left out: {reason}"
                logger.info(text, tool=name, server=self.server_info.describe(), reason=reason)
        self._left_out = reasons

    def _check_names(self, listed: list[str], loaded: Mapping[str, Any]) -> None:
        for name, override in self.tool_overrides.items():
            # Raise instead of warning: the model would see the arguments of the intended tool that it must not see.
            if override.bound_arguments and name not in listed:
                choices = describe_choices([name], listed, "The server")
                msg = f"`tool_overrides` binds arguments of '{name}', which the server does not have. {choices}"
                raise ValueError(msg)
        unknown = [("exclude_tools", name, listed) for name in self.tool_selection.unknown_exclusions(listed)]
        for parameter in (*_PARAMETERS_PER_TOOL, "tool_overrides"):
            unknown += [(parameter, name, [*loaded]) for name in getattr(self, parameter) if name not in loaded]
        for parameter, name, known in unknown:
            logger.warning(
                "`{parameter}` for {server} has the tool '{tool}', which is not there. {choices}",
                parameter=parameter,
                server=self.server_info.describe(),
                tool=name,
                choices=describe_choices([name], known, "It"),
            )

    def _publish(self) -> None:
        """
        Publish the listed tools in the toolset, if there are new ones.
        """
        if self._unpublished is not None:
            with self._lock():
                self._publish_locked()

    def _publish_locked(self) -> None:
        # Call this with the lock.
        children, self._unpublished = self._unpublished, None
        if children is None:
            return
        known = dict(self._children)
        for child in children:
            present = known.setdefault(child.remote_name, child)
            if present is not child:
                # A tool remains the same object. Running Agents get the other object, which takes the old definition.
                for run_tools in self._tools_of_runs.values():
                    run_tools[:] = [child if each is present else each for each in run_tools]
                present._swap_definitions(child)
        self._children = known
        # This is one assignment, so that another thread sees either the old tools or the new ones.
        self.tools: list[Tool] = [*(known[child.remote_name] for child in children), *self._added_tools]

    # Listings in the background

    def _note_change(self, _change: ServerChange) -> None:
        self._changed_at = next_tick()
        if self._listed_at:  # otherwise the first listing is still to come, at warm-up
            self._start_listing()

    def _start_listing(self) -> None:
        if self._listing_task is None or self._listing_task.done():
            # Use an empty context, not a call's, because this is not on behalf of a user.
            self._listing_task = asyncio.create_task(_keep_listing(weakref.ref(self)), context=contextvars.Context())

    async def _list_in_background(self) -> bool:
        """
        List the tools in the background.

        :returns: Whether to list them again if they have changed meanwhile.
        """
        connection = self._connection
        if not connection._has_own_session():
            return False  # the next warm-up lists them; a background task must not open a session
        try:
            self._load_listing(await connection._list_if_open_async(), publish=False)
        except (MCPConnectionError, TimeoutError) as error:
            if connection._has_own_session():  # not closed meanwhile by the user, or by an error that was logged
                logger.info("The tools may have changed, but could not be listed: {error}", error=str(error))
            return False
        except MCPDriftError:  # it was logged already, and the next `warm_up` raises it
            return False
        except (MCPToolNotFoundError, ValueError) as error:  # the next `warm_up` raises it
            logger.warning("The tools changed and cannot be used as they are now: {error}", error=str(error))
            return False
        finally:
            self._next_listing_at = monotonic() + _LISTING_INTERVAL
        return True

    # Tools by name

    @overload
    def __getitem__(self, index: int | str) -> MCPTool: ...

    @overload
    def __getitem__(self, index: slice) -> list[MCPTool]: ...

    def __getitem__(self, index: int | str | slice) -> MCPTool | list[MCPTool]:
        """
        Get a tool by its position or its name.

        :param index: The position, the name, or a slice of positions.
        :returns: The tool; a list of tools for a slice. Tools that were added with `add` keep their types.
        :raises IndexError: If there is no such position. The message says whether the toolset was warmed up.
        :raises KeyError: If there is no such name. The message suggests the closest names.
        """
        found: MCPTool | list[MCPTool] = super().__getitem__(index)
        return found

    def _describe_missing(self, missing: str, wanted: list[str], why: str = "") -> str:
        names = self._assign_names(self._left_out)
        left_out = [reason for tool, reason in self._left_out.items() if tool in wanted or names[tool] in wanted]
        if self._unreachable_error is not None:
            why = f": its server cannot be reached. {self._unreachable_error}"
        elif not self._generation and self._guard is None:
            why = ": it is not warmed up. Call warm_up(), which loads the server's tools."
        elif left_out:
            why = f": the server has it, but {left_out[0]}."
        return super()._describe_missing(missing, wanted, why)

    def __contains__(self, item: Any) -> bool:
        """
        Check if a tool is in this toolset.

        :param item: Tool instance or tool name.
        :returns: True if contained, False otherwise.
        """
        return super().__contains__(item._renamed(item.name) if isinstance(item, MCPTool) else item)

    # Serialization and display

    def _original_value(self, name: str) -> Any:
        value = super()._original_value(name)
        return value or None if name in _PARAMETERS_PER_TOOL else value

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize a toolset without connecting; with `eager_connect` it connects at warm-up.

        :param data: The result of `to_dict`.
        :returns: The toolset.
        """
        return cls._loaded(data)

    def _as_dict(self, method: str) -> dict[str, Any]:
        stored = super()._as_dict(method)
        if self.tool_overrides:
            overrides = self.tool_overrides.items()
            stored["data"]["tool_overrides"] = {name: getattr(each, method)() for name, each in overrides}
        return stored

    @classmethod
    def _convert_handlers(cls, convert: HandlerConverter, config: Any) -> Any:
        return {tool: convert(tool_config) for tool, tool_config in config.items() if tool_config}

    def table(self) -> str:
        """
        Make a table of the tools for a terminal: names, parameters (with `?` if optional) and descriptions.

        :returns: The table; a note if there are no tools yet.
        """
        tools = list(self)
        return text_table(tools) if tools else f"{self._caption()}: no tools"

    def _repr_html_(self) -> str:
        return html_table(self, self._caption())

    def _caption(self) -> str:
        return f"{type(self).__name__} of {self.server_info.describe()}{self._coldness()}"

    def _coldness(self) -> str:
        if self._generation:
            return ""
        return ", not warmed up" if self._guard is None else ", from a snapshot"

    def __repr__(self) -> str:
        """
        Describe the toolset without secrets.
        """
        names = [tool.name for tool in self]
        cold = self._coldness()
        if self._unreachable_error is not None:
            cold = ", not reachable"
        return f"{type(self).__name__}(server_info={self.server_info!r}, tools={names!r}{cold})"


async def _keep_listing(reference: weakref.ref[MCPToolset]) -> None:
    while (toolset := reference()) is not None and toolset._is_outdated:
        if (pause := toolset._next_listing_at - monotonic()) > 0:
            del toolset  # do not keep it alive while sleeping: a server may never stop reporting changes
            await asyncio.sleep(pause)
        elif not await toolset._list_in_background():
            return


class ToolsOfRun(LiveToolset):
    """
    A toolset spawned for one run of an Agent. It has its own tools, and otherwise acts for the toolset that spawned it.
    """

    def __init__(self, origin: LiveToolset, tools: Callable[[], Iterable[Tool]], names: set[str] | None) -> None:
        """
        Initialize the ToolsOfRun.

        :param origin: The toolset that spawns it.
        :param tools: Returns the tools that the run sees, including tools that are added to the toolset meanwhile.
        :param names: Names of the tools that the run may use; None for all.
        """
        super().__init__(tools=[])
        self._origin = origin
        self._tools = tools
        self.names = names

    def __iter__(self) -> Iterator[Tool]:
        """
        Iterate over the tools of the run.
        """
        return iter(with_instructions(tool for tool in self._tools() if self.names is None or tool.name in self.names))

    def add(self, tool: Any) -> None:
        """
        Add a tool to the toolset.

        :param tool: The tool.
        """
        self._origin.add(tool)

    def _as_dict(self, method: str) -> dict[str, Any]:
        described: dict[str, Any] = getattr(self._origin, method)()
        return described


def _is_usable(definition: types.Tool) -> bool:
    try:
        normalize_parameters(definition.input_schema)
    except ValueError:
        return False
    return True
