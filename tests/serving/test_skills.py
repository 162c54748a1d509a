# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import base64
import logging
from types import SimpleNamespace
from typing import Any

import pytest
from fastmcp import Client
from haystack.dataclasses import FileContent, ImageContent
from mcp import MCPError

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPConnection, MCPConnectionError
from haystack_integrations.tools.mcp.haystack_compat import SkillInfo
from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from haystack_integrations.tools.mcp.skill_store import MCPSkillStore

PNG = b"\x89PNG\r\n"
PDF = b"%PDF-1.7"


class Store:
    """
    A custom skill store: any object with the methods of Haystack's protocol.
    """

    def __init__(self, **skills: str) -> None:
        self.skills = {name.replace("_", "-"): description for name, description in skills.items()}
        self.files: dict[str, Any] = {"notes/usage.md": "Use it well."}
        self.events: list[str] = []

    def warm_up(self) -> None:
        self.events.append("warm")

    def close(self) -> None:
        self.events.append("closed")

    def list_skills(self) -> dict[str, Any]:
        return {name: SimpleNamespace(name=name, description=text) for name, text in self.skills.items()}

    def load_skill(self, name: str) -> tuple[str, list[str]]:
        return f"How to {name}.", sorted(self.files)

    def read_skill_file(self, name: str, path: str) -> Any:
        return self.files[path]


def connection_to(skills: Any) -> MCPConnection:
    return MCPConnection(InProcessServerInfo(create_mcp_server("Skills", skills=skills)))


def test_our_own_client_finds_and_reads_skills() -> None:
    store = Store(tidy="Tidies up: everything", cook_well="Cooks")
    store.files["photo.png"] = ImageContent(base64_image=base64.b64encode(PNG).decode(), mime_type="image/png")
    store.files["form.pdf"] = FileContent(base64_data=base64.b64encode(PDF).decode(), mime_type="application/pdf")
    with connection_to(store) as connection:
        tidy, cook = connection.list_skills()
        assert (tidy.name, tidy.description, tidy.uri) == ("tidy", "Tidies up: everything", "skill://tidy/SKILL.md")
        assert cook.name == "cook-well"
        assert connection.get_skill(tidy.uri) == tidy
        assert connection.load_skill(tidy).strip() == "How to tidy."
        # The client checks the digests.
        contents = [connection.read_skill_file(tidy, path) for path in tidy.paths]
    assert tidy.paths == ["form.pdf", "notes/usage.md", "photo.png"]
    assert [getattr(each, "data", each) for each in contents] == [PDF, "Use it well.", PNG]
    assert store.events == ["warm", "closed"]


async def test_skills_and_the_files_that_they_list_are_resources_for_clients_without_the_extension() -> None:
    store = Store(tidy="Tidies up")
    async with Client(create_mcp_server("Skills", skills=[store])) as client:
        [resource] = await client.list_resources()
        assert (resource.uri, resource.name, resource.description) == ("skill://tidy/SKILL.md", "tidy", "Tidies up")
        [main] = await client.read_resource("skill://tidy/SKILL.md")
        assert main.text == "---\nname: tidy\ndescription: Tidies up\n---\n\nHow to tidy."
        assert main.mime_type == "text/markdown"
        [template] = await client.list_resource_templates()
        assert template.uri_template == "skill://{path*}"
        [notes] = await client.read_resource("skill://tidy/notes/usage.md")
        assert notes.text == "Use it well."
        # Another skill in the folder of the first one, which is added later.
        store.skills["tidy/up"] = "Tidies upstairs"
        assert [each.name for each in await client.list_resources()] == ["tidy", "tidy/up"]
        assert (await client.read_resource("skill://tidy/up/notes/usage.md"))[0].text == "Use it well."
        for path in ("tidy/nothing.md", "nothing/SKILL.md", "tidy", "tidy/../../etc/passwd", "tidy/%2Fetc%2Fpasswd"):
            with pytest.raises(MCPError, match="Resource not found") as caught:
                await client.read_resource(f"skill://{path}")
            assert caught.value.code == -32602


