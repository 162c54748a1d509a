# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Requests and notifications of the server, in both eras of the protocol.
"""

from typing import Any

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
)
async def test_the_capabilities_declare_the_available_handlers(fields, older, newest):
    requests = server_requests(**fields)
    assert requests.capabilities(OLDER) == older
    assert requests.capabilities(NEWEST) == {**newest, "extensions": TASKS}


@rows(
    ("method", "params", "code"),
    ("sampling/createMessage", SAMPLING, -32601),
    ("roots/list", {}, -32601),
    ("own/method", {"a": 1}, -32601),
    ("elicitation/create", {**FORM, "mode": "telepathy"}, -32602),
    ("elicitation/create", {}, -32602),
)
async def test_requests_that_cannot_be_answered_are_refused(method, params, code):
    requests = server_requests(OLDER, elicitation=accept_defaults)
    with pytest.raises(ProtocolError) as refused:
        await requests.respond(method, params)
    assert refused.value.code == code


async def test_an_answer_that_cannot_be_written_as_json_counts_as_a_failed_handler(caplog):
    form = {**FORM, "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}}}
    requests = server_requests(OLDER, elicitation=lambda _: {"name": "half a \ud83d"})
    with pytest.raises(ProtocolError, match="The client's elicitation handler failed"):
        await requests.respond("elicitation/create", form)
    assert "what it returned has text that is not valid Unicode" in caplog.text


async def test_the_users_handler_gets_notifications_except_those_about_the_session():
    messages: list[Any] = []
    requests = server_requests(NEWEST, messages=messages.append)
    requests.notified("notifications/subscriptions/acknowledged", {"notifications": {}})
    requests.notified("notifications/message", {"level": "info", "data": "x"})
    requests.notified("notifications/prompts/list_changed", {})
    await wait_until_async(lambda: len(messages) >= 2, "the notifications")
    names = [type(message).__name__ for message in messages]
    assert names == ["LoggingMessageNotification", "PromptListChangedNotification"]


@rows("field", "logging", "messages")
async def test_the_users_function_gets_notifications_in_the_context_of_the_requests_caller(field):
    def of_the_request() -> None:
        return None

    def of_the_session() -> None:
        return None

    async def take(_: Any) -> None:
        callers.append(caller_of_operation.get())

    callers: list[Any] = []
    requests = server_requests(OLDER, **{field: take})
    requests.caller = lambda: of_the_session
    token = caller_of_operation.set(of_the_request)
    exchange = Exchange(1, "tools/call")
    caller_of_operation.reset(token)
    for told_in in (exchange, None):
        requests.notified("notifications/message", {"level": "info", "data": "x"}, told_in)
    await wait_until_async(lambda: len(callers) == 2, "the log messages")
    assert callers == [of_the_request, of_the_session]
