# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Authentication of requests to MCP servers: OAuth tokens, any `httpx2.Auth`, or a token source of Haystack.

.. code-block:: text

    the request already has an `Authorization` header    it is sent unchanged
    no token, and the server has never sent a challenge  the request is sent without one, to learn what the server wants
    no token, and the server has sent a challenge        get a token first
    a token that has not expired                         the request is sent with it
    an expired token, and no user has to log in          get another token first
    an expired token, and a user would have to log in    the request is sent with it: the server may still accept it

    answer 401                                           refresh, or else log in, and send the request again
    answer 401 again, after a refresh                    log in, and send the request again
    answer 403 `insufficient_scope`                      log in for that scope as well, and send the request again
    any other refusal                                    is reported

So one request refreshes at most once, and logs in at most once, and once more for missing scopes. New tokens are used
at least once, whatever their `expires_in`. All requests that need tokens at the same time share one renewal. It is a
separate task, which ends when no request waits for it any more.
"""

from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from weakref import WeakValueDictionary

import httpx2
from haystack import logging

from haystack_integrations.tools.mcp.auth.authorization_code import AuthorizationCode
from haystack_integrations.tools.mcp.auth.authorization_servers import Challenge, challenge_parameters
from haystack_integrations.tools.mcp.auth.flow import ClientCredentials, Flow, IdJag, JwtBearer, Proofs
from haystack_integrations.tools.mcp.auth.oauth_config import OAuthConfig
from haystack_integrations.tools.mcp.auth.outgoing import REQUEST_TIMEOUT, HttpClients, Outgoing, plain_client
from haystack_integrations.tools.mcp.auth.token_storage import (
    MCPTokenStorage,
    Record,
    SDKTokenStorage,
    TokenKey,
    has_expired,
    has_token,
    is_same,
    scopes_of,
    secrets_of,
)
from haystack_integrations.tools.mcp.concurrency import SharedTask, start_in_thread
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.import_paths import import_object
from haystack_integrations.tools.mcp.protocol.request_errors import describe_error
from haystack_integrations.tools.mcp.redaction import Redactor, redact_url
from haystack_integrations.tools.mcp.request_context import bearer, current_user

T = TypeVar("T")

logger: logging.PatchedLogger = logging.getLogger(__name__)

_FLOW_BY_GRANT_TYPE: dict[str, type[Flow]] = {
    "authorization_code": AuthorizationCode,
    "client_credentials": ClientCredentials,
    "jwt_bearer": JwtBearer,
    "id_jag": IdJag,
}


@dataclass(eq=False, repr=False)
class _TokenHolder:
    """
    The tokens of one key, for all sessions of the process that use them.
    """

    key: TokenKey
    storage: MCPTokenStorage
    record: Record | None = None
    # The stored record, and the new one that could not be saved in its place.
    unsaved: tuple[Record | None, Record] | None = None
    # Gets new tokens for all requests that wait for it. A refresh is always completed, because its answer may contain
    # the only refresh token that is valid from then on.
    renewal: SharedTask[bool | None] | None = None
    proofs: Proofs | None = None

    def renewal_under_way(self) -> SharedTask[bool | None] | None:
        # The loop is another one after a fork or a shutdown of the executor.
        renewal = self.renewal
        is_under_way = renewal is not None and renewal.is_under_way and renewal.loop is asyncio.get_running_loop()
        return renewal if is_under_way else None


_holders: WeakValueDictionary[Any, _TokenHolder] = WeakValueDictionary()

# The last challenge of each server that has sent one, and so requires tokens.
_challenges: dict[str, Challenge] = {}


@dataclass(repr=False)
class _TokenAttempts:
    """
    The attempts of one request to get a token.
    """

    holder: _TokenHolder
    # Whether a user may be asked to log in. Users would not expect that from a stream in the background.
    may_log_in: bool = True
    has_renewed: bool = False
    has_logged_in: bool = False
    has_stepped_up: bool = False


class OAuth(httpx2.Auth):
    """
    Authenticates the requests of one HTTP client to one MCP server, each for its current user.
    """

    def __init__(self, config: OAuthConfig, server_url: str) -> None:
        """
        Initialize the OAuth.

        :param config: The OAuth configuration.
        :param server_url: The MCP server.
        """
        self.config = config
        self.server_url = server_url
        # Functions that a transport sets: `clients` makes HTTP clients for authorization servers, `learn` gets secrets
        # that the server may quote, and `check` raises an exception if a URL must not be requested.
        self.clients: HttpClients = plain_client
        self.learn: Callable[[Iterable[str]], None] = lambda _: None
        self.check: Callable[[str], None] | None = None
        self.storage: MCPTokenStorage = config._storage()
        self._client_digest = config._client_digest()
        self._last_learned_token: str | None = None
        self._holders_in_use: dict[str | None, _TokenHolder] = {}

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """
        Send a request with a token.

        :param request: The request.
        :returns: A generator that yields requests and receives their responses.
        :raises MCPAuthorizationError: If no token could be obtained.
        """
        if "authorization" in request.headers:  # from the caller's identity
            yield request
            return
        user = current_user()
        may_log_in = request.extensions.get("may_log_in", True) or self.config.grant_type != "authorization_code"
        attempts = _TokenAttempts(self.holder_of(user), may_log_in)
        record = await _explain_storage_errors(self._load_record(attempts))
        while True:
            response = yield self._with_token(request, attempts.holder, record)
            proofs = attempts.holder.proofs
            if proofs is not None and proofs.must_be_resent(response):
                await _drop_body(response)
                response = yield self._with_token(request, attempts.holder, record)
            challenge = Challenge.of(response)
            if challenge is None:
                return
            if not challenge.is_step_up:
                _challenges[self.server_url] = challenge
            self._check_refusal(attempts, record, challenge, response)
            await _drop_body(response)
            refused, record = record, await _explain_storage_errors(self._renew(attempts, record, challenge))
            if not may_log_in and (is_same(record, refused) or not has_token(record)):
                return

    async def log_in(self, response: httpx2.Response, user: str | None) -> None:
        """
        Get new tokens for a user, which replace existing ones.

        :param response: The answer to a request without a token. It need not be a refusal.
        :param user: The user, or None.
        :raises MCPAuthorizationError: If that fails.
        """
        holder = self.holder_of(user)
        holder.record = await _explain_storage_errors(holder.storage.load(holder.key))
        challenge = Challenge.of(response) or Challenge()
        await _explain_storage_errors(self._renew(_TokenAttempts(holder, has_renewed=True), holder.record, challenge))

    async def log_out(self, user: str | None) -> bool:
        """
        Forget the tokens of a user, and revoke them if the authorization server supports that.

        :param user: The user, or None.
        :returns: Whether there were tokens.
        :raises MCPAuthorizationError: If the storage cannot delete them.
        """
        holder = self.holder_of(user)
        while (renewal := holder.renewal_under_way()) is not None:
            await renewal.ended()  # its tokens would undo the logout
        record = await _explain_storage_errors(self._forget(holder))
        if record is None:
            return False
        await self._flow(holder, record).revoke()
        return True

    async def _forget(self, holder: _TokenHolder) -> Record | None:
        """
        Delete a record, and return it: None if it had no tokens, empty if it cannot be read.
        """
        async with holder.storage.lock(holder.key):
            try:
                record = await holder.storage.load(holder.key)
                record = record if has_token(record) else None
            except Exception as error:  # it is damaged, or the store has another key for its encryption now
                record = {}
                logger.warning(
                    "The tokens for {server} cannot be read ({reason}), so they are deleted without being revoked",
                    server=redact_url(holder.key.server_url),
                    reason=type(error).__name__,
                )
            await holder.storage.delete(holder.key)
            holder.record = holder.unsaved = None
        return record

    def holder_of(self, user: str | None) -> _TokenHolder:
        """
        Return the holder of a user's tokens.

        :param user: The user, or None.
        :returns: The holder.
        """
        key, storage = TokenKey(self.server_url, self._client_digest, user), self.storage
        # The holder keeps the storage alive, so that its id is not reused.
        storage_id = id(storage.storage if isinstance(storage, SDKTokenStorage) else storage)
        self._holders_in_use[user] = _holders.setdefault((storage_id, key), _TokenHolder(key, storage))
        return self._holders_in_use[user]

    async def _load_record(self, attempts: _TokenAttempts) -> Record | None:
        """
        Return the record for the first attempt to send a request.
        """
        holder = attempts.holder
        if holder.record is None:
            loaded = await holder.storage.load(holder.key)
            holder.record = holder.record or loaded  # another request may have got tokens meanwhile
        record = holder.record
        if not has_token(record):
            is_wanted = attempts.may_log_in and self.server_url in _challenges
            return await self._renew(attempts, record, None) if is_wanted else record
        needs_person = self.config.grant_type == "authorization_code" and not record["tokens"].get("refresh_token")
        return record if needs_person or not has_expired(record) else await self._renew(attempts, record, None)

    def _with_token(self, request: httpx2.Request, holder: _TokenHolder, record: Record | None) -> httpx2.Request:
        # A storage of the SDK does not keep the key, without which a token bound to it is useless.
        if not has_token(record) or (self.config.dpop and "dpop_key" not in record):
            request.headers.pop("Authorization", None)
            return request
        token = record["tokens"]["access_token"]
        if token != self._last_learned_token:
            self._last_learned_token = token
            self.learn(secrets_of(record))
        request.headers["Authorization"] = f"{'DPoP' if self.config.dpop else 'Bearer'} {token}"
        if self.config.dpop:
            if holder.proofs is None or holder.proofs.pem != record["dpop_key"]:
                holder.proofs = Proofs(record["dpop_key"])
            holder.proofs.prove(request, token)
        return request

    def _check_refusal(
        self, attempts: _TokenAttempts, record: Record | None, challenge: Challenge, response: httpx2.Response
    ) -> None:
        """
        Raise an error if other tokens would be refused as well.
        """
        if challenge.is_step_up:
            if not has_token(record) or not (attempts.has_stepped_up or _has_scopes_of(record, challenge)):
                return
            msg = (
                f"the server wants the scope '{challenge.scope}', for which the token was asked already"
                if challenge.scope
                else "the token has too few scopes for the server, which does not say what it wants; set `scopes`"
            )
        elif attempts.has_logged_in:
            msg = "the server refuses the token that was just issued for it"
            reason = challenge_parameters(response).get("error_description")
            msg += f" ({Redactor(secrets_of(record)).text(reason)})" if reason else ""
        else:
            return
        msg = f"authorization failed: {msg}"
        raise MCPAuthorizationError(msg)

    async def _renew(self, attempts: _TokenAttempts, used_record: Record | None, challenge: Challenge | None) -> Record:
        """
        Get other tokens than the used ones. Concurrent requests share the result.
        """
        holder = attempts.holder
        is_step_up = challenge is not None and challenge.is_step_up
        may_refresh = not attempts.has_renewed
        attempts.has_stepped_up |= is_step_up

        def is_usable(record: Record | None) -> bool:
            return (
                has_token(record)
                and not is_same(record, used_record)
                and (not is_step_up or _has_scopes_of(record, challenge))
            )

        if is_usable(holder.record) and not has_expired(holder.record):
            return holder.record or {}
        while True:
            other_renewal = holder.renewal_under_way()
            renewal = holder.renewal = other_renewal or SharedTask(
                self._get_tokens(attempts, challenge, is_usable, may_refresh)
            )
            has_logged_in = await renewal.result()
            # A second renewal is the last one, even if another process has got its tokens without a login here.
            attempts.has_logged_in |= bool(has_logged_in) or not may_refresh
            # Tokens that another process has got may be over as well, and are refreshed then.
            attempts.has_renewed |= has_logged_in is not None
            if other_renewal is None or is_usable(holder.record):
                return holder.record or {}

    async def _get_tokens(
        self,
        attempts: _TokenAttempts,
        challenge: Challenge | None,
        is_usable: Callable[[Record | None], bool],
        may_refresh: bool,
    ) -> bool | None:
        """Get tokens; return whether they came from a new grant, not from a refresh, and None if they were stored."""
        holder = attempts.holder
        renewal = holder.renewal  # the one that runs this; it may be replaced later
        async with holder.storage.lock(holder.key):
            stored = await holder.storage.load(holder.key)
            if holder.unsaved is not None and is_same(stored, holder.unsaved[0]):
                stored = holder.unsaved[1]
                await holder.storage.save(holder.key, stored)
            holder.unsaved = None
            if is_usable(stored) and not has_expired(stored):
                holder.record = stored  # another process was faster
                return None
            flow = self._flow(holder, stored or {}, challenge or _challenges.get(self.server_url))
            flow.may_log_in = attempts.may_log_in
            if renewal is not None:
                flow.refreshing = renewal.set_must_finish
            try:
                holder.record = await flow.run(may_refresh=may_refresh)
            except MCPAuthorizationError:
                if flow.unsaved is not None:  # the stored refresh token may be void from now on
                    holder.record, holder.unsaved = flow.unsaved, (stored, flow.unsaved)
                raise
            finally:
                self.learn(flow.secrets)
            return flow.has_logged_in

    def _flow(self, holder: _TokenHolder, record: Record, challenge: Challenge | None = None) -> Flow:
        config = self.config
        trusted = [self.server_url, config.issuer, config.idp_token_endpoint]
        outgoing = Outgoing(self.clients, self.server_url, trusted, self.check)
        flow = _FLOW_BY_GRANT_TYPE[str(config.grant_type)]
        return flow(config, holder.key, holder.storage, record, outgoing, challenge or Challenge())


def _has_scopes_of(record: Record | None, challenge: Challenge | None) -> bool:
    wanted = challenge.scope if challenge is not None else None
    return set((wanted or "").split()) <= set(scopes_of(record))


async def _explain_storage_errors(awaitable: Awaitable[T]) -> T:
    """
    Turn any error of a storage into an MCPAuthorizationError.
    """
    try:
        return await awaitable
    except MCPAuthorizationError:
        raise
    except Exception as error:
        # The text of other errors may quote a token.
        text = f": {error}" if isinstance(error, OSError | ImportError) else ""
        msg = f"authorization failed while using the token storage ({type(error).__name__}{text})"
        raise MCPAuthorizationError(msg) from error


async def _drop_body(response: httpx2.Response) -> None:
    # httpx2 would read the body, however large it is.
    stream, response.stream = response.stream, httpx2.ByteStream(b"")
    await stream.aclose()  # type: ignore[union-attr]


def load_auth(value: Any) -> httpx2.Auth:
    """
    Return the `httpx2.Auth` for the `auth` of a server info. This may import a module.

    :param value: The object, or the import path of one or of a function that makes one.
    :returns: The object.
    :raises ValueError: If it is anything else, or cannot be imported.
    """
    try:
        found = import_object(value) if isinstance(value, str) else value
    except ImportError as error:
        module = value.partition(":")[0]
        if "." in module and module in sys.modules:
            raise
        # The path is not quoted, because it may be a bearer token that looks like one.
        reason = f" ({error})" if error.name and error.name not in value else ""
        msg = f"`auth` cannot be imported{reason}. Pass a bearer token as `token=`"
        raise ValueError(msg) from None
    if not isinstance(found, httpx2.Auth) and callable(found):
        found = found()
    if not isinstance(found, httpx2.Auth):
        msg = f"`auth` must give an httpx2.Auth, it gave {type(found).__name__}"
        raise ValueError(msg)
    return found


class CustomAuth(httpx2.Auth):
    """
    Wraps the user's `httpx2.Auth`, to report its failures as such. A token of `mcp_request_context` takes precedence.
    """

    def __init__(self, auth: httpx2.Auth) -> None:
        """
        Initialize the CustomAuth.

        :param auth: The object.
        """
        self._auth = auth

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """
        Run the flow of the wrapped object.

        :param request: The request.
        :returns: A generator that yields requests and receives their responses.
        :raises MCPAuthorizationError: If the object fails.
        """
        if "authorization" in request.headers:  # from the caller's identity
            yield request
            return
        flow = self._auth.async_auth_flow(request)
        try:
            outgoing = await anext(flow)
            while True:
                if outgoing is not request and "timeout" not in outgoing.extensions:
                    timeout = httpx2.Timeout(REQUEST_TIMEOUT).as_dict()
                    outgoing.extensions = {**outgoing.extensions, "timeout": timeout}
                response = yield outgoing
                outgoing = await flow.asend(response)
        except StopAsyncIteration:
            return
        except Exception as error:
            msg = f"authorization failed in {type(self._auth).__name__}: {describe_error(error)}"
            raise MCPAuthorizationError(msg) from error
        finally:
            await flow.aclose()


class TokenSourceAuth(httpx2.Auth):
    """
    Authenticates with a token source of Haystack. It is asked before each request, and caches its token itself.
    """

    def __init__(self, source: Any, learn: Callable[[Iterable[str]], None]) -> None:
        """
        Initialize the TokenSourceAuth.

        :param source: The token source, with a method `resolve_async` or `resolve`.
        :param learn: Called with each new token, which the server may quote.
        """
        self._source = source
        self._learn = learn
        self._last_token: str | None = None

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """
        Send a request with a token of the source.

        :param request: The request.
        :returns: A generator that yields the request.
        :raises MCPAuthorizationError: If the source fails.
        """
        if "authorization" not in request.headers:
            name = type(self._source).__name__
            try:
                token = await self._resolve()
            except Exception as error:
                # Without the error's text, which may quote a credential.
                msg = f"authorization failed: the token source {name} raised {type(error).__name__}"
                raise MCPAuthorizationError(msg) from error
            if not isinstance(token, str) or not token:
                msg = f"authorization failed: the token source {name} gave no token"
                raise MCPAuthorizationError(msg)
            if token != self._last_token:
                self._last_token = token
                self._learn(token.split()[-1:])  # it may begin with "Bearer"
            request.headers["Authorization"] = bearer(token)
        yield request

    async def _resolve(self) -> Any:
        if hasattr(self._source, "resolve_async"):
            token = self._source.resolve_async()
        else:
            token = await start_in_thread(self._source.resolve, name="mcp-haystack-provider")
        return await token if inspect.isawaitable(token) else token
