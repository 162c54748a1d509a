# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is kept of listings and of resources, for as long as the server allows it, and for whom.
"""

import threading
from contextlib import closing

from mcp.server import MCPServer

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPToolset,
    StreamableHttpServerInfo,
)
from tests.servers.changing_server import NOTE, build_server
from tests.support.processes import SERVERS, CallLog, HttpServer, python_script
from tests.support.waiting import LIMIT, wait_until

AN_HOUR = 3_600_000


class Kept:
    """A server, and what it was asked."""

    def __init__(self, ttl_ms: int) -> None:
        self.events: list[str] = []
        self.server: MCPServer = build_server(lambda event, **_: self.events.append(event), ttl_ms=ttl_ms)
        self.info = InProcessServerInfo(self.server)

    def asked(self, method: str) -> int:
        return self.events.count(f"@{method}")


def test_what_may_be_kept_is_asked_for_once_and_cannot_be_changed_by_whoever_got_it():
    kept = Kept(AN_HOUR)
    with MCPConnection(kept.info) as connection:
        for listing, method in (
            (connection.list_resources, "resources/list"),
            (connection.list_resource_templates, "resources/templates/list"),
            (connection.list_prompts, "prompts/list"),
        ):
            first = listing()
            listing().clear()
            assert listing() == first
            assert kept.asked(method) == 1
            listing(meta={})  # whoever says something beside it wants to be heard
            assert kept.asked(method) == 2
        connection.list_resources()[0].name = "changed"
        connection.read_resource(NOTE).contents[0].text = "changed"
        connection.open()[1][0].input_schema.clear()
        assert connection.list_resources()[0].name != "changed"
        assert connection.read_resource(NOTE).contents[0].text == "first"
        assert connection.open()[1][0].input_schema
        assert kept.asked("resources/read") == 1


def test_what_changed_is_asked_for_again():
    kept, told = Kept(AN_HOUR), threading.Event()
    with MCPConnection(kept.info) as connection:
        connection.subscribe_resource(NOTE, lambda _: told.set())
        assert connection.read_resource(NOTE).contents[0].text == "first"
        connection.call_tool("write", {"text": "second"})
        assert told.wait(LIMIT)
        assert connection.read_resource(NOTE).contents[0].text == "second"
        assert kept.asked("resources/read") == 2


def test_tools_are_listed_again_at_a_warm_up_after_their_time_and_not_before():
    kept = Kept(AN_HOUR)
    with MCPToolset(kept.info) as toolset:
        wait_until(
            lambda: kept.asked("tools/list") == 2 and not toolset._is_due,
            "they are listed once more when listening begins, and taken over",
        )
        for _ in range(3):
            toolset.warm_up()
    assert kept.asked("tools/list") == 2

    expiring = Kept(100)
    with MCPToolset(expiring.info) as toolset:
        expiring.server.remove_tool("withdraw")  # and it does not say so
        wait_until(lambda: toolset.warm_up() or "withdraw" not in toolset, "they are listed again")


def test_another_toolset_of_the_session_does_not_get_a_list_that_changed():
    kept = Kept(0)
    with MCPToolset(kept.info) as toolset:
        toolset["offer"].invoke(name="extra")
        wait_until(lambda: toolset._fetched is not None, "the tools are listed again")
        with MCPToolset(kept.info) as other:
            assert "extra" in other
            assert other.connection.status().sessions == 1


def test_a_parameter_that_becomes_a_header_is_sent_as_one_after_a_reconnect(tmp_path):
    command = python_script(SERVERS / "changing_server.py", "--transport", "streamable-http")
    server = HttpServer(command, "/mcp", tmp_path, CallLog(tmp_path / "calls.txt"))
    with closing(server.start()):
        info = StreamableHttpServerInfo(server.url, base_delay=0.05, max_delay=0.2)
        with MCPToolset(info) as toolset:
            locate = toolset["locate"]
            assert locate.call(region="north").text == "north None"
            server.kill()
            server.command = [*command, "--header"]
            server.start()
            assert locate.call(region="north").text == "north north"
