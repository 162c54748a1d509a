# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Requests for which the server needs input first, or which it turns into tasks.
"""

import asyncio
from collections.abc import Awaitable
from typing import Any

import pytest
from pydantic import ValidationError

from haystack_integrations.tools.mcp import MCPConnectionError
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from haystack_integrations.tools.mcp.protocol.request_errors import ProtocolError
from haystack_integrations.tools.mcp.protocol.requests_of_server import Continuation
from tests.protocol.scripted_client import OLDER, ScriptedClient
from tests.support.rows import rows

STATE = " \\u00e9 opaque\n"
DONE: dict[str, Any] = {"content": [], "resultType": "complete"}
FORM = {"type": "object", "properties": {"size": {"type": "string"}}}


def question(message: str = "How large?") -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": FORM}}


ROOTS = {"method": "roots/list"}


def wants(state: str | None = None, **requests: Any) -> dict[str, Any]:
    members = {"inputRequests": requests or None, "requestState": state}
    return {"resultType": "input_required", **{name: each for name, each in members.items() if each is not None}}


def scripted(*answers: Any, version: str = "2026-07-28", **fields: Any) -> ScriptedClient:
    left = list(answers)

    def answer(*_: Any) -> Any:
        return left.pop(0) if len(left) > 1 else left[0]

    return ScriptedClient(answer, version, **fields)


async def call(client: ScriptedClient) -> dict[str, Any]:
    def send(more: dict[str, Any]) -> Awaitable[dict[str, Any]]:
        return client._request("tools/call", more)

    return await client._complete_call(send, await send({}))


def sent(client: ScriptedClient) -> list[dict[str, Any]]:
    return [params for _, params in client.sent]


async def test_a_call_is_sent_again_with_the_answers_and_state_of_only_the_last_round():
    first, second, third = wants(STATE, a=question(), b=ROOTS), wants(a=question()), wants("")
    client = scripted(first, second, third, DONE, elicitation=lambda _: {"size": "small"}, roots=["file:///srv"])
    assert await call(client) == DONE
    small = {"action": "accept", "content": {"size": "small"}}
    assert sent(client) == [
        {},
        {"requestState": STATE, "inputResponses": {"a": small, "b": {"roots": [{"uri": "file:///srv"}]}}},
        {"inputResponses": {"a": small}},
        {"requestState": ""},
    ]


async def test_reads_and_prompts_that_need_input_are_not_cached():
    for read, result in (
        (lambda client: client.read_resource("memo://a"), {"contents": [], "ttlMs": 60_000}),
        (lambda client: client.get_prompt("greet"), {"messages": []}),
    ):
        wanted = {**wants("s"), "ttlMs": 60_000}
        client = scripted(wanted, result, wanted, result)
        for _ in range(2):
            await read(client)
        assert [params.get("requestState") for _, params in client.sent] == [None, "s"] * 2


async def test_a_call_fails_if_the_server_asks_in_too_many_rounds(monkeypatch):
    monkeypatch.setattr("haystack_integrations.tools.mcp.protocol.requests_of_server._FIRST_PAUSE", 0.0)
    client = scripted(wants("s"))
    with pytest.raises(RuntimeError, match="wanted input more than 10 times"):
        await call(client)
    assert len(client.sent) == 11
    with pytest.raises(MCPConnectionError, match="`read_resource` of a server failed: the server wanted input more"):
        await client.read_resource("memo://a")


@rows(
    ("wanted", "error"),
    (wants(), ValidationError),
    (wants(a={"method": "ping"}), ValidationError),
    (wants(a=ROOTS), ProtocolError),
)
async def test_a_question_without_a_handler_is_the_error_of_the_call(wanted, error):
    client = scripted(wanted, DONE)
    with pytest.raises(error) as raised:
        await call(client)
    if error is ProtocolError:
        assert (raised.value.code, raised.value.data) == (-32021, {"requiredCapabilities": {"roots": {}}})
    assert len(client.sent) == 1


async def test_a_refusal_cancels_the_other_handlers():
    ended = asyncio.Event()

    async def wait(_: Any) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            ended.set()

    client = scripted(wants(a=question(), b=ROOTS), elicitation=wait)
    with pytest.raises(ProtocolError, match="Roots not supported"):
        await call(client)
    await asyncio.wait_for(ended.wait(), 10)


async def test_older_revisions_have_neither_questions_nor_tasks_in_results():
    odd = {"content": [], "resultType": "task"}
    client = scripted(odd, version=OLDER)
    assert await call(client) is odd
    pending = MCPPendingCall(tool_name="order", requests={"a": question()}, request_state="s")
    with pytest.raises(RuntimeError, match=r"now speaks revision 2025-11-25\. The tool did not run"):
        await Continuation(pending, {"a": None}, asks=False).parameters(client._server_requests)


async def test_a_question_of_a_task_does_not_end_with_another_call():
    async def elicit(_: Any) -> dict[str, Any]:
        await asyncio.wait([other])
        return {"size": "small"}

    client = scripted(DONE, elicitation=elicit)
    other = asyncio.ensure_future(asyncio.sleep(0.01))
    other.cancel()
    client._server_requests.requests_in_flight = lambda: [other]
    responses = await client.answer_for_task({"a": question()})
    assert responses == {"a": {"action": "accept", "content": {"size": "small"}}}


async def test_an_unknown_result_type_is_an_error():
    with pytest.raises(RuntimeError, match="of an unknown type"):
        await call(scripted({"resultType": "ticket", "number": 5}))
