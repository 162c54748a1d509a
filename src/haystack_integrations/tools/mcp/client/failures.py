# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The wording of errors.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import ValidationError

from haystack_integrations.tools.mcp.client.delivery import OutcomeUnknownError
from haystack_integrations.tools.mcp.convert.results import error_text
from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPInvocationError
from mcp import MCPError as ProtocolError
from mcp import types


def raise_tool_error(result: types.CallToolResult, tool_name: str, tool_args: dict[str, Any]) -> None:
    """
    Raise what a tool reported as an error of its own.

    :param result: The result of a call.
    :param tool_name: Name of the tool.
    :param tool_args: The arguments it was called with.
    :raises MCPInvocationError: If the result has `isError`; with the server's own text.
    """
    if result.is_error:
        text = error_text(result.model_dump(by_alias=True, mode="json"))
        msg = f"Failed to invoke Tool `{tool_name}`: {text}"
        raise MCPInvocationError(msg, tool_name, tool_args)


def not_connected() -> MCPConnectionError:
    """
    Make the error of a client that is used before `connect`.

    :returns: The error.
    """
    return MCPConnectionError("Not connected to an MCP server: call connect() first", operation="call_tool")


def with_full_stop(text: str) -> str:
    """
    Make a sentence of a text that may be one already.

    :param text: The text.
    :returns: The text with a full stop, if it has no other end.
    """
    return text if text.endswith((".", "?", "!")) else f"{text}."


def outcome_unknown(reason: str, tool_name: str, tool_args: dict[str, Any]) -> OutcomeUnknownError:
    """
    Make the error of a call that was sent and never answered.

    :param reason: What happened.
    :param tool_name: Name of the tool.
    :param tool_args: The arguments it was called with.
    :returns: The error.
    """
    msg = (
        f"Failed to invoke Tool `{tool_name}`: {with_full_stop(reason)} The tool may have run, so the call was "
        "not repeated; the next call opens a new session if it must."
    )
    return OutcomeUnknownError(msg, tool_name, tool_args)


def leaves(error: BaseException) -> Iterator[BaseException]:
    """
    Take exception groups apart.

    :param error: An exception, perhaps a group.
    :returns: The exceptions in it that are no groups.
    """
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def describe_error(error: BaseException) -> str:
    """
    Say what went wrong: the innermost errors, each with its text, or its name where it has none.

    :param error: An exception, perhaps a group of them.
    :returns: The text, without values that were validated.
    """
    texts = []
    for leaf in leaves(error):
        if isinstance(leaf, ProtocolError):
            # The SDK's own text for an answer that it cannot parse quotes the answer.
            is_quote = leaf.code == types.PARSE_ERROR and leaf.message.startswith("Failed to parse ")
            text = "the server's answer is no valid JSON-RPC message" if is_quote else leaf.message
            texts.append(text or f"protocol error {leaf.code}")
        elif isinstance(leaf, ValidationError):
            first = leaf.errors(include_input=False, include_url=False)[0]
            place = ".".join(map(str, first["loc"]))
            texts.append(f"{leaf.error_count()} fields are invalid, the first is '{place}' ({first['type']})")
        else:
            texts.append(str(leaf) or type(leaf).__name__)
    return "; ".join(dict.fromkeys(texts))
