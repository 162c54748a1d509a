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
from haystack.components.agents import Agent
from haystack.core.errors import DeserializationError, SerializationError
from haystack.dataclasses import ChatMessage
from haystack.tools import SearchableToolset, Tool, Toolset
from haystack.utils import Secret
from mcp.server import MCPServer

from haystack_integrations.components.tools.mcp import MCPToolCaller
from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnectionError,
    MCPHandlers,
    MCPRegistry,
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
from tests.support.executors import HAS_TOOL_INVOKER, recorded_traces
from tests.support.processes import run_to_end
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, say

ROOT = Path(__file__).parents[2]
SECRET = "s3ntinel-in-a-file"
COUNTER = InProcessServerInfo("tests.servers.inprocess:server")
FASTMCP = InProcessServerInfo("tests.servers.fastmcp_server:server")

HAS_ALLOWLIST = importlib.util.find_spec("haystack.core.serialization_security") is not None

MODULE = "haystack_integrations.tools.mcp.mcp_tool"


MAPPINGS = ("inputs_from_state", "outputs_to_state", "outputs_to_string")


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
    """Keep a call that is left open."""


def shadowed(_tool: Any) -> bool:
    return False


_shadowed = shadowed
shadowed = is_wanted


class Recorder:
    """No server info, but it has everything that a careless loader would call."""

    called: list[str] = []  # noqa: RUF012

    def __init__(self, **_parameters: Any) -> None:
        self.called.append("__init__")

    @classmethod
    def from_dict(cls, _data: dict[str, Any]) -> "Recorder":
        cls.called.append("from_dict")
        return cls()


def agent_pipeline(tools: Any, *replies: ChatMessage, **options: Any) -> Pipeline:
    pipeline = Pipeline()
    generator = ScriptedChatGenerator(list(replies) or [say("done")])
    pipeline.add_component("agent", Agent(chat_generator=generator, tools=tools, **options))
    return pipeline


def python(script: str, **environment: str) -> dict[str, Any]:
    """Run a script in a fresh interpreter, and return the JSON that it prints last."""
    variables = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)]),
        "HAYSTACK_TELEMETRY_ENABLED": "False",
        **environment,
    }
    command = [sys.executable, "-c", textwrap.dedent(script)]
    done = run_to_end(command, limit=100, cwd=ROOT, env=variables, check=True)
    return json.loads(done.stdout.splitlines()[-1])


