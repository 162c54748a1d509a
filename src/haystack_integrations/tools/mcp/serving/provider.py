# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib
import os
import threading
from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Literal, TypeVar, get_args

from fastmcp import FastMCP
from fastmcp.prompts.base import Prompt
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.dependencies import get_context, get_server
from fastmcp.server.extensions import ServerExtension
from fastmcp.server.providers import Provider
from fastmcp.tools.base import Tool
from fastmcp.utilities.components import FastMCPComponent
from fastmcp.utilities.versions import VersionSpec, version_sort_key
from haystack import logging
from haystack.tools.tool import Tool as HaystackTool
from haystack.tools.toolset import Toolset
from mcp.types import CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.serving.calls import (
    DEFAULT_MAX_CONCURRENCY,
    HIDE,
    CallPool,
    ServedTool,
    call_if_there,
    guard_of,
)
from haystack_integrations.tools.mcp.serving.changes import Changes, Unsubscribe, announcer_of
from haystack_integrations.tools.mcp.serving.functions import serve_function, serve_tool
from haystack_integrations.tools.mcp.serving.gateway import ForwardedReading, serve_mcp_tool
from haystack_integrations.tools.mcp.serving.options import ServeOptions, check_options
from haystack_integrations.tools.mcp.serving.sources import NamedOptions, Source

logger: logging.PatchedLogger = logging.getLogger(__name__)

# How many characters of a description tell apart two things of one name.
_DESCRIPTION = 80

ComponentT = TypeVar("ComponentT", bound=FastMCPComponent)

DuplicatePolicy = Literal["warn", "error", "replace", "ignore"]

# The parameters of `create_mcp_server` beside `tools`, and the class that serves what is given there. Each is imported
# only if it is used, and made with `Class(things, options=..., pool=...)`.
_SOURCES = {
    "pipelines": "PipelineSource",
    "agents": "AgentSource",
    "documents": "DocumentStoreSource",
    "prompts": "PromptSource",
    "skills": "SkillSource",
}


