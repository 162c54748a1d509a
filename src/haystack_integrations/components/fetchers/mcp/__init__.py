# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A component that reads resources of MCP servers in Haystack pipelines.
"""

from .resource_fetcher import MCPResourceFetcher

__all__ = ["MCPResourceFetcher"]