class TestFormats:
    """What is written is what version 2.1 wrote, so that each reads the other's files."""

    RETRIES = {"max_retries": 3, "base_delay": 1.0, "max_delay": 30.0}  # noqa: RUF012

    @rows(
        ("info", "stored"),
        [
            (
                StdioServerInfo("uvx", ["mcp-server-time"], {"KEY": Secret.from_env_var("KEY"), "PLAIN": "x"}),
                {
                    "command": "uvx",
                    "args": ["mcp-server-time"],
                    "env": {"KEY": {"type": "env_var", "env_vars": ["KEY"], "strict": True}, "PLAIN": "x"},
                    **RETRIES,
                },
            ),
            (StdioServerInfo("uvx"), {"command": "uvx", "args": None, "env": None, **RETRIES}),
            (
                StdioServerInfo("uvx", cwd="/tmp"),
                {"command": "uvx", "args": None, "env": None, "cwd": "/tmp", **RETRIES},
            ),
            (
                StreamableHttpServerInfo("http://h/mcp", token=Secret.from_env_var("T"), headers={"X": "y"}, timeout=5),
                {
                    "url": "http://h/mcp",
                    "token": {"type": "env_var", "env_vars": ["T"], "strict": True},
                    "headers": {"X": "y"},
                    "timeout": 5,
                    **RETRIES,
                },
            ),
            (
                SSEServerInfo("http://h/sse"),
                {"url": "http://h/sse", "base_url": None, "token": None, "headers": None, "timeout": 30, **RETRIES},
            ),
            (COUNTER, {"server": "tests.servers.inprocess:server"}),
        ],
    )
    def test_a_server_info(self, info, stored):
        assert info.to_dict() == {"type": f"{MODULE}.{type(info).__name__}", **stored}

    def test_a_tool(self):
        info = StdioServerInfo("uvx")
        tool = MCPTool(
            "add",
            info,
            description="Mine.",
            connection_timeout=7,
            invocation_timeout=8,
            outputs_to_string={"source": "x", "handler": to_words},
            inputs_from_state={"key": "a"},
            outputs_to_state={"sum": {"source": "result", "handler": keep_last}},
        )
        assert tool.to_dict() == {
            "type": f"{MODULE}.MCPTool",
            "data": {
                "name": "add",
                "description": "Mine.",
                "server_info": info.to_dict(),
                "connection_timeout": 7,
                "invocation_timeout": 8,
                "eager_connect": False,
                "outputs_to_string": {"source": "x", "handler": "tests.tools.test_serialization.to_words"},
                "inputs_from_state": {"key": "a"},
                "outputs_to_state": {
                    "sum": {"source": "result", "handler": "tests.tools.test_serialization.keep_last"}
                },
            },
        }

    def test_a_toolset(self):
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
                "outputs_to_string": {"add": {"handler": "tests.tools.test_serialization.to_words"}},
            },
        }

    def test_what_version_2_1_does_not_have_is_written_only_if_it_is_set(self):
        extra = {"tool_options": {"result_format": "content"}, "call_options": {"read_timeout": 5}, "share": False}
        for made in (MCPTool("add", COUNTER, **extra), MCPToolset(COUNTER, **extra)):
            assert {key: made.to_dict()["data"][key] for key in extra} == extra
        for made in (MCPTool("add", COUNTER), MCPToolset(COUNTER)):
            assert not extra.keys() & made.to_dict()["data"].keys()

    def test_connecting_changes_nothing_in_it(self):
        with MCPTool("add", COUNTER) as tool, MCPToolset(COUNTER) as toolset:
            assert tool.to_dict() == MCPTool("add", COUNTER).to_dict()
            assert toolset.to_dict() == MCPToolset(COUNTER).to_dict()


