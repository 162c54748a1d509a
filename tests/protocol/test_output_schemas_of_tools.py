# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Results against the output schemas of their tools: none stops another session, or keeps its caller beyond the timeout.
"""

from typing import Any

import pytest

from haystack_integrations.tools.mcp import (
    MCPConnection,
    MCPInvocationError,
)
from haystack_integrations.tools.mcp.errors import MCPTimeoutError
from haystack_integrations.tools.mcp.protocol import listed_tools
from tests.support.background import text, together
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.hostile_schemas import HOSTILE
from tests.support.rows import rows
from tests.support.waiting import LIMIT

INTEGER = {"type": "object", "properties": {"x": {"type": "integer"}}}
OLDEST = "http://json-schema.org/draft-04/schema#"


def server_with(schema: dict[str, Any], content: Any) -> ForeignServer:
    server = ForeignServer(definition("search", output_schema=schema))
    server.answer = text_result("found", structured_content=content)
    return server


def given_up(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [text for record in caplog.records if "no longer" in (text := record.getMessage())]


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Lets the loop finish every validation, so that a busy machine makes no difference.
    """
    monkeypatch.setattr(listed_tools, "_SECONDS_IN_LOOP", LIMIT)


@pytest.mark.parametrize("seconds_in_loop", [LIMIT, 0.0])
def test_a_violation_is_an_error_that_quotes_nothing_wherever_it_is_found(monkeypatch, seconds_in_loop):
    monkeypatch.setattr(listed_tools, "_SECONDS_IN_LOOP", seconds_in_loop)
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
@rows(
    ("schema", "reason"),
    [
        ({"type": "objekt"}, "the schema is invalid"),
        ({"properties": {"x": {"required": "x"}}}, "invalid (at $.properties.x.required: 'type' is violated)"),
        ({"$schema": OLDEST, "exclusiveMinimum": 5}, "invalid"),
        ({"$ref": "#/$defs/missing"}, "the schema cannot be used"),
        ({"allOf": [{"$ref": "#"}]}, "cannot be used (RecursionError)"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$dynamicRef": "#/$defs/a"}}}, "(RecursionError)"),
    ],
)
def test_a_schema_that_is_none_lets_results_pass_with_one_warning(caplog, schema, reason):
    caplog.clear()
    with MCPConnection(server_with(schema, {"x": 1}).info) as connection:
        for _ in range(2):
            assert text(connection.call_tool("search")) == "found"
            connection.list_tools()
    [warning] = given_up(caplog)
    assert "tool 'search' of in-process server 'foreign'" in warning
    assert reason in warning


@pytest.mark.usefixtures("unhurried")
def test_a_listing_that_changes_a_schema_changes_what_is_validated():
    server = server_with(INTEGER, {"x": "text"})
    with MCPConnection(server.info) as connection:
        with pytest.raises(MCPInvocationError, match="output schema"):
            connection.call_tool("search")
        server.tools = [definition("search")]
        connection.list_tools()
        assert text(connection.call_tool("search")) == "found"


def test_without_a_thread_to_validate_it_in_a_result_passes(monkeypatch):
    def start_no_thread(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(listed_tools, "_SECONDS_IN_LOOP", 0.0)
    monkeypatch.setattr(listed_tools, "start_in_thread", start_no_thread)
    server = server_with(INTEGER, {"x": 1})
    with MCPConnection(server.info) as connection:
        assert text(connection.call_tool("search")) == "found"
    assert len(server.calls) == 1


def test_the_timeout_of_a_call_holds_while_its_result_is_validated(monkeypatch):
    monkeypatch.setattr(listed_tools, "_SECONDS_IN_THREAD", 3.0)
    schema, value = HOSTILE["recursion"]
    with MCPConnection(server_with(schema, value).info, invocation_timeout=1) as connection:
        with pytest.raises(MCPTimeoutError):
            connection.call_tool("search")


@pytest.mark.parametrize("name", ["alternatives", "recursion"])
@pytest.mark.parametrize("start", ["stdio", "http"], indirect=True)
def test_a_hostile_result_passes_with_one_warning_and_calls_of_other_sessions_go_on_meanwhile(start, name, caplog):
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
    [warning] = given_up(caplog)
    assert "tool 'hello'" in warning and "takes longer than 1 s" in warning
