# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import copy
import gc
import json
import logging
import pickle
from typing import Any

import pytest
from haystack import Pipeline
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool, Toolset, flatten_tools_or_toolsets
from haystack.tracing.utils import coerce_tag_value

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnectionError,
    MCPResourceToolset,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolset,
    StdioServerInfo,
    StreamableHttpServerInfo,
    warm_up_toolsets,
)
from tests.support.background import in_thread
from tests.support.executors import HAS_TOOL_INVOKER, every_executor
from tests.support.foreign_server import ForeignServer, definition
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, say
from tests.support.waiting import LIMIT, wait_until

NEEDS_ADDITION = pytest.mark.skipif(not hasattr(Toolset, "__add__"), reason="this Haystack does not add toolsets")

COUNTER = InProcessServerInfo("tests.servers.inprocess:server")
FASTMCP = InProcessServerInfo("tests.servers.fastmcp_server:server")

SECRET = "s3ntinel-of-a-server"

TAKES_QUERY = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
BROKEN = {"type": "object", "properties": {"x": {"type": "strung"}}}


def never_started(tmp_path) -> tuple[StdioServerInfo, Any]:
    """A server info whose command would leave a file behind."""
    trace = tmp_path / "started"
    return StdioServerInfo(command="touch", args=[str(trace)]), trace


def say_plainly(text: str = "") -> str:
    return f"plain {text}"


def plain_tool(name: str = "plain") -> Tool:
    return Tool(name=name, description="Plain.", parameters={"type": "object", "properties": {}}, function=say_plainly)


def names(tools: Any) -> list[str]:
    return [tool.name for tool in tools]


class TestConstruction:
    @rows(
        ("parameters", "message"),
        [
            ({"server_info": {"comand": "uvx"}}, "`server_info`: unknown key 'comand'"),
            ({"tool_names": "add"}, "`tool_names` must be a valid list"),
            ({"tool_names": ["add", 5]}, "`tool_names`"),
            ({"tool_names": [""]}, r"`tool_names` \(0\) must have at least 1 character"),
            ({"tool_names": 5}, "`tool_names`"),
            ({"connection_timeout": 0}, "`connection_timeout` must be a positive number"),
            ({"invocation_timeout": "x"}, "`invocation_timeout` must be a positive number"),
            ({"tool_name_prefix": "my.server"}, "`tool_name_prefix` must match pattern .*, got 'my.server'"),
            ({"tool_options": {"result_format": ["text"]}}, "`result_format` must be"),
            *(({"tool_name_prefix": prefix}, "`tool_name_prefix` must") for prefix in ("", "x" * 33, "a\n", "ä", 7)),
            ({"inputs_from_state": ["a"]}, "inputs_from_state"),
            ({"outputs_to_state": "add"}, "outputs_to_state"),
            ({"outputs_to_string": 5}, "outputs_to_string"),
            ({"outputs_to_string": {"add": "source"}}, r"`outputs_to_string` \(add\) must be a valid dictionary"),
            ({"inputs_from_state": {"add": ["a"]}}, r"`inputs_from_state` \(add\) must be a valid dictionary"),
        ],
    )
    def test_an_invalid_parameter_is_refused_by_name(self, parameters, message):
        with pytest.raises((ValueError, TypeError), match=message):
            MCPToolset(**{"server_info": COUNTER, **parameters})

    def test_a_tool_asked_for_twice_is_there_once(self):
        with MCPToolset(COUNTER, tool_names=["add", "add"]) as toolset:
            assert names(toolset) == ["add"]


