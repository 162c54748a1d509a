# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""Additions to a call of this package whose overhead is measured. To add one, add a function."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Extra:
    """An addition to calls."""

    parameters: dict[str, Any] = field(default_factory=dict)
    """Parameters of the toolset."""
    context: Callable[[], AbstractContextManager[Any]] = nullcontext
    """Creates the context manager in which each call is made."""


def _ignore(_: Any) -> None:
    pass


def progress(package: Any, target: dict[str, Any]) -> Extra:  # noqa: ARG001
    """Each call asks for reports of progress."""
    return Extra({"handlers": package.MCPHandlers(progress=_ignore)})


def handlers(package: Any, target: dict[str, Any]) -> Extra:  # noqa: ARG001
    """There is a handler for every request of the server."""
    functions = {"sampling": lambda _: "Hi!", "elicitation": lambda _: False, "logging": _ignore, "messages": _ignore}
    return Extra({"handlers": package.MCPHandlers(**functions, roots=["/tmp"])})  # noqa: S108


def context(package: Any, target: dict[str, Any]) -> Extra:
    """Each call is made on behalf of a user."""
    identity: dict[str, Any] = {"user": "alice", "meta": {"tenant": "a"}}
    if "url" in target:
        identity |= {"token": "t0ken-of-alice", "headers": {"X-Tenant": "a"}}
    return Extra(context=lambda: package.mcp_request_context(**identity))


def interceptor(package: Any, target: dict[str, Any]) -> Extra:  # noqa: ARG001
    """Each call goes through an async interceptor that changes nothing."""
    return Extra({"interceptors": [_pass_on]})


async def _pass_on(call: Any, call_next: Callable[[Any], Any]) -> Any:
    return await call_next(call)


EXTRAS = {extra.__name__: extra for extra in (progress, handlers, context, interceptor)}