def test_skills_that_are_gone_or_that_the_protocol_cannot_express_are_omitted_with_a_warning(
    caplog: pytest.LogCaptureFixture,
) -> None:
    class Large(Store):
        def load_skill(self, name: str) -> tuple[str, list[str]]:
            if name == "gone":
                raise FileNotFoundError("No such file: gone/SKILL.md")
            return "text", [f"{number}.md" for number in range(600 if name == "large" else 1)]

        def read_skill_file(self, name: str, path: str) -> Any:
            return "x" * (17 * 1024 * 1024 if name == "heavy" else 1)

    first, second = Large(good="Good", large="Large", heavy="Heavy", gone="Was removed"), Store(good="Another")
    first.skills["Not Allowed"] = "Has a blank"
    with caplog.at_level(logging.WARNING), connection_to([first, second]) as connection:
        assert [(skill.name, skill.description) for skill in connection.list_skills()] == [("good", "Good")]
    reasons = (
        "more than 512 files",
        "more than 16777216 bytes",
        "lowercase letters",
        "another store has",
        "No such file",
    )
    for reason in reasons:
        assert reason in caplog.text


def test_a_file_is_found_by_its_name_in_the_instructions() -> None:
    store = Store(tidy="Tidies")
    store.files["two wörds.md"] = "Both of them."
    with connection_to(store) as connection:
        [skill] = connection.list_skills()
        for path in ("two wörds.md", *skill.paths[1:]):
            assert connection.read_skill_file(skill, path) == "Both of them."


def test_a_file_that_the_store_cannot_read_is_omitted_from_its_skill(caplog: pytest.LogCaptureFixture) -> None:
    class Picky(Store):
        def read_skill_file(self, name: str, path: str) -> Any:
            if path == "font.ttf":
                raise ValueError("not a readable asset")
            return super().read_skill_file(name, path)

    store = Picky(tidy="Tidies")
    store.files["font.ttf"] = b""
    with connection_to(store) as connection:
        [skill] = connection.list_skills()
        assert skill.paths == ["notes/usage.md"]
    assert "'tidy/font.ttf' is not served: not a readable asset" in caplog.text


def test_a_skill_and_its_files_are_hidden_from_clients_that_may_not_see_it() -> None:
    options = {"secret": ServeOptions(scopes=["admin"]), "open": ServeOptions(title="Open to all")}
    store = Store(open="Open", secret="Secret")
    server = create_mcp_server("Skills", skills=store, options=options)
    server.disable(names={"skill://hidden/SKILL.md"})
    store.skills["hidden"] = "Hidden"
    with MCPConnection(InProcessServerInfo(server)) as connection:
        assert [skill.name for skill in connection.list_skills()] == ["open"]
        for name in ("secret", "hidden", "unknown"):
            with pytest.raises(MCPConnectionError, match="There is no such skill"):
                connection.get_skill(f"skill://{name}/SKILL.md")
        for uri in ("skill://secret/SKILL.md", "skill://secret/notes/usage.md", "skill://hidden/notes/usage.md"):
            with pytest.raises(Exception, match="Resource not found"):
                connection.read_resource(uri)
        assert connection.read_resource("skill://open/notes/usage.md")
        server.enable(names={"skill://hidden/SKILL.md"})
        assert connection.read_resource("skill://hidden/notes/usage.md")


@pytest.mark.skipif(SkillInfo is None, reason="Haystack 2 has no skill stores")
def test_skills_of_a_served_store_can_be_served_again() -> None:
    store = MCPSkillStore(InProcessServerInfo(create_mcp_server("Skills", skills=Store(tidy="Tidies"))))
    with connection_to(store) as connection:
        [skill] = connection.list_skills()
        assert connection.load_skill(skill).strip() == "How to tidy."
        assert connection.read_skill_file(skill, "notes/usage.md") == "Use it well."
