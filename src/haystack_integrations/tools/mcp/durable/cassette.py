# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A recorded run in a file, which a test plays without a server and a model.
"""

from __future__ import annotations

import dataclasses
import json
import re
from functools import partial
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from haystack_integrations.tools.mcp.connection.requests import ToolListing
from haystack_integrations.tools.mcp.durable.run import DurableRun, OpenRun
from haystack_integrations.tools.mcp.durable.store import PLACE, Entry, Place, Store
from haystack_integrations.tools.mcp.errors import MCPRunChangedError, MCPRunError
from haystack_integrations.tools.mcp.protocol.changes import next_tick
from haystack_integrations.tools.mcp.redaction import redact_value

RecordMode: TypeAlias = Literal["none", "once", "all"]

# Cassettes of other formats are refused.
_FORMAT: Final = 2
# In seconds. Any value will do: the database is in memory, so no other process can claim the run.
_LEASE: Final = 60.0


class Cassette(DurableRun):
    """
    A file with a recorded run. A `with` or `async with` block plays it without starting a server or asking a model.

    Calls and replies are found in the file by their content, as in a durable run. Chat generators must be wrapped in a
    JournaledChatGenerator, and other Haystack tools by `RunJournal.tools`. Do not warm a toolset up before the block.

    ```python
    from haystack_integrations.tools.mcp.durable import Cassette

    with Cassette("case.json"):
        result = agent.run(messages=[ChatMessage.from_user("Pay invoice 42.")])
    ```
    """

    def __init__(self, file: str | Path, mode: RecordMode = "none") -> None:
        """
        Initialize the Cassette.

        :param file: The file. `RunJournal.export` can also write it.
        :param mode: "none" (default): the file is played, and anything that is not in it raises an MCPRunChangedError.
            "once": the block is recorded if the file does not exist. "all": it is recorded in any case. A block that
            ends with an error is not written.
        :raises ValueError: If `mode` is not one of these.
        """
        if mode not in ("none", "once", "all"):
            msg = f"Cassette: `mode` must be 'none', 'once' or 'all', got {mode!r}"
            raise ValueError(msg)
        self.file = Path(file)
        super().__init__(Store("sqlite://"), self.file.stem, _LEASE, "error")
        self.mode: RecordMode = mode
        self._was_entered = False

    def _open(self) -> OpenRun:
        self._was_entered = True
        is_played = self.mode == "none" or (self.mode == "once" and self.file.exists())
        self._run_class = partial(_PlayedRun, self.file, *_read(self.file)) if is_played else OpenRun
        return super()._open()

    def _close(self, opened: OpenRun, error: BaseException | None) -> None:
        try:
            super()._close(opened, error)
            if self._run_class is OpenRun and error is None:
                write_cassette(self.file, self._store.entries(self.name), opened.listings)
        finally:
            # The next block must begin with an empty database, whatever happened in this one.
            self._store.close()


class _PlayedRun(OpenRun):
    """
    A run that is played from a cassette. It sends no requests, and calls that failed when recorded fail again.
    """

    # Errors may quote arguments, because the file has them anyway.
    _shows_values = True

    def __init__(self, file: Path, entries: list[Entry], listings: dict[str, ToolListing], *opened: Any) -> None:
        super().__init__(*opened)
        self._file = file
        self._entries = {entry.place: entry for entry in entries}
        self.listings = listings

    def listing(self, server: str) -> ToolListing:
        # The test may start the server from another folder, under another description. A single server is unambiguous.
        same_program = [each for known, each in self.listings.items() if _program(known) == _program(server)]
        candidates = same_program or list(self.listings.values())
        found = self.listings.get(server, candidates[0] if len(candidates) == 1 else None)
        if found is None:
            known = ", ".join(self.listings) or "none"
            msg = (
                f"it has no tools of {server}; it has those of: {known}. `RunJournal.export` writes them with `tools`."
            )
            raise self._changed_error(msg)
        return dataclasses.replace(found, tick=next_tick())

    def _check_before(self, place: Place, request: Any = None) -> None:
        self._free_place(place)
        msg = f"it has no such {place.kind} of '{place.name}'. {self._describe_nearest(place, request)}"
        raise self._changed_error(msg)

    def _is_final(self, entry: Entry) -> bool:
        return entry.state in ("done", "failed")

    def _changed_error(self, what: str) -> MCPRunChangedError:
        msg = (
            f"The cassette {self._file} cannot be played: {what} If that is meant, record it again, in pytest with "
            "--mcp-record-mode=all."
        )
        return MCPRunChangedError(msg)


def _program(server: str) -> str:
    """
    Return the description of a server without the folders in its command.
    """
    return re.sub(r"[^\s`]*[/\\]", "", server)


def write_cassette(file: Path, entries: list[Entry], listings: dict[str, ToolListing]) -> None:
    """
    Write a recorded run into a file.

    :param file: The file. Its folder is created.
    :param entries: The recorded entries.
    :param listings: The tools of each server, by the server's description.
    """
    servers = {
        server: {
            "instructions": listing.instructions,
            "tools": [tool.model_dump(mode="json", by_alias=True, exclude_none=True) for tool in listing.tools],
        }
        for server, listing in listings.items()
    }
    data = {"format": _FORMAT, "servers": servers, "entries": [_as_json(entry) for entry in entries]}
    file.parent.mkdir(parents=True, exist_ok=True)
    written = file.with_name(f".{file.name}.new")
    try:
        written.write_text(json.dumps(data, indent=2) + "\n", encoding="ascii")
        written.replace(file)
    except OSError:  # for example, the disk is full
        written.unlink(missing_ok=True)
        raise


def _as_json(entry: Entry) -> dict[str, Any]:
    # Times, attempts and keys are left out, because they differ with each recording.
    request = entry.request and {name: value for name, value in entry.request.items() if name != "key"}
    # The file is for version control, so well-known tokens are redacted even if they were not declared as secrets.
    return {
        **vars(entry.place),
        "state": entry.state,
        "request": redact_value(request),
        "result": redact_value(entry.result),
    }


def _read(file: Path) -> tuple[list[Entry], dict[str, ToolListing]]:
    import mcp_types as types  # noqa: PLC0415 - the SDK takes long to import

    try:
        data = json.loads(file.read_bytes())
        if data["format"] != _FORMAT:
            msg = f"The cassette {file} is of format {data['format']}; this version reads format {_FORMAT}"
            raise MCPRunError(msg)
        listings = {
            server: ToolListing(
                tools=[types.Tool.model_validate(tool, by_name=False) for tool in listing["tools"]],
                instructions=listing["instructions"],
            )
            for server, listing in data["servers"].items()
        }
        entries = [
            Entry(
                number=number,
                place=Place(**{name: each[name] for name in PLACE}),
                state=each["state"],
                attempt=1,
                epoch=1,
                request=each["request"] and {"key": "", **each["request"]},
                result=each["result"],
                started=0.0,
                ended=0.0,
            )
            for number, each in enumerate(data["entries"], 1)
        ]
    except FileNotFoundError:
        msg = f"There is no cassette {file}. Record it, in pytest with --mcp-record-mode=once."
        raise MCPRunError(msg) from None
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        msg = f"The cassette {file} cannot be read ({type(error).__name__}). Record it again."
        raise MCPRunError(msg) from error
    return entries, listings
