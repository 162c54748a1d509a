# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.client.elicitation import ElicitResult
from fastmcp.exceptions import ToolError
from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import ComponentTool, tool
from haystack.utils import Secret
from mcp import types
from mcp.shared.exceptions import MCPError as SDKError

from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from haystack_integrations.tools.mcp.serving import ClientConfirmationStrategy, ServeOptions, create_mcp_server
from haystack_integrations.tools.mcp.serving import calls as calls_of_tools
from haystack_integrations.tools.mcp.serving.access import keys_for_workers
from haystack_integrations.tools.mcp.serving.agents import question_about, verdict_of
from tests.serving.components import LIMIT, approving, hitl
from tests.support.reachable import reachable
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, calls, say
from tests.support.waiting import wait_until_async

KEYS = ["a" * 32]
HANDSHAKE, MODERN = "legacy", "auto"
ERAS = pytest.mark.parametrize("era", [HANDSHAKE, MODERN])


class Shop:
    """Tools that record what they did, and an Agent that needs approval to pay."""

    def __init__(
        self, *replies: ChatMessage, strategy: Any = None, asks: str = "pay", odd: type = str, **parameters: Any
    ) -> None:
        self.did: list[Any] = []
        self.questions: list[str] = []

        @tool
        def pay(amount: int) -> str:
            """Pays."""
            self.did.append(amount)
            return f"paid {amount}"

        @tool(outputs_to_state={"seen": {"source": "seen"}}, inputs_from_state={"secret": "secret"})
        def look(secret: str = "") -> dict[str, Any]:
            """Looks around."""
            self.did.append("look")
            return {"seen": [f"shelf {len(self.did)}"]}

        self.pay = pay
        self.agent = approving(
            {asks: strategy or ClientConfirmationStrategy()},
            chat_generator=ScriptedChatGenerator(list(replies)),
            tools=[pay, look],
            system_prompt="You shop.",
            state_schema={"seen": {"type": list[str]}, "secret": {"type": str}, "odd": {"type": odd}},
            **parameters,
        )

    @property
    def model_saw(self) -> list[Any]:
        return self.agent.chat_generator.turns[-1].tool_results

    def server(self, bound: Any = (), **options: Any) -> Any:
        options = {"request_state_keys": KEYS, **options}
        chosen = {"shop": ServeOptions(outputs=["answer", "seen"], bound=dict(bound))}
        return create_mcp_server("shop", agents={"shop": self.agent}, options=chosen, **options)

    def client(self, target: Any, era: str, answer: Callable[[str], ElicitResult] | None = None) -> Client[Any]:
        async def ask(message: str, *_: Any) -> ElicitResult:
            self.questions.append(message)
            return (answer or approve)(message)

        return Client(target, elicitation_handler=ask, mode=era)

    async def serve(self, era: str, answer: Any = None, *, over_http: bool = False, **bound: Any) -> Any:
        """Serve one call."""
        async with reachable(self.server(bound), over_http=over_http) as target:
            async with self.client(target, era, answer) as client:
                return await client.call_tool("shop", {"task": "Shop."})


def approve(_: str) -> ElicitResult:
    return ElicitResult(action="accept", content={"approve": True})


def answering(*decisions: bool) -> Callable[[str], ElicitResult]:
    left = list(decisions)
    return lambda _: ElicitResult(action="accept", content={"approve": left.pop(0)})


def question(amount: int) -> str:
    return f"The agent 'shop' wants to call the tool 'pay' with {{\"amount\": {amount}}}"


@pytest.mark.parametrize("over_http", [False, True])
@ERAS
async def test_a_client_approves_and_rejects_and_nothing_runs_twice(era: str, over_http: bool):
    def answer(message: str) -> ElicitResult:
        content = {"approve": '"amount": 2' not in message, "feedback": "too much"}
        return ElicitResult(action="accept", content=content)

    shop = Shop(
        call("look"),
        calls(("pay", {"amount": 1}), ("look", {}), ("pay", {"amount": 2})),
        call("pay", amount=3),
        say("Done."),
    )
    result = await shop.serve(era, answer, over_http=over_http)

    assert shop.questions == [question(1), question(2), question(3)]
    assert shop.did[0] == "look" and sorted(map(str, shop.did)) == ["1", "3", "look", "look"]
    assert (result.structured_content or {})["answer"] == "Done."
    # Values written to the State before the first pause are still there.
    assert (result.structured_content or {})["seen"][0] == "shelf 1"
    assert len(shop.agent.chat_generator.turns) == 4
    last = shop.agent.chat_generator.turns[-1].messages
    assert [each.text for each in last if each.is_from("system") or each.is_from("user")] == ["You shop.", "Shop."]
    assert any("rejected by the user. With user feedback: too much" in str(each) for each in shop.model_saw)
    assert "paid 1" in shop.model_saw and "paid 3" in shop.model_saw


