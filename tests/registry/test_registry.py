# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers by name, and aliases for groups of their tools.
"""

import copy
import dataclasses
import gc
import json
import logging
import pickle
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import yaml
from haystack.tools import Tool
from haystack.utils import Secret
from mcp import MCPError
from mcp.server.lowlevel import Server

from haystack_integrations.tools.mcp import (
    CallOptions,
    InProcessServerInfo,
    MCPConnectionError,
    MCPRegistry,
    MCPToolNotFoundError,
    MCPToolset,
    MCPToolSnapshot,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    ToolConfig,
    ToolOverride,
    ToolSelection,
)
from haystack_integrations.tools.mcp.errors import MCPConfigurationError
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from haystack_integrations.tools.mcp.registry import LocalStdioMCPProvider, MCPAliasToolset, MCPProvider
from tests.support.background import in_thread
from tests.support.executors import agent_of, names, reloaded, results_of, run
from tests.support.foreign_server import ForeignServer, definition
from tests.support.in_process import COUNTER
from tests.support.rows import rows
from tests.support.scripted_chat import call, say
from tests.support.waiting import LIMIT, wait_until

DOWN = StdioServerInfo(command="no-such-command", max_retries=0)


def server(*tools: str) -> ForeignServer:
    return ForeignServer(*map(definition, tools))


@pytest.fixture
def open_registry() -> Iterator[Any]:
    """
    Creates a registry of in-process servers, `open_registry({"name": ["tool", …]}, ToolConfig(…), …)`, and closes it.
    """
    with ExitStack() as stack:

        def make(servers: dict[str, Any], *configs: ToolConfig) -> MCPRegistry:
            infos = {name: server(*each).info if isinstance(each, list) else each for name, each in servers.items()}
            registry = MCPRegistry(infos, configs)
            stack.callback(registry.close)
            return registry

        yield make


def test_aliases_of_one_server_share_its_session_which_ends_when_the_registry_is_unreferenced(stdio_server):
    shared = stdio_server()
    configs = [ToolConfig(alias, ["it"], ["echo"]) for alias in ("x", "y", "z")]
    registry = MCPRegistry({"it": [shared.command, *shared.args]}, configs)
    registry.warm_up()
    for alias in registry.aliases:
        registry.toolset(alias)["echo"].invoke(text=alias)
    assert (len(shared.pids()), len(shared.requests("tools/list"))) == (1, 1)
    del registry
    wait_until(lambda: gc.collect() >= 0 and not shared.alive(), "the end of the server")


def test_tools_keep_the_order_of_the_providers_and_are_unlimited_by_default(open_registry):
    registry = open_registry({"b": ["z", "y"], "a": ["x"]}, ToolConfig("all", ["b", "a"]))
    toolset = registry.toolset("all")
    assert (names(toolset), len(toolset), bool(toolset)) == ([], 0, True)
    assert [tool["function"]["name"] for tool in registry.tool_schemas("all")] == ["y", "z", "x"]
    assert {tool.invocation_timeout for tool in toolset} == {None}
    assert "y" in toolset and toolset[0] in toolset
    assert toolset["x"] is toolset[2]
    with pytest.raises(KeyError, match="Alias 'all' has no tool 'zz'"):
        toolset["zz"]
    with pytest.raises(NotImplementedError, match=r"Alias 'all' has the tools of its servers.* tools=\[toolset, "):
        toolset.add(Tool("mine", "Mine.", {"type": "object", "properties": {}}, lambda: "mine"))


def test_an_empty_list_allows_no_tool_and_starts_nothing():
    registry = MCPRegistry({"down": DOWN}, [ToolConfig("none", ["down"], allow_tools=[])])
    assert registry.tool_schemas("none") == []
    assert registry.health_check(raise_on_failure=True)["none"].providers == []


@rows(
    ("prefix", "expected"),
    ("on_conflict", ["docs_search", "list", "the_web_search", "open"]),
    ("always", ["docs_list", "docs_search", "the_web_open", "the_web_search"]),
)
def test_a_name_that_two_providers_share_gets_their_prefix(open_registry, prefix, expected):
    servers = {"docs": ["search", "list"], "the web": ["search", "open"]}
    toolset = open_registry(servers, ToolConfig("all", ["docs", "the web"], prefix=prefix)).toolset("all")
    toolset.warm_up()
    assert sorted(names(toolset)) == sorted(expected)
    assert toolset["the_web_search"].invoke().count("fine") == 1


@pytest.mark.skipif(not HAS_HOOKS, reason="an Agent of Haystack 2 has no toolset of a run")
def test_a_new_name_conflict_renames_no_tool_during_a_run():
    def change(number):
        if number == 1:
            second.tools.append(definition("search"))
            in_thread(run, agent_of(toolset, call("b_search"), say("done"))).result(LIMIT)

    first, second = server("search"), server("other")
    fresh = MCPToolset(second.info, tool_selection=ToolSelection(cache_tools=False))
    config = ToolConfig("x", ["a", "b"], prefix="on_conflict")
    with MCPRegistry({"a": first.info, "b": fresh}, [config]) as registry:
        toolset = registry.toolset("x")
        agent = agent_of(toolset, call("search"), say("done"))
        agent.chat_generator.before_reply = change
        run(agent)
        assert [turn.tool_names for turn in agent.chat_generator.turns] == [["search", "other"]] * 2
        assert names(toolset) == ["a_search", "other", "b_search"]
        assert (len(first.calls), len(second.calls)) == (1, 1)


def test_a_name_conflict_without_a_prefix_is_an_error_that_names_both_providers(open_registry):
    registry = open_registry({"a": ["search"], "b": ["search"]}, ToolConfig("all", ["a", "b"]))
    with pytest.raises(MCPConfigurationError, match=r"the providers 'a' and 'b' both have a tool named 'search'"):
        registry.tool_schemas("all")
    assert registry.toolset("all").toolsets["a"].connection.status().state != "ready"


@rows("allow_tools", ["a/search", "x"], ["x"])
def test_a_name_that_only_one_provider_may_use_is_not_a_conflict(open_registry, allow_tools):
    registry = open_registry({"a": ["search"], "b": ["search", "x"]}, ToolConfig("all", ["a", "b"], allow_tools))
    registry.tool_schemas("all")
    assert names(registry.toolset("all")) == [name.rpartition("/")[2] for name in allow_tools]


@rows("allow_tools", ["a/search"], ["a/a/search"])
def test_a_tool_may_have_a_name_that_begins_with_that_of_its_provider(open_registry, allow_tools):
    registry = open_registry({"a": ["a/search"]}, ToolConfig("all", ["a"], allow_tools))
    registry.warm_up()
    assert names(registry.toolset("all")) == ["a_search"]


def test_an_allowed_tool_that_no_provider_has_is_an_error_with_the_closest_names(open_registry):
    registry = open_registry({"a": ["search"], "b": ["list"]}, ToolConfig("all", ["a", "b"], ["serach", "list"]))
    with pytest.raises(MCPToolNotFoundError, match=r"`allow_tools` has 'serach'.*\(a, b\).*'search'") as raised:
        registry.toolset("all").warm_up()
    assert raised.value.available_tools == ["list", "search"]


def test_a_toolset_as_provider_shapes_its_tools(open_registry):
    shaped = MCPToolset(
        server("search", "drop").info,
        tool_selection=ToolSelection(exclude_tools=["drop"]),
        invocation_timeout=7.0,
        tool_overrides={"search": ToolOverride(name="find")},
    )
    registry = open_registry({"a": shaped, "b": ["find"]}, ToolConfig("x", ["a", "b"], prefix="on_conflict"))
    registry.tool_schemas("x")
    toolset = registry.toolset("x")
    assert names(toolset) == ["a_find", "b_find"]
    assert toolset["a_find"].invocation_timeout == 7.0
    assert list(shaped) == []  # the toolset only describes the shape, and was not used itself


async def test_a_server_that_is_down_fails_the_warm_up_after_the_others_are_ready(open_registry):
    registry = open_registry({"a": ["search"], "down": DOWN}, ToolConfig("good", ["a"]), ToolConfig("bad", ["down"]))
    async with registry:
        with pytest.raises(MCPConnectionError, match="no-such-command"):
            await registry.warm_up_async()
        assert names(registry.toolset("good")) == ["search"]


@rows("method", "warm_up_async", "health_check_async")
def test_awaiting_outside_an_asyncio_loop_is_refused_before_anything_is_sent(open_registry, method):
    registry = open_registry({"a": ["search"], "b": ["list"]}, ToolConfig("x", ["a", "b"]))
    with pytest.raises(RuntimeError, match=r"trio\.to_thread\.run_sync"):
        getattr(registry, method)().send(None)  # like the loop of another library


async def test_a_registry_works_asynchronously(open_registry):
    registry = open_registry({"a": ["search"], "b": ["list"]}, ToolConfig("x", ["a", "b"]))
    async with registry.toolset("x") as toolset:
        assert names(toolset) == ["search", "list"]
    assert [schema["function"]["name"] for schema in await registry.tool_schemas_async("x")] == ["search", "list"]
    assert (await registry.health_check_async()).ok
    await registry.warm_up_async()
    await registry.close_async()


def test_a_tool_config_has_the_fields_and_defaults_of_data_designer():
    own = {"prefix": "never"}
    defaults = {"allow_tools": None, "max_tool_call_turns": 5, "timeout_sec": None}
    given = {"tool_alias": "search-tools", "providers": ["docs", "web"]}
    assert dataclasses.asdict(ToolConfig(**given)) == {**given, **defaults, **own}


@rows(
    ("fields", "reason"),
    ({"providers": []}, "`providers` must have at least 1 item, got list"),
    ({"providers": ["a", "a"]}, "`providers` has 'a' twice"),
    ({"providers": ["nobody"]}, "unknown provider 'nobody'. Known providers: a, b"),
    ({"allow_tools": ["x", "x"]}, "`allow_tools` has 'x' twice"),
    ({"max_tool_call_turns": 0}, "`max_tool_call_turns` must be greater than or equal to 1, got 0"),
    ({"prefix": "sometimes"}, "`prefix` must be 'never', 'on_conflict' or 'always'"),
    ({"allow_tool": ["x"]}, "no parameter 'allow_tool'. Did you mean `allow_tools`?"),
)
def test_mistakes_are_reported_at_construction_or_with_the_name_of_the_file(fields, reason, tmp_path):
    config = {"tool_alias": "x", "providers": ["a"], **fields}
    with pytest.raises(MCPConfigurationError) as raised:
        MCPRegistry({"a": COUNTER, "b": COUNTER}, [config])
    assert reason in str(raised.value)
    assert isinstance(raised.value, ValueError)
    off = {"command": "cat", "disabled": True}
    servers = {"a": {"command": "cat"}, "b": {"command": "cat"}, "off": off}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": servers, "toolConfigs": [config]}))
    with pytest.raises(MCPConfigurationError) as raised:
        MCPRegistry.from_config(tmp_path / "mcp.json")
    assert str(tmp_path / "mcp.json") in str(raised.value)
    assert reason in str(raised.value)


def test_an_empty_registry_is_valid_and_the_error_for_an_unknown_alias_names_the_known_ones():
    empty = MCPRegistry()
    assert (empty.aliases, empty.providers, dict(empty.health_check())) == ([], {}, {})
    for alias in ("x", None):
        with pytest.raises(MCPConfigurationError, match=rf"no alias {alias!r}\. It has no aliases"):
            empty.toolset(alias)
    registry = MCPRegistry({"a": COUNTER}, [ToolConfig("search", ["a"]), ToolConfig("math", ["a"])])
    for use, alias in (
        (registry.toolset, "serch"),
        (registry.tool_schemas, "serch"),
        (registry.tool_config, "serch"),
        (registry.health_check, ["serch"]),
    ):
        with pytest.raises(MCPConfigurationError, match=r"Did you mean 'search'\? Available aliases: search, math"):
            use(alias)


def test_a_file_has_servers_and_tool_configs(tmp_path, caplog):
    docs = {"url": "https://docs.example/mcp", "required": False}
    web = {"command": "web-search-mcp", "disabledTools": ["drop"], "timeout": 5}
    servers = {"docs": docs, "web": web, "off": {"command": "off", "disabled": True}}
    config = {"providers": ["docs", "web"], "allow_tools": ["search"], "timeout_sec": 9}
    caplog.set_level(logging.WARNING)
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps({"mcpServers": servers, "toolConfigs": {"search": config}}))
    listed = {"mcpServers": servers, "toolConfigs": [{"tool_alias": "search", **config}]}
    for source in (file, listed):
        registry = MCPRegistry.from_config(source)
        expected = ToolConfig("search", ["docs", "web"], ["search"], timeout_sec=9)
        assert registry.tool_configs == {"search": expected}
    docs, web = (registry.providers[name] for name in ("docs", "web"))
    assert (docs.required, web.tool_selection.exclude_tools, web.tool_name_prefix) == (False, ["drop"], None)
    assert (docs.invocation_timeout, web.invocation_timeout) == (None, 5.0)
    assert caplog.records == []


def test_data_designers_providers_become_server_infos(monkeypatch):
    monkeypatch.setenv("DOCS_API_KEY", "s3cret")
    registry = MCPRegistry(
        [
            MCPProvider(name="remote", endpoint="http://localhost:8080/sse", api_key="DOCS_API_KEY"),
            MCPProvider("http", "http://localhost:8080/mcp", "${DOCS_API_KEY}", "streamable_http"),
            LocalStdioMCPProvider(name="local", command="python", args=["-m", "x"], env={"PYTHONPATH": "/p"}),
            {"name": "dict", "endpoint": "http://localhost:8080/sse", "provider_type": "sse"},
        ],
        [ToolConfig("all", ["remote", "local"], max_tool_call_turns=10, timeout_sec=30.0)],
    )
    key = Secret.from_env_var("DOCS_API_KEY")
    assert registry.providers == {
        "remote": SSEServerInfo("http://localhost:8080/sse", token=key),
        "http": StreamableHttpServerInfo("http://localhost:8080/mcp", token=key),
        "local": StdioServerInfo("python", ["-m", "x"], {"PYTHONPATH": "/p"}),
        "dict": SSEServerInfo("http://localhost:8080/sse"),
    }
    stored = yaml.safe_dump(registry.to_dict())
    assert "s3cret" not in stored and "DOCS_API_KEY" in stored
    assert MCPRegistry.from_dict(yaml.safe_load(stored)).to_dict() == registry.to_dict()


def test_an_api_key_is_shown_nowhere_and_not_written_to_files():
    provider = MCPProvider("remote", "http://localhost:8080/sse", api_key="s3ntinel-key")
    registry = MCPRegistry([provider], [ToolConfig("all", ["remote"])])
    token = registry.providers["remote"].token
    assert token.resolve_value() == "s3ntinel-key"
    assert repr(registry) == "MCPRegistry(providers=['remote'], aliases=['all'])"
    toolset = registry.toolset("all")
    for shown in (repr(provider), repr(toolset), str(toolset._to_trace_dict()), str(registry.providers)):
        assert "s3ntinel" not in shown
    for stored in (registry, provider):
        with pytest.raises(ValueError, match="Cannot serialize token-based secret"):
            stored.to_dict()


@rows(
    "provider",
    MCPProvider("remote", "http://localhost:8080/sse", api_key="DOCS_API_KEY"),
    LocalStdioMCPProvider("local", "python", env={"KEY": Secret.from_env_var("DOCS_API_KEY"), "PATH": "/p"}),
)
def test_data_designers_providers_can_be_stored(provider: Any):
    stored = yaml.safe_load(yaml.safe_dump(provider.to_dict()))
    assert type(provider).from_dict(stored).server_info() == provider.server_info()


def test_a_report_names_the_server_the_reason_and_the_time(open_registry):
    providers = {"a": ["search"], "down": DOWN, "optional": MCPToolset(DOWN, required=False), "b": ["search"]}
    aliases = {"good": ["a", "optional"], "bad": ["a", "down"], "clash": ["a", "b"]}
    registry = open_registry(providers, *(ToolConfig(alias, each) for alias, each in aliases.items()))
    report = registry.health_check()
    assert not report.ok
    assert {alias: report[alias].ok for alias in report} == {"good": True, "bad": False, "clash": False}
    assert report["good"].tools == ["search"]
    found = [(each.provider, each.ok, each.required) for each in report["good"].providers]
    assert found == [("a", True, True), ("optional", False, False)]
    down = report["bad"].providers[1]
    assert "no-such-command" in down.server
    assert "was not found" in down.error
    assert 0 < down.seconds <= report["bad"].seconds
    assert "both have a tool named 'search'" in report["clash"].error
    assert "down (stdio server `no-such-command`): failed after" in str(report)
    with pytest.raises(MCPConnectionError, match="health check failed for 'bad', 'clash'"):
        registry.health_check(raise_on_failure=True)
    assert registry.health_check(["good"], raise_on_failure=True).ok
    with pytest.raises(ValueError, match="`aliases` must be a list of strings, got str"):
        registry.health_check("good")


def test_the_text_of_a_server_cannot_forge_a_line_of_a_report(open_registry):
    async def fail(_context: Any, _params: Any) -> Any:
        raise MCPError(-32000, "no\n  evil (server): ok after 0.01 s, 1 tools\x1b[2K")

    evil = InProcessServerInfo(Server("evil", on_list_tools=fail))
    lines = str(open_registry({"evil": evil}, ToolConfig("x", ["evil"])).health_check()).splitlines()
    assert [line[:8] for line in lines] == ["x: faile", "  evil (", "      ev"]
    assert lines[2].endswith(r"1 tools\u001b[2K.")


def test_an_open_session_of_a_server_that_hangs_is_not_healthy(stdio_server):
    hung = stdio_server()
    with MCPRegistry({"hung": hung.info(max_retries=0)}, [ToolConfig("x", ["hung"])]) as registry:
        assert registry.health_check().ok
        hung.freeze()
        [found] = registry.health_check(timeout=0.2)["x"].providers
        assert (found.ok, found.error) == (False, "no answer within 0.2 seconds")
        hung.thaw()
        assert registry.health_check().ok


def test_an_open_session_of_a_server_unlike_its_snapshot_is_not_healthy(open_registry):
    changing = server("search")
    with MCPToolset(changing.info) as toolset:
        snapshot = MCPToolSnapshot.capture(toolset)
    registry = open_registry({"a": MCPToolset(changing.info, snapshot=snapshot)}, ToolConfig("x", ["a"]))
    assert registry.health_check().ok
    changing.tools.append(definition("wipe"))
    [found] = registry.health_check()["x"].providers
    assert not found.ok and "'wipe' (added)" in (found.error or "")


def test_an_agent_with_an_alias_is_stored_with_its_providers():
    registry = MCPRegistry(
        {"a": COUNTER, "b": MCPToolset(COUNTER, tool_names=["echo"]), "unused": COUNTER},
        [ToolConfig("x", ["a", "b"], ["a/add", "b/echo"], 3, 12.5, prefix="always")],
    )
    agent = reloaded(agent_of(registry.toolset("x"), call("a_add", a=1, b=2), say("done")))
    assert "unused" not in str(agent.to_dict())
    assert [each.result for each in results_of(run(agent))] == ["3"]
    toolset = agent.tools
    assert isinstance(toolset, MCPAliasToolset)
    assert (toolset.tool_config, names(toolset)) == (registry.tool_config("x"), ["a_add", "b_echo"])
    toolset.close()


@pytest.mark.skipif(HAS_HOOKS, reason="Haystack 3 does not add toolsets")
def test_an_alias_and_other_tools_are_added_and_stored():
    toolset = MCPRegistry({"a": COUNTER}, [ToolConfig("x", ["a"], ["add"])]).toolset("x")
    for combined in (toolset + MCPToolset(COUNTER, tool_names=["echo"]), [] + toolset, toolset + []):
        [first, *_] = [each for each in type(combined).from_dict(combined.to_dict()).toolsets if bool(each)]
        assert bool(combined)
        assert toolset in combined.toolsets
        assert isinstance(first, MCPAliasToolset)


def test_only_providers_are_loaded():
    data = MCPRegistry({"a": COUNTER}, [ToolConfig("x", ["a"])]).to_dict()
    data["init_parameters"]["providers"]["a"] = {"type": "haystack.tools.toolset.Toolset", "data": {"tools": []}}
    with pytest.raises(TypeError, match="so it is not a provider"):
        MCPRegistry.from_dict(data)


def test_a_toolset_is_copied_as_itself_and_pickled_as_its_configuration():
    toolset = MCPRegistry({"a": COUNTER}, [ToolConfig("x", ["a"])]).toolset("x")
    assert copy.copy(toolset) is copy.deepcopy(toolset) is toolset
    assert pickle.loads(pickle.dumps(toolset)).to_dict() == toolset.to_dict()  # noqa: S301


def test_an_alias_without_a_timeout_has_no_silence_limit_either():
    own = MCPToolset(StdioServerInfo("x"), call_options=CallOptions(read_timeout=7))
    configs = [ToolConfig("free", ["plain", "own"]), ToolConfig("limited", ["plain"], timeout_sec=5)]
    registry = MCPRegistry({"plain": StdioServerInfo("x"), "own": own}, configs)
    free, limited = registry.toolset("free").toolsets, registry.toolset("limited").toolsets
    assert (free["plain"].call_options.read_timeout, free["plain"].invocation_timeout) == (None, None)
    assert (free["own"].call_options.read_timeout, limited["plain"].call_options.read_timeout) == (7, 300)
