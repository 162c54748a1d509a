# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Authentication that the user brings: any `httpx2.Auth`, or a token source of Haystack.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

import anyio.to_thread
import httpx2

from haystack_integrations.tools.mcp.auth.outgoing import REQUEST_TIMEOUT
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.import_paths import import_object
from haystack_integrations.tools.mcp.protocol.error_texts import describe_error
from haystack_integrations.tools.mcp.request_context import current_identity


def load_auth(value: Any) -> httpx2.Auth:
    """
    Return the `httpx2.Auth` that `auth` of a server info stands for. It may import a module.

    :param value: The object, or the import path of one, or of a function that makes one.
    :returns: The object.
    :raises ValueError: If it is something else.
    """
    try:
        found = import_object(value) if isinstance(value, str) else value
    except ImportError as error:
        module = value.partition(":")[0]
        if "." in module and module in sys.modules:
            raise
        # Without the path: it may be a bearer token that looks like one.
        reason = f" ({error})" if error.name and error.name not in value else ""
        msg = f"`auth` cannot be imported{reason}. Pass a bearer token as `token=`"
        raise ValueError(msg) from None
    if not isinstance(found, httpx2.Auth) and callable(found):
        found = found()
    if not isinstance(found, httpx2.Auth):
        msg = f"`auth` must give an httpx2.Auth, it gave {type(found).__name__}"
        raise ValueError(msg)
    return found


class OwnAuth(httpx2.Auth):
    """
    An `httpx2.Auth` of the user, whose failures are told as such. The token of `mcp_request_context` precedes it.
    """

    def __init__(self, auth: httpx2.Auth) -> None:
        """
        Initialize the OwnAuth.

        :param auth: The object.
        """
        self._auth = auth

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """
        Do what the object does.

        :param request: The request.
        :returns: The requests to send, each for its response.
        :raises MCPAuthorizationError: If the object fails.
        """
        identity = current_identity.get()
        if identity is not None and any(name.lower() == "authorization" for name in identity.headers):
            yield request
            return
        flow = self._auth.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request and "timeout" not in outgoing.extensions:
                    timeout = httpx2.Timeout(REQUEST_TIMEOUT).as_dict()
                    outgoing.extensions = {**outgoing.extensions, "timeout": timeout}
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except Exception as error:
            msg = f"authorization failed in {type(self._auth).__name__}: {describe_error(error)}"
            raise MCPAuthorizationError(msg) from error
        finally:
            await flow.aclose()


class TokenSourceAuth(httpx2.Auth):
    """
    A token source of Haystack: it is asked before each request, and keeps the token as long as it is valid.
    """

    def __init__(self, source: Any, learn: Callable[[Iterable[str]], None]) -> None:
        """
        Initialize the TokenSourceAuth.

        :param source: Has `resolve_async` or `resolve`.
        :param learn: Called with each new token, which the server may quote.
        """
        self._source = source
        self._learn = learn
        self._last: str | None = None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """
        Send a request with a token of the source.

        :param request: The request.
        :returns: The request to send, for its response.
        :raises MCPAuthorizationError: If the source fails.
        """
        if "authorization" not in request.headers:
            name = type(self._source).__name__
            try:
                token = await self._resolve()
            except Exception as error:
                # Not its text, which may quote a credential.
                msg = f"authorization failed: the token source {name} raised {type(error).__name__}"
                raise MCPAuthorizationError(msg) from error
            if not isinstance(token, str) or not token:
                msg = f"authorization failed: the token source {name} gave no token"
                raise MCPAuthorizationError(msg)
            if token != self._last:
                self._last = token
                self._learn([token])
            request.headers["Authorization"] = f"Bearer {token}"
        yield request

    async def _resolve(self) -> Any:
        if hasattr(self._source, "resolve_async"):
            token = self._source.resolve_async()
        else:
            token = await anyio.to_thread.run_sync(self._source.resolve, abandon_on_cancel=True)
        return await token if inspect.isawaitable(token) else token
