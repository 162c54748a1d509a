# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import json
import os
import stat

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

COMMANDS = "HAYSTACK_MCP_ALLOWED_COMMANDS"
HOSTS = "HAYSTACK_MCP_ALLOWED_HOSTS"


@pytest.fixture(autouse=True)
def nothing_is_restricted(monkeypatch):
    monkeypatch.delenv(COMMANDS, raising=False)
    monkeypatch.delenv(HOSTS, raising=False)


class TestCommands:
    def test_without_the_variable_every_command_is_allowed(self):
        assert check_command("anything", {"PATH": "/x", "LD_PRELOAD": "y"}) == "anything"

    @pytest.mark.parametrize("allowed", ["uvx", " uvx , npx ", "npx,uvx", "uvx,"])
    def test_a_listed_command_is_allowed(self, monkeypatch, allowed):
        monkeypatch.setenv(COMMANDS, allowed)
        assert os.path.basename(check_command("uvx", {"KEY": "x"})) == "uvx"

    @pytest.mark.parametrize(
        ("allowed", "command"),
        [
            ("uvx", "npx"),
            ("uvx", "/usr/bin/uvx"),
            ("/usr/bin/uvx", "uvx"),
            ("uvx", "uvx --x"),
            ("uvx", "UVX"),
            ("*", "x"),
        ],
    )
    def test_any_other_command_is_refused_naming_what_is_allowed(self, monkeypatch, allowed, command):
        monkeypatch.setenv(COMMANDS, allowed)
        with pytest.raises(MCPConnectionError, match=COMMANDS) as raised:
            check_command(command, None)
        assert f"'{command}'" in str(raised.value)
        assert allowed in str(raised.value)
        assert raised.value.operation == "connect"

    def test_an_empty_variable_allows_nothing(self, monkeypatch):
        monkeypatch.setenv(COMMANDS, "")
        with pytest.raises(MCPConnectionError, match="no command"):
            check_command("uvx", None)

    @pytest.mark.parametrize(
        "name", ["PATH", "path", "LD_PRELOAD", "DYLD_INSERT_LIBRARIES", "PYTHONPATH", "NODE_OPTIONS"]
    )
    def test_an_environment_that_would_change_what_the_command_is_is_refused(self, monkeypatch, name):
        monkeypatch.setenv(COMMANDS, "uvx")
        with pytest.raises(MCPConnectionError, match=f"sets {name}"):
            check_command("uvx", {"HARMLESS": "x", name: "y"})

    def test_a_bare_name_is_looked_up_on_the_operators_path(self, monkeypatch, tmp_path):
        program = tmp_path / "my-mcp-server"
        program.write_text("#!/bin/sh\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv(COMMANDS, "my-mcp-server,my-absent-server")
        assert check_command("my-mcp-server", None) == str(program)
        assert check_command("my-absent-server", None) == "my-absent-server"

    def test_a_path_is_started_as_it_is_listed(self, monkeypatch):
        monkeypatch.setenv(COMMANDS, "/opt/mcp/server")
        assert check_command("/opt/mcp/server", None) == "/opt/mcp/server"

    def test_a_relative_path_is_the_operators_whatever_the_working_directory_of_the_server(self, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv(COMMANDS, "./server,bin/server")
        assert check_command("./server", None) == str(tmp_path / "server")
        assert check_command("bin/server", None) == str(tmp_path / "bin" / "server")

    def test_a_refused_command_is_not_started(self, monkeypatch, tmp_path):
        monkeypatch.setenv(COMMANDS, "uvx")
        trace = tmp_path / "started"
        tool = MCPTool("x", StdioServerInfo("touch", [str(trace)]))
        with pytest.raises(MCPConnectionError, match=COMMANDS):
            tool.warm_up()
        with pytest.raises(MCPInvocationError, match=COMMANDS):
            tool.invoke()
        tool.close()
        assert not trace.exists()

    def test_an_allowed_command_is_started(self, monkeypatch, stdio_server):
        server = stdio_server()
        monkeypatch.setenv(COMMANDS, server.command)
        with MCPTool("add", StdioServerInfo(server.command, server.args)) as tool:
            assert json.loads(tool.invoke(a=1, b=2))["isError"] is False

    def test_it_is_checked_at_every_connect(self, monkeypatch, stdio_server):
        server = stdio_server()
        with MCPTool("add", StdioServerInfo(server.command, server.args)) as tool:
            tool.close()
            monkeypatch.setenv(COMMANDS, "")
            with pytest.raises(MCPConnectionError, match=COMMANDS):
                tool.warm_up()

    def test_a_server_in_this_process_is_no_command(self, monkeypatch):
        monkeypatch.setenv(COMMANDS, "")
        monkeypatch.setenv(HOSTS, "")
        with MCPTool("add", InProcessServerInfo("tests.servers.inprocess:server")) as tool:
            assert json.loads(tool.invoke(a=1, b=2))["isError"] is False


class TestHosts:
    def test_without_the_variable_every_host_is_allowed(self):
        check_host("http://anywhere:1234/mcp")

    @pytest.mark.parametrize(
        ("allowed", "url"),
        [
            ("mcp.example.com", "https://mcp.example.com/mcp"),
            ("mcp.example.com", "http://mcp.example.com:8000/mcp"),
            (" a , mcp.example.com ", "https://MCP.Example.COM/mcp"),
            ("MCP.example.com", "https://mcp.example.com/mcp"),
            ("*.internal", "http://tools.internal/mcp"),
            ("*", "http://anywhere/mcp"),
            ("localhost:8000", "http://localhost:8000/mcp"),
            ("h:443", "https://h/mcp"),
            ("h:80", "http://h/mcp"),
            ("h", "https://user:pass@h/mcp"),
            ("127.0.0.1", "http://127.0.0.1:9/mcp"),
            ("[::1]", "http://[::1]:8000/mcp"),
            ("[::1]:8000", "http://[::1]:8000/mcp"),
            ("::1", "http://[::1]/mcp"),
        ],
    )
    def test_a_listed_host_is_allowed(self, monkeypatch, allowed, url):
        monkeypatch.setenv(HOSTS, allowed)
        check_host(url)

    @pytest.mark.parametrize(
        ("allowed", "url", "named"),
        [
            ("mcp.example.com", "https://evil.com/mcp", "evil.com:443"),
            ("mcp.example.com", "https://mcp.example.com.evil.com/mcp", "mcp.example.com.evil.com:443"),
            ("mcp.example.com", "https://mcp.example.com@evil.com/mcp", "evil.com:443"),
            ("mcp.example.com", "https://evil.com/?mcp.example.com", "evil.com:443"),
            ("*.internal", "http://internal/mcp", "internal:80"),
            ("localhost:8000", "http://localhost:8001/mcp", "localhost:8001"),
            ("localhost:8000", "http://localhost/mcp", "localhost:80"),
            ("[::1]", "http://[::2]/mcp", "[::2]:80"),
        ],
    )
    def test_any_other_host_is_refused_naming_it_and_what_is_allowed(self, monkeypatch, allowed, url, named):
        monkeypatch.setenv(HOSTS, allowed)
        with pytest.raises(MCPConnectionError, match=HOSTS) as raised:
            check_host(url)
        assert f"Did not connect to {named}:" in str(raised.value)
        assert allowed in str(raised.value)
        assert raised.value.operation == "connect"

    def test_an_empty_variable_allows_nothing(self, monkeypatch):
        monkeypatch.setenv(HOSTS, "")
        with pytest.raises(MCPConnectionError, match="no host"):
            check_host("http://localhost/mcp")

    @pytest.mark.parametrize(
        ("http_info", "transport"), [(SSEServerInfo, "sse"), (StreamableHttpServerInfo, "streamable-http")]
    )
    def test_a_refused_host_is_not_asked_anything(self, monkeypatch, http_info, transport, http_server):
        server = http_server(transport)
        monkeypatch.setenv(HOSTS, "mcp.example.com")
        tool = MCPTool("add", http_info(url=server.url))
        with pytest.raises(MCPConnectionError, match=HOSTS):
            tool.warm_up()
        assert server.requests() == []
        monkeypatch.setenv(HOSTS, "127.0.0.1")
        tool.warm_up()
        assert "tools/list" in server.requests()
        tool.close()
