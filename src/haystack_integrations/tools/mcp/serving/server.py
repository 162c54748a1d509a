# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import importlib.metadata
from collections.abc import Callable, Iterator, Sequence
from functools import wraps
from typing import Any, Literal, Self, get_args

from fastmcp import FastMCP, settings
from fastmcp.server.auth import AuthProvider
from fastmcp.server.http import StarletteWithLifespan
from fastmcp.server.providers.aggregate import AggregateProvider
from fastmcp.tools.base import Tool
from fastmcp.utilities.versions import VersionSpec, version_sort_key
from haystack.tools.tool import Tool as HaystackTool
from haystack.tools.toolset import Toolset
from haystack.utils import Secret

from haystack_integrations.tools.mcp.serving.approvals import request_state_security
from haystack_integrations.tools.mcp.serving.changes import announcer_of
from haystack_integrations.tools.mcp.serving.header_checks import look_up_called_tools
from haystack_integrations.tools.mcp.serving.options import ServeOptions
from haystack_integrations.tools.mcp.serving.pool import DEFAULT_MAX_CONCURRENCY
from haystack_integrations.tools.mcp.serving.provider import DuplicatePolicy, HaystackProvider, said_of_duplicate
from haystack_integrations.tools.mcp.serving.safety import auth_provider

ComponentKind = Literal["tool", "resource", "template", "prompt"]


class _InTurn(AggregateProvider):
    """
    Looks up a tool in the server's own functions and in what is Haystack's, one after the other.

    FastMCP asks its providers at once, in a task each, which takes longer than the answers of these two.
    """

    async def _get_tool(self, name: str, version: VersionSpec | None = None) -> Tool | None:
        if len(self.providers) > 2:  # noqa: PLR2004 - others may be slow
            return await super()._get_tool(name, version)
        try:
            found = [await provider.get_tool(name, version) for provider in self.providers]
        # Of any kind: FastMCP decides whether it is one of the server.
        except Exception:
            return await super()._get_tool(name, version)
        return max((tool for tool in found if tool is not None), key=version_sort_key, default=None)


