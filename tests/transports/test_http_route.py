# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
What the HTTP client of a connection and that of `diagnose` have in common: proxy, trust, keep-alive, redacted logs.
"""

import asyncio
import logging
import os
import socket
import ssl
import threading
from contextlib import aclosing
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp import StreamableHttpServerInfo
from haystack_integrations.tools.mcp.auth.outgoing import PinnedTransport
from haystack_integrations.tools.mcp.transports import http_route
from haystack_integrations.tools.mcp.transports.diagnose import diagnose
from haystack_integrations.tools.mcp.transports.http_route import (
    Route,
    environment_proxy,
    find_route,
    open_client,
    open_transport,
)
from haystack_integrations.tools.mcp.transports.posting import HttpSender
from tests.support.rows import rows
from tests.support.scripted_peer import HttpRequest, ScriptedPeer, response

SECRET = "query-5ecret"

pytestmark = pytest.mark.usefixtures("no_proxies")


async def not_found(_: HttpRequest) -> bytes:
    return response("404 Not Found", b"", "")


def client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=open_transport(), timeout=5)


async def get(url: str) -> int:
    """
    Request what a connection requests.
    """
    phases = dict.fromkeys(("connect", "write", "pool", "read"), 5.0)
    sender = HttpSender(open_transport(), headers={}, timeout=phases)
    await sender.open()
    async with aclosing(sender):
        response = await sender.send("GET", httpx2.URL(url), {})
        await sender.read(response)
    return response.status_code


# Values of NO_PROXY that name mcp.test, at port 8080.
EXEMPT = ("*", "mcp.test", "MCP.TEST", ".mcp.test", "mcp.test:8080", "other.test, mcp.test", ".test")


class TestProxies:
    async def test_the_connection_and_diagnose_go_through_the_proxy_of_the_environment(self, monkeypatch):
        async with ScriptedPeer(not_found) as proxy:
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{proxy.port}")
            await get("http://mcp.test/mcp")
            said = await diagnose("http://mcp.test/mcp", {}, transport="sse")
        assert [request.target for request in proxy.requests][:2] == ["http://mcp.test/mcp"] * 2
        assert said == "http://mcp.test/mcp answers 404 Not Found, not MCP: check the URL."

    async def test_no_proxy_alone_does_not_turn_tcp_keepalive_off(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
        assert isinstance(open_transport(), PinnedTransport)

    @rows(
        ("url", "no_proxy", "is_exempt"),
        [
            *(("http://mcp.test:8080/mcp", names, True) for names in EXEMPT),
            *(("http://mcp.test:8080/mcp", names, False) for names in ("", "cp.test", "mcp.test:80", "127.0.0.0/8")),
            ("http://127.0.0.1:8080/mcp", "127.0.0.0/8", True),
            ("http://127.0.0.1:8080/mcp", "10.0.0.0/8,127.0.0.1", True),
            ("http://[::1]:8080/mcp", "[::1]:8080", True),
            ("http://[::1]:9090/mcp", "[::1]:8080", False),
            ("http://[::1]:8080/mcp", "::1", True),
        ],
    )
    def test_no_proxy_names_hosts_domains_and_networks(self, url, no_proxy, is_exempt):
        proxy = "http://proxy.test:3128"
        found = environment_proxy(httpx2.URL(url), {"http": proxy, "https": proxy, "no": no_proxy})
        assert found == (None if is_exempt else proxy)


async def test_sessions_share_what_is_trusted_by_default_until_it_changes(certificate, monkeypatch):
    async def trusted(**parameters: Any) -> Any:
        return (await find_route(StreamableHttpServerInfo("https://mcp.test/mcp", **parameters))).verify

    shared = await trusted()
    assert isinstance(shared, ssl.SSLContext)
    assert await trusted() is shared
    # It gets a certificate of its own, which must not be shown to the servers of others.
    assert await trusted(client_cert=tuple(map(str, certificate))) is not shared
    assert await trusted(verify=False) is False
    bundle = certificate[0]
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    other = await trusted()
    assert other is not shared and other.cert_store_stats()["x509"] == 1
    assert await trusted() is other
    os.utime(bundle, (0, 0))
    assert await trusted() is not other
    for parameters in ({}, {"client_cert": tuple(map(str, certificate))}):
        monkeypatch.setenv("SSL_CERT_FILE", "/none.pem")
        with pytest.raises(ValueError, match=r"SSL_CERT_FILE names cannot be read \(No such file or directory\)"):
            await trusted(**parameters)


async def test_connections_are_probed_by_tcp_keepalive() -> None:
    async with ScriptedPeer(not_found) as peer, client() as http, http.stream("GET", peer.url) as response:
        connected = response.extensions["network_stream"].get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


class TestLogs:
    async def test_the_secrets_of_a_url_are_not_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        async with ScriptedPeer(not_found) as peer:
            url = f"http://alice:{SECRET}@127.0.0.1:{peer.port}/mcp?api_key={SECRET}"
            await get(url)
            await diagnose(url, {}, transport="streamable-http")
            async with open_client(Route(), 5.0) as http:  # as for tokens
                await http.get(url)
            async with httpx2.AsyncClient() as http:  # that of somebody else
                await http.get(f"{peer.url}?page=1")
        assert f"GET {peer.url}?api_key=***" in caplog.text
        assert SECRET not in caplog.text
        assert "/mcp?page=1" in caplog.text

    async def test_the_headers_of_responses_are_redacted(self, caplog: pytest.LogCaptureFixture) -> None:
        async def echo(_: HttpRequest) -> bytes:
            return response("404 Not Found", X_Echo=SECRET)

        caplog.set_level(logging.DEBUG)
        async with ScriptedPeer(echo) as peer, client() as http:
            with http_route.redacted_logs(lambda text: text.replace(SECRET, "***")):
                await http.get(peer.url)
        assert "(b'X-Echo', b'***')" in caplog.text and SECRET not in caplog.text


def test_many_sessions_that_are_opened_at_once_leave_few_threads_behind():
    before = set(threading.enumerate())
    infos = [StreamableHttpServerInfo("https://mcp.test/mcp") for _ in range(30)]

    async def find_all() -> int:
        await asyncio.gather(*(find_route(info) for info in infos))
        return len(set(threading.enumerate()) - before)

    assert asyncio.run(find_all()) <= 8
