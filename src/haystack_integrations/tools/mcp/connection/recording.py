# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How the calls of MCP tools are recorded, where a durable run is open.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.requests import CallRequest, ToolListing


@dataclass(frozen=True, kw_only=True)
class RecordedCall:
    """
    A call of a tool.

    :param request: What is sent.
    :param arguments: The arguments by which the call is recognized: those that the model gave.
    :param secrets: Texts that must not be written down.
    :param may_repeat: Returns whether the tool may run twice. It may ask the server, in the caller's thread.
    :param key_argument: The argument that gets the key of the call, if there is one.
    """

    request: CallRequest
    arguments: dict[str, Any]
    may_repeat: Callable[[], bool]
    secrets: list[str] = field(default_factory=list)
    key_argument: str | None = None


@dataclass(frozen=True)
class Recall:
    """
    Something that is made once in a run: what it was, or room for what it is.

    :param is_recorded: Whether it was made before.
    :param result: What it was.
    :param record: Writes down what it is, which must be JSON.
    :param give_back: Makes room again, if it could not be made.
    """

    is_recorded: bool
    result: Any
    record: Callable[[Any], None]
    give_back: Callable[[], None]


class CallRecorder(ABC):
    """
    Writes down calls before they are sent and results before they are used, and gives those that are written down.
    """

    @abstractmethod
    def recall(self, kind: str, name: str) -> Recall:
        """
        Find what a person decided, or another value that cannot be made again.

        :param kind: "decision" or "value".
        :param name: What it is about.
        :returns: What it was, or room for what it is.
        :raises MCPRunError: If the run cannot go on.
        """

    def listing(self, server: str) -> ToolListing | None:  # noqa: ARG002
        """
        Return the recorded tools of a server, where no server is to be asked.

        :param server: Describes it.
        :returns: The tools; None if the server is to be asked.
        :raises MCPRunError: If they are not recorded.
        """
        return None

    @abstractmethod
    def keep_listing(self, server: str, listing: ToolListing) -> None:
        """
        Note what tools a server has.

        :param server: Describes it.
        :param listing: The tools.
        """

    @abstractmethod
    def deliver(self, call: RecordedCall, send: Callable[[CallRequest], types.CallToolResult]) -> types.CallToolResult:
        """
        Return the recorded result of a call, or send it.

        :param call: The call.
        :param send: Sends it.
        :returns: The result.
        :raises MCPInvocationError: If the call fails, or failed when it was recorded.
        :raises MCPRunError: If the run cannot go on.
        """

    @abstractmethod
    async def deliver_async(
        self, call: RecordedCall, send: Callable[[CallRequest], Awaitable[types.CallToolResult]]
    ) -> types.CallToolResult:
        """
        Return the recorded result of a call, or send it, without blocking the event loop.

        :param call: The call.
        :param send: Sends it.
        :returns: The result.
        """


call_recorder: Final[ContextVar[CallRecorder | None]] = ContextVar("haystack_mcp_call_recorder", default=None)
