# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that is not required and down: its toolset is empty until it comes back.

What Agents make of it is in `tests/journeys/test_servers_that_are_down.py`.
"""

import logging

import pytest

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnectionError,
    MCPToolNotFoundError,
    MCPToolset,
    StdioServerInfo,
    mcp_toolset,
    warm_up_toolsets,
)
from haystack_integrations.tools.mcp.connection.limits import back_off
from tests.support.background import in_thread
from tests.support.kinds import KINDS, every_way
from tests.support.waiting import LIMIT, wait_until

COUNTER = InProcessServerInfo("tests.servers.inprocess:server")


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mcp_toolset, "_FIRST_PAUSE", 0.05)
    monkeypatch.setattr(mcp_toolset, "_LONGEST_PAUSE", 0.2)


@every_way
def test_a_server_that_is_down_leaves_its_toolset_empty_until_it_is_back(peer, kind, caplog):
    server = peer(kind)
    server.go_down()
    with MCPToolset(server.reach(), tool_names=["add"], required=False) as toolset:
        toolset.warm_up()
        assert list(toolset) == []
        assert len(toolset) == 0
        assert toolset
        assert repr(toolset).endswith("tools=[], not reachable)")
        assert "Failed to connect" in (toolset.connection.status().last_error or "")
        [warning] = [record for record in caplog.records if "is left out until it can be reached" in record.message]
        assert warning.levelno == logging.WARNING
        with pytest.raises(KeyError, match="its server cannot be reached"):
            toolset["add"]
        server.come_back()
        wait_until(lambda: len(toolset) == 1, "the tools")
        assert "8" in toolset["add"].invoke(a=5, b=3)
        assert repr(toolset).endswith("tools=['add'])")


def test_a_lost_server_that_does_not_come_back_takes_its_tools_out(peer):
    server = peer(KINDS["stdio"])
    with MCPToolset(server.reach(max_retries=0), required=False) as toolset, MCPToolset(COUNTER) as other:
        assert "add" in toolset
        server.go_down()
        wait_until(lambda: not toolset.connection.is_ready, "the loss")
        warm_up_toolsets([toolset, other])
        assert list(toolset) == []
        assert "add" in other
        server.come_back()
        toolset.warm_up()
        assert "add" in toolset


def test_attempts_go_on_for_days():
    assert 30 <= back_off(10_000, base=1.0, longest=60.0) <= 60


def test_closing_ends_the_attempts_to_reach_a_server(peer):
    server = peer(KINDS["stdio"])
    server.go_down()
    with pytest.raises(MCPConnectionError, match="exit code 9"):
        MCPToolset(server.reach()).warm_up()
    toolset = MCPToolset(server.reach(), tool_names=["add"], required=False)
    for closed in (toolset, toolset["add"]):
        toolset.warm_up()
        starts = server.gate.starts
        wait_until(lambda starts=starts: server.gate.starts > starts, "an attempt in the background")
        closed.close()
        assert not toolset._retry.is_running
        assert toolset.connection.status().state == "closed"
    server.come_back()
    toolset.warm_up()
    assert "add" in toolset
    toolset.close()


def test_a_server_that_does_not_answer_holds_up_only_the_first_warm_up():
    with MCPToolset(StdioServerInfo("sleep", ["600"]), required=False, connection_timeout=0.3) as toolset:
        toolset.connection.connection_timeout = 600
        in_thread(toolset.warm_up).result(LIMIT)
        assert list(toolset) == []


def test_a_tool_that_a_reachable_server_does_not_have_is_an_error_all_the_same():
    with pytest.raises(MCPToolNotFoundError, match="Did you mean 'add'"):
        MCPToolset(COUNTER, tool_names=["ad"], required=False, eager_connect=True)


def test_whether_a_server_is_required_is_stored():
    toolset = MCPToolset(COUNTER, required=False)
    assert MCPToolset.from_dict(toolset.to_dict()).required is False
    assert "required" not in MCPToolset(COUNTER).to_dict()["data"]
    with toolset:
        assert "required" not in toolset["add"].to_dict()["data"]
    with pytest.raises(ValueError, match="`required` must be a valid boolean"):
        MCPToolset(COUNTER, required="no")
