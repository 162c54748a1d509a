# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What calls and reads fail with inside the package, before it is decided whether they are repeated.
"""

from __future__ import annotations

from haystack_integrations.tools.mcp.errors import MCPConnectionError

_READS = {
    "list_tools": "list the tools of",
    "list_resources": "list the resources of",
    "list_resource_templates": "list the resource templates of",
    "read_resource": "read a resource of",
    "list_prompts": "list the prompts of",
    "get_prompt": "get a prompt of",
    "list_skills": "list the skills of",
    "get_skill": "get a skill of",
    "complete": "get completions of",
    "cancel_task": "cancel a task of",
    "subscribe_resource": "subscribe to a resource of",
    "unsubscribe_resource": "unsubscribe from a resource of",
    "listen": "listen to the changes of",
    "request": "send a request to",
}


def failed_to(operation: str, server: str) -> str:
    """
    Say which operation failed.

    :param operation: Its name; the method of a request that has none.
    :param server: The server.
    :returns: A clause.
    """
    what = _READS.get(operation, f"send a request '{operation}' to")
    return f"Failed to {what} {server}"


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
