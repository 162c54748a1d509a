# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tool calls of a served Agent that somebody has to approve: the client is asked.

How it is asked depends on the revision of the protocol that the client speaks.

* *Handshake* (2025-11-25 and older): with an elicitation, while the run waits. Nothing is stored.
* *2026-07-28*: a server cannot ask during a call. The call ends with an `InputRequiredResult`, and the client calls
  again with the answers. The run goes on, perhaps in another process, from what the result carries:

  ```
  first call ──> RUNNING ──> done: the answer
                  │   ▲
      calls to be │   │ all answered, and never continued before: the calls that were approved are made
        approved  ▼   │
                 PAUSED ──> not all answered: paused as before
                        └─> continued before, or expired: refused; nothing is run
  ```

What never runs twice: what ran before the pause is not run again, because the messages and the State are carried along,
and so is the reply of the model that wants the calls. At a pause, no call of that reply has been made, approved or not.
A pause is continued once: it has a number, which is spent before the run goes on. If the server dies after that, the
client gets an error, and whether the calls were made is not known; it has to begin anew.
Hooks of the Agent at `before_llm` and `before_tool` run again for the step that was paused, those at `before_run` do
not.

Only the served Agent's own calls pause it, at its hook `before_tool`: nothing of the step has been done by then. What
runs within (an Agent that is a tool, say) would begin anew when the client calls again. Its calls are asked about with
an elicitation if the client takes those during a call, and are refused otherwise.

The carried state is encrypted by FastMCP, for the same tool, arguments and user only, and expires.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
import secrets
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from fastmcp.exceptions import ToolError
from fastmcp.server.context import Context
from haystack import logging
from haystack.core.serialization import default_from_dict, default_to_dict
from haystack.dataclasses import ChatMessage, ToolCall
from mcp import types
from mcp.shared.exceptions import MCPError as SDKError
from pydantic import TypeAdapter

from haystack_integrations.tools.mcp.convert.server_texts import escaped_text
from haystack_integrations.tools.mcp.haystack_compat import (
    HAS_HOOKS,
    arguments_of_model,
    deserialize_object,
    deserialize_values,
    serialize_object,
    serialize_values,
)
from haystack_integrations.tools.mcp.import_paths import stored_in
from haystack_integrations.tools.mcp.run_observers import pending_tool_calls
from haystack_integrations.tools.mcp.serving.calls import ServedCall

if TYPE_CHECKING or HAS_HOOKS:
    from haystack.hooks.human_in_the_loop import (
        AlwaysAskPolicy,
        BlockingConfirmationStrategy,
        ConfirmationUIResult,
        RichConsoleUI,
        SimpleConsoleUI,
        ToolExecutionDecision,
    )
else:
    from haystack.human_in_the_loop import (
        AlwaysAskPolicy,
        BlockingConfirmationStrategy,
        ConfirmationUIResult,
        RichConsoleUI,
        SimpleConsoleUI,
        ToolExecutionDecision,
    )

logger: logging.PatchedLogger = logging.getLogger(__name__)

# More than this is no state to send back and forth. Servers take requests of up to 4 MiB.
_MOST_STATE = 2 * 2**20
_VERSION = 1
# For how long it is remembered which pauses were continued, in seconds; longer than states are valid.
_KEEP_SPENT = 24 * 3600.0
# Longer arguments are cut in a question, which says so.
_MOST_SHOWN = 4000
_APPROVE, _FEEDBACK = "approve", "feedback"
# The JSON schema of an answer.
_FORM: dict[str, Any] = {
    "type": "object",
    "properties": {
        _APPROVE: {"type": "boolean", "title": "Approve", "description": "Whether the tool may run"},
        _FEEDBACK: {"type": "string", "title": "Feedback", "description": "What the agent should know about it"},
    },
    "required": [_APPROVE],
}
# The texts for the model that a strategy of Haystack may have of its own.
_TEMPLATES = ("reject_template", "modify_template", "user_feedback_template")


@dataclass(frozen=True)
class Verdict:
    """
    What somebody decided about a tool call.

    :param approved: Whether it may be made.
    :param feedback: What the model is told.
    :param was_asked: Whether there was somebody to ask.
    """

    approved: bool
    feedback: str | None = None
    was_asked: bool = True


