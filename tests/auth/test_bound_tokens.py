# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tokens that are bound to a key (DPoP), against a server over HTTP that checks every proof and wants nonces.
"""

from pathlib import Path
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    OAuthConfig,
    SSEServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.oauth import FileTokenStorage
from tests.support.bound_tokens import DPoPGate
from tests.support.oauth_server import OAuthServer, allow


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (StreamableHttpServerInfo, {}),
        (StreamableHttpServerInfo, {"handshake": True}),
        (SSEServerInfo, {"transport": "sse"}),
    ],
    ids=["stateless", "sessions", "sse"],
)
def test_a_login_calls_and_a_refresh_prove_the_key(kind: Any, options: dict[str, Any], tmp_path: Path) -> None:
    with OAuthServer(**options) as server:
        gate = DPoPGate(server)
        config = OAuthConfig(dpop=True, redirect_handler=allow, token_storage=FileTokenStorage(str(tmp_path)))
        for _ in range(2):  # the second connection has the tokens of the storage, and their key
            with MCPConnection(kind(server.url, oauth_config=config)) as connection:
                assert connection.call_tool("whoami").content[0].text == "alice"
                server.provider.access.clear()
                assert connection.call_tool("whoami").content[0].text == "alice"
        assert (server.count["authorizations"], server.count["refreshes"]) == (1, 2)
        assert len(set(gate.keys.values())) == 1
        stolen = next(iter(server.provider.access))
        for scheme in ("Bearer", "DPoP"):
            assert httpx2.post(server.url, headers={"Authorization": f"{scheme} {stolen}"}).status_code == 401
