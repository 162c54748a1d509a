# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The base class of all clients, custom ones included: tool calls and the other requests to a server.

They are about its resources, prompts, skills, completions, tasks and changes.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, AsyncExitStack, nullcontext
from datetime import datetime
from typing import Any, Final, Literal, NoReturn, TypeVar

import anyio
import mcp_types as types
from haystack import logging
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import BaseModel, ValidationError

from haystack_integrations.tools.mcp.convert.odd_messages import CALL_METHOD, repair_result
from haystack_integrations.tools.mcp.convert.skill_files import SKILLS_EXTENSION, MCPSkill, read_skill
from haystack_integrations.tools.mcp.errors import MCPConnectionError, MCPInvocationError, MCPOutcomeUnknownError
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.handlers.mcp_handlers import answer_later
from haystack_integrations.tools.mcp.protocol.changes import (
    ACKNOWLEDGED,
    CachedResults,
    ServerChange,
    WantedChanges,
    change_of,
    read_filters,
    ttl_ms,
    written_filters,
)
from haystack_integrations.tools.mcp.protocol.channel import OnProgress, SessionLife
from haystack_integrations.tools.mcp.protocol.listed_tools import InvalidResultError, ListedTools
from haystack_integrations.tools.mcp.protocol.negotiation import ServerDetails
from haystack_integrations.tools.mcp.protocol.request_errors import (
    CallDidNotRunError,
    ProtocolError,
    describe_error,
    failed_to,
    not_connected,
    outcome_unknown,
    raise_tool_error,
    redacted_result,
)
from haystack_integrations.tools.mcp.protocol.requests_of_server import (
    CallLeftOpenError,
    Responses,
    ServerRequests,
    read_requests,
    send_until_complete,
)
from haystack_integrations.tools.mcp.redaction import Redactor
from haystack_integrations.tools.mcp.request_context import current_request

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)

# Sends a request; its argument has all parameters, or additional ones.
SendMore = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]

# How many tools, and how many resources or prompts, all pages of a listing may have together.
MAX_TOOLS: Final = 10_000
MAX_ITEMS: Final = 50_000

# A server with more pages than this is broken: 5,000 tools, the most ever seen, are 50 pages of 100.
_MAX_PAGES: Final = 1_000

# The methods whose results may be cached, by the list that they are about.
_CACHED_METHODS: Final = {"prompts": ("prompts/list",), "resources": ("resources/list", "resources/templates/list")}

# What some custom clients cannot do, for messages.
_CONTINUE = "continue calls. The tool did not run."
_SEND_META = "send `meta`"


# The interval for polling a task, in seconds: the default, the longest and the shortest.
_DEFAULT_POLL_INTERVAL: Final = 1.0
_MAX_POLL_INTERVAL: Final = 60.0
_MIN_POLL_INTERVAL: Final = 0.02


class AnswerRefusedError(Exception):
    """
    Raised when a handler refuses to answer a server's question, or there is no handler. The text says which.
    """


class TaskState(types.Result):
    """
    The state of a task, as the server reports it when it makes the task or is asked.
    """

    task_id: str
    status: Literal["working", "input_required", "completed", "failed", "cancelled"]
    status_message: str | None = None
    created_at: str | None = None
    ttl_ms: float | None = None
    poll_interval_ms: float | None = None
    result: dict[str, Any] | None = None
    error: dict[str, Any] | None = None
    input_requests: dict[str, Any] | None = None

    @property
    def poll_interval(self) -> float:
        """
        How many seconds to wait before the server is asked again.
        """
        if not self.poll_interval_ms:
            return _DEFAULT_POLL_INTERVAL
        return min(max(self.poll_interval_ms / 1000, _MIN_POLL_INTERVAL), _MAX_POLL_INTERVAL)

    @property
    def expires_at(self) -> float | None:
        """
        When the server may forget the task, in seconds since the epoch; None if it does not say.
        """
        if self.ttl_ms is None or self.created_at is None:
            return None
        try:
            return datetime.fromisoformat(self.created_at).timestamp() + self.ttl_ms / 1000
        except ValueError:
            return None


