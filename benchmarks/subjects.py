# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The subjects of the benchmarks: ways to call an MCP tool from Haystack.

`HaystackSubject` uses `haystack_integrations.tools.mcp`, which is this package in one environment and mcp-haystack 2.1.1 in
the other. `FloorSubject` is the minimum for sync callers: the SDK's client in the event loop of a background thread.
`DirectSubject` is less than any bridge can do: the SDK's client in the caller's own loop, for async calls only.
"""

import asyncio
import threading
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

from extras import EXTRAS
from haystack.tools import Tool
from haystack.tools.utils import warm_up_tools, warm_up_tools_async
from neighbours import CallTool, LoopSession, NotSupportedError, Target


class Session(ABC):
    """An open connection to one server."""

    @abstractmethod
    def call(self, tool_name: str, arguments: dict[str, Any]) -> Callable[[], Any]:
        """Return a function that makes this call and blocks until it is done."""

    @abstractmethod
    def call_async(self, tool_name: str, arguments: dict[str, Any]) -> Callable[[], Awaitable[Any]]:
        """Return an async function that makes this call."""

    @abstractmethod
    def tools(self) -> Sequence[Any]:
        """Return the tools of the server, as an Agent needs them."""

    @abstractmethod
    def close(self) -> None:
        """Close the connection."""


class Subject(ABC):
    """One of the compared implementations."""

    @abstractmethod
    def open(self, target: Target) -> Session:
        """Connect to a server and load its tools, ready to be called."""

    @abstractmethod
    def open_tool(self, target: Target, tool_name: str) -> Session:
        """The same for a single `MCPTool`."""

    @abstractmethod
    def open_many(self, targets: list[Target]) -> list[Session]:
        """Connect to several servers, as fast as the subject allows."""

    @abstractmethod
    async def open_many_async(self, targets: list[Target]) -> list[Session]:
        """The same from a running event loop."""

    @abstractmethod
    def open_single_tools(self, target: Target, tool_names: list[str]) -> list[Session]:
        """Open one `MCPTool` after another, all of the same server."""


class _ToolSession(Session):
    """Tools of one server, and the object that owns the connection."""

    def __init__(self, owner: Any, tools: list[Tool]) -> None:
        self._owner = owner
        self._tools = tools

    def _tool(self, tool_name: str) -> Tool:
        return next(tool for tool in self._tools if tool.name == tool_name)

    def call(self, tool_name: str, arguments: dict[str, Any]) -> Callable[[], Any]:
        invoke = self._tool(tool_name).invoke
        return lambda: invoke(**arguments)

    def call_async(self, tool_name: str, arguments: dict[str, Any]) -> Callable[[], Awaitable[Any]]:
        invoke_async = self._tool(tool_name).invoke_async
        return lambda: invoke_async(**arguments)

    def tools(self) -> list[Tool]:
        return self._tools

    def close(self) -> None:
        self._owner.close()


class _Confirming:
    """A confirmation UI that confirms everything."""

    def get_user_confirmation(self, tool_name: str, tool_description: str, tool_params: dict[str, Any]) -> Any:  # noqa: ARG002
        from haystack.hooks.human_in_the_loop.dataclasses import ConfirmationUIResult

        return ConfirmationUIResult(action="confirm")


class HaystackSubject(Subject):
    """The installed `haystack_integrations.tools.mcp`: this package or 2.1.1."""

    def __init__(self, *, ours: bool) -> None:
        # Imported here, because the subject `floor` does not need the package.
        from haystack_integrations.tools import mcp

        if hasattr(mcp, "MCPConnection") is not ours:
            message = f"{mcp.__file__} is not the package to measure"
            raise ImportError(message)
        self._package = mcp
        self._ours = ours

    def _server_info(self, target: Target) -> Any:
        if "url" in target:
            return self._package.StreamableHttpServerInfo(url=target["url"])
        return self._package.StdioServerInfo(command=target["command"], args=target["args"])

    def _toolsets(self, targets: list[Target]) -> list[Any]:
        return [self._package.MCPToolset(server_info=self._server_info(target)) for target in targets]

    def open(self, target: Target) -> Session:
        toolset = self._package.MCPToolset(server_info=self._server_info(target))
        toolset.warm_up()
        return _ToolSession(toolset, list(toolset))

    def open_with(self, target: Target, extra_name: str) -> tuple[Session, Callable[[], AbstractContextManager[Any]]]:
        """Do the same as `open` with an addition of extras.py; also return the context for calls."""
        extra = EXTRAS[extra_name](self._package, target)
        toolset = self._package.MCPToolset(server_info=self._server_info(target), **extra.parameters)
        toolset.warm_up()
        return _ToolSession(toolset, list(toolset)), extra.context

    def capture(self, target: Target, path: Path) -> None:
        """Store a snapshot of a server's tools."""
        with self._package.MCPToolset(server_info=self._server_info(target)) as toolset:
            self._package.MCPToolSnapshot.capture(toolset).save(path)

    def open_pinned(self, target: Target, snapshot: Path) -> tuple[Session, Callable[[], int]]:
        """Do the same as `open` with a snapshot; also return a function that counts the opened sessions."""
        toolset = self._package.MCPToolset(server_info=self._server_info(target), snapshot=snapshot)
        toolset.warm_up()
        return _ToolSession(toolset, list(toolset)), lambda: toolset.connection.status().sessions

    def open_file(self, config: Path) -> list[Session]:
        """Connect to the servers of a configuration file, some of which may be down."""
        toolsets = self._package.load_mcp_toolsets(config, required=False)
        self._package.warm_up_toolsets(toolsets)
        return [_ToolSession(toolset, list(toolset)) for toolset in toolsets]

    def open_registry(self, targets: list[Target]) -> Session:
        """Connect to several servers through an alias of a registry; the last of them may be down."""
        package = self._package
        providers = {f"server{number}": self._server_info(target) for number, target in enumerate(targets)}
        *_, last = providers
        providers[last] = package.MCPToolset(providers[last], required=False)
        registry = package.MCPRegistry(providers, [package.ToolConfig("all", list(providers), prefix="always")])
        toolset = registry.toolset("all")
        toolset.warm_up()
        return _ToolSession(toolset, list(toolset))

    def open_search(self, targets: list[Target]) -> tuple[Any, list[Any]]:
        """Index the tools of several servers, each with its name as prefix; return the toolset and the tools."""
        toolsets = [
            self._package.MCPToolset(self._server_info(target), tool_name_prefix=f"s{number}")
            for number, target in enumerate(targets)
        ]
        searchable = self._package.MCPSearchableToolset(toolsets)
        searchable.warm_up()
        return searchable, searchable.get_selectable_tools()

    def hooks(self) -> dict[str, list[Any]]:
        """Return all hooks for Agents; they let each call pass."""
        from haystack_integrations.hooks import mcp as hooks

        confirmation = hooks.MCPConfirmationHook(_Confirming(), overrides={"echo": "never"})
        return {
            "before_tool": [hooks.MCPCallBudgetHook(max_turns=100, max_calls=1000), confirmation],
        }

    def open_tool(self, target: Target, tool_name: str) -> Session:
        tool = self._package.MCPTool(name=tool_name, server_info=self._server_info(target))
        tool.warm_up()
        return _ToolSession(tool, [tool])

    def open_many(self, targets: list[Target]) -> list[Session]:
        toolsets = self._toolsets(targets)
        # 2.1.1 has no function for several servers, so Haystack's is used.
        getattr(self._package, "warm_up_toolsets", warm_up_tools)(toolsets)
        return [_ToolSession(toolset, list(toolset)) for toolset in toolsets]

    async def open_many_async(self, targets: list[Target]) -> list[Session]:
        toolsets = self._toolsets(targets)
        await getattr(self._package, "warm_up_toolsets_async", warm_up_tools_async)(toolsets)
        return [_ToolSession(toolset, list(toolset)) for toolset in toolsets]

    def open_single_tools(self, target: Target, tool_names: list[str]) -> list[Session]:
        info = self._server_info(target)
        tools = [self._package.MCPTool(name=name, server_info=info) for name in tool_names]
        warm_up_tools(tools)
        return [_ToolSession(tool, [tool]) for tool in tools]


