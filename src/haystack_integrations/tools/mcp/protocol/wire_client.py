# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The client of a built-in transport: it opens a session, sends requests, and translates their failures into errors.
"""

from __future__ import annotations

import importlib.metadata
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import cache, partial
from itertools import islice
from typing import Any, ClassVar, TypeVar

import mcp_types as types
from haystack import logging
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from haystack_integrations.tools.mcp.convert.odd_messages import CALL_METHOD, LIST_METHOD, read_plain, repair_result
from haystack_integrations.tools.mcp.errors import (
    MCPAuthorizationError,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)
from haystack_integrations.tools.mcp.protocol.changes import shortest_ttl
from haystack_integrations.tools.mcp.protocol.channel import (
    CLOSED_DURING_CALL,
    STATES_TAKING_CALLS,
    Channel,
    Exchange,
    OnProgress,
    SessionLife,
    SessionState,
    Transport,
)
from haystack_integrations.tools.mcp.protocol.listed_tools import InvalidResultError, ListedTools
from haystack_integrations.tools.mcp.protocol.mcp_client import MCPClient
from haystack_integrations.tools.mcp.protocol.negotiation import Negotiation, NegotiationError, ServerDetails
from haystack_integrations.tools.mcp.protocol.request_errors import (
    CallDidNotRunError,
    LostError,
    NoAnswerError,
    ProtocolError,
    ReadInterruptedError,
    RefusedError,
    RequestError,
    UnreadableError,
    describe_error,
    describe_unsendable,
    describe_validation,
    failed_to,
    not_connected,
    outcome_unknown,
    redacted_result,
    with_full_stop,
)
from haystack_integrations.tools.mcp.protocol.requests_of_server import Continuation, ServerRequests
from haystack_integrations.tools.mcp.protocol.server_info import within
from haystack_integrations.tools.mcp.redaction import Redactor

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# How many unreadable items are logged.
_MAX_LOGGED_ITEMS = 50

_SERVER_CLOSED = "the server closed the connection"


@cache
def client_info() -> dict[str, Any]:
    """
    Identify this client to servers.

    :returns: Name and version of this package, as in the protocol.
    """
    try:
        version = importlib.metadata.version("mcp-haystack")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        version = "unknown"
    return {"name": "mcp-haystack", "version": version}


def _with_server_text(reason: str, error: RequestError) -> str:
    """
    Add the text from the server to the reason of a failure.
    """
    return f"{reason}: {error.server_text}" if error.server_text else reason


class WireClient(MCPClient):
    """
    A client over a built-in transport.

    `connect` and `aclose` are awaited in one task. All other methods may be called from any task of the event loop.
    """

    # Whether `negotiation="auto"` begins with the handshake of the revisions before 2026-07-28, and asks for newer ones
    # only if the server refuses it; otherwise it is the other way round.
    _handshake_first: bool = False

    # Connect errors whose message says everything, so they are not chained as the cause.
    _explained_by_message: ClassVar[tuple[type[Exception], ...]] = (RequestError, NegotiationError, OSError)

    def __init__(self, max_retries: int = 3, base_delay: float = 1.0, max_delay: float = 30.0) -> None:
        super().__init__(max_retries, base_delay, max_delay)
        self._channel: Channel | None = None
        # The fields that describe the client in each request since revision 2026-07-28.
        self._envelope: dict[str, Any] = {}
        self._connect_failure: str | None = None
        # The HTTP status with which a connect was refused.
        self._connect_status: str | None = None
        self._tools = ListedTools(self._describe)
        self.redactor: Redactor = Redactor()

    def _describe(self) -> str:
        return super()._describe() if self._server_info is None else str(self._server_info.describe())

    @abstractmethod
    async def _make_transport(self) -> Transport:
        """Make the transport, not opened yet."""

    async def _post_mortem(self) -> str | None:
        """Describe the end of a session, before the transport is closed."""
        return None

    def _explain(self, error: BaseException) -> str:
        """Describe the meaning of an exception that `connect` met."""
        return describe_error(error)

    async def _advice(self) -> str | None:
        """Advise what to do about a failed connect."""
        return None

    def _note_error(self, error: ProtocolError) -> None:
        """Check whether an error of the server says that the session has ended."""

    # Opening and closing.

    async def connect(self) -> list[types.Tool]:
        """
        Connect to an MCP server.

        A failed connect leaves nothing open.

        :returns: List of available tools on the server.
        :raises MCPConnectionError: If connection to the server fails.
        """
        if not self.life.owner.opens_client:
            await self.aclose()
            self.life = SessionLife(self.life.owner)
        if self._server_info is not None:
            self.redactor.learn(self._server_info._secrets())
        self.life.redact = self.redactor.text
        self.life.opening()
        self._connect_failure = None
        try:
            return await self._connect()
        except Exception as error:
            self.redactor.error(error)
            raise

    async def _connect(self) -> list[types.Tool]:
        self._connect_status = None
        try:
            self._set_up_handlers()
            transport = await self._make_transport()
            channel = self._channel = Channel(
                transport,
                self.life,
                answer=self._server_requests.respond,
                notified=self._notified,
                missed=self.on_gap,
                span_attributes=self._span_attributes,
            )
            await transport.open()
            self._details = await self._negotiate(channel)
            self._is_modern = self._details.protocol_version in MODERN_PROTOCOL_VERSIONS
            await self._finish_handshake(channel, self._details)
            tools = await self._list_all()
            await transport.wait_until_listening()
            if not self.life.owner.opens_client:
                self.life.opened()
            return tools
        except BaseException as error:
            if isinstance(error, LostError) and not error.reason:
                await self.find_reason()
            await self._close()
            if isinstance(error, MCPConnectionError) or not isinstance(error, Exception):
                raise
            failure = await self._connect_error(error)
            # If the message says everything, the traceback ends there. Debuggers find the cause in the context.
            raise failure from (None if isinstance(error, self._explained_by_message) else error)

    def _set_up_handlers(self) -> None:
        requests = self._server_requests = ServerRequests(self.handlers, self._describe(), self.redactor)
        requests.on_question = self.on_question
        requests.caller = self.life.owner.caller
        requests.requests_in_flight = self.life.owner.requests_in_flight
        self._cached.clear()

    async def _negotiate(self, channel: Channel) -> ServerDetails:
        async def send(method: str, params: dict[str, Any], version: str | None) -> dict[str, Any]:
            return await channel.request(Exchange(channel.next_id(), method, params, version=version))

        configured = self.handlers.client_info
        negotiation = Negotiation(
            send,
            client_info=dict(configured) if configured is not None else client_info(),
            capabilities=self._server_requests.capabilities,
            within=partial(within, server_info=self._server_info),
        )
        wanted = getattr(self._server_info, "negotiation", "auto")
        if wanted == "handshake":
            opening = await negotiation.shake_hands()
        elif wanted == "auto" and self._handshake_first:
            opening = await negotiation.handshake_first()
        else:
            opening = await negotiation.discover_first()
        self._envelope = negotiation.envelope(opening.protocol_version or "")
        return opening

    async def _finish_handshake(self, channel: Channel, details: ServerDetails) -> None:
        revision = details.protocol_version or ""
        channel.transport.opened(revision)
        if not self._is_modern:
            try:
                await channel.send_notification("notifications/initialized")
            except Exception as error:  # the next request shows whether it matters
                kind = type(error).__name__
                logger.debug("{server} did not take `initialized`: {kind}", server=self._describe(), kind=kind)
            channel.transport.start_listening()
        level = self._server_requests.opened(revision, details.capabilities or {}, details.name)
        if level is not None:
            try:
                await self._request("logging/setLevel", {"level": level})
            except RequestError as error:  # if anything else is wrong, the listing fails
                kind = type(error).__name__
                logger.debug("{server} did not take the level of its logs: {kind}", server=self._describe(), kind=kind)

    async def _connect_error(self, error: Exception) -> MCPConnectionError:
        problem = self._connect_failure = await self._describe_connect_failure(error)
        if isinstance(error, RequestError):
            self._connect_status = error.status
        protocol = error if isinstance(error, ProtocolError) else None
        is_unauthorized = isinstance(error, RefusedError) and error.is_unauthorized
        # A diagnosis would send requests without a token.
        needs_no_advice = is_unauthorized or self.life.owner.throttle.seconds > 0
        advice = None if needs_no_advice else await self._advice()
        problem = with_full_stop(problem)
        wants_login = is_unauthorized or (self._connect_status or "").startswith(("401", "403"))
        kind = MCPAuthorizationError if wants_login else MCPConnectionError
        failure = kind(
            f"Failed to connect to {self._describe()}: {f'{problem} {advice}' if advice else problem}",
            server_info=self._server_info,
            operation="connect",
            code=protocol.code if protocol is not None else None,
            data=protocol.data if protocol is not None else None,
        )
        if protocol is not None or (isinstance(error, RequestError) and error.server_text):
            refused = f"HTTP {self._connect_status}" if self._connect_status else "an error"
            failure._for_others = f"Failed to connect to {self._describe()}: it answered with {refused}"
        return failure

    async def _describe_connect_failure(self, error: Exception) -> str:
        if not isinstance(error, RequestError):
            return self.life.loss or self._explain(error)
        if error.status is not None:
            problem = f"it answered with HTTP {error.status}"
            # The advice says more about a 401.
            return problem if error.status.startswith("401") else _with_server_text(problem, error)
        problem = self.life.loss or error.reason
        if not problem and isinstance(error, RefusedError | LostError):
            problem = await self.find_reason()  # the transport noticed the end before its reader did
        return problem or self._explain(error)

    def progress(self) -> str:
        """
        Describe how far `connect` has come, for the message of a timeout.

        :returns: A clause, or the empty string.
        """
        is_listing = self._connect_failure is None and self._details.protocol_version is not None
        return "it has opened a session, but not listed its tools" if is_listing else self._connect_failure or ""

    async def find_reason(self) -> str:
        """
        Find out why the session ended. All callers get the same reason, as soon as it is known.

        :returns: A clause.
        """
        if self.life.reason is None:
            self.life.end(await self._post_mortem() or _SERVER_CLOSED)
        return self.life.reason or ""

    async def aclose(self) -> None:
        """
        Close the connection and clean up resources.

        This method ensures all resources are properly released, even if errors occur.
        """
        self.life.end(CLOSED_DURING_CALL, SessionState.CLOSED)
        await self._close()
        self.life.end(_SERVER_CLOSED)

    async def _close(self) -> None:
        # Once the transport is closed, the reason cannot be found any more.
        if self.life.state is SessionState.LOST and self.life.reason is None:
            if (reason := await self._post_mortem()) is not None:
                self.life.end(reason)
        try:
            if self._channel is not None:
                await self._channel.close()
            self._channel = None  # after a cancellation, the channel is kept, so that it is closed again
        except Exception as error:
            self._channel = None
            logger.debug(
                "Closing {server}: {error}", server=self._describe(), error=self.redactor.text(describe_error(error))
            )
        self._details = ServerDetails()

    def _notified(self, method: str, params: dict[str, Any], exchange: Exchange | None) -> None:
        self._process_change(method, params)
        self._server_requests.notified(method, params, exchange)

    # Requests.

    async def _request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]:
        was_sent_again = False
        while True:
            channel, revision = self._channel, self._details.protocol_version
            if channel is None or revision is None:
                raise not_connected()
            request_id = channel.next_id()
            sent = dict(params) if params is not None else None
            extra: dict[str, Any] = dict(meta) if meta is not None else {}
            headers = None
            if on_progress is not None:
                extra["progressToken"] = request_id
            if self._is_modern:
                if (level := self.handlers.log_level) is not None:
                    extra = {types.LOG_LEVEL_META_KEY: level, **extra}
                extra |= self._envelope
                if method == CALL_METHOD and sent is not None:
                    headers = self._tools.headers(str(sent.get("name")), sent.get("arguments") or {})
            if extra:
                given_params = sent or {}
                sent = {**given_params, "_meta": {**given_params.get("_meta", {}), **extra}}
            try:
                result = await channel.request(
                    Exchange(request_id, method, sent, version=revision, headers=headers, on_progress=on_progress)
                )
                break
            except ProtocolError as error:
                # Sent once more if the tool did not run for a reason that can be removed.
                if method != CALL_METHOD or was_sent_again or not await self._remove_cause(error):
                    raise
                was_sent_again = True
        if result.get("resultType", "") is None:
            del result["resultType"]
        if self._is_modern:
            result.setdefault("resultType", "complete")
        if method == CALL_METHOD and read_plain(result):
            return result
        if method == LIST_METHOD:
            try:
                return await self._tools.read(result, revision)
            except ValueError as error:
                self._fail("list_tools", str(error))
        repaired = repair_result(method, revision, result)
        if repaired.left_out:
            logger.warning(
                "Left out what cannot be read of the answer of {server} to {method}: {items}",
                server=self._describe(),
                method=method,
                items=", ".join(
                    repr(item) if isinstance(item, str) else f"number {item}"
                    for item in islice(repaired.left_out, _MAX_LOGGED_ITEMS)
                ),
            )
        return repaired.result

    async def _remove_cause(self, error: ProtocolError) -> bool:
        if error.code == types.HEADER_MISMATCH and self._is_modern:
            await self._list_all()  # the schema is missing or stale
            return True
        return await self._server_requests.elicit_urls(error.code, error.data)  # the tool waits until they are opened

    async def _list_all(self) -> list[types.Tool]:
        pages = await self._read_pages("tools", partial(self._request, LIST_METHOD))
        self.tools_ttl: float | None = shortest_ttl(pages) if self._is_modern else None
        listed = [self._validated("list_tools", types.ListToolsResult, page) for page in pages]
        tools = [tool for page in listed for tool in page.tools]
        self._tools.note_schemas(tools)
        return tools

    def unusable_tools(self) -> dict[str, str]:
        """
        Return the tools that were left out of the listing although the server has them.

        :returns: The reasons, by the names of the tools; by their numbers for those without a valid name.
        """
        named = self._tools.unusable.items()
        return {tool if isinstance(tool, str) else f"number {tool}": reason for tool, reason in named}

    async def list_tools(self) -> list[types.Tool] | None:
        """
        Ask the connected server for its tools again, all pages of them.

        :returns: The tools.
        :raises MCPConnectionError: If that fails.
        """
        return await self._read("list_tools", self._list_all)

    async def _read(self, operation: str, read: Callable[[], Awaitable[T]]) -> T:
        if self._channel is None:
            raise not_connected()
        if not self.life.is_open:
            interrupted = ReadInterruptedError(
                f"{failed_to(operation, self._describe())}: {await self._session_ended()}", operation=operation
            )
            interrupted.was_sent = False
            raise interrupted
        try:
            return await read()
        except (RequestError, ValueError, InvalidResultError) as error:
            failure = self.redactor.error(await self._read_error(error, operation))
        raise failure

    async def _read_error(self, error: Exception, operation: str) -> MCPConnectionError:
        prefix, info = failed_to(operation, self._describe()), self._server_info
        if isinstance(error, RefusedError) and error.is_unauthorized:
            return MCPAuthorizationError(f"{prefix}: {error.reason}", info, operation)
        is_answered = True
        if isinstance(error, RefusedError | LostError) and not isinstance(error, UnreadableError):
            text = _with_server_text(await self._reason(error), error)
            is_interrupted = error.status is None or not self.life.is_open
            is_answered = False
        else:
            text = self._describe_answer(error) or "a parameter cannot be sent as JSON"  # the error may quote it
            # Reads are repeated in a new session.
            is_interrupted = isinstance(error, ProtocolError) and self.life.state is SessionState.DRAINING
        if is_interrupted:
            failure = ReadInterruptedError(f"{prefix}: {text}", info, operation)
            failure.was_sent = not isinstance(error, RefusedError)
            return failure
        code, data = (error.code, error.data) if isinstance(error, ProtocolError) else (None, None)
        failed = MCPConnectionError(f"{prefix}: {text}", info, operation, code=code, data=data)
        failed._others_may_succeed = is_answered and not isinstance(error, NoAnswerError)
        return failed

    async def _reason(self, error: RefusedError | LostError) -> str:
        """Describe why a request was not answered, or why its session ended if that is the reason."""
        if error.reason:
            return error.reason
        return (await self.find_reason() if self.life.ended_event.is_set() else self.life.reason) or CLOSED_DURING_CALL

    def _describe_answer(self, error: Exception) -> str | None:
        """Describe what is wrong with the answer to a request; None if the request itself is wrong."""
        if isinstance(error, ProtocolError):
            self._note_error(error)
            return describe_error(error)
        if isinstance(error, ValidationError):
            return f"the server's answer is not a valid result: {describe_validation(error)}"
        return None if isinstance(error, ValueError) else describe_error(error)

    # Calls.

    async def _send_call(
        self,
        tool_name: str,
        tool_args: dict[str, Any],
        *,
        meta: dict[str, Any] | None = None,
        on_progress: OnProgress | None = None,
        continuation: Continuation | None = None,
    ) -> types.CallToolResult:
        """
        Call a tool.

        :raises CallLeftOpenError: If the server has questions for the user first, or runs the call as a task.
        """
        if self._channel is None or self.life.state not in STATES_TAKING_CALLS:
            if self._channel is None and self.life.state in (SessionState.NEW, SessionState.OPENING):
                raise not_connected()
            # A call that is not written to a dead server's pipe certainly did not run.
            reason = await self._session_ended()
            not_run = CallDidNotRunError(reason)
            not_run.lost_because = reason
            raise not_run
        missing_before = dict(self._server_requests.missing_counts)
        params = {"name": tool_name, "arguments": tool_args}
        send = partial(self._request, CALL_METHOD, meta=meta, on_progress=on_progress)
        try:
            if continuation is not None:
                params |= await continuation.parameters(self._server_requests)
            answer = await send(params)
            if answer.get("resultType", "complete") != "complete":
                answer = await self._complete_call(
                    lambda more: send({"name": tool_name, "arguments": tool_args, **more}), answer
                )
            result = types.CallToolResult.model_validate(answer, by_name=False)
            if not result.is_error:
                if self._tools.schemas.get(tool_name) is not None:
                    await self._tools.validate(tool_name, result)
                return result
            return redacted_result(self._with_advice(result, missing_before), self.redactor)
        except (RequestError, ValueError, RuntimeError) as error:
            failure = self.redactor.error(await self._call_error(error, missing_before, tool_name, tool_args, meta))
        raise failure

    async def _session_ended(self) -> str:
        if self.life.is_open:
            self.life.end()
        return "the connection is closed" if self.life.state is SessionState.CLOSED else await self.find_reason()

    async def _call_error(
        self,
        error: Exception,
        missing_before: dict[str, int],
        tool_name: str,
        tool_args: dict[str, Any],
        meta: dict[str, Any] | None,
    ) -> Exception:
        code = data = outcome = None
        text = self._describe_answer(error)
        if isinstance(error, RefusedError | LostError):
            reason = await self._reason(error)
            if isinstance(error, LostError) or error.status is None or not self.life.is_open:
                unanswered: CallDidNotRunError | MCPOutcomeUnknownError
                if isinstance(error, RefusedError):
                    denied = error.is_final or error.is_unauthorized
                    unanswered = CallDidNotRunError(_with_server_text(reason, error), denied=denied)
                else:
                    unanswered = outcome_unknown(_with_server_text(reason, error), tool_name, tool_args)
                    unanswered.reason = reason
                unanswered.lost_because = None if self.life.is_open else reason
                unanswered.__cause__ = error
                return unanswered
            text = f"{with_full_stop(_with_server_text(reason, error))} The tool did not run."
            outcome = "did_not_run"
        elif isinstance(error, ProtocolError):
            code, data = error.code, error.data
            if (advice := self._server_requests.advice(missing_before, code, data)) is not None:
                text = f"{with_full_stop(text or '')} {advice}"
            if self.life.state is SessionState.DRAINING:
                text = f"{with_full_stop(text or '')} The next call opens a new session."
        elif isinstance(error, ValidationError | InvalidResultError):
            outcome = "answered"
        elif isinstance(error, ValueError):
            text = describe_unsendable(tool_args if meta is None else {**tool_args, "_meta": meta}, error)
        failure = MCPInvocationError(
            f"Failed to invoke Tool `{tool_name}`: {text}", tool_name, tool_args, code=code, data=data
        )
        failure._outcome = outcome or failure._outcome
        if not isinstance(error, ValueError) or isinstance(error, ValidationError):  # others may quote an argument
            failure.__cause__ = error
        return failure

    def _with_advice(self, result: types.CallToolResult, missing_before: dict[str, int]) -> types.CallToolResult:
        advice = self._server_requests.advice(missing_before)
        if advice is None:
            return result
        return result.model_copy(update={"content": [*result.content, types.TextContent(type="text", text=advice)]})

    async def ping(self) -> bool:
        """
        Send the server a ping and wait for the answer.

        :returns: False if the revision of the protocol has no pings.
        """
        if self._channel is None:
            return False
        if self._is_modern:
            logger.warning(
                "`ping_interval` has no effect on {server}: the protocol revision {protocol_version} has no pings",
                server=self._describe(),
                protocol_version=self._details.protocol_version,
            )
            return False
        with suppress(RequestError):  # an error is an answer as well; if the session ended, others notice that
            await self._request("ping")
        return True

    async def notify_roots_changed(self) -> bool:
        """
        Notify the server that the roots have changed.

        :returns: False if the revision of the protocol has no such notification; the server then asks in each call.
        :raises MCPConnectionError: If that fails.
        """

        async def notify() -> bool:
            if self._is_modern or self._channel is None:
                return False
            await self._channel.send_notification("notifications/roots/list_changed")
            return True

        return await self._read("notify_roots_changed", notify)

    def _span_attributes(self) -> dict[str, str]:
        attributes = {"mcp.server": self._describe()}
        if self._details.name is not None:
            attributes["mcp.server.name"] = self._details.name
        return attributes


# Pydantic completes some models at their first use, while it holds a lock. A process that is forked at that moment
# could never take the lock, so the models are completed before there is a session.
for _model in list(vars(types).values()):
    if isinstance(_model, type) and issubclass(_model, BaseModel) and not _model.__pydantic_complete__:
        _model.model_rebuild()
