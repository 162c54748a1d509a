# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A conversation with its tool calls: as a trace to keep, and in numbers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, get_args

from haystack.dataclasses import ChatMessage, TextContent

from haystack_integrations.tools.mcp.budgets import CONTINUED, REFUSED, was_refused
from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.haystack_compat import was_declined
from haystack_integrations.tools.mcp.parameters import short_repr

TraceFormat = Literal["openai", "haystack"]
TraceScope = Literal["all", "last"]
Conversation: TypeAlias = Sequence[ChatMessage] | Mapping[str, Any] | tuple[Any, list[ChatMessage]]


def conversation_trace(
    conversation: Conversation,
    *,
    format: TraceFormat = "openai",  # noqa: A002 - what everybody would look for
    scope: TraceScope = "all",
) -> list[dict[str, Any]]:
    """
    Return a trace of a conversation that can be stored as JSON: with tool calls and their results.

    ```python
    result = agent.run(messages=[ChatMessage.from_user("Which lamps are there?")])
    json.dumps(conversation_trace(result))
    ```

    :param conversation: ChatMessages, what an Agent has returned, or the output and messages of `MCPRegistry.generate`.
    :param format: "openai" (default): messages as OpenAI's Chat Completions API has them; or "haystack":
        `ChatMessage.to_dict`, which also tells which results are errors.
    :param scope: "all" (default), or "last" for the last message alone.
    :returns: A dictionary for each message.
    :raises MCPConfigurationError: If a parameter is invalid.
    """
    for name, value, kind in (("format", format, TraceFormat), ("scope", scope, TraceScope)):
        if value not in get_args(kind):
            msg = f"conversation_trace: `{name}` must be one of {', '.join(map(repr, get_args(kind)))}, got {value!r}"
            raise MCPConfigurationError(msg)
    messages = messages_of(conversation)
    chosen = messages[-1:] if scope == "last" else messages
    return [message.to_dict() if format == "haystack" else _openai(message) for message in chosen]


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPToolUsage:
    """
    What a conversation has spent on tools.

    :param tool_calls: How many calls the model asked for, refused ones included.
    :param tool_call_turns: In how many of its replies.
    :param refused_calls: How many calls were refused, because a budget was used up. Those that a `call_budget` refused
        in an Agent are recognized by their text: with another `refusal_message`, they are among those that failed.
    :param declined_calls: How many calls the user declined. They are recognized by Haystack's text: with another
        `reject_template`, they are among those that failed.
    :param failed_calls: How many of the others ended with an error.
    :param calls_by_tool: How many calls of which tool were asked for.
    """

    tool_calls: int = 0
    tool_call_turns: int = 0
    refused_calls: int = 0
    declined_calls: int = 0
    failed_calls: int = 0
    calls_by_tool: dict[str, int] = field(default_factory=dict)


def tool_usage(conversation: Conversation) -> MCPToolUsage:
    """
    Count the tool calls of a conversation.

    :param conversation: As for `conversation_trace`.
    :returns: The numbers.
    """
    by_tool: Counter[str] = Counter()
    turns = refused = declined = failed = 0
    reply: dict[str, Any] | None = None
    for message in messages_of(conversation):
        if message.tool_calls:
            by_tool.update(call.tool_name for call in message.tool_calls)
            # A hook that refuses some calls of a reply, or asks the user about them, divides it.
            turns += message.meta is not reply and CONTINUED not in message.meta
            reply = message.meta
        elif REFUSED in message.meta:
            refused += len(message.tool_call_results)
        else:
            errors = [result for result in message.tool_call_results if result.error]
            refused_here, declined_here = sum(map(was_refused, errors)), sum(map(was_declined, errors))
            refused += refused_here
            declined += declined_here
            failed += len(errors) - refused_here - declined_here
    return MCPToolUsage(
        tool_calls=sum(by_tool.values()),
        tool_call_turns=turns,
        refused_calls=refused,
        declined_calls=declined,
        failed_calls=failed,
        calls_by_tool=dict(by_tool),
    )


def messages_of(conversation: Any) -> list[ChatMessage]:
    """
    Return the messages of a conversation.

    :param conversation: ChatMessages, a dictionary with `messages`, or a pair of an output and messages.
    :returns: The messages.
    :raises TypeError: If there are none.
    """
    found = conversation.get("messages") if isinstance(conversation, Mapping) else conversation
    if isinstance(found, tuple) and found and isinstance(found[-1], list):
        found = found[-1]
    if not isinstance(found, Sequence) or not all(isinstance(message, ChatMessage) for message in found):
        msg = (
            "A conversation must be a list of ChatMessages, what an Agent has returned, or the output and messages of "
            f"`generate`, got {type(conversation).__name__}"
        )
        raise TypeError(msg)
    return list(found)


def _openai(message: ChatMessage) -> dict[str, Any]:
    results = message.tool_call_results
    if results and not isinstance(results[0].result, str):
        # The API takes text only in the results of tools; other content has a remark in its place.
        [result] = results
        parts = [part.text if isinstance(part, TextContent) else f"[{_noun(part)}]" for part in result.result]
        return {"role": "tool", "tool_call_id": result.origin.id, "content": "\n".join(parts)}
    return message.to_openai_dict_format(require_tool_call_ids=False)


def _noun(part: Any) -> str:
    kind = type(part).__name__.removesuffix("Content").lower()
    mime_type = getattr(part, "mime_type", None)
    return f"{kind}, {mime_type}" if mime_type else kind
