# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.haystack_compat import check_module_may_be_imported
from haystack_integrations.tools.mcp.import_paths import import_object
from haystack_integrations.tools.mcp.parameters import CHECKED, explains_options
from haystack_integrations.tools.mcp.protocol.server_info import BuiltInServerInfo

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.base import MCPClient


# By name, because the module imports this one, and the types of the protocol, for which a pipeline that is only built
# or loaded must not wait.
_CLIENT = "haystack_integrations.tools.mcp.transports.in_process.client:InProcessClient"


@explains_options
@checked_dataclass(repr=False, config=CHECKED)
class InProcessServerInfo(BuiltInServerInfo):
    """
    An MCP server in the same process, without a child process or a port.

    For tests, notebooks and quick starts, and for MCP tools that only one process needs. The server runs in the event
    loop of the `AsyncExecutor`.

    ```python
    from mcp.server import MCPServer

    server = MCPServer("calculator")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    server_info = InProcessServerInfo(server)                         # the server object, or
    server_info = InProcessServerInfo("my_package.my_module:server")  # its import path, which can be serialized
    ```

    :param server: An `mcp` server (`MCPServer` or low-level `Server`), a FastMCP server, or the import path of one,
        `"package.module:attribute"`. The path is imported when the session is opened.
    :param max_in_flight: How many calls may be in flight at the server, of all tools and toolsets of this process; the
        others wait, which counts as time of the call. A call that has become a task is none of them. Default:
        any number.
    :param failure_pause: For how many seconds the server is left alone after 5 of the last 10 calls failed because of
        it: calls then fail at once, until one that is let through is answered. Each time that one fails, the pause is
        twice as long, up to a minute. Default: 5 seconds. None for never.
    :param negotiation: How the revision of the protocol is agreed on. `"handshake"` is for the revisions up to
        2025-11-25 only, which some servers need for what they ask of their client. `"discover"` asks for newer
        revisions first, and shakes hands if the server has none. `"auto"` is the same as `"discover"`.
        Default: `"auto"`.
    """

    _transport_name: ClassVar[str] = "in-process"

    server: Any

    _always_stored = ("server",)

    def __post_init__(self) -> None:
        """
        Check that `server` is an import path or may be a server object.

        :raises ValueError: If it is neither. The message names the parameter and its valid values.
        """
        if isinstance(self.server, str):
            module, _, attribute = self.server.partition(":")
            if not all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
                self._refuse(f"`server` must be like 'package.module:server', got {self.server!r}")
        elif self.server is None or isinstance(self.server, (Mapping, list, int, float, bytes, type)):
            cls = self.server if isinstance(self.server, type) else None
            advice = "" if cls is None else f"; create an object, as in {cls.__name__}('name')"
            self._refuse(
                "`server` must be an MCP server object or its import path 'package.module:server', got "
                f"{type(self.server).__name__}{advice}",
            )

    def create_client(self) -> MCPClient:
        """
        Create an in-process MCP client.

        :returns: Configured InProcessClient instance.
        """
        client: MCPClient = import_object(_CLIENT)(self.server, negotiation=self.negotiation)
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
        :raises ValueError: If `server` is an object instead of an import path.
        """
        if not isinstance(self.server, str):
            msg = (
                "This InProcessServerInfo contains a server object, which cannot be serialized. Create it with the "
                "import path of the server instead: InProcessServerInfo('package.module:server')."
            )
            raise ValueError(msg)
        return super().to_dict()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> InProcessServerInfo:
        """
        Deserialize server info from a dictionary.

        :param data: Dictionary containing serialized server info.
        :returns: The server info.
        :raises DeserializationError: If the module in the import path is not on Haystack 3's allowlist.
        """
        info = super().from_dict(data)
        if isinstance(info.server, str):
            check_module_may_be_imported(info.server.partition(":")[0])
        return info

    def _to_trace_dict(self) -> dict[str, Any]:
        return {"type": self._serialized_type(), "server": self.describe()}
