# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Sources, which list what is served, and the options of what is served (`ServeOptions`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import field, fields, replace
from typing import Annotated, Any, Literal

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

from haystack_integrations.tools.mcp.concurrency import call_if_there
from haystack_integrations.tools.mcp.parameters import explains_options, short_repr
from haystack_integrations.tools.mcp.serving.changes import Listing

# The characters and the length that the protocol and the models of the larger providers allow.
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
_MAX_SHOWN_LENGTH = 100


def check_name(parameter: str, name: object) -> None:
    """
    Check the name of a tool, or of an argument.

    :param parameter: The parameter with the name, for the message.
    :param name: The name.
    :raises ValueError: If clients or their models would not accept it.
    """
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        shown = repr(name)[:_MAX_SHOWN_LENGTH]
        msg = (
            f"A name in {parameter} must be 1 to 64 characters from A-Z, a-z, 0-9, '_', '-' and '.', not {shown}. "
            "Clients and their models would not accept it"
        )
        raise ValueError(msg)


def check_known(option: str, names: Iterable[object], known: Iterable[str], what: str) -> None:
    """
    Check that an option has only known names.

    :param option: The option, for the message.
    :param names: The names in the option.
    :param known: The known names.
    :param what: What these are, for the message.
    :raises ValueError: If a name is unknown; the message lists the known ones.
    """
    known = list(known)
    unknown = [repr(each) for each in names if each not in known]
    if unknown:
        msg = f"`{option}` names {', '.join(unknown)}, which is not among {what}: {', '.join(known) or 'none'}."
        raise ValueError(msg)


def check_methods(parameter: str, thing: object, kind: str, methods: Sequence[str]) -> None:
    """
    Check that an object has the required methods.

    :param parameter: The parameter, for the message.
    :param thing: The object.
    :param kind: What it should be, for the message.
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
    How one thing is described to clients, and how it is run. Every option has a default.

    :param name: The name for clients; by default, the name of the tool, pipeline or agent.
    :param title: A name for people.
    :param description: What it does, for the model.
    :param tags: Tags, with which things are enabled and disabled together: `server.disable(tags={"admin"})`.
    :param icons: Icons, as `mcp.types.Icon`, dictionaries or URLs.
    :param meta: Metadata for clients, sent as `_meta`.
    :param annotations: Hints for clients: `ToolAnnotations`, or a dictionary with `title`, `readOnlyHint`,
        `destructiveHint`, `idempotentHint` and `openWorldHint`.
    :param version: The version. Clients see the highest version of each name.
    :param timeout: How long a call may take, in seconds, including the wait for a free place; unlimited by default. The
        thread of a synchronous tool cannot be stopped: it goes on after the timeout, and keeps its place until it ends.
    :param output_schema: JSON schema of the structured result, of the type `object`. By default, it is derived from
        what is served, if possible. `False` for none.
    :param strict_validation: Whether arguments of another JSON type are refused. Otherwise "10" is taken for the
        integer 10. By default, the server decides.
    :param inputs: The inputs of a pipeline or agent that clients set: a list of names, or a dictionary from a name for
        clients to an input (`{"query": "retriever.query"}`) or to several of them. By default, the mandatory inputs of
        a pipeline, or the task and the prompt variables of an agent.
    :param outputs: The outputs that are returned, in the same form (`{"answer": "llm.replies"}`). By default, the
        outputs of a pipeline that no other component takes, or the `answer` of an agent.
    :param bound: Arguments that clients neither see nor set, by name: values, or FastMCP's `Depends(function)`, whose
        function is called for each call.
    :param completions: Values that clients offer for the arguments of a prompt: lists, or functions (also async) that
        get the text typed so far and a dictionary of the other arguments, and return a list.
    :param include_embeddings: Whether Documents are returned with their embeddings.
    :param include_blobs: Whether Documents and ByteStreams are returned with their binary data.
    :param max_documents: The most Documents of a list that are returned. If some are left out, the result says so.
    :param max_characters: The most characters of each Document, message or other text that are returned. If a text is
        cut, the result says so.
    :param scopes: OAuth scopes, all of which a client's token must have. Other clients do not see it. Over stdio, there
        are no tokens, and everything can be used.
    :param task: Whether clients may run it as a background task; `"required"` if they must. It needs the extra
        `[tasks]`.
    :param forward: Whether the resources and prompts of another MCP server are served with its tools.
    :param max_concurrency: How many calls of it run at a time. By default, it shares the limit of the server.
    :raises ValueError: If a value is invalid.
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
        Return the arguments that FastMCP's tools, resources and prompts have in common.

        :returns: Keyword arguments, without unset ones.
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
        Combine these options with others for the same thing.

        :param other: Options that take precedence, unless they have their default.
        :returns: The combined options.
        """
        if other is None:
            return self
        defaults = ServeOptions()
        overrides = {each.name: getattr(other, each.name) for each in fields(ServeOptions)}
        return replace(self, **{name: value for name, value in overrides.items() if value != getattr(defaults, name)})


