# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from html import escape
from typing import TYPE_CHECKING, Any, Final

from haystack.dataclasses import ImageContent, TextContent

from haystack_integrations.tools.mcp.convert.results import ContentPart, result_parts, result_text

if TYPE_CHECKING:
    import mcp_types as types

# Of a longer text, the rest is left out where it is only shown.
_LONGEST_IN_REPR: Final = 2000
_LONGEST_IN_NOTEBOOK: Final = 20_000
_IMAGE: Final = re.compile(r"image/[\w.+-]+")
_BASE64: Final = re.compile(r"[A-Za-z0-9+/=_-]+")


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

    def __repr__(self) -> str:
        """
        Show the content once, shortened, as it is in `text`, in `structured` or in `content`.
        """
        shown = {}
        if any(not isinstance(part, TextContent) for part in self.content):
            shown["content"] = f"[{', '.join(map(_described, self.content))}]"
        elif self.text:
            shown["text"] = _short(repr(self.text))
        if self.structured is not None and not self._repeats_structured:
            shown["structured"] = _short(repr(self.structured))
        return f"{type(self).__name__}({', '.join(f'{name}={value}' for name, value in shown.items())})"

    def _repr_html_(self) -> str:
        # Blocks in the order of the server, images as images.
        blocks = [_html(part) for part in self.content]
        if self.structured is not None and not self._repeats_structured:
            blocks.append(_html_text(json.dumps(self.structured, indent=2, ensure_ascii=False)))
        return "".join(blocks) or "<em>no content</em>"

    @property
    def _repeats_structured(self) -> bool:
        # Servers send structured content as text, too: as JSON, or what it wraps.
        is_wrapped = isinstance(self.structured, dict) and self.structured.keys() == {"result"}
        wrapped = self.structured["result"] if is_wrapped else None
        if self.text == wrapped:
            return True
        try:
            parsed = json.loads(self.text)
        except (ValueError, RecursionError):
            return False
        return parsed == self.structured or (wrapped is not None and parsed == wrapped)


def _short(text: str, most: int = _LONGEST_IN_REPR) -> str:
    return text if len(text) <= most else f"{text[:most]}… ({len(text) - most} more characters)"


def _described(part: ContentPart) -> str:
    if isinstance(part, TextContent):
        return _short(repr(part.text))
    data = part.base64_image if isinstance(part, ImageContent) else part.base64_data
    return f"<{part.mime_type or type(part).__name__}, {len(data) * 3 // 4} bytes>"


def _html(part: ContentPart) -> str:
    if isinstance(part, TextContent):
        return _html_text(part.text)
    data, kind = getattr(part, "base64_image", ""), part.mime_type or ""
    if isinstance(part, ImageContent) and _IMAGE.fullmatch(kind) and _BASE64.fullmatch(data):
        return f'<img src="data:{kind};base64,{data}">'
    return _html_text(_described(part))


def _html_text(text: str) -> str:
    return f"<pre>{escape(_short(text, _LONGEST_IN_NOTEBOOK))}</pre>"
