# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Stores functions of the user, and objects of this package, by their import paths.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final, TypeVar

from haystack.core.errors import SerializationError
from haystack.utils import deserialize_callable, serialize_callable

from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.parameters import StoredAs

T = TypeVar("T")

# At least two letters before the colon, because a single letter is a Windows drive.
_IMPORT_PATH = re.compile(r"[^\W\d]\w+(?:\.[^\W\d]\w*)*:[^\W\d]\w*(?:\.[^\W\d]\w*)*")


def stored_in(package: str) -> Callable[[T], T]:
    """
    Make a class or function be stored under its public package, so that its file may move.

    :param package: The public package.
    :returns: A decorator.
    """

    def name_package(value: T) -> T:
        if isinstance(value, type):  # evaluated later, its annotations would be looked up in the public package
            value.__annotations__ = inspect.get_annotations(value, eval_str=True)
        value.__module__ = package
        return value

    return name_package


def is_import_path(value: object) -> bool:
    """
    Return whether a value has the form `"package.module:attribute"`.

    :param value: Any value.
    :returns: True for such a string.
    """
    return isinstance(value, str) and _IMPORT_PATH.fullmatch(value) is not None


def leads_to_a_module(path: str) -> bool:
    """
    Return whether the top-level package of an import path exists, without importing it.

    :param path: `"package.module:attribute"`.
    :returns: True if it exists.
    """
    name = path.partition(":")[0].partition(".")[0]
    try:
        return name in sys.modules or importlib.util.find_spec(name) is not None
    except (ImportError, ValueError):
        return False


def import_object(path: str) -> Any:
    """
    Import the object that a path names. Importing a module may take long, so do not call this in an event loop.

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


def import_path_of(owner: str, parameter: str, value: Any) -> str:
    """
    Return the import path under which a function can be stored.

    :param owner: The name of the class that has the field.
    :param parameter: Name of the field.
    :param value: The function, or a string, which is returned unchanged.
    :returns: The path.
    :raises ValueError: If importing the path would not return the same object.
    """
    if isinstance(value, str):
        return value
    path = f"{getattr(value, '__module__', None)}:{getattr(value, '__qualname__', None)}"
    with suppress(ImportError):
        if is_import_path(path) and import_object(path) == value:
            return path
    msg = (
        f"{owner}: `{parameter}` holds an object of type {type(value).__name__} that cannot be stored, "
        f'because no import path leads to it. Pass an import path, `{parameter}="package.module:name"`, or a function '
        "at the top level of a module"
    )
    raise ValueError(msg)


def store_callable(what: str, function: Any) -> str:
    """
    Serialize a function as Haystack does, and check that the path leads to it.

    :param what: The name of the function's field, for the error message.
    :param function: The function.
    :returns: Its import path, for `deserialize_callable` of Haystack.
    :raises SerializationError: If no import path leads to it.
    """
    try:
        path = serialize_callable(function)
        # Not `deserialize_callable`: which modules may be loaded is decided when loading, not when storing.
        found = import_object(f"{inspect.getmodule(function).__name__}:{function.__qualname__}")  # type: ignore[union-attr]
    except Exception as error:
        msg = f"{what} cannot be serialized: {str(error).rstrip('.')}. Use a function at the top of a module"
        raise SerializationError(msg) from error
    # Decorators of Haystack, such as `@tool`, replace a function with an object that contains it.
    if function not in (found, getattr(found, "function", None), getattr(found, "async_function", None)):
        msg = f"{what} cannot be serialized: '{path}' is something else. Use a function at the top of a module"
        raise SerializationError(msg)
    return path


def _load_function(stored: Any) -> Any:
    return deserialize_callable(stored) if isinstance(stored, str) else stored


def shown_function(function: Any) -> str:
    """
    Return the name of a function for traces.

    :param function: The function, or another object.
    :returns: Its name, or that of its class.
    """
    return str(getattr(function, "__qualname__", type(function).__qualname__))


# Functions in options, which are stored as Haystack does.
FUNCTION: Final = StoredAs(lambda what, function: store_callable(f"`{what}`", function), _load_function, shown_function)


async def call_provider(provider: str | Callable[..., Any], argument: object) -> Any:
    """
    Call a function of the user: an async function here, any other function in its own thread.

    :param provider: The function, or its import path.
    :param argument: Its argument.
    :returns: Its result.
    """

    def called() -> Any:
        function = import_object(provider) if isinstance(provider, str) else provider
        return function(argument)

    if inspect.iscoroutinefunction(provider):
        return await provider(argument)
    # Not in a thread pool: a function that waits for a person would block others there.
    result = await start_in_thread(called, name="mcp-haystack-provider")
    return await result if inspect.isawaitable(result) else result
