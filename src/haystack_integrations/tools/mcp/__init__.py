# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tools of MCP (Model Context Protocol) servers for Haystack.

A server info says how to reach a server: `StdioServerInfo`, `StreamableHttpServerInfo`, `SSEServerInfo` or
`InProcessServerInfo`. `MCPToolset` gives an Agent the tools of a server, `MCPTool` a single one, and `MCPConnection`
calls tools without an Agent. Every error is an `MCPError` or, if a tool call failed, an `MCPInvocationError`.

Importing the package is cheap: what needs the MCP SDK is imported at its first use.
"""

from typing import TYPE_CHECKING

__all__ = [
    "AskUser",
    "AsyncExecutor",
    "CallOptions",
    "FileTokenStorage",
    "FromState",
    "InMemoryTokenStorage",
    "InProcessClient",
    "InProcessServerInfo",
    "KeyValueTokenStorage",
    "LocalStdioMCPProvider",
    "MCPAliasHealth",
    "MCPAliasToolset",
    "MCPAssertionRequest",
    "MCPAuthorizationError",
    "MCPBudgetExceededError",
    "MCPCallBudget",
    "MCPCallPendingError",
    "MCPCallRefusedError",
    "MCPCallTimeoutError",
    "MCPClient",
    "MCPConfigurationError",
    "MCPConnection",
    "MCPConnectionError",
    "MCPConnectionStatus",
    "MCPConnectionTimeoutError",
    "MCPDriftError",
    "MCPDriftReport",
    "MCPDriftedCallError",
    "MCPError",
    "MCPFacade",
    "MCPHandlers",
    "MCPHealthReport",
    "MCPInvocationError",
    "MCPLoginRequest",
    "MCPOutcomeUnknownError",
    "MCPPendingCall",
    "MCPProgress",
    "MCPProvider",
    "MCPProviderHealth",
    "MCPQuestion",
    "MCPRegistry",
    "MCPRequestContext",
    "MCPResourceToolset",
    "MCPSampling",
    "MCPSearchableToolset",
    "MCPServerInfo",
    "MCPSkill",
    "MCPSkillError",
    "MCPSkillFile",
    "MCPSkillStore",
    "MCPTimeoutError",
    "MCPTokenStorage",
    "MCPTool",
    "MCPToolCall",
    "MCPToolDrift",
    "MCPToolFailedError",
    "MCPToolNotFoundError",
    "MCPToolResult",
    "MCPToolSnapshot",
    "MCPToolUsage",
    "MCPToolsChange",
    "MCPToolset",
    "OAuthConfig",
    "SSEClient",
    "SSEServerInfo",
    "SecretTemplate",
    "SnapshotCheck",
    "StdioClient",
    "StdioServerInfo",
    "StreamableHttpClient",
    "StreamableHttpServerInfo",
    "ToolConfig",
    "ToolOptions",
    "ToolOverride",
    "ToolSelection",
    "accept_defaults",
    "answer_later",
    "call_budget",
    "conversation_trace",
    "decline",
    "instructions_for_model",
    "load_mcp_toolsets",
    "login",
    "login_async",
    "logout",
    "logout_async",
    "mcp_request_context",
    "preload",
    "prompt_messages",
    "resource_contents",
    "resource_streams",
    "server_info_from",
    "tool_usage",
    "warm_up_toolsets",
    "warm_up_toolsets_async",
]

if TYPE_CHECKING:
    __version__: str

    from .auth.config import MCPAssertionRequest, MCPLoginRequest, OAuthConfig
    from .auth.token_storage import FileTokenStorage, InMemoryTokenStorage, KeyValueTokenStorage, MCPTokenStorage
    from .budgets import MCPCallBudget, call_budget
    from .config.loader import load_mcp_toolsets
    from .connection.connection import MCPConnection
    from .connection.interceptors import MCPToolCall
    from .connection.limits import CallOptions
    from .connection.preload import preload
    from .connection.status import MCPConnectionStatus
    from .convert.prompts import prompt_messages
    from .convert.resources import resource_contents, resource_streams
    from .convert.skills import MCPSkill, MCPSkillFile
    from .convert.tool_result import MCPToolResult
    from .errors import (
        MCPAuthorizationError,
        MCPBudgetExceededError,
        MCPCallPendingError,
        MCPCallRefusedError,
        MCPCallTimeoutError,
        MCPConfigurationError,
        MCPConnectionError,
        MCPConnectionTimeoutError,
        MCPDriftedCallError,
        MCPDriftError,
        MCPError,
        MCPInvocationError,
        MCPOutcomeUnknownError,
        MCPSkillError,
        MCPTimeoutError,
        MCPToolFailedError,
        MCPToolNotFoundError,
    )
    from .executor import AsyncExecutor
    from .fresh_tools import MCPToolsChange
    from .handlers import MCPHandlers, MCPSampling
    from .handlers.elicitation import AskUser, accept_defaults, answer_later, decline
    from .handlers.progress import MCPProgress
    from .mcp_tool import MCPTool
    from .mcp_toolset import MCPToolset, warm_up_toolsets, warm_up_toolsets_async
    from .options import FromState, ToolOptions, ToolOverride, ToolSelection
    from .pending_calls import MCPPendingCall, MCPQuestion
    from .protocol.base import MCPClient
    from .protocol.server_info import MCPServerInfo
    from .registry.aliases import MCPAliasToolset
    from .registry.facade import MCPFacade
    from .registry.health import MCPAliasHealth, MCPHealthReport, MCPProviderHealth
    from .registry.providers import LocalStdioMCPProvider, MCPProvider
    from .registry.registry import MCPRegistry
    from .registry.tool_config import ToolConfig
    from .registry.traces import MCPToolUsage, conversation_trace, tool_usage
    from .request_context import MCPRequestContext, mcp_request_context
    from .resource_tools import MCPResourceToolset
    from .searchable_toolset import MCPSearchableToolset
    from .secret_template import SecretTemplate
    from .server_instructions import instructions_for_model
    from .skill_store import MCPSkillStore
    from .snapshot.drift import MCPDriftReport, MCPToolDrift
    from .snapshot.guard import SnapshotCheck
    from .snapshot.snapshot import MCPToolSnapshot
    from .transports.http.client import SSEClient, StreamableHttpClient
    from .transports.http.login import login, login_async, logout, logout_async
    from .transports.http.server_info import SSEServerInfo, StreamableHttpServerInfo
    from .transports.in_process.client import InProcessClient
    from .transports.in_process.server_info import InProcessServerInfo
    from .transports.shorthand import server_info_from
    from .transports.stdio.client import StdioClient
    from .transports.stdio.server_info import StdioServerInfo
else:
    import importlib
    import importlib.metadata

    _NAMES = {
        "auth.config": ["MCPAssertionRequest", "MCPLoginRequest", "OAuthConfig"],
        "auth.token_storage": ["FileTokenStorage", "InMemoryTokenStorage", "KeyValueTokenStorage", "MCPTokenStorage"],
        "budgets": ["MCPCallBudget", "call_budget"],
        "protocol.base": ["MCPClient"],
        "protocol.server_info": ["MCPServerInfo"],
        "config.loader": ["load_mcp_toolsets"],
        "connection.connection": ["MCPConnection"],
        "connection.interceptors": ["MCPToolCall"],
        "connection.limits": ["CallOptions"],
        "connection.preload": ["preload"],
        "connection.status": ["MCPConnectionStatus"],
        "convert.prompts": ["prompt_messages"],
        "convert.resources": ["resource_contents", "resource_streams"],
        "convert.skills": ["MCPSkill", "MCPSkillFile"],
        "convert.tool_result": ["MCPToolResult"],
        "errors": [
            "MCPAuthorizationError",
            "MCPBudgetExceededError",
            "MCPCallPendingError",
            "MCPCallRefusedError",
            "MCPCallTimeoutError",
            "MCPConfigurationError",
            "MCPConnectionError",
            "MCPConnectionTimeoutError",
            "MCPDriftError",
            "MCPDriftedCallError",
            "MCPError",
            "MCPInvocationError",
            "MCPOutcomeUnknownError",
            "MCPSkillError",
            "MCPTimeoutError",
            "MCPToolFailedError",
            "MCPToolNotFoundError",
        ],
        "executor": ["AsyncExecutor"],
        "fresh_tools": ["MCPToolsChange"],
        "handlers": ["MCPHandlers", "MCPSampling"],
        "handlers.elicitation": ["AskUser", "accept_defaults", "answer_later", "decline"],
        "handlers.progress": ["MCPProgress"],
        "mcp_tool": ["MCPTool"],
        "mcp_toolset": ["MCPToolset", "warm_up_toolsets", "warm_up_toolsets_async"],
        "options": ["FromState", "ToolOptions", "ToolOverride", "ToolSelection"],
        "pending_calls": ["MCPPendingCall", "MCPQuestion"],
        "registry.aliases": ["MCPAliasToolset"],
        "registry.facade": ["MCPFacade"],
        "registry.health": ["MCPAliasHealth", "MCPHealthReport", "MCPProviderHealth"],
        "registry.providers": ["LocalStdioMCPProvider", "MCPProvider"],
        "registry.registry": ["MCPRegistry"],
        "registry.tool_config": ["ToolConfig"],
        "registry.traces": ["MCPToolUsage", "conversation_trace", "tool_usage"],
        "request_context": ["MCPRequestContext", "mcp_request_context"],
        "resource_tools": ["MCPResourceToolset"],
        "searchable_toolset": ["MCPSearchableToolset"],
        "secret_template": ["SecretTemplate"],
        "server_instructions": ["instructions_for_model"],
        "skill_store": ["MCPSkillStore"],
        "snapshot.drift": ["MCPDriftReport", "MCPToolDrift"],
        "snapshot.guard": ["SnapshotCheck"],
        "snapshot.snapshot": ["MCPToolSnapshot"],
        "transports.http.client": ["SSEClient", "StreamableHttpClient"],
        "transports.http.login": ["login", "login_async", "logout", "logout_async"],
        "transports.http.server_info": ["SSEServerInfo", "StreamableHttpServerInfo"],
        "transports.in_process.client": ["InProcessClient"],
        "transports.in_process.server_info": ["InProcessServerInfo"],
        "transports.shorthand": ["server_info_from"],
        "transports.stdio.client": ["StdioClient"],
        "transports.stdio.server_info": ["StdioServerInfo"],
    }
    _MODULES = {name: module for module, names in _NAMES.items() for name in names}

    def __getattr__(name: str) -> object:
        value: object
        if name == "__version__":
            try:
                value = importlib.metadata.version("mcp-haystack")
            except importlib.metadata.PackageNotFoundError:  # run from a source tree
                value = "unknown"
        elif name in _MODULES:
            value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
        else:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return [*__all__, "__version__"]
