# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The connection that tools, toolsets and components share: `MCPConnection`.

It knows which session a call uses, opens it, opens it again after a loss, repeats a call that provably did not run,
and keeps to deadlines. The supervisor opens, watches and closes sessions, the gate decides which calls go out now, and
`ServerSessions` keeps the sessions of different users apart.
"""
