# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`mcp-haystack serve`: serves Haystack objects from files and modules, over stdio and HTTP.
"""

import contextlib
import json
import pickle
import re
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPConnection,
    MCPInvocationError,
    StreamableHttpServerInfo,
    serving,
)
from haystack_integrations.tools.mcp.cli.serve import ViewOptions, make_server
from tests.cli.conftest import Run
from tests.support.prepared import prepared_python
from tests.support.rows import rows
from tests.support.terminal import ROOT, Terminal

BUILDER = "haystack.components.builders.prompt_builder.PromptBuilder"

SHELF = """
import sys
from types import SimpleNamespace
from fastmcp import FastMCP
from haystack import Document, Pipeline
from haystack.components.agents import Agent
from haystack.components.builders import PromptBuilder
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import create_tool_from_function
from haystack_integrations.tools.mcp import StdioServerInfo
from mcp.server import MCPServer
from tests.support.scripted_chat import ScriptedChatGenerator, say

print("this is no protocol")


def pipeline() -> Pipeline:
    made = Pipeline()
    made.add_component("prompt", PromptBuilder("Tell me of {{ topic }}.", required_variables=["topic"]))
    return made


def add(a: int, b: int) -> int:
    '''Add two integers.'''
    if a < 0:
        raise ValueError("a-detail-of-the-error")
    return a + b


store = InMemoryDocumentStore()
store.write_documents([Document(content="The roses need water.")])
baker = Agent(chat_generator=ScriptedChatGenerator([say("Forty minutes.")]))
skills = SimpleNamespace(
    list_skills=lambda: {"bake": SimpleNamespace(name="bake", description="Bakes bread")},
    load_skill=lambda name: ("Take forty minutes.", []),
    read_skill_file=lambda name, path: "",
)
tell = pipeline()
tool = create_tool_from_function(add)
several = [tool]
prompt = PromptBuilder("Tell me of {{ topic }}.", required_variables=["topic"])
other = StdioServerInfo(sys.executable, ["examples/servers/calculator.py"], cwd=%(root)r)
server = FastMCP("plain")
server.tool(add)
sdk = MCPServer("sdk", log_level="WARNING")
sdk.tool()(add)
number = 5
"""

PIPELINE = """
components:
  prompt:
    type: haystack.components.builders.prompt_builder.PromptBuilder
    init_parameters: {template: "Tell me of {{ topic }}.", required_variables: [topic]}