class TestWhileCold:
    def test_it_shows_nothing_and_connects_to_nothing(self, tmp_path):
        info, trace = never_started(tmp_path)
        toolset = MCPToolset(info)
        assert list(toolset) == []
        assert len(toolset) == 0
        assert bool(toolset) is True
        assert toolset.get_selectable_tools() == []
        assert flatten_tools_or_toolsets(toolset) == []
        assert flatten_tools_or_toolsets([toolset]) == []
        assert "touch" not in toolset
        with pytest.raises(IndexError):
            toolset[0]
        repr(toolset), toolset.to_dict(), toolset._to_trace_dict(), copy.deepcopy(toolset)
        toolset.close()
        assert not trace.exists()

    def test_its_list_holds_the_placeholder_that_iteration_never_yields(self):
        toolset = MCPToolset(COUNTER)
        (placeholder,) = toolset.tools
        assert placeholder.name.startswith("mcp_not_connected_placeholder")
        assert placeholder not in toolset
        assert placeholder.name not in toolset
        assert placeholder.name not in repr(toolset)
        with pytest.raises(MCPConnectionError, match="warm_up"):
            placeholder.function()

    def test_a_chat_generator_is_shown_nothing(self):
        generator = ScriptedChatGenerator([say("hello")])
        generator.run([ChatMessage.from_user("hi")], tools=MCPToolset(COUNTER))
        assert generator.turns[0].tool_names == []

    def test_the_named_tools_stand_in_for_themselves(self, tmp_path):
        info, trace = never_started(tmp_path)
        toolset = MCPToolset(info, tool_names=["add", "repo/search"], tool_name_prefix="my")
        assert names(toolset) == ["my_add", "my_repo_search"]
        assert [tool.remote_name for tool in toolset] == ["add", "repo/search"]
        assert len(toolset) == 2
        assert "my_add" in toolset
        assert "add" not in toolset
        assert toolset[1] in toolset
        assert toolset[0].parameters == {"type": "object", "properties": {}, "additionalProperties": True}
        assert toolset.get_selectable_tools() == [toolset[0], toolset[1]]
        assert not trace.exists()

    def test_stand_ins_become_the_tools_and_stay_the_same_objects(self):
        toolset = MCPToolset(COUNTER, tool_names=["echo", "add"])
        cold = {tool.name: tool for tool in toolset}
        with toolset:
            assert {tool.name: tool for tool in toolset} == cold
            assert all(tool is cold[tool.name] for tool in toolset)
            assert cold["add"].description == "Add two integers."
            assert sorted(cold["add"].parameters["properties"]) == ["a", "b"]
            toolset.close()
            assert all(tool is cold[tool.name] for tool in toolset)
            toolset.warm_up()
            assert all(tool is cold[tool.name] for tool in toolset)
            assert len(toolset) == 2

    def test_a_stand_in_can_be_called(self):
        toolset = MCPToolset(COUNTER, tool_names=["add"])
        assert json.loads(toolset[0].invoke(a=1, b=2))["content"][0]["text"] == "3"
        assert toolset[0].description == "Add two integers."
        toolset.close()

    def test_it_says_so_where_tools_are_looked_for(self):
        toolset = MCPToolset(FASTMCP)
        assert repr(toolset).endswith("tools=[], not warmed up)")
        with pytest.raises(IndexError, match=r"not warmed up. Call warm_up\(\)"):
            toolset[0]
        with pytest.raises(KeyError, match=r"no tool 'add': it is not warmed up. Call warm_up\(\)"):
            toolset["add"]
        assert toolset[:] == []


class TestLookUp:
    def test_tools_are_found_by_position_and_by_name(self):
        with MCPToolset(FASTMCP, tool_name_prefix="math") as toolset:
            first = toolset[0]
            assert toolset[first.name] is toolset[-len(toolset)] is first
            assert toolset[:] == list(toolset)
            assert "not warmed up" not in repr(toolset)
            with pytest.raises(IndexError, match=f"no tool at position {len(toolset)}. Available tools: "):
                toolset[len(toolset)]
            with pytest.raises(KeyError, match=f"no tool '{first.remote_name}'. Did you mean '{first.name}'"):
                toolset[first.remote_name]

    def test_what_was_added_is_found_too(self):
        with MCPToolset(FASTMCP) as toolset:
            toolset.add(plain_tool("plain"))
            assert toolset["plain"] is toolset[-1]


