# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Has an authorization server revoke tokens (RFC 7009).
"""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import httpx2
from haystack import logging

from haystack_integrations.tools.mcp.auth.outgoing import Outgoing
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.redaction import redact_url
from haystack_integrations.tools.mcp.secret_template import resolved

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.auth.authorization import OAuth
    from haystack_integrations.tools.mcp.auth.token_store import Record

logger: logging.PatchedLogger = logging.getLogger(__name__)


class Revocation:
    """
    The end of the tokens of one record at the authorization server. It is not needed to forget them here.
    """

    def __init__(self, auth: OAuth, record: Record) -> None:
        """
        Initialize the Revocation.

        :param auth: Whose tokens.
        :param record: The record, with a token.
        """
        self._auth = auth
        self._record = record

    async def run(self) -> None:
        """
        Ask for it, where the authorization server says how. If it refuses, that is logged.
        """
        endpoint = (self._record.get("authorization_server") or {}).get("revocation_endpoint")
        client = self._client()
        if not endpoint or client is None:
            return
        config = self._auth.config
        tokens = self._record["tokens"]
        try:
            async with self._auth.clients() as http:
                outgoing = Outgoing(http, self._auth.server_url, [config.issuer], self._auth.check)
                # With a refresh token, servers revoke the access tokens that came of it, too.
                for hint in ("refresh_token", "access_token"):
                    if tokens.get(hint):
                        form = {"token": tokens[hint], "token_type_hint": hint}
                        response = await outgoing.send(_request(endpoint, form, client))
                        response.raise_for_status()
        except (MCPAuthorizationError, httpx2.HTTPStatusError, ValueError) as error:
            status = error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else None
            logger.warning(
                "The authorization server did not revoke the tokens for {server} ({reason}); they are forgotten here",
                server=redact_url(self._auth.server_url),
                reason=f"HTTP {status}" if status is not None else type(error).__name__,
            )

    def _client(self) -> dict[str, Any] | None:
        """
        Give the client and how it authenticates; None if it does so with a key or an assertion.
        """
        config = self._auth.config
        if config.client_id is None:
            client: dict[str, Any] | None = self._record.get("client")
            return client
        if config.client_secret is None:
            return {"client_id": config.client_id} if config.private_key is None else None
        return {
            "client_id": config.client_id,
            "client_secret": resolved(config.client_secret),
            "token_endpoint_auth_method": config.token_endpoint_auth_method,
        }


def _request(endpoint: str, form: dict[str, str], client: dict[str, Any]) -> httpx2.Request:
    name, secret = str(client.get("client_id")), client.get("client_secret")
    headers = {}
    if secret and client.get("token_endpoint_auth_method") == "client_secret_basic":
        credentials = base64.b64encode(f"{quote(name, safe='')}:{quote(secret, safe='')}".encode()).decode()
        headers["Authorization"] = f"Basic {credentials}"
    else:
        form = {**form, "client_id": name, **({"client_secret": secret} if secret else {})}
    return httpx2.Request("POST", endpoint, data=form, headers=headers)
