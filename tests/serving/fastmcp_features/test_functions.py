# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What concerns functions only: signatures, docstrings, decorators and methods. They are served beside Haystack's parts.
"""

from typing import Annotated, Literal

import pytest
from fastmcp import Client, Context
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ToolError
from fastmcp.tools import tool
from pydantic import Field

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from tests.support.rows import rows


def _server(function, **options):
    return create_mcp_server("shop", tools=[function], **options)


async def definition(function, **options):
    async with Client(_server(function, **options)) as client:
        [listed] = await client.list_tools()
        return listed


async def test_descriptions_come_from_the_docstring_and_from_annotations():
    def process_image(
        image_url: Annotated[str, "Where the image is"],
        resize: bool = False,
        width: Annotated[int, Field(description="Target width in pixels", ge=1, le=2000)] = 800,
        quality: Literal["low", "high"] = "low",
    ) -> dict:
        """
        Process an image.

        :param image_url: Not this one.
        :param resize: Whether to resize it.
        :param quality: How good it has to be.
        """

    listed = await definition(process_image)
    assert listed.description == "Process an image."
    properties = listed.input_schema["properties"]
    assert {name: each.get("description") for name, each in properties.items()} == {
        "image_url": "Where the image is",
        "resize": "Whether to resize it.",
        "width": "Target width in pixels",
        "quality": "How good it has to be.",
    }
    assert (properties["width"]["minimum"], properties["width"]["maximum"]) == (1, 2000)
    assert properties["quality"]["enum"] == ["low", "high"]
    assert listed.input_schema["required"] == ["image_url"]


@rows("function", [lambda *args: args, lambda **kwargs: kwargs])
def test_variable_arguments_are_refused(function):
    function.__name__ = "variable"
    with pytest.raises(ValueError, match="'variable' cannot be served as a tool: Functions with"):
        _server(function)


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


async def test_a_decorated_method_is_added_to_a_server():
    class Calculator:
        @tool()
        def double(self, x: int) -> int:
            return 2 * x

    server = create_mcp_server("shop")
    server.add_tool(Calculator().double)
    async with Client(server) as client:
        assert (await client.call_tool("double", {"x": 2})).data == 4


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
            # The protocol has no such id any more; FastMCP has `get_access_token()`.
            "client": ctx.client_id,
            "sample": hasattr(ctx, "sample"),
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
    assert result.data == {
        "text": "x",
        "user": "user_123",
        "resource": "jam",
        "request": True,
        "client": None,
        "sample": False,
    }
    assert logged == ["looking"]
    assert reported == [(1, 1)]


def test_a_second_function_of_a_name_is_an_error_if_that_is_the_policy():
    server = create_mcp_server("StrictServer", on_duplicate="error")

    @server.tool
    def my_tool():
        return "Version 1"

    with pytest.raises(ValueError, match="already exists"):

        @server.tool(name="my_tool")
        def another():
            return "Version 2"
