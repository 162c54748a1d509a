# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An operator's registry over servers that others have published: one of them dead, and a person who
declines, edits and accepts.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage

from haystack_integrations.hooks import mcp as hooks
from haystack_integrations.tools.mcp import MCPRegistry, MCPToolset, StdioServerInfo, ToolConfig
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from tests.support.processes import StdioServer
from tests.support.scripted_chat import ScriptedChatGenerator, calls, say

pytestmark = pytest.mark.integration

if HAS_HOOKS:
    from haystack.hooks.human_in_the_loop.dataclasses import ConfirmationUIResult
else:
    from haystack.human_in_the_loop.dataclasses import ConfirmationUIResult

GO = [ChatMessage.from_user("go")]
ZONE = {"timezone": "Europe/Berlin"}


def info(server: StdioServer, *arguments: str) -> StdioServerInfo:
    return StdioServerInfo(command=server.command, args=[*server.args, *arguments], env=server.env, cwd=server.cwd)


@pytest.fixture
def registry(
    time_server: StdioServer,
    git_server: StdioServer,
    filesystem_server: StdioServer,
    everything_stdio: StdioServer,
    tmp_path: Path,
):
    providers = {
        "time": info(time_server),
        "git": info(git_server),
        "files": info(filesystem_server, str(tmp_path)),
        "everything": info(everything_stdio),
        "dead": MCPToolset(StdioServerInfo("no-such-command", max_retries=0), required=False),
    }
    allowed = ["get_current_time", "git_status", "git_log", "read_text_file", "echo"]
    config = ToolConfig("assistant", list(providers), allowed, max_tool_call_turns=2, timeout_sec=60)
    with MCPRegistry(providers, [config]) as registry:
        yield registry, str(git_server.cwd)


@pytest.fixture(params=["sync", "async"])
def run_agent(request: pytest.FixtureRequest):
    def run(agent: Agent) -> dict[str, Any]:
        return agent.run(messages=GO) if request.param == "sync" else asyncio.run(agent.run_async(messages=GO))

    return run


class Person:
    def __init__(self) -> None:
        self.asked: list[str] = []

    def get_user_confirmation(self, tool_name: str, tool_description: str, tool_params: dict[str, Any]) -> Any:
        self.asked.append(tool_name)
        if tool_name == "git_log":
            return ConfirmationUIResult(action="reject", feedback="Not the history.")
        if tool_name == "echo":
            return ConfirmationUIResult(action="modify", new_tool_params={"message": "edited"})
        return ConfirmationUIResult(action="confirm")


def test_an_alias_over_published_servers_one_of_them_dead(registry, tmp_path: Path):
    note = tmp_path / "note.txt"
    note.write_text("Buy tea.")
    registry, repository = registry
    report = registry.health_check(timeout=120)
    assert (report.ok, [each.ok for each in report["assistant"].providers]) == (True, [True] * 4 + [False])
    generator = ScriptedChatGenerator(
        [
            calls(
                ("get_current_time", ZONE),
                ("git_status", {"repo_path": repository}),
                ("echo", {"message": "hi"}),
                ("read_text_file", {"path": str(note)}),
            ),
            say("done"),
        ]
    )
    output, messages = registry.generate(generator, "go", tool_alias="assistant")
    results = [each for message in messages for each in message.tool_call_results]
    assert output == "done"
    assert [each.error for each in results] == [False] * 4
    assert "Europe/Berlin" in results[0].result
    assert "branch" in results[1].result
    assert "hi" in results[2].result
    assert "Buy tea." in results[3].result


def test_a_person_declines_edits_and_accepts(registry, run_agent):
    registry, repository = registry
    toolset = registry.toolset("assistant")
    toolset.warm_up()
    person = Person()
    rules = {"trusted": ["git"], "overrides": {"git_log": "always"}}
    how: dict[str, Any]
    if HAS_HOOKS:
        how = {"hooks": {"before_tool": [hooks.MCPConfirmationHook(person, **rules)]}}
    else:
        how = {"confirmation_strategies": hooks.confirmation_strategies_for(toolset, person, **rules)}
    wanted = calls(
        ("git_status", {"repo_path": repository}),
        ("git_log", {"repo_path": repository}),
        ("echo", {"message": "original"}),
        ("get_current_time", ZONE),
    )
    agent = Agent(chat_generator=ScriptedChatGenerator([wanted, say("done")]), tools=toolset, **how)
    messages = run_agent(agent)["messages"]
    results = {
        each.origin.tool_name: (each.error, each.result) for message in messages for each in message.tool_call_results
    }
    # git_status is annotated as read-only by a server that is trusted.
    assert sorted(person.asked) == ["echo", "get_current_time", "git_log"]
    assert results["git_log"][0]
    assert "Not the history." in results["git_log"][1]
    assert "edited" in results["echo"][1]
    assert [results[name][0] for name in ("git_status", "get_current_time")] == [False, False]
