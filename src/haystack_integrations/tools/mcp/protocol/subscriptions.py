# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a server says has changed.

Before revision 2026-07-28 it sends notifications, since then in the stream of `subscriptions/listen` (SEP-2575).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from haystack_integrations.tools.mcp.protocol.cached_results import ttl_ms
from haystack_integrations.tools.mcp.protocol.changes import ChangedList, ServerChange, WantedChanges
from haystack_integrations.tools.mcp.protocol.reading import ReadingClient

_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UPDATED: Final = "notifications/resources/updated"

# The list that changed, by the notification.
_LISTS: Final[dict[str, ChangedList]] = {
    "notifications/tools/list_changed": "tools",
    "notifications/prompts/list_changed": "prompts",
    "notifications/resources/list_changed": "resources",
}
# How a filter names these lists.
_FLAGS: Final[dict[ChangedList, str]] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}
# What may be kept of each list.
_KEPT: Final[dict[ChangedList, tuple[str, ...]]] = {
    "tools": (),
    "prompts": ("prompts/list",),
    "resources": ("resources/list", "resources/templates/list"),
}


class ListeningClient(ReadingClient):
    """
    What a client hears of changes at the server.
    """

    # Called with what the server honours of the stream that is being opened.
    _acknowledged: Callable[[WantedChanges], None] | None = None

    def _changed(self, method: str, params: Mapping[str, Any]) -> None:
        """
        Take note of a notification that says that something changed, or will be told; of others, nothing.

        :param method: Its method.
        :param params: Its parameters.
        """
        change: ServerChange | None = None
        if method == _ACKNOWLEDGED:
            acknowledged, self._acknowledged = self._acknowledged, None
            if acknowledged is not None:
                acknowledged(_honored(params.get("notifications")))
        elif (kind := _LISTS.get(method)) is not None:
            for kept in _KEPT[kind]:
                self._cached.drop(kept)
            change = ServerChange(kind)
        elif method == _UPDATED and isinstance(uri := params.get("uri"), str):
            self._cached.drop("resources/read", uri)
            change = ServerChange("resource", uri)
        if change is not None and self.on_change is not None:
            self.on_change(change)

    @property
    def listens(self) -> bool:
        """
        Whether changes are heard in a stream of their own, as since revision 2026-07-28.
        """
        return self._is_modern

    def _shortest_ttl(self, pages: Iterable[Mapping[str, Any]]) -> float | None:
        """
        Return for how long pages may be kept. A server that wants nothing to be kept, or says nothing, gives no time.

        :param pages: The pages of a listing, as in the protocol.
        :returns: The shortest time, in seconds.
        """
        times = [ttl for page in pages if (ttl := ttl_ms(page))]
        return min(times) / 1000 if times and self._is_modern else None

    async def listen(self, wanted: WantedChanges, acknowledged: Callable[[WantedChanges], None]) -> None:
        """
        Listen to changes until the server ends that. They go to `on_change`.

        A stream may be opened while another one is open, but not before that one is acknowledged.

        :param wanted: Which changes.
        :param acknowledged: Called once the server sends them, with those that it does send.
        :raises MCPConnectionError: If the server refuses, or the stream breaks.
        """
        filters: dict[str, Any] = {_FLAGS[kind]: True for kind in sorted(wanted.lists)}
        if wanted.uris:
            filters["resourceSubscriptions"] = sorted(wanted.uris)
        self._acknowledged = acknowledged
        try:
            await self._read("listen", lambda: self._request("subscriptions/listen", {"notifications": filters}))
        finally:
            if self._acknowledged is acknowledged:
                self._acknowledged = None

    async def subscribe_resource(self, uri: str) -> None:
        """
        Subscribe to changes of a resource, in revisions before 2026-07-28.

        :param uri: Its URI.
        :raises MCPConnectionError: If that fails.
        """
        await self._read("subscribe_resource", lambda: self._request("resources/subscribe", {"uri": uri}))

    async def unsubscribe_resource(self, uri: str) -> None:
        """
        End the subscription to changes of a resource, in revisions before 2026-07-28.

        :param uri: Its URI.
        :raises MCPConnectionError: If that fails.
        """
        await self._read("unsubscribe_resource", lambda: self._request("resources/unsubscribe", {"uri": uri}))


def _honored(filters: Any) -> WantedChanges:
    if not isinstance(filters, dict):
        return WantedChanges()
    uris = filters.get("resourceSubscriptions")
    return WantedChanges(
        frozenset(kind for kind, flag in _FLAGS.items() if filters.get(flag) is True),
        frozenset(uri for uri in uris if isinstance(uri, str)) if isinstance(uris, list) else frozenset(),
    )
