# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A pipeline as a tool of an MCP server (Haystack 2 and 3).

Without arguments, a client in this process calls it. With `--stdio`, it serves an MCP client such as Claude Desktop:

    python examples/serve_pipeline.py --stdio
"""

import asyncio
import sys

from fastmcp import Client
from haystack import Document, Pipeline
from haystack.components.builders import PromptBuilder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server, run_server

TEMPLATE = "{{ question }} {% for document in documents %}{{ document.content }}{% endfor %}"


def cities() -> Pipeline:
    store = InMemoryDocumentStore()
    store.write_documents([Document(content=f"{city} lies on the {river}.") for city, river in RIVERS.items()])
    pipeline = Pipeline(metadata={"description": "Answers questions about cities."})
    pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=1))
    pipeline.add_component("prompt", PromptBuilder(TEMPLATE, required_variables="*"))
    pipeline.connect("retriever.documents", "prompt.documents")
    return pipeline


RIVERS = {"Berlin": "Spree", "Paris": "Seine", "Vienna": "Danube"}

server = create_mcp_server(
    "cities",
    # The same pipeline is served twice: as an object, and from YAML.
    pipelines={"ask": cities(), "ask_as_stored": cities().dumps()},
    options={
        "ask": ServeOptions(
            # The arguments of clients, and the inputs that they set. Clients see neither the prompt's template nor the
            # filters.
            inputs={"question": ["retriever.query", "prompt.question"], "limit": "retriever.top_k"},
            outputs={"documents": "retriever.documents", "prompt": "prompt.prompt"},
            annotations={"readOnlyHint": True},
            timeout=30,
        )
    },
)


async def show(done: float, total: float | None, message: str | None) -> None:
    print(f"  {done:g} of {total:g}: {message}")


async def main() -> None:
    async with Client(server) as client:
        for tool in await client.list_tools():
            print(f"{tool.name}: {tool.description} It takes {', '.join(tool.input_schema['properties'])}.")
        result = await client.call_tool("ask", {"question": "Where is Vienna?"}, progress_handler=show)
        print(result.structured_content["prompt"])
        documents = [Document.from_dict(each) for each in result.structured_content["documents"]]
        print(f"From {len(documents)} document: {documents[0].content}")


if __name__ == "__main__":
    if "--stdio" in sys.argv:
        run_server(server)
    else:
        asyncio.run(main())
