# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The tools of a server as somebody looked at them, and how those that it has now differ.
"""

from haystack_integrations.tools.mcp.snapshot.guard import SnapshotCheck
from haystack_integrations.tools.mcp.snapshot.snapshot import MCPDriftReport, MCPToolDrift, MCPToolSnapshot

__all__ = [
    "MCPDriftReport",
    "MCPToolDrift",
    "MCPToolSnapshot",
    "SnapshotCheck",
]
