# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Cookies, proxies, trust, failures and logs are the same with httpx2's transport and with aiohttp.
"""

import asyncio
import json
import logging
import os
import socket
import ssl
import sys
import threading
import traceback
from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp import StreamableHttpServerInfo
from haystack_integrations.tools.mcp.protocol.channel import Exchange
from haystack_integrations.tools.mcp.protocol.request_errors import Fate
from haystack_integrations.tools.mcp.transports import http_route
from haystack_integrations.tools.mcp.transports.diagnose import Diagnosis
from haystack_integrations.tools.mcp.transports.http_route import (
    Route,
    environment_proxy,
    find_route,
    open_client,
    open_transport,
)
from haystack_integrations.tools.mcp.transports.posting import HttpSender
from tests.support.forward_proxy import ForwardProxy
from tests.support.rows import rows
from tests.support.scripted_peer import HttpRequest, ScriptedPeer, response
from tests.support.waiting import wait_until_async

SECRET = "query-5ecret"

pytestmark = pytest.mark.usefixtures("no_proxies", "http_stack")

BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}'
PHASES: dict[str, float | None] = {"connect": 5.0, "write": 5.0, "pool": 5.0, "read": None}


def new_sender(verify: ssl.SSLContext | bool = True, **options: Any) -> HttpSender:
    return HttpSender(open_transport(Route(verify), of_session=True), **{"headers": {}, "timeout": PHASES, **options})


@asynccontextmanager
async def opened(sender: HttpSender) -> AsyncIterator[HttpSender]:
    await sender.open()
    async with aclosing(sender):
        yield sender


async def post(sender: HttpSender, url: str) -> httpx2.Response:
    answered = await sender.send("POST", httpx2.URL(url), {"Content-Type": "application/json"}, BODY)
    await sender.read(answered)
    return answered


async def accept(_: HttpRequest) -> bytes:
    return response("200 OK", {})


class TestEnvironmentProxies:
    async def test_plain_requests_go_through_the_proxy_of_the_environment(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        async with ForwardProxy("alice:pa55") as proxy:
            monkeypatch.setenv("HTTP_PROXY", f"http://alice:pa55@127.0.0.1:{proxy.port}")
            async with ScriptedPeer(accept) as peer, opened(sender := new_sender()):
                assert (await post(sender, peer.url)).status_code == 200
                monkeypatch.setenv("NO_PROXY", "other.test,127.0.0.1")
                async with opened(direct := new_sender()):
                    await post(direct, peer.url)
            assert proxy.requests == [f"POST {peer.url}"]

    async def test_requests_with_tls_are_tunnelled_through_the_proxy(self, monkeypatch, certificate, server_context):
        trusted = ssl.create_default_context(cafile=str(certificate[0]))
        async with ScriptedPeer(accept, ssl=server_context) as peer:
            async with ForwardProxy() as proxy:
                monkeypatch.setenv("all_proxy", f"http://127.0.0.1:{proxy.port}")
                async with opened(sender := new_sender(trusted)):
                    assert (await post(sender, with_tls(peer))).status_code == 200
                assert proxy.requests == [f"CONNECT 127.0.0.1:{peer.port}"]


def with_tls(peer: ScriptedPeer) -> str:
    return peer.url.replace("http:", "https:")


async def test_the_user_info_of_a_url_becomes_basic_authentication_without_an_auth() -> None:
    class Token(httpx2.Auth):
        def auth_flow(self, request: httpx2.Request) -> Any:
            request.headers["Authorization"] = "Bearer t0ken"
            yield request

    async with ScriptedPeer(accept) as peer:
        for auth in (None, Token()):
            async with opened(sender := new_sender(auth=auth)):
                await post(sender, f"http://alice:p%40ss@127.0.0.1:{peer.port}/mcp?a=b%20c")
    request, other = peer.requests
    assert request.headers["authorization"] == "Basic YWxpY2U6cEBzcw=="
    assert (request.target, request.headers["host"]) == ("/mcp?a=b%20c", f"127.0.0.1:{peer.port}")
    assert other.headers["authorization"] == "Bearer t0ken"


async def fail(url: str, content: bytes = BODY, verify: ssl.SSLContext | bool = True, **phases: float) -> str:
    """
    Post a request that fails. Return the error and the fate that it proves.
    """
    exchange = Exchange(1, "tools/call")
    async with opened(sender := new_sender(verify, timeout={**PHASES, **phases})):
        try:
            answered = await sender.send("POST", httpx2.URL(url), {}, content, exchange=exchange)
            await sender.read(answered)
        except httpx2.TransportError as error:
            sender.settle(exchange, error)
            assert "s3cret" not in str(exchange.answer.exception()) + "".join(traceback.format_exception(error))
            return f"{type(error).__name__}, {exchange.fate.name}"
    return "it did not fail"


class TestFailures:
    async def test_errors_before_a_request_is_sent_prove_that_it_did_not_run(
        self, server_context: ssl.SSLContext
    ) -> None:
        assert await fail("http://127.0.0.1:9/mcp?key=s3cret") == "ConnectError, REFUSED"
        assert await fail("http://nowhere.invalid/mcp?key=s3cret", connect=60) == "ConnectError, REFUSED"
        assert await fail("ftp://127.0.0.1/mcp") == "UnsupportedProtocol, REFUSED"
        async with ScriptedPeer(accept) as peer:
            assert await fail(with_tls(peer), connect=0.2) == "ConnectTimeout, REFUSED"
        async with ScriptedPeer(accept, ssl=server_context) as peer:
            async with opened(sender := new_sender()):
                with pytest.raises(httpx2.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
                    await post(sender, with_tls(peer))
            assert await fail(with_tls(peer)) == "ConnectError, REFUSED"

    @rows(
        "written",
        b"",
        b"HTTP/1.1 200 OK\r\nContent-",
        b"SSH-2.0-OpenSSH_9.6\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\n{",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nnonsense\r\n{",
    )
    async def test_a_response_that_ends_early_or_is_not_http_loses_the_request(self, written: bytes) -> None:
        async def answer(request: HttpRequest) -> None:
            request.writer.write(written)

        async with ScriptedPeer(answer) as peer:
            assert await fail(f"{peer.url}?key=s3cret") == "RemoteProtocolError, LOST"

    @rows("written", b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
    async def test_tls_that_breaks_after_the_handshake_loses_the_request(self, certificate, server_context, written):
        async def answer(request: HttpRequest) -> None:
            request.writer.write(written)
            os.write(request.writer.get_extra_info("socket").fileno(), b"no record of TLS")
            await asyncio.Event().wait()

        trusted = ssl.create_default_context(cafile=str(certificate[0]))
        async with ScriptedPeer(answer, ssl=server_context) as peer:
            assert await fail(with_tls(peer), verify=trusted) == "ReadError, LOST"

    async def test_a_silent_server_loses_the_request(self) -> None:
        async def answer(request: HttpRequest) -> None:
            if request.target == "/begin":
                request.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{")
            await asyncio.Event().wait()

        async with ScriptedPeer(answer) as peer:
            assert await fail(peer.url, read=0.2) == "ReadTimeout, LOST"
            assert await fail(peer.url.replace("mcp", "begin"), read=0.2) == "ReadTimeout, LOST"


class TestConnections:
    async def test_a_post_is_never_sent_twice(self) -> None:
        async def answer(_: HttpRequest) -> bytes | None:
            # The server closes the connection when it is used again.
            return None if len(peer.requests) == 2 else response("200 OK", {})

        async with ScriptedPeer(answer) as peer, opened(sender := new_sender()):
            await post(sender, peer.url)
            exchange = Exchange(1, "tools/call")
            with pytest.raises(httpx2.RemoteProtocolError) as raised:
                await sender.send("POST", httpx2.URL(peer.url), {}, BODY, exchange=exchange)
            sender.settle(exchange, raised.value)
            assert exchange.fate is Fate.LOST and exchange.answer.exception() is not None
            assert (len(peer.requests), peer.connections) == (2, 1)
            await post(sender, peer.url)
        assert len(peer.requests) == 3

    @rows(
        "late",
        None,
        b"HTTP/1.1 408 Request Timeout\r\nContent-Length: 0\r\nConnection: close\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nwrong",
    )
    @rows("is_read", False, True)
    async def test_data_on_an_idle_connection_is_not_an_answer(self, late: bytes | None, is_read: bool) -> None:
        async with ScriptedPeer(accept) as peer, opened(sender := new_sender()):
            await post(sender, peer.url)
            connection = peer.requests[0].writer
            if late is None:
                connection.get_extra_info("socket").shutdown(socket.SHUT_WR)
            else:
                connection.write(late)  # the client has not been notified yet
            for _ in range(10 if is_read else 0):  # now the client has been notified
                await asyncio.sleep(0)
            for _ in range(3):
                later = await sender.send("POST", httpx2.URL(peer.url), {}, BODY)
                assert (later.status_code, await sender.read(later)) == (200, b"{}")
        assert peer.connections == 2

    async def test_interim_responses_are_skipped_and_large_responses_arrive_completely(self) -> None:
        async def answer(_: HttpRequest) -> bytes:
            interim = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n"
            return interim + response("200 OK", large)

        large = {"text": "\u6f22" * 500_000}

        async with ScriptedPeer(answer) as peer:
            async with opened(sender := new_sender()):
                for _ in range(2):
                    answered = await sender.send("POST", httpx2.URL(peer.url), {}, BODY)
                    assert (answered.status_code, json.loads(await sender.read(answered))) == (200, large)
                assert peer.connections == 1
            await wait_until_async(lambda: peer.closed, "the end of the connection")


class TestSentRequests:
    @rows(
        "target",
        "/mcp",
        "/",
        "/a/../b",
        "/a%2Fb?x=a%20b+c&y=%C3%BC",
        "//double",
        "/mcp?url=http://x.test/?a=b",
        "/mcp;v=1?&&",
    )
    async def test_a_request_target_arrives_unchanged(self, target: str) -> None:
        async with ScriptedPeer(accept) as peer, opened(sender := new_sender()):
            url = httpx2.URL(f"http://127.0.0.1:{peer.port}{target}#fragment")
            await post(sender, str(url))
        assert peer.requests[0].target == url.raw_path.decode()

    async def test_headers_arrive_unchanged(self) -> None:
        headers = [("X-Twice", "1"), ("X-Twice", "2"), ("X-Empty", ""), ("User-Agent", "mine"), ("Accept", "a/b")]
        async with ScriptedPeer(accept) as peer, opened(sender := new_sender()):
            await sender.read(await sender.send("GET", httpx2.URL(peer.url), {}))
            request = httpx2.Request("POST", peer.url, headers=headers, content=b"{}")
            await (await sender.transport.handle_async_request(request)).aread()
        get, sent = (request.headers for request in peer.requests)
        assert set(get) == {"host", "accept", "accept-encoding", "connection", "user-agent"}
        assert sent == {
            "host": f"127.0.0.1:{peer.port}", "x-twice": "2", "x-empty": "", "user-agent": "mine",
            "accept": "a/b", "content-length": "2",
        }  # fmt: skip


@pytest.mark.parametrize("missing", [None, "aiohttp", "uvloop", "uvloop >= 0.23"])
def test_aiohttp_is_used_where_the_extra_is_installed(monkeypatch, http_stack, missing):
    if missing == "uvloop >= 0.23":
        monkeypatch.setitem(sys.modules, "uvloop", SimpleNamespace(__version__="0.22.1"))
    elif missing is not None:
        monkeypatch.setitem(sys.modules, missing, None)
    custom = httpx2.AsyncHTTPTransport()
    names = [
        type(opened).__name__
        for opened in (
            open_transport(of_session=True),
            open_transport(Route(proxy=httpx2.Proxy("http://127.0.0.1:9")), of_session=True),
            open_transport(Route(transport=custom), of_session=True),
            open_transport(),
        )
    ]
    is_fast = http_stack == "aiohttp" and missing is None
    assert names == [
        "AiohttpTransport" if is_fast else "PinnedTransport",
        "PinnedTransport",
        "AsyncHTTPTransport",
        "PinnedTransport",
    ]


async def not_found(_: HttpRequest) -> bytes:
    return response("404 Not Found", b"", "")


def client() -> httpx2.AsyncClient:
    return httpx2.AsyncClient(transport=open_transport(), timeout=5)


# Values of NO_PROXY that match mcp.test at port 8080.
EXEMPT = ("*", "mcp.test", "MCP.TEST", ".mcp.test", "mcp.test:8080", "other.test, mcp.test", ".test")


class TestProxies:
    @rows(
        ("url", "no_proxy", "is_exempt"),
        *(("http://mcp.test:8080/mcp", names, True) for names in EXEMPT),
        *(("http://mcp.test:8080/mcp", names, False) for names in ("", "cp.test", "mcp.test:80", "127.0.0.0/8")),
        ("http://127.0.0.1:8080/mcp", "127.0.0.0/8", True),
        ("http://127.0.0.1:8080/mcp", "10.0.0.0/8,127.0.0.1", True),
        ("http://[::1]:8080/mcp", "[::1]:8080", True),
        ("http://[::1]:9090/mcp", "[::1]:8080", False),
        ("http://[::1]:8080/mcp", "::1", True),
    )
    def test_no_proxy_matches_hosts_domains_and_networks(self, url, no_proxy, is_exempt):
        proxy = "http://proxy.test:3128"
        found = environment_proxy(httpx2.URL(url), {"http": proxy, "https": proxy, "no": no_proxy})
        assert found == (None if is_exempt else proxy)


async def test_sessions_share_the_default_trust_until_it_changes(certificate, monkeypatch):
    async def trusted(**parameters: Any) -> Any:
        return (await find_route(StreamableHttpServerInfo("https://mcp.test/mcp", **parameters))).verify

    shared = await trusted()
    assert isinstance(shared, ssl.SSLContext)
    assert await trusted() is shared
    # This context gets a client certificate, which must not be shown to other servers.
    assert await trusted(client_cert=tuple(map(str, certificate))) is not shared
    assert await trusted(verify=False) is False
    bundle = certificate[0]
    monkeypatch.setenv("SSL_CERT_FILE", str(bundle))
    other = await trusted()
    assert other is not shared and other.cert_store_stats()["x509"] == 1
    assert await trusted() is other
    os.utime(bundle, (0, bundle.stat().st_mtime + 1))
    assert await trusted() is not other
    for parameters in ({}, {"client_cert": tuple(map(str, certificate))}):
        monkeypatch.setenv("SSL_CERT_FILE", "/none.pem")
        with pytest.raises(ValueError, match=r"SSL_CERT_FILE names cannot be read \(No such file or directory\)"):
            await trusted(**parameters)


async def test_connections_are_probed_by_tcp_keepalive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")  # it has no effect without a proxy
    async with ScriptedPeer(not_found) as peer, client() as http, http.stream("GET", peer.url) as answered:
        connected = answered.extensions["network_stream"].get_extra_info("socket")
        assert connected.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1


class TestLogs:
    async def test_the_secrets_in_a_url_are_not_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        async with ScriptedPeer(not_found) as peer:
            url = f"http://alice:{SECRET}@127.0.0.1:{peer.port}/mcp?api_key={SECRET}"
            async with opened(sender := new_sender()):
                await post(sender, url)
            await Diagnosis(url=url, headers={}, transport="streamable-http").run()
            async with open_client(Route(), 5.0) as http:  # as used for tokens
                await http.get(url)
            async with httpx2.AsyncClient() as http:  # a client of other code
                await http.get(f"{peer.url}?page=1")
        assert f"POST {peer.url}?api_key=***" in caplog.text
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

    def test_the_credentials_of_a_socks_proxy_are_not_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.DEBUG)
        with http_route.redacted_logs(str):  # a proxy of the environment is not a secret of the server info
            started = f"setup_socks5_connection.started auth=(b'alice', b'{SECRET}') timeouts={{'read': None}}"
            logging.getLogger("httpcore2.socks").debug(started)
        assert "auth=*** timeouts={'read': None}" in caplog.text and SECRET not in caplog.text


def test_opening_many_sessions_at_once_leaves_few_threads_behind():
    before = set(threading.enumerate())
    infos = [StreamableHttpServerInfo("https://mcp.test/mcp") for _ in range(30)]

    async def find_all() -> int:
        await asyncio.gather(*(find_route(info) for info in infos))
        return len(set(threading.enumerate()) - before)

    assert asyncio.run(find_all()) <= 8
