# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Agents as tools: what clients send and get. How a run goes, and pauses for approvals, is in `serving.agent_runs`.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping
from typing import Annotated, Any

from fastmcp.exceptions import ToolError
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ChatRole
from mcp.types import InputRequiredResult, TextContent
from pydantic import WithJsonSchema

from haystack_integrations.tools.mcp.haystack_compat import input_sockets, output_sockets
from haystack_integrations.tools.mcp.serving.agent_runs import AgentRun, Pause, observed_agent
from haystack_integrations.tools.mcp.serving.calls import (
    CallPool,
    ProgressReporter,
    ServedCall,
    ServedTool,
    errors_named,
)
from haystack_integrations.tools.mcp.serving.results import Answer
from haystack_integrations.tools.mcp.serving.schemas import InputSchema, ServedInput, output_schema
from haystack_integrations.tools.mcp.serving.sources import NamedOptions, ServeOptions, Source, check_known

# What clients send and get, beside State, by the names that they see.
_TASK, _MESSAGES, _ANSWER = "task", "messages", "answer"
_CONVERSATION: dict[str, Any] = {
    "type": "array",
    "items": {
        "type": "object",
        "properties": {
            "role": {"type": "string", "enum": ["user", "assistant"]},
            "content": {"type": "string"},
        },
        "required": ["role", "content"],
        "additionalProperties": False,
    },
}
# Why a run ended before the model had finished, as Haystack 3 says it.
_INCOMPLETE = {
    "max_agent_steps": "it took as many steps as it may",
    "length": "the model wrote as much as it may",
    "content_filter": "a content filter stopped the model",
}


def agent_sources(agents: Mapping[str, Any], *, options: NamedOptions, pool: CallPool) -> Iterator[Source]:
    """
    Serve each Agent as a tool: a task goes in, the answer comes out.

    :param agents: Agents by the names that clients see.
    :param options: What is said of them, by the same names. `inputs` may name `task`, `messages` (a conversation), keys
        of the Agent's State and variables of its prompts; by default it is `task`, and the variables that the Agent
        needs. `outputs` may name `answer` and any output of the Agent; by default it is `answer`.
    :param pool: Where their calls take their places.
    :returns: A source for each.
    :raises ValueError: If one cannot be served; the message says why.
    """
    for name, agent, own in options.each("agents", agents, "Agents"):
        with errors_named("agent", name):
            if not isinstance(agent, Agent):
                msg = f"It is no Agent, but of type {type(agent).__name__}."
                raise ValueError(msg)
            served = observed_agent(agent)
            tool = _serve_agent(name, served, own, pool)
        yield Source([tool], [served])


def _serve_agent(name: str, agent: Any, options: ServeOptions, pool: CallPool) -> ServedTool:
    # By the names that clients see: what the Agent calls them.
    inputs = _choose_inputs(agent, options)
    sockets = output_sockets(agent)
    outputs = _by_name("outputs", options.outputs or [_ANSWER], [_ANSWER, *sockets])
    # One of these is needed, unless the Agent has a prompt of its own.
    is_required = agent.user_prompt is None and not {_TASK, _MESSAGES} <= set(inputs.values())
    schema = InputSchema(
        {
            each: _served_input(agent, inner, is_required=is_required)
            for each, inner in inputs.items()
            if each not in options.bound
        }
    )
    types = {_ANSWER: str, **{each: socket.type for each, socket in sockets.items()}}
    # When which pauses were continued, by their numbers.
    spent: dict[str, float] = {}

    async def body(arguments: dict[str, Any], call: ServedCall) -> Answer | InputRequiredResult:
        run_inputs = _run_inputs(agent, inputs, arguments)
        pause = Pause.continued_by(call)
        if pause is not None and pause.questions:
            return pause.as_result()
        async with ProgressReporter(call) as progress:
            run = AgentRun(agent, call, progress, pause)
            if pause is not None:
                pause.spend(spent)
            found = await run.run(run_inputs)
        return found.as_result() if isinstance(found, Pause) else _answer(found, outputs)

    return ServedTool.create(
        name=name,
        description=f"Gives a task to the agent '{name}', which works on it on its own.",
        parameters=schema.json_schema,
        inputs=schema,
        body=body,
        options=options,
        pool=pool,
        kind="agents",
        output_schema=output_schema(
            {each: types[inner] for each, inner in outputs.items()}, include_embeddings=options.include_embeddings
        ),
    )


