# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The registry of servers and aliases, and its health check.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import UserDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self, Unpack

from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret

from haystack_integrations.tools.mcp.any_tools import warm_up_toolsets, warm_up_toolsets_async
from haystack_integrations.tools.mcp.auth.oauth_config import OAuthConfig
from haystack_integrations.tools.mcp.connection.context_managed import Compound, UserCount
from haystack_integrations.tools.mcp.convert.server_texts import escaped_text
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices
from haystack_integrations.tools.mcp.errors import MCPConfigurationError, MCPConnectionError, MCPToolNotFoundError
from haystack_integrations.tools.mcp.executor import AsyncExecutor, running_loop
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from haystack_integrations.tools.mcp.import_paths import stored_in
from haystack_integrations.tools.mcp.mcp_json import TOOL_CONFIGS, Configuration
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import short_repr, texts
from haystack_integrations.tools.mcp.registry.aliases import (
    MCPAliasToolset,
    Provider,
    ToolConfig,
    load_provider,
    providers_by_name,
)
from haystack_integrations.tools.mcp.registry.facade import (
    GenerationOptions,
    MCPFacade,
    Prompt,
    generate,
    generate_async,
)

if TYPE_CHECKING:
    from haystack.components.agents import Agent


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPProviderHealth:
    """
    The result of a health check for one server.

    :param provider: Name of the provider.
    :param server: Description and address of the server, without secrets.
    :param ok: Whether the server answered.
    :param required: Whether it is an error if the server does not answer.
    :param seconds: How long the check took, in seconds.
    :param error: Why the server did not answer or cannot be used.
    :param tools: The number of its usable tools.
    """

    provider: str
    server: str
    ok: bool
    required: bool
    seconds: float
    error: str | None = None
    tools: int = 0


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPAliasHealth:
    """
    The result of a health check for one alias.

    :param tool_alias: The alias.
    :param ok: Whether it can be used: all required servers answered, and there is no `error`.
    :param seconds: How long the slowest server took, in seconds.
    :param providers: The results for its servers.
    :param error: What is wrong with the alias itself: two servers have the same tool, or no server has an allowed tool.
    :param tools: Names of its tools.
    """

    tool_alias: str
    ok: bool
    seconds: float
    providers: list[MCPProviderHealth] = field(default_factory=list)
    error: str | None = None
    tools: list[str] = field(default_factory=list)


class MCPHealthReport(UserDict[str, MCPAliasHealth]):
    """
    The results of a health check by alias. `print(report)` displays them.
    """

    @property
    def ok(self) -> bool:
        """
        Whether all aliases can be used.
        """
        return all(alias.ok for alias in self.values())

    def raise_if_failed(self) -> None:
        """
        Raise an error if an alias cannot be used.

        :raises MCPConnectionError: With the whole report as its message, if a server failed.
        :raises MCPConfigurationError: Likewise, if only the configuration is wrong.
        """
        failed = [alias for alias in self.values() if not alias.ok]
        if not failed:
            return
        msg = f"The health check failed for {', '.join(repr(alias.tool_alias) for alias in failed)}:\n{self}"
        if any(not each.ok and each.required for alias in failed for each in alias.providers):
            raise MCPConnectionError(msg, operation="health_check")
        raise MCPConfigurationError(msg)

    def __str__(self) -> str:
        """
        Return a line for each alias and each of its servers.

        :returns: The text.
        """
        lines: list[str] = []
        for alias in self.values():
            what = f"{len(alias.tools)} tools" if alias.ok else _indented(alias.error or "unusable")
            lines.append(f"{alias.tool_alias}: {'ok' if alias.ok else 'failed'}, {what}")
            for each in alias.providers:
                state = "ok" if each.ok else "failed" if each.required else "not reachable, not required"
                detail = f"{each.tools} tools" if each.ok else _indented(each.error or "")
                lines.append(f"  {each.provider} ({each.server}): {state} after {each.seconds:.2f} s, {detail}")
        return "\n".join(lines) or "no aliases"


