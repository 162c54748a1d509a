# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import logging
import time
import uuid
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import httpx2
from haystack import logging as haystack_logging
from mcp.client.auth import OAuthClientProvider, OAuthRegistrationError
from mcp.client.auth.utils import (
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    union_scopes,
)
from mcp.shared.auth import (
    OAuthClientInformationFull,
    OAuthMetadata,
    OAuthToken,
    ProtectedResourceMetadata,
)

from haystack_integrations.tools.mcp.auth.flows import authorization_code, client_credentials, id_jag, jwt_bearer
from haystack_integrations.tools.mcp.auth.flows.dpop import Proofs
from haystack_integrations.tools.mcp.auth.outgoing import Outgoing
from haystack_integrations.tools.mcp.auth.records import has_expired, has_token, is_same
from haystack_integrations.tools.mcp.client.error_texts import describe_error
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.redaction import Redactor, redact_url

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.auth.authorization import OAuth
    from haystack_integrations.tools.mcp.auth.config import OAuthConfig
    from haystack_integrations.tools.mcp.auth.token_store import Record, TokenKey

logger: haystack_logging.PatchedLogger = haystack_logging.getLogger(__name__)

_is_running: ContextVar[bool] = ContextVar("haystack_mcp_oauth_flow", default=False)

_MAKERS = {
    "authorization_code": authorization_code.make,
    "client_credentials": client_credentials.make,
    "jwt_bearer": jwt_bearer.make,
    "id_jag": id_jag.make,
}


class Memory:
    """
    What a provider of the SDK has for its storage in one flow.
    """

    def __init__(self, record: Record, *, may_refresh: bool) -> None:
        """
        Initialize the Memory.

        :param record: What is known so far.
        :param may_refresh: Whether the provider gets the refresh token.
        """
        tokens = dict(record.get("tokens") or {})
        if not may_refresh:
            tokens.pop("refresh_token", None)
        self.tokens: OAuthToken | None = OAuthToken.model_validate(tokens) if tokens.get("access_token") else None
        client = record.get("client")
        self.client = OAuthClientInformationFull.model_validate(client) if client else None
        self.new: OAuthToken | None = None

    async def get_tokens(self) -> OAuthToken | None:
        """
        Give the tokens so far.

        :returns: The tokens, or None.
        """
        return self.tokens

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """
        Take the new tokens.

        :param tokens: The tokens.
        """
        self.new = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """
        Give the registration so far.

        :returns: It, or None.
        """
        return self.client

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """
        Take a new registration.

        :param client_info: The registration.
        """
        self.client = client_info


