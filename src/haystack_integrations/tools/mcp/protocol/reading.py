# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a client asks its server beside calls of tools.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar

import mcp_types as types
from haystack import logging
from pydantic import BaseModel, ValidationError

from haystack_integrations.tools.mcp.concurrency import MAX_ITEMS, MAX_TOOLS
from haystack_integrations.tools.mcp.convert.skills import SKILLS_EXTENSION, MCPSkill, read_skill
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.protocol.cached_results import CachedResults, ttl_ms
from haystack_integrations.tools.mcp.protocol.changes import (
    ACKNOWLEDGED,
    ServerChange,
    WantedChanges,
    change_of,
    read_filters,
    written_filters,
)
from haystack_integrations.tools.mcp.protocol.error_texts import describe_error
from haystack_integrations.tools.mcp.protocol.exchange import ProtocolError
from haystack_integrations.tools.mcp.protocol.inputs import answered
from haystack_integrations.tools.mcp.protocol.outcome_errors import failed_to
from haystack_integrations.tools.mcp.protocol.requests_of_server import ServerRequests

logger: logging.PatchedLogger = logging.getLogger(__name__)

# A server that pages for longer than this is broken: 5,000 tools, the most ever seen, are 50 pages of 100.
_MAX_PAGES: Final = 1_000

# Where the parameters of a request name what it is about.
_NAMES: Final = {
    "tools/call": "name",
    "prompts/get": "name",
    "resources/read": "uri",
    "tasks/get": "taskId",
    "tasks/update": "taskId",
    "tasks/cancel": "taskId",
    "tasks/result": "taskId",
}

# What may be kept of each list.
_KEPT: Final = {"prompts": ("prompts/list",), "resources": ("resources/list", "resources/templates/list")}

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)

# Sends a request with more parameters, or with the parameters it is given.
Send = Callable[[dict[str, Any]], Awaitable[dict[str, Any]]]


