# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import json
from pathlib import Path
from typing import Any

import pytest
from haystack.components.agents import Agent

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPToolset,
    load_mcp_toolsets,
    mcp_toolset,
)
from tests.conftest import StdioServerFactory
from tests.support.executors import every_executor, run
from tests.support.kinds import Gate
from tests.support.scripted_chat import ScriptedChatGenerator, call, say
from tests.support.waiting import wait_until

COUNTER = InProcessServerInfo("tests.servers.inprocess:server")


@pytest.fixture
def gate(stdio_server: StdioServerFactory, tmp_path: Path) -> Gate:
    gate = Gate(stdio_server(), tmp_path)
    gate.close()
    return gate


@pytest.mark.parametrize("is_async", [False, True], ids=["run", "run_async"])
@pytest.mark.parametrize("with_names", [False, True], ids=["all tools", "tool_names"])
def test_an_agent_runs_without_a_server_that_is_down_and_with_it_when_it_is_back(
    gate: Gate, monkeypatch: pytest.MonkeyPatch, is_async: bool, with_names: bool
) -> None:
    monkeypatch.setattr(mcp_toolset, "_FIRST_PAUSE", 0.05)
    info = gate.server.info(max_retries=0)
    dead = MCPToolset(info, tool_names=["add"] if with_names else None, required=False)
    good = MCPToolset(COUNTER, tool_name_prefix="good")
    replies = [call("good_add", a=5, b=3), say("eight"), call("add", a=6, b=3), say("nine")]
    agent = Agent(chat_generator=ScriptedChatGenerator(replies), tools=[good, dead])
    try:
        first = run(agent, is_async=is_async)
        gate.open()
        wait_until(lambda: "add" in dead, "the tools")
        second = run(agent, is_async=is_async)
    finally:
        good.close()
        dead.close()

    shown = [turn.tool_names for turn in agent.chat_generator.turns]
    assert "add" not in shown[0]
    assert {"add", "good_add"} <= set(shown[2])
    messages = [message for result in (first, second) for message in result["messages"]]
    assert [each.result for message in messages for each in message.tool_call_results] == ["8", "9"]


@every_executor
def test_the_servers_of_a_file_serve_together_without_the_dead_one(execute, stdio_server, tmp_path, monkeypatch):
    monkeypatch.setenv("MCP_TEST_COMMAND", stdio_server().command)
    servers: dict[str, Any] = {
        name: {"command": "${MCP_TEST_COMMAND}", "args": stdio_server().args} for name in ("first", "second")
    }
    servers["dead"] = {"command": "mcp-no-such-command"}
    servers["off"] = {"command": "mcp-no-such-command", "disabled": True}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": servers}))
    toolsets = load_mcp_toolsets(config, required=False, tool_selection={"exclude_tools": ["die"]})
    try:
        outcome = execute(toolsets, ("first_add", {"a": 1, "b": 2}), ("second_add", {"a": 3, "b": 4}))
    finally:
        for toolset in toolsets:
            toolset.close()
    assert [each.result for each in outcome.results] == ["3", "7"]
    for turn in outcome.turns:
        assert {"first_add", "second_add"} <= set(turn.tool_names)
        assert not any("dead" in name or "die" in name or "off" in name for name in turn.tool_names)
