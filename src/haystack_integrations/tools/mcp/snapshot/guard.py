# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is done when a server says something else of its tools than the snapshot.

.. code-block:: text

    a session is opened, or the server says    ──> its tools are compared with the snapshot, once for each listing
    that its tools changed                              │
                                                        ├ no drift: the tools are as in the snapshot
    "error", and relaxed annotations           <────────┤ MCPDriftError at warm-up, and no call is sent
    "quarantine"                               <────────┤ tools that drifted are hidden, and no call of one is sent
    "warn"                                     <────────┘ the tools are as the server says
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

from haystack import logging
from haystack.tracing.tracer import tracer
from pydantic import BeforeValidator, InstanceOf
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.errors import MCPDriftError
from haystack_integrations.tools.mcp.parameters import CHECKED, Options, Text, explains_options
from haystack_integrations.tools.mcp.request_context import current_identity
from haystack_integrations.tools.mcp.snapshot.snapshot import (
    Definition,
    MCPDriftReport,
    MCPToolSnapshot,
    PinnedTool,
    drift_report,
)

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.connection.requests import ToolListing

logger: logging.PatchedLogger = logging.getLogger(__name__)

OnDrift = Literal["error", "quarantine", "warn"]

SPAN_DRIFT: Final = "haystack.mcp.drift"

# How many verdicts are kept. Each session of an identity has a listing of its own.
_MOST_VERDICTS: Final = 64


def _snapshot_or_path(value: Any) -> Any:
    if isinstance(value, Mapping):
        return MCPToolSnapshot.from_dict(value)
    return os.fspath(value) if isinstance(value, os.PathLike) else value


