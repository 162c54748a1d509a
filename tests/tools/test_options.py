# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The options that tools and toolsets share are declared once; the public signatures must agree.
"""

import dataclasses
import inspect

import pytest

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    LocalStdioMCPProvider,
    MCPConnection,
    MCPHandlers,
    MCPRegistry,
    MCPResourceToolset,
    MCPSampling,
    MCPTool,
    MCPToolset,
    OAuthConfig,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    ToolConfig,
    serving,
)
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
        del options["required"], options["include_instructions"]
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


@pytest.mark.parametrize(
    ("owner", "parameter", "advice"),
    [
        (MCPToolset, "headers", "MCPToolset(StreamableHttpServerInfo(url=…, headers=…), …)"),
        (MCPToolset, "auth", "a parameter of SSEServerInfo and StreamableHttpServerInfo"),
        (MCPToolset, "api_key", "MCPToolset(StreamableHttpServerInfo(url=…, token=…), …)"),
        (MCPToolset, "url", "MCPToolset(StreamableHttpServerInfo(url=…), …)"),
        (MCPToolset, "args", "MCPToolset(StdioServerInfo(command=…, args=…), …)"),
        (MCPToolset, "tool_prefix", "Use `tool_name_prefix`."),
        (MCPToolset, "transport", "MCPToolset(SSEServerInfo(url=…))"),
        (MCPToolset, "tool_error_behavior", "Use `on_tool_error`."),
        (MCPToolset, "max_retries", "`max_tool_failures` limits"),
        (MCPToolset, "sampling_model", "handlers=MCPHandlers(sampling=…)"),
        (MCPToolset, "tool_namse", "Did you mean `tool_names`?"),
        (MCPToolset, "zebra", "It has: server_info, tool_names, "),
        (MCPTool, "token", "MCPTool(name, StreamableHttpServerInfo(url=…, token=…), …)"),
        (MCPTool, "tool_names", "`tool_names` is a parameter of MCPToolset."),
        (MCPConnection, "command", "MCPConnection(StdioServerInfo(command=…), …)"),
        (StdioServerInfo, "url", "StreamableHttpServerInfo(url=…)."),
        (StdioServerInfo, "timeout", "MCPToolset(StdioServerInfo(…), invocation_timeout=…)"),
        (StdioServerInfo, "working_directory", "Use `cwd`."),
        (SSEServerInfo, "allowed_tools", "MCPToolset(SSEServerInfo(…), tool_names=…)"),
        (StreamableHttpServerInfo, "bearer_token", "Use `token`."),
        (StreamableHttpServerInfo, "elicitation_callback", "handlers=MCPHandlers(elicitation=…)"),
        (InProcessServerInfo, "env", "StdioServerInfo(command=…, env=…)"),
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
    with pytest.raises(ValueError, match=r"these are several servers, 'a', 'b'.*load_mcp_toolsets"):
        MCPToolset({"a": {"command": "x"}, "b": {"url": "http://localhost/mcp"}})


@pytest.mark.parametrize(
    "take",
    [
        lambda text: StdioServerInfo("x", text),
        lambda text: StdioServerInfo("x", inherit_env=text),
        lambda text: LocalStdioMCPProvider("a", "x", text),
        lambda text: MCPToolset(StdioServerInfo("x"), text),
        lambda text: MCPToolset(StdioServerInfo("x"), exclude_tools=text),
        lambda text: MCPToolset(StdioServerInfo("x"), interceptors=text),
        lambda text: MCPResourceToolset(StdioServerInfo("x"), uris=text),
        lambda text: MCPConnection(StdioServerInfo("x")).call_tool("add", secrets=text),
        lambda text: MCPConnection(StdioServerInfo("x")).begin_call("add", secrets=text),
        lambda text: MCPHandlers(roots=text),
        lambda text: MCPSampling(function=print, models=text),
        lambda text: OAuthConfig(scopes=text),
        lambda text: ToolConfig("x", text),
        lambda text: ToolConfig("x", ["a"], text),
        lambda text: serving.BearerToken("token", scopes=text),
        lambda text: serving.ServeOptions(tags=text),
        lambda text: serving.ServeOptions(icons=text),
        lambda text: serving.create_mcp_server("x", request_state_keys=text),
        lambda text: serving.http_app(serving.create_mcp_server("x"), allowed_hosts=text),
        lambda text: serving.run_server(serving.create_mcp_server("x"), transport="http", allowed_origins=text),
    ],
)
def test_a_text_is_no_list_of_its_letters(take):
    with pytest.raises(ValueError, match=r"must be a list|must be a dict"):
        take("ab")


def test_an_alias_without_a_limit_of_time_has_no_limit_of_silence_either():
    providers = {"plain": StdioServerInfo("x"), "own": MCPToolset(StdioServerInfo("x"), read_timeout=7)}
    configs = [ToolConfig("free", ["plain", "own"]), ToolConfig("limited", ["plain"], timeout_sec=5)]
    registry = MCPRegistry(providers, configs)
    free, limited = registry.toolset("free").toolsets, registry.toolset("limited").toolsets
    assert [free["plain"].options.read_timeout, free["plain"].invocation_timeout] == [None, None]
    assert free["own"].options.read_timeout == 7
    assert limited["plain"].options.read_timeout == 300
