# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The options of tools and toolsets: which tools of a server to use, and what a model sees of them and of their results.

`HiddenArguments` completes calls with arguments that a model does not see.

Options of calls are in `connection.limits`, options of snapshots in `snapshot`.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias

from haystack.utils import Secret
from pydantic import BeforeValidator, Field
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.budgets import ReturnedFailure
from haystack_integrations.tools.mcp.convert.content import RESULT_HANDLERS, limit_result, model_text
from haystack_integrations.tools.mcp.convert.tool_names import ExposedName
from haystack_integrations.tools.mcp.convert.tool_schemas import HEADER_KEY, NEEDS_TASKS, has_key, needs_tasks
from haystack_integrations.tools.mcp.import_paths import FUNCTION
from haystack_integrations.tools.mcp.parameters import (
    CHECKED,
    Options,
    Positive,
    Seconds,
    StoredAs,
    Text,
    explains_options,
)
from haystack_integrations.tools.mcp.redaction import secrets_in
from haystack_integrations.tools.mcp.secret_template import load_template

if TYPE_CHECKING:
    import mcp_types as types

# A shorter text would consist of little more than the marker.
MIN_RESULT_SIZE: Final = 200

# Of this process, so that a model cannot hide an argument from the user by such a name.
_BOUND_PREFIX: Final = f"bound_{uuid.uuid4().hex[:16]}"

ResultFormat: TypeAlias = Literal["text", "content", "json"]
OnToolError: TypeAlias = Literal["agent", "model", "raise"]
Hint: TypeAlias = Literal["read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint"]


@explains_options
@checked_dataclass(frozen=True, config=CHECKED)
class FromState:
    """
    Binds an argument to a key of an Agent's State, in `bound_arguments`.

    Unlike with `inputs_from_state`, the model cannot override the value, and a call fails if there is no value.

    :param key: The key. The `state_schema` of the Agent must have it.
    """

    key: Text


def _bindable(value: Any) -> Any:
    # A Secret inside a value would be sent as an object that contains its value, and would not be redacted.
    if not isinstance(value, (Secret, FromState)):
        try:
            json.dumps(value)
        except (TypeError, ValueError):
            msg = "must be a Secret, a FromState or a JSON value without Secrets inside"
            raise ValueError(msg) from None
    return value


BoundValues: TypeAlias = dict[Text, Annotated[Any, BeforeValidator(_bindable)]]


def stored_arguments(values: Mapping[str, Any]) -> dict[str, Any]:
    """
    Serialize the bound arguments of one tool.

    :param values: Values by parameter.
    :returns: JSON values by parameter.
    :raises ValueError: If one is a token-based Secret, which Haystack does not serialize.
    """
    return {name: _stored(value) for name, value in values.items()}


def load_bound_arguments(stored: Any) -> Any:
    """
    Deserialize the arguments of one tool.

    :param stored: The result of `stored_arguments`.
    :returns: Values by parameter.
    """
    if not isinstance(stored, dict):
        return stored
    return {name: _loaded(value) for name, value in stored.items()}


