# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Snapshots of reviewed tools: how the server's current tools differ, and what happens then.

.. code-block:: text

    a session is opened, or the server         ──> its tools are compared with the snapshot, once for each listing
    reports that its tools changed                      │
                                                        ├ no drift: the tools of the snapshot are used
    "error", and relaxed annotations           <────────┤ MCPDriftError at warm-up, and no call is sent
    "quarantine"                               <────────┤ tools that drifted are hidden and cannot be called
    "warn"                                     <────────┘ the server's tools are used
"""

from __future__ import annotations

import hashlib
import json
import os
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Protocol, Self

from haystack import logging
from pydantic import BeforeValidator, InstanceOf
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.convert.server_texts import escaped_text
from haystack_integrations.tools.mcp.convert.tool_schemas import SCHEMAS_BY_NAME, TEXT_KEYWORDS, map_keywords
from haystack_integrations.tools.mcp.errors import MCPDriftError
from haystack_integrations.tools.mcp.options import effective_hints, unusable_by_model
from haystack_integrations.tools.mcp.parameters import CHECKED, Options, StoredAs, Text, explains_options, short_repr
from haystack_integrations.tools.mcp.request_context import current_identity

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.connection import MCPConnection
    from haystack_integrations.tools.mcp.connection.requests import ToolListing

__all__ = ["MCPDriftReport", "MCPToolDrift", "MCPToolSnapshot", "SnapshotCheck"]

logger: logging.PatchedLogger = logging.getLogger(__name__)

_VERSION: Final = 1
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
OnDrift = Literal["error", "quarantine", "warn"]

Definition = dict[str, Any]

_KIND_DESCRIPTIONS: Final[dict[str, str]] = {
    "added": "it is new",
    "removed": "it is gone",
    "description": "its text changed",
    "input_schema": "its parameters changed",
    "output_schema": "the schema of its results changed",
    "annotations": "its annotations changed",
    "annotations_relaxed": "its annotations now claim that it is less harmful",
    "instructions": "the server's instructions changed",
}

_CONSEQUENCES: Final[dict[OnDrift, str]] = {
    "quarantine": "those that differ are not called, and are hidden unless they are gone",
    "warn": "the server's tools are used",
}

# Fields of a definition that no model sees, so they are not part of a snapshot.
_EXTRAS: Final = ("meta", "icons", "execution")

# The value of each hint that calls for less caution.
_HARMLESS: Final = {
    "readOnlyHint": ("read_only_hint", True),
    "destructiveHint": ("destructive_hint", False),
    "idempotentHint": ("idempotent_hint", True),
    "openWorldHint": ("open_world_hint", False),
}

# The maximum length of a value and of a name in messages, in characters, and the maximum number of tools in one line.
_MAX_VALUE_LENGTH: Final = 300
_MAX_NAME_LENGTH: Final = 128
_MAX_TOOLS_PER_LINE: Final = 10

# How many reports are kept. Each session of an identity has its own listing.
_MAX_REPORTS: Final = 64


@short_repr
@dataclass(frozen=True)
class MCPToolDrift:
    """
    One difference between a server's tools and a snapshot.

    :param tool: The server's name of the tool; empty if the difference concerns the server.
    :param kind: The kind of difference:

        * `"added"`, `"removed"`: the tool is new, or gone. A renamed tool is both.
        * `"description"`: the title or description of the tool or of a parameter changed.
        * `"input_schema"`, `"output_schema"`: the schema of its parameters or its results changed.
        * `"annotations_relaxed"`: its annotations now claim that it is less harmful: that it only reads, destroys
          nothing, may be repeated, or reaches nothing outside.
        * `"annotations"`: its annotations changed, but do not claim that it is less harmful.
        * `"instructions"`: the server's instructions for using its tools changed.
    :param path: The place in the definition, as a JSON pointer; empty for the whole definition.
    :param before: The value in the snapshot; None if there is none.
    :param after: The server's current value; None if there is none.
    """

    tool: str
    kind: DriftKind
    path: str = ""
    before: Any = None
    after: Any = None

    def __str__(self) -> str:
        """
        Describe the drift in one line, or in three with the values. Invisible characters are escaped.
        """
        difference = (
            f"tool {_quoted_name(self.tool)}: {_KIND_DESCRIPTIONS[self.kind]}"
            if self.tool
            else _KIND_DESCRIPTIONS[self.kind]
        )
        where = f" ({self.path})" if self.path else ""
        if self.kind in ("added", "removed"):
            return f"{difference}{where}"
        return f"{difference}{where}\n  - {_shown_value(self.before)}\n  + {_shown_value(self.after)}"


def _quoted_name(tool: str) -> str:
    # The name must stay on one line, so invisible characters are escaped.
    text = escaped_text(json.dumps(tool, ensure_ascii=False))[1:-1]
    return f"'{text if len(text) <= _MAX_NAME_LENGTH else f'{text[:_MAX_NAME_LENGTH]}…'}'"


def _shown_value(value: Any) -> str:
    if value is None:
        return "(nothing)"
    text = escaped_text(json.dumps(value, ensure_ascii=False))
    return text if len(text) <= _MAX_VALUE_LENGTH else f"{text[:_MAX_VALUE_LENGTH]}… ({len(text)} characters)"


@dataclass(frozen=True)
class MCPDriftReport:
    """
    The differences between a server's tools and a snapshot. It is falsy if there are none.

    :param drifts: The differences, sorted by tool.
    """

    drifts: tuple[MCPToolDrift, ...] = ()

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
        return sorted({drift.tool for drift in self if drift.tool})

    @property
    def kinds(self) -> list[DriftKind]:
        """
        The kinds of differences, sorted.
        """
        return sorted({drift.kind for drift in self})

    def of_tool(self, tool: str) -> MCPDriftReport:
        """
        Select the differences of one tool.

        :param tool: The server's name of the tool.
        :returns: The report about this tool.
        """
        return MCPDriftReport(tuple(drift for drift in self if drift.tool == tool))

    def summary(self, *, names_of_new_tools: bool = True) -> str:
        """
        Summarize the tools and the kinds of differences in one line, without values.

        :param names_of_new_tools: Whether to name new tools. A server can write anything into a name.
        :returns: A clause such as `'add' (description), 'wipe' (added)`. Tools after the tenth are only counted.
        """
        named = [drift for drift in self if names_of_new_tools or drift.kind != "added"]
        kinds: dict[str, dict[str, None]] = {}  # the kinds of each tool, in order
        for drift in named:
            kinds.setdefault(_quoted_name(drift.tool) if drift.tool else "the server", {})[drift.kind] = None
        shown = [f"{tool} ({', '.join(known)})" for tool, known in kinds.items()][:_MAX_TOOLS_PER_LINE]
        if len(kinds) > _MAX_TOOLS_PER_LINE:
            shown.append(f"and {len(kinds) - _MAX_TOOLS_PER_LINE} more")
        if unnamed := len(self) - len(named):
            shown.append(f"{unnamed} new {'tool' if unnamed == 1 else 'tools'}")
        return ", ".join(shown)

    def __str__(self) -> str:
        """
        Describe all differences, with their values.
        """
        return "\n".join(map(str, self)) or "no drift"


class ToolSource(Protocol):
    """
    The source of a snapshot: an MCPToolset or an MCPTool.
    """

    @property
    def connection(self) -> Any:
        """The MCPConnection to the server."""

    def _choice(self) -> Any:
        """Return the ToolChoice that selects its tools among the server's."""


