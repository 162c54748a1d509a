# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from typing import Final

# How many URIs are kept for all callers together; the oldest are dropped first.
MOST_LINKS: Final = 10_000


class GivenLinks:
    """
    The URIs of resources that a server has given to whom. From any thread.
    """

    def __init__(self) -> None:
        """
        Initialize the GivenLinks.
        """
        self._lock = threading.Lock()
        self._given: dict[tuple[Hashable, str], None] = {}

    def note(self, caller: Hashable, uris: Iterable[str]) -> None:
        """
        Keep URIs.

        :param caller: Who got them.
        :param uris: The URIs.
        """
        with self._lock:
            for uri in uris:
                # At the end of the order, also if it was given before.
                self._given.pop((caller, uri), None)
                self._given[caller, uri] = None
            while len(self._given) > MOST_LINKS:
                del self._given[next(iter(self._given))]

    def has(self, caller: Hashable, uri: str) -> bool:
        """
        Tell whether somebody got a URI.

        :param caller: Who.
        :param uri: The URI.
        :returns: Whether it was given, and not dropped since.
        """
        return (caller, uri) in self._given
