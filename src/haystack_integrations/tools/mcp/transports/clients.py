# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.base import MCPClient


def client_class(module: str, name: str) -> Callable[..., MCPClient]:
    """
    Import the client of a kind of server, with its first connection.

    By name, as a plug-in: the modules of clients import the MCP SDK, which takes longer than all else together, and a
    pipeline that is only built or loaded must not wait for it.

    :param module: Its module in this package.
    :param name: Its name.
    :returns: The class.
    """
    found: Callable[..., MCPClient] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    return found
