# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A recorded run is replayed in a test without a server and without a model; differences are errors that name them.
"""

import errno
import json
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any

import pytest
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret
from mcp import MCPError, types
from mcp.server.lowlevel import Server

from haystack_integrations.tools.mcp import InProcessServerInfo, MCPTool, MCPToolset, StdioServerInfo, ToolOptions
from haystack_integrations.tools.mcp.connection.requests import ToolListing
from haystack_integrations.tools.mcp.durable import Cassette, JournaledChatGenerator, RunJournal
from haystack_integrations.tools.mcp.durable.cassette import write_cassette
from haystack_integrations.tools.mcp.errors import MCPInvocationError, MCPRunChangedError, MCPRunError
from tests.durable.conftest import cause_of
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.prepared import prepared_python
from tests.support.processes import run_to_end
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, calls, say

GO = [ChatMessage.from_user("go")]
AMOUNT = {"type": "object", "properties": {"amount": {"type": "integer"}, "token": {"type": "string"}}}
REPLIES = [calls(("pay", {"amount": 1}), ("pay", {"amount": 2})), say("done")]


class Bank(ForeignServer):
    """
    A server that answers with its arguments, including the token.
    """

    def __init__(self) -> None:
        super().__init__(definition("pay", AMOUNT), definition("look", AMOUNT))
        self.refusal: Exception | None = None

    async def _call_tool(self, context: Any, params: Any) -> Any:
        await super()._call_tool(context, params)
        if self.refusal is not None:
            raise self.refusal
        return text_result(f"paid {params.arguments}")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "cassettes" / "case.json"


def texts(tools: Any, replies: list[ChatMessage], question: list[ChatMessage] = GO) -> list[str]:
    agent = Agent(chat_generator=JournaledChatGenerator(ScriptedChatGenerator(replies)), tools=tools)
    messages = agent.run(messages=question)["messages"]
    return [result.result for message in messages for result in message.tool_call_results] + [messages[-1].text]


def recorded(file: Path, **options: Any) -> list[str]:
    with Cassette(file, "once"), MCPToolset(Bank().info, **options) as tools:
        return texts(tools, REPLIES)


def absent(**options: Any) -> MCPToolset:
    return MCPToolset(StdioServerInfo("no-such-program"), **options)


def test_a_recording_is_replayed_without_a_server_and_a_model(file):
    first = recorded(file)
    assert first == ["paid {'amount': 1}", "paid {'amount': 2}", "done"]
    for mode in ("none", "once"):
        with Cassette(file, mode), absent() as tools:
            assert texts(tools, []) == first
            assert sorted(tool.name for tool in tools) == ["look", "pay"]
        with Cassette(file, mode), absent(tool_names=["pay"]) as tools, pytest.raises(Exception) as raised:
            texts(tools, [])
        assert "the tool 'look' is gone" in str(cause_of(raised.value, MCPRunChangedError))


async def test_a_recording_is_also_replayed_in_a_coroutine(file):
    async with Cassette(file, "once"), MCPToolset(Bank().info) as tools:
        first = (await tools["pay"].call_async(amount=1)).text
    async with Cassette(file), absent() as tools:
        assert (await tools["pay"].call_async(amount=1)).text == first
    with Cassette(file):
        tool = MCPTool("pay", StdioServerInfo("no-such-program"))
        assert tool.call(amount=1).text == first


def test_the_instructions_of_a_server_are_replayed_with_its_tools(file):
    server = Server("bank", instructions="Pay at once.", on_list_tools=Bank()._list_tools)
    options = ToolOptions(include_instructions=True)
    for info in (InProcessServerInfo(server), StdioServerInfo("no-such-program")):
        with Cassette(file, "once"), MCPToolset(info, tool_options=options) as tools:
            assert tools.instructions == "Pay at once."
            assert sum("Pay at once." in tool.description for tool in tools) == 1
    # After the connect, the server's own instructions are used.
    tools = MCPToolset(InProcessServerInfo(Server("bank", on_list_tools=Bank()._list_tools)))
    with Cassette(file), tools:
        assert tools.instructions == "Pay at once."
    with tools:
        assert tools.instructions is None


def test_an_exported_run_is_a_cassette_without_well_known_tokens(file, tmp_path):
    journal = RunJournal(f"sqlite:///{tmp_path}/runs.db")
    with pytest.raises(ValueError, match="nothing is recorded of a run 'run'"):
        journal.export(file, "run")
    token = "ghp_" + "a1" * 20
    with MCPToolset(Bank().info) as tools:
        with journal.run("run"):
            first = texts(tools, REPLIES)
            assert token in tools["pay"].call(amount=1, note=token).text
        journal.export(file, "run")
        untold = r"has no tools of .*; it has those of: none\. `RunJournal\.export` writes them with `tools`\. If that"
        with pytest.raises(MCPRunChangedError, match=untold), Cassette(file), absent() as others:
            texts(others, [])
        journal.export(file, "run", tools=tools)
    journal.close()
    assert token not in file.read_text()
    with Cassette(file), absent() as tools:
        assert texts(tools, []) == first


def test_servers_are_found_if_the_checkout_is_in_another_folder(file):
    listings = {
        f"stdio server `/home/me/bin/python /home/me/{name}.py`": ToolListing(tools=[definition(name, AMOUNT)])
        for name in ("pay", "look")
    }
    write_cassette(file, [], listings)
    with Cassette(file):
        for name in ("look", "pay"):
            tools = MCPToolset(StdioServerInfo("/ci/bin/python", [f"/ci/checkout/{name}.py"]))
            tools.warm_up()
            assert [tool.name for tool in tools] == [name]


def test_mode_all_records_again_equal_runs_give_equal_files_and_failed_blocks_write_nothing(file):
    recorded(file)
    before = file.read_text()
    file.unlink()
    recorded(file)
    with pytest.raises(ZeroDivisionError), Cassette(file, "all"), MCPToolset(Bank().info) as tools:
        tools["pay"].call(amount=7)
        1 / 0  # noqa: B018
    assert file.read_text() == before
    with Cassette(file, "all"), MCPToolset(Bank().info) as tools:
        tools["pay"].call(amount=7)
    assert [entry["request"] for entry in json.loads(file.read_text())["entries"]] == [{"arguments": {"amount": 7}}]


def test_a_block_whose_file_cannot_be_written_does_not_affect_the_next_one(file):
    file.mkdir(parents=True)
    cassette = Cassette(file, "all")
    with pytest.raises(OSError), cassette, MCPToolset(Bank().info) as tools:
        tools["pay"].call(amount=7)
    file.rmdir()
    with cassette, MCPToolset(Bank().info) as tools:
        tools["pay"].call(amount=8)
    assert [entry["request"] for entry in json.loads(file.read_text())["entries"]] == [{"arguments": {"amount": 8}}]


def test_a_full_disk_keeps_the_earlier_recording(file, monkeypatch):
    def write_half(path: Path, text: str, **_: Any) -> None:
        path.write_bytes(text[: len(text) // 2].encode())
        raise OSError(errno.ENOSPC, "No space left on device")

    first = recorded(file)
    monkeypatch.setattr(Path, "write_text", write_half)
    with pytest.raises(OSError, match="No space left"), Cassette(file, "all"), MCPToolset(Bank().info) as tools:
        texts(tools, REPLIES)
    with Cassette(file), absent() as tools:
        assert texts(tools, []) == first
    assert list(file.parent.iterdir()) == [file]


def test_a_call_that_did_not_run_is_replayed_as_recorded(file):
    server = Bank()
    server.refusal = MCPError(types.INVALID_PARAMS, "no such account")
    messages = []
    for cassette, toolset in ((Cassette(file, "once"), MCPToolset(server.info)), (Cassette(file), absent())):
        with cassette, toolset as tools, pytest.raises(MCPInvocationError, match="no such account") as raised:
            tools["pay"].call(amount=1)
        messages.append(str(raised.value))
    assert messages[0] == messages[1]


def test_an_error_has_the_nearest_recorded_call_and_its_differences(file):
    recorded(file)
    with Cassette(file), absent() as tools:
        with pytest.raises(MCPRunChangedError) as raised:
            tools["pay"].call(amount=7)
        assert str(raised.value) == (
            f"The cassette {file} cannot be played: it has no such call of 'pay'. The nearest one that is recorded "
            "differs: the step is 0 instead of 1; the argument `amount` is 7 instead of 1. If that is meant, record it "
            "again, in pytest with --mcp-record-mode=all."
        )
        with pytest.raises(Exception) as raised:
            texts(tools, [], [ChatMessage.from_user("something else")])
        changed = str(cause_of(raised.value, MCPRunChangedError))
        assert "request 1 to 'generator' is not the one that is recorded: message 1 (user)" in changed
        generator = JournaledChatGenerator(ScriptedChatGenerator([]), name="writer")
        with pytest.raises(MCPRunChangedError, match=r"no such reply of 'writer'.* instead of 'generator'"):
            generator.run(messages=GO, tools=tools)


def test_declared_secrets_are_not_in_the_file(file):
    bound = {"pay": {"bound_arguments": {"token": Secret.from_token("sk-hidden-4711")}}}
    said = recorded(file, tool_overrides=bound)
    assert "4711" not in file.read_text()
    with Cassette(file), absent(tool_overrides=bound) as tools:
        played = texts(tools, [])
    assert played != said
    assert "***" in played[0]


@rows(
    ("content", "message"),
    (None, r"There is no cassette .*case\.json\. Record it, in pytest with --mcp-record-mode=once"),
    ("{", r"The cassette .*case\.json cannot be read \(JSONDecodeError\)"),
    ('{"format": 9}', "is of format 9; this version reads format 2"),
    ('{"format": 2, "servers": {}, "entries": [{}]}', r"cannot be read \(KeyError\)"),
)
def test_the_error_names_a_file_that_is_not_a_cassette(file, content, message):
    if content is not None:
        file.parent.mkdir(exist_ok=True)
        file.write_text(content)
    with pytest.raises(MCPRunError, match=message), Cassette(file):
        pass
    with pytest.raises(ValueError, match="`mode` must be 'none', 'once' or 'all', got 'new'"):
        Cassette(file, "new")


PAGE = """
import pytest
from haystack_integrations.tools.mcp import MCPToolset
from tests.durable.test_cassette import Bank, absent
import os