class TestRoundTrips:
    @rows(
        "parameters",
        [
            {},
            {
                "description": "Mine.",
                "connection_timeout": 7,
                "invocation_timeout": 8.5,
                "eager_connect": False,
                "outputs_to_string": {"source": "result", "handler": to_words},
                "inputs_from_state": {"offset": "b"},
                "outputs_to_state": {"sum": {"source": "result", "handler": keep_last}, "all": {}},
                "exposed_name": "my_add",
                "tool_options": {"result_format": "json", "max_tool_failures": 2},
                "call_options": {"read_timeout": None, "ping_interval": 5, "task_timeout": None},
                "handlers": MCPHandlers(elicitation=answer_later, pending_calls=keep),
                "share": False,
            },
            {"outputs_to_string": {"one": {"source": "a", "handler": to_words}, "two": {"source": "b"}}},
        ],
    )
    def test_a_tool(self, parameters):
        tool = MCPTool("add", COUNTER, **parameters)
        data = json.loads(json.dumps(tool.to_dict()))
        for twin in (MCPTool.from_dict(data), pickle.loads(pickle.dumps(tool))):  # noqa: S301
            assert twin.to_dict() == tool.to_dict() == data
            for name in ("server_info", "name", "remote_name", *MAPPINGS):
                assert getattr(twin, name) == getattr(tool, name)
            assert (twin.handlers, twin.call_options) == (tool.handlers, tool.call_options)

    @rows(
        "parameters",
        [
            {},
            {
                "tool_names": ["add", "echo"],
                "connection_timeout": 7.5,
                "invocation_timeout": 8,
                "inputs_from_state": {"add": {"offset": "b"}},
                "outputs_to_state": {"add": {"sum": {"source": "result", "handler": keep_last}}, "echo": {"said": {}}},
                "outputs_to_string": {"add": {"source": "result", "handler": to_words}},
                "tool_name_prefix": "my",
                "tool_options": {"result_format": "content", "include_instructions": True},
                "tool_selection": {"exclude_tools": ["drop_*"], "required_hints": {"destructive_hint": True}},
                "tool_overrides": {"echo": {"name": "say", "bound_arguments": {"text": "well"}}},
                "call_options": {"reset_timeout_on_progress": True, "max_total_timeout": 600, "task_timeout": None},
                "handlers": MCPHandlers(elicitation=answer_later, pending_calls=keep),
                "share": False,
            },
        ],
    )
    def test_a_toolset(self, parameters):
        toolset = MCPToolset(COUNTER, **parameters)
        data = json.loads(json.dumps(toolset.to_dict()))
        for twin in (MCPToolset.from_dict(data), pickle.loads(pickle.dumps(toolset))):  # noqa: S301
            assert twin.to_dict() == toolset.to_dict() == data
            for name in ("server_info", "tool_names", *MAPPINGS, "handlers", "call_options"):
                assert getattr(twin, name) == getattr(toolset, name)
            with twin:
                assert "add" in twin or "my_add" in twin

    def test_a_handler_that_cannot_be_found_again_is_refused(self):
        tool = MCPTool("add", COUNTER, outputs_to_string={"handler": lambda value: value})
        with pytest.raises(Exception, match=r"[Ll]ambda"):
            tool.to_dict()

    @rows("number_of_servers", [1, 2])
    def test_a_pipeline_with_an_agent(self, number_of_servers):
        mappings = {
            "inputs_from_state": {"add": {"offset": "b"}},
            "outputs_to_state": {"add": {"sum": {"source": "result", "handler": keep_last}}},
            "outputs_to_string": {"add": {"handler": to_words}},
        }
        toolsets = [MCPToolset(COUNTER, tool_names=["add"], **mappings)]
        toolsets += [MCPToolset(FASTMCP, tool_name_prefix="fast")] * (number_of_servers - 1)
        pipeline = agent_pipeline(
            toolsets[0] if number_of_servers == 1 else toolsets,
            call("add", a=5),
            say("done"),
            exit_conditions=["text"],
            state_schema={"offset": {"type": int}, "sum": {"type": int}},
        )
        loaded = Pipeline.loads(pipeline.dumps())
        assert loaded.to_dict() == pipeline.to_dict()
        assert Pipeline.from_dict(pipeline.to_dict()).dumps() == pipeline.dumps()
        result = loaded.run({"agent": {"messages": [ChatMessage.from_user("go")], "offset": 37}})
        (text,) = [each.result for message in result["agent"]["messages"] for each in message.tool_call_results]
        assert text.startswith("the value is {")
        assert result["agent"]["sum"] == 42
        agent = loaded.get_component("agent")
        for toolset in [agent.tools] if number_of_servers == 1 else agent.tools:
            assert isinstance(toolset, MCPToolset)
            toolset.close()

    def test_a_pipeline_with_single_tools(self):
        with MCPToolset(COUNTER, tool_names=["add", "echo"]) as toolset:
            plain = Tool(name="plain", description="", parameters={"type": "object"}, function=to_words)
            tools = [plain, MCPTool("pid", COUNTER), *toolset]
            pipeline = agent_pipeline(tools, call("echo", text="hi"), say("done"))
            loaded = Pipeline.loads(pipeline.dumps())
        assert loaded.to_dict() == pipeline.to_dict()
        tools = loaded.get_component("agent").tools
        assert [(type(tool), tool.name) for tool in tools[:2]] == [(Tool, "plain"), (MCPTool, "pid")]
        assert [tool.name for tool in tools[2:]] == ["add", "echo"]
        result = loaded.run({"agent": {"messages": [ChatMessage.from_user("go")]}})
        assert [each.result for message in result["agent"]["messages"] for each in message.tool_call_results] == ["hi"]
        for tool in tools[1:]:
            tool.close()

    def test_a_pipeline_with_a_searchable_toolset(self):
        catalog = SearchableToolset(catalog=[MCPToolset(COUNTER, tool_names=["add"])])
        pipeline = agent_pipeline(catalog)
        loaded = Pipeline.loads(pipeline.dumps())
        assert loaded.to_dict() == pipeline.to_dict()

    @pytest.mark.skipif(not HAS_TOOL_INVOKER, reason="this Haystack has no ToolInvoker")
    def test_a_pipeline_with_a_tool_invoker(self):
        from haystack.components.tools import ToolInvoker

        pipeline = Pipeline()
        pipeline.add_component("invoker", ToolInvoker(tools=MCPToolset(COUNTER)))
        loaded = Pipeline.loads(pipeline.dumps())
        assert loaded.to_dict() == pipeline.to_dict()
        result = loaded.run({"invoker": {"messages": [call("add", a=1, b=2)]}})
        assert result["invoker"]["tool_messages"][0].tool_call_results[0].result == "3"
        loaded.get_component("invoker").tools.close()


