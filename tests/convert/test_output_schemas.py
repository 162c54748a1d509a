# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
import json
from typing import Any

import pytest

from haystack_integrations.tools.mcp import MCPInvocationError, MCPTool
from haystack_integrations.tools.mcp.convert.output_schemas import OutputSchemas, is_bounded, schema_cost
from tests.support.foreign_server import ForeignServer, definition, text_result


def doubling(levels: int) -> dict[str, Any]:
    """A schema of a few lines that stands for two to the power of `levels` of them."""
    definitions: dict[str, Any] = {
        f"d{level}": {"allOf": [{"$ref": f"#/$defs/d{level + 1}"}] * 2} for level in range(levels)
    }
    return {"$ref": "#/$defs/d0", "$defs": {**definitions, f"d{levels}": {"type": "object"}}}


class TestCost:
    @pytest.mark.parametrize(
        "schema",
        [
            {"type": "object", "properties": {"x": {"type": "string"}}, "required": ["x"]},
            {"properties": {"pattern": {"type": "string"}, "uniqueItems": {"type": "array"}, "$ref": {}}},
            {"properties": {"a": {"$ref": "#/$defs/a~1b/allOf/0"}}, "$defs": {"a/b": {"allOf": [{"type": "null"}]}}},
            doubling(3),
            True,
        ],
    )
    def test_an_ordinary_schema_has_one(self, schema):
        assert 0 < schema_cost(schema) < 200

    @pytest.mark.parametrize(
        "schema",
        [
            {"properties": {"x": {"type": "string", "pattern": "^(a+)+$"}}},
            {"patternProperties": {"^(a+)+$": {}}},
            {"items": {"uniqueItems": True}},
            {"anyOf": [{"properties": {"c": {"$ref": "#"}}}, {"properties": {"c": {"$ref": "#"}}, "required": ["d"]}]},
            {"$ref": "#/$defs/a", "$defs": {"a": {"if": {"$ref": "#/$defs/b"}}, "b": {"not": {"$ref": "#/$defs/a"}}}},
            {"$ref": "#/$defs/missing"},
            {"$ref": "#/title/0/x", "title": "no schema"},
            {"$ref": "#/minProperties/x", "minProperties": 1},
            {"$ref": "https://example.com/schema"},
            {"$ref": "#anchor", "$defs": {"a": {"$anchor": "anchor"}}},
            {"items": {"$dynamicRef": "#node"}},
            doubling(30),
        ],
    )
    def test_one_that_may_take_for_ever_has_none(self, schema):
        assert schema_cost(schema) is None

    def test_the_size_of_the_value_counts_too(self):
        assert is_bounded(10, {"rows": [{"a": 1, "b": [2]}] * 1000})
        assert not is_bounded(10, [0] * 1_000_000)
        assert not is_bounded(100, {"rows": [{"a": 1, "b": [2]}] * 1000})


class TestListings:
    def test_that_change_a_schema_have_it_priced_again(self):
        schemas = OutputSchemas()
        assert not schemas.allow_check("tool", {})
        schemas.note("tool", {"pattern": "^(a+)+$"})
        assert not schemas.allow_check("tool", {})
        schemas.note("tool", {"type": "object"})
        assert schemas.allow_check("tool", {})
        schemas.note("tool", None)
        assert not schemas.allow_check("tool", {})


class TestChecks:
    @pytest.mark.parametrize(
        ("schema", "content"),
        [
            # A check would take minutes, or for ever.
            ({"type": "object", "properties": {"x": {"pattern": "^(a+)+$"}}}, {"x": "a" * 60 + "!"}),
            ({"type": "object", **doubling(40)}, {"x": 1}),
        ],
        ids=["pattern", "references"],
    )
    def test_one_without_bound_is_left_out(self, schema, content):
        server = ForeignServer(definition("search", output_schema=schema))
        server.answer = text_result("found", structured_content=content)
        with MCPTool("search", server.info) as tool:
            assert json.loads(tool.invoke())["structuredContent"] == content

    def test_all_others_are_made(self):
        server = ForeignServer(
            definition("search", output_schema={"type": "object", "properties": {"x": {"type": "integer"}}})
        )
        server.answer = text_result("found", structured_content={"x": "no number"})
        with MCPTool("search", server.info) as tool, pytest.raises(MCPInvocationError, match="output schema"):
            tool.invoke()
