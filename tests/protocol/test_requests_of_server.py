# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a server asks and tells, in both eras of the protocol.
"""

import pytest

from haystack_integrations.tools.mcp.handlers import accept_defaults
from haystack_integrations.tools.mcp.protocol.request_errors import ProtocolError
from tests.protocol.scripted_client import OLDER, server_requests
from tests.support.rows import rows

TASKS = {"io.modelcontextprotocol/tasks": {}}
FORM = {"message": "How large?", "requestedSchema": {"type": "object", "properties": {}}}
SAMPLING = {"messages": [{"role": "user", "content": {"type": "text", "text": "Hello"}}], "maxTokens": 5}


@rows(
    ("method", "params", "code"),
    ("sampling/createMessage", SAMPLING, -32601),
    ("roots/list", {}, -32601),
    ("own/method", {"a": 1}, -32601),
    ("elicitation/create", {**FORM, "mode": "telepathy"}, -32602),
    ("elicitation/create", {}, -32602),
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
