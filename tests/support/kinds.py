# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What kinds of servers there are over HTTP.
"""

from dataclasses import dataclass

import pytest

from haystack_integrations.tools.mcp import SSEServerInfo, StreamableHttpServerInfo

# No test waits for this.
LONG = 90.0


@dataclass(frozen=True)
class Kind:
    """
    A kind of server over HTTP: what `http_server` takes to start one, and the server info that reaches it.

    :param transport: `"streamable-http"` or `"sse"`.
    :param options: Options of `tests/servers/counter_server.py`.
    :param cancels: Whether such a server learns that a call was given up. A stateless one of the era before 2026-07-28
        has no way to find the call, and the SDK's does not notice the end of a request that it answers with JSON.
    """

    transport: str
    options: tuple[str, ...] = ()
    cancels: bool = True

    def reach(self, url: str, **parameters: object) -> StreamableHttpServerInfo | SSEServerInfo:
        """
        Describe such a server to the package, with short delays between attempts.

        :param url: Where it is.
        :param parameters: Further parameters of the server info.
        :returns: The server info.
        """
        info_class = SSEServerInfo if self.transport == "sse" else StreamableHttpServerInfo
        return info_class(url, **{"base_delay": 0.05, "max_delay": 0.2, **parameters})


# Those of the era before 2026-07-28 have sessions, unless they are stateless.
KINDS = {
    "2026": Kind("streamable-http"),
    "2026 json": Kind("streamable-http", ("--json",), cancels=False),
    "sessions": Kind("streamable-http", ("--protocol", "legacy")),
    "sessions json": Kind("streamable-http", ("--protocol", "legacy", "--json")),
    "stateless": Kind("streamable-http", ("--protocol", "legacy", "--stateless"), cancels=False),
    "sse": Kind("sse"),
}


def kinds(*names: str) -> pytest.MarkDecorator:
    """
    Run a test with each of these kinds of servers as its `kind`.

    :param names: Keys of `KINDS`.
    :returns: The mark.
    """
    return pytest.mark.parametrize("kind", [KINDS[name] for name in names], ids=names)
