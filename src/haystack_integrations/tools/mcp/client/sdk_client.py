# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import importlib.metadata
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable
from contextlib import AsyncExitStack
from functools import cache
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

import httpx2
import mcp
from haystack import logging
from mcp import MCPError as ProtocolError
from mcp import types
from mcp.types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from opentelemetry import trace
from pydantic import ValidationError
from pydantic_core import PydanticSerializationError

from haystack_integrations.tools.mcp.client.handshake import HandshakeClient, HandshakeFirst
from haystack_integrations.tools.mcp.client.large_results import validate_in_pieces
from haystack_integrations.tools.mcp.client.listening import cache_config
from haystack_integrations.tools.mcp.client.messages import is_unusable_answer, too_large
from haystack_integrations.tools.mcp.client.pending import (
    CallLeftOpenError,
    Continuation,
    leave_questions_open,
)
from haystack_integrations.tools.mcp.client.request_outcome import CALL_METHOD, RequestOutcome, current_outcome
from haystack_integrations.tools.mcp.client.sdk_workarounds import (
    advertised_extensions,
    answer_missing,
    foreign_content_type,
    is_http_placeholder,
    mend_results,
    replace_validation,
    says_event_too_large,
    says_no_answer,
    says_transport_ended,
)
from haystack_integrations.tools.mcp.client.taps import tapped
from haystack_integrations.tools.mcp.client.tasks import TaskClient
from haystack_integrations.tools.mcp.concurrency import Turns
from haystack_integrations.tools.mcp.convert.odd_messages import mend_result
from haystack_integrations.tools.mcp.convert.tool_definitions import LIST_METHOD, read_page
from haystack_integrations.tools.mcp.errors import (
    NO_DESCRIPTORS,
    MCPAuthorizationError,
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    lacks_descriptors,
)
from haystack_integrations.tools.mcp.handlers.elicitation import answer_later
from haystack_integrations.tools.mcp.protocol.base import MCPClient, ServerDetails, call_extras
from haystack_integrations.tools.mcp.protocol.error_texts import (
    describe_error,
    describe_unsendable,
    failed_to,
    find_protocol_error,
    not_connected,
    outcome_unknown,
    redacted_result,
    root_cause,
    with_full_stop,
)
from haystack_integrations.tools.mcp.protocol.life import CLOSED_DURING_CALL, SessionLife, SessionState
from haystack_integrations.tools.mcp.protocol.outcome_errors import CallDidNotRunError, ReadInterruptedError
from haystack_integrations.tools.mcp.protocol.result_validation import InvalidResultError, ResultValidation
from haystack_integrations.tools.mcp.redaction import Redactor, secrets_in
from haystack_integrations.tools.mcp.request_context import Identity, current_identity

if TYPE_CHECKING:
    from mcp.client import Transport

    from haystack_integrations.tools.mcp.handlers.callbacks import Callbacks
    from haystack_integrations.tools.mcp.protocol.server_info import Negotiation

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

_REFUSED = "the server refused the handshake ({}), and then"

# How many tools with invalid fields, and how many fields of each, are logged.
_MOST_SHOWN = 50

_SERVER_CLOSED = "the server closed the connection"


@cache
def client_info() -> types.Implementation:
    """
    Identify this client to servers.

    :returns: Name and version of this package.
    """
    try:
        version = importlib.metadata.version("mcp-haystack")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        version = "unknown"
    return types.Implementation(name="mcp-haystack", version=version)


