# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A document store as an MCP server (Haystack 2 and 3): list, read by id, search by filter.

Without arguments, a client in this process reads it. With `--stdio`, it serves an MCP client such as Claude Desktop:

    python examples/serve_documents.py --stdio
"""

import asyncio
import json
import sys
from urllib.parse import quote

from fastmcp import Client
from haystack import Document
from haystack.dataclasses import ByteStream
from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server, run_server

store = InMemoryDocumentStore()
store.write_documents(
    [
        Document(id="oolong", content="Oolong is half fermented.", meta={"kind": "tea", "public": True}),
        Document(id="sencha", content="Sencha is green.", meta={"kind": "tea", "public": True}),
        Document(
            id="leaf", blob=ByteStream(b"GIF89a", mime_type="image/gif"), meta={"kind": "picture", "public": True}
        ),
        Document(id="recipe", content="A secret blend.", meta={"kind": "tea", "public": False}),
    ]
)

server = create_mcp_server(
    "tea library",
    document_stores={"tea": store},
    # Clients neither see nor set this filter: only public documents are served.
    options={
        "tea": ServeOptions(
            description="All about tea.",
            bound={"filters": {"field": "meta.public", "operator": "==", "value": True}},
        )
    },
)


async def main() -> None:
    async with Client(server) as client:
        for resource in await client.list_resources():
            print(f"{resource.uri} ({resource.mime_type})")
        [text] = await client.read_resource("documents://tea/oolong")
        print(text.text, text.meta["haystack"]["meta"])
        [picture] = await client.read_resource("documents://tea/leaf")
        print(picture.mime_type, picture.blob)
        filters = {"field": "meta.kind", "operator": "==", "value": "tea"}
        [found] = await client.read_resource(f"documents://tea?filters={quote(json.dumps(filters))}&limit=1")
        answer = json.loads(found.text)
        print(f"{answer['count']} found:", [document["id"] for document in answer["documents"]])


if __name__ == "__main__":
    if "--stdio" in sys.argv:
        run_server(server)
    else:
        asyncio.run(main())