class TestWarmedUp:
    def test_it_has_all_tools_of_the_server(self):
        server = ForeignServer(definition("one"), definition("two"))
        with MCPToolset(server.info) as toolset:
            assert names(toolset) == names(toolset.tools) == ["one", "two"]
            assert all(isinstance(tool, MCPTool) for tool in toolset)
            assert len(toolset) == 2
            assert "two" in toolset
            assert "three" not in toolset
            assert toolset[1] in toolset
            assert toolset[-1].name == "two"
            assert names(toolset.get_selectable_tools()) == ["one", "two"]

    def test_it_has_the_named_tools_only_in_the_order_of_their_names(self):
        toolset = MCPToolset(COUNTER, tool_names=["echo", "add"])
        cold = list(toolset)
        with toolset:
            assert names(toolset) == ["echo", "add"]
            assert all(tool is before for tool, before in zip(toolset, cold, strict=True))

    def test_a_failed_warm_up_leaves_calls_under_way_alone(self):
        wrong = {"structured": {"user": "no_such_parameter"}}  # the server lists it after `sleep`
        toolset = MCPToolset(COUNTER, tool_names=["sleep", "structured"], inputs_from_state=wrong, share=False)
        with pytest.raises(ValueError, match="no_such_parameter"):
            toolset.warm_up()
        call = in_thread(toolset[0].invoke, seconds=1)
        wait_until(lambda: toolset.connection.status().in_flight == 1, "the call")
        with pytest.raises(ValueError, match="no_such_parameter"):
            toolset.warm_up()
        assert "slept 1.0 s" in call.result(timeout=LIMIT)
        toolset.close()

    def test_no_names_at_all_mean_no_tools(self):
        with MCPToolset(FASTMCP, tool_names=[]) as toolset:
            assert list(toolset) == []
            assert toolset

    def test_named_tools_that_the_server_does_not_have_are_an_error_with_the_available_ones(self):
        server = ForeignServer(definition("one"), definition("two"))
        toolset = MCPToolset(server.info, tool_names=["one", "three", "four"])
        with pytest.raises(
            MCPToolNotFoundError, match=r"'three', 'four' not found on .*\. Available tools: one, two"
        ) as raised:
            toolset.warm_up()
        toolset.close()
        assert (raised.value.tool_name, raised.value.available_tools) == ("three", ["one", "two"])

    def test_mistyped_names_are_answered_with_the_closest_instead_of_all(self):
        server = ForeignServer(*(definition(f"get_record_{number}") for number in range(200)), definition("search"))
        toolset = MCPToolset(server.info, tool_names=["serch"])
        with pytest.raises(MCPToolNotFoundError, match="Did you mean 'search'") as raised:
            toolset.warm_up()
        toolset.close()
        assert "201 tools" in str(raised.value)
        assert "get_record" not in str(raised.value)
        assert len(raised.value.available_tools) == 201

    def test_a_server_without_tools_gives_an_empty_toolset(self):
        with MCPToolset(ForeignServer().info) as toolset:
            assert list(toolset) == []
            assert bool(toolset) is True
            assert toolset.tools == []

    @rows("first_use", ["warm_up", "invoke"])
    def test_after_close_warming_up_shows_what_the_server_has_now(self, first_use):
        server = ForeignServer(definition("one", description="Old."), definition("two"))
        with MCPToolset(server.info) as toolset:
            one = toolset[0]
            toolset.close()
            server.tools = [definition("three"), definition("one", description="New.")]
            if first_use == "invoke":
                one.invoke()
            toolset.warm_up()
            assert names(toolset) == ["one", "three"]
            assert toolset[0] is one
            assert one.description == "New."


