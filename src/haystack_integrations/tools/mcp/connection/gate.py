# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which calls go to a server now: as many as it may have in flight, and none for a while if it fails again and again.

.. code-block:: text

    CLOSED ──5 of the last 10 calls failed──> OPEN ──the pause is over──> HALF-OPEN ──the probe is answered──> CLOSED
      calls pass                    ^           calls fail at once          one call passes, the others wait for it
                                    └─────────── the probe failed: twice the pause ┘

    what a server answers, an error of the tool included          not a failure
    what the client cannot send, or nobody waits for any more     says nothing of the server
    a refused token (401, 403), and a plea to come later          likewise
    no session, a broken connection, HTTP 5xx                     a failure
    HTTP 429 without `Retry-After`                                a failure
    a timeout of a call during which the server was silent        a failure

What the server wants of a handler, or tells of the probe's progress, is an answer, too: the handler may call the server
again, and must not wait for the end of the call in which it runs. For the same reason, a call that is made inside of
another one passes with it, and so does one that is made by a handler: before revision 2026-07-28 nobody knows for which
call the server asks.

A session that opens ends the pause of a server that could not be reached, not that of one whose calls failed: a server
may accept all sessions and crash at each call.

A failed call counts once, with all its attempts, and so do all calls that were in flight at the same time: a server
that crashes under fifty calls has failed once.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from time import monotonic

from haystack import logging

from haystack_integrations.tools.mcp.connection.monitoring import CircuitState
from haystack_integrations.tools.mcp.protocol.error_texts import with_full_stop
from haystack_integrations.tools.mcp.protocol.exchange import CallDidNotRunError

logger: logging.PatchedLogger = logging.getLogger(__name__)

_REMEMBERED = 10
_MOST_FAILURES = 5

# In seconds, unless the user wants the first pause to be longer.
_LONGEST_PAUSE = 60.0


class _WaitedTooLongError(CallDidNotRunError, TimeoutError):
    pass


class Passage:
    """
    A call on its way through a gate, once for each attempt.

    What is called in its context, such as a function of the user, is known to be part of it.
    """

    __slots__ = ("_around", "_gate", "_is_in", "_is_inner")

    def __init__(self, gate: Gate) -> None:
        """
        Initialize the Passage, in the context of the call.

        :param gate: The gate.
        """
        self._gate = gate
        self._around = _passages.get()
        self._is_in = self._is_inner = False
        _passages.set((*self._around, self))

    async def enter(self, patience: float | None) -> None:
        """
        Wait until the call may pass, which it may at once inside of one that has.

        :param patience: As for the gate.
        :raises CallDidNotRunError: If it may not pass.
        """
        self._is_inner = any(each._gate is self._gate and each._is_in for each in self._around)
        if not self._is_inner:
            await self._gate.enter(patience)
        self._is_in = True

    def leave(self) -> None:
        """
        Note that the attempt is over, if there is one.
        """
        if self._is_in and not self._is_inner:
            self._gate.leave()
        self._is_in = False


# The calls around the running one, outermost first.
_passages: ContextVar[tuple[Passage, ...]] = ContextVar("haystack_mcp_passages", default=())


@contextmanager
def answering(gate: Gate) -> Iterator[None]:
    """
    Let the calls pass that a handler makes, until it has ended.

    The call for which the server asks has passed, and does not end before the handler does.

    :param gate: The gate.
    :returns: A context manager.
    """
    passage = Passage(gate)
    passage._is_in = passage._is_inner = True
    try:
        yield
    finally:
        passage.leave()
        _passages.set(passage._around)


