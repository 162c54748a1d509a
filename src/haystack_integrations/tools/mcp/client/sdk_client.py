# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import importlib.metadata
import logging
import threading
from abc import abstractmethod
from functools import cache
from typing import TYPE_CHECKING

from pydantic import BaseModel, ValidationError
from pydantic_core import PydanticSerializationError, to_json

import mcp
from haystack_integrations.tools.mcp.client.base import MCPClient, ServerDetails
from haystack_integrations.tools.mcp.client.delivery import (
    CallNotDeliveredError,
    Delivery,
    ReadInterruptedError,
    TappedTransport,
    current_delivery,
    settled,
)
from haystack_integrations.tools.mcp.client.failures import (
    describe_error,
    leaves,
    not_connected,
    outcome_unknown,
    with_full_stop,
)
from haystack_integrations.tools.mcp.client.handshake import HandshakeFirst
from haystack_integrations.tools.mcp.convert.output_schemas import OutputSchemas
from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPInvocationError
from haystack_integrations.tools.mcp.executor import THREAD_NAME
from mcp import MCPError as ProtocolError
from mcp import types

if TYPE_CHECKING:
    from typing import Any, ClassVar

    from haystack_integrations.tools.mcp.client.server_info import MCPServerInfo
    from mcp.client._transport import Transport

# A server that pages for longer than this is broken: 5,000 tools, the most ever seen, are 50 pages of 100.
_MAX_PAGES = 1_000

# How long a failed call waits to learn what became of the server process (exit code, last words).
_POST_MORTEM = 2.0

# What the SDK says to the calls of a transport that ended. A server may use the same code for errors of its own.
_SDK_CLOSED = "Connection closed"

# What the SDK says in place of the server when the answer is an HTTP error without a JSON-RPC error in it.
_SDK_STAND_INS = ("Server returned an error response", "Not Found")


class _QuoteRedaction(logging.Filter):
    """
    Takes the tracebacks of the SDK for messages that are none out of the log: they quote the message.
    """

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, ValidationError) and threading.current_thread().name == THREAD_NAME:
            record.msg, record.args = f"{record.getMessage()}: {describe_error(error)}", None
            record.exc_info = None
        return True


for _name in ("stdio", "sse", "streamable_http", "client"):
    logging.getLogger(f"mcp.client.{_name}").addFilter(_QuoteRedaction())
logging.getLogger("client").addFilter(_QuoteRedaction())  # the SDK's client.session


# Pydantic completes some models of the SDK when they are used first, under a lock. A process that was forked just then
# could never take it, so they are completed before there is a session.
for _model in list(vars(types).values()):
    if isinstance(_model, type) and issubclass(_model, BaseModel) and not _model.__pydantic_complete__:
        _model.model_rebuild()


@cache
def client_info() -> types.Implementation:
    """
    Say who this client is.

    :returns: Name and version of this package.
    """
    try:
        version = importlib.metadata.version("mcp-haystack")
    except importlib.metadata.PackageNotFoundError:  # run from a source tree
        version = "unknown"
    return types.Implementation(name="mcp-haystack", version=version)


