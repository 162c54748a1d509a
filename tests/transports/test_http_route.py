# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
What the HTTP client of a connection and that of `diagnose` have in common: proxy, trust, keep-alive, redacted logs.
"""

import asyncio
import logging
import os
import re
import socket
import ssl
import threading
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
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

SECRET = "query-5ecret"

pytestmark = pytest.mark.usefixtures("no_proxies")


@asynccontextmanager
async def recording_server(response: bytes, **server_options: Any) -> AsyncIterator[tuple[int, list[bytes]]]:
    """
    Gives every request the same response; yields its port and the request lines that came in.
    """
    request_lines: list[bytes] = []

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        request_lines.append(head.partition(b"\r\n")[0])
        writer.write(response)
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0, **server_options)
    async with server:
        yield server.sockets[0].getsockname()[1], request_lines


NOT_FOUND = b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"


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
        async with recording_server(NOT_FOUND) as (port, requests):
            monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{port}")
            await get("http://mcp.test/mcp")
            from_connection = list(requests)
            requests.clear()
            said = await diagnose("http://mcp.test/mcp", {}, transport="sse")
        assert from_connection == [b"GET http://mcp.test/mcp HTTP/1.1"]
        assert requests[0] == from_connection[0]
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


class TestTrust:
    async def test_a_certificate_that_the_environment_trusts_is_trusted_by_both(
        self,
        server_context: ssl.SSLContext,
        certificate: tuple[Path, Path],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        monkeypatch.setenv("SSL_CERT_FILE", str(certificate[0]))
        async with recording_server(NOT_FOUND, ssl=server_context) as (port, _):
            url = f"https://127.0.0.1:{port}/mcp"
            assert await get(url) == 404
            said = await diagnose(url, {}, transport="sse")
        assert said is not None and "answers 404 Not Found" in said

    async def test_sessions_share_what_is_trusted_by_default_until_it_changes(self, certificate, monkeypatch):
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


class TestSockets:
    async def test_connections_are_probed_by_tcp_keepalive(self) -> None:
        async with recording_server(NOT_FOUND) as (port, _):
            async with client() as http:
                async with http.stream("GET", f"http://127.0.0.1:{port}/") as response:
                    connected = response.extensions["network_stream"].get_extra_info("socket")
                    assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


class TestLogs:
    async def test_the_secrets_of_a_url_are_not_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        async with recording_server(NOT_FOUND) as (port, _):
            url = f"http://alice:{SECRET}@127.0.0.1:{port}/mcp?api_key={SECRET}"
            await get(url)
            await diagnose(url, {}, transport="streamable-http")
            async with open_client(Route(), 5.0) as http:  # as for tokens
                await http.get(url)
        assert f"GET http://127.0.0.1:{port}/mcp?api_key=***" in caplog.text
        assert SECRET not in caplog.text

    async def test_the_headers_of_responses_are_redacted(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        answer = NOT_FOUND.replace(b"Connection:", f"X-Echo: {SECRET}\r\nConnection:".encode())
        async with recording_server(answer) as (port, _):
            with http_route.redacted_logs(lambda text: text.replace(SECRET, "***")):
                async with client() as http:
                    await http.get(f"http://127.0.0.1:{port}/")
        assert "(b'X-Echo', b'***')" in caplog.text and SECRET not in caplog.text

    async def test_the_urls_of_other_clients_are_logged_as_they_are(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, logger="httpx2")
        async with recording_server(NOT_FOUND) as (port, _):
            async with httpx2.AsyncClient() as http:
                await http.get(f"http://127.0.0.1:{port}/?page=1")
        assert "/?page=1" in caplog.text


def test_nothing_here_imports_plain_httpx() -> None:
    for module in Path(http_route.__file__).parent.glob("*.py"):
        assert not re.search(r"(?m)^\s*(import|from) httpx\b", module.read_text("utf-8")), module


def test_many_sessions_that_are_opened_at_once_leave_few_threads_behind():
    before = set(threading.enumerate())
    infos = [StreamableHttpServerInfo("https://mcp.test/mcp") for _ in range(30)]

    async def find_all() -> int:
        await asyncio.gather(*(find_route(info) for info in infos))
        return len(set(threading.enumerate()) - before)

    assert asyncio.run(find_all()) <= 8
