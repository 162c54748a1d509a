# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`mcp-haystack login` and `logout`, with the SDK's authorization server, as a person uses them.
"""

import asyncio
import errno
import json
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from haystack_integrations.tools.mcp import MCPConnection, OAuthConfig, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.cli.files import remember_login, token_folder
from haystack_integrations.tools.mcp.oauth import FileTokenStorage, MCPLoginRequest
from tests.cli.conftest import Run, servers_file
from tests.support.oauth_server import OAuthServer, allow
from tests.support.rows import rows
from tests.support.terminal import Ran, Terminal

LogIn = Callable[..., Ran]


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with OAuthServer(revokes=True) as server:
        yield server


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    A user without a browser, and with a new folder for settings.
    """
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "settings"))
    return tmp_path / "settings" / "mcp-haystack"


@pytest.fixture
def log_in(settings: Path) -> LogIn:
    """
    Logs in, in a terminal: the URL of the page is printed, and a person opens it in a browser and allows the access.
    """

    def log_in(server: OAuthServer, *words: str) -> Ran:
        with Terminal(*words, width=2000, cwd=Path.cwd()) as terminal:
            terminal.wait_for("With a browser on another machine")
            url = re.search(r"http://\S+/authorize\?\S+", terminal.raw)
            assert url is not None, terminal.raw
            request = MCPLoginRequest(url=url[0], redirect_uri="", state="", server_url=server.url)
            asyncio.run(allow(request))
            return terminal.end()

    return log_in


def test_other_commands_use_a_login_until_the_logout(
    server: OAuthServer, log_in: LogIn, settings: Path, run: Run
) -> None:
    for token in ("sk-s3cret", "ghp_0123456789abcdefghijABCDEFGHIJ", "Bearer s3cret"):
        misplaced = run("call", server.url, "whoami", "--token-env", token)
        assert (misplaced.code, token in misplaced.errors) == (2, False)
        assert "--token-env takes the name of an environment variable" in misplaced.errors
    refused = run("call", server.url, "whoami")
    assert refused.code == 4
    assert "log in with 'mcp-haystack login'" in refused.errors

    ran = log_in(server, "login", server.url)
    assert ran.code == 0, ran.screen
    assert "Logged in at the streamable HTTP server" in ran.screen
    assert run("call", server.url, "whoami").screen == "alice\n"
    assert not any(secret in ran.screen for secret in server.issued if not secret.startswith("code"))
    assert not any(secret in (settings / "logins.json").read_text() for secret in server.issued)

    assert run("logout", server.url).code == 0
    again = run("logout", server.url, "--json")
    assert (again.code, server.url in json.loads(again.screen)["server"]) == (0, True)
    assert "There was no login" in again.errors
    assert run("call", server.url, "whoami").code == 4
    assert server.provider.access == {}
    assert json.loads((settings / "logins.json").read_text()) == {}


def test_a_login_at_a_server_of_a_file_stores_tokens_that_a_service_finds(
    server, log_in, settings, tmp_path, run, monkeypatch
):
    folder = str(tmp_path / "tokens of a service")
    monkeypatch.chdir(tmp_path)
    file = servers_file(tmp_path / "mcp.json", {"mine": {"url": server.url, "auth": "oauth"}})
    words = ("--scope", "use", "--resource", server.url)
    assert log_in(server, "login", f"{file}:mine", *words).code == 0
    assert {token.resource for token in server.provider.access.values()} == {server.url}
    assert run("call", "mine", "whoami", "--config", file).screen == "alice\n"
    assert log_in(server, "login", server.url, "--tokens", "tokens of a service").code == 0
    monkeypatch.chdir(settings)
    assert run("call", server.url, "whoami").screen == "alice\n"
    config = OAuthConfig(token_storage=FileTokenStorage(folder))
    with MCPConnection(StreamableHttpServerInfo(server.url, oauth_config=config)) as connection:
        assert connection.call_tool("whoami").content[0].text == "alice"


@rows("program", "false", "true")
def test_the_url_of_the_page_is_printed_whether_or_not_the_browser_reports_that_it_opens(
    program: str, server: OAuthServer, log_in: LogIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("BROWSER", program)
    assert log_in(server, "login", server.url).code == 0


def test_targets_without_a_login_are_reported(server: OAuthServer, settings: Path, tmp_path: Path, run: Run) -> None:
    headers = {"Authorization": "Bearer x"}
    file = servers_file(tmp_path / "mcp.json", {"mine": {"url": server.url, "headers": headers}})
    for words, code, told in (
        ([file], 2, "a header `Authorization` and `oauth_config` exclude each other"),
        (["tests.servers.inprocess:server"], 2, "A login is for a server with a URL, and not for"),
        (["http://127.0.0.1:9/mcp"], 4, "could not be reached"),
        ([server.url, "--client-id", "me", "--client-secret-env", "sk-s3cret"], 2, "takes the name of an environment"),
    ):
        ran = run("login", *words)
        assert (ran.code, told in ran.errors) == (code, True), ran.errors
        assert "s3cret" not in ran.errors


def test_credentials_of_the_command_line_override_a_login(
    settings: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = "http://127.0.0.1:9/mcp"
    remember_login(StreamableHttpServerInfo(url), OAuthConfig(token_storage=FileTokenStorage(str(token_folder()))))
    monkeypatch.setenv("A_TOKEN", "a-token-of-somebody")
    for words in (["--token-env", "A_TOKEN"], ["--header", "Authorization: Bearer ${A_TOKEN}"]):
        ran = run("list", url, *words)
        assert (ran.code, "nothing listens" in ran.errors) == (3, True), ran.errors


def test_a_login_that_cannot_be_recorded_keeps_the_others(settings: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill_disk(file: Path, text: str, **_options: str) -> None:
        file.write_bytes(text[:20].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    config = OAuthConfig(token_storage=FileTokenStorage(str(settings)))
    remember_login(StreamableHttpServerInfo("https://one.example/mcp"), config)
    assert (settings / "logins.json").stat().st_mode & 0o077 == 0
    monkeypatch.setattr(Path, "write_text", fill_disk)
    with pytest.raises(OSError, match="No space left"):
        remember_login(StreamableHttpServerInfo("https://two.example/mcp"), config)
    assert json.loads((settings / "logins.json").read_text()).keys() == {"https://one.example/mcp"}


@pytest.mark.parametrize("record", ["{", "[1]", '{"http://127.0.0.1:9/mcp": {"grant_type": "new"}}'])
def test_an_unreadable_record_is_reported(settings: Path, run: Run, record: str) -> None:
    settings.mkdir(parents=True)
    (settings / "logins.json").write_text(record)
    ran = run("list", "http://127.0.0.1:9/mcp")
    assert (ran.code, "Delete it, and log in again" in ran.errors) == (2, True)


@rows(("platform", "folder"), ("darwin", "Library/Application Support"), ("win32", "AppData"))
def test_settings_are_in_the_folder_of_the_operating_system(settings, tmp_path, monkeypatch, platform, folder):
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv("APPDATA", str(tmp_path / "AppData"))
    assert token_folder() == tmp_path / folder / "mcp-haystack" / "tokens"