class AinvokeSubject(HaystackSubject):
    """The same, but asynchronous calls use the documented `MCPTool.ainvoke`."""

    def open_tool(self, target: Target, tool_name: str) -> Session:
        session = super().open_tool(target, tool_name)
        (tool,) = session.tools()
        if not self._ours:
            message = "2.1.1 awaits a session of another loop, so with a real server the call never returns"
            raise NotSupportedError(message)
        session.call_async = lambda _, arguments: lambda: tool.ainvoke(**arguments)  # type: ignore[method-assign]
        return session


class _BackgroundLoop:
    """An event loop in a daemon thread."""

    def __init__(self) -> None:
        self.loop = asyncio.new_event_loop()
        threading.Thread(target=self.loop.run_forever, daemon=True).start()

    def submit(self, coroutine: Coroutine[Any, Any, Any]) -> "Future[Any]":
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop)


def _sdk_client(target: Target) -> Any:
    from mcp import Client, StdioServerParameters

    url = target.get("url")
    server = url or StdioServerParameters(command=target["command"], args=target["args"])
    # The same protocol revisions as this package, because they cost the server different amounts of time.
    return Client(server, mode=target.get("mode", "auto" if url else "legacy"))


class _ClientSession(Session):
    """An `mcp.Client` that one task of the background loop opens, keeps open and closes."""

    def __init__(self, background: _BackgroundLoop, target: Target) -> None:
        self._background = background
        self._target = target
        self._ready: Future[None] = Future()
        self._life = background.submit(self._live())

    async def _live(self) -> None:
        self._stop = asyncio.Event()
        try:
            async with _sdk_client(self._target) as self._client:
                self._listing = (await self._client.list_tools()).tools
                self._ready.set_result(None)
                await self._stop.wait()
        except Exception as error:
            if self._ready.done():
                raise
            self._ready.set_exception(error)

    def wait(self) -> "_ClientSession":
        self._ready.result()
        return self

    async def wait_async(self) -> "_ClientSession":
        await asyncio.wrap_future(self._ready)
        return self

    def call(self, tool_name: str, arguments: dict[str, Any]) -> Callable[[], Any]:
        submit, call_tool = self._background.submit, self._client.call_tool
        return lambda: submit(call_tool(tool_name, arguments)).result()

    def call_async(self, tool_name: str, arguments: dict[str, Any]) -> Callable[[], Awaitable[Any]]:
        submit, call_tool = self._background.submit, self._client.call_tool
        return lambda: asyncio.wrap_future(submit(call_tool(tool_name, arguments)))

    def listing(self) -> list[Any]:
        return self._listing

    def tools(self) -> list[Tool]:
        """Return hand-written Haystack tools, with a sync and an async function each."""
        return [self._haystack_tool(tool) for tool in self._listing]

    def _haystack_tool(self, listed: Any) -> Tool:
        submit, call_tool = self._background.submit, self._client.call_tool

        def call(**arguments: Any) -> str:
            return submit(call_tool(listed.name, arguments)).result().content[0].text

        async def call_async(**arguments: Any) -> str:
            return (await asyncio.wrap_future(submit(call_tool(listed.name, arguments)))).content[0].text

        return Tool(
            name=listed.name,
            description=listed.description,
            parameters=listed.input_schema,
            function=call,
            async_function=call_async,
        )

    def close(self) -> None:
        self._background.loop.call_soon_threadsafe(self._stop.set)
        self._life.result()


