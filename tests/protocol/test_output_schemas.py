# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Results are validated with output schemas, without blocking other sessions or delaying the caller beyond the timeout.
"""

import socket
from typing import Any

import pytest
from jsonschema.validators import validator_for
from referencing import Registry

from haystack_integrations.tools.mcp import MCPConnection, MCPInvocationError
from haystack_integrations.tools.mcp.errors import MCPTimeoutError
from haystack_integrations.tools.mcp.protocol import listed_tools
from haystack_integrations.tools.mcp.protocol.listed_tools import OutputSchema, Validation
from tests.support.background import text, together
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.hostile_schemas import HOSTILE, nested
from tests.support.rows import rows
from tests.support.waiting import LIMIT

AMPLE = 60.0

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


def verdict(schema: Any, value: Any, seconds: float = AMPLE) -> Validation:
    return OutputSchema(schema).validate(value, seconds)


TEXT, NUMBER = {"type": "string"}, {"type": "integer"}
SCHEMAS: list[dict[str, Any]] = [
    {"anyOf": [TEXT, {"type": "object", "required": ["a"]}]},
    {"oneOf": [NUMBER, {"minimum": 1}]},
    {"not": TEXT},
    {"if": TEXT, "then": {"minLength": 2}, "else": {"type": "object"}},
    {"properties": {"a": {"$ref": "#/definitions/shared"}}, "additionalProperties": NUMBER},
    {"properties": {"b": {"$ref": "#"}}, "required": ["a"]},
    {"dependentSchemas": {"a": {"required": ["b"]}}},
    {"properties": {"a": NUMBER}, "unevaluatedProperties": False},
    {"prefixItems": [NUMBER], "items": [NUMBER], "additionalItems": TEXT},
    {"contains": NUMBER},
]
VALUES: list[Any] = [None, 0, 1, "a", "ab", [], ["a"], [1, "a"], ["a", "a"], [1, 1]]
VALUES += [{}, {"a": 1}, {"a": "x"}, {"b": {}}, {"a": 1, "b": 2}, {"a": 1, "b": {"a": 1}}, {"a": 1, "bb": "x"}]


@rows("draft", *DRAFTS)
def test_verdicts_equal_those_of_jsonschema(draft):
    for each in SCHEMAS:
        schema = {**each, "$schema": draft, "definitions": {"shared": TEXT}}
        if not validator_for(schema)(validator_for(schema).META_SCHEMA).is_valid(schema):
            continue  # in the newest draft, a list of `items` is not valid
        plain, checked = validator_for(schema)(schema, registry=Registry()), OutputSchema(schema)
        for value in VALUES:
            found = checked.validate(value, AMPLE)
            assert (found.violation is None) is plain.is_valid(value), (schema, value, found)
            assert found == Validation(found.violation)


@rows(
    ("schema", "value", "place"),
    ({"properties": {"rows": {"items": NUMBER}}}, {"rows": [1, "a secret"]}, "at $.rows[1]: 'type' is violated"),
    ({"additionalProperties": False}, {"x": "a secret"}, "at $: 'additionalProperties' is violated"),
    ({"properties": {"x": False}}, {"x": 1}, "at $: 'false' is violated"),
)
def test_a_violation_is_reported_with_its_place_but_not_the_value(schema, value, place):
    assert verdict(schema, value).violation.endswith(f"output schema ({place})")


@rows("name", *HOSTILE)
def test_validating_with_a_hostile_schema_ends_in_time(name):
    schema, value = HOSTILE[name]
    for seconds in (0.01, 0.2):
        assert verdict(schema, value, seconds).violation is None


def test_a_schema_whose_reading_timed_out_is_read_again():
    schema = OutputSchema({"properties": {"x": {"type": "string"}}})
    assert schema.validate({"x": 1}, 0).timed_out
    assert "$.x" in schema.validate({"x": 1}, AMPLE).violation


def test_deep_nesting_and_endless_schemas_do_not_reject_results():
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"properties": {"inner": deep}}
    assert "(RecursionError)" in verdict(deep, nested(400)).unusable
    assert "(RecursionError)" in verdict({"additionalProperties": {"$ref": "#"}}, nested(900)).unusable

    def deeper(frames: int) -> Validation:  # the stack may overflow at any depth
        return deeper(frames - 1) if frames else verdict({"not": {"$ref": "#"}}, {})

    assert all("the schema cannot be used (" in str(deeper(frames).unusable) for frames in range(40))


def test_a_reference_to_another_document_is_never_fetched():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        assert "cannot be used" in verdict({"properties": {"x": {"$ref": url}}}, {"x": 1}).unusable
        with pytest.raises(BlockingIOError):
            listener.accept()


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
    Lets the loop finish every validation, so that a busy machine does not matter.
    """
    monkeypatch.setattr(listed_tools, "_SECONDS_IN_LOOP", LIMIT)


