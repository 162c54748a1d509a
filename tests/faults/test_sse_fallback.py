# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A URL alone: Streamable HTTP, or SSE if the server answers as the servers that know only that transport do.
"""

import pytest

from haystack_integrations.tools.mcp import MCPConnectionError, MCPToolset, StreamableHttpServerInfo
from tests.support.kinds import KINDS, every_http_transport


@every_http_transport
def test_a_url_alone_reaches_a_server_of_either_http_transport(peer, kind):
    server = peer(kind)
    url = server.reach().url
    # As if an SSE endpoint had another name than /sse, by which it is known without asking.
    info = StreamableHttpServerInfo(url, sse_fallback=True, base_delay=0.05)
    with MCPToolset(info) as unknown, MCPToolset(url) as known:
        assert "8" in unknown["add"].invoke(a=5, b=3)
        assert "8" in known["add"].invoke(a=5, b=3)
        server.restart()
        assert "8" in unknown["add"].invoke(a=5, b=3)
    assert StreamableHttpServerInfo.from_dict(info.to_dict()) == info


def test_the_error_of_a_url_names_what_is_there(peer):
    for kind, end, fallback, named in (
        ("sse", "", False, "SSEServerInfo"),
        ("2026", "-not", True, r"streamable HTTP server at .*404"),
    ):
        toolset = MCPToolset(StreamableHttpServerInfo(peer(KINDS[kind]).reach().url + end, sse_fallback=fallback))
        with pytest.raises(MCPConnectionError, match=named):
            toolset.warm_up()
