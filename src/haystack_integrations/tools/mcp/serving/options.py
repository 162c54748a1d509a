# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from numbers import Real
from typing import Any, Literal

from jsonschema import Draft202012Validator, SchemaError
from mcp.types import Icon, ToolAnnotations

from haystack_integrations.tools.mcp.parameters import short_repr

# What the protocol allows, and the models of the larger providers.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LONGEST_SHOWN = 100

_TEXTS = ("name", "title", "description")
_FLAGS = ("enabled", "forward", "include_embeddings", "include_blobs")
_LIMITS = ("max_documents", "max_characters", "max_concurrency")
_HINTS = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")


@short_repr
@dataclass(frozen=True, kw_only=True)
class ServeOptions:
    """
    What is said of one served thing, and how it is run. Everything has a default.

    :param name: The name for clients; by default that of the tool, pipeline or agent.
    :param title: A name for people.
    :param description: What it does, for the model.
    :param tags: Tags, by which things are enabled and disabled together.
    :param icons: Icons, as `mcp.types.Icon`, dictionaries or URLs.
    :param meta: Metadata for clients, sent as `_meta`.
    :param annotations: Hints for clients: `ToolAnnotations`, or a dictionary with `title`, `readOnlyHint`,
        `destructiveHint`, `idempotentHint` and `openWorldHint`.
    :param version: The version; clients see the highest of those that have the same name.
    :param enabled: Whether clients see and can use it. One that is not is enabled by `server.enable(names={...})`.
    :param timeout: How long a call may take, in seconds, including what it waits for a free place; unlimited by
        default. The thread of a synchronous tool cannot be stopped: it goes on alone, and keeps its place until then.
    :param output_schema: JSON schema of the structured result, of the type `object`; by default what can be derived
        from the thing itself. `False` for none.
    :param strict_validation: Whether arguments of another JSON type are refused. Otherwise "10" is taken for the
        integer 10. By default, the server decides.
    :param inputs: Which inputs of a pipeline or agent clients set: a list of names, or a dictionary of a name for
        clients to an input (`{"query": "retriever.query"}`) or to several of them. By default the mandatory ones.
    :param outputs: Which outputs are returned, in the same form (`{"answer": "llm.replies"}`). By default all of them.
    :param bound: Arguments that clients neither see nor set, by name: values, or FastMCP's `Depends(function)`, which
        is called for each call.
    :param completions: Values that clients offer for the arguments of a prompt: lists, or functions, also async ones,
        that get what was typed so far and a dictionary of the other arguments, and return a list.
    :param include_embeddings: Whether Documents are returned with their embeddings.
    :param include_blobs: Whether Documents are returned with their binary data.
    :param max_documents: How many Documents of a list are returned; the rest is left out, and the result says so.
    :param max_characters: How many characters of each Document, message or other text are returned, likewise.
    :param scopes: OAuth scopes that a client's token must have, all of them. Others do not see it. Over stdio there are
        no tokens, and everything can be used.
    :param task: Whether clients may run it as a background task; `"required"` if they must. It needs the extra
        `[tasks]`.
    :param forward: Whether the resources and prompts of another MCP server are served with its tools.
    :param max_concurrency: How many calls of it run at a time. By default it shares the limit of the server.
    :raises ValueError: If a value is not one of those.
    """

    name: str | None = None
    title: str | None = None
    description: str | None = None
    tags: Iterable[str] = frozenset()
    icons: Sequence[Icon | Mapping[str, Any] | str] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    annotations: ToolAnnotations | Mapping[str, Any] | None = None
    version: str | int | None = None
    enabled: bool = True
    timeout: float | None = None
    output_schema: Mapping[str, Any] | Literal[False] | None = None
    strict_validation: bool | None = None
    inputs: Mapping[str, str | Sequence[str]] | Sequence[str] | None = None
    outputs: Mapping[str, str] | Sequence[str] | None = None
    bound: Mapping[str, Any] = field(default_factory=dict, repr=False)
    completions: Mapping[str, Sequence[str] | Callable[[str, Mapping[str, str]], Any]] = field(default_factory=dict)
    include_embeddings: bool = False
    include_blobs: bool = False
    max_documents: int | None = None
    max_characters: int | None = None
    scopes: Sequence[str] = ()
    task: bool | Literal["required"] = False
    forward: bool = True
    max_concurrency: int | None = None

    def __post_init__(self) -> None:
        """
        Check the values and bring them into one form each.
        """
        for name in _TEXTS:
            if getattr(self, name) is not None:
                _check_text(name, getattr(self, name))
        for name in _FLAGS:
            if not isinstance(getattr(self, name), bool):
                _refuse(name, "True or False", getattr(self, name))
        for name in _LIMITS:
            _check_limit(name, getattr(self, name))
        if self.strict_validation not in (True, False, None):
            _refuse("strict_validation", "True, False or None", self.strict_validation)
        if self.task not in (True, False, "required"):
            _refuse("task", 'True, False or "required"', self.task)
        self._check_timeout()
        self._set("tags", frozenset(_texts("tags", self.tags)))
        self._set("scopes", tuple(_texts("scopes", self.scopes)))
        if isinstance(self.icons, str | Mapping):
            _refuse("icons", "a list of icons, dictionaries or URLs", self.icons)
        self._set("icons", tuple(_icon(each) for each in self.icons))
        self._set("annotations", self.hints)
        self._set("version", _version(self.version))
        for name in ("meta", "bound", "completions"):
            self._set(name, dict(_mapping(name, getattr(self, name))))
        self._set("completions", {name: _candidates(name, each) for name, each in self.completions.items()})
        self._set("inputs", _sockets("inputs", self.inputs, several=True))
        for name in self.inputs if isinstance(self.inputs, Mapping) else ():
            check_name("`inputs`", name)
        self._set("outputs", _sockets("outputs", self.outputs, several=False))
        if self.output_schema is not None and self.output_schema is not False:
            self._set("output_schema", _output_schema(self.output_schema))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)

    def _check_timeout(self) -> None:
        value = self.timeout
        if value is not None and (isinstance(value, bool) or not isinstance(value, Real) or not value > 0):
            _refuse("timeout", "a positive number of seconds, or None", value)

    @property
    def hints(self) -> ToolAnnotations | None:
        """
        The annotations, whatever form they were given in.
        """
        if self.annotations is None or isinstance(self.annotations, ToolAnnotations):
            return self.annotations
        unknown = sorted(set(_mapping("annotations", self.annotations)) - {"title", *_HINTS})
        if unknown:
            msg = f"Unknown annotations: {', '.join(unknown)}. There are title, {', '.join(_HINTS)}."
            raise ValueError(msg)
        return ToolAnnotations.model_validate(dict(self.annotations))

    def of_component(self) -> dict[str, Any]:
        """
        Give what FastMCP's tools, resources and prompts have in common.

        :returns: Keyword arguments, without those that the user did not set.
        """
        given = {
            "title": self.title,
            "description": self.description,
            "tags": set(self.tags),
            "icons": list(self.icons),
            "meta": dict(self.meta),
            "version": self.version,
        }
        return {name: value for name, value in given.items() if value}

    def overridden_by(self, other: ServeOptions | None) -> ServeOptions:
        """
        Combine two options for the same thing.

        :param other: Those that go first; what is left at its default there is taken from these.
        :returns: The options.
        """
        if other is None:
            return self
        defaults = ServeOptions()
        said = {each.name: getattr(other, each.name) for each in fields(self)}
        return replace(self, **{name: value for name, value in said.items() if value != getattr(defaults, name)})


