# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The servers of `tests/servers` that many tests reach in this process, by their import paths.
"""

from haystack_integrations.tools.mcp import InProcessServerInfo

COUNTER = InProcessServerInfo("tests.servers.inprocess:server")
FASTMCP = InProcessServerInfo("tests.servers.fastmcp_server:server")
