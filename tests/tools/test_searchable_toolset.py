# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A model searches for tools instead of seeing all of them, while servers change their tools.
"""

import asyncio
import copy
import functools
import gc
import json
import pickle
import weakref
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import document_store as in_memory
from haystack.tools import Tool, Toolset
from haystack.tools.errors import ToolInvocationError

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPRegistry,
    MCPResourceToolset,
    MCPSearchableToolset,
    MCPTool,
    MCPToolset,
    MCPToolSnapshot,
    StdioServerInfo,
    ToolConfig,
    ToolSelection,
)
from haystack_integrations.tools.mcp.errors import MCPConfigurationError, MCPDriftedCallError
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from tests.servers import rug_pulling_server
from tests.servers.changing_server import build_server
from tests.support.background import together
from tests.support.executors import agent_of, answers_of, run, shown_to
from tests.support.foreign_server import ForeignServer, definition
from tests.support.in_process import COUNTER
from tests.support.rows import rows
from tests.support.scripted_chat import call, calls, say
from tests.support.waiting import LIMIT, wait_until

QUESTION = [ChatMessage.from_user("Do it.")]
DEAD = StdioServerInfo("no-such-command-anywhere")


PLAIN = Tool(name="plain", description="Plane wood.", parameters={"type": "object", "properties": {}}, function=print)


def many(count: int, word: str = "routine") -> ForeignServer:
    schema = {"type": "object", "properties": {"target_city": {"type": "string"}}}
    tools = [
        definition(f"{word}_{number}", schema, description=f"Do {word} number{number}.") for number in range(count)
    ]
    return ForeignServer(*tools)


def uncached(server: ForeignServer, **parameters: Any) -> MCPToolset:
    return MCPToolset(server.info, tool_selection=ToolSelection(cache_tools=False), **parameters)


@pytest.fixture
def server() -> ForeignServer:
    server = many(10)
    server.tools.append(definition("getWeatherForecast", description="Say what the sky will do."))
    return server


@pytest.fixture
def toolset(server: ForeignServer) -> Iterator[MCPSearchableToolset]:
    with MCPSearchableToolset(uncached(server)) as toolset:
        yield toolset


@pytest.fixture(params=[False, True], ids=["run", "run_async"])
def run_agent(request):
    return functools.partial(run, is_async=request.param)


def search(toolset: Any, words: str, **more: Any) -> list[str]:
    toolset["search_tools"].invoke(tool_keywords=words, **more)
    return [tool.name for tool in toolset][1:]


class TestSearching:
    def test_a_model_sees_the_search_tool_the_found_tools_and_other_tools(self, run_agent, server):
        toolset = MCPSearchableToolset(MCPToolset(server.info), top_k=1)
        script = [call("search_tools", tool_keywords="number7"), call("routine_7", target_city="Rome"), say("done")]
        agent = agent_of([PLAIN, toolset], *script)
        with toolset:
            assert answers_of(run_agent(agent)) == ["Loaded, and can be called now: routine_7", "fine"]
        begin = ["plain", "search_tools"]
        assert shown_to(agent) == [begin, [*begin, "routine_7"], [*begin, "routine_7"]]
        assert server.calls == [("routine_7", {"target_city": "Rome"})]

    @rows("words", "weather", "forecast get", "the SKY", "getWeatherForecast")
    def test_words_of_names_descriptions_and_parameters_find_a_tool(self, toolset, words):
        toolset.clear()
        assert search(toolset, words)[0] == "getWeatherForecast"
        assert set(search(toolset, "city")[1:]) <= {f"routine_{number}" for number in range(10)}

    @pytest.mark.skipif(not HAS_HOOKS, reason="an Agent of Haystack 2 has no toolset of a run")
    def test_a_run_may_get_some_tools_of_the_catalog(self, run_agent, toolset):
        agent = agent_of(toolset, call("search_tools", tool_keywords="routine", k=5), say("done"))
        toolset.close()
        run_agent(agent, tools=["routine_2", "routine_4"])
        assert shown_to(agent)[-1][:1] == ["search_tools"]
        toolset.close()
        assert len(toolset.spawn().get_selectable_tools()) == 11
        assert sorted(shown_to(agent)[-1][1:]) == ["routine_2", "routine_4"]

    def test_found_tools_are_available_and_their_number_is_limited(self, toolset, server):
        with pytest.raises(KeyError, match=r"has no tool 'routine_7'\. Available tools: search_tools"):
            toolset["routine_7"]
        assert search(toolset, "number7", k=1) == ["routine_7"]
        assert toolset["routine_7"] is toolset[1]
        assert ("routine_7" in toolset, "routine_8" in toolset) == (True, False)
        server.tools += many(30, "chore").tools
        for asked, found in ((1000, 20), (-1, 1)):
            toolset.clear()
            assert len(search(toolset, "routine chore", k=asked)) == found

    def test_a_word_that_half_of_the_tools_have_finds_them(self):
        catalog = [MCPToolset(many(5).info, tool_name_prefix=prefix) for prefix in ("shop", "library")]
        with MCPSearchableToolset(catalog) as toolset:
            found = search(toolset, "library")
        assert [name.partition("_")[0] for name in found] == ["library"] * 3

    def test_words_that_find_nothing_are_answered(self, toolset):
        find = toolset["search_tools"]
        assert find.invoke(tool_keywords="xylophone") == "None of 11 tools was found with these words. Try others."
        for nothing in ({"tool_keywords": ""}, {"tool_keywords": " "}, {}):
            assert find.invoke(**nothing).startswith("Say what the tool should do")
        assert find.invoke(tool_keywords="number3", k="1").startswith("Loaded, and can be called now: ")
        with pytest.raises(ToolInvocationError, match="search_tools: there is no argument 'words'"):
            find.invoke(words="number3")

    def test_few_tools_are_shown_directly_until_there_are_more(self, run_agent):
        server = many(3)
        with MCPSearchableToolset(uncached(server), search_threshold=5) as toolset:
            agent = agent_of(toolset, call("routine_1"), say("done"))
            run_agent(agent)
            assert shown_to(agent)[0] == [tool.name for tool in toolset] == ["routine_0", "routine_1", "routine_2"]
            server.tools += many(5, "chore").tools
            toolset.warm_up()
            assert [tool.name for tool in toolset] == ["search_tools"]
            assert search(toolset, "chore number4", k=1) == ["chore_4"]

    @pytest.mark.skipif(not HAS_HOOKS, reason="an Agent of Haystack 2 has no toolset of a run")
    async def test_runs_do_not_see_the_tools_found_by_other_runs(self, toolset):
        agents = []
        for number in range(5):
            searches = calls(*[("search_tools", {"tool_keywords": f"number{number}", "k": 1})] * 4)
            agents.append(agent_of(toolset, searches, say("done"), say("done")))
        await asyncio.gather(*(agent.run_async(messages=QUESTION) for agent in agents))
        for number, agent in enumerate(agents):
            await agent.run_async(messages=QUESTION)
            assert shown_to(agent) == [["search_tools"], ["search_tools", f"routine_{number}"], ["search_tools"]]
        assert len(toolset) == 1

    def test_a_generator_that_does_not_warm_up_tools_can_search(self, server):
        toolset = MCPSearchableToolset(MCPToolset(server.info))
        assert [tool.name for tool in toolset] == ["search_tools"]
        assert search(toolset, "number3", k=1) == ["routine_3"]
        toolset.close()
        assert [tool.name for tool in toolset] == ["search_tools"]


class TestChangingLists:
    def test_a_search_finds_only_the_current_tools_of_a_server(self, toolset, server):
        assert search(toolset, "number3", k=1) == ["routine_3"]
        del server.tools[4]
        server.tools[4] = definition("routine_5", description="Polish the silver.")
        server.tools.append(definition("sweep", description="Sweep the chimney."))
        toolset.clear()
        assert search(toolset, "number4") == []
        assert search(toolset, "silver") == ["routine_5"]
        assert search(toolset, "chimney") == ["routine_5", "sweep"]
        assert toolset["routine_5"].description == "Polish the silver."

    @pytest.mark.skipif(not HAS_HOOKS, reason="an Agent of Haystack 2 has no toolset of a run")
    def test_a_run_finds_tools_added_meanwhile_and_calls_of_removed_tools_fail(self, run_agent):
        toolset = MCPSearchableToolset(MCPToolset(InProcessServerInfo(build_server())), search_threshold=2, top_k=1)
        script = [
            call("search_tools", tool_keywords="locate"),
            call("search_tools", tool_keywords="offer"),
            call("offer", name="polish", description="Make brass shine."),
            call("search_tools", tool_keywords="brass"),
            call("polish", text="door"),
            call("search_tools", tool_keywords="withdraw"),
            call("withdraw", name="locate"),
            call("locate", region="north"),
            say("done"),
        ]
        agent = agent_of(toolset, *script)
        with toolset:
            *_, polished, _, _, called = answers_of(run_agent(agent))
            assert polished == "polish: door"
            assert "locate" in called
            assert shown_to(agent)[-1] == ["search_tools", "locate", "offer", "polish", "withdraw"]
            assert search(toolset, "locate") == []

    def test_the_earlier_tools_are_searched_if_a_server_fails_to_list_or_lost_a_tool(self, server, caplog):
        class Failing(ForeignServer):
            async def _list_tools(self, context: Any, params: Any) -> Any:
                if self.listings >= 2:
                    raise RuntimeError("no list today")
                return await super()._list_tools(context, params)

        failing, losing = Failing(*many(10).tools), many(2, "chore")
        catalog = [uncached(failing, tool_name_prefix="my"), uncached(losing, tool_names=["chore_0", "chore_1"])]
        with MCPSearchableToolset(catalog) as toolset:
            failing.tools.append(definition("sweep", description="Sweep the chimney."))
            assert search(toolset, "chimney") == ["my_sweep"]
            toolset.clear()
            failing.tools.clear()
            losing.tools.pop()
            assert search(toolset, "chimney") == ["my_sweep"]
        assert "could not be refreshed before the search: `tool_names`: 'chore_1'" in caplog.text
        assert "no list today" in caplog.text

    def test_a_server_that_differs_from_its_snapshot_does_not_prevent_searching_others(self, server, caplog):
        puller = rug_pulling_server.build_server()
        with MCPToolset(InProcessServerInfo(puller)) as captured:
            snapshot = MCPToolSnapshot.capture(captured)
        selection = ToolSelection(cache_tools=False)
        pinned = MCPToolset(InProcessServerInfo(puller), snapshot=snapshot, tool_selection=selection)
        both = ToolConfig("both", ["sums", "routines"])
        with (
            MCPRegistry({"sums": pinned, "routines": server.info}, [both]) as registry,
            MCPSearchableToolset(registry.toolset("both")) as toolset,
        ):
            assert search(toolset, "add two numbers") == ["add"]
            toolset["add"].invoke(a=1, b=2)
            rug_pulling_server.pull(puller, "description")
            assert "routine_3" in search(toolset, "number3", k=1)
            assert "Some tools could not be refreshed before the search" in caplog.text
            with pytest.raises(MCPDriftedCallError, match="are not those of the snapshot"):
                toolset["add"].invoke(a=1, b=2)

    def test_a_run_that_sees_all_tools_keeps_the_tools_that_it_began_with(self, run_agent):
        toolset = MCPSearchableToolset(MCPToolset(InProcessServerInfo(build_server())))
        script = [call("offer", name="polish"), call("locate", region="north"), say("done"), say("done")]
        agent = agent_of(toolset, *script)
        with toolset:
            run_agent(agent)
            wait_until(lambda: toolset.warm_up() or "polish" in toolset, "the new tool was listed")
            run_agent(agent)
        assert ["polish" in names for names in shown_to(agent)] == [False, False, False, True]


class TestCatalogs:
    async def test_tools_of_a_snapshot_are_searched_without_a_connection(self, server):
        async with MCPToolset(server.info) as captured:
            snapshot = MCPToolSnapshot.capture(captured)
        pinned = MCPToolset(server.info, snapshot=snapshot)
        async with MCPSearchableToolset(pinned) as toolset:
            assert search(toolset, "number3", k=1) == ["routine_3"]
            assert pinned.connection.status().sessions == 0
            assert toolset["routine_3"].invoke() is not None
            assert pinned.connection.status().sessions == 1
            await toolset.close_async()
            assert not pinned.connection.is_ready

    def test_tools_that_are_not_from_a_server_are_also_searched(self, server):
        single = MCPTool("one", ForeignServer(definition("one", description="Weld steel.")).info)
        with MCPSearchableToolset([MCPToolset(server.info), Toolset([PLAIN, single])]) as toolset:
            assert search(toolset, "wood") == ["plain"]
            assert search(toolset, "steel") == ["plain", "one"]
            assert toolset["one"].description == "Weld steel."
        assert not single.connection.is_ready

    def test_two_tools_with_the_same_name_are_refused_and_the_servers_are_closed(self, server):
        other = many(2)
        toolset = MCPSearchableToolset([MCPToolset(server.info), MCPToolset(other.info)])
        with pytest.raises(MCPConfigurationError, match=r"more than one tool is called 'routine_0', 'routine_1'. Pass"):
            toolset.warm_up()
        toolset.close()

    def test_a_name_that_is_used_again_later_stays_with_the_first_tool(self, server):
        other = many(2, "chore")
        with MCPSearchableToolset([MCPToolset(server.info), uncached(other)]) as toolset:
            other.tools += [
                definition("routine_1", description="Stars."),
                definition("search_tools", description="Stars."),
            ]
            assert search(toolset, "stars") == []
            assert search(toolset, "number1", k=1) == ["routine_1"]
            assert toolset["routine_1"].description == "Do routine number1."

    def test_a_server_that_only_offers_resources_is_let_go_with_the_others(self):
        tools, resources = MCPToolset(COUNTER, share=False), MCPResourceToolset(COUNTER, share=False)
        with MCPSearchableToolset([tools, resources]):
            assert [each.connection.status().state for each in (tools, resources)] == ["ready", "ready"]
        assert [each.connection.status().state for each in (tools, resources)] == ["closed", "closed"]

    def test_tools_cannot_be_added_to_a_searchable_toolset(self, toolset):
        with pytest.raises(NotImplementedError, match="Add 'search_tools' to a toolset of the catalog"):
            toolset.add(toolset["search_tools"])

    def test_the_documents_of_a_dropped_toolset_are_freed(self, server):
        stored = getattr(in_memory, "_STORAGES", {})
        with MCPSearchableToolset(MCPToolset(server.info)) as toolset:
            assert search(toolset, "number3", k=1)
        before = len(stored)
        for _ in range(3):
            MCPSearchableToolset([])
        gc.collect()
        assert len(stored) <= before

    def test_a_toolset_keeps_nothing_of_dropped_searchable_toolsets(self):
        inner = MCPToolset(COUNTER)
        users = [weakref.ref(MCPSearchableToolset(inner)._users) for _ in range(3)]
        gc.collect()
        assert [each() for each in users] == [None] * 3
        last = MCPSearchableToolset(inner)
        assert [each() for each in inner._users._containers] == [last._users]


class TestSerialization:
    def test_a_searchable_toolset_is_the_same_after_yaml(self):
        toolset = MCPSearchableToolset(
            [MCPToolset(COUNTER), MCPToolset(DEAD, required=False)],
            top_k=2,
            search_threshold=3,
            search_tool_name="find",
            search_tool_description="Find.",
            search_tool_parameters_description={"k": "How many."},
        )
        assert json.dumps(toolset._to_trace_dict())
        assert copy.deepcopy(toolset) is copy.copy(toolset) is toolset
        loaded = MCPSearchableToolset.from_dict(yaml.safe_load(yaml.safe_dump(toolset.to_dict())))
        assert loaded.to_dict() == pickle.loads(pickle.dumps(toolset)).to_dict() == toolset.to_dict()  # noqa: S301
        assert loaded == loaded != toolset  # noqa: PLR0124
        assert len({loaded, toolset, loaded}) == 2
        assert repr(loaded).startswith("MCPSearchableToolset(") and repr(loaded).endswith(", not warmed up)")
        with loaded:
            find = loaded["find"]
            assert (find.description, find.parameters["properties"]["k"]["description"]) == ("Find.", "How many.")
            assert find.invoke(tool_keywords="add").startswith("Loaded, and can be called now: add")


def test_threads_that_search_while_a_server_changes_find_tools(toolset, server):
    def find(number: int) -> None:
        for _ in range(5):
            server.tools = [*server.tools, definition(f"chore_{number}_{len(server.tools)}", description="Chore.")]
            assert "can be called now" in toolset["search_tools"].invoke(tool_keywords=f"number{number}")

    for searching in together([functools.partial(find, number) for number in range(5)]):
        searching.result(timeout=LIMIT)
