# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, nullcontext
from typing import Any, Literal, TypeVar, get_args

from fastmcp import FastMCP
from fastmcp.prompts.base import Prompt
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.dependencies import get_context, get_server
from fastmcp.server.extensions import ServerExtension
from fastmcp.server.providers import Provider
from fastmcp.server.transforms import Visibility
from fastmcp.tools.base import Tool
from fastmcp.utilities.components import FastMCPComponent
from fastmcp.utilities.versions import VersionSpec, version_sort_key
from haystack import logging
from mcp.types import CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

from haystack_integrations.tools.mcp.serving.background_tasks import tasks_extension
from haystack_integrations.tools.mcp.serving.changes import Listing, Unsubscribe, announcer_of
from haystack_integrations.tools.mcp.serving.exits import surviving_exits
from haystack_integrations.tools.mcp.serving.options import ServeOptions
from haystack_integrations.tools.mcp.serving.pool import DEFAULT_MAX_CONCURRENCY, CallPool
from haystack_integrations.tools.mcp.serving.served_tool import ServedTool
from haystack_integrations.tools.mcp.serving.sources import NamedOptions, Source
from haystack_integrations.tools.mcp.serving.tools import ToolSource

logger: logging.PatchedLogger = logging.getLogger(__name__)

# How many characters of a description tell apart two things of one name.
_DESCRIPTION = 80

ComponentT = TypeVar("ComponentT", bound=FastMCPComponent)

DuplicatePolicy = Literal["warn", "error", "replace", "ignore"]

# The parameters of `create_mcp_server` beside `tools`, and the class that serves what is given there. Each is imported
# only if it is used, and made with `Class(things, options=..., pool=...)`.
_SOURCES = {
    "pipelines": "pipelines.PipelineSource",
    "agents": "agents.AgentSource",
    "document_stores": "document_stores.DocumentStoreSource",
    "prompts": "prompts.PromptSource",
    "skills": "skills.SkillSource",
}


