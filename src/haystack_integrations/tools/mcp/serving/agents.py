# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Annotated, Any

from fastmcp.exceptions import ToolError
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ChatRole, StreamingChunk
from mcp.types import InputRequiredResult, TextContent
from pydantic import WithJsonSchema

from haystack_integrations.tools.mcp.haystack_compat import (
    HAS_HOOKS,
    deserialize_values,
    input_sockets,
    is_async_agent,
    output_sockets,
)
from haystack_integrations.tools.mcp.run_observers import agent_observer, continued_agent, observed_agent
from haystack_integrations.tools.mcp.serving.approvals import Approvals, Pause, ask_clients, carried, current_approvals
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


class AgentSource(Source):
    """
    Serves each Agent as a tool: a task goes in, the answer comes out.
    """

    def __init__(self, agents: Mapping[str, Any], *, options: NamedOptions, pool: CallPool) -> None:
        """
        Initialize the AgentSource.

        :param agents: Agents by the names that clients see.
        :param options: What is said of them, by the same names. `inputs` may name `task`, `messages` (a conversation),
            keys of the Agent's State and variables of its prompts; by default it is `task`, and the variables that the
            Agent needs. `outputs` may name `answer` and any output of the Agent; by default it is `answer`.
        :param pool: Where their calls take their places.
        :raises ValueError: If one cannot be served; the message says why.
        """
        served = []
        for name, agent, own in options.each("agents", agents, "Agents"):
            with errors_named("agent", name):
                if not isinstance(agent, Agent):
                    msg = f"It is no Agent, but of type {type(agent).__name__}."
                    raise ValueError(msg)
                served.append(_ServedAgent(name, agent, own))
        super().__init__([each.as_tool(pool) for each in served], [each.agent for each in served])


class _ServedAgent:
    def __init__(self, name: str, agent: Agent, options: ServeOptions) -> None:
        self._name = name
        self._options = options
        self.agent: Any = observed_agent(agent)
        ask_clients(self.agent)
        # When which pauses were continued, by their numbers.
        self._spent: dict[str, float] = {}
        self._runs_async = is_async_agent(agent)
        # By the names that clients see: what the Agent calls them.
        self._inputs = _choose_inputs(agent, options)
        self._outputs = _by_name("outputs", options.outputs or [_ANSWER], [_ANSWER, *output_sockets(agent)])
        # One of these is needed, unless the Agent has a prompt of its own.
        self._needs_messages = agent.user_prompt is None
        is_required = self._needs_messages and not {_TASK, _MESSAGES} <= set(self._inputs.values())
        self._schema = InputSchema(
            {
                name: _served_input(agent, inner, is_required=is_required)
                for name, inner in self._inputs.items()
                if name not in options.bound
            }
        )
        types = {_ANSWER: str, **{name: socket.type for name, socket in output_sockets(agent).items()}}
        self._output_schema = output_schema(
            {name: types[inner] for name, inner in self._outputs.items()},
            include_embeddings=options.include_embeddings,
        )

    def as_tool(self, pool: CallPool) -> ServedTool:
        return ServedTool.create(
            name=self._name,
            description=f"Gives a task to the agent '{self._name}', which works on it on its own.",
            parameters=self._schema.json_schema,
            inputs=self._schema,
            body=self._call,
            options=self._options,
            pool=pool,
            kind="agents",
            output_schema=self._output_schema,
        )

    async def _call(self, arguments: dict[str, Any], call: ServedCall) -> Answer | InputRequiredResult:
        inputs = self._run_inputs(arguments)
        pause = self._pause_of(call)
        if pause is not None and pause.questions:
            return pause.as_result()
        async with ProgressReporter(call) as progress:
            run = AgentRun(self.agent, call, progress, runs_async=self._runs_async)
            if pause is None:
                outputs = await run.run(inputs)
            else:
                pause.spend(self._spent)
                outputs = await run.go_on(pause, inputs)
        return outputs.as_result() if isinstance(outputs, Pause) else self._answer(outputs)

    def _pause_of(self, call: ServedCall) -> Pause | None:
        """
        Read what the client sent back to continue a run.
        """
        if call.context is None or call.context.request_state is None:
            return None
        return Pause.from_state(call.context.request_state, call.tool_name).answered(call.context.input_responses or {})

    def _run_inputs(self, arguments: dict[str, Any]) -> dict[str, Any]:
        """
        Arrange the arguments of a call, and what is bound, as the parameters of `Agent.run`.
        """
        inputs = {self._inputs.get(name, name): value for name, value in arguments.items()}
        messages = [
            each if isinstance(each, ChatMessage) else ChatMessage.from_dict(each)
            for each in inputs.pop(_MESSAGES, None) or []
        ]
        task = inputs.pop(_TASK, None)
        if task is not None:
            messages.append(ChatMessage.from_user(task))
        if self._needs_messages and not messages:
            names = [name for name, inner in self._inputs.items() if inner in (_TASK, _MESSAGES)]
            msg = f"Give {' or '.join(f'`{name}`' for name in names)}."
            raise ToolError(msg)
        return {**inputs, "messages": messages}

    def _answer(self, outputs: dict[str, Any]) -> Answer:
        last: ChatMessage = outputs["last_message"]
        # A generator may have no reply, for example because of a filter of contents.
        is_silent = last.is_from(ChatRole.USER)
        last = ChatMessage.from_assistant() if is_silent else last
        found = {**outputs, _ANSWER: _text_of(last)}
        structured = {name: found[inner] for name, inner in self._outputs.items() if found.get(inner) is not None}
        shown: Any = next(iter(structured.values()), None) if len(self._outputs) == 1 else structured
        if _ANSWER in self._outputs.values():
            # With the images of the answer, or of a tool that ends the run.
            media = [
                part for each in last.tool_call_results if not isinstance(each.result, str) for part in each.result
            ]
            shown = last if last.text else media or found[_ANSWER]
        reason = "the model did not reply" if is_silent else _incomplete_because(last, outputs)
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


