# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
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
from tests.components.conftest import inputs_of
from tests.support.kinds import LONG
from tests.support.raw import raw_server
from tests.support.rows import rows
from tests.support.waiting import wait_until_async

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
    A server with resources. It records reads and their `_meta`; reading a slow resource never ends.
    """

    def __init__(self, name: str = "library") -> None:
        self.read: list[str] = []
        self.metas: list[dict[str, Any]] = []
        self.text = "# Today"
        server = Server(name, on_list_resources=self._list, on_read_resource=self._read)
        self.info = InProcessServerInfo(server)

    async def _list(self, _context: Any, _params: Any) -> types.ListResourcesResult:
        return types.ListResourcesResult(resources=RESOURCES)

    async def _read(self, _context: Any, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
        self.read.append(params.uri)
        self.metas.append(dict(params.meta or {}))
        contents: list[Any] = []
        match params.uri:
            case "notes://picture":
                contents = [types.BlobResourceContents(uri=params.uri, blob="cGl4ZWxz")]
            case uri if uri.startswith("notes://slow"):
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


def test_text_becomes_a_document_and_bytes_a_stream_with_the_servers_metadata(use, library):
    result = use(MCPResourceFetcher(library.info), prefix="notes://")
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


def test_unreadable_resources_are_omitted_and_reported(use, library, caplog):
    uris = ["notes://nothing", "notes://slow", "notes://today", "notes://broken"]
    result = use(MCPResourceFetcher(library.info, invocation_timeout=1), uris=uris)
    assert [document.meta["uri"] for document in result["documents"]] == ["notes://today"]
    assert [failure["uri"] for failure in result["failures"]] == ["notes://nothing", "notes://slow", "notes://broken"]
    assert "timed out after 1 second" in result["failures"][1]["error"]
    assert "not valid base64" in result["failures"][2]["error"]
    assert len([record for record in caplog.records if "is left out" in record.getMessage()]) == 3


def test_unreadable_resources_are_an_error_on_request_and_an_unreachable_server_always(use, library):
    uris = ["notes://today", "notes://nothing", "notes://slow"]  # reading the last one is cancelled
    for required in (True, False):
        strictly = {"raise_on_failure": True, "required": required, "invocation_timeout": LONG}
        with pytest.raises(MCPConnectionError, match=r"`read_resource` of .*Internal server error"):
            use(MCPResourceFetcher(library.info, uris, **strictly))
    with pytest.raises(MCPConnectionError, match="/there/is/no/such/program"):
        use(MCPResourceFetcher(StdioServerInfo("/there/is/no/such/program"), uris))


@rows(
    ("contents", "problem"),
    ([{"uri": "a://b", "text": "x" * 150_000}], "larger than `max_message_size`"),
    ("no list", "not a valid result"),
)
def test_only_the_resources_that_are_too_large_or_invalid_are_omitted(use, caplog, contents, problem):
    server = raw_server("json", {"resources/read": {"contents": contents}}, max_message_size=100_000)
    for required in (True, False):
        read = use(MCPResourceFetcher(server, ["a://b", "a://c"], required=required))
        assert [(failure["uri"], problem in failure["error"]) for failure in read["failures"]] == [
            ("a://b", True),
            ("a://c", True),
        ]
    assert "until it can be reached" not in caplog.text


def test_an_optional_server_that_is_down_gives_failures_and_is_logged_once(use, caplog):
    down = StdioServerInfo(command="/there/is/no/such/program")
    fetcher = MCPResourceFetcher(down, uris=["a://b", "a://c"], required=False)
    fetcher.warm_up()
    read = use(fetcher)
    assert (read["documents"], read["streams"]) == ([], [])
    assert [failure["uri"] for failure in read["failures"]] == ["a://b", "a://c"]
    assert "/there/is/no/such/program" in read["failures"][0]["error"]
    assert use(fetcher, prefix="a://")["failures"][0]["uri"] == "a://"
    # The empty prefix selects all resources.
    assert use(fetcher, prefix="")["failures"][0]["uri"] == ""
    assert len([record for record in caplog.records if "until it can be reached" in record.message]) == 1
    assert MCPResourceFetcher.from_dict(fetcher.to_dict()).to_dict() == fetcher.to_dict()


def test_a_uri_template_defines_the_inputs_of_the_component(use, library):
    fetcher = MCPResourceFetcher(library.info, uri_template="notes://days/{day}{?part}")
    assert inputs_of(fetcher).items() >= {"day": True, "part": False}.items()
    result = use(fetcher, day="Mon/day", part="morning")
    assert library.read == ["notes://days/Mon%2Fday?part=morning"]
    assert result["documents"][0].meta["uri"] == library.read[0]
    with pytest.raises(ValueError, match="needs a value for 'day'"):
        use(fetcher)
    use(MCPResourceFetcher(library.info, uri_template="notes://days/{day*}"), day="Mon/day")  # a template of FastMCP
    assert library.read[1:] == ["notes://days/Mon%2Fday"]


def test_inputs_override_the_parameters_of_the_component(use, library):
    fetcher = MCPResourceFetcher(library.info, uris=["other://tomorrow", "notes://today"], prefix="other://")
    for inputs, expected in (
        ({}, ["notes://today", "other://tomorrow"]),  # each once
        ({"uris": ["notes://today"]}, ["notes://today"]),
        ({"uris": []}, []),
    ):
        library.read.clear()
        use(fetcher, **inputs)
        assert sorted(library.read) == expected


def test_the_id_of_a_document_depends_on_the_resource_and_not_on_its_content(use, library):
    fetcher = MCPResourceFetcher(library.info)
    uris = ["notes://today", "notes://folder"]
    ids = [document.id for document in use(fetcher, uris=uris)["documents"]]
    assert len(set(ids)) == 3
    library.text = "changed"
    again = use(MCPResourceFetcher(library.info, share=False), uris=uris)["documents"]
    assert again[0].content == "changed"
    assert [document.id for document in again] == ids
    other = use(MCPResourceFetcher(Library("other").info), uris=uris)["documents"]
    named = use(MCPResourceFetcher(library.info, server_name="mine"), uris=uris)["documents"]
    assert named[0].meta["server"] == "mine"
    assert not {document.id for document in [*other, *named]} & set(ids)


def test_the_resources_under_a_prefix_are_limited_and_text_may_be_returned_as_streams(use, library, caplog):
    result = use(MCPResourceFetcher(library.info, prefix="", max_resources=1, as_streams=True))
    assert result["documents"] == []
    [stream] = result["streams"]
    assert (stream.data, stream.mime_type, stream.meta["uri"]) == (b"# Today", "text/markdown", "notes://today")
    assert "lists 4 resources under the prefix; only the first 1 are read" in caplog.text


def test_the_fetcher_reads_with_the_identity_of_the_user(use, library):
    with mcp_request_context(meta={"example.org/user": "ada"}):
        use(MCPResourceFetcher(library.info), uris=["notes://today", "notes://days/1"])
    assert [meta["example.org/user"] for meta in library.metas] == ["ada", "ada"]


async def test_concurrent_reads_are_limited_and_cancelled_with_the_run(library):
    uris = [f"notes://slow/{n}" for n in range(3)]
    fetcher = MCPResourceFetcher(library.info, max_concurrency=2)
    running = asyncio.create_task(fetcher.run_async(uris=uris))
    await wait_until_async(lambda: len(library.read) == 2, "two readings")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    await fetcher.close_async()
    assert sorted(library.read) == uris[:2]


def test_the_error_without_any_resource_to_read_says_what_to_do(use, library):
    with pytest.raises(ValueError, match="Give it `uris`, a `prefix` or a `uri_template`"):
        use(MCPResourceFetcher(library.info))
    with pytest.raises(ValueError, match="got 'day', but has no `uri_template`"):
        use(MCPResourceFetcher(library.info), uris=[], day="Monday")
