# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from mcp import types
from mcp.server.lowlevel import Server

from haystack_integrations.components.fetchers.mcp import MCPResourceFetcher
from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnectionError,
    StdioServerInfo,
    mcp_request_context,
)
from tests.support.rows import rows
from tests.support.waiting import LIMIT

RESOURCES = [
    types.Resource(
        uri="notes://today",
        name="today",
        title="Today",
        mime_type="text/markdown",
        size=7,
        annotations=types.Annotations(priority=0.5, last_modified="2026-11-01T00:00:00Z"),
    ),
    types.Resource(uri="notes://picture", name="picture", mime_type="image/png"),
    types.Resource(uri="notes://broken", name="broken"),
    types.Resource(uri="other://tomorrow", name="tomorrow"),
]


class Library:
    """
    A server with resources. It notes what is read with which `_meta`, and can hold readings back.
    """

    def __init__(self, name: str = "library") -> None:
        self.read: list[str] = []
        self.metas: list[dict[str, Any]] = []
        self.under_way = 0
        self.most_under_way = 0
        self.full: threading.Event | None = None
        self.text = "# Today"
        server = Server(name, on_list_resources=self._list, on_read_resource=self._read)
        self.info = InProcessServerInfo(server)

    async def _list(self, _context: Any, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=RESOURCES)

    async def _read(self, _context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        self.read.append(params.uri)
        self.metas.append(dict(params.meta or {}))
        self.under_way += 1
        self.most_under_way = max(self.most_under_way, self.under_way)
        try:
            if self.full is not None:
                if self.under_way == 2:
                    self.full.set()
                await asyncio.to_thread(self.full.wait, LIMIT)
                await asyncio.sleep(0.01)
        finally:
            self.under_way -= 1
        contents: list[Any] = []
        match params.uri:
            case "notes://picture":
                contents = [types.BlobResourceContents(uri=params.uri, blob="cGl4ZWxz")]
            case "notes://slow":
                await asyncio.Event().wait()
            case "notes://broken":
                contents = [types.BlobResourceContents(uri=params.uri, blob="no base64!")]
            case "notes://folder":
                contents = [types.TextResourceContents(uri=f"notes://folder/{n}", text=str(n)) for n in range(2)]
            case uri if uri.startswith(("notes://today", "notes://days/", "other://")):
                contents = [types.TextResourceContents(uri=uri, text=self.text)]
            case _:
                raise ValueError("there is no such note")
        return types.ReadResourceResult(contents=contents)


@pytest.fixture
def library() -> Library:
    return Library()


@pytest.fixture(params=["run", "run_async"])
def fetch(request: pytest.FixtureRequest) -> Iterator[Any]:
    """
    Runs a fetcher in each of its two ways, and closes it.
    """
    used: list[MCPResourceFetcher] = []

    def run(fetcher: MCPResourceFetcher, **inputs: Any) -> dict[str, Any]:
        used.append(fetcher)
        if request.param == "run":
            return fetcher.run(**inputs)
        return asyncio.run(fetcher.run_async(**inputs))

    yield run
    for fetcher in used:
        fetcher.close()


def test_text_becomes_a_document_and_bytes_a_stream_with_what_the_server_lists_of_them(fetch, library):
    result = fetch(MCPResourceFetcher(library.info), prefix="notes://")
    [document] = result["documents"]
    assert document.content == "# Today"
    assert document.meta == {
        "uri": "notes://today",
        "server": "library",
        "name": "today",
        "title": "Today",
        "mime_type": "text/markdown",
        "size": 7,
        "last_modified": "2026-11-01T00:00:00Z",
        "annotations": {"priority": 0.5, "last_modified": "2026-11-01T00:00:00Z"},
    }
    [stream] = result["streams"]
    assert (stream.data, stream.mime_type) == (b"pixels", "image/png")
    assert stream.meta["uri"] == "notes://picture"


def test_what_cannot_be_read_is_left_out_and_told(fetch, library, caplog):
    result = fetch(MCPResourceFetcher(library.info), uris=["notes://nothing", "notes://today", "notes://broken"])
    assert [document.meta["uri"] for document in result["documents"]] == ["notes://today"]
    assert [failure["uri"] for failure in result["failures"]] == ["notes://nothing", "notes://broken"]
    assert "no valid base64" in result["failures"][1]["error"]
    assert len([record for record in caplog.records if "is left out" in record.getMessage()]) == 2


def test_a_resource_that_takes_too_long_is_left_out_and_the_others_are_not(fetch, library):
    fetcher = MCPResourceFetcher(library.info, invocation_timeout=2)
    result = fetch(fetcher, uris=["notes://slow", "notes://today"])
    assert [document.meta["uri"] for document in result["documents"]] == ["notes://today"]
    [failure] = result["failures"]
    assert failure["uri"] == "notes://slow"
    assert "timed out after 2 seconds" in failure["error"]


def test_what_cannot_be_read_is_an_error_if_that_is_wanted(fetch, library):
    with pytest.raises(MCPConnectionError, match="`read_resource` of"):
        fetch(MCPResourceFetcher(library.info, raise_on_failure=True), uris=["notes://today", "notes://nothing"])


def test_a_server_that_cannot_be_reached_is_an_error_and_no_empty_result(fetch):
    fetcher = MCPResourceFetcher(StdioServerInfo(command="/there/is/no/such/program"), uris=["a://b"] * 3)
    with pytest.raises(MCPConnectionError, match="/there/is/no/such/program"):
        fetch(fetcher)


def test_a_server_that_is_down_and_not_required_gives_failures_and_is_said_once(fetch, caplog):
    down = StdioServerInfo(command="/there/is/no/such/program")
    fetcher = MCPResourceFetcher(down, uris=["a://b", "a://c"], required=False)
    fetcher.warm_up()
    read = fetch(fetcher)
    assert (read["documents"], read["streams"]) == ([], [])
    assert [failure["uri"] for failure in read["failures"]] == ["a://b", "a://c"]
    assert "/there/is/no/such/program" in read["failures"][0]["error"]
    assert fetch(fetcher, prefix="a://")["failures"][0]["uri"] == "a://"
    assert len([record for record in caplog.records if "until it can be reached" in record.message]) == 1
    assert MCPResourceFetcher.from_dict(fetcher.to_dict()).to_dict() == fetcher.to_dict()


def test_what_an_optional_server_answers_is_an_error_all_the_same(fetch, library):
    with pytest.raises(MCPConnectionError, match="Internal server error"):
        fetch(MCPResourceFetcher(library.info, uris=["notes://nothing"], required=False, raise_on_failure=True))


def test_a_template_gives_the_component_inputs(fetch, library):
    fetcher = MCPResourceFetcher(library.info, uri_template="notes://days/{day}{?part}")
    sockets = fetcher.__haystack_input__._sockets_dict
    assert {name: sockets[name].is_mandatory for name in ("day", "part")} == {"day": True, "part": False}
    result = fetch(fetcher, day="Mon/day", part="morning")
    assert library.read == ["notes://days/Mon%2Fday?part=morning"]
    assert result["documents"][0].meta["uri"] == library.read[0]
    with pytest.raises(ValueError, match="needs a value for 'day'"):
        fetch(fetcher)


def test_inputs_take_the_place_of_what_the_component_was_given(fetch, library):
    fetcher = MCPResourceFetcher(library.info, uris=["other://tomorrow", "notes://today"], prefix="other://")
    fetch(fetcher)
    assert sorted(library.read) == ["notes://today", "other://tomorrow"]  # once each
    library.read.clear()
    fetch(fetcher, uris=["notes://today"])
    assert library.read == ["notes://today"]
    library.read.clear()
    fetch(fetcher, uris=[])
    assert library.read == []


def test_not_more_are_read_at_a_time_than_allowed(fetch, library):
    library.full = threading.Event()
    result = fetch(MCPResourceFetcher(library.info, max_concurrency=2), uris=[f"notes://days/{n}" for n in range(8)])
    assert library.most_under_way == 2
    assert [document.meta["uri"] for document in result["documents"]] == [f"notes://days/{n}" for n in range(8)]


def test_the_id_of_a_document_tells_the_resource_and_not_its_content(fetch, library):
    fetcher = MCPResourceFetcher(library.info)
    uris = ["notes://today", "notes://folder"]
    ids = [document.id for document in fetch(fetcher, uris=uris)["documents"]]
    assert len(set(ids)) == 3
    library.text = "changed"
    again = fetch(MCPResourceFetcher(library.info, share=False), uris=uris)["documents"]
    assert again[0].content == "changed"
    assert [document.id for document in again] == ids
    other = fetch(MCPResourceFetcher(Library("other").info), uris=uris)["documents"]
    named = fetch(MCPResourceFetcher(library.info, server_name="mine"), uris=uris)["documents"]
    assert named[0].meta["server"] == "mine"
    assert not {document.id for document in [*other, *named]} & set(ids)


def test_text_is_given_as_streams_if_that_is_wanted(fetch, library):
    result = fetch(MCPResourceFetcher(library.info, as_streams=True), uris=["notes://today"])
    assert result["documents"] == []
    [stream] = result["streams"]
    assert (stream.data, stream.mime_type) == (b"# Today", "text/plain")


def test_the_resources_under_a_prefix_are_limited(fetch, library, caplog):
    fetcher = MCPResourceFetcher(library.info, prefix="", max_resources=1)
    assert [document.meta["uri"] for document in fetch(fetcher)["documents"]] == ["notes://today"]
    assert "lists 4 resources under the prefix; only the first 1 are read" in caplog.text


def test_it_reads_on_behalf_of_the_user(fetch, library):
    with mcp_request_context(meta={"example.org/user": "ada"}):
        fetch(MCPResourceFetcher(library.info), uris=["notes://today", "notes://days/1"])
    assert [meta["example.org/user"] for meta in library.metas] == ["ada", "ada"]


def test_a_cancelled_run_stops_reading(library):
    library.full = threading.Event()

    async def cancel() -> None:
        fetcher = MCPResourceFetcher(library.info, max_concurrency=1)
        running = asyncio.create_task(fetcher.run_async(uris=[f"notes://days/{n}" for n in range(3)]))
        while not library.read:
            await asyncio.sleep(0.001)
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        await fetcher.close_async()

    asyncio.run(cancel())
    library.full.set()
    assert library.read == ["notes://days/0"]


def test_nothing_is_opened_before_warm_up_and_nothing_stays_open_after_close(library):
    fetcher = MCPResourceFetcher(library.info)
    assert not fetcher.connection.is_ready
    fetcher.warm_up()
    assert fetcher.connection.is_ready
    generation = fetcher.connection.generation
    fetcher.warm_up()
    assert fetcher.connection.generation == generation
    fetcher.close()
    fetcher.close()
    assert not fetcher.connection.is_ready
    assert fetcher.run(uris=["notes://today"])["documents"]
    fetcher.close()


@rows(
    ("parameters", "problem"),
    [
        ({"uris": "notes://today"}, "`uris` must be a valid list"),
        ({"uri_template": 5}, "`uri_template` must be a valid string, got 5"),
        ({"max_resources": 0}, "`max_resources` must be greater than or equal to 1"),
        ({"max_concurrency": True}, "`max_concurrency` must be a valid integer"),
        ({"invocation_timeout": -1}, "invocation_timeout"),
    ],
)
def test_a_wrong_parameter_is_refused_at_construction(parameters, problem):
    with pytest.raises(ValueError, match=problem):
        MCPResourceFetcher(StdioServerInfo(command="x"), **parameters)


def test_with_nothing_to_read_it_says_what_to_do(fetch, library):
    with pytest.raises(ValueError, match="Give it `uris`, a `prefix` or a `uri_template`"):
        fetch(MCPResourceFetcher(library.info))
    with pytest.raises(ValueError, match="got 'day', but has no `uri_template`"):
        fetch(MCPResourceFetcher(library.info), uris=[], day="Monday")