@ERAS
async def test_a_client_that_declines_or_cannot_be_asked_rejects_the_call(era: str):
    shop = Shop(call("pay", amount=1), say("Done."))
    await shop.serve(era, lambda _: ElicitResult(action="decline"))
    assert (shop.did, "rejected by the user" in shop.model_saw[0]) == ([], True)

    shop = Shop(call("pay", amount=1), say("Done."))
    async with Client(shop.server(), mode=era) as client:
        await client.call_tool("shop", {"task": "Shop."})
    assert (shop.did, "the client does not take questions" in shop.model_saw[0]) == ([], True)


async def test_a_client_that_never_answers_does_not_block_the_call_forever(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(calls_of_tools, "ANSWER_TIMEOUT", 0.1)

    async def never(*_: Any) -> ElicitResult:
        await asyncio.sleep(LIMIT)
        raise AssertionError

    shop = Shop(call("pay", amount=1), say("Done."))
    async with Client(shop.server(), mode="legacy", elicitation_handler=never) as client:
        await client.call_tool("shop", {"task": "Shop."})
    assert (shop.did, "nobody answered in time" in shop.model_saw[0]) == ([], True)


async def test_other_calls_run_while_a_user_is_asked():
    async def ask(*_: Any) -> ElicitResult:
        async with Client(server) as other:
            await asyncio.wait_for(other.call_tool("ping"), LIMIT)
        return approve("")

    def ping() -> None:
        """Answers."""

    shop = Shop(call("pay", amount=1), say("Done."))
    server = shop.server(tools=[ping], max_concurrency=1)
    async with Client(server, mode=HANDSHAKE, elicitation_handler=ask) as client:
        await client.call_tool("shop", {"task": "Shop."})
    assert shop.did == [1]


@rows(
    ("action", "approve"),
    ("decline", True),
    ("cancel", True),
    ("accept", "true"),
    ("accept", 1),
    ("accept", ["yes"]),
)
def test_an_unclear_answer_is_not_an_approval(action: Any, approve: Any):
    answer = types.ElicitResult(action=action, content={"approve": approve})
    assert verdict_of(answer).action == "reject"


@ERAS
async def test_a_strategy_that_would_ask_at_a_console_asks_the_client(era: str):
    console = hitl.BlockingConfirmationStrategy(
        confirmation_policy=hitl.AskOncePolicy(), confirmation_ui=hitl.SimpleConsoleUI(), reject_template="No."
    )
    shop = Shop(call("pay", amount=1), call("pay", amount=1), call("pay", amount=2), say("Done."), strategy=console)
    await shop.serve(era, answering(True, False))

    # The policy asks once for equal arguments.
    assert shop.questions == [question(1), question(2)]
    assert shop.did == [1, 1]
    assert shop.model_saw[-1] == "No."


@ERAS
async def test_an_approval_of_one_client_does_not_hold_for_another(era: str):
    strategy = ClientConfirmationStrategy(hitl.AskOncePolicy())
    shop = Shop(*[call("pay", amount=1), call("pay", amount=1), say("Done.")] * 2, strategy=strategy)
    server = shop.server()
    for answer in (approve, lambda _: ElicitResult(action="decline")):
        async with shop.client(server, era, answer) as client:
            await client.call_tool("shop", {"task": "Shop."})

    # The first client got one question. The second one got two, and rejected both.
    assert (len(shop.questions), shop.did) == (3, [1, 1])


async def test_an_error_names_a_policy_that_cannot_be_copied_for_each_run():
    policy = hitl.AlwaysAskPolicy()
    policy.lock = threading.Lock()
    shop = Shop(call("pay", amount=1), say("Done."), strategy=ClientConfirmationStrategy(policy))
    with pytest.raises(ToolError, match=r"`confirmation_policy` \(AlwaysAskPolicy\) cannot be copied"):
        await shop.serve(MODERN)
    assert (shop.questions, shop.did) == ([], [])


@ERAS
@pytest.mark.parametrize("amount", [float("inf"), "half an emoji \ud83d"])
async def test_the_approved_call_is_executed_unchanged_whatever_its_value(era: str, amount: Any):
    shop = Shop(call("pay", amount=amount), say("Done."))
    await shop.serve(era)
    assert (len(shop.questions), shop.did) == (1, [amount])


@pytest.mark.skipif(not HAS_HOOKS, reason="Haystack 2 has no hooks")
@ERAS
async def test_a_confirmation_hook_of_this_package_asks_the_client(era: str):
    from haystack_integrations.hooks.mcp import MCPConfirmationHook

    shop = Shop(call("pay", amount=1), say("Done."))
    hook = MCPConfirmationHook(hitl.SimpleConsoleUI(), overrides={"pay": "always"})
    shop.agent.hooks = {"before_tool": [hook]}
    await shop.serve(era)

    assert (shop.questions, shop.did) == ([question(1)], [1])
    assert hook.confirmation_ui is not None


@component
class WaitingGenerator:
    """A chat generator that blocks its thread, as those without `run_async` do."""

    def __init__(self, *replies: ChatMessage) -> None:
        self.inner = ScriptedChatGenerator(list(replies))

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None) -> dict[str, Any]:
        return self.inner.run(messages, tools=tools)


