# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`mcp-haystack serve`: what was built in Haystack, from files and modules, over stdio and HTTP.
"""

import contextlib
import json
import re
import signal
import subprocess
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
)
from haystack_integrations.tools.mcp.cli.serve import Look, make_server
from tests.cli.conftest import Run
from tests.support.majors import on_one_major
from tests.support.prepared import PreparedProcess, prepared_python
from tests.support.processes import end
from tests.support.rows import rows
from tests.support.terminal import COMMAND, LIMIT, ROOT, environment

BUILDER = "haystack.components.builders.prompt_builder.PromptBuilder"

SHELF = """
import sys
from types import SimpleNamespace
from fastmcp import FastMCP
from haystack import Document, Pipeline, component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.components.builders import PromptBuilder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import create_tool_from_function
from haystack_integrations.tools.mcp import StdioServerInfo
from mcp.server import MCPServer

print("this is no protocol")
store = InMemoryDocumentStore()
store.write_documents([Document(content="The roses need water."), Document(content="Bread takes forty minutes.")])


def pipeline() -> Pipeline:
    made = Pipeline()
    made.add_component("retriever", InMemoryBM25Retriever(store, top_k=1))
    return made


def add(a: int, b: int) -> int:
    '''Add two integers.'''
    if a < 0:
        raise ValueError("a-detail-of-the-error")
    return a + b


class Generator:
    '''A chat generator that knows one answer.'''

    def run(self, messages, tools=None, **kwargs):
        return {"replies": [ChatMessage.from_assistant("Forty minutes.")]}

    def to_dict(self):
        return {"type": "shelf.Generator", "init_parameters": {}}


class SkillStore:
    '''A skill store with one skill.'''

    def list_skills(self):
        return {"bake": SimpleNamespace(name="bake", description="Bakes bread")}

    def load_skill(self, name):
        return "Take forty minutes.", []

    def read_skill_file(self, name, path):
        raise KeyError(path)


baker = Agent(chat_generator=component(Generator)())
skills = SkillStore()
search = pipeline()
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
    The folder that a person serves from.
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


