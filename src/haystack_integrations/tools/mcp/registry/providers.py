# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The servers of a registry, by name: as server infos, as MCPToolsets with their options, or as Data Designer names them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias, TypeVar

from haystack.core.serialization import import_class_by_name
from haystack.utils import Secret

from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import short_repr
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo, server_info_from_dict
from haystack_integrations.tools.mcp.secret_template import from_template
from haystack_integrations.tools.mcp.transports.http.server_info import SSEServerInfo, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.transports.shorthand import server_info_from
from haystack_integrations.tools.mcp.transports.stdio.server_info import StdioServerInfo

InfoT = TypeVar("InfoT", bound=MCPServerInfo)

Provider: TypeAlias = MCPServerInfo | MCPToolset

# What Data Designer takes for the name of an environment variable that holds the key.
_VARIABLE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")


@short_repr
@dataclass(frozen=True)
class MCPProvider:
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

    name: str
    endpoint: str
    api_key: str | Secret | None = field(default=None, repr=False)
    provider_type: Literal["sse", "streamable_http"] = "sse"

    def __post_init__(self) -> None:
        """
        Validate the fields.
        """
        _check_name(self)
        if self.provider_type not in ("sse", "streamable_http"):
            msg = (
                f"MCPProvider '{self.name}': `provider_type` must be 'sse' or 'streamable_http', got "
                f"{self.provider_type!r}. A LocalStdioMCPProvider starts a command."
            )
            raise MCPConfigurationError(msg)
        self.server_info()

    def server_info(self) -> SSEServerInfo | StreamableHttpServerInfo:
        """
        Say how to reach the server.

        :returns: The server info.
        """

        def build() -> SSEServerInfo | StreamableHttpServerInfo:
            kind = SSEServerInfo if self.provider_type == "sse" else StreamableHttpServerInfo
            return kind(url=self.endpoint, token=_key(self.api_key))

        return _built(self, build)


@short_repr
@dataclass(frozen=True)
class LocalStdioMCPProvider:
    """
    A server that is started as a child process, by name, as Data Designer configures it.

    :param name: Name of the provider.
    :param command: Program to start.
    :param args: Its arguments.
    :param env: Additional environment variables; values may be Secrets or have `${NAME}` in them.
    :param provider_type: Always "stdio".
    :raises MCPConfigurationError: If a field is invalid.
    """

    name: str
    command: str
    args: list[str] = field(default_factory=list)
    env: dict[str, str | Secret] = field(default_factory=dict, repr=False)
    provider_type: Literal["stdio"] = "stdio"

    def __post_init__(self) -> None:
        """
        Validate the fields.
        """
        _check_name(self)
        if self.provider_type != "stdio":
            msg = f"LocalStdioMCPProvider '{self.name}': `provider_type` must be 'stdio', got {self.provider_type!r}"
            raise MCPConfigurationError(msg)
        self.server_info()

    def server_info(self) -> StdioServerInfo:
        """
        Say how to start the server.

        :returns: The server info.
        """

        def build() -> StdioServerInfo:
            env: Any = self.env
            if isinstance(env, Mapping):
                env = {name: from_template(value) if isinstance(value, str) else value for name, value in env.items()}
            args: Any = self.args
            return StdioServerInfo(self.command, list(args) if isinstance(args, tuple) else args, env or None)

        return _built(self, build)


def _check_name(provider: Any) -> None:
    if not isinstance(provider.name, str) or not provider.name:
        msg = f"{type(provider).__name__}: `name` must be a non-empty string, got {provider.name!r}"
        raise MCPConfigurationError(msg)


def _built(provider: Any, build: Callable[[], InfoT]) -> InfoT:
    try:
        return build()
    except (ValueError, AttributeError, TypeError) as error:
        msg = f"{type(provider).__name__} '{provider.name}': {error}"
        raise MCPConfigurationError(msg) from None


def _key(api_key: str | Secret | None) -> Secret | None:
    if api_key is None or isinstance(api_key, Secret):
        return api_key
    if _VARIABLE.fullmatch(api_key):
        return Secret.from_env_var(api_key)
    value = from_template(api_key)
    return value if isinstance(value, Secret) else Secret.from_token(value)


def providers_by_name(providers: Any) -> dict[str, Provider]:
    """
    Read the providers of a registry.

    :param providers: A mapping from names to server infos, to MCPToolsets or to what `server_info_from` takes; or a
        list of MCPProviders, LocalStdioMCPProviders and dictionaries of their fields.
    :returns: Server infos and toolsets by name.
    :raises MCPConfigurationError: If one is invalid, or a name occurs twice.
    """
    if providers is None:
        return {}
    if isinstance(providers, Mapping):
        return {_checked_name(name): _provider(name, provider) for name, provider in providers.items()}
    if isinstance(providers, str) or not isinstance(providers, Iterable):
        msg = (
            "MCPRegistry: `providers` must be a dict from names to server infos, or a list of MCPProviders and "
            f"LocalStdioMCPProviders, got {type(providers).__name__}"
        )
        raise MCPConfigurationError(msg)
    found: dict[str, Provider] = {}
    for each in providers:
        named = _named(each)
        if named.name in found:
            msg = f"MCPRegistry: there are two providers named '{named.name}'"
            raise MCPConfigurationError(msg)
        found[named.name] = named.server_info()
    return found


def _checked_name(name: object) -> str:
    if not isinstance(name, str) or not name:
        msg = f"MCPRegistry: the name of a provider must be a non-empty string, got {name!r}"
        raise MCPConfigurationError(msg)
    return name


def _provider(name: str, provider: Any) -> Provider:
    if isinstance(provider, MCPToolset):
        return provider
    if isinstance(provider, (MCPProvider, LocalStdioMCPProvider)):
        return provider.server_info()
    try:
        return server_info_from(provider)
    except (ValueError, TypeError) as error:
        msg = f"MCPRegistry: provider '{name}': {error}"
        raise MCPConfigurationError(msg) from None


def _named(each: Any) -> MCPProvider | LocalStdioMCPProvider:
    if isinstance(each, (MCPProvider, LocalStdioMCPProvider)):
        return each
    if not isinstance(each, Mapping):
        msg = (
            "MCPRegistry: a list of `providers` has MCPProviders, LocalStdioMCPProviders or dictionaries of their "
            f"fields, not {type(each).__name__}; pass a dict from names to server infos for others"
        )
        raise MCPConfigurationError(msg)
    is_local = each.get("provider_type") == "stdio" or "command" in each
    kind: Any = LocalStdioMCPProvider if is_local else MCPProvider
    known = [one.name for one in dataclasses.fields(kind)]
    required = known[:2]
    if unknown := [key for key in each if key not in known]:
        msg = f"{kind.__name__} has no field {', '.join(map(repr, unknown))}; it has {', '.join(known)}"
        raise MCPConfigurationError(msg)
    if missing := [key for key in required if key not in each]:
        msg = f"{kind.__name__} {each.get('name', '')!r} lacks {' and '.join(f'`{key}`' for key in missing)}"
        raise MCPConfigurationError(msg)
    made: MCPProvider | LocalStdioMCPProvider = kind(**each)
    return made


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
