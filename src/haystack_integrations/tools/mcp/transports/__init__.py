# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The ways to reach a server: stdio, Streamable HTTP and SSE, and in process.

Each kind has a server info, which users write and YAML stores, a client, and a `Transport`, which marks a request as
sent as soon as a byte can have left, and knows why the connection ended. No kind imports another.
"""
