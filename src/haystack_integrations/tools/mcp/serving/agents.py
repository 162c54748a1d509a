# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves Agents as tools: their inputs and outputs, their runs, and how runs pause for approvals.

If a tool call needs approval, the client's user is asked. How that is done depends on the client's revision of the
protocol.

* *Handshake* (2025-11-25 and older): an elicitation is sent while the run waits. Nothing is stored.
* *2026-07-28*: a server cannot ask during a call. The call ends with an `InputRequiredResult`, and the client calls
  again with the answers. The run goes on, perhaps in another process, from the state in that result:

  ```
  first call ──> RUNNING ──> done: the answer
                  │   ▲
      calls to be │   │ all answered, and never continued before: the approved calls are made
        approved  ▼   │
                 PAUSED ──> not all answered: paused as before
                        └─> continued before, or expired: refused; nothing is run
  ```

Nothing runs twice. Steps before the pause are not repeated, because the result carries the messages, the State and the
model's reply that asks for the calls. At a pause, no call of that reply has been made, approved or not. A pause can be
continued only once: its number is marked as continued before the run goes on. If the server dies after that, the client
gets an error and has to begin anew, because it is not known whether the calls were made.
The Agent's hooks at `before_llm` and `before_tool` run again for the paused step; hooks at `before_run` do not.

Only the served Agent's own calls pause it, at its hook `before_tool`, when no call of the step has been made. A nested
run, such as an Agent's that is a tool, would begin anew when the client calls again. For its calls, an
elicitation is sent if the client accepts one during a call; otherwise they are refused.

