# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves the resources and prompts of other MCP servers.
"""

from __future__ import annotations

from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from fastmcp.exceptions import PromptError, ResourceError
from fastmcp.prompts.base import Message, Prompt, PromptArgument, PromptResult
from fastmcp.resources.base import Resource, ResourceContent, ResourceResult
from fastmcp.resources.template import ResourceTemplate
from haystack import logging
from mcp import types
from pydantic import AnyUrl, PrivateAttr

from haystack_integrations.tools.mcp.errors import MCPError
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# Which capability a server has that offers it.
_RESOURCES, _PROMPTS = "resources", "prompts"


class _RemoteResource(Resource):
    _toolset: MCPToolset = PrivateAttr()

    async def read(self) -> ResourceResult:
        """
        Read the resource.

        :returns: Its contents.
        :raises ResourceError: If the other server does not give it.
        """
        return await _read(self._toolset, str(self.uri))


class _RemoteTemplate(ResourceTemplate):
    _toolset: MCPToolset = PrivateAttr()

    async def create_resource(self, uri: str, params: dict[str, Any]) -> Resource:  # noqa: ARG002
        """
        Make the resource of a URI.

        :param uri: The URI.
        :param params: The parameters in it.
        :returns: The resource.
        """
        resource = _RemoteResource(uri=AnyUrl(uri), name=self.name, mime_type=self.mime_type)
        resource._toolset = self._toolset
        return resource


class _RemotePrompt(Prompt):
    _toolset: MCPToolset = PrivateAttr()

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        """
        Get the prompt.

        :param arguments: Its arguments.
        :returns: The messages.
        :raises PromptError: If the other server does not give it.
        """
        try:
            result = await self._toolset.get_prompt_async(self.name, arguments)
        except MCPError as error:
            msg = f"The server behind prompt '{self.name}' did not give it."
            raise PromptError(msg) from error
        messages = [Message(each.content, role=each.role) for each in result.messages]
        return PromptResult(messages, description=result.description)


class ForwardedReading:
    """
    The resources and prompts of one other server, as they are now.
    """

    def __init__(self, toolset: MCPToolset) -> None:
        """
        Initialize the ForwardedReading.

        :param toolset: The toolset of the server.
        """
        self._toolset = toolset

    async def resources(self) -> list[Resource]:
        """
        List the resources.

        :returns: The resources; none if the server cannot be reached.
        """
        return [self._resource(each) for each in await self._list(_RESOURCES, self._toolset.list_resources_async)]

    async def templates(self) -> list[ResourceTemplate]:
        """
        List the templates of resources.

        :returns: The templates; none if the server cannot be reached.
        """
        listed = await self._list(_RESOURCES, self._toolset.list_resource_templates_async)
        return [self._template(each) for each in listed]

    async def prompts(self) -> list[Prompt]:
        """
        List the prompts.

        :returns: The prompts; none if the server cannot be reached.
        """
        return [self._prompt(each) for each in await self._list(_PROMPTS, self._toolset.list_prompts_async)]

    async def complete(
        self, reference: str, argument: str, value: str, known: Mapping[str, str]
    ) -> Sequence[str] | None:
        """
        Complete an argument of a prompt or template.

        :param reference: The name of the prompt, or the URI template.
        :param argument: The name of the argument.
        :param value: What was typed so far.
        :param known: The other arguments that are known.
        :returns: Values; None if it is nothing of this server, or it completes nothing.
        """
        if "completions" not in (self._toolset.capabilities or {}):
            return None
        named: types.PromptReference | types.ResourceTemplateReference
        if any(reference == each.name for each in await self.prompts()):
            named = types.PromptReference(type="ref/prompt", name=reference)
        elif any(reference == each.uri_template for each in await self.templates()):
            named = types.ResourceTemplateReference(type="ref/resource", uri=reference)
        else:
            return None
        try:
            argument_so_far = {"name": argument, "value": value}
            completion = await self._toolset.complete_async(named, argument_so_far, dict(known))
        except MCPError as error:
            self._log(error)
            return None
        return completion.values

    async def _list(self, capability: str, listing: Callable[[], Awaitable[list[T]]]) -> list[T]:
        if capability not in (self._toolset.capabilities or {}):
            return []
        try:
            return await listing()
        except MCPError as error:
            self._log(error)
            return []

    def _log(self, error: MCPError) -> None:
        logger.warning("Another server's resources and prompts cannot be served: {error}", error=str(error))

    def _resource(self, listed: types.Resource) -> Resource:
        resource = _RemoteResource(
            uri=AnyUrl(listed.uri),
            **_common(listed),
            mime_type=listed.mime_type or "text/plain",
            annotations=listed.annotations,
        )
        resource._toolset = self._toolset
        return resource

    def _template(self, listed: types.ResourceTemplate) -> ResourceTemplate:
        template = _RemoteTemplate(
            uri_template=listed.uri_template,
            **_common(listed),
            mime_type=listed.mime_type or "text/plain",
            parameters={},
            annotations=listed.annotations,
        )
        template._toolset = self._toolset
        return template

    def _prompt(self, listed: types.Prompt) -> Prompt:
        arguments = [
            PromptArgument(name=each.name, description=each.description, required=bool(each.required))
            for each in listed.arguments or []
        ]
        prompt = _RemotePrompt(**_common(listed), arguments=arguments)
        prompt._toolset = self._toolset
        return prompt


def _common(listed: types.Resource | types.ResourceTemplate | types.Prompt) -> dict[str, Any]:
    return {"name": listed.name, "title": listed.title, "description": listed.description, "icons": listed.icons}


async def _read(toolset: MCPToolset, uri: str) -> ResourceResult:
    try:
        result = await toolset.read_resource_async(uri)
    except MCPError as error:
        msg = f"The server behind resource '{uri}' did not give it."
        raise ResourceError(msg) from error
    return ResourceResult([_content(each) for each in result.contents])


def _content(contents: types.TextResourceContents | types.BlobResourceContents) -> ResourceContent:
    if isinstance(contents, types.BlobResourceContents):
        return ResourceContent(b64decode(contents.blob), mime_type=contents.mime_type)
    return ResourceContent(contents.text, mime_type=contents.mime_type)