@dataclass(frozen=True)
class PinnedTool:
    """
    One tool of a snapshot.

    :param definition: The canonical form of its definition: the fields `name`, `title`, `description`, `inputSchema`,
        `outputSchema` and `annotations` of the protocol, without empty values, and with the names in `required` and
        `type` sorted. Two definitions are the same if their canonical forms have the same hash. The parameters keep
        the server's order, in which models see them, except in YAML, whose keys Haystack sorts.
    """

    definition: dict[str, Any]

    @property
    def name(self) -> str:
        """
        The server's name of the tool.
        """
        name: str = self.definition["name"]
        return name

    @property
    def hash(self) -> str:
        """
        The hash of the definition: `sha256:` and 64 hexadecimal digits, of its compact JSON text with sorted keys.
        """
        text = json.dumps(self.definition, sort_keys=True, separators=(",", ":"))
        return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"

    @classmethod
    def of(cls, tool: types.Tool) -> PinnedTool:
        """
        Pin a tool.

        :param tool: The server's definition.
        :returns: Its canonical form, which shares no objects with it.
        """
        definition = {
            "name": tool.name,
            "title": tool.title,
            "description": tool.description,
            "inputSchema": map_keywords(tool.input_schema, _with_sorted_lists),
            "outputSchema": map_keywords(tool.output_schema, _with_sorted_lists),
            "annotations": tool.annotations and tool.annotations.model_dump(by_alias=True, exclude_none=True),
        }
        return cls(deepcopy({key: value for key, value in definition.items() if value not in (None, "", {})}))

    def as_tool(self) -> types.Tool:
        """
        Return the definition as a new `Tool` of the MCP SDK.
        """
        # Importing this takes a quarter of the time of `mcp`, which is not needed before the first call.
        import mcp_types  # noqa: PLC0415

        return mcp_types.Tool.model_validate(deepcopy(self.definition))

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the tool: `hash` and `definition`.
        """
        return {"hash": self.hash, "definition": deepcopy(self.definition)}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> PinnedTool:
        """
        Deserialize a tool.

        :param data: The result of `to_dict`.
        :returns: The tool.
        :raises ValueError: If the hash does not match the definition.
        """
        tool = cls(deepcopy(data["definition"]))
        if tool.hash != data["hash"]:
            msg = (
                f"the definition of tool '{tool.name}' was changed after it was captured: its hash differs. Review the "
                "server's current definition, and capture it again"
            )
            raise ValueError(msg)
        return tool


def _with_sorted_lists(keyword: str, value: Any) -> Any:
    # Sort the lists whose order has no meaning in JSON Schema.
    is_sorted = keyword in ("required", "type") and isinstance(value, list)
    return sorted(set(value)) if is_sorted and all(isinstance(each, str) for each in value) else value


@dataclass(frozen=True)
class MCPToolSnapshot:
    """
    The tools of a server as they were when they were reviewed.

    With a snapshot, a toolset shows its tools before it is connected, and detects when the server's tools differ. A
    snapshot contains names, titles, descriptions, schemas and annotations in a canonical form, which depends neither
    on the revision of the protocol nor on the order in which the server lists the tools.

    ### Usage example

    ```python
    from haystack_integrations.tools.mcp import MCPToolset, MCPToolSnapshot, StdioServerInfo

    time_server = StdioServerInfo(command="uvx", args=["mcp-server-time", "--local-timezone=Europe/Berlin"])
    with MCPToolset(time_server) as toolset:
        MCPToolSnapshot.capture(toolset).save("time.tools.json")

    toolset = MCPToolset(time_server, snapshot="time.tools.json")
    print([tool.name for tool in toolset])  # nothing is connected for this
    ```

    :param tools: The tools, sorted by name.
    :param server_name: The name that the server gives itself. Not compared.
    :param server_version: The version of the server. Not compared.
    :param instructions: The server's instructions for using its tools; empty if there are none, None if they are not
        part of the snapshot.
    """

    tools: tuple[PinnedTool, ...]
    server_name: str | None = None
    server_version: str | None = None
    instructions: str | None = None

    @classmethod
    def capture(cls, source: MCPConnection | ToolSource, *, instructions: bool = True) -> Self:
        """
        Capture the current tools of a server. Connects to the server if necessary, and keeps the connection open.

        :param source: An MCPToolset, whose selection of tools applies, an MCPTool, or an MCPConnection.
        :param instructions: Whether to include the server's instructions. False for a server whose instructions vary,
            e.g. with the date.
        :returns: The snapshot.
        :raises MCPConnectionError: If the server cannot be reached.
        :raises TypeError: If `source` is anything else.
        """
        connection = _connection_of(source)
        return cls._of(source, connection, connection.list_tools(), instructions=instructions)

    @classmethod
    async def capture_async(cls, source: MCPConnection | ToolSource, *, instructions: bool = True) -> Self:
        """
        Capture the tools of a server like `capture`, without blocking the event loop.
        """
        connection = _connection_of(source)
        return cls._of(source, connection, await connection.list_tools_async(), instructions=instructions)

    @classmethod
    def _of(cls, source: Any, connection: MCPConnection, tools: list[types.Tool], *, instructions: bool) -> Self:
        status = connection.status()
        return cls.from_tools(
            tools if source is connection else filter(source._choice().selects, tools),
            server_name=status.server_name,
            server_version=status.server_version,
            instructions=(connection.instructions or "") if instructions else None,
        )

    @classmethod
    def from_tools(
        cls,
        definitions: Iterable[types.Tool],
        *,
        server_name: str | None = None,
        server_version: str | None = None,
        instructions: str | None = None,
    ) -> Self:
        """
        Create a snapshot from definitions, e.g. the result of `MCPConnection.list_tools`.

        :param definitions: A server's definitions of its tools. If several have the same name, the first is used.
            Tools that are not for models are left out.
        :param server_name: The name that the server gives itself.
        :param server_version: The version of the server.
        :param instructions: The server's instructions; None to leave them out.
        :returns: The snapshot.
        """
        pinned: dict[str, PinnedTool] = {}
        for definition in definitions:
            if definition.name not in pinned and unusable_by_model(definition) is None:
                pinned[definition.name] = PinnedTool.of(definition)
        return cls(
            tuple(pinned[name] for name in sorted(pinned)),
            server_name=server_name,
            server_version=server_version,
            instructions=instructions,
        )

    @property
    def tool_names(self) -> list[str]:
        """
        The server's names of the tools, sorted.
        """
        return [tool.name for tool in self.tools]

    @property
    def hashes(self) -> dict[str, str]:
        """
        The hashes of the tools' definitions by tool name: `sha256:` and 64 hexadecimal digits.
        """
        return {tool.name: tool.hash for tool in self.tools}

    def compare(self, current: MCPToolSnapshot | MCPConnection | ToolSource) -> MCPDriftReport:
        """
        Compare this snapshot with current tools.

        :param current: Another snapshot, or an MCPToolset, MCPTool or MCPConnection, whose server is asked for its
            tools. Instructions are compared if both sides have them.
        :returns: The differences; falsy if there are none.
        :raises MCPConnectionError: If the server cannot be reached.
        :raises TypeError: If `current` is anything else, such as a path.
        """
        if not isinstance(current, MCPToolSnapshot):
            current = MCPToolSnapshot.capture(current)
        before = {tool.name: tool for tool in self.tools}
        after = {tool.name: tool for tool in current.tools}
        return _drift_report(before, after, self.instructions, current.instructions)

    def save(self, path: str | os.PathLike[str]) -> None:
        """
        Write the snapshot to a JSON file, with invisible characters escaped. An existing file is replaced.

        :param path: Path of the file.
        :raises OSError: If it cannot be written. An existing file is kept then.
        """
        target = Path(path)
        text = escaped_text(json.dumps(self.to_dict(), indent=2, ensure_ascii=False)) + "\n"
        written = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.new")  # others may write it at the same time
        try:
            written.write_text(text, encoding="utf-8", newline="\n")
            written.replace(target)
        except OSError as error:
            written.unlink(missing_ok=True)
            error.filename = str(target)
            raise

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """
        Read a snapshot from a file.

        :param path: Path of the file; a relative path starts at the current directory.
        :returns: The snapshot.
        :raises FileNotFoundError: If there is no such file.
        :raises ValueError: If it is not a snapshot, or was changed by hand.
        """
        file = Path(path).absolute()
        if not file.is_file():
            msg = f"There is no snapshot file {file}. Write one with MCPToolSnapshot.capture(toolset).save(path)."
            raise FileNotFoundError(msg)
        try:
            return cls.from_dict(json.loads(file.read_text(encoding="utf-8")))
        except ValueError as error:
            msg = f"The snapshot file {file} cannot be used: {error}"
            raise ValueError(msg) from None

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the snapshot.

        :returns: A dictionary of JSON values: `version`, `server`, `instructions` and `tools`.
        """
        server = {"name": self.server_name, "version": self.server_version}
        return {
            "version": _VERSION,
            "server": {key: value for key, value in server.items() if value is not None},
            "instructions": self.instructions,
            "tools": [tool.to_dict() for tool in self.tools],
        }

    def _to_trace_dict(self) -> dict[str, Any]:
        return {"version": _VERSION, "tools": self.hashes}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """
        Deserialize a snapshot.

        :param data: The result of `to_dict`.
        :returns: The snapshot.
        :raises ValueError: If it is not a snapshot, has another version, or was changed by hand, so that a hash does
            not match its definition.
        """
        try:
            version, server = data["version"], data["server"]
            if version != _VERSION:
                msg = f"it is a snapshot of version {version!r}, but this mcp-haystack reads version {_VERSION}"
                raise ValueError(msg)
            return cls(
                tuple(map(PinnedTool.from_dict, data["tools"])),
                server_name=server.get("name"),
                server_version=server.get("version"),
                instructions=data["instructions"],
            )
        except (AttributeError, KeyError, TypeError) as error:
            problem = f"it lacks {error}" if isinstance(error, KeyError) else str(error)
            msg = f"it is not a snapshot of tools: {problem}"
            raise ValueError(msg) from None

    def __repr__(self) -> str:
        """
        Show the names of the server and the tools.
        """
        return f"{type(self).__name__}(server_name={self.server_name!r}, tools={self.tool_names!r})"


