# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from haystack import logging
from mcp import MCPError as ProtocolError
from mcp import types
from pydantic import TypeAdapter

from haystack_integrations.tools.mcp.concurrency import MAX_ITEMS, MAX_TOOLS
from haystack_integrations.tools.mcp.convert.skills import SKILLS_EXTENSION, MCPSkill, read_skill
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.protocol.base import MCPClient
from haystack_integrations.tools.mcp.protocol.error_texts import failed_to

if TYPE_CHECKING:
    import mcp
    from mcp.client.caching import CacheMode

    from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

logger: logging.PatchedLogger = logging.getLogger(__name__)

# A server that pages for longer than this is broken: 5,000 tools, the most ever seen, are 50 pages of 100.
_MAX_PAGES = 1_000

_RAW_RESULT: TypeAdapter[dict[str, Any]] = TypeAdapter(dict[str, Any])


class _Page(Protocol):
    @property
    def next_cursor(self) -> str | None: ...


T = TypeVar("T")
PageT = TypeVar("PageT", bound=_Page)


@dataclass(frozen=True)
class _SkillPage:
    entries: list[Any]
    next_cursor: str | None


class _RawRequest(types.Request[dict[str, Any] | None, str]):
    """A request of which the SDK knows nothing but its method."""


class ReadingClient(MCPClient):
    """
    What a client on top of the MCP SDK reads beside tools: resources, prompts, completions, and answers to any request.
    """

    @abstractmethod
    def _describe(self) -> str:
        """Name the server in messages."""

    @abstractmethod
    def _server_info(self) -> MCPServerInfo | None:
        """Give the server info for errors."""

    @abstractmethod
    async def _read(self, operation: str, read: Callable[[mcp.Client], Awaitable[T]]) -> T:
        """
        Read something of the connected server.

        :param operation: What that is, for errors.
        :param read: Does it.
        :returns: Its result.
        :raises ReadInterruptedError: If the connection broke meanwhile.
        :raises MCPConnectionError: If it fails otherwise.
        """

    async def _pages(self, operation: str, things: str, fetch: Callable[[str | None], Awaitable[PageT]]) -> list[PageT]:
        """
        Read all pages of a listing. Of one that repeats itself, or has no end, those are read that came before.

        :param operation: What is done, for errors.
        :param things: What is listed, for messages.
        :param fetch: Reads the page at a cursor.
        :returns: The pages; none of a server that does not know the request.
        :raises MCPConnectionError: If the first page is too large.
        """
        pages: list[PageT] = []
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
                raise
            items = max((each for each in vars(page).values() if isinstance(each, list)), key=len, default=[])
            count += len(items)
            if count > limit and not pages:
                msg = f"{self._describe()} has more than {limit:,} {things}"
                raise MCPConnectionError(msg, self._server_info(), operation)
            if count > limit:
                return self._cut_off(pages, things, f"it has more than {limit:,}")
            if items and items in listed:
                return self._cut_off(pages, things, "it repeats a page")
            pages.append(page)
            listed.append(items)
            cursor = page.next_cursor
            if not cursor:
                return pages
            if cursor in cursors:
                return self._cut_off(pages, things, "it repeats a cursor")
            if len(pages) == _MAX_PAGES:
                return self._cut_off(pages, things, f"it has more than {_MAX_PAGES:,} pages")

    def _cut_off(self, pages: list[PageT], things: str, reason: str) -> list[PageT]:
        logger.warning(
            "The listing of the {things} of {server} does not end as it should: {reason}. What came before is used",
            things=things,
            server=self._describe(),
            reason=reason,
        )
        return pages

    async def _kept_pages(
        self, operation: str, things: str, fetch: Callable[[str | None, CacheMode], Awaitable[PageT]]
    ) -> list[PageT]:
        """
        Read all pages of a listing, the first one from the cache as long as the server allows it.

        :param operation: What is done, for errors.
        :param things: What is listed, for errors.
        :param fetch: Reads the page at a cursor.
        :returns: The pages; none of a server that does not know the request.
        :raises MCPConnectionError: If the first page is too large.
        """
        try:
            return await self._pages(operation, things, lambda cursor: fetch(cursor, "use"))
        except ProtocolError as error:
            if error.code != types.INVALID_PARAMS:
                raise
            # The cursor of a page that was kept may not hold any more.
            return await self._pages(operation, things, lambda cursor: fetch(cursor, "refresh"))

    async def list_resources(self, meta: dict[str, Any] | None = None) -> list[types.Resource]:
        """
        List the resources of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The resources; none of a server without resources.
        """

        async def read(sdk: mcp.Client) -> list[types.Resource]:
            if sdk.server_capabilities.resources is None:
                return []
            pages = await self._kept_pages(
                "list_resources",
                "resources",
                lambda cursor, mode: sdk.list_resources(cursor=cursor, meta=_meta(meta), cache_mode=mode),
            )
            return [resource for page in pages for resource in page.resources]

        return await self._read("list_resources", read)

    async def list_resource_templates(self, meta: dict[str, Any] | None = None) -> list[types.ResourceTemplate]:
        """
        List the resource templates of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The templates; none of a server without resources.
        """

        async def read(sdk: mcp.Client) -> list[types.ResourceTemplate]:
            if sdk.server_capabilities.resources is None:
                return []
            pages = await self._kept_pages(
                "list_resource_templates",
                "resource templates",
                lambda cursor, mode: sdk.list_resource_templates(cursor=cursor, meta=_meta(meta), cache_mode=mode),
            )
            return [template for page in pages for template in page.resource_templates]

        return await self._read("list_resource_templates", read)

    async def read_resource(self, uri: str, meta: dict[str, Any] | None = None) -> types.ReadResourceResult:
        """
        Read a resource.

        :param uri: Its URI.
        :param meta: The `_meta` of the request.
        :returns: Its contents.
        """
        return await self._read("read_resource", lambda sdk: sdk.read_resource(uri, meta=_meta(meta)))

    async def list_prompts(self, meta: dict[str, Any] | None = None) -> list[types.Prompt]:
        """
        List the prompts of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The prompts; none of a server without prompts.
        """

        async def read(sdk: mcp.Client) -> list[types.Prompt]:
            if sdk.server_capabilities.prompts is None:
                return []
            pages = await self._kept_pages(
                "list_prompts",
                "prompts",
                lambda cursor, mode: sdk.list_prompts(cursor=cursor, meta=_meta(meta), cache_mode=mode),
            )
            return [prompt for page in pages for prompt in page.prompts]

        return await self._read("list_prompts", read)

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
        return await self._read("get_prompt", lambda sdk: sdk.get_prompt(name, arguments, meta=_meta(meta)))

    async def list_skills(self, meta: dict[str, Any] | None = None) -> list[MCPSkill]:
        """
        List the skills of the server, all pages of them.

        :param meta: The `_meta` of the requests.
        :returns: The skills; none of a server that does not say that it has the extension.
        """

        async def read(sdk: mcp.Client) -> list[MCPSkill]:
            if not _has_skills(sdk):
                return []

            async def fetch(cursor: str | None) -> _SkillPage:
                result = await _send(sdk, "skills/list", {"cursor": cursor} if cursor else {}, meta)
                entries, following = result.get("skills"), result.get("nextCursor")
                if not isinstance(entries, list) or not isinstance(following, str | None):
                    msg = f"{failed_to('list_skills', self._describe())}: its answer is not as the extension wants it"
                    raise MCPConnectionError(msg, self._server_info(), "list_skills")
                return _SkillPage(entries, following)

            pages = await self._pages("list_skills", "skills", fetch)
            return [skill for page in pages for entry in page.entries if (skill := self._usable(entry)) is not None]

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

        async def read(sdk: mcp.Client) -> MCPSkill:
            what = failed_to("get_skill", self._describe())
            if not _has_skills(sdk):
                msg = f"{what}: it does not have the extension {SKILLS_EXTENSION}"
                raise MCPConnectionError(msg, self._server_info(), "get_skill")
            result = await _send(sdk, "skills/get", {"uri": uri}, meta)
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
        params = types.CompleteRequestParams(
            ref=ref,
            argument=types.CompletionArgument(**argument),
            context=types.CompletionContext(arguments=context) if context is not None else None,
            _meta=_meta(meta),
        )
        request = types.CompleteRequest(params=params)
        result = await self._read("complete", lambda sdk: sdk.session.send_request(request, types.CompleteResult))
        return result.completion

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
        return await self._read(method, lambda sdk: _send(sdk, method, params, meta))


async def _send(
    sdk: mcp.Client, method: str, params: dict[str, Any] | None, meta: dict[str, Any] | None
) -> dict[str, Any]:
    if meta is not None:
        params = {**(params or {}), "_meta": {**(params or {}).get("_meta", {}), **meta}}
    request = _RawRequest(method=method, params=params)
    # The SDK validates with any adapter, whatever its annotation says.
    return await sdk.session.send_request(request, _RAW_RESULT)  # type: ignore[type-var]


def _has_skills(sdk: mcp.Client) -> bool:
    return SKILLS_EXTENSION in (sdk.server_capabilities.extensions or {})


def _meta(meta: dict[str, Any] | None) -> types.RequestParamsMeta | None:
    # An open map for the SDK, too, which mypy does not know of a TypedDict.
    return meta  # type: ignore[return-value]