class TestOddServers:
    @pytest.fixture
    def warnings(self, caplog):
        caplog.set_level(logging.WARNING, logger="haystack_integrations")

        def texts() -> list[str]:
            return [record.getMessage() for record in caplog.records if record.levelno == logging.WARNING]

        return texts

    def test_a_tool_with_an_unusable_schema_is_left_out_with_a_warning_that_names_it(self, warnings):
        server = ForeignServer(definition("good", TAKES_QUERY), definition("broken", BROKEN))
        with MCPToolset(server.info) as toolset:
            assert names(toolset) == ["good"]
            with pytest.raises(KeyError, match=r"the server has it, but its schema is unusable\."):
                toolset["broken"]
        (warning,) = warnings()
        assert "'broken'" in warning
        assert "#/properties/x/type" in warning

    def test_a_tool_with_an_unusable_schema_is_an_error_if_it_was_asked_for(self):
        server = ForeignServer(definition("good"), definition("broken", BROKEN))
        toolset = MCPToolset(server.info, tool_names=["good", "broken"])
        with pytest.raises(ValueError, match="The schema of tool 'broken' is unusable"):
            toolset.warm_up()
        toolset.close()

    def test_an_unusable_schema_does_not_matter_to_those_who_asked_for_others(self, warnings):
        server = ForeignServer(definition("good"), definition("broken", BROKEN))
        with MCPToolset(server.info, tool_names=["good"]) as toolset:
            assert names(toolset) == ["good"]
        assert warnings() == []

    def test_of_a_tool_that_is_listed_twice_the_first_is_used(self):
        server = ForeignServer(definition("one", description="First."), definition("one", description="Second."))
        with MCPToolset(server.info) as toolset:
            assert [tool.description for tool in toolset] == ["First."]

    def test_names_are_made_safe_for_providers(self):
        long = "a" * 70
        server = ForeignServer(definition("repo/search.code"), definition(long), definition("größe"))
        with MCPToolset(server.info) as toolset:
            assert [tool.remote_name for tool in toolset] == [long, "größe", "repo/search.code"]
            assert names(toolset)[1:] == ["gr__e", "repo_search_code"]
            assert all(len(name) <= 64 for name in names(toolset))
            toolset[0].invoke()
            toolset[2].invoke()
        assert [name for name, _ in server.calls] == [long, "repo/search.code"]

    def test_a_tool_keeps_its_name_if_the_server_gets_another_that_would_have_the_same(self):
        server = ForeignServer(definition("a.b"))
        with MCPToolset(server.info, tool_overrides={"c": {"name": "mine"}}) as toolset:
            [first] = toolset
            toolset.close()
            server.tools += [definition("a_b"), definition("mine"), definition("c")]
            toolset.warm_up()
            found = {tool.remote_name: tool.name for tool in toolset}
            assert toolset["a_b"] is first
        assert (found["a.b"], found["c"]) == ("a_b", "mine")
        assert found["a_b"].startswith("a_b_")
        assert found["mine"].startswith("mine_")


class TestPrefixes:
    @every_executor
    def test_two_servers_with_the_same_tools_live_together(self, execute):
        one = MCPToolset(COUNTER, tool_names=["add"], tool_name_prefix="counter")
        two = MCPToolset(FASTMCP, tool_names=["add"], tool_name_prefix="fast")
        with one, two:
            outcome = execute([one, two], ("counter_add", {"a": 1, "b": 2}), ("fast_add", {"a": 3, "b": 4}))
        assert [each.result for each in outcome.results] == ["3", "7"]

    def test_mappings_go_by_the_servers_names(self):
        toolset = MCPToolset(COUNTER, tool_name_prefix="my", inputs_from_state={"add": {"offset": "b"}})
        with toolset:
            (add,) = (tool for tool in toolset if tool.remote_name == "add")
            assert add.name == "my_add"
            assert list(add.parameters["properties"]) == ["a"]


class TestMappings:
    @every_executor
    def test_each_tool_has_its_own(self, execute):
        toolset = MCPToolset(
            COUNTER,
            inputs_from_state={"add": {"offset": "b"}},
            outputs_to_state={"structured": {"town": {"source": "city"}}},
            outputs_to_string={"structured_only": {"source": "answer"}},
        )
        with toolset:
            outcome = execute(
                toolset,
                ("add", {"a": 5}),
                ("structured", {"city": "Rome"}),
                ("structured_only", {}),
                ("echo", {"text": "hi"}),
                state_schema={"offset": {"type": int}, "town": {"type": str}},
                state={"offset": 37},
            )
        first, second, third, fourth = (each.result for each in outcome.results)
        assert (first, third, fourth) == ("42", "42", "hi")
        assert json.loads(second)["city"] == "Rome"
        assert outcome.state["town"] == "Rome"

    def test_an_unknown_parameter_is_an_error_with_the_valid_ones_at_each_warm_up(self):
        toolset = MCPToolset(COUNTER, inputs_from_state={"add": {"offset": "c"}})
        message = r"`inputs_from_state` .'offset'. of tool 'add' has the unknown parameter 'c'.*parameters are: a, b"
        for _ in range(2):
            with pytest.raises(ValueError, match=message):
                toolset.warm_up()
        toolset.close()


