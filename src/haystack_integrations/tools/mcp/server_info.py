# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from numbers import Real
from typing import TYPE_CHECKING, Any, ClassVar
from urllib.parse import SplitResult, urlsplit

from haystack import logging
from haystack.utils import Secret

from haystack_integrations.tools.mcp.base_server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_args, redact_url

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.client import MCPClient

logger = logging.getLogger(__name__)

__all__ = [
    "InProcessServerInfo",
    "MCPServerInfo",
    "SSEServerInfo",
    "StdioServerInfo",
    "StreamableHttpServerInfo",
    "resolve_headers",
    "resolve_secrets",
]


def _client_class(name: str) -> Any:
    # client.py imports the MCP SDK, which takes longer than everything else together; a pipeline that is only built
    # or loaded must not pay for it.
    return getattr(importlib.import_module("haystack_integrations.tools.mcp.client"), name)


def _check_number(owner: object, parameter: str, *, minimum: float, exclusive: bool = False) -> None:
    value = getattr(owner, parameter)
    valid = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not valid or value < minimum or (exclusive and value == minimum):
        bound = f"greater than {minimum:g}" if exclusive else f"at least {minimum:g}"
        msg = f"{type(owner).__name__}: `{parameter}` must be a number {bound}, got {value!r}"
        raise ValueError(msg)


def _check_secrets(owner: object, parameter: str) -> None:
    value = getattr(owner, parameter)
    if value is None:
        return
    if not isinstance(value, Mapping):
        msg = f"{type(owner).__name__}: `{parameter}` must be a dict or None, got {type(value).__name__}"
        raise ValueError(msg)
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, (str, Secret)):
            msg = (
                f"{type(owner).__name__}: `{parameter}` maps strings to strings or Secrets; "
                f"the value of {key!r} is of type {type(item).__name__}"
            )
            raise ValueError(msg)


def _check_retries(info: Any) -> None:
    _check_number(info, "max_retries", minimum=0)
    if not isinstance(info.max_retries, int):
        msg = f"{type(info).__name__}: `max_retries` must be a whole number, got {info.max_retries!r}"
        raise ValueError(msg)
    _check_number(info, "base_delay", minimum=0)
    _check_number(info, "max_delay", minimum=0)