def _connection_of(source: Any) -> Any:
    connection = getattr(source, "connection", source)
    if not hasattr(connection, "list_tools"):
        msg = (
            f"A snapshot is made of an MCPToolset, an MCPTool or an MCPConnection, got {type(source).__name__}. "
            "A toolset of several servers has theirs in `toolsets`."
        )
        raise TypeError(msg)
    return connection


def _drift_report(
    before: Mapping[str, PinnedTool],
    after: Mapping[str, PinnedTool],
    instructions_before: str | None,
    instructions_after: str | None,
) -> MCPDriftReport:
    """
    Compare tools by name, and instructions if neither is None.
    """
    drifts: list[MCPToolDrift] = []
    for name in sorted(before.keys() | after.keys()):
        old, new = before.get(name), after.get(name)
        if new is None and old is not None:
            drifts.append(MCPToolDrift(name, "removed", before=old.definition))
        elif new is not None and old is None:
            drifts.append(MCPToolDrift(name, "added", after=new.definition))
        elif new is not None and old is not None:
            drifts += _tool_drifts(name, old.definition, new.definition)
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
    # Yields a JSON pointer, whether the value is a text for readers, and both values. `are_names`: the keys are names
    # of schemas, not keywords.
    for key in sorted(before.keys() | after.keys()):
        old, new, place = before.get(key), after.get(key), f"{path}/{key.replace('~', '~0').replace('/', '~1')}"
        if isinstance(old, dict) and isinstance(new, dict):
            yield from _differences(old, new, place, are_names=not are_names and key in SCHEMAS_BY_NAME)
        elif key not in before or key not in after or not _is_same(old, new):
            yield place, not are_names and key in TEXT_KEYWORDS, old, new


