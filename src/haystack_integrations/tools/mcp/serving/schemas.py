# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
JSON schemas of inputs and outputs, and the conversion of a client's JSON to Haystack's types.

Messages never quote what a client sent, because they are also logged.
"""

from __future__ import annotations

import collections.abc
import copy
import dataclasses
import functools
import inspect
import json
import logging
import re
from base64 import b64decode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from itertools import islice
from math import isfinite
from pathlib import Path
from types import NoneType, UnionType
from typing import (
    Annotated,
    Any,
    Final,
    Literal,
    NotRequired,
    Required,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from fastmcp.exceptions import ToolError
from haystack.dataclasses import (
    ByteStream,
    ChatMessage,
    Document,
    FileContent,
    ImageContent,
    SparseEmbedding,
    TextContent,
    ToolCall,
)
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from haystack.utils import Secret
from jsonschema import Draft202012Validator, validators
from jsonschema import ValidationError as SchemaViolation
from pydantic import (
    AfterValidator,
    ConfigDict,
    Field,
    FiniteFloat,
    Json,
    PydanticUserError,
    TypeAdapter,
    ValidationError,
    WithJsonSchema,
    with_config,
)
from pydantic.json_schema import GenerateJsonSchema
from referencing import Registry
from referencing.exceptions import Unresolvable
from typing_extensions import TypedDict

from haystack_integrations.tools.mcp.convert.arguments import describe_violation
from haystack_integrations.tools.mcp.haystack_compat import contains_callable, is_state_type
from haystack_integrations.tools.mcp.serving.sources import check_known

_Schema = dict[str, Any]

WRAP_RESULT: Final = "x-fastmcp-wrap-result"

_MISSING: Final = object()

# Untyped, because type checkers require the fields to be written out.
_typed_dict: Any = TypedDict


class UnservableTypeError(ValueError):
    """
    Raised for a type whose values clients cannot send, because they cannot be written as JSON.
    """


# The errors for types that pydantic does not support, or that name something undefined.
_UNSERVABLE = (PydanticUserError, NameError, UnservableTypeError)


# Haystack's own classes as clients receive them, in the form of `to_dict(flatten=False)`.
_EMBEDDING_SCHEMA: _Schema = {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "null"}]}
_ROLE_SCHEMA: _Schema = {"type": "string", "enum": ["user", "system", "assistant", "tool"]}
_PARTS_DESCRIPTION = 'The parts, each an object with one key, such as {"text": "..."} or {"tool_call": {...}}'
_CHAT_MESSAGE_SCHEMA: _Schema = {
    "title": "ChatMessage",
    "type": "object",
    "properties": {
        "role": _ROLE_SCHEMA,
        "content": {"type": "array", "items": {"type": "object"}, "description": _PARTS_DESCRIPTION},
        "name": {"type": ["string", "null"]},
        "meta": {"type": "object"},
    },
    "required": ["role", "content"],
}


def _document_schema(*, include_embeddings: bool) -> _Schema:
    properties: _Schema = {
        "id": {"type": "string"},
        "content": {"type": ["string", "null"]},
        "meta": {"type": "object"},
        "score": {"type": ["number", "null"], "description": "How well it fits; higher is better"},
    }
    if include_embeddings:
        properties["embedding"] = _EMBEDDING_SCHEMA
        properties["sparse_embedding"] = {"type": ["object", "null"]}
    return {"title": "Document", "type": "object", "properties": properties, "required": ["id"]}


# Inputs


@dataclasses.dataclass(frozen=True)
class ServedInput:
    """
    One input for clients, as its component declares it.

    :param type: The declared type.
    :param required: Whether each call must have it.
    :param default: The component's default; shown to clients if it can be written as JSON.
    :param description: Its description.
    """

    type: Any
    required: bool = True
    default: Any = _MISSING
    description: str = ""


class InputSchema:
    """
    The JSON schema of the inputs for clients, and the conversion to the values that components take.

    :param inputs: The inputs by the names that clients see.
    :raises UnservableTypeError: If an input is of a type that cannot be written as JSON; the message names it.
    """

    def __init__(self, inputs: Mapping[str, ServedInput]) -> None:
        """
        See the class.
        """
        self._names = set(inputs)
        fields = {name: _field(name, served_input) for name, served_input in inputs.items()}
        self._adapter: TypeAdapter[Any] = TypeAdapter(_typed_dict("Arguments", fields))
        self.json_schema: _Schema = self._adapter.json_schema(schema_generator=_WithoutTitles)
        self.json_schema.pop("title", None)
        self.json_schema.setdefault("properties", {})
        self.json_schema["additionalProperties"] = False

    def convert(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """
        Convert the arguments of a call to the values that components take.

        :param arguments: The client's arguments.
        :returns: The values by the same names. Arguments that are not inputs are returned unchanged.
        :raises ValidationError: If an argument does not fit.
        """
        sent = {name: value for name, value in arguments.items() if name in self._names}
        return {**arguments, **self._adapter.validate_python(sent)}


def reasons_of(error: ValidationError) -> list[str]:
    """
    Describe what is wrong with arguments, without their values.

    :param error: The error of pydantic.
    :returns: A text for each wrong argument.
    """
    reasons = []
    for detail in error.errors(include_url=False, include_input=False, include_context=False):
        where = ".".join(str(part) for part in detail["loc"] if not str(part).startswith("function-"))
        reasons.append(f"'{where}': {detail['msg'].removeprefix('Value error, ')}")
    return reasons


def is_servable(declared: Any) -> bool:
    """
    Return whether clients can send values of a type.

    :param declared: The type of an input.
    :returns: False for types that cannot be written as JSON, such as callbacks.
    """
    try:
        TypeAdapter(_input_type(declared)).json_schema()
    except _UNSERVABLE:
        return False
    return True


def _field(name: str, served_input: ServedInput) -> Any:
    if not is_servable(served_input.type):
        msg = f"The input `{name}` is of type {served_input.type}, which a client cannot send as JSON."
        raise UnservableTypeError(msg)
    default = _MISSING if served_input.required else _as_json(served_input.default)
    extra: _Schema = {} if default is _MISSING else {"default": default}
    shown: Any = Field(json_schema_extra=extra)
    if served_input.description:
        shown = Field(description=served_input.description, json_schema_extra=extra)
    annotated: Any = Annotated[_input_type(served_input.type), shown]
    return Required[annotated] if served_input.required else NotRequired[annotated]


def _as_json(value: Any) -> Any:
    if isinstance(value, Enum):
        value = value.value
    try:
        # NaN is not allowed, because it is not JSON.
        json.dumps(value, allow_nan=False)
    except (TypeError, ValueError):
        return _MISSING
    return value


_SEQUENCES = (list, tuple, set, frozenset, collections.abc.Sequence, collections.abc.Iterable, collections.abc.Set)


def _input_type(declared: Any) -> Any:
    """Replace Haystack's classes in a type by types that convert JSON to them."""
    if _never_from_clients(declared):
        msg = f"Clients may not send values of the type {declared}."
        raise UnservableTypeError(msg)
    if declared is inspect.Parameter.empty:
        return Any
    if declared in _TYPES_FROM_JSON:
        return _TYPES_FROM_JSON[declared]
    if dataclasses.is_dataclass(declared) and declared.__module__.startswith("haystack."):
        return _dataclass_type(cast("Any", declared))
    origin, parts = get_origin(declared) or declared, get_args(declared)
    if origin in (Union, UnionType):
        return Union[tuple(map(_input_type, _servable_members(parts)))]  # noqa: UP007
    if origin is Annotated:
        return Annotated[(_input_type(parts[0]), *parts[1:])]
    if origin is tuple and parts:
        return tuple[tuple(each if each is Ellipsis else _input_type(each) for each in parts)]  # type: ignore[misc]
    if origin in _SEQUENCES:
        # An Iterable becomes a list, because pydantic would pass on a generator that can be read only once.
        kind: Any = {collections.abc.Set: set, set: set, frozenset: frozenset, tuple: tuple}.get(origin, list)
        return kind[_input_type(parts[0])] if parts else kind
    if origin in (dict, collections.abc.Mapping) and parts:
        return dict[parts[0], _input_type(parts[1])]  # type: ignore[valid-type, misc]
    return declared


