# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Agents whose server changes its tools while they run: each run keeps the tools that it began with.
"""

import asyncio
import threading

import pytest
from haystack.components.agents import Agent

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolset,
    ToolSelection,
)
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from tests.servers.changing_server import build_server
from tests.support.background import in_thread
from tests.support.executors import agent_of, answers_of, in_both_ways, run
from tests.support.rows import rows
from tests.support.scripted_chat import call, say
from tests.support.waiting import LIMIT, wait_until

OWN = ["list_more", "locate", "offer", "withdraw", "write"]


# An Agent of Haystack 2 does not notify its toolsets when a run begins.
needs_spawn = pytest.mark.skipif(not HAS_HOOKS, reason="Haystack 2 has no toolset of a run")


def paused(agent: Agent, before: int) -> tuple[threading.Event, threading.Event]:
    """
    Make the model of an Agent pause before a reply: it sets the first event, and waits for the second.
    """
    asked, go_on = threading.Event(), threading.Event()

    def pause(number: int) -> None:
        if number == before:
            asked.set()
            assert go_on.wait(LIMIT)

    agent.chat_generator.before_reply = pause
    return asked, go_on


def shown(agent: Agent) -> list[list[str]]:
    return [sorted(turn.tool_names) for turn in agent.chat_generator.turns]


@pytest.fixture
def server():
    return build_server()


@pytest.fixture
def toolset(server):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        yield toolset


@needs_spawn
@in_both_ways
def test_a_run_keeps_the_tools_that_it_began_with_and_the_next_run_sees_the_new_list(toolset, is_async):
    toolset["offer"].invoke(name="changed", description="Old.")
    toolset.refresh()
    held = toolset["changed"]
    replies = [call("changed", text="1"), call("changed", text="2"), call("extra", text="3"), say("done")]
    first = agent_of([toolset] if is_async else toolset, *replies)
    asked, go_on = paused(first, before=2)
    running = in_thread(run, first, is_async=is_async)
    assert asked.wait(LIMIT)

    toolset["offer"].invoke(name="changed", description="New.")
    toolset["offer"].invoke(name="extra")
    wait_until(lambda: toolset.warm_up() or "extra" in toolset, "the tools are listed again")
    assert (toolset["changed"] is held, held.description) == (True, "New.")
    second = agent_of(toolset, call("extra", text="hello"), say("done"))
    assert answers_of(run(second, is_async=is_async)) == ["extra: hello"]
    assert shown(second)[0] == ["changed", "extra", *OWN]

    go_on.set()
    *called, unknown = answers_of(running.result(LIMIT))
    assert shown(first) == [["changed", *OWN]] * 4
    assert {turn.tool_specs[0]["description"] for turn in first.chat_generator.turns} == {"Old."}
    assert called == ["changed: 1", "changed: 2"]
    # The model gets an error if it calls a tool that the run does not have.
    assert "extra" in unknown
    assert "extra: 3" not in unknown


@in_both_ways
def test_tools_are_updated_between_steps_if_that_is_enabled(server, is_async):
    with MCPToolset(InProcessServerInfo(server), tool_selection=ToolSelection(update_between_steps=True)) as toolset:
        agent = agent_of(toolset, call("write", text="1"), call("extra", text="2"), say("done"))
        asked, go_on = paused(agent, before=1)
        running = in_thread(run, agent, is_async=is_async)
        assert asked.wait(LIMIT)
        toolset["offer"].invoke(name="extra")
        wait_until(lambda: "extra" in toolset, "the toolset has the new tool")
        go_on.set()
        assert answers_of(running.result(LIMIT)) == ["written", "extra: 2"]
        assert shown(agent) == [OWN, ["extra", *OWN], ["extra", *OWN]]


@rows("is_async", False, True)
def test_the_tools_of_a_server_without_notifications_are_listed_at_the_start_of_each_run(is_async):
    server = build_server()
    with MCPToolset(InProcessServerInfo(server), tool_selection=ToolSelection(cache_tools=False)) as toolset:
        agent = agent_of(toolset, say("one"), say("two"))
        run(agent, is_async=is_async)
        server.add_tool(lambda: "quiet", name="quiet", description="Nobody said that it is there.")
        if not HAS_HOOKS:
            toolset.warm_up()
        run(agent, is_async=is_async)
        assert shown(agent) == [OWN, sorted([*OWN, "quiet"])]


@rows("is_async", False, True)
@rows(
    "make",
    lambda info: MCPTool("quiet", info),
    lambda info: MCPToolset(info, tool_names=["quiet"]),
)
def test_the_tools_are_listed_again_before_a_tool_is_reported_missing(make, is_async):
    server = build_server()
    info = InProcessServerInfo(server)
    with MCPToolset(info):  # keeps the shared session open, with the earlier tools
        tools = make(info)
        with pytest.raises(MCPToolNotFoundError):
            tools.warm_up()
        server.add_tool(lambda: "quiet", name="quiet", description="Nobody said that it is there.")
        asyncio.run(tools.warm_up_async()) if is_async else tools.warm_up()
        tools.close()


def test_changes_that_another_user_of_the_session_has_listed_are_not_missed(toolset):
    toolset["offer"].invoke(name="extra", description="Old.")
    info = toolset.server_info
    with MCPTool("extra", info) as tool, MCPToolset(info) as closed:
        closed.close()  # it is not notified until it is used again
        toolset["offer"].invoke(name="extra", description="New.")
        toolset.refresh()
        closed["write"].invoke(text="x")
        for each in (tool, closed):
            each.warm_up()
        assert (tool.description, closed["extra"].description) == ("New.", "New.")


def test_a_failed_run_is_over_even_while_its_error_is_referenced(server):
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        with pytest.raises(Exception, match="the script has only 0 replies") as failed:
            run(agent_of(toolset))
        toolset["offer"].invoke(name="extra")
        toolset.refresh()
        assert [tool.name for tool in toolset] == ["extra", *OWN]
        assert failed.tb is not None
