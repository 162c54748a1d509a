# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Groups of options, which are validated by their types, and errors that say where an unknown parameter belongs.
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
import inspect
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Annotated, Any, ClassVar, Final, Self, TypeAlias, TypeVar
from urllib.parse import urlsplit

from pydantic import ConfigDict, Field, ValidationError, validate_call

C = TypeVar("C", bound=type)
F = TypeVar("F", bound=Callable[..., Any])

# How the fields of groups of options are validated: 1 is not True, and "5" is not a number.
CHECKED: Final = ConfigDict(strict=True, arbitrary_types_allowed=True)

# In seconds: longer than any sensible timeout, and within the limits of locks and clocks on all platforms.
MAX_TIMEOUT: Final = 10_000_000.0
Seconds: TypeAlias = Annotated[float, Field(gt=0, le=MAX_TIMEOUT)]
Text: TypeAlias = Annotated[str, Field(min_length=1)]
Positive: TypeAlias = Annotated[int, Field(ge=1)]

# Types of values that errors may quote. Other values may contain secrets.
_QUOTABLE_TYPES = (bool, int, float, str, type(None))

# Pydantic's names for types in the location of an error.
_PYDANTIC_TYPE_NAMES: Final = ("bool", "dict", "float", "int", "list", "none", "str", "tuple")

# Other packages' names for our parameters.
_NAMES_ELSEWHERE: Final = {
    other: name
    for name, others in {
        "tool_name_prefix": "tool_prefix prefix name_prefix tool_names_prefix",
        "tool_names": "tools allowed_tools include_tools enabled_tools tool_allowlist selected_tools",
        "exclude_tools": "excluded_tools disabled_tools blocked_tools tool_denylist",
        "invocation_timeout": "timeout tool_timeout call_timeout request_timeout client_session_timeout_seconds "
        "timeout_seconds read_timeout_seconds",
        "connection_timeout": "init_timeout startup_timeout connect_timeout initialize_timeout",
        "read_timeout": "sse_read_timeout",
        "on_tool_error": "tool_error_behavior raise_on_error raise_on_failure handle_tool_error handle_tool_errors",
        "include_output_schema": "include_return_schema",
        "interceptors": "process_tool_call tool_interceptors middleware",
        "cache_tools": "cache_tools_list",
        "required_hints": "annotations",
        "eager_connect": "connect autoconnect",
        "headers_provider": "header_provider headers_factory",
        "url": "endpoint server_url uri",
        "token": "bearer_token access_token api_key auth_token authorization authorization_token",
        "auth": "auth_provider oauth",
        "resource": "audience",
        "verify": "ssl_verify verify_ssl ssl",
        "http_transport": "http_client httpx_client httpx_client_factory client",
        "sampling": "sampling_callback sampling_handler",
        "elicitation": "elicitation_callback elicitation_handler",
        "roots": "list_roots_callback roots_callback",
        "logging": "log_handler logging_callback logging_handler",
        "command": "cmd",
        "args": "arguments command_args",
        "env": "env_vars environment",
        "cwd": "working_dir working_directory workdir",
    }.items()
    for other in others.split()
}


@dataclasses.dataclass(frozen=True)
class StoredAs:
    """
    Says how a field of `Options` is stored whose values are not JSON. It belongs in the annotation of the field.

    :param store: Takes the name of the class and the field, and a value, and returns JSON.
    :param load: Takes what was stored, or a value, and returns the value.
    :param show: Takes a value, and returns JSON for traces and the `repr`, without secrets.
    """

    store: Callable[[str, Any], Any] = lambda _, value: list(value) if isinstance(value, (list, tuple)) else value
    load: Callable[[Any], Any] = lambda stored: stored
    show: Callable[[Any], Any] = lambda value: value


