# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import json
import threading
from collections.abc import Iterator
from datetime import date
from functools import partial
from typing import Any

import pytest
from haystack import Document
from haystack.dataclasses import ChatRole, ImageContent
from mcp import MCPError, types
from mcp.server.lowlevel import Server

from haystack_integrations.components.builders.mcp import MCPPromptBuilder
from haystack_integrations.tools.mcp import InProcessServerInfo, MCPConnectionError, StdioServerInfo
from tests.support.rows import rows

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


class Prompter:
    """
    A server with two prompts. It notes what it is asked, and refuses arguments that are missing.
    """

    def __init__(self) -> None:
        self.requests: list[Any] = []
        self.may_answer = threading.Event()
        self.may_answer.set()
        server = Server("prompter", on_list_prompts=self._list, on_get_prompt=self._get)
        self.info = InProcessServerInfo(server)

    async def _list(self, _context: Any, _params: Any) -> types.ListPromptsResult:
        self.requests.append("list")
        assert await asyncio.to_thread(self.may_answer.wait, 20)
        greet = types.Prompt(
            name="greet",
            arguments=[types.PromptArgument(name="name", required=True), types.PromptArgument(name="style")],
        )
        return types.ListPromptsResult(prompts=[greet, types.Prompt(name="show")])

    async def _get(self, _context: Any, params: types.GetPromptRequestParams) -> types.GetPromptResult:
        arguments = dict(params.arguments or {})
        self.requests.append(arguments)

        def message(role: Any, content: Any) -> types.PromptMessage:
            return types.PromptMessage(role=role, content=content)

        if params.name == "show":
            image = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
            note = types.EmbeddedResource(
                type="resource", resource=types.TextResourceContents(uri="notes://today", text="Buy milk.")
            )
            return types.GetPromptResult(
                messages=[message("user", image), message("user", note), message("assistant", image)]
            )
        if params.name != "greet":
            raise MCPError(types.INVALID_PARAMS, "unknown prompt")
        if "name" not in arguments:
            raise MCPError(types.INVALID_PARAMS, "something is missing")
        texts = ["You greet.", f"Greet {arguments['name']}, {arguments.get('style', 'plainly')}"]
        return types.GetPromptResult(
            messages=[message("user", types.TextContent(type="text", text=text)) for text in texts]
        )


@pytest.fixture
def prompter() -> Prompter:
    return Prompter()


@pytest.fixture(params=["run", "run_async"])
def build(request: pytest.FixtureRequest) -> Iterator[Any]:
    """
    Runs a builder in each of its two ways, and closes it.
    """
    used: list[MCPPromptBuilder] = []

    def run(builder: MCPPromptBuilder, **inputs: Any) -> Any:
        used.append(builder)
        if request.param == "run":
            return builder.run(**inputs)["prompt"]
        return asyncio.run(builder.run_async(**inputs))["prompt"]

    yield run
    for builder in used:
        builder.close()


def inputs(builder: MCPPromptBuilder) -> dict[str, bool]:
    """
    The inputs of a builder, and whether they are mandatory.
    """
    return {name: socket.is_mandatory for name, socket in builder.__haystack_input__._sockets_dict.items()}


@rows(("system_role", "role"), [(None, ChatRole.USER), ("first", ChatRole.SYSTEM)])
def test_a_prompt_becomes_messages_the_first_of_the_system_if_that_is_wanted(build, prompter, system_role, role):
    builder = MCPPromptBuilder(prompter.info, "greet", ["name", "style"], system_role=system_role)
    first, second = build(builder, name="Ada", style="loudly")
    assert (first.role, first.text) == (role, "You greet.")
    assert (second.role, second.text) == (ChatRole.USER, "Greet Ada, loudly")
    picture, *_ = build(MCPPromptBuilder(prompter.info, "show", system_role="first"))
    assert picture.role == ChatRole.USER


def test_images_and_embedded_resources_are_kept(build, prompter):
    picture, note, answer = build(MCPPromptBuilder(prompter.info, "show"))
    assert isinstance(picture._content[0], ImageContent)
    assert "Buy milk." in note.text
    assert answer.role == ChatRole.ASSISTANT
    assert "[image: image/png" in answer.text


