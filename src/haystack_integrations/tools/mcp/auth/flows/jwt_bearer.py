# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The grant of workloads: an assertion for a token (RFC 7523, 2.1).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import httpx2
from mcp.client.auth import OAuthFlowError
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthClientInformationFull, OAuthClientMetadata

from haystack_integrations.tools.mcp.auth.flows.assertions import assertion
from haystack_integrations.tools.mcp.auth.flows.provider import IssuerBoundProvider

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.auth.flows.run import Flow


async def make(flow: Flow, *, is_refresh: bool) -> Any:  # noqa: ARG001 - the makers of all grants are called alike
    """
    Make the provider.

    :param flow: The flow.
    :param is_refresh: Whether tokens are refreshed.
    :returns: The provider.
    """
    return _Provider(flow)


class _Provider(IssuerBoundProvider):
    """
    The provider of the SDK up to the token request, which it does not know.
    """

    def __init__(self, flow: Flow) -> None:
        self._flow = flow
        config = flow.config
        scope = " ".join(config.scopes) if config.scopes else None
        metadata = OAuthClientMetadata(redirect_uris=None, grant_types=[JWT_BEARER_GRANT_TYPE], scope=scope)
        super().__init__(flow.auth.server_url, metadata, flow.memory, issuer=config.issuer)

    async def _initialize(self) -> None:
        await super()._initialize()
        if self.context.client_info is None:  # the assertion alone says who the client is; it registers nothing
            self.context.client_info = OAuthClientInformationFull(
                client_id="none", redirect_uris=None, token_endpoint_auth_method="none"
            )

    async def _perform_authorization(self) -> httpx2.Request:
        metadata = self.context.oauth_metadata
        if metadata is None:
            msg = "the authorization server has no metadata, so the audience of the assertion is not known"
            raise OAuthFlowError(msg)
        data = {
            "grant_type": JWT_BEARER_GRANT_TYPE,
            "assertion": await assertion(self._flow, "assertion_provider", str(metadata.issuer)),
        }
        if self._flow.config.client_id is not None:
            data["client_id"] = self._flow.config.client_id
        if self.context.should_include_resource_param(self.context.protocol_version):
            data["resource"] = self.context.get_resource_url()
        if self.context.client_metadata.scope:
            data["scope"] = self.context.client_metadata.scope
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        data, headers = self.context.prepare_token_auth(data, headers)
        return httpx2.Request("POST", self._get_token_endpoint(), data=data, headers=headers)