@dataclass(frozen=True)
class Question:
    """
    A tool call that somebody has to decide about.

    :param key: Identifies it among those of its step.
    :param message: What the person reads.
    """

    key: str
    message: str

    @classmethod
    def about(cls, caller: str, tool_name: str, arguments: Mapping[str, Any]) -> Question:
        """
        Write a question.

        :param caller: Who wants to call the tool.
        :param tool_name: The tool.
        :param arguments: The arguments that the model chose.
        :returns: The question. Its key is the same in each process, and another one if a hook has changed the call.
        """
        as_json = shown = escaped_text(json.dumps(dict(arguments), ensure_ascii=False, default=str))
        if len(shown) > _MOST_SHOWN:
            shown = f"{shown[:_MOST_SHOWN]}... ({len(shown) - _MOST_SHOWN} more characters)"
        digest = hashlib.sha256(json.dumps([tool_name, as_json]).encode()).hexdigest()[:32]
        # A line end in the name would begin what looks like another question.
        shown_name = escaped_text(json.dumps(tool_name, ensure_ascii=False)[1:-1])
        message = f"{caller} wants to call the tool '{shown_name}' with {shown}"
        return cls(f"approve-{digest}", message)

    def as_request(self) -> types.ElicitRequest:
        """
        Write the question as a client gets it.

        :returns: The elicitation.
        """
        return types.ElicitRequest(params=types.ElicitRequestFormParams(message=self.message, requested_schema=_FORM))

    def verdict(self, answer: types.ElicitResult) -> Verdict:
        """
        Read an answer. Whatever is not clearly an approval is none.

        :param answer: What the client sent.
        :returns: The verdict.
        """
        if answer.action != "accept":
            return Verdict(False)
        content = answer.content or {}
        given = content.get(_FEEDBACK)
        feedback = given if isinstance(given, str) and given else None
        return Verdict(content.get(_APPROVE) is True, feedback)


class Approvals:
    """
    The decisions about one run's tool calls, and what is still to be decided.
    """

    def __init__(self, call: ServedCall) -> None:
        """
        Initialize the Approvals.

        :param call: The call that waits for the run.
        """
        self.call = call
        self.loop = asyncio.get_running_loop()
        self._waiting: set[Future[Verdict | None]] = set()
        self._wanted: list[ToolCall] = []
        self._asked: Counter[str] = Counter()
        self._is_closed = False
        self._policies: dict[int, tuple[Any, Any]] = {}
        # What was decided about the calls of this step, by the keys of the questions.
        self.verdicts: dict[str, Verdict] = {}
        self.pending: dict[str, Question] = {}

    def own_policy(self, policy: Any) -> Any:
        """
        Copy a policy for this run: what somebody approved in another run is not approved in this one.

        :param policy: A ConfirmationPolicy, which may learn from answers.
        :returns: The copy, the same one each time.
        :raises ToolError: If it cannot be copied.
        """
        if id(policy) not in self._policies:
            # With the policy, so that no other one gets its id.
            try:
                self._policies[id(policy)] = (policy, copy.deepcopy(policy))
            except TypeError as error:  # with a lock or a connection in it
                msg = f"`confirmation_policy` ({type(policy).__name__}) cannot be copied; give it a `__deepcopy__`"
                raise ToolError(msg) from error
        return self._policies[id(policy)][1]

    def begin_step(self, replies: Iterable[ChatMessage], verdicts: Mapping[str, Verdict] | None = None) -> None:
        """
        Note the calls that the model wants, and forget what was decided about others.

        From now on the run can pause.

        :param replies: What it replied.
        :param verdicts: What was decided about these calls before the run was paused.
        """
        self._wanted = [each for message in replies for each in message.tool_calls]
        self.verdicts = dict(verdicts or {})
        self._asked.clear()

    def end_deciding(self) -> None:
        """
        Note that the calls of the step are about to be made: from now on the run cannot pause.
        """
        self._wanted = []

    def close(self) -> None:
        """
        End the waiting of threads for answers, and ask nothing more.
        """
        self._is_closed = True
        for waiting in list(self._waiting):
            waiting.cancel()

    def decide(self, tool_name: str, tool_params: Mapping[str, Any], tool_call_id: str | None) -> Verdict | None:
        """
        Ask somebody to decide about a call, from a thread of the run.

        :param tool_name: The tool.
        :param tool_params: All its arguments, including those that the model does not see.
        :param tool_call_id: Identifies the call.
        :returns: The verdict; None if the run has to pause for it.
        """
        # Read where the call is made, which context variables tell.
        chosen = arguments_of_model(tool_name, tool_call_id, tool_params)
        deciding = self._decide(tool_name, chosen, is_own=self._is_own(tool_name, tool_call_id))
        waiting = asyncio.run_coroutine_threadsafe(deciding, self.loop)
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        return waiting.result()

    async def _decide(self, tool_name: str, chosen: Mapping[str, Any], *, is_own: bool) -> Verdict | None:
        if self._is_closed:
            return _refused(tool_name, "the client does not wait for the agent any longer.")
        agent = f"agent '{self.call.tool_name}'"
        question = Question.about(f"The {agent}" if is_own else f"A tool of the {agent}", tool_name, chosen)
        if is_own:
            # Of two equal calls in one step, each is decided about.
            self._asked[question.key] += 1
            question = replace(question, key=f"{question.key}-{self._asked[question.key]}")
            if question.key in self.verdicts:
                return self.verdicts[question.key]
        context = self.call.context
        if context is None or not _can_be_asked(context):
            return _refused(tool_name, "the client does not take questions.")
        if not self.call.asks_by_result:
            return await _elicit(context, tool_name, question)
        if not is_own:
            return _refused(
                tool_name,
                f"this client can be asked only about the calls of the {agent} itself, between its steps, not about "
                "those that its tools make.",
            )
        self.pending[question.key] = question
        return None

    def _is_own(self, tool_name: str, tool_call_id: str | None) -> bool:
        """
        Return whether a call is one of those that the served Agent is about to make, as hooks have changed them.
        """
        wanted = pending_tool_calls() if self._wanted else []
        return any(
            each.tool_name == tool_name and tool_call_id in (None, each.id)
            for each in (self._wanted if wanted is None else wanted)
        )


