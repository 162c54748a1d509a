# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import enum
import functools
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from typing import Annotated, Any

import pytest
from fastmcp import Client, Context, FastMCP
from fastmcp.dependencies import CallArgument, Depends
from fastmcp.exceptions import ToolError
from fastmcp.tools import tool as fastmcp_tool
from fastmcp.tools.function_tool import FunctionTool
from haystack import Document, Pipeline, SuperComponent, component
from haystack.components.agents import Agent
from haystack.components.builders import PromptBuilder
from haystack.tools import ComponentTool, PipelineTool, Tool, Toolset, create_tool_from_function
from pydantic import BaseModel, Field

from haystack_integrations.tools.mcp.haystack_compat import HAS_ASYNC_FUNCTION
from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, say

TEXT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}


class Color(enum.Enum):
    RED = "red"
    BLUE = "blue"


def paint(color: Color) -> dict[str, Any]:
    """Paint."""
    return {"color": color}


class Priced(BaseModel):
    price: int


def pick(text: Color) -> str:
    return text.name if text is Color.RED else str(Priced(price="a-secret"))


@component
class Splitter:
    @component.output_types(documents=list[Document])
    def run(self, text: str, separator: str = " ") -> dict[str, list[Document]]:
        """
        Split a text.

        :param text: The text.
        :param separator: Where it is split.
        """
        return {"documents": [Document(content=word, embedding=[0.1]) for word in text.split(separator)]}


async def called(server: FastMCP, name: str, **arguments: Any) -> Any:
    async with Client(server) as client:
        return await client.call_tool(name, arguments)


async def test_clients_set_only_the_mandatory_inputs_of_a_pipeline_without_mapping():
    pipeline = Pipeline()
    pipeline.add_component("split", Splitter())
    given: dict[str, Any] = {"name": "split", "description": "Splits."}
    for tool in (ComponentTool(SuperComponent(pipeline), **given), PipelineTool(pipeline, **given)):
        async with Client(create_mcp_server("shop", tools=[tool])) as client:
            [listed] = await client.list_tools()
            assert list(listed.input_schema["properties"]) == ["text"]
            with pytest.raises(ToolError, match="there is no argument 'separator'"):
                await client.call_tool("split", {"text": "a-b", "separator": "-"})


@rows(
    ("mapping", "arguments", "answer"),
    (None, {"name": "Ada"}, "Hello, Ada"),
    ({"who": ["prompt.name"], "text": ["prompt.template"]}, {"who": "Ada", "text": "Bye"}, "Bye"),
)
async def test_a_template_of_a_pipeline_is_neither_seen_nor_set_unless_it_is_mapped(mapping, arguments, answer):
    pipeline = Pipeline()
    pipeline.add_component("prompt", PromptBuilder("Hello, {{ name }}", required_variables="*"))
    tool = ComponentTool(SuperComponent(pipeline, input_mapping=mapping), name="greet", description="Greets.")
    async with Client(create_mcp_server("shop", tools=[tool])) as client:
        [listed] = await client.list_tools()
        assert list(listed.input_schema["properties"]) == list(arguments)
        assert (await client.call_tool("greet", arguments)).structured_content == {"prompt": answer}
        with pytest.raises(ToolError, match="there is no argument 'template'"):
            await client.call_tool("greet", {**arguments, "template": "Bye, {{ name }}"})


def test_a_pipeline_without_mandatory_inputs_is_refused_unless_inputs_are_chosen():
    pipeline = Pipeline()
    pipeline.add_component("prompt", PromptBuilder("Hello, {{ name }}", required_variables=[]))
    tool = PipelineTool(pipeline, name="greet", description="Greets.")
    with pytest.raises(ValueError, match=r"has no `input_mapping` and no mandatory input.*ServeOptions\(inputs="):
        create_mcp_server("shop", tools=[tool])
    with pytest.raises(ValueError, match="`inputs` of tool 'greet' must be a list of its arguments"):
        create_mcp_server("shop", tools=[(tool, ServeOptions(inputs={"who": "prompt.name"}))])


