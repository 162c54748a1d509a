# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The skills of a server for Haystack's SkillToolset.
"""

import asyncio
import base64
import importlib.util

import pytest
import yaml
from haystack.dataclasses import FileContent, ImageContent

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPHandlers
from haystack_integrations.tools.mcp.errors import MCPSkillError
from haystack_integrations.tools.mcp.handlers import decline
from haystack_integrations.tools.mcp.skill_store import MCPSkillStore
from tests.servers.counter_server import PNG
from tests.support.executors import agent_of, results_of, run
from tests.support.rows import rows
from tests.support.scripted_chat import call, say
from tests.support.skill_server import FILES, SkillServer

HAS_SKILL_STORES = importlib.util.find_spec("haystack.skill_stores") is not None
if HAS_SKILL_STORES:
    from haystack.tools import SkillToolset
with_skill_stores = pytest.mark.skipif(not HAS_SKILL_STORES, reason="skill stores came with Haystack 3")

OTHER_COOK = "---\nname: cook\ndescription: Cook\n---\nFry it.\n"


@pytest.mark.skipif(HAS_SKILL_STORES, reason="skill stores came with Haystack 3")
def test_a_haystack_without_skill_stores_is_an_error_that_names_the_alternative() -> None:
    with pytest.raises(ImportError, match=r"needs the skill stores of Haystack 3.* `list_skills` and `load_skill`"):
        MCPSkillStore(SkillServer().info)


@with_skill_stores
class TestSkillStore:
    @rows("is_async", False, True)
    def test_an_agent_loads_a_skill_and_reads_its_files_on_demand(self, is_async: bool) -> None:
        server = SkillServer()
        skills = SkillToolset(MCPSkillStore(server.info))
        assert server.requests == []
        replies = [
            call("load_skill", name="tidy"),
            call("read_skill_file", name="tidy", path="desk.md"),
            call("read_skill_file", name="tidy", path="../../etc/passwd"),
            call("load_skill", name="sweep"),
            say("done"),
        ]
        agent = agent_of([skills], *replies)
        result = run(agent, is_async=is_async)
        skills.close()
        specs = {spec["name"]: spec["description"] for spec in agent.chat_generator.turns[0].tool_specs}
        assert specs["load_skill"].endswith("Available skills:\n- tidy: Tidy up\n- cook: Cook")
        loaded, read, outside, unknown = (each.result for each in results_of(result))
        assert loaded.startswith("First the desk.\n")
        assert "- desk.md" in loaded
        assert read == "Throw it all away."
        assert "has no file '../../etc/passwd'" in outside
        assert "Unknown skill 'sweep'. Available skills: tidy, cook." in unknown
        # The skills were listed once, in two pages, and only the requested files were read.
        assert server.requests == ["skills/list"] * 2 + ["skill://tidy/SKILL.md", "skill://tidy/desk.md"]

    def test_a_file_that_changed_is_refused_until_the_skills_are_listed_again(self) -> None:
        server = SkillServer()
        store = MCPSkillStore(server.info)
        toolset = SkillToolset(store)
        toolset.warm_up()
        server.files["skill://tidy/desk.md"] = "Keep everything."
        with pytest.raises(MCPSkillError, match="list the skills again"):
            store.read_skill_file("tidy", "desk.md")
        toolset.close()
        toolset.warm_up()
        assert store.read_skill_file("tidy", "desk.md") == "Keep everything."
        toolset.close()

    def test_skills_with_the_same_name_are_distinguished_by_their_folders(self) -> None:
        files = {
            **FILES,
            "skill://cook/SKILL.md": OTHER_COOK,
            "skill://acme/tidy/SKILL.md": FILES["skill://tidy/SKILL.md"],
        }
        with MCPSkillStore(SkillServer(files).info) as store:
            listed = store.list_skills()
            assert set(listed) == {"skill://tidy/SKILL.md", "acme/tidy", "acme/cook", "skill://cook/SKILL.md"}
            assert listed["acme/cook"].name == "acme/cook"
            assert store.load_skill("acme/cook")[0] == "Boil it.\n"
            assert store.load_skill("skill://cook/SKILL.md")[0] == "Fry it.\n"

    def test_files_are_returned_in_a_form_that_a_model_can_read(self) -> None:
        folder = "skill://acme/cook/"
        files = {
            **FILES,
            f"{folder}photo": PNG,
            f"{folder}book.pdf": b"%PDF-1.4 ...",
            f"{folder}salt.txt": "Salz für alle".encode(),
            f"{folder}taste.bin": b"\xff\xfe\x00",
        }
        with MCPSkillStore(SkillServer(files).info) as store:
            photo = store.read_skill_file("cook", "photo")
            assert isinstance(photo, ImageContent)
            assert (photo.mime_type, base64.b64decode(photo.base64_image)) == ("image/png", PNG)
            book = store.read_skill_file("cook", "book.pdf")
            assert isinstance(book, FileContent)
            assert (book.mime_type, book.filename) == ("application/pdf", "book.pdf")
            assert store.read_skill_file("cook", "salt.txt") == "Salz für alle"
            with pytest.raises(ValueError, match=r"'taste\.bin' of skill 'cook' is neither text nor an image"):
                store.read_skill_file("cook", "taste.bin")
            with pytest.raises(FileNotFoundError, match=r"It has book\.pdf, photo, salt\.txt, taste\.bin"):
                store.read_skill_file("cook", "pepper.txt")

    def test_a_skill_toolset_is_stored_and_loaded_without_connecting(self) -> None:
        info = InProcessServerInfo("tests.support.skill_server:server")
        store = MCPSkillStore(info, invocation_timeout=5, handlers=MCPHandlers(elicitation=decline))
        stored = yaml.safe_dump(SkillToolset(store).to_dict())
        loaded = SkillToolset.from_dict(yaml.safe_load(stored))
        assert yaml.safe_dump(loaded.to_dict()) == stored
        assert "tests.support.skill_server:server" in stored
        connection = loaded._store.connection
        assert connection.status().state == "idle"
        assert (connection.invocation_timeout, connection.handlers) == (5, MCPHandlers(elicitation=decline))
        try:
            assert set(loaded.skills) == {"tidy", "cook"}
        finally:
            loaded.close()

    async def test_a_server_without_the_extension_has_no_skills(self) -> None:
        async with MCPSkillStore(SkillServer(has_extension=False).info) as store:
            assert store.connection.is_ready
            assert await asyncio.to_thread(store.list_skills) == {}
            with pytest.raises(KeyError, match="Available skills: none"):
                await asyncio.to_thread(store.load_skill, "tidy")
        assert store.connection.status().state == "closed"
