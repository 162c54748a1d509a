# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import base64
import json
import threading
from types import SimpleNamespace
from typing import Any
from unittest.mock import Mock
from urllib.parse import quote

import anyio
import pytest
from fastmcp import Client, FastMCP
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ResourceError
from fastmcp.server.middleware import Middleware, MiddlewareContext
from haystack import Document
from haystack.dataclasses import ByteStream
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.errors import FilterError
from mcp import MCPError

from haystack_integrations.tools.mcp.serving import HaystackProvider, ServeOptions, create_mcp_server

PNG = b"\x89PNG\r\n"
FRENCH = {"field": "meta.language", "operator": "==", "value": "fr"}


class CountingStore(InMemoryDocumentStore):
    """
    A store that counts its queries for documents.
    """

    asked = 0

    def filter_documents(self, filters: dict[str, Any] | None = None) -> list[Document]:
        self.asked += 1
        return super().filter_documents(filters)


@pytest.fixture
def store() -> CountingStore:
    store = CountingStore()
    store.write_documents(
        [
            Document(id="hello", content="# Hello\nworld", meta={"language": "en", "file_path": "/srv/docs/hello.md"}),
            Document(id="salut", content="Bonjour", meta={"language": "fr"}, embedding=[0.5]),
            Document(id="pictures/1", blob=ByteStream(PNG, mime_type="image/png"), meta={"title": "A picture"}),
            Document(id="both", content="caption", blob=ByteStream(PNG), meta={"language": "fr"}),
        ]
    )
    return store


def client_of(store: Any, options: ServeOptions | None = None, **fastmcp_options: Any) -> Client:
    server = create_mcp_server("Library", document_stores={"kb": store}, options={"kb": options}, **fastmcp_options)
    return Client(server)


def search_uri(**query: Any) -> str:
    shown = {name: each if isinstance(each, str | int) else json.dumps(each) for name, each in query.items()}
    return "documents://kb?" + "&".join(f"{name}={quote(str(each))}" for name, each in shown.items())


async def found(client: Client, uri: str) -> dict[str, Any]:
    [content] = await client.read_resource(uri)
    assert content.mime_type == "application/json"
    return json.loads(content.text)


async def test_a_store_is_listed_with_the_ways_to_read_it_and_read_by_ids(store: CountingStore) -> None:
    async with client_of(store) as client:
        assert [resource.uri for resource in await client.list_resources()] == ["documents://kb"]
        assert {template.uri_template for template in await client.list_resource_templates()} == {
            "documents://kb/{document_id}",
            "documents://kb{?filters,limit,offset}",
        }
        # Neither the start of the server nor a list reads the store.
        assert store.asked == 0
        [text] = await client.read_resource("documents://kb/hello")
        assert (text.text, text.mime_type) == ("# Hello\nworld", "text/markdown")
        assert text.meta["haystack"]["meta"]["language"] == "en"
        [blob] = await client.read_resource("documents://kb/pictures%2F1")
        assert (base64.b64decode(blob.blob), blob.mime_type) == (PNG, "image/png")
        text, blob = await client.read_resource("documents://kb/both")
        assert (text.text, base64.b64decode(blob.blob), blob.mime_type) == ("caption", PNG, "application/octet-stream")
        store.write_documents([Document(id="late", content="late")])
        assert (await client.read_resource("documents://kb/late"))[0].text == "late"
        with pytest.raises(MCPError, match="Resource not found"):
            await client.read_resource("documents://kb/nothing")
        assert store.asked == 5


async def test_a_store_is_searched_by_filter(store: InMemoryDocumentStore) -> None:
    async with client_of(store) as client:
        answer = await found(client, search_uri(filters=FRENCH))
        assert (answer["count"], [each["id"] for each in answer["documents"]]) == (2, ["salut", "both"])
        assert answer["documents"][0]["content"] == "Bonjour"
        assert not {"embedding", "blob"} & set(answer["documents"][0])
        assert "notes" not in answer
        page = await found(client, search_uri(filters=FRENCH, limit=1, offset=1))
        assert (page["count"], [each["uri"] for each in page["documents"]]) == (2, ["documents://kb/both"])
        assert page["notes"] == ["1 of 2 documents are returned, from 1 on."]
        everything = await found(client, "documents://kb")
        assert everything["count"] == 4


async def test_options_choose_the_names_and_documents_that_clients_see(store: InMemoryDocumentStore) -> None:
    shown = {"name": "Greetings", "title": "All greetings", "description": "How people greet."}
    options = ServeOptions(
        **shown, tags={"language"}, max_documents=2, max_characters=3, include_embeddings=True, include_blobs=True
    )
    async with client_of(store, options) as client:
        [listing] = await client.list_resources()
        assert {name: getattr(listing, name) for name in shown} == shown
        assert (await found(client, search_uri(filters=FRENCH, limit=0)))["documents"] == []
        answer = await found(client, search_uri(filters=FRENCH, limit=100))
        first, second = answer["documents"]
        assert (first["id"], first["content"], first["embedding"]) == ("salut", "Bon...", [0.5])
        assert second["blob"]["data"]
        assert "Texts are cut to 3 characters, marked with '...'." in answer["notes"]
        for uri in ("documents://kb", search_uri(limit=100)):
            assert len((await found(client, uri))["documents"]) == 2


