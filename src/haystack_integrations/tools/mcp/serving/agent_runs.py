# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from haystack.dataclasses import ChatMessage, StreamingChunk

from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from haystack_integrations.tools.mcp.run_observers import agent_observer, continued_agent
from haystack_integrations.tools.mcp.serving.approvals import Approvals, Pause, current_approvals
from haystack_integrations.tools.mcp.serving.progress import ProgressReporter
from haystack_integrations.tools.mcp.serving.served_tool import ServedCall


class AgentRun:
    """
    One run of an Agent: says what it does, and ends it if nobody waits for it any more.
    """

    def __init__(self, agent: Any, progress: ProgressReporter, approvals: Approvals, *, runs_async: bool) -> None:
        """
        Initialize the AgentRun.

        :param agent: An observed Agent.
        :param progress: Where steps, tool calls and text are reported.
        :param approvals: Who decides about tool calls.
        :param runs_async: Whether it runs in the event loop; otherwise in a thread.
        """
        self._agent = agent
        self._progress = progress
        self._runs_async = runs_async
        self._approvals = approvals
        self._is_abandoned = threading.Event()
        self._resumed: Pause | None = None
        # Of the step that is under way.
        self._data: dict[str, Any] = {}
        self._steps = self._steps_before = 0
        self._replies: list[ChatMessage] = []

    async def run(self, inputs: dict[str, Any], call: ServedCall) -> dict[str, Any] | Pause:
        """
        Run the Agent.

        :param inputs: The parameters of `Agent.run`.
        :param call: The call that waits for it.
        :returns: The outputs; a pause if tool calls have to be approved before it can go on.
        """
        if self._progress.is_wanted:
            inputs = {**inputs, "streaming_callback": self._callback()}
        try:
            if self._runs_async:
                with self._observing():
                    return dict(await self._agent.run_async(**inputs))
            return await call.in_thread(self._run, inputs)
        except _PausedError:
            questions = tuple(self._approvals.pending.values())
            approvals = self._approvals
            return Pause(self._data, self._steps, self._replies, questions, approvals.verdicts, salt=approvals.salt)
        finally:
            # What a thread does cannot be stopped; but it takes no further step.
            self._is_abandoned.set()
            self._approvals.close()

    async def go_on(self, pause: Pause, inputs: dict[str, Any], call: ServedCall) -> dict[str, Any] | Pause:
        """
        Go on with a run that was paused.

        :param pause: The pause, with all verdicts.
        :param inputs: The parameters of the run.
        :param call: The call that waits for it.
        :returns: As `run`.
        """
        self._agent = continued_agent(self._agent, pause.data, pause.steps)
        self._resumed = pause
        # Haystack 3 restores the number of steps, Haystack 2 counts from zero again.
        self._steps_before = 0 if HAS_HOOKS else pause.steps
        return await self.run({**inputs, **pause.data}, call)

    def _run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        with self._observing():
            return dict(self._agent.run(**inputs))

    @contextmanager
    def _observing(self) -> Iterator[None]:
        observing, approving = agent_observer.set(self), current_approvals.set(self._approvals)
        try:
            yield
        finally:
            agent_observer.reset(observing)
            current_approvals.reset(approving)

    def before_model(self, data: dict[str, Any], steps: int) -> dict[str, Any] | None:
        """
        Report a step.

        :param data: What the State has.
        :param steps: How many steps the run has taken.
        :returns: What the model replied before the run was paused, if it was.
        """
        self._check()
        self._data, self._steps = data, steps + self._steps_before
        if self._resumed is not None:
            return {"replies": self._resumed.replies}
        self._progress.step(f"Step {self._steps + 1}: asking the model")
        return None

    def after_model(self, replied: dict[str, Any]) -> None:
        """
        Report the tools that the model wants to call, without their arguments.

        :param replied: The outputs of the chat generator.
        """
        self._replies = list(replied.get("replies") or [])
        resumed, self._resumed = self._resumed, None
        self._approvals.begin_step(self._replies, resumed.verdicts if resumed is not None else None)
        names = [each.tool_name for message in self._replies for each in message.tool_calls]
        if names and resumed is None:
            self._progress.step(f"Calling {', '.join(names)}")

    def before_tools(self) -> None:
        """
        End the run before its tools are called, if nobody waits for it, or if somebody has to approve a call.
        """
        self._check()
        if self._approvals.pending:
            raise _PausedError
        self._approvals.end_deciding()

    def _check(self) -> None:
        if self._is_abandoned.is_set():
            raise _AbandonedRunError

    def _callback(self) -> Callable[[StreamingChunk], Any]:
        """
        Make the streaming callback of a run.

        It is a function, because Haystack 2 copies inputs: of a bound method, it would copy the Agent, too.
        """
        report, own = self._report, self._agent.streaming_callback

        def told(chunk: StreamingChunk) -> None:
            report(chunk)
            if own is not None:
                own(chunk)

        async def told_async(chunk: StreamingChunk) -> None:
            report(chunk)
            if own is not None:
                result = own(chunk)
                if inspect.isawaitable(result):
                    await result

        return told_async if self._runs_async else told

    def _report(self, chunk: StreamingChunk) -> None:
        result = chunk.tool_call_result
        if result is not None:
            self._progress.step(f"{result.origin.tool_name} {'failed' if result.error else 'answered'}")
        elif chunk.content:
            self._progress.text(chunk.content)


class _AbandonedRunError(BaseException):
    """
    Raised in a thread whose call was cancelled; nobody sees it.

    It is no Exception, because Haystack 2 would save a snapshot of the run.
    """


class _PausedError(BaseException):
    """
    Raised in a run that has to wait for approvals, for the same reason no Exception.
    """
