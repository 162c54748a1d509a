# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import gc
import importlib.util
import re
import threading
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest
from anyio import CapacityLimiterStatistics
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError
from haystack import Document, Pipeline
from haystack.components.agents import Agent
from haystack.components.builders import PromptBuilder
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import ComponentTool, Tool, Toolset
from mcp import MCPError
from mcp.types import Icon, PromptReference, ToolAnnotations

from haystack_integrations.tools.mcp import serving
from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from haystack_integrations.tools.mcp.serving.sources import check_options
from tests.serving.served_kinds import ObligingChatGenerator
from tests.support.rows import rows
from tests.support.waiting import wait_until_async


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def greet(name: str) -> str:
    return f"Hello, {name}!"


TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


def test_the_error_without_fastmcp_says_what_to_install(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda _name: None)
    with pytest.raises(ImportError, match=re.escape('pip install "mcp-haystack[serve]"')):
        importlib.reload(serving)


def shout(text: str) -> str:
    return text.upper()


def _tool(name: str, function=shout) -> Tool:
    return Tool(name, "Does something.", TEXT, function)


GREET = _tool("greet")
HELPER = Agent(chat_generator=ObligingChatGenerator(str.upper))


def test_a_key_without_a_kind_is_refused():
    with pytest.raises(ValueError, match=r"'admin' is not a key: it must be like tool:NAME"):
        create_mcp_server("shop").disable(keys={"admin"})


@rows(("policy", "served"), ("warn", "Second."), ("replace", "Second."), ("ignore", "First."))
async def test_the_policy_chooses_one_of_two_tools_with_the_same_name(policy, served, caplog):
    tools = [Tool("same", text, TEXT, lambda text: text) for text in ("First.", "Second.")]
    server = create_mcp_server("shop", tools=tools, on_duplicate=policy)
    async with Client(server) as client:
        assert [tool.description for tool in await client.list_tools()] == [served]
        # A tool of FastMCP's decorator has precedence.
        server.tool(lambda: "Third.", name="same", description="Third.")
        assert [tool.description for tool in await client.list_tools()] == ["Third."]
        assert (await client.call_tool("same", {})).content[0].text == "Third."
    if policy == "warn":
        assert "There are two things named 'same'. The one that was given first is not served" in caplog.text
        assert "Rename one with ServeOptions(name=...)" in caplog.text


async def test_two_tools_with_the_same_name_are_an_error_if_that_is_the_policy(caplog):
    with pytest.raises(ValueError, match="Two things named 'same' are served"):
        create_mcp_server("shop", tools=[_tool("same"), _tool("same")], on_duplicate="error")
    toolset = Toolset([_tool("same")])
    server = create_mcp_server("shop", tools=[_tool("other"), toolset], on_duplicate="error")
    with pytest.raises(ValueError, match="Two things named 'same' are served"):
        server.add_tool(_tool("same"))
    server.tool(lambda: "first", name="decorated")
    with pytest.raises(ValueError, match="already exists"):
        server.tool(lambda: "second", name="decorated")
    # The server already runs, so it is too late for an error.
    async with Client(server) as client:
        toolset.add(_tool("other"))
        assert sorted(tool.name for tool in await client.list_tools()) == ["decorated", "other", "same"]
    assert "There are two things named 'other'. The one that was given last is not served" in caplog.text


async def test_the_version_of_the_server_is_not_that_of_fastmcp():
    async with Client(create_mcp_server("shop"), mode="legacy") as client:
        assert client.initialize_result.server_info.version == version("mcp-haystack")
    assert create_mcp_server("shop", version="7").version == "7"


async def test_clients_get_the_highest_version():
    def saying(how: Callable[[str], str]) -> Tool:
        return _tool("say", lambda text: how(text))  # noqa: PLW0108

    versions = {"1.5": str.title, "1": str.lower, "2": str.upper}
    tools = [(saying(how), ServeOptions(version=version)) for version, how in versions.items()]
    server = create_mcp_server("shop", tools=tools)

    async def said(**options) -> str:
        return (await client.call_tool("say", {"text": "some Tea"}, **options)).content[0].text

    async with Client(server) as client:
        [tool] = await client.list_tools()
        assert tool.meta["fastmcp"]["version"] == "2"
        assert (await said(), await said(version="1")) == ("SOME TEA", "some tea")
    server.disable(keys={"tool:say@2"})
    async with Client(server) as client:
        assert await said() == "Some Tea"


