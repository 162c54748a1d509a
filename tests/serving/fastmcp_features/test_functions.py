# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What concerns functions only: signatures, docstrings, decorators and methods. They are served beside Haystack's parts.
"""

import pytest
from fastmcp import Client, Context
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ToolError
from fastmcp.tools import tool

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server


async def test_what_a_decorator_says_holds_where_the_options_say_nothing():
    @tool(name="find", description="Finds.", tags={"a"}, meta={"b": 1}, version="2", annotations={"readOnlyHint": True})
    def search(query: str) -> str:
        return query

    options = {"find": ServeOptions(title="Finder")}
    async with Client(create_mcp_server("shop", tools=[search], options=options)) as client:
        [listed] = await client.list_tools()
    assert (listed.name, listed.title, listed.description) == ("find", "Finder", "Finds.")
    assert listed.meta["b"] == 1
    assert (listed.meta["fastmcp"]["tags"], listed.meta["fastmcp"]["version"]) == (["a"], "2")
    assert listed.annotations.read_only_hint is True


async def test_methods_are_tools():
    class Calculator:
        def __init__(self, multiplier: int):
            self.multiplier = multiplier

        @tool()
        def multiply(self, x: int) -> int:
            """Multiply x by the multiplier."""
            return x * self.multiplier

        def plain(self, x: int) -> int:
            return x + self.multiplier

        @classmethod
        def of_class(cls, x: int) -> str:
            return f"{cls.__name__} {x}"

        @staticmethod
        def static(x: int) -> int:
            return -x

        async def later(self, x: int) -> int:
            return x

        def __call__(self, x: int) -> int:
            return x

    calculator = Calculator(multiplier=3)
    methods = [calculator.multiply, calculator.plain, Calculator.of_class, Calculator.static, calculator.later]
    async with Client(create_mcp_server("shop", tools=[*methods, calculator])) as client:
        tools = await client.list_tools()
        assert all(list(each.input_schema["properties"]) == ["x"] for each in tools)
        results = {each.name: (await client.call_tool(each.name, {"x": 2})).data for each in tools}
    of_instance = {"multiply": 6, "plain": 5, "later": 2, "Calculator": 2}
    assert results == {**of_instance, "of_class": "Calculator 2", "static": -2}


async def test_context_and_dependencies_are_injected_and_hidden():
    async def look(text: str, ctx: Context, user_id: str = Depends(lambda: "user_123")) -> list[str]:
        await ctx.info("looking")
        await ctx.report_progress(1, 1)
        resource = await ctx.read_resource("shelf://top")
        return [text, user_id, resource.contents[0].content, str(bool(ctx.request_id))]

    server = create_mcp_server("shop", tools=[look])
    server.resource("shelf://top")(lambda: "jam")
    logged, reported = [], []

    async def note(message):
        logged.append(message.data["msg"])

    async def progress(done, total, message):
        reported.append((done, total))

    async with Client(server, mode="legacy", log_handler=note) as client:
        [listed] = await client.list_tools()
        assert list(listed.input_schema["properties"]) == ["text"]
        result = await client.call_tool("look", {"text": "x"}, progress_handler=progress)
        with pytest.raises(ToolError, match="user_id"):
            await client.call_tool("look", {"text": "x", "user_id": "someone else"})
    assert result.data == ["x", "user_123", "jam", "True"]
    assert (logged, reported) == (["looking"], [(1, 1)])
