# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What the callers of a connection want, how calls are recorded, and what a server answers when it is asked for its tools.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol, TypedDict, TypeVar

from haystack_integrations.tools.mcp.connection.limits import DEFAULT_LIMITS, CallLimits
from haystack_integrations.tools.mcp.errors import (
    MCPCallTimeoutError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)
from haystack_integrations.tools.mcp.executor import OperationCancelledError
from haystack_integrations.tools.mcp.parameters import texts
from haystack_integrations.tools.mcp.protocol.request_errors import with_full_stop

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.handlers.calling import MCPProgress, ProgressCallback
    from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall

E = TypeVar("E", bound=MCPInvocationError)


@dataclass(slots=True, kw_only=True, eq=False)
class CallRequest:
    """
    What the caller of a tool wants. `MCPConnection.call_tool` documents it.
    """

    tool_name: str
    tool_args: dict[str, Any]
    display_name: str
    may_repeat: bool = False
    invocation_timeout: float | None = None
    secrets: Collection[str] = ()
    meta: dict[str, Any] | None = None
    on_progress: ProgressCallback | None = None
    # The tool and the arguments as the caller gave them, if interceptors may have changed them.
    original: tuple[str, dict[str, Any]] | None = None
    # The call to continue, and the answers to its questions.
    continues: tuple[MCPPendingCall, Mapping[str, Any] | None] | None = None
    # Whether a call that becomes a task is left open.
    leaves_tasks: bool = False
    # Gets the call once it can be continued, before anything is waited for.
    on_pending: Callable[[MCPPendingCall], None] | None = None
    # What follows is of the connection that sends it: how long it may take, and how long to wait for sessions
    # altogether, in seconds.
    limits: CallLimits = DEFAULT_LIMITS
    connection_timeout: float = 30.0
    # Called in the executor's loop with each report of progress; must not block.
    report: Callable[[MCPProgress], None] | None = None
    # Asked before each attempt whether it may be sent.
    admission: Admission | None = None

    @property
    def continues_task(self) -> bool:
        """
        Whether the call to continue is a task.
        """
        return self.continues is not None and self.continues[0].task_id is not None

    def error(self, kind: type[E], text: str, **options: Any) -> E:
        """
        Make the error of the call, with the name that its caller knows the tool by.

        :param kind: What is raised.
        :param text: What went wrong.
        :param options: Further parameters of `kind`.
        :returns: The error.
        """
        message = f"Failed to invoke Tool `{self.display_name}`: {text}"
        return kind(message, self.display_name, self.tool_args, **options)


@dataclass(frozen=True, slots=True)
class ToolListing:
    """
    What a server answered when it was asked for its tools.

    :param number: When it was asked, among all listings of the process.
    :param tools: The tools.
    :param caller: On whose behalf: the key of the identity, or None for that of the server info.
    :param generation: The number of the session.
    :param asked_at: When it was asked, in the seconds of `time.monotonic`.
    :param expires_at: Until when the server allows them to be kept, in the same seconds, if it says so.
    :param instructions: What the server said of its use when the session was opened.
    """

    number: int = 0
    tools: list[types.Tool] = field(default_factory=list)
    caller: Any = None
    generation: int = 0
    asked_at: float = 0.0
    expires_at: float | None = None
    instructions: str | None = None


class Admission(Protocol):
    """
    Looks at what the server says of its tools before a call is sent.
    """

    async def refusal(self, tool_name: str, listing: ToolListing) -> str | None:
        """
        Return why a call must not be sent. Awaited in the executor's loop, before each attempt.

        :param tool_name: The server's name of the tool.
        :param listing: The tools of the session in which it would be sent.
        :returns: A sentence; None if it may be sent.
        """


class CallKeywords(TypedDict, total=False):
    """
    What a caller may say of a call. `MCPConnection.call_tool` documents it.
    """

    display_name: str | None
    invocation_timeout: float | None
    secrets: Iterable[str]
    meta: dict[str, Any] | None
    on_progress: ProgressCallback | None
    may_repeat: bool


# The fields of a request that are not of the connection that sends it.
_OF_CALLERS = CallKeywords.__optional_keys__ | {"continues", "leaves_tasks"}


