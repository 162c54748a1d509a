# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Wrong parameters, and parameters that a class does not have, are refused by name at construction.
"""

from types import SimpleNamespace
from typing import Any

import pytest
from haystack.utils import Secret

from haystack_integrations.components.builders.mcp import MCPPromptBuilder
from haystack_integrations.components.fetchers.mcp import MCPResourceFetcher
from haystack_integrations.components.tools.mcp import MCPToolCaller, MCPToolRunner
from haystack_integrations.hooks import mcp as hooks
from haystack_integrations.tools.mcp import (
    CallOptions,
    FromState,
    MCPConnection,
    MCPHandlers,
    MCPRegistry,
    MCPResourceToolset,
    MCPSampling,
    MCPSearchableToolset,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
    ToolConfig,
    ToolOptions,
    ToolOverride,
    ToolSelection,
    serving,
)
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from haystack_integrations.tools.mcp.registry import LocalStdioMCPProvider, MCPProvider
from tests.handlers.test_sampling_tools import Deaf
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator

INFO, SECRET = StdioServerInfo(command="x"), Secret.from_token("s3ntinel-of-a-binding")


def answer(params: Any) -> str:
    return "answer"


async def is_never_awaited(_tool: Any) -> bool:
    return True


# Includes the hooks if this Haystack has them.
BUDGETS = [hooks.MCPCallBudgetHook] if HAS_HOOKS else []
CONFIRMING = [hooks.confirmation_strategies_for, *([hooks.MCPConfirmationHook] if HAS_HOOKS else [])]
UI = SimpleNamespace(get_user_confirmation=print)
AskingClass = type("AskingClass", (), {"get_user_confirmation": print})

# Valid parameters of each class, to which the invalid ones are added.
FINE: dict[Any, dict[str, Any]] = {
    MCPRegistry: {"providers": {"a": INFO}},
    MCPTool: {"name": "add", "server_info": INFO},
    MCPToolset: {"server_info": INFO},
    MCPResourceToolset: {"server_info": INFO},
    MCPSearchableToolset: {"catalog": []},
    MCPPromptBuilder: {"server_info": INFO, "prompt_name": "greet"},
    MCPResourceFetcher: {"server_info": INFO},
    MCPToolCaller: {"tools": []},
    MCPToolRunner: {"tool": MCPTool("total", INFO)},
    hooks.MCPAnnotationPolicy: {"tools": []},
    **{kind: {"confirmation_ui": UI} for kind in CONFIRMING},
    hooks.confirmation_strategies_for: {"confirmation_ui": UI, "tools": []},
}


@rows(
    ("kind", "parameters", "message"),
    (MCPTool, {"name": ""}, "name"),
    (MCPTool, {"server_info": "localhost"}, "`server_info` is of no known kind: 'localhost'.*StdioServerInfo"),
    (MCPTool, {"server_info": None}, "`server_info` is of no known kind: got NoneType"),
    (MCPTool, {"invocation_timeout": float("nan")}, "`invocation_timeout` must be a positive number.*nan"),
    (MCPTool, {"tool_options": 5}, "`tool_options` must be of type ToolOptions, or a dict of its fields, got int"),
    (MCPTool, {"exposed_name": "git hub"}, "`exposed_name` must match pattern .*, got 'git hub'"),
    (MCPTool, {"outputs_to_state": {"k": "source"}}, r"`outputs_to_state` \(k\) must be a valid dictionary"),
    (MCPTool, {"outputs_to_state": {"k": {"source": 1}}}, "outputs_to_state source for key 'k'"),
    (MCPTool, {"outputs_to_string": {"handler": "no"}}, "outputs_to_string handler must be callable"),
    (MCPTool, {"outputs_to_string": {"source": "a", "b": {}}}, "Invalid outputs_to_string config"),
    (MCPTool, {"inputs_from_state": {"k": 5}}, r"`inputs_from_state` \(k\) must be a valid string"),
    (MCPToolset, {"server_info": {"comand": "uvx"}}, "`server_info`: unknown key 'comand'"),
    (MCPToolset, {"server_info": {"a": {"command": "x"}, "b": {"url": "http://h/"}}}, "several servers.*load_mcp"),
    (MCPToolset, {"tool_names": "add"}, "`tool_names` must be a valid list"),
    (MCPToolset, {"tool_names": [""]}, r"`tool_names` \(0\) must have at least 1 character"),
    (MCPToolset, {"connection_timeout": 0}, "`connection_timeout` must be a positive number"),
    (MCPToolset, {"tool_name_prefix": "my.server"}, "`tool_name_prefix` must match pattern .*, got 'my.server'"),
    *((MCPToolset, {"tool_name_prefix": each}, "`tool_name_prefix` must") for each in ("", "x" * 33, "a\n", "ä")),
    (MCPToolset, {"tool_options": {"result_format": ["text"]}}, "`result_format` must be"),
    (MCPToolset, {"inputs_from_state": ["a"]}, "inputs_from_state"),
    (MCPToolset, {"outputs_to_string": {"add": "source"}}, r"`outputs_to_string` \(add\) must be a valid dict"),
    (MCPToolset, {"tool_overrides": ["add"]}, "`tool_overrides` must be a valid dictionary"),
    (MCPToolset, {"tool_overrides": {"add": {"nam": "x"}}}, "ToolOverride has no .* Did you mean `name`"),
    (MCPToolset, {"tool_overrides": {"add": {"name": "a b"}}}, "tool 'add': ToolOverride: `name` must match"),
    (MCPToolset, {"tool_overrides": {"a": {"name": "x"}, "b": {"name": "x"}}}, "gives two tools the name 'x'"),
    (MCPToolset, {"tool_overrides": {"add": {"bound_arguments": 5}}}, "'add': .*`bound_arguments` must be a valid"),
    (ToolOverride, {"bound_arguments": {"a": [SECRET]}}, r"\(a\) must be .* Secrets inside$"),
    (ToolOverride, {"bound_arguments": {"": 1}}, "`bound_arguments`"),
    (MCPToolset, {"tool_selection": {"tool_filter": 5}}, "`tool_filter` must be callable, got 5"),
    (ToolSelection, {"tool_filter": is_never_awaited}, "`tool_filter` must be .* not a coroutine function"),
    (ToolSelection, {"required_hints": {"readOnly": True}}, "`required_hints` .*'read_only_hint', 'destructive_h"),
    (ToolSelection, {"required_hints": {"read_only_hint": "yes"}}, "`required_hints`"),
    (MCPResourceToolset, {"max_size": 100}, "`max_size` must be greater than or equal to 200, got 100"),
    (MCPResourceToolset, {"max_listed": 0}, "`max_listed` must be greater than or equal to 1"),
    (MCPResourceToolset, {"required": None}, "`required` must be a valid boolean"),
    (MCPResourceToolset, {"result_format": "json"}, "`result_format` must be 'text' or 'content'"),
    (MCPSearchableToolset, {"catalog": ["tools"]}, r"`catalog` \(0\) must be an instance of Tool, got str"),
    (MCPSearchableToolset, {"top_k": 21}, "^MCPSearchableToolset: `top_k` must be less than .* 20, got 21"),
    (MCPSearchableToolset, {"search_tool_parameters_description": {"x": ""}}, "must be 'tool_keywords' or 'k'"),
    (MCPPromptBuilder, {"prompt_name": ""}, "`prompt_name` must have at least 1 character"),
    (MCPPromptBuilder, {"system_role": "all"}, "`system_role` must be 'first', got 'all'"),
    (MCPResourceFetcher, {"max_concurrency": True}, "`max_concurrency` must be a valid integer"),
    (MCPResourceFetcher, {"invocation_timeout": -1}, "invocation_timeout"),
    (MCPToolCaller, {"tools": INFO}, "`tools` must be a Toolset, or a list"),
    (MCPToolCaller, {"max_concurrency": 0}, "`max_concurrency` must be greater than or equal to 1"),
    (MCPToolCaller, {"state_schema": {"sum": {}}}, "missing a 'type' entry"),
    (MCPToolRunner, {"tool": "total"}, "`tool` must be an instance of MCPTool"),
    *((kind, {"max_turns": -1}, "`max_turns` must be greater than or equal to 0, got -1") for kind in BUDGETS),
    *((kind, {"max_refused_turns": 0}, "Hook: `max_refused_turns` must be .* 1, got 0") for kind in BUDGETS),
    (hooks.MCPAnnotationPolicy, {"trusted": "shop"}, "`trusted` "),
    (hooks.MCPAnnotationPolicy, {"overrides": {"*": "always"}}, "`ask='always'` is for all"),
    (hooks.MCPAnnotationPolicy, {"overrides": {"x": MCPTool}}, "must be 'always', 'never' or a ConfirmationPolicy"),
    *((kind, {"ask": "no"}, "must be .* 'always', got 'no'") for kind in (*CONFIRMING, hooks.MCPAnnotationPolicy)),
    *((kind, {"confirmation_ui": "console"}, "with the method `get_user_conf") for kind in CONFIRMING),
    *((kind, {"confirmation_ui": AskingClass}, "with the method `get_user_conf") for kind in CONFIRMING),
    (MCPHandlers, {"sampling": 5}, "must be a Haystack chat generator, a function or an MCPSampling"),
    (MCPHandlers, {"elicitation": "decline"}, "MCPHandlers: `elicitation` must be callable"),
    (MCPHandlers, {"roots": ["https://example.com"]}, "`roots` must be a list of paths and file:// URIs"),
    (MCPHandlers, {"log_level": "verbose"}, "`log_level` must be .*'debug'"),
    (MCPHandlers, {"client_info": {"name": "x"}}, "'name' and 'version'"),
    (MCPSampling, {}, "MCPSampling: .*either `chat_generator` or `function`, got neither"),
    (MCPSampling, {"chat_generator": ScriptedChatGenerator([]), "function": answer}, "got both"),
    (MCPSampling, {"chat_generator": answer}, "Pass a function as `function`"),
    (MCPSampling, {"function": answer, "max_tokens": -1}, "`max_tokens` must be greater than or equal to 0"),
    (MCPSampling, {"chat_generator": Deaf(), "tools": True}, "Deaf takes no `tools`"),
    (ToolOptions, {"result_format": "yaml"}, "ToolOptions: `result_format` must be 'text', 'content' or 'json'"),
    (ToolOptions, {"include_output_schema": "yes"}, "`include_output_schema` must be a valid boolean, got 'yes'"),
    (ToolOptions, {"max_result_size": 100}, "`max_result_size` must be .* 200, got 100"),
    (ToolOptions, {"max_tool_failures": True}, "`max_tool_failures` must be"),
    (CallOptions, {"ping_interval": 0}, "CallOptions: `ping_interval` must be greater than 0, got 0"),
    (ToolSelection, {"exclude_tools": [object()]}, "`exclude_tools` .*got object"),
    (FromState, {"key": ""}, "FromState: `key` must"),
    (MCPRegistry, {"tool_configs": [{"providers": ["a"]}]}, "`tool_alias` is missing"),
    (MCPRegistry, {"tool_configs": [ToolConfig("x", ["a"])] * 2}, "two tool configs with the alias 'x'"),
    (MCPRegistry, {"tool_configs": {"x": {}}}, "`tool_configs` must be a list of ToolConfigs, got dict"),
    (MCPRegistry, {"providers": [MCPProvider("a", "http://h/sse")] * 2}, "two providers named 'a'"),
    (MCPRegistry, {"providers": [{"name": "a"}]}, "`endpoint` is missing"),
    (MCPRegistry, {"providers": [{"name": "a", "url": ""}]}, "MCPProvider has no parameter 'url'"),
    (MCPRegistry, {"providers": [INFO]}, "got StdioServerInfo"),
    (MCPRegistry, {"providers": {"a": 7}}, "provider 'a': "),
    (MCPRegistry, {"providers": {"": INFO}}, "the name of a provider must be a non-empty string, got ''"),
    (MCPProvider, {"name": "a", "endpoint": "no url"}, "MCPProvider: 'a': SSEServerInfo: Invalid url"),
    (LocalStdioMCPProvider, {"name": "a", "command": "two words"}, "LocalStdioMCPProvider: 'a'"),
    # A text in place of a list is not quoted.
    (LocalStdioMCPProvider, {"name": "x", "command": "uvx", "args": "--token sk-4711"}, "`args` must .* got str$"),
)
def test_an_invalid_parameter_is_refused_with_its_name(kind, parameters, message):
    with pytest.raises(ValueError, match=message):
        kind(**{**FINE.get(kind, {}), **parameters})


def test_positional_arguments_for_keyword_only_parameters_are_refused():
    with pytest.raises(ValueError, match=r"ToolOptions: pass its parameters by their names$"):
        ToolOptions("sk-secret-4711")
    with pytest.raises(ValueError, match=r"by their names, after the first 6$"):
        StdioServerInfo("uvx", [], {}, 1, 1.0, 2.0, "/tmp")


@rows(
    ("owner", "parameter", "advice"),
    (MCPToolset, "headers", "`headers` is a parameter of SSEServerInfo, StreamableHttpServerInfo."),
    (MCPToolset, "api_key", "`token` is a parameter of "),
    (MCPToolset, "tool_prefix", "Use `tool_name_prefix`."),
    (MCPToolset, "tool_error_behavior", "`on_tool_error` is a parameter of ToolOptions, ToolOverride."),
    (MCPToolset, "tool_namse", "Did you mean `tool_names`?"),
    (MCPToolset, "zebra", "It has: server_info, tool_names, "),
    (MCPTool, "tool_names", "`tool_names` is a parameter of MCPToolset."),
    (StdioServerInfo, "working_directory", "Use `cwd`."),
    *((kind, "limit", "It has: max_turns, max_calls, ") for kind in BUDGETS),
    *((group, "zebra", "It has: ") for group in (CallOptions, ToolOptions, ToolOverride, ToolSelection)),
)
def test_the_error_for_a_parameter_of_another_class_or_library_says_where_it_belongs(owner, parameter, advice):
    with pytest.raises(TypeError) as raised:
        owner(**{parameter: "sk-secret-4711"})
    message = str(raised.value)
    assert message.startswith(f"{owner.__name__} has no parameter '{parameter}'. ")
    assert advice in message
    assert "4711" not in message


def test_a_text_is_not_treated_as_a_list_of_its_letters():
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