class HaystackProvider(Provider, Changes):
    """
    Gives a FastMCP server what was built in Haystack: `FastMCP("shop", providers=[HaystackProvider(tools=[...])])`.

    `create_mcp_server` makes a server of it, with settings that are safe for strangers.
    """

    # What is served, in this order.
    sources: tuple[Source, ...] = ()

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
        Provider.__init__(self)
        Changes.__init__(self)
        if on_duplicate not in get_args(DuplicatePolicy):
            msg = f"`on_duplicate` must be one of {', '.join(get_args(DuplicatePolicy))}, got {on_duplicate!r}"
            raise ValueError(msg)
        self._on_duplicate = on_duplicate
        # Which duplicates were warned of: listings come again and again.
        self._told: set[str] = set()
        self.pool: CallPool = CallPool(max_concurrency)
        self._removed: set[tuple[str, str | None]] = set()
        self._listed: list[Tool] = []
        self._options = NamedOptions(options)
        given_tools = ToolSource([] if tools is None else tools, options=self._options, pool=self.pool)
        given = {
            "pipelines": pipelines,
            "agents": agents,
            "documents": document_stores,
            "prompts": prompts,
            "skills": skills,
        }
        self._add(
            given_tools,
            *given_tools.forwarded,
            *(
                getattr(importlib.import_module(f"{__package__}.{module}"), name)(
                    given[module], options=self._options, pool=self.pool
                )
                for module, name in _SOURCES.items()
                if given[module] is not None
            ),
            *sources,
        )
        # What toolsets and skill stores have is known later, and some of it changes.
        self._is_open = skills is not None or bool(sources)
        if given_tools.is_complete:
            self._check_options()
        self._unique(self._known_tools(), may_raise=True)
        self._extensions = [_tasks_extension(task_queue)] if any(each.uses_tasks for each in self.sources) else []

    def _add(self, *sources: Source) -> None:
        for source in sources:
            source.on_change(self.changed)
        self.sources = (*self.sources, *sources)

    @property
    def _tool_sources(self) -> list[ToolSource]:
        return [source for source in self.sources if isinstance(source, ToolSource)]

    def required_extensions(self) -> Sequence[ServerExtension]:
        """
        Return the extensions that what is served needs.

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
        self._removed = {each for each in self._removed if each[0] not in names}
        self._add(added, *added.forwarded)
        self.changed("tools")

    def remove_tool(self, name: str, version: str | None = None) -> None:
        """
        Serve a tool no longer.

        :param name: Its name for clients. A toolset may have another one of that name later, which is not served, too.
        :param version: Which version; all of them by default.
        :raises KeyError: If there is none.
        """
        if not any(tool.name == name and version in (None, tool.version) for tool in self._known_tools()):
            msg = f"Tool {name!r} not found"
            raise KeyError(msg)
        self._removed.add((name, version))
        for source in self._tool_sources:
            source.drop(name, version)

    def _known_tools(self) -> list[Tool]:
        known = [tool for source in self.sources for tool in source.known_tools]
        known += [tool for tool in self._listed if tool not in known]
        return [tool for tool in known if not self._is_removed(tool)]

    def _is_removed(self, tool: Tool) -> bool:
        return not self._removed.isdisjoint({(tool.name, None), (tool.name, tool.version)})

    async def _list_tools(self) -> Sequence[Tool]:
        tools = await self._collect(lambda source: source.list_tools())
        self._listed = self._unique([tool for tool in tools if not self._is_removed(tool)])
        return await _marked(self._listed)

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        tools = await self._collect(lambda source: source.list_tools())
        named = [tool for tool in tools if tool.name == name and not self._is_removed(tool)]
        found = await _marked(self._unique(named))
        matching = [tool for tool in found if version is None or version.matches(tool.version)]
        return max(matching, key=version_sort_key, default=None)

    async def get_tasks(self) -> Sequence[FastMCPComponent]:
        """
        List what may run as a background task. FastMCP asks for it when the server starts.

        :returns: Tools. Nothing else may, so no document store or other server is asked, which may be slow or down.
        """
        tools = await self.list_tools()
        return [tool for tool in tools if tool.task_config.supports_tasks()]

    async def _list_resources(self) -> Sequence[Resource]:
        return await self._collect(lambda source: source.list_resources())

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Resource | None:
        found: list[Resource] = await self._collect(lambda source: source.find_resources(uri))
        matching = [each for each in found if version is None or version.matches(each.version)]
        return max(matching, key=version_sort_key, default=None)

    async def _list_resource_templates(self) -> Sequence[ResourceTemplate]:
        return await self._collect(lambda source: source.list_resource_templates())

    async def _list_prompts(self) -> Sequence[Prompt]:
        return await self._collect(lambda source: source.list_prompts())

    async def _collect(self, listing: Callable[[Source], Any]) -> list[Any]:
        found: list[Any] = []
        for source in self.sources:
            try:
                found += await listing(source)
            # Of any kind: what is behind one source must not take the others from clients.
            except Exception as error:
                logger.warning(
                    "{source} cannot be listed, so clients do not see what it serves: {error}",
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
            if self._on_duplicate == "error" and may_raise:
                msg = f"Two things named '{each.name}' are served. Rename one: ServeOptions(name=...)"
                raise ValueError(msg)
            # An error came too late for those of a toolset that changed: the first stays what it was.
            is_last_served = self._on_duplicate in ("warn", "replace")
            self._tell(by_key[each.key] if is_last_served else each, "first" if is_last_served else "last")
            if is_last_served:
                by_key[each.key] = each
        return list(by_key.values())

    def _tell(self, left_out: FastMCPComponent, given: Literal["first", "last"]) -> None:
        if self._on_duplicate in ("warn", "error") and left_out.key not in self._told:
            self._told.add(left_out.key)
            logger.warning(
                "There are two things named '{duplicate}'. The one that was given {given} is not served, which says of "
                "itself {description}. Rename one with ServeOptions(name=...), give them a `version` each, or choose "
                "with `on_duplicate`",
                duplicate=left_out.name,
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

    def _check_options(self) -> None:
        """
        Tell of options for something that is not served: a name with a typo protects nothing.
        """
        unused = self._options.unused
        if unused is not None and not self._is_open and not any(each.may_change for each in self._tool_sources):
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
            guard_of(server)
            # Named, because a provider with a namespace, or of a mounted server, is none of the server's own.
            announcer_of(server).watch_providers([self])
        try:
            tools: list[Tool] = []
            for source in self.sources:
                await source.warm_up()
                tools += await source.list_tools()
            self._unique(tools, may_raise=True)
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
    Return the server to which clients connect; None where this lifespan is entered without one.
    """
    try:
        return get_server()
    except RuntimeError:
        return None


