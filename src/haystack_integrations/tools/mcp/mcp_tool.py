# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`MCPTool`: a single tool of a server as a Haystack Tool.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import os
import uuid
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Self, TypeVar

from haystack import logging
from haystack.dataclasses import ComponentInfo, StreamingChunk
from haystack.tools.tool import Tool
from pydantic import SkipValidation

from haystack_integrations.tools.mcp.budgets import (
    MESSAGES_ARGUMENT,
    MESSAGES_KEY,
    ReturnedFailure,
    admit_call,
    as_result,
    call_budgets,
    failures_in_a_row,
    limit_reached,
    note_refusal,
)
from haystack_integrations.tools.mcp.connection.limits import CallOptions
from haystack_integrations.tools.mcp.connection.requests import CallRequest, CallToRecord, call_recorder
from haystack_integrations.tools.mcp.convert.arguments import fit_arguments
from haystack_integrations.tools.mcp.convert.content import MCPToolResult, state_result
from haystack_integrations.tools.mcp.convert.server_texts import html_parameters, invisible_characters, visible_text
from haystack_integrations.tools.mcp.convert.tool_names import (
    ExposedName,
    describe_choices,
    provider_safe_name,
    with_safe_arguments,
)
from haystack_integrations.tools.mcp.convert.tool_schemas import (
    NEEDS_TASKS,
    TEXT_KEYWORDS,
    map_keywords,
    map_strings,
    needs_tasks,
    normalize_parameters,
    permissive_schema,
    with_output_schema,
    without_properties,
)
from haystack_integrations.tools.mcp.errors import (
    MCPCallRefusedError,
    MCPConnectionError,
    MCPError,
    MCPInvocationError,
    MCPRunError,
    MCPTimeoutError,
    MCPToolFailedError,
    MCPToolNotFoundError,
)
from haystack_integrations.tools.mcp.executor import AsyncExecutor, is_from_caller
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.handlers.calling import MCPProgress, ProgressCallback
from haystack_integrations.tools.mcp.haystack_compat import HAS_ASYNC_FUNCTION
from haystack_integrations.tools.mcp.options import (
    BoundValues,
    CallArguments,
    HiddenArguments,
    ToolOptions,
    shown_outputs,
    stored_arguments,
)
from haystack_integrations.tools.mcp.parameters import Text, checked, explains_options
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from haystack_integrations.tools.mcp.protocol.changes import WantedChanges, Watcher
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import Redactor, texts_in
from haystack_integrations.tools.mcp.snapshot import MCPToolSnapshot, SnapshotCheck, SnapshotGuard, ToolChoice
from haystack_integrations.tools.mcp.tool_base import HandlerConverter, ToolBase
from haystack_integrations.tools.mcp.transports.server_infos import (
    InProcessServerInfo,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.requests import ToolListing

# Stored pipelines and existing code import these names from this module.
__all__ = [
    "AsyncExecutor",
    "InProcessServerInfo",
    "MCPConnectionError",
    "MCPError",
    "MCPInvocationError",
    "MCPServerInfo",
    "MCPTool",
    "MCPToolNotFoundError",
    "SSEServerInfo",
    "StdioServerInfo",
    "StreamableHttpServerInfo",
]

logger: logging.PatchedLogger = logging.getLogger(__name__)

ResultT = TypeVar("ResultT")

_CLIENTS = ("MCPClient", "SSEClient", "StdioClient", "StreamableHttpClient")


def __getattr__(name: str) -> Any:
    # The clients import the slow MCP SDK, so they are imported only on demand.
    if name in _CLIENTS:
        return getattr(importlib.import_module("haystack_integrations.tools.mcp"), name)
    msg = f"module {__name__!r} has no attribute {name!r}"
    raise AttributeError(msg)


# Annotations of tools that may run twice.
_REPEATABLE = ("read_only_hint", "idempotent_hint")

# The attributes of a tool that come from the server's definition.
_DEFINITION_ATTRIBUTES = (
    "_valid_inputs",
    "_schema",
    "_argument_names",
    "parameters",
    "description",
    "title",
    "annotations",
    "output_schema",
    "meta",
    "_definition",
)


@explains_options
class MCPTool(ToolBase, Tool):
    """
    A Tool that represents a single tool from an MCP server.

    `invoke` returns the MCP result as a JSON string; parse it with `json.loads()`. A language model sees the result in
    the `result_format`.

    All tools of a process with equal server infos share one supervised connection. It is opened at `warm_up` or at the
    first call, and reopened after a loss.

    State mapping: `inputs_from_state` and `outputs_to_state` connect the tool to the State of an Agent. With
    `outputs_to_state`, or an `outputs_to_string` with a `source`, `invoke` returns a dictionary: the structured content
    of the result, else the JSON object in its text, else `{"result": <text>}`.

    ### Usage example

    Example using Streamable HTTP:

    ```python
    import json
    from haystack_integrations.tools.mcp import MCPTool, StreamableHttpServerInfo

    tool = MCPTool(name="multiply", server_info=StreamableHttpServerInfo(url="http://localhost:8000/mcp"))
    result = json.loads(tool.invoke(a=5, b=3))
    ```

    Example using stdio:

    ```python
    from haystack_integrations.tools.mcp import MCPTool, StdioServerInfo

    with MCPTool(
        name="get_current_time",
        server_info=StdioServerInfo(command="uvx", args=["mcp-server-time", "--local-timezone=Europe/Berlin"]),
    ) as tool:
        print(tool.invoke(timezone="America/New_York"))
    ```
    """

    _stored_as = "MCPTool"

    @checked()
    def __init__(
        self,
        name: Text,
        server_info: MCPServerInfo | Any,
        description: str | None = None,
        connection_timeout: SkipValidation[float] = 30,
        invocation_timeout: SkipValidation[float | None] = 30,
        eager_connect: bool = False,
        outputs_to_string: dict[str, Any] | None = None,
        inputs_from_state: dict[str, str] | None = None,
        outputs_to_state: dict[str, dict[str, Any]] | None = None,
        *,
        exposed_name: ExposedName | None = None,
        bound_arguments: BoundValues | None = None,
        tool_options: ToolOptions | Mapping[str, Any] | None = None,
        call_options: CallOptions | Mapping[str, Any] | None = None,
        handlers: MCPHandlers | Mapping[str, Any] | None = None,
        interceptors: Sequence[Any] | None = None,
        share: bool = True,
        snapshot: SnapshotCheck | MCPToolSnapshot | str | os.PathLike[str] | Mapping[str, Any] | None = None,
    ) -> None:
        """
        Initialize the MCP tool.

        :param name: Name of the tool on the server. The `name` of the Tool is the same, adapted to what providers of
            language models accept: letters, digits, `_` and `-`, at most 64 characters.
        :param server_info: How to reach the server: a server info, or the shorthand that `server_info_from` takes, such
            as a URL, a command line as a list or a server object.
        :param description: Custom description. Default: the server's description.
        :param connection_timeout: Timeout in seconds for connecting and listing the tools.
        :param invocation_timeout: Timeout in seconds for a tool call. None for no limit.
        :param eager_connect: If True, connect during initialization. If False (default), connect at warm-up or at the
            first call. A tool loaded from YAML never connects before that.
        :param outputs_to_string: Optional dictionary defining how results are converted to strings for the model. With
            a `source`, the handler gets only that key of the result, else the whole result.
            Example: `{"source": "docs", "handler": my_custom_function}`
        :param inputs_from_state: Optional dictionary mapping State keys to parameter names of the tool. The model does
            not see these parameters; if it passes one nevertheless, its value overrides the State's.
            Example: `{"repository": "repo"}` passes the State's "repository" as the parameter "repo".
        :param outputs_to_state: Optional dictionary mapping State keys to parts of the result, with optional handlers.
            With a `source`, the State or the handler gets only that key of the result, else the whole result.
            Example with source: `{"documents": {"source": "docs", "handler": custom_handler}}`
            Example without source: `{"documents": {"handler": custom_handler}}`
        :param exposed_name: The `name` of the Tool, which the model sees, used unchanged. Default: the server's name,
            adapted.
        :param bound_arguments: Optional dictionary mapping parameter names to values, Secrets or FromStates. The model
            does not see these parameters and cannot override them. A Secret is resolved at every call.
            Example: `{"api_key": Secret.from_env_var("KEY"), "tenant": FromState("tenant"), "limit": 10}`
        :param tool_options: Options for what the model sees of the tool and its results, and for calls that fail: a
            ToolOptions, or a dictionary of its fields. Example: `ToolOptions(result_format="content")`
        :param call_options: Options for making calls: a CallOptions, or a dictionary of its fields.
            Example: `CallOptions(reset_timeout_on_progress=True)`
        :param handlers: Handlers for the server's requests; see MCPHandlers.
        :param interceptors: Functions that wrap each call, outermost first. They take an MCPToolCall and `call_next`,
            which passes the call on and returns the result. Other callables with these parameters, and import paths
            `"package.module:name"`, are allowed as well.
        :param share: Whether to share the connection with all other objects that have an equal `server_info`.
        :param snapshot: The definition that the tool should have: an MCPToolSnapshot, the path of its file, or a
            SnapshotCheck, which also sets what happens if the server's definition differs. The tool has its schema
            without connecting. With "quarantine", warm-up raises no error, but no call is sent.
        :raises MCPConnectionError: If connecting fails (with `eager_connect`).
        :raises MCPToolNotFoundError: If the server does not have the tool (with `eager_connect`).
        :raises TimeoutError: If connecting takes longer than `connection_timeout` (with `eager_connect`).
        :raises FileNotFoundError: If the file of the `snapshot` does not exist.
        :raises ValueError: If a parameter is invalid.
        """
        self._connect_to(
            server_info,
            connection_timeout=connection_timeout,
            invocation_timeout=invocation_timeout,
            share=share,
            handlers=handlers,
            interceptors=interceptors,
            call_options=call_options,
        )
        self._set_up(
            name,
            exposed_name or provider_safe_name(name),
            description=description,
            eager_connect=eager_connect,
            outputs_to_string=outputs_to_string,
            inputs_from_state=inputs_from_state,
            outputs_to_state=outputs_to_state,
            options=ToolOptions.of(tool_options),
            bound_arguments=bound_arguments,
        )
        self._pin(snapshot)
        if eager_connect:
            self._enter_or_leave()

    def _show_pinned(self, guard: SnapshotGuard) -> None:
        pinned_names = guard.snapshot.tool_names
        if self.remote_name not in pinned_names:
            choices = describe_choices([self.remote_name], pinned_names, "It")
            msg = f"The `snapshot` has no tool '{self.remote_name}'. {choices}"
            raise ValueError(msg)
        definition = guard.pinned(self.remote_name)
        self._use_definition(definition, usable_parameters(definition, self._definition))
        # In some revisions, servers report changes only to subscribers. Each call checks whether the tool changed.
        self._connection._watch(Watcher(WantedChanges(lists=frozenset({"tools"})), lambda _change: None))

    @classmethod
    def _for_toolset(cls, toolset: ToolBase, remote_name: str, name: str, **parameters: Any) -> Self:
        """
        Make a tool that uses the connection of a toolset and keeps the toolset alive.
        """
        tool = cls.__new__(cls)
        tool._connection, tool._users = toolset._connection, toolset._users
        tool._set_up(remote_name, name, toolset=toolset, **parameters)
        tool._guard, tool._snapshot = toolset._guard, toolset._snapshot
        return tool

    def _set_up(
        self,
        remote_name: str,
        name: str,
        *,
        options: ToolOptions,
        description: str | None = None,
        eager_connect: bool = False,
        outputs_to_string: dict[str, Any] | None = None,
        inputs_from_state: dict[str, str] | None = None,
        outputs_to_state: dict[str, dict[str, Any]] | None = None,
        toolset: ToolBase | None = None,
        bound_arguments: dict[str, Any] | None = None,
        invocation_timeout: float | None = None,
    ) -> None:
        self._hidden = HiddenArguments(remote_name, bound_arguments, inputs_from_state)
        self.remote_name = remote_name
        self.eager_connect = eager_connect
        self.tool_options = options
        self.title: str | None = None
        self.annotations: types.ToolAnnotations | None = None
        self.output_schema: dict[str, Any] | None = None
        self.meta: dict[str, Any] | None = None
        self._toolset = toolset
        self._custom_description = description
        self._custom_outputs_to_string = outputs_to_string or None
        self._custom_invocation_timeout = invocation_timeout
        # Copies by the name that an alias of a registry assigns, and by whether they contain the server's instructions.
        self._renamed_copies: dict[tuple[str, bool], MCPTool] = {}
        # The tool that this one is a copy of.
        self._copied_from: MCPTool | None = None
        self._definition: types.Tool | None = None
        self._valid_inputs: set[str] = set()
        # The parameters under the server's names, and the server's names by the names that the model sees.
        self._schema: dict[str, Any] = permissive_schema()
        self._argument_names: dict[str, str] = {}

        self.name = name
        self.description: str = description or ""
        self.parameters: dict[str, Any] = permissive_schema()
        self.function: Any = self.invoke  # the two Haystack majors declare it differently
        self.outputs_to_string: dict[str, Any] | None = shown_outputs(outputs_to_string, options)
        inputs = {**self._hidden.inputs_from_state, **self._hidden.state_inputs}
        # The argument with the messages of the run, in which failures are counted.
        self._messages_argument: str | None = None
        if options.max_tool_failures is not None:
            self._messages_argument = inputs.setdefault(MESSAGES_KEY, MESSAGES_ARGUMENT)
        self.inputs_from_state: dict[str, str] | None = inputs or inputs_from_state
        self.outputs_to_state = outputs_to_state
        if HAS_ASYNC_FUNCTION:
            self.async_function: Callable[..., Awaitable[Any]] | None = self.invoke_async
        if outputs_to_string or inputs_from_state or outputs_to_state:
            self.__post_init__()
        outputs = [outputs_to_string, *(outputs_to_string or {}).values()]
        self._output_sources = _sources(outputs)
        self._has_handlers = any(isinstance(each, dict) and each.get("handler") for each in outputs)

    @property
    def bound_arguments(self) -> dict[str, Any]:
        """
        The arguments that the model neither sees nor overrides, by parameter.
        """
        return dict(self._hidden.bound)

    @property
    def exposed_name(self) -> str | None:
        """
        The name that was chosen in place of the server's, if any.
        """
        return None if self.name == provider_safe_name(self.remote_name) else self.name

    @property
    def invocation_timeout(self) -> float | None:
        """
        Default timeout in seconds for calls of this tool; None for no limit.
        """
        custom = self._custom_invocation_timeout
        return self._connection.invocation_timeout if custom is None else custom

    @property
    def _owner(self) -> ToolBase:
        return self if self._toolset is None else self._toolset

    def _get_valid_inputs(self) -> Any:
        # Haystack asks at construction, when nobody knows them yet. None means so from Haystack 3.5 on, where an empty
        # set would refuse each name in `inputs_from_state`; before, both do. They are checked at warm-up.
        return None

    def warm_up(self) -> None:
        """
        Connect and load the tool's definition; for a tool of a toolset, load those of all tools of its server.

        :raises MCPConnectionError: If connecting fails.
        :raises MCPToolNotFoundError: If the server does not have the tool.
        :raises ValueError: If the tool's schema is unusable, or `inputs_from_state` names a parameter it does not have.
        """
        ToolBase.warm_up(self._owner)  # not the override, which warms up added tools, perhaps of other servers

    async def warm_up_async(self) -> None:
        """
        Connect and load the tool's definition like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: As `warm_up`.
        :raises MCPToolNotFoundError: As `warm_up`.
        :raises ValueError: As `warm_up`.
        """
        await ToolBase.warm_up_async(self._owner)

    def _forget(self) -> None:
        if self._toolset is not None:
            self._toolset._forget()

    def _choice(self) -> ToolChoice:
        remote_name = self.remote_name
        return ToolChoice(
            may_have=lambda name: name == remote_name, selects=lambda definition: definition.name == remote_name
        )

    def _requested(self) -> Sequence[str]:
        return [self.remote_name]

    def _load_listing(self, listing: ToolListing) -> None:
        definitions, hidden = (listing.tools, []) if self._guard is None else self._guard.admit(listing)
        if hidden:  # the tool stays as in the snapshot, and cannot be called
            self._generation, self._listed_at = listing.generation, listing.tick
            return
        available = [definition.name for definition in definitions]
        self._check_found("Tool", [self.remote_name], available)
        definition = definitions[available.index(self.remote_name)]
        if needs_tasks(definition):
            msg = f"Tool '{self.remote_name}' of {self.server_info.describe()} cannot be used: {NEEDS_TASKS}"
            raise ValueError(msg)
        self._use_definition(definition, usable_parameters(definition, self._definition))
        self._generation, self._listed_at = listing.generation, listing.tick

    def _use_definition(self, definition: types.Tool, parameters: dict[str, Any]) -> None:
        """
        Use the server's definition of the tool.

        :param definition: The definition.
        :param parameters: Its input schema, normalized.
        """
        self._valid_inputs = set(parameters["properties"])
        parameters = self._without_hidden(definition, parameters)
        invisible: Counter[str] = Counter()

        def visible(text: str) -> str:
            shown = visible_text(text)
            if shown is not text:
                invisible.update(invisible_characters(text))
            return shown

        self._schema = map_keywords(
            parameters, lambda key, value: visible(value) if key in TEXT_KEYWORDS and isinstance(value, str) else value
        )
        shown_schema, self._argument_names = with_safe_arguments(self._schema)
        self.parameters = map_strings(shown_schema, visible)
        description = self._custom_description or visible(definition.description or "")
        if not description.strip():  # Amazon Bedrock refuses all tools if one has no description
            description = visible(definition.title or "").strip() or self.name
        if self.tool_options.include_output_schema:
            description = with_output_schema(description, map_strings(definition.output_schema, visible))
        self.description = description
        self.title = visible(definition.title) if definition.title else definition.title
        if invisible and definition != self._definition:
            logger.warning(
                "Invisible characters were removed from the texts of tool {tool!r}: {characters}. A server can hide "
                "instructions for a model in them",
                tool=self.remote_name,
                characters=", ".join(f"{character} ({count}x)" for character, count in invisible.items()),
            )
        self.annotations = definition.annotations
        self.output_schema = definition.output_schema
        self.meta = definition.meta
        self._definition = definition

    def _without_hidden(self, definition: types.Tool, parameters: dict[str, Any]) -> dict[str, Any]:
        """
        Remove the parameters that the model does not see, which must exist.
        """
        # Each with the option that hides it.
        hidden_by = {name: f"`inputs_from_state` ('{key}')" for key, name in self._hidden.inputs_from_state.items()}
        hidden_by |= dict.fromkeys(self._hidden.bound, "`bound_arguments`")
        if (key_argument := self.tool_options.idempotency_argument) is not None:
            hidden_by[key_argument] = "`idempotency_argument`"
        for name, option in hidden_by.items():
            if name not in self._valid_inputs:
                msg = (
                    f"{option} of tool '{self.remote_name}' has the unknown parameter '{name}'. Valid parameters are: "
                    f"{', '.join(sorted(self._valid_inputs)) or 'none'}."
                )
                raise ValueError(msg)
        self._hidden.check(definition.input_schema)
        return without_properties(parameters, hidden_by) if hidden_by else parameters

    def _has_hint(self, *names: str) -> bool:
        """
        Return whether the server annotates the tool with one of the hints.

        An Agent's run keeps the tools with which it began. A hint that relaxes a check must also be in the server's
        latest annotations.

        :param names: Fields of the SDK's `ToolAnnotations`.
        :returns: Whether both annotations have one of the hints. False if the latest annotations are not known.
        """
        if self._owner._has_unknown_changes():
            return False
        latest = self._connection._latest_definition(self.remote_name)
        known = [self.annotations] if latest is None else [self.annotations, latest.annotations]
        return all(any(getattr(hints, name, None) is True for name in names) for hints in known)

    def _only_reads(self) -> bool:
        """
        Return whether the server annotates the tool as read-only.

        After a lost session, a different server may answer and claim anything; only a snapshot would refuse the call.
        """
        is_pinned = self.on_drift not in (None, "warn")
        return (is_pinned or self._connection.is_ready) and self._has_hint("read_only_hint")

    def _may_repeat_recorded(self) -> bool:
        # A continued run makes its first call right after the session was opened, when changes may have been missed.
        if self.tool_options.retry_idempotent and self._owner._has_unknown_changes():
            with suppress(MCPError, ValueError):  # the annotations then stay unknown, and the call stays in doubt
                self.warm_up()
        return bool(self.tool_options.retry_idempotent) and self._has_hint(*_REPEATABLE)

    def _renamed(self, name: str, note: str = "") -> MCPTool:
        """
        Return this tool under another name, without renaming it for its other users.

        :param name: The name.
        :param note: Text to add to the description.
        :returns: The tool itself if it has this name and there is no note; otherwise a copy, the same one each time.
        """
        original = self._copied_from or self
        if name == original.name and not note:
            return original
        copy = original._renamed_copies.get((name, bool(note)))
        if copy is None:
            copy = type(self).__new__(type(self))
            copy.__dict__.update(original.__dict__, name=name, _renamed_copies={}, _copied_from=original)
            copy.function = copy.invoke
            if HAS_ASYNC_FUNCTION:
                copy.async_function = copy.invoke_async
            copy = original._renamed_copies.setdefault((name, bool(note)), copy)
        if copy._definition is not original._definition:
            for attribute in _DEFINITION_ATTRIBUTES:
                setattr(copy, attribute, getattr(original, attribute))
        copy.description = f"{original.description}{note}"
        return copy

    def _swap_definitions(self, other: MCPTool) -> None:
        """
        Swap definitions with another object for the same tool.

        :param other: The other object.
        """
        for name in _DEFINITION_ATTRIBUTES:
            own, others = getattr(self, name), getattr(other, name)
            setattr(self, name, others)
            setattr(other, name, own)

    def invoke(self, /, *, streaming_callback: Any = None, **mcp_arguments: Any) -> str | dict[str, Any]:
        """
        Invoke the tool.

        :param streaming_callback: Passed by an Agent with `tool_streaming_callback_passthrough=True`. Gets the progress
            that the server reports as StreamingChunks with `meta["mcp"]`. `invoke` calls it in this thread;
            `invoke_async` calls it in the event loop, where it may be asynchronous. If it raises, that is logged, and
            it gets no further reports of this call.
        :param mcp_arguments: Arguments of the tool.
        :returns: The MCP result as a JSON string, or a dictionary if the tool is configured for it (see the class).
        :raises MCPInvocationError: If the call fails.
        :raises TimeoutError: If the call takes longer than `invocation_timeout`, as an MCPTimeoutError, which is also
            an MCPInvocationError.
        :raises MCPToolFailedError: In place of these errors, with `on_tool_error="raise"`.
        """
        # Haystack injects arguments by this signature: `streaming_callback` by its name, the State by its annotation.
        # There is no State parameter: with one, Haystack would run the tool calls of a step one at a time.
        on_progress: ProgressCallback | None = None
        # Skip an asynchronous callback, which Haystack 2 passes in `run_async`, because it would not be awaited.
        if streaming_callback is not None and not inspect.iscoroutinefunction(streaming_callback):
            on_progress = self._streamed(streaming_callback)
        failures = 0
        try:
            if self._messages_argument is not None:
                failures = self._failures_in_run(self._messages_argument, mcp_arguments)
            return self._call(mcp_arguments, self._output, on_progress, is_from_haystack=True)
        except MCPInvocationError as error:
            return self._on_failure(error, failures)

    async def invoke_async(self, /, *, streaming_callback: Any = None, **mcp_arguments: Any) -> str | dict[str, Any]:
        """
        Invoke the tool like `invoke`, without blocking the event loop.
        """
        on_progress = None if streaming_callback is None else self._streamed(streaming_callback)
        failures = 0
        try:
            if self._messages_argument is not None:
                failures = self._failures_in_run(self._messages_argument, mcp_arguments)
            return await self._call_async(mcp_arguments, self._output, on_progress, is_from_haystack=True)
        except MCPInvocationError as error:
            return self._on_failure(error, failures)

    async def ainvoke(self, /, **mcp_arguments: Any) -> str | dict[str, Any]:
        """
        Invoke the tool like `invoke_async`. This is the method's name in mcp-haystack 2.1.
        """
        return await self.invoke_async(**mcp_arguments)

    def _streamed(self, streaming_callback: Any) -> ProgressCallback:
        source = ComponentInfo(type=f"{MCPTool.__module__}.{MCPTool.__name__}", name=self.name)

        def stream(report: MCPProgress) -> Any:
            mcp = {"type": "progress", **dataclasses.asdict(report)}
            # The content is empty, because a user interface would show it as the model's text.
            return streaming_callback(StreamingChunk(content="", component_info=source, meta={"mcp": mcp}))

        return stream

    def _failures_in_run(self, name: str, arguments: dict[str, Any]) -> int:
        """
        Count the failures of the tool in the run that calls it, and remove the run's messages from the arguments.

        :raises MCPCallRefusedError: If the tool has failed too often.
        """
        take = arguments.pop if name == MESSAGES_ARGUMENT else arguments.get
        failures, limit = failures_in_a_row(take(name, None), self.name), self.tool_options.max_tool_failures
        if limit is not None and failures >= limit:
            note_refusal(self.name, f"the limit of failures, {limit} in a row, is reached")
            raise MCPCallRefusedError(limit_reached(limit), self.name)
        return failures

    def _on_failure(self, error: MCPInvocationError, failures: int) -> str:
        """
        Handle the failure of a call according to `on_tool_error`.
        """
        limit, choice = self.tool_options.max_tool_failures, self.tool_options.on_tool_error
        is_refusal = isinstance(error, MCPCallRefusedError)
        if limit is not None and failures + 1 >= limit and not is_refusal:
            error.message = f"{error.message.rstrip()}\n{limit_reached(limit)}"
            error.args = (error.message, *error.args[1:])
        if choice == "model":
            result = as_result(error)
            # Without handlers, the result itself gets into messages, and YAML cannot store a subclass of str.
            return ReturnedFailure(result) if self._has_handlers else result
        if choice == "raise" and not is_refusal:
            raise MCPToolFailedError(error.message, self.name) from error
        raise error

    def call(self, /, **mcp_arguments: Any) -> MCPToolResult:
        """
        Call the tool from your own code, and get a typed result instead of a JSON string.

        :param mcp_arguments: Arguments of the tool.
        :returns: The result: `text`, `structured`, `content`, `meta` and `raw`.
        :raises MCPInvocationError: If the call fails, as with `invoke`.
        """
        return self._call(mcp_arguments, MCPToolResult.from_result)

    async def call_async(self, /, **mcp_arguments: Any) -> MCPToolResult:
        """
        Call the tool like `call`, without blocking the event loop.
        """
        return await self._call_async(mcp_arguments, MCPToolResult.from_result)

    def continue_call(
        self,
        call: MCPPendingCall,
        answers: Mapping[str, Any] | None = None,
        *,
        on_progress: ProgressCallback | None = None,
    ) -> MCPToolResult:
        """
        Continue a call of this tool that was left open, here or in another process.

        Secrets are not stored with a call; their values are taken from `bound_arguments` again.

        :param call: The call, e.g. the `pending_call` of an MCPCallPendingError.
        :param answers: The answers to `call.questions` by key, as in `MCPConnection.continue_call`.
        :param on_progress: Called with each report of the tool's progress.
        :returns: The result.
        :raises MCPCallPendingError: If the server has further questions.
        :raises MCPInvocationError: If the call fails.
        :raises ValueError: If an answer is missing, unknown, or does not fit its form, or if an argument that was not
            stored is not in `bound_arguments`.
        """
        resent, options = self._continuation(call, on_progress)
        try:
            return MCPToolResult.from_result(self._connection.continue_call(call, answers, **options))
        except MCPInvocationError as error:
            raise self._to_invocation_error(error, resent) from error.__cause__

    async def continue_call_async(
        self,
        call: MCPPendingCall,
        answers: Mapping[str, Any] | None = None,
        *,
        on_progress: ProgressCallback | None = None,
    ) -> MCPToolResult:
        """
        Continue a call like `continue_call`, without blocking the event loop.
        """
        resent, options = self._continuation(call, on_progress)
        try:
            return MCPToolResult.from_result(await self._connection.continue_call_async(call, answers, **options))
        except MCPInvocationError as error:
            raise self._to_invocation_error(error, resent) from error.__cause__

    def _continuation(
        self, call: MCPPendingCall, on_progress: ProgressCallback | None
    ) -> tuple[CallArguments, dict[str, Any]]:
        if not isinstance(call, MCPPendingCall) or call.tool_name != self.remote_name:
            actual = f"a call of '{call.tool_name}'" if isinstance(call, MCPPendingCall) else type(call).__name__
            msg = f"`call` must be an MCPPendingCall of the tool '{self.remote_name}', got {actual}"
            raise ValueError(msg)
        if call_recorder.get() is not None:
            msg = (
                f"A call of '{self.name}' cannot be continued in the block of a durable run: it would not be recorded. "
                "Run the block again with a handler that answers, or continue the call outside the block and pass its "
                "result to `journal.decide`. Nothing was sent."
            )
            raise MCPRunError(msg)
        sent = self._hidden.reapply(call.arguments, call.withheld)
        missing = [name for name in call.withheld if name not in sent.arguments]
        if missing:
            msg = (
                f"`call` was stored without its arguments {missing}, which contained a Secret. Pass the values of all "
                f"of {list(call.withheld)} to `tool.connection.continue_call(call, answers, withheld={{...}})`."
            )
            raise ValueError(msg)
        return sent, {
            "withheld": sent.arguments,
            "display_name": self.name,
            "invocation_timeout": self._custom_invocation_timeout,
            "on_progress": on_progress,
        }

    def _call(
        self,
        arguments: dict[str, Any],
        convert: Callable[[types.CallToolResult], ResultT],
        on_progress: ProgressCallback | None = None,
        *,
        is_from_haystack: bool = False,
    ) -> ResultT:
        if call_budgets.get():
            admit_call(self.name)
        sent = None
        try:
            if self._definition is None:
                self.warm_up()
            sent, request = self._prepare(arguments, on_progress, is_from_haystack=is_from_haystack)
            recorder, send = call_recorder.get(), self._connection._deliver
            result = send(request) if recorder is None else recorder.deliver(self._call_to_record(request, sent), send)
            return convert(result)
        except MCPRunError:
            raise
        except Exception as error:
            if is_from_caller(error):
                raise
            failure = self._to_invocation_error(error, sent or CallArguments(arguments=arguments, given=arguments))
            raise failure from failure.__cause__

    async def _call_async(
        self,
        arguments: dict[str, Any],
        convert: Callable[[types.CallToolResult], ResultT],
        on_progress: ProgressCallback | None = None,
        *,
        is_from_haystack: bool = False,
    ) -> ResultT:
        if call_budgets.get():
            admit_call(self.name)
        sent = None
        try:
            if self._definition is None:
                await self.warm_up_async()
            sent, request = self._prepare(arguments, on_progress, is_from_haystack=is_from_haystack)
            recorder, send = call_recorder.get(), self._connection._deliver_async
            if recorder is None:
                result = await send(request)
            else:
                result = await recorder.deliver_async(self._call_to_record(request, sent), send)
            return convert(result)
        except MCPRunError:
            raise
        except Exception as error:
            failure = self._to_invocation_error(error, sent or CallArguments(arguments=arguments, given=arguments))
            raise failure from failure.__cause__

    def _call_to_record(self, request: CallRequest, sent: CallArguments) -> CallToRecord:
        """
        Describe a call for the run that records it.
        """
        from_state = {*self._hidden.inputs_from_state.values()}
        return CallToRecord(
            request=request,
            arguments={name: value for name, value in sent.given.items() if name not in from_state},
            secrets=[*texts_in(sent.hidden), *sent.secrets],
            may_repeat=self._may_repeat_recorded,
            key_argument=self.tool_options.idempotency_argument,
            is_intercepted=bool(self._connection.interceptors),
        )

    def _prepare(
        self, arguments: dict[str, Any], on_progress: ProgressCallback | None, *, is_from_haystack: bool
    ) -> tuple[CallArguments, CallRequest]:
        if (key := self.tool_options.idempotency_argument) is not None:
            arguments = {name: value for name, value in arguments.items() if name != key}
        if self._argument_names:
            arguments = {self._argument_names.get(name, name): value for name, value in arguments.items()}
        fitted = fit_arguments(arguments, self._schema)
        if is_from_haystack and self._hidden.inputs_from_state:
            # In a pipeline, a State key without a value is passed as None.
            inputs = self._hidden.inputs_from_state.values()
            unset = [name for name in inputs if fitted.get(name, name) is None and name not in self._required]
            fitted = {name: value for name, value in fitted.items() if name not in unset}
        hides = self._hidden.bound or self._hidden.inputs_from_state
        sent = self._hidden.apply(fitted) if hides else CallArguments(arguments=fitted, given=arguments)
        return sent, CallRequest(
            tool_name=self.remote_name,
            tool_args=sent.arguments if key is None else {**sent.arguments, key: uuid.uuid4().hex},
            display_name=self.name,
            may_repeat=bool(self.tool_options.retry_idempotent) and self._has_hint(*_REPEATABLE),
            invocation_timeout=self._custom_invocation_timeout,
            secrets=sent.secrets,
            on_progress=on_progress,
        )

    @property
    def _required(self) -> list[Any]:
        required = self._definition.input_schema.get("required") if self._definition is not None else None
        return required if isinstance(required, list) else []

    def _to_invocation_error(self, error: Exception, sent: CallArguments) -> MCPInvocationError:
        """
        Convert an error to an MCPInvocationError, and redact bound and State values, which a server may quote.
        """
        if isinstance(error, MCPInvocationError):
            failure, cause = error, error.__cause__
        else:
            kind = MCPTimeoutError if isinstance(error, TimeoutError) else MCPInvocationError
            code, data = getattr(error, "code", None), getattr(error, "data", None)
            text = f"Failed to invoke Tool `{self.name}`: {error}"
            failure, cause = kind(text, self.name, sent.given, code=code, data=data), error
        if self._hidden.bound:
            failure.tool_args = sent.given
        redactor = Redactor([*texts_in(sent.hidden), *sent.secrets])
        redacted = redactor.text(failure.message)
        failure.data = redactor.value(failure.data)
        # If the message had to be redacted, its cause quotes the same values.
        failure.__cause__ = cause if redacted == failure.message else None
        failure.__traceback__ = None  # the frames of the executor's tasks do not help the user
        failure.message = redacted
        failure.args = (redacted, *failure.args[1:])
        return failure

    def _output(self, result: types.CallToolResult) -> str | dict[str, Any]:
        envelope = result.model_dump_json(by_alias=True)
        # Haystack reads sources, and updates of its State, from dictionaries only.
        returns_dict = self.outputs_to_state or self._output_sources
        return state_result(envelope, self._output_sources) if returns_dict else envelope

    def _original_value(self, name: str) -> Any:
        parameters = {
            "name": self.remote_name,
            "description": self._custom_description,
            "outputs_to_string": self._custom_outputs_to_string,
            "inputs_from_state": self._hidden.inputs_from_state or None,
        }
        return parameters[name] if name in parameters else super()._original_value(name)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize a tool without connecting; with `eager_connect` it connects at warm-up.

        :param data: The result of `to_dict`.
        :returns: The tool.
        """
        return cls._loaded(data)

    def _as_dict(self, method: str) -> dict[str, Any]:
        stored = super()._as_dict(method)
        if values := self._hidden.bound:
            stored["data"]["bound_arguments"] = stored_arguments(values) if method == "to_dict" else list(values)
        return stored

    @classmethod
    def _convert_handlers(cls, convert: HandlerConverter, config: Any) -> Any:
        return convert(config)

    def _repr_html_(self) -> str:
        return html_parameters(self, f"{self.name} of {self.server_info.describe()}")

    def __repr__(self) -> str:
        """
        Describe the tool without secrets.
        """
        return f"{type(self).__name__}(name={self.name!r}, server_info={self.server_info!r})"


# Haystack resolves these annotations at every tool call of an Agent. As strings they would be compiled each time.
for _function in (MCPTool.invoke, MCPTool.invoke_async):
    _function.__annotations__ = {"streaming_callback": Any, "mcp_arguments": Any, "return": str | dict[str, Any]}


def usable_parameters(definition: types.Tool, known: types.Tool | None) -> dict[str, Any]:
    """
    Return the parameters of a tool, and log what is missing in their schema.

    :param definition: The server's definition of the tool.
    :param known: Its previous definition, whose notes were already logged.
    :returns: The normalized input schema.
    :raises ValueError: If the schema is unusable.
    """
    notes: list[str] = []
    try:
        parameters = normalize_parameters(definition.input_schema, notes)
    except ValueError as error:
        msg = f"The schema of tool {definition.name!r} is unusable: {error}"
        raise ValueError(msg) from error
    for note in notes if definition != known else ():
        logger.warning("Tool {tool!r}: {note}", tool=definition.name, note=note)
    return parameters


def _sources(configs: Iterable[Any]) -> frozenset[str]:
    return frozenset(
        config["source"] for config in configs if isinstance(config, dict) and isinstance(config.get("source"), str)
    )
