# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What of a server may be different now. Free of the MCP SDK.
"""

from __future__ import annotations

import itertools
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
