# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is known about the outcome of a request: was it sent, may the tool have run?

The MCP SDK reports every broken connection alike, but whether a tool call may be sent again depends on where it broke.
So what requests pass on their way out writes down what it sees: the taps on the streams of every transport, and the
HTTP client. They find the `RequestOutcome` in a context variable, because the SDK writes and posts each request in the
context of its caller.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Iterator
from contextvars import ContextVar
from dataclasses import dataclass, field

import anyio
from mcp import types

from haystack_integrations.tools.mcp.redaction import Redactor

CALL_METHOD = "tools/call"

CANCEL_METHOD = "notifications/cancelled"


@dataclass(slots=True)
class RequestOutcome:
    """
    What became of one operation's requests.

    :param sent: How many `tools/call` requests were handed to the transport.
    :param refused: How many of these provably did not run.
    :param fault: What broke the connection, in words.
    :param stream_fault: What ended the stream of an answer too early, unless the SDK could resume it.
    :param status: HTTP status of a refusal, with its reason phrase, e.g. "401 Unauthorized".
    :param denied: Whether the server would refuse the same request again.
    :param unauthorized: Whether no access token could be had.
    :param redactor: Redacts what is logged of the requests.
    :param owner: The task of the call, which has a deadline; None for other requests.
    :param leaves_questions: Whether the call is left open if the server has questions for the user.
    """

    sent: int = 0
    refused: int = 0
    fault: str | None = None
    stream_fault: str | None = None
    status: str | None = None
    denied: bool = False
    unauthorized: bool = False
    redactor: Redactor | None = None
    leaves_questions: bool = False
    owner: asyncio.Task[object] | None = None
    _given_up: bool = field(default=False, init=False)
    _ended_by_refusal: bool = field(default=False, init=False)
    # None until there is one: most requests have none, and each call in flight has an outcome.
    _waits: set[anyio.CancelScope] | None = field(default=None, init=False)

    @contextlib.contextmanager
    def until_given_up(self) -> Iterator[anyio.CancelScope]:
        """
        Bound a wait for the server: it ends when the caller gives up.

        Before the revision 2026-07-28 the SDK leaves the request open, and a server may never answer one that was
        cancelled.

        :returns: A context manager with the scope of the wait.
        """
        with anyio.CancelScope() as scope:
            if self._given_up:
                scope.cancel()
            waits = self._waits = self._waits if self._waits is not None else set()
            waits.add(scope)
            try:
                yield scope
            finally:
                waits.discard(scope)

    def give_up(self) -> None:
        """
        End all waits for the server.
        """
        self._given_up = True
        for wait in list(self._waits or ()):
            wait.cancel()

    def end_call(self) -> bool:
        """
        End the wait for the answer to a call that was refused, where answers come another way than refusals.

        :returns: Whether there is a call.
        """
        if self.owner is None:
            return False
        if not self._ended_by_refusal:
            self._ended_by_refusal = True
            self.owner.cancel()
        return True

    def is_end_of_call(self, cancelling: int) -> bool:
        """
        Tell whether the call was cancelled because it was refused, and take that back. To be asked in its task.

        :param cancelling: How often its task was being cancelled when it began.
        :returns: False if somebody else has cancelled it, too.
        """
        return self._ended_by_refusal and self.owner is not None and self.owner.uncancel() <= cancelling

    def broken_by(self, error_code: int) -> str | None:
        """
        Say what broke the connection.

        :param error_code: Code of the error that the SDK raised.
        :returns: What broke it, or None if the server answered with an error.
        """
        return self.fault or (self.stream_fault if error_code == types.CONNECTION_CLOSED else None)

    @property
    def never_ran(self) -> bool:
        """
        Whether no tool can have run because of these requests.
        """
        return self.sent == self.refused


current_outcome: ContextVar[RequestOutcome | None] = ContextVar("haystack_mcp_outcome", default=None)

# The request that the body of an HTTP response answers, in the task that reads it.
answered_request: ContextVar[types.RequestId | None] = ContextVar("haystack_mcp_answered_request", default=None)
