# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The provider for any FastMCP server, and a ready-made server with settings that are safe for unknown clients.
"""

from __future__ import annotations

import asyncio
import importlib.metadata
import os
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any, Literal, Self, TypeVar

from fastmcp import FastMCP, settings
from fastmcp.prompts.base import Prompt
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.auth import AuthProvider
from fastmcp.server.dependencies import get_context, get_server
from fastmcp.server.extensions import ServerExtension
from fastmcp.server.http import StarletteWithLifespan
from fastmcp.server.providers import Provider
from fastmcp.tools.base import Tool
from fastmcp.utilities.components import FastMCPComponent
from fastmcp.utilities.versions import VersionSpec, version_sort_key
from haystack import logging
from haystack.tools.tool import Tool as HaystackTool
from haystack.tools.toolset import Toolset
from haystack.utils import Secret
from mcp.types import CompletionArgument, CompletionContext, PromptReference, ResourceTemplateReference

from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import Positive, checked
from haystack_integrations.tools.mcp.serving.access import auth_provider, origins_of_pages, request_state_security
from haystack_integrations.tools.mcp.serving.agents import agent_sources
from haystack_integrations.tools.mcp.serving.call_guard import guard_of
from haystack_integrations.tools.mcp.serving.calls import DEFAULT_MAX_CONCURRENCY, CallPool
from haystack_integrations.tools.mcp.serving.changes import Listing, announcer_of
from haystack_integrations.tools.mcp.serving.documents import document_store_sources
from haystack_integrations.tools.mcp.serving.functions import serve_function, serve_tool
from haystack_integrations.tools.mcp.serving.gateway import LiveTools, RemotePrompt, ServedServer, serve_mcp_tool
from haystack_integrations.tools.mcp.serving.pipelines import pipeline_sources
from haystack_integrations.tools.mcp.serving.prompts import ServedPrompt, prompt_sources
from haystack_integrations.tools.mcp.serving.skills import skill_sources
from haystack_integrations.tools.mcp.serving.sources import (
    NamedOptions,
    ServeOptions,
    Source,
    check_options,
)

logger: logging.PatchedLogger = logging.getLogger(__name__)

NamedT = TypeVar("NamedT", bound=FastMCPComponent)

DuplicatePolicy = Literal["warn", "error", "replace", "ignore"]


class HaystackProvider(Provider):
    """
    Provides what was built in Haystack to a FastMCP server: `FastMCP("x", providers=[HaystackProvider(tools=[...])])`.

    `create_mcp_server` makes a server with it, with settings that are safe for unknown clients.
    """

    # The sources in the order in which they were added.
    sources: tuple[Source, ...] = ()

    @checked()
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
        max_concurrency: Positive = DEFAULT_MAX_CONCURRENCY,
        on_duplicate: DuplicatePolicy = "warn",
        task_queue: str = "haystack",
    ) -> None:
        """
        Initialize the HaystackProvider.

        :param tools: A list of Tools, Toolsets and functions; each alone, or in a pair with its options:
            `(tool, ServeOptions(...))`.
        :param pipelines: Pipelines, by the names that clients see.
        :param agents: Agents, by the names that clients see.
        :param document_stores: Document stores, by the names that clients see in URIs.
        :param prompts: Prompt builders, by the names that clients see.
        :param skills: Skill stores (Haystack 3).
        :param options: ServeOptions, by the name of what they apply to.
        :param max_concurrency: How many calls run at a time, apart from things with their own limit.
        :param on_duplicate: What to do if two things have the same name and version: serve the last one, with a warning
            in the log (`"warn"`) or without (`"replace"`), serve the first one (`"ignore"`), or fail (`"error"`).
        :param task_queue: The name of the queue of background tasks. Servers that share a Redis and serve different
            things need different ones.
        :raises ValueError: If something cannot be served.
        :raises ImportError: If something needs a package that is not installed.
        """
        super().__init__()
        self._listeners: list[Callable[[Listing], None]] = []
        self._on_duplicate = on_duplicate
        self._serves_last = on_duplicate in ("warn", "replace")
        # The duplicates of which a warning was logged, because listings are made again and again.
        self._warned_of: set[str] = set()
        self.pool: CallPool = CallPool(max_concurrency)
        self._options = NamedOptions(options)
        kinds: list[tuple[Callable[..., Iterable[Source]], Any]] = [
            (_tool_sources, tools),
            (pipeline_sources, pipelines),
            (agent_sources, agents),
            (document_store_sources, document_stores),
            (prompt_sources, prompts),
            (skill_sources, skills),
        ]
        for sources_of, given in kinds:
            if given is not None:
                self._add(*sources_of(given, options=self._options, pool=self.pool))
        if self._options.unused_message is not None and not any(each.may_change for each in self.sources):
            # Options under a misspelt name, for example `scopes`, would protect nothing.
            raise ValueError(self._options.unused_message)
        self._without_duplicates(self._known_tools(), may_raise=True)
        self._extensions = [_tasks_extension(task_queue)] if any(each.uses_tasks for each in self.sources) else []

    def _add(self, *sources: Source) -> None:
        for source in sources:
            source.changed = self.changed
        self.sources = (*self.sources, *sources)

    def on_change(self, callback: Callable[[Listing], None]) -> None:
        """
        Call a function when something was added, removed or changed.

        :param callback: Gets the list that changed: `"tools"`, `"resources"` or `"prompts"`. It is called in any
            thread, and must neither block nor raise.
        """
        self._listeners.append(callback)

    def changed(self, listing: Listing) -> None:
        """
        Call the functions of `on_change`. Thread-safe.

        :param listing: The list that changed.
        """
        for callback in list(self._listeners):
            callback(listing)

    def required_extensions(self) -> Sequence[ServerExtension]:
        """
        Return the extensions of the protocol that are needed.

        :returns: The extension for background tasks, if a tool can be one, and those of the sources.
        """
        return [*self._extensions, *(each for source in self.sources for each in source.extensions)]

    def add_tool(self, tool: Any, options: ServeOptions | None = None) -> None:
        """
        Serve one more tool, toolset or function.

        :param tool: The tool.
        :param options: Its options.
        :raises ValueError: If it cannot be served, or is a duplicate and `on_duplicate` is `"error"`.
        """
        added = list(_tool_sources([(tool, options or ServeOptions())], options=self._options, pool=self.pool))
        if any(each.uses_tasks for each in added) and not self._extensions:
            msg = "A tool that can be a background task must be among the `tools` that the server is made with"
            raise ValueError(msg)
        added_tools = [tool for source in added for tool in source.known_tools]
        self._without_duplicates([*self._known_tools(), *added_tools], may_raise=True)
        self._add(*added)
        self.changed("tools")

    def remove_tool(self, name: str, version: str | None = None) -> None:
        """
        Stop serving a tool.

        :param name: Its name for clients. A later tool of that name in a toolset is not served either.
        :param version: The version; by default, all of them.
        :raises KeyError: If there is no such tool.
        """
        if not any(tool.name == name and version in (None, tool.version) for tool in self._known_tools()):
            msg = f"Tool {name!r} not found"
            raise KeyError(msg)
        for source in self.sources:
            source.dropped.add((name, version))
        self.changed("tools")

    def _known_tools(self) -> list[Tool]:
        return [tool for source in self.sources for tool in source.known_tools]

    async def _list_tools(self) -> Sequence[Tool]:
        return self._without_duplicates(await self._collect(lambda source: source.list_tools()))

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        # FastMCP would look for duplicates among all tools, at each call.
        listed: list[Tool] = await self._collect(lambda source: source.list_tools())
        return _highest(self._without_duplicates([each for each in listed if each.name == name]), version)

    async def get_tasks(self) -> Sequence[FastMCPComponent]:
        """
        List the tools that may run as background tasks. FastMCP calls this when the server starts.

        :returns: The tools. Nothing else can be a task, so other listings, which may be slow, are not made.
        """
        tools = await self.list_tools()
        return [tool for tool in tools if tool.task_config.supports_tasks()]

    async def _list_resources(self) -> Sequence[Resource]:
        return await self._collect(lambda source: source.list_resources())

    async def _get_resource(self, uri: str, version: VersionSpec | None = None) -> Resource | None:
        local, remote = self._local_and_remote_sources()
        for source in [*local, *remote]:
            if source in remote and await self._template(uri, version, local) is not None:
                return None  # FastMCP asks for templates next
            found: list[Resource] = await self._collect(lambda each: each.find_resources(uri), [source])
            if (resource := _highest(found, version)) is not None:
                return resource
        return None

    async def _list_resource_templates(self) -> Sequence[ResourceTemplate]:
        return await self._collect(lambda source: source.list_resource_templates())

    async def _get_resource_template(self, uri: str, version: VersionSpec | None = None) -> ResourceTemplate | None:
        local, remote = self._local_and_remote_sources()
        return await self._template(uri, version, local) or await self._template(uri, version, remote)

    async def _template(self, uri: str, version: VersionSpec | None, sources: list[Source]) -> ResourceTemplate | None:
        listed: list[ResourceTemplate] = await self._collect(lambda each: each.list_resource_templates(), sources)
        return _highest([each for each in listed if each.matches(uri) is not None], version)

    async def _list_prompts(self) -> Sequence[Prompt]:
        return self._without_duplicates(await self._collect(lambda source: source.list_prompts()))

    async def _get_prompt(self, name: str, version: VersionSpec | None = None) -> Prompt | None:
        # The sources of this process count as the last ones, so that they win if the last of two prompts is served.
        for sources in self._local_and_remote_sources() if self._serves_last else [self.sources]:
            listed: list[Prompt] = self._without_duplicates(
                await self._collect(lambda each: each.list_prompts(), sources)
            )
            if (found := _highest([each for each in listed if each.name == name], version)) is not None:
                return found
        return None

    def _local_and_remote_sources(self) -> tuple[list[Source], list[Source]]:
        """Return the sources of this process, and the other servers, which come last because one of them may hang."""
        others: list[Source] = [each for each in self.sources if isinstance(each, ServedServer)]
        return [each for each in self.sources if each not in others], others

    async def _collect(self, listing: Callable[[Source], Any], sources: Sequence[Source] | None = None) -> list[Any]:
        found: list[Any] = []
        for source in self.sources if sources is None else sources:
            try:
                found += await listing(source)
            # Any error is caught, because one source that fails must not hide the others from clients.
            except Exception as error:
                logger.warning(
                    "{source} cannot be listed, so clients do not see what it serves: {error}",
                    source=type(source).__name__,
                    error=repr(error),
                )
        return found

    def _without_duplicates(self, things: Sequence[NamedT], *, may_raise: bool = False) -> list[NamedT]:
        by_key: dict[str, NamedT] = {}
        for thing in things:
            if thing.key in by_key:
                if self._on_duplicate == "error" and may_raise:
                    msg = f"Two things named '{thing.name}' are served. Rename one: ServeOptions(name=...)"
                    raise ValueError(msg)
                # It is too late for an error if a toolset has changed. The first one stays then, with a warning.
                if self._on_duplicate in ("warn", "error") and thing.key not in self._warned_of:
                    self._warned_of.add(thing.key)
                    logger.warning(
                        "There are two things named '{duplicate}'. The one that was given {given} is not served. "
                        "Rename one with ServeOptions(name=...), or with the `tool_name_prefix` of an MCPToolset, give "
                        "them a `version` each, or choose with `on_duplicate`",
                        duplicate=thing.name,
                        given="first" if self._serves_last else "last",
                    )
                if not self._serves_last:
                    continue
            by_key[thing.key] = thing
        return list(by_key.values())

    @property
    def completes(self) -> bool:
        """
        Whether there may be prompts, whose arguments may be completed.
        """
        return any(source.prompts or isinstance(source, ServedServer) for source in self.sources)

    async def complete(
        self,
        reference: PromptReference | ResourceTemplateReference,
        argument: CompletionArgument,
        context: CompletionContext | None,
    ) -> list[str] | None:
        """
        Complete an argument of a prompt, as a handler for `server.add_completion_handler(provider.complete)`.

        :param reference: The prompt.
        :param argument: The argument, with the text typed so far.
        :param context: The values of other arguments.
        :returns: Values that clients may offer; None if the prompt is not served here, or not shown to this client.
        """
        if isinstance(reference, PromptReference):
            prompt = await get_context().fastmcp.get_prompt(reference.name)
            if isinstance(prompt, ServedPrompt | RemotePrompt):
                known = dict((context and context.arguments) or {})
                return list(await prompt.complete(argument.name, argument.value, known))
        return None

    @asynccontextmanager
    async def lifespan(self) -> AsyncIterator[None]:
        """
        Warm up the sources, notify clients of changes while the server runs, and close the sources.

        :returns: A context manager.
        """
        server = None
        with suppress(RuntimeError):  # this lifespan may be entered without a server
            server = get_server()
        if server is not None:
            guard_of(server)
            # Passed explicitly: providers with a namespace or of a mounted server are not in `server.providers`.
            announcer_of(server).watch_providers([self])
        try:
            # Servers start concurrently, as each may take seconds. Others do not, as they may load the same things.
            servers = [each for each in self.sources if isinstance(each, LiveTools) and each.are_of_server]
            await asyncio.gather(*(each.warm_up() for each in servers))
            for source in self.sources:
                if source not in servers:
                    await source.warm_up()
            self._without_duplicates(self._known_tools(), may_raise=True)
            if self._options.unused_message is not None:
                # Listing skills looks up their options.
                await self._list_resources()
            if self._options.unused_message is not None:
                logger.warning(
                    "{unused} Unless it comes later, correct the name: until then these options apply to nothing",
                    unused=self._options.unused_message,
                )
            yield
        finally:
            for source in reversed(self.sources):
                try:
                    await source.close()
                except Exception as error:  # any error, so that the other sources are closed as well
                    logger.warning("Something that is served cannot be closed: {error}", error=repr(error))


def _highest(found: Sequence[NamedT], version: VersionSpec | None) -> NamedT | None:
    matching = [each for each in found if version is None or version.matches(each.version)]
    return max(matching, key=version_sort_key, default=None)


def _tasks_extension(queue: str) -> ServerExtension:
    """
    Make FastMCP's extension that runs tools as background tasks, with its queue.

    The queue is in memory, unless the environment variable `FASTMCP_DOCKET_URL` names a Redis. All servers that share
    a queue share the work, so they must serve the same things. `FASTMCP_DOCKET_NAME` overrides its name. An extension
    that is added to the server with `add_extension` replaces this one.
    """
    try:
        from fastmcp_tasks import TasksExtension  # noqa: PLC0415
    except ImportError as error:
        msg = 'Background tasks (`ServeOptions(task=True)`) need fastmcp-tasks: pip install "mcp-haystack[tasks]"'
        raise ImportError(msg) from error

    class BackgroundTasks(TasksExtension):
        """The extension, which a server registers when its provider requires it."""

        auto_register = True

    return BackgroundTasks(name=None if "FASTMCP_DOCKET_NAME" in os.environ else queue)


def _tool_sources(tools: Any, *, options: NamedOptions, pool: CallPool) -> Iterator[Source]:
    """Make the sources for the parameter `tools`."""
    if isinstance(tools, HaystackTool | Toolset | Tool | str | Mapping) or not isinstance(tools, Iterable):
        msg = f"`tools` must be a list of tools, toolsets and functions, got {type(tools).__name__}"
        raise ValueError(msg)
    for thing in tools:
        yield from _sources_of(thing, options, pool)


def _sources_of(thing: Any, options: NamedOptions, pool: CallPool) -> Iterator[Source]:
    own_options: ServeOptions | None = None
    if isinstance(thing, tuple):
        if len(thing) != 2:  # noqa: PLR2004
            msg = "A tuple in `tools` must be a tool and its ServeOptions"
            raise ValueError(msg)
        thing, own_options = thing[0], check_options(thing[1])

    def options_of(name: str) -> ServeOptions:
        return options.of(name).overridden_by(own_options)

    def serve(tool: HaystackTool) -> Tool:
        if isinstance(tool, MCPTool):
            return serve_mcp_tool(tool, options=options_of(tool.name), pool=pool)
        return serve_tool(tool, options=options_of(tool.name), pool=pool)

    if isinstance(thing, Tool):
        if own_options is not None or thing.name in options:
            msg = f"Tool '{thing.name}' is a tool of FastMCP, to which ServeOptions do not apply"
            raise ValueError(msg)
        yield Source([thing])
    elif isinstance(thing, HaystackTool | Toolset):
        # Any option counts, because tools that are added later may be background tasks as well.
        may_be_tasks = any(each.task for each in (*options.values(), own_options) if each)
        if isinstance(thing, MCPToolset) and (own_options is None or own_options.forward):
            yield ServedServer(thing, own_options or ServeOptions(), serve=serve, may_be_tasks=may_be_tasks)
        else:
            yield LiveTools(thing, serve, may_be_tasks=may_be_tasks)
    elif callable(thing):
        yield Source([serve_function(thing, options_of=options_of, pool=pool)])
    else:
        msg = f"`tools` must contain tools, toolsets and functions, got {type(thing).__name__}"
        raise ValueError(msg)


# The server


class HaystackServer(FastMCP[Any]):
    """
    A FastMCP server for what was built in Haystack, as `create_mcp_server` makes it.

    It also notifies clients of changes, and accepts keys in the form of FastMCP 3: `disable(keys={"tool:x"})` disables
    all versions of the tool `x`, where FastMCP 4 would disable nothing.
    """

    def __init__(self, name: str, haystack: HaystackProvider, **options: Any) -> None:
        """
        Initialize the HaystackServer.

        :param name: The name of the server.
        :param haystack: The provider of what it serves.
        :param options: Parameters of FastMCP.
        """
        super().__init__(name, **options)
        self.haystack = haystack
        self._remove_local_tool = self.local_provider.remove_tool
        self.local_provider.remove_tool = self._remove_tool  # type: ignore[method-assign]
        guard_of(self)
        announcer_of(self)
        self.add_provider(haystack)
        if haystack.completes:
            self.add_completion_handler(haystack.complete)

    def _remove_tool(self, name: str, version: str | None = None) -> None:
        try:
            self._remove_local_tool(name, version)
        except KeyError:  # the tool may be from the provider
            self.haystack.remove_tool(name, version)

    def add_tool(self, tool: Any, options: ServeOptions | None = None) -> Any:
        """
        Serve one more tool.

        :param tool: A tool or toolset of Haystack, which is served with the options; or a function, or a tool of
            FastMCP, which FastMCP serves.
        :param options: The options of a tool or toolset of Haystack.
        :returns: The added tool.
        :raises ValueError: If it cannot be served, or there are options for a tool of FastMCP.
        """
        if isinstance(tool, HaystackTool | Toolset):
            self.haystack.add_tool(tool, options)
            return tool
        if options is not None:
            msg = "`options` are for tools and toolsets of Haystack; FastMCP has the decorator `server.tool`"
            raise ValueError(msg)
        return super().add_tool(tool)

    def http_app(self, *args: Any, **options: Any) -> StarletteWithLifespan:
        """
        Make an ASGI application like FastMCP's that also checks Host and Origin.

        `haystack_integrations.tools.mcp.serving.http_app` makes one that also lets calls finish when the process stops.

        :param args: As for FastMCP.
        :param options: As for FastMCP. `host_origin_protection` and `allowed_origins` are by default taken from
            FastMCP's settings, or else `"auto"` and an empty list.
        :returns: The application.
        """
        if options.get("allowed_origins") is None:
            # Without a list, FastMCP checks the Origin only of requests to a loopback address.
            options["allowed_origins"] = [*(settings.http_allowed_origins or ()), *origins_of_pages(self.auth)]
        return super().http_app(*args, **_with_protection(options))

    async def run_http_async(self, *args: Any, **options: Any) -> None:
        """
        Serve over HTTP like FastMCP, but check Host and Origin. `run` and `fastmcp run` use this.

        :param args: As for FastMCP.
        :param options: As for `http_app`, and as for FastMCP.
        """
        await super().run_http_async(*args, **_with_protection(options))

    def enable(self, *, keys: set[str] | None = None, only: bool = False, **criteria: Any) -> Self:
        """
        Enable everything that meets all criteria.

        :param keys: Keys: `tool:x@2` for one version, `tool:x@` for a tool without version, `tool:x` for all versions.
        :param only: Whether to disable everything else.
        :param criteria: Names, versions, tags and components, as for FastMCP.
        :returns: The server.
        """
        for each in _split_keys(keys, criteria):
            super().enable(**each, only=only)
            only = False
        return self

    def disable(self, *, keys: set[str] | None = None, **criteria: Any) -> Self:
        """
        Hide everything that meets all criteria from clients, and refuse calls of it.

        :param keys: As for `enable`.
        :param criteria: As for `enable`.
        :returns: The server.
        """
        for each in _split_keys(keys, criteria):
            super().disable(**each)
        return self


def _with_protection(options: dict[str, Any]) -> dict[str, Any]:
    # FastMCP itself checks nothing by default.
    setting = "http_host_origin_protection"
    default = settings.http_host_origin_protection if setting in settings.model_fields_set else "auto"
    chosen = options.get("host_origin_protection")
    return {**options, "host_origin_protection": default if chosen is None else chosen}


def _split_keys(keys: set[str] | None, criteria: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Replace keys without a version by names, one set of criteria per kind, because FastMCP requires all to be met."""
    short = {key for key in keys or () if "@" not in key}
    if keys is None or keys != short:
        yield {**criteria, "keys": None if keys is None else keys - short}
    by_kind: dict[str, set[str]] = {}
    for key in short:
        kind, _, name = key.partition(":")
        if not name:
            msg = f"{key!r} is not a key: it must be like tool:NAME"
            raise ValueError(msg)
        by_kind.setdefault(kind, set()).add(name)
    for kind, names in by_kind.items():
        yield {**criteria, "names": names, "components": {kind}}


