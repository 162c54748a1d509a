# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves toolsets that may change, and the tools, resources and prompts of other MCP servers.

Progress, cancellation and errors of the other server are passed on to the client. So are questions of a server of
revision 2026-07-28, if the toolset has `MCPHandlers(elicitation=answer_later)`: clients of that revision get them as
the result of the call and continue it, at any worker; clients of earlier revisions are asked during the call.
"""

from __future__ import annotations

import itertools
import json
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar
from weakref import WeakKeyDictionary

from fastmcp import Context
from fastmcp.exceptions import PromptError, ResourceError, ToolError
from fastmcp.prompts.base import Message, Prompt, PromptArgument, PromptResult
from fastmcp.resources.base import Resource, ResourceContent, ResourceResult
from fastmcp.resources.template import ResourceTemplate
from fastmcp.tools.base import Tool
from haystack import logging
from haystack.dataclasses import StreamingChunk
from haystack.tools.tool import Tool as HaystackTool
from haystack.tools.toolset import Toolset
from mcp import UriTemplate, types
from mcp.shared.exceptions import MCPError as SDKError
from pydantic import AnyUrl, PrivateAttr, ValidationError

from haystack_integrations.tools.mcp.concurrency import call_if_there
from haystack_integrations.tools.mcp.connection.connection import MCPConnection
from haystack_integrations.tools.mcp.convert.resources import resource_contents
from haystack_integrations.tools.mcp.errors import (
    MCPCallPendingError,
    MCPConnectionError,
    MCPError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPTimeoutError,
)
from haystack_integrations.tools.mcp.handlers.calling import MCPProgress
from haystack_integrations.tools.mcp.mcp_tool import MCPTool
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from haystack_integrations.tools.mcp.protocol.changes import Unsubscribe
from haystack_integrations.tools.mcp.protocol.listed_tools import InvalidResultError
from haystack_integrations.tools.mcp.request_context import current_context
from haystack_integrations.tools.mcp.serving.calls import CallPool, ServedCall, ServedTool
from haystack_integrations.tools.mcp.serving.changes import Listing
from haystack_integrations.tools.mcp.serving.functions import chosen_parameters, needs_state
from haystack_integrations.tools.mcp.serving.sources import ServeOptions, Source, check_known

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# How often a server may ask during one call.
_MAX_QUESTIONS = 20

# How many URIs of links in results are kept for each connection; the oldest are dropped first.
_MAX_LINKS: Final = 10_000

# The URIs of links in results, with the callers who got them, by the connection to the other server.
_links: WeakKeyDictionary[MCPConnection, OrderedDict[tuple[Hashable, str], None]] = WeakKeyDictionary()


def serve_mcp_tool(tool: MCPTool, *, options: ServeOptions, pool: CallPool) -> ServedTool:
    """
    Make a tool of this server from a tool of another server.

    :param tool: The tool.
    :param options: Its options.
    :param pool: The pool for its calls.
    :returns: The tool.
    :raises ValueError: If clients cannot call it with these options.
    """
    required = () if tool._definition is None else tool._definition.input_schema.get("required", ())
    for name in (tool.inputs_from_state or {}).values():
        if name in required and name not in options.bound:
            raise needs_state(tool.name, name)
    if tool._valid_inputs:
        # With a misspelt name, clients could set the argument.
        check_known("bound", options.bound, tool._valid_inputs, f"the arguments of tool '{tool.name}'")

    async def body(arguments: dict[str, Any], call: ServedCall) -> Any:
        try:
            return await _call(tool, arguments, call)
        except MCPInvocationError as error:
            failure = _error_for_client(tool, error)
        raise failure

    definition = tool._connection._latest_definition(tool.remote_name)
    icons = (definition and definition.icons) or ()
    declared = ServeOptions(
        meta=_without_fastmcp_meta(tool.meta), title=tool.title or None, icons=icons, annotations=tool.annotations
    )
    schema = tool._schema
    if definition is not None and "properties" not in definition.input_schema:
        schema = {"additionalProperties": True, **schema}  # the tool may take any arguments
    # Structured results must be objects in FastMCP, and in all revisions before 2026-07-28.
    is_object = (tool.output_schema or {}).get("type") == "object"
    return ServedTool.create(
        name=tool.name,
        description=tool.description,
        parameters=chosen_parameters(tool.name, schema, options),
        output_schema=tool.output_schema if is_object else None,
        body=body,
        options=declared.overridden_by(options),
        pool=pool,
    )


def _without_fastmcp_meta(meta: dict[str, Any] | None) -> dict[str, Any]:
    # FastMCP writes its own metadata there, for example tags and versions.
    return {key: value for key, value in (meta or {}).items() if key not in ("fastmcp", "_fastmcp")}


async def _call(tool: MCPTool, arguments: dict[str, Any], call: ServedCall) -> Any:
    async def tell(report: MCPProgress) -> None:
        await call.progress(report.progress, report.total, report.message)

    async def forward(chunk: StreamingChunk) -> None:
        report = chunk.meta["mcp"]
        await call.progress(report["progress"], report["total"], report["message"])

    context = call.context
    pending, answers = _continued_call(tool, context)
    for asked in itertools.count():
        try:
            if pending is None:
                return _result(tool, await tool.invoke_async(streaming_callback=forward, **arguments))
            return _result(tool, (await tool.continue_call_async(pending, answers, on_progress=tell)).raw)
        except MCPCallPendingError as error:
            pending = error.pending_call
        except ValueError as error:
            if pending is None:
                raise
            # The error describes what is wrong with an answer, without quoting it.
            msg = f"An answer of the user cannot be used: {error}"
            raise ToolError(msg) from None
        if not pending.questions or context is None:
            msg = f"The server behind tool '{call.tool_name}' wants something that cannot be forwarded."
            raise ToolError(msg)
        if call.asks_by_result:
            state = json.dumps(pending.to_dict())
            return types.InputRequiredResult(input_requests=pending.requests, request_state=state)
        if asked == _MAX_QUESTIONS:
            msg = f"The server behind the tool asked more than {_MAX_QUESTIONS} times."
            raise ToolError(msg)
        answers = {question.key: await _ask(call, context, question) for question in pending.questions}


def _result(tool: MCPTool, result: Any) -> Any:
    """Return the result as the server sent it, or the dictionary of a tool with outputs for the State of an Agent."""
    if isinstance(result, str):
        result = types.CallToolResult.model_validate_json(result)
    if not isinstance(result, types.CallToolResult):
        return result
    for block in result.content:
        if isinstance(block, types.ResourceLink):
            _note_link(tool._connection, block.uri)
    changed: dict[str, Any] = {"meta": _forwarded_meta(result.meta)}
    if not isinstance(result.structured_content, dict):
        if not result.content and result.structured_content is not None:
            text = json.dumps(result.structured_content, ensure_ascii=False)
            changed["content"] = [types.TextContent(type="text", text=text)]
        changed["structured_content"] = None
    return result.model_copy(update=changed)


def _note_link(connection: MCPConnection, uri: str) -> None:
    known, link = _links.setdefault(connection, OrderedDict()), (_caller(), uri)
    known.pop(link, None)  # it moves to the end of the order
    known[link] = None
    while len(known) > _MAX_LINKS:
        known.popitem(last=False)


def _caller() -> Hashable:
    """Return a key that tells callers apart who must not see each other's data; None without a context."""
    context = current_context.get()
    if context is None:
        return None
    # Tokens are hashed, so that they are not kept.
    headers = frozenset((name, hash(value)) for name, value in (context.headers or {}).items())
    return context.user, None if context.token is None else hash(context.token), headers


