# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haystack_integrations.tools.mcp.convert.results import ContentPart, result_parts, result_text

if TYPE_CHECKING:
    from mcp import types


@dataclass(frozen=True)
class MCPToolResult:
    """
    The result of a tool call, for a program. `MCPTool.call` gives one.

    :param text: The text of all text blocks, joined by line breaks; empty if there are none.
    :param structured: The structured content, parsed; None if the tool gives none.
    :param content: All content blocks as Haystack's: `TextContent`, `ImageContent`, and `FileContent` where the
        installed Haystack supports it in tool messages. A short note in text replaces what cannot be one.
    :param meta: What the server says beside the result, for programs only (`_meta`); None if it says nothing.
    :param raw: The result as the MCP SDK has it.
    """

    text: str
    structured: Any
    content: list[ContentPart]
    meta: dict[str, Any] | None
    raw: types.CallToolResult

    @property
    def value(self) -> Any:
        """
        The result as one value: the structured content if there is any, else the text.

        A server whose tool gives a number, a text or a list has to wrap it, as in `{"result": 8}`. Then this is the
        bare value, 8; so it is of an object whose only member is called `result`.
        """
        if self.structured is None:
            return self.text
        if isinstance(self.structured, dict) and self.structured.keys() == {"result"}:
            return self.structured["result"]
        return self.structured

    @classmethod
    def from_result(cls, result: types.CallToolResult) -> MCPToolResult:
        """
        Convert a result of the MCP SDK.

        :param result: The result.
        :returns: The same for a program.
        """
        # One block after the other, so that other threads run in between.
        envelope = {"content": [block.model_dump(mode="json", by_alias=True) for block in result.content]}
        return cls(
            text=result_text(envelope),
            structured=result.structured_content,
            content=result_parts(envelope),
            meta=result.meta,
            raw=result,
        )