FastMCP encrypts the carried state, for the same tool, arguments and user only, and it expires.
"""

from __future__ import annotations

import asyncio
import copy
import functools
import hashlib
import inspect
import json
import secrets
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Annotated, Any, TypeAlias

from fastmcp.exceptions import ToolError
from fastmcp.server.context import Context
from haystack import logging
from haystack.components.agents import Agent
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ChatRole, StreamingChunk, ToolCall
from mcp import types
from mcp.shared.exceptions import MCPError as SDKError
from pydantic import TypeAdapter, WithJsonSchema

from haystack_integrations.tools.mcp.convert.server_texts import escaped_text
from haystack_integrations.tools.mcp.haystack_compat import (
    HAS_HOOKS,
    deserialize_values,
    input_sockets,
    is_async_agent,
    output_sockets,
    serialize_object,
    serialize_values,
)
from haystack_integrations.tools.mcp.import_paths import stored_in
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

if TYPE_CHECKING or HAS_HOOKS:
    from haystack.hooks import human_in_the_loop
else:
    from haystack import human_in_the_loop

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The maximum length of the state that a client carries, in characters. Servers accept requests of up to 4 MiB.
_MAX_STATE_LENGTH = 2 * 2**20
_STATE_VERSION = 1
# How long the numbers of continued pauses are kept, in seconds. This is longer than states are valid.
_CONTINUED_RETENTION = 24 * 3600.0
# The maximum length of the arguments in a question, in characters. Longer ones are cut, with a note.
_MAX_SHOWN_ARGUMENTS = 4000
_APPROVE, _FEEDBACK = "approve", "feedback"
# The JSON schema of an answer.
_APPROVAL_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        _APPROVE: {"type": "boolean", "title": "Approve", "description": "Whether the tool may run"},
        _FEEDBACK: {"type": "string", "title": "Feedback", "description": "What the agent should know about it"},
    },
    "required": [_APPROVE],
}
# The attributes with a strategy's own texts for the model.
_TEMPLATE_NAMES = ("reject_template", "modify_template", "user_feedback_template")

# The names that clients see for an Agent's inputs and output, besides keys of its State.
_TASK, _MESSAGES, _ANSWER = "task", "messages", "answer"
_CONVERSATION_SCHEMA: dict[str, Any] = {
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
# Haystack 3's reasons for a run that ended before the model had finished.
_INCOMPLETE_REASONS = {
    "max_agent_steps": "it took as many steps as it may",
    "length": "the model wrote as much as it may",
    "content_filter": "a content filter stopped the model",
}


def agent_sources(agents: Mapping[str, Any], *, options: NamedOptions, pool: CallPool) -> Iterator[Source]:
    """
    Serve each Agent as a tool: a task goes in, the answer comes out.

    :param agents: Agents by the names that clients see.
    :param options: Their options, by the same names. `inputs` may name `task`, `messages` (a conversation), keys of the
        Agent's State and variables of its prompts; by default, `task` and the variables that the Agent needs.
        `outputs` may name `answer` and any output of the Agent; by default, `answer`.
    :param pool: The pool for their calls.
    :returns: A source for each.
    :raises ValueError: If one cannot be served; the message says why.
    """
    for name, agent, own_options in options.each("agents", agents, "Agents"):
        with errors_named("agent", name):
            if not isinstance(agent, Agent):
                msg = f"It is not an Agent, but of type {type(agent).__name__}."
                raise ValueError(msg)
            served = _observed_agent(agent)
            tool = _serve_agent(name, served, own_options, pool)
        yield Source([tool], [served])


def _serve_agent(name: str, agent: Any, options: ServeOptions, pool: CallPool) -> ServedTool:
    # The Agent's names of the inputs, by the names that clients see.
    inputs = _choose_inputs(agent, options)
    sockets = output_sockets(agent)
    outputs = _normalize_choice("outputs", options.outputs or [_ANSWER], [_ANSWER, *sockets])
    # Without a user prompt, the Agent needs one of these. If clients can send both, the schema cannot require either.
    is_required = agent.user_prompt is None and not {_TASK, _MESSAGES} <= set(inputs.values())
    schema = InputSchema(
        {
            each: _served_input(agent, inner, is_required=is_required)
            for each, inner in inputs.items()
            if each not in options.bound
        }
    )
    declared = {_ANSWER: str, **{each: socket.type for each, socket in sockets.items()}}
    # The times at which pauses were continued, by their numbers.
    continued_at: dict[str, float] = {}

    async def body(arguments: dict[str, Any], call: ServedCall) -> Answer | types.InputRequiredResult:
        run_inputs = _run_inputs(agent, inputs, arguments)
        pause = _Pause.continued_by(call)
        if pause is not None and pause.questions:
            return pause.as_result()
        async with ProgressReporter(call) as progress:
            run = _AgentRun(agent, call, progress, pause)
            if pause is not None:
                pause.mark_continued(continued_at)
            outcome = await run.run(run_inputs)
        return outcome.as_result() if isinstance(outcome, _Pause) else _answer(outcome, outputs)

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
            {each: declared[inner] for each, inner in outputs.items()}, include_embeddings=options.include_embeddings
        ),
    )


def _run_inputs(agent: Any, inputs: dict[str, str], arguments: dict[str, Any]) -> dict[str, Any]:
    """
    Convert the arguments of a call, including bound ones, to the parameters of `Agent.run`.
    """
    parameters = {inputs.get(name, name): value for name, value in arguments.items()}
    messages = [
        each if isinstance(each, ChatMessage) else ChatMessage.from_dict(each)
        for each in parameters.pop(_MESSAGES, None) or []
    ]
    task = parameters.pop(_TASK, None)
    if task is not None:
        messages.append(ChatMessage.from_user(task))
    if agent.user_prompt is None and not messages:
        names = [name for name, inner in inputs.items() if inner in (_TASK, _MESSAGES)]
        msg = f"Give {' or '.join(f'`{name}`' for name in names)}."
        raise ToolError(msg)
    return {**parameters, "messages": messages}


def _answer(run_outputs: dict[str, Any], outputs: dict[str, str]) -> Answer:
    last: ChatMessage = run_outputs["last_message"]
    # A generator may return no reply, for example because of a content filter.
    is_silent = last.is_from(ChatRole.USER)
    last = ChatMessage.from_assistant() if is_silent else last
    values = {**run_outputs, _ANSWER: _text_of(last)}
    structured = {name: values[inner] for name, inner in outputs.items() if values.get(inner) is not None}
    shown: Any = next(iter(structured.values()), None) if len(outputs) == 1 else structured
    if _ANSWER in outputs.values():
        # Includes the images of the answer, or of a tool that ends the run.
        media = [part for each in last.tool_call_results if not isinstance(each.result, str) for part in each.result]
        shown = last if last.text else media or values[_ANSWER]
    reason = "the model did not reply" if is_silent else _incomplete_because(last, run_outputs)
    if reason is not None:
        shown = [shown, types.TextContent(type="text", text=f"The answer may be incomplete: {reason}.")]
    return Answer(structured, shown)


def _text_of(message: ChatMessage) -> str:
    if message.text:
        return message.text
    # The message may be the result of a tool whose call ends the run.
    results = [each.result for each in message.tool_call_results]
    return "\n".join(each if isinstance(each, str) else _text_of_parts(each) for each in results)


def _text_of_parts(parts: Any) -> str:
    return "\n".join(each.text for each in parts if hasattr(each, "text"))


def _incomplete_because(last: ChatMessage, outputs: dict[str, Any]) -> str | None:
    reason = outputs.get("exit_reason")
    if reason in _INCOMPLETE_REASONS:
        return _INCOMPLETE_REASONS[reason]
    if reason is None and last.tool_calls:
        return "the agent stopped before it called the tools that it wanted"
    return None


def _choose_inputs(agent: Agent, options: ServeOptions) -> dict[str, str]:
    sockets = input_sockets(agent)
    # Clients must not set the other parameters of `run`, such as tools and generation_kwargs.
    own_inputs = [name for name in sockets if name not in inspect.signature(agent.run).parameters]
    mandatory = [name for name in own_inputs if sockets[name].is_mandatory]
    prompt_variables = [name for name in own_inputs if name not in agent.state_schema]
    default = [*([] if agent.user_prompt and prompt_variables else [_TASK]), *prompt_variables]
    inputs = _normalize_choice(
        "inputs", default if options.inputs is None else options.inputs, [_TASK, _MESSAGES, *own_inputs]
    )
    missing = [name for name in mandatory if name not in (*inputs.values(), *options.bound)]
    if missing:
        msg = f"Nothing sets {', '.join(missing)}, without which the agent cannot run. Add to `inputs` or `bound`."
        raise ValueError(msg)
    check_known("bound", options.bound, [*inputs, *sockets], "the inputs of the agent")
    return inputs


def _normalize_choice(option: str, chosen: Any, known: list[str]) -> dict[str, str]:
    """
    Normalize a choice to a dictionary of the Agent's names by the names that clients see.
    """
    names = dict(chosen) if isinstance(chosen, Mapping) else {name: name for name in chosen}
    check_known(option, names.values(), known, "what clients can set or get")
    return names


def _served_input(agent: Agent, name: str, *, is_required: bool) -> ServedInput:
    if name == _TASK:
        return ServedInput(str, is_required, description="What to do, with all that is needed to do it")
    if name == _MESSAGES:
        conversation = Annotated[list[Any], WithJsonSchema(_CONVERSATION_SCHEMA)]
        return ServedInput(conversation, is_required, description="The conversation so far, oldest message first")
    socket = input_sockets(agent)[name]
    # Variables of prompts do not have a type; clients send text.
    declared = str if socket.type is Any else socket.type
    return ServedInput(
        declared,
        required=socket.is_mandatory,
        default=None if socket.is_mandatory else socket.default_value,
        description=f"The value of '{name}'",
    )


# Runs, and the approval of their tool calls

# The user's decision about a tool call.
Verdict: TypeAlias = human_in_the_loop.ConfirmationUIResult


def question_about(caller: str, tool_name: str, arguments: Mapping[str, Any]) -> tuple[str, str]:
    """
    Write the question whether a tool call is approved.

    :param caller: The agent or tool that wants to call the tool.
    :param tool_name: The tool.
    :param arguments: The arguments that the model chose.
    :returns: The question's key and text. The key is the same in each process, but differs if a hook has changed the
        call.
    """
    as_json = shown = escaped_text(json.dumps(dict(arguments), ensure_ascii=False, default=str))
    if len(shown) > _MAX_SHOWN_ARGUMENTS:
        shown = f"{shown[:_MAX_SHOWN_ARGUMENTS]}... ({len(shown) - _MAX_SHOWN_ARGUMENTS} more characters)"
    digest = hashlib.sha256(json.dumps([tool_name, as_json]).encode()).hexdigest()[:32]
    # The name is escaped, because text after a line end in it would look like another question.
    shown_name = escaped_text(json.dumps(tool_name, ensure_ascii=False)[1:-1])
    return f"approve-{digest}", f"{caller} wants to call the tool '{shown_name}' with {shown}"


def verdict_of(answer: types.ElicitResult) -> Verdict:
    """
    Read an answer. Anything that is not clearly an approval counts as a rejection.

    :param answer: The client's answer.
    :returns: The verdict.
    """
    if answer.action != "accept":
        return Verdict("reject")
    content = answer.content or {}
    text = content.get(_FEEDBACK)
    feedback = text if isinstance(text, str) and text else None
    action = "confirm" if content.get(_APPROVE) is True else "reject"
    return Verdict(action, feedback)


@dataclass(frozen=True)
class _Pause:
    """
    A run that waits for approvals, as JSON.

    :param agent: The name of the Agent.
    :param data: The State before the last request to the model.
    :param steps: The number of steps so far.
    :param replies: The replies of the model to that request.
    :param questions: The texts of the open questions, by their keys.
    :param verdicts: The verdicts on the other questions, by their keys.
    :param number: Identifies the pause.
    """

    agent: str
    data: dict[str, Any]
    steps: int
    replies: list[dict[str, Any]]
    questions: dict[str, str]
    verdicts: dict[str, Verdict]
    number: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    version: int = _STATE_VERSION

    def as_result(self) -> types.InputRequiredResult:
        """
        Write the pause as the result of a call: the questions for the client, and the state that is needed to go on.
        """
        # Not with pydantic, whose JSON does not support Infinity and halves of surrogate pairs.
        state = json.dumps(_PAUSE_ADAPTER.dump_python(self))
        if len(state) > _MAX_STATE_LENGTH:
            msg = "The run is too long to be carried on after an approval. Begin anew with a smaller task."
            raise ToolError(msg)
        forms = {
            key: types.ElicitRequestFormParams(message=message, requested_schema=_APPROVAL_SCHEMA)
            for key, message in self.questions.items()
        }
        return types.InputRequiredResult(
            input_requests={key: types.ElicitRequest(params=form) for key, form in forms.items()}, request_state=state
        )

    @classmethod
    def continued_by(cls, call: ServedCall) -> _Pause | None:
        """
        Read the pause that a client sent back with its answers, after FastMCP decrypted it. None for a new run.

        The answered questions become verdicts; the number stays.
        """
        context, pause = call.context, None
        if context is None or context.request_state is None:
            return None
        with suppress(ValueError):
            pause = _PAUSE_ADAPTER.validate_python(json.loads(context.request_state))
        if pause is None or (pause.version, pause.agent) != (_STATE_VERSION, call.tool_name):
            msg = "The request state belongs to another call."
            raise ToolError(msg)
        responses = context.input_responses or {}
        answers = {key: responses.get(key) for key in pause.questions}
        new_verdicts = {key: verdict_of(each) for key, each in answers.items() if isinstance(each, types.ElicitResult)}
        open_questions = {key: message for key, message in pause.questions.items() if key not in new_verdicts}
        return replace(pause, questions=open_questions, verdicts={**pause.verdicts, **new_verdicts})

    def mark_continued(self, continued_at: dict[str, float]) -> None:
        """
        Mark the pause as continued, which is an error the second time.
        """
        now = time.monotonic()
        for number in [each for each, since in continued_at.items() if now - since > _CONTINUED_RETENTION]:
            del continued_at[number]
        if self.number in continued_at:
            msg = "This run was continued before. Whether its tools were called is not known; begin anew."
            raise ToolError(msg)
        continued_at[self.number] = now


_PAUSE_ADAPTER: TypeAdapter[_Pause] = TypeAdapter(_Pause)


def _carried_state(data: dict[str, Any]) -> dict[str, Any]:
    """
    Write the State of a run as JSON for `deserialize_values`.
    """
    try:
        serialized = serialize_values(data)
        # Checked now, so that the user is not asked in vain if the State cannot be read back.
        deserialize_values(json.loads(json.dumps(serialized)))
    except Exception as error:
        logger.error("The State of an Agent cannot be carried to the call that continues it: {error}", error=str(error))
        msg = "The state of the agent cannot be carried on after an approval."
        raise ToolError(msg) from error
    return serialized


# The keys of State that an Agent of Haystack 3 uses internally, and sets again for each run.
_AGENT_STATE_KEYS = ("tools", "hook_context", "continue_run", "stop_run", "exit_reason")


class _AgentRun:
    """
    One run of an Agent. It reports progress, gets approvals, and ends the run if the client no longer waits for it.
    """

    def __init__(self, agent: Any, call: ServedCall, progress: ProgressReporter, pause: _Pause | None = None) -> None:
        # The agent is the result of `_observed_agent`. A pause from which the run goes on has all verdicts.
        self.call = call
        self.loop = asyncio.get_running_loop()
        self._agent = agent
        self._progress = progress
        self._runs_async = is_async_agent(agent)
        self._resumed_pause = pause
        self._open_decisions: set[Future[Verdict]] = set()
        self._policies: dict[int, tuple[Any, Any]] = {}
        # The State. On Haystack 2, it is set at the first tool call; until then it has only the inputs and messages.
        self._state: Any = None
        # The current step: the State before it, the replies of the model, and the calls in them.
        self._state_before_step: dict[str, Any] = {}
        self._steps = -1 if pause is None else pause.steps - 1
        self._replies: list[ChatMessage] = []
        self._calls: list[ToolCall] = []
        # Whether the run can pause, which is between the reply and its calls.
        self._can_pause = False
        # The questions so far, the verdicts on the calls, and the open questions, by the keys of the questions.
        self._question_counts: Counter[str] = Counter()
        self._verdicts: dict[str, Verdict] = {}
        self._open_questions: dict[str, str] = {}

    async def run(self, inputs: dict[str, Any]) -> dict[str, Any] | _Pause:
        """
        Run the Agent, or continue the paused run. Return a pause if tool calls must be approved before it can go on.
        """
        agent = self._agent
        if self._resumed_pause is not None:
            data = deserialize_values(self._resumed_pause.data)
            agent = _continued(agent, data, self._resumed_pause.steps)
            inputs = {**inputs, **data}
        if self._progress.is_wanted and _can_stream(agent.chat_generator):
            levels = (agent, agent.chat_generator)
            own = inputs.get("streaming_callback") or next(
                filter(None, (getattr(each, "streaming_callback", None) for each in levels)), None
            )
            inputs = {**inputs, "streaming_callback": self._callback(own)}
        token = _current_run.set(self)
        try:
            if self._runs_async:
                return dict(await agent.run_async(**inputs))
            return dict(await self.call.in_thread(lambda: agent.run(**inputs)))
        except _PausedError:
            return _Pause(
                self.call.tool_name,
                _carried_state(self._state_before_step),
                self._steps,
                [each.to_dict() for each in self._replies],
                self._open_questions,
                self._verdicts,
            )
        finally:
            _current_run.reset(token)
            # Set before the waiting threads are released, so that they do not ask again.
            self.call.is_over = True
            for decision in list(self._open_decisions):
                decision.cancel()

    def note_state(self, state: Any) -> None:
        """
        Store the State, which the wrapper of the chat generator cannot see.
        """
        self._state = state

    def before_model(self, inputs: dict[str, Any]) -> dict[str, Any] | None:
        """
        Report a step, before the chat generator is called. Return replies from before a pause in its place.
        """
        self.call.check()
        data = {} if self._state is None else self._state.data
        if HAS_HOOKS:
            self._steps = data["step_count"]
        else:
            data = {**data, "messages": inputs["messages"]}
            self._steps += 1
        self._state_before_step = {
            # Lists and dictionaries are copied, because they may be changed in place.
            key: copy.copy(value) if isinstance(value, list | dict) else value
            for key, value in data.items()
            if key not in _AGENT_STATE_KEYS
        }
        if self._resumed_pause is not None:
            return {"replies": [ChatMessage.from_dict(each) for each in self._resumed_pause.replies]}
        self._progress.step(f"Step {self._steps + 1}: asking the model")
        return None

    def after_model(self, replied: dict[str, Any]) -> None:
        """
        Report the tools that the model wants to call, without their arguments. From here on, the run can pause.
        """
        self._replies = list(replied.get("replies") or [])
        self._calls = [each for message in self._replies for each in message.tool_calls]
        self._can_pause = True
        resumed, self._resumed_pause = self._resumed_pause, None
        self._verdicts = {} if resumed is None else dict(resumed.verdicts)
        self._question_counts.clear()
        if self._calls and resumed is None:
            self._progress.step(f"Calling {', '.join(each.tool_name for each in self._calls)}")

    def before_tools(self, state: Any) -> None:
        """
        End the run before its tools are called, if the client no longer waits for it, or if a call must be approved.
        """
        self.note_state(state)
        self.call.check()
        if self._open_questions:
            raise _PausedError
        self._can_pause = False

    def _callback(self, own: Callable[[StreamingChunk], Any] | None) -> Callable[[StreamingChunk], Any]:
        """
        Make the streaming callback of a run, which also calls the Agent's own.

        It is not a bound method, because Haystack 2 copies inputs, and would copy the Agent with it.
        """
        report = self._report

        def reported(chunk: StreamingChunk) -> Any:
            report(chunk)
            return own(chunk) if own else None

        async def reported_async(chunk: StreamingChunk) -> None:
            result = reported(chunk)
            if inspect.isawaitable(result):
                await result

        return reported_async if self._runs_async else reported

    def _report(self, chunk: StreamingChunk) -> None:
        result = chunk.tool_call_result
        if result is not None:
            self._progress.step(f"{result.origin.tool_name} {'failed' if result.error else 'answered'}")
        elif chunk.content:
            self._progress.text(chunk.content)

    # Approvals

    def policy_copy(self, policy: Any) -> Any:
        """
        Copy a policy, once for this run, so that approvals in another run do not count in this one.
        """
        if id(policy) not in self._policies:
            # The policy is kept alive with the copy, so that its id is not reused.
            try:
                self._policies[id(policy)] = (policy, copy.deepcopy(policy))
            except TypeError as error:  # it has, for example, a lock or a connection
                msg = f"`confirmation_policy` ({type(policy).__name__}) cannot be copied; give it a `__deepcopy__`"
                raise ToolError(msg) from error
        return self._policies[id(policy)][1]

    def decide(self, tool_name: str, tool_params: Mapping[str, Any], tool_call_id: str | None) -> Verdict:
        """
        Ask the client's user to decide about a call. Called from a thread of the run.

        :raises _UndecidedError: If the user cannot be asked, or the run has to pause for it.
        """
        chosen = self.arguments_of_model(tool_name, tool_call_id, tool_params)
        deciding = self._decide(tool_name, chosen, is_own=self._is_own(tool_name, tool_call_id))
        decision = asyncio.run_coroutine_threadsafe(deciding, self.loop)
        self._open_decisions.add(decision)
        decision.add_done_callback(self._open_decisions.discard)
        return decision.result()

    async def _decide(self, tool_name: str, chosen: Mapping[str, Any], *, is_own: bool) -> Verdict:
        if self.call.is_over:
            raise _refused(tool_name, "the client does not wait for the agent any longer.")
        agent = f"agent '{self.call.tool_name}'"
        key, message = question_about(f"The {agent}" if is_own else f"A tool of the {agent}", tool_name, chosen)
        if is_own:
            # Two equal calls in one step are decided separately.
            self._question_counts[key] += 1
            key = f"{key}-{self._question_counts[key]}"
            if key in self._verdicts:
                return self._verdicts[key]
        context = self.call.context
        if context is None or not _can_be_asked(context):
            # Without sessions, as with several workers, a server does not know the capabilities of an older client.
            reason = "the client does not take questions, or this server keeps no session in which to ask it."
            raise _refused(tool_name, reason)
        if not self.call.asks_by_result:
            return await _elicit(self.call, context, tool_name, message)
        if not is_own:
            raise _refused(
                tool_name,
                f"this client can be asked only about the calls of the {agent} itself, between its steps, not about "
                "those that its tools make.",
            )
        self._open_questions[key] = message
        raise _UndecidedError

    def arguments_of_model(
        self, tool_name: str, tool_call_id: str | None, arguments: Mapping[str, Any]
    ) -> dict[str, Any]:
        """
        Choose the arguments of a call that the model has set. Haystack 2 adds arguments from State before it asks.

        On Haystack 3, and for a call that the model did not ask for, these are all arguments.
        """
        calls = [each for each in self._calls if each.tool_name == tool_name and not HAS_HOOKS]
        calls = [each for each in calls if each.id == tool_call_id] or calls
        names = {name for each in calls for name in each.arguments} if calls else set(arguments)
        return {name: value for name, value in arguments.items() if name in names}

    def _is_own(self, tool_name: str, tool_call_id: str | None) -> bool:
        """
        Return whether the served Agent itself is about to make a call, perhaps after hooks have changed it.
        """
        if not self._can_pause:
            return False
        wanted = self._state.data["messages"][-1].tool_calls if HAS_HOOKS else self._calls
        return any(each.tool_name == tool_name and tool_call_id in (None, each.id) for each in wanted)


# The run to which the running code belongs.
_current_run: ContextVar[_AgentRun] = ContextVar("mcp_haystack_agent_run")


def _observed_agent(agent: Any) -> Any:
    """
    Copy an Agent so that its _AgentRun is called at each step, and clients are asked in place of a console.

    All runs share one copy, because a copied chat generator may close what it shares with the original at its end.

    The Agent is not changed, and shares its tools and hooks with the copy.
    """
    observed = copy.copy(agent)
    generator = agent.chat_generator
    observed.chat_generator = copy.copy(generator)
    for name in ("run", "run_async", "warm_up", "warm_up_async", "close", "close_async"):
        method = getattr(generator, name, None)
        if method is not None:
            # The other methods stay bound to the original generator, whose `run` is the one that is called.
            watched = _watched(method) if name in ("run", "run_async") else method
            setattr(observed.chat_generator, name, watched)
    if HAS_HOOKS:
        hooks = {point: [_hook_for_clients(each) for each in point_hooks] for point, point_hooks in agent.hooks.items()}
        note = _Hook(lambda state: _current_run.get().note_state(state))
        check_approvals = _Hook(lambda state: _current_run.get().before_tools(state))
        hooks["before_llm"] = [*hooks.get("before_llm", []), note]
        hooks["before_tool"] = [*hooks.get("before_tool", []), check_approvals]
        observed.hooks = hooks
        return observed
    observed._confirmation_strategies = _for_clients(agent._confirmation_strategies)
    invoker = agent._tool_invoker
    if invoker is not None:

        @functools.wraps(invoker.run)
        def invoke(**inputs: Any) -> Any:
            _current_run.get().before_tools(inputs["state"])
            return invoker.run(**inputs)

        observed._tool_invoker = copy.copy(invoker)
        observed._tool_invoker.run = invoke
    return observed


def _watched(generate: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(generate)
    def watched(**inputs: Any) -> Any:
        run = _current_run.get()
        replied = run.before_model(inputs) or generate(**inputs)
        run.after_model(replied)
        return replied

    @functools.wraps(generate)
    async def watched_async(**inputs: Any) -> Any:
        run = _current_run.get()
        replied = run.before_model(inputs) or await generate(**inputs)
        run.after_model(replied)
        return replied

    return watched_async if inspect.iscoroutinefunction(generate) else watched


def _can_stream(generator: Any) -> bool:
    parameters = inspect.signature(generator.run).parameters.values()
    return any(each.name == "streaming_callback" or each.kind is each.VAR_KEYWORD for each in parameters)


class _PausedError(BaseException):
    """
    Raised in a run that waits for approvals. Not derived from Exception, because Haystack 2 would save a snapshot.
    """


class _Hook:
    """
    A hook of an Agent of Haystack 3.
    """

    def __init__(self, run: Callable[[Any], object]) -> None:
        self.run = run

    async def run_async(self, state: Any) -> None:
        # Without this method, the hook would run in a thread.
        self.run(state)


def _continued(observed: Any, data: dict[str, Any], steps: int) -> Any:
    """
    Copy an observed Agent so that its next run goes on just before the last request to the chat generator.

    `data` is the State at that point. Run the copy with it as parameters.
    """
    continued = copy.copy(observed)
    # The messages already contain these prompts.
    for name in ("system_prompt", "user_prompt", "_system_chat_prompt_builder", "_user_chat_prompt_builder"):
        setattr(continued, name, None)
    if HAS_HOOKS:
        continued.hooks = {**observed.hooks, "before_run": [_Hook(lambda state: state.data.update(data))]}
    else:
        continued.max_agent_steps -= steps
    return continued


# Asking clients


def _can_be_asked(context: Context) -> bool:
    if context.is_background_task:
        return True
    if context.request_context is None:
        return False
    capabilities = context.session.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None


async def _elicit(call: ServedCall, context: Context, tool_name: str, message: str) -> Verdict:
    try:
        asking = context.session.elicit_form(message, _APPROVAL_SCHEMA, context.request_id)
        answer = await call.answer_of_user(asking)
    except TimeoutError:
        raise _refused(tool_name, "nobody answered in time.") from None
    except SDKError as error:
        logger.debug("The client could not ask for approval: {error}", error=str(error))
        raise _refused(tool_name, "the client could not ask.") from None
    return verdict_of(answer)


class _UndecidedError(Exception):
    """
    Raised if there is no decision about a call, so that the policy learns nothing from it.
    """

    def __init__(self, feedback: str | None = None) -> None:
        super().__init__(feedback)
        self.feedback = feedback


def _refused(tool_name: str, reason: str) -> _UndecidedError:
    logger.warning("A call of the tool '{tool}' is refused: {reason}", tool=tool_name, reason=reason)
    return _UndecidedError(f"The tool '{tool_name}' was not called, because nobody can be asked for approval: {reason}")


@stored_in("haystack_integrations.tools.mcp.serving")
class ClientConfirmationStrategy(human_in_the_loop.BlockingConfirmationStrategy):  # type: ignore[misc, unused-ignore]
    """
    A confirmation strategy for Haystack 2.31 and 3 that asks the client of a served Agent to approve tool calls.

    ```python
    from haystack.hooks.human_in_the_loop import ConfirmationHook

    hook = ConfirmationHook({"delete_file": ClientConfirmationStrategy()})
    agent = Agent(chat_generator=OpenAIChatGenerator(), tools=[delete_file], hooks={"before_tool": [hook]})
    server = create_mcp_server("files", agents={"files": agent})
    ```

    On Haystack 2.31, pass it to an Agent as `confirmation_strategies={"delete_file": ClientConfirmationStrategy()}`.

    The user of the client sees the tool and the arguments that the model chose, and approves or rejects the call,
    perhaps with feedback for the model. If the client cannot ask its user, the call is rejected. If the strategies of a
    served Agent ask at a console (`SimpleConsoleUI`, `RichConsoleUI`), its clients are asked instead, without a change.
    """

    def __init__(self, confirmation_policy: Any = None, **templates: str) -> None:
        """
        Initialize the ClientConfirmationStrategy.

        :param confirmation_policy: A ConfirmationPolicy of Haystack, which decides which calls need approval; by
            default, all. What it learns from answers applies to one call of the served Agent.
        :param templates: `reject_template`, `modify_template` and `user_feedback_template`, as for
            BlockingConfirmationStrategy.
        :raises TypeError: If there is any other template.
        """
        policy = human_in_the_loop.AlwaysAskPolicy() if confirmation_policy is None else confirmation_policy
        no_ui: Any = None  # each call of the Agent has its own client
        super().__init__(confirmation_policy=policy, confirmation_ui=no_ui, **templates)

    def run(
        self,
        *,
        tool_name: str,
        tool_description: str,
        tool_params: dict[str, Any],
        tool_call_id: str | None = None,
        confirmation_strategy_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> human_in_the_loop.ToolExecutionDecision:
        """
        Ask the client if the policy requires it. Call this in a thread, which it blocks.

        :param tool_name: Name of the tool.
        :param tool_description: Its description.
        :param tool_params: The arguments.
        :param tool_call_id: Identifies the call.
        :param confirmation_strategy_context: Not used.
        :returns: The decision.
        :raises RuntimeError: If the Agent is not served.
        """
        run = _current_run.get(None)

        def ask(tool_name: str, _description: str, tool_params: dict[str, Any]) -> Verdict:
            if run is None:
                msg = (
                    "ClientConfirmationStrategy asks the client of a served Agent, but this Agent is not run by a "
                    "server, or is in a served pipeline. Serve it by `agents` of create_mcp_server."
                )
                raise RuntimeError(msg)
            return run.decide(tool_name, tool_params, tool_call_id)

        strategy = copy.copy(self)
        client_ui: Any = SimpleNamespace(get_user_confirmation=ask)
        strategy.confirmation_ui = client_ui
        if run is not None:
            strategy.confirmation_policy = run.policy_copy(self.confirmation_policy)
        try:
            decision: human_in_the_loop.ToolExecutionDecision = super(ClientConfirmationStrategy, strategy).run(
                tool_name=tool_name,
                tool_description=tool_description,
                tool_params=tool_params,
                tool_call_id=tool_call_id,
            )
        except _UndecidedError as undecided:
            return human_in_the_loop.ToolExecutionDecision(tool_name, False, tool_call_id, feedback=undecided.feedback)
        if run is None or not decision.execute:
            return decision
        # Otherwise, on 2.31, the model would also see the arguments from the State.
        model_arguments = run.arguments_of_model(tool_name, tool_call_id, decision.final_tool_params or {})
        return replace(decision, final_tool_params=model_arguments)

    async def run_async(self, **call: Any) -> human_in_the_loop.ToolExecutionDecision:
        """
        Ask the client like `run`, without blocking the event loop.

        :param call: The parameters of `run`.
        :returns: The decision.
        """
        run = _current_run.get(None)
        if run is None:
            return self.run(**call)
        if asyncio.get_running_loop() is not run.loop:  # a tool runs its own Agent in another event loop
            return await asyncio.to_thread(self.run, **call)
        return await run.call.in_thread(lambda: self.run(**call))

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the strategy.

        :returns: A dictionary with its parameters.
        """
        policy = serialize_object("confirmation_policy", self.confirmation_policy)
        return default_to_dict(self, confirmation_policy=policy, **_templates_of(self))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> ClientConfirmationStrategy:
        """
        Deserialize the strategy.

        :param data: The result of `to_dict`.
        :returns: The strategy.
        """
        return default_from_dict(cls, data)


