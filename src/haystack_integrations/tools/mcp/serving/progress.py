# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections import deque
from contextlib import suppress
from types import TracebackType

import anyio

from haystack_integrations.tools.mcp.serving.calls import ServedCall
from haystack_integrations.tools.mcp.serving.results import well_formed

# How long text of a model is collected before it is sent, in seconds. People read it.
INTERVAL = 0.25
# Clients give up on a call that is silent for too long, the strictest after some 30 seconds.
HEARTBEAT = 10.0
# How long a call over HTTP that may be short runs before the first notification, in seconds. In the newest protocol
# that turns the answer from JSON into a stream of events, which clients limit to 1 MiB each. Many clients ask for
# progress always.
PATIENCE = 0.25


class ProgressReporter:
    """
    Reports to a client what its call is doing.

    Steps are all sent, in their order. Text that a model writes is collected and sent a few times a second. In silence,
    a heartbeat shows that the call is alive.

    It is an asynchronous context manager around the work. If the client did not ask for progress, it does nothing.
    """

    def __init__(self, call: ServedCall, *, total: int | None = None, patient: bool = False) -> None:
        """
        Initialize the ProgressReporter.

        :param call: The call.
        :param total: How many steps there are, if that is known.
        :param patient: Whether nothing is sent of a call over HTTP that ends within `PATIENCE`.
        """
        self._call = call
        self._total = total
        request = call.context.request_context if call.context is not None else None
        self._patience = PATIENCE if patient and request is not None and request.request is not None else 0.0
        # A client that asked for it, or whoever looks at a background task.
        self.is_wanted: bool = call.context is not None and (request is None or "progressToken" in (request.meta or {}))
        # Steps, and texts between them.
        self._news: deque[tuple[str, bool]] = deque()
        self._steps = 0
        self._since_step = 0
        self._last_step = "Working"
        self._loop = asyncio.get_running_loop()
        self._any_news = asyncio.Event()
        self._sending = asyncio.Lock()
        self._sender: asyncio.Task[None] | None = None

    def step(self, message: str) -> None:
        """
        Report a step. From any thread.

        :param message: What begins or ended.
        """
        self._report(message, is_step=True)

    def text(self, text: str) -> None:
        """
        Report text of a model. From any thread.

        :param text: What it wrote since the last time.
        """
        self._report(text, is_step=False)

    def _report(self, message: str, *, is_step: bool) -> None:
        if self._sender is not None:
            self._news.append((message, is_step))
            self._loop.call_soon_threadsafe(self._any_news.set)

    async def __aenter__(self) -> ProgressReporter:
        """
        Begin to report.
        """
        if self.is_wanted:
            self._sender = asyncio.create_task(self._send())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """
        Send what is left, unless the work failed, or was too short to be worth a report.
        """
        sender, self._sender = self._sender, None
        if sender is None:
            return
        try:
            if error is None and not self._patience:
                await self._send_news()
        finally:
            sender.cancel()
        await asyncio.wait([sender])

    async def _send(self) -> None:
        if self._patience:
            await asyncio.sleep(self._patience)
            self._patience = 0.0
        while True:
            try:
                async with asyncio.timeout(HEARTBEAT):
                    await self._any_news.wait()
            except TimeoutError:
                self._news.append((f"{self._last_step} ...", False))
            self._any_news.clear()
            await self._send_news()
            # More text may follow.
            await asyncio.sleep(INTERVAL)

    async def _send_news(self) -> None:
        # The client may go away: its call is cancelled anyway.
        with suppress(anyio.ClosedResourceError, anyio.BrokenResourceError):
            async with self._sending:
                while self._news:
                    message, is_step = self._news.popleft()
                    while not is_step and self._news and not self._news[0][1]:
                        message += self._news.popleft()[0]
                    await self._notify(message, is_step=is_step)

    async def _notify(self, message: str, *, is_step: bool) -> None:
        if is_step:
            self._steps, self._since_step, self._last_step = self._steps + 1, 0, message
        else:
            self._since_step += 1
        # The number must grow with each notification: what comes between two steps counts as parts of one.
        done = self._steps + self._since_step / (self._since_step + 1)
        total = self._total if self._total is not None and done <= self._total else None
        await self._call.progress(done, total, well_formed(message))
