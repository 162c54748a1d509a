# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What the model sees of a server: which tools, under which names, with which parameters, and how much of a result.
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
from typing import TYPE_CHECKING, Any, Final, Literal

from haystack.dataclasses import TextContent
from haystack.utils import Secret, deserialize_callable

from haystack_integrations.tools.mcp.connection.limits import check_timeout
from haystack_integrations.tools.mcp.convert.results import model_text, result_handler
from haystack_integrations.tools.mcp.convert.task_support import NEEDS_TASKS, needs_tasks
from haystack_integrations.tools.mcp.convert.tool_names import check_exposed_name
from haystack_integrations.tools.mcp.reprs import short_repr
from haystack_integrations.tools.mcp.tool_failures import OnToolError, check_max_tool_failures, check_on_tool_error

if TYPE_CHECKING:
    import mcp_types as types

# A shorter text would consist of little more than the marker.
SMALLEST_RESULT: Final = 200

HINTS: Final = ("read_only_hint", "destructive_hint", "idempotent_hint", "open_world_hint")

# The key of a parameter's schema that has its argument sent as an HTTP header, too, where proxies may log it.
_HEADER_KEY: Final = "x-mcp-header"

# What a stored argument is, if it is not the value itself.
_FROM_STATE: Final = "from_state"
_VALUE: Final = "value"


@dataclass(frozen=True)
class FromState:
    """
    Binds an argument to a key of an Agent's State, in `bound_arguments`.

    Unlike with `inputs_from_state`, the model cannot override the value, and a call without one fails.

    :param key: The key. The `state_schema` of the Agent must have it.
    """

    key: str

    def __post_init__(self) -> None:
        """
        Validate the key.

        :raises ValueError: If it is not a non-empty string.
        """
        if not isinstance(self.key, str) or not self.key:
            msg = f"FromState: `key` must be a non-empty string, got {self.key!r}"
            raise ValueError(msg)