def _templates_of(strategy: Any) -> dict[str, str]:
    return {name: getattr(strategy, name) for name in _TEMPLATE_NAMES if hasattr(strategy, name)}


def _hook_for_clients(hook: Any) -> Any:
    strategies = getattr(hook, "confirmation_strategies", None)
    if isinstance(strategies, dict):
        hook_copy = copy.copy(hook)
        hook_copy.confirmation_strategies = _for_clients(strategies)
        return hook_copy
    if _is_console(getattr(hook, "confirmation_ui", None)):
        # This is an MCPConfirmationHook, which has either a UI or a strategy.
        hook_copy = copy.copy(hook)
        hook_copy.confirmation_ui, hook_copy.strategy = None, ClientConfirmationStrategy()
        return hook_copy
    return hook


def _for_clients(strategies: dict[Any, Any]) -> dict[Any, Any]:
    return {name: _strategy_for_clients(each) for name, each in strategies.items()}


def _strategy_for_clients(strategy: Any) -> Any:
    if not _is_console(getattr(strategy, "confirmation_ui", None)):
        return strategy
    return ClientConfirmationStrategy(strategy.confirmation_policy, **_templates_of(strategy))


def _is_console(ui: Any) -> bool:
    return isinstance(ui, human_in_the_loop.RichConsoleUI | human_in_the_loop.SimpleConsoleUI)
