# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import copy
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from haystack.dataclasses import ImageContent
from haystack.tools import Toolset
from haystack.tools.errors import ToolInvocationError
from haystack.utils import Secret
from mcp.server import MCPServer
from mcp.types import ResourceLink

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPResourceToolset,
    MCPToolset,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from tests.servers.counter_server import PNG
from tests.support.executors import every_executor
from tests.support.rows import rows


def notes() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("notes")

    @server.resource("notes://today", mime_type="text/markdown", title="Today's note", description="What is\nup")
    def today() -> str:
        return "# Today"

    @server.resource("notes://long", description="x" * 500)
    def long() -> str:
        return "".join(f"{number:04} " for number in range(100))

    @server.resource("notes://picture", mime_type="image/png", title="y" * 500)
    def picture() -> bytes:
        return PNG

    @server.resource("private://diary")
    def diary() -> str:
        return "dear diary"

    @server.resource("notes://days/{day}")
    def day(day: str) -> str:
        return f"the note of {day}"

    @server.tool()
    def find() -> ResourceLink:
        """Find a note."""
        return ResourceLink(type="resource_link", uri="notes://today", name="today")

    return server


@pytest.fixture
def info() -> InProcessServerInfo:
    return InProcessServerInfo(notes())


@pytest.fixture
def ask(execute: Any) -> Iterator[Any]:
    """
    Returns a function that calls a tool of a toolset with each of Haystack's executors; closes the toolset at the end.
    """
    used: list[MCPResourceToolset] = []

    def call(toolset: MCPResourceToolset, name: str, **arguments: Any) -> Any:
        used.append(toolset)
        return execute([toolset], (name, arguments))

    yield call
    for toolset in used:
        toolset.close()


@every_executor
def test_a_model_lists_resources_and_reads_them(ask, info):
    toolset = MCPResourceToolset(info)
    assert ask(toolset, "list_resources").result.splitlines() == [
        "notes://today (Today's note, text/markdown): What is up",
        f"notes://long (long, text/plain): {'x' * 199}…",
        f"notes://picture ({'y' * 199}…, image/png)",
        "private://diary (diary, text/plain)",
        "template: notes://days/{day} (day, text/plain)",
    ]
    assert ask(toolset, "read_resource", uri="notes://today").result == "# Today"
    assert ask(toolset, "read_resource", uri="notes://days/Monday").result == "the note of Monday"
    assert "Unknown resource" in ask(toolset, "read_resource", uri="notes://nothing").error


@every_executor
def test_the_text_for_the_model_is_limited_and_the_model_can_read_on(ask, info):
    toolset = MCPResourceToolset(info, max_size=200, max_listed=2)
    first, second = "".join(f"{n:04} " for n in range(40)), "".join(f"{n:04} " for n in range(80, 100))
    for offset, read in (
        (0, f"{first}\n[characters 0 to 200 of 500: use offset=200 to go on]"),
        ("400", f"{second}\n[characters 400 to 500 of 500: this is the end]"),
        (500, "[there are only 500 characters]"),
    ):
        assert ask(toolset, "read_resource", uri="notes://long", offset=offset).result == read
    listed = ask(toolset, "list_resources", query=None, offset=2.0).result.splitlines()
    assert (len(listed), listed[-1]) == (3, "[1 more of 5: use offset=4, or words to search for]")
    assert ask(toolset, "list_resources", offset=9).result == "[there are only 5]"
    assert ask(toolset, "list_resources", query="TODAY markdown").result.startswith("notes://today")
    assert ask(toolset, "list_resources", query="nowhere").result == "None of 5 resources has these words."
    toolset = MCPResourceToolset(InProcessServerInfo("examples.servers.calculator:server"))
    assert ask(toolset, "list_resources").result == "There are no resources."


