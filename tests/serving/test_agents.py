# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import gc
import threading
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.exceptions import ToolError
from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ImageContent, StreamingChunk
from haystack.tools import Tool, create_tool_from_function, tool

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from haystack_integrations.tools.mcp.serving.calls import ProgressReporter
from tests.serving.components import LIMIT, Notes
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, calls, say


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


def agent_that_says(*replies: ChatMessage, tools: Any = (add,), **parameters: Any) -> Any:
    return Agent(chat_generator=ScriptedChatGenerator(list(replies)), tools=list(tools), **parameters)


@asynccontextmanager
async def serving(agent: Any, **options: Any) -> AsyncIterator[Client[Any]]:
    server = create_mcp_server("shop", agents={"helper": agent}, options={"helper": ServeOptions(**options)})
    async with Client(server) as client:
        yield client


async def test_a_call_passes_the_task_and_returns_the_answer():
    agent = agent_that_says(call("add", a=1, b=2), say("It is 3."), system_prompt="You calculate.")
    before = dict(agent.__dict__)
    async with serving(agent) as client:
        (served,) = await client.list_tools()
        result = await client.call_tool("helper", {"task": "What is 1 + 2?"})

    assert list(served.input_schema["properties"]) == ["task"] == served.input_schema["required"]
    assert served.output_schema is not None and list(served.output_schema["properties"]) == ["answer"]
    assert result.structured_content == {"answer": "It is 3."}
    assert [block.text for block in result.content] == ["It is 3."]
    assert [each.text for each in agent.chat_generator.turns[0].messages] == ["You calculate.", "What is 1 + 2?"]
    assert agent.chat_generator.turns[1].tool_results == ["3"]
    # Serving does not change the Agent itself.
    assert agent.__dict__ == before


async def test_steps_and_tool_calls_are_reported_without_arguments():
    notes = Notes()
    agent = agent_that_says(calls(("add", {"a": 1, "b": 41}), ("add", {"a": 3, "b": 4})), say("Done."))
    async with serving(agent) as client:
        await client.call_tool("helper", {"task": "x"}, progress_handler=notes)
        await client.list_tools()

    assert notes.messages == [
        "Step 1: asking the model",
        "Calling add, add",
        "add answered",
        "add answered",
        "Step 2: asking the model",
    ]
    assert notes.numbers == sorted(set(notes.numbers))


@component
class StreamingChatGenerator:
    """Streams its words one by one after it has loaded its model, and cannot be copied."""

    def __init__(self, *words: str) -> None:
        self.words = words
        self.model: str | None = None

    def warm_up(self) -> None:
        self.model = "a model"

    def __deepcopy__(self, memo: Any) -> Any:
        raise NotImplementedError

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None, **options: Any) -> dict[str, Any]:
        for word in self.words:
            options["streaming_callback"](StreamingChunk(content=word))
        return {"replies": [say(f"{''.join(self.words)} of {self.model}")] if self.words else []}


@component
class AsyncStreamingChatGenerator(StreamingChatGenerator):
    @component.output_types(replies=list[ChatMessage])
    async def run_async(self, messages: list[ChatMessage], tools: Any = None, **options: Any) -> dict[str, Any]:
        for word in self.words:
            await options["streaming_callback"](StreamingChunk(content=word))
        return {"replies": [say(f"{''.join(self.words)} of {self.model}")]}


@rows("model", StreamingChatGenerator, AsyncStreamingChatGenerator)
@rows(("words", "said"), (["a"] * 1000, "a" * 1000), (["\ud83d", "\ude00", " \ud83d"], "\U0001f600 \ufffd"))
async def test_tokens_and_halves_of_emoji_are_collected_and_sent_in_few_notifications(
    model: Any, words: list[str], said: str
):
    notes, printed = Notes(), []

    def own_callback(chunk: StreamingChunk) -> None:
        printed.append(chunk.content)

    async with serving(Agent(chat_generator=model(*words), tools=[], streaming_callback=own_callback)) as client:
        result = await client.call_tool("helper", {"task": "x"}, progress_handler=notes)
        await client.list_tools()

    assert notes.messages[0] == "Step 1: asking the model"
    texts = [each or "" for each in notes.messages[1:]]
    assert "".join(texts) == said
    assert len(texts) < 20
    assert printed == words
    assert result.structured_content == {"answer": f"{said} of a model"}


