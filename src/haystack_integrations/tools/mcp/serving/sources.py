# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is served: the base of the sources of all kinds, and what users say of it (`ServeOptions`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, fields, replace
from typing import Annotated, Any, Literal

import anyio.to_thread
from fastmcp.prompts.base import Prompt
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.auth import require_scopes
from fastmcp.server.extensions import ServerExtension
from fastmcp.tools.base import Tool
from jsonschema import Draft202012Validator, SchemaError
from mcp.types import Icon, ToolAnnotations
from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, StrictBool
from pydantic.dataclasses import dataclass

from haystack_integrations.tools.mcp.parameters import explains_options, short_repr
from haystack_integrations.tools.mcp.serving.changes import Listing

# What the protocol allows, and the models of the larger providers.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_LONGEST_SHOWN = 100


def check_name(parameter: str, name: object) -> None:
    """
    Check the name of a tool, or of an argument.

    :param parameter: Where it stands, for the message.
    :param name: The name.
    :raises ValueError: If clients, or the models behind them, would not take it.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = repr(name)[:_LONGEST_SHOWN]
        msg = (
            f"A name in {parameter} must be 1 to 64 characters from A-Z, a-z, 0-9, '_', '-' and '.', not {shown}. "
            "Clients and their models would not take it"
        )
        raise ValueError(msg)


def check_known(option: str, names: Iterable[object], known: Iterable[str], what: str) -> None:
    """
    Check that an option names what there is.

    :param option: The option, for the message.
    :param names: What it names.
    :param known: What there is.
    :param what: What that is.
    :raises ValueError: If something is not there; the message says what is.
    """
    known = list(known)
    unknown = [repr(each) for each in names if each not in known]
    if unknown:
        msg = f"`{option}` names {', '.join(unknown)}, which is not among {what}: {', '.join(known) or 'none'}."
        raise ValueError(msg)


def check_methods(parameter: str, thing: object, kind: str, methods: Sequence[str]) -> None:
    """
    Check that something has the methods of what it should be.

    :param parameter: Where it stands, for the message.
    :param thing: What was given.
    :param kind: What it should be.
    :param methods: The methods.
    :raises ValueError: If it is a class, or a method is missing.
    """
    if isinstance(thing, type) or not all(callable(getattr(thing, each, None)) for each in methods):
        msg = f"`{parameter}` must be {kind}, with the methods {', '.join(methods)}, got {type(thing).__name__}"
        raise ValueError(msg)


def _icons(given: Any) -> list[Icon]:
    return [Icon(src=each) if isinstance(each, str) else Icon.model_validate(each) for each in given]


def _annotations(given: Any) -> Any:
    return ToolAnnotations.model_validate(dict(given)) if isinstance(given, Mapping) else given


def _version(given: str | int | None) -> str | None:
    return None if given is None else str(given)


def _inputs(given: Any) -> Any:
    for name in given if isinstance(given, Mapping) else ():
        check_name("`inputs`", name)
    return given


def _output_schema(given: Any) -> Any:
    if not isinstance(given, Mapping):
        return given
    try:
        Draft202012Validator.check_schema(given)
    except SchemaError as error:
        msg = f"`output_schema` is not a valid JSON schema: {error.message}"
        raise ValueError(msg) from None
    if given.get("type") != "object":
        msg = '`output_schema` must be a JSON schema of `"type": "object"`, because structured results are objects'
        raise ValueError(msg)
    return given


_Text = Annotated[str, Field(pattern=r"\S")]
_Limit = Annotated[int, Field(ge=1, strict=True)]


@short_repr
@explains_options
@dataclass(frozen=True, kw_only=True, config=ConfigDict(arbitrary_types_allowed=True))
class ServeOptions:
    """
    What is said of one served thing, and how it is run. Everything has a default.

    :param name: The name for clients; by default that of the tool, pipeline or agent.
    :param title: A name for people.
    :param description: What it does, for the model.
    :param tags: Tags, by which things are enabled and disabled together: `server.disable(tags={"admin"})`.
    :param icons: Icons, as `mcp.types.Icon`, dictionaries or URLs.
    :param meta: Metadata for clients, sent as `_meta`.
    :param annotations: Hints for clients: `ToolAnnotations`, or a dictionary with `title`, `readOnlyHint`,
        `destructiveHint`, `idempotentHint` and `openWorldHint`.
    :param version: The version; clients see the highest of those that have the same name.
    :param timeout: How long a call may take, in seconds, including what it waits for a free place; unlimited by
        default. The thread of a synchronous tool cannot be stopped: it goes on alone, and keeps its place until then.
    :param output_schema: JSON schema of the structured result, of the type `object`; by default what can be derived
        from the thing itself. `False` for none.
    :param strict_validation: Whether arguments of another JSON type are refused. Otherwise "10" is taken for the
        integer 10. By default, the server decides.
    :param inputs: Which inputs of a pipeline or agent clients set: a list of names, or a dictionary of a name for
        clients to an input (`{"query": "retriever.query"}`) or to several of them. By default the mandatory
        ones of a pipeline, and of an agent the task and the variables of its prompts.
    :param outputs: Which outputs are returned, in the same form (`{"answer": "llm.replies"}`). By default those
        of a pipeline that no other component takes, and the `answer` of an agent.
    :param bound: Arguments that clients neither see nor set, by name: values, or FastMCP's `Depends(function)`, which
        is called for each call.
    :param completions: Values that clients offer for the arguments of a prompt: lists, or functions, also async ones,
        that get what was typed so far and a dictionary of the other arguments, and return a list.
    :param include_embeddings: Whether Documents are returned with their embeddings.
    :param include_blobs: Whether Documents and ByteStreams are returned with their binary data.
    :param max_documents: How many Documents of a list are returned; the rest is left out, and the result says so.
    :param max_characters: How many characters of each Document, message or other text are returned, likewise.
    :param scopes: OAuth scopes that a client's token must have, all of them. Others do not see it. Over stdio there are
        no tokens, and everything can be used.
    :param task: Whether clients may run it as a background task; `"required"` if they must. It needs the extra
        `[tasks]`.
    :param forward: Whether the resources and prompts of another MCP server are served with its tools.
    :param max_concurrency: How many calls of it run at a time. By default it shares the limit of the server.
    :raises ValueError: If a value is not one of those.
    """

    name: _Text | None = None
    title: _Text | None = None
    description: _Text | None = None
    tags: Sequence[_Text] | AbstractSet[_Text] = frozenset()
    icons: Annotated[Sequence[Icon | Mapping[str, Any] | str], AfterValidator(_icons)] = ()
    meta: Mapping[str, Any] = field(default_factory=dict)
    annotations: Annotated[ToolAnnotations | Mapping[str, Any] | None, BeforeValidator(_annotations)] = None
    version: Annotated[str | int | None, AfterValidator(_version)] = None
    timeout: Annotated[float, Field(gt=0)] | None = None
    output_schema: Annotated[Mapping[str, Any] | Literal[False] | None, AfterValidator(_output_schema)] = None
    strict_validation: StrictBool | None = None
    inputs: Annotated[Mapping[str, _Text | Sequence[_Text]] | Sequence[_Text] | None, AfterValidator(_inputs)] = None
    outputs: Mapping[str, _Text] | Sequence[_Text] | None = None
    bound: Mapping[str, Any] = field(default_factory=dict, repr=False)
    completions: Mapping[str, Sequence[str] | Callable[[str, Mapping[str, str]], Any]] = field(default_factory=dict)
    include_embeddings: StrictBool = False
    include_blobs: StrictBool = False
    max_documents: _Limit | None = None
    max_characters: _Limit | None = None
    scopes: Sequence[_Text] = ()
    task: Literal[True, False, "required"] = False
    forward: StrictBool = True
    max_concurrency: _Limit | None = None

    def of_component(self) -> dict[str, Any]:
        """
        Return what FastMCP's tools, resources and prompts have in common.

        :returns: Keyword arguments, without those that the user did not set.
        """
        given = {
            "title": self.title,
            "description": self.description,
            "tags": set(self.tags),
            "icons": list(self.icons),
            "meta": dict(self.meta),
            "version": self.version,
            "auth": require_scopes(*self.scopes) if self.scopes else None,
        }
        return {name: value for name, value in given.items() if value}

    def overridden_by(self, other: ServeOptions | None) -> ServeOptions:
        """
        Combine two options for the same thing.

        :param other: Those that go first; what is left at its default there is taken from these.
        :returns: The options.
        """
        if other is None:
            return self
        defaults = ServeOptions()
        said = {each.name: getattr(other, each.name) for each in fields(ServeOptions)}
        return replace(self, **{name: value for name, value in said.items() if value != getattr(defaults, name)})


def check_options(value: Any) -> ServeOptions:
    """
    Check what was given as the options of one served thing.

    :param value: Options, a dictionary of them, or None for the defaults.
    :returns: The options.
    :raises ValueError: If it is none of these, or a dictionary with something else in it.
    """
    if value is None or isinstance(value, ServeOptions):
        return value or ServeOptions()
    if isinstance(value, Mapping):
        try:
            return ServeOptions(**value)
        except TypeError as error:
            raise ValueError(error) from None
    msg = f"`options` must be ServeOptions or a dictionary of them, got {type(value).__name__}"
    raise ValueError(msg)


class NamedOptions(dict[str, ServeOptions]):
    """
    Options by the name of what they are for, which remember the names that were asked for.
    """

    def __init__(self, options: Any) -> None:
        """
        Initialize the NamedOptions.

        :param options: ServeOptions, or dictionaries of them, by the name of what they are for; None for none.
        :raises ValueError: If it is something else.
        """
        if not isinstance(options, Mapping | None):
            msg = f"`options` must be a dictionary of names to ServeOptions, got {type(options).__name__}"
            raise ValueError(msg)
        super().__init__({name: check_options(value) for name, value in (options or {}).items()})
        self._asked_for: set[str] = set()

    def of(self, name: str) -> ServeOptions:
        """
        Return the options of something that is served.

        :param name: Its name.
        :returns: The options; the defaults if there are none.
        """
        self._asked_for.add(name)
        return self.get(name) or ServeOptions()

    def each(self, parameter: str, things: Any, kind: str) -> Iterator[tuple[str, Any, ServeOptions]]:
        """
        Go through what a user gave to be served by names.

        :param parameter: The parameter.
        :param things: What was given.
        :param kind: What it should contain, for messages.
        :returns: The name, the thing and its options.
        :raises ValueError: If it is no dictionary.
        """
        if not isinstance(things, Mapping):
            msg = f"`{parameter}` must be a dictionary of names to {kind}, got {type(things).__name__}"
            raise ValueError(msg)
        for name, thing in things.items():
            yield name, thing, self.of(name)

    @property
    def unused(self) -> str | None:
        """
        What is wrong with options for something that is not served; None if there are none.
        """
        unused = sorted(set(self) - self._asked_for)
        if not unused:
            return None
        return (
            f"`options` name {', '.join(map(repr, unused))}, which is not served. "
            f"There is {', '.join(sorted(self._asked_for)) or 'nothing'}."
        )


class Source:
    """
    What a provider serves: a pipeline, say, an agent, a toolset or a document store.

    It is asked for each listing and for each call, so it builds what it returns once, and again when that changed.
    """

    # Whether it may have something else later, as a toolset of another server has, which may be down at first.
    may_change: bool = False
    # The extensions of the protocol that are needed for what is served.
    extensions: Sequence[ServerExtension] = ()

    def __init__(
        self, tools: Sequence[Tool] = (), parts: Sequence[Any] = (), *, prompts: Sequence[Prompt] = ()
    ) -> None:
        """
        Initialize the Source.

        :param tools: Its tools, all versions of them.
        :param parts: What is warmed up when the server starts, and closed when it stops.
        :param prompts: Its prompts, if they never change.
        """
        self.tools = tools
        self.parts = parts
        self.prompts = prompts
        # Called in any thread when something was added, removed or changed. The provider sets it.
        self.changed: Callable[[Listing], None] = lambda _listing: None
        # The names and versions of the tools that are not served any more; all versions of the name for None.
        self.dropped: set[tuple[str, str | None]] = set()

    @property
    def known_tools(self) -> Sequence[Tool]:
        """
        The tools that are known without asking anybody, but for those that are not served any more.
        """
        if not self.dropped:
            return self.tools
        return [tool for tool in self.tools if self.dropped.isdisjoint({(tool.name, None), (tool.name, tool.version)})]

    @property
    def uses_tasks(self) -> bool:
        """
        Whether clients may run something of it as a background task.
        """
        return any(tool.task_config.supports_tasks() for tool in self.known_tools)

    async def list_tools(self) -> Sequence[Tool]:
        """
        List the tools, all versions of them.
        """
        return self.known_tools

    async def list_resources(self) -> Sequence[Resource]:
        """
        List the resources.
        """
        return []

    async def find_resources(self, uri: str) -> Sequence[Resource]:
        """
        Find a resource by its URI, to read it. Sources that need not list all of theirs for that say so here.

        :param uri: The URI.
        :returns: All versions of the resource; none if it is no resource of this source.
        """
        return [resource for resource in await self.list_resources() if str(resource.uri) == uri]

    async def list_resource_templates(self) -> Sequence[ResourceTemplate]:
        """
        List the templates of resources.
        """
        return []

    async def list_prompts(self) -> Sequence[Prompt]:
        """
        List the prompts.
        """
        return self.prompts

    async def warm_up(self) -> None:
        """
        Load models and open connections, when the server starts. It may be called again after `close`.
        """
        for each in self.parts:
            await call_if_there(each, "warm_up")

    async def close(self) -> None:
        """
        Release what `warm_up` opened, when the server stops. It may be called without `warm_up`, and more than once.
        """
        for each in self.parts:
            await call_if_there(each, "close")


async def call_if_there(thing: Any, method: str) -> None:
    """
    Call `warm_up` or `close`, which not all parts of Haystack have on all majors, without blocking the event loop.

    :param thing: The tool, toolset, pipeline, Agent or component.
    :param method: The name of the synchronous method; `..._async` is preferred.
    """
    asynchronous = getattr(thing, f"{method}_async", None)
    if asynchronous is not None:
        await asynchronous()
    elif callable(synchronous := getattr(thing, method, None)):
        await anyio.to_thread.run_sync(synchronous)
