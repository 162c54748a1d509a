# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING, Any, TypeVar

import mcp_types as types
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from haystack_integrations.tools.mcp.protocol.base import MCPClient

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

T = TypeVar("T")


class RequestingClient(MCPClient):
    """
    A client that sends requests of any method in a session of its own.
    """

    # What was negotiated; None while there is no session.
    _revision: str | None = None
    _capabilities: types.ServerCapabilities = types.ServerCapabilities()

    @property
    def _is_modern(self) -> bool:
        """
        Whether the session is of revision 2026-07-28 or later.
        """
        return self._revision in MODERN_PROTOCOL_VERSIONS

    @abstractmethod
    def _describe(self) -> str:
        """Return what the server is called in messages."""

    @abstractmethod
    def _server_info(self) -> MCPServerInfo | None:
        """Return the server info for errors."""

    @abstractmethod
    async def _request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """
        Send a request and wait for its result.

        :param method: Its method.
        :param params: Its parameters, as in the protocol.
        :param name: What it is about, for the header `Mcp-Name`: a tool, a prompt, a URI or a task.
        :param meta: More for its `_meta`.
        :param headers: Further HTTP headers, such as `Mcp-Param-…`.
        :param on_progress: Called with the parameters of each report of progress; with it, the server is asked for
            progress.
        :returns: The result, made readable as far as it can be (`convert.odd_messages`). Since revision 2026-07-28 it
            has a `resultType`, which may be "input_required" or that of an extension.
        :raises RequestError: If there is none (`protocol.exchange`).
        :raises ValueError: If a parameter cannot be written as JSON.
        """

    @abstractmethod
    async def _read(self, operation: str, read: Callable[[], Awaitable[T]]) -> T:
        """
        Read something of the server, and make an error of the package of whatever goes wrong.

        :param operation: What that is, for errors.
        :param read: Does it, with `_request`.
        :returns: Its result.
        :raises ReadInterruptedError: If the connection broke meanwhile.
        :raises MCPConnectionError: If it fails otherwise.
        """
