# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves what was built in Haystack as an MCP server: tools, pipelines, agents, document stores, prompts and skills.

It needs FastMCP: `pip install "mcp-haystack[serve]"`.
"""

from typing import TYPE_CHECKING

__all__ = [
    "BearerToken",
    "ClientConfirmationStrategy",
    "HaystackProvider",
    "ServeOptions",
    "create_mcp_server",
    "http_app",
    "run_server",
]

if TYPE_CHECKING:
    from .approvals import ClientConfirmationStrategy
    from .provider import HaystackProvider
    from .running import http_app, run_server
    from .server import BearerToken, create_mcp_server
    from .sources import ServeOptions
else:
    import importlib
    import importlib.util

    _MODULES = {
        "BearerToken": "server",
        "ClientConfirmationStrategy": "approvals",
        "HaystackProvider": "provider",
        "ServeOptions": "sources",
        "create_mcp_server": "server",
        "http_app": "running",
        "run_server": "running",
    }

    if importlib.util.find_spec("fastmcp") is None:
        msg = 'Serving needs FastMCP, which is not installed: pip install "mcp-haystack[serve]"'
        raise ImportError(msg)

    def __getattr__(name: str) -> object:
        if name not in _MODULES:
            msg = f"module {__name__!r} has no attribute {name!r}"
            raise AttributeError(msg)
        value = getattr(importlib.import_module(f".{_MODULES[name]}", __name__), name)
        globals()[name] = value
        return value

    def __dir__() -> list[str]:
        return [*__all__]
