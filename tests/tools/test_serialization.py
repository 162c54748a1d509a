# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import importlib
import importlib.util
import json
import os
import pickle
import sys
import textwrap
from functools import partial
from pathlib import Path
from typing import Any, get_type_hints

import pytest
import yaml
from haystack import Pipeline, component
from haystack.core.errors import DeserializationError, SerializationError
from haystack.core.serialization import import_class_by_name
from haystack.tools import Toolset
from haystack.utils import Secret

from haystack_integrations.components.tools.mcp import MCPToolCaller
from haystack_integrations.tools.mcp import (
    FromState,
    MCPConnectionError,
    MCPHandlers,
    MCPRegistry,
    MCPResourceToolset,
    MCPSampling,
    MCPServerInfo,
    MCPTool,
    MCPToolset,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    ToolConfig,
    ToolSelection,
)
from haystack_integrations.tools.mcp.handlers import accept_defaults, answer_later, decline
from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS
from haystack_integrations.tools.mcp.oauth import FileTokenStorage
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from tests.auth.test_config import OLD
from tests.journeys.test_pipeline_components import stored_pipeline
from tests.support.executors import HAS_TOOL_INVOKER, ToolInvoker, agent_of, by_agent, recorded_traces, reloaded
from tests.support.in_process import COUNTER
from tests.support.processes import run_to_end
from tests.support.rows import rows
from tests.support.scripted_chat import call, say

ROOT = Path(__file__).parents[2]
SECRET = "s3ntinel-in-a-file"

HAS_ALLOWLIST = importlib.util.find_spec("haystack.core.serialization_security") is not None

TOOLS = "haystack_integrations.tools.mcp"
MODULE = f"{TOOLS}.mcp_tool"


MAPPINGS = ("inputs_from_state", "outputs_to_state", "outputs_to_string")
SHAPED = {MCPTool: MAPPINGS, MCPToolset: (*MAPPINGS, "tool_selection", "tool_overrides")}


def to_words(value: Any) -> str:
    return f"the value is {value}"


def keep_last(_current: Any, new: Any) -> Any:
    return new


def is_wanted(_tool: Any) -> bool:
    return True


def unchanged(mcp_call: Any, call_next: Any) -> Any:
    return call_next(mcp_call)


def headers_of(_context: Any) -> dict[str, str]:
    return {}


def roots() -> list[str]:
    return []


def keep(call: MCPPendingCall) -> None:
    """Keep a pending call."""


def shadowed(_tool: Any) -> bool:
    return False


_shadowed = shadowed
shadowed = is_wanted


class Bait:
    """Not a server info, but it has everything that a careless loader would call."""

    def __init__(self, **_parameters: Any) -> None:
        pytest.fail("it was made")

    @classmethod
    def from_dict(cls, _data: dict[str, Any]) -> None:
        pytest.fail("it was loaded")


def stored_secret(variable: str) -> dict[str, Any]:
    return {"type": "env_var", "env_vars": [variable], "strict": True}


def agent_pipeline(tools: Any) -> Pipeline:
    pipeline = Pipeline()
    pipeline.add_component("agent", agent_of(tools, say("done")))
    return pipeline