def _run_inputs(agent: Any, inputs: dict[str, str], arguments: dict[str, Any]) -> dict[str, Any]:
    """
    Arrange the arguments of a call, and what is bound, as the parameters of `Agent.run`.
    """
    given = {inputs.get(name, name): value for name, value in arguments.items()}
    messages = [
        each if isinstance(each, ChatMessage) else ChatMessage.from_dict(each)
        for each in given.pop(_MESSAGES, None) or []
    ]
    task = given.pop(_TASK, None)
    if task is not None:
        messages.append(ChatMessage.from_user(task))
    if agent.user_prompt is None and not messages:
        names = [name for name, inner in inputs.items() if inner in (_TASK, _MESSAGES)]
        msg = f"Give {' or '.join(f'`{name}`' for name in names)}."
        raise ToolError(msg)
    return {**given, "messages": messages}


def _answer(found: dict[str, Any], outputs: dict[str, str]) -> Answer:
    last: ChatMessage = found["last_message"]
    # A generator may have no reply, for example because of a filter of contents.
    is_silent = last.is_from(ChatRole.USER)
    last = ChatMessage.from_assistant() if is_silent else last
    values = {**found, _ANSWER: _text_of(last)}
    structured = {name: values[inner] for name, inner in outputs.items() if values.get(inner) is not None}
    shown: Any = next(iter(structured.values()), None) if len(outputs) == 1 else structured
    if _ANSWER in outputs.values():
        # With the images of the answer, or of a tool that ends the run.
        media = [part for each in last.tool_call_results if not isinstance(each.result, str) for part in each.result]
        shown = last if last.text else media or values[_ANSWER]
    reason = "the model did not reply" if is_silent else _incomplete_because(last, found)
    if reason is not None:
        shown = [shown, TextContent(type="text", text=f"The answer may be incomplete: {reason}.")]
    return Answer(structured, shown)


def _text_of(message: ChatMessage) -> str:
    if message.text:
        return message.text
    # A tool whose call ends the run.
    results = [each.result for each in message.tool_call_results]
    return "\n".join(each if isinstance(each, str) else _text_of_parts(each) for each in results)


def _text_of_parts(parts: Any) -> str:
    return "\n".join(each.text for each in parts if hasattr(each, "text"))


def _incomplete_because(last: ChatMessage, outputs: dict[str, Any]) -> str | None:
    reason = outputs.get("exit_reason")
    if reason in _INCOMPLETE:
        return _INCOMPLETE[reason]
    if reason is None and last.tool_calls:
        return "the agent stopped before it called the tools that it wanted"
    return None


def _choose_inputs(agent: Agent, options: ServeOptions) -> dict[str, str]:
    sockets = input_sockets(agent)
    # The other parameters of `run`, such as tools and generation_kwargs, are for the server only.
    own = [name for name in sockets if name not in inspect.signature(agent.run).parameters]
    needed = [name for name in own if sockets[name].is_mandatory]
    prompt_variables = [name for name in own if name not in agent.state_schema]
    default = [*([] if agent.user_prompt and prompt_variables else [_TASK]), *prompt_variables]
    inputs = _by_name("inputs", default if options.inputs is None else options.inputs, [_TASK, _MESSAGES, *own])
    left_over = [name for name in needed if name not in (*inputs.values(), *options.bound)]
    if left_over:
        msg = f"Nothing sets {', '.join(left_over)}, without which the agent cannot run. Add to `inputs` or `bound`."
        raise ValueError(msg)
    check_known("bound", options.bound, [*inputs, *sockets], "the inputs of the agent")
    return inputs


def _by_name(option: str, chosen: Any, known: list[str]) -> dict[str, str]:
    """
    Bring a choice into one form: the name that the Agent has for something, by the name that clients see.
    """
    wanted = dict(chosen) if isinstance(chosen, Mapping) else {name: name for name in chosen}
    check_known(option, wanted.values(), known, "what clients can set or get")
    return wanted


def _served_input(agent: Agent, name: str, *, is_required: bool) -> ServedInput:
    if name == _TASK:
        return ServedInput(str, is_required, description="What to do, with all that is needed to do it")
    if name == _MESSAGES:
        conversation = Annotated[list[Any], WithJsonSchema(_CONVERSATION)]
        return ServedInput(conversation, is_required, description="The conversation so far, oldest message first")
    socket = input_sockets(agent)[name]
    # Variables of prompts have no type; they become text.
    declared = str if socket.type is Any else socket.type
    return ServedInput(
        declared,
        required=socket.is_mandatory,
        default=None if socket.is_mandatory else socket.default_value,
        description=f"The value of '{name}'",
    )