class HaystackServer(FastMCP[Any], _InTurn):
    """
    A FastMCP that serves what was built in Haystack, as `create_mcp_server` makes it.

    It also tells clients what changed, and takes keys as FastMCP 3 wrote them: `disable(keys={"tool:x"})` disables all
    versions of the tool `x`, where FastMCP 4 would disable nothing.
    """

    def __init__(self, name: str, haystack: HaystackProvider, **options: Any) -> None:
        """
        Initialize the HaystackServer.

        :param name: The name of the server.
        :param haystack: What it serves.
        :param options: Parameters of FastMCP.
        """
        super().__init__(name, **options)
        self.haystack = haystack
        # What is Haystack's is removed in the same way.
        local = self.local_provider
        local.add_tool = self._with_policy(local.add_tool, local.remove_tool)  # type: ignore[method-assign]
        local.remove_tool = _or_else(local.remove_tool, haystack.remove_tool)  # type: ignore[method-assign]
        announcer_of(self)
        look_up_called_tools(self)
        self.add_provider(haystack)
        if haystack.completes:
            self.add_completion_handler(haystack.complete)

    def add_tool(self, tool: Any, options: ServeOptions | None = None) -> Any:
        """
        Serve one more tool.

        :param tool: A tool or toolset of Haystack, which is served with the options; or a function, or a tool of
            FastMCP, which FastMCP serves.
        :param options: What is said of a tool or toolset of Haystack.
        :returns: What was added.
        :raises ValueError: If it cannot be served, or there are options for a tool of FastMCP.
        """
        if isinstance(tool, HaystackTool | Toolset):
            self.haystack.add_tool(tool, options)
            return tool
        if options is not None:
            msg = "`options` are for tools and toolsets of Haystack; FastMCP has the decorator `server.tool`"
            raise ValueError(msg)
        return super().add_tool(tool)

    def _with_policy(self, add: Callable[..., Tool], remove: Callable[..., None]) -> Callable[..., Tool]:
        """Have `on_duplicate` hold between what FastMCP serves, by its decorator too, and what is Haystack's."""

        @wraps(add)
        def add_tool(tool: Any) -> Tool:
            added = add(tool)
            other = self.haystack.known_tool(added.key)
            if other is None:
                return added
            if self.haystack.on_duplicate in ("warn", "replace"):
                self.haystack.give_way(other)
                return added
            remove(added.name, added.version)
            if self.haystack.on_duplicate == "error":
                raise ValueError(said_of_duplicate(added))
            return other

        return add_tool

    def http_app(self, *args: Any, **options: Any) -> StarletteWithLifespan:
        """
        Make an ASGI application as FastMCP does, which checks Host and Origin.

        `haystack_integrations.tools.mcp.serving.http_app` makes one that also lets calls finish when the process stops.

        :param args: As for FastMCP.
        :param options: As for FastMCP. By default `host_origin_protection` and `allowed_origins` are what FastMCP's
            settings say, or else `"auto"` and none.
        :returns: The application.
        """
        options["host_origin_protection"] = _protection(options.get("host_origin_protection"))
        if options.get("allowed_origins") is None:
            # Without a list, FastMCP does not look at the Origin of requests to an address that is no loopback one.
            options["allowed_origins"] = list(settings.http_allowed_origins or ())
        return super().http_app(*args, **options)

    async def run_http_async(self, *args: Any, **options: Any) -> None:
        """
        Serve over HTTP as FastMCP does, for `run` and `fastmcp run`, and check Host and Origin.

        :param args: As for FastMCP.
        :param options: As for `http_app`, and as for FastMCP.
        """
        options["host_origin_protection"] = _protection(options.get("host_origin_protection"))
        await super().run_http_async(*args, **options)

    def enable(
        self,
        *,
        names: set[str] | None = None,
        keys: set[str] | None = None,
        version: VersionSpec | None = None,
        tags: set[str] | None = None,
        components: set[ComponentKind] | None = None,
        only: bool = False,
    ) -> Self:
        """
        Let clients see and use what meets all criteria.

        :param names: Names, or URIs of resources.
        :param keys: Keys: `tool:x@2` for one version, `tool:x@` for a tool without version, `tool:x` for all versions.
        :param version: Versions.
        :param tags: Tags; one of them suffices.
        :param components: Kinds of things.
        :param only: Whether everything else is disabled.
        :returns: The server.
        :raises ValueError: If one of them is a text instead of a set.
        """
        _refuse_texts(names=names, keys=keys, tags=tags, components=components)
        for criteria in _split(names, keys, components):
            super().enable(**criteria, version=version, tags=tags, only=only)
            only = False
        return self

    def disable(
        self,
        *,
        names: set[str] | None = None,
        keys: set[str] | None = None,
        version: VersionSpec | None = None,
        tags: set[str] | None = None,
        components: set[ComponentKind] | None = None,
    ) -> Self:
        """
        Hide from clients what meets all criteria, and refuse calls of it.

        :param names: As for `enable`.
        :param keys: As for `enable`.
        :param version: As for `enable`.
        :param tags: As for `enable`.
        :param components: As for `enable`.
        :returns: The server.
        :raises ValueError: As for `enable`.
        """
        _refuse_texts(names=names, keys=keys, tags=tags, components=components)
        for criteria in _split(names, keys, components):
            super().disable(**criteria, version=version, tags=tags)
        return self


def _protection(chosen: bool | Literal["auto"] | None) -> bool | Literal["auto"]:
    if chosen is not None:
        return chosen
    # FastMCP's own default is to check nothing.
    setting = "http_host_origin_protection"
    return settings.http_host_origin_protection if setting in settings.model_fields_set else "auto"


def _or_else(first: Callable[..., None], second: Callable[..., None]) -> Callable[..., None]:
    @wraps(first)
    def function(*args: Any, **kwargs: Any) -> None:
        try:
            first(*args, **kwargs)
        except KeyError:
            second(*args, **kwargs)

    return function


def _refuse_texts(**criteria: Any) -> None:
    # Each name that is in a text would meet it.
    for name, value in criteria.items():
        if isinstance(value, str):
            msg = f"`{name}` must be a set, like {{{value!r}}}, not a text"
            raise ValueError(msg)