class TestFormats:
    """The format is that of version 2.1, so that each version reads the other's files."""

    @rows(
        ("info", "stored"),
        (
            StdioServerInfo("uvx", ["mcp-server-time"], {"KEY": Secret.from_env_var("KEY"), "PLAIN": "x"}),
            {"command": "uvx", "args": ["mcp-server-time"], "env": {"KEY": stored_secret("KEY"), "PLAIN": "x"}},
        ),
        (StdioServerInfo("uvx"), {"command": "uvx", "args": None, "env": None}),
        (
            StreamableHttpServerInfo("http://h/mcp", token=Secret.from_env_var("T"), headers={"X": "y"}, timeout=5),
            {"url": "http://h/mcp", "token": stored_secret("T"), "headers": {"X": "y"}, "timeout": 5},
        ),
        (
            SSEServerInfo("http://h/sse"),
            {"url": "http://h/sse", "base_url": None, "token": None, "headers": None, "timeout": 30},
        ),
    )
    def test_a_server_info_is_stored_in_the_format_of_2_1(self, info, stored):
        retries = {"max_retries": 3, "base_delay": 1.0, "max_delay": 30.0}
        assert info.to_dict() == {"type": f"{MODULE}.{type(info).__name__}", **stored, **retries}

    def test_a_tool_is_stored_in_the_format_of_2_1(self):
        info = StdioServerInfo("uvx")
        parameters = {
            "description": "Mine.",
            "connection_timeout": 7,
            "invocation_timeout": 8,
            "outputs_to_string": {"source": "x", "handler": to_words},
            "inputs_from_state": {"key": "a"},
            "outputs_to_state": {"sum": {"source": "result", "handler": keep_last}},
        }
        assert MCPTool("add", info, **parameters).to_dict() == {
            "type": f"{MODULE}.MCPTool",
            "data": {
                "name": "add",
                "server_info": info.to_dict(),
                "eager_connect": False,
                **parameters,
                "outputs_to_string": {"source": "x", "handler": f"{__name__}.to_words"},
                "outputs_to_state": {"sum": {"source": "result", "handler": f"{__name__}.keep_last"}},
            },
        }

    def test_a_toolset_is_stored_in_the_format_of_2_1(self):
        info = StdioServerInfo("uvx")
        toolset = MCPToolset(info, tool_names=["add"], outputs_to_string={"add": {"handler": to_words}})
        assert toolset.to_dict() == {
            "type": "haystack_integrations.tools.mcp.mcp_toolset.MCPToolset",
            "data": {
                "server_info": info.to_dict(),
                "tool_names": ["add"],
                "connection_timeout": 30.0,
                "invocation_timeout": 30.0,
                "eager_connect": False,
                "inputs_from_state": None,
                "outputs_to_state": None,
                "outputs_to_string": {"add": {"handler": f"{__name__}.to_words"}},
            },
        }

    def test_a_toolset_of_two_components_is_stored_without_anchors_in_the_yaml(self):
        selection = ToolSelection(exclude_tools=["drop"])
        info = StdioServerInfo("uvx", args=["x"])
        for toolset in (
            MCPToolset(info, tool_names=["add"], tool_selection=selection),
            MCPResourceToolset(info, uris=["notes://*"]),
            MCPRegistry({"x": info}, [ToolConfig("alias", ["x"])]).toolset("alias"),
        ):
            pipeline = agent_pipeline(toolset)
            pipeline.add_component("second", agent_of(toolset, say("done")))
            assert "&id" not in pipeline.dumps()

    def test_options_that_version_2_1_does_not_have_are_written_only_if_they_are_set(self):
        extra = {"tool_options": {"result_format": "content"}, "call_options": {"read_timeout": 5}, "share": False}
        for made in (MCPTool("add", COUNTER, **extra), MCPToolset(COUNTER, **extra)):
            assert {key: made.to_dict()["data"][key] for key in extra} == extra
        for made in (MCPTool("add", COUNTER), MCPToolset(COUNTER)):
            assert not extra.keys() & made.to_dict()["data"].keys()


BOTH = {
    "connection_timeout": 7,
    "invocation_timeout": 8.5,
    "call_options": {"read_timeout": None, "ping_interval": 5, "max_total_timeout": 600, "task_timeout": None},
    "handlers": MCPHandlers(elicitation=answer_later, pending_calls=keep),
    "share": False,
}
BOUND = {"a": Secret.from_env_var("KEY"), "b": FromState("key"), "c": 5, "d": {"type": "env_var", "x": [1]}}
RENDERED = {"source": "result", "handler": to_words}
LAST = {"sum": {"source": "result", "handler": keep_last}, "all": {}}


