# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Enterprise-managed authorization: the identity provider exchanges the user's ID token for an ID-JAG (RFC 8693).

The authorization server takes that as the assertion for an access token (RFC 7523, 2.1).
"""

from __future__ import annotations

from haystack_integrations.tools.mcp.auth.config import OAuthConfig
from haystack_integrations.tools.mcp.auth.outgoing import Outgoing
from haystack_integrations.tools.mcp.auth.records import json_object
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError

_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"


async def exchange(outgoing: Outgoing, config: OAuthConfig, id_token: str, wanted: dict[str, str]) -> str:
    """
    Exchange an ID token for an ID-JAG.

    :param outgoing: Sends the request.
    :param config: The configuration.
    :param id_token: The ID token of the user.
    :param wanted: What the ID-JAG is for: `audience`, and perhaps `resource` and `scope`.
    :returns: The ID-JAG.
    :raises MCPAuthorizationError: If the identity provider gives none.
    """
    form = {
        "grant_type": _TOKEN_EXCHANGE,
        "requested_token_type": _ID_JAG,
        "subject_token": id_token,
        "subject_token_type": _ID_TOKEN,
        **wanted,
    }
    if config.idp_client_id is not None:
        form["client_id"] = config.idp_client_id
    if config.idp_client_secret is not None:
        form["client_secret"] = str(config.idp_client_secret.resolve_value() or "")
    response = await outgoing.post(str(config.idp_token_endpoint), form, "asking the identity provider for an ID-JAG")
    if not response.is_success:
        msg = f"the identity provider answered with HTTP {response.status_code}: {response.text}"
        raise MCPAuthorizationError(msg)
    answer = json_object(response)
    if "access_token" not in answer or "issued_token_type" not in answer:
        msg = "the answer of the identity provider has no token"
        raise MCPAuthorizationError(msg)
    token, kind = answer["access_token"], answer["issued_token_type"]
    if kind != _ID_JAG or not isinstance(token, str):
        msg = f"the identity provider gave a token of the type {kind!r} in place of an ID-JAG"
        raise MCPAuthorizationError(msg)
    return token
