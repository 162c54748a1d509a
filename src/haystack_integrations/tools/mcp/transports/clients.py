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

    By name, because such a client makes its server info itself when it is used without a connection. And its module
    imports the types of the protocol, for which a pipeline that is only built or loaded must not wait.

    :param module: Its module in this package.
    :param name: Its name.
    :returns: The class.
    """
    found: Callable[..., MCPClient] = getattr(importlib.import_module(f"{__package__}.{module}"), name)
    return found
