# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Groups of options, and what is said of a parameter that a class does not have.
"""

import pytest

from haystack_integrations.tools.mcp import (
    CallOptions,
    FromState,
    MCPConnection,
    MCPHandlers,
    MCPRegistry,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
    ToolConfig,
    ToolOptions,
    ToolOverride,
    ToolSelection,
    serving,
)
from haystack_integrations.tools.mcp.registry import LocalStdioMCPProvider
from tests.support.rows import rows


@rows(
    ("group", "options", "named"),
    [
        (ToolOptions, {"result_format": "yaml"}, "ToolOptions: `result_format` must be 'text', 'content' or 'json'"),
        (ToolOptions, {"include_output_schema": "yes"}, "`include_output_schema` must be a valid boolean, got 'yes'"),
        (ToolOptions, {"max_result_size": 100}, "`max_result_size` must be .* 200, got 100"),
        (ToolOptions, {"max_tool_failures": True}, "`max_tool_failures` must be"),
        (CallOptions, {"ping_interval": 0}, "CallOptions: `ping_interval` must be greater than 0, got 0"),
        (ToolSelection, {"exclude_tools": [object()]}, "`exclude_tools` .*got object"),
        (FromState, {"key": ""}, "FromState: `key` must"),
        # What should have been a list is not quoted.
        (LocalStdioMCPProvider, {"name": "x", "command": "uvx", "args": "--token sk-4711"}, "`args` must .* got str$"),
    ],
)
def test_an_invalid_option_is_refused_by_name(group, options, named):
    with pytest.raises(ValueError, match=named):
        group(**options)


def test_what_is_passed_without_a_name_that_it_must_have_is_refused():
    with pytest.raises(ValueError, match=r"ToolOptions: pass its parameters by their names$"):
        ToolOptions("sk-secret-4711")
    with pytest.raises(ValueError, match=r"by their names, after the first 6$"):
        StdioServerInfo("uvx", [], {}, 1, 1.0, 2.0, "/tmp")


@rows(
    ("owner", "parameter", "advice"),
    [
        (MCPToolset, "headers", "`headers` is a parameter of SSEServerInfo, StreamableHttpServerInfo."),
        (MCPToolset, "api_key", "`token` is a parameter of "),
        (MCPToolset, "tool_prefix", "Use `tool_name_prefix`."),
        (MCPToolset, "tool_error_behavior", "`on_tool_error` is a parameter of ToolOptions, ToolOverride."),
        (MCPToolset, "tool_namse", "Did you mean `tool_names`?"),
        (MCPToolset, "zebra", "It has: server_info, tool_names, "),
        (MCPTool, "tool_names", "`tool_names` is a parameter of MCPToolset."),
        (StdioServerInfo, "working_directory", "Use `cwd`."),
        *((group, "zebra", "It has: ") for group in (CallOptions, ToolOptions, ToolOverride, ToolSelection)),
    ],
)
def test_a_parameter_of_another_class_or_library_is_told_where_it_belongs(owner, parameter, advice):
    with pytest.raises(TypeError) as raised:
        owner(**{parameter: "sk-secret-4711"})
    message = str(raised.value)
    assert message.startswith(f"{owner.__name__} has no parameter '{parameter}'. ")
    assert advice in message
    assert "4711" not in message


def test_a_dictionary_of_several_servers_is_told_where_it_belongs():
    with pytest.raises(ValueError, match=r"these are several servers.*load_mcp_toolsets"):
        MCPToolset({"a": {"command": "x"}, "b": {"url": "http://localhost/mcp"}})


def test_a_text_is_no_list_of_its_letters():
    info, server = StdioServerInfo("x"), serving.create_mcp_server("x")
    for take, parameters in [
        (StdioServerInfo, {"command": "x", "inherit_env": "ab"}),
        (MCPToolset, {"server_info": info, "interceptors": "ab"}),
        (MCPConnection(info).call_tool, {"tool_name": "add", "secrets": "ab"}),
        (MCPHandlers, {"roots": "ab"}),
        (ToolConfig, {"tool_alias": "x", "providers": "ab"}),
        (serving.ServeOptions, {"tags": "ab"}),
        (serving.run_server, {"server": server, "transport": "http", "allowed_origins": "ab"}),
    ]:
        with pytest.raises(ValueError, match=r"must be a (valid )?list|must be a dict|not allowed as a Sequence"):
            take(**parameters)


def test_an_alias_without_a_limit_of_time_has_no_limit_of_silence_either():
    own = MCPToolset(StdioServerInfo("x"), call_options=CallOptions(read_timeout=7))
    configs = [ToolConfig("free", ["plain", "own"]), ToolConfig("limited", ["plain"], timeout_sec=5)]
    registry = MCPRegistry({"plain": StdioServerInfo("x"), "own": own}, configs)
    free, limited = registry.toolset("free").toolsets, registry.toolset("limited").toolsets
    assert (free["plain"].call_options.read_timeout, free["plain"].invocation_timeout) == (None, None)
    assert (free["own"].call_options.read_timeout, limited["plain"].call_options.read_timeout) == (7, 300)
