# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Toolsets with a snapshot: cold, with an unchanged server, and with a server that has drifted.
"""

import asyncio
import gc
import weakref
from contextlib import nullcontext

import pytest

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPConnectionError,
    MCPInvocationError,
    MCPTool,
    MCPToolset,
    MCPToolSnapshot,
    SnapshotCheck,
    StdioServerInfo,
    StreamableHttpServerInfo,
    ToolSelection,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.errors import MCPDriftedCallError, MCPDriftError
from tests.servers.rug_pulling_server import INSTRUCTIONS, build_server, pull
from tests.support.executors import agent_of, in_both_ways, names, results_of, run
from tests.support.foreign_server import ForeignServer, definition
from tests.support.kinds import KINDS, Peer
from tests.support.processes import SERVERS
from tests.support.scripted_chat import call, calls, say
from tests.support.waiting import wait_until

ALL = ["add", "note", "pull"]


@pytest.fixture
def requests():
    return []


@pytest.fixture
def server(requests):
    return build_server(lambda event, **_: requests.append(event))


def captured(info):
    with MCPToolset(info) as toolset:
        return MCPToolSnapshot.capture(toolset)


@pytest.fixture
def snapshot(server, requests):
    snapshot = captured(InProcessServerInfo(server))
    requests.clear()
    return snapshot


@pytest.fixture
def pinned(server, snapshot):
    """
    Creates a toolset with the snapshot, and closes it at the end.
    """
    toolsets = []

    def make(on_drift="error", **parameters):
        check = SnapshotCheck(parameters.pop("snapshot", snapshot), on_drift=on_drift)
        toolsets.append(MCPToolset(InProcessServerInfo(server), snapshot=check, **parameters))
        return toolsets[-1]

    yield make
    for toolset in toolsets:
        toolset.close()


def described(toolset):
    return [(tool.name, tool.description, tool.parameters, tool.annotations) for tool in toolset]


def test_a_cold_toolset_has_all_tools_without_a_request(pinned, requests):
    toolset = pinned()
    toolset.warm_up()
    asyncio.run(toolset.warm_up_async())
    with toolset:
        assert names(toolset) == ALL
    add = toolset["add"]
    assert (add.description, add.annotations.read_only_hint) == ("Add two numbers.", False)
    assert list(add.parameters["properties"]) == add.parameters["required"] == ["a", "b"]
    assert toolset.instructions == INSTRUCTIONS
    assert toolset.connection.status().state == "idle"
    assert requests == []
    assert "from a snapshot" in repr(toolset)


def test_a_call_connects_and_the_tools_that_models_see_stay_the_same(pinned, requests, snapshot, server):
    toolset = pinned()
    cold = described(toolset)
    assert toolset["add"].call(a=1, b=2).text == "3"
    assert requests.index("@tools/list") < requests.index("@tools/call")
    toolset.close()

    def add(b: int, a: int) -> int:
        return a + b

    # The order in which the server lists parameters is not a difference.
    server.remove_tool("add")
    server.add_tool(add, description="Add two numbers.", annotations=snapshot.tools[0].as_tool().annotations)
    toolset.warm_up()
    toolset.refresh()
    assert asyncio.run(toolset["add"].call_async(a=1, b=2)).text == "3"
    assert described(toolset) == cold
    assert list(toolset["add"].parameters["properties"]) == ["a", "b"]


@pytest.mark.parametrize(
    ("change", "kinds"),
    [
        ("description", ["description"]),
        ("schema", ["description", "input_schema"]),
        ("relaxed", ["annotations_relaxed"]),
        ("new", ["added"]),
        ("instructions", ["instructions"]),
    ],
)
def test_error_mode_refuses_all_calls_until_the_server_is_unchanged(pinned, server, change, kinds):
    toolset = pinned()
    cold = described(toolset)
    assert toolset["add"].call(a=1, b=2).text == "3"
    toolset.close()
    pull(server, change)
    # No call of any tool is sent.
    for tool in toolset:
        with pytest.raises(MCPDriftedCallError, match=r"not those of the snapshot: .*Nothing was sent\.") as refused:
            tool.invoke()
        assert "wipe" not in str(refused.value)  # the model sees the text, and the new tool's name was not reviewed
    with pytest.raises(MCPDriftError, match="capture the tools again") as raised:
        toolset.warm_up()
    assert raised.value.report.kinds == kinds
    # The server's new definitions are not shown anywhere else either.
    assert described(toolset) == cold
    assert toolset.instructions == INSTRUCTIONS
    # The server is checked again, until it is unchanged.
    for look in (toolset.warm_up, toolset.refresh, lambda: asyncio.run(toolset.refresh_async())):
        with pytest.raises(MCPDriftError):
            look()
    with pytest.raises(MCPDriftError):
        pinned(eager_connect=True, share=False)
    if change == "description":
        pull(server, "back")
        toolset.refresh()
        assert described(toolset) == cold
        assert toolset["add"].call(a=1, b=2).text == "3"


@pytest.mark.parametrize(
    ("change", "refused"),
    [("schema", "add"), ("tightened", "add"), ("new", "wipe"), ("gone", "note"), ("instructions", None)],
)
def test_quarantine_hides_drifted_tools_and_the_rest_works(pinned, server, change, refused):
    toolset = pinned(on_drift="quarantine", tool_names=None if change == "new" else ALL)
    held = {tool.remote_name: tool for tool in toolset}
    pull(server, change)
    if refused in held:
        with pytest.raises(MCPDriftedCallError, match=f"'{refused}'"):
            held[refused].invoke()
    for name, arguments in {"add": {"a": 1, "b": 2}, "note": {"text": "a"}}.items():
        if name != refused:
            held[name].invoke(**arguments)
    # The visible tools change only with the next run.
    assert names(toolset) == ALL
    toolset.warm_up()
    assert names(toolset) == [name for name in ALL if name != refused or change == "gone"]
    assert toolset.instructions == INSTRUCTIONS
    if refused and change != "gone":
        with pytest.raises(KeyError, match="the server has it, but it is not as in the snapshot"):
            toolset[refused]
    if refused == "add":
        with pytest.raises(MCPDriftedCallError):
            held["add"].invoke()
        pull(server, "back")
        toolset.refresh()
        assert names(toolset) == ALL
        assert held["add"].call(a=1, b=2).text == "3"


def test_warning_mode_uses_the_changed_tools(pinned, server, caplog):
    toolset = pinned(on_drift="warn")
    for change in ("new", "gone", "instructions"):
        pull(server, change)
    assert toolset["pull"].call(change="description").text == "pulled"
    toolset.close()
    toolset.refresh()
    assert names(toolset) == ["add", "pull", "wipe"]
    assert "not those of the snapshot" in caplog.text
    assert "keys" in toolset.instructions


def test_drift_has_one_line_in_the_log(pinned, server, caplog):
    toolset = pinned(on_drift="quarantine")
    pull(server, "description")
    pull(server, "new")
    for _ in range(3):
        with pytest.raises(MCPDriftedCallError):
            toolset["add"].invoke(a=1, b=2)
        toolset.close()
    warnings = [record.getMessage() for record in caplog.records if "snapshot" in record.getMessage()]
    drifts = [line for line in warnings if line.startswith("The tools of")]
    assert len(drifts) == 1
    assert "'add' (description), 'wipe' (added)" in drifts[0]
    # A listing in the background, if it had time to run, logs each tool that it omits.
    where = f"of {toolset.server_info.describe()} is left out: it is not as in the snapshot"
    left_out = {f"Tool '{name}' {where}" for name in ("add", "wipe")}
    assert len(warnings) == len(set(warnings)) and set(warnings) - set(drifts) <= left_out
    assert "ssh" not in caplog.text


def test_filters_prefixes_and_shaping_apply_to_pinned_tools(pinned, server):
    toolset = pinned(
        tool_names=["note", "add"],
        tool_name_prefix="sums",
        tool_overrides={"note": {"name": "memo", "description": "Keep it."}, "add": {"bound_arguments": {"b": 5}}},
    )
    assert names(toolset) == ["memo", "sums_add"]
    assert toolset["memo"].description == "Keep it."
    assert list(toolset["sums_add"].parameters["properties"]) == ["a"]
    # Tools that are not selected may change.
    pull(server, "new")
    assert toolset["sums_add"].call(a=1).text == "6"
    toolset.warm_up()
    assert names(toolset) == ["memo", "sums_add"]
    assert names(pinned(tool_selection=ToolSelection(exclude_tools=["p*"]), share=False)) == ["add", "note"]
    read_only = pinned(tool_selection=ToolSelection(required_hints={"read_only_hint": True}), share=False)
    assert names(read_only) == []
    # A change of annotations that would hide a tool is drift.
    pull(server, "tightened")
    hidden = pinned(tool_selection=ToolSelection(required_hints={"open_world_hint": True}), share=False)
    with pytest.raises(MCPDriftError, match="'add' \\(annotations\\)"):
        hidden.refresh()


def test_parameters_that_do_not_fit_the_snapshot_are_refused_at_construction(pinned, server, snapshot, tmp_path):
    for parameters, message in (
        ({"tool_names": ["add", "ad"]}, "The `snapshot` lacks tools of `tool_names`: 'ad'"),
        ({"tool_overrides": {"sum": {"bound_arguments": {"a": 1}}}}, "`tool_overrides` binds arguments of 'sum'"),
        ({"snapshot": 3}, "`snapshot`.*MCPToolSnapshot"),
        ({"snapshot": ""}, "`snapshot`"),
        ({"on_drift": "ignore"}, "`on_drift` must be 'error', 'quarantine' or 'warn', got 'ignore'"),
        ({"snapshot": None, "on_drift": "warn"}, "`snapshot` must be an MCPToolSnapshot or the path of its file"),
        ({"inputs_from_state": {"add": {"key": "c"}}}, "unknown parameter 'c'"),
    ):
        with pytest.raises(ValueError, match=message):
            pinned(**parameters)
    with pytest.raises(FileNotFoundError, match="There is no snapshot file"):
        pinned(snapshot=tmp_path / "missing.json")
    with pytest.raises(ValueError, match="The `snapshot` has no tool 'ad'"):
        MCPTool("ad", InProcessServerInfo(server), snapshot=snapshot)


@pytest.mark.parametrize("on_drift", ["error", "quarantine", "warn"])
def test_a_single_tool_may_have_a_snapshot(server, snapshot, requests, on_drift):
    check = SnapshotCheck(snapshot, on_drift=on_drift)
    with MCPTool("add", InProcessServerInfo(server), snapshot=check) as tool:
        assert tool.description == "Add two numbers."
        assert requests == []
        pull(server, "new")  # does not concern this tool
        assert tool.call(a=1, b=2).text == "3"
        tool.warm_up()
        tool.close()
        pull(server, "description")
        if on_drift == "warn":
            assert tool.call(a=1, b=2).text == "3"
        else:
            with pytest.raises(MCPDriftedCallError, match="'add' \\(description\\)"):
                tool.invoke(a=1, b=2)
        with pytest.raises(MCPDriftError) if on_drift == "error" else nullcontext():
            tool.warm_up()
        assert ("ssh" in tool.description) is (on_drift == "warn")


def test_calls_of_the_connection_and_through_interceptors_are_guarded(pinned, server, requests):
    toolset = pinned(interceptors=[lambda call, call_next: call_next(call)])
    pull(server, "description")
    given = {"a": 1, "b": 2}
    for make_call in (
        lambda: toolset.connection.call_tool("add", given),
        lambda: asyncio.run(toolset.connection.call_tool_async("add", given)),
        lambda: toolset["add"].invoke(**given),
    ):
        with pytest.raises(MCPDriftedCallError):
            make_call()
    assert "@tools/call" not in requests


@in_both_ways
@pytest.mark.parametrize("on_drift", ["error", "quarantine", "warn"])
def test_an_agent_keeps_its_tools_if_the_server_changes_during_a_session(pinned, on_drift, is_async):
    toolset, both = pinned(on_drift), calls(("add", {"a": 1, "b": 2}), ("note", {"text": "n"}))
    agent = agent_of(toolset, call("pull", change="description", tell=True), both, say("done"))
    generator = agent.chat_generator
    generator.before_reply = lambda number: number != 2 or wait_until(lambda: toolset._guard.latest, "the drift")
    _, add, note = results_of(run(agent, is_async=is_async))
    if on_drift == "warn":
        assert (add.error, add.result) == (False, "3")
    else:
        assert add.error and "not those of the snapshot: 'add' (description" in add.result
    assert note.error if on_drift == "error" else note.result == "n"
    # The tools that the model sees do not change during a run.
    before, *later = ({spec["name"]: spec for spec in turn.tool_specs} for turn in generator.turns)
    assert later == [before, before]
    # The next run is refused, or has only the unchanged tools, or has the changed tools.
    following = agent_of(toolset, say("done"))
    if on_drift == "error":
        with pytest.raises(MCPDriftError, match="description"):
            run(following, is_async=is_async)
        return
    run(following, is_async=is_async)
    shown = {spec["name"]: spec for spec in following.chat_generator.turns[0].tool_specs}
    assert sorted(shown) == (["note", "pull"] if on_drift == "quarantine" else ALL)
    assert shown["note"] == before["note"]
    assert on_drift == "quarantine" or shown["add"] != before["add"]


@pytest.fixture
def peer(http_server, tmp_path):
    """
    A server in a separate process, whose changes survive a restart.
    """
    kind, options = KINDS["sessions"], ("--state", str(tmp_path / "state.txt"))
    return Peer(kind, http_server(kind.transport, *options, *kind.options, script=SERVERS / "rug_pulling_server.py"))


def test_changes_during_or_between_sessions_are_checked_before_the_next_call(peer):
    snapshot = captured(peer.reach())
    one = MCPTool("note", peer.reach(), snapshot=snapshot)
    with MCPToolset(peer.reach(), snapshot=snapshot) as toolset, one:
        assert one.call(text="a").text == "a"
        toolset["pull"].call(change="description", tell=True)
        with pytest.raises(MCPDriftedCallError, match="'add'"):
            for _ in range(100):  # over HTTP, the notification may come after the answer
                toolset["note"].invoke(text="b")
        assert one.call(text="c").text == "c"
    with MCPToolset(peer.reach(), snapshot=(snapshot := captured(peer.reach()))) as toolset:
        toolset["pull"].call(change="schema")  # the server does not announce this change
        peer.restart()
        called = len(peer.calls())
        with pytest.raises(MCPDriftedCallError, match="input_schema"):
            toolset["note"].invoke(text="b")
        assert len(peer.calls()) == called


def test_invisible_characters_are_not_shown_to_models(server, caplog):
    def count(word: str) -> int:
        return len(word)

    server.add_tool(count, description="Count\u200b it.\U000e0041", title="C\u2060ount")
    with MCPToolset(InProcessServerInfo(server)) as toolset:
        snapshot = MCPToolSnapshot.capture(toolset)
        assert (toolset["count"].description, toolset["count"].title) == ("Count it.", "Count")
    [told] = [record.getMessage() for record in caplog.records if "Invisible characters" in record.getMessage()]
    assert "'count'" in told
    # Invisible characters are part of the comparison.
    server.remove_tool("count")
    server.add_tool(count, description="Count it.", title="C\u2060ount")
    with MCPToolset(InProcessServerInfo(server), snapshot=snapshot) as cold:
        assert cold["count"].description == "Count it."
        with pytest.raises(MCPDriftError, match="'count' \\(description\\)"):
            cold.refresh()


def test_a_tool_for_apps_that_is_now_shown_to_models_has_drifted():
    app = {"ui": {"visibility": ["app"]}}
    server = ForeignServer(definition("look"), definition("open", meta=app))
    with MCPConnection(server.info) as connection:
        snapshot = MCPToolSnapshot.capture(connection)
    server.tools = [definition("look"), definition("open")]
    for on_drift, shown in (("quarantine", ["look"]), ("warn", ["look", "open"])):
        with MCPToolset(server.info, snapshot=SnapshotCheck(snapshot, on_drift)) as toolset:
            toolset.refresh()
            assert names(toolset) == shown
    with MCPToolset(server.info, snapshot=snapshot) as toolset, pytest.raises(MCPDriftError, match=r"'open' \(added\)"):
        toolset.refresh()


def test_the_sessions_of_all_users_are_guarded(peer):
    snapshot = captured(peer.reach())
    with MCPToolset(peer.reach(), snapshot=SnapshotCheck(snapshot, on_drift="quarantine")) as toolset:
        with mcp_request_context(user="ann"):
            assert toolset["note"].call(text="a").text == "a"
            toolset["pull"].call(change="description")
        with mcp_request_context(user="bob"):
            assert toolset["note"].call(text="b").text == "b"
            with pytest.raises(MCPDriftedCallError):
                toolset["add"].invoke(a=1, b=2)
        # One user's drift does not change the tools that all users see.
        assert names(toolset) == ALL


def test_a_filter_selects_new_tools_and_calls_are_refused_if_it_fails(pinned, server, requests):
    def fails(_tool):
        raise RuntimeError("no filter today")

    toolset = pinned(tool_selection=ToolSelection(tool_filter=fails))
    choosy = pinned(tool_selection=ToolSelection(tool_filter=lambda tool: tool.name != "wipe"), share=False)
    assert names(toolset) == ALL
    assert toolset["add"].call(a=1, b=2).text == "3"  # the filter is called for new tools only
    toolset.close()
    pull(server, "new")
    assert choosy["add"].call(a=1, b=2).text == "3"
    requests.clear()
    with pytest.raises(MCPInvocationError, match="`tool_filter` failed for tool 'wipe'"):
        toolset["add"].invoke(a=1, b=2)
    assert "@tools/call" not in requests


def test_an_unreferenced_toolset_with_a_snapshot_is_garbage_collected(server, snapshot):
    toolset = MCPToolset(InProcessServerInfo(server), snapshot=snapshot)
    assert toolset["add"].call(a=1, b=2).text == "3"
    connection = toolset.connection
    reference = weakref.ref(toolset)
    del toolset
    # A listing in the background may still have to finish.
    wait_until(lambda: gc.collect() >= 0 and reference() is None, "the toolset is gone")
    connection.close()


def test_a_missing_optional_server_is_an_error_when_it_is_called(snapshot):
    with MCPToolset(StdioServerInfo("no-such-server"), snapshot=snapshot, required=False) as toolset:
        assert names(toolset) == ALL
        with pytest.raises(MCPInvocationError, match="was not found"):
            toolset["add"].invoke(a=1, b=2)
        with pytest.raises(MCPConnectionError):
            toolset.refresh()


def test_the_first_call_has_the_information_that_it_needs_from_the_listing(http_server):
    server = http_server("streamable-http", "--header", script=SERVERS / "changing_server.py")
    info = StreamableHttpServerInfo(server.url)
    with MCPToolset(info, snapshot=captured(info)) as toolset:
        # The argument is also sent as a header, as the server's schema wants it.
        assert toolset["locate"].call(region="eu").text == "eu eu"
