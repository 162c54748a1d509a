# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A run that is open in this process: finds the next recorded call, reply or value, and writes new ones.

.. code-block:: text

    absent ──> started ─────────────> done | failed   a call; once it is started, it may have been sent
                  └────> pending ───> done | failed   the server has it: a task, or a question that is open

A process that continues a run returns the result of a call that is done or failed. A call that failed without running
is sent again, unless a model has seen the failure. A pending call is taken up again; once the answers to its question
are sent, or if the server has forgotten its task, it counts as started. A started call is sent again if that is
allowed; otherwise `on_unknown` decides.

A reply of the model, a person's decision or a value is written as soon as it is known.
"""

from __future__ import annotations

import asyncio
import dataclasses
import hashlib
import inspect
import json
import os
import socket
import threading
import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Self, TypeAlias, TypeVar

from haystack import logging
from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp import errors
from haystack_integrations.tools.mcp.concurrency import Call, call_async, call_here, run_here
from haystack_integrations.tools.mcp.connection.monitoring import outcome_of
from haystack_integrations.tools.mcp.connection.requests import CallRecorder, CallToRecord, Recall, call_recorder
from haystack_integrations.tools.mcp.durable.store import Entry, Lease, Place, Store, boot_clock
from haystack_integrations.tools.mcp.errors import (
    MCPCallInDoubtError,
    MCPCallPendingError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPRunChangedError,
    MCPRunElsewhereError,
    MCPRunError,
)
from haystack_integrations.tools.mcp.executor import is_from_caller
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall, arguments_with_secrets
from haystack_integrations.tools.mcp.redaction import Redactor, redact_text

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.requests import CallRequest, ToolListing

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

OnUnknown: TypeAlias = Literal["error", "model"] | Callable[["UnknownCall"], Literal["error", "model", "repeat"]]

# The name in `_meta` of a call's idempotency key, which is the same at every attempt.
KEY_IN_META: Final = "ai.deepset.haystack/idempotency-key"

# Seconds between two attempts to write into a database that cannot be reached.
_WRITE_RETRY_PAUSE: Final = 0.2

# The text for a model about a call that may have run.
MAY_HAVE_RUN_TEXT: Final = (
    "The call was sent and not answered: the tool may have run. Do not repeat it without checking."
)

# The outcome of a call that a person wants to be repeated.
TO_REPEAT: Final = "to_repeat"

_TAKEN_OVER: Final = "another process has taken it over, or the journal has lost its latest records"


class Scope(NamedTuple):
    """
    The position of code within a run.

    :param path: The calls and branches that the code runs in.
    :param after: The chat generator that replied last in this context; empty before the first reply.
    """

    path: str = ""
    after: str = ""


scope: Final[ContextVar[Scope]] = ContextVar("haystack_mcp_run_scope", default=Scope())  # noqa: B039 - it is frozen


@contextmanager
def in_scope(path: str) -> Iterator[None]:
    """
    Give the records of a block a separate path.

    :param path: The calls and branches that the block runs in.
    """
    token = scope.set(Scope(path))
    try:
        yield
    finally:
        scope.reset(token)


def scope_of_call(entry: Entry) -> str:
    """
    Return the path of what runs within a call.

    :param entry: The record of the call.
    :returns: The path.
    """
    place = entry.place
    return f"{place.scope}/{place.step}.{place.name}.{place.fingerprint[:12]}.{place.occurrence}"


@dataclass(frozen=True, kw_only=True)
class UnknownCall:
    """
    A call whose tool may have run, because the process died or the connection was lost after it was sent.

    :param run: Name of the run.
    :param number: Number of the call in the journal, for `RunJournal.decide`.
    :param tool_name: Name of the tool.
    :param arguments: The arguments, redacted.
    :param started: When it was sent, in seconds since 1970.
    :param key: The key that was sent in `_meta`. The server may recognize the call by it.
    """

    run: str
    number: int
    tool_name: str
    arguments: dict[str, Any] = field(repr=False)
    started: float
    key: str


def unknown_call(run: str, entry: Entry) -> UnknownCall:
    """
    Describe a call whose outcome is unknown.

    :param run: Name of the run.
    :param entry: The record of the call.
    :returns: The description.
    """
    return UnknownCall(
        run=run,
        number=entry.number,
        tool_name=entry.place.name,
        arguments=entry.request["arguments"],
        started=entry.started,
        key=entry.request["key"],
    )


class OpenRun(CallRecorder):
    """
    A run that this process has leased. Thread-safe.
    """

    # Whether errors may quote arguments.
    _shows_values = False

    def __init__(
        self, store: Store, name: str, lease: Lease, seconds: float, deadline: float, on_unknown: OnUnknown
    ) -> None:
        """
        Initialize the OpenRun.

        :param store: The journal.
        :param name: Name of the run.
        :param lease: The lease.
        :param seconds: For how many seconds each renewal prolongs the lease.
        :param deadline: When the lease ends at the earliest, by `boot_clock`.
        :param on_unknown: What to do about calls whose outcome is unknown.
        :raises MCPRunError: If the records cannot be read.
        """
        self.name = name
        self._store = store
        self._lease = lease
        self._seconds = seconds
        self._on_unknown = on_unknown
        self._pid = os.getpid()
        self._lock = threading.Lock()
        recorded = store.entries(name) if lease.epoch > 1 else []
        # Threads that go through them take a copy first, because another thread may add one.
        self._entries: dict[Place, Entry] = {entry.place: entry for entry in recorded}
        self._put_calls_that_did_not_run_last()
        # The number of replies so far, and the number of equal calls and values.
        self._steps: Counter[Scope] = Counter()
        self._occurrences: Counter[tuple[Any, ...]] = Counter()
        # Which of the equal ones have no result, so that the next try gets their places.
        self._freed: defaultdict[tuple[Any, ...], set[int]] = defaultdict(set)
        # The errors of calls in doubt that code has not tried again.
        self._doubts: dict[Place, MCPCallInDoubtError] = {}
        # The calls that are recorded and not sent yet, by their numbers.
        self._unsent: dict[int, Entry] = {}
        self._open_requests: set[Scope] = set()
        self._calls_in_flight = 0
        self._deadline = deadline
        self._has_lost_lease = False
        self._has_abandoned_record = False
        self._ended = threading.Event()
        # The tools of each server, by the server's description, for a cassette.
        self.listings: dict[str, ToolListing] = {}

    def keep_listing(self, server: str, listing: ToolListing) -> None:
        """
        Keep the tools of a server. See `connection.requests.CallRecorder`.
        """
        self.listings.setdefault(server, listing)

    # The lease

    def renew_lease(self) -> None:
        """
        Prolong the lease.
        """
        if self._ended.is_set() or self._has_lost_lease:
            return
        asked_at = boot_clock()
        try:
            is_ours = self._store.renew(self._lease, self._seconds)
        except Exception as error:  # the database may recover before the lease ends; other runs share this thread
            logger.warning("The lease of run '{run}' was not renewed: {error}", run=self.name, error=str(error))
            return
        if is_ours:
            self._deadline = asked_at + self._seconds
        elif not self._ended.is_set():
            self._has_lost_lease = True

    def _check_may_go_on(self) -> None:
        """
        Refuse to send or write if another process may have the run.
        """
        if self._pid != os.getpid():
            reason = "it was opened in the process that this one was forked from"
        elif self._ended.is_set():
            reason = "its block was left"
        elif self._has_lost_lease:
            reason = _TAKEN_OVER
        elif self._has_abandoned_record:
            reason = "the caller of one of its calls gave up while that was being recorded"
        elif boot_clock() > self._deadline:
            reason = "its lease has ended, because this process stood still or the journal could not be reached"
        else:
            return
        msg = f"The run '{self.name}' cannot go on here: {reason}. Nothing was sent."
        raise MCPRunError(msg)

    def end(self, error: BaseException | None) -> None:
        """
        Release the lease.

        :param error: The error that ended the run, which can then be continued; None if the run is done.
        """
        with self._lock:
            self._ended.set()
            unsent = list(self._unsent.values())
        self._store.stop_renewing(self.renew_lease)
        if self._pid != os.getpid():
            return
        for entry in unsent:
            self._take_back(entry)
        if self._calls_in_flight:
            # Calls under way still write their results under this lease, so it is left to expire.
            logger.warning(
                "The run '{run}' ended while {count} of its calls were under way",
                run=self.name,
                count=self._calls_in_flight,
            )
            return
        reason = None if error is None else f"{type(error).__name__}: {redact_text(str(error))}"[:1_000]
        state = "done" if error is None else "open"
        release = partial(self._store.release, self._lease, state=state, error=reason)
        try:
            if error is None:
                self._write_until_the_lease_ends(release, "the end", even_after_the_end=True)
            else:
                release()
        except MCPRunError as failure:
            if error is None:
                raise
            # The error that ended the run, perhaps a cancellation, must not be replaced. The lease expires by itself.
            logger.warning("The end of run '{run}' was not recorded: {error}", run=self.name, error=str(failure))

    # What is recorded

    def _next_place(self, kind: str, name: str, fingerprint: str = "") -> Place:
        here = scope.get()
        # A value may be made before, after or during a reply. Calls and decisions are counted by the replies of one
        # generator, because another one may be asked at the same time. Without one in this context, as in the tasks of
        # a concurrent pipeline, only the equal calls before it count.
        step = 0 if kind == "value" else self._steps[here]
        if kind == "decision":
            fingerprint = _fingerprint(here.after)
        key = (here.path, kind, step, name, fingerprint)
        if freed := self._freed[key]:
            freed.remove(occurrence := min(freed))
            return Place(*key, occurrence)
        self._occurrences[key] += 1
        return Place(*key, self._occurrences[key] - 1)

    def _free_place(self, place: Place) -> None:
        """
        Free the place, which has no result: the next try must get the same one, as in a continued run.

        :param place: The place.
        """
        key = (place.scope, place.kind, place.step, place.name, place.fingerprint)
        with self._lock:
            self._freed[key].add(place.occurrence)

    def _put_calls_that_did_not_run_last(self) -> None:
        # Code may have made such a call again. Then it must get the result of the equal call that ran.
        equal_ones: dict[Place, list[Entry]] = {}
        for entry in self._entries.values():
            equal_ones.setdefault(dataclasses.replace(entry.place, occurrence=0), []).append(entry)
        for entries in equal_ones.values():
            ordered = sorted(entries, key=lambda entry: _did_not_run(entry) and not self._is_final(entry))
            for before, entry in zip(entries, ordered, strict=True):
                self._entries[before.place] = dataclasses.replace(entry, place=before.place)

    def _check_before(self, place: Place, request: Any = None) -> None:  # noqa: ARG002 - for a cassette
        try:
            self._check_may_go_on()
        except MCPRunError:
            self._free_place(place)
            raise

    def _write(self, place: Place, request: Any, **result: Any) -> Entry:
        self._check_before(place, request)
        insert = partial(self._store.insert, self._lease, place, request, **result)
        try:
            entry = self._write_until_the_lease_ends(insert, f"'{place.name}'")
        except MCPRunError:
            self._free_place(place)
            raise
        if entry is None:
            self._has_lost_lease = True
        elif entry.state == "started":
            return self._keep_unsent(entry)
        self._check_may_go_on()  # again, because the process may have been suspended since the first check
        return entry  # type: ignore[return-value]

    def _keep_unsent(self, entry: Entry) -> Entry:
        # The end of the run takes it back if its caller gives up before it is sent.
        try:
            with self._lock:
                self._check_may_go_on()
                self._unsent[entry.number] = entry
        except MCPRunError:
            self._take_back(entry)
            raise
        return entry

    def note_sent(self, entry: Entry) -> None:
        """
        Note that a call is sent now, or its tool run.

        :param entry: The call.
        :raises MCPRunError: If the run cannot go on here.
        """
        with self._lock:
            self._check_may_go_on()
            if entry.state == "failed":
                msg = f"The call of '{entry.place.name}' was not sent, because its caller had given up."
                raise MCPRunError(msg)
            self._unsent.pop(entry.number, None)

    def _take_back(self, entry: Entry) -> None:
        try:
            self._store.finish(self._lease, entry, state="failed", result=_NOT_SENT, ended=time.time())
        except MCPRunError as error:  # then it counts as a call that may have run
            logger.warning("A call that was not sent stays in doubt: {error}", error=str(error))

    def _recall(self, place: Place, request: Any, entry: Entry | None) -> Recall:
        def record(result: Any) -> None:
            self._write(place, request, state="done", result=result)

        found = None if entry is None else entry.result
        return Recall(entry is not None, found, record, partial(self._free_place, place))

    def recall(self, kind: str, name: str) -> Recall:
        """
        Find a recorded decision or value, or reserve a place for a new one. See `connection.requests.CallRecorder`.
        """
        with self._lock:
            place = self._next_place(kind, name)
            entry = self._entries.get(place)
        if entry is None:
            self._check_before(place)
        return self._recall(place, None, entry)

    # Replies of the model

    @contextmanager
    def replying(self, name: str, request: dict[str, Any]) -> Iterator[Recall]:
        """
        Find the recorded reply to a request, or reserve a place for a new one.

        :param name: Name of the chat generator.
        :param request: The request, as `request_of` describes it.
        :returns: A context manager that yields the reply, or the place for it.
        :raises MCPRunChangedError: If another request was recorded.
        :raises MCPRunError: If the generator is asked twice at once.
        """
        request_scope = Scope(scope.get().path, name)
        with self._lock:
            if request_scope in self._open_requests:
                msg = (
                    f"The chat generator '{name}' was asked twice at once in run '{self.name}': a continued run could "
                    'not tell the replies apart. Run each in a block `with journal.branch("a name"):`, or give '
                    "the generators names."
                )
                raise MCPRunError(msg)
            self._open_requests.add(request_scope)
            place = Place(scope=request_scope.path, kind="reply", step=self._steps[request_scope], name=name)
            entry = self._entries.get(place)
        try:
            if entry is None:
                # Code may have hidden the error, such as an agent as a tool that the journal does not record.
                hidden = [each for at, each in list(self._doubts.items()) if at.scope == place.scope]
                if hidden:
                    raise hidden[0]
                self._check_before(place, request)
            elif differences := _differences_of_requests(entry.request, request):
                msg = f"request {place.step + 1} to '{name}' is not the one that is recorded: {differences}"
                raise self._changed_error(msg)
            yield self._recall(place, request, entry)
            with self._lock:
                self._steps[request_scope] += 1
            scope.set(request_scope)
        finally:
            self._open_requests.discard(request_scope)

    # Calls of MCP tools

    def deliver(self, call: CallToRecord, send: Callable[[CallRequest], types.CallToolResult]) -> types.CallToolResult:
        """
        Return the recorded result of a call, or send it. See `connection.requests.CallRecorder`.
        """
        return run_here(self._deliver(call_here, call, send))

    async def deliver_async(
        self, call: CallToRecord, send: Callable[[CallRequest], Awaitable[types.CallToolResult]]
    ) -> types.CallToolResult:
        """
        Return the recorded result of a call, or send it, without blocking the event loop.
        """
        return await self._deliver(call_async, call, send)

    async def _deliver(self, do: Call, call: CallToRecord, send: Callable[[CallRequest], Any]) -> types.CallToolResult:
        entry, is_due = await self.recorded(do(self, "_begin_call", call))
        if not is_due:
            return _result(entry)
        with self.running(entry):
            while True:
                try:
                    sent = send(self._request(call, entry))
                    result = await sent if inspect.isawaitable(sent) else sent
                except Exception as error:
                    if is_from_caller(error):
                        raise
                    entry = await self.recorded(do(self, "_fail", entry, call, error))
                else:
                    return await do(self, "_finish", entry, call, result)  # type: ignore[no-any-return]

    async def recorded(self, recording: Awaitable[T]) -> T:
        """
        Wait until a call is found or recorded, or that it failed.

        :param recording: What does that, perhaps in a thread.
        :returns: Its result.
        """
        try:
            return await recording
        except asyncio.CancelledError:
            self._has_abandoned_record = True  # a thread goes on with it, so a second try could be another call
            raise

    @contextmanager
    def running(self, entry: Entry) -> Iterator[None]:
        """
        Give what runs within a call its own path, and note whether its caller gives up.

        :param entry: The call.
        """
        with self._lock:
            self._calls_in_flight += 1
        is_given_up = False
        try:
            # A handler that answers the server runs on behalf of the call, which may not be sent in a continued run.
            with in_scope(scope_of_call(entry)):
                yield
        except BaseException as error:
            is_given_up = not isinstance(error, Exception) or is_from_caller(error)
            if is_given_up or isinstance(error, MCPRunError):
                self._keep_without_result(entry)
            raise
        finally:
            with self._lock:
                self._calls_in_flight -= 1
                if not is_given_up:
                    self._unsent.pop(entry.number, None)
                elif entry.number in self._unsent:  # from now on, it is not sent; the next try may do so
                    entry.state, entry.result = "failed", _NOT_SENT

    def _begin_call(self, call: CallToRecord) -> tuple[Entry, bool]:
        request = call.request
        entry, is_due = self.begin(
            request.display_name, call.arguments, secrets=call.secrets, may_repeat=call.may_repeat
        )
        if not is_due and entry.state == "failed":
            raise _error_from(entry.result, request)
        if is_due and call.is_intercepted:
            self.note_sent(entry)  # an interceptor may run the tool in another way
        return entry, is_due

    def _request(self, call: CallToRecord, entry: Entry) -> CallRequest:
        """
        Make the request to send: the call with its key and, if the call is pending, the server's handle of it.
        """
        request, key = call.request, entry.request["key"]
        arguments = request.tool_args if call.key_argument is None else {**request.tool_args, call.key_argument: key}
        continues = (_handle(entry, arguments, call.secrets), None) if entry.state == "pending" else None
        return dataclasses.replace(
            request,
            meta={**(request.meta or {}), KEY_IN_META: key},
            tool_args=arguments,
            continues=continues,
            on_pending=lambda pending: self._note_pending(entry, pending),
            on_answered=lambda: self._note_answered(entry),
            before_send=partial(self.note_sent, entry),
        )

    def _note_pending(self, entry: Entry, pending: MCPPendingCall) -> None:
        # The arguments are left out: they may contain secrets, and the call has them when it is continued.
        handle = dataclasses.replace(pending, arguments={}, withheld=()).to_dict()
        self.record_state(entry, "pending", handle)

    def _note_answered(self, entry: Entry) -> None:
        self._send_again(entry)
        entry.state = "started"

    def _fail(self, entry: Entry, call: CallToRecord, error: Exception) -> Entry:
        """
        Record that a call failed and raise its error, or return the call if it is to be sent again.
        """
        redactor = Redactor(call.secrets)
        name = call.request.display_name
        if isinstance(error.__cause__, MCPRunError):  # of `_note_answered` or `note_sent`: nothing was sent
            if entry.state == "started" and outcome_of(error) == "did_not_run":
                self.record_state(entry, "failed", _stored_error(error, redactor, name))
            raise MCPRunError(str(error.__cause__)) from error
        asks = entry.state == "pending" and entry.result.get("task_id") is None  # no answers were sent
        if asks and outcome_of(error) != "did_not_run":  # nobody answered, or a handler failed
            # The module imports the protocol's types, which takes a quarter of a second.
            from haystack_integrations.tools.mcp.connection.tool_call import pending_error  # noqa: PLC0415

            self._keep_without_result(entry)
            raise pending_error(_handle(entry, call.request.tool_args, call.secrets), call.request) from error
        if isinstance(error, MCPCallPendingError):
            self._note_pending(entry, error.pending_call)
            self._keep_without_result(entry)
            raise error
        if isinstance(error, MCPOutcomeUnknownError):
            # A function could have a task that goes on repeated.
            is_asked = error.pending_call is None or not callable(self._on_unknown)
            decision = self._decide(entry) if is_asked else "error"
            if decision == "repeat":
                self._check_may_go_on()
                return self._send_again(entry)
            if decision == "error":
                if error.pending_call is None and entry.state == "pending":  # the server has forgotten its task
                    self.record_state(entry, "started", None)
                about = (
                    _in_doubt_message(self.name, entry)
                    if error.pending_call is None
                    else _task_message(self.name, entry)
                )
                raise self._in_doubt_error(entry, f"{about} {redactor.text(str(error))}") from error
        self.record_state(entry, "failed", _stored_error(error, redactor, name))
        raise error

    def _finish(self, entry: Entry, call: CallToRecord, result: types.CallToolResult) -> types.CallToolResult:
        stored = result.model_dump(mode="json", by_alias=True, exclude_none=True)
        self.record_state(entry, "done", Redactor(call.secrets).redact_declared(stored))
        return result

    # Calls of any tools

    def begin(
        self,
        tool_name: str,
        arguments: dict[str, Any],
        *,
        may_repeat: Callable[[], bool],
        recalls_content: bool = False,
        secrets: Sequence[str] = (),
    ) -> tuple[Entry, bool]:
        """
        Find a recorded call, or record that it is made.

        :param tool_name: Name of the tool.
        :param arguments: The arguments by which it is recognized.
        :param may_repeat: Returns whether the tool may run twice. Asked only if it may have run.
        :param recalls_content: Whether it may only because what runs within the call is recalled. That works only if
            the call was made before the run was opened.
        :param secrets: Texts that must not be written down.
        :returns: The call, and whether to make it now. A pending call is to be taken up again.
        :raises MCPCallInDoubtError: If it was made and its outcome is unknown.
        :raises MCPRunChangedError: If it was not made when the run was recorded.
        :raises MCPRunError: If the run cannot go on here.
        """
        with self._lock:
            place = self._next_place("call", tool_name, _fingerprint(arguments))
            entry = self._entries.get(place)
            self._doubts.pop(place, None)
        if entry is None:
            key = hashlib.sha256(f"{self._lease.run}|{place}".encode("utf-8", "surrogatepass")).hexdigest()
            request = {"arguments": Redactor(secrets).redact_declared(_json(arguments)), "key": key}
            if self._is_replied_to(place):
                msg = f"it has no such call of '{tool_name}'. {self._describe_nearest(place, request)}"
                raise self._changed_error(msg)
            return self._write(place, request), True
        if self._is_final(entry):
            return entry, False
        self._check_before(place, entry.request)
        if entry.state == "pending":
            return self._restart(entry), True
        may_recall = entry.epoch < self._lease.epoch or not recalls_content
        may_send = entry.state == "failed" or (may_recall and may_repeat())
        decision = "repeat" if may_send else self._decide(entry)
        if decision == "repeat":
            return self._keep_unsent(self._send_again(entry)), True
        if decision == "error":
            raise self._in_doubt_error(entry, _in_doubt_message(self.name, entry))
        outcome = error_record("MCPOutcomeUnknownError", MAY_HAVE_RUN_TEXT)
        self.record_state(entry, "failed", outcome)
        return entry, False

    def _is_final(self, entry: Entry) -> bool:
        """
        Return whether the recorded outcome of a call is final.
        """
        # A call that did not run is made now, unless a model has already seen the failure: the one that asked for the
        # call, or another.
        if _did_not_run(entry):
            later = [each.place for each in list(self._entries.values()) if each.number > entry.number]
            return any(each.kind == "reply" and each.scope == entry.place.scope for each in later)
        return entry.state == "done" or (entry.state == "failed" and entry.result["outcome"] != TO_REPEAT)

    def _is_replied_to(self, place: Place) -> bool:
        """
        Return whether the model has replied to the outcome of a step.
        """
        reply = dataclasses.replace(place, kind="reply", name=scope.get().after, fingerprint="", occurrence=0)
        return reply in self._entries

    def _send_again(self, entry: Entry) -> Entry:
        return self._restart(dataclasses.replace(entry, state="started", result=None))

    def _restart(self, entry: Entry) -> Entry:
        if not self._store.begin_again(self._lease, entry):
            self._has_lost_lease = True
        self._check_may_go_on()
        return dataclasses.replace(entry, epoch=self._lease.epoch, attempt=entry.attempt + 1)

    def _decide(self, entry: Entry) -> str:
        choice = self._on_unknown
        if not callable(choice):
            return choice
        try:
            decision = choice(unknown_call(self.name, entry))
        except Exception as error:
            # Any other error would hide from the model that the tool may have run.
            msg = f"{_in_doubt_message(self.name, entry)} `on_unknown` raised {type(error).__name__}."
            raise self._in_doubt_error(entry, msg) from error
        if decision not in ("error", "model", "repeat"):
            msg = f"`on_unknown` must return 'error', 'model' or 'repeat', got {decision!r}"
            raise MCPRunError(msg)
        return decision

    def _keep_without_result(self, entry: Entry) -> None:
        # Code that tries again, in this process too, gets this call instead of making another one.
        self._entries[entry.place] = entry
        self._free_place(entry.place)

    def _in_doubt_error(self, entry: Entry, message: str) -> MCPCallInDoubtError:
        self._keep_without_result(entry)
        error = self._doubts[entry.place] = MCPCallInDoubtError(message, entry.place.name, entry.number)
        return error

    def _write_until_the_lease_ends(self, write: Callable[[], T], what: str, *, even_after_the_end: bool = False) -> T:
        # Later renewals do not extend that, because a database may refuse just this write and go on renewing the lease.
        until, has_failed = self._deadline, False
        while True:
            try:
                return write()
            except MCPRunError as error:
                if boot_clock() > until or (self._ended.is_set() and not even_after_the_end):
                    raise
                if not has_failed:
                    logger.warning(
                        "The record of {what} in run '{run}' was not written, and is tried again: {error}",
                        what=what,
                        run=self.name,
                        error=str(error),
                    )
                has_failed = True
                time.sleep(_WRITE_RETRY_PAUSE)

    def record_state(self, entry: Entry, state: str, result: Any) -> None:
        """
        Record the outcome of a call.

        :param entry: The call.
        :param state: "done", "failed", "pending", or "started" if only the handle is to be forgotten.
        :param result: The result, the error or the handle; None without one.
        :raises MCPRunError: If another process has sent the call again, or the journal can no longer be reached.
        """
        finish = partial(self._store.finish, self._lease, entry, state=state, result=result, ended=time.time())
        try:
            is_noted = self._write_until_the_lease_ends(finish, f"'{entry.place.name}'")
        except MCPRunError:
            self._keep_without_result(entry)
            raise
        if not is_noted:
            self._has_lost_lease = True
            msg = f"The run '{self.name}' cannot go on here: {_TAKEN_OVER}."
            raise MCPRunError(msg)
        entry.state, entry.result = state, result

    # Differences between the program and the recorded run

    def _changed_error(self, what: str) -> MCPRunError:
        msg = (
            f"The run '{self.name}' cannot be continued: {what} Continue it with the program that began it, or delete "
            "the run."
        )
        return MCPRunChangedError(msg)

    def _describe_nearest(self, place: Place, request: Any) -> str:
        """
        Describe how the most similar recorded entry differs from a new one.
        """

        def described(place: Place, request: Any) -> dict[str, Any]:
            fields = {"name": place.name, "step": place.step, "branch": place.scope, "occurrence": place.occurrence}
            arguments = (request or {}).get("arguments", {})
            return {**fields, **{f"argument `{name}`": value for name, value in arguments.items()}}

        asked = described(place, request)
        recorded = [
            _differences(described(each.place, each.request), asked, are_shown=self._shows_values)
            for each in list(self._entries.values())
            if each.place.kind == place.kind
        ]
        if not recorded:
            return f"No {place.kind} is recorded."
        nearest = min(recorded, key=len)
        differences = "; ".join(nearest) or "it has no result, or *** in place of a secret"
        return f"The nearest one that is recorded differs: {differences}."


class DurableRun:
    """
    A context manager that opens a run. `RunJournal.run` makes it.
    """

    def __init__(self, store: Store, name: str, seconds: float, on_unknown: OnUnknown) -> None:
        """
        Initialize the DurableRun.

        :param store: The journal.
        :param name: Name of the run.
        :param seconds: The duration of a lease in seconds.
        :param on_unknown: What to do about calls without a result.
        """
        self.name = name
        self._store = store
        self._seconds = seconds
        self._on_unknown: OnUnknown = on_unknown
        # The class of the open run. A cassette that is played replaces it.
        self._run_class: Callable[..., OpenRun] = OpenRun
        self._opened: OpenRun | None = None
        self._context_tokens: tuple[Token[CallRecorder | None], Token[Scope]] | None = None

    def _open(self) -> OpenRun:
        owner = f"{socket.gethostname()}:{os.getpid()}:{uuid.uuid4().hex[:8]}"
        asked_at = boot_clock()
        lease = self._store.claim(self.name, owner, self._seconds)
        if lease is None:
            msg = (
                f"The run '{self.name}' is running elsewhere: in another process, or in another block of this one. Try "
                f"again after {self._seconds:.0f} seconds, or use another name for this run."
            )
            raise MCPRunElsewhereError(msg)
        try:
            return self._run_class(
                self._store, self.name, lease, self._seconds, asked_at + self._seconds, self._on_unknown
            )
        except MCPRunError as error:
            # For example, the encryption key is wrong. A process that can read the run need not wait for this lease.
            self._store.release(lease, state="open", error=f"{type(error).__name__}: {error}")
            raise

    def _close(self, opened: OpenRun, error: BaseException | None) -> None:
        opened.end(error)

    def _enter(self, opened: OpenRun) -> Self:
        # Renewals begin only now, so that the lease expires if the opening of the run was cancelled.
        self._store.begin_renewing(opened.renew_lease, every=self._seconds / 3)
        self._opened = opened
        self._context_tokens = call_recorder.set(opened), scope.set(Scope())
        return self

    def _leave(self) -> OpenRun:
        opened, tokens = self._opened, self._context_tokens
        assert opened is not None and tokens is not None  # noqa: S101 - a block was entered
        self._opened = self._context_tokens = None
        try:
            call_recorder.reset(tokens[0])
            scope.reset(tokens[1])
        except ValueError:
            msg = (
                f"The block of run '{self.name}' was left in another context, such as another thread or task, than it "
                "was entered in. What ran elsewhere was not recorded. Put the block around the code that runs"
            )
            elsewhere = MCPRunError(msg)
            opened.end(elsewhere)
            raise elsewhere from None
        return opened

    def __enter__(self) -> Self:
        """
        Lease the run.

        :returns: The run.
        :raises MCPRunElsewhereError: If another process has leased it.
        :raises MCPRunError: If the journal cannot be used.
        """
        return self._enter(self._open())

    def __exit__(self, _run_class: object, error: BaseException | None, _traceback: object) -> None:
        """
        End the run, or leave it to be continued if there was an error.
        """
        self._close(self._leave(), error)

    async def __aenter__(self) -> Self:
        """
        Lease the run without blocking the event loop.

        :returns: The run.
        """
        return self._enter(await asyncio.to_thread(self._open))

    async def __aexit__(self, _run_class: object, error: BaseException | None, _traceback: object) -> None:
        """
        End the run, or leave it to be continued if there was an error.
        """
        await asyncio.to_thread(self._close, self._leave(), error)


def _fingerprint(arguments: Any) -> str:
    # Values that are not JSON are represented by their type.
    text = json.dumps(arguments, sort_keys=True, default=lambda value: type(value).__name__)
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def request_of(messages: Sequence[ChatMessage] | str, tools: Sequence[Any]) -> dict[str, Any]:
    """
    Describe the parts of a request to the model that must be the same when a run is continued.

    Tool results are not part of it, because their order may differ, nor are system messages, which may contain dates,
    nor the descriptions of tools and parameters, which a server may reword before the run is continued.

    :param messages: The messages, or the text of a user's message.
    :param tools: The tools.
    :returns: Roles and hashes of the messages, and hashes of the tools by their names.
    """
    shape = []
    for message in [ChatMessage.from_user(messages)] if isinstance(messages, str) else messages:
        if message.is_from("user"):
            parts = len(message.texts) + len(message.images) + len(message.files)
            content: Any = [message.texts, parts]
        else:
            content = [[call.tool_name, call.arguments] for call in message.tool_calls]
        shape.append([message.role.value, _fingerprint(content)[:16]])
    hashes = {tool.name: _fingerprint(_without_wording(tool.parameters))[:16] for tool in tools}
    return {"messages": shape, "tools": hashes}


def _without_wording(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_without_wording(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    # A parameter may be called "title", but then it has a schema.
    worded = [key for key in ("title", "description") if isinstance(schema.get(key), str)]
    return {key: _without_wording(value) for key, value in schema.items() if key not in worded}


def _differences(recorded: dict[str, Any], current: dict[str, Any], *, are_shown: bool) -> list[str]:
    names = [name for name in {**recorded, **current} if recorded.get(name) != current.get(name)]
    if not are_shown:
        return [f"the {name} is another one" for name in names]
    return [f"the {name} is {current.get(name)!r} instead of {recorded.get(name)!r}" for name in names]


def _differences_of_requests(recorded: dict[str, Any], current: dict[str, Any]) -> str:
    before, now = recorded["tools"], current["tools"]
    differences = [f"the tool '{name}' is gone" for name in before if name not in now]
    differences += [f"the tool '{name}' is new" for name in now if name not in before]
    others = [name for name in now if before.get(name, now[name]) != now[name]]
    differences += [f"the parameters of tool '{name}' have changed" for name in others]
    old, new = recorded["messages"], current["messages"]
    if len(old) != len(new):
        differences.append(f"it has {len(new)} messages instead of {len(old)}")
    differences += [
        f"message {number} ({there[0]}) is another one"
        for number, (here, there) in enumerate(zip(old, new, strict=False), 1)
        if here != there
    ]
    return "; ".join(differences) and f"{'; '.join(differences)}."


def _handle(entry: Entry, arguments: dict[str, Any], secrets: Sequence[str]) -> MCPPendingCall:
    withheld = arguments_with_secrets(arguments, secrets)
    kept = {name: value for name, value in arguments.items() if name not in withheld}
    return dataclasses.replace(MCPPendingCall.from_dict(entry.result), arguments=kept, withheld=withheld)


def _did_not_run(entry: Entry) -> bool:
    return entry.state == "failed" and entry.result["outcome"] == "did_not_run"


def _json(value: Any) -> Any:
    return json.loads(json.dumps(value, default=lambda each: type(each).__name__))


def _result(entry: Entry) -> types.CallToolResult:
    import mcp_types as types  # noqa: PLC0415 - the SDK takes long to import

    return types.CallToolResult.model_validate(entry.result, by_name=False)


def error_record(kind: str, message: str, *, code: int | None = None, outcome: str = "may_have_run") -> dict[str, Any]:
    """
    Make the record of an error.

    :param kind: The name of its class.
    :param message: Its message, redacted.
    :param code: Its JSON-RPC code.
    :param outcome: The outcome of the call, as `outcome_of` returns it.
    :returns: JSON.
    """
    return {"kind": kind, "message": message, "code": code, "outcome": outcome}


_NOT_SENT: Final = error_record(
    "MCPInvocationError", "The call was given up before it was sent.", outcome="did_not_run"
)


def _stored_error(error: Exception, redactor: Redactor, tool_name: str) -> dict[str, Any]:
    if not isinstance(error, MCPInvocationError):
        return error_record("MCPInvocationError", redactor.text(f"Failed to invoke Tool `{tool_name}`: {error}"))
    stored = error_record(type(error).__name__, redactor.text(str(error)), code=error.code, outcome=outcome_of(error))
    return {**stored, "is_tool_error": error.is_tool_error, "data": _json(redactor.value(error.data))}


def _error_from(stored: dict[str, Any], request: CallRequest) -> MCPInvocationError:
    kind = getattr(errors, stored["kind"], MCPInvocationError)
    kind = kind if isinstance(kind, type) and issubclass(kind, MCPInvocationError) else MCPInvocationError
    error: MCPInvocationError = kind(
        stored["message"], request.display_name, request.tool_args, code=stored["code"], data=stored.get("data")
    )
    error.is_tool_error, error._outcome = stored.get("is_tool_error", False), stored["outcome"]
    return error


def _task_message(run: str, entry: Entry) -> str:
    return (
        f"The call of '{entry.place.name}' in run '{run}' is a task that goes on at the server. Continue the run to "
        f"take it up again, or `journal.decide({run!r}, {entry.number}, ...)` if the server has lost it."
    )


def _in_doubt_message(run: str, entry: Entry) -> str:
    return (
        f"The call of '{entry.place.name}' in run '{run}' was sent and has no result: the tool may have run. See if "
        f"its effect is there, then `journal.decide({run!r}, {entry.number}, ...)`."
    )
