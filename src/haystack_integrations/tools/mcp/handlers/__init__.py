# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Handlers for the requests and notifications that a server sends to this client.
"""

from haystack_integrations.tools.mcp.handlers.calling import MCPProgress
from haystack_integrations.tools.mcp.handlers.mcp_handlers import (
    AskUser,
    MCPHandlers,
    MCPSampling,
    accept_defaults,
    answer_later,
    decline,
)

__all__ = ["AskUser", "MCPHandlers", "MCPProgress", "MCPSampling", "accept_defaults", "answer_later", "decline"]