class Gate:
    """
    Lets calls through to one server. To be used in the executor's loop; other threads only read its state.
    """

    def __init__(self, server: str, *, max_in_flight: int | None, pause: float | None) -> None:
        """
        Initialize the Gate.

        :param server: Describes the server in messages.
        :param max_in_flight: How many calls may be in flight; None for any number.
        :param pause: For how many seconds a server that fails again and again is left alone first; None for never.
        """
        self._server = server
        self.max_in_flight: int | None = max_in_flight
        self._first_pause = pause
        self._loop: asyncio.AbstractEventLoop | None = None
        self.reset()

    def reset(self) -> None:
        """
        Forget everything, as in a process or a loop that is new.
        """
        self.state: CircuitState = "closed"
        # How many calls wait until there are fewer in flight.
        self.waiting: int = 0
        self._places = None if self.max_in_flight is None else asyncio.Semaphore(self.max_in_flight)
        # Whether each of the last calls failed; empty as long as none did.
        self.outcomes: deque[bool] = deque(maxlen=_REMEMBERED)
        self._reason = ""
        self._failed_at = self._open_until = 0.0
        self._pause = self._first_pause or 0.0
        # By the call because of which it is left alone.
        self._was_reached = True
        self._probe: asyncio.Task[object] | None = None
        self._is_probed = asyncio.Event()

    @property
    def is_probe(self) -> bool:
        """
        Whether the running task makes the call that finds out whether the server answers again.
        """
        return self._probe is not None and self._probe is asyncio.current_task()

    @property
    def retry_in(self) -> float | None:
        """
        For how many seconds the server is still left alone; None if it is not.
        """
        return max(self._open_until - monotonic(), 0.0) if self.state == "open" else None

    async def enter(self, patience: float | None) -> None:
        """
        Wait until a call may pass. Who enters leaves.

        :param patience: For how many seconds; None for as long as it takes.
        :raises CallDidNotRunError: If it may not pass.
        """
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:  # what was in flight was so in a loop that is gone, or before a fork
                self.reset()
            self._loop = loop
        deadline = None if patience is None else loop.time() + patience
        self._check_left_alone()  # before the wait for a place, too, which may be long
        if self._places is not None:
            await self._take_place(self._places, deadline)
        try:
            await self._pass_circuit(deadline)
        except BaseException:
            self.leave()
            raise

    async def _take_place(self, places: asyncio.Semaphore, deadline: float | None) -> None:
        self.waiting += 1
        try:
            async with asyncio.timeout_at(deadline):
                await places.acquire()
        except TimeoutError:
            msg = (
                f"no place became free among the {self.max_in_flight} calls that may be in flight at "
                f"{self._server} (`max_in_flight`)"
            )
            raise _WaitedTooLongError(msg, denied=True) from None
        finally:
            self.waiting -= 1

    def _check_left_alone(self) -> None:
        if seconds := self.retry_in:
            how_long = f"for another {seconds:.1f} s"
            raise self._left_alone(how_long)

    async def _pass_circuit(self, deadline: float | None) -> None:
        while self.state != "closed":
            self._check_left_alone()
            if self.state == "open":
                self.state, self._probe = "half-open", asyncio.current_task()
                self._is_probed.clear()
                return
            try:
                async with asyncio.timeout_at(deadline):
                    await self._is_probed.wait()
            except TimeoutError:
                how_long = "until another call shows that it is back"
                raise self._left_alone(how_long) from None

    def _left_alone(self, how_long: str) -> CallDidNotRunError:
        failed = f"{sum(self.outcomes)} of the last {len(self.outcomes)} calls of it failed"
        return CallDidNotRunError(
            f"{self._server} is left alone {how_long}, since {failed}. The last one: {self._reason}", denied=True
        )

    def leave(self) -> None:
        """
        Note that a call which entered is over.
        """
        if self.is_probe:
            self._end_probe("open")  # it says nothing of the server, so the next one is the probe
        if self._places is not None:
            self._places.release()

    def answered(self) -> None:
        """
        Note that the server answered a call.
        """
        if self.state == "closed":
            self.outcomes.append(False)
            if not any(self.outcomes):
                self.outcomes.clear()
        elif self.is_probe:  # otherwise it was sent before the others failed
            self._is_back()

    def _is_back(self) -> None:
        logger.info("{server} answers again", server=self._server)
        self.outcomes.clear()
        self._pause = self._first_pause or 0.0
        self._end_probe("closed")

    def heard(self, prober: asyncio.Task[object] | None = None) -> None:
        """
        Note that the server wants something of a handler, or reports the progress of a call.

        :param prober: The task that makes the call; None if that is not known.
        """
        if self.state == "half-open" and prober in (None, self._probe):
            self._is_back()

    def failed(self, reason: str, entered_at: float, *, was_reached: bool = True) -> None:
        """
        Note that a call failed because of the server.

        :param reason: Why, without secrets.
        :param entered_at: Since when it was under way, in the seconds of `time.monotonic`.
        :param was_reached: Whether the call reached the server.
        """
        if self._first_pause is None or entered_at < self._failed_at:
            return
        self._failed_at = monotonic()
        self.outcomes.append(True)
        self._reason = with_full_stop(reason)
        if self.is_probe:
            self._pause = min(self._pause * 2, max(_LONGEST_PAUSE, self._first_pause))
        elif self.state != "closed" or sum(self.outcomes) < _MOST_FAILURES:
            return
        self._open_until = monotonic() + self._pause
        self._was_reached = was_reached
        logger.warning(
            "{server} is left alone for {seconds:.1f} s, since {failed} of the last {calls} calls failed: {reason}",
            server=self._server,
            seconds=self._pause,
            failed=sum(self.outcomes),
            calls=len(self.outcomes),
            reason=self._reason,
        )
        self._end_probe("open")

    def session_opened(self) -> None:
        """
        Note that the server was reached, without a call.

        If it is left alone because it could not be reached, the next call finds out whether it answers again, without
        waiting for the end of the pause.
        """
        if not self._was_reached:
            self._open_until = monotonic()

    def _end_probe(self, state: CircuitState) -> None:
        self.state, self._probe = state, None
        self._is_probed.set()