class TestChildren:
    def test_they_warm_up_and_close_the_toolset(self):
        toolset = MCPToolset(COUNTER, tool_names=["add"])
        (add,) = toolset
        add.warm_up()
        assert toolset.connection.is_ready
        add.close()
        assert not toolset.connection.is_ready
        asyncio.run(add.warm_up_async())
        assert toolset.connection.is_ready
        asyncio.run(add.close_async())
        assert not toolset.connection.is_ready

    def test_an_agent_given_the_single_tools_works(self):
        toolset = MCPToolset(COUNTER, tool_names=["add", "echo"])
        generator = ScriptedChatGenerator([call("add", a=1, b=2), say("done")])
        agent = Agent(chat_generator=generator, tools=[*toolset])
        del toolset
        gc.collect()
        agent.run(messages=[ChatMessage.from_user("go")])
        assert generator.turns[0].tool_specs[0]["description"] == "Add two integers."
        assert generator.turns[1].tool_results == ["3"]
        agent.tools[0].close()

    def test_a_child_is_pickled_without_its_toolset(self):
        with MCPToolset(COUNTER, tool_names=["add"]) as toolset:
            twin = pickle.loads(pickle.dumps(toolset[0]))  # noqa: S301
        assert json.loads(twin.invoke(a=1, b=2))["isError"] is False
        twin.close()


class TestAddingTools:
    @rows("warm_first", [False, True])
    def test_a_tool_of_another_kind_joins(self, warm_first):
        server = ForeignServer(definition("one"))
        toolset = MCPToolset(server.info)
        if warm_first:
            toolset.warm_up()
        plain = plain_tool()
        toolset.add(plain)
        assert "plain" in toolset
        assert plain in toolset
        toolset.warm_up()
        assert names(toolset) == ["one", "plain"]
        toolset.close()
        toolset.warm_up()
        assert names(toolset) == ["one", "plain"]
        toolset.close()

    def test_the_tools_of_a_toolset_join(self):
        toolset = MCPToolset(COUNTER)
        toolset.add(Toolset([plain_tool("p"), plain_tool("q")]))
        assert names(toolset) == ["p", "q"]

    @rows(
        "warm_up",
        [MCPToolset.warm_up, lambda each: asyncio.run(each.warm_up_async()), lambda each: warm_up_toolsets([each])],
    )
    def test_they_are_warmed_up_with_the_toolset(self, warm_up):
        infos = [ForeignServer(definition(name, description=name)).info for name in ("one", "two", "three")]
        toolset = MCPToolset(infos[0])
        toolset.add(MCPTool("two", infos[1]))
        toolset.add(MCPToolset(infos[2], tool_names=["three"]))
        warm_up(toolset)
        assert [tool.description for tool in toolset] == ["one", "two", "three"]
        for tool in toolset:
            tool.close()
        warm_up(toolset)
        assert [tool.connection.is_ready for tool in toolset] == [True, True, True]
        toolset.close()

    @rows("invoke", [MCPTool.invoke, lambda tool: asyncio.run(tool.invoke_async())])
    def test_the_first_call_of_a_tool_of_the_server_needs_none_of_them(self, invoke):
        toolset = MCPToolset(ForeignServer(definition("one")).info, tool_names=["one"])
        toolset.add(MCPTool("two", StdioServerInfo("no-such-command")))
        assert json.loads(invoke(toolset["one"]))["isError"] is False
        toolset.close()

    def test_a_name_that_is_taken_is_refused(self):
        with MCPToolset(ForeignServer(definition("one")).info) as toolset:
            with pytest.raises(ValueError, match="one"):
                toolset.add(plain_tool("one"))
            with pytest.raises(ValueError, match="p"):
                toolset.add(Toolset([plain_tool("p")]) if "p" in toolset else _TwiceTheSame())
            assert names(toolset) == ["one"]

    def test_a_name_that_the_server_turns_out_to_have_is_refused_at_warm_up(self):
        toolset = MCPToolset(ForeignServer(definition("one")).info)
        toolset.add(plain_tool("one"))
        with pytest.raises(ValueError, match="one"):
            toolset.warm_up()
        toolset.close()

    @rows("other", [None, "add", [plain_tool()], print])
    def test_something_else_is_refused(self, other):
        with pytest.raises(TypeError, match=f"Expected Tool or Toolset, got {type(other).__name__}"):
            MCPToolset(COUNTER).add(other)


