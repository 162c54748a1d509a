# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
README.md and docs/ are correct: their blocks run with real servers, and their links work.

The blocks of a guide run in order and in one namespace, like the cells of a notebook; each block of the README runs on
its own. A block that needs OpenAI talks to a stand-in on this machine: Haystack's chat generator is the real one, and
only the model is missing.
"""

import ast
import asyncio
import importlib
import importlib.metadata
import inspect
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import sysconfig
import types
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest

from examples.servers.running import calculator_over
from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo
from haystack_integrations.tools.mcp.transports import shorthand
from tests.support.majors import HAYSTACK, on_one_major
from tests.support.openai_stand_in import OpenAIStandIn
from tests.support.pages import BLOCKS, NOT_IN_THE_TEST_ENVIRONMENT, PAGES, README, ROOT, Block, Page
from tests.support.prepared import prepared_python
from tests.support.processes import end, leader, run_to_end
from tests.support.waiting import LIMIT, wait_until

PYTHON = [block for block in BLOCKS if block.language == "python"]
SHELL = [block for block in BLOCKS if block.language == "shell"]
WITH_CONSOLES = [page for page in PAGES if any(block.language == "console" for block in page.blocks)]
INSTALL = README.blocks[0]

# URLs in the pages, and the transport of the server that really runs there.
URLS = {"http://127.0.0.1:8000/mcp": "http", "http://127.0.0.1:8001/sse": "sse"}

# Requests to the servers of pages, and a key and value of their answer.
ANSWERS = {"docs/operations.md": ("/add?a=5&b=3", "sum", 8)}

SERVERS = [
    (block, command)
    for block in SHELL
    if block.runs_until_stopped and not block.needs & NOT_IN_THE_TEST_ENVIRONMENT
    for command in block.commands
]


def block_id(value: Any) -> str:
    return value.id if isinstance(value, Block) else value.name if isinstance(value, Page) else value[:40]


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """
    A folder like that of a reader: it has `examples`, and `python` is this Python with this package.
    """
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    # Programs are forked, because starting an interpreter with the package takes two seconds.
    programs = tmp_path / "bin"
    programs.mkdir()
    modules = {
        "python": "",
        "uvicorn": "-m uvicorn",
        "gunicorn": "-m gunicorn",
        "mcp-haystack": "-m haystack_integrations.tools.mcp.cli",
    }
    for program, module in modules.items():
        (programs / program).write_text(f'#!/bin/sh\nexec "{prepared_python(forks=True)}" {module} "$@"\n')
        (programs / program).chmod(0o755)
    path = [str(programs), str(Path(sys.executable).parent), os.environ["PATH"]]
    monkeypatch.setenv("PATH", os.pathsep.join(path))
    monkeypatch.setattr(sys, "executable", str(programs / "python"))
    monkeypatch.setitem(shorthand._INTERPRETERS, ".py", sys.executable)
    python_path = [str(ROOT / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(python_path))
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    if not importlib.metadata.entry_points(group="pytest11", name="mcp_haystack"):  # older than the plugin
        monkeypatch.setenv("PYTEST_PLUGINS", "haystack_integrations.tools.mcp.pytest_plugin")
    yield tmp_path
    for name, module in list(sys.modules.items()):
        if str(getattr(module, "__file__", None)).startswith(str(tmp_path)):
            del sys.modules[name]


def assert_printed(expected: list[str], output: str) -> None:
    lines = iter(output.splitlines())
    for line in expected:
        assert line in lines, f"{line!r} is missing, or out of order, in:\n{output}"


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.cells and (HAYSTACK == "Haystack 3" or page.tells_majors_apart)],
    ids=block_id,
)
def test_the_python_blocks_of_a_page_run_and_print_what_they_say(page, checkout, monkeypatch, capsys):
    page.save_files(checkout)
    module = types.ModuleType("page")
    monkeypatch.setitem(sys.modules, "page", module)
    cells = [cell for cell in page.cells if cell.runs_here]

    async def run_in_order(stand_in: OpenAIStandIn, urls: dict[str, str]) -> None:
        for cell in cells:
            stand_in.calls, stand_in.results = cell.calls, []
            if page is README:
                module.__dict__.clear()
            running = eval(cell.compile(urls), module.__dict__)  # noqa: S307
            if running is not None:
                await running
            assert len(stand_in.results) == len(cell.calls)
            assert "Failed" not in "".join(stand_in.results)
            assert_printed(cell.printed, capsys.readouterr().out)

    with OpenAIStandIn([]) as stand_in, ExitStack() as servers:
        if any("OPENAI_API_KEY" in block.needs for block in page.blocks):
            for name, value in stand_in.environment.items():
                monkeypatch.setenv(name, value)
        shown = {url for cell in cells for url in URLS if url in cell.code}
        running = run_in_order(stand_in, {url: servers.enter_context(calculator_over(URLS[url])) for url in shown})
        if any(cell.awaits for cell in cells):
            asyncio.run(running)
        else:
            # No event loop may run, because a block may use `asyncio.run`.
            with pytest.raises(StopIteration):
                running.send(None)


@on_one_major
def test_the_json_to_paste_from_the_readme_starts_its_server(checkout: Path) -> None:
    README.save_files(checkout)
    pasted = re.findall(r"^```json\n(.*?)^```$", README.sections["Serve what you built"], re.MULTILINE | re.DOTALL)
    assert len(pasted) == 2
    for text in pasted:
        [servers] = json.loads(text).values()
        command, [script] = servers["tea"]["command"], servers["tea"]["args"]
        assert command.endswith("python")
        server = StdioServerInfo(sys.executable, [Path(script).name], env={"PYTHONPATH": os.environ["PYTHONPATH"]})
        with MCPToolset(server) as toolset:
            assert "Oolong for 3 minutes" in toolset["brew"].invoke(kind="Oolong")


def test_every_python_block_compiles_and_its_imports_exist() -> None:
    missing = []
    for block in PYTHON:
        assert block.compile()
        for statement in ast.walk(ast.parse(block.code)):
            module = statement.module if isinstance(statement, ast.ImportFrom) else None
            is_for_one_haystack = any(need.startswith("Haystack") for need in block.needs)
            if module and module.startswith("haystack") and not is_for_one_haystack:
                names = [alias.name for alias in statement.names]
                missing += [(block.id, name) for name in names if not hasattr(importlib.import_module(module), name)]
    assert not missing
    # A script cannot use `await` outside functions.
    in_one_file = [page for page in PAGES if " in one file" in page.prose]
    assert in_one_file
    assert not [cell.id for page in in_one_file for cell in page.cells if cell.awaits]


@on_one_major
@pytest.mark.parametrize("block", SHELL, ids=block_id)
def test_a_shell_block_is_correct(block: Block, checkout: Path) -> None:
    run_to_end(["bash", "-n"], limit=LIMIT, text=block.code, check=True)
    if all(command.startswith("make ") for command in block.commands):
        makefile = (ROOT / "Makefile").read_text()
        targets = [word for command in block.commands for word in command.split()[1:] if "=" not in word]
        assert all(re.search(rf"^{target}:", makefile, re.MULTILINE) for target in targets)
    elif not (block is INSTALL or block.runs_until_stopped or block.needs & NOT_IN_THE_TEST_ENVIRONMENT):
        next(page for page in PAGES if page.name == block.page).save_files(checkout)
        ran = run_to_end(["bash", "-euc", block.code], limit=60, cwd=checkout, check=True)
        assert_printed(block.printed, ran.stdout)


@on_one_major
@pytest.mark.parametrize("page", WITH_CONSOLES, ids=block_id)
def test_a_console_block_shows_the_output_of_its_commands(
    page: Page, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    page.save_files(checkout)
    monkeypatch.setenv("COLUMNS", "100")
    said = [step for block in page.blocks if block.language == "console" for step in block.dialogue]
    # A control character separates the outputs of the commands; the next command may read the exit code.
    lines = "".join(f"{command}\n(code=$?; printf '\\036'; exit $code)\n" for command, _ in said)
    ran = run_to_end(["bash", "-c", f"exec 2>&1\n{lines}"], limit=250, cwd=checkout)
    for (command, expected), printed in zip(said, ran.stdout.split("\036"), strict=False):
        shown = "\n".join(line.rstrip() for line in printed.splitlines())
        pattern = ".*".join(map(re.escape, expected.rstrip("\n").split("…")))
        assert re.fullmatch(pattern, shown), f"$ {command}\n{printed}"
    assert ran.stdout.count("\036") == len(said)


@on_one_major
@pytest.mark.skipif(sys.platform == "win32", reason="Ctrl+C is a signal here")
@pytest.mark.parametrize(("block", "command"), SERVERS, ids=block_id)
def test_a_server_of_a_guide_starts_answers_and_stops(block, command, checkout, monkeypatch):
    next(page for page in PAGES if page.name == block.page).save_files(checkout)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    log = checkout / "log.txt"
    monkeypatch.setenv("OPENAI_API_KEY", "not-a-key")  # no request to a model is sent here
    with log.open("w") as output:
        words = ["bash", "-c", "exec " + re.sub(r"\b800\d\b", str(port), command)]
        server = leader(words, cwd=checkout, stdin=subprocess.DEVNULL, stdout=output, stderr=output)
    try:

        def answers() -> bool:
            assert server.poll() is None, log.read_text()
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=LIMIT).close()
            except urllib.error.HTTPError as error:
                error.close()
            except OSError:
                return False
            return True

        wait_until(answers, log.read_text)
        if block.page in ANSWERS:
            path, key, value = ANSWERS[block.page]
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=LIMIT) as response:
                assert json.load(response)[key] == value
        server.send_signal(signal.SIGINT)
        server.wait(LIMIT)
    finally:
        end(server)


@on_one_major
@pytest.mark.integration
def test_the_readme_installs_the_package_and_its_first_example_works(tmp_path: Path) -> None:
    # Work like a newcomer: a fresh copy of the checkout, a fresh environment, and the unchanged blocks. Dependencies
    # are already installed, because pip takes 20 s for that. `make demo` runs with only the dependencies.
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, tmp_path)
    shutil.copytree(ROOT / "src", tmp_path / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    example = README.cells[0]
    (tmp_path / "first.py").write_text(example.code)
    inherited = {"HOME", "PATH", "LANG", "TMPDIR", "SSL_CERT_FILE"}
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in inherited or name.upper().endswith("_PROXY") or name.startswith("PIP_")
    }
    made, *install = INSTALL.code.splitlines()
    required = f"echo {sysconfig.get_path('purelib')} > $(echo .venv/lib/python*/site-packages)/required.pth"
    where = "python -c 'import haystack_integrations.tools.mcp as package; print(package.__file__)'"
    script = "\n".join([made, required, *install, "python first.py", f"cd .venv; {where}"])
    ran = run_to_end(["bash", "-euc", script], limit=250, cwd=tmp_path, env=environment, check=True)
    assert_printed(example.printed, ran.stdout)
    assert ran.stdout.splitlines()[-1].startswith(str(tmp_path / ".venv"))


def test_every_file_is_used_by_another_block_of_its_page() -> None:
    unused = []
    for block in (block for block in BLOCKS if block.file or block.language == "yaml"):
        assert block.file
        name = Path(block.file).stem if block.language == "python" else block.file
        others = [other.code for other in BLOCKS if other.page == block.page and other != block]
        if not any(re.search(rf"\b{name}\b", code) for code in others):
            unused += [] if block.needs & NOT_IN_THE_TEST_ENVIRONMENT else [block.id]
    assert not unused


def test_links_lead_to_existing_pages_and_sections() -> None:
    missing = []
    for page in (*PAGES, Page("CHANGELOG.md")):
        for target in re.findall(r"\]\(([^)\s]+)\)", page.prose):
            path, _, anchor = target.partition("#")
            if not target.startswith("https://"):
                linked = ((ROOT / page.name).parent / path).resolve() if path else ROOT / page.name
                if not linked.exists() or (anchor and anchor not in Page(str(linked.relative_to(ROOT))).anchors):
                    missing.append((page.name, target))
    assert missing == []


def test_the_readme_and_the_site_link_to_every_page_and_every_example_is_listed() -> None:
    pages = {page.name for page in PAGES} - {README.name}
    assert pages == set(re.findall(r"\]\(((?:docs/[\w-]+|CONTRIBUTING)\.md)\)", README.text))
    site = re.findall(r'"([\w-]+\.md)"', (ROOT / "zensical.toml").read_text())
    assert sorted(f"docs/{name}" for name in site) == sorted(pages - {"CONTRIBUTING.md"})
    examples = {path.name for path in (ROOT / "examples").glob("*.py")} - {"scripted_chat.py"}
    assert examples == set(re.findall(r"\]\((\w+\.py)\)", (ROOT / "examples/README.md").read_text()))


# The reference lists modules, with all their public names, and single classes.
SERVER_INFOS = "src/haystack_integrations/tools/mcp/transports/server_infos.py"
IN_REFERENCE = re.findall(r"^::: (\S+)$", (ROOT / "docs/reference.md").read_text(), re.MULTILINE)


def test_the_reference_has_every_public_name() -> None:
    public = {}
    for path in (ROOT / "src").rglob("*.py"):
        if listed := re.search(r"^__all__ = (\[.*?\])", path.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL):
            module = (
                path.relative_to(ROOT / "src").with_suffix("").as_posix().replace("/", ".").removesuffix(".__init__")
            )
            public[module] = set(ast.literal_eval(listed[1]))
    classes = {f"{module}.{name}" for module, names in public.items() for name in names}
    shared = re.findall(r"documented by `(\w+)`", (ROOT / SERVER_INFOS).read_text(encoding="utf-8"))
    assert {shown.rpartition(".")[2] for shown in set(IN_REFERENCE) - set(public) - classes} == set(shared)
    in_reference = {name for shown in IN_REFERENCE for name in public.get(shown, {shown.rpartition(".")[2]})}
    del public["haystack_integrations.tools.mcp.mcp_toolset"]  # a path in stored pipelines
    assert {module: names - in_reference for module, names in public.items() if names - in_reference} == {}


def test_every_name_in_the_migration_guide_exists() -> None:
    rows = re.findall(r"^\| `.+? \| (`.+) \|$", (ROOT / "docs/migration.md").read_text(), re.MULTILINE)
    named = [name for row in rows for name in re.findall(r"`([\w.]+)`", row)]
    assert named

    def has(owner: Any, name: str) -> bool:
        return hasattr(owner, name) or name in inspect.signature(owner).parameters

    things = [resolve_name(shown) for shown in IN_REFERENCE]
    public = {name: getattr(thing, name) for thing in things for name in getattr(thing, "__all__", ())}

    def exists(name: str) -> bool:
        first, _, attribute = name.partition(".")
        return first in public and (not attribute or has(public[first], attribute))

    assert [name for name in named if not exists(name)] == []
