# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tells what differs between two definitions of a tool.
"""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, Final

from haystack_integrations.tools.mcp.shaping import effective_hints
from haystack_integrations.tools.mcp.snapshot.drift import DriftKind, MCPToolDrift
from haystack_integrations.tools.mcp.snapshot.pinned_tool import PinnedTool
from haystack_integrations.tools.mcp.snapshot.schema_changes import schema_changes

_HINTS: Final = {
    "read_only_hint": "readOnlyHint",
    "destructive_hint": "destructiveHint",
    "idempotent_hint": "idempotentHint",
    "open_world_hint": "openWorldHint",
}
# What each hint says of a tool that calls for less caution.
_HARMLESS: Final = {"readOnlyHint": True, "destructiveHint": False, "idempotentHint": True, "openWorldHint": False}
_SCHEMA_KINDS: Final[dict[str, DriftKind]] = {
    "text": "description",
    "wider": "schema_wider",
    "narrower": "schema_narrower",
    "changed": "schema_changed",
}


def tool_drifts(before: PinnedTool | None, after: PinnedTool | None) -> Iterator[MCPToolDrift]:
    """
    Tell what is different with one tool.

    :param before: What the snapshot has; None for nothing.
    :param after: What the server has; None for nothing.
    :returns: The differences.
    """
    if before is None or after is None:
        present = before or after
        if present is not None:
            kind: DriftKind = "removed" if after is None else "added"
            values = [tool.definition if tool is not None else None for tool in (before, after)]
            yield MCPToolDrift(present.name, kind, "", *values)
        return
    if before.hash == after.hash:
        return
    name, old, new = before.name, before.definition, after.definition
    for field in ("title", "description"):
        if old.get(field) != new.get(field):
            yield MCPToolDrift(name, "description", f"/{field}", old.get(field), new.get(field))
    for field in ("inputSchema", "outputSchema"):
        for change in schema_changes(old.get(field), new.get(field), f"/{field}"):
            kind = _SCHEMA_KINDS[change.direction]
            if field == "outputSchema" and change.direction != "text":
                kind = "output_schema"
            yield MCPToolDrift(name, kind, change.path, change.before, change.after)
    yield from _annotation_drifts(name, old.get("annotations") or {}, new.get("annotations") or {})


def _annotation_drifts(name: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[MCPToolDrift]:
    before, now = _meaning(old), _meaning(new)
    for key in sorted({*old, *new, *_HARMLESS}):
        kind: DriftKind | None = "annotations" if old.get(key) != new.get(key) else None
        if kind and key == "title":
            kind = "description"
        elif before.get(key) != now.get(key) and now.get(key) is _HARMLESS.get(key):
            kind = "annotations_relaxed"
        if kind:
            yield MCPToolDrift(name, kind, f"/annotations/{key}", old.get(key), new.get(key))


def _meaning(annotations: dict[str, Any]) -> dict[str, bool]:
    hints: Any = SimpleNamespace(**{name: annotations.get(key) for name, key in _HINTS.items()})
    return {_HINTS[name]: value for name, value in effective_hints(hints).items()}
