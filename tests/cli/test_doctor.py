# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`mcp-haystack doctor`: reports problems and their solutions.
"""

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Run, servers_file
from tests.conftest import StdioServerFactory
from tests.support.oauth_server import OAuthServer
from tests.support.prepared import prepared_python
from tests.support.processes import SERVERS, StdioServer, python_script
from tests.support.terminal import LIMIT, Terminal

CALCULATOR = "examples/servers/calculator.py:server"


def findings(run: Run, *words: str) -> dict[str, list[str]]:
    """
    Return the texts of all findings, by state.
    """
    found = json.loads(run("doctor", *words, "--json").screen)["findings"]
    states: dict[str, list[str]] = {"ok": [], "warning": [], "problem": []}
    for finding in found:
        states[finding["state"]].append(f"{finding['subject']}: {finding['text']}")
    return states


def test_definitions_that_models_cannot_use_are_found(run: Run, tmp_path: Path) -> None:
    schema = {"type": "object"}
    properties = {"a": {"$ref": "#/$defs/A"}}
    tools: list[dict[str, Any]] = [
        {"name": "fine", "description": "Fine.", "inputSchema": schema},
        {"name": "silent", "inputSchema": schema},
        {"name": "hiding", "description": "Add\u200bi\u001btion", "inputSchema": schema},
        {"name": "broken", "description": "Broken.", "inputSchema": {"type": "string"}},
        {"name": 5, "inputSchema": schema},
        {"name": "long", "description": "L.", "inputSchema": schema, "execution": {"taskSupport": "required"}},
        {"name": "vague", "description": "V.", "inputSchema": {**schema, "properties": properties}},
        *({"name": f"tool_{n}", "description": "D.", "inputSchema": schema} for n in range(60)),
    ]
    command, *args = python_script(SERVERS / "raw_server.py", json.dumps({"tools/list": {"tools": tools}}))
    file = servers_file(tmp_path / "listing.json", {"listing": {"command": command, "args": args}})
    found = findings(run, file)
    assert run("doctor", file).code == 1
    for text in ("'broken' cannot be used", "'number 5' cannot be used"):
        assert any(text in problem for problem in found["problem"]), found
    for text in (
        "no description: silent",
        "'hiding' have characters that people do not see: U+200B (1x), U+001B (1x)",
        "A model does not get the tool 'long': it can only be called as a task",
        "'vague': its schema refers to definitions that it does not have",
        "which a model reads each time",
    ):
        assert any(text in warning for warning in found["warning"]), found


def test_the_doctor_distinguishes_servers_that_are_down_from_those_that_want_a_login(run: Run, tmp_path: Path) -> None:
    down = run("doctor", "http://127.0.0.1:9/mcp")
    assert down.code == 3
    assert "Is the server started, and on this port?" in down.screen
    with OAuthServer() as server:
        closed = run("doctor", server.url)
        servers = {"off": {"url": "x", "disabled": True}, "docs": {"url": server.url}}
        file = servers_file(tmp_path / "two.json", servers)
        in_file = run("doctor", file)
    assert closed.code == 4, closed.screen
    assert f"mcp-haystack login {server.url}" in closed.screen
    assert f"mcp-haystack login {file}:docs" in in_file.screen


def test_each_server_of_a_file_is_checked(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    calculator = {"command": prepared_python(), "args": ["examples/servers/calculator.py"]}
    servers = {
        "good": {**calculator, "env": {"API_KEY": "secret-in-plain-text"}, "envFile": "nowhere.env"},
        "few": {**calculator, "enabledTools": ["ad"], "tool_overrides": {"divde": {}}, "autoApprove": ["add"]},
        "typo": {"comand": "uvx"},
        "unset": {**calculator, "env": {"KEY": "${NOT_SET_ANYWHERE}"}},
        "missing": {"command": "no-such-command"},
        "off": {**calculator, "disabled": True},
    }
    file = servers_file(tmp_path / "mcp.json", servers)
    found = findings(run, file)
    assert any("good: It has 3 tools" in text for text in found["ok"])
    assert "off: It is disabled" in found["ok"]
    assert found["warning"] == [
        "good: `envFile` cannot be read: No such file or directory",
        "good: `env.API_KEY` has a secret in plain text",
        "few: ignored autoApprove",
        "few: `tool_overrides` has the tool 'divde', which is not there",
    ]
    told = " ".join(found["problem"])
    for text in (
        "few: `tool_names` has the tool 'ad', which is not there",
        "Did you mean `command`?",
        "unset: These environment variables are not set",
        "'no-such-command' was not",
    ):
        assert text in told
    ran = run("doctor", file)
    assert ran.code == 1
    assert "secret-in-plain-text" not in ran.screen
    assert run("doctor", f"{file}:unset").code == 2
    assert run("doctor", f"{file}:unset", "--env", "KEY=value").code == 0
    assert run("doctor", "--config", file).screen.count("It has 3 tools") == 2


def test_a_url_is_checked(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    assert any("unencrypted over http://" in text for text in findings(run, "http://0.0.0.0:9/mcp")["warning"])
    assert findings(run, "http://127.0.0.1:9/mcp")["warning"] == []
    monkeypatch.setenv("SET_HERE", "::1")
    assert findings(run, "http://[${SET_HERE}]:9/mcp")["warning"] == []
    assert any("NOT_SET_ANYWHERE" in text for text in findings(run, "${NOT_SET_ANYWHERE}")["problem"])


def test_drift_from_a_snapshot_is_a_problem(run: Run, tmp_path: Path) -> None:
    snapshot = str(tmp_path / "tools.json")
    assert run("inspect", CALCULATOR, "--snapshot", snapshot).code == 0
    same = run("doctor", CALCULATOR, "--check", snapshot)
    assert (same.code, "as they were in the snapshot" in same.screen) == (0, True)
    other = run("doctor", "examples/servers/notes.py:server", "--check", snapshot)
    assert other.code == 6
    assert "tool 'divide': it is gone" in other.screen
    assert "tool 'find': it is new" in other.screen
    for words, told in (
        (["tests/mcp_json/files/claude_desktop_config.json", "--check", snapshot], "--check is for one server"),
        ([CALCULATOR, "--check", "nowhere.json"], "Write one with mcp-haystack inspect TARGET --snapshot FILE"),
        ([CALCULATOR, "--check", "pyproject.toml"], "cannot be used"),
    ):
        ran = run("doctor", *words)
        assert (ran.code, told in ran.errors) == (2, True), ran.errors


def test_ctrl_c_ends_a_doctor_that_waits_for_servers(stdio_server: StdioServerFactory, tmp_path: Path) -> None:
    server: StdioServer = stdio_server("--hang-at-start")
    file = servers_file(tmp_path / "mcp.json", {"hung": {"command": server.command, "args": server.args}})
    with Terminal("doctor", file, "--timeout", "100") as terminal:
        server.wait_for("@start", limit=LIMIT)
        terminal.type("\x03")
        ran = terminal.end()
    assert ran.code == 130
    assert "Traceback" not in ran.screen
    server.wait_until_gone()
