# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What of a server may be different now. Free of the MCP SDK.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, TypeAlias

ChangedList: TypeAlias = Literal["tools", "prompts", "resources"]

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
