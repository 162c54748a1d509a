# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A URL alone: Streamable HTTP, or SSE if the server answers as the servers that know only that transport do.
"""

import pytest

from haystack_integrations.tools.mcp import MCPConnectionError, MCPToolset, StreamableHttpServerInfo
from tests.support.kinds import every_http_transport, kinds


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


@kinds("sse")
def test_without_the_fallback_the_error_names_the_other_transport(peer, kind):
    toolset = MCPToolset(StreamableHttpServerInfo(peer(kind).reach().url))
    with pytest.raises(MCPConnectionError, match="SSEServerInfo"):
        toolset.warm_up()


@kinds("2026")
def test_the_error_of_a_url_that_is_of_neither_transport_tells_of_streamable_http(peer, kind):
    url = peer(kind).reach().url
    toolset = MCPToolset(StreamableHttpServerInfo(f"{url}-not", sse_fallback=True))
    with pytest.raises(MCPConnectionError, match=r"streamable HTTP server at .*404"):
        toolset.warm_up()
