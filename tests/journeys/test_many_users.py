# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Many users run one Agent or one pipeline with one toolset at the same time, each with their own identity.
"""

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
from haystack import component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp import MCPToolset, StreamableHttpServerInfo, mcp_request_context
from tests.support.executors import HAS_TOOL_INVOKER, results_of
from tests.support.identity_server import IdentityServer
from tests.support.scripted_chat import call, say

USERS = 25
# In each step, an Agent makes one call.
STEPS = 2


@component
class Caller:
    """
    Calls `whoami` in two steps, for the user of the conversation. It has no state, so that all users can share it.
    """

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None, **_: Any) -> dict[str, list[ChatMessage]]:
        name = next(message.text for message in messages if message.text and message.text.startswith("user"))
        done = sum(len(message.tool_call_results) for message in messages)
        return {"replies": [say("done") if done == STEPS else call("whoami", name=name)]}

    @component.output_types(replies=list[ChatMessage])
    async def run_async(self, messages: list[ChatMessage], tools: Any = None, **_: Any) -> dict[str, list[ChatMessage]]:
        return self.run(messages, tools)


@pytest.fixture(params=["2026", "sessions"])
def server(request: pytest.FixtureRequest) -> Iterator[IdentityServer]:
    with IdentityServer(handshake=request.param == "sessions") as server:
        yield server


@pytest.fixture
def toolset(server: IdentityServer) -> Iterator[MCPToolset]:
    info = StreamableHttpServerInfo(server.url, token="service-token")
    toolset = MCPToolset(info, tool_names=["whoami"], connection_timeout=90, invocation_timeout=90)
    yield toolset
    toolset.close()


def test_concurrent_runs_of_an_agent_call_as_their_users(server: IdentityServer, toolset: MCPToolset) -> None:
    agent = Agent(chat_generator=Caller(), tools=toolset)
    if not HAS_TOOL_INVOKER:  # Haystack 2 uses four threads for the tools of an Agent
        server.barrier = asyncio.Barrier(USERS)

    async def run(name: str) -> list[Any]:
        context = {"token": f"{name}-token", "headers": {"X-Tenant": name}, "meta": {"marker": name}}
        with mcp_request_context(user=name, **context):
            result = await agent.run_async(messages=[ChatMessage.from_user(name)])
        return [json.loads(each.result) for each in results_of(result)]

    async def run_all() -> list[list[Any]]:
        toolset.warm_up()
        return await asyncio.gather(*map(run, names))

    names = [f"user{number}" for number in range(USERS)]
    for name, results in zip(names, asyncio.run(run_all()), strict=True):
        assert len(results) == STEPS
        for result in results:
            assert result["name"] == result["tenant"] == result["marker"] == name
            assert result["token"] == f"Bearer {name}-token"
            assert result["opener"] in (None, f"Bearer {name}-token")
    assert server.anonymous == 0
