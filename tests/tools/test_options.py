# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Groups of options, and what is said of a parameter that a class does not have.
"""

import pytest

from haystack_integrations.tools.mcp import (
    CallOptions,
    InProcessServerInfo,
    MCPConnection,
    MCPHandlers,
    MCPRegistry,
    MCPResourceToolset,
    MCPTool,
    MCPToolset,
    OAuthConfig,
    StdioServerInfo,
    StreamableHttpServerInfo,
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
        (ToolOptions, {"max_tool_failures": 0}, "`max_tool_failures` must be greater than or equal to 1, got 0"),
        (ToolOptions, {"max_tool_failures": True}, "`max_tool_failures` must be"),
        (ToolOptions, {"on_tool_error": "ignore"}, "`on_tool_error` must be 'agent', 'model' or 'raise', got 'ignore'"),
        (CallOptions, {"read_timeout": True}, "CallOptions: `read_timeout` must be a valid number, got True"),
        (CallOptions, {"ping_interval": 0}, "`ping_interval` must be greater than 0, got 0"),
        (ToolSelection, {"exclude_tools": [object()]}, "`exclude_tools` .*got object"),
    ],
)
def test_an_invalid_option_is_refused_by_name(group, options, named):
    with pytest.raises(ValueError, match=named):
        group(**options)


def test_what_should_have_been_a_list_is_not_quoted():
    with pytest.raises(ValueError, match=r"`args` must be a valid list, got str$"):
        LocalStdioMCPProvider("x", "uvx", args="--token sk-secret-4711")


@rows("group", [CallOptions, ToolOptions, ToolOverride, ToolSelection])
def test_an_unknown_option_is_told_with_the_one_that_may_be_meant(group):
    with pytest.raises(TypeError, match=f"{group.__name__} has no parameter 'zebra'. It has: "):
        group(zebra="sk-secret-4711")


@rows(
    ("take", "values", "said"),
    [
        (ToolOptions, ["sk-secret-4711"], "ToolOptions: pass its parameters by their names$"),
        (StdioServerInfo, ["uvx", [], {}, 1, 1.0, 2.0, "/tmp"], "by their names, after the first 6$"),
    ],
)
def test_what_is_passed_without_a_name_that_it_must_have_is_refused(take, values, said):
    with pytest.raises(ValueError, match=said):
        take(*values)


@pytest.mark.parametrize(
    ("owner", "parameter", "advice"),
    [
        (MCPToolset, "headers", "`headers` is a parameter of SSEServerInfo, StreamableHttpServerInfo."),
        (MCPToolset, "auth", "`auth` is a parameter of SSEServerInfo, StreamableHttpServerInfo."),
        (MCPToolset, "api_key", "`token` is a parameter of "),
        (MCPToolset, "tool_prefix", "Use `tool_name_prefix`."),
        (MCPToolset, "tool_error_behavior", "`on_tool_error` is a parameter of ToolOptions, ToolOverride."),
        (MCPToolset, "sampling_handler", "`sampling` is a parameter of MCPHandlers."),
        (MCPToolset, "tool_namse", "Did you mean `tool_names`?"),
        (MCPToolset, "zebra", "It has: server_info, tool_names, "),
        (MCPTool, "tool_names", "`tool_names` is a parameter of MCPToolset."),
        (MCPConnection, "command", "`command` is a parameter of StdioServerInfo"),
        (StdioServerInfo, "working_directory", "Use `cwd`."),
        (OAuthConfig, "audience", "Use `resource`."),
        (StreamableHttpServerInfo, "authorization_token", "Use `token`."),
        (InProcessServerInfo, "env", "`env` is a parameter of StdioServerInfo"),
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


@pytest.mark.parametrize(
    "take",
    [
        lambda text: StdioServerInfo("x", text),
        lambda text: StdioServerInfo("x", inherit_env=text),
        lambda text: LocalStdioMCPProvider("a", "x", text),
        lambda text: MCPToolset(StdioServerInfo("x"), text),
        lambda text: MCPToolset(StdioServerInfo("x"), tool_selection=ToolSelection(exclude_tools=text)),
        lambda text: MCPToolset(StdioServerInfo("x"), interceptors=text),
        lambda text: MCPResourceToolset(StdioServerInfo("x"), uris=text),
        lambda text: MCPConnection(StdioServerInfo("x")).call_tool("add", secrets=text),
        lambda text: MCPConnection(StdioServerInfo("x")).begin_call("add", secrets=text),
        lambda text: MCPHandlers(roots=text),
        lambda text: OAuthConfig(scopes=text),
        lambda text: ToolConfig("x", text),
        lambda text: ToolConfig("x", ["a"], text),
        lambda text: serving.BearerToken("token", scopes=text),
        lambda text: serving.ServeOptions(tags=text),
        lambda text: serving.ServeOptions(icons=text),
        lambda text: serving.create_mcp_server("x", request_state_keys=text),
        lambda text: serving.run_server(serving.create_mcp_server("x"), transport="http", allowed_origins=text),
    ],
)
def test_a_text_is_no_list_of_its_letters(take):
    with pytest.raises(ValueError, match=r"must be a (valid )?list|must be a dict|not allowed as a Sequence"):
        take("ab")


def test_an_alias_without_a_limit_of_time_has_no_limit_of_silence_either():
    providers = {
        "plain": StdioServerInfo("x"),
        "own": MCPToolset(StdioServerInfo("x"), call_options=CallOptions(read_timeout=7)),
    }
    configs = [ToolConfig("free", ["plain", "own"]), ToolConfig("limited", ["plain"], timeout_sec=5)]
    registry = MCPRegistry(providers, configs)
    free, limited = registry.toolset("free").toolsets, registry.toolset("limited").toolsets
    assert [free["plain"].call_options.read_timeout, free["plain"].invocation_timeout] == [None, None]
    assert free["own"].call_options.read_timeout == 7
    assert limited["plain"].call_options.read_timeout == 300
