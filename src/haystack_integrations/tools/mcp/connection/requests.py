# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What the callers of a connection want, and what a server answers to the question for its tools.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol, TypedDict, TypeVar

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


def call_request(
    tool_name: str,
    tool_args: dict[str, Any] | None,
    *,
    leaves_tasks: bool = False,
    continues: tuple[MCPPendingCall, Mapping[str, Any] | None] | None = None,
    display_name: str | None = None,
    secrets: Iterable[str] = (),
    meta: dict[str, Any] | None = None,
    on_progress: ProgressCallback | None = None,
    may_repeat: bool = False,
    invocation_timeout: float | None = None,
) -> CallRequest:
    """
    Make the request of what a caller passed. The parameters are the fields of CallRequest.

    :returns: The request.
    """
    return CallRequest(
        tool_name=tool_name,
        tool_args=tool_args if tool_args is not None else {},
        display_name=display_name or tool_name,
        may_repeat=may_repeat,
        invocation_timeout=invocation_timeout,
        secrets=tuple(texts("secrets", secrets)) if secrets else (),
        meta=meta,
        on_progress=on_progress,
        leaves_tasks=leaves_tasks,
        continues=continues,
    )


def call_failed(error: Exception, request: CallRequest) -> MCPInvocationError:
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
