# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
MCP servers that the examples use, written with the MCP SDK. None of them knows of Haystack.
"""
