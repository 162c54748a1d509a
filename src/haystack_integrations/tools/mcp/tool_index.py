# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import re
import threading
import uuid
from collections.abc import Collection, Iterable
from typing import Any, Final

from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import Document
from haystack.document_stores.types import DuplicatePolicy
from haystack.tools.tool import Tool

from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.haystack_compat import private_document_store

# In the `meta` of the documents: the name of the tool, and the index that wrote them.
TOOL_NAME: Final = "tool_name"
INDEX: Final = "tool_index"

# Inputs of retrievers that hold the question, and those that hold an embedding of it, with the outputs of embedders.
_QUERIES: Final = ("query", "queries")
_EMBEDDINGS: Final = {"query_embedding": "embedding", "query_sparse_embedding": "sparse_embedding"}

# Between the words of a name: before a capital letter, and instead of punctuation.
_NAME_BREAK: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\W]+")


class ToolIndex:
    """
    Finds tools by what they do. Each is a document, in a store that is kept in step with the tools.
    """

    def __init__(
        self,
        owner: str,
        *,
        retriever: Any = None,
        document_store: Any = None,
        text_embedder: Any = None,
        document_embedder: Any = None,
    ) -> None:
        """
        Initialize the index. MCPSearchableToolset documents the parameters.

        :param owner: Whose it is, for messages.
        :param retriever: What finds the documents. Default: BM25 in memory.
        :param document_store: Where the documents are. Default: that of the retriever.
        :param text_embedder: Embeds what is searched for.
        :param document_embedder: Embeds the documents.
        :raises MCPConfigurationError: If they do not fit together.
        """
        # Nobody else has documents in a store of its own, and BM25 says which ones have none of the words.
        self._is_private = retriever is None
        if retriever is None:
            for name, value in (
                ("document_store", document_store),
                ("text_embedder", text_embedder),
                ("document_embedder", document_embedder),
            ):
                if value is not None:
                    msg = f"{owner}: `{name}` needs a `retriever`; the search by BM25 has all it needs"
                    raise MCPConfigurationError(msg)
            document_store = private_document_store()
            retriever = InMemoryBM25Retriever(document_store=document_store)
        self._inputs = _checked_inputs(owner, retriever, text_embedder)
        self._retriever = retriever
        self._store = _store_of(retriever) if document_store is None else document_store
        if not hasattr(self._store, "write_documents"):
            msg = f"{owner}: `retriever` has no `document_store`; pass the one that it searches as `document_store`"
            raise MCPConfigurationError(msg)
        self._text_embedder = text_embedder
        self._document_embedder = document_embedder
        self._id = uuid.uuid4().hex
        # For each tool: what it was indexed by, and the id of its document.
        self._indexed: dict[str, tuple[tuple[Any, ...], str]] = {}
        # One for each process: a lock held by another thread during a fork would stay locked in the child.
        self._locks: dict[int, threading.Lock] = {}

    def warm_up(self) -> None:
        """
        Warm up the components.
        """
        for component in (self._retriever, self._text_embedder, self._document_embedder):
            if hasattr(component, "warm_up"):
                component.warm_up()

    def close(self) -> None:
        """
        Take the documents out of the store, and close the components that can be closed.
        """
        self.update([])
        for component in (self._retriever, self._text_embedder, self._document_embedder):
            if hasattr(component, "close"):
                component.close()

    def update(self, tools: Iterable[Tool]) -> None:
        """
        Bring the documents in step with the tools: write new and changed ones, delete the others. Cheap if they are.

        :param tools: The tools, each name once.
        """
        facts = {tool.name: (tool.description, *tool.parameters.get("properties", ())) for tool in tools}
        with self._locks.setdefault(os.getpid(), threading.Lock()):
            known = self._indexed
            written = [self._document(name, own) for name, own in facts.items() if known.get(name, ((),))[0] != own]
            if written:
                if self._document_embedder is not None:
                    written = self._document_embedder.run(documents=written)["documents"]
                self._store.write_documents(written, policy=DuplicatePolicy.OVERWRITE)
            new = {document.meta[TOOL_NAME]: document.id for document in written}
            kept = {name: (own, new[name] if name in new else known[name][1]) for name, own in facts.items()}
            gone = {document_id for _, document_id in known.values()} - {
                document_id for _, document_id in kept.values()
            }
            self._indexed = kept
            if gone:
                self._store.delete_documents(sorted(gone))

    def _document(self, name: str, facts: tuple[Any, ...]) -> Document:
        description, *parameters = facts
        words = " ".join(_NAME_BREAK.sub(" ", each) for each in (name, *parameters))
        return Document(content=f"{name}: {description}\n{words}", meta={TOOL_NAME: name, INDEX: self._id})

    def search(self, query: str, top_k: int, names: Collection[str] | None = None) -> list[str]:
        """
        Find tools.

        :param query: What they should do.
        :param top_k: How many, at most.
        :param names: Only tools with these names. Default: all.
        :returns: Their names, the best one first.
        """
        conditions: list[dict[str, Any]] = []
        if not self._is_private:
            conditions.append({"field": f"meta.{INDEX}", "operator": "==", "value": self._id})
        if names is not None:
            conditions.append({"field": f"meta.{TOOL_NAME}", "operator": "in", "value": sorted(names)})
        given: dict[str, Any] = {"query": query, "queries": [query], "top_k": top_k}
        if conditions:
            given["filters"] = {"operator": "AND", "conditions": conditions}
        if names is not None and "filters" not in self._inputs:
            given["top_k"] = len(self._indexed)
        if self._text_embedder is not None:
            embedded = self._text_embedder.run(text=query)
            given |= {name: embedded[output] for name, output in _EMBEDDINGS.items() if output in embedded}
        inputs = {name: value for name, value in given.items() if name in self._inputs}
        found: list[str] = []
        for document in self._retriever.run(**inputs)["documents"]:
            name = document.meta.get(TOOL_NAME)
            is_ours = document.meta.get(INDEX) == self._id and name in self._indexed
            if self._is_private and not document.score:
                continue
            if is_ours and name not in found and (names is None or name in names):
                found.append(name)
        return found[:top_k]


def _checked_inputs(owner: str, retriever: Any, text_embedder: Any) -> set[str]:
    sockets = getattr(getattr(retriever, "__haystack_input__", None), "_sockets_dict", {})
    if not {*_QUERIES, *_EMBEDDINGS} & set(sockets):
        msg = (
            f"{owner}: `retriever` must be a component that takes `query`, `queries` or `query_embedding` and gives "
            f"`documents`, got {type(retriever).__name__}"
        )
        raise MCPConfigurationError(msg)
    needed = [name for name in _EMBEDDINGS if name in sockets and sockets[name].is_mandatory]
    if needed and text_embedder is None:
        kind = type(retriever).__name__
        msg = f"{owner}: {kind} takes `{needed[0]}`: pass a `text_embedder` and a `document_embedder`"
        raise MCPConfigurationError(msg)
    return set(sockets)


def _store_of(retriever: Any) -> Any:
    # Some retrievers put the words to another one.
    store = getattr(retriever, "document_store", None)
    inner = getattr(retriever, "retriever", None)
    return _store_of(inner) if store is None and inner is not None else store
