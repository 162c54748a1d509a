# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tokens on requests.

The providers of the MCP SDK get the tokens. They are not used as the `httpx2.Auth` of the HTTP client, because each
holds a lock until its request is answered, so that one slow call would delay all others; and they know neither when a
stored token expires nor where it is refreshed. `OAuth` puts tokens on requests, and has a provider get new ones, in a
task that all who need them share.

.. code-block:: text

    the request has an `Authorization` of its own        it is sent as it is
    there is a token that has not expired                it is sent with it
    it has expired                                       it is refreshed first
    there is none, and the server was never asked        it is sent without, to learn what the server wants
    there is none, and the server has refused before     one is got first
    answer 401                                           refresh, or a new token, then once more
    answer 403 `insufficient_scope`                      a token with that scope, too, then once more
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Coroutine, Iterable
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakValueDictionary

import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth

from haystack_integrations.tools.mcp.auth.flows.dpop import Proofs
from haystack_integrations.tools.mcp.auth.flows.revocation import Revocation
from haystack_integrations.tools.mcp.auth.flows.run import Flow
from haystack_integrations.tools.mcp.auth.outgoing import HttpClients, plain_client
from haystack_integrations.tools.mcp.auth.records import has_expired, has_token, is_same
from haystack_integrations.tools.mcp.auth.token_store import MCPTokenStorage, Record, TokenKey
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.request_context import current_identity

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.auth.config import OAuthConfig

T = TypeVar("T")

_VERSION_HEADER = "mcp-protocol-version"

# A request is refused at most so often: for an expired token, for one that is no good any more, and for its scope.
_MOST_REFUSALS = 3


class _Renewal:
    """
    A task that gets new tokens, and how many wait for it. It is cancelled when the last one gives up.
    """

    def __init__(self, task: asyncio.Task[None]) -> None:
        self.task = task
        self.waiters = 0
        # Not `task.cancelling()`, which timeouts and cancel scopes within the task count up, too.
        self.is_given_up = False

    def can_be_joined(self) -> bool:
        """
        Tell whether it goes on, in this loop: after a fork or a shutdown of the executor there is another one.
        """
        is_over = self.task.done() or self.is_given_up
        return not is_over and self.task.get_loop() is asyncio.get_running_loop()


class _Holder:
    """
    The tokens of one key, for all sessions of the process that use them.
    """

    def __init__(self, key: TokenKey, storage: MCPTokenStorage) -> None:
        self.key = key
        self.storage = storage
        self.record: Record | None = None
        self.renewal: _Renewal | None = None
        self.proofs: Proofs | None = None


_holders: WeakValueDictionary[Any, _Holder] = WeakValueDictionary()

# The last challenge of each server (the header `WWW-Authenticate`): it wants tokens.
_challenges: dict[str, str] = {}