async def _marked(tools: Sequence[Tool]) -> Sequence[Tool]:
    """Mark those that are not enabled. They are not left out, so that `server.enable` shows them."""
    hidden = [tool for tool in tools if isinstance(tool, ServedTool) and not tool.is_enabled]
    if not hidden:
        return tools
    marked: dict[str, Tool] = {tool.key: tool for tool in await HIDE.list_tools(hidden)}
    return [marked.get(tool.key, tool) for tool in tools]


def _tasks_extension(queue: str) -> ServerExtension:
    """
    Make what runs tools as background tasks: FastMCP's extension, with its queue.

    The queue is in memory, unless the environment variable `FASTMCP_DOCKET_URL` names a Redis. All servers that have
    the queue share the work, so they must serve the same. `FASTMCP_DOCKET_NAME` is another name for it. An extension
    that is added to the server by `add_extension` takes its place.
    """
    try:
        from fastmcp_tasks import TasksExtension  # noqa: PLC0415
    except ImportError as error:
        msg = 'Background tasks (`ServeOptions(task=True)`) need fastmcp-tasks: pip install "mcp-haystack[tasks]"'
        raise ImportError(msg) from error

    class BackgroundTasks(TasksExtension):
        """The extension, which a server takes over from its provider."""

        auto_register = True

    return BackgroundTasks(name=None if "FASTMCP_DOCKET_NAME" in os.environ else queue)


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
        if isinstance(tools, HaystackTool | Toolset | Tool | str | Mapping) or not isinstance(tools, Iterable):
            msg = f"`tools` must be a list of tools, toolsets and functions, got {type(tools).__name__}"
            raise ValueError(msg)
        self._options = options
        self._pool = pool
        self._may_be_tasks = any(each.task for each in options.values())
        # What else the servers of toolsets have.
        self.forwarded: list[Source] = []
        self._parts = [self._part(thing) for thing in tools]

    def drop(self, name: str, version: str | None) -> None:
        """
        Forget a tool, so that another one of its name can be added.

        :param name: Its name.
        :param version: Which version; all of them by default.
        """
        self._parts = [
            part
            for part in self._parts
            if not any(tool.name == name and version in (None, tool.version) for tool in _known(part))
        ]
        self._tools_changed()

    @property
    def is_complete(self) -> bool:
        """
        Whether all tools are known before anything is warmed up.
        """
        return all(not isinstance(part, _LiveTools) or part.known for part in self._parts)

    @property
    def may_change(self) -> bool:
        """
        Whether one of the toolsets may have other tools by itself later.
        """
        return any(isinstance(part, _LiveTools) and part.may_change for part in self._parts)

    @property
    def uses_tasks(self) -> bool:
        """
        Whether clients may run one of them as a background task.
        """
        return super().uses_tasks or self._may_be_tasks

    def _part(self, thing: Any) -> Tool | _LiveTools:
        own: ServeOptions | None = None
        if isinstance(thing, tuple):
            if len(thing) != 2:  # noqa: PLR2004
                msg = "A tuple in `tools` must be a tool and its ServeOptions"
                raise ValueError(msg)
            thing, own = thing[0], check_options(thing[1])
            self._may_be_tasks = self._may_be_tasks or bool(own.task)
        if isinstance(thing, Tool):
            if own is not None or thing.name in self._options:
                msg = f"Tool '{thing.name}' is one of FastMCP, which ServeOptions say nothing of"
                raise ValueError(msg)
            return thing
        if isinstance(thing, MCPToolset) and (own is None or own.forward):
            self.forwarded.append(ForwardedReading(thing))
        if isinstance(thing, HaystackTool | Toolset):
            return _LiveTools(thing, lambda tool: self._serve(tool, own), self._tools_changed)
        if callable(thing):
            return serve_function(thing, options_of=lambda name: self._options_for(name, own), pool=self._pool)
        msg = f"`tools` must contain tools, toolsets and functions, got {type(thing).__name__}"
        raise ValueError(msg)

    def _options_for(self, name: str, own: ServeOptions | None) -> ServeOptions | None:
        by_name = self._options.get(name)
        return own if by_name is None else by_name.overridden_by(own)

    def _serve(self, tool: HaystackTool, own: ServeOptions | None) -> Tool:
        options = self._options_for(tool.name, own) or ServeOptions()
        if isinstance(tool, MCPTool):
            return serve_mcp_tool(tool, options=options, pool=self._pool)
        return serve_tool(tool, options=options, pool=self._pool)

    def _tools_changed(self) -> None:
        self.changed("tools")

    @property
    def known_tools(self) -> Sequence[Tool]:  # type: ignore[override]
        """
        The tools that are known before anything is warmed up.
        """
        return [tool for part in self._parts for tool in _known(part)]

    async def list_tools(self) -> list[Tool]:
        """
        List the tools. Those of a toolset are the ones that it has now, or had before if it does not say.
        """
        return [
            tool for part in self._parts for tool in (await part.list() if isinstance(part, _LiveTools) else [part])
        ]

    async def warm_up(self) -> None:
        """
        Warm up the tools and toolsets.
        """
        for part in self._parts:
            if isinstance(part, _LiveTools):
                await part.warm_up()

    async def close(self) -> None:
        """
        Close the tools and toolsets. When they are used again, they open what they need.
        """
        for part in self._parts:
            if isinstance(part, _LiveTools):
                await part.close()


