# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Results for a program, and toolsets shown to people.
"""

import dataclasses
import json

import pytest
from haystack.dataclasses import ImageContent, TextContent
from mcp import types

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPInvocationError,
    MCPTool,
    MCPToolset,
    StreamableHttpServerInfo,
)
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.rows import rows

COUNTER = InProcessServerInfo("tests.servers.inprocess:server")


@rows("protocol", ["legacy", "auto", None])
async def test_a_call_gives_a_typed_result(shared_http_server, protocol):
    info = COUNTER
    if protocol is not None:
        info = StreamableHttpServerInfo(shared_http_server("streamable-http", "--protocol", protocol).url)
    tool = MCPTool("structured", info, connection_timeout=60)
    async with tool:
        result = await tool.call_async(city="Paris")
        assert isinstance(result.raw, types.CallToolResult)
        assert result.structured["city"] == "Paris"
        assert json.loads(result.text) == result.structured
        assert [type(part) for part in result.content] == [TextContent]
        with pytest.raises(dataclasses.FrozenInstanceError):
            result.text = "other"


def test_a_typed_result_has_all_content_and_what_is_for_the_program_only():
    server = ForeignServer(definition("look"))
    image = types.ImageContent(type="image", data="aGVsbG8=", mime_type="image/png")
    for_user = types.TextContent(type="text", text="for you", annotations=types.Annotations(audience=["user"]))
    server.answer = types.CallToolResult(content=[for_user, image], _meta={"cost": 3})
    with MCPTool("look", server.info, outputs_to_state={"x": {"source": "result"}}) as tool:
        result = tool.call()
        assert (result.text, result.structured, result.meta["cost"]) == ("for you", None, 3)
        assert result.content[0] == TextContent("for you")
        assert isinstance(result.content[1], ImageContent)
        server.answer = types.CallToolResult(content=[], structured_content={"a": 1})
        result = tool.call()
        assert (result.text, result.structured, result.content) == ("", {"a": 1}, [])


def test_a_call_that_fails_raises_as_invoke_does():
    server = ForeignServer(definition("look"))
    server.answer = text_result("no access", is_error=True)
    with MCPTool("look", server.info) as tool, pytest.raises(MCPInvocationError, match="no access"):
        tool.call()


SHOWN = {"type": "object", "properties": {"a": {}, "limit": {}, "<i>": {}}, "required": ["a"]}


def test_a_toolset_is_shown_as_a_table_in_a_terminal():
    server = ForeignServer(
        definition("look", SHOWN, description="\n  Look \x1b[31mhere.\nSecond line."),
        definition("a", description="x" * 200),
    )
    toolset = MCPToolset(server.info)
    assert toolset.table().endswith("not warmed up: no tools")
    with toolset:
        lines = toolset.table().splitlines()
    assert [line.split()[0] for line in lines] == ["tool", "a", "look"]
    assert lines[2].split("  ", 1)[1].split("  ")[0].strip() == "a, limit?, <i>?"
    assert lines[2].endswith("Look [31mhere.")
    assert lines[1].endswith("xx…") and len(lines[1]) < 120


def test_a_toolset_is_shown_as_an_escaped_table_in_a_notebook():
    server = ForeignServer(definition("look", SHOWN, description="<script>alert('x')</script>\nSecond."))
    with MCPToolset(server.info) as toolset:
        html = toolset._repr_html_()
    assert "<td>look</td><td>a, limit?, &lt;i&gt;?</td><td>&lt;script&gt;" in html
    assert "<script>" not in html and "<i>" not in html and "Second." not in html