def _split(
    names: set[str] | None, keys: set[str] | None, components: set[ComponentKind] | None
) -> Iterator[dict[str, Any]]:
    """Write keys without a version as names of one kind; FastMCP takes criteria that are met together only."""
    short = {key for key in keys or () if "@" not in key}
    if not short:
        yield {"names": names, "keys": keys, "components": components}
        return
    if keys != short:
        yield {"names": names, "keys": (keys or set()) - short, "components": components}
    by_kind: dict[str, set[str]] = {}
    for key in short:
        kind, _, name = key.partition(":")
        if kind not in get_args(ComponentKind) or not name:
            msg = f"{key!r} is no key: it must be {', '.join(f'{each}:...' for each in get_args(ComponentKind))}"
            raise ValueError(msg)
        by_kind.setdefault(kind, set()).add(name)
    for kind, of_kind in by_kind.items():
        if components is None or kind in components:
            yield {"names": of_kind & names if names is not None else of_kind, "keys": None, "components": {kind}}


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
    on_duplicate: DuplicatePolicy | None = None,
    on_duplicate_tools: DuplicatePolicy | None = None,
    request_state_keys: Sequence[str | Secret] | None = None,
    **fastmcp_options: Any,
) -> HaystackServer:
    """
    Create an MCP server that serves what was built in Haystack.

    :param name: The name of the server, and of its queue of background tasks: servers that share a Redis and serve
        different things need different names.
    :param tools: Tools, Toolsets and functions, as a list; each alone, or with options for this one as a pair:
        `(tool, ServeOptions(...))`.
    :param pipelines: Pipelines, by the names that clients see.
    :param agents: Agents, by the names that clients see.
    :param document_stores: Document stores, by the names that clients see in URIs.
    :param prompts: Prompt builders, by the names that clients see.
    :param skills: Skill stores (Haystack 3).
    :param options: ServeOptions by the name of what they are for.
    :param auth: Who may use the server over HTTP: a provider of `fastmcp.server.auth`, or a Secret that is the bearer
        token of all clients.
    :param max_concurrency: How many calls run at a time, of all that has no limit of its own. Eight times as many wait;
        the next is refused with an error that says that the server is busy.
    :param mask_error_details: Whether clients get to see no more of an error than that there was one. The message of a
        `fastmcp.exceptions.ToolError` is always shown.
    :param strict_input_validation: Whether arguments of another JSON type are refused. Otherwise "10" is taken for the
        integer 10.
    :param dereference_schemas: Whether clients get schemas without `$ref`, which some of them do not understand.
    :param on_duplicate: What becomes of two things of one name and version: the last one is served, with a warning in
        the log (`"warn"`, the default) or without (`"replace"`), the first one (`"ignore"`), or it is an error
        (`"error"`).
    :param on_duplicate_tools: The name that `on_duplicate` had before FastMCP 4.
    :param request_state_keys: Secrets of at least 32 bytes. They encrypt what a client of revision 2026-07-28 carries
        from a call that asks something to the call that answers. Processes that share the work need the same ones, and
        servers of the same name. The first one encrypts, all of them decrypt. By default those of the environment
        variable `MCP_HAYSTACK_REQUEST_STATE_KEYS`, separated by commas, or else one that only this process has.
    :param fastmcp_options: Further parameters of `fastmcp.FastMCP`: `instructions`, `version` (by default that of this
        package), `middleware`, ...
    :returns: The server. It is a FastMCP, so everything that FastMCP does with servers works with it.
    :raises ValueError: If something cannot be served.
    :raises ImportError: If something needs a package that is not installed.
    """
    policy = on_duplicate or on_duplicate_tools or "warn"
    provider = HaystackProvider(
        tools=tools,
        pipelines=pipelines,
        agents=agents,
        document_stores=document_stores,
        prompts=prompts,
        skills=skills,
        options=options,
        max_concurrency=max_concurrency,
        on_duplicate=policy,
        task_queue=name,
    )
    return HaystackServer(
        name,
        provider,
        auth=auth_provider(auth),
        mask_error_details=mask_error_details,
        strict_input_validation=strict_input_validation,
        dereference_schemas=dereference_schemas,
        on_duplicate=policy,
        **{
            "request_state_security": request_state_security(request_state_keys),
            # Not FastMCP's, which it would be otherwise.
            "version": importlib.metadata.version("mcp-haystack"),
            **fastmcp_options,
        },
    )
