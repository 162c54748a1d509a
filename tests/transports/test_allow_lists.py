# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import json
import os
import stat
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

COMMANDS = "HAYSTACK_MCP_ALLOWED_COMMANDS"
HOSTS = "HAYSTACK_MCP_ALLOWED_HOSTS"
ENV = "HAYSTACK_MCP_ALLOWED_ENV"


@pytest.fixture(autouse=True)
def nothing_is_restricted(monkeypatch):
    monkeypatch.delenv(COMMANDS, raising=False)
    monkeypatch.delenv(HOSTS, raising=False)
    monkeypatch.delenv(ENV, raising=False)


@pytest.fixture
def programs(monkeypatch, tmp_path):
    """
    The commands `uvx` and `npx` on a `PATH` with nothing else.
    """
    for name in ("uvx", "npx"):
        program = tmp_path / "bin" / name
        program.parent.mkdir(exist_ok=True)
        program.write_text("#!/bin/sh\n")
        program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    return tmp_path / "bin"


class TestCommands:
    def test_without_the_variable_every_command_is_allowed(self):
        assert check_command("anything", {"PATH": "/x", "LD_PRELOAD": "y"}) == "anything"

    @pytest.mark.parametrize("allowed", ["uvx", " uvx , npx ", "npx,uvx", "uvx,"])
    def test_a_listed_command_is_allowed(self, monkeypatch, programs, allowed):
        monkeypatch.setenv(COMMANDS, allowed)
        assert check_command("uvx", {}) == str(programs / "uvx")

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
        "name",
        ["PATH", "path", "LD_PRELOAD", "PYTHONPATH", "PYTHONUSERBASE", "NODE_OPTIONS", "BASH_ENV", "BASH_FUNC_x%%"]
        + ["HOME", "PYTHONWARNINGS", "BROWSER", "PERL5OPT", "RUBYOPT", "JAVA_TOOL_OPTIONS", "ANYTHING"],
    )
    def test_no_variable_may_be_set_unless_the_operator_allows_it(self, monkeypatch, programs, name):
        monkeypatch.setenv(COMMANDS, "uvx")
        with pytest.raises(MCPConnectionError, match=ENV) as raised:
            check_command("uvx", {name: "s3cret-value"})
        assert f"sets {name}," in str(raised.value)
        assert "allows none" in str(raised.value)
        assert "s3cret-value" not in str(raised.value)
        monkeypatch.setenv(ENV, f"OTHER, {name}")
        assert check_command("uvx", {name: "s3cret-value"}) == str(programs / "uvx")

    @pytest.mark.parametrize("allowed", ["", "API_KEY,LEVEL", "api_token", "API_*"])
    def test_only_the_exact_names_are_allowed(self, monkeypatch, programs, allowed):
        monkeypatch.setenv(COMMANDS, "uvx")
        monkeypatch.setenv(ENV, allowed)
        with pytest.raises(MCPConnectionError, match="sets API_TOKEN, and"):
            check_command("uvx", {"API_TOKEN": "x"})

    def test_an_environment_that_is_not_allowed_starts_nothing(self, monkeypatch, tmp_path):
        monkeypatch.setenv(COMMANDS, "bash")
        payload = tmp_path / "payload"
        payload.write_text(f"touch {tmp_path / 'hijacked'}\n")
        with pytest.raises(MCPConnectionError, match="sets BASH_ENV"):
            MCPTool("x", StdioServerInfo("bash", ["-c", "true"], env={"BASH_ENV": str(payload)})).warm_up()
        assert not (tmp_path / "hijacked").exists()

    def test_a_bare_name_is_looked_up_on_the_operators_path(self, monkeypatch, tmp_path):
        program = tmp_path / "my-mcp-server"
        program.write_text("#!/bin/sh\n")
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        monkeypatch.setenv("PATH", str(tmp_path))
        monkeypatch.setenv(COMMANDS, "my-mcp-server,my-absent-server")
        assert check_command("my-mcp-server", None) == str(program)
        with pytest.raises(MCPConnectionError, match="'my-absent-server': it was not found on the PATH"):
            check_command("my-absent-server", None)

    def test_a_relative_entry_of_the_path_is_the_operators_whatever_the_working_directory_of_the_server(
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
        ("allowed", "proxy"),
        [("proxy", "http://user:pass@proxy:3128"), ("proxy:443", "https://proxy"), ("proxy:1080", "socks5://proxy")],
    )
    def test_a_listed_proxy_is_allowed(self, monkeypatch, allowed, proxy):
        monkeypatch.setenv(HOSTS, allowed)
        check_host(proxy)

    @pytest.mark.parametrize("http_info", [SSEServerInfo, StreamableHttpServerInfo])
    def test_a_proxy_that_is_not_listed_is_not_asked_anything(self, monkeypatch, http_info, http_server):
        proxy = http_server("streamable-http")
        host = urlsplit(proxy.url).netloc
        monkeypatch.setenv(HOSTS, "mcp.example.com")
        with pytest.raises(MCPConnectionError, match=f"the `proxy` of the server info, {host}: {HOSTS}"):
            MCPTool("add", http_info(url="http://mcp.example.com/mcp", proxy=f"http://{host}")).warm_up()
        assert proxy.requests() == []

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