def test_a_name_with_a_dot_is_warned_of_because_claude_refuses_all_tools_then(caplog):
    create_mcp_server("shop", tools=[_tool("tea.brew"), _tool("sell")], options={"sell": {"name": "tea_sell"}})
    [warned] = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert "'tea.brew' has a dot" in warned and "ServeOptions(name=...)" in warned


@rows("name", "My Pipeline", "x" * 65, "", "größe", "a/b", "a\n")
def test_names_that_no_client_accepts_are_refused(name: str):
    tool = _tool("x")
    tool.name = name
    for parameter, served in (("tools", [tool]), ("pipelines", {name: Pipeline()}), ("agents", {name: HELPER})):
        with pytest.raises(ValueError, match=rf"in `{parameter}` must be 1 to 64 characters from A-Z, a-z, 0-9"):
            create_mcp_server("shop", **{parameter: served})
    with pytest.raises(ValueError, match="in `inputs` must be 1 to 64 characters"):
        ServeOptions(inputs={name: "prompt.text"})
    if name:
        create_mcp_server("shop", tools=[tool], options={name: {"name": "good.name-1_2"}})
        with pytest.raises(ValueError, match=r"in `ServeOptions\(name=\.\.\.\)` must be 1 to 64 characters"):
            create_mcp_server("shop", tools=[GREET], options={"greet": {"name": name}})


async def test_tools_are_added_and_removed_while_the_server_runs():
    server = create_mcp_server("shop", tools=[_tool("first")])
    async with Client(server) as client:
        server.add_tool(_tool("second"), ServeOptions(title="The Second"))
        server.add_tool(add)
        server.add_tool(Toolset([_tool("third")]))
        listed = {tool.name: tool.title for tool in await client.list_tools()}
        assert listed == {"add": "Add", "first": "First", "second": "The Second", "third": "Third"}
        for name in ("add", "first", "second"):
            server.local_provider.remove_tool(name)
        assert [tool.name for tool in await client.list_tools()] == ["third"]
        with pytest.raises(KeyError):
            server.local_provider.remove_tool("first")
        server.add_tool(_tool("first"))
        assert {tool.name for tool in await client.list_tools()} == {"first", "third"}


async def until(condition: Callable[[CapacityLimiterStatistics], bool], server: FastMCP) -> None:
    """
    Wait until the server's limiter of calls is in a certain state.
    """
    await wait_until_async(lambda: condition(server.haystack.pool.limiter.statistics()), "a state of the pool")


async def test_calls_beyond_the_limit_wait_and_calls_beyond_the_queue_get_a_busy_error():
    begun, may_end = threading.Event(), threading.Event()

    def wait(text: str) -> str:
        begun.set()
        may_end.wait(60)
        return text

    server = create_mcp_server("shop", tools=[_tool("wait", wait)], max_concurrency=1)
    async with Client(server) as client:
        first = asyncio.create_task(client.call_tool("wait", {"text": "given up"}))
        await wait_until_async(begun.is_set, "the call")
        given_up = asyncio.create_task(client.call_tool("wait", {"text": "given up"}))
        await until(lambda places: places.tasks_waiting == 1, server)
        # A cancelled call leaves the queue. A running one keeps its place until its thread ends.
        for each in (first, given_up):
            each.cancel()
        await until(lambda places: places.tasks_waiting == 0, server)
        assert server.haystack.pool.limiter.borrowed_tokens == 1
        waiting = [asyncio.create_task(client.call_tool("wait", {"text": "done"})) for _ in range(8)]
        await until(lambda places: places.tasks_waiting == 8, server)
        with pytest.raises(ToolError, match=r"1 calls are running and 8 are waiting\. Try again in a while"):
            await client.call_tool("wait", {"text": "too many"})
        may_end.set()
        assert {(await each).content[0].text for each in waiting} == {"done"}
    await until(lambda places: places.borrowed_tokens == 0, server)


STORE, PROMPT = InMemoryDocumentStore(), PromptBuilder("{{ text }}", required_variables=["text"])


