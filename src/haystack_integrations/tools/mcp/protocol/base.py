# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from dataclasses import dataclass, field
from typing import Any, ClassVar, TypeVar

import anyio
import mcp_types as types
from haystack import logging
from pydantic import ValidationError

from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPInvocationError, MCPOutcomeUnknownError
from haystack_integrations.tools.mcp.executor import Caller
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.protocol.error_texts import (
    describe_error,
    not_connected,
    outcome_unknown,
    raise_tool_error,
    redacted_result,
)
from haystack_integrations.tools.mcp.protocol.life import SessionLife
from haystack_integrations.tools.mcp.protocol.outcome_errors import CallDidNotRunError
from haystack_integrations.tools.mcp.protocol.reading import ReadingClient
from haystack_integrations.tools.mcp.protocol.rest import ServerRest
from haystack_integrations.tools.mcp.redaction import Redactor

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# What some custom clients cannot.
_CONTINUE = "continue calls. The tool did not run."
_SEND_META = "send `meta`"


@dataclass(frozen=True, slots=True)
class ServerDetails:
    """
    What a server said about itself when the session was opened.

    :param protocol_version: The negotiated revision of the protocol, e.g. "2026-07-28".
    :param name: Name of the server, if it gave one.
    :param version: Version of the server, if it gave one.
    :param capabilities: Its capabilities, as in the protocol.
    :param implementation: All that it said of its name and version.
    :param instructions: What it says of its use, for a model.
    :param client_extensions: The extensions that it was told this client has, with their settings.
    """

    protocol_version: str | None = None
    name: str | None = None
    version: str | None = None
    capabilities: dict[str, Any] | None = None
    implementation: types.Implementation | None = None
    instructions: str | None = None
    client_extensions: dict[str, Any] = field(default_factory=dict)

    @property
    def extensions(self) -> dict[str, dict[str, Any]]:
        """
        The extensions of both sides, by identifier.
        """
        both = {"server": (self.capabilities or {}).get("extensions") or {}, "client": self.client_extensions}
        identifiers = sorted({identifier for each in both.values() for identifier in each})
        return {name: {side: offered.get(name) for side, offered in both.items()} for name in identifiers}


