# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The user on whose behalf calls are made.

A context variable carries the user into the threads of an Agent's tools and into the tasks of the executor, which run
in copies of their caller's context.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final

from haystack.utils import Secret

from haystack_integrations.tools.mcp.parameters import short_repr

__all__ = ["MCPRequestContext", "mcp_request_context"]

_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")

# Authentication schemes, which precede a credential.
_SCHEMES = ("bearer", "basic")


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPRequestContext:
    """
    The user on whose behalf calls are made. `mcp_request_context` creates it for providers of headers and tokens.

    :param user: A name that identifies the user. It is not sent.
    :param token: Sent as `Authorization: Bearer <token>`.
    :param headers: HTTP headers.
    :param meta: The `_meta` of requests.
    """

    user: str | None = None
    token: str | Secret | None = field(default=None, repr=False)
    headers: Mapping[str, str | Secret] | None = field(default=None, repr=False)
    meta: Mapping[str, Any] | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        """
        Check the parameters.

        :raises ValueError: If a parameter is invalid. The message names it and its valid values.
        """
        for name, kinds, choices in (
            ("user", str, "a string"),
            ("token", (str, Secret), "a string or a Secret"),
            ("headers", Mapping, "a dict"),
            ("meta", Mapping, "a dict"),
        ):
            value = getattr(self, name)
            # An empty token is a mistake: the call would be sent without a token.
            if value is not None and (not isinstance(value, kinds) or value == ""):
                actual = "an empty string" if value == "" else type(value).__name__
                msg = f"mcp_request_context: `{name}` must be {choices}, or None, got {actual}"
                raise ValueError(msg)


def bearer(token: str) -> str:
    """
    Return the value of the header `Authorization` for a token.

    :param token: The token, or the complete value with the word "Bearer", as users copy it.
    :returns: The value.
    """
    return token if token[:7].lower() == "bearer " else f"Bearer {token}"


class IdentityRefusedError(ValueError):
    """
    Raised when nothing is sent on behalf of a caller. Its message is our own text, without any credential.
    """


def problem_with_headers(headers: Mapping[str, str]) -> str | None:
    """
    Describe what is wrong with headers. The errors of the HTTP libraries cannot be used, because they quote the value.

    :param headers: The headers.
    :returns: A clause without values; None if they can be sent.
    """
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            begin = _HEADER_NAME.match(name)  # the rest may be a value, as in "X-Api-Key: …"
            which = f"a header that begins with '{begin[0]}'" if begin else "a header"
            return f"the name of {which} is empty, or has a character that HTTP does not allow there"
        if not value.isascii() or not value.isprintable() or value != value.strip():
            if value.rstrip().lower() in _SCHEMES:
                return f"the value of the header '{name}' has nothing after its first word: a token is empty"
            return (
                f"the value of the header '{name}' has a line break, leading or trailing white space, or a character "
                "that is not ASCII"
            )
    return None


@dataclass(frozen=True, kw_only=True, repr=False)
class Identity:
    """
    The part of a caller's identity that an operation sends, with the values of secrets.

    :param key: Callers with equal keys may share a session, in revisions that have sessions. None for the identity of
        the server info.
    :param headers: HTTP headers.
    """

    key: Any = None
    headers: Mapping[str, str] = field(default_factory=dict, repr=False)


current_context: ContextVar[MCPRequestContext | None] = ContextVar("haystack_mcp_request_context", default=None)

# The task of the request that the running code belongs to, while the request is in flight.
current_request: ContextVar[asyncio.Task[Any] | None] = ContextVar("haystack_mcp_request", default=None)

# The identity of the server info.
NO_IDENTITY: Final = Identity()

# The identity of the running operation, set in its task.
current_identity: ContextVar[Identity] = ContextVar("haystack_mcp_identity", default=NO_IDENTITY)


def current_user() -> str | None:
    """
    Return the user whose tokens the running operation needs.

    :returns: The user; None for the tokens of the server info.
    """
    key = current_identity.get().key
    return key if isinstance(key, str) else None


@contextmanager
def mcp_request_context(
    *,
    user: str | None = None,
    token: str | Secret | None = None,
    headers: Mapping[str, str | Secret] | None = None,
    meta: Mapping[str, Any] | None = None,
) -> Iterator[MCPRequestContext]:
    """
    Make all tool calls and other requests to servers in this block on behalf of a user.

    Blocks for other users may run at the same time.

    The block applies to everything that runs in it, e.g. `pipeline.run` or `await agent.run_async`, in all threads and
    tasks that Haystack starts for it. A nested block replaces the outer block entirely.

    ### Usage example

    ```python
    from mcp.server import MCPServer
    from mcp.server.mcpserver import Context
    from haystack_integrations.tools.mcp import InProcessServerInfo, MCPTool, mcp_request_context

    server = MCPServer("greeter")

    @server.tool()
    def greet(context: Context) -> str:
        return f"Hello, {context.request_context.meta['name']}!"

    with MCPTool("greet", InProcessServerInfo(server)) as tool:
        with mcp_request_context(meta={"name": "Alice"}):
            print(tool.invoke())
    ```

    :param user: A name that identifies the user. It is not sent. If a server keeps sessions, each user has one.
    :param token: Sent as `Authorization: Bearer <token>`. It replaces the token of the server info.
    :param headers: HTTP headers. They replace headers of the server info with the same names.
    :param meta: The `_meta` of tool calls, and of requests for resources, prompts and the like: JSON. A call's own
        `meta` takes precedence.
    :returns: A context manager. `token` and `headers` need a server over HTTP; other servers refuse the call.
    :raises ValueError: If a parameter is invalid.
    :raises RuntimeError: At the end of the block, if it began in another thread or task.
    """
    context = MCPRequestContext(user=user, token=token, headers=headers, meta=meta)
    token_of_block = current_context.set(context)
    try:
        yield context
    finally:
        try:
            current_context.reset(token_of_block)
        except ValueError:
            msg = (
                "mcp_request_context: the block ends in another thread or task than it began in, so calls in between "
                "were not on its behalf. Enter it where the calls are made; in FastAPI, in the endpoint, in a "
                "middleware or in an `async def` dependency"
            )
            raise RuntimeError(msg) from None


def meta_of_call(meta: dict[str, Any] | None) -> dict[str, Any] | None:
    """
    Merge the `_meta` of a request with the `meta` of the block in which it is made.

    :param meta: The `meta` of the call itself, which takes precedence.
    :returns: The merged `_meta`; None if there is neither.
    """
    context = current_context.get()
    return {**context.meta, **(meta or {})} if context is not None and context.meta else meta
