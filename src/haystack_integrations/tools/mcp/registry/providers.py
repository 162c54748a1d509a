# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The servers of a registry, by name: as server infos, as MCPToolsets with their options, or as Data Designer names them.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Literal, TypeAlias

from haystack.core.serialization import import_class_by_name
from haystack.utils import Secret
from pydantic import SkipValidation
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import CHECKED, Options, Text, explains_options
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


class _NamedServer(Options):
    _example: ClassVar[str] = "providers=[{}=…]"
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

    def _to_trace_dict(self) -> dict[str, Any]:
        return {name: value for name, value in self.changed().items() if name not in ("api_key", "env")}


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
        env = {name: from_template(value) if isinstance(value, str) else value for name, value in self.env.items()}
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
