# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What leans on details of the MCP SDK that it does not promise. Each entry goes when the SDK makes it unnecessary.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Awaitable, Callable, Coroutine
from typing import TYPE_CHECKING, Any

from mcp import MCPError as ProtocolError
from mcp import types
from pydantic import BaseModel, ValidationError

from haystack_integrations.tools.mcp.convert.tool_definitions import LIST_METHOD
from haystack_integrations.tools.mcp.executor import THREAD_NAME

if TYPE_CHECKING:
    import mcp

# The SDK fails the requests of a transport that ended with this text (`mcp.shared.jsonrpc_dispatcher`). The code alone
# does not tell: a server may use it for errors of its own.
_TRANSPORT_ENDED = "Connection closed"

# What the SDK says in place of the server if an HTTP error comes without a JSON-RPC error (`client.streamable_http`).
_HTTP_PLACEHOLDERS = ("Server returned an error response", "Not Found")

# How the SDK's error for an answer without a body begins (`client.streamable_http`).
_NO_BODY = "server answered a request with "

# How the SDK's error for an answer that it cannot parse begins; the rest quotes the answer.
_PARSE_FAILURE = "Failed to parse "


def says_transport_ended(error: ProtocolError) -> bool:
    """
    Tell whether the SDK made this error because the transport ended.

    :param error: The error of a request.
    :returns: True if it did, False if the server sent it.
    """
    return error.code == types.CONNECTION_CLOSED and error.message == _TRANSPORT_ENDED


def is_http_placeholder(error: ProtocolError) -> bool:
    """
    Tell whether the SDK made up the text of this error for an HTTP status.

    :param error: The error of a request.
    :returns: True if the text says nothing beyond the status.
    """
    return error.message in _HTTP_PLACEHOLDERS


def says_no_answer(error: ProtocolError) -> bool:
    """
    Tell whether the SDK made this error because a response over HTTP contains no answer, whatever its status says.

    :param error: The error of a request.
    :returns: True if the server may have processed the request.
    """
    return quotes_answer(error) or error.message.startswith(_NO_BODY)


def quotes_answer(error: ProtocolError) -> bool:
    """
    Tell whether the text of this error quotes an answer that the SDK could not parse.

    :param error: The error of a request.
    :returns: True if it does.
    """
    return error.code == types.PARSE_ERROR and error.message.startswith(_PARSE_FAILURE)


def replace_validation(
    session: mcp.ClientSession, validate: Callable[[str, types.CallToolResult], Awaitable[None]]
) -> None:
    """
    Let a function validate results against output schemas in place of the SDK.

    The SDK validates in the event loop of all sessions, however long it takes, quotes the result in its error, and
    lists the tools again for the result of an unknown one.

    :param session: The session; its method is replaced.
    :param validate: Takes the name of a tool and a result, and raises a RuntimeError if the result is not valid.
    """
    session.validate_tool_result = validate  # type: ignore[method-assign, assignment]


def mend_listings(session: mcp.ClientSession, mend: Callable[[dict[str, Any]], dict[str, Any]]) -> None:
    """
    Let a function mend each page of `tools/list` before the SDK validates it, which it does for all tools at once.

    The SDK then does with the page what it does with any other, e.g. for its cache and for the headers of calls.

    :param session: The session; the method of its dispatcher that sends requests is replaced.
    :param mend: Takes the result of the request and returns the one that the SDK gets.
    """
    dispatcher = session._dispatcher
    send = dispatcher.send_raw_request

    async def list_page(*arguments: Any) -> dict[str, Any]:
        return mend(await send(*arguments))

    def send_raw_request(method: str, *arguments: Any) -> Coroutine[Any, Any, dict[str, Any]]:
        return list_page(method, *arguments) if method == LIST_METHOD else send(method, *arguments)

    dispatcher.send_raw_request = send_raw_request  # type: ignore[method-assign]


class _NoQuotedMessages(logging.Filter):
    """
    Keeps the SDK's tracebacks for invalid messages out of the log: they quote the message, which may be secret.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ValidationError) and threading.current_thread().name == THREAD_NAME:
            record.msg, record.args = f"{record.getMessage()}: {describe_validation(error)}", None
            record.exc_info = None
        return True


def describe_validation(error: ValidationError) -> str:
    """
    Say what is wrong with a value, without the value.

    :param error: A validation error of pydantic.
    :returns: How many fields are invalid, and where the first one is.
    """
    first = error.errors(include_input=False, include_url=False)[0]
    place = ".".join(map(str, first["loc"]))
    return f"{error.error_count()} fields are invalid, the first is '{place}' ({first['type']})"


for _name in ("mcp.client.stdio", "mcp.client.sse", "mcp.client.streamable_http", "mcp.client.client"):
    logging.getLogger(_name).addFilter(_NoQuotedMessages())
# `mcp.client.session` logs under this name.
logging.getLogger("client").addFilter(_NoQuotedMessages())

# Pydantic completes some models of the SDK at their first use, while it holds a lock. A process that is forked in that
# moment could never take the lock, so they are completed before there is a session.
for _model in list(vars(types).values()):
    if isinstance(_model, type) and issubclass(_model, BaseModel) and not _model.__pydantic_complete__:
        _model.model_rebuild()