class AgentRun:
    """
    One run of an Agent: says what it does, and ends it if nobody waits for it any more.
    """

    def __init__(self, agent: Any, call: ServedCall, progress: ProgressReporter, *, runs_async: bool) -> None:
        """
        Initialize the AgentRun.

        :param agent: An observed Agent.
        :param call: The call that waits for it.
        :param progress: Where steps, tool calls and text are reported.
        :param runs_async: Whether it runs in the event loop; otherwise in a thread.
        """
        self._agent = agent
        self._call = call
        self._progress = progress
        self._runs_async = runs_async
        self._approvals = Approvals(call)
        self._resumed: Pause | None = None
        # Of the step that is under way.
        self._data: dict[str, Any] = {}
        self._steps = self._steps_before = 0
        self._replies: list[ChatMessage] = []

    async def run(self, inputs: dict[str, Any]) -> dict[str, Any] | Pause:
        """
        Run the Agent.

        :param inputs: The parameters of `Agent.run`.
        :returns: The outputs; a pause if tool calls have to be approved before it can go on.
        """
        if self._progress.is_wanted and _can_stream(self._agent.chat_generator):
            inputs = {**inputs, "streaming_callback": self._callback()}
        try:
            if self._runs_async:
                with self._observing():
                    return dict(await self._agent.run_async(**inputs))
            return await self._call.in_thread(self._run, inputs)
        except _PausedError:
            return Pause(
                self._call.tool_name,
                carried(self._data),
                self._steps,
                [each.to_dict() for each in self._replies],
                tuple(self._approvals.pending.values()),
                self._approvals.verdicts,
            )
        finally:
            # Before threads that wait for an approval go on.
            self._call.is_over = True
            self._approvals.close()

    async def go_on(self, pause: Pause, inputs: dict[str, Any]) -> dict[str, Any] | Pause:
        """
        Go on with a run that was paused.

        :param pause: The pause, with all verdicts.
        :param inputs: The parameters of the run.
        :returns: As `run`.
        """
        data = deserialize_values(pause.data)
        self._agent = continued_agent(self._agent, data, pause.steps)
        self._resumed = pause
        # Haystack 3 restores the number of steps, Haystack 2 counts from zero again.
        self._steps_before = 0 if HAS_HOOKS else pause.steps
        return await self.run({**inputs, **data})

    def _run(self, inputs: dict[str, Any]) -> dict[str, Any]:
        with self._observing():
            return dict(self._agent.run(**inputs))

    @contextmanager
    def _observing(self) -> Iterator[None]:
        observing, approving = agent_observer.set(self), current_approvals.set(self._approvals)
        try:
            yield
        finally:
            agent_observer.reset(observing)
            current_approvals.reset(approving)

    def before_model(self, data: dict[str, Any], steps: int) -> dict[str, Any] | None:
        """
        Report a step.

        :param data: What the State has.
        :param steps: How many steps the run has taken.
        :returns: What the model replied before the run was paused, if it was.
        """
        self._check()
        self._data, self._steps = data, steps + self._steps_before
        if self._resumed is not None:
            return {"replies": [ChatMessage.from_dict(each) for each in self._resumed.replies]}
        self._progress.step(f"Step {self._steps + 1}: asking the model")
        return None

    def after_model(self, replied: dict[str, Any]) -> None:
        """
        Report the tools that the model wants to call, without their arguments.

        :param replied: The outputs of the chat generator.
        """
        self._replies = list(replied.get("replies") or [])
        resumed, self._resumed = self._resumed, None
        self._approvals.begin_step(self._replies, resumed.verdicts if resumed is not None else None)
        names = [each.tool_name for message in self._replies for each in message.tool_calls]
        if names and resumed is None:
            self._progress.step(f"Calling {', '.join(names)}")

    def before_tools(self) -> None:
        """
        End the run before its tools are called, if nobody waits for it, or if somebody has to approve a call.
        """
        self._check()
        if self._approvals.pending:
            raise _PausedError
        self._approvals.end_deciding()

    def _check(self) -> None:
        if self._call.is_over:
            raise _AbandonedRunError

    def _callback(self) -> Callable[[StreamingChunk], Any]:
        """
        Make the streaming callback of a run.

        It is a function, because Haystack 2 copies inputs: of a bound method, it would copy the Agent, too.
        """
        report = self._report

        def reported(chunk: StreamingChunk) -> None:
            report(chunk)

        async def reported_async(chunk: StreamingChunk) -> None:
            report(chunk)

        return reported_async if self._runs_async else reported

    def _report(self, chunk: StreamingChunk) -> None:
        result = chunk.tool_call_result
        if result is not None:
            self._progress.step(f"{result.origin.tool_name} {'failed' if result.error else 'answered'}")
        elif chunk.content:
            self._progress.text(chunk.content)


def _can_stream(generator: Any) -> bool:
    parameters = inspect.signature(generator.run).parameters.values()
    return any(each.name == "streaming_callback" or each.kind is each.VAR_KEYWORD for each in parameters)


class _AbandonedRunError(BaseException):
    """
    Raised in a thread whose call was cancelled; nobody sees it.

    It is no Exception, because Haystack 2 would save a snapshot of the run.
    """


class _PausedError(BaseException):
    """
    Raised in a run that has to wait for approvals, for the same reason no Exception.
    """