@pytest.mark.parametrize("seconds_in_loop", [LIMIT, 0.0])
def test_a_violation_is_an_error_without_quotes_whether_found_in_the_loop_or_in_a_thread(monkeypatch, seconds_in_loop):
    monkeypatch.setattr(listed_tools, "_SECONDS_IN_LOOP", seconds_in_loop)
    server = server_with(INTEGER, {"x": "a secret"})
    with MCPConnection(server.info) as connection:
        with pytest.raises(MCPInvocationError, match=r"at \$\.x: 'type' is violated\)\. The tool has run") as failure:
            connection.call_tool("search")
        assert "secret" not in str(failure.value)
        server.answer = text_result("found", structured_content={"x": 1})
        assert text(connection.call_tool("search")) == "found"


def test_a_result_without_structured_content_passes_with_a_warning(caplog):
    server = server_with(INTEGER, {"x": 1})
    server.answer = text_result("found")
    with MCPConnection(server.info) as connection:
        assert [text(connection.call_tool("search")) for _ in range(2)] == ["found", "found"]
    (warning,) = given_up(caplog)
    assert "'search'" in warning and "the server returned no structured content" in warning


@pytest.mark.usefixtures("unhurried")
@rows(
    ("schema", "reason"),
    ({"type": "objekt"}, "the schema is invalid"),
    ({"properties": {"x": {"required": "x"}}}, "invalid (at $.properties.x.required: 'type' is violated)"),
    ({"$schema": OLDEST, "exclusiveMinimum": 5}, "invalid"),
    ({"$ref": "#/$defs/missing"}, "the schema cannot be used"),
    ({"allOf": [{"$ref": "#"}]}, "the schema cannot be used"),
    ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$dynamicRef": "#/$defs/a"}}}, "the schema cannot be used"),
)
def test_results_of_an_invalid_schema_pass_with_one_warning(caplog, schema, reason):
    caplog.clear()
    with MCPConnection(server_with(schema, {"x": 1}).info) as connection:
        for _ in range(2):
            assert text(connection.call_tool("search")) == "found"
            connection.list_tools()
    [warning] = given_up(caplog)
    assert "tool 'search' of in-process server 'foreign'" in warning
    assert reason in warning


@pytest.mark.usefixtures("unhurried")
def test_results_are_validated_with_the_schema_of_the_latest_listing():
    server = server_with(INTEGER, {"x": "text"})
    with MCPConnection(server.info) as connection:
        with pytest.raises(MCPInvocationError, match="output schema"):
            connection.call_tool("search")
        server.tools = [definition("search")]
        connection.list_tools()
        assert text(connection.call_tool("search")) == "found"


def test_a_result_passes_if_no_thread_can_be_started_to_validate_it(monkeypatch):
    def start_no_thread(*_: Any) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(listed_tools, "_SECONDS_IN_LOOP", 0.0)
    monkeypatch.setattr(listed_tools, "start_in_thread", start_no_thread)
    server = server_with(INTEGER, {"x": 1})
    with MCPConnection(server.info) as connection:
        assert text(connection.call_tool("search")) == "found"
    assert len(server.calls) == 1


def test_the_timeout_of_a_call_includes_the_validation_of_its_result(monkeypatch):
    monkeypatch.setattr(listed_tools, "_SECONDS_IN_THREAD", 3.0)
    schema, value = HOSTILE["recursion"]
    with MCPConnection(server_with(schema, value).info, invocation_timeout=1) as connection:
        with pytest.raises(MCPTimeoutError):
            connection.call_tool("search")


@pytest.mark.parametrize("name", ["alternatives", "recursion"])
@pytest.mark.parametrize("start", ["stdio", "http"], indirect=True)
def test_a_hostile_result_passes_with_one_warning_without_blocking_other_sessions(start, name, caplog):
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
