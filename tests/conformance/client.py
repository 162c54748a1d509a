# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The client that the official conformance suite tests, written with the public names of this package only:

    MCP_CONFORMANCE_SCENARIO=tools_call python client.py http://localhost:1234/mcp

The suite starts it once for each of its scenarios, and looks at what its server got.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any

from haystack_integrations.tools.mcp import (
    MCPHandlers,
    MCPToolset,
    StreamableHttpServerInfo,
    accept_defaults,
    prompt_messages,
    resource_contents,
)

# What the tools of the suite are called with, where they want something.
ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}


def call_every_tool(toolset: MCPToolset) -> None:
    for tool in toolset:
        tool.invoke(**ARGUMENTS.get(tool.name, {}))


def use_everything(toolset: MCPToolset) -> None:
    call_every_tool(toolset)
    for resource in toolset.list_resources():
        resource_contents(toolset.read_resource(resource))
    for prompt in toolset.list_prompts():
        prompt_messages(toolset.get_prompt(prompt.name))


def make_the_calls_of_the_context(toolset: MCPToolset) -> None:
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        toolset[call["name"]].invoke(**call["arguments"])


def echo_a_schema(toolset: MCPToolset) -> None:
    toolset["json_schema_echo"].invoke(schema=toolset["json_schema_2020_12_tool"].parameters)


def list_skills(toolset: MCPToolset) -> None:
    assert toolset.list_skills()


def use_every_skill(toolset: MCPToolset) -> None:
    for skill in toolset.list_skills():
        toolset.load_skill(skill)
        for path in skill.paths:
            toolset.read_skill_file(skill, path)


SCENARIOS: dict[str, Callable[[MCPToolset], Any]] = {
    "initialize": len,
    "json-schema-ref-no-deref": len,
    "json-schema-2020-12-preservation": echo_a_schema,
    "http-standard-headers": use_everything,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": use_every_skill,
    "sep-2640-client-verify-size": use_every_skill,
    "sep-2640-client-verify-frontmatter": use_every_skill,
    "http-custom-headers": make_the_calls_of_the_context,
}


def main() -> None:
    [url] = sys.argv[1:]
    handlers = MCPHandlers(elicitation=accept_defaults)
    with MCPToolset(StreamableHttpServerInfo(url), handlers=handlers) as toolset:
        SCENARIOS.get(os.environ["MCP_CONFORMANCE_SCENARIO"], call_every_tool)(toolset)


if __name__ == "__main__":
    main()
