# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Requests of a connection's callers, recorders of calls, and listings of a server's tools.
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


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
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
    # Called before the answers to the questions of a continued call are sent: from then on, its tool may run.
    on_answered: Callable[[], None] | None = None
    # Called in the executor's loop before each attempt is sent; raises if it must not be sent. Must not block.
    before_send: Callable[[], None] | None = None
    # The connection that sends the request sets the fields below: how long it may take, and how long to wait for
    # sessions altogether, in seconds.
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
        Make the error of the call, with the caller's name of the tool.

        :param kind: Class of the error.
        :param text: What went wrong.
        :param options: Further parameters of `kind`.
        :returns: The error.
        """
        message = f"Failed to invoke Tool `{self.display_name}`: {text}"
        return kind(message, self.display_name, self.tool_args, **options)


@dataclass(frozen=True, slots=True)
class ToolListing:
    """
    A server's answer to a request for its tools.

    :param tick: When it was requested, by the logical clock that orders listings and changes (`next_tick`).
    :param tools: The tools.
    :param caller: The key of the identity that requested it; None for the server info's own.
    :param generation: The number of the session.
    :param expires_at: Until when the server allows caching it, in the seconds of `time.monotonic`; None if it does not
        say.
    :param instructions: The instructions that the server gave when the session was opened.
    """

    tick: int = 0
    tools: list[types.Tool] = field(default_factory=list)
    caller: Any = None
    generation: int = 0
    expires_at: float | None = None
    instructions: str | None = None


class Admission(Protocol):
    """
    Checks the server's current tools before a call is sent.
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
    The options of a call. `MCPConnection.call_tool` documents them.
    """

    display_name: str | None
    invocation_timeout: float | None
    secrets: Iterable[str]
    meta: dict[str, Any] | None
    on_progress: ProgressCallback | None
    may_repeat: bool


# The fields that a caller may set; the connection fills in the rest.
_CALLER_FIELDS = CallKeywords.__optional_keys__ | {"continues", "leaves_tasks"}


def call_request(
    tool_name: str,
    tool_args: dict[str, Any] | None,
    *,
    display_name: str | None = None,
    secrets: Iterable[str] = (),
    **fields: Any,
) -> CallRequest:
    """
    Make a request from the arguments of a caller.

    :param tool_name: As in CallRequest.
    :param tool_args: Likewise; None for no arguments.
    :param display_name: Likewise; None for the tool's name.
    :param secrets: Likewise.
    :param fields: Further fields.
    :returns: The request.
    :raises TypeError: If a caller may not set one of these fields.
    """
    for name in fields.keys() - _CALLER_FIELDS:
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
    Make the error of a call that the executor did not run, or did not finish.

    :param error: An OSError or RuntimeError of the executor, or a TimeoutError of the wait for it.
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


# How calls are recorded while a durable run is open.


@dataclass(frozen=True, kw_only=True, repr=False)
class CallToRecord:
    """
    A tool call that is to be recorded.

    :param request: The request to send.
    :param arguments: The arguments by which the call is recognized: those from the model.
    :param secrets: Texts that must not be recorded.
    :param may_repeat: Returns whether the tool may run twice. It may ask the server, in the caller's thread.
    :param key_argument: The argument that gets the key of the call, if there is one.
    :param is_intercepted: Whether interceptors get the call before it is sent.
    """

    request: CallRequest
    arguments: dict[str, Any]
    may_repeat: Callable[[], bool]
    secrets: list[str] = field(default_factory=list)
    key_argument: str | None = None
    is_intercepted: bool = False


@dataclass(frozen=True)
class Recall:
    """
    A value that a run computes only once, such as a person's decision: the recorded one, or the place for a new one.

    :param is_recorded: Whether there is a recorded value.
    :param result: The recorded value.
    :param record: Records a new value, which must be JSON.
    :param free_place: Frees the place if there is no new value.
    """

    is_recorded: bool
    result: Any
    record: Callable[[Any], None]
    free_place: Callable[[], None]


class CallRecorder(ABC):
    """
    Records calls before they are sent and results before they are used, and returns recorded results.
    """

    @abstractmethod
    def recall(self, kind: str, name: str) -> Recall:
        """
        Find a person's decision, or another value that cannot be computed again.

        :param kind: "decision" or "value".
        :param name: What it is about.
        :returns: The recorded value, or the place for a new one.
        :raises MCPRunError: If the run cannot go on.
        """

    def listing(self, server: str) -> ToolListing | None:  # noqa: ARG002
        """
        Return the recorded tools of a server, if the run is played without servers.

        :param server: Describes it.
        :returns: The tools; None if the server is to be asked.
        :raises MCPRunError: If they are not recorded.
        """
        return None

    @abstractmethod
    def keep_listing(self, server: str, listing: ToolListing) -> None:
        """
        Record the tools of a server.

        :param server: Describes it.
        :param listing: The tools.
        """

    @abstractmethod
    def deliver(self, call: CallToRecord, send: Callable[[CallRequest], types.CallToolResult]) -> types.CallToolResult:
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
        self, call: CallToRecord, send: Callable[[CallRequest], Awaitable[types.CallToolResult]]
    ) -> types.CallToolResult:
        """
        Return the recorded result of a call, or send it, without blocking the event loop.

        :param call: The call.
        :param send: Sends it.
        :returns: The result.
        """


call_recorder: Final[ContextVar[CallRecorder | None]] = ContextVar("haystack_mcp_call_recorder", default=None)
