# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Logging in before a service needs the tokens: in Python and on the command line.
"""

import asyncio
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from haystack_integrations.tools.mcp import (
    FileTokenStorage,
    InMemoryTokenStorage,
    MCPAuthorizationError,
    MCPConnection,
    MCPLoginRequest,
    MCPToolset,
    OAuthConfig,
    StreamableHttpServerInfo,
    login,
    login_async,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.auth.__main__ import main
from tests.support.oauth_server import OAuthServer, allow

ROOT = Path(__file__).parents[2]


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with OAuthServer() as server:
        yield server


@pytest.fixture(autouse=True)
def no_browser(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(variable, raising=False)


def whose(connection: MCPConnection) -> str:
    return str(connection.call_tool("whoami").content[0].text)


def test_a_service_finds_the_tokens_of_a_login(server: OAuthServer, tmp_path: Path) -> None:
    storage = FileTokenStorage(str(tmp_path))
    here = StreamableHttpServerInfo(server.url, oauth_config=OAuthConfig(redirect_handler=allow, token_storage=storage))
    service = StreamableHttpServerInfo(server.url, oauth_config=OAuthConfig(token_storage=storage))
    login(here)
    asyncio.run(login_async(here, user="bob"))
    with MCPConnection(service) as connection:
        assert whose(connection) == "alice"
        with mcp_request_context(user="bob"):
            assert whose(connection) == "bob"
        with mcp_request_context(user="carol"), pytest.raises(Exception, match="has no browser"):
            whose(connection)
    assert server.count["authorizations"] == 2


def test_a_login_replaces_the_tokens_that_there_are(server: OAuthServer) -> None:
    storage = InMemoryTokenStorage()
    info = StreamableHttpServerInfo(server.url, oauth_config=OAuthConfig(redirect_handler=allow, token_storage=storage))
    login(info)
    login(info)
    assert server.count["authorizations"] == 2


def test_tokens_without_a_storage_are_those_of_the_process(server: OAuthServer) -> None:
    login(StreamableHttpServerInfo(server.url, oauth_config=OAuthConfig(redirect_handler=allow)))
    with MCPConnection(StreamableHttpServerInfo(server.url, auth="oauth")) as connection:
        assert whose(connection) == "alice"


def test_a_login_that_fails_says_where_and_why(server: OAuthServer) -> None:
    with pytest.raises(MCPAuthorizationError, match=r"Failed to log in at streamable HTTP server at .*: authorization"):
        login(StreamableHttpServerInfo(server.url, auth="oauth"))
    with pytest.raises(ValueError, match="uses no OAuth"):
        login(StreamableHttpServerInfo(server.url))
    server.__exit__()
    with pytest.raises(MCPAuthorizationError, match="could not be reached"):
        login(StreamableHttpServerInfo(server.url, auth="oauth"))


def test_the_command_logs_in_at_the_servers_of_a_pipeline(server: OAuthServer, tmp_path: Path) -> None:
    config = OAuthConfig(token_storage=FileTokenStorage(str(tmp_path / "tokens")))
    toolset = MCPToolset(StreamableHttpServerInfo(server.url, oauth_config=config))
    pipeline = tmp_path / "pipeline.yaml"
    pipeline.write_text(yaml.safe_dump({"components": {"agent": {"init_parameters": {"tools": toolset.to_dict()}}}}))
    command = subprocess.Popen(
        [sys.executable, "-m", "haystack_integrations.tools.mcp.auth", "login", str(pipeline)],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src"), "COLUMNS": "500"},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert command.stdout is not None
    # There is no browser, so it prints the page.
    url = next(line.strip() for line in command.stdout if line.startswith("http"))
    uri = re.search(r"redirect_uri=([^&]+)", url)
    assert uri is not None
    request = MCPLoginRequest(url=url, redirect_uri=uri[1], state="", server_url=server.url)
    asyncio.run(allow(request))
    output, errors = command.communicate(timeout=60)
    assert command.returncode == 0, errors
    assert "Logged in" in output
    with MCPConnection(toolset.server_info) as connection:
        assert whose(connection) == "alice"


def test_the_command_says_what_is_missing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    empty = tmp_path / "empty.yaml"
    empty.write_text("components: {}")
    assert main(["login", str(empty)]) == 2
    assert "has no server info with OAuth" in capsys.readouterr().err
    assert main(["login", "https://mcp.example.com/mcp"]) == 2
    assert "needs --tokens FOLDER" in capsys.readouterr().err
    assert main(["login", str(tmp_path / "missing.yaml")]) == 2


def test_the_command_tells_a_failure(server: OAuthServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    server.__exit__()
    assert main(["login", server.url, "--tokens", str(tmp_path)]) == 1
    assert "could not be reached" in capsys.readouterr().err
