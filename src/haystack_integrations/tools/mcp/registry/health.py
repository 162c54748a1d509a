# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time
from collections import UserDict
from dataclasses import dataclass, field

from haystack_integrations.tools.mcp.errors import MCPConfigurationError, MCPConnectionError, MCPToolNotFoundError
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import short_repr
from haystack_integrations.tools.mcp.registry.aliases import MCPAliasToolset


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPProviderHealth:
    """
    What a health check found out about one server.

    :param provider: Name of the provider.
    :param server: What server it is and where, without secrets.
    :param ok: Whether the server answered.
    :param required: Whether it is an error if it does not.
    :param seconds: How long that took.
    :param error: Why it did not, or cannot be used.
    :param tools: How many usable tools it has.
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
    What a health check found out about one alias.

    :param tool_alias: The alias.
    :param ok: Whether it can be used: all servers that are required answered, and there is no `error`.
    :param seconds: How long the slowest server took.
    :param providers: Its servers.
    :param error: What is wrong with the alias itself: a tool that two servers have, or that none has.
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
    What a health check found out, by alias. `print(report)` shows it.
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

        :raises MCPConnectionError: With the whole report as its text, if a server is to blame.
        :raises MCPConfigurationError: Likewise, if only the configuration is.
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
            what = f"{len(alias.tools)} tools" if alias.ok else alias.error or "unusable"
            lines.append(f"{alias.tool_alias}: {'ok' if alias.ok else 'failed'}, {what}")
            for each in alias.providers:
                state = "ok" if each.ok else "failed" if each.required else "not reachable, not required"
                detail = f"{each.tools} tools" if each.ok else each.error
                lines.append(f"  {each.provider} ({each.server}): {state} after {each.seconds:.2f} s, {detail}")
        return "\n".join(lines) or "no aliases"


async def check_alias(toolset: MCPAliasToolset, timeout: float) -> MCPAliasHealth:
    """
    Check the servers of an alias, all at once, and whether their tools fit together.

    :param toolset: The toolset of the alias. Servers that answer remain connected.
    :param timeout: How long one server may take, in seconds.
    :returns: What was found out.
    """
    checks = [_check_provider(name, member, timeout) for name, member in toolset.toolsets.items()]
    providers: list[MCPProviderHealth] = list(await asyncio.gather(*checks))
    error: str | None = None
    tools: list[str] = []
    ok = all(each.ok or not each.required for each in providers)
    if ok:
        try:
            toolset._settle()
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
            if member._is_warm():
                # An open session says little about a server that may hang.
                await member.connection.list_tools_async()
            elif member.snapshot is not None:
                await member.refresh_async()  # warming up would not connect
            else:
                await member.warm_up_async()
                error = None if member._absence is None else str(member._absence)
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
