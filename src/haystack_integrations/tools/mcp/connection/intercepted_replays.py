# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from haystack_integrations.tools.mcp.connection.interceptors import MCPToolCall
from haystack_integrations.tools.mcp.errors import MCPInvocationError, MCPOutcomeUnknownError


class Replays:
    """
    Which calls were sent on behalf of one call, so that interceptors send none twice that may have run.

    Threads of interceptors may send at the same time.
    """

    def __init__(self, display_name: str, tool_args: dict[str, Any]) -> None:
        """
        Initialize the Replays.

        :param display_name: Name of the tool in messages.
        :param tool_args: The arguments that the caller gave.
        """
        self._display_name = display_name
        self._tool_args = tool_args
        self._lock = threading.Lock()
        self._under_way: list[MCPToolCall] = []
        # The tools whose last call was not answered.
        self._unknown: set[str] = set()

    @property
    def is_unknown(self) -> bool:
        """
        Whether a call was sent and not answered, or not yet.
        """
        return bool(self._unknown or self._under_way)

    @contextmanager
    def sending(self, call: MCPToolCall, *, may_repeat: bool) -> Iterator[None]:
        """
        Take note of what becomes of a call.

        :param call: The call.
        :param may_repeat: Whether it does no harm if the tool runs twice.
        :raises MCPOutcomeUnknownError: If it must not be sent.
        """
        with self._lock:
            if not may_repeat:
                self._check(call)
            self._under_way.append(call)
        is_known = False
        try:
            yield
            is_known = True
        except MCPInvocationError as error:
            is_known = not isinstance(error, MCPOutcomeUnknownError)
            raise
        finally:
            with self._lock:
                self._under_way = [each for each in self._under_way if each is not call]
                if is_known:
                    self._unknown.discard(call.name)
                else:
                    self._unknown.add(call.name)

    def _check(self, call: MCPToolCall) -> None:
        if call.name in self._unknown:
            reason = "it was sent before and not answered. The tool may have run"
        elif any(each.name == call.name and each.arguments == call.arguments for each in self._under_way):
            reason = "it is under way already. The tool may have run"
        else:
            return
        msg = (
            f"Failed to invoke Tool `{self._display_name}`: an interceptor would have sent the call again, but "
            f"{reason}. Interceptors may repeat calls of tools that the server annotates as read-only or idempotent, "
            "if `retry_idempotent` is set."
        )
        raise MCPOutcomeUnknownError(msg, self._display_name, self._tool_args)
