# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Flows that get and revoke tokens, one for each grant, and proofs that a request's token belongs to the client.

.. code-block:: text

    refresh token, no further scopes needed    it is used. If it is refused, it is deleted and the user logs in again;
                                               if the authorization server fails, it is kept
    otherwise                                  discovery, grant, token

    ClientCredentials    the client has its own credentials (RFC 6749, 4.4)
    JwtBearer            the client has an assertion, such as the token of a workload (RFC 7523, 2.1)
    IdJag                an enterprise's identity provider exchanges the user's ID token for that assertion (RFC 8693)
    AuthorizationCode    a user allows the access in a browser; in `authorization_code.py`
"""

from __future__ import annotations

import base64
import hashlib
import math
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar
from urllib.parse import quote

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from haystack import logging
from haystack.utils import Secret
from jwt.algorithms import ECAlgorithm
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import JWT_BEARER_GRANT_TYPE, OAuthClientInformationFull
from mcp.shared.auth_utils import resource_url_from_server_url

from haystack_integrations.tools.mcp.auth.authorization_servers import (
    Challenge,
    Discovered,
    Discovery,
    ResourceMetadata,
    same_issuer,
)
from haystack_integrations.tools.mcp.auth.oauth_config import MCPAssertionRequest, OAuthConfig
from haystack_integrations.tools.mcp.auth.outgoing import Outgoing, json_object
from haystack_integrations.tools.mcp.auth.token_storage import (
    MCPTokenStorage,
    Record,
    TokenKey,
    client_of,
    scopes_of,
    secrets_of,
)
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.import_paths import call_provider
from haystack_integrations.tools.mcp.protocol.request_errors import describe_error
from haystack_integrations.tools.mcp.redaction import Redactor, redact_url, secrets_in

logger: logging.PatchedLogger = logging.getLogger(__name__)

_CLIENT_ASSERTION_TYPE = "urn:ietf:params:oauth:client-assertion-type:jwt-bearer"
_TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"
_ID_JAG = "urn:ietf:params:oauth:token-type:id-jag"
_ID_TOKEN = "urn:ietf:params:oauth:token-type:id_token"

# How long an assertion that a client signs with its private key is valid, in seconds.
_ASSERTION_LIFETIME = 300

_ALGORITHM_BY_CURVE = {"secp256r1": "ES256", "secp384r1": "ES384", "secp521r1": "ES512"}

# Statuses that refuse a refresh token even without an `error` (RFC 6749, 5.2). Others may come from a proxy.
_REFUSAL_STATUSES = (httpx2.codes.BAD_REQUEST, httpx2.codes.UNAUTHORIZED)

# The errors for "the client is not known, or its secret is wrong": the standard's and GitHub's. Keycloak's is the
# standard's for a client that may not refresh tokens, and Auth0's for a user who refuses, but with the status 401.
_CLIENT_REFUSALS = ("invalid_client", "incorrect_client_credentials")
_CLIENT_REFUSALS_WITH_401 = ("unauthorized_client", "access_denied")

# The errors for "try again later", with any status. Microsoft Entra ID documents the first for token requests as well.
_TRY_LATER = ("temporarily_unavailable", "server_error", "slow_down")

# The maximum length of an error, in characters: it may quote a whole page of a server.
_MAX_ERROR_LENGTH = 2000


class RefusedScopesError(MCPAuthorizationError):
    """
    Raised when a login is refused, perhaps because of the scopes that it asks for.
    """


class Proofs:
    """
    Signs proofs of possession: tokens are useless without the key to which they are bound (DPoP, RFC 9449).

    An object has one key, and the nonces that servers demand in its proofs.
    """

    def __init__(self, pem: str | None) -> None:
        """
        Initialize the Proofs.

        :param pem: The private key; None for a new one.
        """
        key: Any = ec.generate_private_key(ec.SECP256R1()) if pem is None else load_pem_private_key(pem.encode(), None)
        self._key = key
        self.pem: str = pem or key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        self._jwk = {name: public[name] for name in ("kty", "crv", "x", "y")}
        self._nonces: dict[bytes, str] = {}

    def prove(self, request: httpx2.Request, token: str | None = None) -> None:
        """
        Add a new proof to a request.

        :param request: The request.
        :param token: The access token in it.
        """
        claims: dict[str, Any] = {
            "jti": uuid.uuid4().hex,
            "htm": request.method,
            "htu": str(request.url.copy_with(query=None, fragment=None)),
            "iat": int(time.time()),
        }
        if token is not None:
            claims["ath"] = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).decode().rstrip("=")
        nonce = self._nonces.get(request.url.netloc)
        if nonce is not None:
            claims["nonce"] = nonce
        headers = {"typ": "dpop+jwt", "jwk": self._jwk}
        request.headers["DPoP"] = jwt.encode(claims, self._key, algorithm="ES256", headers=headers)

    def must_be_resent(self, response: httpx2.Response, error: Any = None) -> bool:
        """
        Keep the nonce of a response, and return whether the request has to be sent again with it.

        :param response: The response.
        :param error: The `error` of an authorization server.
        :returns: Whether it refuses the request because this nonce was missing.
        """
        nonce = response.headers.get("dpop-nonce")
        if nonce is None:
            return False
        self._nonces[response.request.url.netloc] = nonce
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            return "use_dpop_nonce" in response.headers.get("www-authenticate", "")
        return bool(error == "use_dpop_nonce")


@dataclass(repr=False)
class Flow(ABC):
    """
    One attempt to get or revoke the tokens for one key.

    :param config: The OAuth configuration.
    :param key: The MCP server, the client and the user that the tokens are for.
    :param storage: Where the tokens are kept.
    :param record: The stored record.
    :param outgoing: Sends the requests.
    :param challenge: The challenge of the MCP server.
    """

    config: OAuthConfig
    key: TokenKey
    storage: MCPTokenStorage
    record: Record
    outgoing: Outgoing
    challenge: Challenge
    # Called with True when a refresh begins, and with False when it has failed and a login follows.
    refreshing: Callable[[bool], None] = lambda _: None
    # Whether a login may follow a refused refresh. If not, the resulting record has no tokens.
    may_log_in: bool = True
    # Whether the tokens came from a new grant, not from a refresh.
    has_logged_in: bool = False
    # The new record, until it is saved.
    unsaved: Record | None = field(init=False, default=None)
    # The secrets of this flow, which a server's answer may quote.
    secrets: set[str] = field(init=False)
    found: Discovered = field(init=False)
    client: OAuthClientInformationFull | None = field(init=False, default=None)
    _proofs: Proofs | None = field(init=False, default=None)

    step: ClassVar[str]
    can_refresh: ClassVar[bool] = True

    def __post_init__(self) -> None:
        """
        Collect the known secrets.
        """
        self.secrets = self.outgoing.secrets
        self.secrets.update(secrets_of(self.record), secrets_in({"url": self.key.server_url}))

    @abstractmethod
    async def grant(self, scope: str | None) -> dict[str, str]:
        """
        Get the grant of this flow.

        :param scope: The scopes to ask for.
        :returns: The form of the token request.
        :raises MCPAuthorizationError: If there is no grant.
        """

    async def run(self, *, may_refresh: bool) -> Record:
        """
        Get tokens, and save them.

        :param may_refresh: Whether to try a refresh first.
        :returns: The new record.
        :raises MCPAuthorizationError: If that fails. Its message names the step, and contains no secret.
        """
        try:
            return await self._run(may_refresh)
        except Exception as error:  # it may also come from a function of the user, or from a custom storage
            text = Redactor(self.secrets).text(describe_error(error))
        # Raised outside of the handler, because a traceback could show the secrets in the text and frames of `error`.
        msg = f"authorization failed while {self.outgoing.step}: {text[:_MAX_ERROR_LENGTH]}"
        raise MCPAuthorizationError(msg)

    async def _run(self, may_refresh: bool) -> Record:
        self.secrets.update(str(value) for secret in self.config._secrets() if (value := secret.resolve_value()))
        self._proofs = Proofs(self.record.get("dpop_key")) if self.config.dpop else None
        self.client = self._known_client()
        has_refresh_token = bool((self.record.get("tokens") or {}).get("refresh_token"))
        if may_refresh and self.can_refresh and has_refresh_token and self.client and not self.challenge.is_step_up:
            self.refreshing(True)
            refreshed = await self._refresh(self.client)
            if refreshed is not None:
                return refreshed
            self.refreshing(False)
        if not self.may_log_in:
            return self.record
        self.has_logged_in = True
        self.outgoing.step = "preparing to ask for a token"
        # A challenge for more scopes often does not name the metadata.
        known = Discovered.of(self.record) if self.challenge.is_step_up else None
        self.found = known or await self.discover()
        scope = self.scope(self.found.resource)
        try:
            form = await self.grant(scope)
        except RefusedScopesError:
            # A scope of the previous login may no longer exist.
            self.record, previous = {}, scope
            scope = self.scope(self.found.resource)
            if scope == previous:
                raise
            form = await self.grant(scope)
        if scope and "code" not in form:  # a code was already issued for the scope
            form["scope"] = scope
        tokens = _read_tokens(await self._request_token(form, self.step), dpop=bool(self.config.dpop))
        if scope:
            tokens.setdefault("scope", scope)  # RFC 6749, 5.1
        return await self._save(tokens, (scope or "").split(), "Got a token for {server}")

    def _known_client(self) -> OAuthClientInformationFull | None:
        """
        Return the configured client, or else the one that was registered earlier.
        """
        config = self.config
        if config.client_id is None:
            return client_of(self.record)
        secret = config.client_secret.resolve_value() if config.client_secret is not None else None
        if config.client_secret is not None and not secret:
            msg = "the `client_secret` has no value"
            raise MCPAuthorizationError(msg)
        method = config.token_endpoint_auth_method or "none"
        return OAuthClientInformationFull(
            client_id=config.client_id, client_secret=secret, token_endpoint_auth_method=method
        )

    async def discover(self) -> Discovered:
        """
        Find the authorization server.

        :returns: The authorization server.
        :raises MCPAuthorizationError: If there is no usable one.
        """
        return await self._discovery.run(self.challenge)

    @property
    def _discovery(self) -> Discovery:
        return Discovery(self.outgoing, self.key.server_url, self.config.issuer, self.config.resource or None)

    def scope(self, resource: ResourceMetadata | None) -> str | None:
        """
        Choose the scopes: from the configuration, else from the challenge, else from the MCP server's metadata.

        The scopes that the authorization server offers are not asked for, because the MCP server may not need them.

        :param resource: The metadata of the MCP server.
        :returns: The scopes, separated by spaces; None to ask for none.
        """
        challenge, chosen = self.challenge, self.config.scopes
        scope = challenge.scope if chosen is None else " ".join(chosen)
        if scope is None and resource is not None and resource.scopes_supported is not None:
            scope = " ".join(resource.scopes_supported)
        if challenge.is_step_up:
            scope = union_scopes(union_scopes(" ".join(scopes_of(self.record)), scope), challenge.scope)
        return scope or None

    def resource(self) -> str | None:
        """
        Choose the `resource` for which tokens are requested (RFC 8707).

        :returns: The parameter; None to leave it out.
        """
        if self.config.resource is not None:
            return self.config.resource or None
        if self.found.resource is not None:
            return self.found.resource.resource
        return resource_url_from_server_url(self.key.server_url)

    async def _refresh(self, client: OAuthClientInformationFull) -> Record | None:
        tokens = self.record["tokens"]
        self.found = Discovered.of(self.record) or await self.discover()
        if client.issuer and not same_issuer(client.issuer, self.found.server.issuer):
            return None  # only the authorization server that issued a refresh token may get it
        form = {"grant_type": "refresh_token", "refresh_token": tokens["refresh_token"], "client_id": client.client_id}
        asked_for = " ".join(self.record.get("asked_for", ()))
        if self.config.resource is False and asked_for:
            # At Microsoft Entra ID, the scope names the resource. Other servers keep the one of the first grant. Scopes
            # that were granted in addition are left out: Entra refuses them beside `.default`.
            form["scope"] = asked_for
        response = await self._request_token(form, "refreshing the token")
        error = json_object(response).get("error")
        is_configured = client.client_id in (self.config.client_id, self.config.client_metadata_url)
        is_unauthorized = response.status_code == httpx2.codes.UNAUTHORIZED and error in _CLIENT_REFUSALS_WITH_401
        if is_configured and (error in _CLIENT_REFUSALS or is_unauthorized):
            # A login would not help. The refresh token can be used once the client can, e.g. with a new secret.
            what_to_do = "check its registration and its secret"
            msg = f"the authorization server refuses the client '{client.client_id}'; {what_to_do}{_quote(response)}"
            raise MCPAuthorizationError(msg)
        is_busy = response.is_server_error or response.status_code == httpx2.codes.TOO_MANY_REQUESTS
        is_busy |= error in _TRY_LATER
        is_refused = bool(error) or response.status_code in _REFUSAL_STATUSES
        if is_busy or not (is_refused or response.is_success):  # the server, or a proxy before it, may answer later
            msg = f"the authorization server answered with HTTP {response.status_code}"
            raise MCPAuthorizationError(msg)
        if is_refused:
            # The refused tokens are useless from now on.
            token_members = ("tokens", "expires_at", "serial")
            self.record = {name: each for name, each in self.record.items() if name not in token_members}
            await self.storage.save(self.key, self.record)
            logger.info("{server} needs a new login: its refresh token was refused", server=self._server())
            return None
        # The answer may leave out unchanged members (RFC 6749, 6).
        unchanged = {name: tokens[name] for name in ("scope", "refresh_token") if name in tokens}
        new = {**unchanged, **_read_tokens(response, dpop=bool(self.config.dpop))}
        return await self._save(new, self.record.get("asked_for", []), "Refreshed the token for {server}")

    async def _request_token(self, form: dict[str, str], step: str) -> httpx2.Response:
        resource = self.resource()
        if resource is not None:
            form = {**form, "resource": resource}
        endpoint = self.found.server.token_endpoint
        response = await self._post_authenticated(endpoint, form, step)
        if self._proofs is not None and self._proofs.must_be_resent(response, json_object(response).get("error")):
            response = await self._post_authenticated(endpoint, form, step)
        return response

    async def _post_authenticated(self, endpoint: str, form: dict[str, str], step: str) -> httpx2.Response:
        headers: dict[str, str] = {}
        if self.config.token_endpoint_auth_method == "private_key_jwt":
            # Each request gets a new assertion, because servers accept one only once.
            has_key = self.config.private_key is not None
            signed = _client_assertion(self.config, self.audience()) if has_key else None
            assertion = signed or await self.assertion_from("assertion_provider")
            form = {**form, "client_assertion_type": _CLIENT_ASSERTION_TYPE, "client_assertion": assertion}
        elif self.client is not None:
            form, headers = self._with_client_authentication(self.client, form)
        prove = None if self._proofs is None else self._proofs.prove
        return await self.outgoing.post(endpoint, form, step, headers, prove)

    def _with_client_authentication(
        self, client: OAuthClientInformationFull, form: dict[str, str]
    ) -> tuple[dict[str, str], dict[str, str]]:
        """
        Authenticate a client without a private key, in the form or in the headers.
        """
        method, secret = client.token_endpoint_auth_method, client.client_secret
        if method in (None, "client_secret_basic") and secret:  # Basic may just be the default of the configuration
            # RFC 8414, 2: without the member, the server accepts Basic.
            methods = self.found.server.token_endpoint_auth_methods_supported or ["client_secret_basic"]
            is_post = "client_secret_post" in methods and "client_secret_basic" not in methods
            method = "client_secret_post" if is_post else "client_secret_basic"
        if method == "client_secret_basic" and secret:
            # RFC 6749, 2.3.1
            credentials = f"{quote(client.client_id, safe='')}:{quote(secret, safe='')}".encode()
            return form, {"Authorization": f"Basic {base64.b64encode(credentials).decode()}"}
        form = {**form, "client_id": client.client_id}
        return ({**form, "client_secret": secret} if method == "client_secret_post" and secret else form), {}

    def audience(self) -> str:
        """
        Return the audience of assertions.

        :returns: The issuer of the authorization server.
        :raises MCPAuthorizationError: If it is not known.
        """
        if self.found.is_guessed:
            msg = "the authorization server has no metadata, so the audience of the assertion is not known"
            raise MCPAuthorizationError(msg)
        return self.found.server.issuer

    async def assertion_from(self, parameter: str) -> str:
        """
        Get an assertion from a function of the user, or from a Secret.

        :param parameter: The parameter of the configuration that has the function or Secret.
        :returns: The assertion.
        :raises MCPAuthorizationError: If the function fails, or the assertion is empty.
        """
        source, audience = getattr(self.config, parameter), self.audience()
        self.outgoing.step = f"asking `{parameter}`"
        if isinstance(source, Secret):
            value = source.resolve_value()
        else:
            resource = self.config.resource or resource_url_from_server_url(self.key.server_url)
            request = MCPAssertionRequest(audience=audience, resource=resource, user=self.key.user)
            value = await self._call_user_function(parameter, request, quotes_credentials=True)
        if not isinstance(value, str) or not value:
            msg = f"`{parameter}` must return a string that is not empty, got {type(value).__name__}"
            raise MCPAuthorizationError(msg)
        self.secrets.add(value)
        return value

    async def _call_user_function(self, parameter: str, request: object, *, quotes_credentials: bool = False) -> Any:
        """
        Call a function of the user. The text of its error is left out if it may quote a credential.
        """
        try:
            return await call_provider(getattr(self.config, parameter), request)
        except Exception as error:
            text = "" if quotes_credentials else f": {error}"
            msg = f"`{parameter}` failed ({type(error).__name__}{text})"
            raise MCPAuthorizationError(msg) from error

    async def _save(self, tokens: dict[str, Any], asked_for: list[str], message: str) -> Record:
        record: Record = {
            "serial": uuid.uuid4().hex,
            "tokens": tokens,
            "authorization_server": self.found.server.model_dump(exclude_none=True),
            "asked_for": asked_for,
        }
        if "expires_in" in tokens:
            record["expires_at"] = time.time() + tokens["expires_in"]
        if self._proofs is not None:
            record["dpop_key"] = self._proofs.pem
        if self.found.resource is not None:
            record["resource"] = self.found.resource.model_dump(exclude_none=True)
        if self.config.client_id is None and self.client is not None:
            record["client"] = self.client.model_dump(mode="json", exclude_none=True)
        self.outgoing.step = "saving the token"
        self.unsaved = record
        await self.storage.save(self.key, record)
        self.unsaved = None
        logger.info(message, server=self._server())
        return record

    async def revoke(self) -> None:
        """
        Revoke the tokens (RFC 7009), if the authorization server has an endpoint for that. A refusal is only logged.
        """
        tokens, found = self.record.get("tokens", {}), Discovered.of(self.record)
        endpoint = found.server.revocation_endpoint if found is not None else None
        if found is None or endpoint is None:
            return
        self.found = found
        try:
            self.client = self._known_client()
            # The refresh token is first, because servers also revoke the access tokens that were issued for it.
            for hint in ("refresh_token", "access_token"):
                if self.client is not None and tokens.get(hint):
                    form = {"token": tokens[hint], "token_type_hint": hint}
                    response = await self._post_authenticated(endpoint, form, "revoking the token")
                    # Servers cannot revoke access tokens that are JWTs (RFC 7009, 2.2.1); these expire soon.
                    if json_object(response).get("error") != "unsupported_token_type":
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


class ClientCredentials(Flow):
    """
    The flow of a client with its own credentials.
    """

    step = "asking for a token with the client's credentials"

    async def grant(self, scope: str | None) -> dict[str, str]:  # noqa: ARG002
        """
        Return the form. The client's authentication is the grant.

        :param scope: As in `Flow`.
        :returns: As in `Flow`.
        """
        return {"grant_type": "client_credentials"}


class JwtBearer(Flow):
    """
    The flow of a client with an assertion.
    """

    step = "exchanging the assertion for a token"

    async def grant(self, scope: str | None) -> dict[str, str]:
        """
        Get the assertion.

        :param scope: As in `Flow`.
        :returns: As in `Flow`.
        """
        form = {"grant_type": JWT_BEARER_GRANT_TYPE, "assertion": await self.assertion(scope)}
        return form if self.config.client_id is None else {**form, "client_id": self.config.client_id}

    async def assertion(self, scope: str | None) -> str:  # noqa: ARG002
        """
        Get the assertion from the `assertion_provider`.

        :param scope: The scopes to ask for.
        :returns: The assertion.
        """
        return await self.assertion_from("assertion_provider")


class IdJag(JwtBearer):
    """
    The flow in which an enterprise's identity provider vouches for the user, again for each token.
    """

    can_refresh = False

    async def discover(self) -> Discovered:
        """
        Find the authorization server that the enterprise names.

        :returns: As in `Flow`.
        """
        return await self._discovery.find_server(self.config.issuer)

    async def assertion(self, scope: str | None) -> str:
        """
        Exchange the ID token for an ID-JAG at the identity provider.

        :param scope: The scopes to ask for.
        :returns: The ID-JAG.
        :raises MCPAuthorizationError: If the identity provider does not issue one.
        """
        config = self.config
        secret = config.idp_client_secret
        form = {
            "grant_type": _TOKEN_EXCHANGE,
            "requested_token_type": _ID_JAG,
            "subject_token": await self.assertion_from("id_token"),
            "subject_token_type": _ID_TOKEN,
            "audience": self.audience(),
            "resource": self.resource(),
            "scope": scope,
            "client_id": config.idp_client_id,
            "client_secret": secret.resolve_value() if secret is not None else None,
        }
        sent = {name: value for name, value in form.items() if value}
        step = "asking the identity provider for an ID-JAG"
        response = await self.outgoing.post(str(config.idp_token_endpoint), sent, step)
        answer = json_object(response)
        if not response.is_success or "access_token" not in answer or "issued_token_type" not in answer:
            msg = f"the identity provider answered with HTTP {response.status_code}, without a token{_quote(response)}"
            raise MCPAuthorizationError(msg)
        token, kind = answer["access_token"], answer["issued_token_type"]
        if kind != _ID_JAG or not isinstance(token, str):
            msg = f"the identity provider gave a token of the type {kind!r} in place of an ID-JAG"
            raise MCPAuthorizationError(msg)
        return token


def _read_tokens(response: httpx2.Response, *, dpop: bool) -> dict[str, Any]:
    """
    Read the answer to a token request (RFC 6749, 5.1), with known deviations, as the `tokens` of a record.
    """
    body = json_object(response)
    token = body.get("access_token")
    if not response.is_success or body.get("error") or not isinstance(token, str) or not token:
        msg = f"the authorization server answered with HTTP {response.status_code}, without a token{_quote(response)}"
        raise MCPAuthorizationError(msg)
    # Any other `token_type` that servers send ("BearerToken", "bot", "", none) means a bearer token.
    if dpop and str(body.get("token_type")).lower() != "dpop":
        msg = "the authorization server gave a token that is not bound to the client's key, although `dpop` is set"
        raise MCPAuthorizationError(msg)
    scope = body.get("scope")
    tokens = {
        "access_token": token,
        "token_type": "Bearer",  # the storages of the SDK expect this
        "expires_in": _lifetime(body.get("expires_in")),
        "scope": " ".join(map(str, scope)) if isinstance(scope, list) else scope,
        "refresh_token": body.get("refresh_token"),
    }
    return {name: value for name, value in tokens.items() if value and isinstance(value, (str, int))}


def _quote(response: httpx2.Response) -> str:
    """
    Quote an answer without a token, for the end of a message.

    Only the names of its members are quoted if it reports success, because it may contain a token in an odd place.
    """
    body = json_object(response)
    if not response.is_success or body.get("error"):
        return f": {response.text}" if response.text else ""
    return f" (its members are {', '.join(body)})" if body else ""


def _lifetime(value: Any) -> int | None:
    # The value is a number, or a text with one. Zero or less means unknown: some servers send it for tokens that never
    # expire.
    try:
        seconds = float(value)
    except (TypeError, ValueError, OverflowError):
        return None
    return math.ceil(seconds) if 0 < seconds < math.inf and not isinstance(value, bool) else None


def _client_assertion(config: OAuthConfig, audience: str) -> str:
    """
    Sign the assertion with which a client with a private key authenticates.

    :param config: The configuration.
    :param audience: The issuer of the authorization server.
    :returns: A JWT.
    :raises MCPAuthorizationError: If the key is unusable. The message does not quote it.
    """
    pem = config.private_key.resolve_value() if config.private_key is not None else None
    if not pem:
        msg = "the `private_key` has no value"
        raise MCPAuthorizationError(msg)
    now = int(time.time())
    claims = {
        "iss": config.client_id,
        "sub": config.client_id,
        "aud": audience,
        "iat": now,
        "exp": now + _ASSERTION_LIFETIME,
        "jti": uuid.uuid4().hex,
    }
    try:
        key: Any = load_pem_private_key(str(pem).encode(), None)
    except (ValueError, TypeError):
        msg = "the `private_key` is not a private key in PEM without a password"
        raise MCPAuthorizationError(msg) from None
    algorithm = config.signing_algorithm or _algorithm(key)
    headers = {"kid": config.key_id} if config.key_id else None
    try:
        return jwt.encode(claims, key, algorithm=algorithm, headers=headers)
    except (TypeError, ValueError, NotImplementedError, jwt.PyJWTError) as error:
        msg = f"the `private_key` cannot sign with {algorithm} ({type(error).__name__})"
        raise MCPAuthorizationError(msg) from None


def _algorithm(key: Any) -> str:
    if isinstance(key, rsa.RSAPrivateKey):
        return "RS256"
    return _ALGORITHM_BY_CURVE.get(key.curve.name, "ES256") if isinstance(key, ec.EllipticCurvePrivateKey) else "EdDSA"
