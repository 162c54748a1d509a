# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a server says has changed.

Before revision 2026-07-28 it sends notifications, since then events in the stream of `subscriptions/listen`.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

from mcp import types
from mcp.client.caching import MAX_TTL_MS, CacheConfig, CacheEntry, CacheKey
from mcp.client.subscriptions import PromptsListChanged, ResourcesListChanged, ResourceUpdated, ToolsListChanged
from mcp.shared.subscriptions import SUBSCRIPTION_ID_META_KEY
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

from haystack_integrations.tools.mcp.client.reading import ReadingClient
from haystack_integrations.tools.mcp.protocol.changes import ChangedList, ServerChange, WantedChanges
from haystack_integrations.tools.mcp.request_context import current_identity

if TYPE_CHECKING:
    import mcp

# How many results of reads and listings are kept for a session, those of all identities together.
_MOST_CACHED = 1024


class IdentityCacheStore:
    """
    What the SDK keeps of results for as long as the server allows it, apart for each identity.

    The SDK honours `ttlMs` and `cacheScope`, keeps nothing of a read that wanted input, hands out copies, and drops
    what changed, also what is being fetched meanwhile. It would keep it for the session, which several identities
    share.
    """

    def __init__(self) -> None:
        """
        Initialize the store.
        """
        # In the order of their last use. Each operation is synchronous, so there is no lock.
        self._entries: dict[tuple[Any, CacheKey], CacheEntry] = {}

    async def get(self, key: CacheKey) -> CacheEntry | None:
        """
        Give what is kept for the caller.

        :param key: What of.
        :returns: The entry, if there is one.
        """
        own = (_caller(), key)
        entry = self._entries.pop(own, None)
        if entry is not None:
            self._entries[own] = entry
        return entry

    async def set(self, key: CacheKey, entry: CacheEntry) -> None:
        """
        Keep something for the caller.

        :param key: What of.
        :param entry: The entry.
        """
        own = (_caller(), key)
        self._entries.pop(own, None)
        self._entries[own] = entry
        if len(self._entries) > _MOST_CACHED:
            del self._entries[next(iter(self._entries))]

    async def delete(self, key: CacheKey) -> None:
        """
        Keep it for nobody any more: whoever says that it changed is none of them.

        :param key: What of.
        """
        self._entries = {own: entry for own, entry in self._entries.items() if own[1] != key}

    async def clear(self) -> None:
        """
        Keep nothing any more.
        """
        self._entries.clear()


def _caller() -> Any:
    identity = current_identity.get()
    return identity.key if identity is not None else None


def cache_config() -> CacheConfig:
    """
    Make the configuration of one client's cache.

    :returns: It keeps nothing that the server did not allow to be kept.
    """
    # The store is the client's own, so that neither name tells anything apart.
    return CacheConfig(store=IdentityCacheStore(), partition="identity", target_id="session")


def _change_of_notification(message: Any) -> ServerChange | None:
    match message:
        case types.ToolListChangedNotification():
            return ServerChange("tools")
        case types.PromptListChangedNotification():
            return ServerChange("prompts")
        case types.ResourceListChangedNotification():
            return ServerChange("resources")
        case types.ResourceUpdatedNotification(params=params):
            return ServerChange("resource", str(params.uri))
    return None


def _is_of_stream(message: Any) -> bool:
    meta = getattr(getattr(message, "params", None), "meta", None)
    return isinstance(meta, Mapping) and SUBSCRIPTION_ID_META_KEY in meta


def _change_of_event(event: Any) -> ServerChange | None:
    match event:
        case ToolsListChanged():
            return ServerChange("tools")
        case PromptsListChanged():
            return ServerChange("prompts")
        case ResourcesListChanged():
            return ServerChange("resources")
        case ResourceUpdated(uri=uri):
            return ServerChange("resource", str(uri))
    return None


class ListeningClient(ReadingClient):
    """
    What a client on top of the MCP SDK hears of changes at the server.
    """

    def _message_handler(self, following: Callable[[Any], Awaitable[None]] | None) -> Callable[[Any], Awaitable[None]]:
        """
        Make what the SDK calls with each message of the server.

        :param following: The user's handler, which gets it after this client.
        :returns: The handler.
        """

        async def handle(message: Any) -> None:
            change = _change_of_notification(message)
            # Whoever listens gets it in order from the stream; some servers say it in others.
            if change is not None and self.on_change is not None and not _is_of_stream(message):
                self.on_change(change)
            if following is not None:
                await following(message)

        return handle

    @abstractmethod
    def _protocol_version(self) -> str | None:
        """Give the revision of the protocol that was negotiated, once it was."""

    @property
    def listens(self) -> bool:
        """
        Whether changes are heard in a stream of their own, as since revision 2026-07-28.
        """
        return self._protocol_version() in MODERN_PROTOCOL_VERSIONS

    def _shortest_ttl(self, pages: Iterable[types.CacheableResult]) -> float | None:
        """
        Say for how long pages may be kept. A server that wants nothing to be kept, or says nothing, gives no time.

        :param pages: The pages of a listing.
        :returns: The shortest time, in seconds.
        """
        times = [page.ttl_ms for page in pages if "ttl_ms" in page.model_fields_set and page.ttl_ms > 0]
        return min(*times, MAX_TTL_MS) / 1000 if times and self.listens else None

    async def listen(self, wanted: WantedChanges, acknowledged: Callable[[WantedChanges], None]) -> None:
        """
        Listen to changes until the server ends that.

        :param wanted: Which changes.
        :param acknowledged: Called once the server sends them, with those that it does send.
        :raises MCPConnectionError: If the server refuses, or the stream breaks.
        """

        async def hear(sdk: mcp.Client) -> None:
            stream = sdk.listen(
                tools_list_changed="tools" in wanted.lists,
                prompts_list_changed="prompts" in wanted.lists,
                resources_list_changed="resources" in wanted.lists,
                resource_subscriptions=sorted(wanted.uris),
            )
            async with stream as subscription:
                honored = subscription.honored
                flags: dict[ChangedList, bool | None] = {
                    "tools": honored.tools_list_changed,
                    "prompts": honored.prompts_list_changed,
                    "resources": honored.resources_list_changed,
                }
                uris = frozenset(str(uri) for uri in honored.resource_subscriptions or ())
                acknowledged(WantedChanges(frozenset(kind for kind, sent in flags.items() if sent), uris))
                async for event in subscription:
                    change = _change_of_event(event)
                    if change is not None and self.on_change is not None:
                        self.on_change(change)

        await self._read("listen", hear)

    async def subscribe_resource(self, uri: str) -> None:
        """
        Subscribe to changes of a resource, in revisions before 2026-07-28.

        :param uri: Its URI.
        :raises MCPConnectionError: If that fails.
        """
        request = types.SubscribeRequest(params=types.SubscribeRequestParams(uri=uri))
        await self._read("subscribe_resource", lambda sdk: sdk.session.send_request(request, types.EmptyResult))

    async def unsubscribe_resource(self, uri: str) -> None:
        """
        End the subscription to changes of a resource, in revisions before 2026-07-28.

        :param uri: Its URI.
        :raises MCPConnectionError: If that fails.
        """
        request = types.UnsubscribeRequest(params=types.UnsubscribeRequestParams(uri=uri))
        await self._read("unsubscribe_resource", lambda sdk: sdk.session.send_request(request, types.EmptyResult))
