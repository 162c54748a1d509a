# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Limits the calls in flight at one server, and pauses calls to a server that fails repeatedly (a circuit breaker).

.. code-block:: text

    CLOSED ──5 of the last 10 calls failed──> OPEN ──the pause is over──> HALF-OPEN ──a call is answered──> CLOSED
      calls pass                    ^           calls fail at once          calls pass
                                    └─────────── a call failed: twice the pause ┘

    an answer of the server, a tool's own error included          not a failure
    a call that could not be sent, or was given up                says nothing about the server
    a refused token (401, 403), or a request to retry later       likewise
    no session, a broken connection, HTTP 5xx                     a failure
    HTTP 429 without `Retry-After`                                a failure
    a timeout of a call during which the server was silent        a failure

A failed call counts once, however many attempts it made. Failed calls that were in flight at the same time count once:
a server that crashes under fifty calls has failed once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from time import monotonic
from typing import TypeAlias

from haystack import logging

from haystack_integrations.tools.mcp.connection.monitoring import CircuitState
from haystack_integrations.tools.mcp.protocol.request_errors import CallDidNotRunError, with_full_stop

logger: logging.PatchedLogger = logging.getLogger(__name__)

_WINDOW_SIZE = 10
_MAX_FAILURES = 5

# In seconds. A first pause that the user sets may be longer.
_MAX_PAUSE = 60.0


class _WaitedTooLongError(CallDidNotRunError, TimeoutError):
    pass


# The gates in which the running code has a place, because it belongs to a call, or to a handler that answers a question
# during one.
_places_held: ContextVar[tuple[Gate, ...]] = ContextVar("haystack_mcp_places_held", default=())
PlaceHeld: TypeAlias = "Token[tuple[Gate, ...]]"


class Gate:
    """
    Lets calls through to one server. Used in the executor's loop; other threads only read its state.
    """

    def __init__(self, server: str, *, max_in_flight: int | None, pause: float | None) -> None:
        """
        Initialize the Gate.

        :param server: Describes the server in messages.
        :param max_in_flight: How many calls may be in flight; None for any number.
        :param pause: The first pause after repeated failures, in seconds; it doubles as they go on. None for no pauses.
        """
        self._server = server
        self.max_in_flight: int | None = max_in_flight
        self._first_pause = pause
        # How many calls wait for a place.
        self.waiting: int = 0
        self._loop: asyncio.AbstractEventLoop | None = None
        # Failed or not, for each recent call. Stays empty until one fails, so healthy servers cost nothing.
        self.outcomes: deque[bool] = deque(maxlen=_WINDOW_SIZE)
        self._reason = ""
        self._failed_at = 0.0
        # The end of the pause, in the seconds of `time.monotonic`; None while calls are answered.
        self._open_until: float | None = None
        self._pause = pause or 0.0

    @property
    def state(self) -> CircuitState:
        """
        Whether calls pass, as the state of a circuit breaker.
        """
        if self._open_until is None:
            return "closed"
        return "open" if self.retry_in else "half-open"

    @property
    def retry_in(self) -> float:
        """
        How many seconds of the pause are left; 0 without a pause.
        """
        open_until = self._open_until
        return 0.0 if open_until is None else max(open_until - monotonic(), 0.0)

    @contextmanager
    def answering(self) -> Iterator[None]:
        """
        Let a handler's own calls pass without a place: the call that it answers for has one, and waits for the handler.

        :returns: A context manager.
        """
        token = _places_held.set((*_places_held.get(), self))
        try:
            yield
        finally:
            _places_held.reset(token)

    async def enter(self, timeout: float | None) -> PlaceHeld | None:
        """
        Wait until a call may pass. Call this in the call's own context.

        :param timeout: How long to wait, in seconds; None for no limit.
        :returns: The place of the call, to be passed to `leave`. None if it needs no place, e.g. inside another call.
        :raises CallDidNotRunError: If it may not pass.
        """
        self._check_pause()  # also before the wait for a place, which may be long
        if self.max_in_flight is None or self in _places_held.get():
            return None
        loop = asyncio.get_running_loop()
        if self._loop is not loop:  # the calls in flight belonged to a loop that is gone, or to the parent of a fork
            self._loop, self._places, self.waiting = loop, asyncio.Semaphore(self.max_in_flight), 0
        self.waiting += 1
        try:
            async with asyncio.timeout(timeout):
                await self._places.acquire()
        except TimeoutError:
            msg = (
                f"no place became free among the {self.max_in_flight} calls that may be in flight at "
                f"{self._server} (`max_in_flight`)"
            )
            raise _WaitedTooLongError(msg, denied=True) from None
        finally:
            self.waiting -= 1
        place = _places_held.set((*_places_held.get(), self))
        try:
            self._check_pause()
        except CallDidNotRunError:
            self.leave(place)
            raise
        return place

    def _check_pause(self) -> None:
        if seconds := self.retry_in:
            failed = f"{sum(self.outcomes)} of the last {len(self.outcomes)} calls of it failed"
            remaining = f"for another {seconds:.1f} s"
            msg = f"{self._server} is left alone {remaining}, since {failed}. The last one: {self._reason}"
            raise CallDidNotRunError(msg, denied=True)

    def leave(self, place: PlaceHeld) -> None:
        """
        Give back the place of a call. Call this in the call's own context.

        :param place: What `enter` returned.
        """
        _places_held.reset(place)
        self._places.release()

    def answered(self) -> None:
        """
        Note that the server answered a call.
        """
        if self._open_until is not None:
            logger.info("{server} answers again", server=self._server)
            self._open_until, self._pause = None, self._first_pause or 0.0
            self.outcomes.clear()
        elif self.outcomes:
            self.outcomes.append(False)
            if not any(self.outcomes):
                self.outcomes.clear()

    def failed(self, reason: str, entered_at: float) -> None:
        """
        Note that a call failed because of the server.

        :param reason: Why, without secrets.
        :param entered_at: When the call passed the gate, in the seconds of `time.monotonic`.
        """
        if self._first_pause is None or entered_at < self._failed_at:
            return
        self._failed_at = monotonic()
        self.outcomes.append(True)
        self._reason = with_full_stop(reason)
        if self._open_until is not None:
            self._pause = min(self._pause * 2, max(_MAX_PAUSE, self._first_pause))
        elif sum(self.outcomes) < _MAX_FAILURES:
            return
        self._open_until = monotonic() + self._pause
        logger.warning(
            "{server} is left alone for {seconds:.1f} s, since {failed} of the last {calls} calls failed: {reason}",
            server=self._server,
            seconds=self._pause,
            failed=sum(self.outcomes),
            calls=len(self.outcomes),
            reason=self._reason,
        )
