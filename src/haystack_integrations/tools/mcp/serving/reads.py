# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import anyio
from fastmcp.exceptions import FastMCPError, NotFoundError, PromptError, ResourceError, ValidationError
from fastmcp.server.transforms import Visibility

from haystack_integrations.tools.mcp.serving.options import ServeOptions
from haystack_integrations.tools.mcp.serving.pool import CallPool, ServerBusyError

T = TypeVar("T")

# Marks what `ServeOptions(enabled=False)` hides. It is not left out, so that `server.enable` shows it.
HIDE = Visibility(False, match_all=True)

# What may stand in a URI as it is.
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class NoSuchThingError(FastMCPError, NotFoundError):
    """
    Raised when a client names something that is not there. FastMCP answers it as any other unknown name.
    """

    def __init__(self, message: str) -> None:
        """
        Initialize the NoSuchThingError.

        :param message: For the log.
        """
        super().__init__(message, log_level=logging.INFO)


def refused(message: str) -> ValidationError:
    """
    Make the error for an argument of a client that cannot be used. The client sees the message.

    :param message: What is wrong with it, without the argument itself.
    :returns: The error.
    """
    return ValidationError(message, log_level=logging.INFO)


class ReadPlaces:
    """
    Where reads of one served thing run: in threads, within the limits of its options.
    """

    def __init__(
        self, what: str, options: ServeOptions, pool: CallPool, error: type[ResourceError | PromptError]
    ) -> None:
        """
        Initialize the ReadPlaces.

        :param what: What is read, for messages.
        :param options: Its options.
        :param pool: The pool, unless the options have a limit of their own.
        :param error: What to raise, so that the client sees the message.
        """
        self._what = what
        self._timeout = options.timeout
        self._pool = pool if options.max_concurrency is None else CallPool(options.max_concurrency)
        self._error = error

    async def run(self, function: Callable[..., T], *args: Any) -> T:
        """
        Run a blocking function in a thread.

        :param function: The function.
        :param args: Its arguments.
        :returns: What it returns.
        :raises ResourceError: Or `PromptError`, if it takes too long, or the server has too much to do.
        """
        try:
            with anyio.move_on_after(self._timeout):
                async with self._pool.place() as place:
                    return await place.in_thread(function, *args)
        except ServerBusyError as error:
            raise self._error(str(error)) from None
        msg = f"{self._what} took longer than {self._timeout} s"
        raise self._error(msg)


def checked_names(parameter: str, things: Any, kind: str) -> dict[str, Any]:
    """
    Check what a user gave to be served by names.

    :param parameter: The parameter.
    :param things: What was given.
    :param kind: What it should contain, for messages.
    :returns: The things by their names.
    :raises ValueError: If it is no dictionary, or a name cannot stand in a URI.
    """
    if not isinstance(things, Mapping):
        msg = f"`{parameter}` must be a dictionary of names to {kind}, got {type(things).__name__}"
        raise ValueError(msg)
    for name in things:
        if not isinstance(name, str) or not _NAME.fullmatch(name):
            msg = f"A name in `{parameter}` must consist of letters, digits, '_', '-' and '.', got {name!r}"
            raise ValueError(msg)
    return dict(things)
