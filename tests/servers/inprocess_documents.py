# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server with a tool that takes Documents as JSON, importable as `tests.servers.inprocess_documents:server`.
"""

from typing import Any

from mcp.server import MCPServer

server: MCPServer[Any] = MCPServer("documents")


@server.tool(structured_output=False)
def count_words(documents: list[dict[str, Any]]) -> list[str]:
    """Count the words of each document."""
    return [f"{len(document['content'].split())} words: {document['content']}" for document in documents]