class SDKClient(TaskClient):
    """
    A client on top of the MCP SDK.

    `connect` and `aclose` are awaited in one task, because the cancel scopes of the SDK must not cross tasks. All else
    may be called from any task of the event loop.
    """

    uses_handlers = True

    # Whether `negotiation="auto"` begins with the handshake of the revisions before 2026-07-28, and asks for newer ones
    # only if the server refuses it; otherwise it is the other way round.
    _handshake_first: bool = False

    # Whether every message that comes in is the server's; the HTTP client also makes answers itself.
    _hears_messages: ClassVar[bool] = True

    # Causes of a failed connect of which its message tells all that is known.
    _told: ClassVar[tuple[type[Exception], ...]] = (ProtocolError, OSError, httpx2.HTTPError)

    def __init__(self, max_retries: int = 3, base_delay: float = 1.0, max_delay: float = 30.0) -> None:
        super().__init__(max_retries, base_delay, max_delay)
        self.life: SessionLife = SessionLife()
        self._sdk: mcp.Client | None = None
        self._handshake: HandshakeFirst | None = None
        self._negotiated: str | None = None
        self._failure: str | None = None
        self._validation = ResultValidation(self._describe)
        self._unusable_tools: dict[str | int, str] = {}
        self._callbacks: Callbacks | None = None
        # For whom requests are under way. A server may quote their secrets in any message.
        self._callers: list[Identity | None] = []

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """
        Make a subclass with its own `call_tool` use it for calls of a session, too.
        """
        super().__init_subclass__(**kwargs)
        if cls.call_tool is not MCPClient.call_tool:
            cls.request_tool = MCPClient.request_tool  # type: ignore[method-assign]

    @abstractmethod
    async def _open_transport(self) -> mcp.Client:
        """Build the SDK client over the transport, not yet entered."""

    def _has_died(self) -> bool:
        """Check whether the server is gone, ahead of the event loop."""
        return False

    async def _post_mortem(self) -> str | None:
        """Say more about the end of a session, before the transport is closed."""
        return None

    def _explain(self, error: BaseException) -> str:
        """Say what an exception of the connect means."""
        return describe_error(error)

    def _release(self) -> None:
        """Release what the transport does not own."""

    async def _advice(self) -> str | None:
        """Say what to do about a failed connect."""
        return None

    def _combine(self, what: str, advice: str | None) -> str:
        """Say what went wrong with a connect and what to do about it, each thing once."""
        return f"{with_full_stop(what)} {advice}" if advice else with_full_stop(what)

    def _note_error(self, error: ProtocolError) -> None:
        """Look whether an error of the server says that the session has ended."""

    def _counts_calls(self) -> bool:
        """Tell whether the transport notes which calls were sent."""
        return True

    async def connect(self) -> list[types.Tool]:
        """
        Connect to an MCP server.

        A connect that fails leaves nothing open.

        :returns: List of available tools on the server.
        :raises MCPConnectionError: If connection to the server fails.
        """
        if not self.life.has_owner:  # each connect is a session
            await self.aclose()
            self.life = SessionLife()
        info = self._server_info()
        if info is not None:
            self.redactor: Redactor = self._redactor_now().knowing(info._secrets())
        self.life.redact = self.redactor.text
        self.life.opening()
        outcome = RequestOutcome(redactor=self.redactor)
        token = current_outcome.set(outcome)
        self._failure = None
        try:
            return await self._connect(outcome)
        except Exception as error:
            self.redactor.error(error)
            raise
        finally:
            current_outcome.reset(token)

    async def _connect(self, outcome: RequestOutcome) -> list[types.Tool]:
        error: Exception
        try:
            self._callbacks = self.handlers.callbacks(self._describe(), self.redactor)
            self._callbacks.redactor = self._redactor_of_all
            self._callbacks.on_question = self.on_question
            self._callbacks.caller = self.caller
            self._callbacks.requests_under_way = self.requests_under_way
            await self._callbacks.load()
            sdk = await self._open_transport()
            stack: AsyncExitStack[bool | None] = AsyncExitStack()
            self.exit_stack: AsyncExitStack[bool | None] | None = stack
            self._sdk = await stack.enter_async_context(sdk)
            self._handshake = None
            self._negotiated = self._sdk.protocol_version
            replace_validation(self._sdk.session, self._validation.validate)
            mend_results(self._sdk.session, self._mend, _leave_open)
            validate_in_pieces(self._sdk.session)
            await self._use_handlers(self._sdk, self._callbacks)
            tools = await self._list_all()
            if not self.life.has_owner:
                self.life.opened()
            return tools
        except asyncio.CancelledError:
            # First of all: while the task is being cancelled, the scopes of the SDK do not end.
            was_interrupted = self.life.interruption()
            crash = await self._close()
            if _is_being_cancelled() or not (was_interrupted or crash):
                raise
            error = crash or ConnectionError(self.life.loss)
        except Exception as failure:
            self.life.interruption()
            await self._close()
            error = failure
        if isinstance(error, MCPConnectionError):
            raise error
        self.life.allow_interruption()
        cause = root_cause(error)
        connect_error = await self._connect_error(error, outcome)
        if isinstance(cause, self._told):
            # The message says it all, so a traceback is to begin with the caller. Debuggers find the cause here.
            connect_error.__context__, connect_error.__suppress_context__ = cause, True
            raise connect_error
        raise connect_error from cause

    async def _use_handlers(self, sdk: mcp.Client, callbacks: Callbacks) -> None:
        answer_missing(sdk.session, callbacks.substitutes())
        name = sdk.server_info.name if sdk.server_info else None
        level = callbacks.opened(sdk.protocol_version, sdk.server_capabilities, name)
        if level is None:
            return
        try:
            await sdk.session.send_request(
                types.SetLevelRequest(params=types.SetLevelRequestParams(level=level)), types.EmptyResult
            )
        except ProtocolError as error:
            if error.code == types.CONNECTION_CLOSED:
                raise
            callbacks.refused_level(error)

    async def _connect_error(self, error: BaseException, outcome: RequestOutcome) -> MCPConnectionError:
        what = outcome.fault or (f"it answered with HTTP {outcome.status}" if outcome.status else None)
        what = what or self.life.loss or self._explain(error)
        protocol = find_protocol_error(error)
        if protocol is not None and is_unusable_answer(protocol):
            protocol = None  # not the server's
        refusal = self._refusal()
        if refusal is not None and (protocol is None or self.redactor.text(describe_error(protocol)) != refusal):
            what = f"{_REFUSED.format(refusal)} {what}"
        is_local = lacks_descriptors(error) or outcome.fault == NO_DESCRIPTORS
        if is_local:
            what = NO_DESCRIPTORS
        self._failure = what = self.redactor.text(what)
        # What would find out more sends requests without a token.
        asks_nobody = is_local or outcome.unauthorized or self.rest.seconds > 0
        advice = None if asks_nobody else await self._advice()
        advice = self.redactor.text(advice) if advice else None
        msg = f"Failed to connect to {self._describe()}: {self._combine(what, advice)}"
        kind = MCPAuthorizationError if outcome.unauthorized else MCPConnectionError
        return kind(
            msg,
            server_info=self._server_info(),
            operation="connect",
            code=protocol.code if protocol is not None and outcome.fault is None else None,
            data=protocol.data if protocol is not None and outcome.fault is None else None,
        )

    def _refusal(self) -> str | None:
        refusal = self._handshake.refusal if self._handshake is not None else None
        return None if refusal is None else self.redactor.text(describe_error(refusal))

    def progress(self) -> str:
        """
        Say how far `connect` has come, for the message of a timeout.

        :returns: A clause, or the empty string.
        """
        refusal = self._refusal()
        if self._failure is None and refusal is not None:
            return f"{_REFUSED.format(refusal)} did not answer the question for its revisions"
        return self._failure or ""

    async def find_reason(self) -> str:
        """
        Find out why the session ended. Everybody who asks gets the same reason, as soon as it is known.

        :returns: A clause.
        """
        if self.life.reason is None:
            self.life.end(await self._post_mortem() or _SERVER_CLOSED)
        return self.life.reason or ""

    async def _before_close(self) -> None:
        # Once the transport is closed, it is too late to look.
        if self.life.state is SessionState.LOST and self.life.reason is None:
            reason = await self._post_mortem()
            if reason is not None:
                self.life.end(reason)

    async def aclose(self) -> None:
        """
        Close the connection and clean up resources.

        This method ensures all resources are properly released, even if errors occur.
        """
        self.life.end(CLOSED_DURING_CALL, SessionState.CLOSED)
        crash = await self._close()
        if crash is not None and self.life.reason is not None:
            logger.debug(
                "Closing {server}: {error}", server=self._describe(), error=self.redactor.text(describe_error(crash))
            )
        self.life.end(_SERVER_CLOSED if crash is None else describe_error(crash))

    async def _close(self) -> Exception | None:
        # Ending a session is a request, too, and what the server answers is logged.
        token = current_outcome.set(RequestOutcome(redactor=self.redactor))
        try:
            return await self._close_stack()
        finally:
            current_outcome.reset(token)
            self._sdk = None
            self._release()

    def _learn(self, secrets: Iterable[str]) -> None:
        """
        Redact more secrets, which became known in the middle of a request.
        """
        known = list(secrets)
        self.redactor = self.redactor.knowing(known)
        self.life.redact = self.redactor.text
        outcome = current_outcome.get()
        if outcome is not None and outcome.redactor is not None:
            outcome.redactor = outcome.redactor.knowing(known)

    def _redactor_of_all(self) -> Redactor:
        headers = (caller.headers for caller in self._callers if caller is not None)
        secrets = [secret for sent in headers for secret in secrets_in({"headers": sent})]
        return self.redactor.knowing(secrets) if secrets else self.redactor

    async def _list_all(self) -> list[types.Tool]:
        if self._sdk is None:
            raise not_connected()
        sdk = self._sdk
        pages = await self._pages(
            "list_tools", "tools", lambda cursor: sdk.list_tools(cursor=cursor, cache_mode="refresh")
        )
        self.tools_ttl: float | None = self._shortest_ttl(pages)
        tools = [tool for page in pages for tool in page.tools]
        for tool in tools:
            self._validation.note(tool.name, tool.output_schema)
        return tools

    async def _mend(self, method: str, result: dict[str, Any]) -> dict[str, Any]:
        version = self._sdk.protocol_version if self._sdk is not None else LATEST_HANDSHAKE_VERSION
        if method == LIST_METHOD:
            result = await self._mend_page(result, version)
        mended = await mend_result(method, version, result)
        if mended.left_out:
            logger.warning(
                "Left out what cannot be read of the answer of {server} to {method}: {items}",
                server=self._describe(),
                method=method,
                items=", ".join(mended.left_out[:_MOST_SHOWN]),
            )
        return mended.result

    async def _mend_page(self, page: dict[str, Any], version: str) -> dict[str, Any]:
        try:
            read = await read_page(page, version)
        except ValueError as error:
            msg = f"Failed to list the tools of {self._describe()}: {error}"
            raise MCPConnectionError(msg, self._server_info(), "list_tools") from None
        turns = Turns()
        for tool, reason in read.left_out.items():
            await turns.give()
            if self._unusable_tools.get(tool) != reason:
                logger.warning(
                    "Left out tool {tool} of {server}: {reason}",
                    tool=f"'{tool}'" if isinstance(tool, str) else f"number {tool}",
                    server=self._describe(),
                    reason=reason,
                )
        self._unusable_tools.update(read.left_out)
        for definition in read.result["tools"]:
            self._unusable_tools.pop(definition["name"], None)
        if read.dropped:
            logger.debug(
                "Dropped invalid fields of the tools of {server}: {fields}",
                server=self._describe(),
                fields="; ".join(
                    f"{tool}: {', '.join(fields[:_MOST_SHOWN])}"
                    for tool, fields in islice(read.dropped.items(), _MOST_SHOWN)
                ),
            )
        return read.result

    def unusable_tools(self) -> dict[str, str]:
        """
        Tell which tools were left out of the listing, although the server has them.

        :returns: The reasons, by the names of the tools; by their numbers for those without a valid name.
        """
        named = self._unusable_tools.items()
        return {tool if isinstance(tool, str) else f"number {tool}": reason for tool, reason in named}

    def why_unusable(self, tool_name: str) -> str | None:
        """
        Say why a tool was left out of the listing, although the server has it.

        :param tool_name: Name of the tool.
        :returns: A clause, or None if it was not left out.
        """
        return self._unusable_tools.get(tool_name)

    async def list_tools(self) -> list[types.Tool] | None:
        """
        Ask the connected server for its tools again, all pages of them.

        :returns: The tools.
        :raises MCPConnectionError: If that fails.
        """
        return await self._read("list_tools", lambda _: self._list_all())

    async def _read(self, operation: str, read: Callable[[mcp.Client], Awaitable[T]]) -> T:
        sdk = self._sdk
        if sdk is None:
            raise not_connected()
        if not self.life.is_open or self._has_died():
            raise await self._not_read(operation)
        redactor = self._redactor_now()
        outcome = RequestOutcome(redactor=redactor)
        token = current_outcome.set(outcome)
        caller = current_identity.get()
        self._callers.append(caller)
        try:
            return await read(sdk)
        except asyncio.CancelledError:
            outcome.give_up()
            raise
        except (ProtocolError, ValidationError, PydanticSerializationError, UnicodeError, RuntimeError) as error:
            failure = await self._read_error(error, outcome, operation)
            if not isinstance(error, (PydanticSerializationError, UnicodeError)):  # it quotes a parameter
                failure.__cause__ = error
            failure = redactor.error(failure)
        except Exception as error:
            redactor.error(error)
            raise
        finally:
            current_outcome.reset(token)
            self._callers.remove(caller)
        try:
            raise failure from failure.__cause__  # not in the clause: the context would be back that was left out
        finally:
            del failure  # its traceback holds this frame

    async def _not_read(self, operation: str) -> ReadInterruptedError:
        reason = await self._session_ended()
        error = ReadInterruptedError(f"{failed_to(operation, self._describe())}: {reason}", operation=operation)
        error.was_sent = False
        return error

    async def _read_error(self, error: Exception, outcome: RequestOutcome, operation: str) -> Exception:
        what = failed_to(operation, self._describe())
        protocol = error if isinstance(error, ProtocolError) else None
        if protocol is not None or isinstance(error, ValidationError):
            fault = outcome.broken_by(protocol.code) if protocol is not None else None
            over = self.life.over.is_set()
            if fault is not None or over or (protocol is not None and says_transport_ended(protocol)):
                reason = await self.find_reason() if over or fault is None else fault
                if outcome.unauthorized:
                    return MCPAuthorizationError(f"{what}: {reason}", self._server_info(), operation)
                return ReadInterruptedError(f"{what}: {reason}", self._server_info(), operation)
            if protocol is not None:
                self._note_error(protocol)
        code = data = None
        # What stands for an HTTP status, as of a proxy, is no answer of the server's own.
        if protocol is not None and not is_unusable_answer(protocol) and not is_http_placeholder(protocol):
            code, data = protocol.code, protocol.data
        if isinstance(error, (PydanticSerializationError, UnicodeError)):
            text = "a parameter cannot be sent as JSON"
        else:
            status = f"the server answered with HTTP {outcome.status}: " if outcome.status else ""
            text = f"{status}{describe_error(error)}"
        return MCPConnectionError(f"{what}: {text}", self._server_info(), operation, code=code, data=data)

    async def request_tool(
        self,
        tool_name: str,
        tool_args: dict[str, Any],
        *,
        meta: dict[str, Any] | None = None,
        on_progress: Any = None,
        continuation: Continuation | None = None,
    ) -> types.CallToolResult:
        """
        Call a tool for a session, which gets the result as the protocol defines it, a tool's own error included.

        :param tool_name: Name of the tool to call.
        :param tool_args: Arguments to pass to the tool.
        :param meta: The `_meta` of the request.
        :param on_progress: Awaited with progress, total and message of each report; with it, the server is asked for
            progress.
        :param continuation: What to continue a call with that was left open.
        :returns: The result.
        :raises CallLeftOpenError: If the server does not answer, but has questions for the user, or makes a task of it.
        :raises CallDidNotRunError: If the tool provably did not run.
        :raises MCPOutcomeUnknownError: If the call was sent and never answered.
        :raises MCPInvocationError: If the tool invocation fails otherwise.
        """
        sdk, life, callbacks = self._sdk, self.life, self._callbacks
        if sdk is None and life.state in (SessionState.NEW, SessionState.OPENING):
            raise not_connected()
        if sdk is None or not life.is_open or self._has_died():
            # What is not written to a dead server's pipe has not run for sure.
            raise await self._session_ended()
        redactor = self._redactor_now()
        outcome = RequestOutcome(redactor=redactor, leaves_questions=self.handlers.elicitation is answer_later)
        outcome.owner = asyncio.current_task()
        cancelling = outcome.owner.cancelling() if outcome.owner is not None else 0
        token = current_outcome.set(outcome)
        caller = current_identity.get()
        self._callers.append(caller)
        wanted = callbacks.wanted() if callbacks is not None else {}
        extras = call_extras(meta, on_progress)
        try:
            if continuation is not None:
                extras |= await continuation.extras(sdk)
            try:
                result = await sdk.call_tool(tool_name, tool_args, **extras)
            except ProtocolError as error:
                if callbacks is None or not await callbacks.elicit_urls(error.code, error.data):
                    raise
                # The tool has not done its work: it waited for what the user did at a URL.
                result = await sdk.call_tool(tool_name, tool_args, **extras)
            if not result.is_error:
                return result
            return redacted_result(_with_advice(result, callbacks, wanted), outcome.redactor or redactor)
        except asyncio.CancelledError:
            if not outcome.is_end_of_call(cancelling):
                outcome.give_up()
                raise
            failure: Exception = CallDidNotRunError(outcome.fault or "the server refused it", denied=outcome.denied)
        except CallLeftOpenError:
            raise
        except Exception as error:
            failure = await self._call_error(
                _with_handlers_named(error, callbacks, wanted), outcome, tool_name, tool_args, meta
            )
            if failure is not error:
                is_unsendable = isinstance(error, (PydanticSerializationError, UnicodeError))
                failure.__cause__ = None if is_unsendable else error  # it quotes an argument
            failure = redactor.error(failure)
        finally:
            outcome.owner = None  # it holds this frame
            current_outcome.reset(token)
            self._callers.remove(caller)
        try:
            raise failure from failure.__cause__  # not in the clause: the context would be back that was left out
        finally:
            del failure  # its traceback holds this frame

    async def _session_ended(self) -> CallDidNotRunError:
        if self.life.is_open:
            self.life.end()
        reason = "the connection is closed" if self.life.state is SessionState.CLOSED else await self.find_reason()
        error = CallDidNotRunError(reason)
        error.lost_because = reason
        return error

    async def _send_call(self, tool_name: str, tool_args: dict[str, Any], **extras: Any) -> types.CallToolResult:
        meta, on_progress = extras.get("meta"), extras.get("progress_callback")
        return await SDKClient.request_tool(self, tool_name, tool_args, meta=meta, on_progress=on_progress)

    async def ping(self) -> bool:
        """
        Send the server a ping and wait for the answer.

        :returns: False if the revision of the protocol has no pings.
        """
        sdk = self._sdk
        if sdk is None:
            return False
        if sdk.protocol_version in MODERN_PROTOCOL_VERSIONS:
            logger.warning(
                "`ping_interval` has no effect on {server}: the protocol revision {protocol_version} has no pings",
                server=self._describe(),
                protocol_version=sdk.protocol_version,
            )
            return False
        try:
            await sdk.session.send_ping()
        except (ProtocolError, ValidationError) as error:  # an answer, too; or the session ended, which others notice
            logger.debug(
                "A ping of {server} was answered: {error}",
                server=self._describe(),
                error=self._redactor_now().text(describe_error(error)),
            )
        return True

    async def notify_roots_changed(self) -> bool:
        """
        Tell the server that the roots have changed.

        :returns: False if the revision of the protocol has no such notification: the server asks in each call.
        :raises MCPConnectionError: If that fails.
        """

        async def notify(sdk: mcp.Client) -> bool:
            if sdk.protocol_version in MODERN_PROTOCOL_VERSIONS:
                return False
            await sdk.session.send_notification(types.RootsListChangedNotification())
            return True

        return await self._read("notify_roots_changed", notify)

    async def _call_error(
        self,
        error: Exception,
        outcome: RequestOutcome,
        tool_name: str,
        tool_args: dict[str, Any],
        meta: dict[str, Any] | None,
    ) -> Exception:
        if isinstance(error, ProtocolError):
            return await self._protocol_error(error, outcome, tool_name, tool_args)
        if isinstance(error, ValidationError):
            text = f"the server's answer is no valid result: {describe_error(error)}"
        elif isinstance(error, (PydanticSerializationError, UnicodeError)):
            text = describe_unsendable(tool_args if meta is None else {**tool_args, "_meta": meta}, error)
        elif isinstance(error, RuntimeError):
            text = describe_error(error)
        else:
            return error
        failure = _invocation_error(text, tool_name, tool_args)
        if isinstance(error, (ValidationError, InvalidResultError)):
            failure._outcome = "answered"
        return failure

    async def _protocol_error(
        self, error: ProtocolError, outcome: RequestOutcome, tool_name: str, tool_args: dict[str, Any]
    ) -> Exception:
        if is_unusable_answer(error):
            return outcome_unknown(error.message, tool_name, tool_args)
        if (limit := says_event_too_large(error)) is not None:
            return outcome_unknown(too_large(limit), tool_name, tool_args)
        over = self.life.over.is_set()
        fault = outcome.broken_by(error.code)
        # The SDK fails the calls of a transport that crashed before anybody else hears of it.
        closed = error.code == types.CONNECTION_CLOSED and (over or says_transport_ended(error))
        if fault is not None or closed:
            reason = await self.find_reason() if over else fault or self.life.reason or CLOSED_DURING_CALL
            failure: CallDidNotRunError | MCPOutcomeUnknownError = outcome_unknown(reason, tool_name, tool_args)
            if outcome.never_ran and self._counts_calls():
                failure = CallDidNotRunError(reason, denied=outcome.denied)
            if not self.life.is_open:
                failure.lost_because = reason
            return failure
        if outcome.status is not None and error.code in (types.INTERNAL_ERROR, types.METHOD_NOT_FOUND):
            text = f"the server answered with HTTP {outcome.status}"
            if is_http_placeholder(error) and outcome.status.startswith("5"):
                return outcome_unknown(text, tool_name, tool_args)  # a proxy says so, too, of a server that is slow
            if is_http_placeholder(error) and outcome.status.startswith("429"):
                busy = _invocation_error(f"{text}. The tool did not run.", tool_name, tool_args, code=error.code)
                busy._outcome = "did_not_run"
                return busy
            text = text if is_http_placeholder(error) else f"{text}: {error.message}"
        else:
            text = describe_error(error)
            self._note_error(error)
            if says_no_answer(error):
                if (content_type := foreign_content_type(error)) is not None:
                    text = f"the server answered with content of {_type_named(content_type)}, which is no answer of MCP"
                return outcome_unknown(text, tool_name, tool_args)
        if self.life.state is SessionState.DRAINING:
            text = f"{with_full_stop(text)} The next call opens a new session."
        return _invocation_error(text, tool_name, tool_args, code=error.code, data=error.data)

    def details(self) -> ServerDetails:
        """
        Give what the server said about itself.

        :returns: The details, empty while there is no session.
        """
        if self._sdk is None:
            return ServerDetails()
        info = self._sdk.server_info
        return ServerDetails(
            protocol_version=self._sdk.protocol_version,
            name=info.name if info else None,
            version=info.version if info else None,
            capabilities=self._sdk.server_capabilities.model_dump(by_alias=True, mode="json", exclude_none=True),
            implementation=info,
            instructions=self._sdk.instructions,
            client_extensions=advertised_extensions(self._sdk.session, self._sdk.protocol_version),
        )

    def _client(self, transport: Transport) -> mcp.Client:
        self._handshake = HandshakeFirst() if self._handshake_first and self._negotiation == "auto" else None
        # `end` without a reason: who looks for it finds more than that the stream ended.
        streams = tapped(
            transport,
            on_end=self.life.end,
            before_close=self._before_close,
            on_request=self._name_span,
            on_message=self.life.heard if self._hears_messages else _ignore,
            redactor=self._redactor_of_all,
            handshake=self._handshake,
        )
        client = HandshakeClient(streams, **self._client_options())
        client.handshake = self._handshake
        return client

    def _client_options(self) -> dict[str, Any]:
        callbacks = self._callbacks or self.handlers.callbacks(self._describe(), self.redactor)
        options = self._with_tasks(callbacks.options())
        following = options.pop("message_handler", None)
        handler = self._message_handler(following)
        # The SDK's "auto" asks for newer revisions first.
        mode = "legacy" if self._negotiation == "handshake" else "auto"
        fixed = {"client_info": client_info(), "message_handler": handler, "cache": cache_config(), "mode": mode}
        return {**fixed, **options}

    @property
    def _negotiation(self) -> Negotiation:
        return getattr(self._server_info(), "negotiation", "auto")

    def _protocol_version(self) -> str | None:
        return self._negotiated

    def _name_span(self) -> None:
        # The SDK makes a span for each request, in which the transport writes it.
        span = trace.get_current_span()
        if span.is_recording():
            span.set_attribute("mcp.server", self._describe())
            info = self._sdk.server_info if self._sdk is not None else None
            if info is not None:
                span.set_attribute("mcp.server.name", info.name)


