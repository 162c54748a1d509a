# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What wraps the calls of tools: the request that interceptors get, and how they are given and stored.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any

from haystack.core.errors import SerializationError
from haystack.utils import Secret, deserialize_callable

from haystack_integrations.tools.mcp.handlers.calling import is_asynchronous
from haystack_integrations.tools.mcp.haystack_compat import deserialize_object, serialize_object
from haystack_integrations.tools.mcp.import_paths import import_object, store_callable


@dataclass(frozen=True, kw_only=True)
class MCPToolCall:
    """
    The call of a tool, as interceptors see it on its way to the server.

    It cannot be changed; `override` makes another one. Its `repr` shows no values.

    :param name: Name of the tool at the server.
    :param arguments: The arguments as the server would get them, those from the State and `bound_arguments` included,
        with the values of Secrets.
    :param meta: The `_meta` of the request, that of `mcp_request_context` included.
    :param headers: The HTTP headers of `mcp_request_context`. Those of the server info, its token and its providers
        are sent beside them, unless they have the same name.
    :param user: The `user` of `mcp_request_context`.
    :param server: The server, in words and without secrets.
    :param may_repeat: Whether the tool may run twice, so that a call whose outcome is unknown may be sent again.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    meta: Mapping[str, Any] = field(default_factory=dict)
    headers: Mapping[str, str | Secret] = field(default_factory=dict)
    user: str | None = None
    server: str = ""
    may_repeat: bool = False

    def __post_init__(self) -> None:
        """
        Validate the fields.

        :raises ValueError: If one is invalid. The message names it and what it takes, without values.
        """
        if not isinstance(self.name, str) or not self.name:
            msg = f"MCPToolCall: `name` must be a non-empty string, got {type(self.name).__name__}"
            raise ValueError(msg)
        for name in ("arguments", "meta", "headers"):
            value = getattr(self, name)
            if not isinstance(value, Mapping) or not all(isinstance(key, str) for key in value):
                msg = f"MCPToolCall: `{name}` must be a dict with strings as keys, got {type(value).__name__}"
                raise ValueError(msg)
            # A copy, so that nobody changes what is sent later.
            object.__setattr__(self, name, MappingProxyType(dict(value)))
        for header, content in self.headers.items():
            if not isinstance(content, (str, Secret)):
                msg = (
                    "MCPToolCall: `headers` maps strings to strings or Secrets; the value of "
                    f"{header!r} is of type {type(content).__name__}"
                )
                raise ValueError(msg)
        if self.user is not None and (not isinstance(self.user, str) or not self.user):
            msg = f"MCPToolCall: `user` must be a non-empty string or None, got {type(self.user).__name__}"
            raise ValueError(msg)

    def override(
        self,
        *,
        name: str | None = None,
        arguments: Mapping[str, Any] | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | Secret] | None = None,
        user: str | None = None,
    ) -> MCPToolCall:
        """
        Make a call that differs from this one. `None` leaves a thing as it is.

        :param name: Name of another tool of the server.
        :param arguments: All arguments, e.g. `{**call.arguments, "limit": 10}`.
        :param meta: All of the `_meta`.
        :param headers: All headers. Only servers over HTTP take any; others refuse the call. Where a server keeps
            sessions, each different set of headers has one of its own, unless there is a `user`.
        :param user: On whose behalf the call is made: where a server keeps sessions, each user has one.
        :returns: The other call.
        :raises ValueError: If a value is invalid.
        """
        changes = {"name": name, "arguments": arguments, "meta": meta, "headers": headers, "user": user}
        return dataclasses.replace(self, **{key: value for key, value in changes.items() if value is not None})  # type: ignore[arg-type]

    def __repr__(self) -> str:
        """
        Describe the call without the values of arguments and headers.
        """
        return (
            f"MCPToolCall(name={self.name!r}, arguments={sorted(self.arguments)!r}, meta={sorted(self.meta)!r}, "
            f"headers={sorted(self.headers)!r}, server={self.server!r})"
        )


@dataclass(frozen=True)
class Interceptor:
    """
    One function that wraps calls, and how it was given.

    :param function: The function, or an object that can be called.
    :param given: What the user gave: the function, or its import path.
    """

    function: Callable[[MCPToolCall, Any], Any] = field(compare=False)
    given: Any

    @cached_property
    def name(self) -> str:
        """
        The name of the function, for errors.
        """
        known = self.given if hasattr(self.given, "__qualname__") else type(self.given)
        return self.given if isinstance(self.given, str) else f"{known.__module__}.{known.__qualname__}"

    @cached_property
    def is_async(self) -> bool:
        """
        Whether the function has to be awaited.
        """
        return is_asynchronous(self.function)

    def stored(self) -> Any:
        """
        Serialize the interceptor.

        :returns: Its import path, or the dictionary of an object with `to_dict`.
        :raises SerializationError: If there is none.
        """
        if isinstance(self.given, str):
            return self.given
        if callable(getattr(self.given, "to_dict", None)) and not isinstance(self.given, type):
            return serialize_object("interceptors", self.given)
        try:
            return store_callable(f"`interceptors`: '{self.name}'", self.given)
        except SerializationError as error:
            msg = f'{error}, an object with `to_dict` and `from_dict`, or an import path, "package.module:name".'
            raise SerializationError(msg) from error


class Interceptors(tuple[Interceptor, ...]):
    """
    What wraps the calls of a connection, outermost first. Free of the MCP SDK, so that loading YAML stays cheap.
    """

    __slots__ = ()

    def to_dict(self) -> list[Any]:
        """
        Serialize the interceptors.

        :returns: A list of import paths, and of dictionaries for objects with `to_dict`.
        :raises SerializationError: If one cannot be stored.
        """
        return [each.stored() for each in self]

    def _to_trace_dict(self) -> list[str]:
        return [each.name for each in self]


def check_interceptors(given: Any) -> Interceptors:
    """
    Check the value of `interceptors`, and import what is given by import path.

    :param given: Functions, objects that can be called and import paths, or None.
    :returns: The interceptors.
    :raises ValueError: If it is something else, or something cannot be imported.
    """
    if isinstance(given, Interceptors):
        return given
    if given is None:
        return Interceptors()
    if isinstance(given, (str, Mapping)) or not isinstance(given, Sequence):
        msg = (
            "`interceptors` must be a list of functions or import paths, outermost first, or None, got "
            f"{type(given).__name__}"
        )
        raise ValueError(msg)
    return Interceptors(_checked(each, _imported) for each in given)


def load_interceptors(stored: Any) -> Any:
    """
    Deserialize interceptors. Modules must be on Haystack 3's allowlist.

    :param stored: The result of `Interceptors.to_dict`.
    :returns: The interceptors.
    :raises DeserializationError: If one cannot be imported.
    """
    if not isinstance(stored, Iterable) or isinstance(stored, (str, Mapping)):
        return stored  # the constructor refuses it
    return Interceptors(
        _checked(deserialize_object(each) if isinstance(each, dict) else each, _deserialized) for each in stored
    )


def _checked(given: Any, find: Callable[[str], Any]) -> Interceptor:
    if isinstance(given, Interceptor):
        return given
    found = find(given) if isinstance(given, str) else given
    try:
        function = found() if isinstance(found, type) else found
    except TypeError as error:
        msg = (
            f"`interceptors`: the class '{found.__qualname__}' cannot be called without arguments ({error}); give an "
            "object of it"
        )
        raise ValueError(msg) from error
    if not callable(function):
        what = f"'{given}', which is {type(function).__name__}" if isinstance(given, str) else type(function).__name__
        msg = (
            "`interceptors` must contain functions that take an MCPToolCall and `call_next`, or import paths "
            f'"package.module:name" of such functions, got {what}'
        )
        raise ValueError(msg)
    interceptor = Interceptor(function, given)
    try:
        inspect.signature(function).bind(None, None)
    except TypeError:
        msg = (
            f"`interceptors`: '{interceptor.name}' must take two arguments, the MCPToolCall and `call_next`, as in "
            "`def interceptor(call, call_next): return call_next(call)`"
        )
        raise ValueError(msg) from None
    except ValueError:  # a function in C that does not tell what it takes
        pass
    return interceptor


def _deserialized(path: str) -> Any:
    return deserialize_callable(path.replace(":", "."))


def _imported(path: str) -> Any:
    try:
        return import_object(path if ":" in path else ":".join(path.rsplit(".", 1)))
    except (ImportError, ValueError) as error:
        msg = f"`interceptors`: '{path}' cannot be imported ({error}). Give a function, or \"package.module:name\""
        raise ValueError(msg) from error
