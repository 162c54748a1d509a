# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Listings, resources, prompts and raw requests over every transport, also when the connection breaks.
"""

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError, MCPToolset
from haystack_integrations.tools.mcp.convert.content import prompt_messages
from haystack_integrations.tools.mcp.convert.resources import resource_contents
from haystack_integrations.tools.mcp.errors import MCPConnectionTimeoutError
from tests.support.background import in_thread
from tests.support.kinds import LONG, every_way, kinds
from tests.support.waiting import LIMIT

# The plain server over stdio has only tools.
every_kind_with_resources = kinds("stdio of the SDK", "2026", "sessions", "sse")


@every_kind_with_resources
async def test_resources_prompts_and_completions_are_read(proxied_peer, kind):
    async with MCPToolset(proxied_peer(kind).reach(), connection_timeout=LONG) as toolset:
        [resource] = await toolset.list_resources_async()
        assert resource_contents(await toolset.read_resource_async(resource)) == ["hello"]
        [template] = await toolset.list_resource_templates_async()
        assert template.uri_template == "memo://slow/{seconds}"
        assert resource_contents(toolset.read_resource("memo://slow/0")) == ["read after 0 s"]
        [prompt] = await toolset.list_prompts_async()
        [message] = prompt_messages(await toolset.get_prompt_async(prompt.name, {"name": "Ada"}))
        assert message.text == "Please greet Ada."
        assert toolset.complete(prompt, {"name": "name", "value": "A"}).values == ["Ada", "Alan"]
        completion = await toolset.complete_async(template, {"name": "seconds", "value": "G"})
        assert completion.values == ["Grace"]
        raw = await toolset.request_async("resources/read", {"uri": "memo://hello"})
        assert raw["contents"][0]["text"] == "hello"


@every_way
def test_a_refused_request_is_an_error_with_the_servers_code(proxied_peer, kind):
    with MCPConnection(proxied_peer(kind).reach(), connection_timeout=LONG) as connection:
        with pytest.raises(MCPConnectionError, match=r"`no/such` of .* failed: .*Method not found") as failed:
            connection.request("no/such", {"secret": "s3cr3t-value"})
        assert failed.value.code == -32601
        assert failed.value.operation == "no/such"
        assert "s3cr3t" not in str(failed.value)
        assert connection.status().sessions == 1


@kinds("2026", "sessions", "sse")
def test_a_read_whose_connection_is_cut_is_repeated_and_a_raw_request_only_if_allowed(proxied_peer, kind):
    server, request = proxied_peer(kind), ("resources/read", {"uri": "memo://hello"})
    with MCPConnection(server.reach(), connection_timeout=LONG, invocation_timeout=LONG) as connection:
        trap = server.proxy.cut_when(b'"resources/read"')
        assert resource_contents(connection.read_resource("memo://hello")) == ["hello"]
        assert trap.sprung.is_set()
        server.proxy.cut_when(b'"resources/read"')
        with pytest.raises(MCPConnectionError, match="may have done what it was asked for"):
            connection.request(*request)
        trap = server.proxy.cut_when(b'"resources/read"')
        assert connection.request(*request, may_repeat=True)["contents"][0]["text"] == "hello"
        assert trap.sprung.is_set()


def test_a_read_is_repeated_if_the_stdio_server_is_killed_during_it(sdk_stdio_server):
    server = sdk_stdio_server()
    info = server.info()
    with MCPConnection(info, connection_timeout=LONG, invocation_timeout=LONG) as connection:
        reading = in_thread(connection.read_resource, "memo://slow/0.5")
        server.log.wait_for("@resources/read")
        server.kill()
        assert resource_contents(reading.result(timeout=LIMIT)) == ["read after 0.5 s"]
        assert connection.status().sessions == 2


@kinds("stdio of the SDK", "2026")
def test_a_read_ends_at_its_timeout_or_when_the_connection_is_closed(proxied_peer, kind):
    server = proxied_peer(kind)
    before = len(server.log.events("@resources/read"))
    patient = MCPConnection(server.reach(), connection_timeout=LONG, invocation_timeout=LONG)
    patient.open()
    with MCPConnection(server.reach(), invocation_timeout=0.3) as connection:
        with pytest.raises(MCPConnectionTimeoutError, match=r"`read_resource` of .* failed: timed out after 0.3 sec"):
            connection.read_resource("memo://slow/60")
    reading = in_thread(patient.read_resource, "memo://slow/60")
    server.wait_for("@resources/read", before + 2)
    patient.close()
    with pytest.raises(MCPConnectionError, match="closed"):
        reading.result(timeout=LIMIT)