def _indented(error: str) -> str:
    # A server's text must not look like a line about another server.
    return escaped_text(error).replace("\n", "\n    ")


async def _check_alias(toolset: MCPAliasToolset, timeout: float) -> MCPAliasHealth:
    """
    Check the servers of an alias concurrently, and check that their tools fit together.
    """
    checks = [_check_provider(name, member, timeout) for name, member in toolset.toolsets.items()]
    providers: list[MCPProviderHealth] = list(await asyncio.gather(*checks))
    error: str | None = None
    tools: list[str] = []
    ok = all(each.ok or not each.required for each in providers)
    if ok:
        try:
            toolset._check_tools()
            tools = [tool.name for tool in toolset]
        except (MCPConfigurationError, MCPToolNotFoundError) as failure:
            ok, error = False, str(failure)
    seconds = max((each.seconds for each in providers), default=0.0)
    return MCPAliasHealth(
        tool_alias=toolset.tool_alias, ok=ok, seconds=seconds, providers=providers, error=error, tools=tools
    )


async def _check_provider(name: str, member: MCPToolset, timeout: float) -> MCPProviderHealth:
    started = time.perf_counter()
    error: str | None = None
    try:
        async with asyncio.timeout(timeout):
            if member.snapshot is not None:
                await member.refresh_async()  # warming up would not connect, or compare what the server has now
            elif member._is_warm():
                # An open session says little about a server that may hang.
                await member.connection.list_tools_async()
            else:
                await member.warm_up_async()
                error = None if member._unreachable_error is None else str(member._unreachable_error)
    except TimeoutError as failure:
        error = str(failure) or f"no answer within {timeout:g} seconds"
    except Exception as failure:
        error = str(failure) or type(failure).__name__
    return MCPProviderHealth(
        provider=name,
        server=member.server_info.describe(),
        ok=error is None,
        required=member.required,
        seconds=time.perf_counter() - started,
        error=error,
        tools=len(member) if error is None else 0,
    )