class TestFilesOfOlderVersions:
    AGENT = """
    components:
      agent:
        type: haystack.components.agents.agent.Agent
        init_parameters:
          chat_generator:
            type: tests.support.scripted_chat.ScriptedChatGenerator
            init_parameters:
              replies: []
          tools:
            type: {toolset}
            data:
              server_info:
                type: {info}
                url: http://localhost:8000/mcp
                token: null
                headers:
                  X-Key: {{type: env_var, env_vars: [MY_KEY], strict: true}}
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

    @rows(
        "toolset",
        ["haystack_integrations.tools.mcp.MCPToolset", "haystack_integrations.tools.mcp.mcp_toolset.MCPToolset"],
    )
    @rows(
        "info",
        [
            "haystack_integrations.tools.mcp.StreamableHttpServerInfo",
            "haystack_integrations.tools.mcp.mcp_tool.StreamableHttpServerInfo",
        ],
    )
    def test_they_load(self, toolset, info):
        text = textwrap.dedent(self.AGENT).format(toolset=toolset, info=info)
        loaded = Pipeline.loads(text).get_component("agent").tools
        assert isinstance(loaded, MCPToolset)
        assert loaded.server_info == StreamableHttpServerInfo(
            "http://localhost:8000/mcp", headers={"X-Key": Secret.from_env_var("MY_KEY")}
        )
        assert [tool.name for tool in loaded] == ["search"]
        assert loaded.eager_connect is True
        assert not loaded.connection.is_ready

    @rows("path", ["haystack_integrations.tools.mcp.MCPTool", f"{MODULE}.MCPTool"])
    def test_their_tools_load(self, path):
        data = {
            "type": path,
            "data": {
                "name": "search",
                "description": "Searches.",
                "server_info": {"type": f"{MODULE}.StdioServerInfo", "command": "uvx", "args": ["x"], "env": None},
                "connection_timeout": 30,
                "invocation_timeout": 30,
            },
        }
        tool = MCPTool.from_dict(data)
        assert isinstance(tool, MCPTool)
        assert (tool.name, tool.description) == ("search", "Searches.")
        assert tool.server_info == StdioServerInfo("uvx", ["x"])

    @rows(
        "name",
        "AsyncExecutor MCPClient MCPConnectionError MCPError MCPInvocationError MCPServerInfo MCPTool "
        "MCPToolNotFoundError SSEClient SSEServerInfo StdioClient StdioServerInfo StreamableHttpClient "
        "StreamableHttpServerInfo".split(),
    )
    def test_names_are_where_they_were(self, name):
        import haystack_integrations.tools.mcp as package
        from haystack_integrations.tools.mcp import mcp_tool

        assert getattr(mcp_tool, name) is getattr(package, name)

    def test_a_name_that_never_was_is_not_there(self):
        from haystack_integrations.tools.mcp import mcp_tool

        with pytest.raises(AttributeError, match="NoSuchThing"):
            mcp_tool.NoSuchThing  # noqa: B018


TOOLS = "haystack_integrations.tools.mcp"
HOOKS = "haystack_integrations.hooks.mcp"
PACKAGES = [TOOLS, HOOKS, *(f"{TOOLS}.{name}" for name in ("durable", "handlers", "oauth", "registry", "serving"))]


def is_stored_by_its_path(value: Any) -> bool:
    if value in (MCPTool, MCPToolset):  # by that of version 2.1
        return False
    if value in (accept_defaults, answer_later, decline, FileTokenStorage):
        return True
    if isinstance(value, type) and issubclass(value, Toolset):
        return True
    written_by = getattr(getattr(value, "to_dict", None), "__code__", None)
    names = written_by.co_names if written_by else ()
    return "default_to_dict" in names or "generate_qualified_class_name" in names


class TestFilesOfLaterVersions:
    def test_what_is_stored_names_a_public_package_so_that_files_may_move(self):
        stored = {}
        for package in map(importlib.import_module, PACKAGES):
            for name in package.__all__:
                if not HAS_HOOKS and package.__name__ == HOOKS and name.endswith("Hook"):
                    continue
                value = getattr(package, name)
                if is_stored_by_its_path(value):
                    stored[name] = value.__module__
                    assert value.__module__ in PACKAGES, name
                    assert getattr(importlib.import_module(value.__module__), name) is value
                    get_type_hints(value)  # which looks for the names in that package
        assert stored["MCPConfirmationStrategy"] == stored["MCPAnnotationPolicy"] == HOOKS
        assert stored["MCPSearchableToolset"] == stored["MCPResourceToolset"] == TOOLS
        assert {stored["FileTokenStorage"], stored["KeyValueTokenStorage"]} == {f"{TOOLS}.oauth"}
        assert {stored["MCPAliasToolset"], stored["MCPRegistry"]} == {f"{TOOLS}.registry"}
        assert stored["JournaledChatGenerator"] == f"{TOOLS}.durable"
        assert stored["ClientConfirmationStrategy"] == f"{TOOLS}.serving"

    @pytest.mark.parametrize("handler", [accept_defaults, answer_later, decline])
    def test_a_handler_of_the_package_makes_the_round_trip(self, handler):
        handlers = MCPHandlers(elicitation=handler)
        assert handlers.to_dict()["elicitation"] == f"{TOOLS}.handlers.{handler.__name__}"
        assert MCPHandlers.from_dict(handlers.to_dict()) == handlers

    @pytest.mark.parametrize(
        "path",
        [
            "builders.mcp.prompt_builder.MCPPromptBuilder",
            "fetchers.mcp.resource_fetcher.MCPResourceFetcher",
            "tools.mcp.tool_caller.MCPToolCaller",
            "tools.mcp.tool_runner.MCPToolRunner",
        ],
    )
    def test_components_are_where_the_guide_says(self, path):
        path = f"haystack_integrations.components.{path}"
        importlib.import_module(path.rpartition(".")[0])
        assert path in component.registry


class TestSecrets:
    @pytest.fixture(autouse=True)
    def watched(self, secret_watch):
        secret_watch.learn(SECRET)

    def test_nested_secrets_make_the_round_trip(self, monkeypatch):
        monkeypatch.setenv("MY_KEY", SECRET)
        info = StdioServerInfo("uvx", env={"K": Secret.from_env_var("MY_KEY"), "P": "plain"})
        pipeline = agent_pipeline(MCPToolset(info))
        text = pipeline.dumps()
        assert Pipeline.loads(text).get_component("agent").tools.server_info == info

    @rows(
        "info",
        [
            StdioServerInfo("uvx", env={"K": Secret.from_token(SECRET)}),
            StreamableHttpServerInfo("http://h/mcp", token=Secret.from_token(SECRET)),
        ],
        ids=lambda info: type(info).__name__,
    )
    def test_a_token_secret_is_refused(self, info):
        pipeline = agent_pipeline(MCPToolset(info))
        with pytest.raises(Exception, match="Cannot serialize token-based secret") as raised:
            pipeline.dumps()
        assert SECRET not in str(raised.value)  # which is Haystack's

    @pytest.mark.parametrize("content", [False, True])
    def test_plain_secrets_are_in_no_trace(self, content, stdio_server):
        server = stdio_server()
        args = [*server.args, "--token", SECRET]
        toolset = MCPToolset(StdioServerInfo(server.command, args, env={"KEY": SECRET}), tool_names=["add"])
        pipeline = agent_pipeline(toolset, call("add", a=1, b=2), say("done"))
        with recorded_traces(content=content) as traces, toolset:
            pipeline.run({"agent": {"messages": [ChatMessage.from_user("go")]}})
        assert "haystack.agent" in traces.text
        assert SECRET not in traces.text
        assert "MCPToolset" in repr(pipeline.get_component("agent").tools)

    @pytest.mark.parametrize(
        "info",
        [
            StdioServerInfo("mcp-no-such-command", ["--token", SECRET], env={"KEY": SECRET}),
            StdioServerInfo(
                sys.executable,
                ["-c", "import os, sys; sys.exit(f'{sys.argv} {os.environ}')", "--token", SECRET, f"--key={SECRET}"],
                env={"KEY": SECRET},
            ),
            SSEServerInfo(f"http://u:{SECRET}@127.0.0.1:1/sse?key={SECRET}", token=SECRET, headers={"X": SECRET}),
            StreamableHttpServerInfo(f"http://u:{SECRET}@127.0.0.1:1/mcp?key={SECRET}", headers={"X": SECRET}),
        ],
        ids=["no command", "an end at once", "SSE", "streamable HTTP"],
    )
    def test_plain_secrets_are_in_no_error_of_a_connect(self, info):
        toolset = MCPToolset(info)
        with pytest.raises(MCPConnectionError):
            toolset.warm_up()
        toolset.close()

    @pytest.mark.parametrize(
        ("http_info", "transport"), [(SSEServerInfo, "sse"), (StreamableHttpServerInfo, "streamable-http")]
    )
    def test_plain_secrets_of_an_http_server_are_in_no_log(self, http_info, transport, shared_http_server):
        url = shared_http_server(transport).url.replace("://", f"://u:{SECRET}@")
        with MCPTool("add", http_info(f"{url}?key={SECRET}", headers={"X": SECRET})) as tool:
            assert json.loads(tool.invoke(a=1, b=2))["isError"] is False

    def test_a_server_object_does_not_disturb_tracing(self):
        server = MCPServer("calc")

        @server.tool()
        def double(n: int) -> int:
            return 2 * n

        toolset = MCPToolset(InProcessServerInfo(server))
        pipeline = agent_pipeline(toolset, call("double", n=2), say("done"))
        with recorded_traces(content=True) as traces, toolset:
            pipeline.run({"agent": {"messages": [ChatMessage.from_user("go")]}})
        assert "in-process server 'calc'" in traces.text


class TestLoadingStartsNothing:
    def test_not_even_with_eager_connect(self, tmp_path):
        trace = tmp_path / "started"
        info = StdioServerInfo("touch", [str(trace)])
        toolset, tool = MCPToolset(info), MCPTool("add", info)
        toolset.eager_connect = tool.eager_connect = True
        text = agent_pipeline([toolset, tool]).dumps()
        assert text.count("eager_connect: true") == 2
        loaded = Pipeline.loads(text).get_component("agent").tools
        assert [each.eager_connect for each in loaded] == [True, True]
        assert not trace.exists()

    def test_a_server_info_by_hand_may_be_what_the_constructors_take(self):
        url = "https://mcp.example.com/mcp"
        assert MCPToolset.from_dict({"data": {"server_info": url}}).server_info == MCPToolset(url).server_info
        assert (
            MCPTool.from_dict({"data": {"server_info": url, "name": "add"}}).server_info == MCPToolset(url).server_info
        )
        with pytest.raises(TypeError, match="missing a required argument: 'server_info'"):
            MCPToolset.from_dict({"data": {"tool_names": ["add"]}})

    def test_nothing_is_imported_for_it_either_nor_for_what_is_built(self, tmp_path):
        trace = tmp_path / "started"
        toolset = MCPToolset(StdioServerInfo("touch", [str(trace)]), tool_names=["x"])
        toolset.eager_connect = True
        registry = MCPRegistry({"a": StdioServerInfo("no-such-command")}, [ToolConfig("x", ["a"])])
        stored = {
            "agent": agent_pipeline(toolset).dumps(),
            "components": stored_pipeline().dumps(),
            "oauth": yaml.safe_load(OLD)["data"]["server_info"],
            "registry": registry.to_dict(),
            "alias": registry.toolset("x").to_dict(),
        }
        file = tmp_path / "stored.json"
        file.write_text(json.dumps(stored))
        seen = python(
            f"""
            import json, sys, threading
            from pathlib import Path

            def imported():
                return [name for name in sys.modules if name in ("mcp", "mcp_types", "httpx2", "jwt")]

            import haystack_integrations.tools.mcp as package
            seen = {{"importing": imported()}}
            from haystack_integrations.hooks.mcp import confirmation_strategies_for
            from haystack_integrations.tools.mcp import MCPConnection, MCPInvocationError, MCPRegistry, MCPServerInfo
            from haystack_integrations.tools.mcp import MCPTool, MCPToolset, call_budget, warm_up_toolsets
            from haystack_integrations.tools.mcp import (
                InProcessServerInfo, SSEServerInfo, StdioServerInfo, StreamableHttpServerInfo,
            )
            from haystack_integrations.tools.mcp.registry import MCPAliasToolset, conversation_trace
            infos = [
                StdioServerInfo("x"), SSEServerInfo("http://h/sse"), StreamableHttpServerInfo("http://h/mcp"),
                InProcessServerInfo("a:b"),
            ]
            for info in infos:
                toolset = MCPToolset(info, tool_names=["x"])
                tool = MCPTool("x", info)
                MCPConnection(info).status()
                list(toolset), repr(toolset), repr(tool), toolset.to_dict(), tool.to_dict()
                toolset.close(), tool.close()
            stored = json.loads(Path({str(file)!r}).read_text())
            seen["client_id"] = MCPServerInfo.from_dict(stored["oauth"]).oauth_config.client_id
            MCPRegistry.from_dict(stored["registry"]).get_mcp("x")
            MCPAliasToolset.from_dict(stored["alias"])
            seen["using"] = imported()
            from haystack import Pipeline
            known = "allowed_modules" in Pipeline.loads.__annotations__
            options = {{"allowed_modules": ["tests.*"]}} if known else {{}}
            agent, components = (Pipeline.loads(stored[name], **options) for name in ("agent", "components"))
            agent.dumps()
            seen["tools"] = [tool.name for tool in agent.get_component("agent").tools]
            seen["edges"] = len(components.graph.edges)
            seen["loading"] = "mcp_types" in sys.modules
            seen["threads"] = [thread.name for thread in threading.enumerate() if "mcp" in thread.name]
            package.MCPClient
            seen["with a client"] = "mcp" in sys.modules
            print(json.dumps(seen))
            """
        )
        nothing = {"importing": [], "using": [], "loading": False, "threads": []}
        assert seen == {**nothing, "client_id": "my-client", "tools": ["x"], "edges": 5, "with a client": False}
        assert not trace.exists()


class TestHostileFiles:
    @pytest.fixture(autouse=True)
    def forget(self):
        Recorder.called.clear()

    @pytest.mark.parametrize("kind", ["toolset", "tool", "info"])
    @pytest.mark.parametrize(
        "path",
        [
            "subprocess.Popen",
            "os.system",
            "builtins.dict",
            "builtins.eval",
            "haystack.Pipeline",
            "haystack.utils.Secret",
            "haystack_integrations.tools.mcp.MCPTool",
            "haystack_integrations.tools.mcp.MCPServerInfo",
            "haystack_integrations.tools.mcp.MCPClient",
            "haystack_integrations.tools.mcp.redaction.redact_url",
            "haystack_integrations.tools.mcp.no_such_name",
            "no_such_module_here.Info",
            "tests.tools.test_serialization.Recorder",
            "tests.tools.test_serialization.to_words",
            "Recorder",
            "",
        ],
    )
    def test_nothing_but_a_server_info_is_built(self, path, kind, tmp_path):
        trace = tmp_path / "started"
        info = {"type": path, "args": ["touch", str(trace)], "command": f"touch {trace}"}
        load = {
            "toolset": lambda: MCPToolset.from_dict({"type": "x", "data": {"server_info": info}}),
            "tool": lambda: MCPTool.from_dict({"type": "x", "data": {"name": "x", "server_info": info}}),
            "info": lambda: MCPServerInfo.from_dict(info),
        }[kind]
        with pytest.raises((TypeError, ValueError, ImportError, DeserializationError)):
            load()
        assert not trace.exists()
        assert Recorder.called == []

    def test_what_is_no_server_info_is_named(self):
        with pytest.raises(
            TypeError, match=r"'tests\.tools\.test_serialization\.Recorder' is not a subclass of MCPServerInfo"
        ):
            MCPServerInfo.from_dict({"type": "tests.tools.test_serialization.Recorder"})

    def test_a_pipeline_with_one_does_not_load(self, tmp_path):
        trace = tmp_path / "started"
        text = agent_pipeline(MCPToolset(StdioServerInfo("touch", [str(trace)]))).dumps()
        hostile = text.replace(f"{MODULE}.StdioServerInfo", "subprocess.Popen")
        assert hostile != text
        with pytest.raises(Exception, match="subprocess"):
            Pipeline.loads(hostile)
        assert not trace.exists()

    @pytest.mark.skipif(not HAS_ALLOWLIST, reason="this Haystack has no allowlist of modules")
    def test_an_import_path_goes_through_haystacks_allowlist(self, monkeypatch):
        monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "tests.support.*")
        text = agent_pipeline(MCPToolset(COUNTER)).dumps()
        with pytest.raises(DeserializationError, match=r"tests.servers.inprocess"):
            Pipeline.loads(text)
        allowed = Pipeline.loads(text, allowed_modules=["tests.servers.*"])
        assert allowed.get_component("agent").tools.server_info == COUNTER
        assert Pipeline.loads(text, unsafe=True).get_component("agent").tools.server_info == COUNTER

    @pytest.mark.skipif(not HAS_ALLOWLIST, reason="this Haystack has no allowlist of modules")
    def test_a_handler_goes_through_haystacks_allowlist(self, monkeypatch):
        toolset = MCPToolset(StdioServerInfo("x"), outputs_to_string={"add": {"handler": to_words}})
        monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "tests.support.*")
        with pytest.raises(DeserializationError, match="to_words"):
            MCPToolset.from_dict(toolset.to_dict())

    def test_functions_of_any_module_are_saved(self, monkeypatch):
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
        pipeline.add_component("caller", MCPToolCaller(toolset, streaming_callback=keep))
        text = pipeline.dumps()
        if HAS_ALLOWLIST:
            with pytest.raises(DeserializationError, match=r"tests\.tools"):
                Pipeline.loads(text)
        loaded = Pipeline.loads(text, **({"allowed_modules": ["tests.*"]} if HAS_ALLOWLIST else {}))
        assert loaded.dumps() == text
        assert loaded.get_component("agent").tools.handlers == functions["handlers"]

    @pytest.mark.parametrize("function", [lambda tool: True, partial(is_wanted), Recorder().__init__, _shadowed])
    def test_a_function_to_which_no_path_leads_is_not_saved(self, function):
        with pytest.raises(SerializationError, match=r"^`tool_filter` cannot be serialized: .*top of a module$"):
            MCPToolset(StdioServerInfo("x"), tool_selection=ToolSelection(tool_filter=function)).to_dict()

    def test_a_parameter_that_is_unknown_is_refused(self):
        data = MCPToolset(COUNTER).to_dict()
        data["data"]["shell"] = True
        with pytest.raises(TypeError, match="shell"):
            MCPToolset.from_dict(data)