@rows("masked", True, False)
async def test_errors_for_values_of_the_wrong_type_name_the_argument_and_do_not_quote_the_value(masked: bool):
    server = create_mcp_server("shop", tools=[Tool("pick", "Picks.", TEXT, pick)], mask_error_details=masked)
    assert (await called(server, "pick", text="red")).content[0].text == "RED"
    with pytest.raises(ToolError, match="'text': Input should be 'red' or 'blue'") as refused:
        await called(server, "pick", text="a-secret")
    with pytest.raises(ToolError) as failed:
        await called(server, "pick", text="blue")
    assert ("'price': Input should be a valid integer" in str(failed.value)) is not masked
    assert "a-secret" not in f"{refused.value} {failed.value}"


async def test_a_function_with_annotations_for_type_checkers_only_is_served():
    def shout(text):
        return text.upper()

    shout.__annotations__ = {"text": "OnlyForTypeCheckers", "return": "OnlyForTypeCheckers"}
    server = create_mcp_server("s", tools=[Tool("shout", "Shout.", TEXT, shout)])
    assert (await called(server, "shout", text="a")).content[0].text == "A"


@pytest.mark.skipif(not HAS_ASYNC_FUNCTION, reason="a feature of Haystack 3")
async def test_a_tool_with_only_an_async_function_runs_in_the_event_loop():
    async def where(text: str) -> str:
        return f"{text}: {asyncio.current_task() is not None}"

    server = create_mcp_server("shop", tools=[Tool("where", "Tells.", TEXT, async_function=where)])
    assert (await called(server, "where", text="in a task")).content[0].text == "in a task: True"


async def test_clients_see_the_schema_and_answer_of_an_agent_tool_but_not_its_steps():
    agent_tool = pytest.importorskip("haystack.tools.agent_tool", reason="newer than this Haystack")
    script = [call("paint", color="red"), say("Painted.")]
    agent = Agent(chat_generator=ScriptedChatGenerator(script), tools=[create_tool_from_function(paint)])
    tool = agent_tool.AgentTool(agent=agent, name="painter", description="Paints.")
    async with Client(create_mcp_server("shop", tools=[tool])) as client:
        [served] = await client.list_tools()
        result = await client.call_tool("painter", {"messages": [{"role": "user", "content": "Paint."}]})
    assert served.input_schema == tool.parameters
    assert ([each.text for each in result.content], result.structured_content) == (["Painted."], None)


async def test_a_tool_of_fastmcp_is_served_unchanged():
    tool = FunctionTool.from_function(paint, name="paint", title="Painter")
    async with Client(create_mcp_server("shop", tools=[tool])) as client:
        assert [each.title for each in await client.list_tools()] == ["Painter"]
    for options in ({"tools": [(tool, ServeOptions(title="x"))]}, {"tools": [tool], "options": {"paint": {}}}):
        with pytest.raises(ValueError, match="Tool 'paint' is a tool of FastMCP, to which ServeOptions do not apply"):
            create_mcp_server("shop", **options)


async def test_a_tool_of_a_toolset_that_cannot_be_served_is_omitted_with_a_warning(caplog):
    needy = Tool("needy", "Needs.", TEXT, lambda text, user: user, inputs_from_state={"user": "user"})
    server = create_mcp_server("shop", tools=[Toolset([needy, Tool("fine", "Fine.", TEXT, lambda text: text)])])
    async with Client(server) as client:
        assert [tool.name for tool in await client.list_tools()] == ["fine"]
    assert "Tool 'needy' is not served: Tool 'needy' takes 'user' from the State of an Agent" in caplog.text


class Flaky(Toolset):
    """A toolset that fails while a test wants it to."""

    fails = False

    def __iter__(self) -> Iterator[Tool]:
        if self.fails:
            msg = "the shop is shut"
            raise ConnectionError(msg)
        return super().__iter__()


