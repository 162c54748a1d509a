# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Pipelines without an Agent: resources become Documents, a prompt becomes messages, tools are called in a loop.

The server offers notes as resources, a prompt, and a tool whose results link to notes; the model follows the link.
"""

from haystack import Pipeline
from haystack.components.joiners import BranchJoiner
from haystack.components.preprocessors import DocumentSplitter
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.document_stores.types import DuplicatePolicy
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.components.builders.mcp import MCPPromptBuilder
from haystack_integrations.components.fetchers.mcp import MCPResourceFetcher
from haystack_integrations.components.tools.mcp import MCPToolCaller
from haystack_integrations.tools.mcp import InProcessServerInfo, MCPResourceToolset, MCPToolset

NOTES = InProcessServerInfo("servers.notes:server")


def index(store: InMemoryDocumentStore) -> Pipeline:
    """
    Make a pipeline that splits all notes and writes them to a document store.

    :param store: The document store.
    :returns: The pipeline.
    """
    pipeline = Pipeline()
    pipeline.add_component("fetcher", MCPResourceFetcher(NOTES, prefix="notes://all/"))
    pipeline.add_component("splitter", DocumentSplitter(split_by="word", split_length=10))
    pipeline.add_component("writer", DocumentWriter(store, policy=DuplicatePolicy.OVERWRITE))
    pipeline.connect("fetcher.documents", "splitter.documents")
    pipeline.connect("splitter.documents", "writer.documents")
    return pipeline


def conversation() -> Pipeline:
    """
    Make a pipeline that starts with a prompt of the server, and in which a model calls tools until it can answer.

    :returns: The pipeline.
    """
    tools = [MCPToolset(NOTES), MCPResourceToolset(NOTES, uris=["notes://*"])]
    generator = chat_generator(
        [ToolCall("find", {"word": "roses"})], [ToolCall("read_resource", {"uri": "notes://all/garden"})]
    )
    pipeline = Pipeline()
    pipeline.add_component("prompt", MCPPromptBuilder(NOTES, "summarize", variables=["topic"]))
    pipeline.add_component("turn", BranchJoiner(list[ChatMessage]))
    pipeline.add_component("llm", generator)
    pipeline.add_component("caller", MCPToolCaller(tools))
    pipeline.connect("prompt.prompt", "turn")
    pipeline.connect("turn", "llm.messages")
    pipeline.connect("turn", "caller.history")
    pipeline.connect("llm.replies", "caller.messages")
    pipeline.connect("caller.messages", "turn")
    return pipeline


def main() -> None:
    store = InMemoryDocumentStore()
    indexing = index(store)
    for _ in range(2):  # the second time overwrites what the first time wrote
        written = indexing.run({})["writer"]["documents_written"]
        print(f"Written: {written}, in the store: {store.count_documents()}")
    print(sorted({document.meta["uri"] for document in store.filter_documents()}))

    talking = conversation()
    caller = talking.get_component("caller")
    inputs = {"prompt": {"topic": "garden"}, "llm": {"tools": caller.tools}}
    result = talking.run(inputs, include_outputs_from={"turn"})
    print_conversation([*result["turn"]["value"], *result["caller"]["replies"]])

    for component in (indexing.get_component("fetcher"), talking.get_component("prompt"), caller):
        component.close()


if __name__ == "__main__":
    main()