def create_mcp_server(
    name: str,
    *,
    tools: Any = None,
    pipelines: Any = None,
    agents: Any = None,
    document_stores: Any = None,
    prompts: Any = None,
    skills: Any = None,
    options: Any = None,
    auth: AuthProvider | Secret | None = None,
    max_concurrency: int = DEFAULT_MAX_CONCURRENCY,
    mask_error_details: bool = True,
    strict_input_validation: bool = False,
    dereference_schemas: bool = True,
    on_duplicate: DuplicatePolicy = "warn",
    request_state_keys: Sequence[str | Secret] | None = None,
    **fastmcp_options: Any,
) -> HaystackServer:
    """
    Create an MCP server that serves what was built in Haystack.

    :param name: The name of the server, and of its queue of background tasks: servers that share a Redis and serve
        different things need different names.
    :param tools: A list of Tools, Toolsets and functions; each alone, or in a pair with its options:
        `(tool, ServeOptions(...))`.
    :param pipelines: Pipelines, by the names that clients see.
    :param agents: Agents, by the names that clients see.
    :param document_stores: Document stores, by the names that clients see in URIs.
    :param prompts: Prompt builders, by the names that clients see.
    :param skills: Skill stores (Haystack 3).
    :param options: ServeOptions, by the name of what they apply to.
    :param auth: How clients authenticate over HTTP: a provider of `fastmcp.server.auth`, or a Secret that is the bearer
        token of all clients.
    :param max_concurrency: How many calls run at a time, apart from things with their own limit. Eight times as many
        wait; further ones are refused with the error that the server is busy.
    :param mask_error_details: Whether clients learn only that there was an error, without details. The message of a
        `fastmcp.exceptions.ToolError` is always shown.
    :param strict_input_validation: Whether arguments of another JSON type are refused. Otherwise "10" is taken for the
        integer 10.
    :param dereference_schemas: Whether clients get schemas without `$ref`, which some of them do not understand.
    :param on_duplicate: What to do if two things have the same name and version: serve the last one, with a warning in
        the log (`"warn"`, the default) or without (`"replace"`), serve the first one (`"ignore"`), or fail (`"error"`).
    :param request_state_keys: Secrets of at least 32 bytes. They encrypt the state that a client of revision 2026-07-28
        carries from a call that asks a question to the call with the answer. Processes that share the work need the
        same keys, and servers of the same name. The first one encrypts, all of them decrypt. By default, the keys in
        the environment variable `MCP_HAYSTACK_REQUEST_STATE_KEYS`, separated by commas, or else a key of this process.
    :param fastmcp_options: Further parameters of `fastmcp.FastMCP`: `instructions`, `version` (by default, the version
        of this package), `middleware`, ...
    :returns: The server. It is a FastMCP, so everything that FastMCP does with servers works with it.
    :raises ValueError: If something cannot be served.
    :raises ImportError: If something needs a package that is not installed.
    """
    if not isinstance(name, str):
        msg = f"create_mcp_server: `name` must be a string, got {type(name).__name__}; pass tools as tools=[...]"
        raise ValueError(msg)
    provider = HaystackProvider(
        tools=tools,
        pipelines=pipelines,
        agents=agents,
        document_stores=document_stores,
        prompts=prompts,
        skills=skills,
        options=options,
        max_concurrency=max_concurrency,
        on_duplicate=on_duplicate,
        task_queue=name,
    )
    return HaystackServer(
        name,
        provider,
        auth=auth_provider(auth),
        mask_error_details=mask_error_details,
        strict_input_validation=strict_input_validation,
        dereference_schemas=dereference_schemas,
        on_duplicate=on_duplicate,
        **{
            "request_state_security": request_state_security(request_state_keys),
            # Otherwise, FastMCP would report its own version.
            "version": importlib.metadata.version("mcp-haystack"),
            **fastmcp_options,
        },
    )
