# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Who may reach a server over HTTP.
"""

from __future__ import annotations

import json
from ipaddress import ip_address

from fastmcp.server.auth import AuthProvider
from haystack import logging
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE
from mcp.types import INVALID_REQUEST
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

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
