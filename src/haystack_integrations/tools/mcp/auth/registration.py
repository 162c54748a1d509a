# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The OAuth client: the configured one, one with a metadata document, or one that registers itself (RFC 7591).

Here is also how it authenticates at the endpoints of the authorization server.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from urllib.parse import quote

import httpx2
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import AnyUrl, ValidationError

from haystack_integrations.tools.mcp.auth.authorization_code import Login
from haystack_integrations.tools.mcp.auth.config import OAuthConfig
from haystack_integrations.tools.mcp.auth.discovery import Discovered, ServerMetadata, same_issuer
from haystack_integrations.tools.mcp.auth.outgoing import Outgoing
from haystack_integrations.tools.mcp.auth.token_store import Record, client_of
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.protocol.error_texts import describe_error

_WITH_SECRET = ("client_secret_basic", "client_secret_post")


def known_client(config: OAuthConfig, record: Record) -> OAuthClientInformationFull | None:
    """
    Give the client of the configuration, or else that of an earlier registration.

    :param config: The configuration.
    :param record: What is stored.
    :returns: The client, or None if there is none yet.
    :raises MCPAuthorizationError: If its secret has no value.
    """
    if config.client_id is None:
        return client_of(record)
    secret = config.client_secret.resolve_value() if config.client_secret is not None else None
    if config.client_secret is not None and not secret:
        msg = "the `client_secret` has no value"
        raise MCPAuthorizationError(msg)
    return OAuthClientInformationFull(
        client_id=config.client_id,
        client_secret=secret,
        token_endpoint_auth_method=config.token_endpoint_auth_method or "none",
    )


@dataclass
class Registration:
    """
    Finds a client that may ask for tokens, or registers one.

    :param outgoing: Sends the requests.
    :param config: The configuration.
    :param found: Where the tokens come from.
    :param login: The login that the client is for.
    """

    outgoing: Outgoing
    config: OAuthConfig
    found: Discovered
    login: Login

    async def client(
        self, known: OAuthClientInformationFull | None, *, demanded: str | None, scope: str | None
    ) -> OAuthClientInformationFull:
        """
        Give a client.

        :param known: That of an earlier registration.
        :param demanded: The scopes that it must be able to ask for.
        :param scope: Those that it asks for.
        :returns: The client.
        :raises MCPAuthorizationError: If the authorization server registers none.
        """
        server, url = self.found.server, self.config.client_metadata_url
        if server.client_id_metadata_document_supported and url is not None:
            uris = [AnyUrl(self.login.redirect_uri)]
            return OAuthClientInformationFull(
                client_id=url, token_endpoint_auth_method="none", redirect_uris=uris, issuer=server.issuer
            )
        if known is not None and self._goes_on(known, demanded):
            return known
        if server.registration_endpoint is None:
            document = "" if url is None else ", and it takes no `client_metadata_url`"
            msg = (
                f"the authorization server {server.issuer} registers no clients (its metadata have no "
                f"`registration_endpoint`{document}). Register one there by hand, and pass its `client_id`"
            )
            raise MCPAuthorizationError(msg)
        client = await self._register(server.registration_endpoint, scope)
        method = client.token_endpoint_auth_method
        if method not in (None, "none", *_WITH_SECRET) or (method in _WITH_SECRET and not client.client_secret):
            msg = f"the authorization server registered a client that has to authenticate with '{method}', and cannot"
            raise MCPAuthorizationError(msg)
        client.issuer = server.issuer
        return client

    def _goes_on(self, client: OAuthClientInformationFull, demanded: str | None) -> bool:
        is_of_server = client.issuer is None or same_issuer(client.issuer, self.found.server.issuer)
        has_uri = self.login.redirect_uri in map(str, client.redirect_uris or [])
        # One that registered itself for fewer scopes may not ask for more.
        has_scopes = not client.scope or set((demanded or "").split()) <= set(client.scope.split())
        return is_of_server and has_uri and has_scopes

    async def _register(self, endpoint: str, scope: str | None) -> OAuthClientInformationFull:
        metadata = {
            "client_name": self.config.client_name,
            "redirect_uris": [self.login.redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "application_type": "native" if self.login.is_native else "web",
            **({"scope": scope} if scope else {}),
        }
        response = await self.outgoing.send(httpx2.Request("POST", endpoint, json=metadata), "registering the client")
        try:
            if response.is_success:
                return OAuthClientInformationFull.model_validate_json(response.content)
            told = f"{response.status_code} {response.text}"
        except ValidationError as error:
            told = describe_error(error)
        msg = f"Registration failed: {told}"
        if self.found.is_guessed:
            msg += ". It names no authorization server: if it has none, pass the credentials as `token` or in `headers`"
        raise MCPAuthorizationError(msg)


def authenticate(
    client: OAuthClientInformationFull, server: ServerMetadata, form: dict[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """
    Say in a request who the client is.

    :param client: The client. One with a private key authenticates otherwise.
    :param server: The authorization server.
    :param form: The form of the request.
    :returns: The form and the headers.
    """
    method, secret = client.token_endpoint_auth_method, client.client_secret
    if method is None and secret:
        # RFC 8414, 2: without the member, the server takes Basic.
        methods = server.token_endpoint_auth_methods_supported
        is_basic = methods is None or "client_secret_basic" in methods
        method = "client_secret_basic" if is_basic else "client_secret_post"
    if method == "client_secret_basic" and secret:
        # RFC 6749, 2.3.1
        credentials = f"{quote(client.client_id, safe='')}:{quote(secret, safe='')}".encode()
        return form, {"Authorization": f"Basic {base64.b64encode(credentials).decode()}"}
    form = {**form, "client_id": client.client_id}
    return ({**form, "client_secret": secret} if method == "client_secret_post" and secret else form), {}
