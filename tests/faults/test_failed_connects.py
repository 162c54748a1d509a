# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Failed connects, the log of successful ones at INFO, and plain URLs, which fall back to SSE if the server answers like
servers that know only that transport.
"""

import io
import logging
import sys
from types import SimpleNamespace

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolset,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.transports import stdio
from tests.support.kinds import KINDS, LONG, QUICKLY, every_http_transport, every_way
from tests.support.waiting import wait_until


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([sys.executable, "-c", "raise SystemExit('config.toml is missing')"], "exit code 1.*config.toml is missing"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], "killed by signal 11"),
        ([sys.executable, "-c", "import os, time; os.close(1); time.sleep(1000)"], "closed its output"),
        (["no-such-command-anywhere"], "'no-such-command-anywhere' was not found"),
        ([__file__], r"test_failed_connects\.py' may not be executed"),
        ([sys.executable, "/no/such/folder"], "working directory '/no/such/folder' does not exist"),
    ],
    ids=["exit code", "signal", "closed output", "unknown command", "no program", "no folder"],
)
def test_a_server_that_ends_at_its_start_or_cannot_be_started_is_reported_at_once(command, reason):
    cwd = command.pop() if "working directory" in reason else None
    info = StdioServerInfo(command[0], command[1:], cwd=cwd, **QUICKLY)
    connection = MCPConnection(info, connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match=reason):
        connection.open()
    assert connection.status().state == "idle"
    with pytest.raises(MCPInvocationError, match=rf"(?s){reason}.*did not run"):
        connection.call_tool("add", {"a": 1, "b": 1})
    connection.close()


def test_windows_reports_what_a_server_wrote_to_stderr_even_in_a_notebook(monkeypatch):
    monkeypatch.setattr(stdio, "sys", SimpleNamespace(platform="win32"))  # only there: asyncio stays as it is
    monkeypatch.setattr("mcp.client.stdio.stdio_client.__wrapped__.__defaults__", (io.StringIO(),))
    code = "import sys; input(); print('config.toml is missing', file=sys.stderr)"
    connection = MCPConnection(StdioServerInfo(sys.executable, ["-c", code], max_retries=0))
    with pytest.raises(MCPConnectionError, match=r"ended or closed its output \(its stderr says: config.toml"):
        connection.open()


@pytest.mark.skipif(sys.platform == "win32", reason="Windows searches the PATH of this process")
def test_the_error_for_a_missing_uvx_says_how_to_install_it(tmp_path):
    connection = MCPConnection(StdioServerInfo("uvx", ["mcp-server-time"], env={"PATH": str(tmp_path)}))
    with pytest.raises(MCPConnectionError, match=r"'uvx' was not found.*`pip install uv` installs it\.$"):
        connection.open()


def test_a_server_without_the_wanted_tool_is_closed_at_once(stdio_server):
    server = stdio_server()
    tool, toolset = MCPTool("no_such", server.info()), MCPToolset(server.info(), tool_names=["no_such"])
    for cold in (tool, toolset):
        with pytest.raises(MCPToolNotFoundError):
            cold.warm_up()
    server.wait_until_gone()
    with pytest.raises(MCPInvocationError, match="not found"):
        tool.invoke()


@every_http_transport
def test_a_plain_url_reaches_a_server_of_either_http_transport(peer, kind):
    server = peer(kind)
    url = server.reach().url
    # A path /sse is recognized without a request; this info treats it like an SSE endpoint with any other path.
    info = StreamableHttpServerInfo(url, sse_fallback=True, base_delay=0.05)
    with MCPToolset(info) as unknown, MCPToolset(url) as known:
        assert "8" in unknown["add"].invoke(a=5, b=3)
        assert "8" in known["add"].invoke(a=5, b=3)
        server.restart()
        assert "8" in unknown["add"].invoke(a=5, b=3)
    assert StreamableHttpServerInfo.from_dict(info.to_dict()) == info


def test_the_error_for_a_url_names_what_answers_there(peer):
    for kind, end, fallback, named in (
        ("sse", "", False, "SSEServerInfo"),
        ("2026", "-not", True, r"streamable HTTP server at .*404"),
    ):
        toolset = MCPToolset(StreamableHttpServerInfo(peer(KINDS[kind]).reach().url + end, sse_fallback=fallback))
        with pytest.raises(MCPConnectionError, match=named):
            toolset.warm_up()


PACKAGE = "haystack_integrations.tools.mcp"


@every_way
def test_each_event_of_a_connection_is_logged_once_and_calls_are_not_logged(peer, caplog, kind):
    caplog.set_level(logging.INFO, logger=PACKAGE)
    server = peer(kind)
    info = server.reach()
    connection = MCPConnection(info)
    connection.open()
    connection.call_tool("add", {"a": 1, "b": 1})
    [opened] = [record for record in caplog.records if record.name.startswith(PACKAGE)]
    assert info.describe() in opened.getMessage()
    assert opened.protocol_version in opened.getMessage()
    assert opened.transport == kind.transport
    assert opened.seconds > 0

    server.restart()
    if kind.notices_the_end:
        wait_until(lambda: not connection.is_ready, "the loss")
    connection.call_tool("add", {"a": 1, "b": 1})
    connection.close()
    said = [record.getMessage() for record in caplog.records if record.name.startswith(PACKAGE)]
    # The revision 2026-07-28 over HTTP has no sessions that a restart would end.
    losses = 0 if kind is KINDS["2026"] else 1
    counts = {"Connected": 1, "Lost": losses, "Reconnected": losses, "Closed": 1}
    assert {verb: sum(each.startswith(verb) for each in said) for verb in counts} == counts
    assert len(set(said)) == len(said)


@every_http_transport
def test_a_failed_connect_is_raised_with_its_reason_and_advice_and_not_logged(http_server, caplog, kind):
    caplog.set_level(logging.INFO, logger=PACKAGE)
    server = http_server(kind.transport, *kind.options, "--token", "sesame")
    name = {"sse": "SSE", "streamable-http": "streamable HTTP"}[kind.transport]
    for reason in ("401 Unauthorized.*token", "Connection refused"):
        connection = MCPConnection(kind.reach(server.url), connection_timeout=LONG)
        with pytest.raises(MCPConnectionError, match=reason) as failure:
            connection.open()
        assert f"Failed to connect to {name} server at {server.url}" in str(failure.value)
        assert "\n" not in str(failure.value)
        assert "onnection attempts failed" not in str(failure.value)
        assert connection.status().state == "idle"
        server.kill()
    assert not [record for record in caplog.records if record.name.startswith(PACKAGE)]
    server.start()
    with MCPConnection(kind.reach(server.url, token="sesame")) as connection:
        assert connection.call_tool("add", {"a": 1, "b": 1}).content[0].text == "2"
