# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What becomes of a tool call that fails in a run, and how often a tool may fail.

Nothing of a run is kept here: its failures are counted in its messages. So runs of one Agent do not disturb each other.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any, Final

from haystack.dataclasses import ChatMessage, TextContent
from haystack.dataclasses.chat_message import ToolCallResult

from haystack_integrations.tools.mcp.budgets import REFUSED, was_refused
from haystack_integrations.tools.mcp.haystack_compat import was_declined

# The key of an Agent's State that has its messages, and the argument by which Haystack passes them to a tool.
STATE_KEY: Final = "messages"
ARGUMENT: Final = "_mcp_conversation"

# How a failure begins that is returned as the result of its tool.
_FAILED: Final = "[This tool call failed] "
# Beyond this, an output handler has put something before it.
_BEGINNING: Final = 100

# The messages of a loop of this package, which has no State.
_conversation: ContextVar[Sequence[ChatMessage] | None] = ContextVar("haystack_mcp_conversation", default=None)


@contextmanager
def calls_of(conversation: Sequence[ChatMessage]) -> Iterator[None]:
    """
    Make the calls in this block part of a conversation.

    :param conversation: Its messages.
    """
    reset = _conversation.set(conversation)
    try:
        yield
    finally:
        _conversation.reset(reset)


def failures_in_a_row(passed: Any, tool_name: str) -> int:
    """
    Count how often a tool has failed in a run since it last succeeded.

    :param passed: The messages that Haystack passed to the tool, if it did.
    :param tool_name: Name of the tool.
    :returns: The number of calls that failed. Those that were refused or declined are not counted.
    """
    count = 0
    for message in reversed(passed if are_messages(passed) else _conversation.get() or ()):
        if message.is_from("user"):
            break
        for result in reversed(message.tool_call_results):
            if result.origin.tool_name != tool_name or REFUSED in message.meta:
                continue
            if result.error and (was_refused(result) or was_declined(result)):
                continue
            if not result.error and not _was_returned(result):
                return count
            count += 1
    return count


def are_messages(value: Any) -> bool:
    """
    Tell whether a value is a list of ChatMessages, which no model can write.

    :param value: The value.
    :returns: Whether it is.
    """
    return isinstance(value, list) and all(isinstance(each, ChatMessage) for each in value)


def _was_returned(result: ToolCallResult) -> bool:
    parts = [result.result] if isinstance(result.result, str) else result.result
    text = next((part.text if isinstance(part, TextContent) else part for part in parts), "")
    return isinstance(text, str) and _FAILED in text[:_BEGINNING]


def limit_reached(limit: int) -> str:
    """
    Tell the model that a tool is not to be called any more.

    :param limit: How often it has failed.
    :returns: A sentence.
    """
    times = "once" if limit == 1 else f"{limit} times in a row"
    return f"This tool has failed {times}. Do not call it again in this run: answer with what you have."


def as_result(error: Exception) -> str:
    """
    Write a failure as the result of its tool.

    :param error: The failure.
    :returns: The JSON string of an MCP result with `isError`.
    """
    return json.dumps({"content": [{"type": "text", "text": f"{_FAILED}{error}"}], "isError": True})