@every_executor
def test_only_allowed_resources_are_listed_and_read(ask, info):
    toolset = MCPResourceToolset(info, uris=["notes://days/*", "notes://today"])
    assert len(ask(toolset, "list_resources").result.splitlines()) == 2
    assert ask(toolset, "read_resource", uri="notes://today").result == "# Today"
    for uri in ("private://diary", "notes://days/../../private", "notes://days/%252e%252e%252fprivate"):
        said = ask(toolset, "read_resource", uri=uri).error
        assert "This resource may not be read. Those that may be: notes://days/*, notes://today" in said


@every_executor
def test_an_image_is_described_or_passed_to_the_model_as_an_image(ask, info):
    note = ask(MCPResourceToolset(info), "read_resource", uri="notes://picture").result
    assert note.startswith("[resource: notes://picture, image/png")
    [image] = ask(MCPResourceToolset(info, result_format="content"), "read_resource", uri="notes://picture").result
    assert isinstance(image, ImageContent)


@every_executor
def test_a_link_in_the_result_of_a_tool_can_be_followed_in_the_same_session(execute, info):
    with MCPToolset(info) as tools, MCPResourceToolset(info) as resources:
        link, read = execute([tools, resources], ("find", {}), ("read_resource", {"uri": "notes://today"})).results
        assert link.result == "[resource link: today, notes://today]"
        assert read.result == "# Today"
        assert tools.connection.status().sessions == 1


@rows(
    ("arguments", "told"),
    ({"uri": None}, "`uri` must be the URI of a resource"),
    ({"uri": 5}, "read_resource: 'uri' must be of type string"),
    ({"uri": "notes://today", "offset": -1}, "'offset' violates 'minimum: 0'"),
    ({"uri": "notes://today", "offset": "two"}, "'offset' must be of type integer"),
    ({"url": "notes://today"}, r"notes_read_resource: there is no argument 'url' \(there is: uri, offset\)"),
)
def test_the_model_gets_an_error_for_an_impossible_argument(info, arguments, told):
    with MCPResourceToolset(info, tool_name_prefix="notes") as tools:
        assert [tool.name for tool in tools] == ["notes_list_resources", "notes_read_resource"]
        assert "notes_read_resource" in tools[0].description
        with pytest.raises(ToolInvocationError, match=told):
            tools[1].invoke(**arguments)


@every_executor
def test_the_model_gets_an_error_if_an_optional_server_is_down(ask, caplog):
    toolset = MCPResourceToolset(StdioServerInfo("no-such-command", max_retries=0), required=False)
    with caplog.at_level(logging.WARNING):
        toolset.warm_up()
        toolset.warm_up()
    assert len([record for record in caplog.records if "is left out until it can be reached" in record.message]) == 1
    assert "no-such-command" in ask(toolset, "list_resources").error
    assert MCPResourceToolset.from_dict(toolset.to_dict()).to_dict() == toolset.to_dict()
    assert not MCPResourceToolset.from_dict(toolset.to_dict()).required


def test_a_resource_toolset_can_be_stored_and_shows_no_secret(monkeypatch):
    monkeypatch.setenv("NOTES_TOKEN", "s3ntinel")
    reached = StreamableHttpServerInfo("http://127.0.0.1:9/mcp", token=Secret.from_env_var("NOTES_TOKEN"))
    options = {"max_size": 300, "max_listed": 3, "result_format": "content"}
    toolset = MCPResourceToolset(reached, uris=["a://*"], **options)
    stored = toolset.to_dict()
    assert MCPResourceToolset.from_dict(stored).to_dict() == stored
    assert "s3ntinel" not in f"{stored}{toolset!r}"
    assert isinstance(toolset, Toolset)
    assert toolset and copy.deepcopy(toolset) is toolset
    assert not toolset.connection.is_ready
    plain = MCPResourceToolset(StreamableHttpServerInfo("http://127.0.0.1:9/mcp", headers={"X-Key": "s3ntinel"}))
    assert "s3ntinel" not in str(plain._to_trace_dict())
    assert plain._to_trace_dict()["data"]["max_size"] == 20_000