class FloorSubject(Subject):
    """The bare SDK client."""

    def __init__(self) -> None:
        self._background = _BackgroundLoop()

    def open(self, target: Target) -> Session:
        return _ClientSession(self._background, target).wait()

    def open_tool(self, target: Target, tool_name: str) -> Session:  # noqa: ARG002
        return self.open(target)

    def open_many(self, targets: list[Target]) -> list[Session]:
        sessions = [_ClientSession(self._background, target) for target in targets]
        return [session.wait() for session in sessions]

    async def open_many_async(self, targets: list[Target]) -> list[Session]:
        sessions = [_ClientSession(self._background, target) for target in targets]
        return [await session.wait_async() for session in sessions]

    def open_single_tools(self, target: Target, tool_names: list[str]) -> list[Session]:  # noqa: ARG002
        return [self.open(target)]


class _DirectSession(LoopSession):
    """An `mcp.Client` in the caller's loop."""

    def __init__(self, runner: asyncio.Runner, target: Target) -> None:
        super().__init__(runner, self._connect(target))

    @asynccontextmanager
    async def _connect(self, target: Target) -> AsyncIterator[CallTool]:
        async with _sdk_client(target) as self._client:
            await self._client.list_tools()
            yield self._client.call_tool

    def list_tools(self) -> Callable[[], Awaitable[Any]]:
        """Return an async function that lists the tools without the client's cache."""
        list_tools = self._client.list_tools
        return lambda: list_tools(cache_mode="bypass")


class DirectSubject(FloorSubject):
    """The bare SDK client in the loop that makes the calls."""

    def __init__(self, runner: asyncio.Runner) -> None:
        self._runner = runner

    def open(self, target: Target) -> Any:
        return _DirectSession(self._runner, target)