@contextlib.contextmanager
def serving(folder: Path, *words: str, **variables: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """
    Serve over HTTP: the process and the URL.
    """
    process = PreparedProcess(
        [*COMMAND, "serve", *words, "--http", "--port", "0"],
        cwd=folder,
        env=environment(**variables),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        told = ""
        for line in process.stderr:
            told += line
            if found := re.search(r"Serving over HTTP on (\S+)", line):
                break
        else:
            pytest.fail(f"it did not start: {told}")
        yield process, found[1]
    finally:
        end(process)


KINDS: dict[str, tuple[str, str, dict[str, Any], Any]] = {
    "a server": ("shelf.py", "add", {"a": 5, "b": 3}, {"result": 8}),
    "a server of the SDK": ("shelf:sdk", "add", {"a": 5, "b": 3}, {"result": 8}),
    "a pipeline": ("shelf.py:search", "search", {"query": "roses"}, "The roses need water."),
    "what makes one": ("shelf:pipeline", "pipeline", {"query": "roses"}, "The roses need water."),
    "a tool": ("shelf:tool", "add", {"a": 5, "b": 3}, "8"),
    "an Agent": ("shelf:baker", "baker", {"task": "How long does bread take?"}, {"answer": "Forty minutes."}),
    "tools": ("shelf:several", "add", {"a": 5, "b": 3}, "8"),
    "a function": ("shelf:add", "add", {"a": 5, "b": 3}, {"result": 8}),
    "YAML": ("answer.yaml", "answer", {"topic": "bread"}, {"prompt": "Tell me of bread."}),
    "tools in YAML": ("tools.yaml", "add", {"a": 5, "b": 3}, {"result": 8.0}),
    "another server": ("shelf:other", "add", {"a": 5, "b": 3}, {"result": 8.0}),
    "the servers of a file": ("mcp.json", "maths_add", {"a": 5, "b": 3}, {"result": 8.0}),
}


@pytest.mark.parametrize("kind", KINDS)
def test_any_kind_of_thing_is_served(shelf: Path, kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    target, tool, arguments, expected = KINDS[kind]
    with MCPConnection(InProcessServerInfo(make_server(target))) as connection:
        result = connection.call_tool(tool, arguments)
    if isinstance(expected, str):
        assert expected in json.dumps(result.model_dump(mode="json"))
    else:
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
    look = Look(name="Library", description="Search the library.", input=["q=retriever.query"])
    with MCPConnection(InProcessServerInfo(make_server("shelf:search", look))) as connection:
        [tool] = connection.list_tools()
        assert connection.status().server_name == "Library"
        assert (tool.description, list(tool.input_schema["properties"])) == ("Search the library.", ["q"])
    parts = {
        name: {"type": BUILDER, "init_parameters": {"template": f"{name} {{{{ it }}}}.", "required_variables": "*"}}
        for name in ("find", "ask")
    }
    (shelf / "both.yaml").write_text(json.dumps({"components": parts, "connections": []}))
    look = Look(input=["q=find.it", "q=ask.it"], output=["asked=ask.prompt"])
    with MCPConnection(InProcessServerInfo(make_server("both.yaml", look))) as connection:
        assert connection.call_tool("both", {"q": "tea"}).structured_content == {"asked": "ask tea."}
    (shelf / "Größe 1.yaml").write_text(PIPELINE)
    with MCPConnection(InProcessServerInfo(make_server("Größe 1.yaml"))) as connection:
        [tool] = connection.list_tools()
    assert re.fullmatch("[A-Za-z0-9_-]{1,64}", tool.name)
    for shows in (False, True):
        server = make_server("shelf.py:add", Look(show_errors=shows))
        with MCPConnection(InProcessServerInfo(server)) as connection, pytest.raises(MCPInvocationError) as caught:
            connection.call_tool("add", {"a": -1, "b": 3})
        assert ("a-detail-of-the-error" in str(caught.value)) is shows


@on_one_major
@pytest.mark.parametrize("workers", ["1", "2"])
def test_http_wants_the_token_and_ends_with_sigterm_with_workers_too(shelf: Path, workers: str) -> None:
    words = ["answer.yaml", "--name", "two", "--workers", workers, "--token-env", "A_TOKEN"]
    with serving(shelf, *words, A_TOKEN="secret-token-value") as (process, url):
        info = StreamableHttpServerInfo(url, token="secret-token-value")
        with MCPConnection(info, connection_timeout=60) as connection:
            assert connection.status().server_name == "two"
            answer = connection.call_tool("answer", {"topic": "bread"})
            assert answer.structured_content == {"prompt": "Tell me of bread."}
        with pytest.raises(Exception, match="401"), MCPConnection(StreamableHttpServerInfo(url)):
            pass
        process.send_signal(signal.SIGTERM)
        output, errors = process.communicate(timeout=LIMIT)
    assert (process.returncode, output) == (0, "")
    assert "secret-token-value" not in errors


@rows(
    ("words", "told"),
    [
        (["nowhere.yaml"], "There is no file nowhere.yaml"),
        (["shelf.py:nobody"], "has no object 'nobody'"),
        (["shelf.py:number"], "'number' is of type int, which cannot be served"),
        (["shelf.py:search", "--input", "query"], "--input takes NAME=component.socket"),
        (["answer.yaml", "--port", "8000", "--host", "0.0.0.0"], "no `host`, `port`, `path` or `workers`: add --http"),
        (["answer.yaml", "--http", "--host", "0.0.0.0"], "Pass --token-env NAME, bind to"),
        (["answer.yaml", "--http", "--token-env", "NOT_SET"], "Error: the environment variable NOT_SET is not set"),
        (["odd.yaml"], "'odd' of class 'PromptBuilder'. Original error: PromptBuilder.__init__() got an unexpected"),
        (["answer.yaml", "--http", "--path", "mcp"], "`path` must"),
        (["broken.yaml"], "broken.yaml is not valid YAML: line 2, column 6"),
        (["off.json"], "off.json has no servers, or none that is enabled"),
        (["empty.yaml"], "has neither `components` of a pipeline"),
        (["forbidden.yaml"], "forbidden"),
        (["nameless.py"], "as in nameless.py:name"),
        (["chat.yaml"], "OPENAI_API_KEY"),
        (["dead.json", "--http", "--port", "0"], "the server process ended with exit code 1"),
    ],
)
def test_what_cannot_be_served_is_told(run: Run, shelf: Path, monkeypatch, words: list[str], told: str) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    generator = "haystack.components.generators.chat.openai.OpenAIChatGenerator"
    (shelf / "chat.yaml").write_text(f"components: {{llm: {{type: {generator}, init_parameters: {{}}}}}}")
    dead = {"command": sys.executable, "args": ["-c", "raise SystemExit(1)"]}
    (shelf / "dead.json").write_text(json.dumps({"mcpServers": {"dead": dead}}))
    (shelf / "broken.yaml").write_text('a: [b\ntoken: "a-secret-in-the-file\n')
    (shelf / "empty.yaml").write_text("a: 1")
    (shelf / "off.json").write_text('{"mcpServers": {"one": {"command": "x", "disabled": true}}}')
    odd = {"type": BUILDER, "init_parameters": {"template": "a-secret-in-the-file", "tmplate": ""}}
    (shelf / "odd.yaml").write_text(json.dumps({"components": {"odd": odd}, "connections": []}))
    (shelf / "nameless.py").write_text("number = 5")
    (shelf / "forbidden.yaml").write_text("components: {forbidden: {type: os.system, init_parameters: {}}}")
    with contextlib.chdir(shelf):
        ran = run("serve", *words)
    assert ran.code == (3 if "dead.json" in words else 2), ran.errors
    assert told in ran.errors
    assert "Traceback" not in ran.errors
    assert "a-secret-in-the-file" not in ran.errors
    assert ran.screen == ""
