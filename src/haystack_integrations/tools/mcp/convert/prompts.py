# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Converts the messages of MCP prompts to Haystack's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp.convert.results import model_content, model_text

if TYPE_CHECKING:
    import mcp_types as types

__all__ = ["prompt_messages"]


def prompt_messages(result: types.GetPromptResult) -> list[ChatMessage]:
    """
    Give the messages of a prompt as ChatMessages, one for each of the server's.

    Images and files of a user message become content blocks. An assistant's message in Haystack is text, so a note in
    text replaces them there, as it does what Haystack has no block for.

    :param result: What `get_prompt` returned.
    :returns: The messages in the server's order.
    """
    return [_chat_message(message) for message in result.messages]


def _chat_message(message: types.PromptMessage) -> ChatMessage:
    block = message.content.model_dump(by_alias=True, mode="json", exclude_none=True)
    envelope = {"content": [block], "isError": False}
    is_text = block["type"] == "text"
    if message.role == "assistant":
        return ChatMessage.from_assistant(block["text"] if is_text else model_text(envelope))
    content = block["text"] if is_text else model_content(envelope)
    if isinstance(content, str):
        return ChatMessage.from_user(content)
    return ChatMessage.from_user(content_parts=content)
