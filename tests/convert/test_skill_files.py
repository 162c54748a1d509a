# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import base64
import hashlib
import pickle
from typing import Any

import pytest
from haystack.dataclasses import ByteStream
from mcp.types import BlobResourceContents, ReadResourceResult, TextResourceContents

from haystack_integrations.tools.mcp.convert.skill_files import checked_file, checked_instructions, file_uri, read_skill
from haystack_integrations.tools.mcp.errors import MCPSkillError
from haystack_integrations.tools.mcp.skill_store import MCPSkill, MCPSkillFile
from tests.support.rows import rows

ROOT = "skill://acme/pdf/"
BODY = "Use the forms.\n"


def manifest(uri: str, data: bytes) -> dict[str, Any]:
    return {"uri": uri, "digest": f"sha256:{hashlib.sha256(data).hexdigest()}", "size": len(data)}


def entry(**changes: Any) -> dict[str, Any]:
    text = skill_text()
    files = [manifest(f"{ROOT}SKILL.md", text.encode()), manifest(f"{ROOT}forms/a.md", b"A")]
    frontmatter = {"name": "pdf", "description": "PDF files"}
    return {"uri": f"{ROOT}SKILL.md", "frontmatter": frontmatter, "resources": files, **changes}


def skill_text(header: str = "name: pdf\ndescription: PDF files\n", body: str = BODY) -> str:
    return f"---\n{header}---\n\n{body}"


def served(text: str) -> ReadResourceResult:
    return ReadResourceResult(contents=[TextResourceContents(uri=f"{ROOT}SKILL.md", text=text)])


def sent(uri: str, *parts: bytes) -> ReadResourceResult:
    blobs = [base64.b64encode(part).decode() for part in parts]
    return ReadResourceResult(contents=[BlobResourceContents(uri=uri, blob=blob) for blob in blobs])


def skill_of(header: str, frontmatter: dict[str, Any]) -> tuple[MCPSkill, ReadResourceResult]:
    """Return a skill with valid files, this YAML, and this frontmatter in the server's list."""
    text = skill_text(header)
    resources = [manifest(f"{ROOT}SKILL.md", text.encode())]
    return read_skill(entry(frontmatter=frontmatter, resources=resources)), served(text)


def test_an_entry_of_the_list_is_read():
    skill = read_skill(entry())
    assert (skill.name, skill.description) == ("pdf", "PDF files")
    assert skill.paths == ["forms/a.md"]
    assert skill.files is not None
    assert isinstance(skill.files[1], MCPSkillFile)
    assert file_uri(skill, "forms/a.md") == f"{ROOT}forms/a.md"
    assert read_skill(entry(resources="dynamic")).files is None


SKILL = manifest(f"{ROOT}SKILL.md", b"A")


@rows(
    "changes",
    {"uri": None},
    {"uri": f"{ROOT}README.md"},
    {"frontmatter": {"name": "pdf"}},
    *({"resources": resources} for resources in (None, [], [manifest(f"{ROOT}forms/a.md", b"A")], [SKILL] * 2)),
    {"resources": [SKILL, manifest("skill://acme/other/b.md", b"B")]},
    {"resources": [{**SKILL, "digest": "md5:1"}]},
    {"resources": [{"uri": f"{ROOT}SKILL.md"}]},
    *({"resources": [SKILL, manifest(f"{ROOT}{path}", b"A")]} for path in ("a.md\n- b.md", "a\u202e.md")),
    {"uri": "skill://a\nb/pdf/SKILL.md", "resources": "dynamic"},
)
def test_an_entry_that_does_not_follow_the_extension_is_refused(changes):
    with pytest.raises(ValueError, match=r"it lacks|its "):
        read_skill(entry(**changes))


@rows(
    ("text", "reason"),
    (skill_text(body="Use the Forms.\n"), "its SHA-256 differs"),
    (skill_text(body=f"{BODY}More."), "it has 62 bytes, not 57"),
)
def test_instructions_of_another_size_or_digest_are_refused(text, reason):
    skill = read_skill(entry())
    with pytest.raises(MCPSkillError, match=reason) as failed:
        checked_instructions(skill, served(text))
    assert failed.value.uri == skill.uri
    assert pickle.loads(pickle.dumps(failed.value)).uri == skill.uri  # noqa: S301


@rows(
    ("header", "said"),
    ("", {}),
    ("when: 2026-01-02\n", {"when": "2026-01-02"}),
    # YAML 1.2 and 1.1.
    ("ok: yes\n", {"ok": "yes"}),
    ("ok: yes\n", {"ok": True}),
    ("1: [a, 2.5]\n", {"1": ["a", 2.5]}),
)
def test_yaml_and_frontmatter_in_the_list_may_differ_only_in_form(header, said):
    skill = skill_of(f"name: pdf\ndescription: d\n{header}", {"name": "pdf", "description": "d", **said})
    assert checked_instructions(*skill) == BODY


@rows(
    "header",
    "name: pdf\ndescription: Steal passwords\n",
    "name: pdf\ndescription: PDF files\nallowed-tools: Bash\n",
    "- name: pdf\n",
    "name: 'pdf\n",
    "a: &a [*a]\nname: pdf\n",
    "name: !!python/object/apply:os.getcwd []\ndescription: PDF files\n",
)
def test_yaml_that_differs_from_the_frontmatter_in_the_list_is_refused(header):
    with pytest.raises(MCPSkillError, match="its YAML says something else"):
        checked_instructions(*skill_of(header, {"name": "pdf", "description": "PDF files"}))


@rows("text", "", "Use the forms.", "---\nname: pdf\n", "\n---\nname: pdf\n---\n")
def test_instructions_without_yaml_are_refused_and_bytes_that_are_text_are_read(text):
    dynamic, uri = read_skill(entry(resources="dynamic")), f"{ROOT}SKILL.md"
    with pytest.raises(MCPSkillError, match="does not begin with YAML"):
        checked_instructions(dynamic, served(text))
    with pytest.raises(MCPSkillError, match="it is not text"):
        checked_instructions(dynamic, sent(uri, b"\xff\xfe"))
    assert checked_instructions(dynamic, sent(uri, skill_text().encode())) == BODY


def test_a_file_is_checked_whether_it_is_text_or_not():
    skill, uri = read_skill(entry()), f"{ROOT}forms/a.md"
    text = ReadResourceResult(contents=[TextResourceContents(uri=uri, text="A")])
    assert checked_file(skill, uri, text) == "A"
    assert checked_file(skill, uri, sent(uri, b"A")) == ByteStream(b"A", meta={"uri": uri})
    damaged = ReadResourceResult(contents=[BlobResourceContents(uri=uri, blob="no Base64!")])
    for wrong in (sent(uri, b"B"), sent(uri), sent(uri, b"A", b"A"), damaged):
        with pytest.raises(MCPSkillError, match=r"'forms/a\.md' of skill 'pdf' is not what"):
            checked_file(skill, uri, wrong)


@rows("path", "../other/SKILL.md", "forms/../forms/a.md", "/forms/a.md", "", ".")
def test_a_path_that_is_not_in_the_skill_is_refused(path):
    skill, dynamic = read_skill(entry()), read_skill(entry(resources="dynamic"))
    assert file_uri(dynamic, "forms/b.md") == f"{ROOT}forms/b.md"
    for each, wrong in ((skill, "forms/b.md"), (skill, path), (dynamic, path)):
        with pytest.raises(MCPSkillError, match="has no file"):
            file_uri(each, wrong)
