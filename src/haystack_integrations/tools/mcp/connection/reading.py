# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The methods of connections and toolsets that read resources, prompts and skills.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from haystack.dataclasses import ByteStream

from haystack_integrations.tools.mcp.connection.context_managed import UsesRunner, asynchronous, blocking
from haystack_integrations.tools.mcp.convert.skill_files import MCPSkill, checked_file, checked_instructions, file_uri
from haystack_integrations.tools.mcp.request_context import meta_of_call

if TYPE_CHECKING:
    import mcp_types as types


class Reading(UsesRunner):
    """
    Reads what a server offers beside tools: resources, prompts, skills, completions, and results of other requests.

    If the connection breaks meanwhile, reads are repeated.
    """

    @property
    def implementation(self) -> types.Implementation | None:
        """
        The server's name and version; None without an open session, or if the server does not give them.
        """
        details = self._runner._details()
        return details.implementation if details else None

    @property
    def capabilities(self) -> dict[str, Any] | None:
        """
        The capabilities of the server, as in the protocol; None without an open session.
        """
        details = self._runner._details()
        return details.capabilities if details else None

    @property
    def instructions(self) -> str | None:
        """
        The server's own instructions for its use; None without an open session, or if the server has none.

        They are third-party text of any length. `instructions_for_model` prepares them for a model.
        """
        details = self._runner._details()
        return details.instructions if details else None

    async def _list_resources(self, *, meta: dict[str, Any] | None = None) -> list[types.Resource]:
        """
        List the resources of the server, all pages of them.

        A listing that the server allows caching is not requested again until it expires.

        :param meta: The `_meta` of the request, for servers that use it.
        :returns: The resources; empty for a server without resources.
        :raises MCPConnectionError: If that fails; with the server's `code` and `data`, if it answered with an error.
        """
        return await self._runner._ask("list_resources", lambda client: client.list_resources(meta_of_call(meta)))

    list_resources: Final = blocking(_list_resources)
    list_resources_async: Final = asynchronous(_list_resources)

    async def _list_resource_templates(self, *, meta: dict[str, Any] | None = None) -> list[types.ResourceTemplate]:
        """
        List the resource templates of the server, all pages of them.

        A listing that the server allows caching is not requested again until it expires.

        :param meta: The `_meta` of the request, for servers that use it.
        :returns: The templates; empty for a server without resources.
        :raises MCPConnectionError: If that fails; with the server's `code` and `data`, if it answered with an error.
        """
        return await self._runner._ask(
            "list_resource_templates", lambda client: client.list_resource_templates(meta_of_call(meta))
        )

    list_resource_templates: Final = blocking(_list_resource_templates)
    list_resource_templates_async: Final = asynchronous(_list_resource_templates)

    async def _read_resource(
        self, resource: str | types.Resource, *, meta: dict[str, Any] | None = None
    ) -> types.ReadResourceResult:
        """
        Read a resource.

        A result that the server allows caching is not requested again until it expires.

        :param resource: Its URI, or its entry from `list_resources`.
        :param meta: The `_meta` of the request, for servers that use it.
        :returns: Its contents. `resource_contents` and `resource_streams` convert them for Haystack.
        :raises MCPConnectionError: If that fails; with the server's `code` and `data`, if it answered with an error.
        :raises ValueError: If `resource` is neither.
        """
        uri = uri_of(resource)
        return await self._runner._ask("read_resource", lambda client: client.read_resource(uri, meta_of_call(meta)))

    read_resource: Final = blocking(_read_resource)
    read_resource_async: Final = asynchronous(_read_resource)

    async def _list_prompts(self, *, meta: dict[str, Any] | None = None) -> list[types.Prompt]:
        """
        List the prompts of the server, all pages of them.

        A listing that the server allows caching is not requested again until it expires.

        :param meta: The `_meta` of the request, for servers that use it.
        :returns: The prompts; empty for a server without prompts.
        :raises MCPConnectionError: If that fails; with the server's `code` and `data`, if it answered with an error.
        """
        return await self._runner._ask("list_prompts", lambda client: client.list_prompts(meta_of_call(meta)))

    list_prompts: Final = blocking(_list_prompts)
    list_prompts_async: Final = asynchronous(_list_prompts)

    async def _get_prompt(
        self, name: str, arguments: dict[str, str] | None = None, *, meta: dict[str, Any] | None = None
    ) -> types.GetPromptResult:
        """
        Get a prompt.

        :param name: Its name.
        :param arguments: Its arguments; the protocol has strings only.
        :param meta: The `_meta` of the request, for servers that use it.
        :returns: Its messages. `prompt_messages` converts them for Haystack.
        :raises MCPConnectionError: If that fails; with the server's `code` and `data`, if it answered with an error.
        :raises ValueError: If an argument is not a string.
        """
        if not all(isinstance(value, str) for value in (arguments or {}).values()):
            msg = "`arguments` must be a dictionary of strings: the protocol has no other arguments of prompts"
            raise ValueError(msg)
        return await self._runner._ask(
            "get_prompt", lambda client: client.get_prompt(name, arguments, meta_of_call(meta))
        )

    get_prompt: Final = blocking(_get_prompt)
    get_prompt_async: Final = asynchronous(_get_prompt)

    async def _list_skills(self, *, meta: dict[str, Any] | None = None) -> list[MCPSkill]:
        """
        List the current skills of the server, all pages of them. No file of a skill is read.

        :param meta: The `_meta` of the request, for servers that use it.
        :returns: The skills; empty for a server without the skills extension. A server need not list all its skills.
        :raises MCPConnectionError: If that fails; with the server's `code` and `data`, if it answered with an error.
        """
        return await self._runner._ask("list_skills", lambda client: client.list_skills(meta_of_call(meta)))

    list_skills: Final = blocking(_list_skills)
    list_skills_async: Final = asynchronous(_list_skills)

    async def _get_skill(self, uri: str, *, meta: dict[str, Any] | None = None) -> MCPSkill:
        """
        Get the current description of a skill from the server. No file of the skill is read.

        :param uri: URI of the skill's `SKILL.md`.
        :param meta: The `_meta` of the request, for servers that use it.
        :returns: The skill.
        :raises MCPConnectionError: If that fails; with the server's `code` and `data`, if it answered with an error.
        """
        return await self._runner._ask("get_skill", lambda client: client.get_skill(uri, meta_of_call(meta)))

    get_skill: Final = blocking(_get_skill)
    get_skill_async: Final = asynchronous(_get_skill)

    async def _load_skill(self, skill: MCPSkill, *, meta: dict[str, Any] | None = None) -> str:
        """
        Read the instructions of a skill, and check their size, digest and YAML against the server's description of it.

        :param skill: The skill.
        :param meta: The `_meta` of the request, for servers that use it.
        :returns: The text of its `SKILL.md` after the YAML.
        :raises MCPSkillError: If the file does not match the description.
        :raises MCPConnectionError: If the file cannot be read.
        """
        return checked_instructions(skill, await self._read_fresh(skill.uri, meta))

    load_skill: Final = blocking(_load_skill)
    load_skill_async: Final = asynchronous(_load_skill)

    async def _read_skill_file(
        self, skill: MCPSkill, path: str, *, meta: dict[str, Any] | None = None
    ) -> str | ByteStream:
        """
        Read another file of a skill, and check its size and digest against the server's description of the skill.

        :param skill: The skill.
        :param path: Path of the file in the folder of the skill, one of `skill.paths`.
        :param meta: The `_meta` of the request, for servers that use it.
        :returns: The text of the file, or a ByteStream for a binary file.
        :raises MCPSkillError: If the skill has no such file, or the file does not match the description.
        :raises MCPConnectionError: If the file cannot be read.
        """
        uri = file_uri(skill, path)
        return checked_file(skill, uri, await self._read_fresh(uri, meta))

    read_skill_file: Final = blocking(_read_skill_file)
    read_skill_file_async: Final = asynchronous(_read_skill_file)

    async def _complete(
        self,
        ref: types.Prompt | types.ResourceTemplate | types.PromptReference | types.ResourceTemplateReference,
        argument: dict[str, str],
        context: dict[str, str] | None = None,
        *,
        meta: dict[str, Any] | None = None,
    ) -> types.Completion:
        """
        Ask for completions of an argument of a prompt or of a resource template.

        :param ref: The prompt or the template from a listing, or a reference to one.
        :param argument: The argument with its value so far, as in `{"name": "language", "value": "py"}`.
        :param context: The values of other arguments so far, by their names.
        :param meta: The `_meta` of the request, for servers that use it.
        :returns: The completions, in `values`.
        :raises MCPConnectionError: If that fails; with the server's `code` and `data`, if it answered with an error.
        :raises ValueError: If `ref` is something else.
        """
        reference = _reference(ref)
        return await self._runner._ask(
            "complete", lambda client: client.complete(reference, argument, context, meta_of_call(meta))
        )

    complete: Final = blocking(_complete)
    complete_async: Final = asynchronous(_complete)

    async def _request(
        self,
        method: str,
        params: dict[str, Any] | None = None,
        *,
        meta: dict[str, Any] | None = None,
        may_repeat: bool = False,
    ) -> dict[str, Any]:
        """
        Send a request of any method, e.g. one of an extension of the protocol.

        :param method: The method.
        :param params: Its parameters.
        :param meta: The `_meta` of the request, for servers that use it.
        :param may_repeat: Whether the server may get the request twice without harm, so that it may be sent again after
            the connection broke.
        :returns: The result as it came.
        :raises MCPConnectionError: If that fails; with the server's `code` and `data`, if it answered with an error.
        """
        return await self._runner._ask(
            method, lambda client: client.request(method, params, meta_of_call(meta)), may_repeat=may_repeat
        )

    request: Final = blocking(_request)
    request_async: Final = asynchronous(_request)

    async def _read_fresh(self, uri: str, meta: dict[str, Any] | None) -> types.ReadResourceResult:
        # A `meta`, even an empty one, bypasses the cache, which may be older than the description of the skill.
        return await self._runner._ask(
            "read_resource", lambda client: client.read_resource(uri, meta_of_call(meta) or {})
        )


def uri_of(resource: str | types.Resource) -> str:
    """
    Return the URI of a resource.

    :param resource: Its URI, or its entry in a list of resources.
    :returns: The URI.
    :raises ValueError: If it is neither.
    """
    uri = resource if isinstance(resource, str) else getattr(resource, "uri", None)
    if not isinstance(uri, str) or not uri:
        msg = f"`resource` must be a URI or a Resource, got {type(resource).__name__}"
        raise ValueError(msg)
    return uri


def _reference(
    ref: types.Prompt | types.ResourceTemplate | types.PromptReference | types.ResourceTemplateReference,
) -> types.PromptReference | types.ResourceTemplateReference:
    import mcp_types as types  # noqa: PLC0415 - the import is slow, and a caller who has a `ref` has done it already

    match ref:
        case types.PromptReference() | types.ResourceTemplateReference():
            return ref
        case types.Prompt(name=name):
            return types.PromptReference(name=name)
        case types.ResourceTemplate(uri_template=uri):
            return types.ResourceTemplateReference(uri=uri)
    msg = (
        "`ref` must be a Prompt, a ResourceTemplate, a PromptReference or a ResourceTemplateReference, got "
        f"{type(ref).__name__}"
    )
    raise ValueError(msg)