# Who decides about the calls of the run that the code is part of.
current_approvals: ContextVar[Approvals | None] = ContextVar("mcp_haystack_approvals", default=None)


def _can_be_asked(context: Context) -> bool:
    if context.is_background_task:
        return True
    if context.request_context is None:
        return False
    capabilities = context.session.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None


async def _elicit(context: Context, tool_name: str, question: Question) -> Verdict:
    try:
        answer = await context.session.elicit_form(question.message, _FORM, context.request_id)
    except SDKError as error:
        logger.debug("The client could not ask for approval: {error}", error=str(error))
        return _refused(tool_name, "the client could not ask.")
    return question.verdict(answer)


def _refused(tool_name: str, reason: str) -> Verdict:
    logger.warning("A call of the tool '{tool}' is refused: {reason}", tool=tool_name, reason=reason)
    feedback = f"The tool '{tool_name}' was not called, because nobody can be asked for approval: {reason}"
    return Verdict(False, feedback, was_asked=False)


@dataclass(frozen=True)
class Pause:
    """
    A run that waits for approvals, as JSON.

    :param agent: The name of the Agent.
    :param data: The State before the model was asked for the last time.
    :param steps: How many steps it had taken.
    :param replies: What the model replied then.
    :param questions: What was not decided.
    :param verdicts: What was.
    :param number: Identifies the pause.
    """

    agent: str
    data: dict[str, Any]
    steps: int
    replies: list[dict[str, Any]]
    questions: tuple[Question, ...]
    verdicts: dict[str, Verdict]
    number: str = field(default_factory=lambda: secrets.token_urlsafe(16))
    version: int = _VERSION

    def as_result(self) -> types.InputRequiredResult:
        """
        Write the pause as the result of a call.

        :returns: The questions for the client, and all that is needed to go on.
        :raises ToolError: If there is too much of it.
        """
        # Not by pydantic, whose JSON has neither Infinity nor half of a surrogate pair.
        state = json.dumps(_PAUSE.dump_python(self))
        if len(state) > _MOST_STATE:
            msg = "The run is too long to be carried on after an approval. Begin anew with a smaller task."
            raise ToolError(msg)
        return types.InputRequiredResult(
            input_requests={each.key: each.as_request() for each in self.questions}, request_state=state
        )

    @classmethod
    def from_state(cls, state: str, agent: str) -> Pause:
        """
        Read a pause that a client sent back, after FastMCP decrypted it.

        :param state: The state.
        :param agent: The name of the Agent that is called.
        :returns: The pause.
        :raises ToolError: If it is of something else.
        """
        pause = None
        with suppress(ValueError):
            pause = _PAUSE.validate_python(json.loads(state))
        if pause is None or (pause.version, pause.agent) != (_VERSION, agent):
            msg = "The request state belongs to another call."
            raise ToolError(msg)
        return pause

    def answered(self, responses: Mapping[str, Any]) -> Pause:
        """
        Take the answers of the client.

        :param responses: What it sent, by the keys of the questions.
        :returns: The pause with fewer questions and more verdicts, under the same number.
        """
        given = {
            each.key: each.verdict(response)
            for each in self.questions
            if isinstance(response := responses.get(each.key), types.ElicitResult)
        }
        left = tuple(each for each in self.questions if each.key not in given)
        return replace(self, questions=left, verdicts={**self.verdicts, **given})

    def spend(self, spent: dict[str, float]) -> None:
        """
        Note that the run goes on.

        :param spent: When which pauses were continued in this process, by their numbers.
        :raises ToolError: If this one was continued before.
        """
        now = time.monotonic()
        for number in [each for each, since in spent.items() if now - since > _KEEP_SPENT]:
            del spent[number]
        if self.number in spent:
            msg = "This run was continued before. Whether its tools were called is not known; begin anew."
            raise ToolError(msg)
        spent[self.number] = now


