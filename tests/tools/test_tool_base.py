# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What tools and toolsets have in common, told of both.
"""

import asyncio
import copy
import inspect
import json
import pickle
from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnectionError,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
    StreamableHttpServerInfo,
    ToolOptions,
)
from haystack_integrations.tools.mcp.errors import MCPToolNotFoundError
from tests.support.foreign_server import ForeignServer, definition
from tests.support.rows import rows

SECRET = "s3ntinel-of-both"
COUNTER = InProcessServerInfo("tests.servers.inprocess:server")


def tool_of(name: str, info: Any, **parameters: Any) -> MCPTool:
    return MCPTool(name, info, **parameters)


def toolset_of(name: str, info: Any, **parameters: Any) -> MCPToolset:
    return MCPToolset(info, tool_names=[name], **parameters)


def first(owner: MCPTool | MCPToolset) -> MCPTool:
    return owner if isinstance(owner, MCPTool) else owner[0]


both = pytest.mark.parametrize("make", [tool_of, toolset_of], ids=["tool", "toolset"])
TIMEOUTS = {"connection_timeout": 30, "invocation_timeout": 30, "eager_connect": False}
MAPPINGS = ("inputs_from_state", "outputs_to_state", "outputs_to_string")


@rows(
    ("kind", "documented"),
    [
        (MCPTool, {"name": ..., "server_info": ..., "description": None, **TIMEOUTS}),
        (MCPToolset, {"server_info": ..., "tool_names": None, **TIMEOUTS}),
    ],
)
def test_the_documented_signature_holds(kind, documented):
    mappings = MAPPINGS if kind is MCPToolset else ("outputs_to_string", "inputs_from_state", "outputs_to_state")
    parameters = list(inspect.signature(kind.__init__).parameters.values())[1:]
    assert [
        (each.name, ... if each.default is each.empty else each.default)
        for each in parameters
        if each.kind is not each.KEYWORD_ONLY
    ] == [*documented.items(), *((name, None) for name in mappings)]


@both
class TestConnecting:
    def test_an_eager_one_has_what_the_server_says_at_once(self, make):
        owner = make("add", COUNTER, eager_connect=True)
        try:
            assert first(owner).description == "Add two integers."
        finally:
            owner.close()

    def test_an_eager_one_of_a_server_that_cannot_be_reached_is_a_connection_error(self, make):
        info = StdioServerInfo(command="mcp-no-such-command")
        with pytest.raises(MCPConnectionError, match=r"mcp-no-such-command.*not found") as raised:
            make("add", info, eager_connect=True)
        assert (raised.value.server_info, raised.value.operation) == (info, "connect")

    @pytest.mark.parametrize("is_async", [False, True])
    async def test_a_failed_warm_up_on_entering_closes_the_connection(self, make, is_async):
        owner = make("subtract", COUNTER)
        with pytest.raises(MCPToolNotFoundError):
            if is_async:
                async with owner:
                    pass
            else:
                with owner:
                    pass
        state = owner.connection.status().state
        await owner.close_async()
        assert state == "closed"

    async def test_it_is_an_asynchronous_context_manager(self, make):
        async with make("add", COUNTER) as owner:
            assert first(owner).description == "Add two integers."
        assert owner.connection.status().state == "closed"

    def test_warming_up_again_asks_nothing_of_the_server(self, make):
        server = ForeignServer(definition("search"))
        with make("search", server.info) as owner:
            for _ in range(3):
                owner.warm_up()
                first(owner).warm_up()
                first(owner).invoke()
                asyncio.run(owner.warm_up_async())
                asyncio.run(first(owner).warm_up_async())
            assert server.listings == 1

    @pytest.mark.parametrize("first_use", ["warm_up", "invoke"])
    def test_after_close_warming_up_shows_what_the_server_has_now(self, make, first_use):
        server = ForeignServer(definition("search", description="Old."))
        with make("search", server.info) as owner:
            tool = first(owner)
            owner.close()
            server.tools = [definition("search", description="New.")]
            if first_use == "invoke":
                tool.invoke()
            owner.warm_up()
            assert first(owner) is tool
            assert tool.description == "New."

    def test_closing_is_safe_before_use_and_repeatedly(self, make):
        owner = make("add", COUNTER)
        owner.close()
        owner.close()
        asyncio.run(owner.close_async())
        assert owner.connection.status().state == "idle"

    def test_it_may_have_a_session_of_its_own(self, make):
        server = ForeignServer(definition("one"))
        with make("one", server.info) as owner, make("one", server.info, share=False) as alone:
            assert owner.connection.status().users == alone.connection.status().users == 1
        assert server.listings == 2

    def test_timeouts_are_readable(self, make):
        owner = make("sleep", COUNTER, connection_timeout=7, invocation_timeout=8.5)
        assert (owner.connection_timeout, owner.invocation_timeout) == (7, 8.5)
        assert (first(owner).connection_timeout, first(owner).invocation_timeout) == (7, 8.5)


@both
class TestAsAnObject:
    def test_a_copy_is_the_object_itself(self, make):
        with make("add", COUNTER) as owner:
            assert copy.copy(owner) is owner
            assert copy.deepcopy([{"tools": [owner]}])[0]["tools"][0] is owner

    def test_it_is_equal_to_itself_and_to_no_other(self, make):
        with make("add", COUNTER) as owner, make("echo", COUNTER) as other:
            assert owner == owner  # noqa: PLR0124
            assert owner != other
            assert owner in [owner]

    def test_pickling_keeps_the_configuration_and_not_the_connection(self, make):
        owner = make(
            "add",
            COUNTER,
            connection_timeout=7,
            invocation_timeout=8,
            tool_options=ToolOptions(result_format="json"),
            share=False,
        )
        with owner:
            twin = pickle.loads(pickle.dumps(owner))  # noqa: S301
            assert twin.to_dict() == owner.to_dict()
            assert not twin.connection.is_ready
        with twin:
            assert json.loads(first(twin).invoke(a=1, b=2))["isError"] is False

    def test_neither_repr_nor_trace_show_plain_secrets(self, make):
        info = StreamableHttpServerInfo(
            url=f"https://u:{SECRET}@h/mcp?key={SECRET}", token=SECRET, headers={"A": SECRET}
        )
        owner = make("add", info)
        assert SECRET not in repr(owner)
        assert SECRET not in json.dumps(owner._to_trace_dict())
        assert SECRET not in str(MCPConnectionError("x", server_info=info))


@rows(
    ("owner", "shown"),
    [
        (MCPTool("add", COUNTER), f"MCPTool(name='add', server_info={COUNTER!r})"),
        (MCPToolset(COUNTER, ["add"]), f"MCPToolset(server_info={COUNTER!r}, tools=['add'], not warmed up)"),
    ],
)
def test_its_repr_names_the_server_and_the_tools(owner, shown):
    assert repr(owner) == shown
