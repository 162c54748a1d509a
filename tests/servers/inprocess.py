# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The counter server inside the test's own process, reachable by import path as `tests.servers.inprocess:server`.

`calls` collects the names of the tools as they are executed; a test that counts calls clears it first.
"""

from typing import Any

from mcp.server.mcpserver import MCPServer

from tests.servers.counter_server import build_server

calls: list[str] = []


def _record(event: str, **_details: Any) -> None:
    if not event.startswith("@"):
        calls.append(event)


server: MCPServer[Any] = build_server(_record, name="inprocess", in_process=True)
