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

The carried state is encrypted by FastMCP, for the same tool, arguments and user only, and expires. See
`request_state_security` for keys that several processes share.
"""

from __future__ import annotations

import asyncio
import copy
import json
import os
import secrets
import threading
import time
from collections.abc import Coroutine, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from fastmcp.exceptions import ToolError
from fastmcp.server.context import Context
from haystack import logging
from haystack.dataclasses import ChatMessage, ToolCall
from haystack.utils import Secret
from mcp import types
from mcp.server.request_state import RequestStateSecurity
from mcp.shared.exceptions import MCPError as SDKError
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from haystack_integrations.tools.mcp.haystack_compat import arguments_of_model, deserialize_values, serialize_values
from haystack_integrations.tools.mcp.run_observers import pending_tool_calls
from haystack_integrations.tools.mcp.serving.questions import Question, Verdict, digest
from haystack_integrations.tools.mcp.serving.served_tool import ServedCall

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The environment variable with the keys.
KEYS_VARIABLE = "MCP_HAYSTACK_REQUEST_STATE_KEYS"
# More than this is no state to send back and forth. Servers take requests of up to 4 MiB.
_MOST_STATE = 2 * 2**20
_VERSION = 1


class Approvals:
    """
    The decisions about one run's tool calls, and what is still to be decided.
    """

    def __init__(self, call: ServedCall, *, salt: str | None = None) -> None:
        """
        Initialize the Approvals.

        :param call: The call that waits for the run.
        :param salt: That of the run that goes on; by default a new one.
        """
        self._call = call
        self._loop = asyncio.get_running_loop()
        self._waiting: set[Future[Verdict | None]] = set()
        self._verdicts: dict[str, Verdict] = {}
        self._wanted: list[ToolCall] = []
        self._asked: dict[str, int] = {}
        self._is_closed = False
        self._policies: dict[int, tuple[Any, Any]] = {}
        # Goes into the keys of the questions, see `digest`.
        self.salt = salt or secrets.token_urlsafe(16)
        self.pending: dict[str, Question] = {}

    def own_policy(self, policy: Any) -> Any:
        """
        Give this run a policy of its own.

        What somebody approved in another run, perhaps somebody else, is not approved in this one.

        :param policy: A ConfirmationPolicy, which may learn from answers.
        :returns: A copy, the same one each time; the policy itself if it cannot be copied.
        """
        if id(policy) not in self._policies:
            try:
                copied = copy.deepcopy(policy)
            except TypeError:  # with a lock or a connection in it
                copied = policy
            # With the policy, so that no other one gets its id.
            self._policies[id(policy)] = (policy, copied)
        return self._policies[id(policy)][1]

    def begin_step(self, replies: Iterable[ChatMessage], verdicts: Mapping[str, Verdict] | None = None) -> None:
        """
        Take note of the calls that the model wants, and forget what was decided about others.

        From now on the run can pause.

        :param replies: What it replied.
        :param verdicts: What was decided about these calls before the run was paused.
        """
        self._wanted = [each for message in replies for each in message.tool_calls]
        self._verdicts = dict(verdicts or {})
        self._asked = {}

    def end_deciding(self) -> None:
        """
        Take note that the calls of the step are about to be made: from now on the run cannot pause.
        """
        self._wanted = []

    def close(self) -> None:
        """
        Let no thread wait for an answer any longer, and ask nothing more.
        """
        self._is_closed = True
        for waiting in list(self._waiting):
            waiting.cancel()

    async def decide(
        self, tool_name: str, tool_params: Mapping[str, Any], *, tool_call_id: str | None = None
    ) -> Verdict | None:
        """
        Have somebody decide about a call.

        :param tool_name: The tool.
        :param tool_params: All its arguments, including those that the model does not see.
        :param tool_call_id: Identifies the call.
        :returns: The verdict; None if the run has to pause for it.
        """
        chosen = arguments_of_model(tool_name, tool_call_id, tool_params)
        deciding = self._decide(tool_name, tool_params, chosen, is_own=self._is_own(tool_name, tool_call_id))
        if asyncio.get_running_loop() is self._loop:
            return await deciding
        # An Agent that a tool runs in an event loop of its own.
        return await asyncio.wrap_future(self._in_loop(deciding))

    def decide_in_thread(
        self, tool_name: str, tool_params: Mapping[str, Any], *, tool_call_id: str | None = None
    ) -> Verdict | None:
        """
        Have somebody decide about a call, from a thread of the run.

        :param tool_name: The tool.
        :param tool_params: All its arguments.
        :param tool_call_id: Identifies the call.
        :returns: The verdict; None if the run has to pause for it.
        :raises RuntimeError: If this is not a thread, but the event loop, which would wait for itself.
        """
        if asyncio._get_running_loop() is self._loop:
            msg = "In the event loop, call `run_async` of a ClientConfirmationStrategy instead of `run`."
            raise RuntimeError(msg)
        chosen = arguments_of_model(tool_name, tool_call_id, tool_params)
        deciding = self._decide(tool_name, tool_params, chosen, is_own=self._is_own(tool_name, tool_call_id))
        return self._in_loop(deciding).result()

    def _in_loop(self, deciding: Coroutine[Any, Any, Verdict | None]) -> Future[Verdict | None]:
        waiting = asyncio.run_coroutine_threadsafe(deciding, self._loop)
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)
        return waiting

    async def _decide(
        self, tool_name: str, tool_params: Mapping[str, Any], chosen: Mapping[str, Any], *, is_own: bool
    ) -> Verdict | None:
        if self._is_closed:
            return _refused(tool_name, "the client does not wait for the agent any longer.")
        agent = f"agent '{self._call.tool_name}'"
        key = self._key(tool_name, tool_params) if is_own else ""
        verdict = self._verdicts.get(key)
        if verdict is not None:
            return verdict
        question = Question.about(f"The {agent}" if is_own else f"A tool of the {agent}", tool_name, chosen, key)
        context = self._call.context
        if context is None or not _can_be_asked(context):
            return _refused(tool_name, "the client does not take questions.")
        if not _pauses(context):
            return await _elicit(context, tool_name, question)
        if not is_own:
            logger.warning(
                "A call of the tool '{tool}' within the {agent} is refused: its client can be asked only about the "
                "calls of that agent itself",
                tool=tool_name,
                agent=agent,
            )
            return _refused(
                tool_name,
                f"this client can be asked only about the calls of the {agent} itself, between its steps, not about "
                "those that its tools make.",
            )
        self.pending[question.key] = question
        return None

    @property
    def verdicts(self) -> dict[str, Verdict]:
        """
        What was decided about the calls of this step, by the keys of the questions.
        """
        return dict(self._verdicts)

    def _is_own(self, tool_name: str, tool_call_id: str | None) -> bool:
        """
        Tell whether a call is one of those that the served Agent is about to make.
        """
        # As hooks have changed them.
        wanted = pending_tool_calls() if self._wanted else []
        return any(
            each.tool_name == tool_name and tool_call_id in (None, each.id)
            for each in (self._wanted if wanted is None else wanted)
        )

    def _key(self, tool_name: str, tool_params: Mapping[str, Any]) -> str:
        found = digest(self.salt, tool_name, tool_params)
        # Of two equal calls in one step, each is decided about.
        self._asked[found] = self._asked.get(found, 0) + 1
        return f"approve-{found}-{self._asked[found]}"


# Who decides about the calls of the run that the code is part of.
current_approvals: ContextVar[Approvals | None] = ContextVar("mcp_haystack_approvals", default=None)


def _pauses(context: Context) -> bool:
    """
    Tell whether the client is asked by a result, because nothing can be sent to it during the call.
    """
    request = context.request_context
    return context.is_background_task or (request is not None and request.protocol_version in MODERN_PROTOCOL_VERSIONS)


def _can_be_asked(context: Context) -> bool:
    if context.is_background_task:
        return True
    if context.request_context is None:
        return False
    capabilities = context.session.client_capabilities
    return capabilities is not None and capabilities.elicitation is not None


async def _elicit(context: Context, tool_name: str, question: Question) -> Verdict:
    try:
        answer = await context.session.elicit_form(question.message, question.form, context.request_id)
    except SDKError as error:
        logger.warning("The client could not ask for approval: {error}", error=str(error))
        return _refused(tool_name, "the client could not ask.")
    return question.verdict(answer)


def _refused(tool_name: str, reason: str) -> Verdict:
    feedback = f"The tool '{tool_name}' was not called, because nobody can be asked for approval: {reason}"
    return Verdict(False, feedback, was_asked=False)


@dataclass(frozen=True)
class Pause:
    """
    A run that waits for approvals.

    :param data: The State before the model was asked for the last time.
    :param steps: How many steps it had taken.
    :param replies: What the model replied then.
    :param questions: What was not decided.
    :param verdicts: What was.
    :param salt: That of the questions' keys.
    :param number: Identifies the pause.
    """

    data: dict[str, Any]
    steps: int
    replies: list[ChatMessage]
    questions: tuple[Question, ...] = ()
    verdicts: dict[str, Verdict] = field(default_factory=dict)
    salt: str = ""
    number: str = field(default_factory=lambda: secrets.token_urlsafe(16))

    def as_result(self, agent: str) -> types.InputRequiredResult:
        """
        Write the pause as the result of a call.

        :param agent: The name of the Agent.
        :returns: The questions for the client, and all that is needed to go on.
        :raises ToolError: If the State cannot be carried.
        """
        state = json.dumps(
            {
                "version": _VERSION,
                "agent": agent,
                "number": self.number,
                "steps": self.steps,
                "data": _carried(self.data),
                "replies": [each.to_dict() for each in self.replies],
                "questions": [asdict(each) for each in self.questions],
                "verdicts": {key: asdict(each) for key, each in self.verdicts.items()},
                "salt": self.salt,
            }
        )
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
        try:
            stored = json.loads(state)
            if stored["version"] != _VERSION or stored["agent"] != agent:
                raise ValueError(agent)
            return cls(
                data=deserialize_values(stored["data"]),
                steps=stored["steps"],
                replies=[ChatMessage.from_dict(each) for each in stored["replies"]],
                questions=tuple(Question(**each) for each in stored["questions"]),
                verdicts={key: Verdict(**each) for key, each in stored["verdicts"].items()},
                salt=stored["salt"],
                number=stored["number"],
            )
        except (KeyError, TypeError, ValueError):
            msg = "The request state belongs to another call."
            raise ToolError(msg) from None

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


def _carried(data: dict[str, Any]) -> dict[str, Any]:
    try:
        stored = serialize_values(data)
        # What cannot be read should be known before somebody decides in vain.
        deserialize_values(json.loads(json.dumps(stored)))
    except Exception as error:
        logger.error("The State of an Agent cannot be carried to the call that continues it: {error}", error=str(error))
        msg = "The state of the agent cannot be carried on after an approval."
        raise ToolError(msg) from error
    return stored


def request_state_security(keys: Sequence[str | Secret] | None = None) -> RequestStateSecurity | None:
    """
    Protect the state that clients carry between two calls with keys that several processes share.

    :param keys: Secrets of at least 32 bytes each. The first one encrypts; all of them decrypt, so that a key can be
        replaced while the server runs. By default those of the environment variable
        `MCP_HAYSTACK_REQUEST_STATE_KEYS`, separated by commas.
    :returns: What FastMCP takes; None without keys: then it makes a key that no other process has.
    :raises ValueError: If a key is too short, or given twice.
    """
    if keys is None:
        found = [each.strip() for each in os.environ.get(KEYS_VARIABLE, "").split(",")]
    else:
        if isinstance(keys, str | Secret):
            msg = "`request_state_keys` must be a list of strings or Secrets, got one"
            raise ValueError(msg)
        found = [each if isinstance(each, str) else each.resolve_value() or "" for each in keys]
    found = [each for each in found if each]
    return RequestStateSecurity(keys=found) if found else None


@contextmanager
def keys_for_workers() -> Iterator[None]:
    """
    Give the processes that are started meanwhile one key, unless the environment has some.

    :returns: A context manager.
    """
    if os.environ.get(KEYS_VARIABLE):
        yield
        return
    os.environ[KEYS_VARIABLE] = secrets.token_hex(32)
    try:
        yield
    finally:
        del os.environ[KEYS_VARIABLE]


class SpentPauses:
    """
    The pauses that were continued in this process.
    """

    def __init__(self, keep: float = 24 * 3600.0) -> None:
        """
        Initialize the SpentPauses.

        :param keep: For how long they are remembered, in seconds; longer than states are valid.
        """
        self._keep = keep
        self._lock = threading.Lock()
        self._spent: dict[str, float] = {}

    def spend(self, number: str) -> None:
        """
        Note that a pause is continued.

        :param number: Its number.
        :raises ToolError: If it was continued before.
        """
        now = time.monotonic()
        with self._lock:
            # The oldest come first.
            for old, since in list(self._spent.items()):
                if now - since < self._keep:
                    break
                del self._spent[old]
            if number in self._spent:
                msg = "This run was continued before. Whether its tools were called is not known; begin anew."
                raise ToolError(msg)
            self._spent[number] = now