async def test_disabled_objects_are_neither_listed_nor_usable_until_they_are_enabled():
    store = InMemoryDocumentStore()
    store.write_documents([Document(id="tea", content="Hot.")])
    options = {"kb": {"tags": {"hidden"}}, "ask": {"tags": {"hidden"}, "completions": {"text": ["tea"]}}}
    kinds = {"document_stores": {"kb": store}, "prompts": {"ask": PROMPT, "public": PROMPT}}
    server = create_mcp_server("shop", tools=[add, greet], **kinds, options=options)
    of_prompt = PromptReference(type="ref/prompt", name="ask"), {"name": "text", "value": ""}
    async with Client(server) as client:
        for criteria in ({"keys": {"tool:add"}}, {"keys": {"tool:other", "tool:add@"}}, {"names": {"add"}}):
            server.disable(**criteria)
            assert [tool.name for tool in await client.list_tools()] == ["greet"]
            with pytest.raises(ToolError, match="Unknown tool: 'add'"):
                await client.call_tool("add", {"a": 1, "b": 2})
            server.enable(**criteria)
            assert len(await client.list_tools()) == 2
        server.disable(tags={"hidden"})
        assert (await client.list_resources(), await client.list_resource_templates()) == ([], [])
        assert [prompt.name for prompt in await client.list_prompts()] == ["public"]
        assert (await client.complete(*of_prompt)).values == []
        for uri in ("documents://kb", "documents://kb/tea", "documents://kb?limit=1"):
            with pytest.raises(MCPError, match="Resource not found"):
                await client.read_resource(uri)
        with pytest.raises(MCPError, match="ask"):
            await client.get_prompt("ask", {"text": "x"})
        server.enable(tags={"hidden"})
        assert [resource.uri for resource in await client.list_resources()] == ["documents://kb"]
        assert (await client.read_resource("documents://kb/tea"))[0].text == "Hot."
        assert (await client.get_prompt("ask", {"text": "x"})).messages[0].content.text == "x"
        assert (await client.complete(*of_prompt)).values == ["tea"]
        server.enable(names={"greet"}, only=True)
        assert [tool.name for tool in await client.list_tools()] == ["greet"]


@rows(
    ("parameter", "value", "options", "reason"),
    ("tools", [add, GREET], {"gret": {}}, "`options` name 'gret', which is not served. Available: add, greet."),
    (
        "tools",
        [greet],
        {"greet": {"bound": {"nme": "a-secret"}}},
        "`bound` names 'nme', which is not among the parameters of the function 'greet': name.",
    ),
    ("tools", [greet], {"greet": {"inputs": ["name"]}}, "`inputs` cannot be chosen for 'greet', which is a funct"),
    ("tools", [greet], {"greet": {"outputs": ["x"]}}, "`outputs` cannot be chosen for tool 'greet', only for"),
    ("tools", [GREET], {"greet": {"outputs": ["x"]}}, "`outputs` cannot be chosen for tool 'greet', only for"),
    ("tools", [], [ServeOptions()], "`options` must be a dictionary of names to ServeOptions, got list"),
    ("tools", [ComponentTool(HELPER, "helper", "x")], {}, "is an Agent: serve that by `agents={'helper': agent}`"),
    ("pipelines", {"ask": PROMPT}, {}, "not as PromptBuilder"),
    ("agents", {"helper": "agent.yaml"}, {}, "It is not an Agent, but of type str"),
    ("document_stores", ["store"], {}, "must be a dictionary of names to document stores, got list"),
    ("document_stores", {"a b": STORE}, {}, "A name in `document_stores` must be"),
    ("document_stores", {"kb": "store"}, {}, "must be a document store of Haystack, with the methods filter_docum"),
    ("document_stores", {"kb": STORE}, {"kb": {"bound": {"x": 1}}}, "names 'x', which is not among what a docum"),
    ("prompts", {"ask": "text"}, {}, "must be a prompt builder"),
    ("prompts", {"ask": PROMPT}, {"ask": {"bound": {"x": 1}}}, "names 'x', which is not among the variables"),
    ("prompts", {"ask": PROMPT}, {"ask": {"completions": {"x": ["y"]}}}, "completions` names 'x', which is not"),
    ("skills", [5], {}, "must be a skill store of Haystack 3, or a list of them"),
)
def test_invalid_objects_and_options_are_refused(parameter, value, options, reason):
    with pytest.raises(ValueError, match=re.escape(reason)) as told:
        create_mcp_server("shop", **{parameter: value}, options=options)
    assert "a-secret" not in str(told.value)


