# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers that offer tools to the model: calls are returned to the server, and their results to the model.
"""

import json
from typing import Any

import pytest
from haystack import component
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.tools.errors import ToolInvocationError
from mcp import types

from haystack_integrations.tools.mcp import MCPInvocationError, MCPSampling
from haystack_integrations.tools.mcp.handlers.sampling import OfferedTools, Sampler
from tests.handlers.conftest import Ask
from tests.support.background import text
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, say

FORECASTS = ChatMessage.from_assistant(
    "Let me see.",
    tool_calls=[
        ToolCall("weather_of", {"city": "Rome"}, id="one"),
        ToolCall("weather_of", {"city": "Atlantis"}),  # some providers omit the id
    ],
)
ASKED = {"prompt": "How is the weather?"}


@component
class Deaf:
    """A chat generator without tool support."""

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, list[ChatMessage]]:
        return {"replies": [say("no tools here")]}


def test_the_model_calls_the_servers_tool_and_gets_its_results(ask: Ask) -> None:
    model = ScriptedChatGenerator([FORECASTS, say("Take an umbrella.")])
    answer = text(ask(sampling=model).call_tool("ask_model_with_tools", ASKED))
    assert answer == "toolUse, then None: Take an umbrella."
    first, second = model.turns
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    assert first.tool_specs == [{"name": "weather_of", "description": "Tell the weather.", "parameters": schema}]
    assert [message.role.value for message in second.messages] == ["user", "assistant", "tool", "tool"]
    called, rome, atlantis = second.messages[1:]
    assert called.text == "Let me see."
    assert [(each.tool_name, each.arguments) for each in called.tool_calls] == [
        ("weather_of", {"city": "Rome"}),
        ("weather_of", {"city": "Atlantis"}),
    ]
    assert (rome.tool_call_result.result, rome.tool_call_result.error) == ("rain in Rome", False)
    assert rome.tool_call_result.origin.id == "one"
    assert (atlantis.tool_call_result.result, atlantis.tool_call_result.error) == ("rain in Atlantis", True)
    assert atlantis.tool_call_result.origin == called.tool_calls[1]


def test_a_function_that_declares_tool_support_answers_with_calls(ask: Ask) -> None:
    replies = iter([ChatMessage.from_assistant(tool_calls=[ToolCall("weather_of", {"city": "Rome"}, id="1")]), "Wet."])

    def answer(params: types.CreateMessageRequestParams) -> Any:
        assert [tool.name for tool in params.tools or []] == ["weather.of"]
        return next(replies)

    connection = ask(sampling=MCPSampling(function=answer, tools=True))
    assert text(connection.call_tool("ask_model_with_tools", ASKED)) == "toolUse, then None: Wet."


@pytest.mark.parametrize(
    "sampling",
    [
        MCPSampling(chat_generator=Deaf()),
        MCPSampling(function=lambda _: "text"),
        MCPSampling(chat_generator=ScriptedChatGenerator([]), tools=False),
    ],
    ids=["generator without tools", "function", "turned off"],
)
def test_a_client_without_tool_support_does_not_declare_it(ask: Ask, sampling: MCPSampling) -> None:
    with pytest.raises(MCPInvocationError, match=r"(?i)sampling.*tools"):
        ask(sampling=sampling).call_tool("ask_model_with_tools", ASKED)


def test_a_required_tool_that_the_model_does_not_use_is_an_error(ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(MCPInvocationError, match="handler failed"):
        ask(sampling=ScriptedChatGenerator([say("No.")])).call_tool("ask_model_with_tools", ASKED)
    assert "the model used no tool, although the server requires it" in caplog.text


USE = types.ToolUseContent(name="look", id="1", input={})
RESULT = types.ToolResultContent(tool_use_id="1", content=[])
HELLO = types.TextContent(type="text", text="Hello")
IMAGE = types.ImageContent(type="image", data="AAAA", mime_type="image/png")
LOOK = types.Tool(name="look", input_schema={"type": "object"})


def request(*messages: tuple[str, Any], **more: Any) -> types.CreateMessageRequestParams:
    said = [types.SamplingMessage(role=role, content=content) for role, content in messages]  # type: ignore[arg-type]
    return types.CreateMessageRequestParams(messages=said, max_tokens=10, **{"tools": [LOOK], **more})


@rows(
    ("params", "reason"),
    (request(("user", HELLO), ("assistant", USE), ("user", [RESULT, HELLO])), "Tool results mixed with other"),
    (request(("user", RESULT)), "no tool use in the message before"),
    (request(("user", HELLO), ("assistant", IMAGE)), "messages of the assistant may contain text and tool uses"),
    (
        request(("user", HELLO), tools=[types.Tool(name="odd", input_schema={"type": "array"})]),
        "the schema of tool 'odd' is unusable",
    ),
    (request(("user", HELLO), tools=[LOOK, LOOK]), "two tools named"),
    (request(("user", HELLO), tools=[], tool_choice=types.ToolChoice(mode="required")), "no `tools`"),
)
async def test_a_request_against_the_rules_is_refused_and_counts_no_tokens(params, reason):
    model = ScriptedChatGenerator([say("fine")])
    sampler = Sampler(MCPSampling(chat_generator=model, max_tokens=10), "a server")
    refused = await sampler.answer(params)
    assert isinstance(refused, types.ErrorData)
    assert refused.code == types.INVALID_PARAMS
    assert reason in refused.message
    assert model.turns == []
    assert not isinstance(await sampler.answer(request(("user", HELLO))), types.ErrorData)


HELLO_ALONE = request(("user", HELLO))
NO_USE = request(("user", HELLO), tool_choice=types.ToolChoice(mode="none"))


@rows(("reply", "params", "sent"), (FORECASTS, NO_USE, "Let me see."), (say(""), HELLO_ALONE, ""))
async def test_the_text_of_a_reply_without_calls_is_sent_and_unwanted_tools_are_not_shown(reply, params, sent):
    model = ScriptedChatGenerator([reply])
    answer = await Sampler(MCPSampling(chat_generator=model), "a server").answer(params)
    assert isinstance(answer, types.CreateMessageResultWithTools)
    assert answer.content_as_list == [types.TextContent(type="text", text=sent)]
    assert model.turns[0].tool_names == ([] if params is NO_USE else ["look"])


async def test_a_result_with_only_structured_content_is_passed_to_the_model_as_json() -> None:
    model = ScriptedChatGenerator([say("fine")])
    result = types.ToolResultContent(tool_use_id="1", content=[], structured_content={"seen": 3})
    params = request(("user", HELLO), ("assistant", USE), ("user", result))
    assert not isinstance(await Sampler(MCPSampling(chat_generator=model), "a server").answer(params), types.ErrorData)
    assert json.loads(model.turns[0].tool_results[0]) == {"seen": 3}


async def test_the_tools_of_a_request_cannot_be_run_here() -> None:
    offered = OfferedTools(request(("user", HELLO)))
    with pytest.raises(ToolInvocationError, match="The server runs this tool itself"):
        offered.for_generator()[0].invoke()
