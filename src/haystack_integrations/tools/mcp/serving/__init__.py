# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves what was built in Haystack as an MCP server: tools, pipelines, agents, document stores, prompts and skills.

It needs FastMCP: `pip install "mcp-haystack[serve]"`.
"""

import importlib.util

if importlib.util.find_spec("fastmcp") is None:
    msg = 'Serving needs FastMCP, which is not installed: pip install "mcp-haystack[serve]"'
    raise ImportError(msg)

from .access import BearerToken
from .agents import ClientConfirmationStrategy
from .running import http_app, run_server
from .server import HaystackProvider, create_mcp_server
from .sources import ServeOptions

__all__ = [
    "BearerToken",
    "ClientConfirmationStrategy",
    "HaystackProvider",
    "ServeOptions",
    "create_mcp_server",
    "http_app",
    "run_server",
]