def _stored(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.to_dict()
    if isinstance(value, FromState):
        return {"type": "from_state", "key": value.key}
    return {"type": "value", "value": value} if isinstance(value, dict) and "type" in value else value


def _loaded(value: Any) -> Any:
    match value:
        case {"type": "env_var", "env_vars": list()}:
            return Secret.from_dict({"strict": True, **value})
        case {"type": "env_template"}:
            return load_template(value) or value
        case {"type": "from_state", "key": str(key)}:
            return FromState(key)
        case {"type": "value", "value": plain}:
            return plain
    return value


_BOUND: Final = StoredAs(lambda _, bound: stored_arguments(bound), load_bound_arguments, list)


@explains_options
@checked_dataclass(frozen=True, kw_only=True, repr=False, config=CHECKED)
class ToolOptions(Options):
    """
    Options for what a model sees of tools and their results, and for calls that fail.

    None means the default; in a ToolOverride, it means the option of the toolset.

    ### Usage example

    ```python
    from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo, ToolOptions, ToolOverride

    toolset = MCPToolset(
        StdioServerInfo("python", ["server.py"]),
        tool_options=ToolOptions(max_result_size=10_000),
        tool_overrides={"search": ToolOverride(description="Search the shop.", bound_arguments={"limit": 10})},
    )
    ```

    :param result_format: What the model sees of a result, unless `outputs_to_string` is set: "text" (default) for its
        text, with short notes in place of images and files; "content" for Haystack's content blocks (`TextContent`,
        `ImageContent`, and `FileContent` where the installed Haystack supports it); "json" for the JSON of the MCP
        result.
    :param max_result_size: How many characters of a result's text the model sees, at least 200: its beginning and its
        end, with a marker that says how much is left out. Default: all. `invoke`, `call` and the State always get the
        whole text.
    :param include_output_schema: Whether the description contains the tool's output schema.
    :param include_instructions: Whether the model gets the server's instructions: fenced, at the end of the description
        of one tool, and cut to the length that providers accept. For toolsets only; for long instructions, see
        `instructions_for_model`. A server can write anything there; set it only for servers that you trust.
    :param retry_idempotent: Whether to repeat a call that may already have run, if the server annotates the tool as
        read-only or idempotent. Set it only for servers whose annotations you trust.
    :param idempotency_argument: A parameter of the tool for a key by which the server recognizes a repeated call: the
        same key at every attempt in a durable run, otherwise a new key for each call. The model does not see the
        parameter.
    :param on_tool_error: What happens if a call in a run fails. "agent" (default): the setting of the Agent,
        ToolInvoker or MCPToolCaller applies. "model": `invoke` returns the error, so that the model gets it and the run
        continues, whatever that setting is. "raise": `invoke` raises an MCPToolFailedError, which ends the run.
    :param max_tool_failures: After this many failures in a row, a tool is not called any more in a run of an Agent, and
        the model gets an error; at least 1. A run begins with the last message of the user. Default: no limit.
    :raises ValueError: If an option is invalid. The message names it and the valid choices.
    """

    _parameter: ClassVar[str] = "tool_options"

    result_format: ResultFormat | None = None
    max_result_size: Annotated[int, Field(ge=MIN_RESULT_SIZE)] | None = None
    include_output_schema: bool | None = None
    include_instructions: bool | None = None
    retry_idempotent: bool | None = None
    idempotency_argument: Text | None = None
    on_tool_error: OnToolError | None = None
    max_tool_failures: Positive | None = None


@explains_options
@checked_dataclass(frozen=True, kw_only=True, repr=False, config=CHECKED)
class ToolOverride(ToolOptions):
    """
    Options for one tool of a toolset: all ToolOptions, and options that only a single tool has.

    :param name: The name that the model sees: 1 to 64 letters, digits, `_` and `-`. A `tool_name_prefix` is not added.
    :param description: The description that the model sees.
    :param bound_arguments: Values, Secrets or FromStates by parameter name. The model does not see these parameters and
        cannot override them. A Secret is resolved at every call.
        Example: `{"api_key": Secret.from_env_var("KEY"), "tenant": FromState("tenant"), "limit": 10}`
    :param invocation_timeout: Timeout in seconds for a call of this tool.
    :raises ValueError: If a field is invalid. The message names it and the valid choices.
    """

    _parameter: ClassVar[str] = "tool_overrides"

    name: ExposedName | None = None
    description: Text | None = None
    bound_arguments: Annotated[BoundValues | None, _BOUND] = None
    invocation_timeout: Seconds | None = None

    def over(self, options: ToolOptions) -> ToolOptions:
        """
        Merge this override with the options of the toolset.

        :param options: The options of the toolset.
        :returns: The options of the tool.
        """
        general = [each.name for each in dataclasses.fields(ToolOptions)]
        overridden = {name: value for name, value in self.changed().items() if name in general}
        # The toolset adds the instructions, so the option does not apply to a single tool.
        return dataclasses.replace(options, **{**overridden, "include_instructions": None})


def check_overrides(overrides: Mapping[str, Any] | None) -> dict[str, ToolOverride]:
    """
    Check the value of `tool_overrides`.

    :param overrides: A mapping from tool names to overrides or their dictionaries, or None.
    :returns: The overrides.
    :raises ValueError: If an override is invalid, or two tools would have the same name.
    """
    checked: dict[str, ToolOverride] = {}
    for tool, each in (overrides or {}).items():
        try:
            checked[tool] = ToolOverride.of(each)
        except ValueError as error:
            msg = f"`tool_overrides` of tool '{tool}': {error}"
            raise ValueError(msg) from error
    names = [each.name for each in checked.values() if each.name is not None]
    if twice := [name for name in names if names.count(name) > 1]:
        msg = f"`tool_overrides` gives two tools the name '{twice[0]}'"
        raise ValueError(msg)
    return checked


@explains_options
@checked_dataclass(frozen=True, kw_only=True, repr=False, config=CHECKED)
class ToolSelection(Options):
    """
    Selects which of a server's tools a toolset has, in addition to its `tool_names`, and when new tools appear.

    :param exclude_tools: Names of tools to leave out, or patterns such as `"delete_*"`.
    :param tool_filter: Function that gets each tool, as a `Tool` of the MCP SDK, and returns whether to load it. It is
        called whenever the tools are listed, and must not block. With a `snapshot`, all its tools are shown before
        that, so capture it from a toolset with the same filter.
    :param required_hints: The values that a tool's annotations must have for it to be loaded: `read_only_hint`,
        `destructive_hint`, `idempotent_hint` and `open_world_hint`. For missing annotations, the protocol's defaults
        apply: the tool may change and destroy things, and reaches the outside world. A server can claim anything; use
        it only for servers that you trust. Example: `{"read_only_hint": True}`
    :param cache_tools: Whether the tools are listed again only when the server reports that they changed, or when the
        listing expires. False for servers that do not report changes: `warm_up` lists the tools each time, and so does
        every run of an Agent of Haystack 3. On Haystack 2.31, call `warm_up` before a run.
    :param update_between_steps: Whether an Agent sees new tools at the next step of a run. By default, a run keeps the
        tools with which it began.
    :raises ValueError: If a field is invalid. The message names it and the valid choices.
    """

    _parameter: ClassVar[str] = "tool_selection"

    exclude_tools: list[Text] | None = None
    tool_filter: Annotated[Callable[[Any], Any] | None, FUNCTION] = None
    required_hints: dict[Hint, bool] | None = None
    cache_tools: bool = True
    update_between_steps: bool = False

    def __post_init__(self) -> None:
        """
        Refuse an asynchronous filter.
        """
        if inspect.iscoroutinefunction(self.tool_filter):
            msg = (
                "`tool_filter` must be a function that takes a tool and returns True or False, not a coroutine function"
            )
            raise ValueError(msg)

    def excludes(self, name: str) -> bool:
        """
        Return whether `exclude_tools` leaves a tool out.

        :param name: The server's name of the tool.
        :returns: True if a name or a pattern matches.
        """
        return any(name == pattern or fnmatchcase(name, pattern) for pattern in self.exclude_tools or ())

    def shows_pinned(self, definition: types.Tool) -> bool:
        """
        Return whether a tool of a snapshot is shown. `tool_filter` was applied when the snapshot was captured.

        :param definition: The definition in the snapshot.
        :returns: True if its name is not excluded and its annotations are as required.
        """
        return not self.excludes(definition.name) and self._reason_by_hints(definition) is None

    def _reason_by_hints(self, definition: types.Tool) -> str | None:
        hints = effective_hints(definition.annotations)
        for name, value in (self.required_hints or {}).items():
            if hints[name] is not value:
                return f"`required_hints` leaves it out: its {name} is {hints[name]}"
        return None

    def unknown_exclusions(self, listed: Iterable[str]) -> list[str]:
        """
        Return names in `exclude_tools` that the server does not have. A pattern need not match anything.

        :param listed: The names of the server's tools.
        :returns: The names.
        """
        names = set(listed)
        return [name for name in self.exclude_tools or () if name not in names and not any(c in name for c in "*?[")]

    def reason_against(self, definition: types.Tool) -> str | None:
        """
        Return why a tool is not loaded.

        :param definition: The server's definition.
        :returns: The reason; None if it is loaded.
        :raises ValueError: If `tool_filter` fails.
        """
        reason = unusable_by_model(definition)
        if reason is not None:
            return reason
        if self.excludes(definition.name):
            return "`exclude_tools` leaves it out"
        reason = self._reason_by_hints(definition)
        if reason is not None or self.tool_filter is None:
            return reason
        try:
            selected = self.tool_filter(definition)
        except Exception as error:
            msg = f"`tool_filter` failed for tool '{definition.name}': {type(error).__name__}: {error}"
            raise ValueError(msg) from error
        return None if selected else "`tool_filter` leaves it out"


def unusable_by_model(definition: types.Tool) -> str | None:
    """
    Return why a model must not see a tool, regardless of the configuration.

    :param definition: The server's definition.
    :returns: The reason; None if the model may see it.
    """
    if needs_tasks(definition):
        return NEEDS_TASKS
    # https://modelcontextprotocol.io/extensions/apps: by default, both the model and apps see a tool.
    ui = (definition.meta or {}).get("ui")
    visibility = ui.get("visibility") if isinstance(ui, dict) else None
    if isinstance(visibility, list) and "model" not in visibility:
        return "the server says that only an app may use it, not a model (_meta.ui.visibility)"
    return None


def effective_hints(annotations: types.ToolAnnotations | None) -> dict[str, bool]:
    """
    Return the hints of a tool's annotations, with the protocol's defaults for missing hints.

    :param annotations: The annotations.
    :returns: The four hints by name. A read-only tool is idempotent and not destructive.
    """
    read_only = annotations is not None and annotations.read_only_hint is True
    return {
        "read_only_hint": read_only,
        "destructive_hint": not read_only and (annotations is None or annotations.destructive_hint is not False),
        "idempotent_hint": read_only or (annotations is not None and annotations.idempotent_hint is True),
        "open_world_hint": annotations is None or annotations.open_world_hint is not False,
    }


@dataclass(slots=True, kw_only=True, repr=False)
class CallArguments:
    """
    The arguments of one call.

    :param arguments: All arguments, as they are sent to the server.
    :param given: The arguments that the caller passed.
    :param hidden: The values that come from the State, by parameter.
    :param secrets: The values of Secrets.
    """

    arguments: dict[str, Any]
    given: dict[str, Any]
    hidden: dict[str, Any] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)


