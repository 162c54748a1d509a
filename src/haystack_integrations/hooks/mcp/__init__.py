# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Hooks that limit and confirm the tool calls of Haystack's Agents.

The hooks need Haystack 3. `confirmation_strategies_for`, `MCPAnnotationPolicy` and
`haystack_integrations.tools.mcp.call_budget` also work on Haystack 2.31.
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