def pay(tools):
    with tools:
        return tools["pay"].call(amount=1).text

def test_own(mcp_cassette):
    with mcp_cassette:
        assert pay(MCPToolset(Bank().info) if "SERVER" in os.environ else absent()) == "paid {'amount': 1}"

@pytest.mark.mcp_cassette(file="shared.json")
@pytest.mark.parametrize("n", ["a b", "c/d"])
def test_shared(mcp_cassette, n):
    with mcp_cassette:
        assert pay(MCPToolset(Bank().info) if "SERVER" in os.environ else absent()) == "paid {'amount': 1}"

@pytest.mark.parametrize("amount", [1, 2, 3], ids=["1 + 2?", "1 * 2?", 300 * "x"])
def test_each(mcp_cassette, amount):
    with mcp_cassette, MCPToolset(Bank().info) if "SERVER" in os.environ else absent() as tools:
        assert tools["pay"].call(amount=amount).text

class TestLooks:
    def test_own(self, mcp_cassette):
        with mcp_cassette, MCPToolset(Bank().info) if "SERVER" in os.environ else absent() as tools:
            assert tools["look"].call(amount=2).text == "paid {'amount': 2}"

def test_without_a_block(mcp_cassette):
    pass
"""


def test_the_pytest_plugin_records_and_replays(tmp_path, monkeypatch):
    (tmp_path / "test_page.py").write_text(PAGE)
    (tmp_path / "pytest.ini").write_text("[pytest]\naddopts = --strict-markers\n")
    known = entry_points(group="pytest11", name="mcp_haystack")
    plugin = [] if known else ["-p", "haystack_integrations.tools.mcp.pytest_plugin"]
    monkeypatch.setenv("PYTHONPATH", f"{Path(__file__).parents[2]}:{Path(__file__).parents[2] / 'src'}")

    def tested(*options: str) -> str:
        words = [str(prepared_python(forks=True)), "-m", "pytest", "-q", "-p", "no:cacheprovider", *plugin, *options]
        return run_to_end(words, limit=250, cwd=tmp_path).stdout

    missing = tested()
    assert "7 failed, 1 passed" in missing
    assert "did not enter `with mcp_cassette:`" in missing
    assert "There is no cassette" in missing
    with monkeypatch.context() as patch:
        patch.setenv("SERVER", "1")
        assert "8 passed" in tested("--mcp-record-mode=once")
    written = sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.json"))
    assert sum("test_each" in path for path in written) == 3
    assert [path for path in written if "test_each" not in path] == [
        "cassettes/test_page/TestLooks.test_own.json",
        "cassettes/test_page/test_own.json",
        "shared.json",
    ]
    assert "8 passed" in tested()


def test_the_pytest_plugin_imports_nothing_until_it_is_used():
    code = (
        "import sys, haystack_integrations.tools.mcp.pytest_plugin\n"
        "print({'haystack', 'sqlalchemy', 'mcp', 'pydantic'} & {*sys.modules})"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "set()"
