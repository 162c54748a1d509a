# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Results against the output schemas of their tools: none stops another session, or keeps its caller beyond the timeout.
"""

import threading
from collections.abc import Iterator
from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPInvocationError,
)
from haystack_integrations.tools.mcp.convert.tool_schemas import OutputSchema, Verdict
from haystack_integrations.tools.mcp.errors import MCPTimeoutError
from haystack_integrations.tools.mcp.protocol import listed_tools
from tests.support.background import in_thread, text, together
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.hostile_schemas import HOSTILE
from tests.support.waiting import LIMIT, wait_until

INTEGER = {"type": "object", "properties": {"x": {"type": "integer"}}}


def server_with(schema: dict[str, Any] | None, content: Any, *names: str) -> ForeignServer:
    server = ForeignServer(*(definition(name, output_schema=schema) for name in names or ("search",)))
    server.answer = text_result("found", structured_content=content)
    return server


def given_up(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for text in map(str, (record.getMessage() for record in caplog.records)) if "no longer" in text]


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Lets the loop finish every validation, so that a busy machine makes no difference.
    """
    monkeypatch.setattr(listed_tools, "_SECONDS_IN_LOOP", LIMIT)


@pytest.mark.usefixtures("unhurried")
def test_a_violation_is_an_error_that_quotes_nothing():
    server = server_with(INTEGER, {"x": "a secret"})
    with MCPConnection(server.info) as connection:
        with pytest.raises(MCPInvocationError, match=r"output schema \(at \$\.x: 'type' is violated\)") as failure:
            connection.call_tool("search")
        assert "secret" not in str(failure.value)
        server.answer = text_result("found", structured_content={"x": 1})
        assert text(connection.call_tool("search")) == "found"
        server.answer = text_result("found")
        with pytest.raises(MCPInvocationError, match="did not return structured content"):
            connection.call_tool("search")


@pytest.mark.usefixtures("unhurried")
@pytest.mark.parametrize(
    ("schema", "reason"),
    [
        ({"type": "objekt"}, "the schema is invalid"),
        ({"$ref": "#/$defs/missing"}, "the schema cannot be used"),
        ({"$ref": "http://127.0.0.1:9/schema.json"}, "the schema cannot be used"),
        ({"allOf": [{"$ref": "#"}]}, "cannot be used (RecursionError)"),
    ],
)
def test_a_schema_that_is_none_lets_results_pass_with_one_warning(caplog, schema, reason):
    server = server_with(schema, {"x": 1})
    with MCPConnection(server.info) as connection:
        for _ in range(3):
            assert text(connection.call_tool("search")) == "found"
        connection.list_tools()
        assert text(connection.call_tool("search")) == "found"
    assert len(given_up(caplog)) == 1
    assert "tool 'search' of in-process server 'foreign'" in given_up(caplog)[0]
    assert reason in given_up(caplog)[0]


@pytest.mark.usefixtures("unhurried")
def test_a_listing_that_changes_a_schema_changes_what_is_validated():
    server = server_with(INTEGER, {"x": "text"})
    with MCPConnection(server.info) as connection:
        with pytest.raises(MCPInvocationError, match="output schema"):
            connection.call_tool("search")
        server.tools = [definition("search")]
        connection.list_tools()
        assert text(connection.call_tool("search")) == "found"


class Threads:
    """
    Validations that the loop does not finish, and a thread only when the test says so.
    """

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.may_end = threading.Event()
        self.started: list[OutputSchema] = []
        self.verdict = Verdict()
        validate = self._validate

        def validate_schema(schema: OutputSchema, _value: Any, seconds: float) -> Verdict:
            return validate(schema, seconds)

        monkeypatch.setattr(OutputSchema, "validate", validate_schema)

    def _validate(self, schema: OutputSchema, seconds: float) -> Verdict:
        if seconds != listed_tools._SECONDS_IN_THREAD:
            return Verdict(cut_off=True)
        self.started.append(schema)
        assert self.may_end.wait(LIMIT)
        return self.verdict


@pytest.fixture
def threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[Threads]:
    threads = Threads(monkeypatch)
    yield threads
    threads.may_end.set()


def test_other_calls_go_on_while_a_result_is_validated_in_a_thread(threads):
    hostile, other = server_with(INTEGER, {"x": 1}), server_with(None, {"x": 1})
    with MCPConnection(hostile.info) as held, MCPConnection(other.info) as free:
        call = in_thread(held.call_tool, "search")
        wait_until(lambda: len(threads.started) == 1, "the thread")
        for _ in range(20):
            assert text(free.call_tool("search")) == "found"
        assert not call.done()
        threads.verdict = Verdict(violation="late, but found")
        threads.may_end.set()
        with pytest.raises(MCPInvocationError, match="late, but found"):
            call.result(LIMIT)


def test_the_timeout_of_a_call_holds_while_its_result_is_validated(threads):
    with MCPConnection(server_with(INTEGER, {"x": 1}).info, invocation_timeout=2) as connection:
        with pytest.raises(MCPTimeoutError):
            connection.call_tool("search")
        assert len(threads.started) == 1


def test_a_session_validates_in_one_thread(threads):
    with MCPConnection(server_with(INTEGER, {"x": 1}).info) as connection:
        calls = together([lambda: connection.call_tool("search")] * 3)
        wait_until(lambda: len(threads.started) == 1, "the thread")
        threads.may_end.set()
        assert [text(call.result(LIMIT)) for call in calls] == ["found"] * 3


def test_without_a_thread_to_validate_it_in_a_result_passes(monkeypatch):
    def start_no_thread(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(listed_tools, "_SECONDS_IN_LOOP", 0.0)
    monkeypatch.setattr(listed_tools, "start_in_thread", start_no_thread)
    server = server_with(INTEGER, {"x": 1})
    with MCPConnection(server.info) as connection:
        assert text(connection.call_tool("search")) == "found"
    assert len(server.calls) == 1


def test_after_it_was_cut_off_in_a_thread_a_tool_is_given_up_with_one_warning(threads, caplog):
    threads.verdict = Verdict(cut_off=True)
    threads.may_end.set()
    with MCPConnection(server_with(INTEGER, {"x": 1}, "slow", "other").info) as connection:
        for _ in range(3):
            assert text(connection.call_tool("slow")) == "found"
        assert len(threads.started) == 1
        assert len(given_up(caplog)) == 1
        assert "tool 'slow'" in given_up(caplog)[0]
        assert "takes longer than 1 s" in given_up(caplog)[0]
        connection.call_tool("other")
        assert len(threads.started) == 2


@pytest.mark.parametrize(
    "name",
    [
        "alternatives",
        "recursion",
    ],
)
@pytest.mark.parametrize("start", ["stdio", "http"], indirect=True)
def test_a_hostile_result_passes_and_calls_of_other_sessions_go_on_meanwhile(start, name):
    schema, value = HOSTILE[name]
    tool = {"name": "hello", "inputSchema": {"type": "object"}, "outputSchema": schema}
    hello = {"content": [{"type": "text", "text": "hello"}], "structuredContent": value}
    info = start({"tools": [tool]}, hello)
    with MCPConnection(info) as held, MCPConnection(server_with(INTEGER, {"x": 1}).info) as free:
        held.open()
        free.open()
        calls = together([lambda: held.call_tool("hello")] * 3)
        while not all(call.done() for call in calls):
            assert text(free.call_tool("search")) == "found"
        assert [text(call.result(LIMIT)) for call in calls] == ["hello"] * 3