async def test_half_an_emoji_waits_for_its_other_half():
    sent: list[str] = []

    async def progress(_done: float, _total: float | None, message: str) -> None:
        sent.append(message)

    call: Any = SimpleNamespace(context=SimpleNamespace(request_context=None), progress=progress)
    async with ProgressReporter(call) as reporter:
        for half in ("\ud83d", "\ude00", "\ud83d"):
            reporter.text(half)
            await reporter._send_messages()
    assert sent == ["\U0001f600", "\ufffd"]


@tool(outputs_to_state={"notes": {"source": "notes"}}, inputs_from_state={"city": "city"})
def note(city: str) -> dict[str, Any]:
    """Writes a note."""
    return {"notes": [f"note of {city}"]}


PROMPT = "{% message role='user' %}Tell of {{ city }}{% endmessage %}"
SCHEMA = {"notes": {"type": list[str]}, "city": {"type": str}}


@rows(
    ("outputs", "shown"),
    ({"where": "city"}, "Paris"),
    (["notes"], '["note of Paris"]'),
    (["city", "notes"], '{"city": "Paris", "notes": ["note of Paris"]}'),
    (["last_message"], "Done."),
    ({"text": "answer", "notes": "notes"}, "Done."),
)
async def test_state_is_passed_in_and_returned_where_the_options_choose_it(outputs: Any, shown: str):
    agent = agent_that_says(call("note"), say("Done."), tools=[note], state_schema=SCHEMA)
    arguments = {"task": "x", "place": "Paris"}
    async with serving(agent, inputs={"task": "task", "place": "city"}, outputs=outputs) as client:
        (served,) = await client.list_tools()
        with pytest.raises(ToolError, match="city"):
            await client.call_tool("helper", {**arguments, "city": "Berlin"})
        result = await client.call_tool("helper", arguments)

    assert list(served.input_schema["properties"]) == list(arguments)
    assert list(served.output_schema["properties"]) == list(result.structured_content or {}) == list(outputs)
    assert [block.text for block in result.content] == [shown]
    assert "notes" not in outputs or (result.structured_content or {})["notes"] == ["note of Paris"]


async def test_a_conversation_is_continued():
    agent = agent_that_says(say("You are Ada."))
    conversation = [
        {"role": "user", "content": "I am Ada."},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Who am I?"},
    ]
    async with serving(agent, inputs=["messages", "task"], outputs=["answer", "messages"]) as client:
        result = await client.call_tool("helper", {"messages": conversation})
        with pytest.raises(ToolError, match="Give `messages` or `task`"):
            await client.call_tool("helper", {})
        with pytest.raises(ToolError, match="role"):
            await client.call_tool("helper", {"messages": [{"role": "system", "content": "Obey."}]})

    assert [each.role.value for each in agent.chat_generator.turns[0].messages] == ["user", "assistant", "user"]
    messages = [ChatMessage.from_dict(each) for each in (result.structured_content or {})["messages"]]
    assert messages[-1].text == "You are Ada."


async def test_variables_of_a_prompt_are_the_arguments():
    agent = agent_that_says(say("Done."), user_prompt=PROMPT)
    async with serving(agent) as client:
        (served,) = await client.list_tools()
        await client.call_tool("helper", {"city": "Berlin"})

    assert served.input_schema["properties"]["city"]["type"] == "string"
    assert agent.chat_generator.turns[0].messages[-1].text == "Tell of Berlin"


async def test_the_task_is_not_returned_as_the_answer_of_a_model_that_does_not_reply():
    async with serving(Agent(chat_generator=StreamingChatGenerator())) as client:
        result = await client.call_tool("helper", {"task": "Add."})
    assert result.structured_content == {"answer": ""}
    assert result.content[-1].text == "The answer may be incomplete: the model did not reply."


async def test_a_picture_from_a_tool_that_ends_the_run_is_the_answer():
    def draw() -> list[ImageContent]:
        return [ImageContent("aGk=", mime_type="image/png")]

    drawing = Tool("draw", "Draws.", {"type": "object", "properties": {}}, draw, outputs_to_string={"raw_result": True})
    agent = agent_that_says(call("draw"), tools=[drawing], exit_conditions=["draw"])
    async with serving(agent) as client:
        [picture] = (await client.call_tool("helper", {"task": "Draw."})).content
    assert (picture.type, picture.data) == ("image", "aGk=")


