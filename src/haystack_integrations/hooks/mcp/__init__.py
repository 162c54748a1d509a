# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Hooks that keep Haystack's Agents in check when they use tools of MCP servers.

The hooks need Haystack 3. `confirmation_strategies_for` and `MCPAnnotationPolicy` work on Haystack 2.31, too, and so
does `haystack_integrations.tools.mcp.call_budget`.
"""

from typing import TYPE_CHECKING

__all__ = [
    "MCPAnnotationPolicy",
    "MCPCallBudgetHook",
    "MCPConfirmationHook",
    "MCPConfirmationStrategy",
    "MCPInstructionsHook",
    "confirmation_strategies_for",
]

if TYPE_CHECKING:
    from .call_budget import MCPCallBudgetHook
    from .confirmation import MCPAnnotationPolicy, confirmation_strategies_for
    from .confirmation_hook import MCPConfirmationHook
    from .confirmation_strategies import MCPConfirmationStrategy
    from .instructions import MCPInstructionsHook
else:
    import importlib

    from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS

    _MODULES = {
        "MCPAnnotationPolicy": "confirmation",
        "MCPCallBudgetHook": "call_budget",
        "MCPConfirmationHook": "confirmation_hook",
        "MCPConfirmationStrategy": "confirmation_strategies",
        "MCPInstructionsHook": "instructions",
        "confirmation_strategies_for": "confirmation",
    }
    # What needs Haystack 3, and what there is on Haystack 2 instead.
    _INSTEAD = {
        "MCPCallBudgetHook": "`with haystack_integrations.tools.mcp.call_budget(…)` around `agent.run`",
        "MCPConfirmationHook": "`confirmation_strategies_for(…)` as the Agent's `confirmation_strategies`",
        "MCPInstructionsHook": "`instructions_for_model(toolset)` in a system message",
    }

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        if name in _INSTEAD and not HAS_HOOKS:
            msg = f"{name} needs Haystack 3: Haystack 2 has no hooks. Use {_INSTEAD[name]} instead."
            raise ImportError(msg)
        value: object = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return list(__all__)