class HaystackProvider(Provider):
    """
    Gives a FastMCP server what was built in Haystack: `FastMCP("shop", providers=[HaystackProvider(tools=[...])])`.

    `create_mcp_server` makes a server of it, with settings that are safe for strangers.
    """

    def __init__(
        self,
        *,
        tools: Any = None,
        pipelines: Any = None,
        agents: Any = None,
        document_stores: Any = None,
        prompts: Any = None,
        skills: Any = None,
        options: Any = None,
        max_concurrency: int = DEFAULT_MAX_CONCURRENCY,
        on_duplicate: DuplicatePolicy = "warn",
        task_queue: str = "haystack",
        sources: Sequence[Source] = (),
    ) -> None:
        """
        Initialize the HaystackProvider.

        :param tools: Tools, Toolsets and functions, as a list; each alone, or with options for this one as a pair:
            `(tool, ServeOptions(...))`.
        :param pipelines: Pipelines, by the names that clients see.
        :param agents: Agents, by the names that clients see.
        :param document_stores: Document stores, by the names that clients see in URIs.
        :param prompts: Prompt builders, by the names that clients see.
        :param skills: Skill stores (Haystack 3).
        :param options: ServeOptions by the name of what they are for.
        :param max_concurrency: How many calls run at a time, of all that has no limit of its own.
        :param on_duplicate: What becomes of two things of one name and version: the last one is served, with a warning
            in the log (`"warn"`) or without (`"replace"`), the first one (`"ignore"`), or it is an error (`"error"`).
        :param task_queue: The name of the queue of background tasks. Servers that share a Redis and serve different
            things need different ones.
        :param sources: Further sources, of classes of your own.
        :raises ValueError: If something cannot be served.
        :raises ImportError: If something needs a package that is not installed.
        """
        super().__init__()
        if on_duplicate not in get_args(DuplicatePolicy):
            msg = f"`on_duplicate` must be one of {', '.join(get_args(DuplicatePolicy))}, got {on_duplicate!r}"
            raise ValueError(msg)
        self.on_duplicate = on_duplicate
        # Which duplicates were warned of: listings come again and again.
        self._told: set[str] = set()
        self.pool: CallPool = CallPool(max_concurrency)
        self._removed_names: set[tuple[str, str | None]] = set()
        self._removed: list[Tool] = []
        self._listed: list[Tool] = []
        self._options = NamedOptions(options)
        self._tools = ToolSource([] if tools is None else tools, options=self._options, pool=self.pool)
        given = {
            "pipelines": pipelines,
            "agents": agents,
            "document_stores": document_stores,
            "prompts": prompts,
            "skills": skills,
        }
        self.sources: tuple[Source, ...] = (
            self._tools,
            *(self._source(each, things) for each, things in given.items() if things is not None),
            *sources,
        )
        # What toolsets and skill stores have is known later, and some of it changes.
        self._is_open = skills is not None or bool(sources)
        if self._tools.is_complete and not self._is_open:
            self._check_options()
        self._unique(self._known_tools(), may_raise=True)
        uses_tasks = any(each.task for each in self._options.values()) or any(each.uses_tasks for each in self.sources)
        self._extensions = [tasks_extension(task_queue)] if uses_tasks else []

    def _source(self, parameter: str, things: Any) -> Source:
        module, _, name = _SOURCES[parameter].partition(".")
        kind = getattr(importlib.import_module(f"{__package__}.{module}"), name)
        made: Source = kind(things, options=self._options, pool=self.pool)
        return made

    def required_extensions(self) -> Sequence[ServerExtension]:
        """
        Give the extensions that what is served needs.

        :returns: The one for background tasks, if something can be one, and those of the sources.
        """
        return [*self._extensions, *(each for source in self.sources for each in source.extensions)]

    def add_tool(self, tool: Any, options: ServeOptions | None = None) -> None:
        """
        Serve one more tool, toolset or function.

        :param tool: The tool.
        :param options: What is said of it.
        :raises ValueError: If it cannot be served, or is a duplicate and those are errors.
        """
        added = ToolSource([(tool, options or ServeOptions())], options=self._options, pool=self.pool)
        if added.uses_tasks and not self._extensions:
            msg = "A tool that can be a background task must be among the `tools` that the server is made with"
            raise ValueError(msg)
        self._unique([*self._known_tools(), *added.known_tools], may_raise=True)
        names = [each.name for each in added.known_tools]
        self._removed_names = {each for each in self._removed_names if each[0] not in names}
        self._tools.take_over(added)

    def remove_tool(self, name: str, version: str | None = None) -> None:
        """
        Serve a tool no longer.

        :param name: Its name for clients.
        :param version: Which version; all of them by default.
        :raises KeyError: If there is none.
        """
        removed = [tool for tool in self._known_tools() if tool.name == name and version in (None, tool.version)]
        if not removed:
            msg = f"Tool {name!r} not found"
            raise KeyError(msg)
        # By name, because a toolset may have another one of that name later; and itself, if the name is used again.
        self._removed_names.add((name, version))
        self._removed += removed
        self._tools.changed("tools")

    def known_tool(self, key: str) -> Tool | None:
        """
        Find a tool of which clients are told, or were at the last listing.

        :param key: The key that FastMCP gives it: its kind, name and version.
        :returns: The tool; None if there is none.
        """
        return next((tool for tool in self._known_tools() if tool.key == key), None)

    def input_schema(self, name: str) -> dict[str, Any] | None:
        """
        Find what the newest version of a tool takes, of which clients are told, or were at the last listing.

        :param name: Its name for clients.
        :returns: JSON schema of its arguments; None if there is no such tool.
        """
        named = [tool for tool in self._known_tools() if tool.name == name]
        return max(named, key=version_sort_key).parameters if named else None

    def give_way(self, tool: Tool) -> None:
        """
        Serve a tool no longer, because there is another one of its name now. The log says so, unless it is not to.

        :param tool: The tool.
        """
        self.remove_tool(tool.name, tool.version)
        self._tell(tool, "first")

    def _known_tools(self) -> list[Tool]:
        known = [tool for source in self.sources for tool in source.known_tools]
        known += [tool for tool in self._listed if tool not in known]
        return [tool for tool in known if not self._is_removed(tool)]

    def _is_removed(self, tool: Tool) -> bool:
        is_named = not self._removed_names.isdisjoint({(tool.name, None), (tool.name, tool.version)})
        return is_named or any(tool is each for each in self._removed)

    async def _list_tools(self) -> Sequence[Tool]:
        self._listed = self._shown(await self._collect(Source.list_tools.__name__))
        return await self._marked(self._listed)

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        named = [tool for tool in await self._collect(Source.list_tools.__name__) if tool.name == name]
        found = await self._marked(self._shown(named))
        matching = [tool for tool in found if version is None or version.matches(tool.version)]
        return max(matching, key=version_sort_key, default=None)

    def _shown(self, tools: Sequence[Tool]) -> list[Tool]:
        unique = self._unique(tools)
        return [tool for tool in unique if not self._is_removed(tool)] if self._removed else unique

    async def _marked(self, tools: Sequence[Tool]) -> Sequence[Tool]:
        hidden = [tool for tool in tools if isinstance(tool, ServedTool) and not tool.is_enabled]
        if not hidden:
            return tools
        # Marked, not left out, so that `server.enable` shows them.
        marked: dict[str, Tool] = {
            tool.key: tool for tool in await Visibility(False, match_all=True).list_tools(hidden)
        }
        return [marked.get(tool.key, tool) for tool in tools]

    async def get_tasks(self) -> Sequence[FastMCPComponent]:
        """
        List what may run as a background task. FastMCP asks for it when the server starts.

        :returns: Tools. Nothing else may, so no document store or other server is asked, which may be slow or down.
        """
        tools = await self._apply_task_transforms(await self._list_tools())
        return [tool for tool in tools if tool.task_config.supports_tasks()]

    async def _list_resources(self) -> Sequence[Resource]:
        return await self._collect(Source.list_resources.__name__)

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Resource | None:
        found: list[Resource] = await self._collect(Source.find_resources.__name__, uri)
        matching = [each for each in found if version is None or version.matches(each.version)]
        return max(matching, key=version_sort_key, default=None)

    async def _list_resource_templates(self) -> Sequence[ResourceTemplate]:
        return await self._collect(Source.list_resource_templates.__name__)

    async def _list_prompts(self) -> Sequence[Prompt]:
        return await self._collect(Source.list_prompts.__name__)

    async def _collect(self, method: str, *arguments: Any, may_raise: bool = False) -> list[Any]:
        found: list[Any] = []
        for source in self.sources:
            listing: Callable[..., Awaitable[Sequence[Any]]] = getattr(source, method)
            try:
                found += await listing(*arguments)
            # Of any kind: what is behind one source must not take the others from clients.
            except Exception as error:
                if may_raise:
                    raise
                logger.warning(
                    "`{method}` of {source} failed, so clients do not see what it serves: {error}",
                    method=method,
                    source=type(source).__name__,
                    error=repr(error),
                )
        return found

    def _unique(self, components: Sequence[ComponentT], *, may_raise: bool = False) -> list[ComponentT]:
        by_key: dict[str, ComponentT] = {}
        for each in components:
            if each.key not in by_key:
                by_key[each.key] = each
                continue
            if self.on_duplicate == "error" and may_raise:
                raise ValueError(said_of_duplicate(each))
            # An error came too late for those of a toolset that changed: the first stays what it was.
            if self.on_duplicate in ("warn", "replace"):
                self._tell(by_key[each.key], "first")
                by_key[each.key] = each
            else:
                self._tell(each, "last")
        return list(by_key.values())

    def _tell(self, left_out: FastMCPComponent, given: Literal["first", "last"]) -> None:
        if self.on_duplicate in ("warn", "error") and left_out.key not in self._told:
            self._told.add(left_out.key)
            logger.warning(
                "There are two things named '{duplicate}'{version}. The one that was given {given} is not served, "
                "which says of itself {description}. Rename one with ServeOptions(name=...), give them a `version` "
                "each, or choose with `on_duplicate`",
                duplicate=left_out.name,
                version=f" in version {left_out.version}" if left_out.version else "",
                given=given,
                description=repr((left_out.description or "")[:_DESCRIPTION]),
            )

    @property
    def completes(self) -> bool:
        """
        Whether there may be something to complete: prompts, or templates of resources.
        """
        return any(type(source).complete is not Source.complete for source in self.sources)

    async def complete(
        self,
        reference: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> list[str] | None:
        """
        Complete an argument: what `server.add_completion_handler(provider.complete)` wants.

        :param reference: The prompt, or the template of resources.
        :param argument: The argument, and what was typed so far.
        :param context: The other arguments that are known.
        :returns: Values that clients may offer; None for what is not served here, or not shown to this client.
        """
        server = get_context().fastmcp
        if isinstance(reference, PromptReference):
            name = reference.name
            shown = await server.get_prompt(name) is not None
        else:
            name = reference.uri
            templates = await server.list_resource_templates(run_middleware=False)
            shown = any(template.uri_template == name for template in templates)
        if not shown:
            return None
        known = dict((context and context.arguments) or {})
        for source in self.sources:
            values = await source.complete(name, argument.name, argument.value, known)
            if values is not None:
                return list(values)
        return None

    def on_change(self, callback: Callable[[Listing], None]) -> Unsubscribe:
        """
        Call a function when something that is served was added, removed or changed.

        :param callback: Gets what changed: `"tools"`, `"resources"` or `"prompts"`. It is called in any thread, and
            must neither block nor raise.
        :returns: Ends that.
        """
        endings = [source.on_change(callback) for source in self.sources]

        def unsubscribe() -> None:
            for end in endings:
                end()

        return unsubscribe

    def _check_options(self) -> None:
        """
        Refuse, or warn of, options for something that is not served: a name with a typo protects nothing.
        """
        unused = self._options.unused
        if unused is not None and not self._is_open and not self._tools.may_change:
            raise ValueError(unused)
        if unused is not None:
            logger.warning(
                "{unused} Unless it comes later, correct the name: until then these options apply to nothing",
                unused=unused,
            )

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """
        Warm up what is served while the server runs, whose clients are told of changes.

        :returns: A context manager.
        """
        server = _server_that_starts()
        if server is not None:
            # Named, because a provider with a namespace, or of a mounted server, is none of the server's own.
            announcer_of(server).watch_providers([self])
        with surviving_exits(server) if server is not None else nullcontext():
            try:
                for source in self.sources:
                    await source.warm_up()
                self._unique(await self._collect(Source.list_tools.__name__, may_raise=True), may_raise=True)
                if self._options.unused is not None and self._is_open:
                    # Skills are looked up as they are listed.
                    await self._list_resources()
                self._check_options()
                yield
            finally:
                for source in reversed(self.sources):
                    await source.close()


def _server_that_starts() -> FastMCP[Any] | None:
    """
    Give the server to which clients connect; None where this lifespan is entered without one.
    """
    try:
        return get_server()
    except RuntimeError:
        return None


def said_of_duplicate(component: FastMCPComponent) -> str:
    """
    Say that something is served twice.

    :param component: One of them.
    :returns: The text of the error.
    """
    version = f" in version {component.version}" if component.version else ""
    return f"Two things named '{component.name}'{version} are served. Rename one: ServeOptions(name=...)"