class AddsAmount:
    """A hook that adds an argument to the calls of the model."""

    def run(self, state: Any) -> None:
        *before, last = state.data["messages"]
        changed = [replace(each, arguments={**each.arguments, "amount": 7}) for each in last.tool_calls]
        state.data["messages"] = [*before, ChatMessage.from_assistant(tool_calls=changed)]


@pytest.mark.skipif(not HAS_HOOKS, reason="Haystack 2 has no hooks")
@pytest.mark.parametrize("kind", [WaitingGenerator, lambda *replies: ScriptedChatGenerator(list(replies))])
@ERAS
async def test_arguments_added_by_a_hook_are_approved_and_executed(era: str, kind: Any):
    shop = Shop()
    confirm = hitl.ConfirmationHook({"pay": ClientConfirmationStrategy()})
    hooks = {"before_tool": [AddsAmount(), confirm]}
    shop.agent = Agent(chat_generator=kind(call("pay"), say("Done.")), tools=[shop.pay], hooks=hooks)
    server = create_mcp_server("shop", agents={"shop": shop.agent}, request_state_keys=KEYS)
    async with shop.client(server, era) as client:
        await client.call_tool("shop", {"task": "Shop."})

    assert (shop.questions, shop.did) == ([question(7)], [7])


@ERAS
async def test_values_of_the_state_are_not_shown(era: str):
    shop = Shop(call("look"), say("Done."), asks="look")
    await shop.serve(era, secret="SECRET")

    assert shop.questions == ["The agent 'shop' wants to call the tool 'look' with {}"]
    assert shop.did == ["look"]
    assert "SECRET" not in repr(shop.agent.chat_generator.turns[-1].messages)


@pytest.mark.parametrize(
    ("way", "approves"), [("component", True), ("component", False), ("thread", True), ("own loop", True)]
)
@ERAS
async def test_an_agent_within_an_agent_asks_where_that_is_possible_and_nothing_runs_twice(
    era: str, way: str, approves: bool
):
    # The inner Agent is a tool of the outer one, and both need approval to pay.
    inner = Shop(call("pay", amount=1), say("Bought."))

    @tool(name="buy")
    def in_thread() -> str:
        """Buys."""
        return str(inner.agent.run([ChatMessage.from_user("Buy.")])["last_message"].text)

    @tool(name="buy")
    def in_own_loop() -> str:
        """Buys."""
        return str(asyncio.run(inner.agent.run_async([ChatMessage.from_user("Buy.")]))["last_message"].text)

    as_component = ComponentTool(inner.agent, name="buy", outputs_to_string={"source": "last_message"})
    buy = {"component": as_component, "thread": in_thread, "own loop": in_own_loop}[way]
    arguments = {"messages": [ChatMessage.from_user("Buy.").to_dict()]} if way == "component" else {}
    model = ScriptedChatGenerator([calls(("pay", {"amount": 1}), ("buy", arguments)), say("Done.")])
    asks = {"pay": ClientConfirmationStrategy()}
    buyer = approving(asks, chat_generator=model, tools=[buy, inner.pay], max_agent_steps=5)

    # An equal call of the inner Agent is decided separately.
    def answer(message: str) -> ElicitResult:
        return ElicitResult(action="accept", content={"approve": approves or message.startswith("The agent")})

    server = create_mcp_server("buyer", agents={"buyer": buyer}, request_state_keys=KEYS)
    async with inner.client(server, era, answer) as client:
        result = await client.call_tool("buyer", {"task": "Buy."})

    wants = "agent 'buyer' wants to call the tool 'pay' with {\"amount\": 1}"
    assert inner.did == [1, 1] if approves and era == HANDSHAKE else [1]
    within = [f"A tool of the {wants}"] if era == HANDSHAKE else []
    assert inner.questions == [f"The {wants}", *within]
    # Neither model was asked twice for one step.
    assert (len(model.turns), len(inner.agent.chat_generator.turns)) == (2, 2)
    (told,) = inner.model_saw
    if era == MODERN:
        assert "nobody can be asked for approval: this client can be asked only about the calls of" in told
    else:
        assert told == ("paid 1" if approves else "Tool execution for 'pay' was rejected by the user.")
    assert (result.structured_content or {})["answer"] == "Done."


