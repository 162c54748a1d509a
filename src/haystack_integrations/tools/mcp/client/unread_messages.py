# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How the SDK's streamable HTTP transport reads messages: large ones go through it unread, and are read in pieces after.
"""

from __future__ import annotations

from haystack import logging
from mcp import types
from mcp.client import streamable_http
from mcp.types import jsonrpc_message_adapter

from haystack_integrations.tools.mcp.client.large_messages import is_large, parse, parse_large
from haystack_integrations.tools.mcp.client.messages import (
    is_certainly_answer,
    looks_like_answer,
    read_damaged,
    unusable_answer,
)
from haystack_integrations.tools.mcp.client.request_outcome import answered_request, current_outcome

logger: logging.PatchedLogger = logging.getLogger(__name__)


class _MessageReader:
    """
    Reads the messages of the SDK's streamable HTTP transport, for requests of ours also those that the SDK cannot.
    """

    def validate_json(self, data: bytes | str, *, by_name: bool) -> types.JSONRPCMessage:
        if current_outcome.get() is None:  # somebody else uses the SDK
            return jsonrpc_message_adapter.validate_json(data, by_name=by_name)
        request_id = answered_request.get() if isinstance(data, bytes) else None  # events are strings
        # A body that is something else is refused once it is read.
        if is_large(data) and (request_id is not None or is_certainly_answer(data)):
            answer = UnreadAnswer.model_construct(jsonrpc="2.0", id=None, result={})
            answer._data, answer._answered = data, request_id
            return answer
        if is_large(data) and isinstance(data, str):
            other = UnreadMessage.model_construct(jsonrpc="2.0", method="", params=None)
            other._data = data
            return other
        try:
            message = parse(data)
        except ValueError as error:
            messages = read_damaged(data, error)
            if not messages and isinstance(data, str) and not looks_like_answer(data):
                logger.debug("Ignored an event of an MCP server that is no message")
                return IgnoredMessage(jsonrpc="2.0", method="")
            if not messages:
                # Raises what the SDK expects.
                return jsonrpc_message_adapter.validate_json(data, by_name=by_name)
            message = next((each for each in messages if _is_answer(each)), messages[0])
        return message if request_id is None else _checked_body(message, request_id)


class IgnoredMessage(types.JSONRPCNotification):
    """
    Stands for an event that is no message, such as a heartbeat, on its way through the SDK's transport.

    The transport would fail the request in whose event stream it came.
    """


class UnreadAnswer(types.JSONRPCResponse):
    """
    A large answer, on its way through the SDK's streamable HTTP transport, which waits for no reader.

    The transport gives it the id of the request whose event stream it came in, if any.
    """

    _data: bytes | str = ""
    # The request that the body of a response has to answer.
    _answered: types.RequestId | None = None

    async def read(self) -> types.JSONRPCMessage:
        """
        Read the answer in pieces.

        :returns: The answer, or the error that takes its place.
        :raises ValueError: If it cannot be read, and it is not known which request it answers.
        """
        request_id = self._answered if self._answered is not None else self.id
        try:
            message = await _read_large(self._data)
        except ValueError:
            if request_id is None:
                raise
            return unusable_answer(request_id, "the server's answer could not be read as JSON")
        if self._answered is not None or not _is_answer(message):
            return message if request_id is None else _checked_body(message, request_id)
        return message if self.id is None else message.model_copy(update={"id": self.id})


class UnreadMessage(types.JSONRPCNotification):
    """
    A large event that is most likely no answer, on its way through the SDK's streamable HTTP transport.

    The transport reads nothing of notifications.
    """

    _data: str = ""

    async def read(self) -> types.JSONRPCMessage:
        """
        Read the message in pieces.

        :returns: The message.
        :raises ValueError: If it cannot be read.
        """
        return await _read_large(self._data)


async def _read_large(data: bytes | str) -> types.JSONRPCMessage:
    try:
        return await parse_large(data)
    except ValueError as error:
        messages = read_damaged(data, error)
        if not messages:
            raise
        return messages[0]


def _is_answer(message: types.JSONRPCMessage) -> bool:
    return isinstance(message, types.JSONRPCResponse | types.JSONRPCError)


def _checked_body(message: types.JSONRPCMessage, request_id: types.RequestId) -> types.JSONRPCMessage:
    # The SDK leaves a request to its timeout if the body that answers it is not its answer.
    if not isinstance(message, types.JSONRPCResponse | types.JSONRPCError):
        return unusable_answer(request_id, "the server sent another message in place of its answer")
    if message.id is None:  # an error of a server that did not read the id
        return message.model_copy(update={"id": request_id})
    if str(message.id) != str(request_id):
        return unusable_answer(request_id, "the server's answer has the id of another request")
    return message


# The transport takes no reader of its own.
streamable_http.jsonrpc_message_adapter = _MessageReader()  # type: ignore[attr-defined, assignment]
