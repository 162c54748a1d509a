# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import json
import threading
from datetime import date
from functools import partial
from typing import Any

import pytest
from haystack import Document
from haystack.dataclasses import ChatRole, ImageContent
from mcp import MCPError, types
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.prompts.base import AssistantMessage, Message, UserMessage

from haystack_integrations.components.builders.mcp import MCPPromptBuilder
from haystack_integrations.tools.mcp import InProcessServerInfo, MCPConnectionError, StdioServerInfo
from tests.components.conftest import inputs_of
from tests.support.foreign_server import PIXEL
from tests.support.raw import raw_server
from tests.support.rows import rows


class Prompter:
    """
    A server with two prompts. It records its requests, and lists its prompts only after the test allows it.
    """

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.may_list = threading.Event()
        self.may_list.set()
        server = MCPServer("prompter")
        self.info = InProcessServerInfo(server)

        @server.prompt()
        def greet(name: str, style: str = "plainly") -> list[str]:
            self.requests.append((name, style))
            if not name:
                raise MCPError(types.INVALID_PARAMS, "nobody is greeted")
            return ["You greet.", f"Greet {name}, {style}"]

        @server.prompt()
        def show() -> list[Message]:
            image = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
            text = types.TextResourceContents(uri="notes://today", text="Buy milk.")
            note = types.EmbeddedResource(type="resource", resource=text)
            return [UserMessage(image), UserMessage(note), AssistantMessage(image)]

        async def note(context: Any, call_next: Any) -> Any:
            if context.method == "prompts/list":
                self.requests.append("list")
                assert await asyncio.to_thread(self.may_list.wait, 20)
            return await call_next(context)

        server.middleware.append(note)


@pytest.fixture
def prompter() -> Prompter:
    return Prompter()


@rows(("system_role", "role"), (None, ChatRole.USER), ("first", ChatRole.SYSTEM))
def test_a_prompt_becomes_messages_and_the_first_may_become_the_system_message(use, prompter, system_role, role):
    builder = MCPPromptBuilder(prompter.info, "greet", ["name", "style"], system_role=system_role)
    first, second = use(builder, name="Ada", style="loudly")["prompt"]
    assert (first.role, first.text) == (role, "You greet.")
    assert (second.role, second.text) == (ChatRole.USER, "Greet Ada, loudly")


def test_images_and_embedded_resources_are_kept(use, prompter):
    picture, note, answer = use(MCPPromptBuilder(prompter.info, "show", system_role="first"))["prompt"]
    assert isinstance(picture._content[0], ImageContent)
    assert picture.role == ChatRole.USER  # system messages can have only text
    assert "Buy milk." in note.text
    assert answer.role == ChatRole.ASSISTANT
    assert "[image: image/png" in answer.text


def test_arguments_are_sent_as_strings_and_none_is_omitted(use, prompter):
    builder = MCPPromptBuilder(prompter.info, "greet", ["name"], arguments={"style": "é", "name": "nobody"})
    use(builder, name=["Ada", 2], arguments={"style": None})
    use(builder)
    use(builder, name=[Document(content="Ada", meta={"born": date(1815, 12, 10)})])
    *plain, (documents, _) = prompter.requests
    assert plain == [('["Ada", 2]', "plainly"), ("nobody", "é")]
    assert json.loads(documents)[0]["content"] == "Ada"


@rows(
    ("parameters", "name", "style"),
    ({}, True, True),
    ({"required_variables": ["name"]}, True, False),
    ({"arguments": {"style": "loudly"}}, True, False),
)
def test_the_inputs_are_the_variables_and_the_configured_ones_are_required(prompter, parameters, name, style):
    builder = MCPPromptBuilder(prompter.info, "greet", ["name", "style"], **parameters)
    assert inputs_of(builder) == {"arguments": False, "name": name, "style": style}
    assert prompter.requests == []


@pytest.mark.parametrize(
    "from_server", [MCPPromptBuilder.from_server_async, partial(asyncio.to_thread, MCPPromptBuilder.from_server)]
)
async def test_a_builder_from_a_server_has_inputs_before_it_connects_and_does_not_block_the_loop(prompter, from_server):
    prompter.may_list.clear()
    made = asyncio.ensure_future(from_server(prompter.info, "greet", system_role="first"))
    while not prompter.requests:
        await asyncio.sleep(0.01)
    prompter.may_list.set()  # a blocked loop would run this too late
    builder = await made
    assert prompter.requests == ["list"]
    assert (builder.variables, builder.required_variables) == (["name", "style"], ["name"])
    assert builder.system_role == "first"
    assert not builder.connection.is_ready
    with pytest.raises(ValueError, match=r"Prompt 'great' not found on .*Did you mean 'greet'"):
        await from_server(prompter.info, "great")


def test_an_argument_named_like_the_dictionary_of_all_arguments_is_passed_in_it(use):
    server = MCPServer("debugger")

    @server.prompt()
    def explain(command: str, arguments: str) -> str:
        return f"Explain {command} {arguments}"

    builder = MCPPromptBuilder.from_server(InProcessServerInfo(server), "explain")
    assert (builder.variables, builder.required_variables) == (["command"], ["command"])
    [message] = use(builder, command="ls", arguments={"arguments": "-l"})["prompt"]
    assert message.text == "Explain ls -l"


def test_an_optional_server_that_is_down_gives_no_messages(use, prompter):
    down = StdioServerInfo(command="/there/is/no/such/program")
    builder = MCPPromptBuilder(down, "greet", required=False)
    builder.warm_up()
    assert use(builder, arguments={"name": "Ada"})["prompt"] == []
    assert MCPPromptBuilder.from_dict(builder.to_dict()).to_dict() == builder.to_dict()
    there = MCPPromptBuilder(prompter.info, "greet", required=False)
    assert use(there, arguments={"name": "Ada"})["prompt"]
    with pytest.raises(MCPConnectionError, match=r"nobody is greeted$") as refused:
        use(there, arguments={"name": ""})
    assert refused.value.code == types.INVALID_PARAMS
    odd = raw_server("json", {"prompts/get": {"messages": "no list"}})
    with pytest.raises(MCPConnectionError, match="not a valid result"):
        use(MCPPromptBuilder(odd, "greet", required=False))
