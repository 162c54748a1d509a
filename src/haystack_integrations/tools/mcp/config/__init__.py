# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The configuration files of other MCP clients, `mcp.json` and its relatives, as toolsets.
"""
