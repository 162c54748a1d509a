# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The exceptions of this package.

.. code-block:: text

    Exception
    ├── MCPError
    │   ├── MCPBudgetExceededError         a model continues to call tools after its budget is used up
    │   ├── MCPConfigurationError          a configuration of several servers is invalid; also a ValueError
    │   ├── MCPConnectionError             a session could not be opened, or was lost
    │   │   ├── MCPConnectionTimeoutError  not opened within `connection_timeout`; also a TimeoutError
    │   │   └── MCPAuthorizationError      … because the server accepts none of the credentials
    │   ├── MCPDriftError                  the server's tools are not those of the snapshot
    │   ├── MCPRunError                    a durable run cannot continue in this process
    │   │   ├── MCPCallInDoubtError        … because a call was sent and has no result: the tool may have run
    │   │   ├── MCPRunChangedError         … because the program is not the one that began it
    │   │   └── MCPRunElsewhereError       … because another process is running it
    │   ├── MCPSkillError                  a skill has no such file, or the file is not the one that was described
    │   ├── MCPToolFailedError             a tool call failed, and that ends the run of the Agent
    │   └── MCPToolNotFoundError           the server has no such tool
    └── haystack ToolInvocationError
        └── MCPInvocationError             a tool call failed
            ├── MCPCallPendingError        … or is left open: its server needs input, or runs it as a task
            ├── MCPCallRefusedError        … because a limit is reached; it was not made
            ├── MCPDriftedCallError        … because the server's tools are not those of the snapshot; it was not sent
            ├── MCPOutcomeUnknownError     … and the tool may have run: the call was sent and not answered
            └── MCPTimeoutError            … because a timeout expired; also a TimeoutError
                └── MCPCallTimeoutError    … after the call was sent; also an MCPOutcomeUnknownError

`MCPInvocationError` derives from Haystack's `ToolInvocationError`, not from `MCPError`, so that an Agent turns a failed
call into an error message for the model instead of ending the run.
"""

from __future__ import annotations

import copyreg
from collections.abc import Iterator
from typing import Any

from haystack.tools.errors import ToolInvocationError

from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall

__all__ = [
    "MCPAuthorizationError",
    "MCPBudgetExceededError",
    "MCPCallInDoubtError",
    "MCPCallPendingError",
    "MCPCallRefusedError",
    "MCPCallTimeoutError",
    "MCPConfigurationError",
    "MCPConnectionError",
    "MCPConnectionTimeoutError",
    "MCPDriftError",
    "MCPDriftedCallError",
    "MCPError",
    "MCPInvocationError",
    "MCPOutcomeUnknownError",
    "MCPRunChangedError",
    "MCPRunElsewhereError",
    "MCPRunError",
    "MCPSkillError",
    "MCPTimeoutError",
    "MCPToolFailedError",
    "MCPToolNotFoundError",
]


def _pickled(error: BaseException) -> tuple[Any, ...]:
    # By default, unpickling passes only the message to the constructor.
    return copyreg.__newobj__, (type(error),), {**vars(error), "args": error.args}  # type: ignore[attr-defined]


class MCPError(Exception):
    """
    Base class of errors that concern an MCP server rather than a single tool call.
    """

    def __init__(self, message: str) -> None:
        """
        Initialize the MCPError.

        :param message: Descriptive error message.
        """
        super().__init__(message)
        self.message = message

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle the error with all its fields.
        """
        return _pickled(self)


class MCPConnectionError(MCPError):
    """
    Raised when a session cannot be opened, or when an operation needs a session that was lost.
    """

    # Whether only this request failed, because of its content or the server's answer; other requests may succeed.
    _others_may_succeed: bool = False

    # The text for other callers, whose calls are not sent because of this error; None for the whole message.
    _for_others: str | None = None

    def __init__(
        self,
        message: str,
        server_info: Any = None,
        operation: str | None = None,
        *,
        code: int | None = None,
        data: Any = None,
    ) -> None:
        """
        Initialize the MCPConnectionError.

        :param message: Descriptive error message.
        :param server_info: The MCPServerInfo of the server, if known.
        :param operation: Name of the operation that failed.
        :param code: JSON-RPC error code, if the server answered with a protocol error.
        :param data: The `data` of that protocol error.
        """
        super().__init__(message)
        self.server_info = server_info
        self.operation = operation
        self.code = code
        self.data = data


