# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from typing import Annotated, ClassVar, Literal

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.parameters import CHECKED, Options, Seconds, Text, explains_options


@explains_options
@checked_dataclass(frozen=True, repr=False, config=CHECKED)
class ToolConfig(Options):
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

    _example: ClassVar[str] = "tool_configs=[ToolConfig({}=…)]"
    _error = MCPConfigurationError

    tool_alias: Text
    providers: Annotated[list[Text], Field(min_length=1)]
    allow_tools: list[Text] | None = None
    max_tool_call_turns: Annotated[int, Field(ge=1)] = 5
    timeout_sec: Seconds | None = None
    prefix: Literal["never", "on_conflict", "always"] = dataclasses.field(default="never", kw_only=True)

    def __post_init__(self) -> None:
        """
        Check that no name occurs twice.
        """
        for parameter in ("providers", "allow_tools"):
            names: list[str] = getattr(self, parameter) or []
            if repeated := sorted({name for name in names if names.count(name) > 1}):
                msg = f"'{self.tool_alias}': `{parameter}` has {', '.join(map(repr, repeated))} twice"
                raise ValueError(msg)

    def allows(self, provider: str, tool_name: str) -> bool:
        """
        Return whether a tool is allowed.

        :param provider: Name of its provider.
        :param tool_name: The server's name of the tool.
        :returns: True if `allow_tools` is None or has it.
        """
        allowed = self.allow_tools
        return allowed is None or tool_name in allowed or f"{provider}/{tool_name}" in allowed
