# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
JSON schemas of the inputs and outputs of components, and the way from a client's JSON to what components take.
"""

from __future__ import annotations

import collections.abc
import dataclasses
import json
from collections.abc import Callable, Mapping
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, NotRequired, Required, Union, get_args, get_origin, get_type_hints
from uuid import UUID

from haystack.dataclasses import ByteStream, ChatMessage, Document, FileContent, ImageContent
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from haystack.utils import Secret
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    Field,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
)
from pydantic.json_schema import GenerateJsonSchema
from typing_extensions import TypedDict

from haystack_integrations.tools.mcp.haystack_compat import (
    contains_callable,
    is_state_type,
    parameter_descriptions,
)
from haystack_integrations.tools.mcp.serving.arguments import shortened
from haystack_integrations.tools.mcp.serving.model_fields import writes_aliases

from .haystack_types import CHAT_MESSAGE, FROM_JSON, document_schema

_Schema = dict[str, Any]

# The keywords whose values are no schemas.
_NO_SCHEMAS = frozenset({"const", "default", "enum", "examples"})

_MISSING = object()

# Type checkers want the fields written out.
_typed_dict: Any = TypedDict


class UnservableTypeError(ValueError):
    """
    A client cannot give a value of this type, because it cannot be written as JSON.
    """


# What Pydantic says of types that it does not know, and of names that it cannot find.
_UNSERVABLE = (PydanticUserError, NameError, UnservableTypeError)


@dataclasses.dataclass(frozen=True)
class ServedInput:
    """
    One input of what is served, as its component declares it.

    :param type: The declared type.
    :param required: Whether a call has to give it.
    :param default: What the component takes otherwise; shown to clients when it can be written as JSON.
    :param description: What it is for.
    """

    type: Any
    required: bool = True
    default: Any = _MISSING
    description: str = ""


class InputSchema:
    """
    What a client may send: its JSON schema, and how it becomes the values that components take.

    :param inputs: The inputs by the names that clients see.
    :raises UnservableTypeError: If an input is of a type that cannot be written as JSON; the message names it.
    """

    def __init__(self, inputs: Mapping[str, ServedInput]) -> None:
        """
        See the class.
        """
        fields = {name: _field(name, given) for name, given in inputs.items()}
        self._adapter: TypeAdapter[Any] = TypeAdapter(_typed_dict("Arguments", fields))
        self.json_schema: _Schema = _json_schema(self._adapter, mode="validation")
        self.json_schema.setdefault("properties", {})
        self.json_schema["additionalProperties"] = False

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """
        Turn the arguments of a call into what components take.

        Numbers and booleans that a client wrote as strings are converted, too; check the arguments against
        `json_schema` first where that is not wanted.

        :param arguments: What the client sent.
        :returns: The values by the same names.
        :raises ValueError: If an argument does not fit. The message names it, and does not contain its value.
        """
        try:
            converted: dict[str, Any] = self._adapter.validate_python(dict(arguments))
        except ValidationError as error:
            raise ValueError(_without_values(error)) from None
        return converted


def output_schema(outputs: Mapping[str, Any], *, include_embeddings: bool = False) -> _Schema:
    """
    Make the JSON schema of a dictionary of outputs.

    No output is required: which branch of a pipeline runs depends on the inputs.

    :param outputs: The declared types by the names that clients see.
    :param include_embeddings: Whether Documents are served with their embeddings.
    :returns: The schema of an object.
    """
    fields = {name: NotRequired[_output_type(declared)] for name, declared in outputs.items()}
    adapter: TypeAdapter[Any] = TypeAdapter(_typed_dict("Outputs", fields))
    schema = _output_json_schema(adapter, include_embeddings=include_embeddings)
    schema.setdefault("properties", {})
    return schema


def object_schema(declared: Any, *, include_embeddings: bool = False) -> _Schema:
    """
    Make the JSON schema of a model or dataclass.

    :param declared: The class.
    :param include_embeddings: Whether Documents are served with their embeddings.
    :returns: The schema of an object.
    """
    adapter: TypeAdapter[Any] = TypeAdapter(declared)
    schema = _output_json_schema(adapter, include_embeddings=include_embeddings)
    # That of a class which refers to itself is among the definitions; MCP wants an object on top.
    reference = schema.get("$ref")
    if reference is None:
        return schema
    definitions = schema["$defs"]
    return {**definitions[reference.removeprefix("#/$defs/")], "$defs": definitions}


def with_nullable_numbers(schema: _Schema) -> _Schema:
    """
    Let each number of an output be null, which is what NaN and infinity are written as.

    :param schema: A JSON schema that was derived from types.
    :returns: The schema.
    """
    changed = {key: value if key in _NO_SCHEMAS else _with_nullable_numbers(value) for key, value in schema.items()}
    if changed.get("type") == "number":
        changed["type"] = ["number", "null"]
    return changed


def _with_nullable_numbers(part: Any) -> Any:
    if isinstance(part, list):
        return [_with_nullable_numbers(each) for each in part]
    return with_nullable_numbers(part) if isinstance(part, dict) else part


def input_descriptions(component: Any) -> dict[str, str]:
    """
    Read what the docstring of a component's `run` says of its inputs.

    :param component: The component.
    :returns: The descriptions by the names of the inputs; only of those that have one.
    """
    return {name: text for name, text in parameter_descriptions(component).items() if text}


def annotated_description(declared: Any) -> str:
    """
    Read what a type says of its values: `Annotated[str, "The text"]`, or `Annotated[str, Field(description="...")]`.

    :param declared: The type.
    :returns: The description; an empty text if there is none.
    """
    for each in getattr(declared, "__metadata__", ()):
        text = each if isinstance(each, str) else getattr(each, "description", None)
        if isinstance(text, str) and text:
            return text
    is_union = get_origin(declared) in (Union, UnionType)
    return next(filter(None, map(annotated_description, get_args(declared))), "") if is_union else ""


def is_servable(declared: Any) -> bool:
    """
    Tell whether a client can give values of a type.

    :param declared: The type of an input.
    :returns: False for types that cannot be written as JSON, such as callbacks.
    """
    try:
        InputSchema({"value": ServedInput(declared)})
    except UnservableTypeError:
        return False
    return True


def _field(name: str, given: ServedInput) -> Any:
    extra: _Schema = {}
    try:
        converted = _input_type(given.type)
        _json_schema(TypeAdapter(converted), mode="validation")
    except _UNSERVABLE as error:
        msg = f"The input `{name}` is of type {given.type}, which a client cannot send as JSON."
        raise UnservableTypeError(msg) from error
    default = given.default if given.required else _as_json(given.default)
    if not given.required and default is not _MISSING:
        extra["default"] = default
    description = annotated_description(given.type) or given.description or None
    annotated = Annotated[converted, Field(description=description, json_schema_extra=extra)]  # type: ignore[valid-type]
    return Required[annotated] if given.required else NotRequired[annotated]


def _as_json(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    try:
        # No NaN, which is not JSON.
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return _MISSING
    return value


class _WithoutTitles(GenerateJsonSchema):
    """
    Leaves out the titles that Pydantic makes from the names, which tell a model nothing.
    """

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


class _OfOutputs(_WithoutTitles):
    """
    Describes what `JsonWriter` writes.
    """

    include_embeddings = False
    # A default that is not JSON is left out.
    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def float_schema(self, schema: Any) -> _Schema:
        # What is no number, or infinite, is written as null.
        return with_nullable_numbers(super().float_schema(schema))

    def decimal_schema(self, schema: Any) -> _Schema:  # noqa: ARG002
        return {"type": ["string", "null"]}

    def model_schema(self, schema: Any) -> _Schema:
        return self._with_its_names(super().model_schema, schema)

    def dataclass_schema(self, schema: Any) -> _Schema:
        own = self._of_haystack(schema["cls"])
        return self._with_its_names(super().dataclass_schema, schema) if own is None else own

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> _Schema:  # noqa: ARG002
        # It is written all the same, as whatever it is.
        return {}

    def _with_its_names(self, describe: Callable[[Any], _Schema], schema: Any) -> _Schema:
        before, self.by_alias = self.by_alias, writes_aliases(schema["cls"])
        try:
            return describe(schema)
        finally:
            self.by_alias = before

    def _of_haystack(self, kind: Any) -> _Schema | None:
        if issubclass(kind, Document):
            return document_schema(include_embeddings=self.include_embeddings)
        if issubclass(kind, ChatMessage):
            return CHAT_MESSAGE
        if issubclass(kind, ByteStream | FileContent | ImageContent):
            return {"title": kind.__name__, "type": "object"}
        return None


def _json_schema(adapter: TypeAdapter[Any], *, mode: Literal["validation", "serialization"]) -> _Schema:
    schema = adapter.json_schema(mode=mode, schema_generator=_WithoutTitles)
    schema.pop("title", None)
    return schema


def _output_json_schema(adapter: TypeAdapter[Any], *, include_embeddings: bool) -> _Schema:
    class Generator(_OfOutputs):
        pass

    Generator.include_embeddings = include_embeddings
    schema = adapter.json_schema(mode="serialization", by_alias=False, schema_generator=Generator)
    schema.pop("title", None)
    return schema


def _without_values(error: ValidationError) -> str:
    found = []
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in detail["loc"] if not str(part).startswith("function-"))
        found.append(f"`{shortened(where)}`: {detail['msg'].removeprefix('Value error, ')}")
    return "The arguments do not fit. " + "; ".join(found)


# Inputs


def _input_type(declared: Any) -> Any:
    if _never_from_clients(declared):
        msg = f"No client may give {declared}."
        raise UnservableTypeError(msg)
    if declared in FROM_JSON:
        schema, convert = FROM_JSON[declared]
        return Annotated[Any, BeforeValidator(convert), WithJsonSchema(schema)]
    if dataclasses.is_dataclass(declared):
        return _dataclass(declared)
    return _rebuilt(declared, _input_type, _arms_of_inputs)


def _never_from_clients(declared: Any) -> bool:
    """
    Types whose values would let a client name code, or read what the server keeps to itself.
    """
    return (
        contains_callable(declared)
        or is_state_type(declared)
        or (isinstance(declared, type) and issubclass(declared, (Secret, Tool, Toolset)))
        or getattr(declared, "__module__", "") == "haystack.dataclasses.breakpoints"
    )


def _arms_of_inputs(arms: tuple[Any, ...]) -> tuple[Any, ...]:
    """
    Choose what of a union a client may give.

    `str | Path | ByteStream` is how converters declare their sources. Strings and paths would name files of the server,
    so clients send contents.
    """
    if ByteStream in arms:
        arms = tuple(arm for arm in arms if arm not in (str, Path))
    servable = tuple(arm for arm in arms if _is_servable_arm(arm))
    if not servable or servable == (NoneType,):
        msg = "No part of the union can be sent as JSON."
        raise UnservableTypeError(msg)
    return servable


def _is_servable_arm(arm: Any) -> bool:
    try:
        TypeAdapter(_input_type(arm)).json_schema()
    except _UNSERVABLE:
        return False
    return True


def _dataclass(declared: Any) -> Any:
    """
    Any other dataclass: an object with its fields.
    """
    hints = get_type_hints(declared, include_extras=True)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(declared):
        if field.init:
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            default = _MISSING if field.default is dataclasses.MISSING else field.default
            fields[field.name] = _field(field.name, ServedInput(hints[field.name], required, default))
    if not fields:
        msg = f"{declared} has no fields that a client can send."
        raise UnservableTypeError(msg)
    given = _typed_dict(declared.__name__, fields)
    return Annotated[given, AfterValidator(lambda values: declared(**values))]


# Outputs

# Python's own types that Pydantic describes as they are written.
_PLAIN = (str, int, float, bool, NoneType, Path, UUID, datetime, date, time, timedelta, Decimal, Literal)


def _output_type(declared: Any) -> Any:
    if declared in (Document, ChatMessage):
        return declared
    if declared in (list, tuple, set, frozenset):
        return list[Any]
    if declared is dict:
        return dict[str, Any]
    if get_origin(declared) in (dict, collections.abc.Mapping):
        # Keys become strings.
        return dict[str, _output_type((get_args(declared) or (Any, Any))[1])]  # type: ignore[misc]
    if declared in _PLAIN or get_origin(declared) is Literal:
        return declared
    if isinstance(declared, type) and not get_args(declared):
        return declared if issubclass(declared, (Enum, BaseModel)) else Any
    return _rebuilt(declared, _output_type, lambda arms: arms) if get_origin(declared) in _KNOWN_ORIGINS else Any


# Both

_SEQUENCES = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Set)
_KNOWN_ORIGINS = (Union, UnionType, Annotated, *_SEQUENCES)


def _rebuilt(declared: Any, convert: Callable[[Any], Any], choose: Callable[[tuple[Any, ...]], tuple[Any, ...]]) -> Any:
    """
    Convert the parts of a generic type.
    """
    origin, parts = get_origin(declared), get_args(declared)
    if origin in (Union, UnionType):
        return Union[tuple(convert(arm) for arm in choose(parts))]  # noqa: UP007
    if origin is Annotated:
        return Annotated[(convert(parts[0]), *parts[1:])]
    if origin is tuple and parts and parts[-1] is not Ellipsis:
        return tuple[tuple(convert(part) for part in parts)]  # type: ignore[misc]
    if origin in (set, frozenset, collections.abc.Set):
        return set[convert(parts[0])]  # type: ignore[misc]
    if origin in _SEQUENCES:
        # An Iterable, too: Pydantic would hand on a generator that can be read once.
        return list[convert(parts[0])]  # type: ignore[misc]
    if origin in (dict, collections.abc.Mapping):
        return dict[parts[0], convert(parts[1])]  # type: ignore[valid-type, misc]
    return declared
