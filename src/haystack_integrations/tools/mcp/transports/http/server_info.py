# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How to reach a server over HTTP.
"""

from __future__ import annotations

import warnings
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from haystack.utils import Secret
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.parameters import CHECKED, explains_options
from haystack_integrations.tools.mcp.redaction import redact_url
from haystack_integrations.tools.mcp.transports.http.http_server_info import HttpServerInfo

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.transports.http.client import SSEClient, StreamableHttpClient


@dataclass(repr=False)
class _BeforeToken:  # positional arguments rely on this order
    url: str | Secret | None = None
    base_url: str | None = None


@explains_options
@checked_dataclass(repr=False, config=CHECKED)
class SSEServerInfo(HttpServerInfo, _BeforeToken):
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

    It opens a session with the handshake first (`negotiation`). An answer that is too large ends the session.

    :param url: Full URL of the MCP server (including /sse endpoint).
    :param base_url: Base URL of the MCP server (deprecated, use url instead).
    :param token: This and all further parameters are those of `HttpServerInfo`.
    """

    _transport_name = "sse"

    url: str | Secret | None = None

    def __post_init__(self) -> None:
        """
        Refuse invalid parameters and resolve the deprecated `base_url`.

        :raises ValueError: Naming the parameter and what it takes.
        """
        if not self.url and not self.base_url:
            msg = "Either url or base_url must be provided"
            raise ValueError(msg)
        if self.base_url:
            derived_url = f"{self.base_url.rstrip('/')}/sse"
            if self.url and self.url != derived_url:
                warnings.warn(
                    "Only one of url or base_url should be provided, if both are provided, base_url will be ignored",
                    DeprecationWarning,
                    stacklevel=4,
                )
            warnings.warn("base_url is deprecated, use url instead", DeprecationWarning, stacklevel=4)
            self.url = self.url or derived_url
        super().__post_init__()

    def create_client(self) -> SSEClient:
        """
        Create an MCP client for this server.

        :returns: Configured SSEClient instance.
        """
        # Imported here, because this loads the types of the protocol and httpx2, which takes longer than all the rest:
        # a pipeline that is only built or loaded must not pay for it.
        from haystack_integrations.tools.mcp.transports.http.client import SSEClient  # noqa: PLC0415

        return SSEClient(self, self.max_retries, self.base_delay, self.max_delay)

    def _redacted_fields(self) -> dict[str, Any]:
        return {**super()._redacted_fields(), "base_url": self.base_url and redact_url(self.base_url)}


@explains_options
@checked_dataclass(repr=False, config=CHECKED)
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
    :param sse_fallback: Whether to try SSE if the server refuses Streamable HTTP with status 400, 404 or 405, as
        servers of the revision 2024-11-05 do. Default: False. A server info made from a URL alone has it.
    :param token: This and all other parameters are those of `HttpServerInfo`.
    """

    _transport_name = "streamable-http"

    url: str | Secret
    _: KW_ONLY
    sse_fallback: bool = False

    def create_client(self) -> StreamableHttpClient:
        """
        Create an MCP client for this server.

        :returns: Configured StreamableHttpClient instance.
        """
        from haystack_integrations.tools.mcp.transports.http.client import StreamableHttpClient  # noqa: PLC0415

        return StreamableHttpClient(self, self.max_retries, self.base_delay, self.max_delay)