class TestRoundTrips:
    @rows(
        ("kind", "parameters"),
        (
            MCPTool,
            {
                "name": "add",
                "description": "Mine.",
                "outputs_to_string": RENDERED,
                "inputs_from_state": {"offset": "b"},
                "outputs_to_state": LAST,
                "exposed_name": "my_add",
                "tool_options": {"result_format": "json", "max_tool_failures": 2},
                **BOTH,
            },
        ),
        (MCPTool, {"name": "add", "outputs_to_string": {"one": RENDERED, "two": {"source": "b"}}}),
        (
            MCPToolset,
            {
                "tool_names": ["add", "echo"],
                "inputs_from_state": {"add": {"offset": "b"}},
                "outputs_to_state": {"add": LAST, "echo": {"said": {}}},
                "outputs_to_string": {"add": RENDERED},
                "tool_name_prefix": "my",
                "tool_options": {"result_format": "content", "include_instructions": True},
                "tool_selection": {
                    "exclude_tools": ["drop_*"],
                    "tool_filter": is_wanted,
                    "required_hints": {"destructive_hint": True},
                },
                "tool_overrides": {
                    "echo": {"name": "say", "invocation_timeout": 5, "bound_arguments": {"text": "well"}},
                    "pid": {"bound_arguments": BOUND},
                },
                **BOTH,
            },
        ),
    )
    def test_a_tool_and_a_toolset_survive_a_round_trip(self, kind, parameters):
        owner = kind(server_info=COUNTER, **parameters)
        data = json.loads(json.dumps(owner.to_dict()))
        for twin in (kind.from_dict(data), pickle.loads(pickle.dumps(owner))):  # noqa: S301
            assert twin.to_dict() == owner.to_dict() == data
            for name in ("server_info", "handlers", "call_options", "tool_options", *SHAPED[kind]):
                assert getattr(twin, name) == getattr(owner, name)
            assert not twin.connection.is_ready
            with twin:
                assert twin.connection.is_ready
                assert twin.to_dict() == data

    @pytest.mark.skipif(not HAS_TOOL_INVOKER, reason="this Haystack has no ToolInvoker")
    def test_a_toolset_of_a_tool_invoker_survives_a_round_trip(self):
        invoker = reloaded(ToolInvoker(tools=MCPToolset(COUNTER)))
        [message] = invoker.run(messages=[call("add", a=1, b=2)])["tool_messages"]
        assert message.tool_call_result.result == "3"
        invoker.tools.close()


WRITTEN_BY_2_1 = """
components:
  agent:
    type: haystack.components.agents.agent.Agent
    init_parameters:
      chat_generator: {type: tests.support.scripted_chat.ScriptedChatGenerator, init_parameters: {replies: []}}
      tools:
        type: TOOLSET
        data:
          server_info:
            type: INFO
            url: http://localhost:8000/mcp
            token: null
            headers: {X-Key: {type: env_var, env_vars: [MY_KEY], strict: true}}
            timeout: 30
            max_retries: 3
            base_delay: 1.0
            max_delay: 30.0
            oauth_config: null
          tool_names: [search]
          connection_timeout: 30.0
          invocation_timeout: 30.0
          eager_connect: true
          inputs_from_state: null
          outputs_to_state: null
          outputs_to_string: null
connections: []
"""


class TestFilesOfOlderVersions:
    @rows("toolset", f"{TOOLS}.MCPToolset", f"{TOOLS}.mcp_toolset.MCPToolset")
    @rows("info", f"{TOOLS}.StreamableHttpServerInfo", f"{MODULE}.StreamableHttpServerInfo")
    def test_toolsets_in_files_of_older_versions_load(self, toolset, info):
        text = WRITTEN_BY_2_1.replace("TOOLSET", toolset).replace("INFO", info)
        loaded = Pipeline.loads(text).get_component("agent").tools
        assert isinstance(loaded, MCPToolset)
        headers = {"X-Key": Secret.from_env_var("MY_KEY")}
        assert loaded.server_info == StreamableHttpServerInfo("http://localhost:8000/mcp", headers=headers)
        assert [tool.name for tool in loaded] == ["search"]
        assert loaded.eager_connect is True
        assert not loaded.connection.is_ready

    @rows("path", f"{TOOLS}.MCPTool", f"{MODULE}.MCPTool")
    def test_tools_in_files_of_older_versions_load(self, path):
        info = {"type": f"{MODULE}.StdioServerInfo", "command": "uvx", "args": ["x"], "env": None}
        timeouts = {"connection_timeout": 30, "invocation_timeout": 30}
        data = {"name": "search", "description": "Searches.", "server_info": info, **timeouts}
        tool = import_class_by_name(path).from_dict({"type": path, "data": data})
        assert (type(tool), tool.name, tool.description) == (MCPTool, "search", "Searches.")
        assert tool.server_info == StdioServerInfo("uvx", ["x"])

    @rows(
        "name",
        *"AsyncExecutor MCPClient MCPConnectionError MCPError MCPInvocationError MCPServerInfo MCPTool "
        "MCPToolNotFoundError SSEClient SSEServerInfo StdioClient StdioServerInfo StreamableHttpClient "
        "StreamableHttpServerInfo".split(),
    )
    def test_names_can_be_imported_from_their_paths_of_version_2_1(self, name):
        import haystack_integrations.tools.mcp as package
        from haystack_integrations.tools.mcp import mcp_tool

        assert getattr(mcp_tool, name) is getattr(package, name)


