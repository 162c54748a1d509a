# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A model that searches for tools instead of seeing all of them, while servers change what they have.
"""

import asyncio
import copy
import gc
import json
import logging
import pickle
import re
import threading
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.document_stores.in_memory import document_store as in_memory
from haystack.tools import Tool, Toolset
from haystack.tools.errors import ToolInvocationError

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPRegistry,
    MCPSearchableToolset,
    MCPTool,
    MCPToolset,
    MCPToolSnapshot,
    StdioServerInfo,
    ToolConfig,
    ToolSelection,
    call_budget,
)
from haystack_integrations.tools.mcp.errors import MCPConfigurationError, MCPDriftedCallError
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from tests.servers import rug_pulling_server
from tests.servers.changing_server import build_server
from tests.support.foreign_server import ForeignServer, definition
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, calls, say
from tests.support.waiting import LIMIT, wait_until

QUESTION = [ChatMessage.from_user("Do it.")]
DEAD = StdioServerInfo("no-such-command-anywhere")


def many(count: int, word: str = "routine") -> ForeignServer:
    schema = {"type": "object", "properties": {"target_city": {"type": "string"}}}
    tools = [
        definition(f"{word}_{number}", schema, description=f"Do {word} number{number}.") for number in range(count)
    ]
    return ForeignServer(*tools)


def uncached(server: ForeignServer, **parameters: Any) -> MCPToolset:
    return MCPToolset(server.info, tool_selection=ToolSelection(cache_tools=False), **parameters)


def shown(agent: Agent) -> list[list[str]]:
    return [turn.tool_names for turn in agent.chat_generator.turns]


def results(result: dict[str, Any]) -> list[Any]:
    return [each.result for message in result["messages"] for each in message.tool_call_results]


@pytest.fixture
def server() -> ForeignServer:
    server = many(10)
    server.tools.append(definition("getWeatherForecast", description="Say what the sky will do."))
    return server


@pytest.fixture
def toolset(server: ForeignServer) -> Iterator[MCPSearchableToolset]:
    with MCPSearchableToolset(uncached(server)) as toolset:
        yield toolset


@pytest.fixture(params=["run", "run_async"])
def run_agent(request):
    def run(agent: Agent, **options: Any) -> dict[str, Any]:
        if request.param == "run":
            return agent.run(messages=QUESTION, **options)
        return asyncio.run(agent.run_async(messages=QUESTION, **options))

    return run


def search(toolset: Any, words: str, **more: Any) -> list[str]:
    toolset["search_tools"].invoke(tool_keywords=words, **more)
    return [tool.name for tool in toolset][1:]


class TestSearching:
    def test_a_model_sees_the_search_and_what_it_has_found(self, run_agent, server):
        toolset = MCPSearchableToolset(MCPToolset(server.info), top_k=1)
        script = [call("search_tools", tool_keywords="number7"), call("routine_7", target_city="Rome"), say("done")]
        agent = Agent(chat_generator=ScriptedChatGenerator(script), tools=toolset)
        with toolset:
            assert results(run_agent(agent)) == ["Loaded, and can be called now: routine_7", "fine"]
        assert shown(agent) == [["search_tools"], ["search_tools", "routine_7"], ["search_tools", "routine_7"]]
        assert server.calls == [("routine_7", {"target_city": "Rome"})]

    @pytest.mark.parametrize("words", ["weather", "forecast get", "the SKY", "getWeatherForecast"])
    def test_words_of_names_descriptions_and_parameters_find_a_tool(self, toolset, words):
        assert search(toolset, words)[0] == "getWeatherForecast"
        assert set(search(toolset, "city")[1:]) <= {f"routine_{number}" for number in range(10)}

    def test_the_model_says_how_many_within_limits(self, toolset, server):
        server.tools += many(30, "chore").tools
        assert len(search(toolset, "routine", k=2)) == 2
        toolset.clear()
        assert len(search(toolset, "routine chore", k=1000)) == 20
        toolset.clear()
        assert len(search(toolset, "routine chore", k=-1)) == 1

    def test_a_tool_is_got_by_its_position_or_its_name_once_it_was_found(self, toolset):
        with pytest.raises(KeyError, match=r"has no tool 'routine_7'\. Available tools: search_tools"):
            toolset["routine_7"]
        toolset["search_tools"].invoke(tool_keywords="number7", k=1)
        assert toolset["routine_7"] is toolset[1]
        assert [tool.name for tool in toolset[:2]] == ["search_tools", "routine_7"]
        assert "routine_7" in toolset
        assert "routine_8" not in toolset

    def test_it_is_equal_to_itself_only_and_shows_no_secret(self, server):
        cold, other = MCPSearchableToolset(MCPToolset(server.info)), MCPSearchableToolset(MCPToolset(server.info))
        assert cold == cold  # noqa: PLR0124
        assert cold != other
        assert len({cold, other, cold}) == 2
        assert repr(cold).startswith("MCPSearchableToolset(")
        assert repr(cold).endswith(", not warmed up)")

    @pytest.mark.skipif(not HAS_HOOKS, reason="an Agent of Haystack 2 has no toolset of a run")
    def test_a_run_warms_it_up_and_selects_from_the_whole_catalog(self, server):
        with MCPSearchableToolset(MCPToolset(server.info)) as toolset:
            toolset.close()
            run = toolset.spawn()
            assert [tool.name for tool in run] == ["search_tools"]
            selectable = [tool.name for tool in run.get_selectable_tools()]
            assert (
                sorted(selectable) == sorted(tool.name for tool in server.tools) or "getWeatherForecast" in selectable
            )

    def test_words_that_find_nothing_are_answered(self, toolset):
        find = toolset["search_tools"]
        assert find.invoke(tool_keywords="xylophone") == "None of 11 tools was found with these words. Try others."
        assert find.invoke(tool_keywords=" ").startswith("Say what the tool should do")
        assert find.invoke(tool_keywords="number3", k="1").startswith("Loaded, and can be called now: ")
        with pytest.raises(ToolInvocationError, match="search_tools: there is no argument 'words'"):
            find.invoke(words="number3")

    def test_a_budget_that_names_the_search_holds_for_it_and_others_do_not(self, toolset):
        find = toolset["search_tools"]
        with call_budget(max_calls=0):
            assert "can be called now" in find.invoke(tool_keywords="number3")
        with call_budget(max_calls=1, tools=["search_tools"]) as budget:
            find.invoke(tool_keywords="number3")
            with pytest.raises(ToolInvocationError, match="The call of 'search_tools' was refused"):
                find.invoke(tool_keywords="number3")
        assert (budget.calls, budget.refused) == (1, 1)

    def test_few_tools_are_shown_as_they_are(self, run_agent):
        few = many(3)
        toolset = MCPSearchableToolset(MCPToolset(few.info))
        agent = Agent(chat_generator=ScriptedChatGenerator([call("routine_1"), say("done")]), tools=toolset)
        with toolset:
            run_agent(agent)
            assert shown(agent)[0] == [tool.name for tool in toolset] == ["routine_0", "routine_1", "routine_2"]

    def test_a_run_may_be_given_some_of_the_tools(self, toolset):
        if not HAS_HOOKS:
            pytest.skip("an Agent of Haystack 2 selects what it sees")
        script = [call("search_tools", tool_keywords="routine", k=5), say("done")]
        agent = Agent(chat_generator=ScriptedChatGenerator(script), tools=toolset)
        agent.run(messages=QUESTION, tools=["routine_2", "routine_4"])
        assert shown(agent)[-1][:1] == ["search_tools"]
        assert sorted(shown(agent)[-1][1:]) == ["routine_2", "routine_4"]

    @pytest.mark.skipif(not HAS_HOOKS, reason="an Agent of Haystack 2 has no toolset of a run")
    def test_runs_do_not_see_what_others_found(self, run_agent, toolset):
        script = [call("search_tools", tool_keywords="number7", k=1), say("done"), say("done")]
        agent = Agent(chat_generator=ScriptedChatGenerator(script), tools=toolset)
        run_agent(agent)
        run_agent(agent)
        assert shown(agent) == [["search_tools"], ["search_tools", "routine_7"], ["search_tools"]]
        assert len(toolset) == 1

    @pytest.mark.skipif(not HAS_HOOKS, reason="an Agent of Haystack 2 has no toolset of a run")
    def test_runs_at_the_same_time_keep_apart(self, toolset):
        agents = [
            Agent(
                chat_generator=ScriptedChatGenerator(
                    [calls(*[("search_tools", {"tool_keywords": f"number{number}", "k": 1})] * 4), say("done")]
                ),
                tools=toolset,
            )
            for number in range(5)
        ]

        async def main() -> None:
            await asyncio.gather(*(agent.run_async(messages=QUESTION) for agent in agents))

        asyncio.run(main())
        assert [shown(agent)[-1] for agent in agents] == [["search_tools", f"routine_{n}"] for n in range(5)]

    def test_a_bare_generator_that_warms_nothing_up_can_search(self, server):
        toolset = MCPSearchableToolset(MCPToolset(server.info))
        try:
            assert [tool.name for tool in toolset] == ["search_tools"]
            assert search(toolset, "number3", k=1) == ["routine_3"]
        finally:
            toolset.close()
        assert [tool.name for tool in toolset] == ["search_tools"]

    def test_it_is_used_beside_other_tools(self, run_agent, toolset):
        plain = Tool(
            name="plain", description="", parameters={"type": "object", "properties": {}}, function=lambda: "p"
        )
        agent = Agent(chat_generator=ScriptedChatGenerator([call("plain"), say("done")]), tools=[plain, toolset])
        assert results(run_agent(agent)) == ["p"]
        assert shown(agent)[0] == ["plain", "search_tools"]


class TestChangingLists:
    def test_a_search_finds_what_a_server_has_now_and_nothing_else(self, toolset, server):
        assert search(toolset, "number3", k=1) == ["routine_3"]
        del server.tools[4]
        server.tools[4] = definition("routine_5", description="Polish the silver.")
        server.tools.append(definition("sweep", description="Sweep the chimney."))
        toolset.clear()
        assert search(toolset, "number4") == []
        assert search(toolset, "silver") == ["routine_5"]
        assert search(toolset, "chimney") == ["routine_5", "sweep"]
        assert toolset["routine_5"].description == "Polish the silver."

    def test_a_run_finds_what_a_server_got_meanwhile(self, run_agent):
        toolset = MCPSearchableToolset(MCPToolset(InProcessServerInfo(build_server())), search_threshold=2, top_k=1)
        script = [
            call("search_tools", tool_keywords="offer"),
            call("offer", name="polish", description="Make brass shine."),
            call("search_tools", tool_keywords="brass"),
            call("polish", text="door"),
            say("done"),
        ]
        agent = Agent(chat_generator=ScriptedChatGenerator(script), tools=toolset)
        with toolset:
            assert results(run_agent(agent))[-1] == "polish: door"

    @pytest.mark.skipif(not HAS_HOOKS, reason="an Agent of Haystack 2 has no toolset of a run")
    def test_a_run_keeps_what_it_found_and_its_call_fails_if_it_is_gone(self, run_agent):
        toolset = MCPSearchableToolset(MCPToolset(InProcessServerInfo(build_server())), search_threshold=2, top_k=1)
        script = [
            call("search_tools", tool_keywords="locate"),
            call("search_tools", tool_keywords="withdraw"),
            call("withdraw", name="locate"),
            call("search_tools", tool_keywords="locate"),
            call("locate", region="north"),
            say("done"),
        ]
        agent = Agent(chat_generator=ScriptedChatGenerator(script), tools=toolset)
        with toolset:
            *_, searched, called = results(run_agent(agent))
            assert searched.startswith("None of 4 tools")
            assert "locate" in called
            assert shown(agent)[-1] == ["search_tools", "locate", "withdraw"]
            assert search(toolset, "locate") == []

    def test_a_list_that_outgrows_the_threshold_is_searched(self):
        server = many(3)
        with MCPSearchableToolset(uncached(server), search_threshold=5) as toolset:
            assert len(toolset) == 3
            server.tools += many(5, "chore").tools
            toolset.warm_up()
            assert [tool.name for tool in toolset] == ["search_tools"]
            assert search(toolset, "chore number4", k=1) == ["chore_4"]

    def test_a_server_that_fails_to_list_is_searched_as_it_was(self, caplog):
        class Failing(ForeignServer):
            async def _list_tools(self, context: Any, params: Any) -> Any:
                if self.listings >= 2:
                    raise RuntimeError("no list today")
                return await super()._list_tools(context, params)

        server = Failing(*many(10).tools)
        with MCPSearchableToolset(uncached(server)) as toolset:
            server.tools.append(definition("sweep", description="Sweep the chimney."))
            assert search(toolset, "chimney") == ["sweep"]
            toolset.clear()
            server.tools.clear()
            with caplog.at_level(logging.WARNING):
                assert search(toolset, "chimney") == ["sweep"]
        assert "are searched as they were known last" in caplog.text

    @pytest.mark.parametrize("is_alias", [False, True])
    def test_a_server_unlike_its_snapshot_does_not_stop_the_search_for_others(self, server, is_alias, caplog):
        puller = rug_pulling_server.build_server()
        with MCPToolset(InProcessServerInfo(puller)) as captured:
            snapshot = MCPToolSnapshot.capture(captured)
        pinned = MCPToolset(
            InProcessServerInfo(puller), snapshot=snapshot, tool_selection=ToolSelection(cache_tools=False)
        )
        providers = {"sums": pinned, "routines": server.info}
        with (
            MCPRegistry(providers, [ToolConfig("both", ["sums", "routines"])]) as registry,
            MCPSearchableToolset(
                registry.toolset("both") if is_alias else [pinned, MCPToolset(server.info)]
            ) as toolset,
        ):
            assert search(toolset, "add two numbers") == ["add"]
            toolset["add"].invoke(a=1, b=2)
            rug_pulling_server.pull(puller, "description")
            assert "routine_3" in search(toolset, "number3", k=1)
            assert "Some tools are searched as they were known last" in caplog.text
            with pytest.raises(MCPDriftedCallError, match="are not those of the snapshot"):
                toolset["add"].invoke(a=1, b=2)

    def test_a_server_that_lost_a_tool_does_not_stop_the_search_for_others(self, server, caplog):
        losing = many(2, "chore")
        catalog = [
            uncached(losing, tool_names=["chore_0", "chore_1"]),
            MCPToolset(server.info),
        ]
        with MCPSearchableToolset(catalog) as toolset:
            losing.tools.pop()
            assert search(toolset, "number3", k=1) == ["routine_3"]
        assert "are searched as they were known last: `tool_names`: 'chore_1'" in caplog.text

    def test_a_dead_server_that_is_not_required_is_left_out(self, server):
        catalog = [MCPToolset(server.info), MCPToolset(DEAD, required=False)]
        with MCPSearchableToolset(catalog) as toolset:
            assert search(toolset, "number3", k=1) == ["routine_3"]

    def test_a_run_that_sees_all_tools_goes_on_with_those_that_it_began_with(self, run_agent):
        toolset = MCPSearchableToolset(MCPToolset(InProcessServerInfo(build_server())))
        script = [call("offer", name="polish"), call("locate", region="north"), say("done"), say("done")]
        agent = Agent(chat_generator=ScriptedChatGenerator(script), tools=toolset)
        with toolset:
            run_agent(agent)
            wait_until(lambda: toolset.warm_up() or "polish" in toolset, "the new tool was listed")
            run_agent(agent)
        assert ["polish" in names for names in shown(agent)] == [False, False, False, True]


class TestCatalogs:
    def test_servers_are_connected_to_at_the_same_time_also_those_of_an_alias(self):
        meeting: list[asyncio.Barrier] = []

        class Waiting(ForeignServer):
            async def _list_tools(self, context: Any, params: Any) -> Any:
                if not meeting:
                    meeting.append(asyncio.Barrier(4))  # all listings are in one loop
                async with asyncio.timeout(LIMIT):
                    await meeting[0].wait()
                return await super()._list_tools(context, params)

        servers = {name: Waiting(definition(f"tool_{name}")).info for name in "abcd"}
        aliases = [ToolConfig("first", ["a", "b"]), ToolConfig("second", ["c"])]
        with MCPRegistry(servers, aliases) as registry:
            catalog = [registry.toolset("first"), registry.toolset("second"), MCPToolset(servers["d"])]
            with MCPSearchableToolset(catalog, search_threshold=1) as toolset:
                assert len(toolset.get_selectable_tools()) == 4

    def test_tools_of_a_snapshot_are_searched_without_a_connection(self, server):
        with MCPToolset(server.info) as captured:
            snapshot = MCPToolSnapshot.capture(captured)
        pinned = MCPToolset(server.info, snapshot=snapshot)
        with MCPSearchableToolset(pinned) as toolset:
            assert search(toolset, "number3", k=1) == ["routine_3"]
            assert pinned.connection.status().sessions == 0
            assert toolset["routine_3"].invoke() is not None
            assert pinned.connection.status().sessions == 1

    async def test_it_is_opened_and_closed_asynchronously(self, server):
        toolset = MCPSearchableToolset(MCPToolset(server.info))
        async with toolset:
            assert [tool.name for tool in toolset] == ["search_tools"]
            assert toolset.catalog.connection.is_ready
        assert not toolset.catalog.connection.is_ready

    def test_five_thousand_tools_of_twenty_servers_are_searched(self):
        servers = [many(250, f"{word}work") for word in "abcdefghijklmnopqrst"]
        with MCPSearchableToolset([uncached(server) for server in servers]) as toolset:
            assert len(toolset.get_selectable_tools()) == 5000
            assert search(toolset, "kwork number77", k=1) == ["kwork_77"]
            servers[3].tools.append(definition("sweep", description="Sweep the chimney."))
            toolset.clear()
            assert search(toolset, "chimney") == ["sweep"]

    def test_an_alias_is_searched_under_the_names_that_its_tools_have_there(self):
        config = ToolConfig("all", ["a", "b"], prefix="always")
        with MCPRegistry({"a": many(6).info, "b": many(6).info}, [config]) as registry:
            toolset = MCPSearchableToolset(registry.toolset("all"))
            toolset.warm_up()
            assert set(search(toolset, "number3", k=2)) == {"a_routine_3", "b_routine_3"}
            toolset.close()

    def test_tools_of_others_are_searched_too(self, server):
        plain = Tool(
            name="plain",
            description="Plane wood.",
            parameters={"type": "object", "properties": {}},
            function=lambda: "p",
        )
        single = MCPTool("one", ForeignServer(definition("one", description="Weld steel.")).info)
        with MCPSearchableToolset([MCPToolset(server.info), Toolset([plain, single])]) as toolset:
            assert search(toolset, "wood") == ["plain"]
            assert search(toolset, "steel") == ["plain", "one"]
            assert toolset["one"].description == "Weld steel."
        assert not single.connection.is_ready

    def test_two_tools_of_a_name_are_refused_and_the_servers_let_go(self, server):
        other = many(2)
        toolset = MCPSearchableToolset([MCPToolset(server.info), MCPToolset(other.info)])
        with pytest.raises(MCPConfigurationError, match=r"more than one tool is called 'routine_0', 'routine_1'. Pass"):
            toolset.warm_up()
        toolset.close()

    def test_a_tool_that_is_called_like_the_search_later_ends_no_run(self, toolset, server):
        toolset.warm_up()
        server.tools.append(definition("search_tools", description="Search for stars."))
        assert "search_tools" not in search(toolset, "stars")

    def test_a_name_that_is_taken_later_stays_with_the_first_tool(self, server):
        other = many(2, "chore")
        with MCPSearchableToolset([MCPToolset(server.info), uncached(other)]) as toolset:
            other.tools.append(definition("routine_1", description="Something else."))
            assert search(toolset, "number1", k=1) == ["routine_1"]
            assert toolset["routine_1"].description == "Do routine number1."

    @rows(
        ("parameters", "message"),
        [
            ({"catalog": ()}, "`catalog` must be a valid list, got tuple"),
            ({"catalog": ["tools"]}, "`catalog` (0) must be an instance of Tool, got str"),
            ({"top_k": 0}, "`top_k` must be greater than or equal to 1, got 0"),
            ({"top_k": 21}, "`top_k` must be less than or equal to 20, got 21"),
            ({"search_threshold": True}, "`search_threshold` must be a valid integer, got True"),
            (
                {"search_tool_parameters_description": {"query": "x"}},
                "`search_tool_parameters_description` (query) must be 'tool_keywords' or 'k', got str",
            ),
        ],
    )
    def test_what_is_invalid_is_refused_at_once(self, parameters, message):
        with pytest.raises(MCPConfigurationError, match=f"^MCPSearchableToolset: .*{re.escape(message)}"):
            MCPSearchableToolset(**{"catalog": [], **parameters})

    def test_an_unknown_parameter_is_refused_with_the_class(self):
        with pytest.raises(TypeError, match=r"^MCPSearchableToolset has no parameter 'limit'\. It has: catalog"):
            MCPSearchableToolset([], limit=3)
        with pytest.raises(TypeError, match=r"^MCPSearchableToolset.* missing .*'catalog'"):
            MCPSearchableToolset()

    def test_no_tool_can_be_added(self, toolset):
        with pytest.raises(NotImplementedError, match="Add 'search_tools' to a toolset of the catalog"):
            toolset.add(toolset["search_tools"])


class TestIndex:
    def test_the_documents_of_a_dropped_toolset_are_freed(self, server):
        with MCPSearchableToolset(MCPToolset(server.info)) as toolset:
            assert search(toolset, "number3", k=1)
        before = len(in_memory._STORAGES) if hasattr(in_memory, "_STORAGES") else 0
        for _ in range(3):
            MCPSearchableToolset([])
        gc.collect()
        assert (len(in_memory._STORAGES) if hasattr(in_memory, "_STORAGES") else 0) <= before


class TestSerialization:
    def test_it_is_the_same_after_yaml(self, server):
        toolset = MCPSearchableToolset(
            [MCPToolset(InProcessServerInfo("tests.servers.inprocess:server")), MCPToolset(DEAD, required=False)],
            top_k=2,
            search_threshold=3,
            search_tool_name="find",
            search_tool_description="Find.",
            search_tool_parameters_description={"k": "How many."},
        )
        stored = yaml.safe_dump(toolset.to_dict())
        loaded = MCPSearchableToolset.from_dict(yaml.safe_load(stored))
        assert loaded.to_dict() == toolset.to_dict()
        with loaded:
            find = loaded["find"]
            assert (find.description, find.parameters["properties"]["k"]["description"]) == ("Find.", "How many.")
            assert find.invoke(tool_keywords="add").startswith("Loaded, and can be called now: add")

    def test_an_alias_is_stored_with_its_servers(self):
        providers = {"a": InProcessServerInfo("tests.servers.inprocess:server"), "b": DEAD}
        registry = MCPRegistry(providers, [ToolConfig("all", ["a"])])
        toolset = MCPSearchableToolset(registry.toolset("all"))
        loaded = MCPSearchableToolset.from_dict(yaml.safe_load(yaml.safe_dump(toolset.to_dict())))
        assert loaded.to_dict() == toolset.to_dict()
        with loaded:
            assert search(loaded, "add", k=1) == ["add"]

    def test_an_agent_with_it_is_stored_in_a_pipeline(self):
        toolset = MCPSearchableToolset(MCPToolset(InProcessServerInfo("tests.servers.inprocess:server")))
        pipeline = Pipeline()
        pipeline.add_component("agent", Agent(chat_generator=ScriptedChatGenerator([say("done")]), tools=toolset))
        loaded = Pipeline.loads(pipeline.dumps())
        assert loaded.to_dict() == pipeline.to_dict()
        assert json.dumps(toolset._to_trace_dict())

    def test_it_is_copied_as_itself_and_pickled_as_its_parameters(self):
        toolset = MCPSearchableToolset(MCPToolset(InProcessServerInfo("tests.servers.inprocess:server")), top_k=2)
        assert copy.deepcopy(toolset) is copy.copy(toolset) is toolset
        assert pickle.loads(pickle.dumps(toolset)).to_dict() == toolset.to_dict()  # noqa: S301


def test_threads_that_search_while_a_server_changes_find_tools(toolset, server):
    failures: list[BaseException] = []

    def find(number: int) -> None:
        try:
            for _ in range(5):
                server.tools = [*server.tools, definition(f"chore_{number}_{len(server.tools)}", description="Chore.")]
                assert "can be called now" in toolset["search_tools"].invoke(tool_keywords=f"number{number}")
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=find, args=(number,)) for number in range(5)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT)
    assert failures == []
