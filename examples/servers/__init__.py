# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
MCP servers for the examples, written with the MCP SDK. They do not use Haystack.
"""