class OAuth(httpx2.Auth):
    """
    Authenticates the requests of one HTTP client to one MCP server, for whoever makes them.
    """

    def __init__(
        self,
        config: OAuthConfig,
        server_url: str,
        *,
        clients: HttpClients = plain_client,
        learn: Callable[[Iterable[str]], None] | None = None,
        check: Callable[[str], None] | None = None,
    ) -> None:
        """
        Initialize the OAuth.

        :param config: How to get tokens.
        :param server_url: The MCP server.
        :param clients: Makes HTTP clients for requests to authorization servers.
        :param learn: Called with secrets that may come back in what the server says.
        :param check: Called with each URL of an authorization server; raises an exception if it must not be requested.
        """
        self.config = config
        self.server_url = server_url
        self.clients: HttpClients = clients
        self.check = check
        self.learn = learn
        self._told: set[str] = set()
        self.storage: MCPTokenStorage = config._storage()
        self._client_digest = config._client_digest()
        self._used: dict[str | None, _Holder] = {}

    def connected_by(
        self, clients: HttpClients, learn: Callable[[Iterable[str]], None], check: Callable[[str], None]
    ) -> OAuth:
        """
        Use the HTTP clients of a transport.

        :param clients: As in `__init__`.
        :param learn: Likewise.
        :param check: Likewise.
        :returns: This.
        """
        self.clients, self.learn, self.check = clients, learn, check
        return self

    async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """
        Send a request with a token.

        :param request: The request.
        :returns: The requests to send, each for its response.
        :raises MCPAuthorizationError: If no token could be had.
        """
        if "authorization" in request.headers:  # of the caller's own identity
            yield request
            return
        holder = self._holder()
        record = await _told(self._current(holder, request))
        response = yield self._with_token(request, holder, record)
        if holder.proofs is not None and holder.proofs.wants_another(response):
            await _drop_body(response)
            response = yield self._with_token(request, holder, record)
        for attempt in range(_MOST_REFUSALS):
            challenge = await self._challenge(record, response)
            if challenge is None:
                return
            # A refreshed token that is refused, too, is no reason to refresh it once more.
            renewing = self._renew(holder, record, challenge, request, may_refresh=not attempt)
            record = await _told(renewing)
            response = yield self._with_token(request, holder, record)
            if holder.proofs is not None and holder.proofs.wants_another(response):
                await _drop_body(response)
                response = yield self._with_token(request, holder, record)
        if await self._challenge(record, response) is not None:
            msg = "the server refuses the token that was just issued for it"
            raise self._error(msg, "")

    async def log_in(self, challenge: httpx2.Response, user: str | None) -> None:
        """
        Get tokens for a user in place of those that there are.

        :param challenge: The refusal of a request.
        :param user: The user, or None.
        :raises MCPAuthorizationError: If that fails.
        """
        holder = self.holder_of(user)
        holder.record = await holder.storage.load(holder.key)
        request = httpx2.Request("POST", self.server_url)
        await self._renew(holder, holder.record, challenge, request, may_refresh=False)

    async def log_out(self, user: str | None) -> bool:
        """
        Forget the tokens of a user, and have the authorization server revoke them if it can.

        :param user: The user, or None.
        :returns: Whether there were tokens.
        :raises MCPAuthorizationError: If the storage cannot delete them.
        """
        holder = self.holder_of(user)
        async with holder.storage.lock(holder.key):
            record = await holder.storage.load(holder.key)
            await holder.storage.delete(holder.key)
            holder.record = None
        if not has_token(record):
            return False
        await Revocation(self, record).run()
        return True

    def _error(self, text: str, step: str) -> MCPAuthorizationError:
        return MCPAuthorizationError(f"authorization failed{f' while {step}' if step else ''}: {text}")

    def _holder(self) -> _Holder:
        identity = current_identity.get()
        user = identity.key if identity is not None and isinstance(identity.key, str) else None
        return self.holder_of(user)

    def holder_of(self, user: str | None) -> _Holder:
        """
        Give the tokens of a user.

        :param user: The user, or None.
        :returns: What holds them.
        """
        key = TokenKey(self.server_url, self._client_digest, user)
        place = (self.storage, key)
        holder = _holders.get(place)
        if holder is None:
            holder = _holders[place] = _Holder(key, self.storage)
        self._used[user] = holder
        return holder

    async def _current(self, holder: _Holder, request: httpx2.Request) -> Record | None:
        if holder.record is None:
            loaded = await holder.storage.load(holder.key)
            holder.record = holder.record or loaded  # somebody may have got tokens meanwhile
        record = holder.record
        if record is not None and record.get("tokens") and not has_expired(record):
            return record
        challenge = _challenges.get(self.server_url)
        if has_token(record) and (challenge is not None or record["tokens"].get("refresh_token")):
            return await self._renew(holder, record, None, request)
        if not has_token(record) and challenge is not None:
            return await self._renew(holder, record, None, request)
        return record

    def _with_token(self, request: httpx2.Request, holder: _Holder, record: Record | None) -> httpx2.Request:
        if not has_token(record):
            request.headers.pop("Authorization", None)
            return request
        token = record["tokens"]["access_token"]
        if token not in self._told and self.learn is not None:
            self._told.add(token)
            self.learn([token, *filter(None, [record["tokens"].get("refresh_token")])])
        request.headers["Authorization"] = f"{'DPoP' if self.config.dpop else 'Bearer'} {token}"
        if self.config.dpop:
            if holder.proofs is None or holder.proofs.pem != record["dpop_key"]:
                holder.proofs = Proofs(record["dpop_key"])
            holder.proofs.prove(request, token)
        return request

    async def _challenge(self, record: Record | None, response: httpx2.Response) -> httpx2.Response | None:
        """
        Tell whether a response wants another token.
        """
        is_step_up = (
            response.status_code == httpx2.codes.FORBIDDEN
            and extract_field_from_www_auth(response, "error") == "insufficient_scope"
        )
        if response.status_code != httpx2.codes.UNAUTHORIZED and not is_step_up:
            return None
        header = response.headers.get("www-authenticate", "")
        if is_step_up:
            wanted = extract_field_from_www_auth(response, "scope")
            asked = set((record or {}).get("asked_for", ()))
            if has_token(record) and set((wanted or "").split()) <= asked:
                msg = (
                    f"the server wants the scope '{wanted}', for which the token was asked already"
                    if wanted
                    else "the token has too few scopes for the server, which does not say what it wants; set `scopes`"
                )
                raise self._error(msg, "stepping up")
        else:
            _challenges[self.server_url] = header
        await _drop_body(response)
        return httpx2.Response(response.status_code, headers={"WWW-Authenticate": header})

    async def _renew(
        self,
        holder: _Holder,
        used: Record | None,
        challenge: httpx2.Response | None,
        request: httpx2.Request,
        *,
        may_refresh: bool = True,
    ) -> Record:
        """
        Get other tokens than those that were used; whoever wants them meanwhile gets the same.
        """
        while True:
            if has_token(holder.record) and not is_same(holder.record, used) and not has_expired(holder.record):
                return holder.record
            renewal = holder.renewal
            if renewal is None or not renewal.can_be_joined():
                task = asyncio.create_task(self._get(holder, used, challenge, request, may_refresh=may_refresh))
                task.add_done_callback(_retrieve)
                renewal = holder.renewal = _Renewal(task)
            renewal.waiters += 1
            try:
                await asyncio.shield(renewal.task)
            finally:
                renewal.waiters -= 1
                if not renewal.waiters:
                    renewal.is_given_up = True
                    renewal.task.cancel()  # does nothing if it is done

    async def _get(
        self,
        holder: _Holder,
        used: Record | None,
        challenge: httpx2.Response | None,
        request: httpx2.Request,
        *,
        may_refresh: bool,
    ) -> None:
        if challenge is None and _challenges.get(self.server_url) is not None:
            header = _challenges[self.server_url]
            challenge = httpx2.Response(httpx2.codes.UNAUTHORIZED, headers={"WWW-Authenticate": header})
        async with holder.storage.lock(holder.key):
            stored = await holder.storage.load(holder.key)
            if has_token(stored) and not is_same(stored, used) and not has_expired(stored):
                holder.record = stored  # another process was faster
                return
            version = request.headers.get(_VERSION_HEADER)
            flow = Flow(self, holder.key, stored or {}, challenge, version)
            holder.record = await flow.run(may_refresh=may_refresh)


async def _told(coro: Coroutine[Any, Any, T]) -> T:
    """
    Say of whatever goes wrong that it is the authorization: a storage of the user may raise anything.
    """
    try:
        return await coro
    except MCPAuthorizationError:
        raise
    except Exception as error:
        # Not its text, which may quote a token.
        msg = f"authorization failed while using the token storage ({type(error).__name__})"
        raise MCPAuthorizationError(msg) from error


async def _drop_body(response: httpx2.Response) -> None:
    # httpx2 would read it, however large it is.
    stream, response.stream = response.stream, httpx2.ByteStream(b"")
    await stream.aclose()  # type: ignore[union-attr]


def _retrieve(task: asyncio.Task[Any]) -> None:
    # Whoever waited has the error; without this, asyncio would log it if nobody did.
    if not task.cancelled():
        task.exception()