def _known(part: Tool | _LiveTools) -> list[Tool]:
    return part.known if isinstance(part, _LiveTools) else [part]


# What was made of a tool, with the definition that it had then. It keeps the tool, so that no other one gets its id.
_Made = tuple[HaystackTool, Any, Tool | None]


class _LiveTools:
    """
    The tools of a toolset as they are now, or one tool as it is now.

    A tool of another server gets its definition when it is warmed up.
    """

    def __init__(
        self, tools: HaystackTool | Toolset, serve: Callable[[HaystackTool], Tool], changed: Callable[[], None]
    ) -> None:
        self._tools = tools
        self._serve = serve
        self.changed = changed
        self._is_stale = True
        self._unsubscribe: Unsubscribe | None = None
        self._lock = threading.Lock()
        self._served: dict[int, _Made] = {}
        self.known: list[Tool] = []
        if isinstance(tools, HaystackTool) and not isinstance(tools, MCPTool):
            self.known = [serve(tools)]
            self._served = {id(tools): (tools, _definition(tools), self.known[0])}

    @property
    def may_change(self) -> bool:
        """
        Whether it may have other tools by itself, as a toolset of another server does, which may be down at first.
        """
        return isinstance(self._tools, Toolset) and type(self._tools) is not Toolset

    async def list(self) -> list[Tool]:
        """
        List the tools that there are now; those of the last time if it cannot say.
        """
        try:
            await self._look()
        # Of any kind: a server that is down must not take the other tools from clients.
        except Exception as error:
            logger.warning(
                "Tools cannot be listed anew, so clients see those that there were before: {error}", error=repr(error)
            )
        with self._lock:
            return [served for _, _, served in self._served.values() if served is not None]

    async def _look(self) -> None:
        if self._is_stale:
            await self._prepare()
        now = [self._tools] if isinstance(self._tools, HaystackTool) else list(self._tools)
        with self._lock:
            before = self._served
            after = {id(tool): self._made(tool, before.get(id(tool))) for tool in now}
            self._served = after
        if before and before != after:
            self.changed()

    def _made(self, tool: HaystackTool, before: _Made | None) -> _Made:
        definition = _definition(tool)
        if before is not None and before[1] == definition:
            return before
        try:
            return tool, definition, self._serve(tool)
        except ValueError as error:
            # The others of a toolset are of use without it.
            logger.warning("Tool '{tool}' is not served: {error}", tool=tool.name, error=str(error))
            return tool, definition, None

    async def warm_up(self) -> None:
        """
        Warm up the toolset or tool, and have it tell when it changes. What cannot be listed at the start is an error.
        """
        watch = getattr(self._tools, "on_change", None)
        if self._unsubscribe is None and watch is not None:
            self._unsubscribe = watch(self._note_change)
        await self._prepare()
        await self._look()

    async def _prepare(self) -> None:
        self._is_stale = False
        try:
            await call_if_there(self._tools, "warm_up")
        except BaseException:
            self._is_stale = True
            raise

    def _note_change(self, _change: Any) -> None:
        # It has the new tools from its next warm-up on.
        self._is_stale = True
        self.changed()

    async def close(self) -> None:
        """
        Close the toolset or tool.
        """
        if self._unsubscribe is not None:
            self._unsubscribe()
            self._unsubscribe = None
        self._is_stale = True
        await call_if_there(self._tools, "close")


def _definition(tool: HaystackTool) -> tuple[Any, ...]:
    # An object is compared with itself first, so that this costs little.
    return tool.name, tool.description, tool.parameters
