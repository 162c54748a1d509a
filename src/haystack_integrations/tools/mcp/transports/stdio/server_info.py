# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from haystack.utils import Secret

from haystack_integrations.tools.mcp.client.server_info import STORED_MODULE, MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_args
from haystack_integrations.tools.mcp.transports.fields import check_retries, check_secrets

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.client.base import MCPClient


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

    _stored_module: ClassVar[str] = STORED_MODULE

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
        check_secrets(self, "env")
        check_retries(self)

    def create_client(self) -> MCPClient:
        """
        Create a stdio MCP client.

        :returns: Configured StdioClient instance.
        """
        # The module imports the MCP SDK, which takes longer than everything else together; a pipeline that is only
        # built or loaded must not pay for it.
        from haystack_integrations.tools.mcp.transports.stdio.client import StdioClient  # noqa: PLC0415

        return StdioClient(
            command=self.command,
            args=self.args,
            env=self.env,
            max_retries=self.max_retries,
            base_delay=self.base_delay,
            max_delay=self.max_delay,
            cwd=self.cwd,
        )

    def describe(self) -> str:
        """
        Describe the server for messages.

        :returns: The command line, without the values of options that look like credentials.
        """
        return f"stdio server `{' '.join([self.command, *redact_args(list(self.args or []))])}`"

    def _redacted_fields(self) -> dict[str, Any]:
        fields = super()._redacted_fields()
        return {**fields, "args": None if self.args is None else redact_args(list(self.args))}
