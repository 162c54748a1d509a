# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server over stdio that cannot be started, or ends or falls silent at its start: the error says why, at once.
"""

import sys
from pathlib import Path

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError, MCPInvocationError, StdioServerInfo
from tests.support.kinds import LONG, QUICKLY


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "notes.txt").write_text("hello")
    return tmp_path


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ([sys.executable, "-c", "raise SystemExit('config.toml is missing')"], "exit code 1.*config.toml is missing"),
        ([sys.executable, "-c", "import os; os.kill(os.getpid(), 11)"], "killed by signal 11"),
        ([sys.executable, "-c", "import os, time; os.close(1); time.sleep(1000)"], "closed its output"),
        (["no-such-command-anywhere"], "'no-such-command-anywhere' was not found"),
        (["FOLDER/notes.txt"], r"notes\.txt' may not be executed"),
    ],
    ids=["exit code", "signal", "closed output", "unknown command", "no program"],
)
def test_a_server_that_ends_at_its_start_or_cannot_be_started_is_reported_at_once(folder, command, reason):
    command, *args = [part.replace("FOLDER", str(folder)) for part in command]
    connection = MCPConnection(StdioServerInfo(command, args, **QUICKLY), connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match=reason):
        connection.open()
    assert connection.status().state == "idle"
    connection.close()


def test_a_working_directory_that_does_not_exist_is_named():
    connection = MCPConnection(StdioServerInfo(sys.executable, ["-c", "pass"], cwd="/no/such/folder"))
    with pytest.raises(MCPConnectionError, match="working directory '/no/such/folder' does not exist"):
        connection.open()
    connection.close()


def test_a_call_of_a_server_that_cannot_be_started_says_why_and_that_the_tool_did_not_run():
    connection = MCPConnection(StdioServerInfo("/bin/sh", ["-c", "exit 7"], **QUICKLY), connection_timeout=LONG)
    with pytest.raises(MCPInvocationError, match="did not run") as failure:
        connection.call_tool("add", {"a": 1, "b": 1})
    assert "exit code 7" in str(failure.value)
    connection.close()
