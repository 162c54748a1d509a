# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a server asks and tells, in both eras of the protocol.
"""

from typing import Any

import mcp_types as types
import pytest

from haystack_integrations.tools.mcp import MCPSampling
from haystack_integrations.tools.mcp.executor import caller_of_operation
from haystack_integrations.tools.mcp.handlers import accept_defaults
from haystack_integrations.tools.mcp.protocol.channel import Exchange
from haystack_integrations.tools.mcp.protocol.request_errors import ProtocolError
from tests.protocol.scripted_client import NEWEST, OLDER, server_requests
from tests.support.rows import rows
from tests.support.waiting import wait_until_async

TASKS = {"io.modelcontextprotocol/tasks": {}}
FORM = {"message": "How large?", "requestedSchema": {"type": "object", "properties": {}}}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}], "maxTokens": 5}


@rows(
    ("fields", "older", "newest"),
    [
        ({}, {}, {}),
        (
            {"sampling": lambda _: "x", "elicitation": accept_defaults, "roots": ["/srv"]},
            {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {"listChanged": True}},
            {"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}},
        ),
        (
            {"sampling": MCPSampling(function=lambda _: "x", tools=True)},
            {"sampling": {"tools": {}}},
            {"sampling": {"tools": {}}},
        ),
    ],
)
async def test_a_server_is_told_of_what_is_there(fields, older, newest):
    requests = server_requests(**fields)
    assert requests.capabilities(OLDER) == older
    assert requests.capabilities(NEWEST) == {**newest, "extensions": TASKS}


@rows(
    ("method", "params", "code"),
    [
        ("sampling/createMessage", SAMPLING, -32601),
        ("roots/list", {}, -32601),
        ("elicitation/create", {**FORM, "mode": "telepathy"}, -32602),
        ("elicitation/create", {}, -32602),
    ],
)
async def test_what_cannot_be_answered_is_refused(method, params, code):
    requests = server_requests(OLDER, elicitation=accept_defaults)
    with pytest.raises(ProtocolError) as refused:
        await requests.respond(method, params)
    assert refused.value.code == code


async def test_an_answer_that_cannot_be_written_is_one_of_a_handler_that_failed(caplog):
    form = {**FORM, "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    requests = server_requests(OLDER, elicitation=lambda _: {"name": "half a \ud83d"})
    with pytest.raises(ProtocolError, match="The client's elicitation handler failed"):
        await requests.respond("elicitation/create", form)
    assert "what it returned has text that is not valid Unicode" in caplog.text


async def test_the_newest_revision_has_no_requests_and_its_missing_handlers_are_errors_of_calls():
    requests = server_requests(NEWEST)
    assert await requests.respond("ping", {}) is None
    with pytest.raises(ProtocolError, match="Sampling not supported") as refused:
        await requests.answers({"a": types.CreateMessageRequest.model_validate({"params": SAMPLING}, by_name=False)})
    assert refused.value.code == types.MISSING_REQUIRED_CLIENT_CAPABILITY
    assert refused.value.data == {"requiredCapabilities": {"sampling": {}}}
    assert requests.wanted == {"sampling": 1}


async def test_the_users_handler_gets_notifications_with_types():
    messages: list[Any] = []
    requests = server_requests(NEWEST, messages=messages.append)
    requests.notified("notifications/message", {"level": "odd"})
    requests.notified("notifications/unknown", {})
    requests.notified("notifications/subscriptions/acknowledged", {"notifications": {}})
    requests.notified("notifications/message", {"level": "info", "data": "x"})
    requests.notified("notifications/prompts/list_changed", {})
    await wait_until_async(lambda: len(messages) == 2, "the notifications")
    names = [type(message).__name__ for message in messages]
    assert names == ["LoggingMessageNotification", "PromptListChangedNotification"]


async def test_log_messages_go_to_the_users_function_on_behalf_of_the_caller_of_the_exchange():
    def nobody() -> None:
        return None

    async def log(params: Any) -> None:
        got.append((params.data, caller_of_operation.get()))

    got: list[Any] = []
    requests = server_requests(OLDER, logging=log)
    token = caller_of_operation.set(nobody)
    exchange = Exchange(1, "tools/call")
    caller_of_operation.reset(token)
    requests.notified("notifications/message", {"level": "info", "data": "x"}, exchange)
    await wait_until_async(lambda: got, "the log message")
    assert got == [("x", nobody)]