def _leave_open(method: str, result: dict[str, Any]) -> None:
    outcome = current_outcome.get()
    if method == CALL_METHOD and outcome is not None and outcome.leaves_questions:
        leave_questions_open(result)


def _invocation_error(
    text: str, tool_name: str, tool_args: dict[str, Any], *, code: int | None = None, data: Any = None
) -> MCPInvocationError:
    return MCPInvocationError(
        f"Failed to invoke Tool `{tool_name}`: {text}", tool_name, tool_args, code=code, data=data
    )


def _with_advice(
    result: types.CallToolResult, callbacks: Callbacks | None, wanted: dict[str, int]
) -> types.CallToolResult:
    advice = callbacks.advice(wanted) if callbacks is not None else None
    if advice is None:
        return result
    return result.model_copy(update={"content": [*result.content, types.TextContent(type="text", text=advice)]})


def _with_handlers_named(error: Exception, callbacks: Callbacks | None, wanted: dict[str, int]) -> Exception:
    if not isinstance(error, ProtocolError) or callbacks is None:
        return error
    advice = callbacks.advice(wanted, error.code, error.data)
    if advice is None:
        return error
    return ProtocolError(error.code, f"{with_full_stop(error.message)} {advice}", error.data)


def _type_named(content_type: str) -> str:
    return f"the type '{content_type}'" if content_type else "no type"


def _ignore() -> None:
    pass


def _is_being_cancelled() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0
