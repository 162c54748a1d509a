# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import json
import os
from urllib.parse import urlsplit

import pytest

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnectionError,
    MCPInvocationError,
    MCPTool,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.transports.allow_lists import check_command, check_host
from tests.support.rows import rows

COMMANDS = "HAYSTACK_MCP_ALLOWED_COMMANDS"
HOSTS = "HAYSTACK_MCP_ALLOWED_HOSTS"
ENV = "HAYSTACK_MCP_ALLOWED_ENV"


@pytest.fixture(autouse=True)
def nothing_is_restricted(monkeypatch):
    for name in (COMMANDS, HOSTS, ENV):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """
    The commands `uvx` and `npx`, on a `PATH` with nothing else.
    """
    for name in ("uvx", "npx"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


class TestCommands:
    @rows(
        ("allowed", "command"),
        (" uvx , npx ", "uvx"),
        ("npx,uvx,", "uvx"),
        ("/opt/mcp/server", "/opt/mcp/server"),
        ("bin/x", "bin/x"),
    )
    def test_a_listed_command_is_allowed_and_resolved_to_the_operators_path(
        self, monkeypatch, programs, allowed, command
    ):
        monkeypatch.chdir(programs)
        monkeypatch.setenv(COMMANDS, allowed)
        assert check_command(command, {}) == str(programs / command)
        monkeypatch.delenv(COMMANDS)
        assert check_command("anything", {"PATH": "/x", "LD_PRELOAD": "y"}) == "anything"

    @rows(
        ("allowed", "command", "named"),
        ("uvx", "npx", "uvx"),
        ("uvx", "/usr/bin/uvx", "uvx"),
        ("/usr/bin/uvx", "uvx", "/usr/bin/uvx"),
        ("", "uvx", "no command"),
        ("absent", "absent", "it was not found on the PATH"),
    )
    def test_any_other_command_is_refused_with_the_list_of_allowed_ones(
        self, monkeypatch, programs, allowed, command, named
    ):
        monkeypatch.setenv(COMMANDS, allowed)
        with pytest.raises(MCPConnectionError, match="Did not start the command") as raised:
            check_command(command, None)
        assert f"'{command}'" in str(raised.value) and named in str(raised.value)
        assert raised.value.operation == "connect"

    @rows("name", "PATH", "path", "LD_PRELOAD", "BASH_FUNC_x%%", "ANYTHING")
    def test_no_variable_may_be_set_unless_the_operator_allows_exactly_that_one(self, monkeypatch, programs, name):
        monkeypatch.setenv(COMMANDS, "uvx")
        for allowed in (None, "", f"{name}S, X_{name}", f"{name[:2]}*"):
            if allowed is not None:
                monkeypatch.setenv(ENV, allowed)
            with pytest.raises(MCPConnectionError, match=ENV) as raised:
                check_command("uvx", {name: "s3cret-value"})
            assert f"sets {name}," in str(raised.value)
            assert "s3cret-value" not in str(raised.value)
        monkeypatch.setenv(ENV, f"OTHER, {name}")
        assert check_command("uvx", {name: "s3cret-value"}) == str(programs / "uvx")
        monkeypatch.delenv(ENV)

    def test_relative_entries_of_path_start_at_our_working_directory_and_not_at_the_servers(
        self, monkeypatch, tmp_path
    ):
        here, there = tmp_path / "here", tmp_path / "there"
        for folder in (here, there):
            folder.mkdir()
            program = folder / "server"
            program.write_text(f"#!/bin/sh\ntouch {folder / 'started'}\n")
            program.chmod(0o755)
        monkeypatch.chdir(here)
        monkeypatch.setenv("PATH", f".{os.pathsep}{os.environ['PATH']}")
        monkeypatch.setenv(COMMANDS, "server")
        with pytest.raises(MCPConnectionError):
            MCPTool("x", StdioServerInfo("server", cwd=str(there))).warm_up()
        assert (here / "started").exists()
        assert not (there / "started").exists()

    def test_a_refused_command_is_not_started(self, monkeypatch, tmp_path):
        monkeypatch.setenv(COMMANDS, "uvx, bash")
        trace, payload = tmp_path / "started", tmp_path / "payload"
        payload.write_text(f"touch {trace}\n")
        by_variable = StdioServerInfo("bash", ["-c", "true"], env={"BASH_ENV": str(payload)})
        for info in (StdioServerInfo("touch", [str(trace)]), by_variable):
            tool = MCPTool("x", info)
            with pytest.raises(MCPConnectionError, match="HAYSTACK_MCP_ALLOWED"):
                tool.warm_up()
            with pytest.raises(MCPInvocationError, match="HAYSTACK_MCP_ALLOWED"):
                tool.invoke()
            tool.close()
        assert not trace.exists()

    def test_an_allowed_command_is_started_and_checked_again_at_every_connect(self, monkeypatch, stdio_server):
        server = stdio_server()
        monkeypatch.setenv(COMMANDS, server.command)
        with MCPTool("add", StdioServerInfo(server.command, server.args)) as tool:
            assert json.loads(tool.invoke(a=1, b=2))["isError"] is False
            tool.close()
            monkeypatch.setenv(COMMANDS, "")
            with pytest.raises(MCPConnectionError, match=COMMANDS):
                tool.warm_up()
        with MCPTool("add", InProcessServerInfo("tests.servers.inprocess:server")) as tool:  # starts no command
            assert json.loads(tool.invoke(a=1, b=2))["isError"] is False


class TestHosts:
    @rows(
        ("allowed", "url"),
        (None, "http://anywhere:1234/mcp"),
        ("mcp.example.com", "http://mcp.example.com:8000/mcp"),
        (" a , MCP.example.com ", "https://mcp.Example.COM/mcp"),
        ("*.internal", "http://tools.internal/mcp"),
        ("localhost:8000", "http://localhost:8000/mcp"),
        ("h:443", "https://h/mcp"),
        ("h:80", "http://h/mcp"),
        ("[::1]:8000", "http://[::1]:8000/mcp"),
        ("::1", "http://[::1]/mcp"),
        ("proxy:443", "https://proxy"),
        ("proxy:1080", "socks5://proxy"),
    )
    def test_a_listed_host_is_allowed(self, monkeypatch, allowed, url):
        if allowed is not None:
            monkeypatch.setenv(HOSTS, allowed)
        check_host(url)

    @rows(
        ("allowed", "url", "named"),
        ("mcp.example.com", "https://mcp.example.com.evil.com/mcp", "mcp.example.com.evil.com:443"),
        ("mcp.example.com", "https://mcp.example.com@evil.com/mcp", "evil.com:443"),
        ("mcp.example.com", "https://evil.com/?mcp.example.com", "evil.com:443"),
        ("*.internal", "http://internal/mcp", "internal:80"),
        ("localhost:8000", "http://localhost:8001/mcp", "localhost:8001"),
        ("*.internal", "http://[::1%25.internal]/mcp", "[::1%25.internal]:80"),
        ("", "http://localhost/mcp", "localhost:80"),
    )
    def test_any_other_host_is_refused_with_its_name_and_the_list_of_allowed_ones(
        self, monkeypatch, allowed, url, named
    ):
        monkeypatch.setenv(HOSTS, allowed)
        with pytest.raises(MCPConnectionError, match=HOSTS) as raised:
            check_host(url)
        assert f"Did not connect to {named}:" in str(raised.value)
        assert (allowed or "no host") in str(raised.value)
        assert raised.value.operation == "connect"

    def test_no_request_is_sent_to_a_refused_host_or_proxy(self, monkeypatch, http_server):
        server = http_server()
        host = urlsplit(server.url).netloc
        monkeypatch.setenv(HOSTS, "mcp.example.com")
        tool = MCPTool("add", StreamableHttpServerInfo(server.url))
        with pytest.raises(MCPConnectionError, match=HOSTS):
            tool.warm_up()
        behind = SSEServerInfo("http://mcp.example.com/sse", proxy=f"http://{host}")
        with pytest.raises(MCPConnectionError, match=f"the `proxy` of the server info, {host}: {HOSTS}"):
            MCPTool("add", behind).warm_up()
        assert server.requests() == []
        monkeypatch.setenv(HOSTS, "127.0.0.1")
        tool.warm_up()
        assert "tools/list" in server.requests()
        tool.close()