class SDKClient(MCPClient):
    """
    A client whose session lives in a task of its own.

    The task opens and closes the SDK's client, whose cancel scopes must not cross tasks; everybody else only asks and
    waits. So `connect`, `call_tool` and `aclose` may come from different tasks. States:

    idle -> connecting -> open -> ended (by `aclose`, or lost: then `on_lost` is told why); ended -> connecting
    """

    # Whether the handshake of the revisions before 2026-07-28 comes first, and the question for the server's revisions
    # only if the server refuses it. Else it is the other way round.
    _handshake_first: ClassVar[bool] = False

    def __init__(self, max_retries: int = 3, base_delay: float = 1.0, max_delay: float = 30.0) -> None:
        super().__init__(max_retries, base_delay, max_delay)
        self._sdk: mcp.Client | None = None
        self._life: asyncio.Task[None] | None = None
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()
        self._lost: asyncio.Future[str] | None = None
        self._closing = False
        self._lost_because: str | None = None
        self._failure: str | None = None
        self._epitaph: str | None = None
        self._refusal: str | None = None
        self._output_schemas = OutputSchemas()

    @abstractmethod
    def _describe(self) -> str:
        """Name the server in messages."""

    @abstractmethod
    def _server_info(self) -> MCPServerInfo | None:
        """Give the server info for errors."""

    @abstractmethod
    async def _open_transport(self) -> mcp.Client:
        """Build the SDK client over the transport, not yet entered."""

    def _is_over(self) -> bool:
        """Look whether the session has ended, before the event loop notices."""
        return False

    async def _post_mortem(self) -> str | None:
        """Say more about the end of a session, before the transport is closed."""
        return None

    def _explain(self, error: BaseException) -> str:
        """Say what an exception of the connect means."""
        return describe_error(error)

    async def _before_close(self) -> None:
        if self._sdk is None and self._ending.is_set() and not self._closing:  # it ended before it was open
            self._epitaph = await self._post_mortem()

    def _release(self) -> None:
        """Release what the transport does not own."""

    async def _advice(self) -> str | None:
        """Say what to do about a failed connect."""
        return None

    async def connect(self) -> list[types.Tool]:
        """
        Connect to an MCP server.

        :returns: List of available tools on the server.
        :raises MCPConnectionError: If connection to the server fails.
        """
        if self._life is not None:
            await self.aclose()
        self._ending = asyncio.Event()
        self._ended = asyncio.Event()
        self._closing = False
        self._lost_because = self._failure = self._epitaph = self._refusal = None
        loop = asyncio.get_running_loop()
        opened: asyncio.Future[None] = loop.create_future()
        lost = self._lost = loop.create_future()
        life = self._life = asyncio.create_task(self._live(opened))
        try:
            await asyncio.wait({opened, lost}, return_when=asyncio.FIRST_COMPLETED)
            if not opened.done():  # the SDK goes on waiting for an answer that cannot come
                opened.cancel()
                life.cancel()
                raise ConnectionError(lost.result())
            await opened
            return await self._list_all()
        except asyncio.CancelledError:
            opened.cancel()
            life.cancel()
            raise
        except MCPConnectionError:
            self._end()
            raise
        except Exception as error:
            if self._ending.is_set():  # the server died, perhaps under the listing: wait for the reason
                await settled(self._ended, _POST_MORTEM)
            self._end()
            raise await self._connect_error(error, Delivery()) from error

    async def _live(self, opened: asyncio.Future[None]) -> None:
        delivery = Delivery()
        current_delivery.set(delivery)
        try:
            client = await self._open_transport()
            async with client:
                self._sdk = client
                self._refusal = None
                self._bound_checks(client.session)
                if not opened.done():
                    opened.set_result(None)
                await self._ending.wait()
                if not self._closing:
                    self._lose(await self._post_mortem() or "the server closed the connection")
        except Exception as error:
            if not opened.done():
                opened.set_exception(await self._connect_error(error, delivery))
            elif not self._closing:
                self._lose(describe_error(error))
        finally:
            self._sdk = None
            self._ended.set()
            self._release()
            opened.cancel()  # nothing to do with one that is done

    async def _connect_error(self, error: BaseException, delivery: Delivery) -> MCPConnectionError:
        if isinstance(error, MCPConnectionError):
            return error
        what = delivery.fault or (f"it answered with HTTP {delivery.status}" if delivery.status else None)
        what = what or self._epitaph or self._lost_because or self._explain(error)
        protocol = _find_protocol_error(error)
        if self._refusal is not None and (protocol is None or describe_error(protocol) != self._refusal):
            what = f"{self._refused_and()} {what}"
        self._failure = what
        advice = await self._advice()
        msg = f"Failed to connect to {self._describe()}: {with_full_stop(what)}{f' {advice}' if advice else ''}"
        return MCPConnectionError(
            msg,
            server_info=self._server_info(),
            operation="connect",
            code=protocol.code if protocol is not None and delivery.fault is None else None,
            data=protocol.data if protocol is not None and delivery.fault is None else None,
        )

    def _lose(self, reason: str, *, calls_may_end: bool = False) -> None:
        if self._lost_because is None and not self._closing:
            self._lost_because = reason
            if not calls_may_end:
                self._ending.set()
                if self._lost is not None:
                    self._lost.set_result(reason)
            if self.on_lost is not None:
                self.on_lost(reason, calls_may_end)

    def _end(self) -> None:
        self._closing = True
        self._ending.set()

    def _stream_ended(self) -> None:
        self._ending.set()

    def _bound_checks(self, session: mcp.ClientSession) -> None:
        # The SDK would check every result, and list the tools again for one that it does not know.
        check = session.validate_tool_result

        async def check_if_bounded(name: str, result: types.CallToolResult) -> None:
            if self._output_schemas.allow_check(name, result.structured_content):
                await check(name, result)

        session.validate_tool_result = check_if_bounded  # type: ignore[method-assign]

    async def _list_all(self) -> list[types.Tool]:
        if self._sdk is None:
            raise not_connected()
        tools: list[types.Tool] = []
        cursor: str | None = None
        seen: set[str] = set()
        for _ in range(_MAX_PAGES):
            try:
                page = await self._sdk.list_tools(cursor=cursor, cache_mode="refresh")
            except ProtocolError as error:
                if error.code == types.METHOD_NOT_FOUND and not tools:
                    return []  # a server of resources or prompts only
                raise
            tools.extend(page.tools)
            for tool in page.tools:
                self._output_schemas.note(tool.name, tool.output_schema)
            cursor = page.next_cursor
            if cursor is None:
                return tools
            if cursor in seen:
                msg = f"{self._describe()} repeats a page of its tools, so that the listing would never end"
                raise MCPConnectionError(msg, server_info=self._server_info(), operation="list_tools")
            seen.add(cursor)
        msg = f"{self._describe()} has more than {_MAX_PAGES} pages of tools"
        raise MCPConnectionError(msg, server_info=self._server_info(), operation="list_tools")

    async def list_tools(self) -> list[types.Tool] | None:
        """
        Ask the connected server for its tools again, all pages of them.

        :returns: The tools.
        :raises MCPConnectionError: If that fails.
        """
        delivery = Delivery()
        token = current_delivery.set(delivery)
        try:
            return await self._list_all()
        except (ProtocolError, ValidationError) as error:
            what = f"Failed to list the tools of {self._describe()}"
            fault = delivery.broken_by(error.code) if isinstance(error, ProtocolError) else None
            if fault is not None or self._ending.is_set():
                if self._ending.is_set():
                    await settled(self._ended, _POST_MORTEM)
                msg = f"{what}: {self._lost_because or fault or 'the connection was closed'}"
                raise ReadInterruptedError(msg, self._server_info(), "list_tools") from error
            code, data = (error.code, error.data) if isinstance(error, ProtocolError) else (None, None)
            status = f"the server answered with HTTP {delivery.status}: " if delivery.status else ""
            msg = f"{what}: {status}{describe_error(error)}"
            raise MCPConnectionError(msg, self._server_info(), "list_tools", code=code, data=data) from error
        finally:
            current_delivery.reset(token)

    async def _send_call(self, tool_name: str, tool_args: dict[str, Any]) -> types.CallToolResult:
        sdk = self._sdk
        if sdk is None and self._life is None:
            raise not_connected()
        if sdk is None or self._ending.is_set() or self._is_over():
            # Ahead of the event loop: what is not written to a dead server's pipe has not run for sure.
            self._ending.set()
            await settled(self._ended, _POST_MORTEM)
            raise CallNotDeliveredError(self._lost_because or "the session has ended", session_lost=True)
        delivery = Delivery()
        token = current_delivery.set(delivery)
        try:
            return await sdk.call_tool(tool_name, tool_args)
        except asyncio.CancelledError:
            delivery.give_up()
            raise
        except ProtocolError as error:
            raise await self._call_error(error, delivery, tool_name, tool_args) from error
        except ValidationError as error:
            msg = (
                f"Failed to invoke Tool `{tool_name}`: the server's answer is no valid result: {describe_error(error)}"
            )
            raise MCPInvocationError(msg, tool_name, tool_args) from error
        except (PydanticSerializationError, UnicodeError) as error:
            msg = f"Failed to invoke Tool `{tool_name}`: {_describe_unsendable(tool_args, error)}"
            raise MCPInvocationError(msg, tool_name, tool_args) from None
        except RuntimeError as error:
            msg = f"Failed to invoke Tool `{tool_name}`: {_describe_runtime_error(error)}"
            raise MCPInvocationError(msg, tool_name, tool_args) from error
        finally:
            current_delivery.reset(token)

    async def _call_error(
        self, error: ProtocolError, delivery: Delivery, tool_name: str, tool_args: dict[str, Any]
    ) -> Exception:
        ending = self._ending.is_set()
        fault = delivery.broken_by(error.code)
        # The SDK fails the calls before `_live` hears of a transport that crashed.
        closed = error.code == types.CONNECTION_CLOSED and (ending or error.message == _SDK_CLOSED)
        broken = fault is not None or closed
        if broken and ending:
            await settled(self._ended, _POST_MORTEM)
        if broken:
            reason = self._lost_because or fault or "the connection was closed while the tool was running"
            if delivery.never_ran and self._counts_calls():
                lost = self._lost_because is not None or ending
                return CallNotDeliveredError(reason, session_lost=lost, denied=delivery.denied)
            return outcome_unknown(reason, tool_name, tool_args)
        if delivery.status is not None and error.code in (types.INTERNAL_ERROR, types.METHOD_NOT_FOUND):
            text = f"the server answered with HTTP {delivery.status}"
            text = text if error.message in _SDK_STAND_INS else f"{text}: {error.message}"
        else:
            text = describe_error(error)
        msg = f"Failed to invoke Tool `{tool_name}`: {text}"
        return MCPInvocationError(msg, tool_name, tool_args, code=error.code, data=error.data)

    def _counts_calls(self) -> bool:
        return True

    async def aclose(self) -> None:
        """
        Close the connection and clean up resources.

        This method ensures all resources are properly released, even if errors occur.
        """
        self._end()
        life = self._life
        if life is not None and life is not asyncio.current_task():
            await asyncio.wait({life})

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
        )

    def progress(self) -> str:
        """
        Say how far `connect` has come, for the message of a timeout.

        :returns: A clause, or the empty string.
        """
        if self._failure is None and self._refusal is not None:
            return f"{self._refused_and()} did not answer the question for its revisions"
        return self._failure or ""

    def _client(self, transport: Transport) -> mcp.Client:
        if self._handshake_first:
            transport = HandshakeFirst(transport, self._handshake_refused)
        return mcp.Client(TappedTransport(transport, self._stream_ended, self._before_close), client_info=client_info())

    def _handshake_refused(self, error: ProtocolError) -> None:
        self._refusal = describe_error(error)

    def _refused_and(self) -> str:
        return f"the server refused the handshake ({self._refusal}), and then"


def _find_protocol_error(error: BaseException) -> ProtocolError | None:
    return next((leaf for leaf in leaves(error) if isinstance(leaf, ProtocolError)), None)


def _describe_unsendable(tool_args: dict[str, Any], error: ValueError) -> str:
    culprit = "an argument"
    for name, value in tool_args.items():
        try:
            to_json({name: value})
        except ValueError as its_error:
            culprit, error = f"the argument {name!a}", its_error
            break
    # The errors about text quote it.
    what = "it holds text that is no valid Unicode" if "utf-8" in str(error) else describe_error(error)
    return f"{culprit} cannot be sent as JSON: {what}"


def _describe_runtime_error(error: RuntimeError) -> str:
    # The SDK's message for structured content that breaks the tool's output schema quotes the content.
    cause = error.__cause__
    if cause is not None and hasattr(cause, "json_path") and hasattr(cause, "validator"):
        return (
            "the server's structured content does not conform to the tool's output schema "
            f"(at {cause.json_path}: '{cause.validator}' is violated)"
        )
    return describe_error(error)
