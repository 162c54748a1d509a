# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Resources, prompts and raw requests over every transport, and what becomes of them when the connection breaks.
"""

import asyncio

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError, MCPToolset
from haystack_integrations.tools.mcp.convert.content import prompt_messages
from haystack_integrations.tools.mcp.convert.resources import resource_contents
from haystack_integrations.tools.mcp.errors import MCPConnectionTimeoutError
from tests.support.background import in_thread
from tests.support.kinds import LONG, every_http_kind, every_way, kinds
from tests.support.waiting import LIMIT

# The plain server over stdio has tools only.
every_transport_with_resources = kinds("stdio of the SDK", "2026")
every_kind_with_resources = kinds("stdio of the SDK", "2026", "sessions", "sse")


@every_kind_with_resources
def test_resources_prompts_and_completions_are_read(proxied_peer, kind):
    with MCPToolset(proxied_peer(kind).reach(), connection_timeout=LONG) as toolset:
        [resource] = toolset.list_resources()
        assert resource_contents(toolset.read_resource(resource)) == ["hello"]
        assert [template.uri_template for template in toolset.list_resource_templates()] == ["memo://slow/{seconds}"]
        assert resource_contents(toolset.read_resource("memo://slow/0")) == ["read after 0 s"]
        [prompt] = toolset.list_prompts()
        [message] = prompt_messages(toolset.get_prompt(prompt.name, {"name": "Ada"}))
        assert message.text == "Please greet Ada."
        assert toolset.complete(prompt, {"name": "name", "value": "A"}).values == ["Ada", "Alan"]
        assert toolset.request("prompts/list")["prompts"][0]["name"] == "greet"


@every_kind_with_resources
async def test_they_are_read_asynchronously(proxied_peer, kind):
    async with MCPConnection(proxied_peer(kind).reach(), connection_timeout=LONG) as connection:
        resources, templates, prompts, read, prompt, raw = await asyncio.gather(
            connection.list_resources_async(),
            connection.list_resource_templates_async(),
            connection.list_prompts_async(),
            connection.read_resource_async("memo://hello"),
            connection.get_prompt_async("greet", {"name": "Ada"}),
            connection.request_async("resources/read", {"uri": "memo://hello"}),
        )
        completion = await connection.complete_async(templates[0], {"name": "seconds", "value": "G"})
    assert [len(resources), len(templates), len(prompts)] == [1, 1, 1]
    assert resource_contents(read) == ["hello"]
    assert prompt_messages(prompt)[0].text == "Please greet Ada."
    assert raw["contents"][0]["text"] == "hello"
    assert completion.values == ["Grace"]


def test_a_server_of_tools_only_has_empty_lists_and_is_not_even_asked(stdio_server):
    server = stdio_server()
    with MCPConnection(server.info()) as connection:
        assert connection.list_resources() == connection.list_resource_templates() == connection.list_prompts() == []
    assert server.log.events("@resources/list") == server.log.events("@prompts/list") == []


@every_way
def test_what_the_server_refuses_is_an_error_with_its_code(proxied_peer, kind):
    with MCPConnection(proxied_peer(kind).reach(), connection_timeout=LONG) as connection:
        with pytest.raises(MCPConnectionError, match=r"`no/such` of .* failed: .*Method not found") as failed:
            connection.request("no/such", {"secret": "s3cr3t-value"})
        assert failed.value.code == -32601
        assert failed.value.operation == "no/such"
        assert "s3cr3t" not in str(failed.value)
        assert connection.status().sessions == 1


@every_way
def test_a_parameter_that_is_no_json_is_refused_and_the_session_lives_on(proxied_peer, kind):
    with MCPConnection(proxied_peer(kind).reach(), connection_timeout=LONG) as connection:
        for value in ("\ud800", object()):
            with pytest.raises(MCPConnectionError, match="cannot be sent as JSON"):
                connection.request("some/thing", {"value": value})
        with pytest.raises(MCPConnectionError, match="cannot be sent as JSON"):
            connection.read_resource("memo://\ud800")
        assert connection.list_tools()
        assert connection.status().sessions == 1


@every_http_kind
def test_a_reading_whose_connection_is_cut_is_repeated(proxied_peer, kind):
    server = proxied_peer(kind)
    with MCPConnection(server.reach(), connection_timeout=LONG, invocation_timeout=LONG) as connection:
        trap = server.proxy.cut_when(b'"resources/read"')
        assert resource_contents(connection.read_resource("memo://hello")) == ["hello"]
        assert trap.sprung.is_set()


@every_http_kind
def test_a_raw_request_whose_connection_is_cut_is_repeated_only_if_it_may_be(proxied_peer, kind):
    server = proxied_peer(kind)
    with MCPConnection(server.reach(), connection_timeout=LONG, invocation_timeout=LONG) as connection:
        server.proxy.cut_when(b'"resources/read"')
        with pytest.raises(MCPConnectionError, match="may have done what it was asked for"):
            connection.request("resources/read", {"uri": "memo://hello"})
        trap = server.proxy.cut_when(b'"resources/read"')
        result = connection.request("resources/read", {"uri": "memo://hello"}, may_repeat=True)
        assert trap.sprung.is_set()
        assert result["contents"][0]["text"] == "hello"


def test_a_reading_in_whose_midst_a_stdio_server_is_killed_is_repeated(sdk_stdio_server):
    server = sdk_stdio_server()
    info = server.info()
    with MCPConnection(info, connection_timeout=LONG, invocation_timeout=LONG) as connection:
        reading = in_thread(connection.read_resource, "memo://slow/0.5")
        server.log.wait_for("@resources/read")
        server.kill()
        assert resource_contents(reading.result(timeout=LIMIT)) == ["read after 0.5 s"]
        assert connection.status().sessions == 2


@every_transport_with_resources
def test_a_reading_that_takes_too_long_is_given_up(proxied_peer, kind):
    info = proxied_peer(kind).reach()
    with (
        MCPConnection(info, connection_timeout=LONG, invocation_timeout=0.3) as connection,
        MCPConnection(info, invocation_timeout=LONG) as patient,
    ):
        with pytest.raises(
            MCPConnectionTimeoutError, match=r"`read_resource` of .* failed: timed out after 0.3 seconds"
        ):
            connection.read_resource("memo://slow/60")
        assert resource_contents(patient.read_resource("memo://hello")) == ["hello"]


@every_transport_with_resources
def test_a_connection_that_is_closed_ends_a_reading(proxied_peer, kind):
    server = proxied_peer(kind)
    before = len(server.log.events("@resources/read"))
    connection = MCPConnection(server.reach(), connection_timeout=LONG, invocation_timeout=LONG)
    connection.open()
    reading = in_thread(connection.read_resource, "memo://slow/60")
    server.wait_for("@resources/read", before + 1)
    connection.close()
    with pytest.raises(MCPConnectionError, match="closed"):
        reading.result(timeout=LIMIT)
