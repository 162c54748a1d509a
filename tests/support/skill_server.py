# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server of skills in this process.
"""

import base64
import hashlib
from typing import Any

from mcp import MCPError, types
from mcp.server.lowlevel import Server

from haystack_integrations.tools.mcp import InProcessServerInfo

FILES: dict[str, str | bytes] = {
    "skill://tidy/SKILL.md": "---\nname: tidy\ndescription: Tidy up\n---\nFirst the desk.\n",
    "skill://tidy/desk.md": "Throw it all away.",
    "skill://acme/cook/SKILL.md": "---\nname: cook\ndescription: Cook\n---\nBoil it.\n",
}
DESCRIPTIONS = {"tidy": "Tidy up", "cook": "Cook"}
MIME_TYPES = {"skill://acme/cook/photo": "image/png"}


def _bytes(content: str | bytes) -> bytes:
    return content.encode() if isinstance(content, str) else content


def _result(contents: types.TextResourceContents | types.BlobResourceContents) -> types.ReadResourceResult:
    return types.ReadResourceResult(contents=[contents], ttl_ms=600_000)


class SkillServer:
    """
    A server of skills that records reads. The first page of its list has one skill, and one invalid entry.
    """

    def __init__(self, files: dict[str, str | bytes] = FILES, *, has_extension: bool = True) -> None:
        self.files = dict(files)
        self.requests: list[str] = []
        server: Server[Any] = Server("skills", on_read_resource=self._read)
        server.add_request_handler("skills/list", types.PaginatedRequestParams, self._list)
        server.add_request_handler("skills/get", types.ReadResourceRequestParams, self._get)
        if has_extension:
            server.extensions["io.modelcontextprotocol/skills"] = {}
        self.server = server
        self.info = InProcessServerInfo(server)

    def entry(self, uri: str) -> dict[str, Any]:
        folder = uri.removesuffix("SKILL.md")
        name = folder.rstrip("/").rpartition("/")[2]
        resources = [
            {"uri": path, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}
            for path, data in ((path, _bytes(content)) for path, content in self.files.items())
            if path.startswith(folder)
        ]
        frontmatter = {"name": name, "description": DESCRIPTIONS[name]}
        return {"uri": uri, "frontmatter": frontmatter, "resources": resources}

    async def _list(self, _context: Any, params: Any) -> dict[str, Any]:
        self.requests.append("skills/list")
        first, *others = [self.entry(uri) for uri in self.files if uri.endswith("/SKILL.md")]
        if params is None or params.cursor is None:
            return {"skills": [first, {"uri": "skill://broken/SKILL.md"}], "nextCursor": "2"}
        return {"skills": others}

    async def _get(self, _context: Any, params: Any) -> dict[str, Any]:
        if params.uri not in self.files:
            raise MCPError(types.INVALID_PARAMS, "no such skill")
        return {"skill": self.entry(params.uri)}

    async def _read(self, _context: Any, params: Any) -> types.ReadResourceResult:
        self.requests.append(params.uri)
        content = self.files[params.uri]
        if isinstance(content, str):
            return _result(types.TextResourceContents(uri=params.uri, text=content))
        blob = base64.b64encode(content).decode()
        return _result(types.BlobResourceContents(uri=params.uri, blob=blob, mime_type=MIME_TYPES.get(params.uri)))


# Reachable by import path.
server = SkillServer().server