class ReadingClient(ABC):
    """
    What a client reads of its server, with requests that `_request` sends and `_read` guards.

    A custom client has neither, so that each of these methods fails, unless it has its own.
    """

    # What was negotiated; None while there is no session.
    _revision: str | None = None
    # Whether that is 2026-07-28 or later.
    _is_modern: bool = False
    _capabilities: types.ServerCapabilities = types.ServerCapabilities()

    # Answers what the server asks. Set when a session is opened.
    _server_requests: ServerRequests

    # Called in the loop with each change of the server; must not block. Set before `connect` by whoever opens the
    # session.
    on_change: Callable[[ServerChange], None] | None = None

    # Called with what the server honours of the stream that is being opened.
    _acknowledged: Callable[[WantedChanges], None] | None = None

    def __init__(self) -> None:
        """
        Initialize the client.
        """
        # To be cleared when a session is opened.
        self._cached: CachedResults = CachedResults()

    def _describe(self) -> str:
        """Return what the server is called in messages."""
        return "the server"

    def _server_info(self) -> Any:
        """Return the server info for errors."""
        return None

    async def _request(
        self,
        method: str,
        params: Mapping[str, Any] | None = None,
        *,
        name: str | None = None,
        meta: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        on_progress: Callable[[dict[str, Any]], None] | None = None,
    ) -> dict[str, Any]:
        """
        Send a request and wait for its result.

        :param method: Its method.
        :param params: Its parameters, as in the protocol.
        :param name: What it is about, for the header `Mcp-Name`: a tool, a prompt, a URI or a task.
        :param meta: More for its `_meta`.
        :param headers: Further HTTP headers, such as `Mcp-Param-…`.
        :param on_progress: Called with the parameters of each report of progress; with it, the server is asked for
            progress.
        :returns: The result, made readable as far as it can be (`convert.odd_messages`). Since revision 2026-07-28 it
            has a `resultType`, which may be "input_required" or that of an extension.
        :raises RequestError: If there is none (`protocol.exchange`).
        :raises ValueError: If a parameter cannot be written as JSON.
        """
        raise NotImplementedError

    async def _read(self, operation: str, read: Callable[[], Awaitable[T]]) -> T:  # noqa: ARG002 - for subclasses
        """
        Read something of the server, and make an error of the package of whatever goes wrong.

        :param operation: What that is, for errors.
        :param read: Does it, with `_request`.
        :returns: Its result.
        :raises ReadInterruptedError: If the connection broke meanwhile.
        :raises MCPConnectionError: If it fails otherwise.
        """
        missing = operation if hasattr(self, operation) else "request"
        msg = f"{failed_to(operation, self._describe())}: its custom client, {type(self).__name__}, has no `{missing}`"
        raise MCPConnectionError(msg, operation=operation)

    # Results

    async def _pages(self, operation: str, things: str, send: Send) -> list[dict[str, Any]]:
        """
        Read all pages of a listing. Of one that repeats itself, or has no end, those are read that came before.

        :param operation: What is done, for errors.
        :param things: What is listed, for messages.
        :param send: Requests the page with the parameters that it gets.
        :returns: The pages; none of a server that does not know the request.
        :raises MCPConnectionError: If the first page is too large.
        """
        pages: list[dict[str, Any]] = []
        listed: list[list[Any]] = []
        count, limit = 0, MAX_TOOLS if things == "tools" else MAX_ITEMS
        cursor: str | None = None
        cursors: set[str | None] = set()
        while True:
            cursors.add(cursor)
            try:
                page = await send({} if cursor is None else {"cursor": cursor})
            except ProtocolError as error:
                if error.code == types.METHOD_NOT_FOUND and not pages:
                    return []  # a server of other things only
                if cursor == "":
                    return pages  # it was meant as the end
                raise
            items = max((each for each in page.values() if isinstance(each, list)), key=len, default=[])
            count += len(items)
            if count > limit and not pages:
                msg = f"{self._describe()} has more than {limit:,} {things}"
                raise MCPConnectionError(msg, self._server_info(), operation)
            if items and items in listed:
                return pages if cursor == "" else self._cut_off(pages, things, "it repeats a page")
            if count > limit:
                return self._cut_off(pages, things, f"it has more than {limit:,}")
            pages.append(page)
            listed.append(items)
            cursor = page.get("nextCursor")
            # Since revision 2026-07-28 the empty string is a cursor like any other, but many servers end with it.
            if cursor is None or (not cursor and (not self._is_modern or cursor in cursors)):
                return pages
            if cursor in cursors:
                return self._cut_off(pages, things, "it repeats a cursor")
            if len(pages) == _MAX_PAGES:
                return self._cut_off(pages, things, f"it has more than {_MAX_PAGES:,} pages")

    def _cut_off(self, pages: list[dict[str, Any]], things: str, reason: str) -> list[dict[str, Any]]:
        logger.warning(
            "The listing of the {things} of {server} does not end as it should: {reason}. What came before is used",
            things=things,
            server=self._describe(),
            reason=reason,
        )
        return pages

    async def _kept(
        self, method: str, params: dict[str, Any], meta: dict[str, Any] | None, name: str | None = None
    ) -> dict[str, Any]:
        """
        Return the result of a request, a kept one if the server allows that. Whoever sends `meta` wants to be heard.
        """

        def fetch() -> Awaitable[dict[str, Any]]:
            return self._request(method, params, name=name, meta=meta)

        if not self._is_modern:
            return await fetch()
        return await self._cached.fetched(method, params, fetch, is_refresh=meta is not None)

    async def _listing(
        self, operation: str, method: str, model: type[BaseModel], things: str, meta: dict[str, Any] | None
    ) -> list[Any]:
        async def send(params: dict[str, Any]) -> dict[str, Any]:
            return await self._kept(method, params, meta)

        async def read() -> list[Any]:
            if getattr(self._capabilities, method.partition("/")[0]) is None:
                return []
            try:
                pages = await self._pages(operation, things, send)
            except ProtocolError as error:
                # The cursor of a page that was kept may not hold any more.
                if error.code != types.INVALID_PARAMS or not self._cached.drop(method):
                    raise
                pages = await self._pages(operation, things, send)
            listed = (self._parsed(operation, model, page) for page in pages)
            return [item for page in listed for item in getattr(page, things.replace(" ", "_"))]

        return await self._read(operation, read)

    def _parsed(self, operation: str, model: type[ModelT], result: dict[str, Any]) -> ModelT:
        fields = dict(result)
        if issubclass(model, types.CacheableResult):
            # A value that makes no sense, or that the revision does not have, must not take the rest away.
            scope = "public" if result.get("cacheScope") == "public" else "private"
            fields |= {"ttlMs": ttl_ms(result) if self._is_modern else 0, "cacheScope": scope}
        try:
            if self._is_modern and result.get("resultType", "complete") != "complete":
                raise self._invalid(operation, "it is of an unknown type")
            return model.model_validate(fields, by_name=False)
        except ValidationError as error:
            raise self._invalid(operation, describe_error(error)) from None  # it quotes the answer

    def _invalid(self, operation: str, reason: str) -> MCPConnectionError:
        msg = f"{failed_to(operation, self._describe())}: the server's answer is no valid result: {reason}"
        return MCPConnectionError(msg, self._server_info(), operation)

    async def _with_inputs(self, operation: str, model: type[ModelT], send: Send) -> ModelT:
        async def read() -> ModelT:
            try:
                result = await answered(send, self._server_requests if self._is_modern else None)
            except ValidationError as error:
                raise self._invalid(operation, describe_error(error)) from None
            return self._parsed(operation, model, result)

        return await self._read(operation, read)

    # Resources and prompts

    async def list_resources(self, meta: dict[str, Any] | None = None) -> list[types.Resource]:
        """
        List the resources of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The resources; none of a server without resources.
        :raises MCPConnectionError: If that fails.
        """
        return await self._listing("list_resources", "resources/list", types.ListResourcesResult, "resources", meta)

    async def list_resource_templates(self, meta: dict[str, Any] | None = None) -> list[types.ResourceTemplate]:
        """
        List the resource templates of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The templates; none of a server without resources.
        """
        method, model = "resources/templates/list", types.ListResourceTemplatesResult
        return await self._listing("list_resource_templates", method, model, "resource templates", meta)

    async def read_resource(self, uri: str, meta: dict[str, Any] | None = None) -> types.ReadResourceResult:
        """
        Read a resource.

        :param uri: Its URI.
        :param meta: The `_meta` of the request.
        :returns: Its contents.
        """

        async def send(more: dict[str, Any]) -> dict[str, Any]:
            if more:  # with input, so that nothing may be kept
                return await self._request("resources/read", {"uri": uri, **more}, name=uri, meta=meta)
            return await self._kept("resources/read", {"uri": uri}, meta, uri)

        return await self._with_inputs("read_resource", types.ReadResourceResult, send)

    async def list_prompts(self, meta: dict[str, Any] | None = None) -> list[types.Prompt]:
        """
        List the prompts of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The prompts; none of a server without prompts.
        """
        return await self._listing("list_prompts", "prompts/list", types.ListPromptsResult, "prompts", meta)

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
        params = {"name": name} if arguments is None else {"name": name, "arguments": arguments}

        async def send(more: dict[str, Any]) -> dict[str, Any]:
            return await self._request("prompts/get", {**params, **more}, name=name, meta=meta)

        return await self._with_inputs("get_prompt", types.GetPromptResult, send)

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
            asked = ref.model_dump(by_alias=True, mode="json", exclude_none=True)
            params: dict[str, Any] = {"ref": asked, "argument": argument}
            if context is not None:
                params["context"] = {"arguments": context}
            result = await self._request("completion/complete", params, meta=meta)
            return self._parsed("complete", types.CompleteResult, result).completion

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
        about = (params or {}).get(_NAMES.get(method, ""))
        name = about if isinstance(about, str) else None
        return await self._read(method, lambda: self._request(method, params, name=name, meta=meta))

    async def cancel_task(self, task_id: str) -> None:
        """
        Ask the server to end a task.

        :param task_id: The server's name of the task.
        """
        await self._read("cancel_task", lambda: self._request("tasks/cancel", {"taskId": task_id}, name=task_id))

    # Skills

    @property
    def _has_skills(self) -> bool:
        return SKILLS_EXTENSION in (self._capabilities.extensions or {})

    async def list_skills(self, meta: dict[str, Any] | None = None) -> list[MCPSkill]:
        """
        List the skills of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The skills; none of a server that does not say that it has the extension.
        """

        async def send(params: dict[str, Any]) -> dict[str, Any]:
            page = await self._request("skills/list", params, meta=meta)
            if not isinstance(page.get("skills"), list) or not isinstance(page.get("nextCursor"), str | None):
                msg = f"{failed_to('list_skills', self._describe())}: its answer is not as the extension wants it"
                raise MCPConnectionError(msg, self._server_info(), "list_skills")
            return page

        async def read() -> list[MCPSkill]:
            pages = await self._pages("list_skills", "skills", send) if self._has_skills else []
            return [skill for page in pages for entry in page["skills"] if (skill := self._usable(entry)) is not None]

        return await self._read("list_skills", read)

    def _usable(self, entry: Any) -> MCPSkill | None:
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
        Get what the server says of a skill.

        :param uri: URI of its `SKILL.md`.
        :param meta: The `_meta` of the request.
        :returns: The skill.
        """

        async def read() -> MCPSkill:
            what = failed_to("get_skill", self._describe())
            if not self._has_skills:
                msg = f"{what}: it does not have the extension {SKILLS_EXTENSION}"
                raise MCPConnectionError(msg, self._server_info(), "get_skill")
            result = await self._request("skills/get", {"uri": uri}, meta=meta)
            try:
                skill = read_skill(result.get("skill"))
            except ValueError as error:
                msg = f"{what}: {error}"
                raise MCPConnectionError(msg, self._server_info(), "get_skill") from None
            if skill.uri != uri:
                msg = f"{what}: it is another one"
                raise MCPConnectionError(msg, self._server_info(), "get_skill")
            return skill

        return await self._read("get_skill", read)

    # Changes (SEP-2575): before revision 2026-07-28 notifications, since then the stream of `subscriptions/listen`

    def _changed(self, method: str, params: Mapping[str, Any]) -> None:
        """
        Take note of a notification that says that something changed, or will be told; of others, nothing.

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
        for kept in _KEPT.get(change.kind, ()):
            self._cached.drop(kept)
        if self.on_change is not None:
            self.on_change(change)

    @property
    def listens(self) -> bool:
        """
        Whether changes are heard in a stream of their own, as since revision 2026-07-28.
        """
        return self._is_modern

    async def listen(self, wanted: WantedChanges, acknowledged: Callable[[WantedChanges], None]) -> None:
        """
        Listen to changes until the server ends that. They go to `on_change`.

        A stream may be opened while another one is open, but not before that one is acknowledged.

        :param wanted: Which changes.
        :param acknowledged: Called once the server sends them, with those that it does send.
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
