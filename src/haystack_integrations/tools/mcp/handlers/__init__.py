# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

from haystack.utils import deserialize_callable, serialize_callable

from haystack_integrations.tools.mcp.handlers.progress import ProgressCallback


@dataclass(frozen=True, kw_only=True)
class MCPHandlers:
    """
    What this client does for a server that asks it for something, and what it says of itself.

    Two toolsets share a session only if their handlers are equal, because a server's request names no call.

    :param progress: Called with an MCPProgress for each report of a tool call's progress, in order. A function runs in
        a thread of the call; what an asynchronous one awaits is awaited in the loop that holds all sessions, so it must
        not block. The call returns after it. If it raises, that is logged, and it gets no more of that call. Without
        it, servers are not asked for progress.
    """

    client_info: dict[str, str] | None = None
    progress: ProgressCallback | None = None

    def __post_init__(self) -> None:
        """
        Validate the handlers.

        :raises ValueError: If one is invalid.
        """
        if self.progress is not None and not callable(self.progress):
            msg = (
                "`progress` must be a function, sync or async, that takes an MCPProgress, or None, got "
                f"{type(self.progress).__name__}"
            )
            raise ValueError(msg)

    def callbacks(self) -> dict[str, Any]:
        """
        Give what the MCP SDK calls.

        :returns: Keyword arguments of `mcp.Client`.
        """
        return {}

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the handlers, functions as import paths.

        :returns: What differs from the defaults.
        """
        values = {field.name: (getattr(self, field.name), field.default) for field in dataclasses.fields(self)}
        changed = {name: value for name, (value, default) in values.items() if value != default}
        if self.progress is not None:
            changed["progress"] = serialize_callable(self.progress)
        return changed

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MCPHandlers:
        """
        Deserialize handlers.

        :param data: The result of `to_dict`.
        :returns: The handlers.
        """
        values = dict(data)
        if isinstance(values.get("progress"), str):
            values["progress"] = deserialize_callable(values["progress"])
        return cls(**values)
