# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The messages on one connection: exchanges in flight, and the server's requests and notifications.

The transport below carries messages and reports the fate of each request (`Transport` is its contract); the client
above knows their meaning. `SessionLife` records when and why the session ended. All of it runs in the event loop of
the session.

.. code-block:: text

    NEW ──mark_sent()──> SENT ──a result, a ProtocolError──> ANSWERED
     │                    ├─────a LostError────────────────> LOST       it may have run
     │                    └─────a RefusedError, by a proof─┐
     └──lose(), a RefusedError─────────────────────────────┴> REFUSED   it did not run
     └── either of them ──give_up()────────────────────────> GIVEN_UP   its caller stopped waiting

The fate of an exchange only moves forward: once it is final, nothing changes it.
"""

from __future__ import annotations

import asyncio
import contextvars
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial
from itertools import count
from time import monotonic
from typing import Any, Final, TypeAlias

import anyio
from haystack import logging
from opentelemetry import trace
from opentelemetry.propagate import inject
from pydantic_core import to_json

from haystack_integrations.tools.mcp.convert.odd_messages import Unreadable, own_id
from haystack_integrations.tools.mcp.executor import Caller
from haystack_integrations.tools.mcp.protocol.request_errors import (
    Fate,
    LostError,
    ProtocolError,
    RefusedError,
    RequestError,
    UnreadableError,
)
from haystack_integrations.tools.mcp.redaction import redact_text
from haystack_integrations.tools.mcp.request_context import Identity, current_identity, current_request

logger: logging.PatchedLogger = logging.getLogger(__name__)

# How long a notification, or the answer to a request of the server, may take to leave, in seconds.
_SEND_TIMEOUT = 5.0

# How long closing waits for the tasks that it has cancelled, in seconds.
_ENDING_TIMEOUT = 1.0

# Requests whose cancelling the protocol forbids.
_NEVER_CANCELLED = frozenset({"initialize", "server/discover", "tasks/cancel"})

_UNTRACED = nullcontext()

# Requests whose spans are named by their parameter `name`, and the span's attribute for it. Other names are too many,
# or are arguments.
_NAME_ATTRIBUTES: Final = {"tools/call": "gen_ai.tool.name", "prompts/get": "gen_ai.prompt.name"}

# The parameter that names the subject of a request, by its method.
_SUBJECT_PARAMETERS: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
    "tasks/result": "taskId",
}

# Called with progress, total and message of each progress report.
OnProgress: TypeAlias = Callable[[float, float | None, str | None], None]


@dataclass(slots=True, eq=False, repr=False)
class Exchange:
    """
    One request: its message, the future of its answer, and its fate. It is used in the loop that made it.

    :param id: Its id, unique in the session.
    :param method: Its method.
    :param params: Its parameters with their `_meta`, as they are sent.
    :param version: The revision of the protocol in which it is made; None for `initialize`.
    :param headers: Further HTTP headers, such as `Mcp-Param-…`.
    :param on_progress: Called with each progress report.
    """

    id: int
    method: str
    params: dict[str, Any] | None = None
    version: str | None = None
    headers: Mapping[str, str] | None = None
    on_progress: OnProgress | None = None
    # Requests of the server during this exchange run in its context, for the same caller.
    context: contextvars.Context = field(init=False, default_factory=contextvars.copy_context)
    fate: Fate = field(init=False, default=Fate.NEW)
    answer: asyncio.Future[dict[str, Any]] = field(init=False, default_factory=asyncio.Future)

    @property
    def name(self) -> str | None:
        """
        The subject of the request, for the header `Mcp-Name`: a tool, a prompt, a URI or a task.
        """
        subject = (self.params or {}).get(_SUBJECT_PARAMETERS.get(self.method, ""))
        return subject if isinstance(subject, str) else None

    @property
    def is_settled(self) -> bool:
        """
        Whether its fate is final.
        """
        return self.fate is not Fate.NEW and self.fate is not Fate.SENT

    def mark_sent(self) -> None:
        """
        Note that a byte of it may have left from now on.
        """
        if self.fate is Fate.NEW:
            self.fate = Fate.SENT

    def unmark_sent(self) -> None:
        """
        Undo `mark_sent`, given proof that the server did not process the request, which will be sent again.
        """
        if self.fate is Fate.SENT:
            self.fate = Fate.NEW

    def settle(self, outcome: dict[str, Any] | RequestError) -> None:
        """
        Settle it, if it is not settled yet.

        :param outcome: The result, or the error.
        """
        if self.fate is not Fate.NEW and self.fate is not Fate.SENT:  # `is_settled`, without a call for each answer
            return
        if isinstance(outcome, RequestError):
            self.fate = outcome.fate
            if not self.answer.done():
                self.answer.set_exception(outcome)
        else:
            self.fate = Fate.ANSWERED
            if not self.answer.done():
                self.answer.set_result(outcome)

    def lose(self, reason: str = "", *, status: str | None = None) -> None:
        """
        Settle it as lost, or as refused if it was never sent.

        :param reason: Why, as a clause; the empty string for the reason why the session ended.
        :param status: The HTTP status that was the reason.
        """
        kind = RefusedError if self.fate is Fate.NEW else LostError
        self.settle(kind(reason, status=status))

    def give_up(self) -> None:
        """
        Note that its caller has stopped waiting.
        """
        if not self.is_settled:
            self.fate = Fate.GIVEN_UP
            self.answer.cancel()


# The reason for calls in flight when their connection is closed on purpose.
CLOSED_DURING_CALL = "the connection was closed before the answer came"


class SessionState(Enum):
    """
    State of a session.
    """

    NEW = auto()
    OPENING = auto()
    OPEN = auto()
    # Takes no new calls; those in flight may still be answered.
    DRAINING = auto()
    # Ended by itself; its resources are still to be closed.
    LOST = auto()
    # Ended by its owner.
    CLOSED = auto()


# A client may call tools while its session is being opened.
STATES_TAKING_CALLS: Final = (SessionState.OPENING, SessionState.OPEN)


# How long a request other than a tool call may wait for a server that is too busy, in seconds. Such requests have
# timeouts of their own.
MAX_WAIT_OUTSIDE_CALLS = 30.0


def describe_throttle(seconds: float) -> str:
    """
    Return a clause which says that the server wants no requests.

    :param seconds: For how long.
    :returns: A clause.
    """
    return f"the server wants no requests for {seconds:.3g} s"


class ServerThrottle:
    """
    For how long a server wants no requests (HTTP 429 and 503 with `Retry-After`).

    It outlasts the session in which the server asked for the pause.
    """

    def __init__(self) -> None:
        # In the seconds of `time.monotonic`.
        self.until: float = 0.0

    @property
    def seconds(self) -> float:
        """
        How many seconds are left; 0 if the server takes requests.
        """
        return max(self.until - monotonic(), 0.0)


class SessionOwner:
    """
    What a session asks of the object that opened it. The base class stands for a program that opened a client itself.

    The methods run in the event loop of the session and must not block.
    """

    # Whether the owner makes a client for each session. Otherwise, a client opens a new session at each connect.
    opens_client: bool = False

    def __init__(self) -> None:
        self.throttle: ServerThrottle = ServerThrottle()

    def lost(self, reason: str) -> None:
        """
        Note that the session was lost. Called once.

        :param reason: Why.
        """

    def time_left(self) -> float | None:
        """
        Return how many seconds the request of the running task may still take.

        :returns: Seconds; None for no limit.
        """
        return MAX_WAIT_OUTSIDE_CALLS

    def latest_identity(self) -> Identity:
        """
        Return the identity for messages that belong to no request.

        :returns: The latest one, which has the newest token.
        """
        return current_identity.get()

    def requests_in_flight(self) -> list[asyncio.Task[Any]]:
        """
        Return the tasks of the requests in flight. A question of the server may belong to one of them.

        :returns: The tasks.
        """
        return []

    def caller(self) -> Caller | None:
        """
        Return the caller in whose event loop a handler runs if the server does not name the call.

        :returns: The caller; None if there is none.
        """
        return None


class SessionLife:
    """
    The life of one session: its state, its owner, and why it ended.

    .. code-block:: text

        NEW ──opening()──> OPENING ──opened()──> OPEN ──end(DRAINING)──> DRAINING
         │                    │                   │                         │
         └────────────────────┴── end(LOST) ──────┴─────────────────────────┴──> LOST
         └────────────────────┴── end(CLOSED) ────┴─────────────────────────┴──> CLOSED

    Only `end` ends a session and records the reason. It is called by the transport that reads the end of its stream, by
    the HTTP client that learns that the server forgot the session, when a transport crashes, and by `close()`. The
    first reason stays. This is used in the event loop of the session.
    """

    def __init__(self, owner: SessionOwner | None = None) -> None:
        """
        Initialize the SessionLife.

        :param owner: What opened the session. By default, the program itself.
        """
        self.owner: SessionOwner = owner or SessionOwner()
        self.state: SessionState = SessionState.NEW
        self.reason: str | None = None
        # Set when the session is to be closed.
        self.ended_event: asyncio.Event = asyncio.Event()
        # Redacts the reason, which may quote the server. A client that knows secrets replaces it.
        self.redact: Callable[[str], str] = redact_text
        # When the server sent something last, in the seconds of `time.monotonic`.
        self.heard_at: float = 0.0

    def heard(self) -> None:
        """
        Note that the server sent something.
        """
        self.heard_at = monotonic()

    @property
    def is_open(self) -> bool:
        """
        Whether the session takes calls.
        """
        return self.state in STATES_TAKING_CALLS

    @property
    def loss(self) -> str | None:
        """
        Why the session ended by itself; None if it did not, or the reason is not known yet.
        """
        return None if self.state is SessionState.CLOSED else self.reason

    def opening(self) -> None:
        """
        Note that the session is being opened, perhaps again after a failure.

        :raises asyncio.CancelledError: If its owner has closed it meanwhile.
        """
        if self.state is SessionState.CLOSED:
            raise asyncio.CancelledError
        self.state = SessionState.OPENING
        self.reason = None
        self.ended_event.clear()

    def opened(self) -> None:
        """
        Note that the session takes calls now, unless it has ended.
        """
        if self.state is SessionState.OPENING:
            self.state = SessionState.OPEN

    def end(self, reason: str | None = None, state: SessionState = SessionState.LOST) -> None:
        """
        End the session.

        :param reason: Why; None if the reason is not known yet. The first reason stays.
        :param state: LOST, CLOSED, or DRAINING if calls in flight may still be answered.
        """
        before = self.state
        if before is SessionState.OPENING and state is SessionState.DRAINING:
            state = SessionState.LOST  # there are no calls
        if before not in (SessionState.LOST, SessionState.CLOSED):
            self.state = state
        if before is SessionState.LOST and state is SessionState.CLOSED:
            reason = None  # the closing does not explain why the session was lost
        is_new = self.reason is None and reason is not None
        if reason is not None and is_new:
            self.reason = self.redact(reason)
        if self.state is not SessionState.DRAINING:
            self.ended_event.set()
        if is_new and self.loss is not None:
            self.owner.lost(self.loss)


class Transport(ABC):
    """
    Carries messages to and from one server. It is opened, used and closed in one event loop.

    It calls the channel's `heard` whenever something comes in, `received` with each message, `missed` when messages may
    have been lost, and `ended` when no more can come. It does not know what messages mean, and never settles an
    exchange because of another one.
    """

    channel: Channel

    async def open(self) -> None:
        """
        Open the transport.

        :raises Exception: If that fails. The channel is then also closed.
        """

    def opened(self, revision: str) -> None:
        """
        Note which revision of the protocol was negotiated. Messages without an exchange are of this revision.

        :param revision: The revision.
        """

    def start_listening(self) -> None:
        """
        Start to listen to unsolicited messages of the server, once the handshake is over.
        """

    async def wait_until_listening(self) -> None:
        """
        Wait for the server's answer to `start_listening`, for a short time at most.
        """

    @abstractmethod
    async def carry(self, content: bytes, exchange: Exchange) -> None:
        """
        Send a request. It runs in the caller's task, which may be cancelled at any time.

        Once the first byte may have left, it calls `exchange.mark_sent()` before it awaits anything. When no answer can
        come this way any more, it settles the exchange and returns. It may return earlier if answers come over a stream
        of the whole connection. It may settle the exchange as refused only if no byte left, or given proof that the
        server did not process it. Any exception loses the exchange.

        :param content: The request as JSON, in one line without its end.
        :param exchange: The request.
        """

    @abstractmethod
    async def send(self, content: bytes) -> None:
        """
        Send a message that is not answered: a notification, or the answer to a request of the server.

        :param content: The message as JSON, in one line without its end.
        :raises Exception: If that fails. No other request suffers from it.
        """

    def cancels_by_closing(self, exchange: Exchange) -> bool:  # noqa: ARG002 - for subclasses
        """
        Return whether closing the request's own stream already tells the server that the request was given up.

        :param exchange: The request.
        :returns: If False, the server is notified.
        """
        return False

    def cancel_scope(self) -> AbstractContextManager[anyio.CancelScope | None]:
        """
        Make the cancel scope of a background task.

        :returns: A scope; None if tasks can be cancelled at any time.
        """
        return nullcontext()

    @abstractmethod
    async def close(self) -> None:
        """
        Close the transport. Implementations limit how long that takes.
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
    ) -> None:
        """
        Initialize the Channel.

        :param transport: Carries the messages.
        :param life: Is notified when something comes in, and when the connection ends.
        :param answer: Answers a request of the server, in a separate task: from the method and the parameters it makes
            the result, or None for no answer. It raises a ProtocolError to answer with an error.
        :param notified: Called with the method and the parameters of each notification other than progress and
            cancellation, and with the request of this client in whose stream it came, if known. Must neither block nor
            raise.
        :param missed: Called when notifications may have been lost although the session goes on. Must neither block nor
            raise.
        :param span_attributes: Returns the attributes of the server for a span.
        """
        self.transport = transport
        transport.channel = self
        self._life = life
        # Notes that the server sent something, even if it is only a comment that keeps a stream alive.
        self.heard: Callable[[], None] = life.heard
        self._make_answer = answer
        self._notify_client = notified
        self.missed: Callable[[], object] = missed
        self._span_attributes = span_attributes
        self._tracer = trace.get_tracer("mcp-haystack")
        # The requests that are not settled, by their ids, in the order in which they were made.
        self.in_flight: dict[int, Exchange] = {}
        # Returns an unused id.
        self.next_id: Callable[[], int] = count().__next__
        self._greatest_id = -1
        # The requests of the server that are being answered, by their ids.
        self._answering: dict[str | int, asyncio.Task[None]] = {}
        # The background tasks, and the functions that cancel them.
        self.background: dict[asyncio.Task[None], Callable[[], object]] = {}
        self.has_ended: bool = False

    async def request(self, exchange: Exchange) -> dict[str, Any]:
        """
        Send a request and wait for its answer, in the caller's task.

        :param exchange: The request.
        :returns: The result as it came.
        :raises RequestError: If there is no result.
        :raises ValueError: If the request cannot be written as JSON. The text of the error may quote the request.
        """
        name = exchange.params.get("name") if exchange.params and exchange.method in _NAME_ATTRIBUTES else None
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
                    exchange.answer.exception()  # so that asyncio does not log it as never retrieved

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
                if exchange.name and (name_attribute := _NAME_ATTRIBUTES.get(exchange.method)):
                    attributes[name_attribute] = exchange.name
                if exchange.method == "tools/call":
                    attributes["gen_ai.operation.name"] = "execute_tool"
                span.set_attributes({**attributes, **self._span_attributes()})
            try:
                yield
                if exchange.method == "tools/call" and exchange.answer.result().get("isError") is True:
                    span.set_attribute("error.type", "tool_error")
                    span.set_status(trace.StatusCode.ERROR)
            except RequestError as error:
                if isinstance(error, ProtocolError):
                    span.set_attributes({"error.type": str(error.code), "rpc.response.status_code": str(error.code)})
                    span.set_status(trace.StatusCode.ERROR, self._life.redact(error.message))
                else:
                    span.set_attribute("error.type", type(error).__name__)
                    span.set_status(trace.StatusCode.ERROR)
                raise

    async def send_notification(self, method: str, params: dict[str, Any] | None = None) -> None:
        """
        Send a notification, and wait until it has left.

        :param method: Its method.
        :param params: Its parameters.
        :raises Exception: If that fails.
        """
        await self._send({"method": method} if params is None else {"method": method, "params": params})

    def notify(self, method: str, params: dict[str, Any]) -> None:
        """
        Send a notification in the background. Failures are only logged.

        :param method: Its method.
        :param params: Its parameters.
        """
        self.spawn(self._log_if_it_fails(partial(self.send_notification, method, params)))

    async def _send(self, message: dict[str, Any]) -> None:
        async with asyncio.timeout(_SEND_TIMEOUT):
            await self.transport.send(to_json({"jsonrpc": "2.0", **message}, inf_nan_mode="null"))

    async def _log_if_it_fails(self, send: Callable[[], Awaitable[None]]) -> None:
        try:
            await send()
        except Exception as error:
            logger.debug("A message could not be sent: {kind}", kind=type(error).__name__)

    def received(self, frame: dict[str, Any] | Unreadable, exchange: Exchange | None = None) -> None:
        """
        Process a message of the server.

        :param frame: The message, as `read_messages` returns it.
        :param exchange: The request in whose own stream or response it came; None on a stream of the whole connection.
        """
        if isinstance(frame, dict) and "method" in frame:
            params = frame.get("params")
            params = params if isinstance(params, dict) else {}
            if "id" in frame:
                self._start_answering(frame["id"], frame["method"], params, exchange)
            else:
                self._notified(frame["method"], params, exchange)
            return
        request_id = own_id(frame.id) if isinstance(frame, Unreadable) else frame["id"]
        # In the stream of a request, an answer belongs to that request unless it has the id of another one, which may
        # have been given up.
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
            target = self.in_flight.get(own_id(params.get("progressToken")))
            progress, total, message = (params.get(key) for key in ("progress", "total", "message"))
            if target is not None and target.on_progress is not None and not target.is_settled:
                if isinstance(progress, int | float):
                    try:
                        target.on_progress(progress, total, message)
                    except Exception as error:  # later messages are still read
                        logger.debug("A report of progress was not taken: {kind}", kind=type(error).__name__)
        elif method == "notifications/cancelled":
            request_id = params.get("requestId")
            task = self._answering.get(request_id) if isinstance(request_id, str | int) else None
            if task is not None:
                task.cancel()
        else:
            self._notify_client(method, params, exchange)

    def _start_answering(
        self, request_id: str | int, method: str, params: dict[str, Any], exchange: Exchange | None
    ) -> None:
        if self.has_ended:
            return  # the answer could not be sent
        context = None  # the context in which the session was opened
        # On a stream of the whole connection, the server does not say for which call it asks. If there is only one, it
        # is for that call.
        calls = [each for each in self.in_flight.values() if each.name is not None] if exchange is None else [exchange]
        if len(calls) == 1:
            context = calls[0].context.copy()
            if exchange is None:
                context.run(current_request.set, None)
        # It runs in no scope of the transport, so that a cancelled handler may still await its cleanup.
        task = asyncio.get_running_loop().create_task(self._answer(request_id, method, params), context=context)
        self._answering[request_id] = task
        self.background[task] = task.cancel
        task.add_done_callback(self.background.pop)
        task.add_done_callback(lambda _: self._answering.pop(request_id, None))

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
        self.spawn(self._log_if_it_fails(partial(self._send, message)))

    def spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        """
        Run a coroutine in the background, until the channel is closed at the latest.

        :param coroutine: The coroutine.
        """

        async def run() -> None:
            with self.transport.cancel_scope() as scope:
                cancel = self.background[task] = task.cancel if scope is None else scope.cancel
                if self.has_ended:
                    cancel()
                await coroutine

        task = asyncio.create_task(run())
        self.background[task] = task.cancel  # until it has begun
        task.add_done_callback(self.background.pop)
        task.add_done_callback(lambda _: coroutine.close())  # for a task that was cancelled before its start

    def drained(self, reason: str) -> None:
        """
        Note that the server has forgotten the session, or may have.

        :param reason: Why, as a clause.
        """
        self._life.end(reason, SessionState.DRAINING)

    def ended(self, reason: str | None = None) -> None:
        """
        Note that no more messages can come in: all exchanges in flight are lost.

        :param reason: Why, as a clause; None if the reason is not known yet.
        """
        self.has_ended = True
        self._life.end(reason)
        for exchange in self.in_flight.values():
            exchange.lose(reason or "")

    async def close(self) -> None:
        """
        End all exchanges and background tasks, and close the transport.
        """
        self.has_ended = True
        for exchange in self.in_flight.values():
            exchange.lose()
        background = {task: cancel for task, cancel in self.background.items() if task is not asyncio.current_task()}
        for cancel in background.values():
            cancel()
        try:
            if background:
                await asyncio.wait(background, timeout=_ENDING_TIMEOUT)
        finally:
            await self.transport.close()
