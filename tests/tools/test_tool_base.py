# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The common behaviour of tools and toolsets, tested with both.
"""

import asyncio
import copy
import inspect
import json
from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnectionError,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.errors import MCPToolNotFoundError
from tests.support.foreign_server import ForeignServer, definition
from tests.support.in_process import COUNTER
from tests.support.rows import rows

SECRET = "s3ntinel-of-both"


def tool_of(name: str, info: Any, **parameters: Any) -> MCPTool:
    return MCPTool(name, info, **parameters)


def toolset_of(name: str, info: Any, **parameters: Any) -> MCPToolset:
    return MCPToolset(info, tool_names=[name], **parameters)


def first(owner: MCPTool | MCPToolset) -> MCPTool:
    return owner if isinstance(owner, MCPTool) else owner[0]


both = pytest.mark.parametrize("make", [tool_of, toolset_of], ids=["tool", "toolset"])
LIMITS = "connection_timeout=30 invocation_timeout=30 eager_connect=False"
STATE, STRING = "inputs_from_state=None outputs_to_state=None", "outputs_to_string=None"


@rows(
    ("kind", "documented"),
    (MCPTool, f"name server_info description=None {LIMITS} {STRING} {STATE}"),
    (MCPToolset, f"server_info tool_names=None {LIMITS} {STATE} {STRING}"),
)
def test_the_documented_signature_holds(kind, documented):
    parameters = inspect.signature(kind).parameters.values()
    by_position = [each.replace(annotation=each.empty) for each in parameters if each.kind is not each.KEYWORD_ONLY]
    assert [str(each).replace("=30.0", "=30") for each in by_position] == documented.split()


@both
class TestConnecting:
    async def test_it_connects_eagerly_or_as_a_context_manager_and_may_be_closed_repeatedly(self, make):
        owner = make("add", COUNTER, connection_timeout=7, invocation_timeout=8.5)
        owner.close()
        await owner.close_async()
        assert owner.connection.status().state == "idle"
        for each in (owner, first(owner)):
            assert (each.connection_timeout, each.invocation_timeout) == (7, 8.5)
        async with owner:
            assert first(owner).description == "Add two integers."
        assert owner.connection.status().state == "closed"
        owner.close()
        eager = make("add", COUNTER, eager_connect=True)
        assert first(eager).description == "Add two integers."
        await eager.close_async()

    def test_an_eager_connect_to_an_unreachable_server_is_a_connection_error(self, make):
        info = StdioServerInfo(command="mcp-no-such-command")
        with pytest.raises(MCPConnectionError, match=r"mcp-no-such-command.*not found") as raised:
            make("add", info, eager_connect=True)
        assert (raised.value.server_info, raised.value.operation) == (info, "connect")

    async def test_a_failed_warm_up_on_entering_closes_the_connection(self, make):
        owner = make("subtract", COUNTER)
        with pytest.raises(MCPToolNotFoundError), owner:
            pass
        assert owner.connection.status().state == "closed"
        with pytest.raises(MCPToolNotFoundError):
            await owner.__aenter__()
        assert owner.connection.status().state == "closed"

    def test_warming_up_again_sends_no_request(self, make):
        server = ForeignServer(definition("search"))
        with make("search", server.info) as owner:
            for _ in range(3):
                owner.warm_up()
                first(owner).warm_up()
                first(owner).invoke()
                asyncio.run(owner.warm_up_async())
                asyncio.run(first(owner).warm_up_async())
            assert server.listings == 1
            with make("search", server.info), make("search", server.info, share=False) as alone:
                assert (owner.connection.status().users, alone.connection.status().users) == (2, 1)
            assert server.listings == 2

    def test_warming_up_after_close_gets_the_current_tools_of_the_server(self, make):
        server = ForeignServer(definition("search", description="Old."))
        with make("search", server.info) as owner:
            tool = first(owner)
            owner.close()
            server.tools = [definition("search", description="New.")]
            tool.invoke()
            owner.warm_up()
            assert first(owner) is tool
            assert tool.description == "New."


@both
def test_its_copy_is_itself_it_equals_no_other_and_it_shows_no_plain_secrets(make):
    info = StreamableHttpServerInfo(f"https://u:{SECRET}@h/mcp?key={SECRET}", token=SECRET, headers={"A": SECRET})
    owner, other = make("add", info), make("add", info)
    assert copy.copy(owner) is owner
    assert copy.deepcopy([{"tools": [owner]}])[0]["tools"][0] is owner
    assert owner == owner  # noqa: PLR0124
    assert owner != other
    shown = [repr(owner), json.dumps(owner._to_trace_dict()), str(MCPConnectionError("x", server_info=info))]
    assert SECRET not in "".join(shown)


def test_its_repr_names_the_server_and_the_tools():
    assert repr(MCPTool("add", COUNTER)) == f"MCPTool(name='add', server_info={COUNTER!r})"
    shown = f"MCPToolset(server_info={COUNTER!r}, tools=['add'], not warmed up)"
    assert repr(MCPToolset(COUNTER, ["add"])) == shown