class MCPClient(ReadingClient):
    """
    Abstract base class for MCP clients: one session with one server.

    A custom client needs `connect`, and either its own `call_tool` or an SDK session in the attribute `session`, which
    `call_tool` then uses. Resources in the attribute `exit_stack` are closed by `aclose`. Both `connect` and `aclose`
    are awaited in the same task. A client that notices the end of its session calls `self.life.end(reason)`, so that
    the next call opens a new one.
    """

    session: Any = None
    exit_stack: AsyncExitStack[bool | None] | None = None

    # Replaced before `connect` by whoever opens the session.
    life: SessionLife

    # Set likewise: what the client does for a server that asks it for something.
    handlers: MCPHandlers = MCPHandlers()

    # Whether it does that. A custom client that gives the callbacks of its handlers to the SDK says so.
    uses_handlers: ClassVar[bool] = False

    # Redacts what comes back from the server in errors and logs. Whoever opens the session tells it the secrets of the
    # server info.
    redactor: Redactor = Redactor()

    # Whether requests carry headers of their own.
    _takes_headers: bool = False

    # For how many seconds the server allows the listing of its tools to be kept, if it says so.
    tools_ttl: float | None = None

    # Tells how many seconds the task of a call has left. Set before `connect` by whoever opens the session.
    time_left: Callable[[asyncio.Task[Any]], float | None] = staticmethod(lambda _task: None)

    # Makes what a handler runs in that the server wants something of. Set before `connect` by whoever opens the
    # session, as what follows.
    on_question: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)

    # Whose event loop a handler runs in if nothing says for which call it is. Set likewise.
    caller: Callable[[], Caller | None] = staticmethod(lambda: None)

    # The tasks of the requests under way, one of which a server's question may be for. Set likewise.
    requests_under_way: Callable[[], list[asyncio.Task[Any]]] = staticmethod(list)

    @property
    def _is_stateless(self) -> bool:
        """
        Whether the server keeps nothing for a session, so that different identities may share this one.
        """
        return False

    def __init__(self, max_retries: int = 3, base_delay: float = 1.0, max_delay: float = 30.0) -> None:
        """
        Initialize the client.

        :param max_retries: How often a lost session is reopened, or a call that provably did not run is sent again,
            unless the server info has a field of this name.
        :param base_delay: Delay before the second attempt in seconds; it doubles with each further one. Likewise.
        :param max_delay: Longest delay between attempts in seconds. Likewise.
        """
        super().__init__()
        self.exit_stack = AsyncExitStack()
        self.life = SessionLife()
        # For how long the server wants to get no requests. Whoever opens the session replaces it by its own.
        self.rest: ServerRest = ServerRest()
        self.max_retries = max_retries
        self.base_delay = base_delay
        self.max_delay = max_delay

    @abstractmethod
    async def connect(self) -> list[types.Tool]:
        """
        Connect to an MCP server.

        :returns: List of available tools on the server.
        :raises MCPConnectionError: If connection to the server fails.
        """

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        """
        Call a tool on the connected MCP server.

        :param tool_name: Name of the tool to call.
        :param tool_args: Arguments to pass to the tool.
        :returns: JSON string representation of the tool invocation result.
        :raises MCPConnectionError: If not connected to an MCP server.
        :raises MCPInvocationError: If the tool invocation fails.
        """
        try:
            result = await self._send_call(tool_name, tool_args)
        except (MCPConnectionError, MCPInvocationError):
            raise
        except Exception as error:  # of a custom session
            self.redactor.error(error)
            msg = f"Failed to invoke Tool `{tool_name}`: {self.redactor.text(describe_error(error))}"
            raise MCPInvocationError(msg, tool_name, tool_args) from error
        raise_tool_error(result, tool_name, tool_args)
        return result.model_dump_json(by_alias=True)

    def request_tool(
        self,
        tool_name: str,
        tool_args: dict[str, Any],
        *,
        meta: dict[str, Any] | None = None,
        on_progress: Any = None,
        continuation: Any = None,
    ) -> Coroutine[Any, Any, types.CallToolResult]:
        """
        Call a tool for a session, which gets the result as the protocol defines it, a tool's own error included.

        :param tool_name: Name of the tool to call.
        :param tool_args: Arguments to pass to the tool.
        :param meta: The `_meta` of the request. A client with its own `call_tool` cannot send it.
        :param on_progress: Awaited with progress, total and message of each report; with it, the server is asked for
            progress. A client with its own `call_tool` does not ask.
        :param continuation: What to continue a call with that was left open, as a Continuation. A custom client cannot.
        :returns: A coroutine of the result. It raises CallDidNotRunError if the tool provably did not run, and
            MCPInvocationError if the tool invocation fails. What a custom client says of its connection ends the
            session, and becomes an MCPOutcomeUnknownError.
        """
        if type(self).call_tool is MCPClient.call_tool:
            return self._send_call(tool_name, tool_args, meta=meta, on_progress=on_progress, continuation=continuation)
        return self._send_by_call_tool(tool_name, tool_args, meta=meta, continuation=continuation)

    async def _send_by_call_tool(
        self, tool_name: str, tool_args: dict[str, Any], *, meta: dict[str, Any] | None, continuation: Any
    ) -> types.CallToolResult:
        if continuation is not None:
            raise self._cannot(_CONTINUE, tool_name, tool_args)
        if meta is not None:
            raise self._cannot(_SEND_META, tool_name, tool_args)
        answer = await self._guarded(self.call_tool(tool_name, tool_args), tool_name, tool_args)
        try:
            result = types.CallToolResult.model_validate_json(answer, by_name=False)
        except ValidationError:  # a custom client may answer in plain words
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(answer))])
        return redacted_result(result, self.redactor) if result.is_error else result

    async def _send_call(
        self,
        tool_name: str,
        tool_args: dict[str, Any],
        *,
        meta: dict[str, Any] | None = None,
        on_progress: Any = None,
        continuation: Any = None,
    ) -> types.CallToolResult:
        """
        Call a tool in an SDK session, as `request_tool`.
        """
        if continuation is not None:
            raise self._cannot(_CONTINUE, tool_name, tool_args)
        if self.session is None:
            raise not_connected()
        extras = {"meta": meta, "progress_callback": on_progress}
        sending = self.session.call_tool(
            tool_name, tool_args, **{name: value for name, value in extras.items() if value is not None}
        )
        result: types.CallToolResult = await self._guarded(sending, tool_name, tool_args)
        return redacted_result(result, self.redactor) if result.is_error else result

    def _cannot(self, what: str, tool_name: str, tool_args: dict[str, Any]) -> MCPInvocationError:
        msg = f"Failed to invoke Tool `{tool_name}`: {type(self).__name__} cannot {what}"
        return MCPInvocationError(msg, tool_name, tool_args)

    async def _guarded(self, sending: Awaitable[T], tool_name: str, tool_args: dict[str, Any]) -> T:
        """
        End the session if what custom code raises says that its connection is gone.
        """
        try:
            return await sending
        except (CallDidNotRunError, MCPOutcomeUnknownError) as error:
            if error.lost_because is not None:  # the session of a client that this one wraps
                self.life.end(error.lost_because)
            raise
        except (TimeoutError, MCPInvocationError):
            raise
        except Exception as error:
            kinds = (MCPConnectionError, OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)
            # An `mcp.MCPError` says with this code that its session ended.
            if not isinstance(error, kinds) and getattr(error, "code", None) != types.CONNECTION_CLOSED:
                raise
            self.life.end(describe_error(error))
            raise outcome_unknown(describe_error(error), tool_name, tool_args) from error

    async def ping(self) -> bool:
        """
        Send the server a ping and wait for the answer.

        :returns: False if this kind of client, or the revision of the protocol, has no pings.
        """
        return False

    async def notify_roots_changed(self) -> bool:
        """
        Tell the server that the roots have changed.

        :returns: False if this kind of client, or the revision of the protocol, has no such notification.
        """
        return False

    async def list_tools(self) -> list[types.Tool] | None:
        """
        Ask the connected server for its tools again.

        :returns: The tools, or None if this kind of client cannot ask.
        """
        return None

    def unusable_tools(self) -> dict[str, str]:
        """
        Tell which tools were left out of the listing, although the server has them.

        :returns: The reasons, by the names of the tools.
        """
        return {}

    def why_unusable(self, tool_name: str) -> str | None:
        """
        Say why a tool was left out of the listing, although the server has it.

        :param tool_name: Name of the tool.
        :returns: A clause, or None if it was not left out.
        """
        return self.unusable_tools().get(tool_name)

    async def find_reason(self) -> str:
        """
        Find out why the session ended.

        :returns: A clause.
        """
        return self.life.reason or "the session ended"

    async def aclose(self) -> None:
        """
        Close the connection and clean up resources.

        This method ensures all resources are properly released, even if errors occur.
        """
        self.session = None
        error = await self._close_stack()
        if error is not None:
            logger.warning("Error during MCP client cleanup: {error}", error=self.redactor.text(describe_error(error)))

    async def _close_stack(self) -> Exception | None:
        stack, self.exit_stack = self.exit_stack, AsyncExitStack()
        try:
            if stack is not None:
                await stack.aclose()
        except Exception as error:
            return error
        return None

    def kill(self) -> None:
        """
        End at once what is left, without waiting: `aclose` was called, or there is no time for it.
        """

    def details(self) -> ServerDetails:
        """
        Give what the server said about itself.

        :returns: The details, empty if they are not known.
        """
        return ServerDetails()

    def progress(self) -> str:
        """
        Say how far `connect` has come, for the message of a timeout.

        :returns: A clause, or the empty string.
        """
        return ""
