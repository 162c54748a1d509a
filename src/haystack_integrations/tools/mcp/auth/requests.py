# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What functions of the user are asked for while an access token is got.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

# How many logins wait for a person now, by the URL of the MCP server.
logins_under_way: Counter[str] = Counter()


@dataclass(frozen=True, kw_only=True)
class MCPLoginRequest:
    """
    A login that waits for a person. The `redirect_handler` and the `callback_handler` of `OAuthConfig` get it.

    :param url: Where the person allows the access: a page of the authorization server. It contains nothing that is
        secret for the person.
    :param redirect_uri: Where the authorization server sends the browser afterwards.
    :param state: The value of `state` in `url`. It comes back to the redirect URI, so it tells which login it is for.
    :param server_url: The MCP server.
    :param user: The user of `mcp_request_context`, if there is one.
    """

    url: str
    redirect_uri: str
    state: str = field(repr=False)
    server_url: str
    user: str | None = None


@dataclass(frozen=True, kw_only=True)
class MCPAssertionRequest:
    """
    A request for an assertion, e.g. the token of a workload.

    The `assertion_provider` of `OAuthConfig` gets it, and so does its `id_token`, if that is a function.

    :param audience: For whom the assertion must be: the issuer of the authorization server.
    :param resource: Identifier of the MCP server, for ID-JAG.
    :param user: The user of `mcp_request_context`, if there is one.
    """

    audience: str
    resource: str
    user: str | None = None
