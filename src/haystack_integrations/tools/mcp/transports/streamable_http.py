# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The Streamable HTTP transport: each message is a POST, and its response carries the answer to a request.

https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#streamable-http
https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/streamable-http
"""

from __future__ import annotations

import asyncio
import base64
import re
import ssl
from collections.abc import AsyncGenerator, Mapping
from contextlib import suppress
from dataclasses import dataclass

import httpx2
from haystack import logging
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from haystack_integrations.tools.mcp.convert.odd_messages import read_messages
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError, causes
from haystack_integrations.tools.mcp.protocol.channel import Exchange
from haystack_integrations.tools.mcp.protocol.request_errors import NoAnswerError
from haystack_integrations.tools.mcp.transports.posting import (
    GET_HEADERS,
    HttpSender,
    HttpTransport,
    TooLargeError,
    describe_failure,
)
from haystack_integrations.tools.mcp.transports.refusals import (
    ACCEPTED,
    COMMON_METHODS,
    DOUBTFUL_SESSION,
    EVENT_STREAM,
    SESSION_HEADER,
    SUCCESSES,
    UNKNOWN_SESSION,
    is_event_stream,
    is_session_unknown,
    media_type,
    settle_refusal,
)

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Ending a session is worth a short DELETE request, but not a wait for a server that is gone.
_DELETE_TIMEOUT = 2.0

# The pause before a stream is reopened, in seconds: the default, and the shortest that a server can ask for.
_PAUSE = 1.0
_MIN_PAUSE = 0.1

# How often in a row the stream of an answer may be reopened without any event.
_MAX_TRIES = 2

# How many seconds the stream of a session must last not to count as a failure, and how often the pause is doubled.
_STABLE_AFTER = 10.0
_MAX_DOUBLINGS = 5

# After how many seconds the end of a stream does not show that the server failed: gateways end long streams.
_CUT_AFTER = 5.0

# How long an event stream may go on after the answer, in seconds. If it ends by itself, its connection can be reused.
_LEFTOVER_TIMEOUT = 1.0

# How long to wait until the server has opened the stream of a session, in seconds. Some send no headers before the
# first event.
_STREAM_TIMEOUT = 0.5

_CLOSED_EARLY = "the server closed the response before the answer came"
_NO_MESSAGE = "the server's answer is not a valid JSON-RPC message"


@dataclass
class _Cursor:
    """
    The event after which a stream can be resumed, and the pause before that, in seconds.
    """

    last_id: str = ""
    pause: float = _PAUSE
    # Whether nothing came, not even a comment, which keeps a stream alive.
    is_silent: bool = True


class StreamableHttpTransport(HttpTransport):
    """
    Carries messages to and from one URL.
    """

    _post_headers = {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}  # noqa: RUF012

    def __init__(self, sender: HttpSender, url: str) -> None:
        """
        Initialize the StreamableHttpTransport.

        :param sender: Sends its requests. It is closed together with the transport.
        :param url: The URL.
        """
        super().__init__(sender, url)
        self._session_id: str | None = None
        # The negotiated revision.
        self._version: str | None = None
        # Whether the last request failed because of the server. If the session has crashed or its machine is gone, so
        # does every request.
        self._has_failed = False
        # Cleared while the server has not yet answered the request for its stream.
        self._stream_is_answered = asyncio.Event()
        self._stream_is_answered.set()

    async def open(self) -> None:
        """
        Open the transport. Nothing is sent.
        """
        await self._sender.open()

    def opened(self, revision: str) -> None:
        """
        Note which revision of the protocol was negotiated.

        :param revision: The revision.
        """
        self._version = revision

    def cancels_by_closing(self, exchange: Exchange) -> bool:
        """
        Return whether a request is cancelled by closing its response.

        :param exchange: The request.
        :returns: True since revision 2026-07-28.
        """
        return exchange.version in MODERN_PROTOCOL_VERSIONS

    async def _post(self, content: bytes, exchange: Exchange) -> None:
        """Post a request, and read its response until the answer comes or cannot come any more."""
        headers = self._headers(self._post_headers, exchange)
        try:
            response = await self._sender.send("POST", self._url, headers, content, exchange=exchange)
            try:
                await self._read_response(response, exchange, has_session=SESSION_HEADER in headers)
            except BaseException:
                await response.aclose()
                raise
        except Exception as error:
            self._sender.settle(exchange, error)
            # Certificates are read once for each session, and may have been replaced since.
            if any(isinstance(cause, ssl.SSLError) for cause in causes(error)):
                self.channel.drained(describe_failure(error))

    def _headers(self, common: Mapping[str, str], exchange: Exchange | None = None) -> dict[str, str]:
        headers: dict[str, str] = {**common}
        version = self._version if exchange is None else exchange.version
        if version is not None:
            headers["MCP-Protocol-Version"] = version
        if version not in MODERN_PROTOCOL_VERSIONS:
            if self._session_id is not None and (exchange is None or exchange.method != "initialize"):
                headers[SESSION_HEADER] = self._session_id
        elif exchange is not None:
            headers["Mcp-Method"] = exchange.method
            if (name := exchange.name) is not None:
                headers["Mcp-Name"] = _encoded(name)
            headers |= exchange.headers or {}
        return headers

    async def _read_response(self, response: httpx2.Response, exchange: Exchange, *, has_session: bool) -> None:
        """Settle a request by its response. End the session if the response puts it in doubt."""
        failed_before, self._has_failed = self._has_failed, False
        is_success = response.status_code in SUCCESSES and response.status_code != ACCEPTED
        kind, reason = media_type(response), None
        if is_success and exchange.method == "initialize":
            self._session_id = response.headers.get(SESSION_HEADER)
        if is_success and kind.startswith("application/json"):
            self._has_failed = self._read_body(await self._sender.read(response), exchange)
        elif is_success and kind == EVENT_STREAM:  # its reader closes it once its connection can be reused
            self._has_failed = await self._read_events(response, exchange)
        else:
            body = await self._read_error(response)
            reason, self._has_failed = settle_refusal(response, body, exchange, has_session=has_session)
        if failed_before and self._has_failed and has_session and exchange.method in COMMON_METHODS:
            reason = reason or DOUBTFUL_SESSION
        if reason is not None:
            self.channel.drained(reason)

    async def _read_error(self, response: httpx2.Response) -> bytes:
        """Read the body if the response is an error. Close the response."""
        try:
            if response.is_error:
                return await self._sender.read(response)
            await response.aclose()
        except (httpx2.HTTPError, TooLargeError) as error:  # the status is known
            logger.debug("An error response could not be read: {kind}", kind=type(error).__name__)
        return b""

    def _read_body(self, body: bytes, exchange: Exchange) -> bool:
        """Read the answer, and return whether there is no message at all."""
        found = read_messages(body)
        for frame in found:
            # An error without an id belongs to the request of this response.
            if not isinstance(frame, dict) or "method" in frame or frame["id"] in (None, exchange.id):
                self.channel.received(frame, exchange)
        if not exchange.is_settled:
            exchange.settle(NoAnswerError(_NO_MESSAGE))
        return not found

    async def _read_events(self, response: httpx2.Response, exchange: Exchange) -> bool:
        """Read the answer, and return whether the stream ended early without any message."""
        now, cursor = asyncio.get_running_loop().time, _Cursor()
        opened_at = now()
        reason = _CLOSED_EARLY
        try:
            await self._read_stream(response, cursor, exchange)
        except httpx2.HTTPError as error:
            reason = describe_failure(error)
            cursor.is_silent &= response.num_bytes_downloaded == 0
        if cursor.last_id and exchange.version not in MODERN_PROTOCOL_VERSIONS:
            await self._resume(cursor, exchange)
        if not exchange.is_settled:
            exchange.lose(reason)
        return cursor.is_silent and now() - opened_at < _CUT_AFTER

    async def _resume(self, cursor: _Cursor, exchange: Exchange) -> None:
        """
        Reopen a stream when it ends, until its exchange is settled or two attempts in a row bring no event.
        """
        tries = 0
        while tries < _MAX_TRIES and not exchange.is_settled:
            await asyncio.sleep(cursor.pause)
            before = cursor.last_id
            try:
                response = await self._open_stream(cursor)
                if response is not None:
                    await self._read_stream(response, cursor, exchange)
            except httpx2.HTTPError as error:
                logger.debug("A stream broke: {kind}", kind=type(error).__name__)
            tries = tries + 1 if cursor.last_id == before else 0

    async def _open_stream(self, cursor: _Cursor, *, was_open: bool = False) -> httpx2.Response | None:
        headers = self._headers(GET_HEADERS)
        if cursor.last_id:
            headers["Last-Event-ID"] = cursor.last_id
        response = await self._sender.send("GET", self._url, headers, may_log_in=False)
        if response.status_code == httpx2.codes.OK and is_event_stream(response):
            return response
        if was_open and is_session_unknown(response, await self._read_error(response)):
            self.channel.drained(UNKNOWN_SESSION)  # most likely, the server was restarted
        await response.aclose()
        return None

    async def _read_stream(self, response: httpx2.Response, cursor: _Cursor, exchange: Exchange | None = None) -> None:
        """
        Read an event stream to its end, or until an exchange is settled.
        """
        events, event = self._sender.events(response), None
        try:
            async for event in events:
                cursor.last_id = event.id or cursor.last_id
                if event.retry is not None:
                    cursor.pause = max(event.retry / 1000, _MIN_PAUSE)
                cursor.is_silent &= not self._receive(event, exchange)
                if exchange is not None and exchange.is_settled:
                    self.channel.spawn(self._read_leftover(events, exchange))
                    return
            cursor.is_silent &= event is not None or response.num_bytes_downloaded == 0
        except BaseException:
            await events.aclose()
            raise

    def _receive(self, event: httpx2.ServerSentEvent, exchange: Exchange | None) -> bool:
        found = read_messages(event.data) if event.event == "message" else []
        for frame in found:
            self.channel.received(frame, exchange)
        return bool(found)

    async def _read_leftover(self, events: AsyncGenerator[httpx2.ServerSentEvent], exchange: Exchange) -> None:
        try:
            async with asyncio.timeout(_LEFTOVER_TIMEOUT):
                async for event in events:
                    self._receive(event, exchange)
        except Exception as error:
            logger.debug("A stream has not ended after the answer: {kind}", kind=type(error).__name__)
        finally:
            await events.aclose()

    def start_listening(self) -> None:
        """
        Open the stream for unsolicited messages of the server, if there is a session. A server need not have a stream.
        """
        if self._session_id is not None:
            self._stream_is_answered.clear()
            self.channel.spawn(self._listen())

    async def wait_until_listening(self) -> None:
        """
        Wait for the stream, for a short time at most: messages that the server sends before it is open are lost.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(_STREAM_TIMEOUT):
                await self._stream_is_answered.wait()

    async def _listen(self) -> None:
        """
        Read the stream, and reopen it whenever it ends, as long as the server offers one.
        """
        now, cursor, was_open, failures = asyncio.get_running_loop().time, _Cursor(), False, 0
        while True:
            opened_at = now()
            try:
                try:
                    response = await self._open_stream(cursor, was_open=was_open)
                finally:
                    self._stream_is_answered.set()
                if response is not None:
                    if was_open and not cursor.last_id:
                        self.channel.missed()
                    was_open = True
                    await self._read_stream(response, cursor)
                elif not was_open:
                    return  # the server has none
            except MCPAuthorizationError:
                return
            except Exception as error:  # no caller waits for this task
                logger.debug("The stream of the server broke: {kind}", kind=type(error).__name__)
            if now() - opened_at > _STABLE_AFTER:
                failures = 0
            await asyncio.sleep(cursor.pause * 2**failures)
            failures = min(failures + 1, _MAX_DOUBLINGS)

    async def _end_session(self) -> None:
        if self._session_id is None:
            return
        try:
            async with asyncio.timeout(_DELETE_TIMEOUT):
                response = await self._sender.send("DELETE", self._url, self._headers({}), may_log_in=False)
                await response.aclose()
        except Exception as error:
            logger.debug("A session was not ended: {kind}", kind=type(error).__name__)


_PLAIN = re.compile(r"(?! )(?!=\?base64\?.*\?=$)[ -~]*(?<! )")


def _encoded(value: str) -> str:
    """
    Encode a value for a header of revision 2026-07-28.
    """
    return value if _PLAIN.fullmatch(value) else f"=?base64?{base64.b64encode(value.encode()).decode()}?="
