# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers with a URL: Streamable HTTP, and the older SSE.
"""
