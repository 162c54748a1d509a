# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Any

from mcp.client.auth import OAuthClientProvider, OAuthFlowError
from mcp.client.auth.utils import issuers_match


class IssuerBoundProvider(OAuthClientProvider):
    """
    The provider of the SDK, with an authorization server that the user may name.

    It overrides what the SDK's own providers override, too.
    """

    def __init__(self, *arguments: Any, issuer: str | None, **keywords: Any) -> None:
        """
        Initialize the provider.

        :param arguments: As of the SDK's provider.
        :param issuer: The only issuer that may be asked, if there is one.
        :param keywords: As of the SDK's provider.
        """
        super().__init__(*arguments, **keywords)
        self._issuer = issuer

    def _select_authorization_server(self, advertised: list[str]) -> str:
        if self._issuer is None:
            return advertised[0]
        for server in advertised:
            if issuers_match(server, self._issuer):
                return server
        raise OAuthFlowError(self._other_issuer(", ".join(advertised)))

    def _other_issuer(self, other: str) -> str:
        return f"the MCP server leads to {other}, which is not the configured issuer {self._issuer}"

    def _expected_issuer(self) -> str:
        # Also where the MCP server is its own authorization server (2025-03-26), and has named none.
        expected = super()._expected_issuer()
        if self._issuer is not None and not issuers_match(expected, self._issuer):
            raise OAuthFlowError(self._other_issuer(expected))
        return expected
