# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The route of HTTP requests to a server: proxies, certificates and keep-alive; and the redaction of libraries' logs.

The connection, the requests for its tokens and `Diagnosis` take the same route, so that the diagnosis goes through the
same proxy and trusts the same certificates as the connection that failed.
"""

from __future__ import annotations

import ipaddress
import logging
import os
import re
import socket
import ssl
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import httpx2
from haystack.utils import Secret

from haystack_integrations.tools.mcp.auth.outgoing import PinnedTransport, uses_environment_proxies
from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.import_paths import import_object
from haystack_integrations.tools.mcp.redaction import redact_text, redact_url
from haystack_integrations.tools.mcp.secret_template import value_of
from haystack_integrations.tools.mcp.transports.allow_lists import check_host
from haystack_integrations.tools.mcp.transports.server_infos import HttpServerInfo, check_proxy_url

# A request that is sent just as the server closes an idle connection fails, and its fate is unknown. Servers close idle
# connections after 5 s (uvicorn, Node), so connections are closed here well before.
_KEEPALIVE_EXPIRY = 2.5
# Limited because every request searches the idle connections.
_MAX_IDLE_CONNECTIONS = 20

# The credentials of a SOCKS proxy as httpcore2 logs them, which are not those of a URL: they are decoded.
_SOCKS_AUTH = re.compile(r"\bauth=\(b.*(?= timeouts=)")

# Removes the secrets from what libraries log about the requests that are made in this context.
_redact: ContextVar[Callable[[str], str] | None] = ContextVar("haystack_mcp_redact", default=None)


@dataclass(frozen=True)
class Route:
    """
    How one HTTP client reaches its server.

    :param verify: The trusted certificates, and the client's own.
    :param proxy: The configured proxy.
    :param transport: A transport that a custom function made. It is for one client only.
    """

    verify: ssl.SSLContext | bool = True
    proxy: httpx2.Proxy | None = None
    transport: httpx2.AsyncBaseTransport | None = None


async def find_route(info: HttpServerInfo) -> Route:
    """
    Load certificates, resolve the proxy, and let a custom function make the transport.

    :param info: The server info.
    :returns: The route for one HTTP client.
    :raises ValueError: If a parameter does not work. The message names it.
    :raises MCPConnectionError: If the host of its proxy is not allowed.
    """
    if info.http_transport is None and isinstance(info.verify, bool) and info.client_cert is None:
        return _find_route(info)
    # In a thread, because it reads files or runs functions of the user.
    return await start_in_thread(_find_route, info)


def _find_route(info: HttpServerInfo) -> Route:
    verify = _verify(info.verify)
    if info.client_cert is not None:
        if isinstance(info.verify, ssl.SSLContext):  # the user may use it for other servers as well
            msg = "`client_cert` excludes an ssl.SSLContext as `verify`; load the certificate into the context"
            raise ValueError(msg)
        verify = verify if isinstance(verify, ssl.SSLContext) else _new_context(verify)
        _load_client_cert(verify, info.client_cert)
    proxy = _proxy(info.proxy, verify)
    if info.http_transport is None:
        # Only these routes get the shared context, so that no user code can change which certificates it trusts.
        return Route(_trusted_by_default() if verify is True else verify, proxy)
    make = info.http_transport
    try:
        function = import_object(make) if isinstance(make, str) else make
        transport = function(proxy=proxy, **_transport_arguments(verify))
    except Exception as error:
        name = getattr(make, "__qualname__", make)
        msg = f"`http_transport`: '{name}' failed ({type(error).__name__}: {error})"
        raise ValueError(msg) from error
    if not isinstance(transport, httpx2.AsyncBaseTransport):
        msg = f"`http_transport` must give an httpx2.AsyncBaseTransport, it gave {type(transport).__name__}"
        raise ValueError(msg)
    return Route(verify, proxy, transport)


def _verify(verify: bool | str | ssl.SSLContext) -> ssl.SSLContext | bool:
    if not isinstance(verify, str):
        return verify
    try:
        is_folder = Path(verify).is_dir()
        return ssl.create_default_context(cafile=None if is_folder else verify, capath=verify if is_folder else None)
    except OSError as error:
        msg = f"`verify`: the CA bundle '{verify}' cannot be read ({error.strerror or error})"
        raise ValueError(msg) from error


def _trusted_by_default() -> ssl.SSLContext:
    """
    Return the context that httpx2 would make. It is cached until the environment names other files or a file changes.
    """
    paths = ssl.get_default_verify_paths()
    files = (*map(os.environ.get, ("SSL_CERT_FILE", "SSL_CERT_DIR")), paths.openssl_cafile, paths.openssl_capath)
    return _default_context(*((file, _changed_at(file)) for file in files))


# Loading the certificates takes up to 40 ms, and if a server has sessions, each user opens one.
@lru_cache(maxsize=1)
def _default_context(*_: tuple[str | None, int | None]) -> ssl.SSLContext:
    return _new_context()


def _new_context(verify: bool = True) -> ssl.SSLContext:
    try:
        return httpx2.create_ssl_context(verify)
    except OSError as error:
        name = "SSL_CERT_FILE" if os.environ.get("SSL_CERT_FILE") else "SSL_CERT_DIR"
        what = f"the certificates that the environment variable {name} names cannot be read"
        msg = f"{what} ({error.strerror or error}); correct the variable, or name others with `verify`"
        raise ValueError(msg) from error


def _changed_at(file: str | None) -> int | None:
    with suppress(OSError):
        return os.stat(file).st_mtime_ns if file else None
    return None


def _load_client_cert(context: ssl.SSLContext, client_cert: Any) -> None:
    certificate, key, *secret = client_cert if isinstance(client_cert, tuple) else (client_cert, None)

    def password() -> str:  # without this function, OpenSSL would ask in the terminal
        return str((secret[0].resolve_value() if secret else None) or "")

    try:
        context.load_cert_chain(certificate, key, password)
    except OSError as error:
        files = " and ".join(map(repr, filter(None, (certificate, key))))
        reason = f"{error}; is the password of the key missing or wrong?" if isinstance(error, ssl.SSLError) else error
        msg = f"`client_cert`: {files} cannot be loaded ({reason})"
        raise ValueError(msg) from error


def _proxy(proxy: str | Secret | None, verify: ssl.SSLContext | bool) -> httpx2.Proxy | None:
    url = value_of(proxy, "proxy") if isinstance(proxy, Secret) else proxy
    if url is None:
        return None
    check_proxy_url(url)
    # A proxy can connect to any host, and can read requests to servers without TLS.
    check_host(url, "the `proxy` of the server info, ")
    # A proxy with TLS is trusted by the same certificates as servers.
    context = verify if isinstance(verify, ssl.SSLContext) else _new_context(verify)
    return httpx2.Proxy(url, ssl_context=context if url.startswith("https:") else None)


def _transport_arguments(verify: ssl.SSLContext | bool) -> dict[str, Any]:
    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=_MAX_IDLE_CONNECTIONS, keepalive_expiry=_KEEPALIVE_EXPIRY
    )
    return {"verify": verify, "limits": limits, "socket_options": _tcp_keepalive()}


def open_transport(route: Route | None = None, *, of_session: bool = False) -> httpx2.AsyncBaseTransport:
    """
    Make the transport of one HTTP client.

    Unless the route has its own, proxies come from the environment (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`,
    `NO_PROXY`), and so do trusted certificates (`SSL_CERT_FILE`, `SSL_CERT_DIR`; by default those of the system).

    :param route: Certificates, proxy and transport.
    :param of_session: Whether it carries a session. A session uses aiohttp if the extra `fast` is installed and there
        is no proxy.
    :returns: The transport, not yet entered.
    """
    route = route or Route()
    if route.transport is not None:
        return route.transport
    direct = _fastest_transport() if of_session else PinnedTransport
    if route.proxy is None and uses_environment_proxies():
        return _EnvironmentTransport(route.verify, direct)
    arguments = _transport_arguments(route.verify)
    return direct(**arguments) if route.proxy is None else PinnedTransport(proxy=route.proxy, **arguments)


def _fastest_transport() -> Callable[..., httpx2.AsyncBaseTransport]:
    try:
        import aiohttp  # noqa: F401, PLC0415
        import uvloop  # noqa: PLC0415
    except ImportError:
        return PinnedTransport
    # Earlier versions close the descriptor of a socket that is connecting when a caller gives up, but Python closes it
    # once more, when it may belong to another connection.
    if [int(part) for part in uvloop.__version__.split(".")[:2]] < [0, 23]:  # type: ignore[attr-defined]
        return PinnedTransport
    from haystack_integrations.tools.mcp.transports.aiohttp_transport import AiohttpTransport  # noqa: PLC0415

    return AiohttpTransport


@asynccontextmanager
async def open_client(
    route: Route, timeout: httpx2.Timeout | float, redact: Callable[[str], str] = redact_text
) -> AsyncIterator[httpx2.AsyncClient]:
    """
    Open an HTTP client for requests outside of a session.

    :param route: Certificates, proxy and transport.
    :param timeout: The timeout of its requests.
    :param redact: Removes secrets from what libraries log about them.
    :returns: A context manager.
    """
    with redacted_logs(redact):
        async with httpx2.AsyncClient(transport=open_transport(route), timeout=timeout) as client:
            yield client


class _EnvironmentTransport(httpx2.AsyncBaseTransport):
    """
    Sends requests through the proxy that the environment names for their URL, if any.
    """

    def __init__(self, verify: ssl.SSLContext | bool, direct: Callable[..., httpx2.AsyncBaseTransport]) -> None:
        self._arguments = _transport_arguments(verify)
        self._direct = direct
        self._proxies = urllib.request.getproxies()
        self._transports: dict[str | None, httpx2.AsyncBaseTransport] = {}

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        proxy = environment_proxy(request.url, self._proxies)
        transport = self._transports.get(proxy)
        if transport is None:
            transport = self._transports[proxy] = self._open(proxy)
        return await transport.handle_async_request(request)

    def _open(self, proxy: str | None) -> httpx2.AsyncBaseTransport:
        if not proxy:
            return self._direct(**self._arguments)
        try:
            check_proxy_url(proxy)
            return PinnedTransport(proxy=httpx2.Proxy(proxy), **self._arguments)
        except (ValueError, ImportError) as error:  # e.g. GNOME's `socks://`, or a missing package for SOCKS
            msg = f"the proxy that the environment names cannot be used: {error}"
            raise httpx2.ConnectError(msg) from error

    async def aclose(self) -> None:
        for transport in self._transports.values():
            await transport.aclose()


def environment_proxy(url: httpx2.URL, proxies: Mapping[str, str]) -> str | None:
    """
    Find the proxy that the environment names for a URL.

    :param url: The URL.
    :param proxies: The result of `urllib.request.getproxies`.
    :returns: Its URL; None without a proxy, or if `NO_PROXY` contains the host or its network.
    """
    for entry in proxies.get("no", "").split(","):
        with suppress(ValueError):  # raised for a domain, which is not a network
            if ipaddress.ip_address(url.host) in ipaddress.ip_network(entry.strip(), strict=False):
                return None
    if urllib.request.proxy_bypass_environment(url.netloc.decode(), proxies):  # type: ignore[attr-defined]
        return None
    proxy = proxies.get(url.scheme) or proxies.get("all")
    return f"http://{proxy}" if proxy and "://" not in proxy else proxy


def _tcp_keepalive() -> list[tuple[int, int, int]]:
    # Reading has no timeout, so keep-alive detects a peer that has vanished, after two minutes.
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


@contextmanager
def redacted_logs(redact: Callable[[str], str] | None) -> Iterator[None]:
    """
    Redact what libraries log about the requests that are made in this context.

    :param redact: Removes the secrets from a text.
    :returns: A context manager.
    """
    token = _redact.set(redact)
    try:
        yield
    finally:
        _redact.reset(token)


class _Redaction(logging.Filter):
    """
    Redacts what libraries log about requests.

    httpx2 logs URLs at level INFO, and httpcore2 logs headers of responses and the credentials of a SOCKS proxy at
    level DEBUG.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        redact = _redact.get()
        if redact is not None:
            if isinstance(record.args, tuple):
                record.args = tuple(redact_url(str(arg)) if isinstance(arg, httpx2.URL) else arg for arg in record.args)
            record.msg, record.args = redact(_SOCKS_AUTH.sub("auth=***", record.getMessage())), None
        return True


for _name in ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))):
    logging.getLogger(_name).addFilter(_Redaction())