class MCPConnectionTimeoutError(MCPConnectionError, TimeoutError):
    """
    Raised when a session cannot be opened within `connection_timeout` seconds.
    """


class MCPAuthorizationError(MCPConnectionError):
    """
    Raised when a server refuses the credentials, or requires credentials and there are none.

    The message names the step that failed.
    """


class MCPConfigurationError(MCPError, ValueError):
    """
    Raised when a configuration of several servers is invalid: an unknown provider or alias, a name that occurs twice.
    """


class MCPBudgetExceededError(MCPError):
    """
    Raised when a model has used up its tool calls and continues to request more.
    """

    def __init__(self, message: str, messages: list[Any] | None = None) -> None:
        """
        Initialize the MCPBudgetExceededError.

        :param message: Descriptive error message.
        :param messages: The conversation so far, as ChatMessages, if it is known.
        """
        super().__init__(message)
        self.messages: list[Any] = messages if messages is not None else []


class MCPDriftError(MCPError):
    """
    Raised when a server's tool definitions differ from the snapshot.
    """

    def __init__(self, message: str, report: Any = None) -> None:
        """
        Initialize the MCPDriftError.

        :param message: Descriptive error message.
        :param report: The differences, as an MCPDriftReport.
        """
        super().__init__(message)
        self.report = report


class MCPSkillError(MCPError):
    """
    Raised when a skill cannot be used: it has no such file, or the file is not the one that the server described.
    """

    def __init__(self, message: str, uri: str | None = None) -> None:
        """
        Initialize the MCPSkillError.

        :param message: Descriptive error message.
        :param uri: URI of the skill.
        """
        super().__init__(message)
        self.uri = uri


class MCPToolFailedError(MCPError):
    """
    Raised when a call of a tool with `on_tool_error="raise"` fails. It ends the run of an Agent.

    Its cause is the MCPInvocationError, which says how the call failed.
    """

    def __init__(self, message: str, tool_name: str) -> None:
        """
        Initialize the MCPToolFailedError.

        :param message: Descriptive error message.
        :param tool_name: Name of the tool.
        """
        super().__init__(message)
        self.tool_name = tool_name


class MCPRunError(MCPError):
    """
    Raised when a durable run cannot continue here. It ends the run of an Agent; another process may continue it.
    """


class MCPRunElsewhereError(MCPRunError):
    """
    Raised when a durable run is opened while another process is running it.
    """


class MCPRunChangedError(MCPRunError):
    """
    Raised when a durable run is continued by a program that does not do what was recorded.
    """


class MCPCallInDoubtError(MCPRunError):
    """
    Raised when a call of a durable run was sent and has no result, and nothing allows sending it again.
    """

    def __init__(self, message: str, tool_name: str, number: int) -> None:
        """
        Initialize the MCPCallInDoubtError.

        :param message: Descriptive error message.
        :param tool_name: Name of the tool.
        :param number: Number of the call in the journal.
        """
        super().__init__(message)
        self.tool_name = tool_name
        self.number = number


class MCPToolNotFoundError(MCPError):
    """
    Raised when the server does not have a tool that was requested by name.
    """

    def __init__(self, message: str, tool_name: str, available_tools: list[str] | None = None) -> None:
        """
        Initialize the MCPToolNotFoundError.

        :param message: Descriptive error message.
        :param tool_name: Name of the requested tool.
        :param available_tools: Names of the server's tools, if known.
        """
        super().__init__(message)
        self.tool_name = tool_name
        self.available_tools: list[str] = available_tools if available_tools is not None else []


