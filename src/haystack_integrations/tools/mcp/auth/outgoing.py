# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The requests for tokens, and which URLs they may go to.

An MCP server names its authorization server, which names its endpoints. So both choose URLs that this process requests,
and could choose ones that only this process can reach (SSRF). These are refused:

.. code-block:: text

    http:// where the MCP server is https://                         always, except for the configured issuer
    link-local addresses, such as the metadata service of a cloud    always
    loopback and private addresses                                   unless the MCP server itself is at such an address

An IPv6 address counts as the IPv4 address that is embedded in it. Names are looked up once: the connection goes to the
address that was checked. The origins of the MCP server and of the configured issuer are always allowed.
"""

from __future__ import annotations

import asyncio
import ipaddress
import json
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from typing import Any

import httpx2

from haystack_integrations.tools.mcp.errors import MCPAuthorizationError

# Metadata, registrations and tokens take a few kilobytes.
_BODY_LIMIT = 1024 * 1024

# Seconds that one request may take, from connecting to the end of its answer.
REQUEST_TIMEOUT = 20.0

# The fields of forms that are secret.
_SECRET_FIELDS = frozenset(
    {"assertion", "client_assertion", "client_secret", "code", "code_verifier", "refresh_token", "subject_token"}
    | {"token"}
)

# The members of answers that are secret.
_SECRET_MEMBERS = frozenset({"access_token", "client_secret", "id_token", "refresh_token", "registration_access_token"})

# The request's extension that has the checked addresses of its host.
_CHECKED = "haystack_mcp_checked_addresses"

HttpClients = Callable[[], AbstractAsyncContextManager[httpx2.AsyncClient]]


class PinnedTransport(httpx2.AsyncHTTPTransport):
    """
    A transport that connects to the checked addresses of a request, if it has any, without looking up its host again.

    Through a proxy, it leaves the lookup to the proxy.
    """

    def __init__(self, *, proxy: httpx2.Proxy | None = None, **options: Any) -> None:
        """
        Initialize the PinnedTransport.

        :param proxy: As for `httpx2.AsyncHTTPTransport`.
        :param options: Other parameters of `httpx2.AsyncHTTPTransport`.
        """
        super().__init__(proxy=proxy, **options)
        self._has_proxy = proxy is not None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """
        Send a request.

        :param request: The request.
        :returns: The response.
        :raises httpx2.ConnectError: If none of the addresses accepts a connection.
        """
        addresses = request.extensions.get(_CHECKED)
        if addresses is None or self._has_proxy:
            return await self._send(request)
        failure: httpx2.TransportError = httpx2.ConnectError("the name of its host is not known", request=request)
        # The pool finds connections by address, so a kept one with this host's certificate could serve another host.
        headers = {**request.headers, "Connection": "close"}
        for address in addresses:
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=str(address)),
                headers=headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": request.url.host},
            )
            try:
                return await self._send(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure

    async def _send(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await super().handle_async_request(request)
        except ssl.SSLError as error:  # httpcore2 leaks it: TLS 1.3 refuses a client certificate this late
            raise httpx2.ReadError(str(error), request=request) from error


def json_object(response: httpx2.Response) -> dict[str, Any]:
    """
    Read the body of a response as a JSON object.

    :param response: The response.
    :returns: The object; empty if the body is anything else.
    """
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def uses_environment_proxies() -> bool:
    """
    Return whether the environment configures proxies for HTTP.

    :returns: True if it does. `NO_PROXY` may still exempt a host.
    """
    return not {"http", "https", "all"}.isdisjoint(urllib.request.getproxies())


@asynccontextmanager
async def plain_client() -> AsyncIterator[httpx2.AsyncClient]:
    """
    Make an HTTP client without options. It uses the proxies of the environment, if any.

    :returns: A context manager.
    """
    transport = None if uses_environment_proxies() else PinnedTransport()
    async with httpx2.AsyncClient(transport=transport, follow_redirects=False) as client:
        yield client


class Outgoing:
    """
    Sends the requests of one flow, and keeps its current step and the secrets that it has seen.
    """

    def __init__(
        self,
        clients: HttpClients,
        server_url: str,
        trusted: Iterable[str | None],
        check: Callable[[str], None] | None,
    ) -> None:
        """
        Initialize the Outgoing.

        :param clients: Makes the HTTP client of a request.
        :param server_url: The MCP server.
        :param trusted: URLs whose origins are always allowed.
        :param check: Called with each URL; raises an exception if it must not be requested.
        """
        self._check = check
        self._clients = clients
        self._server = httpx2.URL(server_url)
        self._trusted = {_origin(httpx2.URL(url)) for url in trusted if url}
        self.step: str = "preparing to ask for a token"
        self.secrets: set[str] = set()

    async def post(
        self,
        url: str,
        form: Mapping[str, str],
        step: str,
        headers: Mapping[str, str] | None = None,
        prove: Callable[[httpx2.Request], None] | None = None,
    ) -> httpx2.Response:
        """
        Send a form.

        :param url: The endpoint.
        :param form: The form.
        :param step: The step of the flow, for errors.
        :param headers: Headers.
        :param prove: Adds the proof of a key to the request just before it is sent.
        :returns: The response, with its body read.
        :raises MCPAuthorizationError: As in `send`.
        """
        self.secrets.update(value for name, value in form.items() if name in _SECRET_FIELDS)
        if headers and "Authorization" in headers:
            self.secrets.add(headers["Authorization"].partition(" ")[2])
        return await self.send(httpx2.Request("POST", url, data=form, headers=headers), step, prove)

    async def send(
        self, request: httpx2.Request, step: str, prove: Callable[[httpx2.Request], None] | None = None
    ) -> httpx2.Response:
        """
        Send a request.

        :param request: The request.
        :param step: The step of the flow, for errors.
        :param prove: Adds the proof of a key to the request just before it is sent.
        :returns: The response, with its body read.
        :raises MCPAuthorizationError: If there is no response, or the URL must not be requested.
        """
        self.step = f"{step} at {request.url.netloc.decode()}"
        # Without this header, GitHub answers with a form.
        request.headers.setdefault("Accept", "application/json")
        shown = str(request.url)
        addresses = await self.check(request.url)
        if addresses is not None:
            request.extensions = {**request.extensions, _CHECKED: addresses}
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                if prove is not None:
                    prove(request)
                response = await self._send(request, shown)
        except TimeoutError:
            msg = f"{shown} has not answered within {REQUEST_TIMEOUT:g} seconds"
            raise MCPAuthorizationError(msg) from None
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            msg = f"{shown} could not be reached ({type(error).__name__}: {error})"
            raise MCPAuthorizationError(msg) from error
        answer = json_object(response)
        self.secrets.update(str(answer[name]) for name in _SECRET_MEMBERS & answer.keys() if answer[name])
        return response

    async def _send(self, request: httpx2.Request, shown: str) -> httpx2.Response:
        body = bytearray()
        async with self._clients() as client:
            sending = client.send(request, stream=True, auth=None, follow_redirects=False)
            async with aclosing(await sending) as response:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _BODY_LIMIT:
                        msg = f"the answer of {shown} has more than {_BODY_LIMIT:,} bytes"
                        raise MCPAuthorizationError(msg)
        dropped = (b"content-encoding", b"content-length", b"transfer-encoding")
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in dropped]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)

    async def check(self, url: httpx2.URL) -> list[Any] | None:
        """
        Refuse a URL that an authorization server has no reason to use.

        :param url: The URL.
        :returns: The addresses of its host, if they had to be looked up.
        :raises MCPAuthorizationError: If the URL is refused.
        """
        if self._check is not None:
            self._check(str(url))
        if _origin(url) in self._trusted:
            return None
        if url.scheme != "https" and (url.scheme != "http" or self._server.scheme == "https"):
            msg = (
                f"{url} is refused, because it is not https://. A server behind a proxy may not know its own address, "
                "until it is told to trust the headers of the proxy"
            )
            raise MCPAuthorizationError(msg)
        addresses = await _addresses(url.host)
        places = [_place(address) for address in addresses]
        is_refused = any(place.is_link_local for place in places)
        if not is_refused and not all(place.is_global for place in places):
            is_refused = all(_place(address).is_global for address in await _addresses(self._server.host))
        if is_refused:
            msg = (
                f"{url} is refused, because it leads into the network of this process, and the "
                "MCP server is outside of it. If it is right, set `issuer`"
            )
            raise MCPAuthorizationError(msg)
        return addresses


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


async def _addresses(host: str) -> list[Address]:
    try:
        return [ipaddress.ip_address(host.rstrip("."))]
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a proxy may know the name; otherwise, the request fails
        return []
    addresses = {ipaddress.ip_address(str(entry[4][0]).partition("%")[0]): None for entry in found}
    # IPv4 first: addresses are tried one by one, and in a network without IPv6 an attempt may hang.
    return sorted(addresses, key=lambda address: address.version)


def _place(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)
