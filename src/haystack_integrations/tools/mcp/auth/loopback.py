# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The listener to which the authorization server sends the browser (RFC 8252, 7.3).
"""

from __future__ import annotations

import asyncio
import secrets
from typing import Self
from urllib.parse import parse_qsl, urlsplit, urlunsplit

from haystack_integrations.tools.mcp.errors import MCPAuthorizationError

# A request is a line and headers. Browsers may have cookies for the host.
_REQUEST_LIMIT = 64 * 1024

# Seconds that a connection has for its request.
_REQUEST_TIMEOUT = 10.0

_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
    "<body style='font-family: sans-serif; margin: 4em'><h1>{title}</h1><p>{text}</p></body></html>"
)


class PortTakenError(Exception):
    """
    Raised when somebody else listens on the port.
    """


class Listener:
    """
    Waits for one answer of an authorization server. It is listening within `async with`.
    """

    def __init__(self, redirect_uri: str, state: str) -> None:
        """
        Initialize the Listener, in the event loop in which it waits.

        :param redirect_uri: Where to listen: `http://` with a loopback host. Without a port, any free one.
        :param state: The `state` of the login that the answer must be for.
        """
        self._parts = urlsplit(redirect_uri)
        self.redirect_uri: str = redirect_uri
        self._server: asyncio.Server | None = None
        self._answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()
        self._state = state

    async def __aenter__(self) -> Self:
        host = "127.0.0.1" if self._parts.hostname == "localhost" else self._parts.hostname
        try:
            self._server = await asyncio.start_server(
                self._serve, host, self._parts.port or 0, limit=_REQUEST_LIMIT, reuse_address=True
            )
        except OSError as error:
            raise PortTakenError(error.strerror or str(error)) from None
        port = self._server.sockets[0].getsockname()[1]
        name = f"[{self._parts.hostname}]" if ":" in str(self._parts.hostname) else self._parts.hostname
        self.redirect_uri = urlunsplit(("http", f"{name}:{port}", self._parts.path, self._parts.query, ""))
        return self

    async def __aexit__(self, *exc_info: object) -> None:
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()
        self._answer.cancel()

    async def answer(self) -> dict[str, str]:
        """
        Wait for the answer.

        :returns: The query parameters.
        :raises MCPAuthorizationError: If it is for another login.
        """
        return await self._answer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                writer.write(self._respond(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a browser
        finally:
            writer.close()

    def _respond(self, head: str) -> bytes:
        line, *headers = head.split("\r\n")
        method, _, rest = line.partition(" ")
        parts = urlsplit(rest.partition(" ")[0])
        hosts = [
            value.strip() for name, _, value in (header.partition(":") for header in headers) if name.lower() == "host"
        ]
        # A page of another host name that leads here (DNS rebinding) is not the authorization server's redirect.
        if hosts != [urlsplit(self.redirect_uri).netloc] or method != "GET" or parts.path != (self._parts.path or "/"):
            return _response("404 Not Found", "Not found", "There is nothing here.")
        if self._answer.done():
            return _response("400 Bad Request", "Too late", "This login is over.")
        pairs = parse_qsl(parts.query)
        parameters = dict(pairs)
        state = parameters.get("state", "")
        if len(pairs) != len(parameters) or not secrets.compare_digest(state.encode(), self._state.encode()):
            msg = "the answer has another `state` than the login under way"
            self._answer.set_exception(MCPAuthorizationError(msg))
            return _response("400 Bad Request", "Login failed", "This answer is not for the login under way.")
        self._answer.set_result(parameters)
        if "error" in parameters:
            return _response("200 OK", "Login failed", "The access was not allowed. You can close this page.")
        return _response("200 OK", "Logged in", "You can close this page.")


def _response(status: str, title: str, text: str) -> bytes:
    body = _PAGE.format(title=title, text=text).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
