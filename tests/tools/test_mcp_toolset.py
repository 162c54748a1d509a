# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import copy
import gc
import json
import pickle
from typing import Any

import pytest
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool, Toolset, flatten_tools_or_toolsets
from haystack.tracing.utils import coerce_tag_value

from haystack_integrations.tools.mcp import (
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
from tests.support.executors import agent_of, every_executor, names, reloaded, run
from tests.support.foreign_server import ForeignServer, definition
from tests.support.in_process import COUNTER, FASTMCP
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, say
from tests.support.waiting import LIMIT, wait_until

NEEDS_ADDITION = pytest.mark.skipif(not hasattr(Toolset, "__add__"), reason="this Haystack does not add toolsets")


SECRET = "s3ntinel-of-a-server"

BROKEN = {"type": "object", "properties": {"x": {"type": "strung"}}}


def say_plainly(text: str = "") -> str:
    return f"plain {text}"


def plain_tool(name: str = "plain") -> Tool:
    return Tool(name=name, description="Plain.", parameters={"type": "object", "properties": {}}, function=say_plainly)


class TestWhileCold:
    def test_a_cold_toolset_is_empty_does_not_connect_and_reports_that(self, tmp_path):
        trace = tmp_path / "started"
        toolset = MCPToolset(StdioServerInfo(command="touch", args=[str(trace)]))
        assert list(toolset) == toolset[:] == toolset.get_selectable_tools() == []
        assert (len(toolset), bool(toolset)) == (0, True)
        assert flatten_tools_or_toolsets(toolset) == flatten_tools_or_toolsets([toolset]) == []
        assert "touch" not in toolset
        toolset.to_dict(), toolset._to_trace_dict(), copy.deepcopy(toolset)
        assert repr(toolset).endswith("tools=[], not warmed up)")
        with pytest.raises(IndexError, match=r"not warmed up. Call warm_up\(\)"):
            toolset[0]
        with pytest.raises(KeyError, match=r"no tool 'add': it is not warmed up. Call warm_up\(\)"):
            toolset["add"]
        generator = ScriptedChatGenerator([say("hello")])
        generator.run([ChatMessage.from_user("hi")], tools=toolset)
        assert generator.turns[0].tool_names == []
        toolset.close()
        assert not trace.exists()

    def test_the_list_of_a_cold_toolset_has_a_placeholder_that_iteration_never_yields(self):
        toolset = MCPToolset(COUNTER)
        (placeholder,) = toolset.tools
        assert placeholder.name.startswith("mcp_not_connected_placeholder")
        assert placeholder not in toolset and placeholder.name not in toolset
        with pytest.raises(MCPConnectionError, match="warm_up"):
            placeholder.function()

    def test_creating_a_toolset_checks_no_schema_which_is_slow(self, monkeypatch):
        monkeypatch.setattr("jsonschema.Draft202012Validator.check_schema", None)
        MCPToolset(COUNTER, tool_names=["add"])

    def test_a_cold_toolset_has_placeholders_for_named_tools(self, tmp_path):
        trace = tmp_path / "started"
        info = StdioServerInfo(command="touch", args=[str(trace)])
        toolset = MCPToolset(info, tool_names=["repo/search", "add", "add"], tool_name_prefix="my")
        assert names(toolset) == ["my_repo_search", "my_add"]
        assert [tool.remote_name for tool in toolset] == ["repo/search", "add"]
        assert "my_add" in toolset
        assert "add" not in toolset
        assert toolset.get_selectable_tools() == [toolset[0], toolset[1]]
        assert toolset[0].parameters == {"type": "object", "properties": {}, "additionalProperties": True}
        assert not trace.exists()

    def test_placeholders_become_the_tools_and_stay_the_same_objects(self):
        toolset = MCPToolset(COUNTER, tool_names=["echo", "add"])
        echo, add = cold = list(toolset)
        assert json.loads(add.invoke(a=1, b=2))["content"][0]["text"] == "3"
        assert add.description == "Add two integers."
        assert sorted(add.parameters["properties"]) == ["a", "b"]
        toolset.warm_up()
        toolset.close()
        toolset.warm_up()
        assert [tool is before for tool, before in zip(toolset, cold, strict=True)] == [True, True]
        assert names([echo, add]) == ["echo", "add"]
        toolset.close()


class TestWarmedUp:
    def test_a_warm_toolset_has_all_tools_of_the_server_by_position_and_by_name(self):
        with MCPToolset(ForeignServer(definition("one"), definition("two")).info, tool_name_prefix="my") as toolset:
            assert names(toolset) == names(toolset.tools) == names(toolset.get_selectable_tools())
            assert names(toolset) == ["my_one", "my_two"]
            assert toolset["my_two"] is toolset[1] is toolset[-1] is toolset[:][1]
            assert toolset[1] in toolset
            assert "my_two" in toolset
            assert "two" not in toolset
            assert "not warmed up" not in repr(toolset)
            with pytest.raises(IndexError, match=r"no tool at position 2. Available tools: my_one, my_two"):
                toolset[2]
            with pytest.raises(KeyError, match=r"no tool 'two'. Did you mean 'my_two'"):
                toolset["two"]

    def test_a_failed_warm_up_does_not_affect_running_calls(self):
        wrong = {"structured": {"user": "no_such_parameter"}}  # the server lists this tool after `sleep`
        toolset = MCPToolset(COUNTER, tool_names=["sleep", "structured"], inputs_from_state=wrong, share=False)
        message = r"`inputs_from_state` .'user'. of tool 'structured' has the unknown parameter 'no_such_parameter'"
        with pytest.raises(ValueError, match=message):
            toolset.warm_up()
        call = in_thread(toolset[0].invoke, seconds=1)
        wait_until(lambda: toolset.connection.status().in_flight == 1, "the call")
        with pytest.raises(ValueError, match=message):
            toolset.warm_up()
        assert "slept 1.0 s" in call.result(timeout=LIMIT)
        toolset.close()

    @rows(("server", "tool_names"), (FASTMCP, []), (ForeignServer().info, None))
    def test_a_toolset_may_have_no_tools(self, server, tool_names):
        with MCPToolset(server, tool_names=tool_names) as toolset:
            assert list(toolset) == toolset.tools == []
            assert bool(toolset) is True

    def test_named_tools_that_the_server_does_not_have_are_an_error_with_the_available_ones(self):
        server = ForeignServer(definition("one"), definition("two"))
        toolset = MCPToolset(server.info, tool_names=["one", "three", "four"])
        with pytest.raises(
            MCPToolNotFoundError, match=r"'three', 'four' not found on .*\. Available tools: one, two"
        ) as raised:
            toolset.warm_up()
        toolset.close()
        assert (raised.value.tool_name, raised.value.available_tools) == ("three", ["one", "two"])


class TestOddServers:
    def test_a_tool_with_an_unusable_schema_is_omitted_with_a_warning_unless_it_was_named(self, caplog):
        server = ForeignServer(definition("good"), definition("broken", BROKEN))
        with MCPToolset(server.info) as toolset:
            assert names(toolset) == ["good"]
            with pytest.raises(KeyError, match=r"the server has it, but its schema is unusable\."):
                toolset["broken"]
        assert "'broken'" in caplog.text and "#/properties/x/type" in caplog.text
        toolset = MCPToolset(server.info, tool_names=["good", "broken"])
        with pytest.raises(ValueError, match="The schema of tool 'broken' is unusable"):
            toolset.warm_up()
        toolset.close()

    def test_names_are_made_safe_for_providers_and_the_first_of_two_equal_names_is_used(self, caplog):
        long = "a" * 70
        server = ForeignServer(
            definition("repo/search.code", description="First."),
            definition("repo/search.code", description="Second.", outputSchema={"required": ["a"]}),
            definition(long),
        )
        with MCPToolset(server.info) as toolset:
            assert [tool.remote_name for tool in toolset] == [long, "repo/search.code"]
            assert (toolset["repo_search_code"].description, len(toolset[0].name) <= 64) == ("First.", True)
            for tool in toolset:
                tool.invoke()
        assert server.calls == [(long, {}), ("repo/search.code", {})]
        twice = f"{server.info.describe()} lists tool 'repo/search.code' twice; the first one is used"
        assert twice in caplog.text

    def test_a_tool_keeps_its_name_if_the_server_adds_another_tool_with_the_same_name(self):
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


@every_executor
def test_mappings_of_each_tool_are_found_by_its_name_on_the_server(execute):
    made = MCPToolset(
        COUNTER,
        tool_name_prefix="my",
        inputs_from_state={"add": {"offset": "b"}},
        outputs_to_state={"structured": {"town": {"source": "city"}}},
        outputs_to_string={"structured_only": {"source": "answer"}},
    )
    with MCPToolset.from_dict(made.to_dict()) as toolset:
        outcome = execute(
            toolset,
            ("my_add", {"a": 5}),
            ("my_structured", {"city": "Rome"}),
            ("my_structured_only", {}),
            state_schema={"offset": {"type": int}, "town": {"type": str}},
            state={"offset": 37},
        )
        assert list(toolset["my_add"].parameters["properties"]) == ["a"]
    first, second, third = (each.result for each in outcome.results)
    assert (first, third, json.loads(second)["city"]) == ("42", "42", "Rome")
    assert outcome.state["town"] == "Rome"


class TestChildren:
    def test_tools_warm_up_and_close_their_toolset_and_are_pickled_without_it(self):
        toolset = MCPToolset(COUNTER, tool_names=["add"])
        (add,) = toolset
        add.warm_up()
        assert toolset.connection.is_ready
        twin = pickle.loads(pickle.dumps(add))  # noqa: S301
        add.close()
        assert not toolset.connection.is_ready
        assert json.loads(twin.invoke(a=1, b=2))["isError"] is False
        twin.close()
        asyncio.run(add.warm_up_async())
        assert toolset.connection.is_ready
        asyncio.run(add.close_async())
        assert not toolset.connection.is_ready
        del toolset
        gc.collect()
        assert json.loads(add.invoke(a=1, b=2))["isError"] is False
        add.close()


class TestAddingTools:
    def test_other_tools_and_toolsets_can_be_added(self):
        toolset = MCPToolset(ForeignServer(definition("one")).info)
        plain = plain_tool()
        toolset.add(plain)
        toolset.add(Toolset([plain_tool("p"), plain_tool("q")]))
        assert plain in toolset
        assert toolset["q"] is toolset[-1]
        for _ in range(2):
            toolset.warm_up()
            assert names(toolset) == ["one", "plain", "p", "q"]
            toolset.close()

    def test_added_tools_are_warmed_up_with_the_toolset(self):
        infos = [ForeignServer(definition(name, description=name)).info for name in ("one", "two", "three")]
        toolset = MCPToolset(infos[0])
        toolset.add(MCPTool("two", infos[1]))
        toolset.add(MCPToolset(infos[2], tool_names=["three"]))
        ways = (toolset.warm_up, lambda: asyncio.run(toolset.warm_up_async()), lambda: warm_up_toolsets([toolset]))
        for warm_up in ways:
            warm_up()
            assert [tool.description for tool in toolset] == ["one", "two", "three"]
            assert [tool.connection.is_ready for tool in toolset] == [True, True, True]
            for tool in toolset:
                tool.close()

    def test_the_first_call_of_a_server_tool_does_not_warm_up_added_tools(self):
        for is_async in (False, True):
            toolset = MCPToolset(ForeignServer(definition("one")).info, tool_names=["one"])
            toolset.add(MCPTool("two", StdioServerInfo("no-such-command")))
            one = toolset["one"]
            result = asyncio.run(one.invoke_async()) if is_async else one.invoke()
            assert json.loads(result)["isError"] is False
            toolset.close()

    def test_a_name_that_is_taken_is_refused_now_or_at_warm_up(self):
        toolset = MCPToolset(ForeignServer(definition("one")).info)
        toolset.add(plain_tool("one"))
        with pytest.raises(ValueError, match="one"):
            toolset.warm_up()
        toolset.close()
        with MCPToolset(ForeignServer(definition("one")).info) as toolset:
            with pytest.raises(ValueError, match="one"):
                toolset.add(plain_tool("one"))
            assert names(toolset) == ["one"]

    def test_an_object_that_is_not_a_tool_is_refused(self):
        with pytest.raises(TypeError, match="Expected Tool or Toolset, got list"):
            MCPToolset(COUNTER).add([plain_tool()])


class TestTheListOfTools:
    """`tools` may be changed, as in mcp-haystack 2.1."""

    def test_tools_can_be_removed_from_the_list_until_they_are_listed_again(self):
        with MCPToolset(ForeignServer(definition("one"), definition("two")).info) as toolset:
            toolset.add(plain_tool())
            toolset.tools = [tool for tool in toolset.tools if tool.name != "two"]
            toolset.warm_up()
            assert names(toolset) == names(toolset.spawn()) == ["one", "plain"]
            assert ("two" in toolset, len(toolset)) == (False, 2)
            toolset.tools.remove(toolset["plain"])
            assert names(toolset) == ["one"]
            toolset.refresh()
            assert names(toolset) == ["one", "two"]

    def test_tools_that_are_added_to_the_list_stay(self):
        toolset = MCPToolset(ForeignServer(definition("one")).info)
        toolset.tools.append(plain_tool())
        assert "plain" in toolset
        with toolset:
            toolset.tools.append(plain_tool("other"))
            toolset.refresh()
            assert names(toolset) == ["one", "plain", "other"]


@NEEDS_ADDITION
class TestAddition:
    @pytest.fixture
    def both(self):
        one, two = MCPToolset(COUNTER, tool_name_prefix="one"), MCPToolset(FASTMCP, tool_name_prefix="two")
        yield one, two
        one.close()
        two.close()

    def test_cold_toolsets_and_other_tools_can_be_added_stored_and_used(self, both):
        one, two = both
        for combination, called in (
            (one + (two + plain_tool()), "one_echo two_echo plain"),
            (one + two + plain_tool(), "one_echo two_echo plain"),
            (one + [plain_tool(), plain_tool("other")], "one_echo other"),
            (Toolset([plain_tool()]) + one, "one_echo plain"),
            ([plain_tool()] + (one + two), "two_echo plain"),
            (MCPResourceToolset(COUNTER) + two, "two_echo"),
        ):
            assert bool(combination) is True
            replies = [*(call(name, text="hi") for name in called.split()), say("done")]
            agent = reloaded(agent_of(combination, *replies))
            run(agent)
            turns = agent.chat_generator.turns
            expected = ["hi" if "echo" in name else "plain hi" for name in called.split()]
            assert turns[-1].tool_results == expected
            assert not any("placeholder" in name for turn in turns for name in turn.tool_names)
            for tool in agent.tools:
                if isinstance(tool, MCPTool):
                    tool.close()
        with pytest.raises(TypeError):
            both[0] + plain_tool() + ["add"]

    def test_a_sum_contains_the_tools_of_its_parts_and_its_trace_shows_no_plain_secrets(self, both):
        one, _ = both
        combination = one + plain_tool()
        assert names(combination) == ["plain"]
        combination.warm_up()
        assert "one_add" in combination and "plain" in combination
        assert len(combination) == len(one) + 1
        assert combination[0] is one[0]
        info = StreamableHttpServerInfo("https://h/mcp", token=SECRET)
        combination = one + MCPToolset(info) + Toolset([MCPTool("add", info), plain_tool()])
        assert SECRET not in coerce_tag_value(combination)
        assert coerce_tag_value(combination).count("StreamableHttpServerInfo") == 2


class TestTheToolsOfARun:
    def test_each_run_has_its_own_selected_tools_to_which_others_can_be_added(self):
        with MCPToolset(COUNTER) as toolset:
            run = toolset.spawn({"add", "echo", "plain"})
            assert run.to_dict() == toolset.to_dict()
            assert sorted(names(run)) == sorted(names(run.get_selectable_tools())) == ["add", "echo"]
            assert len(run) == 2
            assert "add" in run and toolset["echo"] in run
            assert "fail" not in run and toolset["fail"] not in run
            run.add(plain_tool())
            assert "plain" in names(toolset)
            assert sorted(names(run)) == ["add", "echo", "plain"]
            none = toolset.spawn(set())
            assert (len(none), bool(none)) == (0, True)
            assert none == none != run  # noqa: PLR0124
            assert len({none, run, none}) == 2

    def test_tools_of_a_run_are_stored_and_traced_by_the_methods_of_a_derived_toolset(self):
        class Labelled(MCPToolset):
            def to_dict(self) -> dict[str, Any]:
                return {**super().to_dict(), "label": "own"}

            def _to_trace_dict(self) -> dict[str, Any]:
                return {"label": "traced"}

        run = Labelled(COUNTER).spawn()
        assert run.to_dict()["label"] == "own"
        assert run._to_trace_dict() == {"label": "traced"}


@pytest.mark.skipif(hasattr(Toolset, "__add__"), reason="this Haystack adds toolsets")
def test_toolsets_cannot_be_added_if_haystack_does_not_support_it():
    with pytest.raises(TypeError):
        MCPToolset(COUNTER) + MCPToolset(FASTMCP)