def is_bound_name(name: str) -> bool:
    """
    Return whether an argument is a State value that Haystack passes for a FromState.

    :param name: Its name.
    :returns: True for a name that `HiddenArguments` has made.
    """
    return name.startswith(_BOUND_PREFIX)


class HiddenArguments:
    """
    Arguments of one tool that the model does not see: bound arguments, and arguments from the State.
    """

    def __init__(self, tool_name: str, bound: dict[str, Any] | None, inputs_from_state: dict[str, str] | None) -> None:
        """
        Initialize the arguments.

        :param tool_name: Name of the tool, for messages.
        :param bound: Values by parameter: JSON values, Secrets and FromStates. The model cannot override them.
        :param inputs_from_state: Parameters by State key. The model can override them if it guesses their names.
        """
        self.tool_name = tool_name
        self.bound: dict[str, Any] = bound or {}
        self.inputs_from_state: dict[str, str] = inputs_from_state or {}
        # Haystack passes values from its State under these names, which no model can guess. Under the parameter's own
        # name, the model's value would take precedence.
        keys = dict.fromkeys(value.key for value in self.bound.values() if isinstance(value, FromState))
        self.state_inputs: dict[str, str] = {key: f"{_BOUND_PREFIX}{uuid.uuid4().hex[:16]}" for key in keys}

    def check(self, schema: dict[str, Any]) -> None:
        """
        Check the arguments against the schema of the tool.

        :param schema: The tool's input schema, as the server sent it.
        :raises ValueError: If a Secret would be sent as a header.
        """
        for name, value in self.bound.items():
            declared = schema.get("properties")
            if isinstance(value, Secret) and isinstance(declared, dict) and has_key(declared.get(name), HEADER_KEY):
                msg = (
                    f"bound_arguments of tool '{self.tool_name}' binds '{name}' to a Secret, but the server also wants "
                    f"this argument in an HTTP header ({HEADER_KEY}), where it could be logged. Leave the tool out, "
                    "or pass the Secret as a token or header of the server info."
                )
                raise ValueError(msg)

    def apply(self, arguments: dict[str, Any]) -> CallArguments:
        """
        Complete the arguments of a call.

        :param arguments: The arguments from the model or the caller, and the ones that Haystack added from its State.
        :returns: The arguments to send. Bound values take precedence.
        :raises ValueError: If a bound value is missing.
        """
        inputs = set(self.state_inputs.values())
        given = {name: value for name, value in arguments.items() if name not in inputs and name not in self.bound}
        # In a pipeline, a State key without a value is passed as None.
        state = {key: value for key, name in self.state_inputs.items() if (value := arguments.get(name)) is not None}
        mapped = {name: state[key] for key, name in self.inputs_from_state.items() if key in state}
        sent = mapped | given
        hidden = {name: sent[name] for name in self.inputs_from_state.values() if name in sent}
        secrets: list[str] = []
        for name, value in self.bound.items():
            if isinstance(value, FromState):
                if value.key not in state:
                    msg = (
                        f"its argument '{name}' is bound to the State's '{value.key}', which has no value. The tool "
                        "did not run. Pass the value to the Agent; without an Agent, use a tool without this binding."
                    )
                    raise ValueError(msg)
                sent[name] = hidden[name] = state[value.key]
            elif isinstance(value, Secret):
                sent[name] = self._resolve(name, value)
                secrets += [sent[name], *_secrets_of(value)]
            else:
                sent[name] = value
        return CallArguments(arguments=sent, given=given, hidden=hidden, secrets=secrets)

    def reapply(self, kept: Mapping[str, Any], withheld: Iterable[str]) -> CallArguments:
        """
        Complete the arguments of a call that is continued.

        :param kept: The stored arguments.
        :param withheld: Names of arguments that were not stored, because they are Secrets.
        :returns: The additional arguments to send, and the values to redact.
        :raises ValueError: If a Secret has no value.
        """
        bound = {name: self.bound.get(name) for name in withheld}
        secrets = {name: self._resolve(name, value) for name, value in bound.items() if isinstance(value, Secret)}
        from_state = {name for name, value in self.bound.items() if isinstance(value, FromState)}
        from_state.update(self.inputs_from_state.values())
        return CallArguments(
            arguments=secrets,
            given={name: value for name, value in kept.items() if name not in self.bound},
            hidden={name: value for name, value in kept.items() if name in from_state},
            secrets=[*secrets.values(), *(text for name in secrets for text in _secrets_of(bound[name]))],
        )

    @staticmethod
    def _resolve(name: str, secret: Secret) -> Any:
        try:
            value = secret.resolve_value()
        except ValueError as error:
            msg = f"its argument '{name}' is bound to a Secret that has no value: {error}. The tool did not run."
            raise ValueError(msg) from None
        if value is None:
            msg = f"its argument '{name}' is bound to a Secret that has no value. The tool did not run."
            raise ValueError(msg)
        return value


