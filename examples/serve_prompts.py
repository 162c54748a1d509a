# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Prompt builders as an MCP server (Haystack 2 and 3): their variables are the arguments of prompts.

Without arguments, a client in this process uses them. With `--stdio`, it serves an MCP client such as Claude Desktop,
which shows them to its user, often behind a slash:

    python examples/serve_prompts.py --stdio
"""

import asyncio
import sys

from fastmcp import Client
from haystack.components.builders import ChatPromptBuilder, PromptBuilder
from haystack.dataclasses import ChatMessage
from mcp.types import PromptReference

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server, run_server

translate = PromptBuilder("Translate to {{ language }}:\n\n{{ text }}", required_variables="*")
review = ChatPromptBuilder(
    template=[
        ChatMessage.from_system("You review {{ kind }} for {{ company }}. Be short."),
        ChatMessage.from_user("{{ text }}"),
    ],
    required_variables="*",
)

server = create_mcp_server(
    "prompts",
    prompts={"translate": translate, "review": review},
    options={
        "translate": ServeOptions(
            title="Translate a text",
            completions={"language": ["English", "Finnish", "French", "German"]},
        ),
        # The company is set here, so clients neither see nor set it.
        "review": ServeOptions(bound={"company": "ACME"}),
    },
)


async def main() -> None:
    async with Client(server) as client:
        for prompt in await client.list_prompts():
            print(f"{prompt.name}({', '.join(argument.name for argument in prompt.arguments)})")
        reference = PromptReference(type="ref/prompt", name="translate")
        print((await client.complete(reference, {"name": "language", "value": "f"})).values)
        filled = await client.get_prompt("translate", {"language": "French", "text": "Hello"})
        print(repr(filled.messages[0].content.text))
        for message in (await client.get_prompt("review", {"kind": "mails", "text": "Dear all"})).messages:
            print(f"{message.role}: {message.content.text}")


if __name__ == "__main__":
    if "--stdio" in sys.argv:
        run_server(server)
    else:
        asyncio.run(main())
