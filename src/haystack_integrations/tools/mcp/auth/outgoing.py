# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The requests to authorization servers.

An MCP server names its authorization server, and that one names its endpoints. So both choose which URLs this process
requests, and could choose ones that only this process can reach. What is refused:

.. code-block:: text

    http:// where the MCP server is https://                         always, except for the configured issuer
    link-local addresses, such as the metadata service of a cloud    always
    loopback and private addresses                                   unless the MCP server itself is at such an address

The origins of the MCP server and of the configured issuer are not questioned.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import httpx2

from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.redaction import redact_url

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.auth.flows.dpop import Proofs

# Metadata, registrations and tokens take a few kilobytes.
_BODY_LIMIT = 1024 * 1024

# Seconds that one request may take, from connecting to the end of its answer.
REQUEST_TIMEOUT = 20.0

# What is secret in requests and in answers.
_SENT = frozenset(
    {"assertion", "client_assertion", "client_secret", "code", "code_verifier", "refresh_token", "subject_token"}
)
_RECEIVED = frozenset({"access_token", "client_secret", "id_token", "refresh_token", "registration_access_token"})

HttpClients = Callable[[], AbstractAsyncContextManager[httpx2.AsyncClient]]


@asynccontextmanager
async def plain_client() -> AsyncIterator[httpx2.AsyncClient]:
    """
    Make an HTTP client without options.

    :returns: A context manager.
    """
    async with httpx2.AsyncClient(follow_redirects=False) as client:
        yield client


class Outgoing:
    """
    Sends the requests of one flow, and remembers what it was doing and which secrets it saw.
    """

    def __init__(
        self,
        client: httpx2.AsyncClient,
        server_url: str,
        trusted: Iterable[str | None],
        check: Callable[[str], None] | None,
    ) -> None:
        """
        Initialize the Outgoing.

        :param client: The HTTP client.
        :param server_url: The MCP server.
        :param trusted: URLs whose origins are not questioned.
        :param check: Called with each URL; raises an exception if it must not be requested.
        """
        self._check = check
        self._client = client
        self._server = httpx2.URL(server_url)
        self._trusted = {_origin(httpx2.URL(url)) for url in (server_url, *trusted) if url}
        self.step: str = "preparing to ask for a token"
        self.secrets: set[str] = set()
        # Proves requests, if tokens are bound to a key.
        self.proofs: Proofs | None = None
        # The answer to the last request.
        self.status: int = 0

    async def send(self, request: httpx2.Request) -> httpx2.Response:
        """
        Send a request.

        :param request: The request.
        :returns: The response, with its body read.
        :raises MCPAuthorizationError: If there is none, or the URL must not be requested.
        """
        self.step = _step(request)
        # Without it, GitHub answers with a form.
        request.headers.setdefault("Accept", "application/json")
        self._note_sent(request)
        await self.check(request.url)
        proofs = self.proofs if dict(_form(request)).get("grant_type") else None
        if proofs is not None:
            proofs.prove(request)
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                response = await self._send(request)
                if proofs is not None and proofs.wants_another(response):
                    proofs.prove(request)
                    response = await self._send(request)
        except TimeoutError:
            msg = f"{_shown(request)} has not answered within {REQUEST_TIMEOUT:g} seconds"
            raise MCPAuthorizationError(msg) from None
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            msg = f"{_shown(request)} could not be reached ({type(error).__name__}: {error})"
            raise MCPAuthorizationError(msg) from error
        response = _with_own_status(request, response)
        self.status = response.status_code
        self._note_received(response)
        return response if proofs is None else proofs.checked(response)

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._client.send(request, stream=True, auth=None, follow_redirects=False)
        body = bytearray()
        try:
            async for chunk in response.aiter_bytes():
                body += chunk
                if len(body) > _BODY_LIMIT:
                    msg = f"the answer of {_shown(request)} has more than {_BODY_LIMIT:,} bytes"
                    raise MCPAuthorizationError(msg)
        finally:
            await response.aclose()
        dropped = (b"content-encoding", b"content-length", b"transfer-encoding")
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in dropped]
        copy = httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=response.request)
        copy.next_request = response.next_request
        return copy

    def _note_sent(self, request: httpx2.Request) -> None:
        self.secrets.update(value for name, value in _form(request) if name in _SENT)
        if "authorization" in request.headers:
            self.secrets.add(request.headers["authorization"].partition(" ")[2])

    def _note_received(self, response: httpx2.Response) -> None:
        try:
            body = json.loads(response.content)
        except (ValueError, RecursionError):
            return
        if isinstance(body, dict):
            self.secrets.update(str(body[name]) for name in _RECEIVED & body.keys() if body[name])

    async def check(self, url: httpx2.URL) -> None:
        """
        Refuse a URL that an authorization server has no reason to be at.

        :param url: The URL.
        :raises MCPAuthorizationError: If it is one.
        """
        if self._check is not None:
            self._check(str(url))
        if _origin(url) in self._trusted:
            return
        if url.scheme != "https" and (url.scheme != "http" or self._server.scheme == "https"):
            msg = f"{redact_url(str(url))} is refused, because it is not https://"
            raise MCPAuthorizationError(msg)
        addresses = await _addresses(url.host)
        if not addresses:
            return
        is_inside = any(map(_is_inside, await _addresses(self._server.host)))
        for address in addresses:
            if address.is_link_local or (_is_inside(address) and not is_inside):
                msg = (
                    f"{redact_url(str(url))} is refused, because it leads into the network of this process, and the "
                    "MCP server is outside of it. If it is right, set `issuer`"
                )
                raise MCPAuthorizationError(msg)


