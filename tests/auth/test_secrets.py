# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
No code, token, verifier, state or secret of a login is in a log line, a repr, a trace, an error or YAML.
"""

import asyncio
import logging
import traceback
import urllib.request
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

import pytest
import yaml
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from starlette.responses import JSONResponse, Response

from haystack_integrations.tools.mcp import (
    FileTokenStorage,
    MCPAuthorizationError,
    MCPConnection,
    MCPError,
    MCPInvocationError,
    MCPLoginRequest,
    OAuthConfig,
    StreamableHttpServerInfo,
    login,
)
from tests.support.oauth_server import OAuthServer

# The form fields and JSON members that are secret.
SECRET = {"code", "code_verifier", "refresh_token", "client_secret", "access_token", "client_assertion", "assertion"}


def _press(url: str) -> None:
    with urllib.request.urlopen(url) as page:  # noqa: S310 - of the server in this process
        login_page = page.url
    urllib.request.urlopen(login_page, data=b"subject=alice").close()  # noqa: S310


class Scan:
    """
    Everything that is shown, and every secret that passed the server.
    """

    def __init__(self, server: OAuthServer) -> None:
        self.server = server
        self.shown: list[str] = []
        self.secrets: set[str] = set()

    def watch(self, tamper: Callable[[str, bytes], Response | None] = lambda path, body: None) -> None:
        def note(path: str, body: bytes) -> Response | None:
            if path in ("/token", "/register"):
                self.secrets.update(value for name, value in parse_qsl(body.decode()) if name in SECRET)
            return tamper(path, body)

        self.server.tamper = note

    async def allow(self, request: MCPLoginRequest) -> None:
        self.secrets.add(request.state)
        self.shown.append(repr(request))
        await asyncio.to_thread(_press, request.url)  # by a browser of another library, which does not log

    def error(self, error: BaseException) -> None:
        self.shown += [*traceback.format_exception(error), repr(error), str(vars(error))]

    def assert_clean(self) -> None:
        secrets = self.secrets | self.server.issued
        secrets |= {client.client_secret or "" for client in self.server.provider.clients.values()} - {""}
        assert len(secrets) > 5
        for text in self.shown:
            found = [secret for secret in secrets if secret in text]
            assert not found, f"{found} in {text}"


@pytest.fixture
def spans(monkeypatch: pytest.MonkeyPatch) -> InMemorySpanExporter:
    exporter = InMemorySpanExporter()
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    monkeypatch.setattr(trace, "_TRACER_PROVIDER", provider)
    return exporter


@pytest.mark.parametrize("dpop", [False, True], ids=["bearer", "dpop"])
def test_a_login_a_refresh_and_failures_show_no_secret(
    tmp_path: Any, caplog: pytest.LogCaptureFixture, spans: InMemorySpanExporter, dpop: bool
) -> None:
    # What others log of requests of their own is theirs.
    for name in ("uvicorn", "mcp.server", "sse_starlette", "asyncio", "python_multipart"):
        logging.getLogger(name).setLevel(logging.WARNING)
    caplog.set_level(logging.DEBUG)
    with OAuthServer() as server:
        scan = Scan(server)
        scan.watch()
        config = OAuthConfig(
            redirect_handler=scan.allow, token_storage=FileTokenStorage(str(tmp_path)), dpop=dpop, login_timeout=30
        )
        info = StreamableHttpServerInfo(server.url, oauth_config=config)
        if dpop:  # the server knows no DPoP, so its token is refused
            with pytest.raises(MCPAuthorizationError, match="not bound to the client's key") as refused:
                login(info)
            scan.error(refused.value)
        else:
            scan.shown += _use(scan, info)
        scan.shown += [repr(config), repr(config._storage()), str(info._to_trace_dict())]
        stored = OAuthConfig(token_storage=config.token_storage, client_id="me", client_secret=None).to_dict()
        scan.shown.append(yaml.safe_dump(stored))
    scan.shown += [f"{record.name}: {record.getMessage()} {record.exc_text}" for record in caplog.records]
    scan.shown += [span.to_json() for span in spans.get_finished_spans()]
    assert any("token" in record.getMessage() for record in caplog.records if "mcp.auth" in record.name) or dpop
    scan.assert_clean()


def _use(scan: Scan, info: StreamableHttpServerInfo) -> list[str]:
    server = scan.server
    with MCPConnection(info) as connection:
        connection.call_tool("whoami")
        with pytest.raises(MCPInvocationError) as leaked:
            connection.call_tool("leak")
        scan.error(leaked.value)
        server.provider.access.clear()
        connection.call_tool("whoami")
        # The authorization server quotes what it got, and what it gave.
        for path in ("/token", "/register"):
            server.provider.access.clear()

            def quote(asked: str, body: bytes, path: str = path) -> Response | None:
                told = {"error": "invalid_grant", "error_description": body.decode() + " " + " ".join(server.issued)}
                return JSONResponse(told, 400) if asked == path else None

            scan.watch(quote)
            with pytest.raises((MCPError, MCPInvocationError)) as caught:
                connection.call_tool("write" if path == "/register" else "whoami")
            scan.error(caught.value)
            scan.shown.append(str(connection.status()))
        shown = [repr(connection), str(connection.status())]
    return shown
