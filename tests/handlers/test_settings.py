# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How handlers are passed, checked and stored.
"""

from pathlib import Path
from typing import Any

import pytest
from haystack.components.generators.chat import OpenAIChatGenerator
from haystack.core.errors import SerializationError
from haystack.utils import Secret
from mcp import types

from haystack_integrations.tools.mcp import AskUser, MCPHandlers, MCPSampling, MCPToolset, StdioServerInfo
from haystack_integrations.tools.mcp.durable import JournaledChatGenerator
from haystack_integrations.tools.mcp.handlers import accept_defaults, answer_later
from haystack_integrations.tools.mcp.handlers.sampling import generation_kwargs
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, say

try:
    from haystack.hooks.human_in_the_loop import SimpleConsoleUI
except ModuleNotFoundError:  # Haystack 2
    from haystack.human_in_the_loop import SimpleConsoleUI


def answer(params: Any) -> str:
    return "answer"


def nobody() -> list[str]:
    return []


def test_handlers_survive_serialization(tmp_path: Path) -> None:
    handlers = MCPHandlers(
        sampling=MCPSampling(
            chat_generator=ScriptedChatGenerator([say("stored")]), consent=answer, max_requests=3, tools=False
        ),
        elicitation=AskUser(SimpleConsoleUI()),
        pending_calls=answer,
        roots=[tmp_path, "file:///srv"],
        logging=answer,
        log_level="notice",
        messages=answer,
        client_info={"name": "kiosk", "version": "7"},
    )
    stored = handlers.to_dict()
    loaded = MCPHandlers.from_dict(stored)
    assert loaded.to_dict() == stored
    assert loaded.sampling.chat_generator.replies == [say("stored")]
    assert loaded.sampling.consent is answer
    assert loaded.sampling.tools is False
    assert isinstance(loaded.elicitation.ui, SimpleConsoleUI)
    assert loaded.roots == (str(tmp_path), "file:///srv")
    for each in (
        MCPHandlers(),
        MCPHandlers(sampling=answer, elicitation=accept_defaults, roots=nobody),
        MCPHandlers(elicitation=answer_later, pending_calls=nobody),
    ):
        assert MCPHandlers.from_dict(each.to_dict()) == each


def test_roots_may_be_any_iterable() -> None:
    assert MCPHandlers(roots=(root for root in ("/srv", "file:///data"))).roots == ("/srv", "file:///data")


def test_the_client_info_may_be_a_type_of_the_sdk() -> None:
    kiosk = types.Implementation(name="kiosk", version="7", website_url="https://kiosk.example.com")
    handlers = MCPHandlers(client_info=kiosk)
    assert handlers.to_dict() == {
        "client_info": {"name": "kiosk", "version": "7", "websiteUrl": "https://kiosk.example.com"}
    }
    assert MCPHandlers.from_dict(handlers.to_dict()) == handlers
    with pytest.raises(ValueError, match="'name' and 'version'"):
        MCPHandlers(client_info=types.Root.model_validate({"uri": "file:///srv"}))  # type: ignore[arg-type]


def test_a_secret_of_a_chat_generator_is_stored_as_a_reference(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SAMPLING_KEY", "Sentinel-4711")
    generator = OpenAIChatGenerator(api_key=Secret.from_env_var("SAMPLING_KEY"))
    stored = MCPHandlers(sampling=generator).to_dict()
    assert "Sentinel-4711" not in str(stored)
    loaded = MCPHandlers.from_dict(stored)
    assert isinstance(loaded.sampling.chat_generator, OpenAIChatGenerator)


@rows(
    ("fields", "field"),
    ({"elicitation": lambda _: True}, "MCPHandlers.elicitation"),
    ({"sampling": lambda _: ""}, "MCPSampling.function"),
    ({"elicitation": AskUser(type("UI", (), {"get_user_confirmation": answer}))}, "AskUser.ui"),
)
def test_the_error_names_a_handler_that_cannot_be_stored_and_traces_still_work(fields, field):
    toolset = MCPToolset(StdioServerInfo("true"), handlers=MCPHandlers(**fields))
    with pytest.raises(SerializationError, match=field):
        toolset.to_dict()
    assert next(iter(fields)) in toolset._to_trace_dict()["data"]["handlers"]


MISTRAL = {"max_tokens": 9, "temperature": 0.5, "stop": ["."], "tool_choice": "any"}
OPENAI = {"temperature": 0.5, "stop": ["."], "tool_choice": "required"}
CLAUDE = {"max_tokens": 9, "temperature": 0.5, "stop_sequences": ["."], "tool_choice": {"type": "any"}}


@rows(
    ("class_name", "attributes", "expected"),
    ("MistralChatGenerator", {}, MISTRAL),
    ("OpenAIChatGenerator", {}, {"max_completion_tokens": 9, **OPENAI}),
    ("OpenAIChatGenerator", {"api_base_url": "http://x"}, {"max_tokens": 9, **OPENAI}),
    ("OpenAIResponsesChatGenerator", {}, {"max_output_tokens": 9, "temperature": 0.5, "tool_choice": "required"}),
    ("AnthropicChatGenerator", {}, CLAUDE),
    ("OllamaChatGenerator", {}, {"num_predict": 9, "temperature": 0.5, "stop": ["."]}),
)
def test_a_generator_gets_the_options_under_its_own_names(class_name, attributes, expected):
    generator = type(class_name, (), {"run": ScriptedChatGenerator.run, **attributes})()
    tools, choice = [types.Tool(name="look", input_schema={"type": "object"})], types.ToolChoice(mode="required")
    params = types.CreateMessageRequestParams(
        messages=[], max_tokens=9, temperature=0.5, stop_sequences=["."], tools=tools, tool_choice=choice
    )
    for each in (generator, JournaledChatGenerator(generator)):
        assert generation_kwargs(MCPSampling(chat_generator=each), params) == expected