_PAUSE: TypeAdapter[Pause] = TypeAdapter(Pause)


def carried(data: dict[str, Any]) -> dict[str, Any]:
    """
    Write the State of a run as JSON.

    :param data: The State.
    :returns: What `deserialize_values` takes.
    :raises ToolError: If that is not possible.
    """
    try:
        stored = serialize_values(data)
        # What cannot be read should be known before somebody decides in vain.
        deserialize_values(json.loads(json.dumps(stored)))
    except Exception as error:
        logger.error("The State of an Agent cannot be carried to the call that continues it: {error}", error=str(error))
        msg = "The state of the agent cannot be carried on after an approval."
        raise ToolError(msg) from error
    return stored


@stored_in("haystack_integrations.tools.mcp.serving")
class ClientConfirmationStrategy(BlockingConfirmationStrategy):  # type: ignore[misc, unused-ignore]
    """
    Has the client of a served Agent approve tool calls. A confirmation strategy of Haystack, on both majors.

    ```python
    from haystack.hooks.human_in_the_loop import ConfirmationHook

    hook = ConfirmationHook({"delete_file": ClientConfirmationStrategy()})
    agent = Agent(chat_generator=OpenAIChatGenerator(), tools=[delete_file], hooks={"before_tool": [hook]})
    server = create_mcp_server("files", agents={"files": agent})
    ```

    On Haystack 2.31, an Agent takes it as `confirmation_strategies={"delete_file": ClientConfirmationStrategy()}`.

    The person who uses the client sees the tool and the arguments that the model chose, and approves or rejects,
    perhaps with a word for the model. A client that cannot ask anybody rejects. A served Agent whose strategies ask at
    a console (`SimpleConsoleUI`, `RichConsoleUI`) asks its clients instead, without any change.
    """

    def __init__(self, confirmation_policy: Any = None, **templates: str) -> None:
        """
        Initialize the ClientConfirmationStrategy.

        :param confirmation_policy: A ConfirmationPolicy of Haystack, which decides what is asked; by default
            everything. What it learns from answers holds for one call of the served Agent.
        :param templates: `reject_template`, `modify_template` and `user_feedback_template`, as
            BlockingConfirmationStrategy has them.
        :raises TypeError: If there is another template.
        """
        policy = AlwaysAskPolicy() if confirmation_policy is None else confirmation_policy
        client: Any = _Client(None, None)
        super().__init__(confirmation_policy=policy, confirmation_ui=client, **templates)

    def run(
        self,
        *,
        tool_name: str,
        tool_description: str,
        tool_params: dict[str, Any],
        tool_call_id: str | None = None,
        confirmation_strategy_context: dict[str, Any] | None = None,  # noqa: ARG002
    ) -> ToolExecutionDecision:
        """
        Ask the client if the policy says so, from a thread.

        :param tool_name: Name of the tool.
        :param tool_description: Its description.
        :param tool_params: The arguments.
        :param tool_call_id: Identifies the call.
        :param confirmation_strategy_context: Not used.
        :returns: The decision.
        :raises RuntimeError: If the Agent is not served.
        """
        approvals = current_approvals.get()
        own = copy.copy(self)
        client: Any = _Client(approvals, tool_call_id)
        own.confirmation_ui = client
        if approvals is not None:
            own.confirmation_policy = approvals.own_policy(self.confirmation_policy)
        try:
            decision: ToolExecutionDecision = super(ClientConfirmationStrategy, own).run(
                tool_name=tool_name,
                tool_description=tool_description,
                tool_params=tool_params,
                tool_call_id=tool_call_id,
            )
        except _UndecidedError as undecided:
            return ToolExecutionDecision(tool_name, False, tool_call_id, feedback=undecided.feedback)
        if not decision.execute:
            return decision
        # On 2.31, the model would be told those from the State.
        final = arguments_of_model(tool_name, tool_call_id, decision.final_tool_params or {})
        return replace(decision, final_tool_params=final)

    async def run_async(self, **call: Any) -> ToolExecutionDecision:
        """
        Ask the client like `run`, without blocking the event loop.

        :param call: The parameters of `run`.
        :returns: The decision.
        """
        approvals = current_approvals.get()
        if approvals is None:
            return self.run(**call)
        if asyncio.get_running_loop() is not approvals.loop:  # an Agent that a tool runs in an event loop of its own
            return await asyncio.to_thread(self.run, **call)
        return await approvals.call.in_thread(lambda: self.run(**call))

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
        parameters = dict(data.get("init_parameters", {}))
        if isinstance(parameters.get("confirmation_policy"), dict):
            parameters["confirmation_policy"] = deserialize_object(parameters["confirmation_policy"])
        loaded: ClientConfirmationStrategy = default_from_dict(cls, {**data, "init_parameters": parameters})
        return loaded