def _forwarded_meta(meta: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return `_meta` without the protocol's entries about the connection itself, which do not apply to the client's."""
    forwarded = {key: value for key, value in (meta or {}).items() if not key.startswith("io.modelcontextprotocol/")}
    return forwarded or None


def _continued_call(tool: MCPTool, context: Context | None) -> tuple[MCPPendingCall | None, dict[str, Any]]:
    """Return the pending call that a client continues, and the client's answers."""
    if context is None or not context.request_state or context.input_responses is None:
        return None, {}
    # FastMCP seals the state, so it comes from this server, but it may be from a call of another tool.
    try:
        pending = MCPPendingCall.from_dict(json.loads(context.request_state))
    except ValueError:
        pending = None
    if pending is None or pending.tool_name != tool.remote_name:
        msg = "The request state belongs to another call."
        raise ToolError(msg)
    return pending, {key: _answer(response) for key, response in context.input_responses.items()}


def _answer(response: Any) -> Any:
    """Convert an answer into what `continue_call` takes."""
    if not isinstance(response, types.ElicitResult):
        msg = "Only answers of the user can be forwarded."
        raise ToolError(msg)
    # Without content, the form is accepted with its defaults.
    return True if response.action == "accept" and response.content is None else response


async def _ask(call: ServedCall, context: Context, question: Any) -> Any:
    related = context.request_id
    try:
        if question.url is not None:
            asking = context.session.elicit_url(question.message, question.url, question.key, related)
        else:
            asking = context.session.elicit_form(question.message, question.schema or {}, related)
        response = await call.answer_of_user(asking)
    except TimeoutError:
        msg = "The tool needs an answer from the user, who did not reply in time."
        raise ToolError(msg) from None
    except SDKError as error:
        msg = f"The tool needs an answer from the user, and the client cannot ask: {error.error.message}"
        raise ToolError(msg) from None
    return _answer(response)


def _error_for_client(tool: MCPTool, error: MCPInvocationError) -> Exception:
    """
    Turn another server's error into one for the client that does not reveal where that server is.
    """
    is_invalid = isinstance(error.__cause__, (ValidationError, InvalidResultError))
    may_have_run, problem = isinstance(error, MCPOutcomeUnknownError) or is_invalid, ""
    if isinstance(error, MCPTimeoutError):
        problem = "did not answer in time"
    elif may_have_run:
        problem = "sent no usable answer"
    elif isinstance(error.__cause__, MCPConnectionError):
        problem = "cannot be reached"
    elif error._outcome == "did_not_run":  # e.g. HTTP 401 or 429
        problem = "refused the call"
    if problem:
        logger.warning("{error}", error=str(error))
        outcome = "may have run" if may_have_run else "did not run"
        return ToolError(f"The server behind tool '{tool.name}' {problem}. The tool {outcome}.")
    if type(error) is MCPInvocationError and (error.__cause__ is None or error.code is not None):
        return ToolError(error.message.removeprefix(f"Failed to invoke Tool `{tool.name}`: "))
    return error.__cause__ if isinstance(error.__cause__, Exception) else error


# Tools that change


class _ServedEntry(NamedTuple):
    """
    A served tool, with the definition that it was made from. It keeps the tool alive, so that its id is not reused.
    """

    tool: HaystackTool
    definition: Any
    served: Tool | None


class LiveTools(Source):
    """
    Serves the current tools of a toolset, or one tool with its current definition.

    A tool of another server gets its definition when it is warmed up.
    """

    # The lists of the other server whose changes are announced to clients.
    _watched_lists: tuple[Listing, ...] = ("tools",)

    def __init__(
        self, tools: HaystackTool | Toolset, serve: Callable[[HaystackTool], Tool], *, may_be_tasks: bool
    ) -> None:
        """
        Initialize the LiveTools.

        :param tools: The toolset or tool.
        :param serve: Makes a tool of FastMCP from a tool of Haystack.
        :param may_be_tasks: Whether clients may run one of them as a background task.
        """
        super().__init__()
        self._tools = tools
        self._serve = serve
        self._may_be_tasks = may_be_tasks
        self._is_stale = True
        self._unsubscribe: Unsubscribe | None = None
        self._served: dict[int, _ServedEntry] = {}
        self.are_of_server: bool = isinstance(tools, MCPTool | MCPToolset)
        self.may_change = isinstance(tools, MCPTool) or (isinstance(tools, Toolset) and type(tools) is not Toolset)
        if isinstance(tools, HaystackTool) and not self.may_change:
            self._set_served({id(tools): _ServedEntry(tools, _definition(tools), serve(tools))})
        elif not self.may_change:
            self._update()

    @property
    def uses_tasks(self) -> bool:
        """
        Whether clients may run one of them as a background task.
        """
        return self._may_be_tasks or super().uses_tasks

    async def list_tools(self) -> Sequence[Tool]:
        """
        List the current tools; those of the last listing if that fails.
        """
        try:
            if self._is_stale:
                await self.warm_up()
            else:
                self._update()
        # Any error is caught, because a server that is down must not hide the other tools from clients.
        except Exception as error:
            logger.warning("Tools cannot be listed again, so clients see the previous ones: {error}", error=repr(error))
        return self.known_tools

    def _update(self) -> None:
        current = [self._tools] if isinstance(self._tools, HaystackTool) else list(self._tools)
        previous = self._served
        is_same = list(previous) == [id(tool) for tool in current]
        if is_same and all(entry.definition == _definition(entry.tool) for entry in previous.values()):
            return  # the usual case, as this runs at each call
        self._set_served({id(tool): self._served_entry(tool, previous.get(id(tool))) for tool in current})
        if previous and previous != self._served:
            self.changed("tools")

    def _set_served(self, served: dict[int, _ServedEntry]) -> None:
        self._served = served
        self.tools = [entry.served for entry in served.values() if entry.served is not None]

    def _served_entry(self, tool: HaystackTool, previous: _ServedEntry | None) -> _ServedEntry:
        definition = _definition(tool)
        if previous is not None and previous.definition == definition:
            return previous
        try:
            return _ServedEntry(tool, definition, self._serve(tool))
        except ValueError as error:
            # The other tools of the toolset are useful without it.
            logger.warning("Tool '{tool}' is not served: {error}", tool=tool.name, error=str(error))
            return _ServedEntry(tool, definition, None)

    async def warm_up(self) -> None:
        """
        Warm up the toolset or tool, and watch it for changes. Raises an error if its tools cannot be listed.
        """
        self._watch()
        # Set before the warm-up, because a change during it sets this again, and is reported only once.
        self._is_stale = False
        try:
            await call_if_there(self._tools, "warm_up")
        except BaseException:
            self._is_stale = True
            raise
        self._update()

    def _watch(self) -> None:
        """
        Announce changes of the other server, until `close`.
        """
        if self._unsubscribe is None and isinstance(self._tools, MCPToolset):
            self._unsubscribe = self._tools.on_list_change(self._note_change, self._watched_lists)

    def _note_change(self, listing: Any) -> None:
        if listing == "tools":
            self._is_stale = True
        self.changed(listing)

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
    # Cheap to compare, because Python checks for identical objects first.
    return tool.name, tool.description, tool.parameters


# Reading

# Template expressions that FastMCP does not support.
_UNSUPPORTED_OPERATOR = re.compile(r"\{[+#./;&]")
# The URI with which FastMCP makes a resource, before it is replaced by the real one.
_PLACEHOLDER_URI = "resource://stand-in"


class _RemoteTemplate(ResourceTemplate):
    _source: ServedServer = PrivateAttr()
    _parsed: UriTemplate | None = PrivateAttr(default=None)

    def matches(self, uri: str) -> dict[str, Any] | None:
        # FastMCP 4.2 takes an operator for a part of the name, and refuses absolute paths as its value.
        known = None if _UNSUPPORTED_OPERATOR.search(self.uri_template) else super().matches(uri)
        if known is not None or self._parsed is None:
            return known
        found = self._parsed.match(uri)
        if found is None:
            return None
        # `{+path}` is meant for absolute paths. FastMCP still refuses paths that lead out of the root.
        texts = {name: each if isinstance(each, str) else "/".join(each) for name, each in found.items()}
        return {name: text.lstrip("/") for name, text in texts.items()}

    async def create_resource(self, uri: str, params: dict[str, Any]) -> Resource:  # noqa: ARG002
        return self._source.resource(uri, name=self.name, mime_type=self.mime_type)


class RemotePrompt(Prompt):
    """
    A prompt of another server.
    """

    _toolset: MCPToolset = PrivateAttr()
    _remote_name: str = PrivateAttr()

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        """
        Get the prompt from the other server.
        """
        try:
            result = await self._toolset.get_prompt_async(self._remote_name, arguments)
        except MCPError as error:
            msg = f"The server behind prompt '{self.name}' did not return it."
            raise PromptError(msg) from error
        messages = [Message(each.content, role=each.role) for each in result.messages]
        return PromptResult(messages, description=result.description, meta=_forwarded_meta(result.meta))

    async def complete(self, argument: str, value: str, known: Mapping[str, str]) -> Sequence[str]:
        """
        Complete an argument like `ServedPrompt.complete`. A server without completions offers no values.
        """
        if "completions" not in (self._toolset.capabilities or {}):
            return []
        reference, typed = types.PromptReference(name=self._remote_name), {"name": argument, "value": value}
        try:
            found = await self._toolset.connection.complete_async(reference, typed, dict(known))
        except MCPError as error:
            msg = f"The server behind prompt '{self.name}' did not complete '{argument}'."
            raise PromptError(msg) from error
        return found.values


class ServedServer(LiveTools):
    """
    Serves the current tools, resources and prompts of one other server.
    """

    _watched_lists = ("tools", "resources", "prompts")

    def __init__(self, toolset: MCPToolset, options: ServeOptions, **live_options: Any) -> None:
        """
        Initialize the ServedServer.

        :param toolset: The toolset of the server.
        :param options: The options of the toolset. `tags` and `scopes` also apply to resources and prompts.
        :param live_options: Parameters of LiveTools.
        """
        super().__init__(toolset, **live_options)
        self._toolset = toolset
        self._shared_properties = ServeOptions(tags=options.tags, scopes=options.scopes).of_component()

    async def list_resources(self) -> list[Resource]:
        """
        List the resources.

        :returns: The resources; none if the server cannot be reached.
        """
        listed = await self._list("resources", self._toolset.list_resources_async)
        return [self.resource(each.uri, **self._properties(each), **_resource_properties(each)) for each in listed]

    async def find_resources(self, uri: str) -> list[Resource]:
        """
        Find a resource by its URI: a listed one, or one to which the server has linked in a result.

        :param uri: The URI.
        :returns: The resource; none if the server has neither listed it nor linked to it.
        """
        listed = [each for each in await self.list_resources() if uri in (str(each.uri), _normalized(str(each.uri)))]
        if listed or (_caller(), uri) not in _links.get(self._toolset.connection, ()):
            return listed
        return [self.resource(uri, name=uri)]

    def resource(self, uri: str, **shown: Any) -> Resource:
        """
        Make a resource.

        :param uri: Its URI at the other server.
        :param shown: The properties that clients see.
        :returns: The resource, which is read at the other server.
        """

        async def read() -> ResourceResult:
            try:
                result = await self._toolset.read_resource_async(uri)
                values = resource_contents(result)
            except (MCPError, ValueError) as error:
                msg = f"The server behind resource '{uri}' did not return it."
                raise ResourceError(msg) from error
            contents = [
                ResourceContent(value if isinstance(value, str) else value.data, each.mime_type, each.meta)
                for each, value in zip(result.contents, values, strict=True)
            ]
            return ResourceResult(contents, meta=_forwarded_meta(result.meta))

        # FastMCP would rewrite the URI (blanks, umlauts, upper case), and refuse one that is not a URL, after which no
        # resource of the server would be listed.
        return Resource.from_function(read, _PLACEHOLDER_URI, **{**self._shared_properties, **shown}).model_copy(
            update={"uri": uri}
        )

    async def list_resource_templates(self) -> list[ResourceTemplate]:
        """
        List the templates of resources.

        :returns: The templates; none if the server cannot be reached.
        """
        listed = await self._list("resources", self._toolset.list_resource_templates_async)
        return [self._template(each) for each in listed]

    async def list_prompts(self) -> list[RemotePrompt]:
        """
        List the prompts. They have the same prefix as the tools of the toolset.

        :returns: The prompts; none if the server cannot be reached.
        """
        return [self._prompt(each) for each in await self._list("prompts", self._toolset.list_prompts_async)]

    async def _list(self, capability: str, listing: Callable[[], Awaitable[list[T]]]) -> list[T]:
        self._watch()  # needed for a toolset that was added while the server runs
        if capability not in (self._toolset.capabilities or {}):
            return []
        try:
            return await listing()
        except MCPError as error:
            logger.warning("Another server's resources and prompts cannot be served: {error}", error=str(error))
            return []

    def _template(self, listed: types.ResourceTemplate) -> ResourceTemplate:
        template = _RemoteTemplate(
            uri_template=listed.uri_template, parameters={}, **self._properties(listed), **_resource_properties(listed)
        )
        template._source = self
        try:
            template._parsed = UriTemplate.parse(listed.uri_template)
        except ValueError:
            logger.debug("The URI template {template} cannot be parsed", template=repr(listed.uri_template))
        return template

    def _prompt(self, listed: types.Prompt) -> RemotePrompt:
        arguments = [
            PromptArgument(name=each.name, description=each.description, required=bool(each.required))
            for each in listed.arguments or []
        ]
        # The prefix, which its tools also have, allows two servers to have a prompt of the same name.
        prefix = self._toolset.tool_name_prefix
        name = f"{prefix}_{listed.name}" if prefix else listed.name
        prompt = RemotePrompt(**{**self._properties(listed), "name": name}, arguments=arguments)
        prompt._toolset, prompt._remote_name = self._toolset, listed.name
        return prompt

    def _properties(self, listed: types.Resource | types.ResourceTemplate | types.Prompt) -> dict[str, Any]:
        listed_properties = {"title": listed.title, "description": listed.description, "icons": listed.icons}
        return {
            **self._shared_properties,
            "name": listed.name,
            "meta": _without_fastmcp_meta(listed.meta) or None,
            **listed_properties,
        }


def _normalized(uri: str) -> str:
    # Older clients request a URI in the form to which pydantic has normalized it.
    try:
        return str(AnyUrl(uri))
    except ValueError:
        return uri


def _resource_properties(listed: types.Resource | types.ResourceTemplate) -> dict[str, Any]:
    return {"mime_type": listed.mime_type or "text/plain", "annotations": listed.annotations}
