# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What holds whatever carries the requests: cookies of load balancers, proxies of the environment, and user info in URLs.
"""

import asyncio
import ssl
from pathlib import Path
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp.transports.http.options import Route, open_transport
from haystack_integrations.tools.mcp.transports.http.posting import HttpSender
from tests.support.forward_proxy import ForwardProxy
from tests.support.scripted_peer import HttpRequest, ScriptedPeer, response

pytestmark = pytest.mark.usefixtures("no_proxies")

BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}'
PHASES: dict[str, float | None] = {"connect": 5.0, "write": 5.0, "pool": 5.0, "read": None}


def new_sender(verify: ssl.SSLContext | bool = True, **options: Any) -> HttpSender:
    return HttpSender(open_transport(Route(verify)), **{"headers": {}, "timeout": PHASES, **options})


async def post(sender: HttpSender, url: str) -> httpx2.Response:
    answered = await sender.send("POST", httpx2.URL(url), {"Content-Type": "application/json"}, BODY)
    await sender.read(answered)
    return answered


async def accept(_: HttpRequest) -> bytes:
    return response("200 OK", {})


class TestCookies:
    async def test_a_load_balancer_gets_its_cookies_back_within_the_session(self) -> None:
        async def answer(request: HttpRequest) -> bytes:
            number = len(peer.requests)
            second = b"Set-Cookie: zone=b; Path=/; HttpOnly\r\n" if number == 1 else b""
            cookie = b"Set-Cookie: node=%d; Path=/\r\n" % number if number < 3 else b""
            return response("200 OK", {}).replace(b"\r\n\r\n", b"\r\n" + cookie + second + b"\r\n", 1)

        async with ScriptedPeer(answer) as peer:
            async with (sender := new_sender()).opened():
                for _ in range(4):
                    await post(sender, peer.url)
            async with (other := new_sender()).opened():
                await post(other, peer.url)
        sent = [request.headers.get("cookie") for request in peer.requests]
        assert [sorted(each.split("; ")) if each else [] for each in sent] == [
            [],
            ["node=1", "zone=b"],
            ["node=2", "zone=b"],
            ["node=2", "zone=b"],
            [],
        ]

    async def test_a_cookie_of_a_path_goes_there_alone(self) -> None:
        async def answer(_: HttpRequest) -> bytes:
            return response("200 OK", {}, Set_Cookie="node=1; Path=/other")

        async with ScriptedPeer(answer) as peer, (sender := new_sender()).opened():
            for path in ("mcp", "mcp", "other"):
                await post(sender, f"http://127.0.0.1:{peer.port}/{path}")
        assert [request.headers.get("cookie") for request in peer.requests] == [None, None, "node=1"]


class TestProxiesOfTheEnvironment:
    @pytest.mark.parametrize("variable", ["HTTP_PROXY", "http_proxy", "ALL_PROXY"])
    async def test_plain_requests_go_through_it(self, monkeypatch: pytest.MonkeyPatch, variable: str) -> None:
        with ForwardProxy("alice:pa55") as proxy:
            monkeypatch.setenv(variable, f"http://alice:pa55@127.0.0.1:{proxy.port}")
            async with ScriptedPeer(accept) as peer, (sender := new_sender()).opened():
                assert (await post(sender, peer.url)).status_code == 200
            assert proxy.requests == [f"POST {peer.url}"]

    @pytest.mark.parametrize("variable", ["HTTPS_PROXY", "all_proxy"])
    async def test_requests_with_tls_are_tunnelled(
        self, monkeypatch: pytest.MonkeyPatch, certificate: tuple[Path, Path], variable: str
    ) -> None:
        served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        served.load_cert_chain(*certificate)
        trusted = ssl.create_default_context(cafile=str(certificate[0]))

        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            await reader.readuntil(BODY)
            writer.write(response("200 OK", {}))
            await writer.drain()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0, ssl=served)
        place = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        with ForwardProxy() as proxy:
            monkeypatch.setenv(variable, f"http://127.0.0.1:{proxy.port}")
            async with server, (sender := new_sender(trusted)).opened():
                assert (await post(sender, f"https://{place}/mcp")).status_code == 200
            assert proxy.requests == [f"CONNECT {place}"]

    async def test_a_host_in_no_proxy_is_reached_directly(self, monkeypatch: pytest.MonkeyPatch) -> None:
        with ForwardProxy() as proxy:
            monkeypatch.setenv("ALL_PROXY", f"http://127.0.0.1:{proxy.port}")
            monkeypatch.setenv("NO_PROXY", "other.test,127.0.0.1")
            async with ScriptedPeer(accept) as peer, (sender := new_sender()).opened():
                for _ in range(2):
                    await post(sender, peer.url)
            assert proxy.requests == []
        assert (len(peer.requests), peer.connections) == (2, 1)


class TestUserInfo:
    async def test_that_of_a_url_becomes_basic_authentication(self) -> None:
        async with ScriptedPeer(accept) as peer, (sender := new_sender()).opened():
            await post(sender, f"http://alice:p%40ss@127.0.0.1:{peer.port}/mcp?a=b%20c")
        (request,) = peer.requests
        assert request.headers["authorization"] == "Basic YWxpY2U6cEBzcw=="
        assert (request.target, request.headers["host"]) == ("/mcp?a=b%20c", f"127.0.0.1:{peer.port}")

    async def test_an_auth_precedes_it(self) -> None:
        class Token(httpx2.Auth):
            def auth_flow(self, request: httpx2.Request) -> Any:
                request.headers["Authorization"] = "Bearer t0ken"
                yield request

        async with ScriptedPeer(accept) as peer, (sender := new_sender(auth=Token())).opened():
            await post(sender, f"http://alice:pa55@127.0.0.1:{peer.port}/mcp")
        assert peer.requests[0].headers["authorization"] == "Bearer t0ken"
