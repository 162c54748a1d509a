# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import Enum, auto
from time import monotonic

from haystack_integrations.tools.mcp.redaction import redact_text

# What calls in flight are told when their connection is closed on purpose.
CLOSED_DURING_CALL = "the connection was closed while the tool was running"


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

    def heard(self) -> None:
        """
        Note that the server sent something.
        """
        self.heard_at = monotonic()

    @property
    def has_owner(self) -> bool:
        """
        Whether somebody opens and closes the client for its users, and wants to know of a loss.
        """
        return self._on_lost is not None

    @property
    def is_open(self) -> bool:
        """
        Whether the session takes calls. While it is opened, its client may call tools already.
        """
        return self.state in (SessionState.OPENING, SessionState.OPEN)

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
    Say that the server wants no requests.

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

    def describe(self) -> str:
        """
        Say for how long.

        :returns: A clause.
        """
        return wants_rest(self.seconds)