HOOKS = "haystack_integrations.hooks.mcp"
PACKAGES = [TOOLS, HOOKS, *(f"{TOOLS}.{name}" for name in ("durable", "handlers", "oauth", "registry", "serving"))]


def is_stored_by_its_path(value: Any) -> bool:
    if value in (MCPTool, MCPToolset):  # stored by their paths of version 2.1
        return False
    if value in (accept_defaults, answer_later, decline, FileTokenStorage):
        return True
    if isinstance(value, type) and issubclass(value, Toolset):
        return True
    written_by = getattr(getattr(value, "to_dict", None), "__code__", None)
    names = written_by.co_names if written_by else ()
    return "default_to_dict" in names or "generate_qualified_class_name" in names


class TestFilesOfLaterVersions:
    def test_stored_paths_name_a_public_package_so_that_files_may_move(self):
        stored = set()
        for package in map(importlib.import_module, PACKAGES):
            for name in package.__all__:
                if not HAS_HOOKS and package.__name__ == HOOKS and name.endswith("Hook"):
                    continue
                value = getattr(package, name)
                if is_stored_by_its_path(value):
                    stored.add(name)
                    assert value.__module__ in PACKAGES, name
                    assert getattr(importlib.import_module(value.__module__), name) is value
                    get_type_hints(value)  # looks up the names in that package
        assert {"MCPSearchableToolset", "FileTokenStorage", "MCPAliasToolset", "JournaledChatGenerator"} <= stored

    def test_components_can_be_imported_as_in_the_guide(self):
        for path in (
            "builders.mcp.prompt_builder.MCPPromptBuilder",
            "fetchers.mcp.resource_fetcher.MCPResourceFetcher",
            "tools.mcp.tool_caller.MCPToolCaller",
            "tools.mcp.tool_runner.MCPToolRunner",
        ):
            module = f"haystack_integrations.components.{path}".rpartition(".")[0]
            importlib.import_module(module)
            assert f"haystack_integrations.components.{path}" in component.registry


class TestSecrets:
    @pytest.fixture(autouse=True)
    def watched(self, secret_watch):
        secret_watch.learn(SECRET)

    def test_secrets_of_the_environment_make_the_round_trip_and_others_are_refused(self, monkeypatch):
        monkeypatch.setenv("MY_KEY", SECRET)
        info = StdioServerInfo("uvx", env={"K": Secret.from_env_var("MY_KEY"), "P": "plain"})
        loaded = Pipeline.loads(agent_pipeline(MCPToolset(info)).dumps())
        assert loaded.get_component("agent").tools.server_info == info
        token = Secret.from_token(SECRET)
        for info in (StdioServerInfo("uvx", env={"K": token}), StreamableHttpServerInfo("http://h/mcp", token=token)):
            with pytest.raises(Exception, match="Cannot serialize token-based secret") as raised:
                agent_pipeline(MCPToolset(info)).dumps()
            assert SECRET not in str(raised.value)  # Haystack's own error

    def test_plain_secrets_are_not_in_traces(self, stdio_server):
        server = stdio_server()
        args = [*server.args, "--token", SECRET]
        toolset = MCPToolset(StdioServerInfo(server.command, args, env={"KEY": SECRET}), tool_names=["add"])
        with recorded_traces(content=True) as traces, toolset:
            by_agent(toolset, ("add", {"a": 1, "b": 2}))
        assert "haystack.agent" in traces.text
        assert SECRET not in traces.text

    @rows(
        "info",
        StdioServerInfo("mcp-no-such-command", ["--token", SECRET], env={"KEY": SECRET}),
        StdioServerInfo(
            sys.executable,
            ["-c", "import os, sys; sys.exit(f'{sys.argv} {os.environ}')", "--token", SECRET, f"--key={SECRET}"],
            env={"KEY": SECRET},
        ),
        SSEServerInfo(f"http://u:{SECRET}@127.0.0.1:1/sse?key={SECRET}", token=SECRET, headers={"X": SECRET}),
    )
    def test_plain_secrets_are_not_in_errors_of_a_connect(self, info):
        toolset = MCPToolset(info)
        with pytest.raises(MCPConnectionError):
            toolset.warm_up()
        toolset.close()

    def test_plain_secrets_of_an_http_server_are_not_in_logs(self, shared_http_server):
        url = shared_http_server().url.replace("://", f"://u:{SECRET}@")
        with MCPTool("add", StreamableHttpServerInfo(f"{url}?key={SECRET}", headers={"X": SECRET})) as tool:
            assert json.loads(tool.invoke(a=1, b=2))["isError"] is False


