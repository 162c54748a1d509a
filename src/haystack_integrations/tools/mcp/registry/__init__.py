# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`MCPRegistry`: named servers, and aliases for groups of their tools, with limits.
"""

from haystack_integrations.tools.mcp.registry.aliases import (
    LocalStdioMCPProvider,
    MCPAliasToolset,
    MCPProvider,
    ToolConfig,
)
from haystack_integrations.tools.mcp.registry.facade import MCPFacade, conversation_trace
from haystack_integrations.tools.mcp.registry.registry import (
    MCPAliasHealth,
    MCPHealthReport,
    MCPProviderHealth,
    MCPRegistry,
)

__all__ = [
    "LocalStdioMCPProvider",
    "MCPAliasHealth",
    "MCPAliasToolset",
    "MCPFacade",
    "MCPHealthReport",
    "MCPProvider",
    "MCPProviderHealth",
    "MCPRegistry",
    "ToolConfig",
    "conversation_trace",
]
