# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A skill store as an MCP server (Haystack 3), and a SkillToolset that uses it as a client.

Without arguments, both run in this process. With `--stdio`, it serves an MCP client:

    python examples/serve_skills.py --stdio
"""

import sys
from pathlib import Path

from haystack_integrations.tools.mcp import InProcessServerInfo
from haystack_integrations.tools.mcp.serving import create_mcp_server, run_server
from haystack_integrations.tools.mcp.skill_store import MCPSkillStore

try:
    from haystack.skill_stores.file_system import FileSystemSkillStore
    from haystack.tools import SkillToolset
except ImportError:
    FileSystemSkillStore = None

SKILLS = Path(__file__).parent / "skills"


def main() -> None:
    if FileSystemSkillStore is None:
        print("This example needs Haystack 3: Haystack 2 has no skill stores.")
        return
    server = create_mcp_server("skills", skills=FileSystemSkillStore(SKILLS))
    if "--stdio" in sys.argv:
        run_server(server)
        return
    store = MCPSkillStore(InProcessServerInfo(server))
    try:
        toolset = SkillToolset(store)
        toolset.warm_up()
        print([tool.name for tool in toolset])
        for name, info in store.list_skills().items():
            instructions, files = store.load_skill(name)
            print(f"{name}: {info.description}")
            print(instructions.strip(), files)
            print(store.read_skill_file(name, files[0]).strip())
    finally:
        store.close()


if __name__ == "__main__":
    main()
