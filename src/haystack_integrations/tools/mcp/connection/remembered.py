# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is remembered of the calls of one server: the secrets that it may quote, and the links that it gave.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Iterable
from typing import Final

from haystack_integrations.tools.mcp.redaction import SharedSecrets

# How many are known of calls that have ended.
MOST_KEPT = 10_000


class CallSecrets:
    """
    The secrets among the arguments of calls, which the server may quote. To be used in the executor's loop.

    .. code-block:: text

        the call, or its task, is under way     known, however many there are
        it has ended                            known until as many other secrets were used since as are kept

    The end of a call is not the end of what its server may say of it: it may log it, quote it in the error of a later
    call, or write it to its standard error before it dies. Nor is the end of the session, as long as the server may
    outlive it: over HTTP, the next session is with the same process. So they are known for as long as the connection,
    as far as there is room; a secret that calls have again and again stays. With the connection they go.
    """

    def __init__(self) -> None:
        """
        Initialize the CallSecrets.
        """
        # What redactors look for.
        self.known: SharedSecrets = SharedSecrets()
        self._under_way: dict[str, int] = {}
        # In the order of their last use.
        self._ended: dict[str, None] = {}

    def begin(self, secrets: Iterable[str]) -> None:
        """
        Take note that a call is sent.

        :param secrets: The secrets among its arguments.
        """
        for secret in secrets:
            self._under_way[secret] = self._under_way.get(secret, 0) + 1
            self._ended.pop(secret, None)
            self.known.add(secret)

    def end(self, secrets: Iterable[str]) -> None:
        """
        Take note that it is over.

        :param secrets: The same secrets.
        """
        for secret in secrets:
            self._under_way[secret] -= 1
            if not self._under_way[secret]:
                del self._under_way[secret]
                self._ended[secret] = None
        while len(self._ended) > MOST_KEPT:
            oldest = next(iter(self._ended))
            del self._ended[oldest]
            self.known.discard(oldest)


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