@stored_in("haystack_integrations.tools.mcp.registry")
class MCPRegistry(Compound):
    """
    The named MCP servers of an application, and aliases for groups of their tools.

    An operator configures once which servers there are, which of their tools may be used together, in how many turns,
    and for how long. Pipelines, Agents and custom loops only name an alias.

    ```python
    from haystack_integrations.tools.mcp import MCPRegistry, StdioServerInfo, ToolConfig

    registry = MCPRegistry(
        providers={
            "time": StdioServerInfo(command="uvx", args=["mcp-server-time"]),
            "git": StdioServerInfo(command="uvx", args=["mcp-server-git"]),
        },
        tool_configs=[
            ToolConfig("assistant", providers=["time", "git"], allow_tools=["get_current_time", "git_log"]),
        ],
    )
    agent = Agent(chat_generator=OpenAIChatGenerator(), tools=registry.toolset("assistant"))
    ```
    """

    def __init__(
        self,
        providers: Mapping[str, Any] | Iterable[Any] | None = None,
        tool_configs: Iterable[ToolConfig | Mapping[str, Any]] | None = None,
    ) -> None:
        """
        Initialize the registry. Nothing is connected.

        :param providers: Server infos by name, or the shorthand that `server_info_from` takes. An MCPToolset as a
            provider also sets how its tools are shaped and whether the server is required; the object itself is not
            used. Or a list of MCPProviders and LocalStdioMCPProviders, or of dictionaries of their fields.
        :param tool_configs: ToolConfigs, or dictionaries of their fields.
        :raises MCPConfigurationError: If a provider or a configuration is invalid, a name occurs twice, or a
            configuration names an unknown provider.
        """
        self._providers: dict[str, Provider] = providers_by_name(providers)
        self._users = UserCount()
        self._toolsets: dict[str, MCPAliasToolset] = {}
        if not isinstance(tool_configs, Iterable | None) or isinstance(tool_configs, str | Mapping):
            msg = f"MCPRegistry: `tool_configs` must be a list of ToolConfigs, got {type(tool_configs).__name__}"
            raise MCPConfigurationError(msg)
        for each in tool_configs or ():
            config = ToolConfig.of(each)
            if config.tool_alias in self._toolsets:
                msg = f"MCPRegistry: there are two tool configs with the alias '{config.tool_alias}'"
                raise MCPConfigurationError(msg)
            toolset = self._toolsets[config.tool_alias] = MCPAliasToolset(config, self._providers)
            toolset._users.count_users_of(self._users)

    @classmethod
    def from_config(
        cls,
        config: str | os.PathLike[str] | Mapping[str, Any],
        *,
        required: bool = True,
        inputs: Mapping[str, str | Secret] | None = None,
        oauth_config: OAuthConfig | None = None,
        **parameters: Any,
    ) -> Self:
        """
        Create a registry from the servers and the section `toolConfigs` of a configuration file.

        ```json
        {
          "mcpServers": {"docs": {"url": "https://docs.example/mcp"}, "web": {"command": "web-search-mcp"}},
          "toolConfigs": {"search": {"providers": ["docs", "web"], "max_tool_call_turns": 10, "timeout_sec": 30}}
        }
        ```

        :param config: Path of the file, or its content; see `load_mcp_toolsets`. Disabled servers are left out.
        :param required: Whether a server that cannot be reached is an error. An entry's `required` takes precedence.
        :param inputs: Values for `${input:ID}` by ID, for files of VS Code.
        :param oauth_config: How to log in at the servers with `"auth": "oauth"`. Default: `OAuthConfig()`.
        :param parameters: Further parameters of every server's MCPToolset, such as `connection_timeout`.
        :returns: The registry.
        :raises FileNotFoundError: If there is no such file.
        :raises ValueError: If the file is invalid. The message names the place and the valid choices.
        """
        options = {"invocation_timeout": None, "required": required, **parameters}
        configuration = Configuration(
            config, options, inputs=inputs, oauth_config=oauth_config, prefix_tool_names=False
        )
        providers = configuration.toolsets()
        configs = configuration.content.get(TOOL_CONFIGS)
        try:
            if isinstance(configs, Mapping):
                configs = [
                    {**fields, "tool_alias": alias} if isinstance(fields, Mapping) else fields
                    for alias, fields in configs.items()
                ]
            return cls(providers, configs)
        except MCPConfigurationError as error:
            msg = f"{configuration.where}: {TOOL_CONFIGS}: {error}"
            raise MCPConfigurationError(msg) from None

    @property
    def providers(self) -> dict[str, Provider]:
        """
        The servers by name: server infos, or MCPToolsets with their options.
        """
        return dict(self._providers)

    @property
    def tool_configs(self) -> dict[str, ToolConfig]:
        """
        The configurations by alias.
        """
        return {alias: toolset.tool_config for alias, toolset in self._toolsets.items()}

    @property
    def aliases(self) -> list[str]:
        """
        The aliases.
        """
        return list(self._toolsets)

    def tool_config(self, tool_alias: str) -> ToolConfig:
        """
        Get the configuration of an alias.

        :param tool_alias: The alias.
        :returns: The configuration.
        :raises MCPConfigurationError: If there is no such alias. The message lists the known aliases.
        """
        return self.toolset(tool_alias).tool_config

    def toolset(self, tool_alias: str) -> MCPAliasToolset:
        """
        Get the tools of an alias, as a Toolset for Agents, ToolInvokers and pipelines.

        :param tool_alias: The alias.
        :returns: The toolset; the same object each time.
        :raises MCPConfigurationError: If there is no such alias. The message lists the known aliases.
        """
        if not isinstance(tool_alias, str) or tool_alias not in self._toolsets:
            choices = describe_choices([str(tool_alias)], self.aliases, "It", "aliases")
            msg = f"The registry has no alias {tool_alias!r}. {choices}"
            raise MCPConfigurationError(msg)
        return self._toolsets[tool_alias]

    def tool_schemas(self, tool_alias: str) -> list[dict[str, Any]]:
        """
        Describe the tools of an alias in OpenAI's format. Connects to the servers if necessary.

        :param tool_alias: The alias.
        :returns: For each tool `{"type": "function", "function": {"name": …, "description": …, "parameters": …}}`.
        :raises MCPError: As `warm_up` of the toolset.
        """
        return self.get_mcp(tool_alias).get_tool_schemas()

    async def tool_schemas_async(self, tool_alias: str) -> list[dict[str, Any]]:
        """
        Describe the tools of an alias like `tool_schemas`, without blocking the event loop.
        """
        return await self.get_mcp(tool_alias).get_tool_schemas_async()

    def get_mcp(self, tool_alias: str) -> MCPFacade:
        """
        Get the tools of an alias for a custom loop around a chat generator.

        :param tool_alias: The alias.
        :returns: The facade.
        :raises MCPConfigurationError: If there is no such alias.
        """
        return MCPFacade(self.toolset(tool_alias))

    def generate(
        self,
        chat_generator: Any,
        prompt: Prompt,
        *,
        tool_alias: str | None = None,
        **options: Unpack[GenerationOptions],
    ) -> tuple[Any, list[ChatMessage]]:
        """
        Ask a model, which may call the tools of an alias.

        After `max_tool_call_turns` turns, its tool calls are refused, so that it answers in words. If the model still
        calls tools, the generation is stopped. A `tool_choice` applies to the first turn only.

        :param chat_generator: A chat generator of Haystack.
        :param prompt: The prompt: a text, or messages.
        :param tool_alias: The alias. Default: no tools.
        :param options: `parser`, a function that converts the text of the last reply to the output (default: the text);
            `system_prompt`, put before the prompt as a system message; `generation_kwargs`, passed to the chat
            generator.
        :returns: The output, and all messages: the prompt, tool calls and their results, and the last reply.
        :raises MCPBudgetExceededError: If the model does not stop calling tools. It has the `messages`.
        :raises MCPError: As `warm_up` of the toolset. Exceptions of the chat generator and the parser propagate.
        """
        facade = None if tool_alias is None else self.get_mcp(tool_alias)
        return generate(chat_generator, facade, prompt, options)

    async def generate_async(
        self,
        chat_generator: Any,
        prompt: Prompt,
        *,
        tool_alias: str | None = None,
        **options: Unpack[GenerationOptions],
    ) -> tuple[Any, list[ChatMessage]]:
        """
        Ask a model like `generate`, without blocking the event loop.
        """
        facade = None if tool_alias is None else self.get_mcp(tool_alias)
        return await generate_async(chat_generator, facade, prompt, options)

    def hooks(self, tool_alias: str) -> dict[str, list[Any]]:
        """
        Return the hooks that enforce the limits of an alias in an Agent, on Haystack 3.

        They count the tools of the alias only, so an Agent with tools of several aliases needs the hooks of each.

        :param tool_alias: The alias.
        :returns: The `hooks` of an Agent: a hook that refuses calls after `max_tool_call_turns` turns.
        :raises ImportError: On Haystack 2.31, which has no hooks; see `call_budget`.
        :raises MCPConfigurationError: If there is no such alias.
        """
        config = self.tool_config(tool_alias)
        # Haystack 2 has no hooks, so this import fails there.
        from haystack_integrations.hooks.mcp import MCPCallBudgetHook  # noqa: PLC0415

        return {"before_tool": [MCPCallBudgetHook(max_turns=config.max_tool_call_turns, tool_alias=config.tool_alias)]}

    def agent(self, tool_alias: str, chat_generator: Any, **parameters: Any) -> Agent:
        """
        Return an Agent with the tools of an alias, within the limits of the alias.

        On Haystack 3, a hook refuses tool calls after `max_tool_call_turns` turns, and the model answers in words.
        Haystack 2.31 has no hooks; there, `max_agent_steps` is the number of turns plus one step for the answer.

        :param tool_alias: The alias.
        :param chat_generator: The chat generator.
        :param parameters: Further parameters of the Agent. `hooks` run after the hooks of the alias.
        :returns: The Agent.
        :raises MCPConfigurationError: If there is no such alias, or `tools` are among the parameters.
        """
        from haystack.components.agents import Agent  # noqa: PLC0415 - slow to import

        if "tools" in parameters:
            msg = (
                "MCPRegistry.agent: the tools come from the alias. To add others, create the Agent yourself, with "
                "tools=[registry.toolset(alias), …] and hooks=registry.hooks(alias)"
            )
            raise MCPConfigurationError(msg)
        toolset = self.toolset(tool_alias)
        if HAS_HOOKS:
            hooks = self.hooks(tool_alias)
            for point, more in (parameters.pop("hooks", None) or {}).items():
                hooks[point] = [*hooks.get(point, []), *more]
            parameters["hooks"] = hooks
        else:
            # The additional step is for the answer.
            parameters.setdefault("max_agent_steps", toolset.tool_config.max_tool_call_turns + 1)
        return Agent(chat_generator=chat_generator, tools=toolset, **parameters)

    def health_check(
        self, aliases: Sequence[str] | None = None, *, raise_on_failure: bool = False, timeout: float = 30.0
    ) -> MCPHealthReport:
        """
        Request the tools of all servers of some aliases concurrently.

        Servers that answer remain connected for later use; `close` releases them.

        :param aliases: The aliases to check. Default: all.
        :param raise_on_failure: Whether to raise an error if an alias cannot be used.
        :param timeout: Time limit for each server, in seconds.
        :returns: The report. For each alias, it names its servers, the time that each took, and what is wrong.
        :raises MCPConfigurationError: If an alias is unknown. With `raise_on_failure`, also if tools are in conflict.
        :raises MCPConnectionError: With `raise_on_failure`, if a required server cannot be reached.
        """
        check = self.health_check_async(aliases, raise_on_failure=raise_on_failure, timeout=timeout)
        return AsyncExecutor.get_instance().run(check)

    async def health_check_async(
        self, aliases: Sequence[str] | None = None, *, raise_on_failure: bool = False, timeout: float = 30.0
    ) -> MCPHealthReport:
        """
        Check the servers like `health_check`, without blocking the event loop.
        """
        chosen = [*self._toolsets] if aliases is None else texts("aliases", aliases)
        toolsets = [self.toolset(alias) for alias in chosen]
        running_loop()
        checked = await asyncio.gather(*(_check_alias(toolset, timeout) for toolset in toolsets))
        report = MCPHealthReport({alias.tool_alias: alias for alias in checked})
        if raise_on_failure:
            report.raise_if_failed()
        return report

    def warm_up(self) -> None:
        """
        Connect to the servers of all aliases concurrently.

        :raises MCPError: As `warm_up` of the toolsets; an MCPConnectionError if it fails for several.
        """
        warm_up_toolsets(self._parts())

    async def warm_up_async(self) -> None:
        """
        Connect to the servers of all aliases like `warm_up`, without blocking the event loop.
        """
        await warm_up_toolsets_async(self._parts())

    def _parts(self) -> list[MCPAliasToolset]:
        return [*self._toolsets.values()]

    def _enter(self) -> None:
        # The first use of an alias connects to its servers; other servers are not connected.
        pass

    async def _enter_async(self) -> None:
        pass

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the registry.

        :returns: A dictionary with the providers and the configurations.
        :raises ValueError: If a provider contains the key itself instead of a Secret of an environment variable.
        """
        return default_to_dict(
            self,
            providers={name: provider.to_dict() for name, provider in self._providers.items()},
            tool_configs=[config.to_dict() for config in self.tool_configs.values()],
        )

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize a registry, without connecting.

        :param data: The result of `to_dict`.
        :returns: The registry.
        """
        parameters = dict(data.get("init_parameters", {}))
        providers = parameters.get("providers")
        if isinstance(providers, Mapping):
            parameters["providers"] = {name: load_provider(provider) for name, provider in providers.items()}
        loaded: Self = default_from_dict(cls, {**data, "init_parameters": parameters})
        return loaded

    def __repr__(self) -> str:
        """
        Describe the registry without secrets.
        """
        return f"{type(self).__name__}(providers={list(self._providers)!r}, aliases={self.aliases!r})"
