# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves skill stores of Haystack 3 with the skills extension of the protocol.

`skills/list` and `skills/get` return skills with the digests of their files. The files are resources:
`skill://NAME/SKILL.md`, `skill://NAME/any/other.md`.
"""

from __future__ import annotations

import base64
import hashlib
import mimetypes
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import yaml
from fastmcp.resources import Resource, ResourceContent, ResourceResult
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.context import Context
from fastmcp.server.dependencies import get_context
from fastmcp.server.extensions import MethodBinding, ServerExtension
from fastmcp.skills import GetSkillResult, ListSkillsResult, SkillFrontmatter, SkillResource, models
from fastmcp.skills.models import GetSkillParams, ListSkillsParams
from haystack import logging
from haystack.dataclasses import FileContent, ImageContent
from mcp import MCPError, types
from pydantic import ValidationError

from haystack_integrations.tools.mcp.convert.skill_files import SKILLS_EXTENSION
from haystack_integrations.tools.mcp.serving.calls import CallPool, ReadRunner, UnknownNameError
from haystack_integrations.tools.mcp.serving.sources import NamedOptions, ServeOptions, Source, check_methods

logger: logging.PatchedLogger = logging.getLogger(__name__)

# FastMCP 4.1 calls it `Skill`, a name that later versions use for another class.
_Skill: Any = getattr(models, "MCPSkill", None) or models.Skill

_MAIN_FILE = "SKILL.md"
_URI_TEMPLATE = "skill://{path*}"
_NEEDED_METHODS = ("list_skills", "load_skill", "read_skill_file")
# The limits of the extension for one skill.
_MAX_FILES, _MAX_BYTES = 512, 16 * 1024 * 1024


def skill_sources(skills: Any, *, options: NamedOptions, pool: CallPool) -> Iterator[Source]:
    """
    Serve the skills of skill stores.

    :param skills: A skill store, or a list of them.
    :param options: Options by the names of skills: `title`, `tags`, `icons`, `meta` and `scopes`.
    :param pool: The pool for reads.
    :returns: One source, because a skill may be in the folder of another one, and a name in two stores.
    :raises ValueError: If something is not a skill store.
    """
    stores = list(skills) if isinstance(skills, list | tuple) else [skills]
    for store in stores:
        check_methods("skills", store, "a skill store of Haystack 3, or a list of them", _NEEDED_METHODS)
    yield SkillSource(stores, options, pool)


class SkillSource(Source):
    """
    Serves the skills of skill stores.
    """

    may_change = True

    def __init__(self, stores: list[Any], options: NamedOptions, pool: CallPool) -> None:
        """
        Initialize the SkillSource. See `skill_sources`.
        """
        super().__init__(parts=stores)
        self.extensions: Sequence[ServerExtension] = [_Skills(self)]
        self._options = options
        self._reads = ReadRunner("Reading a skill", ServeOptions(), pool)
        self._warned_of: set[str] = set()
        self._template = ResourceTemplate.from_function(
            self._read, _URI_TEMPLATE, name="skill_file", description="A file of a skill, by its path in the folder."
        )

    async def list_resources(self) -> Sequence[Resource]:
        """
        List the instructions of each skill.

        :returns: The resources.
        """
        return [self._resource(skill) for skill in (await self._reads.run(self._skills)).values()]

    async def list_resource_templates(self) -> Sequence[ResourceTemplate]:
        """
        List the template for reading the files of skills.

        :returns: The template.
        """
        return [self._template]

    async def entries(self, uri: str | None = None) -> list[Any]:
        """
        Describe skills with the digests of their files.

        :param uri: The URI of one skill's instructions; None for all skills.
        :returns: The skills, including the ones that a client may not see.
        """

        def described() -> list[Any]:
            wanted = [each for each in self._skills().values() if uri in (None, each.uri)]
            return [entry for entry in map(self._entry, wanted) if entry is not None]

        return await self._reads.run(described)

    def _skills(self) -> dict[str, _StoredSkill]:
        """
        Return the current skills of all stores.
        """
        skills: dict[str, _StoredSkill] = {}
        for store in self.parts:
            for name, info in store.list_skills().items():
                if name in skills:
                    self._warn_once(name, "another store has a skill of this name")
                else:
                    skills[name] = _StoredSkill(store, name, info.description)
        return skills

    def _resource(self, skill: _StoredSkill) -> Resource:
        async def read() -> ResourceResult:
            return await self._reads.run(skill.read, _MAIN_FILE)

        options = self._options.of(skill.name)
        shown = {"name": skill.name, "description": skill.description, **options.of_component()}
        return Resource.from_function(read, skill.uri, **shown, mime_type="text/markdown")

    async def _read(self, path: str) -> ResourceResult:
        skills = await self._reads.run(self._skills)
        # A skill may be in the folder of another one.
        found = [each for name, each in skills.items() if path.startswith(f"{name}/")]
        skill = max(found, key=lambda each: len(each.name), default=None)
        # A client that may not see a skill may not read its files, whatever hides the skill.
        if skill is None or await get_context().fastmcp.get_resource(skill.uri) is None:
            msg = "There is no such skill"
            raise UnknownNameError(msg)
        return await self._reads.run(skill.read, path.removeprefix(f"{skill.name}/"))

    def _entry(self, skill: _StoredSkill) -> Any | None:
        try:
            return skill.entry(self._warn_once)
        except Exception as error:  # any error, such as a missing file, as other skills can still be described
            reasons = error.errors() if isinstance(error, ValidationError) else []
            self._warn_once(skill.name, "; ".join(str(each["msg"]) for each in reasons) or str(error))
            return None

    def _warn_once(self, name: str, reason: str) -> None:
        if name not in self._warned_of:
            self._warned_of.add(name)
            logger.warning("Skill '{skill}' is not served: {reason}", skill=name, reason=reason)


@dataclass(frozen=True)
class _StoredSkill:
    """
    One skill in a store.
    """

    store: Any
    name: str
    description: str

    @property
    def uri(self) -> str:
        return self._uri(_MAIN_FILE)

    def _uri(self, path: str) -> str:
        return f"skill://{quote(self.name)}/{quote(path)}"

    def entry(self, warn_of: Callable[[str, str], None]) -> Any:
        """
        Describe the skill with all its files, which are read for that. Files that the store cannot read are left out.
        """
        _, paths = self.store.load_skill(self.name)
        if len(paths) >= _MAX_FILES:
            msg = f"it has more than {_MAX_FILES} files"
            raise ValueError(msg)
        resources, size = [], 0
        for path in (_MAIN_FILE, *paths):
            try:
                content = self._content(path).content
            except ValueError as error:  # Haystack's own store raises it for files other than texts, images and PDFs
                if path == _MAIN_FILE:
                    raise
                warn_of(f"{self.name}/{path}", str(error))
                continue
            data = content.encode() if isinstance(content, str) else content
            size += len(data)
            if size > _MAX_BYTES:
                msg = f"its files have more than {_MAX_BYTES} bytes"
                raise ValueError(msg)
            digest = f"sha256:{hashlib.sha256(data).hexdigest()}"
            resources.append(SkillResource(uri=self._uri(path), digest=digest, size=len(data)))
        return _Skill(uri=self.uri, frontmatter=SkillFrontmatter(self._frontmatter), resources=resources)

    def read(self, path: str) -> ResourceResult:
        """
        Read a file of the skill.

        :raises UnknownNameError: If the store does not list it.
        """
        if path != _MAIN_FILE and path not in self.store.load_skill(self.name)[1]:
            msg = "The skill has no such file"
            raise UnknownNameError(msg)
        return ResourceResult([self._content(path)])

    @property
    def _frontmatter(self) -> dict[str, Any]:
        # The name may begin with a folder, by which a store distinguishes several skills of one name.
        return {"name": self.name.rpartition("/")[2], "description": self.description}

    def _content(self, path: str) -> ResourceContent:
        if path == _MAIN_FILE:
            body, _ = self.store.load_skill(self.name)
            frontmatter = yaml.safe_dump(self._frontmatter, sort_keys=False, allow_unicode=True)
            return ResourceContent(f"---\n{frontmatter}---\n\n{body}", mime_type="text/markdown")
        content = self.store.read_skill_file(self.name, path)
        if isinstance(content, ImageContent):
            return ResourceContent(base64.b64decode(content.base64_image), mime_type=content.mime_type)
        if isinstance(content, FileContent):
            return ResourceContent(base64.b64decode(content.base64_data), mime_type=content.mime_type)
        return ResourceContent(content, mime_type=mimetypes.guess_type(path)[0] or "text/plain")


class _Skills(ServerExtension):
    """
    The methods of the skills extension.
    """

    identifier = SKILLS_EXTENSION
    auto_register = True

    def __init__(self, source: SkillSource) -> None:
        self._source = source

    def clone(self) -> ServerExtension:
        return _Skills(self._source)

    def methods(self) -> Sequence[MethodBinding]:
        return [
            MethodBinding(method="skills/list", params_type=ListSkillsParams, handler=self._list),
            MethodBinding(method="skills/get", params_type=GetSkillParams, handler=self._get),
        ]

    async def _list(self, _request: Any, _parameters: ListSkillsParams) -> ListSkillsResult:
        found = await self._source.entries()
        async with Context(fastmcp=self.server):
            shown = [each for each in found if await self.server.get_resource(each.uri) is not None]
        return ListSkillsResult(skills=shown)

    async def _get(self, _request: Any, parameters: GetSkillParams) -> GetSkillResult:
        async with Context(fastmcp=self.server):
            is_shown = await self.server.get_resource(parameters.uri) is not None
        entries = await self._source.entries(parameters.uri) if is_shown else []
        if not entries:
            raise MCPError(types.INVALID_PARAMS, "There is no such skill", {"uri": parameters.uri})
        return GetSkillResult(skill=entries[0])