def check_options(value: Any) -> ServeOptions:
    """
    Check the options of one served thing.

    :param value: Options, a dictionary of them, or None for the defaults.
    :returns: The options.
    :raises ValueError: If it is anything else, or the dictionary has an unknown option.
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
    Options by the name of what they are for. They record the names that are looked up.
    """

    def __init__(self, options: Any) -> None:
        """
        Initialize the NamedOptions.

        :param options: ServeOptions, or dictionaries of them, by the name of what they are for; None for no options.
        :raises ValueError: If it is anything else.
        """
        if not isinstance(options, Mapping | None):
            msg = f"`options` must be a dictionary of names to ServeOptions, got {type(options).__name__}"
            raise ValueError(msg)
        super().__init__({name: check_options(value) for name, value in (options or {}).items()})
        self._looked_up: set[str] = set()

    def of(self, name: str) -> ServeOptions:
        """
        Look up the options of something that is served.

        :param name: Its name.
        :returns: The options, or the defaults.
        """
        self._looked_up.add(name)
        return self.get(name) or ServeOptions()

    def each(self, parameter: str, things: Any, kind: str) -> Iterator[tuple[str, Any, ServeOptions]]:
        """
        Iterate over a dictionary of things to serve.

        :param parameter: The parameter, for messages.
        :param things: The things by their names.
        :param kind: What they should be, for messages.
        :returns: Each name, with the thing and its options.
        :raises ValueError: If it is not a dictionary.
        """
        if not isinstance(things, Mapping):
            msg = f"`{parameter}` must be a dictionary of names to {kind}, got {type(things).__name__}"
            raise ValueError(msg)
        for name, thing in things.items():
            yield name, thing, self.of(name)

    @property
    def unused_message(self) -> str | None:
        """
        The message about options for something that is not served; None if all are used.
        """
        unused = sorted(set(self) - self._looked_up)
        if not unused:
            return None
        return (
            f"`options` name {', '.join(map(repr, unused))}, which is not served. "
            f"Available: {', '.join(sorted(self._looked_up)) or 'nothing'}."
        )


class Source:
    """
    Lists the tools, resources and prompts of one thing to serve, such as a pipeline, an agent or a toolset.

    Listings are requested for each call, so a source builds them once, and again only after a change.
    """

    # Whether it may list other things later, such as the toolset of another server that is down at first.
    may_change: bool = False
    # The extensions of the protocol that it needs.
    extensions: Sequence[ServerExtension] = ()

    def __init__(
        self, tools: Sequence[Tool] = (), parts: Sequence[Any] = (), *, prompts: Sequence[Prompt] = ()
    ) -> None:
        """
        Initialize the Source.

        :param tools: All versions of its tools.
        :param parts: The objects to warm up when the server starts, and to close when it stops.
        :param prompts: Its prompts, if they never change.
        """
        self.tools = tools
        self.parts = parts
        self.prompts = prompts
        # Set by the provider. Call it in any thread when something was added, removed or changed.
        self.changed: Callable[[Listing], None] = lambda _listing: None
        # The names and versions of removed tools; None for all versions of a name.
        self.dropped: set[tuple[str, str | None]] = set()

    @property
    def known_tools(self) -> Sequence[Tool]:
        """
        The tools that are known without another request, except removed ones.
        """
        if not self.dropped:
            return self.tools
        return [tool for tool in self.tools if self.dropped.isdisjoint({(tool.name, None), (tool.name, tool.version)})]

    @property
    def uses_tasks(self) -> bool:
        """
        Whether clients may run any of its tools as a background task.
        """
        return any(tool.task_config.supports_tasks() for tool in self.known_tools)

    async def list_tools(self) -> Sequence[Tool]:
        """
        List all versions of the tools.
        """
        return self.known_tools

    async def list_resources(self) -> Sequence[Resource]:
        """
        List the resources.
        """
        return []

    async def find_resources(self, uri: str) -> Sequence[Resource]:
        """
        Find a resource by its URI, to read it.

        Override this where a resource can be found without listing them all.

        :param uri: The URI.
        :returns: All versions of the resource; empty if this source does not have it.
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
        Release the resources of `warm_up` when the server stops. It may be called without `warm_up`, and repeatedly.
        """
        for each in self.parts:
            await call_if_there(each, "close")
