# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What goes over one connection: the exchanges in flight, and what the server asks and says.

The transport below carries messages and says how each request fared; the client above knows what they mean. All of it
runs in the event loop of the session.
"""

from __future__ import annotations

import asyncio
import contextvars
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from functools import partial
from itertools import count
from typing import Any

from haystack import logging
from opentelemetry import trace
from opentelemetry.propagate import inject
from pydantic_core import to_json

from haystack_integrations.tools.mcp.protocol.exchange import (
    Exchange,
    Fate,
    ProtocolError,
    RequestError,
    SessionLife,
    SessionState,
    UnreadableError,
)
from haystack_integrations.tools.mcp.protocol.frames import Unreadable, own_id
from haystack_integrations.tools.mcp.redaction import redact_text
from haystack_integrations.tools.mcp.request_context import current_request

logger: logging.PatchedLogger = logging.getLogger(__name__)

# How long a notification, or the answer to a request of the server, may take to leave, in seconds.
TELL_TIMEOUT = 5.0

# Requests whose cancelling the protocol forbids.
_NEVER_CANCELLED = frozenset({"initialize", "server/discover", "tasks/cancel"})

_UNTRACED = nullcontext()

# Requests by whose `name` a span is named.
_NAMED = frozenset({"tools/call", "prompts/get"})


class Transport(ABC):
    """
    Carries messages to and from one server. It is opened, used and closed in one event loop.

    It calls the channel's `heard` whenever something comes in, `received` with each message, `missed` when some may
    have been lost, and `ended` when no more can come. It knows no meaning of messages, and never settles an exchange
    because of another one.
    """

    channel: Channel

    async def open(self) -> None:
        """
        Open it.

        :raises Exception: If that fails. Nothing is left open then.
        """

    def opened(self, revision: str) -> None:
        """
        Note which revision of the protocol was negotiated. Messages without an exchange are of this revision.

        :param revision: The revision.
        """

    def start_listening(self) -> None:
        """
        Begin to listen to what the server sends without a request, once the handshake is over.
        """

    async def listening(self) -> None:
        """
        Wait until the server has answered that, for a short time at most.
        """

    @abstractmethod
    async def carry(self, content: bytes, exchange: Exchange) -> None:
        """
        Send a request. It runs in the caller's task, which may be cancelled at any time.

        Before anything is awaited after the first byte left, or may have left, it calls `exchange.mark_sent()`. It
        returns at the latest when no answer can come any more by this way, and has then settled the exchange; it may
        return earlier where the answers come over a stream of the whole connection. It may settle the exchange as
        refused only if no byte left, or by a proof. Whatever it raises loses the exchange.

        :param content: The request as JSON, in one line without its end.
        :param exchange: The request.
        """

    @abstractmethod
    async def tell(self, content: bytes) -> None:
        """
        Send a message that is not answered: a notification, or the answer to a request of the server.

        :param content: The message as JSON, in one line without its end.
        :raises Exception: If that fails. No other request suffers from it.
        """

    def cancels_by_closing(self, exchange: Exchange) -> bool:  # noqa: ARG002 - for subclasses
        """
        Return whether the server knows of a request that was given up because its way is closed.

        :param exchange: The request.
        :returns: If not, it is told.
        """
        return False

    @abstractmethod
    async def close(self) -> None:
        """
        Close it, within a bound of its own.
        """


class Channel:
    """
    The exchanges in flight over one transport.
    """

    def __init__(
        self,
        transport: Transport,
        life: SessionLife,
        *,
        answer: Callable[[str, dict[str, Any]], Awaitable[dict[str, Any] | None]],
        notified: Callable[[str, dict[str, Any], Exchange | None], None],
        missed: Callable[[], object] = bool,
        span_attributes: Callable[[], Mapping[str, str]] = dict,
        redact: Callable[[str], str] = redact_text,
    ) -> None:
        """
        Initialize the Channel.

        :param transport: Carries the messages.
        :param life: Hears of everything that comes in, and of the end.
        :param answer: Answers a request of the server, in a task of its own: from its method and parameters it makes
            the result, or None to give no answer. It raises a ProtocolError to answer with an error.
        :param notified: Called with the method and the parameters of each notification of the server other than
            progress and cancelling, and with the request of ours in whose stream it came, if that is known. Must
            neither block nor raise.
        :param missed: Called when notifications may have been lost, although the session goes on. Likewise.
        :param span_attributes: Returns what a span says of the server.
        :param redact: Redacts the text of an error that a span shows.
        """
        self.transport = transport
        transport.channel = self
        self._life = life
        # Notes that the server sent something, also if it is no message, such as a comment that keeps a stream alive.
        self.heard: Callable[[], None] = life.heard
        self._make_answer = answer
        self._notify_client = notified
        self.missed: Callable[[], object] = missed
        self._span_attributes = span_attributes
        self._redact = redact
        self._tracer = trace.get_tracer("mcp-haystack")
        # The requests that are not settled, by their ids, in the order in which they were made.
        self.in_flight: dict[int, Exchange] = {}
        # Gives an id that no request of this session had.
        self.next_id: Callable[[], int] = count().__next__
        self._greatest_id = -1
        # The requests of the server that are being answered, by their ids.
        self._asked: dict[str | int, asyncio.Task[None]] = {}
        self._tasks: set[asyncio.Task[Any]] = set()
        self.has_ended: bool = False

    async def request(self, exchange: Exchange) -> dict[str, Any]:
        """
        Send a request and wait for its answer, in the caller's task.

        :param exchange: The request.
        :returns: The result as it came.
        :raises RequestError: If there is none.
        :raises ValueError: If the request cannot be written as JSON. The text of the error may quote it.
        """
        # Of a tool or a prompt. Others would be too many for the names of spans, or an argument.
        name = exchange.params.get("name") if exchange.params and exchange.method in _NAMED else None
        target = f" {name}" if isinstance(name, str) else ""
        span = self._tracer.start_span(f"{exchange.method}{target}", kind=trace.SpanKind.CLIENT)
        with self._traced(exchange, span) if span.get_span_context().is_valid else _UNTRACED:
            message: dict[str, Any] = {"jsonrpc": "2.0", "id": exchange.id, "method": exchange.method}
            if exchange.params is not None:
                message["params"] = exchange.params
            content = to_json(message, inf_nan_mode="null")  # JSON has neither
            self.in_flight[exchange.id] = exchange
            self._greatest_id = max(self._greatest_id, exchange.id)
            try:
                if self.has_ended:
                    exchange.lose()
                else:
                    try:
                        await self.transport.carry(content, exchange)
                    except Exception as error:
                        exchange.lose(str(error) or type(error).__name__)
                return await exchange.answer
            except asyncio.CancelledError:
                was_sent = exchange.fate is Fate.SENT
                exchange.give_up()
                if (
                    was_sent
                    and exchange.method not in _NEVER_CANCELLED
                    and not self.has_ended
                    and not self.transport.cancels_by_closing(exchange)
                ):
                    cancelled = {"requestId": exchange.id, "reason": "The caller gave up"}
                    self.notify("notifications/cancelled", cancelled)
                raise
            finally:
                del self.in_flight[exchange.id]
                if exchange.answer.done() and not exchange.answer.cancelled():
                    exchange.answer.exception()  # it was taken notice of

    @contextmanager
    def _traced(self, exchange: Exchange, span: trace.Span) -> Iterator[None]:
        with trace.use_span(span, end_on_exit=True, record_exception=False, set_status_on_exception=False):
            carrier: dict[str, str] = {}
            inject(carrier)
            if carrier:
                params = exchange.params or {}
                exchange.params = {**params, "_meta": {**params.get("_meta", {}), **carrier}}
            if span.is_recording():
                attributes = {"mcp.method.name": exchange.method, "jsonrpc.request.id": str(exchange.id)}
                span.set_attributes({**attributes, **self._span_attributes()})
            try:
                yield
            except RequestError as error:
                if isinstance(error, ProtocolError):
                    span.set_attributes({"error.type": str(error.code), "rpc.response.status_code": str(error.code)})
                    span.set_status(trace.StatusCode.ERROR, self._redact(error.message))
                else:
                    span.set_attribute("error.type", type(error).__name__)
                    span.set_status(trace.StatusCode.ERROR)
                raise

    async def tell(self, method: str, params: dict[str, Any] | None = None) -> None:
        """
        Send a notification, and wait until it has left.

        :param method: Its method.
        :param params: Its parameters.
        :raises Exception: If that fails.
        """
        await self._send({"method": method} if params is None else {"method": method, "params": params})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """
        Send a notification in the background. That it cannot be sent is nobody's matter.

        :param method: Its method.
        :param params: Its parameters.
        """
        self._spawn(self._unless_it_fails(partial(self.tell, method, params)))

    async def _send(self, message: dict[str, Any]) -> None:
        async with asyncio.timeout(TELL_TIMEOUT):
            await self.transport.tell(to_json({"jsonrpc": "2.0", **message}, inf_nan_mode="null"))

    async def _unless_it_fails(self, send: Callable[[], Awaitable[None]]) -> None:
        try:
            await send()
        except Exception as error:
            logger.debug("A message could not be sent: {kind}", kind=type(error).__name__)

    def received(self, frame: dict[str, Any] | Unreadable, exchange: Exchange | None = None) -> None:
        """
        Take a message of the server.

        :param frame: The message, as `frames.read` returns it.
        :param exchange: The request in whose own stream or response it came; None on a stream of the whole connection.
        """
        if isinstance(frame, dict) and "method" in frame:
            params = frame.get("params")
            params = params if isinstance(params, dict) else {}
            if "id" in frame:
                self._ask(frame["id"], frame["method"], params, exchange)
            else:
                self._notified(frame["method"], params, exchange)
            return
        request_id = own_id(frame.id) if isinstance(frame, Unreadable) else frame["id"]
        # In the stream of a request, whatever has no other request's id is its answer; but not what answers another one
        # that was given up.
        if exchange is not None and isinstance(request_id, int) and 0 <= request_id <= self._greatest_id:
            exchange = None
        answered = self.in_flight.get(request_id, exchange)
        if answered is None:
            logger.debug("The server answered a request that nobody waits for")
        elif isinstance(frame, Unreadable):
            answered.settle(UnreadableError(frame.reason))
        elif "error" in frame:
            error = frame["error"]
            answered.settle(ProtocolError(error["code"], error["message"], error.get("data")))
        else:
            answered.settle(frame["result"])

    def _notified(self, method: str, params: dict[str, Any], exchange: Exchange | None) -> None:
        if method == "notifications/progress":
            about = self.in_flight.get(own_id(params.get("progressToken")))
            progress, total, message = (params.get(key) for key in ("progress", "total", "message"))
            if about is not None and about.on_progress is not None and not about.is_settled:
                if isinstance(progress, int | float):
                    try:
                        about.on_progress(progress, total, message)
                    except Exception as error:  # what comes next is read all the same
                        logger.debug("A report of progress was not taken: {kind}", kind=type(error).__name__)
        elif method == "notifications/cancelled":
            request_id = params.get("requestId")
            task = self._asked.get(request_id) if isinstance(request_id, str | int) else None
            if task is not None:
                task.cancel()
        else:
            self._notify_client(method, params, exchange)

    def _ask(self, request_id: str | int, method: str, params: dict[str, Any], exchange: Exchange | None) -> None:
        context = None  # that of whoever opened the session
        # On a stream of the whole connection, nothing says for which call of ours it asks, unless there is only one.
        calls = [each for each in self.in_flight.values() if each.name is not None] if exchange is None else [exchange]
        if len(calls) == 1:
            context = calls[0].context.copy()
            if exchange is None:
                context.run(current_request.set, None)
        task = self._asked[request_id] = self._spawn(self._answer(request_id, method, params), context)
        task.add_done_callback(lambda _: self._asked.pop(request_id, None))

    async def _answer(self, request_id: str | int, method: str, params: dict[str, Any]) -> None:
        message: dict[str, Any] = {"id": request_id}
        try:
            message["result"] = await self._make_answer(method, params)
            if message["result"] is None:
                return
        except ProtocolError as error:
            message["error"] = {"code": error.code, "message": error.message}
            if error.data is not None:
                message["error"]["data"] = error.data
        await self._unless_it_fails(partial(self._send, message))

    def _spawn(
        self, coroutine: Coroutine[Any, Any, None], context: contextvars.Context | None = None
    ) -> asyncio.Task[None]:
        """
        Run something beside, until the channel is closed at the latest; in the context of a request if one is given.
        """
        task = asyncio.get_running_loop().create_task(coroutine, context=context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def drained(self, reason: str) -> None:
        """
        Note that the server does not know the session any more, or that it is in doubt.

        :param reason: Why, as a clause.
        """
        self._life.end(reason, SessionState.DRAINING)

    def ended(self, reason: str | None = None) -> None:
        """
        Note that no more messages can come in: all exchanges in flight are lost.

        :param reason: Why, as a clause; None if that has still to be found out.
        """
        self.has_ended = True
        self._life.end(reason)
        for exchange in self.in_flight.values():
            exchange.lose(reason or "")

    async def close(self) -> None:
        """
        Close the transport, and end all that is under way.
        """
        try:
            await self.transport.close()
        finally:
            self.has_ended = True
            for exchange in self.in_flight.values():
                exchange.lose()
            tasks = [task for task in self._tasks if task is not asyncio.current_task()]
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=1.0)
