# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Who may reach a server over HTTP.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Sequence
from ipaddress import ip_address

from fastmcp.server.auth import AccessToken, AuthProvider, TokenVerifier
from haystack import logging
from haystack.utils import Secret
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE
from mcp.types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from haystack_integrations.tools.mcp.parameters import texts
from haystack_integrations.tools.mcp.secret_template import value_of

logger: logging.PatchedLogger = logging.getLogger(__name__)

# How FastMCP refuses a request, the header that it refuses, and what allows it.
_REFUSALS = {
    b"Forbidden Origin": ("Origin", '`allowed_origins=["https://app.example.com"]`, or `--allowed-origin`'),
    b"Misdirected Request": ("Host", '`allowed_hosts=["mcp.example.com"]`, or `--allowed-host`'),
}
# How much of a header is logged, and how many of them: strangers choose them.
_LONGEST_HEADER, _MOST_TOLD = 200, 20

# The largest body that the SDK's HTTP server takes, in bytes: 4 MiB.
LARGEST_BODY = DEFAULT_MAX_REQUEST_BODY_SIZE


class BearerToken(TokenVerifier):
    """
    One token that all clients share: for a few clients of your own.

    For users with rights of their own, take one of FastMCP's providers (`JWTVerifier`, `RemoteAuthProvider`,
    `OAuthProxy` ...).
    """

    def __init__(self, token: Secret | str, *, scopes: Sequence[str] = ()) -> None:
        """
        Initialize the verifier.

        :param token: The token, as a Secret so that it stays out of code and files.
        :param scopes: The scopes that whoever has the token has, for tools that want some.
        :raises ValueError: If the token is empty, or the environment variable of the Secret is not set.
        """
        super().__init__()
        value = value_of(token) if isinstance(token, Secret) else token
        if not isinstance(value, str) or not value.strip():
            msg = "`token` is empty: set the environment variable it comes from, or pass another one"
            raise ValueError(msg)
        # Digests have one length, so that comparing them says nothing about the token.
        self._digest = hashlib.sha256(value.encode()).digest()
        self._scopes = texts("scopes", scopes)

    async def verify_token(self, token: str) -> AccessToken | None:
        """
        Check a token that a client sent.

        :param token: The token, without `Bearer`.
        :returns: What the client may do, or None if the token is another one.
        """
        if not hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._digest):
            return None
        return AccessToken(token=token, client_id="bearer", scopes=self._scopes)


class ExplainRefusals:
    """
    Says what to do about a request whose `Host` or `Origin` is refused, to whoever sent it and in the log.
    """

    def __init__(self, app: ASGIApp) -> None:
        """
        Initialize the ExplainRefusals.

        :param app: The application, which refuses them.
        """
        self._app = app
        self._told: set[str] = set()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """
        Answer a request.

        :param scope: What is asked.
        :param receive: Gives its body.
        :param send: Takes the answer.
        """
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        start: Message | None = None
        explained = False

        async def explain(message: Message) -> None:
            nonlocal start, explained
            if message["type"] == "http.response.start" and message["status"] in (403, 421):
                start = message
                return
            if start is not None:
                first, start = start, None
                refusal = _REFUSALS.get(message.get("body", b""))
                if refusal is not None:
                    explained = True
                    await self._refuse(first["status"], *refusal, scope, receive, send)
                    return
                await send(first)
            if not explained:
                await send(message)

        await self._app(scope, receive, explain)

    async def _refuse(self, status: int, header: str, option: str, scope: Scope, receive: Receive, send: Send) -> None:
        sent = repr(Headers(scope=scope).get(header, ""))[:_LONGEST_HEADER]
        message = f"The {header} of this request may not call this server. Whoever runs it can allow it: {option}"
        if sent not in self._told and len(self._told) < _MOST_TOLD:
            self._told.add(sent)
            logger.warning(
                "A request with the {header} {sent} was refused. If it should not be, allow it: {option}",
                header=header,
                sent=sent,
                option=option,
            )
        body = {"jsonrpc": "2.0", "id": None, "error": {"code": INVALID_REQUEST, "message": message}}
        await Response(json.dumps(body), status_code=status, media_type="application/json")(scope, receive, send)


def auth_provider(auth: AuthProvider | Secret | None) -> AuthProvider | None:
    """
    Turn what users pass as `auth` into a FastMCP provider.

    :param auth: A provider, which stays as it is, or a Secret: the bearer token that all clients share.
    :returns: The provider, or None for None.
    :raises TypeError: If it is something else.
    """
    if auth is None or isinstance(auth, AuthProvider):
        return auth
    if isinstance(auth, Secret):
        return BearerToken(auth)
    msg = (
        "`auth` must be a provider of `fastmcp.server.auth` (JWTVerifier, RemoteAuthProvider, OAuthProxy ...) or a "
        f"haystack.utils.Secret with a bearer token, not {type(auth).__name__}"
    )
    raise TypeError(msg)


def is_loopback(host: str) -> bool:
    """
    Tell whether only this machine can reach a server that is bound to a host.

    :param host: A host name or an IP address.
    :returns: True for `localhost` and for loopback addresses; False for any other name, wherever it leads.
    """
    if host.lower() == "localhost":
        return True
    try:
        return ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(host: str, auth: AuthProvider | None, *, insecure: bool) -> None:
    """
    Refuse to serve other machines without knowing who calls.

    :param host: What the server is to be bound to.
    :param auth: How clients are authenticated, or None if they are not.
    :param insecure: True to serve them all the same.
    :raises ValueError: If others could reach the server, and it has no `auth`.
    """
    if is_loopback(host) or auth is not None or insecure:
        return
    msg = (
        f"`host={host!r}` lets other machines call this server, and it has no `auth`: whoever reaches the port could "
        'use it. Pass `auth=` (a Secret with a bearer token, or a provider of FastMCP), bind to "127.0.0.1", or pass '
        "`insecure=True` if something in front of it authenticates the callers"
    )
    raise ValueError(msg)
