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


def _server(function, **options):
    return create_mcp_server("shop", tools=[function], **options)


async def definition(function, **options):
    async with Client(_server(function, **options)) as client:
        [listed] = await client.list_tools()
        return listed


async def test_what_a_decorator_says_holds_where_the_options_say_nothing():
    @tool(name="find", description="Finds.", tags={"a"}, meta={"b": 1}, version="2", annotations={"readOnlyHint": True})
    def search(query: str) -> str:
        return query

    listed = await definition(search, options={"find": ServeOptions(title="Finder")})
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
        for listed in await client.list_tools():
            assert list(listed.input_schema["properties"]) == ["x"]
        results = {name: (await client.call_tool(name, {"x": 2})).data for name in ("multiply", "plain", "of_class")}
        assert results == {"multiply": 6, "plain": 5, "of_class": "Calculator 2"}
        assert (await client.call_tool("static", {"x": 2})).data == -2
        assert (await client.call_tool("later", {"x": 2})).data == 2
        assert (await client.call_tool("Calculator", {"x": 2})).data == 2


async def test_context_and_dependencies_are_injected_and_hidden():
    def get_user_id() -> str:
        return "user_123"

    async def look(text: str, ctx: Context, user_id: str = Depends(get_user_id)) -> dict:
        await ctx.info("looking")
        await ctx.report_progress(1, 1)
        contents = await ctx.read_resource("shelf://top")
        return {
            "text": text,
            "user": user_id,
            "resource": contents.contents[0].content,
            "request": bool(ctx.request_id),
        }

    server = _server(look)

    @server.resource("shelf://top")
    def top() -> str:
        return "jam"

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
    assert result.data == {"text": "x", "user": "user_123", "resource": "jam", "request": True}
    assert logged == ["looking"]
    assert reported == [(1, 1)]