async def test_a_toolset_that_fails_later_does_not_lose_its_tools(caplog):
    flaky = Flaky([Tool("first", "First.", TEXT, lambda text: text)])
    async with Client(create_mcp_server("shop", tools=[flaky, paint])) as client:
        flaky.fails = True
        assert [tool.name for tool in await client.list_tools()] == ["first", "paint"]
        assert (await client.call_tool("paint", {"color": "red"})).is_error is False
        assert "the shop is shut" in caplog.text
        flaky.fails = False
        flaky.add(Tool("second", "Second.", TEXT, lambda text: text))
        assert [tool.name for tool in await client.list_tools()] == ["first", "second", "paint"]
    flaky.fails = True
    with pytest.raises(ConnectionError, match="the shop is shut"):
        async with create_mcp_server("shop", tools=[flaky, paint]).haystack.lifespan():
            pass


async def test_a_toolset_that_cannot_be_closed_does_not_keep_others_open(caplog):
    closed = []

    class Closing(Toolset):
        def close(self) -> None:
            closed.append(self.tools[0].name)
            if len(closed) == 2:
                raise ConnectionError("stuck")

    toolsets = [Closing([Tool(name, "", TEXT, lambda text: text)]) for name in ("first", "second", "third")]
    async with Client(create_mcp_server("shop", tools=toolsets)) as client:
        assert len(await client.list_tools()) == 3
    assert closed == ["third", "second", "first"]
    assert "cannot be closed: ConnectionError('stuck')" in caplog.text


@rows(
    ("outputs", "shown"),
    ({"source": "words", "handler": " + ".join}, "a + b"),
    ({"words": {"source": "words", "handler": "+".join}, "n": {"source": "n"}}, '{"words": "a+b", "n": 1}'),
)
async def test_the_model_sees_the_same_result_as_in_an_agent(outputs, shown):
    tool = Tool("split", "Splits.", TEXT, lambda text: {"words": text.split(), "n": 1}, outputs_to_string=outputs)
    result = await called(create_mcp_server("shop", tools=[tool]), "split", text="a b")
    assert result.content[0].text == shown
    assert result.structured_content == {"words": ["a", "b"], "n": 1}


WORDS = Field(default_factory=list)


async def test_contexts_dependencies_and_defaults_of_pydantic_are_injected_and_hidden():
    async def look(text: str, ctx: Context, user: str = Depends(lambda: "bob")) -> str:
        """Look."""
        await ctx.info("looking")
        await ctx.report_progress(1, 1)
        resource = await ctx.read_resource("shelf://top")
        return f"{text} of {user} in {ctx.fastmcp.name} {resource.contents[0].content}"

    def find(text: str, ctx: Context, user: str = Depends(lambda: "bob"), limit: int = Field(10, ge=1)) -> str:
        """Find."""
        return f"{text} of {user} in {ctx.fastmcp.name} {limit}"

    def seek(text: str, user: Annotated[str, Depends(lambda: "bob")] = "", words: Any = WORDS) -> str:
        return f"{text} of {user} {words}"

    server = create_mcp_server(
        "shop", tools=[look, create_tool_from_function(find), Tool("seek", "Seeks.", TEXT, seek)]
    )
    server.resource("shelf://top")(lambda: "jam")
    told = []

    async def note(message, *_):
        told.append(getattr(message, "data", message))

    async with Client(server, mode="legacy", log_handler=note, progress_handler=note) as client:
        shown = {tool.name: list(tool.input_schema["properties"]) for tool in await client.list_tools()}
        assert shown == {"look": ["text"], "find": ["text", "limit"], "seek": ["text"]}
        for name, answer in (
            ("look", "tea of bob in shop jam"),
            ("find", "tea of bob in shop 10"),
            ("seek", "tea of bob []"),
        ):
            assert (await client.call_tool(name, {"text": "tea"})).content[0].text == answer
            with pytest.raises(ToolError, match="there is no argument 'user'"):
                await client.call_tool(name, {"text": "tea", "user": "eve"})
    assert [each["msg"] if isinstance(each, dict) else each for each in told] == ["looking", 1]


async def test_an_argument_may_be_for_a_dependency_only():
    def user(token: str = CallArgument()) -> str:
        return f"the one with {token}"

    def brew(kind: str, user: str = Depends(user)) -> str:
        return f"{kind} for {user}"

    server = create_mcp_server("shop", tools=[brew])
    if "token" not in (await server.get_tool("brew")).parameters["properties"]:
        pytest.skip("FastMCP 4.1 has no such arguments")
    assert (await called(server, "brew", kind="tea", token="x")).data == "tea for the one with x"