class TestTheListOfTools:
    """`tools` may be changed, as in mcp-haystack 2.1."""

    @rows(
        "leave_out",
        [
            lambda toolset: setattr(toolset, "tools", [tool for tool in toolset.tools if tool.name != "two"]),
            lambda toolset: toolset.tools.remove(toolset["two"]),
        ],
    )
    def test_tools_can_be_taken_out_of_it_until_they_are_listed_again(self, leave_out):
        with MCPToolset(ForeignServer(definition("one"), definition("two")).info) as toolset:
            toolset.add(plain_tool())
            leave_out(toolset)
            toolset.warm_up()
            shown = [names(toolset), names(toolset.spawn())]
            assert [*shown, "two" in toolset, len(toolset)] == [["one", "plain"], ["one", "plain"], False, 2]
            toolset.tools.remove(toolset["plain"])
            assert names(toolset) == ["one"]
            toolset.refresh()
            assert names(toolset) == ["one", "two"]

    @rows("warm_first", [False, True])
    def test_tools_that_are_put_into_it_stay(self, warm_first):
        toolset = MCPToolset(ForeignServer(definition("one")).info)
        if warm_first:
            toolset.warm_up()
        toolset.tools.append(plain_tool())
        assert "plain" in toolset
        toolset.warm_up()
        toolset.refresh()
        assert names(toolset) == ["one", "plain"]
        toolset.close()


class _TwiceTheSame(Toolset):
    """A toolset that yields two tools of one name."""

    def __init__(self) -> None:
        super().__init__([])

    def __iter__(self):
        return iter([plain_tool("p"), plain_tool("p")])


@NEEDS_ADDITION
class TestAddition:
    @pytest.fixture
    def one(self):
        toolset = MCPToolset(COUNTER, tool_name_prefix="one")
        yield toolset
        toolset.close()

    @pytest.fixture
    def two(self):
        toolset = MCPToolset(FASTMCP, tool_name_prefix="two")
        yield toolset
        toolset.close()

    def run_agent(self, tools: Any, *tool_names: str) -> list[Any]:
        generator = ScriptedChatGenerator([*(call(name, text="hi") for name in tool_names), say("done")])
        agent = Agent(chat_generator=generator, tools=tools)
        agent.run(messages=[ChatMessage.from_user("go")])
        assert not any("placeholder" in name for turn in generator.turns for name in turn.tool_names)
        return generator.turns[-1].tool_results

    @rows(
        ("combine", "called", "results"),
        [
            (lambda one, two: one + two, ("one_echo", "two_echo"), ["hi", "hi"]),
            (lambda one, two: one + (two + plain_tool()), ("one_echo", "two_echo", "plain"), ["hi", "hi", "plain hi"]),
            (lambda one, two: one + two + plain_tool(), ("one_echo", "two_echo", "plain"), ["hi", "hi", "plain hi"]),
            (lambda one, _: one + plain_tool(), ("one_echo", "plain"), ["hi", "plain hi"]),
            (lambda one, _: one + [plain_tool(), plain_tool("other")], ("one_echo", "other"), ["hi", "plain hi"]),
            (lambda one, _: one + Toolset([plain_tool()]), ("one_echo", "plain"), ["hi", "plain hi"]),
            (lambda one, _: Toolset([plain_tool()]) + one, ("one_echo", "plain"), ["hi", "plain hi"]),
            (lambda one, two: plain_tool() + (one + two), ("two_echo", "plain"), ["hi", "plain hi"]),
            (lambda one, two: [plain_tool()] + (one + two), ("two_echo", "plain"), ["hi", "plain hi"]),
            (lambda one, two: MCPResourceToolset(COUNTER) + two, ("two_echo",), ["hi"]),
        ],
    )
    def test_cold_toolsets_and_other_tools(self, one, two, combine, called, results):
        combination = combine(one, two)
        assert bool(combination) is True
        assert self.run_agent(combination, *called) == results
        one.close()
        two.close()

    @pytest.mark.parametrize("other", [5, ["add"], None, "add"])
    def test_something_else_is_refused(self, one, other):
        with pytest.raises(TypeError):
            one + other
        with pytest.raises(TypeError):
            one + plain_tool() + other

    @rows(
        "combine",
        [
            lambda one, _: Toolset([plain_tool()]) + one,
            lambda one, two: Toolset([plain_tool()]) + (one + two),
            lambda one, _: MCPResourceToolset(COUNTER) + one,
        ],
    )
    def test_a_toolset_of_plain_tools_on_the_left_does_not_lose_ours_when_it_is_stored(self, one, two, combine):
        pipeline = Pipeline()
        combination = combine(one, two)
        pipeline.add_component("agent", Agent(chat_generator=ScriptedChatGenerator([]), tools=combination))
        assert "MCPToolset" in pipeline.dumps()

    def test_a_trace_shows_no_plain_secrets(self, one):
        info = StreamableHttpServerInfo("https://h/mcp", token=SECRET)
        combination = one + MCPToolset(info) + Toolset([MCPTool("add", info), plain_tool()])
        assert SECRET not in coerce_tag_value(combination)
        assert coerce_tag_value(combination).count("StreamableHttpServerInfo") == 2

    def test_a_combination_is_what_is_in_it(self, one):
        both = one + plain_tool()
        assert names(both) == ["plain"]
        both.warm_up()
        assert "one_add" in both
        assert "plain" in both
        assert len(both) == len(one) + 1
        assert both[0] is one[0]

    def test_a_combination_makes_the_round_trip_while_cold(self, one, two):
        for combination in (one + two, one + two + plain_tool(), one + (two + plain_tool())):
            pipeline = Pipeline()
            pipeline.add_component("agent", Agent(chat_generator=ScriptedChatGenerator([]), tools=combination))
            loaded = Pipeline.loads(pipeline.dumps())
            assert loaded.to_dict() == pipeline.to_dict()
            twin = loaded.get_component("agent").tools
            twin.warm_up()
            assert {"one_add", "two_add"} <= set(names(twin))
            assert ("plain" in twin) == ("plain" in combination)
            for toolset in {id(tool._toolset): tool._toolset for tool in twin if isinstance(tool, MCPTool)}.values():
                toolset.close()