async def test_an_agent_reports_that_it_ran_out_of_steps():
    agent = agent_that_says(call("add", a=1, b=2), say("never"), max_agent_steps=1, exit_conditions=["text"])
    async with serving(agent) as client:
        result = await client.call_tool("helper", {"task": "x"})

    assert (result.structured_content or {})["answer"] == "3"
    # Haystack 2 does not report why an Agent ended.
    assert len(result.content) == (2 if "exit_reason" in agent.__haystack_output__ else 1)
    if len(result.content) == 2:
        assert "as many steps as it may" in result.content[1].text


def fail(secret: str) -> str:
    """Fails."""
    raise ValueError(f"DETAIL {secret}")


def refuse(secret: str) -> str:
    """Refuses."""
    raise ToolError("The shop is closed.")


@rows(("mask", "told"), (True, r"^Error calling tool 'fail'$"), (False, "DETAIL"))
async def test_errors_show_neither_arguments_nor_details(mask: bool, told: str):
    agents = {
        each.__name__: agent_that_says(
            call(each.__name__, secret="ARGUMENT"),
            tools=[create_tool_from_function(each)],
            raise_on_tool_invocation_failure=True,
        )
        for each in (fail, refuse)
    }
    async with Client(create_mcp_server("shop", agents=agents, mask_error_details=mask)) as client:
        with pytest.raises(ToolError, match=told) as failed:
            await client.call_tool("fail", {"task": "x"})
        with pytest.raises(ToolError, match=r"^The shop is closed\.$"):
            await client.call_tool("refuse", {"task": "x"})
    assert "'secret'" not in str(failed.value)


@rows(
    ("parameters", "options", "message"),
    ({}, {"inputs": ["task", "notes"]}, "`inputs` names 'notes'"),
    ({}, {"outputs": ["notes"]}, "`outputs` names 'notes'"),
    ({}, {"bound": {"notes": 1}}, "`bound` names 'notes', which is not among the inputs of the agent: task"),
    ({"user_prompt": "{{ city }}", "required_variables": ["city"]}, {"inputs": ["task"]}, "Nothing sets city"),
)
def test_invalid_options_are_refused_when_the_server_is_created(parameters: Any, options: Any, message: str):
    agents = {"helper": agent_that_says(**parameters)}
    with pytest.raises(ValueError, match=f"'helper' cannot be served.*{message}"):
        create_mcp_server("shop", agents=agents, options={"helper": options})


async def test_a_cancelled_agent_does_not_start_another_step():
    entered, may_end = threading.Event(), threading.Event()

    def wait() -> str:
        entered.set()
        assert may_end.wait(LIMIT)
        return "waited"

    waiting = create_tool_from_function(wait, description="Waits.")
    agent = agent_that_says(call("wait"), say("never"), say("second call"), tools=[waiting])
    async with serving(agent) as client:
        cancelled = asyncio.create_task(client.call_tool("helper", {"task": "x"}))
        assert await asyncio.to_thread(entered.wait, LIMIT)
        cancelled.cancel()
        await asyncio.wait([cancelled])
        await client.list_tools()
        may_end.set()
        # The script continues where the cancelled run left off.
        answer = await client.call_tool("helper", {"task": "y"})

    assert answer.structured_content == {"answer": "never"}


@component
class OwnThread:
    """A chat generator that closes its resources when it is garbage-collected, as those of local models do."""

    def __init__(self) -> None:
        self.executor = ThreadPoolExecutor(1)

    def __del__(self) -> None:
        self.executor.shutdown()

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, Any]:
        return {"replies": [self.executor.submit(say, f"{len(messages)} message").result(LIMIT)]}


async def test_the_resources_of_a_chat_generator_stay_open_between_calls():
    async with serving(Agent(chat_generator=OwnThread())) as client:
        for _ in range(2):
            result = await client.call_tool("helper", {"task": "Count."})
            assert result.structured_content == {"answer": "1 message"}
            gc.collect()
