# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The options that tools and toolsets share are declared once; the public signatures must agree.
"""

import dataclasses
import inspect

import pytest

from haystack_integrations.tools.mcp import MCPTool, MCPToolset
from haystack_integrations.tools.mcp.tool_base import ToolOptions
from tests.support.rows import rows

OF_ONE = {
    MCPTool: ["exposed_name", "bound_arguments"],
    MCPToolset: ["exclude_tools", "tool_filter", "required_hints", "tool_overrides", "bound_arguments"],
}


@rows("kind", [MCPTool, MCPToolset])
def test_the_signatures_of_tools_and_toolsets_have_all_options_with_their_defaults(kind):
    keyword_only = {
        parameter.name: parameter.default
        for parameter in inspect.signature(kind.__init__).parameters.values()
        if parameter.kind is parameter.KEYWORD_ONLY
    }
    options = {field.name: field.default for field in dataclasses.fields(ToolOptions)}
    if kind is MCPTool:  # the other toolsets of an Agent do without the server; a single tool is nothing without it
        del options["required"]
    own = dict.fromkeys(OF_ONE[kind])
    if kind is MCPToolset:
        own |= {"cache_tools": True, "update_between_steps": False}
    assert keyword_only == options | own


def test_options_that_are_not_changed_are_not_stored():
    assert ToolOptions().changed() == {}
    assert ToolOptions(share=False, result_format="json").changed() == {"share": False, "result_format": "json"}


@rows(
    ("options", "named"),
    [
        ({"result_format": "yaml"}, "result_format"),
        ({"tool_name_prefix": "a b"}, "tool_name_prefix"),
        ({"max_result_size": 199}, "max_result_size"),
        ({"include_output_schema": "yes"}, "include_output_schema"),
    ],
)
def test_invalid_options_are_refused_by_name(options, named):
    with pytest.raises(ValueError, match=named):
        ToolOptions(**options)