class TestLoadingStartsNothing:
    def test_a_handwritten_server_info_may_be_any_form_that_the_constructors_accept(self):
        url = "https://mcp.example.com/mcp"
        for kind, data in ((MCPToolset, {}), (MCPTool, {"name": "add"})):
            loaded = kind.from_dict({"data": {"server_info": url, **data}})
            assert loaded.server_info == MCPToolset(url).server_info
        with pytest.raises(TypeError, match="missing a required argument: 'server_info'"):
            MCPToolset.from_dict({"data": {"tool_names": ["add"]}})

    def test_loading_and_construction_do_not_import_the_mcp_sdk(self, tmp_path):
        trace = tmp_path / "started"
        info = StdioServerInfo("touch", [str(trace)])
        toolset, tool = MCPToolset(info, tool_names=["x"]), MCPTool("y", info)
        toolset.eager_connect = tool.eager_connect = True
        registry = MCPRegistry({"a": StdioServerInfo("no-such-command")}, [ToolConfig("x", ["a"])])
        stored = {
            "agent": agent_pipeline([toolset, tool]).dumps(),
            "components": stored_pipeline().dumps(),
            "oauth": yaml.safe_load(OLD)["data"]["server_info"],
            "registry": registry.to_dict(),
            "alias": registry.toolset("x").to_dict(),
        }
        assert stored["agent"].count("eager_connect: true") == 2
        file = tmp_path / "stored.json"
        file.write_text(json.dumps(stored))
        script = f"""
            import json, sys, threading
            from pathlib import Path

            def imported():
                return [name for name in sys.modules if name in ("mcp", "mcp_types", "httpx2", "jwt")]

            import haystack_integrations.tools.mcp as package
            seen = {{"importing": imported()}}
            from haystack_integrations.hooks.mcp import confirmation_strategies_for
            from haystack_integrations.tools.mcp import (
                InProcessServerInfo, MCPConnection, MCPInvocationError, MCPRegistry, MCPServerInfo, MCPTool, MCPToolset,
                SSEServerInfo, StdioServerInfo, StreamableHttpServerInfo, call_budget, warm_up_toolsets,
            )
            from haystack_integrations.tools.mcp.registry import MCPAliasToolset, conversation_trace
            urls = SSEServerInfo("http://h/sse"), StreamableHttpServerInfo("http://h/mcp")
            for info in (*urls, StdioServerInfo("x"), InProcessServerInfo("a:b")):
                toolset, tool = MCPToolset(info, tool_names=["x"]), MCPTool("x", info)
                MCPConnection(info).status()
                list(toolset), repr(toolset), repr(tool), toolset.to_dict(), tool.to_dict()
                toolset.close(), tool.close()
            stored = json.loads(Path({str(file)!r}).read_text())
            seen["client_id"] = MCPServerInfo.from_dict(stored["oauth"]).oauth_config.client_id
            MCPRegistry.from_dict(stored["registry"]).get_mcp("x")
            MCPAliasToolset.from_dict(stored["alias"])
            seen["using"] = imported()
            from haystack import Pipeline
            agent, components = (Pipeline.loads(stored[name]) for name in ("agent", "components"))
            agent.dumps()
            toolset, tool = agent.get_component("agent").tools
            seen["eager"] = [[each.name for each in toolset], tool.name, toolset.eager_connect, tool.eager_connect]
            seen["edges"] = len(components.graph.edges)
            seen["loading"] = "mcp_types" in sys.modules
            seen["threads"] = [thread.name for thread in threading.enumerate() if "mcp" in thread.name]
            package.MCPClient
            seen["with a client"] = "mcp" in sys.modules
            print(json.dumps(seen))
            """
        variables = {"PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]), "HAYSTACK_TELEMETRY_ENABLED": "no"}
        command = [sys.executable, "-c", textwrap.dedent(script)]
        done = run_to_end(command, limit=100, cwd=ROOT, env={**os.environ, **variables}, check=True)
        seen = json.loads(done.stdout.splitlines()[-1])
        nothing = {"importing": [], "using": [], "loading": False, "threads": [], "with a client": False}
        assert seen == {**nothing, "client_id": "my-client", "eager": [["x"], "y", True, True], "edges": 5}
        assert not trace.exists()


class TestHostileFiles:
    @pytest.mark.parametrize("kind", [MCPToolset, MCPTool, MCPServerInfo])
    @rows(
        "path",
        "subprocess.Popen",
        "os.system",
        "builtins.dict",
        "haystack.Pipeline",
        "haystack_integrations.tools.mcp.MCPTool",
        "haystack_integrations.tools.mcp.MCPServerInfo",
        "haystack_integrations.tools.mcp.redaction.redact_url",
        "no_such_module_here.Info",
        f"{__name__}.Bait",
        f"{__name__}.to_words",
        "Bait",
        "",
    )
    def test_only_server_infos_are_constructed(self, path, kind, tmp_path):
        trace = tmp_path / "started"
        info = {"type": path, "args": ["touch", str(trace)], "command": f"touch {trace}"}
        name = {"name": "x"} if kind is MCPTool else {}
        data = info if kind is MCPServerInfo else {"type": "x", "data": {"server_info": info, **name}}
        with pytest.raises((TypeError, ValueError, ImportError, DeserializationError)) as raised:
            kind.from_dict(data)
        if path.endswith(".Bait"):
            assert f"'{path}' is not a subclass of MCPServerInfo" in str(raised.value)
        assert not trace.exists()

    @pytest.mark.skipif(not HAS_ALLOWLIST, reason="this Haystack has no allowlist of modules")
    def test_import_paths_and_handlers_are_checked_with_haystacks_allowlist(self, monkeypatch):
        monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "tests.support.*")
        text = agent_pipeline(MCPToolset(COUNTER)).dumps()
        with pytest.raises(DeserializationError, match=r"tests.servers.inprocess"):
            Pipeline.loads(text)
        for options in ({"allowed_modules": ["tests.servers.*"]}, {"unsafe": True}):
            assert Pipeline.loads(text, **options).get_component("agent").tools.server_info == COUNTER
        toolset = MCPToolset(StdioServerInfo("x"), outputs_to_string={"add": {"handler": to_words}})
        with pytest.raises(DeserializationError, match="to_words"):
            MCPToolset.from_dict(toolset.to_dict())

    def test_functions_of_any_module_can_be_stored(self, monkeypatch):
        monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "")
        functions = {
            "handlers": MCPHandlers(
                sampling=MCPSampling(function=keep, consent=keep),
                **dict.fromkeys(("elicitation", "logging", "messages", "progress", "pending_calls"), keep),
                roots=roots,
            ),
            "interceptors": [unchanged],
            "tool_selection": {"tool_filter": is_wanted},
            "outputs_to_string": {"add": {"handler": to_words}},
            "outputs_to_state": {"add": {"sum": {"source": "result", "handler": keep_last}}},
        }
        toolset = MCPToolset(StreamableHttpServerInfo("http://localhost/mcp", headers_provider=headers_of), **functions)
        pipeline = agent_pipeline(toolset)
        caller = MCPToolCaller(toolset, streaming_callback=keep, state_schema={"sum": {"type": list[int]}})
        pipeline.add_component("caller", caller)
        text = pipeline.dumps()
        if HAS_ALLOWLIST:
            with pytest.raises(DeserializationError, match=r"tests\.tools"):
                Pipeline.loads(text)
        loaded = Pipeline.loads(text, **({"allowed_modules": ["tests.*"]} if HAS_ALLOWLIST else {}))
        assert loaded.dumps() == text
        assert loaded.get_component("agent").tools.handlers == functions["handlers"]

    @pytest.mark.parametrize("function", [lambda tool: True, partial(is_wanted), MCPHandlers().to_dict, _shadowed])
    def test_a_function_without_an_import_path_cannot_be_stored(self, function):
        with pytest.raises(SerializationError, match=r"^`ToolSelection.tool_filter` cannot .*top of a module$"):
            MCPToolset(StdioServerInfo("x"), tool_selection=ToolSelection(tool_filter=function)).to_dict()
