# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The configuration of a registry: its servers by name, its aliases, and the Toolset with the tools of an alias.

A server is a server info, an MCPToolset with its options, or a provider in the format of Data Designer.
"""

from __future__ import annotations

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, ClassVar, Literal, Self, TypeAlias

from haystack.core.serialization import generate_qualified_class_name, import_class_by_name
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from haystack.utils import Secret
from pydantic import Field, SkipValidation
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.any_tools import warm_up_toolsets, warm_up_toolsets_async
from haystack_integrations.tools.mcp.connection.context_managed import Compound, UserCount
from haystack_integrations.tools.mcp.connection.limits import CallOptions
from haystack_integrations.tools.mcp.convert.server_texts import html_table
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices, prefix_of, provider_safe_name
from haystack_integrations.tools.mcp.errors import MCPConfigurationError, MCPToolNotFoundError
from haystack_integrations.tools.mcp.import_paths import stored_in
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset, ToolsOfRun
from haystack_integrations.tools.mcp.parameters import CHECKED, Options, Seconds, StoredAs, Text, explains_options
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo, server_info_from_dict
from haystack_integrations.tools.mcp.secret_template import from_template
from haystack_integrations.tools.mcp.server_instructions import with_instructions
from haystack_integrations.tools.mcp.tool_base import LiveToolset
from haystack_integrations.tools.mcp.transports.server_infos import (
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.transports.shorthand import server_info_from

Provider: TypeAlias = MCPServerInfo | MCPToolset

# Data Designer treats a key of this form as the name of the environment variable that holds the key.
_VARIABLE_NAME = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")


@explains_options
@checked_dataclass(frozen=True, repr=False, config=CHECKED)
class ToolConfig(Options):
    """
    An alias for tools of some servers, with the limits of their use.

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
    :param providers: Names of the servers in the registry whose tools the alias has, at least one. The tools keep this
        order.
    :param allow_tools: The only tools that are allowed, under the servers' names for them. `"provider/tool"` allows the
        tool of one server only. `[]` allows no tools. Default: all tools of the providers.
    :param max_tool_call_turns: The maximum number of turns with tool calls in one run, at least 1. A turn is one reply
        of the model that calls tools, no matter how many. Default: 5.
    :param timeout_sec: Time limit of one call, in seconds. Default: no limit, or the limit of a provider that is an
        MCPToolset.
    :param prefix: When to prefix the names of tools with the name of their provider: "never" (default; it is an error
        if two providers have a tool of the same name), "on_conflict" (only for tools that would cause this error) or
        "always".
    :raises MCPConfigurationError: If a field is invalid. The message names it and the valid choices.
    """

    _parameter: ClassVar[str] = "tool_configs"
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
        :returns: True if `allow_tools` is None or contains the tool.
        """
        allowed = self.allow_tools
        return allowed is None or tool_name in allowed or f"{provider}/{tool_name}" in allowed


def _stored_secret(value: Any) -> Any:
    return value.to_dict() if isinstance(value, Secret) else value


def _loaded_secret(stored: Any) -> Any:
    return Secret.from_dict(stored) if isinstance(stored, dict) else stored


class _NamedServer(Options):
    _parameter: ClassVar[str] = "providers"
    _error = MCPConfigurationError

    name: Text

    def __post_init__(self) -> None:
        """
        Run the checks of the server info.
        """
        try:
            self.server_info()
        except ValueError as error:
            msg = f"'{self.name}': {error}"
            raise ValueError(msg) from None

    def server_info(self) -> MCPServerInfo:
        """
        Return the server info.
        """
        raise NotImplementedError

    def _to_trace_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.changed().items() if name not in ("api_key", "env")}


@explains_options
@checked_dataclass(frozen=True, repr=False, config=CHECKED)
class MCPProvider(_NamedServer):
    """
    A named remote server, in the format of Data Designer.

    :param name: Name of the provider.
    :param endpoint: URL of the server.
    :param api_key: Optional key, which is sent as a bearer token: a Secret, `"${NAME}"` or the name of an environment
        variable (`"DOCS_API_KEY"`), or the key itself. YAML can hold only Secrets of environment variables, so a
        registry that contains the key itself cannot be saved.
    :param provider_type: "sse" (default) or "streamable_http".
    :raises MCPConfigurationError: If a field is invalid.
    """

    name: Text
    endpoint: str
    api_key: Annotated[
        SkipValidation[str | Secret | None],
        StoredAs(lambda _, key: _stored_secret(_key(key)), _loaded_secret),
    ] = None
    provider_type: Literal["sse", "streamable_http"] = "sse"

    def server_info(self) -> SSEServerInfo | StreamableHttpServerInfo:
        """
        Return the server info.
        """
        kind = SSEServerInfo if self.provider_type == "sse" else StreamableHttpServerInfo
        return kind(url=self.endpoint, token=_key(self.api_key))


