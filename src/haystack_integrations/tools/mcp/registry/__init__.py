# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers by name, and which of their tools go by which alias, with limits: `MCPRegistry`.
"""