class MCPClient(ABC):
    """
    Abstract base class for MCP clients: one session with one server.

    A custom client needs `connect`, and either its own `call_tool` or an SDK session in the attribute `session`, which
    `call_tool` then uses. Resources in the attribute `exit_stack` are closed by `aclose`. Both `connect` and `aclose`
    are awaited in the same task. A client that notices the end of its session calls `self.life.end(reason)`, so that
    the next call opens a new one.
    """

    session: Any = None
    exit_stack: AsyncExitStack[bool | None] | None = None

    # The opener of the session sets the attributes below before `connect`. Their functions must not block.
    life: SessionLife
    # Answer the requests of the server.
    handlers: MCPHandlers = MCPHandlers()
    # Redacts errors and logs that may quote the server. It knows the secrets of the server info.
    redactor: Redactor = Redactor()
    # Makes the context manager in which a handler answers the server.
    on_question: Callable[[], AbstractContextManager[None]] = staticmethod(nullcontext)
    # Called in the loop with each change that the server reports, and when changes may have been missed. `bool` does
    # nothing.
    on_change: Callable[[ServerChange], object] = bool
    on_gap: Callable[[], object] = bool

    # The client itself sets the attributes below. How to reach the server, for errors.
    _server_info: Any = None
    # Whether each request can have its own HTTP headers.
    _takes_headers: bool = False
    # How long the server allows caching the listing of its tools, in seconds; None if it does not say.
    tools_ttl: float | None = None
    # The server's details from the negotiation; empty without a session.
    _details: ServerDetails = ServerDetails()
    # Whether the negotiated revision is 2026-07-28 or later.
    _is_modern: bool = False
    # The tools from the server's listings.
    _tools: ListedTools
    # Answers the requests of the server. Set when a session is opened.
    _server_requests: ServerRequests
    # Called with the changes that the server acknowledges for the stream that is being opened.
    _acknowledged: Callable[[WantedChanges], None] | None = None

    @property
    def _is_stateless(self) -> bool:
        """
        Whether the server keeps no state for a session, so that different identities may share this one.
        """
        return False

    def __init__(self, max_retries: int = 3, base_delay: float = 1.0, max_delay: float = 30.0) -> None:
        """
        Initialize the client.

        A field of the server info with the name of a parameter takes precedence.

        :param max_retries: How often a lost session is reopened, or a call that provably did not run is sent again.
        :param base_delay: Delay before the second attempt in seconds; it doubles with each further one.
        :param max_delay: Longest delay between attempts in seconds.
        """
        self.exit_stack = AsyncExitStack()
        self.life = SessionLife()
        # Cleared when a session is opened.
        self._cached: CachedResults = CachedResults()
        self.max_retries = max_retries
        self.base_delay = base_delay
        self.max_delay = max_delay

    @abstractmethod
    async def connect(self) -> list[types.Tool]:
        """
        Connect to an MCP server.

        :returns: List of available tools on the server.
        :raises MCPConnectionError: If connection to the server fails.
        """

    async def call_tool(self, tool_name: str, tool_args: dict[str, Any]) -> str:
        """
        Call a tool on the connected MCP server.

        :param tool_name: Name of the tool to call.
        :param tool_args: Arguments to pass to the tool.
        :returns: JSON string representation of the tool invocation result.
        :raises MCPConnectionError: If not connected to an MCP server.
        :raises MCPInvocationError: If the tool invocation fails.
        """
        try:
            result = await self._send_call(tool_name, tool_args)
        except (MCPConnectionError, MCPInvocationError):
            raise
        except Exception as error:  # from a custom session
            self.redactor.error(error)
            msg = f"Failed to invoke Tool `{tool_name}`: {self.redactor.text(describe_error(error))}"
            raise MCPInvocationError(msg, tool_name, tool_args) from error
        raise_tool_error(result, tool_name, tool_args)
        return result.model_dump_json(by_alias=True)

    @property
    def request_tool(self) -> Callable[..., Coroutine[Any, Any, types.CallToolResult]]:
        """
        The function that calls a tool and returns the result as in the protocol, which may be the tool's own error.
        """
        return self._send_call if type(self).call_tool is MCPClient.call_tool else self._send_by_call_tool

    async def _send_by_call_tool(
        self,
        tool_name: str,
        tool_args: dict[str, Any],
        *,
        meta: dict[str, Any] | None = None,
        on_progress: OnProgress | None = None,  # noqa: ARG002 - it cannot ask for progress
        continuation: Any = None,
    ) -> types.CallToolResult:
        if continuation is not None:
            raise self._unsupported_error(_CONTINUE, tool_name, tool_args)
        if meta is not None:
            raise self._unsupported_error(_SEND_META, tool_name, tool_args)
        answer = await self._guarded(self.call_tool(tool_name, tool_args), tool_name, tool_args)
        try:
            result = types.CallToolResult.model_validate_json(answer, by_name=False)
        except ValidationError:  # a custom client may answer in plain words
            return types.CallToolResult(content=[types.TextContent(type="text", text=str(answer))])
        return redacted_result(result, self.redactor) if result.is_error else result

    async def _send_call(
        self,
        tool_name: str,
        tool_args: dict[str, Any],
        *,
        meta: dict[str, Any] | None = None,
        on_progress: OnProgress | None = None,
        continuation: Any = None,
    ) -> types.CallToolResult:
        """
        Call a tool. This implementation uses an SDK session.

        :param tool_name: Name of the tool to call.
        :param tool_args: Arguments to pass to the tool.
        :param meta: The `_meta` of the request. A client with its own `call_tool` cannot send it.
        :param on_progress: Called with progress, total and message of each report. If given, the server is asked for
            progress; a client with its own `call_tool` does not ask.
        :param continuation: Continues a call that was left open, as a Continuation. A custom client cannot do that.
        :returns: The result.
        :raises CallDidNotRunError: If the tool provably did not run.
        :raises MCPOutcomeUnknownError: If the call was sent and never answered. A connection error of a custom client
            also ends the session.
        :raises MCPInvocationError: If the tool invocation fails otherwise.
        """
        if continuation is not None:
            raise self._unsupported_error(_CONTINUE, tool_name, tool_args)
        if self.session is None:
            raise not_connected()

        async def report(*progress: Any) -> None:
            if on_progress is not None:
                on_progress(*progress)

        extras = {"meta": meta, "progress_callback": None if on_progress is None else report}
        sending = self.session.call_tool(
            tool_name, tool_args, **{name: value for name, value in extras.items() if value is not None}
        )
        result: types.CallToolResult = await self._guarded(sending, tool_name, tool_args)
        return redacted_result(result, self.redactor) if result.is_error else result

    def _unsupported_error(self, action: str, tool_name: str, tool_args: dict[str, Any]) -> MCPInvocationError:
        msg = f"Failed to invoke Tool `{tool_name}`: {type(self).__name__} cannot {action}"
        return MCPInvocationError(msg, tool_name, tool_args)

    async def _guarded(self, sending: Awaitable[T], tool_name: str, tool_args: dict[str, Any]) -> T:
        """
        Await a call, and end the session if custom code raises an error of its connection.
        """
        try:
            return await sending
        except (CallDidNotRunError, MCPOutcomeUnknownError) as error:
            if error.lost_because is not None:  # this client wraps another one, whose session ended
                self.life.end(error.lost_because)
            raise
        except (TimeoutError, MCPInvocationError):
            raise
        except Exception as error:
            kinds = (MCPConnectionError, OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)
            # An `mcp.MCPError` with this code means that its session ended.
            if not isinstance(error, kinds) and getattr(error, "code", None) != types.CONNECTION_CLOSED:
                raise
            self.life.end(describe_error(error))
            raise outcome_unknown(describe_error(error), tool_name, tool_args) from error

    async def ping(self) -> bool:
        """
        Send the server a ping and wait for the answer.

        :returns: False if this kind of client, or the revision of the protocol, has no pings.
        """
        return False

    async def notify_roots_changed(self) -> bool:
        """
        Notify the server that the roots have changed.

        :returns: False if this kind of client, or the revision of the protocol, has no such notification.
        """
        return False

    async def list_tools(self) -> list[types.Tool] | None:
        """
        Ask the connected server for its tools again.

        :returns: The tools, or None if this kind of client cannot ask.
        """
        return None

    def unusable_tools(self) -> dict[str, str]:
        """
        Return the tools that were left out of the listing although the server has them.

        :returns: The reasons, by the names of the tools.
        """
        return {}

    async def find_reason(self) -> str:
        """
        Find out why the session ended.

        :returns: A clause.
        """
        return self.life.reason or "the session ended"

    async def aclose(self) -> None:
        """
        Close the connection and clean up resources.

        This method ensures all resources are properly released, even if errors occur.
        """
        self.session = None
        stack, self.exit_stack = self.exit_stack, AsyncExitStack()
        try:
            if stack is not None:
                await stack.aclose()
        except Exception as error:
            logger.warning("Error during MCP client cleanup: {error}", error=self.redactor.text(describe_error(error)))

    def kill(self) -> None:
        """
        Release the remaining resources at once, without waiting: `aclose` was called, or there is no time for it.
        """

    def details(self) -> ServerDetails:
        """
        Return the details that the server gave about itself.

        :returns: The details; empty if they are not known.
        """
        return self._details

    def progress(self) -> str:
        """
        Describe how far `connect` has come, for the message of a timeout.

        :returns: A clause, or the empty string.
        """
        return ""

    # Reads, sent by `_request` and guarded by `_read`. A custom client has neither, so these methods fail unless it
    # overrides them.

    def _describe(self) -> str:
        """Describe the server for messages."""
        return "the server"

    async def _request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        meta: Mapping[str, Any] | None = None,
        on_progress: OnProgress | None = None,
    ) -> dict[str, Any]:
        """
        Send a request and wait for its result.

        A tool call is sent once more if it did not run for lack of a header, or before the user had opened a URL.

        :param method: Its method.
        :param params: Its parameters, as in the protocol.
        :param meta: More for its `_meta`.
        :param on_progress: Called with each progress report. If given, the server is asked for progress.
        :returns: The result, with repairs of known deviations (`convert.odd_messages`). Since revision 2026-07-28 it
            has a `resultType`, which may be "input_required" or one of an extension.
        :raises RequestError: If there is no result (`protocol.request_errors`).
        :raises ValueError: If a parameter cannot be written as JSON.
        """
        raise NotImplementedError

    async def _read(self, operation: str, read: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - for subclasses
        """
        Read something from the server, and translate any failure into an error of this package.

        :param operation: Name of the operation, for errors.
        :param read: Reads it, with `_request`.
        :returns: Its result.
        :raises ReadInterruptedError: If the connection broke meanwhile.
        :raises MCPConnectionError: If it fails otherwise.
        """
        missing = operation if hasattr(self, operation) else "request"
        msg = f"{failed_to(operation, self._describe())}: its custom client, {type(self).__name__}, has no `{missing}`"
        raise MCPConnectionError(msg, operation=operation)

    # Results

    async def _read_pages(self, things: str, send: SendMore) -> list[dict[str, Any]]:
        """
        Read all pages of a listing. If it repeats itself or does not end, only the pages before that are used.

        :param things: The kind of the items, for messages.
        :param send: Requests a page, from the parameters that it gets.
        :returns: The pages; empty if the server does not know the request.
        """
        pages: list[dict[str, Any]] = []
        listed: list[list[Any]] = []
        limit = MAX_TOOLS if things == "tools" else MAX_ITEMS
        cursor: str | None = None
        cursors: set[str | None] = set()
        reason = None
        while reason is None:
            cursors.add(cursor)
            try:
                page = await send({} if cursor is None else {"cursor": cursor})
            except ProtocolError as error:
                if error.code == types.METHOD_NOT_FOUND and not pages:
                    return []  # the server only offers other things
                if cursor == "":
                    return pages  # the empty cursor meant the end
                raise
            items = max((each for each in page.values() if isinstance(each, list)), key=len, default=[])
            if items and items in listed:
                if cursor == "":
                    return pages
                reason = "it repeats a page"
                break
            pages.append(page)
            listed.append(items)
            cursor = page.get("nextCursor")
            # Since revision 2026-07-28 the empty string is a cursor like any other, but many servers end with it.
            if cursor is None or (not cursor and (not self._is_modern or cursor in cursors)):
                return pages
            if cursor in cursors:
                reason = "it repeats a cursor"
            elif sum(map(len, listed)) > limit:
                reason = f"it has more than {limit:,}"
            elif len(pages) == _MAX_PAGES:
                reason = f"it has more than {_MAX_PAGES:,} pages"
        logger.warning(
            "The listing of the {things} of {server} does not end as it should: {reason}. Earlier pages are used",
            things=things,
            server=self._describe(),
            reason=reason,
        )
        return pages

    async def _fetch_cached(self, method: str, params: dict[str, Any], meta: dict[str, Any] | None) -> dict[str, Any]:
        """
        Return the result of a request, cached if the server allows that. A request with `meta` is always sent.
        """

        def fetch() -> Awaitable[dict[str, Any]]:
            return self._request(method, params, meta=meta)

        if not self._is_modern:
            return await fetch()
        return await self._cached.fetched(method, params, fetch, is_refresh=meta is not None)

    async def _list_items(
        self, operation: str, method: str, model: type[BaseModel], things: str, meta: dict[str, Any] | None
    ) -> list[Any]:
        async def send(params: dict[str, Any]) -> dict[str, Any]:
            return await self._fetch_cached(method, params, meta)

        async def read() -> list[Any]:
            if method.partition("/")[0] not in (self._details.capabilities or {}):
                return []
            pages = await self._read_pages(things, send)
            listed = (self._validated(operation, model, page) for page in pages)
            return [item for page in listed for item in getattr(page, things.replace(" ", "_"))]

        return await self._read(operation, read)

    def _validated(self, operation: str, model: type[ModelT], result: dict[str, Any]) -> ModelT:
        fields = dict(result)
        if issubclass(model, types.CacheableResult):
            # An invalid value, or one that the revision does not have, must not make the whole result invalid.
            scope = "public" if result.get("cacheScope") == "public" else "private"
            fields |= {"ttlMs": ttl_ms(result) if self._is_modern else 0, "cacheScope": scope}
        try:
            if self._is_modern and result.get("resultType", "complete") != "complete":
                self._fail_invalid(operation, "it is of an unknown type")
            return model.model_validate(fields, by_name=False)
        except ValidationError as error:
            self._fail_invalid(operation, describe_error(error))

    def _fail(self, operation: str, reason: str) -> NoReturn:
        msg = f"{failed_to(operation, self._describe())}: {reason}"
        error = MCPConnectionError(msg, self._server_info, operation)
        error._others_may_succeed = True
        raise error from None  # the cause may quote the answer

    def _fail_invalid(self, operation: str, reason: str) -> NoReturn:
        self._fail(operation, f"the server's answer is not a valid result: {reason}")

    async def _read_with_input(self, operation: str, model: type[ModelT], send: SendMore) -> ModelT:
        async def read() -> ModelT:
            try:
                result = await send({})
                if self._is_modern:
                    result = await send_until_complete(send, self._server_requests, result)
            except ValidationError as error:
                self._fail_invalid(operation, describe_error(error))
            except RuntimeError as error:  # the server asks for input again and again
                self._fail(operation, str(error))
            return self._validated(operation, model, result)

        return await self._read(operation, read)

    # Resources and prompts

    async def list_resources(self, meta: dict[str, Any] | None = None) -> list[types.Resource]:
        """
        List the resources of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The resources; none of a server without resources.
        :raises MCPConnectionError: If that fails.
        """
        return await self._list_items("list_resources", "resources/list", types.ListResourcesResult, "resources", meta)

    async def list_resource_templates(self, meta: dict[str, Any] | None = None) -> list[types.ResourceTemplate]:
        """
        List the resource templates of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The templates; none of a server without resources.
        """
        method, model = "resources/templates/list", types.ListResourceTemplatesResult
        return await self._list_items("list_resource_templates", method, model, "resource templates", meta)

    async def read_resource(self, uri: str, meta: dict[str, Any] | None = None) -> types.ReadResourceResult:
        """
        Read a resource.

        :param uri: Its URI.
        :param meta: The `_meta` of the request.
        :returns: Its contents.
        """

        async def send(more: dict[str, Any]) -> dict[str, Any]:
            if more:  # with input, so the result must not be cached
                return await self._request("resources/read", {"uri": uri, **more}, meta=meta)
            return await self._fetch_cached("resources/read", {"uri": uri}, meta)

        return await self._read_with_input("read_resource", types.ReadResourceResult, send)

    async def list_prompts(self, meta: dict[str, Any] | None = None) -> list[types.Prompt]:
        """
        List the prompts of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The prompts; none of a server without prompts.
        """
        return await self._list_items("list_prompts", "prompts/list", types.ListPromptsResult, "prompts", meta)

    async def get_prompt(
        self, name: str, arguments: dict[str, str] | None = None, meta: dict[str, Any] | None = None
    ) -> types.GetPromptResult:
        """
        Get a prompt.

        :param name: Its name.
        :param arguments: Its arguments.
        :param meta: The `_meta` of the request.
        :returns: Its messages.
        """
        # Without `arguments`, servers on the TypeScript SDK refuse a prompt whose arguments are all optional.
        params = {"name": name, "arguments": arguments or {}}

        async def send(more: dict[str, Any]) -> dict[str, Any]:
            return await self._request("prompts/get", {**params, **more}, meta=meta)

        return await self._read_with_input("get_prompt", types.GetPromptResult, send)

    async def complete(
        self,
        ref: types.PromptReference | types.ResourceTemplateReference,
        argument: dict[str, str],
        context: dict[str, str] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> types.Completion:
        """
        Ask for completions of an argument.

        :param ref: The prompt or resource template.
        :param argument: The `name` of the argument and its `value` so far.
        :param context: The other arguments so far.
        :param meta: The `_meta` of the request.
        :returns: The completions.
        """

        async def read() -> types.Completion:
            reference = ref.model_dump(by_alias=True, mode="json", exclude_none=True)
            params: dict[str, Any] = {"ref": reference, "argument": argument}
            if context is not None:
                params["context"] = {"arguments": context}
            result = await self._request("completion/complete", params, meta=meta)
            return self._validated("complete", types.CompleteResult, result).completion

        return await self._read("complete", read)

    async def request(
        self, method: str, params: dict[str, Any] | None = None, meta: dict[str, Any] | None = None
    ) -> dict[str, Any]:
        """
        Send a request of any method.

        :param method: The method.
        :param params: Its parameters.
        :param meta: The `_meta` of the request.
        :returns: The result as it came.
        """
        return await self._read(method, lambda: self._request(method, params, meta=meta))

    async def cancel_task(self, task_id: str) -> None:
        """
        Ask the server to end a task.

        :param task_id: The server's name of the task.
        """
        await self._read("cancel_task", lambda: self._request("tasks/cancel", {"taskId": task_id}))

    # Calls that a server answers with something other than a tool's result, e.g. a task (SEP-2663)

    async def _complete_call(self, send: SendMore, result: dict[str, Any]) -> dict[str, Any]:
        """
        Send a call again until it has the tool's result.

        :param send: Sends `tools/call` with the additional parameters that it gets, as a new request each time.
        :param result: The result of the first request.
        :returns: The result, as in the protocol.
        :raises CallLeftOpenError: If the server has questions that are answered later, or runs the call as a task.
        :raises RequestError: If a request fails, or a handler refuses to answer.
        :raises ValidationError: If the server's questions or its task do not conform to the protocol.
        :raises RuntimeError: If the server asks for input again and again, or its result is of an unknown kind.
        """
        if not self._is_modern:
            return result
        leaves_questions = self.handlers.elicitation is answer_later
        result = await send_until_complete(send, self._server_requests, result, leaves_questions=leaves_questions)
        kind = result.get("resultType", "complete")
        if kind == "complete":
            return result
        if kind == "task":
            TaskState.model_validate(result, by_name=False)
            raise CallLeftOpenError(result)
        msg = "the server's answer is of an unknown type"
        raise InvalidResultError(msg)

    async def get_task(self, task_id: str) -> TaskState:
        """
        Ask for the state of a task.

        :param task_id: The server's name of the task.
        :returns: Its state.
        :raises MCPConnectionError: If that fails.
        """

        async def read() -> TaskState:
            result = await self._request("tasks/get", {"taskId": task_id})
            # Some servers send "task".
            return self._validated("tasks/get", TaskState, {**result, "resultType": "complete"})

        return await self._read("tasks/get", read)

    async def answer_for_task(self, requests: Mapping[str, Any]) -> Responses:
        """
        Let the handlers answer the questions of a task.

        :param requests: The requests by their keys, as in the protocol.
        :returns: The responses by the same keys, as in the protocol.
        :raises AnswerRefusedError: If a handler refuses, or there is no handler.
        :raises ValidationError: If the requests do not conform to the protocol.
        """
        server_requests = self._server_requests
        missing_before = dict(server_requests.missing_counts)
        token = current_request.set(asyncio.current_task())  # not a question of another call that is under way
        try:
            return await server_requests.answers(read_requests(requests))
        except ProtocolError as error:
            # A handler raised it. All other errors of this kind come from the server.
            raise AnswerRefusedError(
                server_requests.advice(missing_before, error.code, error.data) or error.message
            ) from None
        finally:
            current_request.reset(token)

    async def update_task(self, task_id: str, responses: Responses) -> None:
        """
        Send the server the answers to the questions of a task.

        :param task_id: The server's name of the task.
        :param responses: The responses by the keys of the requests, as in the protocol.
        :raises MCPConnectionError: If that fails.
        """
        params = {"taskId": task_id, "inputResponses": responses}
        await self._read("tasks/update", lambda: self._request("tasks/update", params))

    async def task_result(self, tool_name: str, result: dict[str, Any]) -> types.CallToolResult:
        """
        Read the result of a task, and validate it like any other result.

        :param tool_name: Name of the tool.
        :param result: The result, as in the protocol.
        :returns: The result.
        :raises RuntimeError: If it violates the output schema of the tool.
        :raises ValidationError: If it is not the result of a tool.
        """
        repaired = repair_result(CALL_METHOD, self._details.protocol_version or LATEST_MODERN_VERSION, result)
        validated = types.CallToolResult.model_validate(repaired.result, by_name=False)
        if validated.is_error:
            return redacted_result(validated, self.redactor)
        await self._tools.validate(tool_name, validated)
        return validated

    # Skills

    @property
    def _has_skills(self) -> bool:
        return SKILLS_EXTENSION in ((self._details.capabilities or {}).get("extensions") or {})

    async def list_skills(self, meta: dict[str, Any] | None = None) -> list[MCPSkill]:
        """
        List the skills of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The skills; empty if the server does not offer the extension.
        """

        async def send(params: dict[str, Any]) -> dict[str, Any]:
            page = await self._request("skills/list", params, meta=meta)
            if not isinstance(page.get("skills"), list) or not isinstance(page.get("nextCursor"), str | None):
                self._fail("list_skills", "its answer does not conform to the extension")
            return page

        async def read() -> list[MCPSkill]:
            pages = await self._read_pages("skills", send) if self._has_skills else []
            return [
                skill
                for page in pages
                for entry in page["skills"]
                if (skill := self._try_read_skill(entry)) is not None
            ]

        return await self._read("list_skills", read)

    def _try_read_skill(self, entry: Any) -> MCPSkill | None:
        try:
            return read_skill(entry)
        except ValueError as error:
            uri = entry.get("uri") if isinstance(entry, dict) else None
            logger.warning(
                "Left out skill {skill} of {server}: {reason}",
                skill=repr(uri),
                server=self._describe(),
                reason=str(error),
            )
            return None

    async def get_skill(self, uri: str, meta: dict[str, Any] | None = None) -> MCPSkill:
        """
        Get the server's description of a skill.

        :param uri: URI of its `SKILL.md`.
        :param meta: The `_meta` of the request.
        :returns: The skill.
        """

        async def read() -> MCPSkill:
            if not self._has_skills:
                self._fail("get_skill", f"it does not have the extension {SKILLS_EXTENSION}")
            result = await self._request("skills/get", {"uri": uri}, meta=meta)
            try:
                skill = read_skill(result.get("skill"))
            except ValueError as error:
                self._fail("get_skill", str(error))
            if skill.uri != uri:
                self._fail("get_skill", "the server returned another skill")
            return skill

        return await self._read("get_skill", read)

    # Changes (SEP-2575): before revision 2026-07-28 notifications, since then the stream of `subscriptions/listen`

    def _process_change(self, method: str, params: Mapping[str, Any]) -> None:
        """
        Process a notification about changes, or about a subscription to them. Others are ignored.

        :param method: Its method.
        :param params: Its parameters.
        """
        if method == ACKNOWLEDGED and self._acknowledged is not None:
            acknowledged, self._acknowledged = self._acknowledged, None
            acknowledged(read_filters(params.get("notifications")))
        change = change_of(method, params)
        if change is None:
            return
        if change.kind == "resource":
            self._cached.drop("resources/read", change.uri)
        for method_to_drop in _CACHED_METHODS.get(change.kind, ()):
            self._cached.drop(method_to_drop)
        self.on_change(change)

    @property
    def listens(self) -> bool:
        """
        Whether changes are reported in a separate stream, as since revision 2026-07-28.
        """
        return self._is_modern

    async def listen(self, wanted: WantedChanges, acknowledged: Callable[[WantedChanges], None]) -> None:
        """
        Listen to changes until the server ends the stream. They are passed to `on_change`.

        :param wanted: The changes to listen to.
        :param acknowledged: Called once the server has acknowledged the subscription, with the changes that it sends.
        :raises MCPConnectionError: If the server refuses, or the stream breaks.
        """

        async def read() -> None:
            self._acknowledged = acknowledged
            try:
                await self._request("subscriptions/listen", {"notifications": written_filters(wanted)})
            finally:
                if self._acknowledged is acknowledged:
                    self._acknowledged = None

        await self._read("listen", read)

    async def subscribe_resource(self, uri: str) -> None:
        """
        Subscribe to changes of a resource, in revisions before 2026-07-28.

        :param uri: Its URI.
        :raises MCPConnectionError: If that fails.
        """
        await self._read("subscribe_resource", lambda: self._request("resources/subscribe", {"uri": uri}))

    async def unsubscribe_resource(self, uri: str) -> None:
        """
        End the subscription to changes of a resource, in revisions before 2026-07-28.

        :param uri: Its URI.
        :raises MCPConnectionError: If that fails.
        """
        await self._read("unsubscribe_resource", lambda: self._request("resources/unsubscribe", {"uri": uri}))