@explains_options
@checked_dataclass(frozen=True, repr=False, config=CHECKED)
class LocalStdioMCPProvider(_NamedServer):
    """
    A named server that is started as a child process, in the format of Data Designer.

    :param name: Name of the provider.
    :param command: Program to start.
    :param args: Its arguments.
    :param env: Additional environment variables; values may be Secrets or contain `${NAME}`.
    :param provider_type: Always "stdio".
    :raises MCPConfigurationError: If a field is invalid.
    """

    name: Text
    command: str
    args: list[str] = dataclasses.field(default_factory=list)
    env: Annotated[
        SkipValidation[dict[str, str | Secret]],
        StoredAs(
            lambda _, env: {name: _stored_secret(value) for name, value in env.items()},
            lambda env: {name: _loaded_secret(value) for name, value in env.items()} if isinstance(env, dict) else env,
        ),
    ] = dataclasses.field(default_factory=dict)
    provider_type: Literal["stdio"] = "stdio"

    def server_info(self) -> StdioServerInfo:
        """
        Return the server info.
        """
        env = self.env
        if isinstance(env, Mapping):  # StdioServerInfo refuses others
            env = {name: from_template(value) if isinstance(value, str) else value for name, value in env.items()}
        return StdioServerInfo(self.command, self.args, env or None)


def _key(api_key: str | Secret | None) -> Secret | None:
    if api_key is None or isinstance(api_key, Secret):
        return api_key
    if not isinstance(api_key, str):
        msg = f"`api_key` must be a string or a Secret, got {type(api_key).__name__}"
        raise ValueError(msg)
    if _VARIABLE_NAME.fullmatch(api_key):
        return Secret.from_env_var(api_key)
    value = from_template(api_key)
    return value if isinstance(value, Secret) else Secret.from_token(value)


def providers_by_name(providers: Mapping[str, Any] | Iterable[Any] | None) -> dict[str, Provider]:
    """
    Convert the `providers` parameter of a registry.

    :param providers: A mapping from names to server infos, to MCPToolsets or to the shorthand that `server_info_from`
        takes; or a list of MCPProviders, LocalStdioMCPProviders and dictionaries of their fields.
    :returns: Server infos and toolsets by name.
    :raises MCPConfigurationError: If one is invalid, or a name occurs twice.
    """
    if isinstance(providers, Mapping):
        if unnamed := [name for name in providers if not (isinstance(name, str) and name)]:
            msg = f"MCPRegistry: the name of a provider must be a non-empty string, got {unnamed[0]!r}"
            raise MCPConfigurationError(msg)
        return {name: _provider(name, provider) for name, provider in providers.items()}
    found: dict[str, Provider] = {}
    for each in providers or ():
        is_local = isinstance(each, Mapping) and (each.get("provider_type") == "stdio" or "command" in each)
        kind = LocalStdioMCPProvider if is_local or isinstance(each, LocalStdioMCPProvider) else MCPProvider
        named = kind.of(each)
        if named.name in found:
            msg = f"MCPRegistry: there are two providers named '{named.name}'"
            raise MCPConfigurationError(msg)
        found[named.name] = named.server_info()
    return found


def _provider(name: str, provider: Any) -> Provider:
    if isinstance(provider, MCPToolset):
        return provider
    if isinstance(provider, _NamedServer):
        return provider.server_info()
    try:
        return server_info_from(provider)
    except (ValueError, TypeError) as error:
        msg = f"MCPRegistry: provider '{name}': {error}"
        raise MCPConfigurationError(msg) from None


def load_provider(data: dict[str, Any]) -> Provider:
    """
    Deserialize a provider.

    :param data: The result of `to_dict` of a server info or an MCPToolset.
    :returns: The server info or the toolset.
    :raises TypeError: If it is anything else.
    """
    if "data" not in data:
        return server_info_from_dict(data)
    cls = import_class_by_name(data["type"])
    if not (isinstance(cls, type) and issubclass(cls, MCPToolset)):
        msg = f"'{data['type']}' is neither a subclass of MCPToolset nor of MCPServerInfo, so it is not a provider"
        raise TypeError(msg)
    return cls.from_dict(data)