def seek(text: str, count: Annotated[int, "How many"] = 1) -> str:
    """
    Look for it.

    Everywhere.

    :param text: What it is.
    :param count: Not this.
    :returns: Where it is.
    """
    return text


async def test_docstrings_and_annotations_describe_arguments():
    @component
    class Looking:
        @component.output_types(found=str)
        def run(self, text: str, count: Annotated[int, Field(ge=1, description="How many")] = 1):
            return {"found": text}

    Looking.run.__doc__ = seek.__doc__
    described = create_tool_from_function(seek, name="described", description="My own.")
    of_haystack = create_tool_from_function(seek, "of_haystack")
    served = [of_haystack, described, ComponentTool(Looking(), "component"), seek]
    async with Client(create_mcp_server("shop", tools=served)) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
    for name, tool in tools.items():
        said = {name: each.get("description") for name, each in tool.input_schema["properties"].items()}
        # The docstring of a component has precedence, as in Haystack.
        count = "Not this." if name == "component" else "How many"
        assert said == {"text": "What it is.", "count": count}, name
    assert tools["of_haystack"].description == tools["seek"].description == "Look for it.\n\nEverywhere."
    assert tools["described"].description == "My own."


@rows(
    ("parameters", "shown"),
    ({}, {}),
    ({"type": ["object", "null"]}, {}),
    ({"properties": {"a": {"enum": list(Color)}}}, {"properties": {"a": {"enum": ["red", "blue"]}}}),
    ({"properties": {"a": {"default": len}}}, {"properties": {"a": {"default": str(len)}}}),
    ({"properties": {"a": {"$ref": "#/nowhere"}}}, {"properties": {"a": {"$ref": "#/nowhere"}}}),
)
async def test_odd_parameter_schemas_do_not_prevent_listing_and_calling(parameters: dict[str, Any], shown: Any):
    server = create_mcp_server("shop", tools=[Tool("show", "Shows.", parameters, lambda **given: given)])
    async with Client(server) as client:
        [tool] = await client.list_tools()
        assert tool.input_schema == {**shown, "type": "object"}
        assert (await client.call_tool("show", {"a": "red"})).structured_content == {"a": "red"}


def orders(text: str, user: str, amount: int = 1) -> str:
    """Orders."""
    return f"{user}: {amount} {text}"


async def test_a_tool_that_needs_the_state_of_an_agent_is_refused_unless_it_is_bound():
    pipeline = Pipeline()
    pipeline.add_component("prompt", PromptBuilder("{{ user }}: {{ text }}", required_variables="*"))
    mapping = {"text": ["prompt.text"], "user": ["prompt.user"]}
    given: Any = {"name": "order", "description": "Orders.", "inputs_from_state": {"who": "user"}}
    for tool in (
        Tool(parameters=TEXT, function=orders, **{**given, "inputs_from_state": {"who": "user", "amount": "amount"}}),
        PipelineTool(pipeline, input_mapping=mapping, **given),
    ):
        with pytest.raises(ValueError, match=r"takes 'user' from the State of an Agent.*bound=\{'user': \.\.\.\}"):
            create_mcp_server("shop", tools=[tool])
        server = create_mcp_server("shop", tools=[(tool, ServeOptions(bound={"user": "Ann"}))])
        result = await called(server, "order", text="tea")
        assert "Ann: " in result.content[0].text


def test_required_inputs_must_be_chosen_or_bound():
    parameters = {**TEXT, "properties": {**TEXT["properties"], "mark": {"type": "string"}}}
    tool = Tool("shout", "Shouts.", parameters, lambda text, mark="!": text + mark)
    with pytest.raises(ValueError, match=r"'shout' cannot be called without 'text'.*bound=\{'text': \.\.\.\}"):
        create_mcp_server("shop", tools=[(tool, ServeOptions(inputs=["mark"]))])
    create_mcp_server("shop", tools=[(tool, ServeOptions(inputs=["mark"], bound={"text": "tea"}))])


