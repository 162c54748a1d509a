# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`MCPSkillStore`: the skills of an MCP server for Haystack's `SkillToolset`.
"""

from __future__ import annotations

from typing import Any

from haystack.core.serialization import default_to_dict
from haystack.dataclasses import FileContent, ImageContent

from haystack_integrations.tools.mcp.convert.server_texts import visible_text
from haystack_integrations.tools.mcp.convert.skill_files import (
    MCPSkill,
    MCPSkillFile,
    file_uri,
    readable_file,
    skills_by_name,
)
from haystack_integrations.tools.mcp.errors import MCPSkillError
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.haystack_compat import SkillInfo
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.tool_base import ReaderBase

__all__ = ["MCPSkill", "MCPSkillFile", "MCPSkillStore"]


class MCPSkillStore(ReaderBase):
    """
    The skills of an MCP server as a `SkillStore` for Haystack's `SkillToolset`. It needs Haystack 3.

    A model sees the names and descriptions of all skills. The instructions and files of a skill are read when the model
    asks for them, and checked against the server's list of skills. A server without the skills extension has no skills.

    ### Usage example

    ```python
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIResponsesChatGenerator
    from haystack.tools import SkillToolset
    from haystack_integrations.tools.mcp import MCPToolset
    from haystack_integrations.tools.mcp.skill_store import MCPSkillStore

    server = "https://mcp.example.com/mcp"
    agent = Agent(
        chat_generator=OpenAIResponsesChatGenerator(),
        tools=[MCPToolset(server), SkillToolset(MCPSkillStore(server))],  # they share a session
    )
    ```
    """

    def __init__(
        self,
        server_info: MCPServerInfo | Any,
        *,
        connection_timeout: float = 30.0,
        invocation_timeout: float | None = 30.0,
        share: bool = True,
        handlers: MCPHandlers | None = None,
    ) -> None:
        """
        Initialize the skill store. Nothing is opened yet.

        :param server_info: How to reach the server: a server info, or the shorthand that `server_info_from` takes.
        :param connection_timeout: Timeout in seconds for connecting.
        :param invocation_timeout: Timeout in seconds for listing the skills, and for reading a file. None for 300.
        :param share: Whether to share the connection with all other objects that have an equal `server_info`.
        :param handlers: Handlers for the server's requests; see MCPHandlers. A connection is shared only by objects
            with the same handlers.
        :raises ImportError: If this Haystack has no skill stores.
        :raises ValueError: If a parameter is invalid.
        """
        if SkillInfo is None:
            msg = (
                "MCPSkillStore needs the skill stores of Haystack 3, which this version of Haystack does not have. "
                "`list_skills` and `load_skill` of MCPConnection and MCPToolset work with every version"
            )
            raise ImportError(msg)
        self._connect_to(
            server_info,
            connection_timeout=connection_timeout,
            invocation_timeout=invocation_timeout,
            share=share,
            handlers=handlers,
        )
        # The skills of the last listing, by the names that the model sees.
        self._skills: dict[str, MCPSkill] | None = None

    def list_skills(self) -> dict[str, Any]:
        """
        List the current skills of the server. No file of a skill is read.

        Skills that share a name are named by the paths of their folders, as in `team/refunds`.

        :returns: A Haystack `SkillInfo` for each skill, by name.
        :raises MCPConnectionError: If the request fails.
        """
        skills = self._skills = skills_by_name(self._connection.list_skills())
        # Each description is one line, so that it cannot look like another skill.
        return {
            name: SkillInfo(name, " ".join(visible_text(skill.description).split())) for name, skill in skills.items()
        }

    def load_skill(self, name: str) -> tuple[str, list[str]]:
        """
        Read the instructions of a skill.

        :param name: Name of the skill, as in `list_skills`.
        :returns: The text of its `SKILL.md` after the YAML, and the paths of its other files.
        :raises KeyError: If there is no such skill.
        :raises MCPSkillError: If the file differs from its description in the last listing. If the skill was changed
            since, list the skills again; a `SkillToolset` does so after it was closed.
        :raises MCPConnectionError: If the file cannot be read.
        """
        skill = self._skill(name)
        return visible_text(self._connection.load_skill(skill)), skill.paths

    def read_skill_file(self, name: str, path: str) -> str | ImageContent | FileContent:
        """
        Read another file of a skill.

        :param name: Name of the skill, as in `list_skills`.
        :param path: Path of the file in the folder of the skill.
        :returns: The text of the file; an ImageContent or FileContent if it is an image or a PDF.
        :raises KeyError: If there is no such skill.
        :raises FileNotFoundError: If the skill has no such file.
        :raises ValueError: If the file is neither text nor an image or a PDF.
        :raises MCPSkillError: As `load_skill`.
        :raises MCPConnectionError: As `load_skill`.
        """
        skill = self._skill(name)
        try:
            file_uri(skill, path)
        except MCPSkillError as error:
            raise FileNotFoundError(error.message) from None
        return readable_file(skill, path, self._connection.read_skill_file(skill, path))

    def _skill(self, name: str) -> MCPSkill:
        if self._skills is None:
            self.list_skills()
        skills = self._skills or {}
        if name not in skills:
            msg = f"Unknown skill '{name}'. Available skills: {', '.join(skills) or 'none'}."
            raise KeyError(msg)
        return skills[name]

    def _forget(self) -> None:
        self._skills = None

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the store to a dictionary.

        :returns: A dictionary in the format of Haystack's components.
        """
        stored: dict[str, Any] = default_to_dict(self, **self._stored_parameters(MCPSkillStore))
        return stored