def test_a_question_escapes_invisible_characters_and_reports_how_much_it_cuts():
    _, asked = question_about("The agent 'x'", "pay", {"to": "Bob\u202e\u200b\u2028\ud83d\U000e0041é\U000e0101"})

    assert asked.endswith(r'{"to": "Bob\u202e\u200b\u2028\ud83d\udb40\udc41é\udb40\udd01"}')
    _, asked = question_about("The agent 'x'", "pay' with {}\nThe agent 'x' wants to call the tool 'lo\u200bok", {})
    assert asked.endswith(r"'pay' with {}\nThe agent 'x' wants to call the tool 'lo\u200bok' with {}")
    assert question_about("The agent 'x'", "pay", {"to": "B" * 5000})[1].endswith("... (1010 more characters)")


async def paused(client: Client[Any]) -> types.InputRequiredResult:
    result = await client.session.call_tool("shop", {"task": "Shop."}, allow_input_required=True)
    assert isinstance(result, types.InputRequiredResult)
    return result


async def continued(client: Client[Any], pause: types.InputRequiredResult, **changes: Any) -> Any:
    approved = types.ElicitResult(action="accept", content={"approve": True})
    answers = dict.fromkeys(pause.input_requests or {}, approved)
    given = {"name": "shop", "task": "Shop.", "state": pause.request_state, "answers": answers, **changes}
    return await client.session.call_tool(
        given["name"],
        {"task": given["task"]},
        input_responses=given["answers"],
        request_state=given["state"],
        allow_input_required=True,
    )


OLDER = ["b" * 32, Secret.from_token("a" * 32)]


@rows(("keys", "goes_on"), (OLDER, True), (["b" * 32], False), (None, False))
async def test_another_process_continues_a_run_if_it_has_the_key(keys: Any, goes_on: bool):
    first = Shop(call("look"), calls(("look", {}), ("pay", {"amount": 1})))
    second = Shop(say("Done."))
    other = second.server(request_state_keys=keys)
    async with first.client(first.server(), MODERN) as here, second.client(other, MODERN) as there:
        pause = await paused(here)
        if not goes_on:
            with pytest.raises(SDKError, match="Invalid or expired requestState"):
                await continued(there, pause)
            assert second.did == []
            return
        result = await continued(there, pause)

    assert (first.did, sorted(map(str, second.did))) == (["look"], ["1", "look"])
    assert (result.structured_content["answer"], result.structured_content["seen"][0]) == ("Done.", "shelf 1")
    (turn,) = second.agent.chat_generator.turns
    assert " ".join(each.role.value for each in turn.messages) == "system user assistant tool assistant tool tool"
    with pytest.raises(ValueError, match="at least 32 bytes"):
        second.server(request_state_keys=["short"])
    with pytest.raises(ValueError, match="`request_state_keys` must be a list of keys, got str"):
        second.server(request_state_keys="c" * 32)


