# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import difflib
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.parameters import short_repr

PrefixRule = Literal["never", "on_conflict", "always"]


@short_repr
@dataclass(frozen=True)
class ToolConfig:
    """
    Which tools of which servers go by one alias, and how they may be used.

    ```python
    ToolConfig(
        tool_alias="search-tools",
        providers=["docs", "web"],
        allow_tools=["search_docs", "search_web"],
        max_tool_call_turns=10,
        timeout_sec=30.0,
    )
    ```

    :param tool_alias: The alias.
    :param providers: Names of the servers in the registry whose tools it has, at least one. The tools keep this order.
    :param allow_tools: The only tools that are allowed, by the servers' names; `"provider/tool"` allows the tool of one
        server only. `[]` allows none. Default: all tools of the providers.
    :param max_tool_call_turns: How many turns of tool calls there may be in one run, at least 1. A turn is one reply of
        the model that calls tools, however many of them.
    :param timeout_sec: How long one call may take, in seconds. Default: no limit, or that of a provider that is given
        as an MCPToolset.
    :param prefix: When the name of the provider is put before the names of its tools: "never" (default: it is an error
        if two providers have a tool of the same name), "on_conflict" (only where there is such an error otherwise) or
        "always".
    :raises MCPConfigurationError: If a field is invalid. The message names it and the valid choices.
    """

    tool_alias: str
    providers: list[str]
    allow_tools: list[str] | None = None
    max_tool_call_turns: int = 5
    timeout_sec: float | None = None
    prefix: PrefixRule = dataclasses.field(default="never", kw_only=True)

    def __post_init__(self) -> None:
        """
        Validate the fields.
        """
        if not isinstance(self.tool_alias, str) or not self.tool_alias:
            msg = f"ToolConfig: `tool_alias` must be a non-empty string, got {self.tool_alias!r}"
            raise MCPConfigurationError(msg)
        if not _are_names(self.providers) or not self.providers:
            self._refuse("providers", "a list with the name of at least one provider")
        self._refuse_repeated("providers")
        if self.allow_tools is not None:
            if not _are_names(self.allow_tools):
                self._refuse("allow_tools", "a list of names of tools, or None for all tools")
            self._refuse_repeated("allow_tools")
        turns: Any = self.max_tool_call_turns
        if not isinstance(turns, int) or isinstance(turns, bool) or turns < 1:
            self._refuse("max_tool_call_turns", "a whole number of at least 1")
        seconds: Any = self.timeout_sec
        if seconds is not None and (
            not isinstance(seconds, (int, float)) or isinstance(seconds, bool) or not 0 < seconds < math.inf
        ):
            self._refuse("timeout_sec", "a number of seconds greater than 0, or None for no limit")
        if self.prefix not in get_args(PrefixRule):
            self._refuse("prefix", f"one of {', '.join(map(repr, get_args(PrefixRule)))}")

    def _refuse(self, parameter: str, valid: str) -> None:
        value = getattr(self, parameter)
        msg = f"ToolConfig '{self.tool_alias}': `{parameter}` must be {valid}, got {value!r}"
        raise MCPConfigurationError(msg)

    def _refuse_repeated(self, parameter: str) -> None:
        names = getattr(self, parameter)
        repeated = sorted({name for name in names if list(names).count(name) > 1})
        if repeated:
            msg = f"ToolConfig '{self.tool_alias}': `{parameter}` has {', '.join(map(repr, repeated))} twice"
            raise MCPConfigurationError(msg)

    def allows(self, provider: str, tool_name: str) -> bool:
        """
        Tell whether a tool is allowed.

        :param provider: Name of its provider.
        :param tool_name: The server's name of the tool.
        :returns: Whether `allow_tools` is None or has it.
        """
        allowed = self.allow_tools
        return allowed is None or tool_name in allowed or f"{provider}/{tool_name}" in allowed

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the configuration.

        :returns: The fields; those after `providers` only if they are not the defaults.
        """
        data: dict[str, Any] = {"tool_alias": self.tool_alias, "providers": list(self.providers)}
        for field in dataclasses.fields(self)[2:]:
            value = getattr(self, field.name)
            if value != field.default:
                data[field.name] = list(value) if field.name == "allow_tools" else value
        return data

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> ToolConfig:
        """
        Deserialize a configuration.

        :param data: The fields, as of `to_dict`.
        :returns: The configuration.
        :raises MCPConfigurationError: If a field is unknown, missing or invalid.
        """
        if not isinstance(data, Mapping):
            msg = f"A tool config must be a ToolConfig or a dictionary of its fields, got {type(data).__name__}"
            raise MCPConfigurationError(msg)
        known = [field.name for field in dataclasses.fields(cls)]
        where = f"Tool config '{data.get('tool_alias', '?')}'"
        for name in data:
            if name not in known:
                closest = difflib.get_close_matches(str(name), known, 1)
                hint = f" Did you mean `{closest[0]}`?" if closest else ""
                msg = f"{where} has no field {name!r}.{hint} It has: {', '.join(known)}."
                raise MCPConfigurationError(msg)
        missing = [name for name in ("tool_alias", "providers") if name not in data]
        if missing:
            msg = f"{where} lacks {' and '.join(f'`{name}`' for name in missing)}"
            raise MCPConfigurationError(msg)
        return cls(**data)


def _are_names(value: object) -> bool:
    return isinstance(value, (list, tuple)) and all(isinstance(name, str) and name for name in value)
