# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Changes that a server reports, and the cache of results that were read from it.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from time import monotonic
from typing import Any, Final, Literal, TypeAlias

from haystack_integrations.tools.mcp.request_context import current_identity

ChangedList: TypeAlias = Literal["tools", "prompts", "resources"]

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UPDATED: Final = "notifications/resources/updated"

# How the filter of a subscription names the lists.
_FLAGS: Final[dict[ChangedList, str]] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}

_ticks = itertools.count(1)


def next_tick() -> int:
    """
    Advance the logical clock that orders listings and changes.

    :returns: The time by this clock, greater than all earlier ones in this process.
    """
    return next(_ticks)


@dataclass(frozen=True, slots=True)
class ServerChange:
    """
    Something at a server that may have changed.

    :param kind: The list, or "resource" for the contents of a resource.
    :param uri: The URI of the resource.
    """

    kind: ChangedList | Literal["resource"]
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class WantedChanges:
    """
    The changes that a watcher wants.

    :param lists: Lists of the server.
    :param uris: Resources.
    """

    lists: frozenset[ChangedList] = frozenset()
    uris: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """
        Whether any changes are wanted.
        """
        return bool(self.lists or self.uris)

    def as_changes(self) -> list[ServerChange]:
        """
        Return each of them as a change, for when any of them may have been missed.

        :returns: The changes.
        """
        return [
            *(ServerChange(kind) for kind in sorted(self.lists)),
            *(ServerChange("resource", uri) for uri in sorted(self.uris)),
        ]


def change_of(method: str, params: Mapping[str, Any]) -> ServerChange | None:
    """
    Return the change that a notification reports.

    :param method: Its method.
    :param params: Its parameters.
    :returns: The change; None if it reports none.
    """
    if method == _UPDATED:
        uri = params.get("uri")
        return ServerChange("resource", uri) if isinstance(uri, str) else None
    return next((ServerChange(kind) for kind in _FLAGS if method == f"notifications/{kind}/list_changed"), None)


def written_filters(wanted: WantedChanges) -> dict[str, Any]:
    """
    Write the filter of a subscription.

    :param wanted: The changes to subscribe to.
    :returns: The filter, as in the protocol.
    """
    filters: dict[str, Any] = {_FLAGS[kind]: True for kind in sorted(wanted.lists)}
    return {**filters, "resourceSubscriptions": sorted(wanted.uris)} if wanted.uris else filters


def read_filters(filters: Any) -> WantedChanges:
    """
    Read the filter that a server honours.

    :param filters: The filter, as in the protocol, or anything else.
    :returns: The changes.
    """
    if not isinstance(filters, dict):
        return WantedChanges()
    uris = filters.get("resourceSubscriptions")
    return WantedChanges(
        frozenset(kind for kind, flag in _FLAGS.items() if filters.get(flag) is True),
        frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else frozenset(),
    )


# Ends a subscription. It is thread-safe and idempotent.
Unsubscribe: TypeAlias = Callable[[], None]


@dataclass(eq=False)
class Watcher:
    """
    A subscriber to changes. It is notified as long as it is referenced.

    :param wanted: The changes that it wants.
    :param notify: Called with each of them in the executor's loop; must not block and must not raise.
    :param is_subscribed: Whether the server has reported changes of its resources, so that other sessions have to.
    """

    wanted: WantedChanges
    notify: Callable[[ServerChange], None]
    is_subscribed: bool = False


# Results that a server allows caching (SEP-2549, since revision 2026-07-28).

# How many results are kept for a session, for all identities together.
_MAX_CACHED_RESULTS: Final = 1024

# The longest time for which a result is kept, in milliseconds: a day.
_MAX_TTL: Final = 86_400_000

# The identity under which public results are kept.
_ALL_USERS: Final = object()

# The method, its parameters, and the identity that may get the result.
_Key: TypeAlias = tuple[str, tuple[tuple[str, Any], ...], Any]


def ttl_ms(result: Mapping[str, Any]) -> int:
    """
    Return for how long a server allows caching a result.

    :param result: The result, as in the protocol.
    :returns: Milliseconds; 0 if the result has no valid time.
    """
    ttl = result.get("ttlMs")
    return int(min(max(ttl, 0), _MAX_TTL)) if isinstance(ttl, int | float) else 0


def shortest_ttl(pages: Iterable[Mapping[str, Any]]) -> float | None:
    """
    Return for how long the pages of a listing may be kept.

    :param pages: The pages, as in the protocol.
    :returns: The shortest time, in seconds; None if no page has one, which includes a time of 0.
    """
    times = [ttl for page in pages if (ttl := ttl_ms(page))]
    return min(times) / 1000 if times else None


class CachedResults:
    """
    The cached results of one session: public ones for all, private ones for the identity that read them.

    It is used in one event loop. Its results must not be changed.
    """

    def __init__(self) -> None:
        # The results with their times of expiry, in the order of their last use.
        self._kept: dict[_Key, tuple[dict[str, Any], float]] = {}
        # How often the results of each method changed at the server.
        self._changes: Counter[str] = Counter()

    async def fetched(
        self,
        method: str,
        params: Mapping[str, Any],
        fetch: Callable[[], Awaitable[dict[str, Any]]],
        *,
        is_refresh: bool = False,
    ) -> dict[str, Any]:
        """
        Return the result of a request, cached or fetched.

        A result that asks for input is not cached, nor a page with a cursor, which may expire earlier.

        :param method: The method of the request.
        :param params: Its parameters, without `_meta`: names with strings.
        :param fetch: Sends the request.
        :param is_refresh: Whether to ask the server in any case.
        :returns: The result.
        """
        about = tuple(sorted(params.items()))
        own_key, public_key = (method, about, current_identity.get().key), (method, about, _ALL_USERS)
        for key in () if is_refresh else (own_key, public_key):
            result, expires_at = self._kept.pop(key, ({}, 0.0))
            if expires_at > monotonic():
                self._kept[key] = result, expires_at
                return result
        changes = self._changes[method]
        result = await fetch()
        self._kept.pop(own_key, None)
        self._kept.pop(public_key, None)
        ttl = ttl_ms(result)
        is_whole = result.get("resultType", "complete") == "complete" and not result.get("nextCursor")
        if ttl and is_whole and self._changes[method] == changes:
            now = monotonic()
            self._kept = {key: kept for key, kept in self._kept.items() if kept[1] > now}
            key = public_key if result.get("cacheScope") == "public" else own_key
            self._kept[key] = result, now + ttl / 1000
            if len(self._kept) > _MAX_CACHED_RESULTS:
                del self._kept[next(iter(self._kept))]
        return result

    def drop(self, method: str, uri: str | None = None) -> None:
        """
        Forget results of a method because they changed at the server. Results that are being fetched are not cached.

        :param method: The method.
        :param uri: The resource, or part of one, that changed; None for all results.
        """
        self._changes[method] += 1
        for key in [key for key in self._kept if key[0] == method]:
            if uri is None or uri.startswith(dict(key[1]).get("uri", "")):
                del self._kept[key]

    def clear(self) -> None:
        """
        Forget all results, because another session begins.
        """
        self._kept.clear()
