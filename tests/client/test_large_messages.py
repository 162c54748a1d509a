# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Large messages: read in pieces, to what the SDK reads.
"""

import json
from typing import Any

import pytest
from mcp.types import jsonrpc_message_adapter

from haystack_integrations.tools.mcp.client.large_messages import is_large, parse_large
from tests.support.rows import rows


def dense(items: int) -> list[dict[str, Any]]:
    return [{"id": number, "name": f"n{number}", "tags": ["a", "b"]} for number in range(items)]


@rows(
    "message",
    [
        {"jsonrpc": "2.0", "id": 5, "result": {"content": dense(40_000), "_meta": {"a": 1}}},
        {"jsonrpc": "2.0", "id": 5, "error": {"code": -1, "message": "no", "data": dense(40_000)}},
        {"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": dense(40_000)}},
    ],
    ids=["result", "error", "notification"],
)
async def test_a_large_message_is_what_the_sdk_reads(message):
    data = json.dumps(message).encode()
    assert is_large(data)
    assert await parse_large(data) == jsonrpc_message_adapter.validate_json(data, by_name=False)
    with pytest.raises(ValueError):
        await parse_large(data[:-1])
