# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How tokens are got, and how they end.

.. code-block:: text

    refresh token, and no more scopes are wanted    it is used. If it is refused, it is thrown away and people log in
                                                    again; if the authorization server fails, it is kept
    otherwise                                       discovery, client, grant, token
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import httpx2
from haystack import logging
from haystack.utils import Secret
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthClientInformationFull
from mcp.shared.auth_utils import resource_url_from_server_url

from haystack_integrations.tools.mcp.auth import id_jag
from haystack_integrations.tools.mcp.auth.authorization_code import Login
from haystack_integrations.tools.mcp.auth.client_credentials import client_assertion
from haystack_integrations.tools.mcp.auth.config import OAuthConfig
from haystack_integrations.tools.mcp.auth.discovery import (
    Challenge,
    Discovered,
    Discovery,
    ResourceMetadata,
    ServerMetadata,
)
from haystack_integrations.tools.mcp.auth.dpop import Proofs
from haystack_integrations.tools.mcp.auth.outgoing import HttpClients, Outgoing
from haystack_integrations.tools.mcp.auth.records import has_expired, has_token, is_same, json_object, read_tokens
from haystack_integrations.tools.mcp.auth.registration import Registration, authenticate, known_client
from haystack_integrations.tools.mcp.auth.requests import MCPAssertionRequest
from haystack_integrations.tools.mcp.auth.token_store import MCPTokenStorage, Record, TokenKey
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.import_paths import provide
from haystack_integrations.tools.mcp.protocol.error_texts import describe_error
from haystack_integrations.tools.mcp.redaction import Redactor, redact_url, secrets_in

logger: logging.PatchedLogger = logging.getLogger(__name__)

# From this revision on, `resource` is sent also if the MCP server has no metadata.
_FIRST_WITH_RESOURCE = "2025-06-18"

_CLIENT_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"

# Answers of servers that are quoted in errors are pages sometimes.
_LONGEST_ERROR = 2000

_STEPS = {
    "authorization_code": "exchanging the code for a token",
    "refresh_token": "refreshing the token",
    "client_credentials": "asking for a token with the client's credentials",
    JWT_BEARER_GRANT_TYPE: "exchanging the assertion for a token",
}