def misspelt(name: "Strng") -> None:  # type: ignore[name-defined] # noqa: F821
    """Misspells."""


class Holder(BaseModel, arbitrary_types_allowed=True):
    odd: threading.Event


def hold() -> Holder:
    raise NotImplementedError


def variable(**given: str) -> str:
    return str(given)


@rows(
    ("tools", "message"),
    ({"paint": paint}, "must be a list of tools, toolsets and functions, got dict"),
    ([3], "must contain tools"),
    ([lambda text: text], "'<lambda>' cannot be served as a tool: You must provide a name"),
    ([functools.partial(paint, tags=["s3cret"])], "A partial of paint cannot be served as a tool"),
    ([variable], "'variable' cannot be served as a tool: Functions with"),
    ([misspelt], "The function 'misspelt' cannot be served as a tool: name 'Strng' is not defined"),
    ([hold], "The function 'hold' cannot be served as a tool"),
    ([(paint, {"tag": ["a"]})], "has no parameter 'tag'. Did you mean `tags`"),
    ([(paint, {}, {})], "A tuple in `tools` must be a tool and its ServeOptions"),
    ([Tool("text", "No arguments.", {"type": "string"}, paint)], "tool 'text' must be of type 'object'"),
    ([Tool("half", "A half.", {"type": "object", "title": "\ud83d"}, paint)], "'half' cannot be written as JSON"),
)
def test_tools_that_cannot_be_served_are_refused_at_once(tools, message):
    with pytest.raises(ValueError, match=message):
        create_mcp_server("shop", tools=tools)


async def test_arguments_of_the_decorator_are_used_unless_the_options_set_them():
    @fastmcp_tool(
        name="find", description="Finds.", tags={"a"}, meta={"b": 1}, version="2", annotations={"readOnlyHint": True}
    )
    def search(query: str) -> str:
        return query

    options = {"find": ServeOptions(title="Finder")}
    async with Client(create_mcp_server("shop", tools=[search], options=options)) as client:
        [listed] = await client.list_tools()
    assert (listed.name, listed.title, listed.description) == ("find", "Finder", "Finds.")
    assert listed.meta["b"] == 1
    assert (listed.meta["fastmcp"]["tags"], listed.meta["fastmcp"]["version"]) == (["a"], "2")
    assert listed.annotations.read_only_hint is True


async def test_methods_and_callable_objects_can_be_tools():
    class Calculator:
        factor = 3

        @fastmcp_tool()
        def multiply(self, x: int) -> int:
            """Multiply x by the factor."""
            return x * self.factor

        async def plain(self, x: int) -> int:
            return x + self.factor

        @classmethod
        def of_class(cls, x: int) -> int:
            return x - cls.factor

        def __call__(self, x: int) -> int:
            return x

    calculator = Calculator()
    methods = [calculator.multiply, calculator.plain, Calculator.of_class, calculator]
    async with Client(create_mcp_server("shop", tools=methods)) as client:
        tools = await client.list_tools()
        assert all(list(each.input_schema["properties"]) == ["x"] for each in tools)
        results = {each.name: (await client.call_tool(each.name, {"x": 2})).data for each in tools}
    assert results == {"multiply": 6, "plain": 5, "of_class": -1, "Calculator": 2}


def rows_of_database(count: int) -> list[int]:
    """Read rows."""
    connection = sqlite3.connect(":memory:")  # which only its own thread may use

    def read() -> Any:
        with closing(connection):
            for number in range(count):
                yield connection.execute("SELECT ?", (number,)).fetchone()[0]

    return read()


@pytest.mark.parametrize("run_in_thread", [True, False])
async def test_an_iterator_that_a_function_returns_is_read_in_its_thread(run_in_thread: bool):
    decorated = fastmcp_tool(run_in_thread=run_in_thread)(rows_of_database)
    async with Client(create_mcp_server("database", tools=[decorated])) as client:
        results = await asyncio.gather(*(client.call_tool("rows_of_database", {"count": 3}) for _ in range(20)))

    assert [each.structured_content for each in results] == [{"result": [0, 1, 2]}] * 20
