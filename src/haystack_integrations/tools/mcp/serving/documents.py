# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Document stores as resources.

* `documents://NAME` lists the documents of a store, and `documents://NAME{?filters,limit,offset}` searches it with
  Haystack's filters, as JSON.
* `documents://NAME/ID` is one document: its text, and its binary data as a blob.
"""

from __future__ import annotations

import json
import mimetypes
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import quote, unquote

from fastmcp.resources import Resource, ResourceContent, ResourceResult
from fastmcp.resources.template import ResourceTemplate
from haystack import logging
from haystack.dataclasses import Document
from haystack.errors import FilterError

from haystack_integrations.tools.mcp.serving.calls import (
    CallPool,
    ReadRunner,
    UnknownNameError,
    invalid_request,
)
from haystack_integrations.tools.mcp.serving.results import JsonWriter
from haystack_integrations.tools.mcp.serving.sources import (
    NamedOptions,
    ServeOptions,
    Source,
    check_known,
    check_methods,
    check_name,
)

logger: logging.PatchedLogger = logging.getLogger(__name__)

_JSON_TYPE = "application/json"
# The default for the maximum number of documents in a listing.
_DEFAULT_LIMIT = 50
# The maximum number of digits of a number in a URI.
_MAX_DIGITS = 9
_NEEDED_METHODS = ("filter_documents",)

_SEARCH_HELP = (
    "Searches the documents of '{name}'. `filters` are filters of Haystack as JSON, like "
    '{{"field": "meta.language", "operator": "==", "value": "en"}} or {{"operator": "AND", "conditions": [...]}}; '
    "`limit` and `offset` choose a part of what is found."
)


def document_store_sources(
    document_stores: Mapping[str, Any], *, options: NamedOptions, pool: CallPool
) -> Iterator[Source]:
    """
    Serve document stores as resources. Nothing is ever written to them.

    :param document_stores: Document stores by the names that clients see in URIs.
    :param options: Their options by the same names: `max_documents` limits the documents in a listing (default: 50),
        `max_characters` each text, `include_embeddings` and `include_blobs` add data to listings, and
        `bound={"filters": {...}}` restricts which documents clients see.
    :param pool: The pool for reads.
    :returns: A source for each.
    :raises ValueError: If something is not a document store, or its name cannot be used.
    """
    for name, store, own_options in options.each("document_stores", document_stores, "document stores"):
        yield _ServedStore(name, store, own_options, pool)


class _ServedStore(Source):
    """
    Serves one document store.
    """

    def __init__(self, name: str, store: Any, options: ServeOptions, pool: CallPool) -> None:
        super().__init__()
        check_methods(f"document_stores[{name!r}]", store, "a document store of Haystack", _NEEDED_METHODS)
        check_name("`document_stores`", name)
        self._name = name
        self._store = store
        self._options = options
        check_known(f"options[{name!r}].bound", options.bound, ["filters"], "what a document store takes")
        self._reads = ReadRunner(f"Reading from '{name}'", options, pool)
        self._limit = options.max_documents or _DEFAULT_LIMIT
        self._uri = f"documents://{name}"
        shown = options.name or name
        list_properties = {"description": f"The documents of '{shown}'.", **options.of_component()}
        # The store's title and description do not apply to its documents.
        common = {key: each for key, each in list_properties.items() if key not in ("title", "description")}
        self._document_properties = {
            "name": f"{shown}_document",
            "description": f"One document of '{shown}', by its id: the text, and the binary data if it has some.",
            **common,
        }
        search_properties = {"name": f"{shown}_search", "description": _SEARCH_HELP.format(name=shown), **common}
        self._resource = Resource.from_function(
            self._read_list, self._uri, name=shown, mime_type=_JSON_TYPE, **list_properties
        )
        self._templates: list[ResourceTemplate] = [
            ResourceTemplate.from_function(
                self._read_document, f"{self._uri}/{{document_id}}", **self._document_properties
            ),
            ResourceTemplate.from_function(
                self._search, f"{self._uri}{{?filters,limit,offset}}", mime_type=_JSON_TYPE, **search_properties
            ),
        ]

    async def list_resources(self) -> Sequence[Resource]:
        return [self._resource]

    async def list_resource_templates(self) -> Sequence[ResourceTemplate]:
        return self._templates

    async def find_resources(self, uri: str) -> Sequence[Resource]:
        # The store is accessed only when the document is read, so it may not have the document.
        if uri == self._uri:
            return [self._resource]
        store, _, encoded_id = uri.rpartition("/")
        if store != self._uri or not encoded_id or any(each in encoded_id for each in "?#"):
            return []
        # The id is decoded and the URI built anew, so that a disabled document is disabled in every spelling.
        document_id = unquote(encoded_id, errors="surrogatepass")

        async def read() -> ResourceResult:
            return await self._read_document(document_id)

        return [Resource.from_function(read, self._uri_of(document_id), **self._document_properties)]

    async def _filter(self, filters: dict[str, Any] | None) -> list[Document]:
        """
        Find documents by filters, combined with the bound ones that clients neither see nor set.

        :param filters: The filters.
        :returns: The documents.
        """

        def found(bound: dict[str, Any]) -> list[Document]:
            conditions = [each for each in (bound.get("filters"), filters) if each]
            combined = (
                {"operator": "AND", "conditions": conditions} if len(conditions) > 1 else (conditions or [None])[0]
            )
            documents: list[Document] = self._store.filter_documents(filters=combined)
            return documents

        return await self._reads.run_bound(found)

    def _uri_of(self, document_id: str) -> str:
        return f"{self._uri}/{quote(document_id, safe='', errors='surrogatepass')}"

    async def _read_list(self) -> ResourceResult:
        return await self._search_result(None, self._limit, 0)

    async def _search(self, filters: str = "", limit: str = "", offset: str = "") -> ResourceResult:
        # A client cannot exceed the limit that the operator has set.
        max_documents = min(_parse_number("limit", limit, self._limit), self._limit)
        return await self._search_result(_parse_filters(filters), max_documents, _parse_number("offset", offset, 0))

    async def _search_result(self, filters: dict[str, Any] | None, limit: int, offset: int) -> ResourceResult:
        try:
            found = await self._filter(filters)
        except (FilterError, ValueError, TypeError, KeyError, AttributeError) as error:
            if filters is None:
                raise
            logger.info("Filters of a client could not be used: {error}", error=error)
            # The text of the error is not sent, because it may quote anything in the store.
            msg = f"`filters` cannot be used with '{self._name}': check fields, operators and the types of values"
            raise invalid_request(msg) from error
        writer = JsonWriter(self._options)
        page = found[offset : offset + limit]
        documents = [
            {"uri": self._uri_of(document.id), **written}
            for document, written in zip(page, writer.write(page), strict=True)
        ]
        answer: dict[str, Any] = {"store": self._name, "count": len(found), "offset": offset, "documents": documents}
        if len(documents) < len(found):
            writer.notes.append(f"{len(documents)} of {len(found)} documents are returned, from {offset} on.")
        if writer.notes:
            answer["notes"] = writer.notes
        return ResourceResult([ResourceContent(json.dumps(answer, ensure_ascii=False), mime_type=_JSON_TYPE)])

    async def _read_document(self, document_id: str) -> ResourceResult:
        filters = {"field": "id", "operator": "==", "value": document_id}
        found = await self._filter(filters)
        if not found:
            msg = f"There is no document with this id in '{self._name}'"
            raise UnknownNameError(msg)
        document = found[0]
        meta = {"haystack": {"id": document.id, "meta": JsonWriter(self._options).write(document.meta)}}
        contents = []
        if document.content is not None:
            text = JsonWriter(self._options).text(document.content)
            contents.append(ResourceContent(text, mime_type=_text_type(document), meta=meta))
        if document.blob is not None:
            contents.append(ResourceContent(document.blob.data, mime_type=document.blob.mime_type, meta=meta))
        return ResourceResult(contents or [ResourceContent("", meta=meta)])


def _parse_filters(filters: str) -> dict[str, Any] | None:
    if not filters.strip():
        return None
    try:
        parsed = json.loads(filters)
    except (ValueError, RecursionError):
        msg = '`filters` must be JSON, like {"field": "meta.language", "operator": "==", "value": "en"}'
        raise invalid_request(msg) from None
    if not isinstance(parsed, dict):
        msg = f"`filters` must be a JSON object, not {type(parsed).__name__}"
        raise invalid_request(msg)
    return parsed


def _parse_number(argument: str, value: str, default: int) -> int:
    if not value:
        return default
    if not value.isascii() or not value.isdigit() or len(value) > _MAX_DIGITS:
        msg = f"`{argument}` must be a number from 0 on"
        raise invalid_request(msg)
    return int(value)


def _text_type(document: Document) -> str:
    guessed, _ = mimetypes.guess_type(str(document.meta.get("file_path", "")))
    # The text of a converted PDF is not a PDF.
    return guessed if guessed and guessed.startswith("text/") else "text/plain"
