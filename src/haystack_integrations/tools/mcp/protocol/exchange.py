# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One request to a server, the session that it is made in, and what became of both.

.. code-block:: text

    NEW ──mark_sent()──> SENT ──a result, a ProtocolError──> ANSWERED
     │                    ├─────a LostError────────────────> LOST       it may have run
     │                    └─────a RefusedError, by a proof─┐
     └──lose(), a RefusedError─────────────────────────────┴> REFUSED   it did not run
     └── either of them ──give_up()────────────────────────> GIVEN_UP   nobody waits any more

A fate only moves forward: what comes second changes nothing.
"""

from __future__ import annotations

import asyncio
import contextvars
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from time import monotonic
from typing import Any, ClassVar, Final, TypeAlias

from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.redaction import redact_text

# Where the parameters of a request name what it is about.
_NAMES: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
    "tasks/result": "taskId",
}


class Fate(Enum):
    """
    What became of a request.
    """

    NEW = auto()
    # A byte of it may have left.
    SENT = auto()
    ANSWERED = auto()
    # It did not run.
    REFUSED = auto()
    # It may have run, and nobody will answer it.
    LOST = auto()
    GIVEN_UP = auto()


class RequestError(Exception):
    """
    Base class of what a request can fail with.

    :param reason: What happened, as a clause; the empty string if that is why the session ended.
    :param status: The HTTP status with its reason phrase, e.g. "401 Unauthorized", if one says so.
    """

    # What has become of the request.
    fate: ClassVar[Fate]

    def __init__(self, reason: str, *, status: str | None = None) -> None:
        """
        Initialize the RequestError.
        """
        super().__init__(reason)
        self.reason: str = reason
        self.status: str | None = status


class ProtocolError(RequestError):
    """
    Raised for a request that the server answered with a JSON-RPC error.

    :param code: The code of the error.
    :param message: Its message.
    :param data: Its data.
    """

    fate = Fate.ANSWERED

    def __init__(self, code: int, message: str, data: Any = None, *, status: str | None = None) -> None:
        """
        Initialize the ProtocolError.
        """
        super().__init__(message, status=status)
        self.code: int = code
        self.message: str = message
        self.data: Any = data


class RefusedError(RequestError):
    """
    Raised for a request that provably did not run: it never left, or the server's refusal proves it.

    :param is_final: Whether the server would refuse the same request again.
    :param is_unauthorized: Whether no access token could be had.
    """

    fate = Fate.REFUSED

    def __init__(
        self, reason: str, *, status: str | None = None, is_final: bool = False, is_unauthorized: bool = False
    ) -> None:
        """
        Initialize the RefusedError.
        """
        super().__init__(reason, status=status)
        self.is_final: bool = is_final
        self.is_unauthorized: bool = is_unauthorized


class LostError(RequestError):
    """
    Raised for a request that was sent and will not be answered. It may have run.
    """

    fate = Fate.LOST


class UnreadableError(LostError):
    """
    Raised for a request whose answer came, and cannot be used.
    """


class CallDidNotRunError(MCPConnectionError):
    """
    Raised when a tool call provably did not run, so that it may be sent again.
    """

    def __init__(self, message: str, *, denied: bool = False) -> None:
        """
        Initialize the CallDidNotRunError.

        :param message: What went wrong.
        :param denied: Whether the server would refuse it again.
        """
        super().__init__(message, operation="call_tool")
        self.denied = denied
        # Why the session in which it was to be sent has ended, if it has.
        self.lost_because: str | None = None


class ReadInterruptedError(MCPConnectionError):
    """
    Raised when the connection broke while something was read, so that it may be read again.
    """

    # Whether the server may have got the request.
    was_sent: bool = True


# Called with progress, total and message of each report of progress.
OnProgress: TypeAlias = Callable[[float, float | None, str | None], None]


@dataclass(slots=True, eq=False, repr=False)
class Exchange:
    """
    One request: what is sent, who waits for the answer, and its fate. To be used in the loop that made it.

    :param id: Its id, unique in the session.
    :param method: Its method.
    :param params: Its parameters with their `_meta`, as they are sent.
    :param version: The revision of the protocol in which it is made; None for `initialize`.
    :param headers: Further HTTP headers of it, such as `Mcp-Param-…`.
    :param on_progress: Called with each report of progress.
    """

    id: int
    method: str
    params: dict[str, Any] | None = None
    version: str | None = None
    headers: Mapping[str, str] | None = None
    on_progress: OnProgress | None = None
    # What the server wants while it is answered is done on behalf of the same caller.
    context: contextvars.Context = field(init=False, default_factory=contextvars.copy_context)
    fate: Fate = field(init=False, default=Fate.NEW)
    answer: asyncio.Future[dict[str, Any]] = field(init=False, default_factory=asyncio.Future)

    @property
    def name(self) -> str | None:
        """
        What it is about, for the header `Mcp-Name`: a tool, a prompt, a URI or a task.
        """
        about = (self.params or {}).get(_NAMES.get(self.method, ""))
        return about if isinstance(about, str) else None

    @property
    def is_settled(self) -> bool:
        """
        Whether its fate is final.
        """
        return self.fate is not Fate.NEW and self.fate is not Fate.SENT

    def mark_sent(self) -> None:
        """
        Note that from now on a byte of it may have left.
        """
        if self.fate is Fate.NEW:
            self.fate = Fate.SENT

    def unmark_sent(self) -> None:
        """
        Take that back, by a proof that the server did not process it: it is going to be sent again.
        """
        if self.fate is Fate.SENT:
            self.fate = Fate.NEW

    def settle(self, outcome: dict[str, Any] | RequestError) -> None:
        """
        Settle it, if it is not settled yet.

        :param outcome: The result that came, or why there is none.
        """
        if self.fate is not Fate.NEW and self.fate is not Fate.SENT:
            return
        if isinstance(outcome, RequestError):
            self.fate = outcome.fate
            if not self.answer.done():
                self.answer.set_exception(outcome)
        else:
            self.fate = Fate.ANSWERED
            if not self.answer.done():
                self.answer.set_result(outcome)

    def lose(self, reason: str = "", *, status: str | None = None) -> None:
        """
        Settle it as one that is not answered any more; one that was never sent did not run.

        :param reason: Why, as a clause; the empty string if that is why the session ended.
        :param status: The HTTP status that says so.
        """
        kind = RefusedError if self.fate is Fate.NEW else LostError
        self.settle(kind(reason, status=status))

    def give_up(self) -> None:
        """
        Note that nobody waits for it any more.
        """
        if not self.is_settled:
            self.fate = Fate.GIVEN_UP
            self.answer.cancel()


# What calls in flight are told when their connection is closed on purpose.
CLOSED_DURING_CALL = "the connection was closed before the answer came"


class SessionState(Enum):
    """
    State of a session.
    """

    NEW = auto()
    OPENING = auto()
    OPEN = auto()
    # Takes no new calls; those in flight may still be answered.
    DRAINING = auto()
    # Ended by itself; what is left of it is to be closed.
    LOST = auto()
    # Ended by its owner.
    CLOSED = auto()


# While a session is opened, its client may call tools already.
TAKES_CALLS: Final = (SessionState.OPENING, SessionState.OPEN)


class SessionLife:
    """
    The life of one session: its state, and why it ended.

    .. code-block:: text

        NEW ──opening()──> OPENING ──opened()──> OPEN ──end(DRAINING)──> DRAINING
         │                    │                   │                         │
         └────────────────────┴── end(LOST) ──────┴─────────────────────────┴──> LOST
         └────────────────────┴── end(CLOSED) ────┴─────────────────────────┴──> CLOSED

    Nothing else ends a session than `end`, and nothing else says why: the transport that reads the end of its stream,
    the HTTP client that learns that the server forgot the session, a transport that crashes, and `close()` all call it.
    The first reason that is given stays. To be used in the event loop of the session.
    """

    def __init__(self, on_lost: Callable[[str], None] | None = None) -> None:
        """
        Initialize the SessionLife.

        :param on_lost: Called once, with the reason, when that is known of a session that its owner did not close.
        """
        self.state: SessionState = SessionState.NEW
        self.reason: str | None = None
        # Set when the session is to be closed.
        self.over: asyncio.Event = asyncio.Event()
        # What the reason passes through: it may quote the server. Replaced by a client that knows secrets.
        self.redact: Callable[[str], str] = redact_text
        # When the server was last heard, whatever it sent, in the seconds of `time.monotonic`.
        self.heard_at: float = 0.0
        self._on_lost = on_lost
        # Whether somebody opens and closes the client for its users, and wants to know of a loss.
        self.has_owner: bool = on_lost is not None

    def heard(self) -> None:
        """
        Note that the server sent something.
        """
        self.heard_at = monotonic()

    @property
    def is_open(self) -> bool:
        """
        Whether the session takes calls.
        """
        return self.state in TAKES_CALLS

    @property
    def loss(self) -> str | None:
        """
        Why the session ended by itself, or None: it did not, or the reason is not known yet.
        """
        return None if self.state is SessionState.CLOSED else self.reason

    def opening(self) -> None:
        """
        Note that the session is being opened, perhaps again after a failure.

        :raises asyncio.CancelledError: If its owner has closed it meanwhile.
        """
        if self.state is SessionState.CLOSED:
            raise asyncio.CancelledError
        self.state = SessionState.OPENING
        self.reason = None
        self.over.clear()

    def opened(self) -> None:
        """
        Note that it takes calls now, unless it has ended.
        """
        if self.state is SessionState.OPENING:
            self.state = SessionState.OPEN

    def end(self, reason: str | None = None, state: SessionState = SessionState.LOST) -> None:
        """
        End the session.

        :param reason: Why; None if that has still to be found out. The first reason stays.
        :param state: LOST, CLOSED, or DRAINING if calls in flight may still be answered.
        """
        before = self.state
        if before is SessionState.OPENING and state is SessionState.DRAINING:
            state = SessionState.LOST  # there are no calls
        if before not in (SessionState.LOST, SessionState.CLOSED):
            self.state = state
        if before is SessionState.LOST and state is SessionState.CLOSED:
            reason = None  # that it is closed now does not say why it was lost
        is_new = self.reason is None and reason is not None
        if reason is not None and is_new:
            self.reason = self.redact(reason)
        if self.state is not SessionState.DRAINING:
            self.over.set()
        if is_new and self._on_lost is not None and self.loss is not None:
            self._on_lost(self.loss)


# How long what is no call of a tool waits for a server that is too busy, in seconds. It has timeouts of its own.
LONGEST_REST_OF_OTHERS = 30.0


def wants_rest(seconds: float) -> str:
    """
    Return the clause that the server wants no requests.

    :param seconds: For how long.
    :returns: A clause.
    """
    return f"the server wants no requests for {seconds:.3g} s"


class ServerRest:
    """
    For how long a server wants to get no requests (HTTP 429 and 503 with `Retry-After`).

    It outlasts the session in which the server said so.
    """

    def __init__(self) -> None:
        """
        Initialize the ServerRest: none.
        """
        # In the seconds of `time.monotonic`.
        self.until: float = 0.0

    @property
    def seconds(self) -> float:
        """
        For how many seconds from now; 0 if it takes requests.
        """
        return max(self.until - monotonic(), 0.0)
