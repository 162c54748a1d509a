# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What leans on details of the MCP SDK that it does not promise. Each entry goes when the SDK makes it unnecessary.
"""

from __future__ import annotations

import logging
import re
import threading
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING, Any

import httpx2
from mcp import MCPError as ProtocolError
from mcp import types
from mcp.client.session import _later_revision_fields
from mcp.shared import _httpx_utils
from mcp.types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from haystack_integrations.tools.mcp.client.large_messages import LargeResult
from haystack_integrations.tools.mcp.client.request_outcome import current_outcome
from haystack_integrations.tools.mcp.convert.tool_definitions import LIST_METHOD
from haystack_integrations.tools.mcp.executor import THREAD_NAME

if TYPE_CHECKING:
    import mcp

    from haystack_integrations.tools.mcp.redaction import Redactor

# How the SDK's own transports follow redirects.
stream_within_origin: Callable[..., AbstractAsyncContextManager[httpx2.Response]] = _httpx_utils.stream_within_origin

# The SDK fails the requests of a transport that ended with this text (`mcp.shared.jsonrpc_dispatcher`). The code alone
# does not tell: a server may use it for errors of its own.
_TRANSPORT_ENDED = "Connection closed"

# What the SDK says in place of the server if an HTTP error comes without a JSON-RPC error (`client.streamable_http`).
_HTTP_PLACEHOLDERS = ("Server returned an error response", "Not Found")

# How the SDK's error for an answer without a body begins (`client.streamable_http`).
_NO_BODY = "server answered a request with "

# How the SDK's error for a body that is neither JSON nor an event stream begins (`client.streamable_http`).
_CONTENT_TYPE = "Unexpected content type: "

# How the SDK's error for an answer that it cannot parse begins; the rest quotes the answer.
_PARSE_FAILURE = "Failed to parse "

# How the SDK's error for an event that is larger than the limit reads (`client.streamable_http`, `httpx2._sse`).
_EVENT_TOO_LARGE = re.compile(r"SSE stream failed: Server-sent event exceeded the (\d+) byte limit\.")


def says_event_too_large(error: ProtocolError) -> int | None:
    """
    Tell whether the SDK made this error because an event of an answer is too large.

    :param error: The error of a request.
    :returns: The limit in bytes, or None if it did not.
    """
    match = _EVENT_TOO_LARGE.fullmatch(error.message)
    return int(match[1]) if match and error.code == types.CONNECTION_CLOSED else None


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
    return quotes_answer(error) or error.message.startswith(_NO_BODY) or foreign_content_type(error) is not None


def foreign_content_type(error: ProtocolError) -> str | None:
    """
    Tell whether the SDK made this error because a response over HTTP is neither JSON nor an event stream.

    :param error: The error of a request.
    :returns: The content type of the response, which may be empty; or None.
    """
    if error.code != types.INVALID_REQUEST or error.data is not None or not error.message.startswith(_CONTENT_TYPE):
        return None
    return error.message.removeprefix(_CONTENT_TYPE)


def quotes_answer(error: ProtocolError) -> bool:
    """
    Tell whether the text of this error quotes an answer that the SDK could not parse.

    :param error: The error of a request.
    :returns: True if it does.
    """
    return error.code == types.PARSE_ERROR and error.message.startswith(_PARSE_FAILURE)


def shown_error(error: types.ErrorData, redactor: Redactor) -> types.ErrorData:
    """
    Make an error fit to be shown: the SDK makes its text the status of an OpenTelemetry span.

    :param error: The error in answer to a request, the server's own or one that the SDK made.
    :param redactor: Knows the secrets of the server, and of all who have requests under way.
    :returns: The same error, unless its text quotes a secret, or an answer that the SDK could not parse.
    """
    failure = ProtocolError(error.code, error.message)
    if quotes_answer(failure):
        return error.model_copy(update={"message": f"{_PARSE_FAILURE}the answer"})
    # By these texts of the SDK its errors are recognised, whatever is a secret elsewhere.
    if is_http_placeholder(failure) or says_transport_ended(failure) or says_event_too_large(failure) is not None:
        return error
    beginning = next((each for each in (_NO_BODY, _CONTENT_TYPE) if error.message.startswith(each)), "")
    text = beginning + redactor.text(error.message.removeprefix(beginning))
    return error if text == error.message else error.model_copy(update={"message": text})


def answer_missing(session: mcp.ClientSession, answers: dict[str, Callable[..., Awaitable[types.ErrorData]]]) -> None:
    """
    Answer a server that wants a handler that is not there.

    The SDK offers a server each handler that it is given when it is built, and refuses for the others without telling.

    :param session: An open session of the SDK.
    :param answers: The answers, by the field of MCPHandlers.
    """
    attributes = {
        "sampling": "_sampling_callback",
        "elicitation": "_elicitation_callback",
        "roots": "_list_roots_callback",
    }
    for field, answer in answers.items():
        setattr(session, attributes[field], answer)


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


def mend_results(
    session: mcp.ClientSession,
    mend: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any]]],
    check_result: Callable[[str, dict[str, Any]], None],
) -> None:
    """
    Let functions see results before the SDK validates them.

    The SDK validates a result as a whole, so one invalid member would make it useless. Since revision 2026-07-28
    results have a `resultType`; the specification reads one that is missing as "complete", and the SDK refuses it.

    :param session: An open session; the method of its dispatcher that sends requests is replaced.
    :param mend: Takes the method of a request and its result, and returns the one that the SDK gets. The SDK then does
        with it what it does with any other, e.g. for its cache and for the headers of calls.
    :param check_result: Takes the method of a request other than `tools/list` and its result, since revision
        2026-07-28. What it raises is the outcome of the request.
    """
    dispatcher = session._dispatcher
    send = dispatcher.send_raw_request
    is_modern = session.protocol_version in MODERN_PROTOCOL_VERSIONS

    async def send_raw_request(method: str, *arguments: Any) -> dict[str, Any]:
        result = await send(method, *arguments)
        if is_modern and method != LIST_METHOD:
            result.setdefault("resultType", "complete")
            check_result(method, result)
        mended = await mend(method, result)
        return LargeResult(mended) if isinstance(result, LargeResult) else mended

    dispatcher.send_raw_request = send_raw_request  # type: ignore[method-assign, assignment]


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


def advertised_extensions(session: mcp.ClientSession, version: str) -> dict[str, Any]:
    """
    Tell which extensions the SDK told the server that this client has; some are for newer revisions only.

    :param session: The session.
    :param version: The revision of the protocol.
    :returns: Their settings, by identifier.
    """
    return session._build_capabilities(version).extensions or {}


def fields_of_later_revisions(method: str, version: str) -> frozenset[str]:
    """
    Tell which fields of a result the SDK drops, because they are of a later revision.

    :param method: The method of the request.
    :param version: The negotiated revision of the protocol.
    :returns: Their names on the wire.
    """
    return _later_revision_fields(method, version)


def describe_validation(error: ValidationError) -> str:
    """
    Say what is wrong with a value, without the value.

    :param error: A validation error of pydantic.
    :returns: How many fields are invalid, and where the first one is.
    """
    first = error.errors(include_input=False, include_url=False)[0]
    if first["type"] == "json_invalid":
        return "it is not JSON"
    place = ".".join(map(str, first["loc"]))
    return f"{error.error_count()} fields are invalid, the first is '{place}' ({first['type']})"


class RedactedRecords(logging.Filter):
    """
    Redacts what libraries log of our sessions; at level DEBUG they quote whole messages and headers of the server.

    A record belongs to a session if it is made in the context of one of its requests, or of a task that was started
    while it was opened.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        """
        Redact a record.

        :param record: The record.
        :returns: True: it is logged.
        """
        outcome = current_outcome.get()
        if outcome is None or outcome.redactor is None:
            return True
        error = record.exc_info[1] if record.exc_info else None
        message = record.getMessage()
        if isinstance(error, Exception):
            redacted = outcome.redactor.error(error)
            if redacted is not error:
                message, record.exc_info = f"{message}: {redacted}", None
        record.msg, record.args = outcome.redactor.text(message), None
        return True


# `mcp.client.session` logs under the name "client".
for _name in ("mcp.client.stdio", "mcp.client.sse", "mcp.client.streamable_http", "mcp.client.client", "client"):
    logging.getLogger(_name).addFilter(_NoQuotedMessages())
    logging.getLogger(_name).addFilter(RedactedRecords())
for _name in ("mcp.client.caching", "mcp.shared.jsonrpc_dispatcher", "mcp.shared.dispatcher"):
    logging.getLogger(_name).addFilter(RedactedRecords())

# Pydantic completes some models of the SDK at their first use, while it holds a lock. A process that is forked in that
# moment could never take the lock, so they are completed before there is a session.
for _model in list(vars(types).values()):
    if isinstance(_model, type) and issubclass(_model, BaseModel) and not _model.__pydantic_complete__:
        _model.model_rebuild()
