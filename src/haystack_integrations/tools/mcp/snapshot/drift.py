# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal

from haystack_integrations.tools.mcp.convert.invisible_text import escaped_json
from haystack_integrations.tools.mcp.reprs import short_repr

DriftKind = Literal[
    "added",
    "removed",
    "description",
    "schema_wider",
    "schema_narrower",
    "schema_changed",
    "output_schema",
    "annotations",
    "annotations_relaxed",
    "instructions",
]

_WORDS: Final[dict[str, str]] = {
    "added": "it is new",
    "removed": "it is gone",
    "description": "another text",
    "schema_wider": "it takes more than before",
    "schema_narrower": "it takes less than before",
    "schema_changed": "it takes something else than before",
    "output_schema": "its results are others",
    "annotations": "other annotations",
    "annotations_relaxed": "its annotations say that it is more harmless than before",
    "instructions": "the server's instructions are others",
}

# How many characters of a value and of a name are shown, and how many tools in one line.
_LONGEST_VALUE: Final = 300
_LONGEST_NAME: Final = 128
_MOST_TOOLS: Final = 10


@short_repr
@dataclass(frozen=True)
class MCPToolDrift:
    """
    One thing in which a server's tools differ from a snapshot.

    :param tool: The server's name of the tool; empty for what concerns the server.
    :param kind: What it is:

        * `"added"`, `"removed"`: the tool is new, or gone. A renamed tool is both.
        * `"description"`: a title or a description is another, of the tool or of a parameter.
        * `"schema_wider"`, `"schema_narrower"`, `"schema_changed"`: the tool takes more, less, or something else.
        * `"output_schema"`: its results have another schema.
        * `"annotations_relaxed"`: its annotations say that it is more harmless than before: that it only reads, or
          destroys nothing, may be repeated, or reaches nothing outside.
        * `"annotations"`: they are others, but not more harmless.
        * `"instructions"`: what the server says about the use of its tools is another text.
    :param path: Where in the definition, as a JSON pointer; empty for the whole.
    :param before: What the snapshot has there; None for nothing.
    :param after: What the server says now; None for nothing.
    """

    tool: str
    kind: DriftKind
    path: str = ""
    before: Any = None
    after: Any = None

    def to_dict(self) -> dict[str, Any]:
        """
        Describe the drift as JSON.

        :returns: The fields.
        """
        return {
            "tool": self.tool,
            "kind": self.kind,
            "path": self.path,
            "before": self.before,
            "after": self.after,
        }

    def __str__(self) -> str:
        """
        Describe the drift in one line, or in three with the values. Invisible characters are escaped.
        """
        what = f"tool {_name(self.tool)}: {_WORDS[self.kind]}" if self.tool else _WORDS[self.kind]
        where = f" ({self.path})" if self.path else ""
        if self.kind in ("added", "removed"):
            return f"{what}{where}"
        return f"{what}{where}\n  - {_shown(self.before)}\n  + {_shown(self.after)}"


def _name(tool: str) -> str:
    # On one line, and with invisible characters escaped.
    text = escaped_json(json.dumps(tool, ensure_ascii=False))[1:-1]
    return f"'{text if len(text) <= _LONGEST_NAME else f'{text[:_LONGEST_NAME]}…'}'"


def _shown(value: Any) -> str:
    if value is None:
        return "(nothing)"
    text = escaped_json(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _LONGEST_VALUE else f"{text[:_LONGEST_VALUE]}… ({len(text)} characters)"


@dataclass(frozen=True)
class MCPDriftReport:
    """
    How a server's tools differ from a snapshot. It is false if they do not.

    :param drifts: The differences, by tool.
    """

    drifts: tuple[MCPToolDrift, ...] = ()

    def __bool__(self) -> bool:
        """
        Tell whether anything is different.
        """
        return bool(self.drifts)

    def __iter__(self) -> Iterator[MCPToolDrift]:
        """
        Iterate over the differences.
        """
        return iter(self.drifts)

    def __len__(self) -> int:
        """
        Count the differences.
        """
        return len(self.drifts)

    @property
    def tools(self) -> list[str]:
        """
        The names of the tools that differ, sorted.
        """
        return sorted({drift.tool for drift in self.drifts if drift.tool})

    @property
    def kinds(self) -> list[DriftKind]:
        """
        What kinds of differences there are, sorted.
        """
        return sorted({drift.kind for drift in self.drifts})

    def of_tool(self, tool: str) -> MCPDriftReport:
        """
        Choose what concerns one tool.

        :param tool: The server's name of the tool.
        :returns: The report about it.
        """
        return MCPDriftReport(tuple(drift for drift in self.drifts if drift.tool == tool))

    def summary(self, *, names_of_new_tools: bool = True) -> str:
        """
        Name the tools and the kinds of differences in one line, without values.

        :param names_of_new_tools: Whether to name tools that are new. A server can write what it likes into a name.
        :returns: A clause such as `'add' (description), 'wipe' (added)`. Tools after the tenth are only counted.
        """
        kinds: dict[str, list[str]] = {}
        unnamed = 0
        for drift in self.drifts:
            if drift.kind == "added" and not names_of_new_tools:
                unnamed += 1
                continue
            known = kinds.setdefault(_name(drift.tool) if drift.tool else "the server", [])
            if drift.kind not in known:
                known.append(drift.kind)
        shown = [f"{tool} ({', '.join(known)})" for tool, known in [*kinds.items()][:_MOST_TOOLS]]
        if len(kinds) > _MOST_TOOLS:
            shown.append(f"and {len(kinds) - _MOST_TOOLS} more")
        if unnamed:
            shown.append(f"{unnamed} new {'tool' if unnamed == 1 else 'tools'}")
        return ", ".join(shown)

    def to_dict(self) -> dict[str, Any]:
        """
        Describe the report as JSON.

        :returns: A dictionary with `drifts`, a list.
        """
        return {"drifts": [drift.to_dict() for drift in self.drifts]}

    def __str__(self) -> str:
        """
        Describe all differences, with their values.
        """
        return "\n".join(map(str, self.drifts)) or "no drift"