class Flow:
    """
    One attempt to get tokens: from what is known to a new record.
    """

    def __init__(
        self, auth: OAuth, key: TokenKey, record: Record, challenge: httpx2.Response | None, version: str | None
    ) -> None:
        """
        Initialize the Flow.

        :param auth: For whom.
        :param key: Whose tokens.
        :param record: What is known so far.
        :param challenge: The refusal of a request, if there was one.
        :param version: The protocol revision of that request.
        """
        self.auth = auth
        self.config: OAuthConfig = auth.config
        self.key = key
        self.record: Record = record
        self._challenge = challenge
        self._version = version
        self.outgoing: Outgoing
        self.memory: Memory
        # Closed when the flow is over.
        self.stack: AsyncExitStack[bool | None] = AsyncExitStack()

    async def run(self, *, may_refresh: bool) -> Record:
        """
        Get tokens, and save them.

        :param may_refresh: Whether a refresh is worth a try.
        :returns: The new record.
        :raises MCPAuthorizationError: If that fails. Its message names the step, and contains no secret.
        """
        failure: Exception | None = None
        token = _is_running.set(True)
        outgoing: Outgoing | None = None
        try:
            async with self.auth.clients() as client, self.stack:
                trusted = [self.config.issuer, self.config.idp_token_endpoint]
                self.outgoing = outgoing = Outgoing(client, self.auth.server_url, trusted, self.auth.check)
                outgoing.secrets.update(filter(None, (_plain(secret) for secret in self.config._secrets())))
                tokens = self.record.get("tokens") or {}
                outgoing.secrets.update(tokens[name] for name in ("access_token", "refresh_token") if tokens.get(name))
                if self.config.dpop:
                    outgoing.proofs = Proofs.of(self.record)
                    self.record = {**self.record, "dpop_key": outgoing.proofs.pem}
                return await self._run(may_refresh)
        except Exception as error:  # also of a function of the user, or of a custom storage
            failure = error
        finally:
            _is_running.reset(token)
            if outgoing is not None and self.auth.learn is not None:
                self.auth.learn(outgoing.secrets)
        step = outgoing.step if outgoing is not None else "preparing to ask for a token"
        redactor = Redactor(outgoing.secrets if outgoing is not None else ())
        text = redactor.text(_describe(failure))
        failure = None  # its text and frames have secrets, and a traceback may show them
        msg = f"authorization failed while {step}: {text}"
        raise MCPAuthorizationError(msg) from None

    async def _run(self, may_refresh: bool) -> Record:
        tokens = self.record.get("tokens") or {}
        is_step_up = self._challenge is not None and self._challenge.status_code == httpx2.codes.FORBIDDEN
        if may_refresh and tokens.get("refresh_token") and not is_step_up:
            refreshed = await self._refresh()
            if refreshed is not None:
                return refreshed
        return await self._authorize()

    async def _refresh(self) -> Record | None:
        self.memory = Memory(self._with_client(), may_refresh=True)
        provider = await _MAKERS[str(self.config.grant_type)](self, is_refresh=True)
        if not isinstance(provider, OAuthClientProvider) or self.memory.client is None:
            return None
        self._restore(provider)
        provider.context.token_expiry_time = 1.0  # long ago: the provider refreshes only what has expired
        await self._drive(provider, None)
        if self.memory.new is None:
            status = self.outgoing.status
            if status >= httpx2.codes.INTERNAL_SERVER_ERROR or status == httpx2.codes.TOO_MANY_REQUESTS:
                msg = f"the authorization server answered with HTTP {status}"
                raise MCPAuthorizationError(msg)
            stored = await self.auth.storage.load(self.key)
            if has_token(stored) and not is_same(stored, self.record) and not has_expired(stored):
                return stored  # of another process, which refreshed first although this one held the lock
            # What was refused is of no use any more.
            self.record = {name: value for name, value in self.record.items() if name not in ("tokens", "expires_at")}
            await self.auth.storage.save(self.key, self.record)
            logger.info("{server} needs a new login: its refresh token was refused", server=self._server())
            return None
        return await self._saved(provider, self.memory.new, "Refreshed the token for {server}")

    async def _authorize(self) -> Record:
        self.outgoing.step = "preparing to ask for a token"
        self.memory = Memory(self._with_client(), may_refresh=False)
        self._forget_narrow_client()
        provider = await _MAKERS[str(self.config.grant_type)](self, is_refresh=False)
        if isinstance(provider, OAuthClientProvider):
            self._restore(provider, is_known=False)
        challenge = self._challenge or httpx2.Response(httpx2.codes.UNAUTHORIZED)
        try:
            await self._drive(provider, challenge)
        except OAuthRegistrationError as error:
            if provider.context.oauth_metadata or provider.context.protected_resource_metadata:
                raise
            # Without metadata, the SDK tries an address that servers of 2025-03-26 have.
            msg = (
                f"{error}. It names no authorization server: if it has none, pass the credentials as `token` or in "
                "`headers`"
            )
            raise MCPAuthorizationError(msg) from None
        if self.memory.new is None:
            msg = "the flow ended without a token"
            raise MCPAuthorizationError(msg)
        return await self._saved(provider, self.memory.new, "Got a token for {server}")

    def _with_client(self) -> Record:
        # A client of the configuration is not stored, so that it can change.
        config = self.config
        if config.client_id is None:
            return self.record
        client: dict[str, Any] = {"client_id": config.client_id, "issuer": config.issuer}
        if config.client_secret is not None:
            secret = _plain(config.client_secret)
            if not secret:
                msg = "the `client_secret` has no value"
                raise MCPAuthorizationError(msg)
            client["client_secret"] = secret
        client["token_endpoint_auth_method"] = config.token_endpoint_auth_method or "none"
        return {**self.record, "client": client}

    def _forget_narrow_client(self) -> None:
        # A client that registered itself for fewer scopes than are wanted now may not ask for them.
        client = self.memory.client
        if self.config.client_id is None and client is not None and client.scope and self._challenge is not None:
            wanted = extract_scope_from_www_auth(self._rewritten(self._challenge)) or ""
            if not set(wanted.split()) <= set(client.scope.split()):
                self.memory.client = None

    def _restore(self, provider: OAuthClientProvider, *, is_known: bool = True) -> None:
        context, record = provider.context, self.record
        if record.get("authorization_server") and is_known:
            context.oauth_metadata = OAuthMetadata.model_validate(record["authorization_server"])
        if record.get("resource") and is_known:
            context.protected_resource_metadata = ProtectedResourceMetadata.model_validate(record["resource"])

    async def _drive(self, provider: Any, challenge: httpx2.Response | None) -> None:
        """
        Run the flow of a provider up to where it would send the request that needs the token.
        """
        headers = {} if self._version is None else {"MCP-Protocol-Version": self._version}
        request = httpx2.Request("POST", self.auth.server_url, headers=headers)
        flow: AsyncGenerator[httpx2.Request, httpx2.Response] = provider.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while outgoing is not request:
                outgoing = await flow.asend(await self.outgoing.send(outgoing))
            if challenge is None:
                return
            outgoing = await flow.asend(self._rewritten(challenge))
            while outgoing is not request:
                outgoing = await flow.asend(await self.outgoing.send(outgoing))
        except StopAsyncIteration:
            return
        finally:
            await flow.aclose()

    def wanted_scope(self) -> str | None:
        """
        Tell which scopes to ask for where the provider does not choose them: those of configuration and challenge.

        :returns: The scopes, with blanks between them, or None.
        """
        challenge = self._challenge or httpx2.Response(httpx2.codes.UNAUTHORIZED)
        return extract_scope_from_www_auth(self._rewritten(challenge))

    def _rewritten(self, challenge: httpx2.Response) -> httpx2.Response:
        # The provider asks for the scopes of the challenge, if there are any, and for no configured ones.
        scope = extract_scope_from_www_auth(challenge)
        is_step_up = challenge.status_code == httpx2.codes.FORBIDDEN
        if self.config.scopes is not None or is_step_up:
            scope = union_scopes(" ".join(self.config.scopes or ()), scope)
        if is_step_up:
            scope = union_scopes(" ".join(self.record.get("asked_for", ())), scope)
        metadata_url = extract_resource_metadata_from_www_auth(challenge)
        parameters = ['error="insufficient_scope"'] if is_step_up else []
        parameters += [f'scope="{scope}"'] if scope else []
        parameters += [f'resource_metadata="{metadata_url}"'] if metadata_url else []
        headers = {"WWW-Authenticate": f"Bearer {', '.join(parameters)}"}
        return httpx2.Response(challenge.status_code, headers=headers)

    async def _saved(self, provider: Any, tokens: OAuthToken, message: str) -> Record:
        record: Record = {name: self.record[name] for name in ("dpop_key",) if name in self.record}
        record["serial"] = uuid.uuid4().hex
        record["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        if tokens.expires_in is not None:
            record["expires_at"] = time.time() + tokens.expires_in
        asked = (tokens.scope or "").split()
        if isinstance(provider, OAuthClientProvider):
            context = provider.context
            asked += (context.client_metadata.scope or "").split()
            if context.oauth_metadata is not None:
                record["authorization_server"] = context.oauth_metadata.model_dump(mode="json", exclude_none=True)
            if context.protected_resource_metadata is not None:
                prm = context.protected_resource_metadata
                record["resource"] = prm.model_dump(mode="json", exclude_none=True)
            if self.config.client_id is None and context.client_info is not None:
                record["client"] = context.client_info.model_dump(mode="json", exclude_none=True)
        else:
            asked += (self.wanted_scope() or "").split()
        record["asked_for"] = list(dict.fromkeys([*asked, *self.record.get("asked_for", ())]))
        self.outgoing.step = "saving the token"
        await self.auth.storage.save(self.key, record)
        logger.info(message, server=self._server())
        return record

    def _server(self) -> str:
        return redact_url(self.auth.server_url)


def _plain(secret: Any) -> str | None:
    value = secret.resolve_value()
    return None if value is None else str(value)


def _describe(error: Exception | None) -> str:
    text = describe_error(error) if error is not None else ""
    if text.startswith("State parameter mismatch"):
        return "the answer has another `state` than the login under way"
    return text


class _Quiet(logging.Filter):
    """
    Keeps the SDK from logging flows of ours, whose errors are raised, with tracebacks and secrets.
    """

    def filter(self, record: logging.LogRecord) -> bool:  # noqa: ARG002
        return not _is_running.get()


for _name in ("oauth2", "utils", "extensions.client_credentials", "extensions.identity_assertion"):
    logging.getLogger(f"mcp.client.auth.{_name}").addFilter(_Quiet())
