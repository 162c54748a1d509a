# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Skills of servers that have the extension for them.
"""

import pytest
from mcp import types

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError, MCPToolset
from tests.support.skill_server import SkillServer


def test_skills_are_listed_without_reading_a_file_and_read_when_they_are_wanted(caplog):
    server = SkillServer()
    with MCPToolset(server.info) as toolset:
        tidy, cook = toolset.list_skills()
        assert [tidy.name, cook.name] == ["tidy", "cook"]
        assert "Left out skill 'skill://broken/SKILL.md'" in caplog.text
        assert server.requests == ["skills/list"] * 2
        assert toolset.load_skill(tidy) == "First the desk.\n"
        assert toolset.read_skill_file(tidy, "desk.md") == "Throw it all away."
        assert server.requests[2:] == ["skill://tidy/SKILL.md", "skill://tidy/desk.md"]


async def test_skills_are_read_asynchronously():
    async with MCPConnection(SkillServer().info) as connection:
        [tidy, _] = await connection.list_skills_async()
        assert await connection.get_skill_async(tidy.uri) == tidy
        assert await connection.load_skill_async(tidy) == "First the desk.\n"
        assert await connection.read_skill_file_async(tidy, "desk.md") == "Throw it all away."


def test_a_skill_that_is_not_known_is_an_error_and_a_server_without_the_extension_is_not_asked():
    with MCPConnection(SkillServer().info) as connection:
        with pytest.raises(MCPConnectionError, match=r"`get_skill` of .*no such skill") as failed:
            connection.get_skill("skill://nothing/SKILL.md")
        assert failed.value.code == types.INVALID_PARAMS
    server = SkillServer(has_extension=False)
    with MCPConnection(server.info) as connection:
        assert connection.list_skills() == []
        with pytest.raises(MCPConnectionError, match="does not have the extension"):
            connection.get_skill("skill://tidy/SKILL.md")
    assert server.requests == []