def _check_http(info: Any) -> None:
    parts = _split(info.url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or not _has_valid_port(parts):
        msg = f"Invalid url: {redact_url(str(info.url))}. `url` must be like https://host/path."
        raise ValueError(msg)
    if info.token is not None and not isinstance(info.token, (str, Secret)):
        msg = f"{type(info).__name__}: `token` must be a string, a Secret or None, got {type(info.token).__name__}"
        raise ValueError(msg)
    _check_secrets(info, "headers")
    _check_number(info, "timeout", minimum=0, exclusive=True)
    _check_retries(info)


def _split(url: object) -> SplitResult | None:
    try:
        return urlsplit(url) if isinstance(url, str) else None
    except ValueError:  # e.g. an unclosed bracket of an IPv6 address
        return None


def _has_valid_port(parts: SplitResult) -> bool:
    try:
        return parts.port != 0
    except ValueError:
        return False


@dataclass(repr=False)
class StdioServerInfo(MCPServerInfo):
    """
    Data class that encapsulates stdio MCP server connection parameters.

    For environment variables containing sensitive data, you can use Secret objects for secure handling and
    serialization:

    ```python
    server_info = StdioServerInfo(
        command="uv",
        args=["run", "my-mcp-server"],
        env={
            "WORKSPACE_PATH": "/path/to/workspace",  # Plain string
            "API_KEY": Secret.from_env_var("API_KEY"),  # Secret object
        }
    )
    ```

    The server inherits only the harmless variables of this process (`PATH`, `HOME`, … as the MCP SDK has them) and what
    is in `env`.

    :param command: Command to run (e.g., "python", "node").
    :param args: Arguments to pass to the command.
    :param env: Environment variables for the command. One whose optional Secret has no value is left out.
    :param max_retries: How often a lost session is reopened, or a call that provably did not run is sent again.
    :param base_delay: Base delay of the exponential back-off between these attempts, in seconds.
    :param max_delay: Longest delay between these attempts, in seconds.
    :param cwd: Working directory of the command; by default that of this process.
    """

    command: str
    args: list[str] | None = None
    env: dict[str, str | Secret] | None = None
    max_retries: int = 3
    base_delay: float = 1.0
    max_delay: float = 30.0
    cwd: str | None = None

    _optional_fields: ClassVar[frozenset[str]] = frozenset({"cwd"})

    def __post_init__(self) -> None:
        """
        Refuse invalid parameters.

        :raises ValueError: Naming the parameter and what it takes.
        """
        if not isinstance(self.command, str) or not self.command.strip():
            msg = f"StdioServerInfo: `command` must be a non-empty string, got {self.command!r}"
            raise ValueError(msg)
        args = self.args
        if args is not None and (not isinstance(args, (list, tuple)) or not all(isinstance(arg, str) for arg in args)):
            msg = "StdioServerInfo: `args` must be a list of strings or None"
            raise ValueError(msg)
        if self.cwd is not None:
            self.cwd = str(self.cwd)
        _check_secrets(self, "env")
        _check_retries(self)

    def create_client(self) -> MCPClient:
        """
        Create a stdio MCP client.

        :returns: Configured StdioClient instance.
        """
        client: MCPClient = _client_class("StdioClient")(
            command=self.command,
            args=self.args,
            env=self.env,
            max_retries=self.max_retries,
            base_delay=self.base_delay,
            max_delay=self.max_delay,
            cwd=self.cwd,
        )
        return client

    def describe(self) -> str:
        """
        Describe the server for messages.

        :returns: The command line, without the values of options that look like credentials.
        """
        return f"stdio server `{' '.join([self.command, *redact_args(list(self.args or []))])}`"

    def _redacted_fields(self) -> dict[str, Any]:
        fields = super()._redacted_fields()
        return {**fields, "args": None if self.args is None else redact_args(list(self.args))}


@dataclass(repr=False)
class SSEServerInfo(MCPServerInfo):
    """
    Data class that encapsulates SSE MCP server connection parameters.

    For authentication tokens containing sensitive data, you can use Secret objects for secure handling and
    serialization:

    ```python
    server_info = SSEServerInfo(
        url="https://my-mcp-server.com/sse",
        token=Secret.from_env_var("API_KEY"),
    )
    ```

    For custom headers (e.g., non-standard authentication):

    ```python
    server_info = SSEServerInfo(
        url="https://my-mcp-server.com/sse",
        headers={
            "X-API-Key": Secret.from_env_var("API_KEY"),
            "X-Client-ID": "my-client-id",
        },
    )
    ```

    :param url: Full URL of the MCP server (including /sse endpoint).
    :param base_url: Base URL of the MCP server (deprecated, use url instead).
    :param token: Authentication token for the server (optional, generates the header `Authorization: Bearer <token>`).
    :param headers: Custom HTTP headers. They are sent together with the token's header, unless they have an
        `Authorization` of their own, which takes precedence.
    :param timeout: Connection timeout in seconds.
    :param max_retries: How often a lost session is reopened, or a call that provably did not run is sent again.
    :param base_delay: Base delay of the exponential back-off between these attempts, in seconds.
    :param max_delay: Longest delay between these attempts, in seconds.
    """

    url: str | None = None
    base_url: str | None = None
    token: str | Secret | None = None
    headers: dict[str, str | Secret] | None = None
    timeout: int = 30
    max_retries: int = 3
    base_delay: float = 1.0
    max_delay: float = 30.0

    def __post_init__(self) -> None:
        """
        Refuse invalid parameters and resolve the deprecated `base_url`.

        :raises ValueError: Naming the parameter and what it takes.
        """
        if not self.url and not self.base_url:
            msg = "Either url or base_url must be provided"
            raise ValueError(msg)
        if self.base_url is not None and not isinstance(self.base_url, str):
            msg = f"SSEServerInfo: `base_url` must be a string or None, got {type(self.base_url).__name__}"
            raise ValueError(msg)
        derived_url = f"{self.base_url.rstrip('/')}/sse" if self.base_url else None
        if self.url and derived_url and self.url != derived_url:
            warnings.warn(
                "Only one of url or base_url should be provided, if both are provided, base_url will be ignored",
                DeprecationWarning,
                stacklevel=3,
            )
        if self.base_url:
            warnings.warn("base_url is deprecated, use url instead", DeprecationWarning, stacklevel=3)
            self.url = self.url or derived_url
        _check_http(self)

    def create_client(self) -> MCPClient:
        """
        Create an SSE MCP client.

        :returns: Configured SSEClient instance.
        """
        client: MCPClient = _client_class("SSEClient")(
            self, max_retries=self.max_retries, base_delay=self.base_delay, max_delay=self.max_delay
        )
        return client

    def describe(self) -> str:
        """
        Describe the server for messages.

        :returns: Transport and URL.
        """
        return f"SSE server at {redact_url(str(self.url))}"

    def _redacted_fields(self) -> dict[str, Any]:
        base_url = None if self.base_url is None else redact_url(self.base_url)
        return {**super()._redacted_fields(), "url": redact_url(str(self.url)), "base_url": base_url}


@dataclass(repr=False)
class StreamableHttpServerInfo(MCPServerInfo):
    """
    Data class that encapsulates streamable HTTP MCP server connection parameters.

    For authentication tokens containing sensitive data, you can use Secret objects for secure handling and
    serialization:

    ```python
    server_info = StreamableHttpServerInfo(
        url="https://my-mcp-server.com/mcp",
        token=Secret.from_env_var("API_KEY"),
    )
    ```

    For custom headers (e.g., non-standard authentication):

    ```python
    server_info = StreamableHttpServerInfo(
        url="https://my-mcp-server.com/mcp",
        headers={
            "X-API-Key": Secret.from_env_var("API_KEY"),
            "X-Client-ID": "my-client-id",
        },
    )
    ```

    :param url: Full URL of the MCP server (streamable HTTP endpoint).
    :param token: Authentication token for the server (optional, generates the header `Authorization: Bearer <token>`).
    :param headers: Custom HTTP headers. They are sent together with the token's header, unless they have an
        `Authorization` of their own, which takes precedence.
    :param timeout: Connection timeout in seconds.
    :param max_retries: How often a lost session is reopened, or a call that provably did not run is sent again.
    :param base_delay: Base delay of the exponential back-off between these attempts, in seconds.
    :param max_delay: Longest delay between these attempts, in seconds.
    """

    url: str
    token: str | Secret | None = None
    headers: dict[str, str | Secret] | None = None
    timeout: int = 30
    max_retries: int = 3
    base_delay: float = 1.0
    max_delay: float = 30.0

    def __post_init__(self) -> None:
        """
        Refuse invalid parameters.

        :raises ValueError: Naming the parameter and what it takes.
        """
        _check_http(self)

    def create_client(self) -> MCPClient:
        """
        Create a streamable HTTP MCP client.

        :returns: Configured StreamableHttpClient instance.
        """
        client: MCPClient = _client_class("StreamableHttpClient")(
            self, max_retries=self.max_retries, base_delay=self.base_delay, max_delay=self.max_delay
        )
        return client

    def describe(self) -> str:
        """
        Describe the server for messages.

        :returns: Transport and URL.
        """
        return f"streamable HTTP server at {redact_url(self.url)}"

    def _redacted_fields(self) -> dict[str, Any]:
        return {**super()._redacted_fields(), "url": redact_url(self.url)}


def resolve_headers(info: SSEServerInfo | StreamableHttpServerInfo) -> dict[str, str]:
    """
    Make the HTTP headers of a server info, with the values of its secrets.

    :param info: The server info.
    :returns: `headers`, and `Authorization: Bearer <token>` unless they have an `Authorization` of their own.
    :raises ValueError: If a required secret has no value.
    """
    headers = resolve_secrets(info.headers)
    token = info.token.resolve_value() if isinstance(info.token, Secret) else info.token
    if token and not any(name.lower() == "authorization" for name in headers):
        headers["Authorization"] = f"Bearer {token}"
    return headers


def resolve_secrets(values: Mapping[str, str | Secret] | None) -> dict[str, str]:
    """
    Replace Secrets by their values.

    :param values: Headers or environment variables.
    :returns: Strings only. What an optional Secret leaves without a value is left out, with a warning.
    :raises ValueError: If a required secret has no value.
    """
    resolved: dict[str, str] = {}
    for name, value in (values or {}).items():
        plain = value.resolve_value() if isinstance(value, Secret) else value
        if plain is None:
            logger.warning("The optional secret of '{key}' has no value; '{key}' is left out", key=name)
        else:
            resolved[name] = str(plain)
    return resolved


@dataclass(repr=False)
class InProcessServerInfo(MCPServerInfo):
    """
    An MCP server in this very process: no child process, no port.

    The server runs in the event loop of the `AsyncExecutor`. For tests, notebooks and quick starts, and for tools that
    were written for MCP and are needed in one process only.

    ```python
    from mcp.server import MCPServer

    server = MCPServer("calculator")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    server_info = InProcessServerInfo(server)                         # the object, or
    server_info = InProcessServerInfo("my_package.my_module:server")  # where to import it from (serialisable)
    ```

    :param server: An `mcp` server (`MCPServer` or low-level `Server`), a FastMCP server, or its import path
        `"package.module:attribute"`, which is imported when the session is opened.
    """

    server: Any

    def __post_init__(self) -> None:
        """
        Refuse what is neither a server nor an import path.

        :raises ValueError: Naming the parameter and what it takes.
        """
        if isinstance(self.server, str):
            module, _, attribute = self.server.partition(":")
            if not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
                msg = f"InProcessServerInfo: `server` must be like 'package.module:server', got {self.server!r}"
                raise ValueError(msg)
        elif self.server is None or isinstance(self.server, (Mapping, list, int, float, bytes)):
            msg = (
                "InProcessServerInfo: `server` must be an MCP server object or its import path "
                f"'package.module:server', got {type(self.server).__name__}"
            )
            raise ValueError(msg)

    def create_client(self) -> MCPClient:
        """
        Create an in-process MCP client.

        :returns: Configured InProcessClient instance.
        """
        client: MCPClient = _client_class("InProcessClient")(self.server)
        return client

    def describe(self) -> str:
        """
        Describe the server for messages.

        :returns: The import path, or the name of the server object.
        """
        name = self.server if isinstance(self.server, str) else getattr(self.server, "name", type(self.server).__name__)
        return f"in-process server '{name}'"

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize this server info to a dictionary.

        :returns: Dictionary representation of this server info.
        :raises ValueError: If it holds a server object instead of an import path.
        """
        if not isinstance(self.server, str):
            msg = (
                "InProcessServerInfo holds a server object, which cannot be serialized. Create it with the import path "
                "of the server instead: InProcessServerInfo('package.module:server')."
            )
            raise ValueError(msg)
        return super().to_dict()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> InProcessServerInfo:
        """
        Deserialize server info from a dictionary.

        :param data: Dictionary containing serialized server info.
        :returns: The server info.
        :raises DeserializationError: If Haystack 3's allowlist of modules does not have the one of the import path.
        """
        info = super().from_dict(data)
        if isinstance(info.server, str):
            _check_module_may_be_imported(info.server.partition(":")[0])
        return info

    def _to_trace_dict(self) -> dict[str, Any]:
        return {"type": self._serialized_type(), "server": self.describe()}


def _check_module_may_be_imported(module: str) -> None:
    # Haystack 3 guards every import that serialized data asks for; Haystack 2 has no such check.
    try:
        security = importlib.import_module("haystack.core.serialization_security")
    except ModuleNotFoundError:
        return
    security._check_module_allowed(module)
