# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a user sees if an Agent ends with an error.
"""

import contextlib
import traceback
from pathlib import Path

import pytest
from mcp.server import MCPServer

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnectionError,
    MCPInvocationError,
    MCPToolset,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from tests.support.executors import agent_of, run
from tests.support.rows import rows
from tests.support.scripted_chat import call, say

ERROR = "haystack_integrations.tools.mcp.errors.MCPConnectionError: Failed to connect to "


def run_agent_with(toolset: MCPToolset, *, is_async: bool = False) -> None:
    agent = agent_of(toolset, call("fail"), say("done"), raise_on_tool_invocation_failure=True)
    with contextlib.closing(toolset):
        run(agent, is_async=is_async)


@rows("is_async", False, True)
@rows(
    "info",
    StreamableHttpServerInfo("http://127.0.0.1:9/mcp"),
    SSEServerInfo("http://127.0.0.1:9/sse"),
    StdioServerInfo("no-such-command"),
    StdioServerInfo("sh", ["-c", "exit 3"]),
)
def test_the_traceback_of_a_failed_connect_is_the_callers_and_ends_with_the_advice(info, is_async):
    with pytest.raises(MCPConnectionError) as failure:
        run_agent_with(MCPToolset(info), is_async=is_async)
    shown = "".join(traceback.format_exception(failure.value))
    assert shown.count("Traceback (most recent call last)") == 1
    assert shown.splitlines()[-1].startswith(ERROR + info.describe())
    assert "site-packages/mcp/" not in shown
    assert "Supervisor" not in shown
    assert failure.value.__context__ is not None


def test_the_traceback_of_a_failing_server_module_shows_the_line_of_that_module(tmp_path: Path, monkeypatch):
    (tmp_path / "module_that_fails.py").write_text("open('/no/such/file')")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(MCPConnectionError) as failure:
        run_agent_with(MCPToolset(InProcessServerInfo("module_that_fails:server")))
    assert "open('/no/such/file')" in "".join(traceback.format_exception(failure.value))


def test_the_traceback_of_a_failed_call_has_no_frames_of_background_tasks():
    server = MCPServer("failing")

    @server.tool()
    def fail() -> str:
        raise ValueError("of no interest")

    with pytest.raises(Exception, match="Failed to invoke Tool `fail`") as failure:
        run_agent_with(MCPToolset(InProcessServerInfo(server)))
    first = failure.value
    while first.__cause__ is not None:  # Haystack 2 wraps the error
        first = first.__cause__
    assert isinstance(first, MCPInvocationError)
    files = {Path(frame.filename).name for frame in traceback.extract_tb(first.__traceback__)}
    assert "mcp_tool.py" in files
    assert files.isdisjoint({"executor.py", "supervisor.py", "session.py"})