def _is_same(old: Any, new: Any) -> bool:
    # In JSON, 10.0 equals 10; in Python, True equals 1, and NaN does not equal itself.
    are_numbers = type(old) in (int, float) and type(new) in (int, float)
    return (are_numbers and old == new) or json.dumps(old, sort_keys=True) == json.dumps(new, sort_keys=True)


def _annotation_drifts(name: str, old: Definition, new: Definition) -> Iterator[MCPToolDrift]:
    from mcp_types import ToolAnnotations  # noqa: PLC0415 (not needed before the first call)

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


def _snapshot_or_path(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MCPToolSnapshot.from_dict(value)
    if not isinstance(value, MCPToolSnapshot | str | os.PathLike):
        msg = f"must be an MCPToolSnapshot or the path of its file, got {type(value).__name__}"
        raise ValueError(msg)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


_SNAPSHOT: Final = StoredAs(
    store=lambda _, snapshot: snapshot.to_dict() if isinstance(snapshot, MCPToolSnapshot) else snapshot,
    show=lambda snapshot: snapshot._to_trace_dict() if isinstance(snapshot, MCPToolSnapshot) else snapshot,
)


@explains_options
@checked_dataclass(frozen=True, kw_only=False, repr=False, config=CHECKED)
class SnapshotCheck(Options):
    """
    The tools that a server should have, and what happens if they differ.

    They are compared whenever a session is opened or the server reports that its tools changed.

    :param snapshot: An MCPToolSnapshot, or the path of its file; a relative path starts at the current directory.
    :param on_drift: "error" (default): warm-up raises an MCPDriftError, and no call is sent. "quarantine": new or
        changed tools are hidden and cannot be called; the rest works. "warn": the server's tools are used. Annotations
        that claim that a tool is less harmful than before are always an error.
    :raises ValueError: If a field is invalid. The message names it.
    """

    _parameter: ClassVar[str] = "snapshot"

    snapshot: Annotated[
        InstanceOf[MCPToolSnapshot] | Text | os.PathLike[str], BeforeValidator(_snapshot_or_path), _SNAPSHOT
    ]
    on_drift: OnDrift = "error"

    @classmethod
    def of(cls, value: Any) -> Any:
        """
        Convert the value of the parameter `snapshot`.

        :param value: A SnapshotCheck or its dictionary, a snapshot or its dictionary, the path of a file, or None.
        :returns: The SnapshotCheck, or None.
        :raises ValueError: If it is anything else.
        """
        if value is None or isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            return cls.from_dict(value if "snapshot" in value else {"snapshot": value})
        return cls(value)


@dataclass(frozen=True)
class ToolChoice:
    """
    Selects which of a server's tools are of interest.

    :param may_have: Takes a name, and returns whether a tool of this name may be selected.
    :param selects: Takes a definition, and returns whether the tool is selected.
    """

    may_have: Callable[[str], bool]
    selects: Callable[[types.Tool], bool]


class SnapshotGuard:
    """
    Compares a server's listings with a snapshot, for one tool or toolset. Thread-safe.
    """

    def __init__(self, snapshot: MCPToolSnapshot, on_drift: OnDrift, choice: ToolChoice, server: str) -> None:
        """
        Initialize the SnapshotGuard.

        :param snapshot: The snapshot.
        :param on_drift: What happens if there is drift.
        :param choice: The tools that are of interest.
        :param server: Description of the server, for messages.
        """
        self.snapshot = snapshot
        self._pinned: dict[str, PinnedTool] = {tool.name: tool for tool in snapshot.tools}
        self._definitions: dict[str, types.Tool] = {}
        self._on_drift: OnDrift = on_drift
        self._choice = choice
        self._server = server
        # Reports by the ticks of listings, which are unique.
        self._reports: dict[int, MCPDriftReport] = {}
        self._last_logged = MCPDriftReport()
        # The latest report.
        self.latest: MCPDriftReport | None = None
        # Called with a new listing of the server info's own session, before a call is sent. It must not raise.
        self.on_new_listing: Callable[[ToolListing], None] | None = None

    def pinned(self, tool_name: str) -> types.Tool:
        """
        Return the definition of a tool in the snapshot.

        :param tool_name: The server's name of the tool.
        :returns: The same object each time.
        """
        known = self._definitions.get(tool_name)
        if known is None:
            known = self._definitions.setdefault(tool_name, self._pinned[tool_name].as_tool())
        return known

    async def refusal(self, tool_name: str, listing: ToolListing) -> str | None:
        """
        Return why a call must not be sent.

        :param tool_name: The server's name of the tool.
        :param listing: The tools of the session in which it would be sent.
        :returns: A sentence; None if the call may be sent.
        """
        report = self._reports.get(listing.tick)
        if report is None:
            # Not in the loop of all sessions, because the user's `tool_filter` may block, and a listing may be long.
            report = await start_in_thread(self._check_listing, listing, name="mcp-haystack-snapshot")
        if not self.is_error(report):
            if self._on_drift != "quarantine" or tool_name not in report.tools:
                return None
            report = report.of_tool(tool_name)
        # The model sees this sentence, and must not read names of tools that nobody has reviewed.
        return self._sentence(report.summary(names_of_new_tools=False))

    def _check_listing(self, listing: ToolListing) -> MCPDriftReport:
        report = self.report(listing)
        # Another identity may have other tools.
        if self.on_new_listing is not None and current_identity.get().key is None:
            self.on_new_listing(listing)
        return report

    def report(self, listing: ToolListing) -> MCPDriftReport:
        """
        Compare a listing of the server with the snapshot.

        :param listing: The listing.
        :returns: The differences.
        :raises ValueError: If the user's `tool_filter` fails.
        """
        known = self._reports.get(listing.tick)
        if known is not None:
            return known
        report = self._compare(listing)
        if len(self._reports) >= _MAX_REPORTS:
            self._reports = dict([*self._reports.items()][_MAX_REPORTS // 2 :])
        self._reports[listing.tick] = self.latest = report
        self._log_once(report)
        return report

    def is_error(self, report: MCPDriftReport) -> bool:
        """
        Return whether differences are an error, so that no tool may be used.

        :param report: The differences.
        :returns: True if they are an error.
        """
        return bool(report) if self._on_drift == "error" else "annotations_relaxed" in report.kinds

    def quarantined(self, report: MCPDriftReport) -> list[str]:
        """
        Return the hidden tools: with "quarantine", tools that drifted and that the server still has.

        :param report: The differences.
        :returns: Their names.
        """
        if self._on_drift != "quarantine":
            return []
        gone = {drift.tool for drift in report if drift.kind == "removed"}
        return [name for name in report.tools if name not in gone]

    def _sentence(self, summary: str) -> str:
        return f"The tools of {self._server} are not those of the snapshot: {summary}."

    def _compare(self, listing: ToolListing) -> MCPDriftReport:
        listed: dict[str, types.Tool] = {}
        for definition in listing.tools:
            listed.setdefault(definition.name, definition)
        before: dict[str, PinnedTool] = {}
        after: dict[str, PinnedTool] = {}
        for name in self._pinned.keys() | listed.keys():
            pinned, current = self._pinned.get(name), listed.get(name)
            if self._is_chosen(name, pinned, current):
                if pinned is not None:
                    before[name] = pinned
                if current is not None:
                    after[name] = PinnedTool.of(current)
        return _drift_report(before, after, self.snapshot.instructions, listing.instructions or "")

    def _is_chosen(self, name: str, pinned: PinnedTool | None, current: types.Tool | None) -> bool:
        if current is not None and pinned is None:
            return self._choice.selects(current)
        # Select by name only, because `required_hints` could leave a tool out for the very annotations that drifted.
        return self._choice.may_have(name)

    def _log_once(self, report: MCPDriftReport) -> None:
        if report == self._last_logged:  # do not log again after each reconnect
            return
        self._last_logged = report
        if not report:
            logger.info("The tools of {server} are those of the snapshot again", server=self._server)
            return
        consequence = "none of them is called" if self.is_error(report) else _CONSEQUENCES[self._on_drift]
        logger.warning(
            "The tools of {server} are not those of the snapshot, so {consequence}: {report}",
            server=self._server,
            consequence=consequence,
            report=report.summary(),
        )

    def admit(self, listing: ToolListing) -> tuple[list[types.Tool], list[str]]:
        """
        Return the definitions to use for a listing, and the names of the hidden tools.

        :param listing: The listing.
        :returns: The snapshot's definitions of unchanged tools, so that prompts stay the same; with "warn", the
            server's definitions of changed tools. With "quarantine", changed tools are hidden, but not removed ones.
        :raises MCPDriftError: If no tool may be used.
        :raises ValueError: If the user's `tool_filter` fails.
        """
        report = self.report(listing)
        if self.is_error(report):
            msg = (
                f"{self._sentence(report.summary())} Review the differences (the `report` of this error), and capture "
                "the tools again if you accept them."
            )
            raise MCPDriftError(msg, report)
        drifted = set(report.tools)
        definitions: list[types.Tool] = []
        for definition in listing.tools:
            if definition.name in drifted:
                if self._on_drift == "warn":
                    definitions.append(definition)
            elif definition.name in self._pinned:
                definitions.append(_with_extras(self.pinned(definition.name), definition))
            else:
                definitions.append(definition)
        if self._on_drift == "quarantine":
            definitions += [self.pinned(drift.tool) for drift in report if drift.kind == "removed"]
        return definitions, self.quarantined(report)


def _with_extras(pinned: types.Tool, definition: types.Tool) -> types.Tool:
    extras = {name: value for name in _EXTRAS if (value := getattr(definition, name)) is not None}
    return pinned.model_copy(update=extras) if extras else pinned
