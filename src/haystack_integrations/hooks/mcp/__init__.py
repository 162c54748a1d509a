# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Hooks that keep Haystack's Agents in check when they use tools of MCP servers.

The hooks need Haystack 3. `confirmation_strategies_for` and `MCPAnnotationPolicy` work on Haystack 2.31, too, and so
does `haystack_integrations.tools.mcp.call_budget`.
"""

from typing import TYPE_CHECKING

from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS

from .confirmation import MCPAnnotationPolicy, MCPConfirmationStrategy, confirmation_strategies_for

if TYPE_CHECKING or HAS_HOOKS:
    from .agent_hooks import MCPCallBudgetHook, MCPConfirmationHook
else:

    def __getattr__(name: str) -> object:
        if name in ("MCPCallBudgetHook", "MCPConfirmationHook"):
            msg = f"{name} needs Haystack 3. For 2.31, there are `call_budget` and `confirmation_strategies_for`."
            raise ImportError(msg)
        msg = f"module {__name__!r} has no attribute {name!r}"
        raise AttributeError(msg)


__all__ = [
    "MCPAnnotationPolicy",
    "MCPCallBudgetHook",
    "MCPConfirmationHook",
    "MCPConfirmationStrategy",
    "confirmation_strategies_for",
]
