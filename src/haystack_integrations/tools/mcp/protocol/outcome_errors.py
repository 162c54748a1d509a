# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What calls and reads fail with inside the package, before it is decided whether they are repeated.
"""

from __future__ import annotations

from haystack_integrations.tools.mcp.errors import MCPConnectionError


class CallDidNotRunError(MCPConnectionError):
    """
    Raised when a tool call provably did not run, so that it may be sent again.
    """

    def __init__(self, message: str, *, denied: bool = False) -> None:
        """
        Initialize the CallDidNotRunError.

        :param message: What went wrong.
        :param denied: Whether the server would refuse it again.
        """
        super().__init__(message, operation="call_tool")
        self.denied = denied
        # Why the session in which it was to be sent has ended, if it has.
        self.lost_because: str | None = None


class ReadInterruptedError(MCPConnectionError):
    """
    Raised when the connection broke while something was read, so that it may be read again.
    """

    # Whether the server may have got the request.
    was_sent: bool = True
