# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Enterprise-managed authorization.

The identity provider exchanges the user's ID token for an ID-JAG (RFC 8693), and the authorization server exchanges
that for an access token (RFC 7523).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.auth.extensions.identity_assertion import IdentityAssertionOAuthProvider

from haystack_integrations.tools.mcp.auth.flows.assertions import assertion
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.auth.flows.run import Flow

_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"


async def make(flow: Flow, *, is_refresh: bool) -> Any:  # noqa: ARG001 - the makers of all grants are called alike
    """
    Make the provider of the SDK.

    :param flow: The flow.
    :param is_refresh: Whether tokens are refreshed.
    :returns: The provider.
    """
    config, client = flow.config, flow.memory.client
    flow.memory.tokens = None  # so that the provider gets new ones

    async def provided(audience: str, resource: str) -> str:
        if config.id_token is None:
            return await assertion(flow, "assertion_provider", audience)
        return await _exchange(flow, audience, resource)

    return IdentityAssertionOAuthProvider(
        flow.auth.server_url,
        flow.memory,
        client_id=str(config.client_id),
        client_secret=str(client.client_secret if client is not None else ""),
        issuer=str(config.issuer),
        assertion_provider=provided,
        scope=flow.wanted_scope(),
        token_endpoint_auth_method=config.token_endpoint_auth_method,  # type: ignore[arg-type]
    )


async def _exchange(flow: Flow, audience: str, resource: str) -> str:
    config = flow.config
    data = {
        "grant_type": _TOKEN_EXCHANGE,
        "requested_token_type": _ID_JAG,
        "audience": audience,
        "resource": resource,
        "subject_token": await assertion(flow, "id_token", audience),
        "subject_token_type": _ID_TOKEN,
    }
    if config.idp_client_id is not None:
        data["client_id"] = config.idp_client_id
    if config.idp_client_secret is not None:
        data["client_secret"] = str(config.idp_client_secret.resolve_value() or "")
    scope = flow.wanted_scope()
    if scope:
        data["scope"] = scope
    response = await flow.outgoing.send(httpx2.Request("POST", str(config.idp_token_endpoint), data=data))
    if response.status_code != httpx2.codes.OK:
        msg = f"the identity provider answered with HTTP {response.status_code}: {response.text}"
        raise MCPAuthorizationError(msg)
    try:
        answer = json.loads(response.content)
        token, kind = answer["access_token"], answer["issued_token_type"]
    except (ValueError, KeyError, TypeError):
        msg = "the answer of the identity provider has no token"
        raise MCPAuthorizationError(msg) from None
    if kind != _ID_JAG or not isinstance(token, str):
        msg = f"the identity provider gave a token of the type {kind!r} in place of an ID-JAG"
        raise MCPAuthorizationError(msg)
    return token
