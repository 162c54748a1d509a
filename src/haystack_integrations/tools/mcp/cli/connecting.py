# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How commands use a server: one connection, closed at the end however the command ends.
"""

from __future__ import annotations

import difflib
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.cli.options import Reach
from haystack_integrations.tools.mcp.cli.output import Output, one_line
from haystack_integrations.tools.mcp.cli.targets import Server
from haystack_integrations.tools.mcp.connection.connection import MCPConnection
from haystack_integrations.tools.mcp.connection.limits import CallOptions
from haystack_integrations.tools.mcp.handlers import MCPHandlers

if TYPE_CHECKING:
    import mcp_types as types


@dataclass(frozen=True)
class Session:
    """
    An open connection to a server.

    :param connection: The connection.
    :param tools: The tools of the server.
    :param seconds: How long it took to connect and to list them.
    """

    connection: MCPConnection
    tools: list[types.Tool] = field(repr=False)
    seconds: float

    def tool_named(self, name: str) -> types.Tool:
        """
        Find a tool of the server.

        :param name: Its name.
        :returns: The tool.
        :raises CommandError: If the server has none of that name. The message names those that it has.
        """
        found = next((tool for tool in self.tools if tool.name == name), None)
        if found is None:
            names = [tool.name for tool in self.tools]
            close = difflib.get_close_matches(name, names, 1)
            meant = f" Did you mean '{close[0]}'?" if close else ""
            msg = f"The server has no tool '{name}'.{meant} It has: {', '.join(names) or 'none'}"
            raise CommandError(msg)
        return found


@contextmanager
def connected(
    server: Server, reach: Reach, output: Output, *, handlers: MCPHandlers | None = None
) -> Iterator[Session]:
    """
    Connect to a server, for the time of a block.

    :param server: The server.
    :param reach: The options of the command.
    :param output: Where it is shown that this takes time.
    :param handlers: What to do for a server that asks for something.
    :returns: A context manager that gives the open connection.
    :raises MCPConnectionError: If it cannot be opened.
    """
    connection = MCPConnection(
        server.info,
        connection_timeout=reach.timeout,
        invocation_timeout=reach.timeout,
        call_options=CallOptions(reset_timeout_on_progress=True),
        handlers=handlers,
    )
    started = time.monotonic()
    try:
        with output.busy(f"Connecting to {one_line(server.name)}"):
            _, tools = connection.open()
        yield Session(connection, tools, time.monotonic() - started)
    finally:
        connection.close()
