# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers of `tests/servers` that many tests reach in this process, by import path.
"""

from haystack_integrations.tools.mcp import InProcessServerInfo

COUNTER = InProcessServerInfo("tests.servers.inprocess:server")
FASTMCP = InProcessServerInfo("tests.servers.fastmcp_server:server")
