# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The commands that use servers, and their exit codes, in scripts and pipes.
"""

import io
import json
import os
import shlex
import sys
from pathlib import Path
from typing import Any

import pytest

from haystack_integrations.tools.mcp.cli.__main__ import main
from haystack_integrations.tools.mcp.cli.app import _COMMANDS
from haystack_integrations.tools.mcp.cli.targets import ServerOptions, server_of
from haystack_integrations.tools.mcp.transports.server_infos import StdioServerInfo
from tests.cli.conftest import Run, servers_file
from tests.conftest import HttpServerFactory, StdioServerFactory
from tests.servers import inprocess
from tests.support.prepared import prepared_python
from tests.support.processes import StdioServer, run_to_end
from tests.support.rows import rows
from tests.support.terminal import COMMAND, LIMIT, environment, in_a_terminal

ROOT = Path(__file__).parents[2]
IN_PROCESS = "tests.servers.inprocess:server"


@pytest.fixture
def plain(stdio_server: StdioServerFactory) -> str:
    server: StdioServer = stdio_server("--token", "a-token-of-somebody")
    return shlex.join([server.command, *server.args])


def server_file(folder: Path, name: str, *lines: str, **options: str) -> str:
    """
    Write a server of the SDK with the given lines, such as tools, to a file, and return its target.
    """
    head = ["from mcp.server import MCPServer", f"server = MCPServer({name!r}, **{options}, log_level='WARNING')"]
    (folder / f"{name}.py").write_text("\n".join([*head, *lines]))
    return f"{folder / name}.py:server"


def test_scripts_get_the_objects_of_the_protocol(run: Run, plain: str) -> None:
    found = json.loads(run("list", IN_PROCESS, "--resources", "--prompts", "--json").screen)
    assert (found["tools"][0]["name"], found["tools"][0]["inputSchema"]["required"]) == ("add", ["a", "b"])
    assert found["resources"][0]["uri"] == "memo://hello"
    assert found["resourceTemplates"][0]["uriTemplate"] == "memo://slow/{seconds}"
    assert found["prompts"][0]["name"] == "greet"
    called = run("call", plain, "add", "a=5", "b=3", "--json")
    assert (called.code, called.errors) == (0, "")
    assert json.loads(called.screen)["structuredContent"] == {"result": 8}
    assert json.loads(run("call", IN_PROCESS, "structured_only").screen) == {"answer": 42}
    report = json.loads(run("inspect", plain, "--json").screen)
    assert (report["server"]["name"], report["protocolVersion"]) == ("counter", "2025-11-25")
    assert "a-token-of-somebody" not in str(report)


def test_text_in_a_pipe_is_unchanged_and_json_is_safe_to_show(run: Run, plain: str) -> None:
    text = "\x1b[1m\x7f\x9b2J\u202e\u00e4"
    assert run("call", plain, "echo", f"text={text}").screen == f"{text}\n"
    screen = run("call", plain, "echo", f"text={text}", "--json").screen
    assert "\\u001b[1m\\u007f\\u009b2J\\u202e\u00e4" in screen
    assert json.loads(screen)["content"][0]["text"] == text


@rows(
    ("words", "stdin"),
    (["--input", "-"], '{"a": 5, "b": 3}'),
    (["--input", '{"a": 5, "b": 100}', "b=3"], ""),
    (["a:=5", "b@-"], "3"),
    (["a=5", "b=3"], None),  # without stdin
)
def test_arguments_are_given_in_many_ways(run: Run, words: list[str], stdin: str | None) -> None:
    assert run("call", IN_PROCESS, "add", *words, stdin=stdin).screen == "8\n"


@rows(
    ("words", "code", "told"),
    ([], 0, ""),
    (["--version"], 0, ""),
    (["lst"], 2, 'Did you mean "list"'),
    (["list", "uvx", "mcp-server-time"], 2, 'whole command in quotes: mcp-haystack list "uvx \u2026"'),
    (["list", ""], 2, "The target is empty"),
    (["call", "python", "server.py", "add"], 2, "Put the whole command in quotes, with its arguments"),
    (["list", "nowhere"], 2, "is neither a script nor a configuration file, nor a command on the PATH, nor"),
    (["list", "nowhere.json"], 2, "There is no file nowhere.json"),
    (["list", "http://127.0.0.1:9/mcp", "--token-env", "NOT_SET_ANYWHERE"], 2, "not set: NOT_SET_ANYWHERE"),
    (
        ["list", "http://127.0.0.1:9/mcp", "--token-env", "EMPTY_TOKEN"],
        2,
        "variable EMPTY_TOKEN, which",
    ),
    (["list", IN_PROCESS, "--header", "X-Tenant: acme"], 2, "are for servers with a URL"),
    (["list", IN_PROCESS, "--timeout", "0"], 2, "--timeout"),
    (["list", "http://127.0.0.1:9/mcp"], 3, "nothing listens at 127.0.0.1:9"),
    (["list", "{folder}/broken.py:server"], 2, "broken.py cannot be run: RuntimeError: out of order"),
    (["call", "tests.servers.asking_server:server", "ask_order"], 1, "there is no terminal to answer in: What do"),
    (["call", IN_PROCESS, "ad", "a=1"], 2, "has no tool 'ad'. Did you mean 'add'?"),
    (["call", IN_PROCESS, "add", "a=1"], 2, "'b' missing. It takes a: integer, b: integer"),
    (["call", IN_PROCESS, "add", "a=1", "bb=2"], 2, "'b' missing; there is no argument 'bb'. It takes a: integer"),
    (["call", IN_PROCESS, "add", "a=1", "b=x-secret"], 2, "'b' must be of type integer"),
    (["call", IN_PROCESS, "add", "--password=x-secret"], 2, "Unknown option: --password.\nArguments are written"),
    (["call", IN_PROCESS, "fail", "message=out of paper"], 1, "out of paper"),
    (["call", IN_PROCESS, "sleep", "seconds=60", "--timeout", "0.5"], 5, "the tool may have run"),
    (["read", IN_PROCESS, "memo://nothing"], 1, "memo://nothing"),
    (["prompt", IN_PROCESS, "greet", "who=me"], 2, "It takes name: string"),
    (["list", "--config", "{folder}/empty.json"], 2, "There is no target, and there are no servers in "),
    (["list", "{folder}/forgets.py"], 3, "does it run a server, as `server.run()` does?"),
    (["list", "{folder}/runs.py:server"], 2, "it reads stdin. Put what runs the server under `if __name__"),
    (["inspect", IN_PROCESS, "--snapshot", "LICENSE/s.json"], 2, "cannot be used: Not a directory"),
)
def test_the_exit_code_shows_what_happened(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: list[str], code: int, told: str
) -> None:
    monkeypatch.setenv("EMPTY_TOKEN", "")
    (tmp_path / "forgets.py").write_text("server = 'is never run'")
    (tmp_path / "broken.py").write_text("raise RuntimeError('out of order')")
    (tmp_path / "empty.json").write_text('{"mcpServers": {}}')
    (tmp_path / "runs.py").write_text("from mcp.server import MCPServer\nMCPServer('runs').run('stdio')")
    words = [word.replace("{folder}", str(tmp_path)) for word in words]
    inprocess.calls.clear()
    ran = run(*words)
    assert (ran.code, told in ran.errors) == (code, True), ran.errors
    assert "x-secret" not in ran.errors
    if code:
        assert ran.screen == ""
    if code == 2:
        assert inprocess.calls == []


@rows(
    ("words", "error"),
    (["inspect"], {"type": "MissingArgumentError", "exitCode": 2}),
    (["list", "http://127.0.0.1:9/mcp"], {"type": "MCPConnectionError", "exitCode": 3}),
    (["call", IN_PROCESS, "fail", "message=out of paper"], {"type": "MCPInvocationError", "exitCode": 1}),
)
def test_scripts_get_an_error_as_json(run: Run, words: list[str], error: dict[str, Any]) -> None:
    ran = run(*words, "--json")
    told = json.loads(ran.screen)["error"]
    assert told.pop("message") in ran.errors
    assert (ran.code, told) == (error["exitCode"], error)


def test_bytes_are_written_unchanged_to_a_pipe_and_never_to_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.chdir(tmp_path)
    image = "@server.resource('file:///logo', mime_type='image/png')"
    server_file(tmp_path, "files", image, "def logo() -> bytes: return b'\\x89PNG\\xff'")
    monkeypatch.setenv("FORCE_COLOR", "1")  # as in CI
    words = ["read", "files.py:server", "file:///logo", "--timeout", "100"]
    assert main(words) == 0
    written = capfdbinary.readouterr()
    assert (written.out, written.err) == (b"\x89PNG\xff", b"")
    shown = in_a_terminal(*words, width=300, cwd=tmp_path).screen
    assert shown == "file:///logo: 5 bytes (image/png). Use --save FILE, or a pipe.\n"


def test_an_argument_that_the_tool_does_not_have_is_reported(run: Run) -> None:
    ran = run("call", IN_PROCESS, "add", "a=5", "b=3", "aa=x-secret")
    assert (ran.code, ran.screen) == (0, "8\n")
    assert ran.errors == "Warning: the tool 'add' has no argument 'aa'. Did you mean 'a'? Available arguments: a, b\n"


def test_resources_and_files_of_a_result_are_saved(run: Run, tmp_path: Path) -> None:
    folder = tmp_path / "new" / "folder"
    for tool, file in (("mixed", "mixed-1.png"), ("resource", "resource-1.txt")):
        ran = run("call", IN_PROCESS, tool, "--save", str(folder))
        assert (ran.code, f"Saved {folder / file}" in ran.errors) == (0, True)
        assert (folder / file).stat().st_size > 0
    assert (folder / "resource-1.txt").read_text() == "a note"
    ran = run("call", IN_PROCESS, "mixed", "--save", "LICENSE/new", "--json")
    assert ran.code == 1
    assert "the files of the result are not saved: LICENSE/new cannot be used: Not a directory" in ran.errors
    assert json.loads(ran.screen)["content"]
    picture = (
        "@server.tool(structured_output=False)\ndef draw() -> ImageContent: return ImageContent(data='a', mime_type='')"
    )
    broken = server_file(tmp_path, "broken", "from mcp.types import ImageContent", picture)
    ran = run("call", broken, "draw", "--save", str(folder))
    assert (ran.code, "the files of the result are not saved" in ran.errors) == (1, True)
    assert run("read", IN_PROCESS, "memo://hello").screen == "hello\n"
    assert run("prompt", IN_PROCESS, "greet", "name=Ada").screen == "user:\nPlease greet Ada.\n"
    ran = run("read", IN_PROCESS, "memo://hello", "--save", str(folder / "hello.txt"), "--json")
    assert json.loads(ran.screen)["contents"][0]["text"] == (folder / "hello.txt").read_text() == "hello"


def test_inspect_shows_the_whole_description_of_a_server(run: Run, tmp_path: Path) -> None:
    shown = run("inspect", IN_PROCESS).screen
    for text in (
        "Counts what it does.",
        "readonly_echo  Read-only echo",
        "Says of itself: only reads, may be repeated",
    ):
        assert text in shown
    hints = "ToolAnnotations(read_only_hint=False, destructive_hint=True, open_world_hint=False)"
    tool = f"@server.tool(annotations={hints}, structured_output=False)\ndef wipe(deeply: bool = False) -> None: ..."
    bare = server_file(tmp_path, "bare", "from mcp.types import ToolAnnotations", tool, title="The Bare One")
    shown = run("inspect", bare).screen
    for text in ("The Bare One", "Says of itself: changes things, may destroy, stays inside", "default: false"):
        assert text in shown
    assert "Skill " in run("inspect", "tests.support.skill_server:server").screen


def test_a_bug_is_shown_with_its_traceback(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> str:
        raise RuntimeError("this is a defect")

    monkeypatch.setattr(os, "getcwd", broken)
    ran = run("list", "nowhere.json")
    assert ran.code == 70
    assert "Traceback" in ran.errors
    assert "Error: this is a defect" in ran.errors


@rows(
    "entry",
    {"headers": {"authorization": "Bearer old", "x-tenant": "old"}},
    {"headers": {"Authorization": "Bearer ${NOT_SET_ANYWHERE}"}},
)
def test_headers_and_tokens_of_the_command_line_replace_those_of_a_file_and_go_only_to_the_server(
    run: Run, shared_http_server: HttpServerFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, entry: Any
) -> None:
    monkeypatch.setenv("A_TOKEN", "hidden-token-value")
    file = servers_file(tmp_path / "mcp.json", {"one": {"url": shared_http_server().url, **entry}})
    words = ["call", file, "header", "--header", "X-Tenant: ${A_TENANT:-acme}", "--verbose"]
    tenant = run(*words, "name=x-tenant", "--token-env", "A_TOKEN")
    assert tenant.screen == "acme\n"
    assert "hidden-token-value" not in tenant.errors
    assert run(*words, "name=authorization", "--token-env", "A_TOKEN").screen == "Bearer hidden-token-value\n"
    assert run(*words, "name=authorization", "--header", "Authorization: Basic x").screen == "Basic x\n"


CALCULATOR = {"command": prepared_python(), "args": [str(ROOT / "examples/servers/calculator.py")]}


def test_names_are_looked_up_in_configuration_files(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    off = {**CALCULATOR, "disabled": True}
    servers_file(Path("mcp.json"), {"maths": CALCULATOR, "off": off, "more": CALCULATOR})
    servers_file(Path("one.json"), {"one": CALCULATOR, "off": off})
    servers_file(Path("spaces.json"), {"cat the maths": CALCULATOR})
    servers_file(Path(".mcp.json"), {"My maths": CALCULATOR})
    for target, *words in (
        ["maths"],
        ["one.json"],
        ["mcp.json:maths"],
        ["maths", "--config", "mcp.json"],
        ["My maths"],
        ["cat the maths", "--config", "spaces.json"],
    ):
        assert run("call", target, "add", "a=5", "b=3", *words).screen == "8.0\n"
    Path(".mcp.json").unlink()
    for target, told in {
        "math": "Did you mean 'maths'? Available servers: maths, off, more.",
        "mcp.json:math": "Did you mean 'maths'?",
        "off": "server 'off' is disabled",
        "mcp.json": "has 2 servers: maths, more. Name one, e.g. mcp.json:maths",
    }.items():
        ran = run("inspect", target)
        assert (ran.code, told in ran.errors) == (2, True)


def test_an_unreadable_home_is_ignored(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / ("x" * 300)))  # an error for all users, even for root
    assert run("list", "http://127.0.0.1:9/mcp").code == 3
    assert "is neither a script nor" in run("list", "nowhere").errors


def test_list_lists_all_servers_of_files_and_skips_unreachable_ones(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    dead = {"command": "no-such-command"}
    unset = {"command": "x", "env": {"KEY": "${NOT_SET_ANYWHERE}"}}
    servers = {"first": CALCULATOR, "dead": dead, "wrong": {"comand": "x"}, "unset": unset, "last": CALCULATOR}
    servers_file(Path("mcp.json"), {**servers, "off": {**CALCULATOR, "disabled": True}})
    servers_file(Path("dead.json"), {"a": dead, "b": {}})
    ran = run("list")
    assert ran.code == 0
    assert [ran.screen.count(text) for text in ("first\n", "last\n", "Divide a by b.", "off")] == [1, 1, 2, 0]
    for told in (
        "dead: Failed to connect to stdio server",
        "wrong: mcp.json: server 'wrong': unknown key 'comand'",
        "unset: mcp.json: server 'unset': these environment variables are not set: NOT_SET_ANYWHERE",
    ):
        assert f"Skipped {told}" in ran.errors
    found = json.loads(run("list", "mcp.json", "--json", "--prompts").screen)["servers"]
    assert list(found) == list(servers)
    assert found["last"]["prompts"] == []
    assert found["dead"]["error"]["type"] == "MCPConnectionError"
    assert run("list", "dead.json").code == 3
    Path(".mcp.json").write_text("{}")
    ran = run("list")
    assert (ran.code, "Skipped a file: .mcp.json has no `mcpServers`" in ran.errors) == (0, True)


def test_a_command_on_windows_keeps_its_backslashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "win32")
    info = server_of('C:\\tools\\tool.exe --root "C:\\my data"', ServerOptions(config=Path("pyproject.toml"))).info
    assert isinstance(info, StdioServerInfo)
    assert (info.command, info.args) == ("C:\\tools\\tool.exe", ["--root", "C:\\my data"])


def test_lines_are_not_wrapped_in_a_pipe(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    words = "word " * 300
    wordy = server_file(tmp_path, "wordy", f"@server.tool(description={words!r})", "def add(a: int) -> int: ...")
    monkeypatch.setenv("COLUMNS", "0")
    assert words.strip() in run("list", wordy).screen
    assert max(map(len, run("--help").screen.splitlines())) <= 120


def test_each_command_has_help(run: Run) -> None:
    for name in _COMMANDS:
        ran = run(name, "--help")
        assert (ran.code, f"Usage: mcp-haystack {name}" in ran.screen) == (0, True), ran.errors


def test_the_version_is_printed_without_importing_haystack() -> None:
    script = "from haystack_integrations.tools.mcp.cli.__main__ import main; import sys; main(['--version'])\n"
    script += "assert not {'haystack', 'cyclopts', 'mcp'} & sys.modules.keys()"
    ran = run_to_end([sys.executable, "-c", script], limit=LIMIT, env=environment(), check=True)
    assert ran.stdout.startswith("mcp-haystack ")


def test_completion_is_installed_for_a_shell(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    file = tmp_path / "completion"
    assert run("--install-completion", "--shell", "bash", "--output", str(file)).code == 0
    script = f"""
        source {file}; COMP_WORDS=(mcp-haystack call READ); COMP_CWORD=2
        _mcp_haystack mcp-haystack READ call; echo "${{COMPREPLY[*]}}"
    """
    assert run_to_end(["bash", "-c", script], limit=LIMIT, cwd=ROOT, env=environment()).stdout == "README.md\n"


def test_prints_of_a_server_in_this_process_are_not_a_result_and_persons_see_content_for_users(
    run: Run, tmp_path: Path
) -> None:
    notes = server_file(
        tmp_path,
        "notes",
        "from mcp.types import Annotations, TextContent",
        "print('imported')",
        "def text(of: str, who: str) -> TextContent:",
        "    return TextContent(text=of, annotations=Annotations(audience=[who]))",
        "@server.tool(structured_output=False)",
        "def note() -> list[TextContent]:",
        "    print('called')",
        "    return [text('for you', 'user'), text('for a model', 'assistant')]",
    )
    ran = run("call", notes, "note")
    assert ran.screen == "for you\nfor a model\n"
    assert "imported" in ran.errors
    assert "called" in ran.errors


# A new interpreter, because of its output at the end, and forked ones.
HELP = f"{shlex.join(COMMAND)} --help"
BIG = f"python -m haystack_integrations.tools.mcp.cli call {IN_PROCESS} big size=1000000"


@pytest.mark.skipif(sys.platform != "linux", reason="needs /dev/full")
@rows(
    ("script", "code", "stdout", "stderr"),
    (f"{BIG} | head -c 10", 0, "x" * 10, ""),
    (f"exec 3> >(true); wait $!; {HELP} >&3", 141, "", ""),
    (f"{BIG} >/dev/full", 1, "", "Error: [Errno 28] No space left on device\n"),
)
def test_a_stdout_that_cannot_be_written_to_is_not_shown_as_a_bug(
    script: str, code: int, stdout: str, stderr: str
) -> None:
    ran = run_to_end(["bash", "-c", script], limit=LIMIT, cwd=ROOT, env=environment())
    assert (ran.returncode, ran.stdout, ran.stderr) == (code, stdout, stderr)


@pytest.mark.parametrize(
    ("module", "raises", "code", "told"),
    [
        ("cyclopts", "ModuleNotFoundError('No module', name='cyclopts')", 2, 'pip install "mcp-haystack[cli]"'),
        ("haystack", "KeyboardInterrupt", 130, ""),
        ("haystack", "OSError('Read-only')", 2, "HAYSTACK_TELEMETRY_ENABLED=False"),
    ],
    ids=["without the extra", "Ctrl-C", "read-only home"],
)
def test_a_failure_during_the_import_of_the_command_shows_no_traceback(
    tmp_path: Path, module: str, raises: str, code: int, told: str
) -> None:
    (tmp_path / f"{module}.py").write_text(f"raise {raises}")
    (tmp_path / "sitecustomize.py").write_text(f"import sys; sys.path.insert(0, {str(tmp_path)!r})")
    ran = run_to_end([*COMMAND, "list", "x"], limit=LIMIT, env=environment(PYTHONPATH=f"{tmp_path}:{ROOT / 'src'}"))
    assert (ran.returncode, told in ran.stderr, "Traceback" in ran.stderr) == (code, True, False)


def test_json_output_is_valid_in_any_encoding(monkeypatch: pytest.MonkeyPatch) -> None:
    written = io.BytesIO()
    monkeypatch.chdir(ROOT)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="cp1252"))
    assert main(["read", "examples/servers/notes.py:server", "notes://days/\U0001f600", "--json"]) == 0
    assert json.loads(written.getvalue())["contents"][0]["text"].startswith("# \U0001f600")
