# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server over stdio that cannot be started, or ends or falls silent at its start: the error says why, at once.
"""

import sys

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError, MCPInvocationError, StdioServerInfo
from haystack_integrations.tools.mcp.transports.stdio.process import ServerProcess
from tests.support.background import text
from tests.support.kinds import LONG, QUICKLY


def python(script: str) -> StdioServerInfo:
    return StdioServerInfo(sys.executable, ["-c", script], **QUICKLY)


@pytest.mark.parametrize("max_retries", [0, 3])
def test_a_server_that_exits_at_its_start_is_reported_at_once_with_exit_code_and_last_words(max_retries):
    script = "import sys; print('the file config.toml is missing', file=sys.stderr); sys.exit(7)"
    info = StdioServerInfo(sys.executable, ["-c", script], max_retries=max_retries)
    connection = MCPConnection(info, connection_timeout=LONG)
    with pytest.raises(MCPConnectionError) as failure:
        connection.open()
    assert "exit code 7" in str(failure.value)
    assert "the file config.toml is missing" in str(failure.value)
    assert connection.status().state == "idle"
    connection.close()


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("import sys; sys.exit(5)", "exit code 5"),
        ("print('hello')", "exit code 0"),
        ("import os; os.kill(os.getpid(), 11)", "killed by signal 11"),
        ("import os, time; os.close(1); time.sleep(1000)", "closed its output"),
    ],
    ids=["without a word", "as if all were well", "by a signal", "its output only"],
)
def test_a_server_that_ends_at_its_start_is_reported_at_once(script, reason):
    connection = MCPConnection(python(script), connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match=reason):
        connection.open()
    connection.close()


def test_a_script_that_makes_a_server_and_does_not_run_it_is_told_to(tmp_path):
    script = tmp_path / "made.py"
    script.write_text("server = object()")
    connection = MCPConnection(StdioServerInfo(sys.executable, [str(script)], **QUICKLY), connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match=r"exit code 0.*must run its server, and not only make it"):
        connection.open()
    connection.close()


def test_a_command_that_does_not_exist_is_named():
    connection = MCPConnection(StdioServerInfo("no-such-command-anywhere"), connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match="'no-such-command-anywhere' was not found"):
        connection.open()
    connection.close()


def test_a_file_that_is_no_program_is_named(tmp_path):
    (tmp_path / "notes.txt").write_text("hello")
    connection = MCPConnection(StdioServerInfo(str(tmp_path / "notes.txt")), connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match=r"notes\.txt' may not be executed"):
        connection.open()
    connection.close()


def test_a_working_directory_that_does_not_exist_is_named():
    info = StdioServerInfo(sys.executable, ["-c", "pass"], cwd="/no/such/folder")
    connection = MCPConnection(info, connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match="working directory '/no/such/folder' does not exist"):
        connection.open()
    connection.close()


def test_a_call_of_a_server_that_cannot_be_started_says_why_and_that_the_tool_did_not_run():
    connection = MCPConnection(python("import sys; sys.exit(7)"), connection_timeout=LONG)
    with pytest.raises(MCPInvocationError, match="did not run") as failure:
        connection.call_tool("add", {"a": 1, "b": 1})
    assert "exit code 7" in str(failure.value)
    connection.close()


def test_words_on_stdout_that_are_no_messages_do_no_harm_and_are_not_quoted(stdio_server, caplog):
    server = stdio_server()
    info = StdioServerInfo(
        "/bin/sh", ["-c", 'echo "Welcome, s3same!"; exec "$@"', "sh", server.command, *server.args], **QUICKLY
    )
    with MCPConnection(info) as connection:
        assert text(connection.call_tool("add", {"a": 1, "b": 1})) == "2"
    assert "no message" in caplog.text
    assert "s3same" not in caplog.text


def test_the_exit_code_is_said_although_writing_fails_before_the_end_is_noticed(monkeypatch):
    async def broken(*_):
        raise BrokenPipeError

    monkeypatch.setattr(ServerProcess, "write", broken)
    connection = MCPConnection(StdioServerInfo("/bin/sh", ["-c", "exit 3"], **QUICKLY), connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match="exit code 3"):
        connection.open()
    connection.close()
