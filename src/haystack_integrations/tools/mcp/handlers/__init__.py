# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, kw_only=True)
class MCPHandlers:
    """
    What this client does for a server that asks it for something, and what it says of itself.

    Two toolsets share a session only if their handlers are equal, because a server's request names no call.
    """

    client_info: dict[str, str] | None = None

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
        return {name: value for name, (value, default) in values.items() if value != default}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MCPHandlers:
        """
        Deserialize handlers.

        :param data: The result of `to_dict`.
        :returns: The handlers.
        """
        return cls(**data)
