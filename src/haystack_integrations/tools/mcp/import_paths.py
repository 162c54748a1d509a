# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is stored by its import path: functions of the user, and objects of ours.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from typing import Any, TypeVar

from haystack.core.errors import SerializationError
from haystack.utils import serialize_callable

from haystack_integrations.tools.mcp.concurrency import start_in_thread

T = TypeVar("T")

# Two letters at least before the colon: one is a drive of Windows.
_IMPORT_PATH = re.compile(r"[^\W\d]\w+(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def stored_in(package: str) -> Callable[[T], T]:
    """
    Let a class or function be stored by the package that it is public in, so that its file may move.

    :param package: The package.
    :returns: A decorator.
    """

    def name_package(value: T) -> T:
        if isinstance(value, type):  # whoever evaluates its annotations later looks for their names in the package
            value.__annotations__ = inspect.get_annotations(value, eval_str=True)
        value.__module__ = package
        return value

    return name_package


def is_import_path(value: object) -> bool:
    """
    Return whether a value is like `"package.module:attribute"`.

    :param value: Any value.
    :returns: True for such a string.
    """
    return isinstance(value, str) and _IMPORT_PATH.fullmatch(value) is not None


def leads_to_a_module(path: str) -> bool:
    """
    Return whether the first package in an import path is there, without importing it.

    :param path: `"package.module:attribute"`.
    :returns: True if it is.
    """
    name = path.partition(":")[0].partition(".")[0]
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def import_object(path: str) -> Any:
    """
    Import what a path names. Importing a module may take long, so this is not for an event loop.

    :param path: `"package.module:attribute"`.
    :returns: The object.
    :raises ImportError: If there is no such module, or no such object in it.
    """
    module, _, attribute = path.partition(":")
    found = importlib.import_module(module)
    for name in attribute.split("."):
        try:
            found = getattr(found, name)
        except AttributeError:
            msg = f"there is no '{attribute}' in the module '{module}'"
            raise ImportError(msg) from None
    return found


def import_path_of(owner: object, parameter: str, value: Any) -> str:
    """
    Return the path by which a function can be stored.

    :param owner: The server info.
    :param parameter: Name of the field.
    :param value: The function, or a string, which stays as it is.
    :returns: The path.
    :raises ValueError: If importing it would not give the same object.
    """
    if isinstance(value, str):
        return value
    path = f"{getattr(value, '__module__', None)}:{getattr(value, '__qualname__', None)}"
    try:
        if is_import_path(path) and import_object(path) == value:
            return path
    except ImportError:
        pass
    msg = (
        f"{type(owner).__name__}: `{parameter}` holds an object of type {type(value).__name__} that cannot be stored, "
        f'because no import path leads to it. Pass an import path, `{parameter}="package.module:name"`, or a function '
        "at the top level of a module"
    )
    raise ValueError(msg)


def store_callable(what: str, function: Any) -> str:
    """
    Serialize a function as Haystack does, and check that the path leads to it.

    :param what: Names it in the error.
    :param function: The function.
    :returns: Its import path, for `deserialize_callable` of Haystack.
    :raises SerializationError: If no import path leads to it.
    """
    try:
        path = serialize_callable(function)
        # Not with `deserialize_callable`: the modules that may be loaded are the business of whoever loads.
        found = import_object(f"{inspect.getmodule(function).__name__}:{function.__qualname__}")  # type: ignore[union-attr]
    except Exception as error:
        msg = f"{what} cannot be serialized: {str(error).rstrip('.')}. Use a function at the top of a module"
        raise SerializationError(msg) from error
    # Decorators of Haystack, such as `@tool`, put an object with the function in its place.
    if function not in (found, getattr(found, "function", None), getattr(found, "async_function", None)):
        msg = f"{what} cannot be serialized: '{path}' is something else. Use a function at the top of a module"
        raise SerializationError(msg)
    return path


async def provide(provider: str | Callable[..., Any], argument: object) -> Any:
    """
    Call a function of the user: an async one here, any other one in a thread of its own.

    :param provider: The function, or its import path.
    :param argument: Its argument.
    :returns: Its result.
    """

    def called() -> Any:
        function = import_object(provider) if isinstance(provider, str) else provider
        return function(argument)

    if inspect.iscoroutinefunction(provider):
        return await provider(argument)
    # Of its own: one that waits for a person must not hold up others, as one of a pool may.
    result = await start_in_thread(called, name="mcp-haystack-provider")
    return await result if inspect.isawaitable(result) else result
