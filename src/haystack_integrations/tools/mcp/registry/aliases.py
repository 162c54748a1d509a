# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, Self

from haystack.core.serialization import generate_qualified_class_name
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.any_tools import warm_up_toolsets, warm_up_toolsets_async
from haystack_integrations.tools.mcp.connection.context_managed import Compound, Holds
from haystack_integrations.tools.mcp.connection.limits import CallOptions
from haystack_integrations.tools.mcp.convert.server_texts import html_table
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices, prefix_of, provider_safe_name
from haystack_integrations.tools.mcp.errors import MCPConfigurationError, MCPToolNotFoundError
from haystack_integrations.tools.mcp.import_paths import stored_in
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset, ToolsOfRun
from haystack_integrations.tools.mcp.registry.configuration import (
    Provider,
    ToolConfig,
    load_provider,
    providers_by_name,
)
from haystack_integrations.tools.mcp.server_instructions import with_instructions
from haystack_integrations.tools.mcp.tool_base import LiveToolset


@stored_in("haystack_integrations.tools.mcp.registry")
class MCPAliasToolset(Compound, LiveToolset):
    """
    The tools of several servers that go by one alias. A Haystack Toolset, for Agents, ToolInvokers and YAML.

    `MCPRegistry.toolset(alias)` makes one. The servers are connected to concurrently, at warm-up. A server that is not
    required and cannot be reached has no tools in it until it is back; see MCPToolset.
    """

    def __init__(self, tool_config: ToolConfig, providers: Mapping[str, Provider | Any]) -> None:
        """
        Initialize the toolset.

        :param tool_config: Which tools of which providers it has.
        :param providers: Server infos or MCPToolsets by name; those that the configuration does not name are ignored.
            The options of an MCPToolset hold here, too, but it is not used itself.
        :raises MCPConfigurationError: If a provider is unknown or invalid.
        """
        tool_config = ToolConfig.of(tool_config)
        known = providers_by_name(providers)
        if unknown := [name for name in tool_config.providers if name not in known]:
            msg = (
                f"ToolConfig '{tool_config.tool_alias}' names the unknown provider {', '.join(map(repr, unknown))}. "
                f"Known providers: {', '.join(known) or 'none'}"
            )
            raise MCPConfigurationError(msg)
        self._config = tool_config
        self._providers: dict[str, Provider] = {name: known[name] for name in tool_config.providers}
        # Of no server if no tool is allowed.
        self._members: dict[str, MCPToolset] = {
            name: self._member(name) for name in tool_config.providers if tool_config.allow_tools != []
        }
        self._holds = Holds()
        for name, member in self._members.items():
            member._holds.count_those_of(self._holds)
            member._provider_name = name
            member._tool_alias = tool_config.tool_alias
        self._was_warm = False
        self._hold_place()

    def _member(self, name: str) -> MCPToolset:
        provider = self._providers[name]
        # A plain server info has no limits of its own, so that `timeout_sec=None` means none.
        parameters: dict[str, Any] = {"server_info": provider, "invocation_timeout": None}
        if self._config.timeout_sec is None:
            parameters["call_options"] = CallOptions(read_timeout=None)
        if isinstance(provider, MCPToolset):
            parameters = {**provider._init_parameters(), "eager_connect": False}
        if self._config.timeout_sec is not None:
            parameters["invocation_timeout"] = self._config.timeout_sec
        if self._config.prefix == "always":
            parameters["tool_name_prefix"] = prefix_of(name)
        kind = type(provider) if isinstance(provider, MCPToolset) else MCPToolset
        member = kind(**parameters)
        if self._config.timeout_sec is not None:
            member.connection._call_timeout("timeout_sec")
        return member

    @property
    def tool_config(self) -> ToolConfig:
        """
        The configuration of the alias.
        """
        return self._config

    @property
    def tool_alias(self) -> str:
        """
        The alias.
        """
        return self._config.tool_alias

    @property
    def toolsets(self) -> dict[str, MCPToolset]:
        """
        The toolsets of the providers by name, each with all tools of its server.
        """
        return dict(self._members)

    def _tools_now(self) -> list[Tool]:
        """
        Return the tools that the alias has now, which are its `tools` from then on.
        """
        tools = self._arrange(self._members)
        # In one assignment, so that an Agent in another thread sees either the old tools or the new ones.
        self.tools: list[Tool] = tools or [self._placeholder]
        return tools

    def _arrange(self, members: Mapping[str, Iterable[Tool]]) -> list[Tool]:
        """
        Choose among the tools of all servers, and give them their names.

        :param members: The tools by provider.
        :returns: The tools of the alias.
        """
        chosen = [
            (provider, tool)
            for provider, offered in members.items()
            for tool in offered
            # What somebody has added to the provider's toolset itself is not the server's.
            if isinstance(tool, MCPTool) and self._config.allows(provider, tool.remote_name)
        ]
        owners = Counter(tool.name for _, tool in chosen)
        arranged: dict[str, tuple[str, Tool]] = {}
        for provider, tool in chosen:
            name = tool.name
            if owners[name] > 1 and self._config.prefix == "on_conflict":
                name = provider_safe_name(name, prefix_of(provider))
            if name in arranged:
                first = arranged[name][0]
                msg = (
                    f"Alias '{self.tool_alias}': the providers '{first}' and '{provider}' both have a tool named "
                    f"'{name}'. Allow one of them only (allow_tools=['{first}/{name}', …]), or set `prefix` to "
                    "'on_conflict' or 'always'."
                )
                raise MCPConfigurationError(msg)
            # Under a copy's name: runs of Agents that began before may know the tool by another one.
            arranged[name] = (provider, tool._as(name))
        return with_instructions([tool for _, tool in arranged.values()])

    def spawn(self, selected_tool_names: set[str] | None = None) -> Toolset:
        """
        Return the tools that the alias has now, for a run of an Agent. Haystack 3 calls this at the start of each run.

        :param selected_tool_names: Names of the tools that the run may use. Default: all.
        :returns: A toolset that keeps these tools, except those of providers with `update_between_steps`.
        """
        members = {name: member.spawn() for name, member in self._members.items()}
        return ToolsOfRun(self, partial(self._arrange, members), selected_tool_names)

    def _check_allowed(self) -> None:
        if any(member._absence is not None for member in self._members.values()):
            return  # the missing tools may be those of the missing server
        known = {name: _names_of(member) for name, member in self._members.items()}
        missing = [
            name
            for name in self._config.allow_tools or []
            if not any(name.removeprefix(f"{provider}/") in names for provider, names in known.items())
        ]
        if not missing:
            return
        available = sorted({name for names in known.values() for name in names})
        msg = (
            f"Alias '{self.tool_alias}': `allow_tools` has {', '.join(map(repr, missing))}, which none of its "
            f"providers has in a usable form ({', '.join(self._members)}). "
            f"{describe_choices(missing, available, 'The alias')}"
        )
        raise MCPToolNotFoundError(msg, tool_name=missing[0], available_tools=available)

    def _settle(self) -> None:
        try:
            self._tools_now()
            self._check_allowed()
        except (MCPConfigurationError, MCPToolNotFoundError):
            # Servers whose tools could never be used need not keep running.
            if not self._was_warm:
                self._leave()
            raise
        self._was_warm = True

    def _due_members(self) -> list[MCPToolset]:
        return [member for member in self._members.values() if not member._is_current()]

    def warm_up(self) -> None:
        """
        Connect to all servers concurrently and load their tools.

        Agents, pipelines and ToolInvokers call this. Idempotent and cheap while the connections are open.

        :raises MCPConnectionError: If a server that is required cannot be reached.
        :raises MCPConfigurationError: If two providers have a tool of the same name, and `prefix` is "never".
        :raises MCPToolNotFoundError: If a tool in `allow_tools` is none of any provider.
        """
        if due := self._due_members():
            warm_up_toolsets(due)
        self._settle()

    async def warm_up_async(self) -> None:
        """
        Connect to all servers like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: As `warm_up`.
        :raises MCPConfigurationError: As `warm_up`.
        :raises MCPToolNotFoundError: As `warm_up`.
        """
        if due := self._due_members():
            await warm_up_toolsets_async(due)
        self._settle()

    def _parts(self) -> list[MCPToolset]:
        return [*self._members.values()]

    def _enter(self) -> None:
        self.warm_up()

    async def _enter_async(self) -> None:
        await self.warm_up_async()

    def __iter__(self) -> Iterator[Tool]:
        """
        Iterate over the tools, without connecting.

        :returns: The allowed tools of all servers that are warm; before warm-up, none.
        """
        return iter(self._tools_now())

    def _describe_missing(self, missing: str, wanted: list[str], why: str = "") -> str:
        if self._members and not self._was_warm:
            why = ": it is not warmed up. Call warm_up(), which loads the tools of its servers."
        return super()._describe_missing(missing, wanted, why)

    def _described(self) -> str:
        return f"Alias '{self.tool_alias}'"

    def add(self, tool: Tool | Toolset) -> None:
        """
        Refuse a tool: pass it beside the toolset.

        :param tool: The tool.
        :raises NotImplementedError: Always.
        """
        msg = f"{self._described()} has the tools of its servers. Pass others beside it, as in tools=[toolset, tool]."
        raise NotImplementedError(msg)

    def _as_dict(self, method: str) -> dict[str, Any]:
        providers = {name: getattr(provider, method)() for name, provider in self._providers.items()}
        data = {"tool_config": self._config.to_dict(), "providers": providers}
        return {"type": generate_qualified_class_name(type(self)), "data": data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize a toolset without connecting.

        :param data: The result of `to_dict`.
        :returns: The toolset.
        """
        parameters = data["data"]
        providers = {name: load_provider(provider) for name, provider in parameters["providers"].items()}
        return cls(ToolConfig.from_dict(parameters["tool_config"]), providers)

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle the configuration. The unpickled object opens its own connections.
        """
        return type(self), (self._config, self._providers)

    def _repr_html_(self) -> str:
        return html_table(self, f"{type(self).__name__} '{self.tool_alias}' of {', '.join(self.toolsets)}")

    def __repr__(self) -> str:
        """
        Describe the toolset without secrets.
        """
        cold = "" if self._was_warm else ", not warmed up"
        names = [tool.name for tool in self.tools if tool is not self._placeholder]
        return f"{type(self).__name__}({self._config!r}, tools={names!r}{cold})"


def _names_of(member: MCPToolset) -> set[str]:
    guard = member._guard
    # That tools in quarantine are hidden was said in the log.
    hidden = [] if guard is None or guard.latest is None else guard.quarantined(guard.latest)
    return {tool.remote_name for tool in member if isinstance(tool, MCPTool)}.union(hidden)
