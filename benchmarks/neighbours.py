# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""Other integrations of MCP as subjects: each calls tools from the caller's own loop, in one session that stays open."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

Target = dict[str, Any]
"""How to reach a server: `{"url": ...}` or `{"command": ..., "args": [...]}`. `mode` is for the SDK's client."""

CallTool = Callable[[str, dict[str, Any]], Awaitable[Any]]


class NotSupportedError(Exception):
    """The subject does not support the case."""


class LoopSession:
    """A session in the caller's loop. One task opens and closes it, as anyio demands."""

    def __init__(self, runner: asyncio.Runner, connecting: AbstractAsyncContextManager[CallTool]) -> None:
        self._runner = runner
        runner.run(self._open(connecting))

    async def _open(self, connecting: AbstractAsyncContextManager[CallTool]) -> None:
        self._stop = asyncio.Event()
        ready = asyncio.Event()
        self._life = asyncio.create_task(self._live(connecting, ready))
        waiting = asyncio.create_task(ready.wait())
        await asyncio.wait({self._life, waiting}, return_when=asyncio.FIRST_COMPLETED)
        if self._life.done():
            waiting.cancel()
            await self._life

    async def _live(self, connecting: AbstractAsyncContextManager[CallTool], ready: asyncio.Event) -> None:
        async with connecting as self._call_tool:
            ready.set()
            await self._stop.wait()

    def call(self, tool_name: str, arguments: dict[str, Any]) -> Callable[[], Any]:  # noqa: ARG002
        """Refuse: none of these has sync calls."""
        message = "it has no sync calls"
        raise NotSupportedError(message)

    def call_async(self, tool_name: str, arguments: dict[str, Any]) -> Callable[[], Awaitable[Any]]:
        """Return an async function that makes this call."""
        call_tool = self._call_tool
        return lambda: call_tool(tool_name, arguments)

    def close(self) -> None:
        """Close the connection."""

        async def close() -> None:
            self._stop.set()
            await self._life

        self._runner.run(close())


def _fastmcp_transport(target: Target) -> Any:
    from fastmcp.client.transports import StdioTransport, StreamableHttpTransport

    url = target.get("url")
    return StreamableHttpTransport(url) if url else StdioTransport(target["command"], target["args"])


@asynccontextmanager
async def _fastmcp(target: Target) -> AsyncIterator[CallTool]:
    from fastmcp import Client

    async with Client(_fastmcp_transport(target)) as client:
        yield client.call_tool


@asynccontextmanager
async def _pydantic_ai(target: Target) -> AsyncIterator[CallTool]:
    from pydantic_ai.mcp import MCPToolset

    async with MCPToolset(_fastmcp_transport(target)) as toolset:
        yield toolset.direct_call_tool


@asynccontextmanager
async def _openai_agents(target: Target) -> AsyncIterator[CallTool]:
    from agents.mcp import MCPServerStdio, MCPServerStreamableHttp

    server: Any = MCPServerStreamableHttp if "url" in target else MCPServerStdio
    async with server(target, cache_tools_list=True) as connected:
        await connected.list_tools()
        yield connected.call_tool


@asynccontextmanager
async def _langchain(target: Target) -> AsyncIterator[CallTool]:
    from langchain_mcp_adapters.client import MultiServerMCPClient
    from langchain_mcp_adapters.tools import load_mcp_tools

    transport: Any = {"transport": "streamable_http" if "url" in target else "stdio", **target}
    async with MultiServerMCPClient({"server": transport}).session("server") as session:
        tools = {tool.name: tool for tool in await load_mcp_tools(session)}
        yield lambda tool_name, arguments: tools[tool_name].ainvoke(arguments)


class NeighbourSubject:
    """Another integration."""

    def __init__(self, name: str, runner: asyncio.Runner) -> None:
        self._connect = {
            "fastmcp-client": _fastmcp,
            "langchain": _langchain,
            "openai-agents": _openai_agents,
            "pydantic-ai": _pydantic_ai,
        }[name]
        self._runner = runner

    def open(self, target: Target) -> LoopSession:
        """Connect to a server and load its tools, ready to be called."""
        return LoopSession(self._runner, self._connect(target))
