# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from typing import Any

import pytest

from haystack_integrations.components.builders.mcp import MCPPromptBuilder
from haystack_integrations.components.fetchers.mcp import MCPResourceFetcher
from haystack_integrations.components.tools.mcp import MCPToolCaller, MCPToolRunner
from haystack_integrations.tools.mcp import MCPTool, StdioServerInfo
from tests.support.rows import rows

INFO = StdioServerInfo(command="x")
FINE: dict[Any, dict[str, Any]] = {
    MCPPromptBuilder: {"server_info": INFO, "prompt_name": "greet"},
    MCPResourceFetcher: {"server_info": INFO},
    MCPToolCaller: {"tools": []},
    MCPToolRunner: {"tool": MCPTool("total", INFO)},
}


@rows(
    ("component", "parameters", "problem"),
    [
        (MCPPromptBuilder, {"prompt_name": ""}, "`prompt_name` must have at least 1 character"),
        (MCPPromptBuilder, {"system_role": "all"}, "`system_role` must be 'first', got 'all'"),
        (MCPResourceFetcher, {"max_concurrency": True}, "`max_concurrency` must be a valid integer"),
        (MCPResourceFetcher, {"invocation_timeout": -1}, "invocation_timeout"),
        (MCPToolCaller, {"tools": INFO}, "`tools` must be a Toolset, or a list"),
        (MCPToolCaller, {"max_concurrency": 0}, "`max_concurrency` must be greater than or equal to 1"),
        (MCPToolCaller, {"state_schema": {"sum": {}}}, "missing a 'type' entry"),
        (MCPToolRunner, {"tool": "total"}, "`tool` must be an instance of MCPTool"),
    ],
)
def test_a_wrong_parameter_of_a_component_is_refused_at_construction(component, parameters, problem):
    with pytest.raises(ValueError, match=problem):
        component(**{**FINE[component], **parameters})
