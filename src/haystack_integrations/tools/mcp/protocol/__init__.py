# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
One session with a server, below any policy: requests on the wire, and their fates.

An exchange is one request; its fate only moves forward, from new to sent to answered, refused or lost. A channel holds
the exchanges in flight, and a `Transport` carries them. `WireClient` is a session over a transport, in the revision
of the protocol that both sides speak. Nothing here decides whether a request that was lost is sent again.
"""
