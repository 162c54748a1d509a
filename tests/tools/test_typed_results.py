# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Results for programs, and how toolsets are displayed to people.
"""

import dataclasses

import pytest
from haystack.dataclasses import ImageContent, TextContent
from mcp import types

from haystack_integrations.tools.mcp import (
    MCPRegistry,
    MCPResourceToolset,
    MCPSearchableToolset,
    MCPTool,
    MCPToolset,
    ToolConfig,
)
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.rows import rows


async def test_a_typed_result_has_all_content_and_the_metadata():
    server = ForeignServer(definition("look"))
    for_user = types.TextContent(type="text", text="for you", annotations=types.Annotations(audience=["user"]))
    server.answer = types.CallToolResult(content=[for_user, PIXEL], _meta={"cost": 3})
    with MCPTool("look", server.info, outputs_to_state={"x": {"source": "result"}}) as tool:
        result = tool.call()
        assert (result.text, result.structured, result.meta["cost"]) == ("for you", None, 3)
        assert [type(part) for part in result.content] == [TextContent, ImageContent]
        server.answer = text_result(structured_content={"a": 1})
        result = await tool.call_async()
    assert (result.text, result.structured, result.content) == ("", {"a": 1}, [])
    assert isinstance(result.raw, types.CallToolResult)
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.text = "other"


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
    assert lines[2].split("  ", 1)[1].split("  ")[0].strip() == "a, limit?, i?"
    assert lines[2].endswith("Look [31mhere.")
    assert lines[1].endswith("xx…") and len(lines[1]) < 120


PIXEL = types.ImageContent(type="image", data="iVBORw0KGgo=", mime_type="image/png")
SCRIPT = types.ImageContent(type="image", data="aGVsbG8=", mime_type='image/x"onerror="alert(1)')


@rows(
    ("content", "structured", "value", "shown", "html"),
    (["8"], {"result": 8}, 8, "MCPToolResult(text='8')", "<pre>8</pre>"),
    (['{"a": 1}'], {"a": 1}, {"a": 1}, "MCPToolResult(text='{\"a\": 1}')", "<pre>{&quot;a&quot;: 1}</pre>"),
    ([], {"a": 1}, {"a": 1}, "MCPToolResult(structured={'a': 1})", "<pre>{\n  &quot;a&quot;: 1\n}</pre>"),
    # An object with more than the one value that servers wrap.
    (
        [],
        {"result": 8, "unit": "kg"},
        {"result": 8, "unit": "kg"},
        "MCPToolResult(structured={'result': 8, 'unit': 'kg'})",
        "<pre>{\n  &quot;result&quot;: 8,\n  &quot;unit&quot;: &quot;kg&quot;\n}</pre>",
    ),
    ([], None, "", "MCPToolResult()", "<em>no content</em>"),
    (
        ["<b>", PIXEL],
        None,
        "<b>",
        "MCPToolResult(content=['<b>', <image/png, 9 bytes>])",
        '<pre>&lt;b&gt;</pre><img src="data:image/png;base64,iVBORw0KGgo=">',
    ),
)
def test_a_result_has_its_unwrapped_value_and_shows_its_content_once(content, structured, value, shown, html):
    server = ForeignServer(definition("look"))
    server.answer = text_result(*[each for each in content if each is not PIXEL], structured_content=structured)
    server.answer.content += [PIXEL] * content.count(PIXEL)
    with MCPTool("look", server.info) as tool:
        result = tool.call()
    assert result.value == value
    assert repr(result) == shown
    assert result._repr_html_() == html


def test_a_result_of_a_hostile_or_wordy_server_is_shown_safely():
    server = ForeignServer(definition("look"))
    server.answer = text_result("x" * 100_000)
    server.answer.content.append(SCRIPT)
    with MCPTool("look", server.info) as tool:
        result = tool.call()
    assert "<img" not in result._repr_html_()
    assert '"onerror' not in result._repr_html_()
    assert len(repr(result)) < 3000 and len(result._repr_html_()) < 30_000
    assert "more characters)" in repr(result)


def test_tools_toolsets_and_states_are_shown_as_escaped_tables_in_a_notebook():
    schema = {"type": "object", "properties": {"<i>": {"type": ["string", "null"], "description": "<b>"}}}
    server = ForeignServer(definition("look", schema, description="<script>"))
    registry = MCPRegistry({"<b>": server.info}, [ToolConfig("x", ["<b>"])])
    with MCPToolset(server.info) as toolset, registry.toolset("x") as alias:
        shown = {
            "alias": alias,
            "tool": toolset["look"],
            "toolset": toolset,
            "search": MCPSearchableToolset(toolset),
            "resources": MCPResourceToolset(server.info),
            "connection": toolset.connection,
            "status": toolset.connection.status(),
        }
        html = {name: each._repr_html_() for name, each in shown.items()}
    for each in html.values():
        assert each.startswith("<table><caption>") and each.endswith("</table>")
        assert not any(tag in each for tag in ("<script>", "<i>", "<b>"))
    assert "<td>i</td><td>string | null</td><td>no</td><td>&lt;b&gt;</td>" in html["tool"]
    for name in ("toolset", "search", "alias"):
        assert "<td>look</td>" in html[name]
    assert "<td>read_resource</td>" in html["resources"]
    for name in ("status", "connection"):
        assert ": ready</caption>" in html[name]
        assert "last error" not in html[name]
