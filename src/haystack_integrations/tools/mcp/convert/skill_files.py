# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Reads descriptions of skills (the skills extension of the protocol), and checks the server's files against them.

https://github.com/modelcontextprotocol/ext-skills/blob/main/specification/stable/skills.mdx
"""

from __future__ import annotations

import base64
import hashlib
import mimetypes
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

import yaml
from haystack.dataclasses import ByteStream, FileContent, ImageContent

from haystack_integrations.tools.mcp.convert.resources import resource_streams
from haystack_integrations.tools.mcp.convert.server_texts import visible_text
from haystack_integrations.tools.mcp.errors import MCPSkillError
from haystack_integrations.tools.mcp.parameters import short_repr

if TYPE_CHECKING:
    import mcp_types as types

SKILLS_EXTENSION: Final = "io.modelcontextprotocol/skills"

_MAIN_FILE: Final = "SKILL.md"
_DIGEST: Final = re.compile(r"sha256:[0-9a-f]{64}")


@short_repr
@dataclass(frozen=True, slots=True)
class MCPSkillFile:
    """
    A server's description of one file of a skill.

    :param uri: Its URI.
    :param digest: SHA-256 of its bytes, as in "sha256:…".
    :param size: Its size in bytes.
    """

    uri: str
    digest: str
    size: int


@short_repr
@dataclass(frozen=True, slots=True)
class MCPSkill:
    """
    A server's description of a skill: instructions for a model, in a file `SKILL.md`, perhaps with further files.

    :param uri: URI of its `SKILL.md`.
    :param frontmatter: The YAML at the beginning of its `SKILL.md`: `name`, `description`, and any other fields that
        the author wrote.
    :param files: All its files, including `SKILL.md`. None if the server generates the contents on demand, so that they
        cannot be checked.
    """

    uri: str
    frontmatter: dict[str, Any]
    files: tuple[MCPSkillFile, ...] | None = None

    @property
    def name(self) -> str:
        """
        Its name. Another skill, even of the same server, may have the same name; only the URI is unique.
        """
        return str(self.frontmatter["name"])

    @property
    def description(self) -> str:
        """
        Its description, from which a model learns when to use it.
        """
        return str(self.frontmatter["description"])

    @property
    def paths(self) -> list[str]:
        """
        The sorted paths of its files besides `SKILL.md`; empty if they are not known.
        """
        folder = _folder(self.uri)
        return sorted(file.uri.removeprefix(folder) for file in self.files or () if file.uri != self.uri)


def read_skill(entry: Any) -> MCPSkill:
    """
    Parse a server's description of a skill.

    :param entry: An entry of `skills/list`, or the one of `skills/get`.
    :returns: The skill.
    :raises ValueError: If it does not follow the extension.
    """
    match entry:
        case {"uri": str(uri), "frontmatter": {"name": str(name), "description": str()} as frontmatter, **rest}:
            pass
        case _:
            msg = "it lacks a `uri`, or a `frontmatter` with `name` and `description`"
            raise ValueError(msg)
    if not uri.endswith(f"/{name}/{_MAIN_FILE}"):
        msg = f"its URI does not end in its name and {_MAIN_FILE}"
        raise ValueError(msg)
    resources = rest.get("resources")
    if not _is_one_visible_line(uri):
        msg = "its URI has invisible characters"
        raise ValueError(msg)
    if resources == "dynamic":
        return MCPSkill(uri, frontmatter)
    if not isinstance(resources, list):
        msg = "its `resources` are neither a list nor 'dynamic'"
        raise ValueError(msg)
    files = tuple(map(_read_file, resources))
    uris = [file.uri for file in files]
    if uri not in uris or len(set(uris)) < len(uris) or not all(one.startswith(_folder(uri)) for one in uris):
        msg = f"its `resources` lack its {_MAIN_FILE}, have a file twice, or have one that is not in its folder"
        raise ValueError(msg)
    return MCPSkill(uri, frontmatter, files)


def _read_file(resource: Any) -> MCPSkillFile:
    match resource:
        case {"uri": str(uri), "digest": str(digest), "size": int(size)} if _DIGEST.fullmatch(digest):
            if _is_one_visible_line(uri):
                return MCPSkillFile(uri, digest, size)
    msg = "one of its `resources` lacks a `uri` of visible characters, a SHA-256 `digest` or a `size`"
    raise ValueError(msg)


def _is_one_visible_line(uri: str) -> bool:
    # The model sees names and paths in lists, where one must not look like several.
    return uri.isprintable() and visible_text(uri) == uri


def _folder(uri: str) -> str:
    return uri.removesuffix(_MAIN_FILE)


def file_uri(skill: MCPSkill, path: str) -> str:
    """
    Return the URI of a file of a skill.

    :param skill: The skill.
    :param path: Path of the file in the folder of the skill.
    :returns: The URI.
    :raises MCPSkillError: If the skill has no such file.
    """
    # Instructions write blanks in the name of a file literally; its URI has them percent-encoded.
    uris = [_folder(skill.uri) + path, _folder(skill.uri) + quote(path)]
    known = uris if skill.files is None else [file.uri for file in skill.files]
    uri = next((each for each in uris if each in known), None)
    if uri is None or {"", ".", ".."} & set(path.split("/")):
        choices = f"It has {', '.join(skill.paths)}." if skill.paths else "It has no others."
        msg = f"Skill '{skill.name}' has no file '{path}' beside its {_MAIN_FILE}. {choices}"
        raise MCPSkillError(msg, skill.uri)
    return uri


def skills_by_name(skills: Iterable[MCPSkill]) -> dict[str, MCPSkill]:
    """
    Assign unique names to skills.

    :param skills: The skills of a server.
    :returns: The skills by name. Skills that share a name go by the paths of their folders, or else by their URIs.
    """
    by_uri = {skill.uri: skill for skill in skills}
    taken = Counter(name for skill in by_uri.values() for name in {skill.name, _path(skill)})
    return {
        next((name for name in (skill.name, _path(skill)) if taken[name] == 1), skill.uri): skill
        for skill in by_uri.values()
    }


def _path(skill: MCPSkill) -> str:
    return skill.uri.rpartition("://")[2].removesuffix(f"/{_MAIN_FILE}")


def readable_file(skill: MCPSkill, path: str, content: str | ByteStream) -> str | ImageContent | FileContent:
    """
    Convert a file of a skill to what a model can read.

    :param skill: The skill.
    :param path: Path of the file in the folder of the skill.
    :param content: The file: text, or bytes that may be text.
    :returns: Its text, or the image or PDF.
    :raises ValueError: If it is neither text nor an image nor a PDF.
    """
    if isinstance(content, str):
        return content
    mime_type = content.mime_type
    if mime_type in (None, "application/octet-stream"):
        mime_type = mimetypes.guess_type(path)[0]
    if mime_type == "application/pdf":
        return FileContent(_base64(content), mime_type, filename=path.rpartition("/")[2])
    if mime_type is not None and mime_type.startswith("image/"):
        return ImageContent(_base64(content), mime_type)
    try:
        return content.data.decode()
    except UnicodeDecodeError:
        msg = f"File '{path}' of skill '{skill.name}' is neither text nor an image or a PDF."
        raise ValueError(msg) from None


def _base64(content: ByteStream) -> str:
    return base64.b64encode(content.data).decode()


def checked_file(skill: MCPSkill, uri: str, result: types.ReadResourceResult) -> str | ByteStream:
    """
    Check a file of a skill against the server's description of it.

    :param skill: The skill.
    :param uri: URI of the file.
    :param result: The contents that the server sent.
    :returns: The file: its text, or a ByteStream if it is not text.
    :raises MCPSkillError: If it is not the file that was described.
    """
    if len(result.contents) != 1:
        raise _mismatch(skill, uri, f"the server sent {len(result.contents)} files in place of one")
    try:
        [stream] = resource_streams(result)
    except ValueError as error:
        raise _mismatch(skill, uri, str(error)) from None
    for file in skill.files or ():
        if file.uri == uri and file.size != len(stream.data):
            raise _mismatch(skill, uri, f"it has {len(stream.data)} bytes, not {file.size}")
        if file.uri == uri and file.digest != f"sha256:{hashlib.sha256(stream.data).hexdigest()}":
            raise _mismatch(skill, uri, "its SHA-256 differs")
    text: str | None = getattr(result.contents[0], "text", None)
    return stream if text is None else text


def checked_instructions(skill: MCPSkill, result: types.ReadResourceResult) -> str:
    """
    Check the `SKILL.md` of a skill against the server's description of it.

    :param skill: The skill.
    :param result: The contents that the server sent.
    :returns: The text after the YAML.
    :raises MCPSkillError: If it is not the file that was described.
    """
    text = checked_file(skill, skill.uri, result)
    if not isinstance(text, str):
        try:
            text = text.data.decode()
        except UnicodeDecodeError:
            raise _mismatch(skill, skill.uri, "it is not text") from None
    lines = text.removeprefix("\ufeff").splitlines(keepends=True)
    marks = [number for number, line in enumerate(lines) if line.rstrip() == "---"]
    if not marks or marks[0] != 0 or len(marks) == 1:
        raise _mismatch(skill, skill.uri, "it does not begin with YAML between two lines '---'")
    header = "".join(lines[1 : marks[1]])
    if not _says(header, skill.frontmatter):
        raise _mismatch(skill, skill.uri, "its YAML says something else")
    return "".join(lines[marks[1] + 1 :]).lstrip("\r\n")


def _mismatch(skill: MCPSkill, uri: str, what: str) -> MCPSkillError:
    msg = (
        f"The file '{uri.removeprefix(_folder(skill.uri))}' of skill '{skill.name}' is not what the server's list of "
        f"skills says: {what}. If the skill was changed since, list the skills again."
    )
    return MCPSkillError(msg, skill.uri)


def _says(header: str, frontmatter: dict[str, Any]) -> bool:
    """
    Return whether YAML has the values of the server's list.
    """
    try:
        # All scalars are read as texts, because the server may have parsed them as YAML 1.1 or 1.2.
        return _is_same(yaml.load(header, yaml.BaseLoader), frontmatter)  # noqa: S506 - it constructs no objects
    except (yaml.YAMLError, ValueError, RecursionError):
        return False


def _is_same(value: Any, expected: Any) -> bool:
    """
    Compare YAML with JSON. The time is bounded by the size of the JSON, however often aliases repeat parts of the YAML.
    """
    if isinstance(expected, dict):
        is_alike = isinstance(value, dict) and value.keys() == expected.keys()
        return is_alike and all(_is_same(value[key], each) for key, each in expected.items())
    if isinstance(expected, list):
        return isinstance(value, list) and len(value) == len(expected) and all(map(_is_same, value, expected))
    return isinstance(value, str) and (value == expected or yaml.safe_load(value) == expected)