def call_request(
    tool_name: str,
    tool_args: dict[str, Any] | None,
    *,
    display_name: str | None = None,
    secrets: Iterable[str] = (),
    **fields: Any,
) -> CallRequest:
    """
    Make the request of what a caller passed.

    :param tool_name: As in CallRequest.
    :param tool_args: Likewise; None for no arguments.
    :param display_name: Likewise; None if it is that of the tool.
    :param secrets: Likewise.
    :param fields: Further fields.
    :returns: The request.
    :raises TypeError: If a caller may not say one of these.
    """
    for name in fields.keys() - _OF_CALLERS:
        msg = f"call_tool() got an unexpected keyword argument '{name}'"
        raise TypeError(msg)
    return CallRequest(
        tool_name=tool_name,
        tool_args=tool_args if tool_args is not None else {},
        display_name=display_name or tool_name,
        secrets=tuple(texts("secrets", secrets)) if secrets else (),
        **fields,
    )


def executor_failure(error: Exception, request: CallRequest) -> MCPInvocationError:
    """
    Make the error of a call that the executor did not run, or not to its end.

    :param error: An OSError or RuntimeError of the executor, or the TimeoutError of a caller that waited for it.
    :param request: What the caller wants.
    :returns: The error, which says whether the tool may have run.
    """
    kind: type[MCPInvocationError] = MCPInvocationError
    text = f"{with_full_stop(str(error))} The tool did not run."
    if isinstance(error, TimeoutError):
        kind, text = MCPCallTimeoutError, f"{error} (its event loop is blocked). The tool may have run."
    elif isinstance(error, OperationCancelledError):
        kind, text = MCPOutcomeUnknownError, f"{error} The tool may have run."
    return request.error(kind, text)


# How calls are recorded where a durable run is open.


@dataclass(frozen=True, kw_only=True)
class RecordedCall:
    """
    A call of a tool.

    :param request: What is sent.
    :param arguments: The arguments by which the call is recognized: those that the model gave.
    :param secrets: Texts that must not be written down.
    :param may_repeat: Returns whether the tool may run twice. It may ask the server, in the caller's thread.
    :param key_argument: The argument that gets the key of the call, if there is one.
    """

    request: CallRequest
    arguments: dict[str, Any]
    may_repeat: Callable[[], bool]
    secrets: list[str] = field(default_factory=list)
    key_argument: str | None = None


@dataclass(frozen=True)
class Recall:
    """
    A value that is made once in a run, such as a person's decision: the recorded one, or the place for a new one.

    :param is_recorded: Whether it was made before.
    :param result: The recorded value.
    :param record: Records a new value, which must be JSON.
    :param give_back: Frees the place again, if no value could be made.
    """

    is_recorded: bool
    result: Any
    record: Callable[[Any], None]
    give_back: Callable[[], None]


class CallRecorder(ABC):
    """
    Writes down calls before they are sent and results before they are used, and gives those that are written down.
    """

    @abstractmethod
    def recall(self, kind: str, name: str) -> Recall:
        """
        Find what a person decided, or another value that cannot be made again.

        :param kind: "decision" or "value".
        :param name: What it is about.
        :returns: The recorded value, or the place for a new one.
        :raises MCPRunError: If the run cannot go on.
        """

    def listing(self, server: str) -> ToolListing | None:  # noqa: ARG002
        """
        Return the recorded tools of a server, where no server is to be asked.

        :param server: Describes it.
        :returns: The tools; None if the server is to be asked.
        :raises MCPRunError: If they are not recorded.
        """
        return None

    @abstractmethod
    def keep_listing(self, server: str, listing: ToolListing) -> None:
        """
        Note what tools a server has.

        :param server: Describes it.
        :param listing: The tools.
        """

    @abstractmethod
    def deliver(self, call: RecordedCall, send: Callable[[CallRequest], types.CallToolResult]) -> types.CallToolResult:
        """
        Return the recorded result of a call, or send it.

        :param call: The call.
        :param send: Sends it.
        :returns: The result.
        :raises MCPInvocationError: If the call fails, or failed when it was recorded.
        :raises MCPRunError: If the run cannot go on.
        """

    @abstractmethod
    async def deliver_async(
        self, call: RecordedCall, send: Callable[[CallRequest], Awaitable[types.CallToolResult]]
    ) -> types.CallToolResult:
        """
        Return the recorded result of a call, or send it, without blocking the event loop.

        :param call: The call.
        :param send: Sends it.
        :returns: The result.
        """


call_recorder: Final[ContextVar[CallRecorder | None]] = ContextVar("haystack_mcp_call_recorder", default=None)
