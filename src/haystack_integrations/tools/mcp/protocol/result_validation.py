# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Validates the results of a session so that no schema and no result holds up other sessions.

All sessions share one event loop. A validation first gets some milliseconds there, which is enough for nearly all; what
takes longer begins anew in a thread, and is given up after a second.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import perf_counter
from typing import Any, Final
from weakref import WeakKeyDictionary

import mcp_types as types
from haystack import logging

from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.convert.output_schemas import Budget, OutputSchema, Verdict

logger: logging.PatchedLogger = logging.getLogger(__name__)

# A single step takes the longer the more values there are, so that a large result is not begun in the loop.
_IN_LOOP: Final = Budget(seconds=0.01, values=2_000)
_IN_THREAD: Final = Budget(seconds=1.0, values=100_000, gives_way=True)

# How much of the loop's time the validations of a session may take: so many seconds at once, and this share later on.
# Many results that arrive together, each of them cheap enough, would hold up others, too.
_LOOP_TIME: Final = 0.05
_LOOP_SHARE: Final = 0.5

# Each running thread delays the loop whenever the loop takes the interpreter's lock again.
_THREADS: Final = 2

# How long a result waits for a thread while those of other sessions are validated.
_WAIT_FOR_THREAD: Final = 0.05

_threads: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()


class InvalidResultError(RuntimeError):
    """
    Raised for a result that violates the output schema of its tool, or cannot be validated. The tool has run.
    """


class ResultValidation:
    """
    Validates the results of one session against the output schemas of its tools.
    """

    def __init__(self, describe: Callable[[], str]) -> None:
        """
        Initialize the ResultValidation without schemas.

        :param describe: Names the server in messages.
        """
        self._describe = describe
        self._schemas: dict[str, OutputSchema | None] = {}
        self._warned: set[str] = set()
        self._loop_time = _LOOP_TIME
        self._loop_time_at = 0.0
        self._one_in_thread = asyncio.Lock()

    def note(self, tool_name: str, schema: dict[str, Any] | None) -> None:
        """
        Take the output schema from a tool's definition, in place of an earlier one.

        :param tool_name: Name of the tool.
        :param schema: Its output schema, or None. An empty one counts as none: it promises nothing.
        """
        self._schemas[tool_name] = OutputSchema(schema) if schema else None

    async def validate(self, tool_name: str, result: types.CallToolResult) -> None:
        """
        Validate a result. One whose validation takes too long, or is impossible, passes.

        :param tool_name: Name of the tool. Results of an unknown tool are not validated.
        :param result: The result, which is not an error of the tool.
        :raises InvalidResultError: If the result violates the schema. The text quotes nothing of it.
        """
        schema = self._schemas.get(tool_name)
        if schema is None:
            return
        if result.structured_content is None and "structured_content" not in result.model_fields_set:
            msg = f"Tool {tool_name} has an output schema but did not return structured content"
            raise InvalidResultError(msg)
        verdict = self._validate_in_loop(schema, result.structured_content)
        if verdict.cut_off:
            verdict = await self._validate_in_thread(tool_name, schema, result.structured_content)
        if verdict.violation is not None:
            raise InvalidResultError(verdict.violation)
        if verdict.unusable is not None:
            self._give_up(tool_name, schema, verdict.unusable)
        elif verdict.undecided is not None:
            logger.debug(
                "A result of tool '{tool}' of {server} was not validated against its output schema: {reason}",
                tool=tool_name,
                server=self._describe(),
                reason=verdict.undecided,
            )

    def _validate_in_loop(self, schema: OutputSchema, value: Any) -> Verdict:
        now = perf_counter()
        self._loop_time = min(_LOOP_TIME, self._loop_time + (now - self._loop_time_at) * _LOOP_SHARE)
        seconds = min(_IN_LOOP.seconds, self._loop_time)
        verdict = schema.validate(value, _IN_LOOP if seconds == _IN_LOOP.seconds else Budget(seconds, _IN_LOOP.values))
        self._loop_time_at = perf_counter()
        self._loop_time = max(0.0, self._loop_time - (self._loop_time_at - now))
        return verdict

    async def _validate_in_thread(self, tool_name: str, schema: OutputSchema, value: Any) -> Verdict:
        async with self._one_in_thread:
            if self._schemas.get(tool_name) is not schema:
                return Verdict()  # given up meanwhile
            threads = _threads.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_THREADS))
            try:
                async with asyncio.timeout(_WAIT_FOR_THREAD):
                    await threads.acquire()
            except TimeoutError:
                return Verdict(undecided="other results are being validated")
            try:
                running = start_in_thread(lambda: self._validate_fully(tool_name, schema, value))
            except RuntimeError as error:  # there are too many threads
                threads.release()
                return Verdict(undecided=str(error))
            running.add_done_callback(lambda _: threads.release())
            # A caller who gives up does not end the thread, which ends by itself.
            return await asyncio.shield(running)

    def _validate_fully(self, tool_name: str, schema: OutputSchema, value: Any) -> Verdict:
        verdict = schema.validate(value, _IN_THREAD)
        if verdict.cut_off:
            self._give_up(tool_name, schema, f"that takes longer than {_IN_THREAD.seconds:g} s")
        return verdict

    def _give_up(self, tool_name: str, schema: OutputSchema, reason: str) -> None:
        if self._schemas.get(tool_name) is schema:
            self._schemas[tool_name] = None
        if tool_name not in self._warned:
            self._warned.add(tool_name)
            logger.warning(
                "Results of tool '{tool}' of {server} are no longer validated against its output schema: {reason}",
                tool=tool_name,
                server=self._describe(),
                reason=reason,
            )