@pytest.mark.parametrize("bound", [FRENCH, Depends(lambda: FRENCH)], ids=["value", "computed for each read"])
async def test_filters_of_the_operator_cannot_be_avoided(store: InMemoryDocumentStore, bound: Any) -> None:
    async with client_of(store, ServeOptions(bound={"filters": bound})) as client:
        assert (await found(client, "documents://kb"))["count"] == 2
        english = {"field": "meta.language", "operator": "==", "value": "en"}
        either = {"operator": "OR", "conditions": [english, FRENCH]}
        assert (await found(client, search_uri(filters=english)))["count"] == 0
        assert (await found(client, search_uri(filters=either)))["count"] == 2
        with pytest.raises(MCPError, match="Resource not found"):
            await client.read_resource("documents://kb/hello")


async def test_bad_input_is_refused_without_a_traceback_and_the_server_keeps_running(
    store: InMemoryDocumentStore, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    dropping = {"field": "meta.x", "operator": "drop", "value": 1}
    async with client_of(store) as client:
        for uri, text in (
            ("documents://kb/nothing", "Resource not found"),
            ("documents://other/hello", "Resource not found"),
            ("documents://kb/../../etc/passwd", "Resource not found"),
            ("documents://kb/..%2F..%2Fetc%2Fpasswd", "Resource not found"),
            ("file:///etc/passwd", "Resource not found"),
            (search_uri(filters="{"), "`filters` must be JSON"),
            (search_uri(filters=[1]), "`filters` must be a JSON object"),
            (search_uri(filters="[" * 100_000), "`filters` must be JSON"),
            (search_uri(filters=dropping), "`filters` cannot be used with 'kb'"),
            (search_uri(limit="many"), "`limit` must be a number"),
            (search_uri(offset=-1), "`offset` must be a number"),
            (search_uri(limit="9" * 5000), "`limit` must be a number"),
        ):
            with pytest.raises(MCPError, match=text) as caught:
                await client.read_resource(uri)
            assert caught.value.code == -32602
        assert (await client.read_resource("documents://kb/salut"))[0].text == "Bonjour"
    assert not [each for each in caplog.records if each.exc_info]


async def test_a_failing_source_does_not_hide_other_sources(
    store: InMemoryDocumentStore, caplog: pytest.LogCaptureFixture
) -> None:
    # A skill store that cannot be read.
    skills = SimpleNamespace(list_skills=lambda: 1 / 0, load_skill=str, read_skill_file=str)
    provider = HaystackProvider(document_stores={"kb": store}, skills=skills)
    async with Client(FastMCP("Library", providers=[provider])) as client:
        assert [resource.uri for resource in await client.list_resources()] == ["documents://kb"]
        assert (await client.read_resource("documents://kb/salut"))[0].text == "Bonjour"
    assert "SkillSource cannot be listed" in caplog.text


async def test_errors_of_a_store_are_not_shown_and_a_slow_store_runs_into_its_timeout(store: CountingStore) -> None:
    may_answer = threading.Event()
    async with client_of(store, ServeOptions(timeout=0.5)) as client:
        for fails, told in (
            (RuntimeError("password=hunter2"), "."),
            (FilterError("password=hunter2"), "."),
            (lambda **_: may_answer.wait(60), r"Reading from 'kb' took longer than 0.5 s"),
        ):
            store.filter_documents = Mock(side_effect=fails)
            for uri in ("documents://kb", "documents://kb/x", search_uri(filters=FRENCH)):
                with pytest.raises(MCPError, match=told) as caught:
                    await client.read_resource(uri)
                assert "hunter2" not in str(caught.value)
        may_answer.set()


async def test_the_timeout_includes_dependencies(store: CountingStore) -> None:
    async def too_slow() -> None:
        await asyncio.sleep(60)

    async with client_of(store, ServeOptions(bound={"filters": Depends(too_slow)}, timeout=0.2)) as client:
        with anyio.fail_after(30), pytest.raises(MCPError, match=r"Reading from 'kb' took longer than 0\.2 s"):
            await client.read_resource("documents://kb")


async def test_middleware_sees_the_error_of_a_slow_store_as_an_error_of_a_resource(store: CountingStore):
    class Noting(Middleware):
        async def on_read_resource(self, context: MiddlewareContext[Any], call_next: Any) -> Any:
            try:
                return await call_next(context)
            except ResourceError as error:
                noted.append(str(error))
                raise

    noted: list[str] = []
    may_answer = threading.Event()
    store.filter_documents = Mock(side_effect=lambda **_: may_answer.wait(60))
    async with client_of(store, ServeOptions(timeout=0.2), middleware=[Noting()]) as client:
        with pytest.raises(MCPError):
            await client.read_resource("documents://kb")
        may_answer.set()
    assert noted == ["Reading from 'kb' took longer than 0.2 s"]