@rows("given", None, " , ", "c" * 32)
async def test_workers_share_a_key_whether_or_not_the_environment_has_one(
    given: str | None, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("MCP_HAYSTACK_REQUEST_STATE_KEYS", raising=False)
    if given is not None:
        monkeypatch.setenv("MCP_HAYSTACK_REQUEST_STATE_KEYS", given)
    first, second = Shop(call("pay", amount=1)), Shop(say("Done."))
    with keys_for_workers():
        workers = [each.server(request_state_keys=None) for each in (first, second)]
    async with first.client(workers[0], MODERN) as here, second.client(workers[1], MODERN) as there:
        await continued(there, await paused(here))

    assert second.did == [1]
    assert os.environ.get("MCP_HAYSTACK_REQUEST_STATE_KEYS") == given


async def test_a_pause_is_continued_once_if_equal_answers_arrive_together():
    shop = Shop(call("pay", amount=1), say("Done."), say("never"))
    async with shop.client(shop.server(), MODERN) as client:
        pause = await paused(client)
        results = await asyncio.gather(*(continued(client, pause) for _ in range(4)))

    assert shop.did == [1]
    assert sorted(each.is_error for each in results) == [False, True, True, True]
    refused = next(each for each in results if each.is_error)
    assert "was continued before" in refused.content[0].text


async def test_a_request_state_is_valid_for_its_own_call_only():
    shop, other = Shop(call("pay", amount=1), say("Done.")), Shop(say("Done."))
    server = create_mcp_server("shop", agents={"shop": shop.agent, "other": other.agent}, request_state_keys=KEYS)
    async with shop.client(server, MODERN) as client:
        pause = await paused(client)
        state = pause.request_state or ""
        changes = {"task": "Something else.", "name": "other", "state": state[:-8] + state[-8:].swapcase()}
        for name, value in changes.items():
            with pytest.raises(SDKError, match="Invalid or expired requestState"):
                await continued(client, pause, **{name: value})

    assert shop.did == other.did == []


async def test_questions_without_an_answer_are_asked_again():
    shop = Shop(calls(("pay", {"amount": 1}), ("pay", {"amount": 2})), say("Done."))
    async with shop.client(shop.server(), MODERN) as client:
        pause = await paused(client)
        one, two = pause.input_requests or {}
        again = await continued(client, pause, answers={one: types.ElicitResult(action="decline")})
        assert isinstance(again, types.InputRequiredResult)
        assert list(again.input_requests or {}) == [two] and shop.did == []
        result = await continued(client, again)

    assert shop.did == [2]
    assert result.structured_content["answer"] == "Done."


@ERAS
async def test_two_equal_calls_are_decided_separately(era: str):
    shop = Shop(calls(("pay", {"amount": 1}), ("pay", {"amount": 1})), say("Done."))
    await shop.serve(era, answering(True, False))

    assert shop.did == [1]


@ERAS
async def test_steps_are_counted_across_pauses(era: str):
    shop = Shop(*[call("pay", amount=n) for n in range(5)], max_agent_steps=3)
    await shop.serve(era)

    assert shop.did == [0, 1, 2]


@pytest.mark.skipif(not HAS_HOOKS, reason="Haystack 2 gives the inputs of the call again instead")
async def test_a_state_that_cannot_be_stored_for_the_pause_is_an_error_before_any_question():
    shop = Shop(call("pay", amount=1), say("Done."), odd=threading.Event)
    with pytest.raises(ToolError, match="cannot be carried on after an approval"):
        await shop.serve(MODERN, odd=threading.Event())

    assert (shop.did, shop.questions) == ([], [])


async def test_a_cancelled_call_stops_waiting_for_an_answer():
    asked = asyncio.Event()
    shop = Shop(call("pay", amount=1), say("never"))
    server = shop.server()

    async def ask(*_: Any) -> ElicitResult:
        asked.set()
        await asyncio.sleep(LIMIT)
        raise AssertionError

    async with Client(server, elicitation_handler=ask, mode=HANDSHAKE) as client:
        waiting = asyncio.create_task(client.call_tool("shop", {"task": "Shop."}))
        async with asyncio.timeout(LIMIT):
            await asked.wait()
        assert server.haystack.pool.limiter.borrowed_tokens == 1
        waiting.cancel()
        await wait_until_async(lambda: not server.haystack.pool.limiter.borrowed_tokens, "the run to end")

    assert shop.did == []


def test_a_strategy_is_stored_and_loaded():
    strategy = ClientConfirmationStrategy(hitl.AskOncePolicy(), reject_template="No.")
    loaded = ClientConfirmationStrategy.from_dict(strategy.to_dict())

    assert isinstance(loaded.confirmation_policy, hitl.AskOncePolicy)
    assert loaded.to_dict() == strategy.to_dict()
    assert isinstance(ClientConfirmationStrategy().confirmation_policy, hitl.AlwaysAskPolicy)
    with pytest.raises(TypeError, match="accept_template"):
        ClientConfirmationStrategy(accept_template="x")


def test_the_strategy_fails_if_the_agent_is_not_run_by_a_server():
    shop = Shop(call("pay", amount=1), say("Done."))
    with pytest.raises(Exception, match="not run by a server"):
        shop.agent.run([ChatMessage.from_user("Shop.")])
    assert shop.did == []
