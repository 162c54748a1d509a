# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The exceptions of this package.

.. code-block:: text

    Exception
    ├── MCPError
    │   ├── MCPConnectionError             no session with the server, or it was lost
    │   │   └── MCPConnectionTimeoutError  … within `connection_timeout` (also a TimeoutError)
    │   └── MCPToolNotFoundError           the server has no such tool
    └── haystack ToolInvocationError
        └── MCPInvocationError             a tool call did not give a result
            └── MCPTimeoutError            … within `invocation_timeout` (also a TimeoutError)

`MCPInvocationError` derives from Haystack's `ToolInvocationError`, and not from `MCPError`, so that an Agent turns a
failed call into an error message for the model instead of ending the run.
"""

from __future__ import annotations

from typing import Any

from haystack.tools.errors import ToolInvocationError


class MCPError(Exception):
    """
    Base class of the errors about an MCP server as such.
    """

    def __init__(self, message: str) -> None:
        """
        Initialize the MCPError.

        :param message: Descriptive error message.
        """
        super().__init__(message)
        self.message = message


class MCPConnectionError(MCPError):
    """
    Raised when no session with a server can be opened, or when it is needed and was lost.
    """

    def __init__(
        self,
        message: str,
        server_info: Any = None,
        operation: str | None = None,
        *,
        code: int | None = None,
        data: Any = None,
    ) -> None:
        """
        Initialize the MCPConnectionError.

        :param message: Descriptive error message.
        :param server_info: The MCPServerInfo that was used, or None.
        :param operation: Name of the operation that was being attempted.
        :param code: JSON-RPC error code, if the server answered with a protocol error.
        :param data: Data that came with the protocol error.
        """
        super().__init__(message)
        self.server_info = server_info
        self.operation = operation
        self.code = code
        self.data = data


class MCPConnectionTimeoutError(MCPConnectionError, TimeoutError):
    """
    Raised when a session could not be opened within `connection_timeout` seconds.
    """


class MCPToolNotFoundError(MCPError):
    """
    Raised when a tool that was asked for by name is not among the tools of the server.
    """

    def __init__(self, message: str, tool_name: str, available_tools: list[str] | None = None) -> None:
        """
        Initialize the MCPToolNotFoundError.

        :param message: Descriptive error message.
        :param tool_name: Name of the tool that was requested but not found.
        :param available_tools: Names of the tools that the server has, if known.
        """
        super().__init__(message)
        self.tool_name = tool_name
        self.available_tools = available_tools if available_tools is not None else []

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Make the error survive pickling, which by default calls the class with the message alone.
        """
        return type(self), (self.message, self.tool_name, self.available_tools)


class MCPInvocationError(ToolInvocationError):
    """
    Raised when a tool call gave no result: the tool reported an error, the server refused it, or the call was lost.

    The message holds the server's own text and, beside it, never an argument value. Values of `inputs_from_state`
    that the server's text quotes whole are blotted out, if they have at least six characters.
    """

    def __init__(
        self,
        message: str,
        tool_name: str,
        tool_args: dict[str, Any] | None = None,
        *,
        code: int | None = None,
        data: Any = None,
    ) -> None:
        """
        Initialize the MCPInvocationError.

        :param message: Descriptive error message.
        :param tool_name: Name of the tool that was being invoked.
        :param tool_args: Arguments that were passed to the tool.
        :param code: JSON-RPC error code, if the server answered with a protocol error.
        :param data: Data that came with the protocol error.
        """
        super().__init__(message=message, tool_name=tool_name)
        self.message = message
        self.tool_args = tool_args if tool_args is not None else {}
        self.code = code
        self.data = data

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Make the error survive pickling, which by default calls the class with the message alone.
        """
        return type(self), (self.message, self.tool_name, self.tool_args), {"code": self.code, "data": self.data}


class MCPTimeoutError(MCPInvocationError, TimeoutError):
    """
    Raised when a tool call took longer than `invocation_timeout` seconds. It was cancelled on the server too.
    """