connections: []
"""


@pytest.fixture
def shelf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """
    The folder with the files to serve, which is the working directory.
    """
    (tmp_path / "shelf.py").write_text(SHELF % {"root": str(ROOT)})
    (tmp_path / "answer.yaml").write_text(PIPELINE)
    calculator = {"command": prepared_python(), "args": [str(ROOT / "examples/servers/calculator.py")]}
    keyless = {"command": "x", "env": {"KEY": "${NOT_SET_ANYWHERE}"}, "required": False}
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"maths": calculator, "keyless": keyless}}))
    info = {"type": "haystack_integrations.tools.mcp.StdioServerInfo", **calculator}
    toolset = {"type": "haystack_integrations.tools.mcp.MCPToolset", "data": {"server_info": info}}
    (tmp_path / "tools.yaml").write_text(json.dumps({"tools": [toolset]}))
    monkeypatch.chdir(tmp_path)
    modules, path = set(sys.modules), list(sys.path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - modules:
        if name in ("shelf", "mcp_haystack_target"):
            del sys.modules[name]


SUM = ("add", {"a": 5, "b": 3})
TOLD = {"prompt": "Tell me of tea."}


@rows(
    ("target", "tool", "arguments", "expected"),
    ("shelf.py", *SUM, {"result": 8}),
    ("shelf:sdk", *SUM, {"result": 8}),
    ("shelf.py:tell", "tell", {"topic": "tea"}, TOLD),
    ("shelf:pipeline", "pipeline", {"topic": "tea"}, TOLD),
    ("answer.yaml", "answer", {"topic": "tea"}, TOLD),
    ("shelf:tool", *SUM, {"result": 8}),
    ("shelf:several", *SUM, {"result": 8}),
    ("shelf:add", *SUM, {"result": 8}),
    ("shelf:baker", "baker", {"task": "How long does bread take?"}, {"answer": "Forty minutes."}),
    ("tools.yaml", *SUM, {"result": 8.0}),
    ("shelf:other", *SUM, {"result": 8.0}),
    ("mcp.json", "maths_add", SUM[1], {"result": 8.0}),
)
def test_every_kind_of_object_is_served(shelf, capsys, target, tool, arguments, expected):
    with MCPConnection(InProcessServerInfo(make_server(target))) as connection:
        result = connection.call_tool(tool, arguments)
    assert result.structured_content == expected
    assert "this is no protocol" not in capsys.readouterr().out


def test_documents_prompts_and_skills_are_served(shelf: Path) -> None:
    with MCPConnection(InProcessServerInfo(make_server("shelf:store"))) as connection:
        assert "documents://store" in [each.uri for each in connection.list_resources()]
    with MCPConnection(InProcessServerInfo(make_server("shelf:prompt"))) as connection:
        message = connection.get_prompt("prompt", {"topic": "bread"}).messages[0]
        assert message.content.text == "Tell me of bread."  # type: ignore[union-attr]
    with MCPConnection(InProcessServerInfo(make_server("shelf:skills"))) as connection:
        assert [(each.name, each.uri) for each in connection.list_skills()] == [("bake", "skill://bake/SKILL.md")]


def test_the_options_choose_what_clients_see(shelf: Path) -> None:
    template = {"template": "Of {{ it }}.", "required_variables": "*"}
    parts = {name: {"type": BUILDER, "init_parameters": template} for name in ("find", "ask")}
    (shelf / "Größe 1.yaml").write_text(json.dumps({"components": parts, "connections": []}))
    sockets = {"input": ["q=find.it", "q=ask.it"], "output": ["asked=ask.prompt"]}
    view = ViewOptions(name="Library", description="Search the library.", **sockets)
    with MCPConnection(InProcessServerInfo(make_server("Größe 1.yaml", view))) as connection:
        assert connection.status().server_name == "Library"
        [tool] = connection.list_tools()
        assert re.fullmatch("[A-Za-z0-9_-]{1,64}", tool.name)
        assert (tool.description, list(tool.input_schema["properties"])) == ("Search the library.", ["q"])
        assert connection.call_tool(tool.name, {"q": "tea"}).structured_content == {"asked": "Of tea."}
    for shows in (False, True):
        server = make_server("shelf.py:add", ViewOptions(show_errors=shows))
        with MCPConnection(InProcessServerInfo(server)) as connection, pytest.raises(MCPInvocationError) as caught:
            connection.call_tool("add", {"a": -1, "b": 3})
        assert ("a-detail-of-the-error" in str(caught.value)) is shows


def test_serving_over_http_requires_the_token_and_ends_in_order_with_the_terminal(
    shelf: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("A_TOKEN", "secret-token-value")
    words = ["answer.yaml", "--name", "two", "--token-env", "A_TOKEN", "--http", "--port", "0"]
    with Terminal("serve", *words, width=300, cwd=shelf) as terminal:
        terminal.wait_for("/mcp")
        url = re.search(r"Serving over HTTP on (http://\S+/mcp)", terminal.raw)[1]
        info = StreamableHttpServerInfo(url, token="secret-token-value")
        with MCPConnection(info, connection_timeout=60) as connection:
            assert connection.status().server_name == "two"
            assert connection.call_tool("answer", {"topic": "tea"}).structured_content == TOLD
        with pytest.raises(Exception, match="401"), MCPConnection(StreamableHttpServerInfo(url)):
            pass
        terminal.process.send_signal(getattr(signal, "SIGHUP", signal.SIGTERM))
        assert terminal.end().code == 0
        assert "secret-token-value" not in terminal.raw


def test_worker_processes_can_create_the_server(run: Run, shelf: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    given: dict[str, Any] = {}
    monkeypatch.setattr(serving, "run_server", lambda make, **options: given.update(make=make, **options))
    with contextlib.chdir(shelf):
        assert run("serve", "answer.yaml", "--http", "--workers", "2").code == 0
        assert given["workers"] == 2
        assert pickle.loads(pickle.dumps(given["make"]))().name == "answer"  # noqa: S301


def test_workers_that_cannot_start_are_not_a_bug_of_the_command(run: Run, shelf: Path, monkeypatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a worker could not start")

    monkeypatch.setattr(serving, "run_server", fail)
    with contextlib.chdir(shelf):
        ran = run("serve", "answer.yaml", "--http", "--workers", "2")
    assert (ran.code, ran.errors) == (1, "Error: a worker could not start\n")


@rows(
    ("words", "told"),
    (["nowhere.yaml"], "There is no file nowhere.yaml"),
    (["needy:number"], "needy:number raised KeyError: 'NOT_SET_1'"),
    (["calls.py"], "The function 'calls' raised KeyError: 'NOT_SET_1'"),
    (["latin.yaml"], "latin.yaml is not in UTF-8: save it"),
    (["."], "'.' is none of these: serve takes"),
    (["odd.toml"], "'odd.toml' is none of these: serve takes"),
    (["nowhere.py:server"], "There is no file nowhere.py:server"),
    (["shelf.py:nobody"], "has no object 'nobody'"),
    (["shelf.py:serve"], "has no object 'serve'. Did you mean 'server'?"),
    (["shelf.py", "--show-errors", "--name", "two"], "shelf.py is a server already, for which serve does not take"),
    (["shelf.py:number"], "'number' is of type int, which cannot be served"),
    (["shelf.py:tell", "--input", "query"], "--input takes NAME=component.socket"),
    (["answer.yaml", "--port", "8000"], "The options for HTTP need --http"),
    (["answer.yaml", "--token-env", "HOME"], "The options for HTTP need --http"),
    (["answer.yaml", "--http", "--host", "0.0.0.0"], "Pass --token-env NAME, bind to"),
    (["answer.yaml", "--http", "--host", "0.0.0.0"], "or pass --insecure if"),
    (["answer.yaml", "--http", "--token-env", "NOT_SET"], "Error: the environment variable NOT_SET is not set"),
    (["odd.yaml"], "'odd' of class 'PromptBuilder'. Original error: PromptBuilder.__init__() got an unexpected"),
    (["broken.yaml"], "broken.yaml is not valid YAML: line 2, column 6"),
    (["empty.yaml"], "has neither `components` of a pipeline"),
    (["nameless.py"], "as in nameless.py:name"),
    (["chat.yaml"], "OPENAI_API_KEY"),
    (["dead.json", "--http", "--port", "0"], "the server process ended with exit code 1"),
    # The key of the file: serve has no --timeout.
    (["slow.json", "--http", "--port", "0"], "raise `connection_timeout`"),
)
def test_the_error_names_what_cannot_be_served(run: Run, shelf: Path, monkeypatch, words: list[str], told: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    generator = "haystack.components.generators.chat.openai.OpenAIChatGenerator"
    (shelf / "chat.yaml").write_text(f"components: {{llm: {{type: {generator}, init_parameters: {{}}}}}}")
    dead = {"command": sys.executable, "args": ["-c", "raise SystemExit(1)"]}
    (shelf / "dead.json").write_text(json.dumps({"mcpServers": {"dead": dead}}))
    slow = {"command": sys.executable, "args": ["-c", "while True: input()"], "connection_timeout": 0.5}
    (shelf / "slow.json").write_text(json.dumps({"mcpServers": {"slow": slow}}))
    (shelf / "broken.yaml").write_text('a: [b\ntoken: "a-secret-in-the-file\n')
    (shelf / "empty.yaml").write_text("a: 1")
    (shelf / "odd.toml").touch()
    (shelf / "needy.py").write_text("import os\nnumber = os.environ['NOT_SET_1']")
    (shelf / "calls.py").write_text("def server():\n    import needy")
    (shelf / "latin.yaml").write_text("name: é", encoding="latin-1")
    odd = {"type": BUILDER, "init_parameters": {"template": "a-secret-in-the-file", "tmplate": ""}}
    (shelf / "odd.yaml").write_text(json.dumps({"components": {"odd": odd}, "connections": []}))
    (shelf / "nameless.py").write_text("number = 5")
    with contextlib.chdir(shelf):
        ran = run("serve", *words)
    assert ran.code == (3 if words[0] in ("dead.json", "slow.json") else 2), ran.errors
    assert told in ran.errors
    assert "Traceback" not in ran.errors
    assert "a-secret-in-the-file" not in ran.errors
    assert ran.screen == ""
