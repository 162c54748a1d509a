# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Toolsets with snapshots in YAML, in pickles and in registries.
"""

import pickle

import pytest
from haystack import Pipeline

from haystack_integrations.components.tools.mcp import MCPToolCaller
from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPRegistry,
    MCPTool,
    MCPToolset,
    MCPToolSnapshot,
    SnapshotCheck,
    ToolConfig,
)
from haystack_integrations.tools.mcp.errors import MCPDriftedCallError
from tests.servers.rug_pulling_server import build_server, pull

SERVER = "tests.servers.rug_pulling_server:server"


@pytest.fixture(scope="module")
def snapshot():
    with MCPToolset(InProcessServerInfo(SERVER), tool_names=["add", "pull"]) as toolset:
        return MCPToolSnapshot.capture(toolset)


@pytest.mark.parametrize("form", ["object", "path"])
def test_a_pipeline_with_a_snapshot_survives_yaml(snapshot, form, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    snapshot.save("sums.json")
    check = SnapshotCheck(snapshot if form == "object" else "sums.json", on_drift="quarantine")
    toolset = MCPToolset(InProcessServerInfo(SERVER), snapshot=check, tool_name_prefix="p")
    pipeline = Pipeline()
    pipeline.add_component("caller", MCPToolCaller(toolset))
    text = pipeline.dumps()
    assert ("sums.json" in text) is (form == "path")
    loaded = Pipeline.loads(text)
    assert loaded.dumps() == text
    restored = loaded.get_component("caller").tools
    assert (restored.snapshot, restored.on_drift) == (snapshot, "quarantine")
    assert [tool.tool_spec for tool in restored] == [tool.tool_spec for tool in toolset]
    assert [list(tool.parameters["properties"]) for tool in restored] == [["a", "b"], ["change", "tell"]]
    assert restored.connection.status().state == "idle"


def test_a_single_tool_and_a_tool_of_a_toolset_are_stored_with_their_snapshot(snapshot):
    check = SnapshotCheck(snapshot, on_drift="warn")
    info = InProcessServerInfo(SERVER)
    for each in (MCPTool("add", info, snapshot=check), MCPToolset(info, snapshot=check)["add"]):
        for loaded in (MCPTool.from_dict(each.to_dict()), pickle.loads(pickle.dumps(each))):  # noqa: S301
            assert loaded.to_dict() == each.to_dict()
            assert (loaded.tool_spec, loaded.on_drift) == (each.tool_spec, "warn")


def test_traces_have_the_hashes_and_not_the_texts(snapshot):
    traced = MCPToolset(InProcessServerInfo(SERVER), snapshot=snapshot)._to_trace_dict()
    assert traced["data"]["snapshot"]["snapshot"]["tools"] == snapshot.hashes
    assert "Add two numbers." not in str(traced)


@pytest.fixture
def server():
    return build_server()


def registry_of(server, on_drift, **config):
    info = InProcessServerInfo(server)
    with MCPToolset(info) as toolset:
        check = SnapshotCheck(MCPToolSnapshot.capture(toolset), on_drift=on_drift)
    return MCPRegistry({"shop": MCPToolset(info, snapshot=check)}, [ToolConfig("sums", ["shop"], **config)])


def test_an_alias_of_a_registry_has_the_pinned_tools_of_its_providers(server):
    with registry_of(server, "quarantine", allow_tools=["add", "note"], prefix="always") as registry:
        alias = registry.toolset("sums")
        registry.warm_up()
        assert [tool.name for tool in alias] == ["shop_add", "shop_note"]
        assert alias.toolsets["shop"].connection.status().state == "idle"
        assert registry.tool_schemas("sums")[0]["function"]["description"] == "Add two numbers."
        pull(server, "description")
        with pytest.raises(MCPDriftedCallError, match="'add'"):
            alias["shop_add"].invoke(a=1, b=2)
        # What is allowed and in quarantine is hidden, and the rest goes on.
        assert [schema["function"]["name"] for schema in registry.tool_schemas("sums")] == ["shop_note"]
        assert registry.health_check(raise_on_failure=True).ok
        assert alias["shop_note"].call(text="b").text == "b"


def test_a_health_check_connects_and_tells_of_drift(server):
    with registry_of(server, "error") as registry:
        assert registry.health_check()["sums"].ok
        registry.close()
        pull(server, "schema")
        report = registry.health_check()
        assert not report["sums"].ok
        assert "not those of the snapshot: 'add'" in str(report)
