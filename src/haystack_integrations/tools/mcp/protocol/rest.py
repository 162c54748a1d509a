# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from time import monotonic

# How long what is no call of a tool waits for a server that is too busy, in seconds. It has timeouts of its own.
LONGEST_REST_OF_OTHERS = 30.0


def wants_rest(seconds: float) -> str:
    """
    Say that the server wants no requests.

    :param seconds: For how long.
    :returns: A clause.
    """
    return f"the server wants no requests for {seconds:.3g} s"


class ServerRest:
    """
    For how long a server wants to get no requests (HTTP 429 and 503 with `Retry-After`).

    It outlasts the session in which the server said so.
    """

    def __init__(self) -> None:
        """
        Initialize the ServerRest: none.
        """
        # In the seconds of `time.monotonic`.
        self.until: float = 0.0

    @property
    def seconds(self) -> float:
        """
        For how many seconds from now; 0 if it takes requests.
        """
        return max(self.until - monotonic(), 0.0)

    def describe(self) -> str:
        """
        Say for how long.

        :returns: A clause.
        """
        return wants_rest(self.seconds)