class TestTheToolsOfARun:
    def test_they_are_the_selected_ones_of_the_toolset(self):
        with MCPToolset(COUNTER) as toolset:
            run = toolset.spawn({"add", "echo"})
            assert sorted(names(run)) == sorted(names(run.get_selectable_tools())) == ["add", "echo"]
            assert len(run) == 2
            assert "add" in run
            assert toolset["echo"] in run
            assert "fail" not in run
            assert toolset["fail"] not in run

    def test_each_run_has_its_own_and_they_count_as_tools_even_if_there_are_none(self):
        with MCPToolset(COUNTER) as toolset:
            first, second = toolset.spawn(set()), toolset.spawn(set())
            assert (len(first), bool(first)) == (0, True)
            assert first == first  # noqa: PLR0124
            assert first != second
            assert len({first, second, first}) == 2

    def test_what_is_added_to_them_is_added_to_the_toolset_and_they_are_stored_as_it(self):
        with MCPToolset(COUNTER) as toolset:
            run = toolset.spawn({"add", "plain"})
            assert run.to_dict() == toolset.to_dict()
            run.add(plain_tool())
            assert "plain" in names(toolset)
            assert sorted(names(run)) == ["add", "plain"]


@pytest.mark.skipif(hasattr(Toolset, "__add__"), reason="this Haystack adds toolsets")
def test_where_haystack_does_not_add_toolsets_neither_do_we():
    with pytest.raises(TypeError):
        MCPToolset(COUNTER) + MCPToolset(FASTMCP)


class TestAsAnObject:
    def test_a_subclass_works_like_it(self):
        class Mine(MCPToolset):
            pass

        with Mine(COUNTER, tool_names=["add"]) as toolset:
            assert repr(toolset).startswith("Mine(")
            assert copy.deepcopy(toolset) is toolset
            assert toolset.to_dict()["type"].endswith("Mine")


class TestSharing:
    def test_toolsets_and_tools_of_one_server_share_its_session(self):
        server = ForeignServer(definition("one"))
        with MCPToolset(server.info) as toolset, MCPToolset(server.info) as other, MCPTool("one", server.info) as tool:
            assert toolset.connection.status().users == 3
            assert (server.listings, tool._connection.status().sessions) == (1, 1)
            toolset.close()
            other[0].invoke()
            tool.invoke()
        assert server.listings == 1


@pytest.mark.skipif(not HAS_TOOL_INVOKER, reason="this Haystack has no ToolInvoker")
def test_a_tool_invoker_accepts_a_cold_toolset_alone():
    from haystack.components.tools import ToolInvoker

    toolset = MCPToolset(COUNTER)
    invoker = ToolInvoker(tools=toolset)
    result = invoker.run(messages=[call("echo", text="hi")])
    toolset.close()
    assert result["tool_messages"][0].tool_call_results[0].result == "hi"
