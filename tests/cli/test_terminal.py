# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a person sees in a terminal; the expected output is in `kept/`. `MCP_HAYSTACK_KEEP=1 pytest tests/cli` rewrites it.
"""

import re
import shlex
import signal
from pathlib import Path

import pytest

from tests.conftest import StdioServerFactory
from tests.support.prepared import prepared_python
from tests.support.processes import SERVERS, StdioServer, prepared_script
from tests.support.terminal import LIMIT, Terminal, assert_kept, in_a_terminal

KEPT = Path(__file__).parent / "kept"
CALCULATOR = "examples/servers/calculator.py"

# Texts that differ between runs and machines. A long path to Python may be wrapped.
REPLACED = (
    (r"\s+`" + r"\s*".join(map(re.escape, prepared_python(forks=True))) + r"\s+", " `python "),
    (r"after [\d.]+ s", "after N s"),
)


def command_line(server: StdioServer) -> str:
    return shlex.join([server.command, *server.args])


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("help-all", ["--help"]),
        ("help-call", ["call", "--help"]),
        ("list", ["list", CALCULATOR, "--timeout", "100"]),
        ("inspect", ["inspect", CALCULATOR, "--timeout", "100"]),
    ],
)
def test_the_output_is_as_kept(name: str, words: list[str]) -> None:
    ran = in_a_terminal(*words)
    assert ran.code == 0
    assert_kept(name, ran.screen, KEPT, REPLACED)


def test_a_table_is_complete_in_a_terminal_of_80_columns(tmp_path: Path) -> None:
    words = [f"word{number}" for number in range(40)]
    (tmp_path / "wordy.py").write_text(
        "from mcp.server import MCPServer\n"
        "server = MCPServer('wordy', log_level='WARNING')\n"
        f"@server.tool(description={' '.join(words)!r})\n"
        "def a_tool_with_a_name_of_30_letters(first: list[int], second: list[str], third: float) -> int: ...\n"
    )
    ran = in_a_terminal("list", "wordy.py:server", "--timeout", "100", width=80, cwd=tmp_path)
    assert [word for word in ran.screen.split() if word in words] == words


def test_a_terminal_does_not_obey_a_server(stdio_server: StdioServerFactory) -> None:
    ran = in_a_terminal(
        "call", command_line(stdio_server()), "echo", "text=\x1b[2Jgone [bold]", "--timeout", "100", width=300
    )
    assert ran.screen == "\\x1b[2Jgone [bold]\n"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_command_that_is_ended_cancels_its_call_and_closes_the_server(
    sdk_stdio_server: StdioServerFactory, number: int
) -> None:
    server = sdk_stdio_server()
    with Terminal("call", command_line(server), "sleep", "seconds=60", "--timeout", "100", width=300) as terminal:
        server.wait_for("sleep", limit=LIMIT)
        if number == signal.SIGINT:
            terminal.type("\x03")
        else:
            terminal.process.send_signal(number)
        ran = terminal.end()
    assert ran.code == 128 + number
    assert "Traceback" not in ran.screen
    if number == signal.SIGINT:
        assert "Interrupted" in ran.screen
        assert server.calls("sleep-cancelled")
    server.wait_until_gone()


def test_progress_is_shown_as_a_bar(sdk_stdio_server: StdioServerFactory) -> None:
    with Terminal(
        "call", command_line(sdk_stdio_server()), "progress", "steps=2", "pause=1", "--timeout", "100", width=300
    ) as terminal:
        terminal.wait_for("progress: step 1")
        ran = terminal.end()
    assert ran.screen == "done\n"


def test_a_question_of_a_server_can_be_answered_in_the_terminal() -> None:
    program = shlex.join(prepared_script(SERVERS / "asking_server.py", "--transport", "stdio"))
    with Terminal("call", program, "ask_order", "--timeout", "100", width=300) as terminal:
        terminal.wait_for("What do you order?")
        terminal.wait_for("default: blue): ")
        terminal.type("red\n")
        terminal.wait_for("default: 2): ")
        terminal.type("many\n")
        terminal.wait_for("'count' must be of type integer")
        terminal.type("\n")
        ran = terminal.end()
    assert ran.code == 0
    assert ran.screen.endswith("2 red\n")


def test_a_person_who_serves_over_stdio_gets_a_hint_about_http(tmp_path: Path) -> None:
    (tmp_path / "served.py").write_text("def add(a: int, b: int) -> int: ...")
    with Terminal("serve", "served.py:add", width=300, cwd=tmp_path) as terminal:
        terminal.wait_for("To serve clients that come by a URL, add --http")
