# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from abc import abstractmethod
from types import TracebackType
from typing import Self


class ContextManaged:
    """
    Opened by `with` and `async with`, and closed at the end of the block. What fails to open leaves nothing open.
    """

    @abstractmethod
    def _enter(self) -> object:
        """Open it."""

    @abstractmethod
    async def _enter_async(self) -> object:
        """Open it without blocking the event loop."""

    @abstractmethod
    def _leave(self) -> object:
        """Have it closed in the background."""

    @abstractmethod
    def close(self) -> None:
        """Close it."""

    @abstractmethod
    async def close_async(self) -> None:
        """Close it without blocking the event loop."""

    def _enter_or_leave(self) -> None:
        try:
            self._enter()
        except BaseException:
            self._leave()
            raise

    def __enter__(self) -> Self:
        """
        Open it.

        :returns: The object itself.
        """
        self._enter_or_leave()
        return self

    def __exit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """
        Close it.
        """
        self.close()

    async def __aenter__(self) -> Self:
        """
        Open it without blocking the event loop.

        :returns: The object itself.
        """
        try:
            await self._enter_async()
        except BaseException:
            self._leave()
            raise
        return self

    async def __aexit__(
        self, exc_type: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """
        Close it without blocking the event loop.
        """
        await self.close_async()
