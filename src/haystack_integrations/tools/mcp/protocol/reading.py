# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a client reads beside tools: resources, prompts, skills, completions, and answers to any request.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar

import mcp_types as types
from haystack import logging
from pydantic import BaseModel, ValidationError

from haystack_integrations.tools.mcp.concurrency import MAX_ITEMS, MAX_TOOLS
from haystack_integrations.tools.mcp.convert.skills import SKILLS_EXTENSION, MCPSkill, read_skill
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.protocol.cached_results import CachedResults, ttl_ms
from haystack_integrations.tools.mcp.protocol.error_texts import describe_error, failed_to
from haystack_integrations.tools.mcp.protocol.exchange import ProtocolError
from haystack_integrations.tools.mcp.protocol.inputs import answered
from haystack_integrations.tools.mcp.protocol.requesting import RequestingClient
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

T = TypeVar("T")
ModelT = TypeVar("ModelT", bound=BaseModel)


class ReadingClient(RequestingClient):
    """
    What a client reads beside tools.
    """

    # Answers what the server asks. Set when a session is opened.
    _server_requests: ServerRequests

    def __init__(self, max_retries: int = 3, base_delay: float = 1.0, max_delay: float = 30.0) -> None:
        """
        Initialize the client.

        :param max_retries: As of MCPClient, like the other parameters.
        :param base_delay: Likewise.
        :param max_delay: Likewise.
        """
        super().__init__(max_retries, base_delay, max_delay)
        # To be cleared when a session is opened.
        self._cached: CachedResults = CachedResults()

    async def _pages(
        self, operation: str, things: str, fetch: Callable[[str | None], Awaitable[dict[str, Any]]]
    ) -> list[dict[str, Any]]:
        """
        Read all pages of a listing. Of one that repeats itself, or has no end, those are read that came before.

        :param operation: What is done, for errors.
        :param things: What is listed, for messages.
        :param fetch: Reads the page at a cursor.
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
                page = await fetch(cursor)
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

    async def _fetch(
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
        self, operation: str, method: str, model: type[ModelT], things: str, meta: dict[str, Any] | None
    ) -> list[ModelT]:
        async def fetch(cursor: str | None) -> dict[str, Any]:
            return await self._fetch(method, {} if cursor is None else {"cursor": cursor}, meta)

        async def read() -> list[ModelT]:
            if getattr(self._capabilities, method.partition("/")[0]) is None:
                return []
            try:
                pages = await self._pages(operation, things, fetch)
            except ProtocolError as error:
                if error.code != types.INVALID_PARAMS:
                    raise
                self._cached.drop(method)  # the cursor of a page that was kept may not hold any more
                pages = await self._pages(operation, things, fetch)
            return [self._parsed(operation, model, page) for page in pages]

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

    async def _with_inputs(
        self,
        operation: str,
        model: type[ModelT],
        send: Callable[[dict[str, Any]], Awaitable[dict[str, Any]]],
    ) -> ModelT:
        async def read() -> ModelT:
            try:
                result = await answered(send, self._server_requests if self._is_modern else None)
            except ValidationError as error:
                raise self._invalid(operation, describe_error(error)) from None
            return self._parsed(operation, model, result)

        return await self._read(operation, read)

    async def list_resources(self, meta: dict[str, Any] | None = None) -> list[types.Resource]:
        """
        List the resources of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The resources; none of a server without resources.
        """
        pages = await self._listing("list_resources", "resources/list", types.ListResourcesResult, "resources", meta)
        return [resource for page in pages for resource in page.resources]

    async def list_resource_templates(self, meta: dict[str, Any] | None = None) -> list[types.ResourceTemplate]:
        """
        List the resource templates of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The templates; none of a server without resources.
        """
        method, model = "resources/templates/list", types.ListResourceTemplatesResult
        pages = await self._listing("list_resource_templates", method, model, "resource templates", meta)
        return [template for page in pages for template in page.resource_templates]

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
            return await self._fetch("resources/read", {"uri": uri}, meta, uri)

        return await self._with_inputs("read_resource", types.ReadResourceResult, send)

    async def list_prompts(self, meta: dict[str, Any] | None = None) -> list[types.Prompt]:
        """
        List the prompts of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The prompts; none of a server without prompts.
        """
        pages = await self._listing("list_prompts", "prompts/list", types.ListPromptsResult, "prompts", meta)
        return [prompt for page in pages for prompt in page.prompts]

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

    @property
    def _has_skills(self) -> bool:
        return SKILLS_EXTENSION in (self._capabilities.extensions or {})

    async def list_skills(self, meta: dict[str, Any] | None = None) -> list[MCPSkill]:
        """
        List the skills of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The skills; none of a server that does not say that it has the extension.
        """

        async def fetch(cursor: str | None) -> dict[str, Any]:
            page = await self._request("skills/list", {} if cursor is None else {"cursor": cursor}, meta=meta)
            if not isinstance(page.get("skills"), list) or not isinstance(page.get("nextCursor"), str | None):
                msg = f"{failed_to('list_skills', self._describe())}: its answer is not as the extension wants it"
                raise MCPConnectionError(msg, self._server_info(), "list_skills")
            return page

        async def read() -> list[MCPSkill]:
            pages = await self._pages("list_skills", "skills", fetch) if self._has_skills else []
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
                if skill.uri != uri:
                    msg = "it is another one"
                    raise ValueError(msg)
            except ValueError as error:
                msg = f"{what}: {error}"
                raise MCPConnectionError(msg, self._server_info(), "get_skill") from None
            return skill

        return await self._read("get_skill", read)

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
        name = (params or {}).get(_NAMES.get(method, ""))
        return await self._read(
            method,
            lambda: self._request(method, params, name=name if isinstance(name, str) else None, meta=meta),
        )