def _never_from_clients(declared: Any) -> bool:
    """
    Return whether values of a type would let a client name code, or read the server's own data.
    """
    return (
        contains_callable(declared)
        or is_state_type(declared)
        or (isinstance(declared, type) and issubclass(declared, (Secret, Tool, Toolset)))
        or getattr(declared, "__module__", "") == "haystack.dataclasses.breakpoints"
    )


def _servable_members(members: tuple[Any, ...]) -> tuple[Any, ...]:
    """
    Choose the members of a union that a client may send.

    Converters declare their sources as `str | Path | ByteStream`. Strings and paths would name files of the server, so
    clients can send only contents.
    """
    if ByteStream in members:
        members = tuple(member for member in members if member not in (str, Path))
    servable = tuple(member for member in members if is_servable(member))
    if not servable or servable == (NoneType,):
        msg = "No part of the union can be sent as JSON."
        raise UnservableTypeError(msg)
    return servable


# Cached: a nested class would otherwise be described again for every class and union that contains it.
@functools.cache
def _dataclass_type(declared: Any) -> Any:
    """
    Describe any other dataclass of Haystack as an object with its fields. pydantic describes the user's dataclasses.
    """
    hints = get_type_hints(declared, include_extras=True)
    fields: dict[str, Any] = {}
    for field in dataclasses.fields(declared):
        # Clients must not set `validation`, which would turn off the validation of Haystack's contents.
        if field.init and field.name != "validation":
            required = field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
            default = _MISSING if field.default is dataclasses.MISSING else field.default
            description = _DESCRIPTIONS.get(field.name, "")
            fields[field.name] = _field(field.name, ServedInput(hints[field.name], required, default, description))
    return _object_type(declared, lambda values: declared(**values), **fields)