def _secrets_of(secret: Any) -> set[str]:
    return secrets_in({"token": secret})


def shown_outputs(outputs_to_string: dict[str, Any] | None, options: ToolOptions) -> dict[str, Any]:
    """
    Limit the output of the handlers in an `outputs_to_string`, and do not pass failures to the user's handlers.

    :param outputs_to_string: The user's configuration, if there is one.
    :param options: The options of the tool: the default format, the maximum size of each output, and whether failures
        are returned.
    :returns: A configuration with wrapped handlers.
    """
    size = options.max_result_size
    shown = outputs_to_string or {"handler": RESULT_HANDLERS[options.result_format or "text"]}
    if size is None and (options.on_tool_error != "model" or not outputs_to_string):
        return shown
    if {"source", "handler", "raw_result"} & shown.keys():
        return _shown_output(shown, size)
    return {name: _shown_output(each, size) if isinstance(each, dict) else each for name, each in shown.items()}


def _shown_output(output: dict[str, Any], size: int | None) -> dict[str, Any]:
    handler = output.get("handler")
    convert = handler or (_return_unchanged if output.get("raw_result") else model_text)

    @functools.wraps(convert)
    def shown(result: Any) -> Any:
        is_failure = handler is not None and isinstance(result, ReturnedFailure)
        text = model_text(result) if is_failure else convert(result)
        return text if size is None else limit_result(text, size)

    return {**output, "handler": shown}


def _return_unchanged(result: Any) -> Any:
    return result
