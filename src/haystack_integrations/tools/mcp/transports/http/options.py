# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The options of the HTTP client for a server.

The connection and `diagnose` build their clients from the same options, so that `diagnose` goes through the same proxy
and trusts the same certificates as the connection that failed.
"""

from __future__ import annotations

import logging
import socket
import urllib.request
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from typing import TypedDict

import httpx2

from haystack_integrations.tools.mcp.client.sdk_workarounds import RedactedRecords
from haystack_integrations.tools.mcp.redaction import redact_url

# A request that is sent just as the server closes an idle connection fails, and its fate is unknown. Servers close idle
# connections after 5 s (uvicorn, Node), so connections are not reused for that long.
_KEEPALIVE_EXPIRY = 2.5
# Every request looks through the idle connections.
_MAX_IDLE_CONNECTIONS = 20

# The schemes for which httpx2 looks up proxies in the environment.
_PROXY_SCHEMES = {"http", "https", "all"}

_redact_logged_urls: ContextVar[bool] = ContextVar("haystack_mcp_redact_logged_urls", default=False)


class ClientOptions(TypedDict):
    """
    Keyword arguments for `httpx2.AsyncClient`.
    """

    headers: Mapping[str, str]
    timeout: httpx2.Timeout
    limits: httpx2.Limits
    transport: httpx2.AsyncBaseTransport | None
    event_hooks: Mapping[str, list[Callable[[httpx2.Request], Awaitable[None]]]]


def client_options(headers: Mapping[str, str], timeout: httpx2.Timeout) -> ClientOptions:
    """
    Build the options of an HTTP client for a server.

    Proxies come from the environment (`HTTP_PROXY`, `HTTPS_PROXY`, `ALL_PROXY`, `NO_PROXY`), and so do trusted
    certificates (`SSL_CERT_FILE`, `SSL_CERT_DIR`; by default those of the system).

    :param headers: Headers of every request.
    :param timeout: Timeouts of every request.
    :returns: Keyword arguments for `httpx2.AsyncClient`. They hold connections, so they are for one client only.
    """
    limits = httpx2.Limits(
        max_connections=None, max_keepalive_connections=_MAX_IDLE_CONNECTIONS, keepalive_expiry=_KEEPALIVE_EXPIRY
    )
    return ClientOptions(
        headers=headers,
        timeout=timeout,
        limits=limits,
        # httpx2 uses the proxies of the environment only if it creates the transports itself.
        transport=None if uses_environment_proxies() else _Transport(limits=limits, socket_options=_tcp_keepalive()),
        event_hooks={"request": [_mark_for_redaction]},
    )


def uses_environment_proxies() -> bool:
    """
    Tell whether the environment names proxies for HTTP.

    :returns: Whether it does. `NO_PROXY` may still exempt a host.
    """
    return not _PROXY_SCHEMES.isdisjoint(urllib.request.getproxies())


class _Transport(httpx2.AsyncHTTPTransport):
    """
    The transport of httpx2, without an `AttributeError` that httpcore2 leaks.
    """

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        try:
            return await super().handle_async_request(request)
        except AttributeError as error:
            if "setsockopt" not in str(error):
                raise
            # httpcore2 2.16.2, `AnyIOBackend.connect_tcp` (_backends/anyio.py:127) calls `setsockopt` on
            # `stream._raw_socket`, which is None on uvloop if the server reset the connection right after accepting it.
            # No report was found upstream. To reproduce: under uvloop, request something with `socket_options` from a
            # server that accepts, sets SO_LINGER to (1, 0) and closes; 3 to 20 % of the attempts end so.
            msg = "the connection was reset at once"
            raise httpx2.ConnectError(msg, request=request) from error


def _tcp_keepalive() -> list[tuple[int, int, int]]:
    # Reading has no timeout, so this is how a peer that vanished is noticed: after two minutes.
    options = [(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)]
    for name, value in (("TCP_KEEPIDLE", 60), ("TCP_KEEPINTVL", 15), ("TCP_KEEPCNT", 4)):
        if hasattr(socket, name):
            options.append((socket.IPPROTO_TCP, getattr(socket, name), value))
    return options


async def _mark_for_redaction(_: httpx2.Request) -> None:
    # httpx2 logs a request in the context in which it calls this hook.
    _redact_logged_urls.set(True)


class _UrlRedaction(logging.Filter):
    """
    Redacts the URLs of our own requests, which httpx2 logs in full at level INFO.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        if _redact_logged_urls.get() and isinstance(record.args, tuple):
            record.args = tuple(redact_url(str(arg)) if isinstance(arg, httpx2.URL) else arg for arg in record.args)
        return True


logging.getLogger("httpx2").addFilter(_UrlRedaction())
# httpcore2 logs the headers of responses at level DEBUG.
for _name in ("httpx2", *(f"httpcore2.{part}" for part in ("connection", "http11", "http2", "proxy", "socks"))):
    logging.getLogger(_name).addFilter(RedactedRecords())