@stored_in("haystack_integrations.tools.mcp.registry")
class MCPAliasToolset(Compound, LiveToolset):
    """
    The tools of several servers under one alias. A Haystack Toolset, for Agents, ToolInvokers and YAML.

    `MCPRegistry.toolset(alias)` creates it. Warm-up connects to the servers concurrently. While a server that is not
    required cannot be reached, its tools are missing; see MCPToolset.
    """

    def __init__(self, tool_config: ToolConfig, providers: Mapping[str, Provider | Any]) -> None:
        """
        Initialize the toolset.

        :param tool_config: The configuration of the alias.
        :param providers: Server infos or MCPToolsets by name. Only the ones that the configuration names are used.
            The options of an MCPToolset are adopted, but the object itself is not used.
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
        # Empty if no tool is allowed, so that no server is connected to.
        self._members: dict[str, MCPToolset] = {
            name: self._member(name) for name in tool_config.providers if tool_config.allow_tools != []
        }
        self._users = UserCount()
        for name, member in self._members.items():
            member._users.count_users_of(self._users)
            member._provider_name = name
            member._tool_alias = tool_config.tool_alias
        self._was_warm = False
        self._add_placeholder()

    def _member(self, name: str) -> MCPToolset:
        provider = self._providers[name]
        # A plain server info has no limits, so `timeout_sec=None` means that calls have no time limit.
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
            member.connection._name_timeout("timeout_sec")
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
        The toolsets of the providers by name; each has all tools of its server.
        """
        return dict(self._members)

    def _current_tools(self) -> list[Tool]:
        """
        Return the current tools of the alias, and store them in `tools`.
        """
        tools = self._choose_and_name(self._members)
        # This is one assignment, so that an Agent in another thread sees either the old tools or the new ones.
        self.tools: list[Tool] = tools or [self._placeholder]
        return tools

    def _choose_and_name(self, members: Mapping[str, Iterable[Tool]]) -> list[Tool]:
        """
        Choose the allowed tools of all servers, and assign their names.

        :param members: The tools by provider.
        :returns: The tools of the alias.
        """
        chosen = [
            (provider, tool)
            for provider, offered in members.items()
            for tool in offered
            # Other tools were added to the provider's toolset by a user, and do not come from the server.
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
            # A copy gets the name, because Agent runs that began earlier may know the tool by another name.
            arranged[name] = (provider, tool._renamed(name))
        return with_instructions([tool for _, tool in arranged.values()])

    def spawn(self, selected_tool_names: set[str] | None = None) -> Toolset:
        """
        Return the current tools of the alias for a run of an Agent. Haystack 3 calls this at the start of each run.

        :param selected_tool_names: Names of the tools that the run may use. Default: all.
        :returns: A toolset that keeps these tools, except those of providers with `update_between_steps`.
        """
        members = {name: member.spawn() for name, member in self._members.items()}
        return ToolsOfRun(self, partial(self._choose_and_name, members), selected_tool_names)

    def _check_allowed(self) -> None:
        if any(member._unreachable_error is not None for member in self._members.values()):
            return  # the missing tools may belong to a server that cannot be reached
        known = {name: _names_of(member) for name, member in self._members.items()}
        missing = [
            name
            for name in self._config.allow_tools or []
            if not any({name, name.removeprefix(f"{provider}/")} & names for provider, names in known.items())
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

    def _check_tools(self) -> None:
        try:
            self._current_tools()
            self._check_allowed()
        except (MCPConfigurationError, MCPToolNotFoundError):
            # Servers need not keep running if their tools could never be used.
            if not self._was_warm:
                self._leave()
            raise
        self._was_warm = True

    def _stale_members(self) -> list[MCPToolset]:
        return [member for member in self._members.values() if not member._is_current()]

    def warm_up(self) -> None:
        """
        Connect to all servers concurrently and load their tools.

        Agents, pipelines and ToolInvokers call this. Idempotent and cheap while the connections are open.

        :raises MCPConnectionError: If a server that is required cannot be reached.
        :raises MCPConfigurationError: If two providers have a tool of the same name, and `prefix` is "never".
        :raises MCPToolNotFoundError: If no provider has a tool in `allow_tools`.
        """
        if due := self._stale_members():
            warm_up_toolsets(due)
        self._check_tools()

    async def warm_up_async(self) -> None:
        """
        Connect to all servers like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: As `warm_up`.
        :raises MCPConfigurationError: As `warm_up`.
        :raises MCPToolNotFoundError: As `warm_up`.
        """
        if due := self._stale_members():
            await warm_up_toolsets_async(due)
        self._check_tools()

    def _parts(self) -> list[MCPToolset]:
        return [*self._members.values()]

    def _enter(self) -> None:
        self.warm_up()

    async def _enter_async(self) -> None:
        await self.warm_up_async()

    def __iter__(self) -> Iterator[Tool]:
        """
        Iterate over the tools, without connecting.

        :returns: The allowed tools of all warm servers; empty before warm-up.
        """
        return iter(self._current_tools())

    def _describe_missing(self, missing: str, wanted: list[str], why: str = "") -> str:
        if self._members and not self._was_warm:
            why = ": it is not warmed up. Call warm_up(), which loads the tools of its servers."
        return super()._describe_missing(missing, wanted, why)

    def _label(self) -> str:
        return f"Alias '{self.tool_alias}'"

    def add(self, tool: Tool | Toolset) -> None:
        """
        Refuse to add a tool; pass it next to the toolset instead.

        :param tool: The tool.
        :raises NotImplementedError: Always.
        """
        msg = f"{self._label()} has the tools of its servers. Pass others beside it, as in tools=[toolset, tool]."
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
    # Count quarantined tools as existing: the log already says that they are hidden.
    hidden = [] if guard is None or guard.latest is None else guard.quarantined(guard.latest)
    return {tool.remote_name for tool in member if isinstance(tool, MCPTool)}.union(hidden)