class Options:
    """
    Base class of groups of options: frozen pydantic dataclasses, which can be compared and stored.
    """

    # Name of the parameter that takes the group.
    _parameter: ClassVar[str]
    # The exception for an unknown or invalid field.
    _error: ClassVar[type[ValueError]] = ValueError

    @classmethod
    def of(cls, value: Any) -> Self:
        """
        Convert the value of a parameter to this group.

        :param value: The group, a dictionary of its fields, or None for the defaults.
        :returns: The group.
        :raises ValueError: If it is anything else, or a field is unknown or invalid.
        """
        if value is None:
            return cls()
        if isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            return cls.from_dict(value)
        msg = f"`{cls._parameter}` must be of type {cls.__name__}, or a dict of its fields, got {type(value).__name__}"
        raise cls._error(msg)

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """
        Deserialize the group.

        :param data: The result of `to_dict`.
        :returns: The group.
        :raises ValueError: If a field is unknown or invalid.
        """
        known = {each.name for each in dataclasses.fields(cls)}  # type: ignore[arg-type]
        for name in data:
            if name not in known:
                owner = next(base.__name__ for base in cls.__mro__ if base.__name__ in _parameters)
                raise cls._error(_unknown(owner, name))
        return cls(**{name: cls._stored_as(name).load(value) for name, value in data.items()})

    @classmethod
    def _stored_as(cls, name: str) -> StoredAs:
        known = cls.__pydantic_fields__  # type: ignore[attr-defined]
        return next((each for each in known[name].metadata if isinstance(each, StoredAs)), StoredAs())

    def changed(self) -> dict[str, Any]:
        """
        Return the fields that differ from their defaults.

        :returns: The values by name.
        """
        unchanged = unchanged_fields(self)
        fields = [each.name for each in dataclasses.fields(self) if each.name not in unchanged]  # type: ignore[arg-type]
        return {name: getattr(self, name) for name in fields}

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the group.

        :returns: The fields that differ from their defaults: Secrets by their variables, functions by their import
            paths.
        :raises ValueError: If it contains a token-based Secret, which Haystack does not serialize.
        :raises SerializationError: If a value cannot be stored. The message names its field.
        """
        owner = type(self).__name__
        return {name: self._stored_as(name).store(f"{owner}.{name}", each) for name, each in self.changed().items()}

    def _to_trace_dict(self) -> dict[str, Any]:
        return {name: self._stored_as(name).show(value) for name, value in self.changed().items()}

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={value!r}" for name, value in self._to_trace_dict().items())
        return f"{type(self).__name__}({fields})"


# The parameters of each class that `explains_options` has decorated, by class name.
_parameters: Final[dict[str, Mapping[str, inspect.Parameter]]] = {}


def parameters_of(name: str) -> Mapping[str, inspect.Parameter]:
    """
    Return the parameters of a class that `explains_options` has decorated.

    :param name: The name of the class.
    :returns: The parameters by name.
    """
    return _parameters[name]


def explains_options(cls: C) -> C:
    """
    Make errors of a class's constructor say where an unknown parameter belongs, and which field of a group is invalid.

    :param cls: The class; its constructor must not take `**kwargs`.
    :returns: The class.
    """
    construct = cls.__init__  # type: ignore[misc]
    is_group = issubclass(cls, Options)
    parameters = inspect.signature(cls).parameters
    names = [*parameters]
    _parameters[cls.__name__] = parameters

    @functools.wraps(construct)
    def construct_or_explain(self: Any, *args: Any, **options: Any) -> None:
        for name in options:
            if name not in names:
                raise TypeError(_unknown(cls.__name__, name))
        try:
            construct(self, *args, **options)
        except ValidationError as error:
            msg = f"{getattr(cls, '_shown_as', cls.__name__)}: {_describe_error(names, error)}"
        else:
            return
        raise (self._error if is_group else ValueError)(msg)

    cls.__init__ = construct_or_explain  # type: ignore[misc]
    return cls


def checked(error_type: type[ValueError] = ValueError) -> Callable[[F], F]:
    """
    Validate the arguments of a function by their types: 1 is not True, and "5" is not a number.

    :param error_type: The exception for an invalid argument. The message names the parameter and its valid values.
    :returns: A decorator of functions and constructors.
    """

    def decorate(function: F) -> F:
        signature = inspect.signature(function)
        validated = validate_call(config=CHECKED)(function)
        owner = function.__qualname__.removesuffix(".__init__")
        known = [name for name in signature.parameters if name != "self"]
        takes_others = any(each.kind is each.VAR_KEYWORD for each in signature.parameters.values())

        @functools.wraps(function)
        def call(*args: Any, **options: Any) -> Any:
            if unknown := [name for name in options if name not in known and not takes_others]:
                msg = f"{owner} has no parameter '{unknown[0]}'. {_closest(unknown[0], known)}"
                raise TypeError(msg)
            try:
                signature.bind(*args, **options)
            except TypeError as error:
                msg = f"{function.__qualname__}() {error}"
                raise TypeError(msg) from None
            try:
                return validated(*args, **options)
            except ValidationError as error:
                msg = f"{owner}: {_describe_error(list(signature.parameters), error)}"
            raise error_type(msg)

        return call  # type: ignore[return-value]

    return decorate


def _describe_error(names: list[str], error: ValidationError) -> str:
    # If a parameter takes several types, report the error of the type that the value comes closest to.
    errors = error.errors(include_url=False)
    first = max(errors, key=lambda each: len(each["loc"]))
    name, *inside = first["loc"] or ("",)
    place = f"`{names[name] if isinstance(name, int) else name}`"
    # Other parts of pydantic's location are about its own schema, or name the expected class.
    expected = first.get("ctx", {}).get("class_name", "")
    no_keys = (*_PYDANTIC_TYPE_NAMES, expected)
    keys = [each for each in inside if isinstance(each, int) or (each.isidentifier() and each not in no_keys)]
    if keys:
        place += f" ({keys[-1]})"
    if first["type"] == "missing":
        return f"{place} is missing"
    if first["type"] == "unexpected_positional_argument":
        return f"pass its parameters by their names{f', after the first {name}' if name else ''}"
    if first["type"] == "value_error":
        problem = str(first.get("ctx", {}).get("error"))
        return f"{place} {problem}" if problem.startswith("must") else problem
    value = first["input"]
    # A value inside a mapping, or in place of a mapping, a list or a Secret, may be secret. A number out of bounds is
    # not.
    is_secret = first.get("ctx", {}).get("class") == "Secret"
    is_hidden = bool(inside) or is_secret or first["type"] in ("dict_type", "list_type", "sequence_str")
    is_out_of_bounds = first["type"].startswith(("greater_than", "less_than"))
    is_shown = isinstance(value, _QUOTABLE_TYPES) and (is_out_of_bounds or not is_hidden)
    shown = repr(value) if is_shown else type(value).__name__
    problem = re.sub(r"^\w+ should", "must", first["msg"]).partition(" after validation")[0]
    if first["type"] == "sequence_str" or first.get("ctx", {}).get("class") == "Sequence":
        problem = "must be a valid list"
    elif expected and any(each["type"] == "dict_type" for each in errors):
        problem = f"must be of type {expected}, or a dict of its fields"
    return f"{place} {problem}, got {shown}"


def _unknown(owner: str, name: str) -> str:
    return f"{owner} has no parameter '{name}'. {_advice(owner, name)}"


def _advice(owner: str, name: str) -> str:
    our_name = _NAMES_ELSEWHERE.get(name, name)
    if our_name in _parameters[owner]:
        return f"Use `{our_name}`."
    places = [place for place, parameters in _parameters.items() if our_name in parameters]
    return f"`{our_name}` is a parameter of {', '.join(places)}." if places else _closest(name, _parameters[owner])


def _closest(name: str, names: Iterable[str]) -> str:
    closest = difflib.get_close_matches(name, names, 1)
    return f"Did you mean `{closest[0]}`?" if closest else f"It has: {', '.join(names)}."


def texts(name: str, value: Any) -> list[str]:
    """
    Check that the value of a parameter is a list of strings, and not a string, which would be a list of its letters.

    :param name: Name of the parameter.
    :param value: The value. Errors do not quote it.
    :returns: The strings.
    :raises ValueError: If it is anything else.
    """
    items = None if isinstance(value, str | bytes) or not isinstance(value, Iterable) else list(value)
    if items is None or not all(isinstance(each, str) for each in items):
        actual = type(value).__name__ if items is None else "one with other items"
        msg = f"`{name}` must be a list of strings, got {actual}"
        raise ValueError(msg)
    return items


def own_parameters(instance: object, cls: Any) -> dict[str, Any]:
    """
    Return the parameters of an object whose constructor stores each in an attribute of the same name.

    :param instance: The object.
    :param cls: The class that has the constructor. A subclass may have a different constructor.
    :returns: The values by name.
    """
    _, *names = inspect.signature(cls.__init__).parameters
    return {name: getattr(instance, name) for name in names}


def is_url(url: object, schemes: Collection[str] = ("http", "https")) -> bool:
    """
    Return whether a value is a URL with a host.

    :param url: The value.
    :param schemes: The allowed schemes.
    :returns: True for a URL with one of these schemes and a host.
    """
    try:
        parts = urlsplit(url) if isinstance(url, str) else None
        return parts is not None and parts.scheme in schemes and bool(parts.hostname) and parts.port != 0
    except ValueError:  # e.g. a port that is not a number, or an unclosed bracket of an IPv6 address
        return False


def short_repr(cls: C) -> C:
    """
    Omit fields with their default value from the `repr` of a dataclass.

    :param cls: The dataclass.
    :returns: The class.
    """

    def __repr__(self: Any) -> str:  # noqa: N807
        unchanged = unchanged_fields(self)
        names = [field.name for field in dataclasses.fields(self) if field.repr and field.name not in unchanged]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    cls.__repr__ = __repr__  # type: ignore[assignment, method-assign]
    return cls


def unchanged_fields(instance: Any) -> set[str]:
    """
    List the fields of a dataclass that have their default value.

    :param instance: The object.
    :returns: Their names; empty if the object is not a dataclass.
    """
    if not dataclasses.is_dataclass(instance):
        return set()
    return {field.name for field in dataclasses.fields(instance) if getattr(instance, field.name) == _default(field)}


def _default(field: dataclasses.Field[Any]) -> Any:
    factory = field.default_factory
    return field.default if factory is dataclasses.MISSING else factory()
