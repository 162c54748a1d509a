# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Requests whose server wants input first, or makes a task of them.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from pydantic import ValidationError

from haystack_integrations.tools.mcp import MCPConnectionError
from haystack_integrations.tools.mcp.handlers import answer_later
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from haystack_integrations.tools.mcp.protocol.exchange import ProtocolError
from haystack_integrations.tools.mcp.protocol.requests_of_server import CallLeftOpenError, Continuation
from tests.protocol.scripted_client import OLDER, ScriptedClient
from tests.support.rows import rows

STATE = " \\u00e9 opaque\n"
DONE: dict[str, Any] = {"content": [], "resultType": "complete"}
FORM = {"type": "object", "properties": {"size": {"type": "string"}}}


def question(message: str = "How large?") -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": FORM}}


ROOTS = {"method": "roots/list"}


def wants(state: str | None = None, **requests: Any) -> dict[str, Any]:
    wanted: dict[str, Any] = {"resultType": "input_required"}
    if requests:
        wanted["inputRequests"] = requests
    return wanted if state is None else {**wanted, "requestState": state}


async def scripted(*answers: Any, version: str = "2026-07-28", **fields: Any) -> ScriptedClient:
    left = list(answers)

    def answer(*_: Any) -> Any:
        following = left.pop(0) if len(left) > 1 else left[0]
        if isinstance(following, Exception):
            raise following
        return following

    return await ScriptedClient(answer, version).opened(**fields)


async def call(client: ScriptedClient, continuation: Continuation | None = None) -> dict[str, Any]:
    def send(more: dict[str, Any]) -> Awaitable[dict[str, Any]]:
        return client._request("tools/call", more)

    given = await continuation.parameters(client._server_requests) if continuation is not None else {}
    return await client._finished(send, await send(given))


def sent(client: ScriptedClient) -> list[dict[str, Any]]:
    return [params for _, params, _ in client.sent]


async def test_a_call_is_sent_again_with_the_answers_and_the_state_of_the_last_round_only():
    first, second, third = wants(STATE, a=question(), b=ROOTS), wants(a=question()), wants("")
    client = await scripted(first, second, third, DONE, elicitation=lambda _: {"size": "small"}, roots=["file:///srv"])
    assert await call(client) == DONE
    small = {"action": "accept", "content": {"size": "small"}}
    assert sent(client) == [
        {},
        {"requestState": STATE, "inputResponses": {"a": small, "b": {"roots": [{"uri": "file:///srv"}]}}},
        {"inputResponses": {"a": small}},
        {"requestState": ""},
    ]


async def test_reads_and_prompts_may_want_input_and_are_not_kept_then():
    for read, result in (
        (lambda client: client.read_resource("memo://a"), {"contents": [], "ttlMs": 60_000}),
        (lambda client: client.get_prompt("greet"), {"messages": []}),
    ):
        client = await scripted(wants("s"), result, wants("s"), result)
        for _ in range(2):
            await read(client)
        assert len(client.sent) == 4
        assert client.sent[1][1]["requestState"] == "s"
        assert client.sent[1][2] == client.sent[0][2]


async def test_a_server_that_never_has_enough_is_left(monkeypatch):
    monkeypatch.setattr("haystack_integrations.tools.mcp.protocol.requests_of_server._FIRST_PAUSE", 0.0)
    client = await scripted(wants("s"))
    with pytest.raises(RuntimeError, match="wanted input more than 10 times"):
        await call(client)
    assert len(client.sent) == 11
    with pytest.raises(
        MCPConnectionError, match="`read_resource` of a server failed: the server wanted input more than 10"
    ):
        await client.read_resource("memo://a")


@rows(
    ("wanted", "error"),
    [
        (wants(), ValidationError),
        (wants(a={"method": "ping"}), ValidationError),
        (wants(a=ROOTS), ProtocolError),
    ],
)
async def test_what_nobody_can_answer_is_the_error_of_the_call(wanted, error):
    client = await scripted(wanted, DONE)
    with pytest.raises(error) as raised:
        await call(client)
    if error is ProtocolError:
        assert (raised.value.code, raised.value.data) == (-32021, {"requiredCapabilities": {"roots": {}}})
    assert len(client.sent) == 1


async def test_a_refusal_ends_the_other_handlers():
    ended = asyncio.Event()

    async def wait(_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    client = await scripted(wants(a=question(), b=ROOTS), elicitation=wait)
    with pytest.raises(ProtocolError, match="Roots not supported"):
        await call(client)
    client = await scripted(wants(a=question()), elicitation=wait)
    calling = asyncio.create_task(call(client))
    await asyncio.sleep(0.05)
    calling.cancel()
    await asyncio.wait_for(ended.wait(), 10)


async def test_questions_may_be_answered_later():
    wanted = wants("s", a=question(), b=ROOTS)
    client = await scripted(wanted, DONE, elicitation=answer_later, roots=["file:///srv"])
    with pytest.raises(CallLeftOpenError) as left_open:
        await call(client)
    assert left_open.value.result == wanted

    pending = MCPPendingCall(tool_name="order", requests=wanted["inputRequests"], request_state="s")
    for answers, message in (({}, "has no"), ({"a": {}, "x": {}}, "unknown keys"), ({"a": {"size": 3}}, "the answer")):
        with pytest.raises(ValueError, match=message):
            Continuation(pending, answers, asks=False)
    assert await call(client, Continuation(pending, {"a": {"size": "small"}}, asks=False)) == DONE
    small = {"action": "accept", "content": {"size": "small"}}
    assert sent(client)[-1] == {
        "requestState": "s",
        "inputResponses": {"a": small, "b": {"roots": [{"uri": "file:///srv"}]}},
    }
    older = await scripted(DONE, version=OLDER)
    with pytest.raises(RuntimeError, match=r"now speaks revision 2025-11-25\. The tool did not run"):
        await call(older, Continuation(pending, {"a": None}, asks=False))
    assert older.sent == []


async def test_older_revisions_know_only_results():
    odd = {"content": [], "resultType": "task"}
    assert await call(await scripted(odd, version=OLDER)) is odd


async def test_a_question_of_a_task_does_not_end_with_the_call_of_somebody_else():
    async def elicit(_):
        await asyncio.wait([other])
        return {"size": "small"}

    client = await scripted(DONE, elicitation=elicit)
    other = asyncio.ensure_future(asyncio.sleep(0.01))
    other.cancel()
    client._server_requests.callbacks.requests_under_way = lambda: [other]
    responses = await client.answer_for_task({"a": question()})
    assert responses == {"a": {"action": "accept", "content": {"size": "small"}}}


async def test_a_kind_of_result_that_nobody_knows_is_an_error():
    with pytest.raises(RuntimeError, match="of an unknown type"):
        await call(await scripted({"resultType": "ticket", "number": 5}))
