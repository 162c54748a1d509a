# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from urllib.parse import SplitResult, urlsplit

from haystack.utils import Secret

from haystack_integrations.tools.mcp.client.server_info import STORED_MODULE, MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_url
from haystack_integrations.tools.mcp.secret_template import resolved, shown
from haystack_integrations.tools.mcp.transports.fields import (
    DEFAULT_MAX_MESSAGE_SIZE,
    check_message_size,
    check_number,
    check_retries,
    check_secrets,
    resolve_secret,
    resolve_secrets,
)

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.client.base import MCPClient


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


def _check_url(url: object) -> None:
    parts = _split(url)
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or not _has_valid_port(parts):
        msg = f"Invalid url: {redact_url(str(url))}. `url` must be like https://host/path."
        raise ValueError(msg)


class HttpServerInfo(MCPServerInfo):
    """
    What the server infos of the two HTTP transports share.

    It is not a dataclass, because each subclass has its own order of fields, which positional arguments rely on.
    """

    _transport: ClassVar[Literal["sse", "streamable-http"]]

    url: Any
    token: str | Secret | None
    headers: dict[str, str | Secret] | None
    timeout: int
    max_retries: int
    base_delay: float
    max_delay: float
    max_message_size: int

    _optional_fields: ClassVar[Mapping[str, Any]] = {"max_message_size": DEFAULT_MAX_MESSAGE_SIZE}

    def __post_init__(self) -> None:
        """
        Refuse invalid parameters.

        :raises ValueError: Naming the parameter and what it takes.
        """
        if not isinstance(self.url, Secret):  # which is a URL only when a session is opened
            _check_url(self.url)
        if self.token is not None and not isinstance(self.token, (str, Secret)):
            msg = f"{type(self).__name__}: `token` must be a string, a Secret or None, got {type(self.token).__name__}"
            raise ValueError(msg)
        check_secrets(self, "headers")
        check_number(self, "timeout", minimum=0, exclusive=True)
        check_retries(self)
        check_message_size(self)

    def create_client(self) -> MCPClient:
        """
        Create an MCP client for this server.

        :returns: Configured SSEClient or StreamableHttpClient instance.
        """
        # Imported here, because this loads the MCP SDK, which takes longer than everything else together: a pipeline
        # that is only built or loaded must not pay for it.
        from haystack_integrations.tools.mcp.transports.http.client import (  # noqa: PLC0415
            SSEClient,
            StreamableHttpClient,
        )

        client_class = SSEClient if self._transport == "sse" else StreamableHttpClient
        return client_class(self, max_retries=self.max_retries, base_delay=self.base_delay, max_delay=self.max_delay)

    def describe(self) -> str:
        """
        Describe the server for messages.

        :returns: Transport and URL.
        """
        name = "SSE" if self._transport == "sse" else "streamable HTTP"
        return f"{name} server at {redact_url(shown(self.url))}"

    def _redacted_fields(self) -> dict[str, Any]:
        return {**super()._redacted_fields(), "url": redact_url(shown(self.url))}


@dataclass(repr=False)
class SSEServerInfo(HttpServerInfo):
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
    :param max_message_size: How many bytes one message of the server, e.g. the result of a call, may have, after it was
        decompressed. Default: 64 MiB. A larger one ends the session; calls under way fail with an
        MCPOutcomeUnknownError.
    """

    _stored_module: ClassVar[str] = STORED_MODULE
    _transport: ClassVar[Literal["sse", "streamable-http"]] = "sse"
    _transport_name: ClassVar[str] = "sse"

    url: str | Secret | None = None
    base_url: str | None = None
    token: str | Secret | None = None
    headers: dict[str, str | Secret] | None = None
    timeout: int = 30
    max_retries: int = 3
    base_delay: float = 1.0
    max_delay: float = 30.0
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE

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
        super().__post_init__()

    def _redacted_fields(self) -> dict[str, Any]:
        return {**super()._redacted_fields(), "base_url": self.base_url and redact_url(self.base_url)}


@dataclass(repr=False)
class StreamableHttpServerInfo(HttpServerInfo):
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
    :param max_message_size: How many bytes one message of the server, e.g. the result of a call, may have, after it was
        decompressed. Default: 64 MiB. A call whose answer is larger fails with an MCPOutcomeUnknownError; the session
        goes on.
    :param sse_fallback: Whether to try SSE if the server refuses Streamable HTTP with status 400, 404 or 405, as
        servers of the revision 2024-11-05 do. Default: False. A server info made from a URL alone has it.
    """

    _stored_module: ClassVar[str] = STORED_MODULE
    _transport: ClassVar[Literal["sse", "streamable-http"]] = "streamable-http"
    _transport_name: ClassVar[str] = "streamable-http"

    url: str | Secret
    token: str | Secret | None = None
    headers: dict[str, str | Secret] | None = None
    timeout: int = 30
    max_retries: int = 3
    base_delay: float = 1.0
    max_delay: float = 30.0
    max_message_size: int = DEFAULT_MAX_MESSAGE_SIZE
    sse_fallback: bool = False

    _optional_fields: ClassVar[Mapping[str, Any]] = {**HttpServerInfo._optional_fields, "sse_fallback": False}


def resolve_url(info: HttpServerInfo) -> str:
    """
    Give the URL of a server info, with the values of its variables.

    :param info: The server info.
    :returns: The URL.
    :raises ValueError: If a variable is not set, or the result is no URL.
    """
    url = resolved(info.url)
    try:
        _check_url(url)
    except ValueError:
        if url == info.url:
            raise
        msg = f"with the values of its variables, `url` is no URL like https://host/path: {shown(info.url)}"
        raise ValueError(msg) from None  # the other error quotes the values
    return url


def resolve_headers(info: HttpServerInfo) -> dict[str, str]:
    """
    Make the HTTP headers of a server info, with the values of its secrets.

    :param info: The server info.
    :returns: `headers`, and `Authorization: Bearer <token>` unless they have an `Authorization` of their own.
    :raises ValueError: If a required secret has no value.
    """
    headers = resolve_secrets(info.headers)
    token = resolve_secret("token", info.token) if isinstance(info.token, Secret) else info.token
    if token and not any(name.lower() == "authorization" for name in headers):
        headers["Authorization"] = f"Bearer {token}"
    return headers
