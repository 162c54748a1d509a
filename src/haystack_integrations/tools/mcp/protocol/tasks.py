# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls that a server runs as tasks (SEP-2663).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from datetime import datetime
from typing import Any, Final, Literal

import mcp_types as types
from mcp_types.version import LATEST_MODERN_VERSION

from haystack_integrations.tools.mcp.convert.odd_messages import CALL_METHOD, mend_result
from haystack_integrations.tools.mcp.handlers.elicitation import answer_later
from haystack_integrations.tools.mcp.protocol.base import MCPClient
from haystack_integrations.tools.mcp.protocol.error_texts import redacted_result
from haystack_integrations.tools.mcp.protocol.exchange import ProtocolError
from haystack_integrations.tools.mcp.protocol.inputs import CallLeftOpenError, Continuation, Responses, answered
from haystack_integrations.tools.mcp.protocol.listed_tools import InvalidResultError, ListedTools
from haystack_integrations.tools.mcp.protocol.requests_of_server import read_requests

# What some servers leave out, in seconds; and what no server is waited for longer between two questions for a task.
_USUAL_POLL_INTERVAL: Final = 1.0
_LONGEST_POLL_INTERVAL: Final = 60.0
_SHORTEST_POLL_INTERVAL: Final = 0.02


class AnswerRefusedError(Exception):
    """
    Raised when a handler does not answer what a server wants to know, or is not there. The text says which.
    """


class TaskState(types.Result):
    """
    What a server says of a task when it makes one, or is asked.
    """

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    created_at: str | None = None
    ttl_ms: float | None = None
    poll_interval_ms: float | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None

    @property
    def poll_interval(self) -> float:
        """
        How many seconds to wait until the server is asked again.
        """
        if not self.poll_interval_ms:
            return _USUAL_POLL_INTERVAL
        return min(max(self.poll_interval_ms / 1000, _SHORTEST_POLL_INTERVAL), _LONGEST_POLL_INTERVAL)

    @property
    def expires_at(self) -> float | None:
        """
        When the server may forget the task, in seconds since the epoch, if it says so.
        """
        if self.ttl_ms is None or self.created_at is None:
            return None
        try:
            return datetime.fromisoformat(self.created_at).timestamp() + self.ttl_ms / 1000
        except ValueError:
            return None


class TaskClient(MCPClient):
    """
    What a client does with calls that a server does not answer with the result of a tool.
    """

    _tools: ListedTools

    async def _finished(
        self,
        send: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
        continuation: Continuation | None = None,
    ) -> dict[str, Any]:
        """
        Send a call until there is a result of the tool.

        :param send: Sends `tools/call` with the parameters that it gets in addition, as a request of its own each time.
        :param continuation: What to continue a call with that was left open.
        :returns: The result, as in the protocol.
        :raises CallLeftOpenError: If the server has questions that are answered later, or makes a task of the call.
        :raises RequestError: If a request fails, or a handler refuses what the server wants.
        :raises ValidationError: If what the server sent instead of a result is not as in the protocol.
        :raises RuntimeError: If the call cannot be continued, has no end, or has a result of an unknown kind.
        """
        requests = self._server_requests
        seed = await continuation.parameters(requests) if continuation is not None else None
        if not self._is_modern or self._revision is None:
            return await send(seed or {})
        leaves_questions = self.handlers.elicitation is answer_later
        result = await answered(send, requests, seed=seed, leaves_questions=leaves_questions)
        kind = result.get("resultType", "complete")
        if kind == "complete":
            return result
        if kind == "task":
            TaskState.model_validate(result, by_name=False)
            raise CallLeftOpenError(result)
        msg = "the server's answer is of an unknown type"
        raise InvalidResultError(msg)

    async def get_task(self, task_id: str) -> TaskState:
        """
        Ask how a task is.

        :param task_id: The server's name of the task.
        :returns: Its state.
        :raises MCPConnectionError: If that fails.
        """

        async def read() -> TaskState:
            result = await self._request("tasks/get", {"taskId": task_id}, name=task_id)
            return self._parsed("tasks/get", TaskState, {**result, "resultType": "complete"})  # some say "task"

        return await self._read("tasks/get", read)

    async def answer_for_task(self, requests: Mapping[str, Any]) -> Responses:
        """
        Let the handlers answer what a server wants to know for a task.

        :param requests: The requests by their keys, as in the protocol.
        :returns: The responses by the same keys, likewise.
        :raises AnswerRefusedError: If a handler refuses, or is not there.
        :raises ValidationError: If the requests are not what the protocol says.
        """
        callbacks = self._server_requests.callbacks
        wanted = callbacks.wanted()
        try:
            return await self._server_requests.answers(read_requests(requests))
        except ProtocolError as error:
            # Not the server's, as all other errors of this kind are.
            raise AnswerRefusedError(callbacks.advice(wanted, error.code, error.data) or error.message) from None

    async def update_task(self, task_id: str, responses: Responses) -> None:
        """
        Send the server what it wants to know for a task.

        :param task_id: The server's name of the task.
        :param responses: The responses by the keys of the requests, as in the protocol.
        :raises MCPConnectionError: If that fails.
        """
        params = {"taskId": task_id, "inputResponses": responses}
        await self._read("tasks/update", lambda: self._request("tasks/update", params, name=task_id))

    async def task_result(self, tool_name: str, result: dict[str, Any]) -> types.CallToolResult:
        """
        Read the result of a task, and validate it as that of any other call.

        :param tool_name: Name of the tool.
        :param result: The result, as in the protocol.
        :returns: The result.
        :raises RuntimeError: If it violates the output schema of the tool.
        :raises ValidationError: If it is no result of a tool.
        """
        mended = mend_result(CALL_METHOD, self._revision or LATEST_MODERN_VERSION, result)
        read = types.CallToolResult.model_validate(mended.result, by_name=False)
        if read.is_error:
            return redacted_result(read, self.redactor)
        await self._tools.validate(tool_name, read)
        return read
