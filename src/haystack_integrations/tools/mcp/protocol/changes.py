# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What of a server may be different now. Free of the MCP SDK.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

ChangedList: TypeAlias = Literal["tools", "prompts", "resources"]

ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_UPDATED: Final = "notifications/resources/updated"

# How the filter of a subscription names the lists.
_FLAGS: Final[dict[ChangedList, str]] = {
    "tools": "toolsListChanged",
    "prompts": "promptsListChanged",
    "resources": "resourcesListChanged",
}

_moments = itertools.count(1)


def next_moment() -> int:
    """
    Return a moment, for the order of listings and changes.

    :returns: A number greater than all before in this process.
    """
    return next(_moments)


@dataclass(frozen=True, slots=True)
class ServerChange:
    """
    Something of a server that may be different now.

    :param kind: Which list, or "resource" for the contents of one.
    :param uri: The URI of the resource.
    """

    kind: ChangedList | Literal["resource"]
    uri: str | None = None


@dataclass(frozen=True, slots=True)
class WantedChanges:
    """
    What somebody wants to hear of.

    :param lists: Lists of the server.
    :param uris: Resources.
    """

    lists: frozenset[ChangedList] = frozenset()
    uris: frozenset[str] = frozenset()

    def __bool__(self) -> bool:
        """
        Whether there is anything.
        """
        return bool(self.lists or self.uris)

    def as_changes(self) -> list[ServerChange]:
        """
        Give a change of each, for when any of them may have been missed.

        :returns: The changes.
        """
        return [
            *(ServerChange(kind) for kind in sorted(self.lists)),
            *(ServerChange("resource", uri) for uri in sorted(self.uris)),
        ]


def change_of(method: str, params: Mapping[str, Any]) -> ServerChange | None:
    """
    Return what a notification says has changed.

    :param method: Its method.
    :param params: Its parameters.
    :returns: The change; None if it says nothing of the kind.
    """
    if method == _UPDATED:
        uri = params.get("uri")
        return ServerChange("resource", uri) if isinstance(uri, str) else None
    return next((ServerChange(kind) for kind in _FLAGS if method == f"notifications/{kind}/list_changed"), None)


def written_filters(wanted: WantedChanges) -> dict[str, Any]:
    """
    Write the filter of a subscription.

    :param wanted: Which changes.
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


# Ends a subscription; it may be called from any thread, and again.
Unsubscribe: TypeAlias = Callable[[], None]


@dataclass(eq=False)
class Watcher:
    """
    Somebody who is notified of changes, as long as somebody refers to it.

    :param wanted: Of which changes.
    :param notify: Called with each of them in the executor's loop; must not block and must not raise.
    """

    wanted: WantedChanges
    notify: Callable[[ServerChange], None]
