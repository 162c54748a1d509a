# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A served server that wants tokens, and this package's own client.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastmcp.dependencies import Depends
from fastmcp.server.auth import JWTVerifier
from fastmcp.server.auth.providers.jwt import RSAKeyPair
from fastmcp.server.dependencies import get_access_token
from haystack.tools import create_tool_from_function
from haystack.utils import Secret

from haystack_integrations.tools.mcp import MCPError, MCPToolset, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from tests.support.reachable import reachable

ISSUER, AUDIENCE = "https://login.example.com", "tea"


def caller() -> str:
    token = get_access_token()
    return token.claims["sub"] if token else "nobody"


def whoami(user: str) -> str:
    """Say who calls, as the server was told and as the code of the tool finds out, in its thread."""
    return f"{user}, {caller()}"


def administer() -> str:
    """What only administrators may do."""
    return "done"


@pytest.fixture(scope="module")
def keys() -> RSAKeyPair:
    return RSAKeyPair.generate()


@pytest.fixture
async def url(keys: RSAKeyPair) -> AsyncIterator[str]:
    server = create_mcp_server(
        "tea",
        tools=[create_tool_from_function(whoami), create_tool_from_function(administer)],
        auth=JWTVerifier(public_key=keys.public_key, issuer=ISSUER, audience=AUDIENCE),
        options={"whoami": ServeOptions(bound={"user": Depends(caller)}), "administer": ServeOptions(scopes=["admin"])},
    )
    async with reachable(server, over_http=True) as address:
        yield address


def token(keys: RSAKeyPair, **claims: Any) -> str:
    return keys.create_token(**{"subject": "ada", "issuer": ISSUER, "audience": AUDIENCE, **claims})


def ask(url: str, token: str | None, tool: str = "whoami") -> tuple[list[str], str]:
    """
    The names of the tools that this client sees, and what one of them answers.
    """
    server_info = StreamableHttpServerInfo(url, token=Secret.from_token(token) if token else None)
    with MCPToolset(server_info) as toolset:
        answer = json.loads(toolset[tool].invoke())
        return sorted(each.name for each in toolset), answer["content"][0]["text"]


async def test_a_tool_sees_who_calls_and_one_with_scopes_is_for_tokens_that_have_them(
    keys: RSAKeyPair, url: str
) -> None:
    assert await asyncio.to_thread(ask, url, token(keys)) == (["whoami"], "ada, ada")
    assert await asyncio.to_thread(ask, url, token(keys, subject="grace")) == (["whoami"], "grace, grace")
    scoped = token(keys, scopes=["admin"])
    assert await asyncio.to_thread(ask, url, scoped, "administer") == (["administer", "whoami"], "done")
    for wrong in (None, token(keys, issuer="https://evil.example.com")):
        with pytest.raises(MCPError, match="401"):
            await asyncio.to_thread(ask, url, wrong)
