# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
from collections.abc import Mapping
from typing import Any

import pytest
from fastmcp import Client, FastMCP
from fastmcp.dependencies import Depends
from fastmcp.server.auth import StaticTokenVerifier
from haystack import component
from haystack.components.builders import ChatPromptBuilder, PromptBuilder
from haystack.dataclasses import ChatMessage, ImageContent
from mcp import MCPError
from mcp.types import PromptReference

from haystack_integrations.components.builders.mcp import MCPPromptBuilder
from haystack_integrations.tools.mcp.serving import HaystackProvider, ServeOptions, create_mcp_server
from tests.support.waiting import LIMIT

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def chat_builder() -> ChatPromptBuilder:
    return ChatPromptBuilder(
        template=[
            ChatMessage.from_system("Answer in {{ language }}."),
            ChatMessage.from_user("What is {{ thing }}?"),
            ChatMessage.from_assistant("Let me think."),
        ],
        required_variables=["thing"],
    )


ASK = PromptReference(type="ref/prompt", name="ask")


def client_of(options: Any = None, **prompts: Any) -> Client:
    return Client(create_mcp_server("Prompts", prompts=prompts, options=options))


async def test_a_prompt_of_another_server_needs_no_variables() -> None:
    other = FastMCP("other")
    other.prompt(lambda: "Say hello.", name="greet")
    async with client_of(greet=MCPPromptBuilder(other, "greet")) as client:
        [prompt] = await client.list_prompts()
        assert not prompt.arguments
        assert (await client.get_prompt("greet")).messages[0].content.text == "Say hello."


async def test_a_prompt_builder_is_a_prompt_and_a_chat_prompt_builder_returns_its_messages() -> None:
    builder = PromptBuilder("Translate to {{ language }}: {{ text }}", required_variables=["text"])
    async with client_of(translate=builder, ask=chat_builder()) as client:
        [prompt, _] = await client.list_prompts()
        assert {argument.name: argument.required for argument in prompt.arguments} == {"language": False, "text": True}
        result = await client.get_prompt("translate", {"language": "French", "text": "Hello {{ 7 * 6 }}"})
        [message] = result.messages
        # Values from clients are text, never a template.
        assert (message.role, message.content.text) == ("user", "Translate to French: Hello {{ 7 * 6 }}")
        result = await client.get_prompt("ask", {"thing": "Haystack", "language": "French"})
        assert [(message.role, message.content.text) for message in result.messages] == [
            ("user", "Answer in French."),
            ("user", "What is Haystack?"),
            ("assistant", "Let me think."),
        ]
        assert result.messages[0].content.meta == {"haystack": {"role": "system"}}
        for name, arguments, told in (
            ("ask", {}, "Prompt 'ask' needs thing. Its arguments: language, thing"),
            ("ask", {"thing": "x", "template": "{{ secret }}"}, "has no argument template"),
            ("nothing", {}, "Unknown prompt"),
        ):
            with pytest.raises(MCPError, match=told) as caught:
                await client.get_prompt(name, arguments)
            assert caught.value.code == -32602


@component
class PictureBuilder:
    """
    A custom builder that must be warmed up.
    """

    variables = ("caption",)

    def __init__(self) -> None:
        self.events: list[str] = []

    def warm_up(self) -> None:
        self.events.append("warm")

    def close(self) -> None:
        self.events.append("closed")

    @component.output_types(prompt=list[ChatMessage])
    def run(self, caption: str) -> dict[str, Any]:
        image = ImageContent(base64_image=PIXEL, mime_type="image/png")
        return {"prompt": [ChatMessage.from_user(content_parts=[caption, image])]}


async def test_any_component_with_a_prompt_may_be_served() -> None:
    builder = PictureBuilder()
    async with client_of(picture=builder) as client:
        assert builder.events == ["warm"]
        result = await client.get_prompt("picture", {"caption": "A pixel"})
        text, image = (message.content for message in result.messages)
        assert (text.text, image.data, image.mime_type) == ("A pixel", PIXEL, "image/png")
    assert builder.events == ["warm", "closed"]


async def test_options_choose_what_clients_see() -> None:
    shown = {"name": "question", "title": "A question", "description": "Asks what something is."}
    inputs = {"subject": "thing", "tongue": "language"}
    chosen = {"bound": {"language": Depends(lambda: "German")}, "inputs": inputs}
    options = {"ask": ServeOptions(**shown, tags={"qa"}, version="2", **chosen)}
    async with client_of(options, ask=chat_builder()) as client:
        [prompt] = await client.list_prompts()
        assert {name: getattr(prompt, name) for name in shown} == shown
        assert [(argument.name, argument.required) for argument in prompt.arguments] == [("subject", True)]
        assert prompt.meta["fastmcp"]["version"] == "2"
        result = await client.get_prompt("question", {"subject": "MCP"})
        assert [message.content.text for message in result.messages[:2]] == ["Answer in German.", "What is MCP?"]
        with pytest.raises(MCPError, match="has no argument language"):
            await client.get_prompt("question", {"subject": "MCP", "language": "French"})


async def test_an_asynchronous_completion_ends_with_the_timeout() -> None:
    async def endless(_value: str, _known: Mapping[str, str]) -> list[str]:
        await asyncio.Event().wait()
        return []

    options = {"ask": ServeOptions(completions={"language": endless}, timeout=0.05)}
    async with asyncio.timeout(LIMIT), client_of(options, ask=chat_builder()) as client:
        with pytest.raises(MCPError):
            await client.complete(ASK, {"name": "language", "value": "f"})


async def test_known_values_are_offered_as_completions() -> None:
    async def things(value: str, known: Mapping[str, str]) -> list[str]:
        return [f"{value}-{known.get('language', 'none')}"]

    languages = ["French", "Finnish", "German"]
    options = {
        "ask": ServeOptions(completions={"language": languages, "thing": things}),
        # Synchronous functions run in a thread.
        "many": ServeOptions(completions={"thing": lambda value, known: (f"{value}{n}" for n in range(200))}),
    }
    async with client_of(options, ask=chat_builder(), many=chat_builder()) as client:
        assert (await client.complete(ASK, {"name": "language", "value": "f"})).values == ["French", "Finnish"]
        offered = await client.complete(ASK, {"name": "thing", "value": "x"}, {"language": "German"})
        assert offered.values == ["x-German"]
        assert (await client.complete(ASK, {"name": "other", "value": ""})).values == []
        many, unknown = (PromptReference(type="ref/prompt", name=name) for name in ("many", "unknown"))
        assert (await client.complete(unknown, {"name": "language", "value": ""})).values == []
        offered = await client.complete(many, {"name": "thing", "value": "x"})
        assert (offered.values[:2], len(offered.values), offered.has_more) == (["x0", "x1"], 100, True)


async def test_prompts_that_a_client_may_not_see_are_not_completed() -> None:
    options = {"ask": ServeOptions(scopes=["admin"], completions={"language": ["secret"]})}
    provider = HaystackProvider(prompts={"ask": chat_builder()}, options=options)
    auth = StaticTokenVerifier({"token": {"client_id": "c", "scopes": []}})
    server: FastMCP[Any] = FastMCP("Prompts", providers=[provider], auth=auth)
    server.add_completion_handler(provider.complete)
    async with Client(server) as client:
        assert await client.list_prompts() == []
        assert (await client.complete(ASK, {"name": "language", "value": ""})).values == []
