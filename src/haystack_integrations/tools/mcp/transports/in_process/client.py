# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

import mcp.server

from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.protocol.channel import Transport
from haystack_integrations.tools.mcp.protocol.client import WireClient
from haystack_integrations.tools.mcp.protocol.exchange import ProtocolError
from haystack_integrations.tools.mcp.transports.in_process.server_info import InProcessServerInfo
from haystack_integrations.tools.mcp.transports.in_process.transport import InProcessTransport

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.server_info import Negotiation


class InProcessClient(WireClient):
    """
    MCP client for a server in the same process.
    """

    # The rest comes from the user's own code, whose frames the user wants to see.
    _told: ClassVar[tuple[type[Exception], ...]] = (ProtocolError,)

    def __init__(self, server: Any, *, negotiation: Negotiation = "auto") -> None:
        """
        Initialize an in-process MCP client.

        :param server: The server object, or its import path `"package.module:attribute"`.
        :param negotiation: How the revision of the protocol is agreed on.
        """
        super().__init__()
        self.server = server
        self._info = InProcessServerInfo(server, negotiation=negotiation)

    async def _make_transport(self) -> Transport:
        server = self.server
        if isinstance(server, str):
            # Not in a thread of asyncio's own, where an import that hangs would hold up the interpreter's exit.
            server = await start_in_thread(partial(_import, server))
        server = getattr(server, "_mcp_server", server)  # the SDK server inside a FastMCP server
        server = getattr(server, "_lowlevel_server", server)  # the one inside an MCPServer
        if not isinstance(server, mcp.server.Server):
            msg = f"Failed to connect to {self._describe()}: it is a {type(server).__name__}, not an MCP server object"
            raise MCPConnectionError(msg, server_info=self._info, operation="connect")
        return InProcessTransport(server)


def _import(path: str) -> Any:
    module, _, attribute = path.partition(":")
    try:
        return attrgetter(attribute)(importlib.import_module(module))
    except Exception:
        raise
    except BaseException as error:  # e.g. of a script that parses its arguments when it is imported
        msg = f"importing it raised {type(error).__name__}"
        raise ImportError(msg) from error
