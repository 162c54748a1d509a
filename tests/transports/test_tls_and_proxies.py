# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Private authorities, client certificates, proxies and custom transports, each with a real server of that kind.
"""

import asyncio
import json
import shutil
import ssl
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import pytest
from haystack.core.errors import DeserializationError
from haystack.utils import Secret

from haystack_integrations.tools.mcp import MCPConnection, MCPServerInfo, SSEServerInfo, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.transports.http_route import find_route
from tests.servers.raw_server import RawServer
from tests.support.background import in_thread
from tests.support.certificates import Authority
from tests.support.forward_proxy import ForwardProxy
from tests.support.rows import rows
from tests.support.waiting import LIMIT

PASSWORD = "proxy-pa55word"
KEY_PASSWORD = "key-pa55word"
HERE = "tests.transports.test_tls_and_proxies"

pytestmark = pytest.mark.usefixtures("no_proxies")


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def server_files(authority: Authority) -> tuple[str, str]:
    return authority.sign("server")


def describe(server: Any, *, tls: bool = True, **options: Any) -> StreamableHttpServerInfo:
    return StreamableHttpServerInfo(server.url.replace("http:", "https:") if tls else server.url, **options)


def sum_of(info: MCPServerInfo) -> int:
    # Use a stored and loaded copy, which must work like the original.
    with MCPConnection(MCPServerInfo.from_dict(info.to_dict())) as connection:
        return connection.call_tool("add", {"a": 5, "b": 3}).structured_content["result"]


def failure(info: MCPServerInfo) -> str:
    with pytest.raises(MCPConnectionError) as raised, MCPConnection(info):
        pass
    return str(raised.value)


transports_made: list[dict[str, Any]] = []


def make_transport(**options: Any) -> httpx2.AsyncBaseTransport:
    transports_made.append(options)
    return httpx2.AsyncHTTPTransport(**options)


def test_a_private_authority_is_trusted_through_a_bundle_or_a_context(http_server, server_files, authority):
    server = http_server("streamable-http", "--tls", *server_files)
    assert "is not trusted" in (said := failure(describe(server))) and "verify=" in said
    assert sum_of(describe(server, verify=str(authority.bundle))) == 8
    assert sum_of(describe(server, verify=False)) == 8
    info = describe(server, verify=ssl.create_default_context(cafile=str(authority.bundle)))
    with MCPConnection(info) as connection:
        assert connection.is_ready
    with pytest.raises(ValueError, match="`verify` holds an object of type SSLContext that cannot be stored"):
        info.to_dict()


def test_a_client_certificate_is_sent_to_a_server_that_asks_for_it(http_server, server_files, authority, monkeypatch):
    bundle = str(authority.bundle)
    server = http_server("streamable-http", "--tls", *server_files, bundle)
    assert "client certificate" in failure(describe(server, verify=bundle, timeout=5))
    assert sum_of(describe(server, verify=bundle, client_cert=authority.sign("client"))) == 8
    monkeypatch.setenv("KEY_PASSWORD", KEY_PASSWORD)
    locked = (*authority.sign("locked", password=KEY_PASSWORD), Secret.from_env_var("KEY_PASSWORD"))
    info = describe(server, verify=bundle, client_cert=locked)
    assert sum_of(info) == 8
    assert KEY_PASSWORD not in repr(info) and KEY_PASSWORD in info._secrets()


class OncePerConnection(BaseHTTPRequestHandler):
    """
    Answers one request per connection. Unlike asyncio, a threading server reports why it refuses a certificate.
    """

    raw = RawServer({})

    def do_POST(self) -> None:
        message = json.loads(self.rfile.read(int(self.headers["content-length"])))
        body = self.raw.answer(message)[0] if "id" in message else b""
        self.send_response(200 if body else 202)
        self.send_header("content-type", "application/json")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


@pytest.mark.usefixtures("http_stack")
@pytest.mark.parametrize("whose", ["server", "client"])
def test_certificate_files_are_read_again_after_a_refusal(tmp_path, whose):
    def use(server_authority: Authority, client_authority: Authority) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.maximum_version = ssl.TLSVersion.TLSv1_2  # with 1.3, the refusal may be lost with the connection
        context.load_cert_chain(*server_authority.sign("server"))
        context.load_verify_locations(client_authority.bundle)
        context.verify_mode = ssl.CERT_REQUIRED
        for source, target in zip((server_authority.bundle, *client_authority.sign("client")), files, strict=True):
            shutil.copy(source, target)

        def get_request() -> tuple[ssl.SSLSocket, Any]:
            connection, address = server.socket.accept()
            return context.wrap_socket(connection, server_side=True), address

        server.get_request = get_request

    for name in ("old", "new"):
        (tmp_path / name).mkdir()
    old, new = (Authority(tmp_path / name) for name in ("old", "new"))
    bundle, *client_cert = files = [str(tmp_path / name) for name in ("bundle.pem", "client.pem", "client.key")]
    server = ThreadingHTTPServer(("127.0.0.1", 0), OncePerConnection)
    use(old, old)
    url = f"https://127.0.0.1:{server.server_port}/mcp"
    serving = in_thread(server.serve_forever, 0.05)
    with MCPConnection(StreamableHttpServerInfo(url, verify=bundle, client_cert=tuple(client_cert))) as connection:
        connection.call_tool("fine")
        use(*((new, old) if whose == "server" else (old, new)))
        connection.call_tool("fine")
        assert connection.status().sessions == 2
    server.shutdown()
    serving.result(LIMIT)
    server.server_close()


class TestClientCertificateFaults:
    """
    Faults of the files are reported before anything is sent.
    """

    URL = "https://127.0.0.1:9/mcp"

    def test_an_unusable_key_is_an_error_that_names_the_cause(self, authority: Authority) -> None:
        certificate, key = authority.sign("locked", password=KEY_PASSWORD)
        other, _ = authority.sign("client")
        password, wrong = Secret.from_token(KEY_PASSWORD), Secret.from_token("wrong-pa55word")
        for files, expected in (
            ((certificate, key), "is the password of the key missing or wrong?"),
            ((certificate, key, wrong), "is the password of the key missing or wrong?"),
            ((other, key, password), "key values mismatch"),
        ):
            said = failure(StreamableHttpServerInfo(self.URL, client_cert=files))
            assert expected in said.lower().replace("_", " ") and "wrong-pa55word" not in said

    async def test_the_password_of_a_key_that_is_not_encrypted_may_be_missing(self, authority: Authority) -> None:
        files = authority.sign("client")
        await find_route(StreamableHttpServerInfo(self.URL, client_cert=(*files, Secret.from_env_var("NOT_SET"))))

    @rows(
        ("options", "expected"),
        ({"client_cert": "/none.pem"}, "`client_cert`: '/none.pem' cannot be loaded ([Errno 2] No such file"),
        ({"client_cert": "/none.pem", "verify": ssl.create_default_context()}, "excludes an ssl.SSLContext"),
        ({"verify": "/none.pem"}, "`verify`: the CA bundle '/none.pem' cannot be read (No such file or directory)"),
        ({"http_transport": dict}, "`http_transport` must give an httpx2.AsyncBaseTransport, it gave dict"),
        ({"http_transport": f"{HERE}:none"}, "there is no 'none' in the module"),
    )
    def test_unusable_files_are_named(self, options: dict[str, Any], expected: str) -> None:
        assert expected in failure(StreamableHttpServerInfo(self.URL, **options))


@pytest.mark.parametrize("tls", [False, True])
async def test_all_requests_go_through_the_proxy(http_server, server_files, authority, monkeypatch, tls):
    server = http_server("streamable-http", *(("--tls", *server_files) if tls else ()))
    # The proxies and exceptions of the environment do not apply to an explicit proxy.
    monkeypatch.setenv("all_proxy", "http://127.0.0.1:9")
    monkeypatch.setenv("NO_PROXY", "*")
    async with ForwardProxy(f"alice:{PASSWORD}") as proxy:
        monkeypatch.setenv("PROXY_URL", f"http://alice:{PASSWORD}@127.0.0.1:{proxy.port}")
        info = describe(server, tls=tls, verify=str(authority.bundle), proxy=Secret.from_env_var("PROXY_URL"))
        assert await asyncio.to_thread(sum_of, info) == 8
        requests, place = list(proxy.requests), f"127.0.0.1:{server.port}"
        assert proxy.refused == 0
    assert all(request.startswith(f"CONNECT {place}" if tls else "") for request in requests)
    assert requests[0].endswith(place if tls else f" http://{place}{server.path}")
    assert PASSWORD not in repr(info) and PASSWORD in info._secrets()


async def test_the_error_says_that_a_proxy_answers_and_wants_credentials(http_server: Any) -> None:
    server = http_server()
    async with ForwardProxy(f"alice:{PASSWORD}") as proxy:
        url = f"http://alice:wr0ng-pa55@127.0.0.1:{proxy.port}"
        said = await asyncio.to_thread(failure, describe(server, tls=False, proxy=url))
        assert "407 Proxy Authentication Required through the proxy 127.0.0.1: check the credentials in the URL" in said
        said += await asyncio.to_thread(failure, describe(server, proxy=url))
        assert "(through the proxy 127.0.0.1) cannot be reached: check the credentials in the URL of the proxy" in said
        assert proxy.requests == [] and "wr0ng" not in said


@rows(
    ("proxy", "said"),
    ("socks://127.0.0.1:9/", "the proxy that the environment names cannot be used: `proxy` must be a URL like "),
    ("http://127.0.0.1:9", "nothing listens at mcp.test:80 (through the proxy 127.0.0.1)."),
    ("127.0.0.1:9", "nothing listens at mcp.test:80 (through the proxy 127.0.0.1)."),
)
def test_the_error_names_an_unusable_proxy_of_the_environment(proxy: str, said: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("http_proxy", proxy)
        assert said in failure(StreamableHttpServerInfo("http://mcp.test/mcp"))


def test_a_custom_transport_gets_the_options_and_is_also_used_by_the_diagnosis(http_server: Any) -> None:
    transports_made.clear()
    server = http_server()
    assert sum_of(describe(server, tls=False, http_transport=make_transport)) == 8
    assert set(transports_made[0]) == {"verify", "proxy", "limits", "socket_options"}
    failure(describe(server, verify=False, http_transport=f"{HERE}:make_transport"))
    assert [made["verify"] for made in transports_made] == [True, False, False]


def test_a_stored_function_of_a_disallowed_module_is_not_loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("haystack.core.serialization_security")
    data = StreamableHttpServerInfo("https://127.0.0.1:9/mcp", http_transport="foreign_module:make").to_dict()
    with pytest.raises(DeserializationError):
        MCPServerInfo.from_dict(data)


def test_equal_options_share_a_session_and_repr_shows_no_secret() -> None:
    options = {"proxy": f"http://alice:{PASSWORD}@proxy:3128", "http_transport": make_transport, "verify": False}
    info = SSEServerInfo("https://127.0.0.1:9/sse", **options)
    assert info == SSEServerInfo("https://127.0.0.1:9/sse", **options)
    assert PASSWORD not in repr(info) and "make_transport" in repr(info)
