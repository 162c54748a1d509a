# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The path of these classes in mcp-haystack 2.1.
"""

from haystack_integrations.tools.mcp.auth.config import OAuthConfig
from haystack_integrations.tools.mcp.auth.token_storage import InMemoryTokenStorage

__all__ = ["InMemoryTokenStorage", "OAuthConfig"]