@dataclass(kw_only=True)
class Flow:
    """
    One attempt to get tokens for one key, or to end them.

    :param config: How to get tokens.
    :param key: Whose tokens, and for which MCP server.
    :param storage: Where they are kept.
    :param record: What is known so far.
    :param clients: Makes the HTTP client.
    :param check: Called with each URL; raises an exception if it must not be requested.
    :param challenge: What the MCP server said.
    :param version: The protocol revision of the request that it refused.
    """

    config: OAuthConfig
    key: TokenKey
    storage: MCPTokenStorage
    record: Record
    clients: HttpClients
    check: Callable[[str], None] | None = None
    challenge: Challenge = field(default_factory=Challenge)
    version: str | None = None
    # Those that came up; they may come back in what a server says.
    secrets: set[str] = field(default_factory=set)
    # Whether tokens were got otherwise than by a refresh.
    has_logged_in: bool = False

    def __post_init__(self) -> None:
        """
        Begin with nothing.
        """
        self._outgoing: Outgoing
        self._found: Discovered
        self._client: OAuthClientInformationFull | None = None
        self._proofs: Proofs | None = None

    async def run(self, *, may_refresh: bool) -> Record:
        """
        Get tokens, and save them.

        :param may_refresh: Whether a refresh is worth a try.
        :returns: The new record.
        :raises MCPAuthorizationError: If that fails. Its message names the step, and contains no secret.
        """
        step = "preparing to ask for a token"
        try:
            async with self.clients() as client:
                outgoing = self._open(client)
                try:
                    return await self._run(may_refresh)
                finally:
                    step = outgoing.step
        except Exception as error:  # also of a function of the user, or of a custom storage
            text = Redactor(self.secrets).text(describe_error(error))
        # Not from the error, whose text and frames have secrets that a traceback may show.
        msg = f"authorization failed while {step}: {text[:_LONGEST_ERROR]}"
        raise MCPAuthorizationError(msg)

    def _open(self, client: httpx2.AsyncClient) -> Outgoing:
        trusted = [self.config.issuer, self.config.idp_token_endpoint]
        outgoing = self._outgoing = Outgoing(client, self.key.server_url, trusted, self.check)
        self.secrets = outgoing.secrets
        tokens = self.record.get("tokens") or {}
        self.secrets.update(tokens[name] for name in ("access_token", "refresh_token") if tokens.get(name))
        self.secrets.update(secrets_in({"url": self.key.server_url}))
        return outgoing

    async def _run(self, may_refresh: bool) -> Record:
        self.secrets.update(str(value) for secret in self.config._secrets() if (value := secret.resolve_value()))
        if self.config.dpop:
            self._proofs = Proofs.of(self.record)
        self._client = known_client(self.config, self.record)
        has_refresh_token = bool((self.record.get("tokens") or {}).get("refresh_token"))
        # The company vouches for each token of an ID-JAG.
        may_refresh &= has_refresh_token and not self.challenge.is_step_up and self.config.grant_type != "id_jag"
        if may_refresh and self._client is not None:
            refreshed = await self._refresh(self._client.client_id)
            if refreshed is not None:
                return refreshed
        self.has_logged_in = True
        self._outgoing.step = "preparing to ask for a token"
        if self.config.grant_type == "authorization_code":
            return await self._log_in()
        self._found = await self._discover()
        scope = self._scope(self._found.resource)
        return await self._new_tokens(await self._machine_grant(scope), scope)

    async def _refresh(self, client_id: str) -> Record | None:
        tokens = self.record["tokens"]
        self._found = Discovered.of(self.record) or await self._discover()
        form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "client_id": client_id}
        response = await self._request_token(form)
        if response.is_server_error or response.status_code == httpx2.codes.TOO_MANY_REQUESTS:
            msg = f"the authorization server answered with HTTP {response.status_code}"
            raise MCPAuthorizationError(msg)
        if response.is_client_error or "error" in json_object(response):
            stored = await self.storage.load(self.key)
            if has_token(stored) and not is_same(stored, self.record) and not has_expired(stored):
                return stored  # of another process, which refreshed first although this one held the lock
            # What was refused is of no use any more.
            self.record = {name: each for name, each in self.record.items() if name not in ("tokens", "expires_at")}
            await self.storage.save(self.key, self.record)
            logger.info("{server} needs a new login: its refresh token was refused", server=self._server())
            return None
        # The answer may leave out what stays as it is (RFC 6749, 6).
        kept = {name: tokens[name] for name in ("scope", "refresh_token") if name in tokens}
        new = {**kept, **read_tokens(response, dpop=self.config.dpop)}
        return await self._saved(new, self.record.get("asked_for", []), "Refreshed the token for {server}")

    async def _log_in(self) -> Record:
        known = self._client
        registered = map(str, known.redirect_uris or []) if known is not None else ()
        async with Login(self.config, self.key, self._outgoing, registered) as login:
            found = self._found = await self._discover()
            scope = self._scope(found.resource, found.server)
            if known is None or self.config.client_id is None:
                registration = Registration(self._outgoing, self.config, found, login)
                known = self._client = await registration.client(known, demanded=self._scope(None), scope=scope)
            form = await login.grant(found.server, known.client_id, self._resource(), scope)
            return await self._new_tokens(form, scope)

    async def _new_tokens(self, form: dict[str, str], scope: str | None) -> Record:
        if scope and "code" not in form:  # which is for the scope
            form = {**form, "scope": scope}
        tokens = read_tokens(await self._request_token(form), dpop=self.config.dpop)
        if scope:
            tokens.setdefault("scope", scope)  # RFC 6749, 5.1
        return await self._saved(tokens, (scope or "").split(), "Got a token for {server}")

    async def _discover(self) -> Discovered:
        discovery = Discovery(self._outgoing, self.key.server_url, self.config.issuer, self.config.resource or None)
        if self.config.grant_type == "id_jag":  # the company decides which authorization server is asked
            return await discovery.find_server(self.config.issuer)
        return await discovery.run(self.challenge)

    def _scope(self, resource: ResourceMetadata | None, server: ServerMetadata | None = None) -> str | None:
        """
        Choose the scopes of the configuration, or of the challenge, or of the MCP server's metadata, or none.

        What the authorization server offers is no reason to ask for it.
        """
        challenge, chosen = self.challenge, self.config.scopes
        scope = challenge.scope if chosen is None else " ".join(chosen)
        if scope is None and resource is not None and resource.scopes_supported is not None:
            scope = " ".join(resource.scopes_supported)
        if challenge.is_step_up:
            scope = union_scopes(union_scopes(" ".join(self.record.get("asked_for", ())), scope), challenge.scope)
        if chosen is None and scope and server is not None and "offline_access" in server.scopes_supported:
            scope = union_scopes(scope, "offline_access")  # for a refresh token
        return scope or None

    def _resource(self) -> str | None:
        """
        Choose what tokens are for (RFC 8707).
        """
        if self.config.resource is not None:
            return self.config.resource or None
        if self._found.resource is not None:
            return self._found.resource.resource
        is_sent = self.config.grant_type == "id_jag" or (self.version or "") >= _FIRST_WITH_RESOURCE
        return resource_url_from_server_url(self.key.server_url) if is_sent else None

    async def _machine_grant(self, scope: str | None) -> dict[str, str]:
        config = self.config
        if config.grant_type == "client_credentials":
            return {"grant_type": "client_credentials"}
        if config.id_token is None:
            assertion = await self._provided("assertion_provider")
        else:
            wanted = {"audience": self._audience(), "resource": self._resource(), "scope": scope}
            id_token = await self._provided("id_token")
            given = {name: value for name, value in wanted.items() if value}
            assertion = await id_jag.exchange(self._outgoing, config, id_token, given)
        form = {"grant_type": JWT_BEARER_GRANT_TYPE, "assertion": assertion}
        return form if config.client_id is None else {**form, "client_id": config.client_id}

    def _audience(self) -> str:
        if self._found.is_guessed:
            msg = "the authorization server has no metadata, so the audience of the assertion is not known"
            raise MCPAuthorizationError(msg)
        return self._found.server.issuer

    async def _provided(self, parameter: str) -> str:
        """
        Ask a function of the user for an assertion, or resolve the Secret that it is.
        """
        source, audience = getattr(self.config, parameter), self._audience()
        if isinstance(source, Secret):
            value = source.resolve_value()
        else:
            resource = self.config.resource or resource_url_from_server_url(self.key.server_url)
            request = MCPAssertionRequest(audience=audience, resource=resource, user=self.key.user)
            self._outgoing.step = f"asking `{parameter}`"
            try:
                value = await provide(source, request)
            except Exception as error:
                # Not its text, which may quote a credential.
                msg = f"`{parameter}` failed ({type(error).__name__})"
                raise MCPAuthorizationError(msg) from error
        if not isinstance(value, str) or not value:
            msg = f"`{parameter}` must give a string that is not empty, it gave {type(value).__name__}"
            raise MCPAuthorizationError(msg)
        self.secrets.add(value)
        return value

    async def _request_token(self, form: dict[str, str]) -> httpx2.Response:
        headers: dict[str, str] = {}
        resource = self._resource()
        if resource is not None:
            form = {**form, "resource": resource}
        if self.config.token_endpoint_auth_method == "private_key_jwt":
            has_key = self.config.private_key is not None
            signed = client_assertion(self.config, self._audience()) if has_key else None
            assertion = signed or await self._provided("assertion_provider")
            form = {**form, "client_assertion_type": _CLIENT_ASSERTION_TYPE, "client_assertion": assertion}
        elif self._client is not None:
            form, headers = authenticate(self._client, self._found.server, form)
        step, endpoint = _STEPS[form["grant_type"]], self._found.server.token_endpoint
        return await self._outgoing.post(endpoint, form, step, headers, self._proofs)

    async def _saved(self, tokens: dict[str, Any], asked_for: list[str], message: str) -> Record:
        record: Record = {"serial": uuid.uuid4().hex, "tokens": tokens}
        if self._proofs is not None:
            record["dpop_key"] = self._proofs.pem
        if "expires_in" in tokens:
            record["expires_at"] = time.time() + tokens["expires_in"]
        record["authorization_server"] = self._found.server.model_dump(exclude_none=True)
        if self._found.resource is not None:
            record["resource"] = self._found.resource.model_dump(exclude_none=True)
        if self.config.client_id is None and self._client is not None:
            record["client"] = self._client.model_dump(mode="json", exclude_none=True)
        record["asked_for"] = list(dict.fromkeys([*asked_for, *tokens.get("scope", "").split()]))
        self._outgoing.step = "saving the token"
        await self.storage.save(self.key, record)
        logger.info(message, server=self._server())
        return record

    async def revoke(self) -> None:
        """
        Have the tokens revoked (RFC 7009), where the authorization server says how. If it refuses, that is logged.
        """
        tokens, found = self.record["tokens"], Discovered.of(self.record)
        endpoint = found.server.revocation_endpoint if found is not None else None
        if found is None or endpoint is None or self.config.token_endpoint_auth_method == "private_key_jwt":
            return
        try:
            client = known_client(self.config, self.record)
            async with self.clients() as http:
                outgoing = self._open(http)
                # With a refresh token, servers revoke the access tokens that came of it, too.
                for hint in ("refresh_token", "access_token"):
                    if client is not None and tokens.get(hint):
                        form = {"token": tokens[hint], "token_type_hint": hint}
                        form, headers = authenticate(client, found.server, form)
                        response = await outgoing.post(endpoint, form, "revoking the token", headers)
                        response.raise_for_status()
        except (MCPAuthorizationError, httpx2.HTTPStatusError, ValueError) as error:
            status = error.response.status_code if isinstance(error, httpx2.HTTPStatusError) else None
            logger.warning(
                "The authorization server did not revoke the tokens for {server} ({reason}); they are forgotten here",
                server=self._server(),
                reason=f"HTTP {status}" if status is not None else type(error).__name__,
            )

    def _server(self) -> str:
        return redact_url(self.key.server_url)
