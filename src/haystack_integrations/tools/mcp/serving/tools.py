# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from fastmcp.prompts.base import Prompt
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from fastmcp.tools.base import Tool as FastMCPTool
from haystack import logging
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.serving.functions import serve_function
from haystack_integrations.tools.mcp.serving.gateway import serve_mcp_tool
from haystack_integrations.tools.mcp.serving.gateway_reading import ForwardedReading
from haystack_integrations.tools.mcp.serving.haystack_tools import serve_tool
from haystack_integrations.tools.mcp.serving.live_tools import LiveTools
from haystack_integrations.tools.mcp.serving.options import ServeOptions, check_options
from haystack_integrations.tools.mcp.serving.pool import CallPool
from haystack_integrations.tools.mcp.serving.sources import Source

logger: logging.PatchedLogger = logging.getLogger(__name__)


class ToolSource(Source):
    """
    Serves tools, toolsets and functions.
    """

    def __init__(self, tools: Iterable[Any], *, options: Mapping[str, ServeOptions], pool: CallPool) -> None:
        """
        Initialize the ToolSource.

        :param tools: Tools of Haystack, Toolsets, functions and methods, and tools of FastMCP; each alone, or with
            options for this one as a pair: `(tool, ServeOptions(...))`.
        :param options: What is said of them, by their names.
        :param pool: Where their calls take their places.
        :raises ValueError: If one of them cannot be served.
        """
        super().__init__()
        if isinstance(tools, Tool | Toolset | FastMCPTool | str | Mapping) or not isinstance(tools, Iterable):
            msg = f"`tools` must be a list of tools, toolsets and functions, got {type(tools).__name__}"
            raise ValueError(msg)
        self._options = options
        self._pool = pool
        self._own_options: list[ServeOptions] = []
        self._forwarded: list[ForwardedReading] = []
        self._parts = [self._part(thing) for thing in tools]

    def take_over(self, other: ToolSource) -> None:
        """
        Serve what another source was made with, too.

        :param other: The source, which is not used any more.
        """
        self._own_options += other._own_options
        self._forwarded += other._forwarded
        self._parts = [*self._parts, *other._parts]
        for part in other._parts:
            if isinstance(part, LiveTools):
                part.changed = self._tools_changed
        self._tools_changed()

    @property
    def is_complete(self) -> bool:
        """
        Whether all tools are known before anything is warmed up.
        """
        return all(not isinstance(part, LiveTools) or part.known for part in self._parts)

    @property
    def may_change(self) -> bool:
        """
        Whether one of the toolsets may have other tools by itself later.
        """
        return any(isinstance(part, LiveTools) and part.may_change for part in self._parts)

    @property
    def uses_tasks(self) -> bool:
        """
        Whether clients may run one of them as a background task.
        """
        return super().uses_tasks or any(each.task for each in self._own_options)

    def _part(self, thing: Any) -> FastMCPTool | LiveTools:
        own: ServeOptions | None = None
        if isinstance(thing, tuple):
            if len(thing) != 2:  # noqa: PLR2004
                msg = "A tuple in `tools` must be a tool and its ServeOptions"
                raise ValueError(msg)
            thing, own = thing[0], check_options(thing[1])
            self._own_options.append(own)
        if isinstance(thing, FastMCPTool):
            if own is not None or thing.name in self._options:
                msg = f"Tool '{thing.name}' is one of FastMCP, which ServeOptions say nothing of"
                raise ValueError(msg)
            return thing
        if isinstance(thing, MCPToolset) and (own is None or own.forward):
            self._forwarded.append(ForwardedReading(thing))
        if isinstance(thing, Tool | Toolset):
            return LiveTools(thing, lambda tool: self._serve(tool, own), self._tools_changed)
        if callable(thing):
            return serve_function(thing, options_of=lambda name: self._options_for(name, own), pool=self._pool)
        msg = f"`tools` must contain tools, toolsets and functions, got {type(thing).__name__}"
        raise ValueError(msg)

    def _options_for(self, name: str, own: ServeOptions | None) -> ServeOptions | None:
        by_name = self._options.get(name)
        return own if by_name is None else by_name.overridden_by(own)

    def _serve(self, tool: Tool, own: ServeOptions | None) -> FastMCPTool:
        options = self._options_for(tool.name, own)
        if isinstance(tool, MCPTool):
            return serve_mcp_tool(tool, options=options, pool=self._pool)
        return serve_tool(tool, options=options, pool=self._pool)

    def _tools_changed(self) -> None:
        self.changed("tools")

    @property
    def known_tools(self) -> list[FastMCPTool]:
        """
        The tools that are known before anything is warmed up.
        """
        return [tool for part in self._parts for tool in (part.known if isinstance(part, LiveTools) else [part])]

    async def list_tools(self) -> list[FastMCPTool]:
        """
        List the tools. Those of a toolset are the ones that it has now, or had before if it does not say.

        :returns: The tools.
        """
        tools: list[FastMCPTool] = []
        for part in self._parts:
            tools += await self._now(part) if isinstance(part, LiveTools) else [part]
        return tools

    async def _now(self, part: LiveTools) -> Sequence[FastMCPTool]:
        try:
            return await part.list()
        # Of any kind: a server that is down must not take the other tools from clients.
        except Exception as error:
            logger.warning(
                "Tools cannot be listed anew, so clients see those that there were before: {error}", error=repr(error)
            )
            return part.last_listed

    async def list_resources(self) -> list[Resource]:
        """
        List the resources of other servers whose toolsets are served.

        :returns: The resources.
        """
        return [each for server in self._forwarded for each in await server.resources()]

    async def find_resources(self, uri: str) -> list[Resource]:
        """
        Find a resource of another server.

        :param uri: The URI.
        :returns: The resource; none if no server has listed it or linked to it.
        """
        found = [await server.resource(uri) for server in self._forwarded]
        return [each for each in found if each is not None]

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """
        List the templates of resources of other servers.

        :returns: The templates.
        """
        return [each for server in self._forwarded for each in await server.templates()]

    async def list_prompts(self) -> list[Prompt]:
        """
        List the prompts of other servers.

        :returns: The prompts.
        """
        return [each for server in self._forwarded for each in await server.prompts()]

    async def complete(
        self, reference: str, argument: str, value: str, known: Mapping[str, str]
    ) -> Sequence[str] | None:
        """
        Complete an argument of a prompt or template of another server.

        :param reference: The name of the prompt, or the URI template.
        :param argument: The name of the argument.
        :param value: What was typed so far.
        :param known: The other arguments that are known.
        :returns: Values; None if it is nothing of these servers.
        """
        for server in self._forwarded:
            completed = await server.complete(reference, argument, value, known)
            if completed is not None:
                return completed
        return None

    async def warm_up(self) -> None:
        """
        Warm up the tools and toolsets.
        """
        for server in self._forwarded:
            server.watch(self.changed)
        for part in self._parts:
            if isinstance(part, LiveTools):
                await part.warm_up()
                # What cannot be listed at the start is told to whoever starts the server.
                await part.list()

    async def close(self) -> None:
        """
        Close the tools and toolsets. When they are used again, they open what they need.
        """
        for server in self._forwarded:
            server.unwatch()
        for part in self._parts:
            if isinstance(part, LiveTools):
                await part.close()