Address = ipaddress.IPv4Address | ipaddress.IPv6Address


async def _addresses(host: str) -> list[Address]:
    try:
        return [ipaddress.ip_address(host)]
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a proxy may know the name; if nobody does, the request says so
        return []
    return [ipaddress.ip_address(str(entry[4][0]).partition("%")[0]) for entry in found]


def _is_inside(address: Address) -> bool:
    mapped = getattr(address, "ipv4_mapped", None)
    return not (mapped or address).is_global


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


def _with_own_status(request: httpx2.Request, response: httpx2.Response) -> httpx2.Response:
    """
    Give an error of a token endpoint the status of one: some answer with 200.
    """
    if response.status_code != httpx2.codes.OK or "grant_type" not in dict(_form(request)):
        return response
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return response
    if not isinstance(body, dict) or "error" not in body or "access_token" in body:
        return response
    return httpx2.Response(httpx2.codes.BAD_REQUEST, json=body, request=request)


def _form(request: httpx2.Request) -> list[tuple[str, str]]:
    is_form = request.headers.get("content-type", "").startswith("application/x-www-form-urlencoded")
    return parse_qsl(request.content.decode()) if is_form else []


_STEPS = {
    "authorization_code": "exchanging the code for a token",
    "refresh_token": "refreshing the token",
    "client_credentials": "asking for a token with the client's credentials",
    "urn:ietf:params:oauth:grant-type:jwt-bearer": "exchanging the assertion for a token",
    "urn:ietf:params:oauth:grant-type:token-exchange": "asking the identity provider for an ID-JAG",
}


def _step(request: httpx2.Request) -> str:
    grant = dict(_form(request)).get("grant_type")
    if grant is not None:
        return f"{_STEPS.get(grant, 'asking for a token')} at {_host(request)}"
    if request.method == "POST":
        return f"registering the client at {_host(request)}"
    if "oauth-protected-resource" in request.url.path:
        return "reading the metadata of the MCP server"
    return f"reading the metadata at {_host(request)}"


def _host(request: httpx2.Request) -> str:
    return request.url.netloc.decode().rpartition("@")[2]


def _shown(request: httpx2.Request) -> str:
    return redact_url(str(request.url))
