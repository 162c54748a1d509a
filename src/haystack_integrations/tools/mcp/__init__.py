# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tools of MCP (Model Context Protocol) servers for Haystack.

A server info describes how to reach a server: `StdioServerInfo`, `StreamableHttpServerInfo`, `SSEServerInfo` or
`InProcessServerInfo`. `MCPToolset` provides the tools of a server to an Agent, `MCPTool` a single tool, and
`MCPConnection` calls tools without an Agent. Every error is an `MCPError` or, if a tool call failed, an
`MCPInvocationError`.

Importing the package is cheap: everything that needs the MCP SDK is imported at its first use.
"""

from typing import TYPE_CHECKING

__all__ = [
    "AskUser",
    "AsyncExecutor",
    "CallOptions",
    "FromState",
    "InMemoryTokenStorage",
    "InProcessServerInfo",
    "MCPAuthorizationError",
    "MCPCallTimeoutError",
    "MCPClient",
    "MCPConnection",
    "MCPConnectionError",
    "MCPError",
    "MCPHandlers",
    "MCPInvocationError",
    "MCPOutcomeUnknownError",
    "MCPRegistry",
    "MCPResourceToolset",
    "MCPSampling",
    "MCPSearchableToolset",
    "MCPServerInfo",
    "MCPTool",
    "MCPToolCall",
    "MCPToolNotFoundError",
    "MCPToolResult",
    "MCPToolSnapshot",
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
    "call_budget",
    "load_mcp_toolsets",
    "mcp_request_context",
    "preload",
    "server_info_from",
    "warm_up_toolsets",
    "warm_up_toolsets_async",
]

if TYPE_CHECKING:
    __version__: str

    from .any_tools import warm_up_toolsets, warm_up_toolsets_async
    from .auth.oauth_config import OAuthConfig
    from .auth.token_storage import InMemoryTokenStorage
    from .budgets import call_budget
    from .connection.connection import MCPConnection, preload
    from .connection.interceptors import MCPToolCall
    from .connection.limits import CallOptions
    from .convert.content import MCPToolResult
    from .errors import (
        MCPAuthorizationError,
        MCPCallTimeoutError,
        MCPConnectionError,
        MCPError,
        MCPInvocationError,
        MCPOutcomeUnknownError,
        MCPToolNotFoundError,
    )
    from .executor import AsyncExecutor
    from .handlers import AskUser, MCPHandlers, MCPSampling
    from .mcp_json import load_mcp_toolsets
    from .mcp_tool import MCPTool
    from .mcp_toolset import MCPToolset
    from .options import FromState, ToolOptions, ToolOverride, ToolSelection
    from .protocol.mcp_client import MCPClient
    from .protocol.server_info import MCPServerInfo
    from .registry.aliases import ToolConfig
    from .registry.registry import MCPRegistry
    from .request_context import mcp_request_context
    from .resource_tools import MCPResourceToolset
    from .searchable_toolset import MCPSearchableToolset
    from .secret_template import SecretTemplate
    from .snapshot import MCPToolSnapshot, SnapshotCheck
    from .transports.http_client import SSEClient, StreamableHttpClient
    from .transports.server_infos import InProcessServerInfo, SSEServerInfo, StdioServerInfo, StreamableHttpServerInfo
    from .transports.shorthand import server_info_from
    from .transports.stdio import StdioClient
else:
    import importlib
    import importlib.metadata

    _NAMES = {
        "auth.oauth_config": ["OAuthConfig"],
        "auth.token_storage": ["InMemoryTokenStorage"],
        "budgets": ["call_budget"],
        "protocol.mcp_client": ["MCPClient"],
        "protocol.server_info": ["MCPServerInfo"],
        "mcp_json": ["load_mcp_toolsets"],
        "connection.connection": ["MCPConnection", "preload"],
        "connection.interceptors": ["MCPToolCall"],
        "connection.limits": ["CallOptions"],
        "convert.content": ["MCPToolResult"],
        "errors": [
            "MCPAuthorizationError",
            "MCPCallTimeoutError",
            "MCPConnectionError",
            "MCPError",
            "MCPInvocationError",
            "MCPOutcomeUnknownError",
            "MCPToolNotFoundError",
        ],
        "executor": ["AsyncExecutor"],
        "handlers": ["AskUser", "MCPHandlers", "MCPSampling"],
        "mcp_tool": ["MCPTool"],
        "any_tools": ["warm_up_toolsets", "warm_up_toolsets_async"],
        "mcp_toolset": ["MCPToolset"],
        "options": ["FromState", "ToolOptions", "ToolOverride", "ToolSelection"],
        "registry.registry": ["MCPRegistry"],
        "registry.aliases": ["ToolConfig"],
        "request_context": ["mcp_request_context"],
        "resource_tools": ["MCPResourceToolset"],
        "searchable_toolset": ["MCPSearchableToolset"],
        "secret_template": ["SecretTemplate"],
        "snapshot": ["MCPToolSnapshot", "SnapshotCheck"],
        "transports.http_client": ["SSEClient", "StreamableHttpClient"],
        "transports.server_infos": [
            "InProcessServerInfo",
            "SSEServerInfo",
            "StdioServerInfo",
            "StreamableHttpServerInfo",
        ],
        "transports.shorthand": ["server_info_from"],
        "transports.stdio": ["StdioClient"],
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
