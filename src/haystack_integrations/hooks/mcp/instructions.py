# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any, ClassVar, Self

from haystack.components.agents.state.state import State
from haystack.components.agents.state.state_utils import replace_values
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp.convert.server_texts import (
    MAX_CHARS,
    TEMPLATE,
    InstructionsTemplate,
    fenced_instructions,
)
from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.parameters import Positive, checked, own_parameters
from haystack_integrations.tools.mcp.server_instructions import instructions_by_server


class MCPInstructionsHook:
    """
    A `before_run` hook that tells the model what the servers of its tools say about their use. Haystack 3.

    The `instructions` of each server stand once in the system message, fenced as the text of a third party and limited
    in length. A server can write anything there; leave the hook out for servers that you do not trust. Those of a
    toolset with a snapshot are what its `instructions` says.

    ```python
    agent = Agent(
        chat_generator=OpenAIChatGenerator(), tools=toolset, hooks={"before_run": [MCPInstructionsHook()]}
    )
    ```
    """

    allowed_hook_points: ClassVar[tuple[str, ...]] = ("before_run",)

    @checked(MCPConfigurationError)
    def __init__(self, max_chars: Positive = MAX_CHARS, template: InstructionsTemplate = TEMPLATE) -> None:
        """
        Initialize the hook.

        :param max_chars: How many characters of each server's instructions are kept.
        :param template: What is put around them, with `{server}` and `{instructions}`.
        :raises MCPConfigurationError: If a parameter is invalid.
        """
        self.max_chars = max_chars
        self.template = template

    def run(self, state: State) -> None:
        """
        Put the instructions into the system message, unless they stand there already.

        :param state: The State of the run.
        """
        tools = [tool for tool in state.data.get("tools") or [] if isinstance(tool, MCPTool)]
        said = instructions_by_server(tools)
        messages: list[ChatMessage] = list(state.data.get("messages") or [])
        position = next((n for n, message in enumerate(messages) if message.is_from("system")), None)
        before = "" if position is None else messages[position].text or ""
        texts = fenced_instructions(said, max_chars=self.max_chars, template=self.template)
        new = [text for text in texts if text not in before]
        if not new:
            return
        text = "\n\n".join(filter(None, [before, *new]))
        if position is None:
            messages.insert(0, ChatMessage.from_system(text))
        else:
            old = messages[position]
            messages[position] = ChatMessage.from_system(text, meta=old.meta, name=old.name)
        state.set("messages", messages, handler_override=replace_values)

    async def run_async(self, state: State) -> None:
        """
        Do the same as `run`; it never waits.

        :param state: The State of the run.
        """
        self.run(state)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the hook.

        :returns: A dictionary with its parameters.
        """
        return default_to_dict(self, **own_parameters(self, MCPInstructionsHook))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize the hook.

        :param data: The result of `to_dict`.
        :returns: The hook.
        """
        loaded: Self = default_from_dict(cls, data)
        return loaded