class MCPInvocationError(ToolInvocationError):
    """
    Raised when a tool call fails: the tool reported an error, the server refused the call, or the session was lost.

    The message contains the server's own text; the rest never contains an argument value. In the server's text,
    credentials that the server was given and values from `inputs_from_state` are redacted if they have at least six
    characters; in `data`, credentials are. If a text has more than 10,000 characters, only its beginning and end are
    kept. `data` that is too large to be searched for credentials is replaced with a remark.
    """

    # Whether the tool itself reported the error, in an answer with `isError`.
    is_tool_error: bool = False

    # The outcome for traces, if class and code do not determine it: "answered", "did_not_run" or "may_have_run".
    _outcome: str | None = None

    def __init__(
        self,
        message: str,
        tool_name: str,
        tool_args: dict[str, Any] | None = None,
        *,
        code: int | None = None,
        data: Any = None,
    ) -> None:
        """
        Initialize the MCPInvocationError.

        :param message: Descriptive error message.
        :param tool_name: Name of the called tool.
        :param tool_args: Arguments of the call.
        :param code: JSON-RPC error code, if the server answered with a protocol error.
        :param data: The `data` of that protocol error.
        """
        super().__init__(message=message, tool_name=tool_name)
        self.message = message
        self.tool_args: dict[str, Any] = tool_args if tool_args is not None else {}
        self.code = code
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle the error with all its fields.
        """
        return _pickled(self)


class MCPCallRefusedError(MCPInvocationError):
    """
    Raised when a tool call was not made, because a `call_budget` is used up or the tool has failed too often.

    The message is sent to the model.
    """


class MCPCallPendingError(MCPInvocationError):
    """
    Raised when a tool call is left open: its server needs input that is not available now, or runs it as a task.

    `continue_call` of the MCPConnection or the tool continues `pending_call`, in any process.
    """

    def __init__(
        self,
        message: str,
        tool_name: str,
        tool_args: dict[str, Any] | None = None,
        *,
        pending_call: MCPPendingCall,
    ) -> None:
        """
        Initialize the MCPCallPendingError.

        :param message: Descriptive error message.
        :param tool_name: Name of the called tool.
        :param tool_args: Arguments of the call.
        :param pending_call: The call.
        """
        super().__init__(message, tool_name, tool_args)
        self.pending_call = pending_call


class MCPDriftedCallError(MCPInvocationError):
    """
    Raised when a tool call was not sent, because the server's tool definitions differ from the snapshot.
    """


class MCPOutcomeUnknownError(MCPInvocationError):
    """
    Raised when a tool call was sent and not answered: the tool may have run.

    Every other MCPInvocationError means that the tool did not run, or that the server answered: with an error of the
    tool, or a refusal. Before repeating a call with an unknown outcome, check whether it had its effect.
    """

    # If the server runs the call as a task: the call for `continue_call` and `cancel_call`.
    pending_call: MCPPendingCall | None = None

    # The reason alone, without the rest of the message.
    reason: str | None = None

    # Why the session in which it was sent has ended, if it has.
    lost_because: str | None = None


class MCPTimeoutError(MCPInvocationError, TimeoutError):
    """
    Raised when a tool call was not answered within `invocation_timeout`, or got no session within `connection_timeout`.

    If the call was sent, the error is also an MCPOutcomeUnknownError, and the call was cancelled on the server.
    """


class MCPCallTimeoutError(MCPTimeoutError, MCPOutcomeUnknownError):
    """
    Raised when a tool call was sent and not answered within `invocation_timeout` seconds.
    """


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """
    Iterate over an exception and its causes.

    :param error: The exception. anyio groups the failures if a host name has several addresses.
    :returns: The exception, the exceptions grouped in it, and the causes of all of them.
    """
    if error is not None:
        yield error
        nested = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        for cause in (*nested, error.__cause__ or error.__context__):
            yield from causes(cause)
