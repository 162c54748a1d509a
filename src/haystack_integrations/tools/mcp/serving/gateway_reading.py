# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves the resources and prompts of other MCP servers.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, TypeVar

from fastmcp.exceptions import PromptError, ResourceError
from fastmcp.prompts.base import Message, Prompt, PromptArgument, PromptResult
from fastmcp.resources.base import Resource, ResourceContent, ResourceResult
from fastmcp.resources.template import ResourceTemplate
from haystack import logging
from mcp import UriTemplate, types
from pydantic import AnyUrl, PrivateAttr

from haystack_integrations.tools.mcp.errors import MCPError
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.serving.changes import Unsubscribe

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# Which capability a server has that offers it.
_RESOURCES, _PROMPTS = "resources", "prompts"
# Expressions that FastMCP does not know.
_OPERATOR = re.compile(r"\{[+#./;&]")


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
    _parsed: UriTemplate | None = PrivateAttr(default=None)

    def matches(self, uri: str) -> dict[str, Any] | None:
        """
        Tell whether the template may give a URI, also with operators as in `{+path}`, which FastMCP does not know.

        :param uri: The URI.
        :returns: What stands for the variables, for FastMCP to look for hostile paths in it; None if it does not match.
        """
        # FastMCP 4.2 takes an operator for a part of the name, and refuses the path from the root that it stands for.
        known = None if _OPERATOR.search(self.uri_template) else super().matches(uri)
        if known is not None or self._parsed is None:
            return known
        found = self._parsed.match(uri)
        # A path from the root is what `{+path}` is for. What leads out of it is still refused.
        return (
            None
            if found is None
            else {
                name: "/".join([value] if isinstance(value, str) else value).lstrip("/")
                for name, value in found.items()
            }
        )

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
    _remote_name: str = PrivateAttr()

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        """
        Get the prompt.

        :param arguments: Its arguments.
        :returns: The messages.
        :raises PromptError: If the other server does not give it.
        """
        try:
            result = await self._toolset.get_prompt_async(self._remote_name, arguments)
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
        self._unwatch: Unsubscribe | None = None

    def watch(self, changed: Callable[[Any], None]) -> None:
        """
        Tell somebody when the server says that it has other resources or prompts, until `unwatch`.

        :param changed: Called with the list, `"resources"` or `"prompts"`, in any thread.
        """
        if self._unwatch is None:
            self._unwatch = self._toolset.on_list_change(changed, ("resources", "prompts"))

    def unwatch(self) -> None:
        """
        Tell nobody any more.
        """
        if self._unwatch is not None:
            self._unwatch()
            self._unwatch = None

    async def resources(self) -> list[Resource]:
        """
        List the resources.

        :returns: The resources; none if the server cannot be reached.
        """
        return [self._resource(each) for each in await self._list(_RESOURCES, self._toolset.list_resources_async)]

    async def resource(self, uri: str) -> Resource | None:
        """
        Find a resource by its URI: one that is listed, or one that the server has linked to in a result.

        :param uri: The URI.
        :returns: The resource; None if the server has said nothing of it.
        """
        listed = next((each for each in await self.resources() if str(each.uri) == uri), None)
        if listed is not None or not self._toolset.connection._was_given(uri):
            return listed
        resource = _RemoteResource(uri=AnyUrl(uri), name=uri)
        resource._toolset = self._toolset
        return resource

    async def templates(self) -> list[ResourceTemplate]:
        """
        List the templates of resources.

        :returns: The templates; none if the server cannot be reached.
        """
        listed = await self._list(_RESOURCES, self._toolset.list_resource_templates_async)
        return [self._template(each) for each in listed]

    async def prompts(self) -> list[_RemotePrompt]:
        """
        List the prompts. They have the prefix that the tools of the toolset have.

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
        remote_names = {each.name: each._remote_name for each in await self.prompts()}
        if reference in remote_names:
            named = types.PromptReference(type="ref/prompt", name=remote_names[reference])
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
        try:
            template._parsed = UriTemplate.parse(listed.uri_template)
        except ValueError:
            logger.debug("The URI template {template} can be read by nobody", template=repr(listed.uri_template))
        return template

    def _prompt(self, listed: types.Prompt) -> _RemotePrompt:
        arguments = [
            PromptArgument(name=each.name, description=each.description, required=bool(each.required))
            for each in listed.arguments or []
        ]
        # As its tools are, so that two servers may have a prompt of the same name.
        prefix = self._toolset.tool_name_prefix
        name = f"{prefix}_{listed.name}" if prefix else listed.name
        prompt = _RemotePrompt(**{**_common(listed), "name": name}, arguments=arguments)
        prompt._toolset, prompt._remote_name = self._toolset, listed.name
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
