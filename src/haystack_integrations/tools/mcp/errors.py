# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The exceptions of this package.

.. code-block:: text

    Exception
    ├── MCPError
    │   ├── MCPBudgetExceededError         a model goes on to call tools after its budget is used up
    │   ├── MCPConfigurationError          a configuration of several servers is invalid; also a ValueError
    │   ├── MCPConnectionError             a session could not be opened, or was lost
    │   │   ├── MCPConnectionTimeoutError  not opened within `connection_timeout`; also a TimeoutError
    │   │   └── MCPAuthorizationError      … for lack of credentials that the server accepts
    │   ├── MCPDriftError                  the server's tools are not those of the snapshot
    │   ├── MCPRunError                    a durable run cannot go on here
    │   │   ├── MCPCallInDoubtError        … because a call was sent and has no result: the tool may have run
    │   │   ├── MCPRunChangedError         … because the program is not the one that began it
    │   │   └── MCPRunElsewhereError       … because another process has it
    │   ├── MCPSkillError                  a skill has no such file, or another one than the server said
    │   ├── MCPToolFailedError             a tool call failed, and that is to end the run of the Agent
    │   └── MCPToolNotFoundError           the server has no such tool
    └── haystack ToolInvocationError
        └── MCPInvocationError             a tool call failed
            ├── MCPCallPendingError        … that is left open: its server wants input, or runs it as a task
            ├── MCPCallRefusedError        … that was not made, because a limit is reached
            ├── MCPDriftedCallError        … that was not made, because the server's tools are not those of the snapshot
            ├── MCPOutcomeUnknownError     … and the tool may have run: the call was sent and not answered
            └── MCPTimeoutError            … for lack of time; also a TimeoutError
                └── MCPCallTimeoutError    … after it was sent; also an MCPOutcomeUnknownError

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

    # Whether only this request failed, because of what it was or what the server answered: others may go well.
    _is_of_request: bool = False

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
    Raised when a server refuses the credentials that it got, or wants some and there are none.

    The message names the step that failed.
    """


class MCPConfigurationError(MCPError, ValueError):
    """
    Raised when a configuration of several servers is invalid: an unknown provider or alias, a name that occurs twice.
    """


class MCPBudgetExceededError(MCPError):
    """
    Raised when a model that has used up its tool calls goes on to ask for more.
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
    Raised when what a server says of its tools is not what the snapshot has.
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
    Raised when a skill cannot be used: it has no such file, or the server sent another one than it said before.
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
    Raised when a durable run cannot go on here. It ends the run of an Agent; another process may continue it.
    """


class MCPRunElsewhereError(MCPRunError):
    """
    Raised when a durable run is opened that another process has.
    """


class MCPRunChangedError(MCPRunError):
    """
    Raised when a durable run is continued by a program that does something else than what was recorded.
    """


class MCPCallInDoubtError(MCPRunError):
    """
    Raised when a call of a durable run was sent and has no result, and nothing says that it may be sent again.
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

    The message contains the server's own text. The rest of it never contains an argument value. What the server's text
    quotes of the credentials that it was given, or of values from `inputs_from_state`, is redacted if it has at least
    six characters; in `data`, credentials are. Of a text of more than 10,000 characters the beginning and the end are
    kept, and `data` that is too large to be searched for credentials is replaced by a remark.
    """

    # Whether the tool itself reported it, in an answer with `isError`.
    is_tool_error: bool = False

    # What traces say of it, where its class and its code do not tell: "answered", "did_not_run" or "may_have_run".
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

    The model gets its message.
    """


class MCPCallPendingError(MCPInvocationError):
    """
    Raised when a tool call is left open: its server wants input that nobody can give now, or runs it as a task.

    `MCPConnection.continue_call`, or that of the tool, goes on with `pending_call`, in any process.
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
    Raised when a tool call was not sent, because what the server says of its tools is not what the snapshot has.
    """


class MCPOutcomeUnknownError(MCPInvocationError):
    """
    Raised when a tool call was sent and not answered: the tool may have run.

    Every other MCPInvocationError means that the tool did not run, or that the server answered: with an error of the
    tool, or a refusal. Before such a call is repeated, somebody should look whether its effect is there.
    """

    # If the server runs the call as a task: what `continue_call` goes on with, and `cancel_call` ends.
    pending_call: MCPPendingCall | None = None

    # What happened, without the rest of the message.
    reason: str | None = None

    # Why the session in which it was sent has ended, if it has.
    lost_because: str | None = None


class MCPTimeoutError(MCPInvocationError, TimeoutError):
    """
    Raised when a tool call was not answered within `invocation_timeout`, or got no session within `connection_timeout`.

    If the call was sent, the error is an MCPOutcomeUnknownError, too, and the call was cancelled on the server.
    """


class MCPCallTimeoutError(MCPTimeoutError, MCPOutcomeUnknownError):
    """
    Raised when a tool call was sent and not answered within `invocation_timeout` seconds.
    """


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """
    Return what led to an exception.

    :param error: The exception. anyio groups the failures if a host name has several addresses.
    :returns: The exception, those in it, and their causes.
    """
    if error is not None:
        yield error
        nested = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        for cause in (*nested, error.__cause__ or error.__context__):
            yield from causes(cause)