class _UndecidedError(Exception):
    """
    Raised where nobody rejected a call, so that the policy learns nothing from it.
    """

    def __init__(self, feedback: str | None) -> None:
        super().__init__(feedback)
        self.feedback = feedback


class _Client:
    """
    The client as a user interface, for one call.
    """

    def __init__(self, approvals: Approvals | None, tool_call_id: str | None) -> None:
        self._approvals = approvals
        self._tool_call_id = tool_call_id

    def get_user_confirmation(
        self,
        tool_name: str,
        tool_description: str,  # noqa: ARG002
        tool_params: dict[str, Any],
    ) -> ConfirmationUIResult:
        if self._approvals is None:
            msg = "ClientConfirmationStrategy asks the client of a served Agent, but this Agent is not run by a server."
            raise RuntimeError(msg)
        verdict = self._approvals.decide(tool_name, tool_params, self._tool_call_id)
        if verdict is None or not verdict.was_asked:
            raise _UndecidedError(verdict.feedback if verdict is not None else None)
        return ConfirmationUIResult("confirm" if verdict.approved else "reject", verdict.feedback)


def _templates_of(strategy: Any) -> dict[str, str]:
    return {name: getattr(strategy, name) for name in _TEMPLATES if hasattr(strategy, name)}


def ask_clients(agent: Any) -> None:
    """
    Replace the consoles at which an Agent would ask, and which a server does not have, by its clients.

    :param agent: A copy of an Agent, which is changed.
    """
    if HAS_HOOKS:
        agent.hooks = {point: [_hook_for_clients(each) for each in hooks] for point, hooks in agent.hooks.items()}
    else:
        agent._confirmation_strategies = _for_clients(agent._confirmation_strategies)


def _hook_for_clients(hook: Any) -> Any:
    strategies = getattr(hook, "confirmation_strategies", None)
    if isinstance(strategies, dict):
        asking = copy.copy(hook)
        asking.confirmation_strategies = _for_clients(strategies)
        return asking
    if _is_console(getattr(hook, "confirmation_ui", None)):
        # MCPConfirmationHook, which has either.
        asking = copy.copy(hook)
        asking.confirmation_ui, asking.strategy = None, ClientConfirmationStrategy()
        return asking
    return hook


def _for_clients(strategies: dict[Any, Any]) -> dict[Any, Any]:
    return {name: _strategy_for_clients(each) for name, each in strategies.items()}


def _strategy_for_clients(strategy: Any) -> Any:
    if not _is_console(getattr(strategy, "confirmation_ui", None)):
        return strategy
    return ClientConfirmationStrategy(strategy.confirmation_policy, **_templates_of(strategy))


def _is_console(ui: Any) -> bool:
    return isinstance(ui, RichConsoleUI | SimpleConsoleUI)
