# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Arguments on a command line: how JSON schemas give them types, and what is said of them.
"""

from pathlib import Path
from typing import Any

import pytest

from haystack_integrations.tools.mcp.cli.arguments import (
    check_arguments,
    describe_type,
    signature,
    text_arguments,
    typed_arguments,
)
from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from tests.support.rows import rows

INTEGERS = {"type": "array", "items": {"type": "integer"}}


def of(schema: Any, **more: Any) -> dict[str, Any]:
    """
    The schema of a tool with the one argument `a`.
    """
    return {"type": "object", "properties": {"a": schema}, **more}


def nested(schema: Any, times: int) -> Any:
    return schema if not times else nested({"anyOf": [schema]}, times - 1)


@rows(
    ("text", "schema", "value"),
    [
        ("5", {"type": "integer"}, 5),
        ("5", {"type": "number"}, 5),
        ("0.5", {"type": "number"}, 0.5),
        ("5", {"type": "string"}, "5"),
        ("Yes", {"type": "boolean"}, True),
        ("off", {"type": ["boolean", "null"]}, False),
        ("yes", {"type": ["boolean", "string"]}, "yes"),
        ("null", {"type": ["string", "null"]}, None),
        ("nothing", {"type": ["string", "null"]}, "nothing"),
        ("true", {}, True),
        ("true", True, True),
        ("a text", {}, "a text"),
        ("2", {"enum": [1, 2]}, 2),
        ("2", {"enum": ["1", "2"]}, "2"),
        ("3", {"enum": [1, 2]}, 3),
        ("5", {"const": "5"}, "5"),
        ('{"b": 1}', {"const": {"b": 1}}, {"b": 1}),
        ("a", {"type": "array", "items": {"type": "string"}}, ["a"]),
        ("[1, 2]", INTEGERS, [1, 2]),
        ("5", INTEGERS, [5]),
        ("5", {"anyOf": [INTEGERS, {"type": "null"}]}, [5]),
        ("5", {"oneOf": [{"$ref": "#/$defs/numbers"}, {"type": "null"}]}, [5]),
        ("a", {"type": "array"}, ["a"]),
        ('{"b": 1}', {"type": "object"}, {"b": 1}),
        ("5", {"$ref": "#/$defs/a~1b"}, "5"),
        ("5", {"allOf": [{"type": ["integer", "string"]}, {"type": "string"}]}, "5"),
        ("5", {"$ref": "https://example.com/elsewhere"}, 5),
        ("5", {"$ref": "#/properties/a"}, 5),
        ("5", {"$ref": "#/nowhere/at/all"}, 5),
    ],
)
def test_a_text_gets_the_type_that_the_schema_wants(text: str, schema: Any, value: Any) -> None:
    whole = of(schema, **{"$defs": {"a/b": {"type": "string"}, "numbers": INTEGERS}})
    found = typed_arguments([f"a={text}"], None, whole)["a"]
    assert (found, type(found)) == (value, type(value))


@rows(
    ("words", "schema", "value"),
    [
        (["a=1", "a=2"], INTEGERS, [1, 2]),
        (["a=[1,2]", "a=3"], INTEGERS, [1, 2, 3]),
        (["a=b=c"], {"type": "string"}, "b=c"),
        (["a=user@host"], {"type": "string"}, "user@host"),
        (["a="], {"type": "string"}, ""),
    ],
)
def test_words_make_an_argument(words: list[str], schema: Any, value: Any) -> None:
    assert typed_arguments(words, None, of(schema)) == {"a": value}


def test_arguments_come_from_files(tmp_path: Path) -> None:
    (tmp_path / "text.txt").write_text("seven")
    (tmp_path / "all.json").write_text('{"a": 1, "b": 2}')
    assert text_arguments([f"topic@{tmp_path / 'text.txt'}", "style=brief"]) == {"topic": "seven", "style": "brief"}
    given = typed_arguments(["a=5"], f"@{tmp_path / 'all.json'}", of({"type": "integer"}))
    assert given == {"a": 5, "b": 2}


@pytest.mark.parametrize(
    ("words", "given", "schema", "told"),
    [
        ([], '{"a": 1,\n}', {}, r"--input is not valid JSON: .* in line \d, column \d"),
        ([], "5", {}, "--input must be a JSON object with the arguments, got a int"),
        (["a@latin.txt"], None, {}, "The file of 'a@latin.txt' cannot be read: it is not in UTF-8"),
        (["x-secret"], None, {}, "name=value, name:=JSON or name@FILE; 'x-s…' is none of these"),
        (["ab"], None, {}, "'ab' is none of these"),
        (["=5"], None, {}, "is none of these"),
        (["a:=Infinity"], None, {}, "'a' is not valid JSON: Infinity is no number in JSON"),
        (["a:=" + "[" * 100_000], None, {}, "'a' is not valid JSON: it is nested too deeply"),
        ([], '{"a": -Infinity}', {}, "--input is not valid JSON: -Infinity is no number in JSON"),
    ],
)
def test_an_argument_that_cannot_be_read_is_told_without_its_value(
    words: list[str],
    given: str | None,
    schema: Any,
    told: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "latin.txt").write_bytes(b"\xe9")
    with pytest.raises(CommandError, match=told) as raised:
        typed_arguments(words, given, of(schema))
    assert "x-secret" not in str(raised.value)


@rows(
    ("arguments", "schema", "told"),
    [
        ({}, of({"type": "integer"}, required=["a"]), "the arguments lack 'a'. It takes a: integer"),
        ({"a": {}}, of({"type": "object", "required": ["b", "c"]}), "'a' lacks 'b', 'c'. It takes a?: object"),
        ({"a": "x-secret"}, of({"type": ["integer", "null"]}), "'a' must be of type integer or null"),
        ({"a": "x-secret"}, of({"type": "object"}), "'a' must be of type object"),
        ({"a": [1, "x-secret"]}, of(INTEGERS), "'a[1]' must be of type integer"),
        (
            {"a": [{"b": "x-secret"}]},
            of({"items": of(5) | {"properties": {"b": {"type": "null"}}}}),
            "'a[0].b' must be",
        ),
        ({"a": "x-secret"}, of({"enum": ["red", 5]}), '\'a\' must be one of "red", 5. It takes a?: "red" | 5'),
        ({"b": "x-secret"}, of({}, additionalProperties=False), "the arguments must not have 'b'. It takes a?: any"),
        ({"b": 1}, {"type": "object", "additionalProperties": False}, "must not have 'b'. It takes no arguments"),
        ({"a": 2}, of({"type": "integer", "minimum": 3}), "'a' must satisfy minimum: 3"),
        ({"a": "x-secret"}, of({"pattern": "^[0-9]+$"}), "'a' must satisfy pattern: \"^[0-9]+$\""),
        ({"a": "x-secret"}, of({"not": {"type": "string"}}), "'a' must satisfy not: see its schema"),
    ],
)
def test_an_argument_that_does_not_fit_is_told_without_its_value(
    arguments: dict[str, Any], schema: dict[str, Any], told: str
) -> None:
    with pytest.raises(CommandError) as raised:
        check_arguments(arguments, schema, "The tool 't' cannot be called so")
    assert str(raised.value).startswith("The tool 't' cannot be called so: ")
    assert told in str(raised.value)
    assert "x-secret" not in str(raised.value)


@rows("schema", [of({"type": "objekt"}), of({"$ref": "https://example.com/elsewhere"})])
def test_what_cannot_be_checked_here_is_left_to_the_server(schema: dict[str, Any]) -> None:
    check_arguments({"b": 5}, schema, "The tool 't' cannot be called so")
    with pytest.raises(CommandError, match="lack 'c'"):
        check_arguments({}, {"type": "object", "required": ["c"]}, "The tool 't' cannot be called so")


@rows(
    ("schema", "described"),
    [
        ({}, "any"),
        (True, "any"),
        ({"type": "integer"}, "integer"),
        ({"type": ["string", "null"]}, "string | null"),
        ({"type": "array"}, "list of any"),
        ({"type": ["array", "null"]}, "list | null"),
        ({"type": "array", "items": INTEGERS}, "list of list of integer"),
        ({"type": "array", "items": {"type": ["integer", "string"]}}, "list of integer | string"),
        ({"const": "é"}, '"é"'),
        ({"enum": ["a", 1, None]}, '"a" | 1 | null'),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "integer | null"),
        ({"oneOf": [{"type": "string"}, {"enum": ["a"]}, {"type": "string"}]}, 'string | "a"'),
        ({"$ref": "#/$defs/colour"}, '"red" | "blue"'),
        ({"$ref": "#/$defs/tree"}, "string | list of string | list"),
        (nested({"type": "string"}, 3), "string"),
        (nested({"type": "string"}, 50), "any"),
    ],
)
def test_a_schema_is_described_in_words(schema: Any, described: str) -> None:
    tree = {"anyOf": [{"type": "string"}, {"type": "array", "items": {"$ref": "#/$defs/tree"}}]}
    assert describe_type(schema, {"$defs": {"colour": {"enum": ["red", "blue"]}, "tree": tree}}) == described


@rows("key", ["anyOf", "oneOf", "allOf"])
def test_a_schema_that_is_in_itself_many_times_is_described_at_once(key: str) -> None:
    many = [{"$ref": "#/$defs/a"}, {"$ref": "#/$defs/b"}] * 50
    root = {"$defs": {"a": {key: many}, "b": {key: many}}}
    assert describe_type({"$ref": "#/$defs/a"}, root) == "any"


def test_a_line_says_what_a_tool_takes() -> None:
    schema = {
        "properties": {
            "query": {"type": "string"},
            "limit": {"type": "integer", "default": 10},
            "tags": {"type": "array", "items": {"type": "string"}},
            "more": True,
        },
        "required": ["query"],
    }
    assert signature(schema) == "query: string, limit: integer = 10, tags?: list of string, more?: any"
    assert signature({"properties": 5, "required": "query"}) == ""