# Haystack's own classes. Their error messages quote values, and clients send some in another form than the fields.


def _object_type(kind: type, make: Callable[[Any], Any], **fields: Any) -> Any:
    """Describe an object with these fields, from which an instance of the class is made."""

    def made(value: Any) -> Any:
        try:
            return make(value)
        except Exception:
            msg = f"this is not a valid {kind.__name__}"
            raise ValueError(msg) from None

    config = ConfigDict(extra="forbid" if kind in _STRICT_CLASSES else "ignore")
    typed = with_config(config)(_typed_dict(kind.__name__, fields, total=False))
    return Annotated[typed, AfterValidator(made)]


# Classes that users and models write: unknown fields are refused. Others come from programs and may have more fields.
_STRICT_CLASSES = (ByteStream, ChatMessage, Document, FileContent, ImageContent, SparseEmbedding, TextContent, ToolCall)
_DESCRIPTIONS = {
    "id": "What the result of the call refers to",
    "meta": "Anything else that is known of it",
    "mime_type": "For example application/pdf",
}
# pydantic's Base64Bytes skips characters that are not base64: a plain text would become other bytes.
_Base64 = Annotated[
    str,
    AfterValidator(lambda text: b64decode("".join(text.split()), validate=True)),
    WithJsonSchema({"format": "base64", "type": "string"}),
]
_Meta = Annotated[dict[str, Any], Field(description=_DESCRIPTIONS["meta"])]
_TYPES_FROM_JSON: dict[Any, Any] = {
    ByteStream: _object_type(
        ByteStream,
        lambda given: ByteStream(**given),
        data=Required[_Base64],
        mime_type=Annotated[str | None, Field(description=_DESCRIPTIONS["mime_type"])],
        meta=_Meta,
    ),
    ChatMessage: _object_type(
        ChatMessage,
        ChatMessage.from_dict,
        role=Required[Literal["user", "system", "assistant", "tool"]],
        content=Required[Annotated[str | list[dict[str, Any]], Field(description="The text, or the parts")]],
        name=str | None,
        meta=_Meta,
    ),
}
_TYPES_FROM_JSON[Document] = _object_type(
    Document,
    lambda given: Document(**{name: value for name, value in given.items() if value is not None}),
    id=Annotated[str | None, Field(description="Made from the contents when it is left out")],
    content=Annotated[str | None, Field(description="The text")],
    meta=_Meta,
    score=float | None,
    blob=_TYPES_FROM_JSON[ByteStream] | None,
    embedding=list[float] | None,
    sparse_embedding=_dataclass_type(SparseEmbedding) | None,
)


class _WithoutTitles(GenerateJsonSchema):
    """
    Leaves out the titles that pydantic makes from names, because they are of no use to a model.
    """

    ignored_warning_kinds = {"skipped-choice", "non-serializable-default"}  # noqa: RUF012

    def field_title_should_be_set(self, schema: Any) -> bool:  # noqa: ARG002
        return False


# Outputs


def output_schema(outputs: Mapping[str, Any], *, include_embeddings: bool = False) -> _Schema:
    """
    Make the JSON schema of a dictionary of outputs.

    No output is required, because it depends on the inputs which branch of a pipeline runs.

    :param outputs: The declared types by the names that clients see.
    :param include_embeddings: Whether Documents are served with their embeddings.
    :returns: The schema of an object.
    """
    fields = {name: NotRequired[_describable(declared)] for name, declared in outputs.items()}
    schema = object_schema(_outputs_type(fields), include_embeddings=include_embeddings)
    schema.pop("title", None)
    schema.setdefault("properties", {})
    return schema


