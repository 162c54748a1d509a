# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from haystack_integrations.tools.mcp.convert.server_texts import escaped_json
from haystack_integrations.tools.mcp.convert.tool_schemas import SCHEMAS_BY_NAME, TEXTS
from haystack_integrations.tools.mcp.options import effective_hints
from haystack_integrations.tools.mcp.parameters import short_repr

DriftKind = Literal[
    "added",
    "removed",
    "description",
    "input_schema",
    "output_schema",
    "annotations",
    "annotations_relaxed",
    "instructions",
]

Definition = dict[str, Any]

_WORDS: Final[dict[str, str]] = {
    "added": "it is new",
    "removed": "it is gone",
    "description": "another text",
    "input_schema": "other parameters",
    "output_schema": "another schema of its results",
    "annotations": "other annotations",
    "annotations_relaxed": "its annotations say that it is more harmless than before",
    "instructions": "the server's instructions are others",
}

# What each hint says of a tool that calls for less caution.
_HARMLESS: Final = {
    "readOnlyHint": ("read_only_hint", True),
    "destructiveHint": ("destructive_hint", False),
    "idempotentHint": ("idempotent_hint", True),
    "openWorldHint": ("open_world_hint", False),
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
        * `"input_schema"`, `"output_schema"`: its parameters or its results have another schema.
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
        return asdict(self)

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
        named = [drift for drift in self.drifts if names_of_new_tools or drift.kind != "added"]
        kinds: dict[str, dict[str, None]] = {}  # the kinds of each tool, in order
        for drift in named:
            kinds.setdefault(_name(drift.tool) if drift.tool else "the server", {})[drift.kind] = None
        shown = [f"{tool} ({', '.join(known)})" for tool, known in kinds.items()][:_MOST_TOOLS]
        if len(kinds) > _MOST_TOOLS:
            shown.append(f"and {len(kinds) - _MOST_TOOLS} more")
        if unnamed := len(self.drifts) - len(named):
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


def drift_report(
    before: Mapping[str, Definition],
    after: Mapping[str, Definition],
    instructions_before: str | None,
    instructions_after: str | None,
) -> MCPDriftReport:
    """
    Compare tools and instructions.

    :param before: The canonical definitions of the snapshot by the names of their tools.
    :param after: Those that the server has now.
    :param instructions_before: The instructions of the snapshot.
    :param instructions_after: Those of the server. They are compared if neither is None.
    :returns: The differences.
    """
    drifts: list[MCPToolDrift] = []
    for name in sorted(before.keys() | after.keys()):
        if name not in before:
            drifts.append(MCPToolDrift(name, "added", after=after[name]))
        elif name not in after:
            drifts.append(MCPToolDrift(name, "removed", before=before[name]))
        else:
            drifts += _tool_drifts(name, before[name], after[name])
    if None not in (instructions_before, instructions_after) and instructions_before != instructions_after:
        drifts.append(MCPToolDrift("", "instructions", before=instructions_before, after=instructions_after))
    return MCPDriftReport(tuple(drifts))


def _tool_drifts(name: str, before: Definition, after: Definition) -> Iterator[MCPToolDrift]:
    kinds: dict[str, DriftKind] = {"inputSchema": "input_schema", "outputSchema": "output_schema"}
    old, new = ({key: value for key, value in each.items() if key != "annotations"} for each in (before, after))
    for path, is_text, old_value, new_value in _differences(old, new):
        kind = "description" if is_text else kinds[path.split("/")[1]]
        yield MCPToolDrift(name, kind, path, old_value, new_value)
    yield from _annotation_drifts(name, before.get("annotations", {}), after.get("annotations", {}))


def _differences(
    before: Definition, after: Definition, path: str = "", *, are_names: bool = False
) -> Iterator[tuple[str, bool, Any, Any]]:
    # With a JSON pointer, and whether it is a text for readers. `are_names`: the keys are names of schemas, and no
    # keywords.
    for key in sorted(before.keys() | after.keys()):
        old, new, place = before.get(key), after.get(key), f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, place, are_names=not are_names and key in SCHEMAS_BY_NAME)
        elif key not in before or key not in after or json.dumps(old) != json.dumps(new):  # for Python, True is 1
            yield place, not are_names and key in TEXTS, old, new


def _annotation_drifts(name: str, old: Definition, new: Definition) -> Iterator[MCPToolDrift]:
    from mcp_types import ToolAnnotations  # noqa: PLC0415 (nothing needs it before the first call)

    before, now = (effective_hints(ToolAnnotations.model_validate(each)) for each in (old, new))
    relaxed = {
        key for key, (hint, harmless) in _HARMLESS.items() if before[hint] != now[hint] and now[hint] is harmless
    }
    for key in sorted(old.keys() | new.keys() | relaxed):
        if key in relaxed:
            yield MCPToolDrift(name, "annotations_relaxed", f"/annotations/{key}", old.get(key), new.get(key))
        elif old.get(key) != new.get(key):
            kind: DriftKind = "description" if key == "title" else "annotations"
            yield MCPToolDrift(name, kind, f"/annotations/{key}", old.get(key), new.get(key))