def test_a_server_needs_a_name():
    with pytest.raises(ValueError, match=r"`name` must be a string, got list; pass tools as tools=\[\.\.\.\]"):
        create_mcp_server([greet])


def test_options_of_haystack_are_refused_for_tools_of_fastmcp():
    with pytest.raises(ValueError, match="`options` are for tools and toolsets of Haystack"):
        create_mcp_server("shop").add_tool(add, ServeOptions(title="Adder"))


async def test_options_for_unknown_tools_of_a_changing_toolset_cause_a_warning(caplog):
    class Catalogue(Toolset):
        """A toolset that may load other tools later."""

    server = create_mcp_server("shop", tools=[Catalogue([GREET])], options={"gret": ServeOptions(title="Greet")})
    async with Client(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["greet"]
    assert "`options` name 'gret', which is not served. Available: greet. Unless it comes later" in caplog.text


@rows(
    ("options", "told"),
    ({"name": " "}, "must match pattern"),
    ({"max_documents": 0}, "must be greater than or equal to 1"),
    ({"task": "maybe"}, "must be True, False or 'required'"),
    ({"timeout": 0}, "must be greater than 0"),
    ({"tags": "public"}, "must be"),
    ({"bound": [("key", "a-secret")]}, "must be"),
    ({"outputs": {"answer": ["llm.replies"]}}, "must be a valid string"),
    ({"output_schema": {"type": "objekt"}}, "is not a valid JSON schema: 'objekt'"),
    ({"output_schema": {"type": "array"}}, 'must be a JSON schema of `"type": "object"`'),
    ({"tag": ["public"]}, "Did you mean `tags`?"),
)
def test_an_invalid_option_is_refused_with_its_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as refused:
        check_options(options)
    [name] = options
    assert name in str(refused.value) and "\n" not in str(refused.value)
    assert told in str(refused.value)
    assert "a-secret" not in str(refused.value)


def test_options_are_converted_to_one_form() -> None:
    icons = ["https://example.com/a.png", {"src": "b.png"}, Icon(src="c.png")]
    given = {"tags": ["a", "a"], "icons": icons, "annotations": {"readOnlyHint": True}, "version": 2}
    options = check_options({**given, "inputs": {"query": ["a.query", "b.query"]}})
    assert set(options.tags) == {"a"}
    assert [icon.src for icon in options.icons] == ["https://example.com/a.png", "b.png", "c.png"]
    assert options.annotations == ToolAnnotations(read_only_hint=True)
    assert options.version == "2"
    assert options.inputs == {"query": ["a.query", "b.query"]}
    assert "a-secret" not in repr(ServeOptions(bound={"key": "a-secret"}))
    assert check_options(options) is options
    assert check_options(None) == ServeOptions()
    with pytest.raises(ValueError, match="`options` must be ServeOptions or a dictionary of them, got list"):
        check_options([])


def test_options_are_overridden_by_those_that_the_others_set() -> None:
    general = ServeOptions(title="Search", timeout=5, tags=["public"])
    combined = general.overridden_by(ServeOptions(title="Find", max_documents=3))
    assert (combined.title, combined.timeout, combined.max_documents) == ("Find", 5, 3)
    assert combined.tags == ["public"]
    assert general.overridden_by(None) is general


async def test_a_task_that_a_tool_cancels_before_it_begins_leaves_no_warning(recwarn: pytest.WarningsRecorder) -> None:
    async def cancel_at_once() -> str:
        task = asyncio.create_task(asyncio.sleep(1))
        task.cancel()
        await asyncio.wait([task])
        return "cancelled"

    async with Client(create_mcp_server("shop", tools=[cancel_at_once])) as client:
        assert (await client.call_tool("cancel_at_once", {})).data == "cancelled"
    gc.collect()
    assert not [each for each in recwarn if "never awaited" in str(each.message)]
