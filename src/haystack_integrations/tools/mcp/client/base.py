# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from abc import ABC, abstractmethod
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, ClassVar

import anyio
from haystack import logging
from mcp import MCPError as ProtocolError
from mcp import types
from pydantic import ValidationError

from haystack_integrations.tools.mcp.client.error_texts import (
    describe_error,
    not_connected,
    outcome_unknown,
    raise_tool_error,
    redacted_result,
)
from haystack_integrations.tools.mcp.client.life import SessionLife
from haystack_integrations.tools.mcp.client.request_outcome import CallDidNotRunError
from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPInvocationError, MCPOutcomeUnknownError
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.redaction import Redactor

logger: logging.PatchedLogger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServerDetails:
    """
    What a server said about itself when the session was opened.

    :param protocol_version: The negotiated revision of the protocol, e.g. "2026-07-28".
    :param name: Name of the server, if it gave one.
    :param version: Version of the server, if it gave one.
    :param capabilities: Its capabilities, as in the protocol.
    """

    protocol_version: str | None = None
    name: str | None = None
    version: str | None = None
    capabilities: dict[str, Any] | None = None


class MCPClient(ABC):
    """
    Abstract base class for MCP clients: one session with one server.

    A custom client needs `connect`, and either its own `call_tool` or an SDK session in the attribute `session`, which
    `call_tool` then uses. Resources in the attribute `exit_stack` are closed by `aclose`. Both `connect` and `aclose`
    are awaited in the same task. A client that notices the end of its session calls `self.life.end(reason)`, so that
    the next call opens a new one.
    """

    session: Any = None
    exit_stack: AsyncExitStack[bool | None] | None = None

    # Set before `connect` by whoever opens the session.
    life: SessionLife

    # Likewise: what the client does for a server that asks it for something.
    handlers: MCPHandlers = MCPHandlers()

    # Whether it does that. A custom client that gives the callbacks of its handlers to the SDK says so.
    uses_handlers: ClassVar[bool] = False

    # Redacts what comes back from the server in errors and logs. Whoever opens the session tells it the secrets of the
    # server info.
    redactor: Redactor = Redactor()

    def __init__(self, max_retries: int = 3, base_delay: float = 1.0, max_delay: float = 30.0) -> None:
        """
        Initialize the client.

        :param max_retries: How often a lost session is reopened, or a call that provably did not run is sent again,
            unless the server info has a field of this name.
        :param base_delay: Delay before the second attempt in seconds; it doubles with each further one. Likewise.
        :param max_delay: Longest delay between attempts in seconds. Likewise.
        """
        self.exit_stack = AsyncExitStack()
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

    async def request_tool(self, tool_name: str, tool_args: dict[str, Any]) -> types.CallToolResult:
        """
        Call a tool for a session, which gets the result as the protocol defines it, a tool's own error included.

        :param tool_name: Name of the tool to call.
        :param tool_args: Arguments to pass to the tool.
        :returns: The result.
        :raises CallDidNotRunError: If the tool provably did not run.
        :raises MCPInvocationError: If the tool invocation fails. What a custom client says of its connection ends the
            session, and becomes an MCPOutcomeUnknownError.
        """
        try:
            if type(self).call_tool is MCPClient.call_tool:
                result = await self._send_call(tool_name, tool_args)
                return redacted_result(result, self.redactor) if result.is_error else result
            answer = await self.call_tool(tool_name, tool_args)
        except (CallDidNotRunError, MCPOutcomeUnknownError) as error:
            if error.lost_because is not None:  # the session of a client that this one wraps
                self.life.end(error.lost_because)
            raise
        except TimeoutError:
            raise
        except (
            MCPConnectionError,
            OSError,
            anyio.BrokenResourceError,
            anyio.ClosedResourceError,
            ProtocolError,
        ) as error:
            if isinstance(error, ProtocolError) and error.code != types.CONNECTION_CLOSED:
                raise
            self.life.end(describe_error(error))
            raise outcome_unknown(describe_error(error), tool_name, tool_args) from error
        try:
            result = types.CallToolResult.model_validate_json(answer, by_name=False)
        except ValidationError:  # a custom client may answer in plain words
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(answer))])
        return redacted_result(result, self.redactor) if result.is_error else result

    async def _send_call(self, tool_name: str, tool_args: dict[str, Any]) -> types.CallToolResult:
        if self.session is None:
            raise not_connected()
        result: types.CallToolResult = await self.session.call_tool(tool_name, tool_args)
        return result

    async def list_tools(self) -> list[types.Tool] | None:
        """
        Ask the connected server for its tools again.

        :returns: The tools, or None if this kind of client cannot ask.
        """
        return None

    def why_unusable(self, tool_name: str) -> str | None:  # noqa: ARG002 - for subclasses
        """
        Say why a tool was left out of the listing, although the server has it.

        :param tool_name: Name of the tool.
        :returns: A clause, or None if it was not left out.
        """
        return None

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
