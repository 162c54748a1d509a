# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The SDK's server below a FastMCP: what FastMCP has no public way to.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fastmcp import FastMCP
    from mcp.server.lowlevel.server import Server


def low_level_server(server: FastMCP[Any]) -> Server[Any]:
    """
    Give the SDK's server that FastMCP sets up.

    :param server: A FastMCP server.
    :returns: Its low-level server.
    :raises RuntimeError: If this version of FastMCP keeps it somewhere else.
    """
    low_level: Server[Any] | None = getattr(server, "_mcp_server", None)
    if low_level is None:
        msg = "This version of FastMCP is not supported: install fastmcp>=4.1,<5"
        raise RuntimeError(msg)
    return low_level