@explains_options
@checked_dataclass(frozen=True, kw_only=False, repr=False, config=CHECKED)
class SnapshotCheck(Options):
    """
    What a server should say of its tools, and what is done if it says something else.

    It is compared with what the server says whenever a session is opened or the server says that its tools changed.

    :param snapshot: An MCPToolSnapshot, or the path of its file, a relative one from the current directory.
    :param on_drift: "error" (default): warm-up raises an MCPDriftError, and no call is sent. "quarantine": tools that
        are new or others are hidden, and no call of them is sent; the rest works. "warn": the tools are used as the
        server has them. Annotations that say that a tool is more harmless than before are always an error.
    :raises ValueError: If a field is invalid. The message names it.
    """

    _example: ClassVar[str] = "snapshot=SnapshotCheck(…, {}=…)"

    snapshot: Annotated[InstanceOf[MCPToolSnapshot] | Text | os.PathLike[str], BeforeValidator(_snapshot_or_path)]
    on_drift: OnDrift = "error"

    @classmethod
    def of(cls, value: Any) -> Any:
        """
        Take the value of `snapshot`.

        :param value: A SnapshotCheck or its dictionary, a snapshot or its dictionary, the path of a file, or None.
        :returns: The SnapshotCheck, or None.
        :raises ValueError: If it is something else.
        """
        if value is None or isinstance(value, cls):
            return value
        if isinstance(value, Mapping):
            return cls.from_dict(value if "snapshot" in value else {"snapshot": value})
        return cls(value)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize it.

        :returns: A dictionary of JSON values.
        """
        snapshot = self.snapshot
        return {**self.changed(), "snapshot": snapshot.to_dict() if isinstance(snapshot, MCPToolSnapshot) else snapshot}

    def _to_trace_dict(self) -> dict[str, Any]:
        snapshot = self.snapshot
        return {
            **self.changed(),
            "snapshot": snapshot._to_trace_dict() if isinstance(snapshot, MCPToolSnapshot) else snapshot,
        }


@dataclass(frozen=True)
class ToolChoice:
    """
    Which of a server's tools are of interest.

    :param may_have: Says by its name whether a tool may be chosen.
    :param selects: Says whether a tool is chosen.
    """

    may_have: Callable[[str], bool]
    selects: Callable[[types.Tool], bool]


@dataclass(frozen=True)
class Verdict:
    """
    What follows from a listing.

    :param report: How it differs from the snapshot.
    :param on_drift: What is done about that.
    :param server: Which server it is, for messages.
    """

    report: MCPDriftReport
    on_drift: OnDrift
    server: str

    @property
    def is_error(self) -> bool:
        """
        Whether no tool may be used.
        """
        if self.on_drift == "error":
            return bool(self.report)
        return "annotations_relaxed" in self.report.kinds

    @cached_property
    def drifted(self) -> frozenset[str]:
        """
        The tools that are others than in the snapshot, new, or gone.
        """
        return frozenset(self.report.tools)

    @property
    def quarantined(self) -> list[str]:
        """
        The tools that are hidden: those that drifted, with "quarantine", unless the server does not have them.
        """
        if self.on_drift != "quarantine":
            return []
        gone = {drift.tool for drift in self.report if drift.kind == "removed"}
        return [name for name in self.report.tools if name not in gone]

    def refusal(self, tool_name: str) -> str | None:
        """
        Return why a tool must not be called.

        :param tool_name: The server's name of the tool.
        :returns: A sentence; None if it may be called.
        """
        if self.is_error:
            report = self.report
        elif self.on_drift == "quarantine" and tool_name in self.drifted:
            report = self.report.of_tool(tool_name)
        else:
            return None
        # The model sees it, who must not read the names of tools that nobody has looked at.
        return self._sentence(report.summary(names_of_new_tools=False))

    def raise_error(self) -> None:
        """
        Raise an error if no tool may be used.

        :raises MCPDriftError: With the report.
        """
        if self.is_error:
            what = self._sentence(self.report.summary())
            msg = (
                f"{what} Look at the differences (the `report` of this error), and capture the tools again if they are "
                "as they should be."
            )
            raise MCPDriftError(msg, self.report)

    def _sentence(self, summary: str) -> str:
        return f"The tools of {self.server} are not those of the snapshot: {summary}."


class SnapshotGuard:
    """
    Compares what a server lists with a snapshot, for one tool or toolset. From any thread.
    """

    def __init__(self, snapshot: MCPToolSnapshot, on_drift: OnDrift, choice: ToolChoice, server: str) -> None:
        """
        Initialize the SnapshotGuard.

        :param snapshot: The snapshot.
        :param on_drift: What is done about drift.
        :param choice: Which tools are of interest.
        :param server: Which server it is, for messages.
        """
        self.snapshot = snapshot
        self._pinned: dict[str, PinnedTool] = {tool.name: tool for tool in snapshot.tools}
        self._definitions: dict[str, types.Tool] = {}
        self._on_drift: OnDrift = on_drift
        self._choice = choice
        self._server = server
        # By the numbers of listings, which are never used again.
        self._verdicts: dict[int, Verdict] = {}
        self._reported = MCPDriftReport()
        # The one that was made last.
        self.latest: Verdict | None = None
        # Called with a new listing of the server info's own session, before a call is sent. It must not raise.
        self.take_over: Callable[[ToolListing], None] | None = None

    def pinned(self, tool_name: str) -> types.Tool:
        """
        Return the definition that the snapshot has of a tool.

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
        :returns: A sentence; None if it may be sent.
        """
        verdict = self._verdicts.get(listing.number)
        if verdict is None:
            # Beside the loop of all sessions: `tool_filter` is the user's, and a listing may be long.
            verdict = await start_in_thread(self._judge, listing, name="mcp-haystack-snapshot")
        return verdict.refusal(tool_name)

    def _judge(self, listing: ToolListing) -> Verdict:
        verdict = self.verdict(listing)
        # Another identity may have other tools.
        if self.take_over is not None and current_identity.get() is None:
            self.take_over(listing)
        return verdict

    def verdict(self, listing: ToolListing) -> Verdict:
        """
        Compare what a server lists with the snapshot.

        :param listing: The listing.
        :returns: What follows from it.
        :raises ValueError: If the user's `tool_filter` fails.
        """
        known = self._verdicts.get(listing.number)
        if known is not None:
            return known
        verdict = Verdict(self._report(listing), self._on_drift, self._server)
        if len(self._verdicts) >= _MOST_VERDICTS:
            self._verdicts = dict([*self._verdicts.items()][_MOST_VERDICTS // 2 :])
        self._verdicts[listing.number] = self.latest = verdict
        self._report_once(verdict)
        return verdict

    def _report(self, listing: ToolListing) -> MCPDriftReport:
        listed: dict[str, types.Tool] = {}
        for definition in listing.tools:
            listed.setdefault(definition.name, definition)
        before: dict[str, Definition] = {}
        after: dict[str, Definition] = {}
        for name in self._pinned.keys() | listed.keys():
            pinned, now = self._pinned.get(name), listed.get(name)
            if self._is_chosen(name, pinned, now):
                if pinned is not None:
                    before[name] = pinned.definition
                if now is not None:
                    after[name] = PinnedTool.of(now).definition
        return drift_report(before, after, self.snapshot.instructions, listing.instructions or "")

    def _is_chosen(self, name: str, pinned: PinnedTool | None, now: types.Tool | None) -> bool:
        if now is not None and (pinned is None or not pinned.is_for_models):
            return self._choice.selects(now)
        # By its name: `required_hints` would leave a tool out for the very annotations that drifted.
        return self._choice.may_have(name)

    def _report_once(self, verdict: Verdict) -> None:
        report, before = verdict.report, self._reported
        if report == before:  # not after each reconnect
            return
        self._reported = report
        if not report:
            logger.info("The tools of {server} are those of the snapshot again", server=self._server)
            return
        what = "none of them is called" if verdict.is_error else _CONSEQUENCES[self._on_drift]
        logger.warning(
            "The tools of {server} are not those of the snapshot, so {consequence}: {report}",
            server=self._server,
            consequence=what,
            report=report.summary(),
        )
        for tool, kind in dict.fromkeys((drift.tool, drift.kind) for drift in report):
            tags = {
                "haystack.mcp.drift.server": self._server,
                "haystack.mcp.drift.tool": tool,
                "haystack.mcp.drift.kind": kind,
                "haystack.mcp.drift.action": "error" if verdict.is_error else self._on_drift,
            }
            with tracer.trace(SPAN_DRIFT, tags=tags):
                pass

    def definitions(self, listing: ToolListing) -> list[types.Tool]:
        """
        Return the definitions to use of a listing.

        :param listing: The listing.
        :returns: As the snapshot has them where they are the same, so that prompts are; otherwise, with "warn", as the
            server has them. With "quarantine", tools that drifted are left out, except those that are gone.
        :raises MCPDriftError: If no tool may be used.
        :raises ValueError: If the user's `tool_filter` fails.
        """
        verdict = self.verdict(listing)
        verdict.raise_error()
        definitions: list[types.Tool] = []
        for definition in listing.tools:
            if definition.name in verdict.drifted:
                if self._on_drift == "warn":
                    definitions.append(definition)
            elif definition.name in self._pinned:
                definitions.append(_with_extras(self.pinned(definition.name), definition))
            else:
                definitions.append(definition)
        if self._on_drift == "quarantine":
            definitions += [self.pinned(drift.tool) for drift in verdict.report if drift.kind == "removed"]
        return definitions


_EXTRAS: Final = ("meta", "icons", "execution")

_CONSEQUENCES: Final[dict[OnDrift, str]] = {
    "quarantine": "these are not called, and are hidden unless they are gone",
    "warn": "they are used as the server has them",
}


def _with_extras(pinned: types.Tool, definition: types.Tool) -> types.Tool:
    # What no model sees is not part of a snapshot.
    extras = {name: value for name in _EXTRAS if (value := getattr(definition, name)) is not None}
    return pinned.model_copy(update=extras) if extras else pinned
