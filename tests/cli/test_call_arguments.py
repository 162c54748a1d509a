# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Arguments on a command line and answers in a terminal: how they get the types of JSON schemas, and their errors.
"""

import io
import json
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from rich.progress import Progress

from haystack_integrations.tools.mcp.cli.call import (
    ask_in_terminal,
    check_arguments,
    sent_arguments,
    signature,
    typed_arguments,
)
from haystack_integrations.tools.mcp.cli.output import CommandError, Output
from tests.support.rows import rows

INTEGERS = {"type": "array", "items": {"type": "integer"}}


def of(schema: Any, **more: Any) -> dict[str, Any]:
    """
    Return the schema of a tool with one argument, `a`.
    """
    return {"type": "object", "properties": {"a": schema}, **more}


@rows(
    ("text", "schema", "value"),
    ("5", {"type": "integer"}, 5),
    ("5", {"type": "string"}, "5"),
    ("Yes", {"type": "boolean"}, True),
    ("yes", {"type": ["boolean", "string"]}, "yes"),
    ("null", {"type": ["string", "null"]}, None),
    ('"\\ud800"', {}, "\ud800"),
    ("NaN", {}, "NaN"),
    ("5", INTEGERS, [5]),
    ("[1, 2]", INTEGERS, [1, 2]),
    ("5", {"oneOf": [{"$ref": "#/$defs/numbers"}, {"type": "null"}]}, [5]),
    ('{"b": 1}', {"type": "object"}, {"b": 1}),
    ("5", {"$ref": "https://example.com/elsewhere"}, 5),
)
def test_a_text_gets_the_type_that_the_schema_wants(text: str, schema: Any, value: Any) -> None:
    found = typed_arguments([f"a={text}"], None, of(schema, **{"$defs": {"numbers": INTEGERS}}))["a"]
    assert (found, type(found)) == (value, type(value))


def test_arguments_are_repeated_and_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("seven")
    (tmp_path / "windows.txt").write_bytes(b"\xef\xbb\xbfa\r\n\xc3\xa4\r\n")
    (tmp_path / "all.json").write_text('{"a": 1, "b": 2}')
    assert typed_arguments(["a=1", "a=[2,3]"], None, of(INTEGERS)) == {"a": [1, 2, 3]}
    assert typed_arguments(['a:="\\ud800"'], None, of({})) == {"a": "\ud800"}
    assert typed_arguments([f"a@{tmp_path / 'text.txt'}"], None, of({})) == {"a": "seven"}
    assert typed_arguments([f"a@{tmp_path / 'windows.txt'}"], None, of({})) == {"a": "a\r\n\u00e4\r\n"}
    assert typed_arguments(["a=5"], f"@{tmp_path / 'all.json'}", of({"type": "integer"})) == {"a": 5, "b": 2}


@rows(
    ("words", "given", "told"),
    ([], '{"a": 1,\n}', "--input is not valid JSON: "),
    (["a@{latin}"], None, "cannot be read: it is not in UTF-8"),
    (["x-secret"], None, "name=value, name:=JSON or name@FILE; 'x-s…' is none of these"),
    (["a:=x-secret"], None, "'a' is not valid JSON: "),
    (["a:=NaN"], None, "'a' is not valid JSON: it has NaN, which would be sent as null"),
    ([], '{"a": -Infinity}', "--input is not valid JSON: it has -Infinity"),
    (["5"], None, "'5' is none of these. The tool takes a?: any, b?: string"),
)
def test_the_error_for_an_argument_that_cannot_be_read_does_not_quote_its_value(
    words: list[str], given: str | None, told: str, tmp_path: Path
) -> None:
    (tmp_path / "latin.txt").write_bytes(b"\xe9")
    with pytest.raises(CommandError) as raised:
        words = [word.replace("{latin}", str(tmp_path / "latin.txt")) for word in words]
        typed_arguments(words, given, {"properties": {"a": {}, "b": {"type": "string"}}})
    assert told in str(raised.value)
    assert "x-secret" not in str(raised.value)


def test_arguments_that_fit_or_cannot_be_checked_are_sent_with_the_types_of_the_schema() -> None:
    schema = {"properties": {"a": {"type": "integer"}, "b": {"type": "number"}}}
    sent, unknown = sent_arguments({"a": 5.0, "b": 5.0, "c": 5.0}, schema)
    assert json.dumps(sent) == '{"a": 5, "b": 5.0, "c": 5.0}'
    assert unknown == ["c"]
    assert sent_arguments({"a": 5.0}, {"type": "string"}) == ({"a": 5.0}, [])
    # The server checks what cannot be checked here.
    for odd in ({"type": "objekt"}, {"$ref": "https://example.com/elsewhere"}):
        check_arguments({"b": 5}, of(odd), "The tool 't' cannot be called with these arguments")
    for draft in (5, ["x"], "http://[x"):
        check_arguments(
            {"a": 5}, of({"type": "string"}, **{"$schema": draft}), "The tool 't' cannot be called with these arguments"
        )


def test_null_as_the_type_means_any_type() -> None:
    assert signature({"properties": {"a": {"type": None}, "b": {"type": ["string", "null"]}}}) == (
        "a?: any, b?: string | null"
    )


class Keyboard(io.StringIO):
    """
    A terminal with typed input.
    """

    def isatty(self) -> bool:
        return True


FORM = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "description": "How many"},
        "colour": {"enum": ["red", "blue"], "default": "blue"},
        "note": {"type": "string"},
    },
    "required": ["count"],
}
CHOICES = {
    "type": "object",
    "properties": {
        "colour": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]},
        "sizes": {"type": "array", "items": {"enum": ["s", "l"], "enumNames": ["Small", "L"]}},
    },
}
PAGE = {"mode": "url", "url": "https://example.com/pay\x1b[2J"}
OPTIONAL = {"type": "object", "properties": {"note": {"type": "string"}, "more": True}}


@rows(
    ("request_", "typed", "answers", "told"),
    (PAGE, "Yes\n", True, "Open this page if you trust the server: https://example.com/pay\\x1b[2J"),
    (PAGE, "", None, "Have you opened it? [y/N]"),
    (OPTIONAL, "\n\n\n", False, "Accept? [y/N]"),
    (FORM, "2\nred\nsoon\n", {"count": 2, "colour": "red", "note": "soon"}, "count, How many (integer): "),
    (FORM, "\n2\n\n\n", {"count": 2, "colour": "blue"}, "An answer is needed; Ctrl-D cancels."),
    (FORM, "many\n2\n\n\n", {"count": 2, "colour": "blue"}, "'count' must be of type integer"),
    (FORM, "2\n", None, "How many"),
    (CHOICES, "r\ns, l\n", {"colour": "r", "sizes": ["s", "l"]}, "colour (r (Red), b (Blue), optional): "),
)
def test_questions_of_a_server_are_asked_in_the_terminal(monkeypatch, capsys, request_, typed, answers, told):
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setattr(sys, "stdin", Keyboard(typed))
    asked = request_ if "mode" in request_ else {"mode": "form", "requested_schema": request_}
    request = SimpleNamespace(message="Please", **asked)
    assert ask_in_terminal(request, Output(), Progress(disable=True)) == answers
    assert told in capsys.readouterr().err