def check_name(parameter: str, name: object) -> None:
    """
    Check the name of a tool, or of an argument.

    :param parameter: Where it stands, for the message.
    :param name: The name.
    :raises ValueError: If clients, or the models behind them, would not take it.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = repr(name)[:_LONGEST_SHOWN]
        msg = (
            f"A name in {parameter} must be 1 to 64 characters from A-Z, a-z, 0-9, '_', '-' and '.', not {shown}. "
            "Clients and their models would not take it"
        )
        raise ValueError(msg)


def check_options(value: Any) -> ServeOptions:
    """
    Check what was given as the options of one served thing.

    :param value: Options, a dictionary of them, or None for the defaults.
    :returns: The options.
    :raises ValueError: If it is none of these, or a dictionary with something else in it.
    """
    if value is None:
        return ServeOptions()
    if isinstance(value, ServeOptions):
        return value
    if isinstance(value, Mapping):
        unknown = sorted(set(value) - set(ServeOptions.__dataclass_fields__))
        if unknown:
            valid = ", ".join(ServeOptions.__dataclass_fields__)
            msg = f"Unknown options: {', '.join(map(str, unknown))}. There are {valid}."
            raise ValueError(msg)
        return ServeOptions(**value)
    msg = f"`options` must be ServeOptions or a dictionary of them, got {type(value).__name__}"
    raise ValueError(msg)


def _refuse(name: str, valid: str, value: Any) -> None:
    shown = repr(value) if isinstance(value, bool | int | float | str) else type(value).__name__
    msg = f"`{name}` must be {valid}, got {shown}"
    raise ValueError(msg)


def _check_text(name: str, value: Any) -> None:
    if not isinstance(value, str) or not value.strip():
        _refuse(name, "a text that is not empty", value)


def _check_limit(name: str, value: Any) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
        _refuse(name, "an integer of at least 1, or None", value)


def _texts(name: str, value: Any) -> list[str]:
    if isinstance(value, str) or not isinstance(value, Iterable):
        _refuse(name, "a list of texts", value)
    texts = list(value)
    for each in texts:
        _check_text(name, each)
    return texts


def _mapping(name: str, value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
        _refuse(name, "a dictionary whose keys are texts", value)
    mapping: Mapping[str, Any] = value
    return mapping


def _icon(value: Any) -> Icon:
    if isinstance(value, Icon):
        return value
    return Icon(src=value) if isinstance(value, str) else Icon(**_mapping("icons", value))


def _version(value: Any) -> str | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, str | int) or not str(value) or "@" in str(value):
        _refuse("version", "a text without '@', or an integer", value)
    return str(value)


def _sockets(name: str, value: Any, *, several: bool) -> dict[str, Any] | list[str] | None:
    if value is None:
        return None
    if not isinstance(value, Mapping):
        return _texts(name, value)
    sockets: dict[str, Any] = {}
    for key, each in _mapping(name, value).items():
        if isinstance(each, str) or not several:
            _check_text(f"{name}[{key!r}]", each)
            sockets[key] = each
        else:
            sockets[key] = _texts(f"{name}[{key!r}]", each)
    return sockets


def _candidates(name: str, value: Any) -> Any:
    return value if callable(value) else tuple(_texts(f"completions[{name!r}]", value))


def _output_schema(value: Any) -> dict[str, Any]:
    schema = dict(_mapping("output_schema", value))
    try:
        Draft202012Validator.check_schema(schema)
    except SchemaError as error:
        msg = f"`output_schema` is not a valid JSON schema: {error.message}"
        raise ValueError(msg) from None
    if schema.get("type") != "object":
        msg = '`output_schema` must be a JSON schema of `"type": "object"`, because structured results are objects'
        raise ValueError(msg)
    return schema