def as_declared(outputs: Mapping[str, Any], types: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the outputs of components as far as they can be of the declared types, which Haystack does not check.

    :param outputs: The outputs by their names.
    :param types: Their declared types.
    :returns: The outputs, except None. What is declared as a text is one: Haystack 2's OutputAdapter and
        ConditionalRouter make a number of "42".
    """
    return {
        name: str(value) if types.get(name) is str and isinstance(value, int | float | list | tuple | dict) else value
        for name, value in outputs.items()
        if value is not None
    }


def object_schema(declared: Any, *, include_embeddings: bool = False) -> _Schema:
    """
    Make the JSON schema of a model, dataclass or typed dictionary.

    :param declared: The class.
    :param include_embeddings: Whether Documents are served with their embeddings.
    :returns: The schema of an object.
    """
    generator = _OutputSchemaGeneratorWithEmbeddings if include_embeddings else _OutputSchemaGenerator
    adapter: TypeAdapter[Any] = TypeAdapter(declared)
    schema = adapter.json_schema(mode="serialization", by_alias=False, schema_generator=generator)
    # The schema of a class that refers to itself is among the definitions, but MCP requires an object at the top.
    reference = schema.get("$ref")
    if reference is None:
        return schema
    definitions = schema["$defs"]
    return {**definitions[reference.removeprefix("#/$defs/")], "$defs": definitions}


def _outputs_type(fields: dict[str, Any]) -> Any:
    return with_config(ConfigDict(arbitrary_types_allowed=True))(_typed_dict("Outputs", fields))


def _describable(declared: Any) -> Any:
    try:
        TypeAdapter(_outputs_type({"value": declared})).json_schema(
            mode="serialization", schema_generator=_OutputSchemaGenerator
        )
    except (PydanticUserError, NameError, TypeError):
        return Any
    return declared


class _OutputSchemaGenerator(_WithoutTitles):
    """
    Describes what `JsonWriter` writes.
    """

    include_embeddings = False

    def float_schema(self, schema: Any) -> _Schema:
        # NaN and infinity are written as null.
        described = super().float_schema(schema)
        return {**described, "type": ["number", "null"]} if described.get("type") == "number" else described

    # Clients in JavaScript require a time zone, which Python's values need not have, and do not support negative
    # durations. With a format, they would reject the whole answer.

    def datetime_schema(self, schema: Any) -> _Schema:
        return _without_format(super().datetime_schema(schema))

    def time_schema(self, schema: Any) -> _Schema:
        return _without_format(super().time_schema(schema))

    def timedelta_schema(self, schema: Any) -> _Schema:
        return _without_format(super().timedelta_schema(schema))

    def decimal_schema(self, schema: Any) -> _Schema:  # noqa: ARG002
        return {"type": ["string", "null"]}

    def dataclass_schema(self, schema: Any) -> _Schema:
        kind = schema["cls"]
        if issubclass(kind, Document):
            return _document_schema(include_embeddings=self.include_embeddings)
        if issubclass(kind, ChatMessage):
            return _CHAT_MESSAGE_SCHEMA
        if issubclass(kind, ByteStream | FileContent | ImageContent):
            return {"title": kind.__name__, "type": "object"}
        # Secrets are written as null.
        return {} if issubclass(kind, Secret) else super().dataclass_schema(schema)

    def handle_invalid_for_json_schema(self, schema: Any, error_info: str) -> _Schema:  # noqa: ARG002
        # Values of such a type are still written, but in an unknown form.
        return {}


def _without_format(schema: _Schema) -> _Schema:
    return {key: each for key, each in schema.items() if key != "format"}


class _OutputSchemaGeneratorWithEmbeddings(_OutputSchemaGenerator):
    include_embeddings = True


# Checks

_ALTERNATIVES: Final = ("anyOf", "oneOf")
# Keywords other than `properties` with which a schema may describe members of an object.
_MEMBER_KEYWORDS: Final = frozenset(
    {
        *_ALTERNATIVES,
        *("allOf", "if", "then", "else", "dependentSchemas", "dependencies"),
        *("$ref", "$dynamicRef", "patternProperties", "propertyNames", "unevaluatedProperties"),
    }
)
# Keywords about which arguments need others, by their names.
_DEPENDENCY_KEYWORDS: Final = ("dependentRequired", "dependentSchemas")
# The maximum number of reasons in an error, and the maximum length of each: it may contain a name that the client has
# made up.
_MAX_REASONS, _MAX_REASON_LENGTH = 10, 1000
# The maximum number of errors that are collected. Finding 500,000 wrong items would take minutes.
_MAX_ERRORS = 10_000
# Converts a text to another type that the schema requires, because models send such values as texts.
_FROM_TEXT: Final[dict[str, TypeAdapter[Any]]] = {
    "integer": TypeAdapter(int),
    "number": TypeAdapter(int | FiniteFloat),
    "boolean": TypeAdapter(bool),
    "object": TypeAdapter(Json[dict[str, Any]]),
    "array": TypeAdapter(Json[list[Any]]),
}


def _pattern(validator: Any, pattern: Any, instance: Any, schema: Any) -> Iterator[SchemaViolation]:
    # A pattern in another dialect (JavaScript, pydantic) cannot be checked here; the tool itself does that.
    with suppress(re.error):
        yield from Draft202012Validator.VALIDATORS["pattern"](validator, pattern, instance, schema)


def _ref(validator: Any, ref: Any, instance: Any, schema: Any) -> Iterator[SchemaViolation]:
    # A reference that leads nowhere, or to another server, cannot be checked either.
    with suppress(Unresolvable):
        yield from Draft202012Validator.VALIDATORS["$ref"](validator, ref, instance, schema)


def _items(validator: Any, items: Any, instance: Any, schema: Any) -> Iterator[SchemaViolation]:
    # jsonschema takes five times as long for a list of plain values, such as an embedding.
    kinds = items["type"] if isinstance(items, dict) and items.keys() == {"type"} else []
    kinds = [kinds] if isinstance(kinds, str) else kinds
    is_plain = isinstance(instance, list) and all(
        any(validator.is_type(each, kind) for kind in kinds) for each in instance
    )
    if not is_plain:
        yield from Draft202012Validator.VALIDATORS["items"](validator, items, instance, schema)


def _is_number(_checker: Any, value: Any) -> bool:
    # NaN, which some clients send, would pass every comparison.
    return Draft202012Validator.TYPE_CHECKER.is_type(value, "number") and isfinite(value)


def _is_integer(_checker: Any, value: Any) -> bool:
    # 5.0 is an integer in JSON, but not for functions. It fails here and is then read as 5: some models write it so.
    return type(value) is int


_extend: Any = validators.extend  # it has no annotations
_Validator = _extend(
    Draft202012Validator,
    {"items": _items, "pattern": _pattern, "$ref": _ref},
    type_checker=Draft202012Validator.TYPE_CHECKER.redefine_many({"number": _is_number, "integer": _is_integer}),
)

# Checks results, which are not converted.
ResultValidator: Final = _extend(Draft202012Validator, {"items": _items})


def invalid_arguments(tool_name: str, reasons: Iterable[str]) -> ToolError:
    """
    Make the error for arguments that cannot be used.

    :param tool_name: The name of the tool.
    :param reasons: What is wrong, without values.
    :returns: The error, which the client sees.
    """
    unique = [each[:_MAX_REASON_LENGTH] for each in dict.fromkeys(reasons)]
    if len(unique) > _MAX_REASONS:
        unique[_MAX_REASONS:] = [f"and {len(unique) - _MAX_REASONS} more"]
    msg = f"Invalid arguments for tool '{tool_name}': {'; '.join(unique)}"
    return ToolError(msg, log_level=logging.WARNING)


class ArgumentCheck:
    """
    Checks the arguments of one tool against its schema, and converts them to the types that the tool takes.
    """

    def __init__(self, tool_name: str, parameters: _Schema, inputs: InputSchema | None = None) -> None:
        """
        Initialize the ArgumentCheck.

        :param tool_name: The name of the tool, for messages.
        :param parameters: JSON schema of the arguments. If it lists them in `properties` only, others are refused, even
            without `additionalProperties`.
        :param inputs: Converts arguments that conform to the schema.
        """
        self._tool_name = tool_name
        self._inputs = inputs
        if _lists_all_arguments(parameters):
            named: _Schema = {name: {} for name in parameters.get("required", ())}
            properties = {**named, **parameters["properties"]}
            parameters = {**parameters, "properties": properties, "additionalProperties": False}
        self._required: Collection[str] = parameters.get("required", ())
        self._validator = _Validator(parameters, registry=Registry())

    def check(self, arguments: dict[str, Any], *, strict: bool) -> dict[str, Any]:
        """
        Check arguments.

        :param arguments: The client's arguments.
        :param strict: Whether to refuse values of another type, even if they can be converted to the right one.
        :returns: The arguments, of the right types.
        :raises ToolError: If they do not conform to the schema, or cannot be converted.
        """
        errors = self._errors(arguments)
        if errors and not strict:
            # Models send null for arguments that they do not want to set.
            optional = {error.path[0] for error in errors if error.instance is None and len(error.path) == 1}
            optional -= set(self._required)
            arguments = {name: each for name, each in arguments.items() if name not in optional}
            errors = self._errors(arguments)
        if errors:
            arguments = copy.deepcopy(arguments)
        while errors:
            unconverted = [
                error for error in errors if not _convert_at(arguments, error, float if strict else (float, str))
            ]
            if len(unconverted) == len(errors) or len(errors) == _MAX_ERRORS:
                raise invalid_arguments(self._tool_name, map(describe_violation, unconverted or errors))
            # The members of objects and lists that were read now are read in the next round.
            errors = self._errors(arguments)
        if self._inputs is None:
            return arguments
        try:
            return self._inputs.convert(arguments)
        except ValidationError as error:
            raise invalid_arguments(self._tool_name, reasons_of(error)) from None

    def _errors(self, arguments: dict[str, Any]) -> list[SchemaViolation]:
        return sorted(islice(self._validator.iter_errors(arguments), _MAX_ERRORS), key=lambda error: error.json_path)


def _convert_at(arguments: dict[str, Any], error: SchemaViolation, convertible: Any) -> bool:
    """
    Convert a value to the type that the schema requires, and return whether that was possible.
    """
    instance: Any = error.instance
    if error.validator == "type" and isinstance(instance, convertible):
        wanted: Any = error.validator_value
        kinds = [wanted] if isinstance(wanted, str) else wanted
        *path, last = error.absolute_path
        place: Any = arguments
        for key in path:
            place = place[key]
        place[last] = _convert(instance, kinds)
        return place[last] is not instance
    return any(_convert_at(arguments, each, convertible) for each in error.context or ())


def _convert(value: Any, kinds: Collection[str]) -> Any:
    """Convert a value to one of the kinds, or return it unchanged if that is not possible."""
    if isinstance(value, float):
        return int(value) if "integer" in kinds and value.is_integer() else value
    for kind in kinds:
        if kind in _FROM_TEXT:
            with suppress(ValidationError):
                return _FROM_TEXT[kind].validate_python(value.strip())
    return value


def _lists_all_arguments(schema: _Schema) -> bool:
    """Return whether a schema lists all arguments in `properties`, but does not say whether others are allowed."""
    return "properties" in schema and "additionalProperties" not in schema and _MEMBER_KEYWORDS.isdisjoint(schema)


def keep_arguments(parameters: _Schema, names: Sequence[str], tool_name: str) -> _Schema:
    """
    Keep some of the arguments in a schema.

    :param parameters: JSON schema of the arguments.
    :param names: The names of the arguments to keep.
    :param tool_name: The name of the tool, for messages.
    :returns: JSON schema of these arguments, which allows no others.
    :raises ValueError: If there is no argument of a name.
    """
    properties = parameters.get("properties", {})
    check_known("inputs", names, properties, f"the arguments of tool '{tool_name}'")
    kept = remove_arguments(parameters, [name for name in properties if name not in names])
    return {**{key: each for key, each in kept.items() if key != "patternProperties"}, "additionalProperties": False}


def remove_arguments(parameters: _Schema, names: Collection[str]) -> _Schema:
    """
    Remove arguments that clients must not see.

    :param parameters: JSON schema of the arguments.
    :param names: The names of the arguments.
    :returns: JSON schema of the others, without keywords that make them depend on the removed ones.
    """
    properties = parameters.get("properties", {})
    if not names or not any(name in properties for name in names):
        return parameters
    left = {key: each for key, each in parameters.items() if key != "minProperties"}
    for key in _DEPENDENCY_KEYWORDS:
        # This also finds names within subschemas. If a keyword is removed that could stay, the tool itself checks it.
        if any(repr(name) in repr(left.get(key)) for name in names):
            del left[key]
    left["properties"] = {name: each for name, each in properties.items() if name not in names}
    if "required" in parameters:
        left["required"] = [name for name in parameters["required"] if name not in names]
    return left
