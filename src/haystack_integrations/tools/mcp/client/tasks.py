# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import mcp
from mcp import MCPError as ProtocolError
from mcp import types
from pydantic import TypeAdapter

from haystack_integrations.tools.mcp.client.large_results import validated_call_result
from haystack_integrations.tools.mcp.client.listening import ListeningClient
from haystack_integrations.tools.mcp.client.pending import (
    TASKS_EXTENSION,
    AnswerRefusedError,
    TaskRequest,
    TasksExtension,
    TaskState,
    answered,
    read_requests,
)
from haystack_integrations.tools.mcp.protocol.error_texts import redacted_result
from haystack_integrations.tools.mcp.protocol.result_validation import InvalidResultError, ResultValidation

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.handlers.callbacks import Callbacks

_RESPONSES: TypeAdapter[dict[str, types.InputResponse]] = TypeAdapter(dict[str, types.InputResponse])


class TaskClient(ListeningClient):
    """
    What a client on top of the MCP SDK does with calls that a server runs as tasks (SEP-2663).
    """

    _validation: ResultValidation
    _callbacks: Callbacks | None

    def _with_tasks(self, options: dict[str, Any]) -> dict[str, Any]:
        """
        Tell servers that they may run calls as tasks, unless an extension of the user says so.
        """
        extensions = options.get("extensions", [])
        if any(extension.identifier == TASKS_EXTENSION for extension in extensions):
            return options
        return {**options, "extensions": [*extensions, TasksExtension()]}

    async def get_task(self, task_id: str) -> TaskState:
        """
        Ask how a task is.

        :param task_id: The server's name of the task.
        :returns: Its state.
        :raises MCPConnectionError: If that fails.
        """
        return await self._read("tasks/get", lambda sdk: _send(sdk, "tasks/get", {"taskId": task_id}, TaskState))

    async def cancel_task(self, task_id: str) -> None:
        """
        Ask the server to end a task.

        :param task_id: The server's name of the task.
        :raises MCPConnectionError: If that fails.
        """
        await self._read("tasks/cancel", lambda sdk: _send(sdk, "tasks/cancel", {"taskId": task_id}, types.Result))

    async def answer_for_task(self, requests: Mapping[str, Any]) -> dict[str, types.InputResponse]:
        """
        Let the handlers answer what a server wants to know for a task.

        :param requests: The requests, as in the protocol.
        :returns: The responses by the same keys.
        :raises AnswerRefusedError: If a handler refuses, or is not there.
        :raises ValidationError: If the requests are not what the protocol says.
        """
        read = read_requests(requests)

        async def answer(sdk: mcp.Client) -> dict[str, types.InputResponse]:
            callbacks = self._callbacks
            wanted = callbacks.wanted() if callbacks is not None else {}
            try:
                return await answered(sdk.session, read)
            except ProtocolError as error:
                advice = callbacks.advice(wanted, error.code, error.data) if callbacks is not None else None
                # Not the server's, as all other errors of this kind are.
                raise AnswerRefusedError(advice or error.message) from None

        return await self._read("tasks/update", answer)

    async def update_task(self, task_id: str, responses: dict[str, types.InputResponse]) -> None:
        """
        Send the server what it wants to know for a task.

        :param task_id: The server's name of the task.
        :param responses: The responses by the keys of the requests.
        :raises MCPConnectionError: If that fails.
        """
        sent = _RESPONSES.dump_python(responses, by_alias=True, mode="json", exclude_none=True)
        params = {"taskId": task_id, "inputResponses": sent}
        await self._read("tasks/update", lambda sdk: _send(sdk, "tasks/update", params, types.Result))

    async def task_result(self, tool_name: str, result: dict[str, Any]) -> types.CallToolResult:
        """
        Read the result of a task, and validate it as that of any other call.

        :param tool_name: Name of the tool.
        :param result: The result, as in the protocol.
        :returns: The result.
        :raises RuntimeError: If it violates the output schema of the tool, or is too large to be validated.
        :raises ValidationError: If it is no result of a tool.
        """
        try:
            read = await validated_call_result(result)
        except ProtocolError as error:  # not the server's
            raise InvalidResultError(error.message) from None
        if read.is_error:
            return redacted_result(read, self._redactor_now())
        await self._validation.validate(tool_name, read)
        return read


async def _send(sdk: mcp.Client, method: str, params: dict[str, Any], result_type: Any) -> Any:
    return await sdk.session.send_request(TaskRequest(method=method, params=params), result_type)
