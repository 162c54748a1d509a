# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What README.md shows is what happens: its Python blocks are run, against real servers, and its links lead somewhere.

HTML comments before a block say what it takes:

* `<!-- haystack: 2 -->`: it is for that major only.
* `<!-- file: NAME -->`: it is the content of a file that Python blocks read.
* `<!-- needs: OPENAI_API_KEY -->`: it talks to OpenAI. Here it talks to a stand-in on this machine, over HTTP: the
  `OpenAIChatGenerator` is Haystack's real one, and only the model is missing.
* `<!-- calls: TOOL {"argument": 1} -->`: what the model is supposed to call.

A comment `# -> text` in a block is a line that it prints.
"""

import json
import os
import re
import subprocess
import sys
import threading
import tomllib
import types
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from examples.servers.running import calculator_over
from tests.support.executors import HAS_TOOL_INVOKER

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()
HAYSTACK = "2" if HAS_TOOL_INVOKER else "3"


@dataclass(frozen=True)
class Block:
    language: str
    code: str
    line: int
    heading: str
    options: dict[str, str] = field(hash=False)

    @property
    def id(self) -> str:
        return f"line {self.line}, {self.heading}"

    @property
    def printed(self) -> list[str]:
        return re.findall(r"# -> (.*)$", self.code, re.MULTILINE)

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        name, _, arguments = self.options.get("calls", "").partition(" ")
        return [(name, json.loads(arguments))] if name else []


def read_blocks(text: str) -> list[Block]:
    blocks: list[Block] = []
    options: dict[str, str] = {}
    heading = ""
    lines = iter(enumerate(text.splitlines(), start=1))
    for number, line in lines:
        if option := re.fullmatch(r"<!-- (\w+): (.*) -->", line):
            options[option[1]] = option[2]
        elif line.startswith("```"):
            code = []
            for _, inner in lines:
                if inner == "```":
                    break
                code.append(inner)
            blocks.append(Block(line[3:], "\n".join(code) + "\n", number, heading, options))
            options = {}
        elif line.startswith("#"):
            heading = line.lstrip("# ")
        elif line:
            options = {}
    return blocks


BLOCKS = read_blocks(README)
PYTHON = [block for block in BLOCKS if block.language == "python"]


class OpenAIStandIn:
    """
    Answers like OpenAI's chat completions, without a model: it makes the calls, and then repeats the tools' results.

    `results` collects what the tools gave.
    """

    def __init__(self, calls: list[tuple[str, dict[str, Any]]]) -> None:
        stand_in = self
        self.calls = calls
        self.results: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                body = json.dumps(stand_in.answer(request)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> "OpenAIStandIn":
        self._thread.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    @property
    def environment(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        return {"OPENAI_API_KEY": "not-a-key", "OPENAI_BASE_URL": url}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        results = [message["content"] for message in request["messages"] if message["role"] == "tool"]
        if results:
            self.results = results
            message: dict[str, Any] = {"role": "assistant", "content": f"The tools say: {'; '.join(results)}"}
        else:
            offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in request["tools"]}
            for name, arguments in self.calls:
                assert set(arguments) == set(offered[name].get("required", []))
            message = {"role": "assistant", "content": None, "tool_calls": self._tool_calls()}
        choice = {"index": 0, "message": message, "finish_reason": "stop" if results else "tool_calls"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": "chat", "object": "chat.completion", "created": 0, "model": request["model"]}
        return {**head, "choices": [choice], "usage": usage}

    def _tool_calls(self) -> list[dict[str, Any]]:
        return [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for number, (name, arguments) in enumerate(self.calls)
        ]


@pytest.fixture(scope="module")
def http_servers() -> Iterator[dict[str, str]]:
    """
    The URLs that the README shows, and those of the servers that are really there.
    """
    with calculator_over("http") as streamable_http, calculator_over("sse") as sse:
        yield {"http://127.0.0.1:8000/mcp": streamable_http, "http://127.0.0.1:8001/sse": sse}


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """
    A folder like the one a reader is in: it has `examples` and the files of the README; `python` is this Python.
    """
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    for block in BLOCKS:
        if "file" in block.options:
            (tmp_path / block.options["file"]).write_text(block.code)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    return tmp_path


def assert_printed(expected: list[str], output: str) -> None:
    lines = iter(output.splitlines())
    for line in expected:
        assert line in lines, f"{line!r} is missing, or out of order, in:\n{output}"


@pytest.mark.parametrize("block", PYTHON, ids=lambda block: block.id)
def test_python_block_compiles(block: Block) -> None:
    compile(block.code, f"README.md, {block.id}", "exec")


@pytest.mark.parametrize(
    "block",
    [block for block in PYTHON if block.options.get("haystack", HAYSTACK) == HAYSTACK],
    ids=lambda block: block.id,
)
def test_python_block_runs_and_prints_what_it_says(
    block: Block,
    checkout: Path,
    http_servers: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    code = block.code
    for shown, real in http_servers.items():
        code = code.replace(shown, real)
    compiled = compile(code, f"README.md, {block.id}", "exec")
    module = types.ModuleType("readme_block")
    monkeypatch.setitem(sys.modules, "readme_block", module)
    if block.options.get("needs") == "OPENAI_API_KEY":
        with OpenAIStandIn(block.calls) as openai:
            for name, value in openai.environment.items():
                monkeypatch.setenv(name, value)
            exec(compiled, module.__dict__)  # noqa: S102
        assert len(openai.results) == len(block.calls)
        assert "Failed" not in "".join(openai.results)
    else:
        exec(compiled, module.__dict__)  # noqa: S102

    assert_printed(block.printed, capsys.readouterr().out)


def test_first_example_is_complete(tmp_path: Path) -> None:
    # In an interpreter and a folder of its own, without anything that is not in the block.
    script = tmp_path / "first.py"
    script.write_text(PYTHON[0].code)
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    environment.pop("OPENAI_API_KEY", None)

    ran = subprocess.run(
        [sys.executable, str(script)],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert ran.returncode == 0, ran.stderr
    # A server of the MCP SDK shows the program's log from INFO on.
    for word in ("WARNING", "ERROR", "Traceback"):
        assert word not in ran.stderr
    assert_printed(PYTHON[0].printed, ran.stdout)
    assert '"structuredContent":{"result":8}' in ran.stdout


def test_first_example_is_on_the_first_screen() -> None:
    assert PYTHON[0].line < 25


def test_every_block_says_its_language() -> None:
    assert {block.language for block in BLOCKS} == {"python", "yaml", "shell"}


def test_yaml_blocks_are_used_by_python_blocks() -> None:
    names = [block.options["file"] for block in BLOCKS if block.language == "yaml"]
    assert names
    assert all(any(name in block.code for block in PYTHON) for name in names)


def test_links_lead_somewhere() -> None:
    headings = [line.lstrip("# ") for line in README.splitlines() if re.match(r"##+ ", line)]
    anchors = {"#" + re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
    prose = re.sub(r"^```.*?^```$", "", README, flags=re.MULTILINE | re.DOTALL)
    targets = [target for target in re.findall(r"\]\(([^)\s]+)\)", prose) if not target.startswith("http")]
    missing = [target for target in targets if target not in anchors and not (ROOT / target).exists()]
    assert missing == []


def test_every_example_is_listed() -> None:
    examples = {path.name for path in (ROOT / "examples").glob("*.py")} - {"scripted_chat.py"}
    assert examples == set(re.findall(r"\]\(examples/(\w+\.py)\)", README))


def test_make_targets_and_extras_exist() -> None:
    makefile = (ROOT / "Makefile").read_text()
    shell = "".join(block.code for block in BLOCKS if block.language == "shell")
    targets = {target for line in re.findall(r"^make ([a-z ]+)", shell, re.MULTILINE) for target in line.split()}
    assert targets
    assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert set(re.findall(r"mcp-haystack\[(\w+)\]", README)) <= set(project["optional-dependencies"])
