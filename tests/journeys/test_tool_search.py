# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An Agent that searches the tools of servers that others have published, one of them dead.
"""

import asyncio
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp import (
    MCPRegistry,
    MCPSearchableToolset,
    MCPToolset,
    StdioServerInfo,
    ToolConfig,
)
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from tests.support.processes import StdioServer
from tests.support.scripted_chat import ScriptedChatGenerator, call, say

pytestmark = pytest.mark.integration

GO = [ChatMessage.from_user("go")]


@pytest.fixture
def providers(time_server: StdioServer, git_server: StdioServer, everything_stdio: StdioServer) -> dict[str, Any]:
    return {
        "time": time_server.info(),
        "git": git_server.info(),
        "everything": everything_stdio.info(),
        "dead": MCPToolset(StdioServerInfo("no-such-command", max_retries=0), required=False),
    }


def script(repository: str) -> list[ChatMessage]:
    return [
        call("search_tools", tool_keywords="working tree status", k=1),
        call("git_status", repo_path=repository),
        call("search_tools", tool_keywords="current time timezone", k=1),
        call("get_current_time", timezone="Europe/Berlin"),
        say("done"),
    ]


@pytest.mark.parametrize("run", ["run", "run_async"])
def test_tools_of_an_alias_are_found_and_called_as_they_are_needed(providers, git_server, run):
    config = ToolConfig("all", list(providers), max_tool_call_turns=2, timeout_sec=60)
    with MCPRegistry(providers, [config]) as registry:
        generator = ScriptedChatGenerator(script(str(git_server.cwd)))
        # A search is no call of a tool of the servers: the turns of the alias are for those.
        hooks: dict[str, Any] = {"hooks": registry.hooks("all")} if HAS_HOOKS else {}
        toolset = MCPSearchableToolset(registry.toolset("all"))
        agent = Agent(chat_generator=generator, tools=toolset, **hooks)
        toolset.warm_up()
        result = agent.run(messages=GO) if run == "run" else asyncio.run(agent.run_async(messages=GO))
        status, time = [
            each
            for message in result["messages"]
            for each in message.tool_call_results
            if each.origin.tool_name != "search_tools"
        ]
        assert (status.error, time.error) == (False, False)
        assert "branch" in status.result
        assert "Europe/Berlin" in time.result
        assert [turn.tool_names for turn in generator.turns] == [
            ["search_tools"],
            ["search_tools", "git_status"],
            ["search_tools", "git_status"],
            ["search_tools", "git_status", "get_current_time"],
            ["search_tools", "git_status", "get_current_time"],
        ]