@short_repr
@dataclass(frozen=True, kw_only=True)
class ToolOverride:
    """
    What is different for one tool of a toolset, in `tool_overrides`. `None` leaves a thing as it is.

    :param name: The name that the model sees: 1 to 64 letters, digits, `_` and `-`. A `tool_name_prefix` is not added.
    :param description: The description that the model sees.
    :param invocation_timeout: Timeout in seconds for a call of this tool.
    :param result_format: What the model sees of results: "text", "content" or "json"; see MCPTool.
    :param retry_idempotent: Whether to repeat a call that may already have run, if the server annotates the tool as
        read-only or idempotent.
    :param max_result_size: How many characters of a result's text the model sees, at least 200.
    :param include_output_schema: Whether the description has the tool's output schema.
    :param on_tool_error: What is done if a call in a run fails: "agent", "model" or "raise"; see MCPTool.
    :param max_tool_failures: After how many failures in a row the tool is not called any more in a run, at least 1.
    """

    name: str | None = None
    description: str | None = None
    invocation_timeout: float | None = None
    result_format: Literal["text", "content", "json"] | None = None
    retry_idempotent: bool | None = None
    max_result_size: int | None = None
    include_output_schema: bool | None = None
    on_tool_error: OnToolError | None = None
    max_tool_failures: int | None = None

    def __post_init__(self) -> None:
        """
        Validate the override.

        :raises ValueError: If a field is invalid. The message names it and the valid choices.
        """
        if self.name is not None:
            check_exposed_name("ToolOverride: `name`", self.name)
        if self.description is not None and (not isinstance(self.description, str) or not self.description):
            msg = f"ToolOverride: `description` must be a non-empty string or None, got {self.description!r}"
            raise ValueError(msg)
        if self.invocation_timeout is not None:
            check_timeout("invocation_timeout", self.invocation_timeout)
        if self.result_format is not None:
            result_handler(self.result_format)
        check_max_result_size(self.max_result_size)
        if self.on_tool_error is not None:
            check_on_tool_error(self.on_tool_error)
        check_max_tool_failures(self.max_tool_failures)
        for parameter in ("retry_idempotent", "include_output_schema"):
            if getattr(self, parameter) not in (None, True, False):
                msg = f"ToolOverride: `{parameter}` must be True, False or None, got {getattr(self, parameter)!r}"
                raise ValueError(msg)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the override.

        :returns: What is not `None`.
        """
        values = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ToolOverride:
        """
        Deserialize an override.

        :param data: The result of `to_dict`.
        :returns: The override.
        :raises ValueError: If a key is unknown or a value invalid.
        """
        known = [each.name for each in dataclasses.fields(cls)]
        unknown = [name for name in data if name not in known]
        if unknown:
            msg = f"ToolOverride has no field {', '.join(map(repr, unknown))}. It has: {', '.join(known)}."
            raise ValueError(msg)
        return cls(**data)


def check_overrides(overrides: Any) -> dict[str, ToolOverride]:
    """
    Check the value of `tool_overrides`.

    :param overrides: A mapping from tool names to overrides or their dictionaries, or None.
    :returns: The overrides.
    :raises ValueError: If it is something else, or two tools get the same name.
    """
    if overrides is None:
        return {}
    if not isinstance(overrides, Mapping) or not all(
        isinstance(name, str) and isinstance(each, (ToolOverride, dict)) for name, each in overrides.items()
    ):
        msg = (
            "MCPToolset: `tool_overrides` must be a dict from tool names to ToolOverrides, or to dicts of their fields"
        )
        raise ValueError(msg)
    checked: dict[str, ToolOverride] = {}
    owners: dict[str, str] = {}
    for tool, each in overrides.items():
        try:
            checked[tool] = override = each if isinstance(each, ToolOverride) else ToolOverride.from_dict(each)
        except ValueError as error:
            msg = f"`tool_overrides` of tool '{tool}': {error}"
            raise ValueError(msg) from error
        if override.name is not None and owners.setdefault(override.name, tool) != tool:
            msg = f"`tool_overrides` gives the tools '{owners[override.name]}' and '{tool}' the name '{override.name}'"
            raise ValueError(msg)
    return checked


@dataclass(frozen=True, kw_only=True)
class ToolSelection:
    """
    Which of a server's tools are loaded.

    :param tool_names: The value of this parameter of MCPToolset, checked.
    :param exclude_tools: Names or shell-style patterns of tools to leave out.
    :param tool_filter: Tells whether to load a tool.
    :param required_hints: What the annotations of a tool must say.
    """

    tool_names: list[str] | None = None
    exclude_tools: list[str] | None = None
    tool_filter: Callable[[types.Tool], bool] | None = None
    required_hints: dict[str, bool] | None = None

    def __post_init__(self) -> None:
        """
        Validate the selection.

        :raises ValueError: If a parameter is invalid. The message names it and the valid choices.
        """
        excluded = self.exclude_tools
        if excluded is not None and (
            not isinstance(excluded, (list, tuple)) or not all(isinstance(name, str) and name for name in excluded)
        ):
            msg = f"MCPToolset: `exclude_tools` must be a list of names or patterns, or None, got {excluded!r}"
            raise ValueError(msg)
        both = [name for name in self.tool_names or [] if self._is_excluded(name)]
        if both:
            msg = f"MCPToolset: `tool_names` has tools that `exclude_tools` leaves out: {', '.join(both)}"
            raise ValueError(msg)
        predicate = self.tool_filter
        if predicate is not None and (not callable(predicate) or inspect.iscoroutinefunction(predicate)):
            msg = (
                "MCPToolset: `tool_filter` must be a function that takes a tool and returns True or False, "
                f"not {'a coroutine function' if callable(predicate) else type(predicate).__name__}"
            )
            raise ValueError(msg)
        hints = self.required_hints
        if hints is not None and not (
            isinstance(hints, dict) and all(name in HINTS and isinstance(value, bool) for name, value in hints.items())
        ):
            msg = f"MCPToolset: `required_hints` must be a dict from {', '.join(HINTS)} to True or False, got {hints!r}"
            raise ValueError(msg)

    def _is_excluded(self, name: str) -> bool:
        return any(name == pattern or fnmatchcase(name, pattern) for pattern in self.exclude_tools or ())

    def may_have(self, name: str) -> bool:
        """
        Tell by its name whether a tool may be loaded.

        :param name: The server's name of the tool.
        :returns: Whether it is in `tool_names`, if there are any, and `exclude_tools` does not leave it out.
        """
        return (self.tool_names is None or name in self.tool_names) and not self._is_excluded(name)

    def has_pinned(self, definition: types.Tool) -> bool:
        """
        Tell whether a tool of a snapshot is shown. `tool_filter` was asked when it was captured.

        :param definition: What the snapshot has of it.
        :returns: Whether its name and its annotations are as they must be.
        """
        hints, wanted = effective_hints(definition.annotations), self.required_hints or {}
        return self.may_have(definition.name) and all(hints[name] is value for name, value in wanted.items())

    def unknown_exclusions(self, listed: Iterable[str]) -> list[str]:
        """
        Tell which names in `exclude_tools` the server does not have. A pattern need not match anything.

        :param listed: The names of the server's tools.
        :returns: The names.
        """
        names = set(listed)
        return [name for name in self.exclude_tools or () if name not in names and not any(c in name for c in "*?[")]

    def reason_against(self, definition: types.Tool) -> str | None:
        """
        Say why a tool is not loaded.

        :param definition: What the server says of it.
        :returns: The reason; None if it is loaded.
        :raises ValueError: If `tool_filter` fails.
        """
        reason = unusable_by_model(definition)
        if reason is not None:
            return reason
        if self._is_excluded(definition.name):
            return "`exclude_tools` leaves it out"
        hints = effective_hints(definition.annotations)
        wrong = [name for name, value in (self.required_hints or {}).items() if hints[name] is not value]
        if wrong:
            return f"`required_hints` leaves it out: its {wrong[0]} is {hints[wrong[0]]}"
        if self.tool_filter is None:
            return None
        try:
            selected = self.tool_filter(definition)
        except Exception as error:
            msg = f"`tool_filter` failed for tool '{definition.name}': {type(error).__name__}: {error}"
            raise ValueError(msg) from error
        return None if selected else "`tool_filter` leaves it out"


def unusable_by_model(definition: types.Tool) -> str | None:
    """
    Say why a model must not see a tool, whatever is configured.

    :param definition: What the server says of it.
    :returns: The reason; None if there is none.
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
    Tell what a tool's annotations mean, with the protocol's defaults for what they do not say.

    :param annotations: The annotations.
    :returns: The four hints by their names. A read-only tool is idempotent and not destructive.
    """
    read_only = annotations is not None and annotations.read_only_hint is True
    return {
        "read_only_hint": read_only,
        "destructive_hint": not read_only and (annotations is None or annotations.destructive_hint is not False),
        "idempotent_hint": read_only or (annotations is not None and annotations.idempotent_hint is True),
        "open_world_hint": annotations is None or annotations.open_world_hint is not False,
    }


@dataclass(frozen=True, kw_only=True)
class Sent:
    """
    The arguments of one call.

    :param arguments: All of them, as the server gets them.
    :param given: Those that the caller passed.
    :param hidden: The values of those that were taken from the State, by parameter.
    :param secrets: The values of the Secrets among them.
    """

    arguments: dict[str, Any]
    given: dict[str, Any]
    hidden: dict[str, Any] = field(default_factory=dict)
    secrets: list[str] = field(default_factory=list)


class BoundArguments:
    """
    Arguments of one tool that the model neither sees nor overrides.
    """

    def __init__(self, tool_name: str, values: Any) -> None:
        """
        Initialize the arguments.

        :param tool_name: Name of the tool, for messages.
        :param values: Values by parameter: JSON values, Secrets and FromStates.
        :raises ValueError: If a value is something else.
        """
        values = {} if values is None else values
        if not isinstance(values, dict) or not all(isinstance(name, str) and name for name in values):
            msg = f"`bound_arguments` of tool '{tool_name}' must be a dict from parameter names to values"
            raise ValueError(msg)
        for name, value in values.items():
            if not isinstance(value, (Secret, FromState)) and not _is_json(value):
                msg = (
                    f"`bound_arguments` of tool '{tool_name}': the value of '{name}' must be a Secret, a FromState or "
                    f"what JSON can say (without Secrets inside), not {type(value).__name__}"
                )
                raise ValueError(msg)
        self.tool_name = tool_name
        self.values: dict[str, Any] = values
        # Haystack passes values of its State under these names, which no model can guess; under a parameter's own name
        # the model's value would take precedence.
        keys = dict.fromkeys(value.key for value in values.values() if isinstance(value, FromState))
        self.state_inputs: dict[str, str] = {key: f"bound_{uuid.uuid4().hex}" for key in keys}

    def __bool__(self) -> bool:
        return bool(self.values)

    def check(self, schema: dict[str, Any], properties: Iterable[str]) -> None:
        """
        Check the arguments against what the server says of the tool.

        :param schema: The tool's input schema, as the server sent it.
        :param properties: The tool's parameters.
        :raises ValueError: If there is no such parameter, or a Secret would be sent as a header.
        """
        known = sorted(properties)
        for name, value in self.values.items():
            if name not in known:
                msg = (
                    f"bound_arguments of tool '{self.tool_name}' has the unknown parameter '{name}'. Valid parameters "
                    f"are: {', '.join(known) or 'none'}."
                )
                raise ValueError(msg)
            declared = schema.get("properties")
            if isinstance(value, Secret) and isinstance(declared, dict) and _has_key(declared.get(name), _HEADER_KEY):
                msg = (
                    f"bound_arguments of tool '{self.tool_name}' binds '{name}' to a Secret, but the server wants this "
                    f"argument in an HTTP header ({_HEADER_KEY}), too, where it could be logged. Leave the tool out, "
                    "or pass the Secret as a token or header of the server info."
                )
                raise ValueError(msg)

    def apply(self, arguments: dict[str, Any], inputs_from_state: Mapping[str, str]) -> Sent:
        """
        Complete the arguments of a call.

        :param arguments: What the model or the caller passed, and what Haystack added from its State.
        :param inputs_from_state: The tool's own mapping from State keys to parameters.
        :returns: What is sent. Bound values win.
        :raises ValueError: If a bound value is missing.
        """
        inputs = set(self.state_inputs.values())
        given = {name: value for name, value in arguments.items() if name not in inputs and name not in self.values}
        state = {key: arguments[name] for key, name in self.state_inputs.items() if name in arguments}
        mapped = {name: state[key] for key, name in inputs_from_state.items() if key in state}
        hidden = {name: given[name] for name in inputs_from_state.values() if name in given} | {
            name: value for name, value in mapped.items() if name not in given
        }
        secrets: list[str] = []
        sent = mapped | given
        for name, value in self.values.items():
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
                secrets.append(sent[name])
            else:
                sent[name] = value
        return Sent(arguments=sent, given=given, hidden=hidden, secrets=secrets)

    def reapply(self, kept: Mapping[str, Any], withheld: Iterable[str], inputs_from_state: Mapping[str, str]) -> Sent:
        """
        Complete the arguments of a call that is continued.

        :param kept: What was kept of its arguments.
        :param withheld: Names of those that were not kept, because they are Secrets.
        :param inputs_from_state: The tool's own mapping from State keys to parameters.
        :returns: What is sent in addition, and what is to be redacted.
        :raises ValueError: If a Secret has no value.
        """
        bound = {name: self.values.get(name) for name in withheld}
        secrets = {name: self._resolve(name, value) for name, value in bound.items() if isinstance(value, Secret)}
        from_state = {*inputs_from_state.values()} | {
            name for name, value in self.values.items() if isinstance(value, FromState)
        }
        return Sent(
            arguments=secrets,
            given={name: value for name, value in kept.items() if name not in self.values},
            hidden={name: value for name, value in kept.items() if name in from_state},
            secrets=list(secrets.values()),
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

    def overridden(self, arguments: Iterable[str]) -> list[str]:
        """
        Tell which arguments somebody passed in vain.

        :param arguments: The names of the arguments that were passed.
        :returns: Those that are bound.
        """
        return [name for name in arguments if name in self.values]

    def stored(self) -> dict[str, Any]:
        """
        Serialize the arguments.

        :returns: Values by parameter.
        :raises ValueError: If one is a token-based Secret, which Haystack does not write to files.
        """
        return {name: _stored(value) for name, value in self.values.items()}


def load_bound_arguments(stored: Any) -> Any:
    """
    Deserialize the arguments of one tool.

    :param stored: The result of `BoundArguments.stored`.
    :returns: Values by parameter.
    """
    if not isinstance(stored, dict):
        return stored
    return {name: _loaded(value) for name, value in stored.items()}


def load_filter(stored: Any) -> Any:
    """
    Import a stored `tool_filter`.

    :param stored: Its import path.
    :returns: The function.
    """
    return deserialize_callable(stored) if isinstance(stored, str) else stored


def _stored(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.to_dict()
    if isinstance(value, FromState):
        return {"type": _FROM_STATE, "key": value.key}
    return {"type": _VALUE, "value": value} if isinstance(value, dict) and "type" in value else value


def _loaded(value: Any) -> Any:
    match value:
        case {"type": "env_var", "env_vars": list()}:
            return Secret.from_dict(dict(value))
        case {"type": "from_state", "key": str(key)}:
            return FromState(key)
        case {"type": "value", "value": plain}:
            return plain
    return value


def _is_json(value: Any) -> bool:
    try:
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        return False
    return True


def _has_key(schema: Any, key: str) -> bool:
    if isinstance(schema, dict):
        return key in schema or any(_has_key(each, key) for each in schema.values())
    return isinstance(schema, list) and any(_has_key(each, key) for each in schema)


# Descriptions


def with_output_schema(description: str, schema: dict[str, Any] | None) -> str:
    """
    Add an output schema to a description.

    :param description: The description.
    :param schema: The output schema, if the tool has one.
    :returns: The description for the model.
    """
    if not schema:
        return description
    text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
    return f"{description}\n\nThe result has this JSON schema: {text}".lstrip()


# The size of results


def check_max_result_size(size: Any) -> None:
    """
    Check the value of `max_result_size`.

    :param size: Characters, or None.
    :raises ValueError: If it is something else, or too small.
    """
    if size is not None and (isinstance(size, bool) or not isinstance(size, int) or size < SMALLEST_RESULT):
        msg = f"`max_result_size` must be a number of characters, at least {SMALLEST_RESULT}, or None, got {size!r}"
        raise ValueError(msg)


def limit_result(result: Any, size: int) -> Any:
    """
    Shorten the text of a result for the model.

    :param result: Text, or Haystack content blocks. Anything else is returned as it is.
    :param size: How many characters of text may remain, with the marker in place of what is left out.
    :returns: The beginning and the end, with a marker between them that says how much is left out.
    """
    if isinstance(result, str):
        return result if len(result) <= size else _shortened([TextContent(result)], size)[0].text
    if isinstance(result, list):
        return _shortened(result, size)
    return result


def _shortened(parts: list[Any], size: int) -> list[Any]:
    total = sum(len(part.text) for part in parts if isinstance(part, TextContent))
    if total <= size:
        return parts
    marker = f"\n[… {total - size} of {total} characters left out …]\n"
    # The marker takes room, too, so a little more is left out.
    room = size - len(marker) - 1
    marker = f"\n[… {total - room} of {total} characters left out …]\n"
    head = (room + 1) // 2
    end = total - (room - head)
    kept: list[Any] = []
    first = 0
    marked = False
    for part in parts:
        if not isinstance(part, TextContent):
            kept.append(part)
            continue
        start, first = first, first + len(part.text)
        if first <= head or start >= end:
            kept.append(part)
            continue
        text = part.text[: max(0, head - start)] + ("" if marked else marker) + part.text[max(0, end - start) :]
        marked = True
        if text:
            kept.append(TextContent(text))
    return kept


def limit_outputs(outputs_to_string: dict[str, Any], size: int) -> dict[str, Any]:
    """
    Limit what the handlers of an `outputs_to_string` give the model.

    :param outputs_to_string: The configuration.
    :param size: How many characters of text may remain, of each output if there are several.
    :returns: A configuration with limited handlers.
    """
    if {"source", "handler", "raw_result"} & outputs_to_string.keys():
        return _limited_output(outputs_to_string, size)
    return {
        name: _limited_output(output, size) if isinstance(output, dict) else output
        for name, output in outputs_to_string.items()
    }


def _limited_output(output: dict[str, Any], size: int) -> dict[str, Any]:
    handler = output.get("handler") or (_as_it_is if output.get("raw_result") else model_text)

    @functools.wraps(handler)
    def limited(result: Any) -> Any:
        return limit_result(handler(result), size)

    return {**output, "handler": limited}


def _as_it_is(result: Any) -> Any:
    return result