def test_arguments_are_sent_as_strings_and_none_not_at_all(build, prompter):
    builder = MCPPromptBuilder(prompter.info, "greet", ["name"], arguments={"style": "é", "name": "nobody"})
    build(builder, name=["Ada", 2], arguments={"style": None})
    build(builder)
    assert prompter.requests == [{"name": '["Ada", 2]'}, {"name": "nobody", "style": "é"}]


def test_objects_of_haystack_are_sent_as_json(build, prompter):
    document = Document(content="Ada", meta={"born": date(1815, 12, 10)})
    build(MCPPromptBuilder(prompter.info, "greet", ["name"]), name=[document])
    [sent] = prompter.requests
    assert json.loads(sent["name"])[0]["content"] == "Ada"


def test_the_inputs_are_the_variables_and_required_as_told(prompter):
    info = prompter.info
    all_of_them = MCPPromptBuilder(info, "greet", ["name", "style"])
    assert inputs(all_of_them) == {"arguments": False, "name": True, "style": True}
    some = MCPPromptBuilder(info, "greet", ["name", "style"], ["name"])
    assert inputs(some) == {"arguments": False, "name": True, "style": False}
    none = MCPPromptBuilder(info, "greet", ["name", "style"], None)
    assert inputs(none) == {"arguments": False, "name": False, "style": False}
    given = MCPPromptBuilder(info, "greet", ["name", "style"], arguments={"style": "loudly"})
    assert inputs(given) == {"arguments": False, "name": True, "style": False}
    assert prompter.requests == []


@pytest.mark.parametrize(
    "from_server", [MCPPromptBuilder.from_server_async, partial(asyncio.to_thread, MCPPromptBuilder.from_server)]
)
async def test_a_builder_made_from_a_server_has_its_inputs_before_it_connects_and_blocks_no_loop(prompter, from_server):
    prompter.may_answer.clear()
    made = asyncio.ensure_future(from_server(prompter.info, "greet", system_role="first"))
    while not prompter.requests:
        await asyncio.sleep(0.01)
    prompter.may_answer.set()  # in a loop that was blocked, too late
    builder = await made
    assert prompter.requests == ["list"]
    assert (builder.variables, builder.required_variables) == (["name", "style"], ["name"])
    assert builder.system_role == "first"
    assert not builder.connection.is_ready
    with pytest.raises(ValueError, match=r"Prompt 'great' not found on .*Did you mean 'greet'"):
        await from_server(prompter.info, "great")


def test_a_refusal_is_the_servers_own(build, prompter):
    with pytest.raises(MCPConnectionError, match=r"something is missing$") as raised:
        build(MCPPromptBuilder(prompter.info, "greet"))
    assert raised.value.code == types.INVALID_PARAMS


def test_a_server_that_is_down_and_not_required_gives_no_messages(build, prompter):
    down = StdioServerInfo(command="/there/is/no/such/program")
    builder = MCPPromptBuilder(down, "greet", required=False)
    builder.warm_up()
    assert build(builder, arguments={"name": "Ada"}) == []
    assert MCPPromptBuilder.from_dict(builder.to_dict()).to_dict() == builder.to_dict()
    there = MCPPromptBuilder(prompter.info, "greet", required=False)
    assert build(there, arguments={"name": "Ada"})
    with pytest.raises(MCPConnectionError, match="unknown prompt"):
        build(MCPPromptBuilder(prompter.info, "nothing", required=False))


@rows(
    ("parameters", "problem"),
    [
        ({"prompt_name": ""}, "`prompt_name` must have at least 1 character"),
        ({"variables": "name"}, "`variables` must be a valid list"),
        ({"arguments": ["a"]}, "`arguments` must be a valid dictionary, got list"),
        ({"system_role": "all"}, "`system_role` must be 'first', got 'all'"),
    ],
)
def test_a_wrong_parameter_is_refused_at_construction(parameters, problem):
    with pytest.raises(ValueError, match=problem):
        MCPPromptBuilder(StdioServerInfo(command="x"), **{"prompt_name": "greet", **parameters})
