# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Logins and tokens for servers with a URL.
"""

from haystack_integrations.tools.mcp.auth.oauth_config import MCPAssertionRequest, MCPLoginRequest, OAuthConfig
from haystack_integrations.tools.mcp.auth.token_storage import (
    FileTokenStorage,
    InMemoryTokenStorage,
    KeyValueTokenStorage,
    MCPTokenStorage,
)
from haystack_integrations.tools.mcp.transports.http_auth import login, login_async, logout, logout_async

__all__ = [
    "FileTokenStorage",
    "InMemoryTokenStorage",
    "KeyValueTokenStorage",
    "MCPAssertionRequest",
    "MCPLoginRequest",
    "MCPTokenStorage",
    "OAuthConfig",
    "login",
    "login_async",
    "logout",
    "logout_async",
]
