# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What an operator configures: the servers of a registry by name, and which of their tools go by which alias.

Servers are server infos, MCPToolsets with their options, or what Data Designer configures.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Annotated, Any, ClassVar, Literal, TypeAlias

from haystack.core.serialization import import_class_by_name
from haystack.utils import Secret
from pydantic import Field, SkipValidation
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import CHECKED, Options, Seconds, Text, explains_options
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo, server_info_from_dict
from haystack_integrations.tools.mcp.secret_template import from_template
from haystack_integrations.tools.mcp.transports.server_infos import (
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.transports.shorthand import server_info_from

Provider: TypeAlias = MCPServerInfo | MCPToolset

# What Data Designer takes for the name of an environment variable that holds the key.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")


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
        :returns: True if `allow_tools` is None or has it.
        """
        allowed = self.allow_tools
        return allowed is None or tool_name in allowed or f"{provider}/{tool_name}" in allowed


class _NamedServer(Options):
    _parameter: ClassVar[str] = "providers"
    _error = MCPConfigurationError

    name: Text

    def __post_init__(self) -> None:
        """
        Check what the server info checks.
        """
        try:
            self.server_info()
        except ValueError as error:
            msg = f"'{self.name}': {error}"
            raise ValueError(msg) from None

    def server_info(self) -> MCPServerInfo:
        """
        Return how to reach the server.
        """
        raise NotImplementedError

    def _as_dict(self, method: str) -> dict[str, Any]:
        left_out = () if method == "to_dict" else ("api_key", "env")
        return {name: value for name, value in self.changed().items() if name not in left_out}


@explains_options
@checked_dataclass(frozen=True, repr=False, config=CHECKED)
class MCPProvider(_NamedServer):
    """
    A remote server by name, as Data Designer configures it.

    :param name: Name of the provider.
    :param endpoint: URL of the server.
    :param api_key: Optional key, which is sent as a bearer token: a Secret, `"${NAME}"` or the name of an environment
        variable (`"DOCS_API_KEY"`), or the key itself. YAML has Secrets of environment variables only: a registry with
        a key itself cannot be saved.
    :param provider_type: "sse" (default) or "streamable_http".
    :raises MCPConfigurationError: If a field is invalid.
    """

    name: Text
    endpoint: str
    api_key: SkipValidation[str | Secret | None] = None
    provider_type: Literal["sse", "streamable_http"] = "sse"

    def server_info(self) -> SSEServerInfo | StreamableHttpServerInfo:
        """
        Return how to reach the server.
        """
        kind = SSEServerInfo if self.provider_type == "sse" else StreamableHttpServerInfo
        return kind(url=self.endpoint, token=_key(self.api_key))


@explains_options
@checked_dataclass(frozen=True, repr=False, config=CHECKED)
class LocalStdioMCPProvider(_NamedServer):
    """
    A server that is started as a child process, by name, as Data Designer configures it.

    :param name: Name of the provider.
    :param command: Program to start.
    :param args: Its arguments.
    :param env: Additional environment variables; values may be Secrets or have `${NAME}` in them.
    :param provider_type: Always "stdio".
    :raises MCPConfigurationError: If a field is invalid.
    """

    name: Text
    command: str
    args: list[str] = dataclasses.field(default_factory=list)
    env: SkipValidation[dict[str, str | Secret]] = dataclasses.field(default_factory=dict)
    provider_type: Literal["stdio"] = "stdio"

    def server_info(self) -> StdioServerInfo:
        """
        Return how to start the server.
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
    if _VARIABLE.fullmatch(api_key):
        return Secret.from_env_var(api_key)
    value = from_template(api_key)
    return value if isinstance(value, Secret) else Secret.from_token(value)


def providers_by_name(providers: Mapping[str, Any] | Iterable[Any] | None) -> dict[str, Provider]:
    """
    Read the providers of a registry.

    :param providers: A mapping from names to server infos, to MCPToolsets or to what `server_info_from` takes; or a
        list of MCPProviders, LocalStdioMCPProviders and dictionaries of their fields.
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

    :param data: What `to_dict` of a server info or an MCPToolset returned.
    :returns: The server info or the toolset.
    :raises TypeError: If it is something else.
    """
    if "data" not in data:
        return server_info_from_dict(data)
    cls = import_class_by_name(data["type"])
    if not (isinstance(cls, type) and issubclass(cls, MCPToolset)):
        msg = f"'{data['type']}' is neither a subclass of MCPToolset nor of MCPServerInfo, so it is no provider"
        raise TypeError(msg)
    return cls.from_dict(data)
