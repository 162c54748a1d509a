# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers that ask for something while an Agent, or whatever else executes tool calls, waits for them.
"""

import importlib
from typing import Any

from haystack_integrations.tools.mcp import AskUser, InProcessServerInfo, MCPHandlers, MCPToolset
from tests.support.executors import HAS_TOOL_INVOKER, Executor, by_agent, every_executor

# Haystack 3 moved it.
CONFIRMATION = importlib.import_module(f"haystack{'' if HAS_TOOL_INVOKER else '.hooks'}.human_in_the_loop.dataclasses")


class ScriptedUI:
    """A ConfirmationUI that confirms, changes and refuses, in turns."""

    def __init__(self) -> None:
        self.shown: list[dict[str, Any]] = []

    def get_user_confirmation(self, tool_name: str, tool_description: str, tool_params: dict[str, Any]) -> Any:
        self.shown.append(tool_params)
        action = ["confirm", "modify", "reject"][len(self.shown) - 1]
        changed = {"colour": "green", "count": 9} if action == "modify" else None
        return CONFIRMATION.ConfirmationUIResult(action=action, new_tool_params=changed)


def asking(**fields: Any) -> MCPToolset:
    info = InProcessServerInfo("tests.servers.asking_server:server")
    return MCPToolset(info, handlers=MCPHandlers(**fields), invocation_timeout=60)


@every_executor
def test_the_user_is_asked_through_haystacks_confirmation_ui_during_a_call(execute: Executor) -> None:
    ui = ScriptedUI()
    with asking(elicitation=AskUser(ui)) as toolset:
        assert execute(toolset, ("ask_order", {})).result == "2 blue"
        assert execute(toolset, ("ask_order", {})).result == "9 green"
        assert "decline" in execute(toolset, ("ask_order", {})).error
    assert ui.shown == [{"colour": "blue", "count": 2}] * 3


@every_executor
def test_a_handler_may_run_an_agent_that_uses_the_same_toolset(execute: Executor) -> None:
    def answer(_: Any) -> Any:
        return by_agent(toolset, ("add", {"a": 40, "b": 2})).result

    with asking(sampling=answer) as toolset:
        assert execute(toolset, ("ask_model", {"prompt": "x"})).result.startswith("42 (")
