# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

from haystack_integrations.tools.mcp.errors import (
    NO_DESCRIPTORS,
    MCPCallTimeoutError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    lacks_descriptors,
)
from haystack_integrations.tools.mcp.executor import OperationCancelledError


def executor_failed(error: Exception, tool_name: str, tool_args: dict[str, Any] | None) -> MCPInvocationError:
    """
    Make the error of a call that the executor did not run, or not to its end.

    :param error: An OSError or RuntimeError of the executor, or the TimeoutError of a caller that waited for it.
    :param tool_name: Name of the tool in messages.
    :param tool_args: The arguments.
    :returns: The error, which says whether the tool may have run.
    """
    if isinstance(error, TimeoutError):
        msg = f"Failed to invoke Tool `{tool_name}`: {error} (its event loop is blocked). The tool may have run."
        return MCPCallTimeoutError(msg, tool_name, tool_args)
    if isinstance(error, OperationCancelledError):
        msg = f"Failed to invoke Tool `{tool_name}`: {error} The tool may have run."
        return MCPOutcomeUnknownError(msg, tool_name, tool_args)
    reason = NO_DESCRIPTORS if lacks_descriptors(error) else str(error).rstrip(".")
    msg = f"Failed to invoke Tool `{tool_name}`: {reason}. The tool did not run."
    return MCPInvocationError(msg, tool_name, tool_args)
