# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
import itertools
import random
import re
import socket
from typing import Any

import pytest
from jsonschema.validators import validator_for
from referencing import Registry

from haystack_integrations.tools.mcp.convert import tool_schemas
from haystack_integrations.tools.mcp.convert.tool_schemas import OutputSchema, Verdict
from tests.support.hostile_schemas import HOSTILE, chain, nested
from tests.support.rows import rows

AMPLE = 60.0

DRAFTS = [
    "http://json-schema.org/draft-04/schema#",
    "http://json-schema.org/draft-06/schema#",
    "http://json-schema.org/draft-07/schema#",
    "https://json-schema.org/draft/2019-09/schema",
    "https://json-schema.org/draft/2020-12/schema",
]


def verdict(schema: Any, value: Any, seconds: float = AMPLE) -> Verdict:
    return OutputSchema(schema).validate(value, seconds)


class RandomJson:
    """
    Small schemas and values that often have to do with each other.
    """

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)

    def value(self, depth: int = 3) -> Any:
        pick = self._random.choice
        kind = pick("obj arr str int float bool null".split() if depth else "str int float bool null".split())
        if kind == "obj":
            return {name: self.value(depth - 1) for name in self._random.sample("abcd", self._random.randint(0, 3))}
        if kind == "arr":
            return [self.value(depth - 1) for _ in range(self._random.randint(0, 3))]
        values = {"str": ["", "a", "ab" * 200], "int": [0, 1, 2, -3], "float": [0.5, 1.0], "bool": [True, False]}
        return pick(values.get(kind, [None]))

    def schema(self, depth: int = 3) -> Any:
        pick, whole = self._random.choice, self._random.randint
        if depth == 0 or not whole(0, 8):
            return pick([{}, {"type": "string"}, {"type": "integer"}, {"not": {}}])
        inner = lambda: self.schema(depth - 1)  # noqa: E731
        several = lambda: [inner() for _ in range(whole(1, 3))]  # noqa: E731
        keywords = {
            "type": lambda: pick(["object", "array", "string", "integer", "number", "boolean", ["null", "object"]]),
            "enum": lambda: [*{repr(value): value for value in (self.value(1) for _ in range(3))}.values()],
            "properties": lambda: {name: inner() for name in "ab"},
            "additionalProperties": lambda: pick([True, False, inner()]),
            "required": lambda: self._random.sample("abcd", 2),
            "minProperties": lambda: 1,
            "maxProperties": lambda: 1,
            "items": inner,
            "minItems": lambda: 1,
            "maxItems": lambda: 2,
            "uniqueItems": lambda: True,
            "minLength": lambda: 1,
            "maxLength": lambda: 2,
            "minimum": lambda: 1,
            "maximum": lambda: 1,
            "multipleOf": lambda: pick([2, 0.5]),
            "allOf": several,
            "anyOf": several,
            "oneOf": several,
            "not": inner,
            "if": inner,
            "then": inner,
            "else": inner,
            "const": lambda: self.value(2),
            "contains": inner,
            "propertyNames": lambda: {"maxLength": 1},
            "dependentRequired": lambda: {"a": ["b"]},
            "dependencies": lambda: {"a": ["b"], "c": inner()},
            "prefixItems": several,
            "$ref": lambda: "#/definitions/shared",
        }
        return {name: keywords[name]() for name in self._random.sample([*keywords], whole(1, 4))}


@rows("draft", DRAFTS)
def test_verdicts_are_those_of_jsonschema(draft):
    valid = 0
    for seed in range(300):
        generator = RandomJson(seed)
        schema = {**generator.schema(), "$schema": draft, "definitions": {"shared": generator.schema(0)}}
        plain, checked = validator_for(schema)(schema, registry=Registry()), OutputSchema(schema)
        if not validator_for(schema)(plain.META_SCHEMA).is_valid(schema):  # e.g. an enum of 1 and 1.0
            continue
        for _ in range(5):
            value = generator.value()
            expected = plain.is_valid(value)
            found = checked.validate(value, AMPLE)
            assert (found.violation is None) is expected, (schema, value, found)
            assert found == Verdict(found.violation)
            valid += expected
    assert 250 < valid < 1_250


def test_a_violation_is_reported_by_its_place_and_nothing_of_the_value():
    schema = {"type": "object", "properties": {"rows": {"items": {"type": "integer"}}}}
    found = verdict(schema, {"rows": [1, "a secret"]})
    assert found.violation.endswith("(at $.rows[1]: 'type' is violated)")
    found = verdict({"type": "object", "additionalProperties": False}, {"x": "a secret"})
    assert found.violation.endswith("(at $: 'additionalProperties' is violated)")
    assert verdict({"properties": {"x": False}}, {"x": 1}).violation.endswith("(at $: 'false' is violated)")


@rows("name", HOSTILE)
@rows("seconds", [0.01, 0.2])
def test_a_hostile_one_ends_in_time(name, seconds):
    schema, value = HOSTILE[name]
    found = verdict(schema, value, seconds)
    assert found.violation is None


def test_a_schema_looks_at_the_clock_at_every_step(monkeypatch):
    looks = itertools.count()
    monkeypatch.setattr(tool_schemas, "perf_counter", lambda: next(looks))
    assert verdict(chain(40, last=False), {}, 5_000).cut_off
    assert next(looks) == 5_002


def test_a_schema_that_was_cut_off_while_it_was_read_is_read_again():
    schema = OutputSchema({"properties": {"x": {"type": "string"}}})
    assert schema.validate({"x": 1}, 0).cut_off
    assert "$.x" in schema.validate({"x": 1}, AMPLE).violation


@rows(
    ("schema", "reason"),
    [
        ({"type": "objekt"}, r"invalid \(at \$\.type: 'anyOf' is violated\)"),
        ({"properties": {"x": {"required": "x"}}}, r"invalid \(at \$\.properties\.x\.required: 'type' is violated\)"),
        ({"$schema": DRAFTS[0], "exclusiveMinimum": 5}, "invalid"),
        ({"$schema": ["odd"]}, "cannot be used"),
        ({"$ref": "#/$defs/missing"}, "cannot be used"),
        ({"$ref": "#"}, "nested too deeply"),
        ({"allOf": [{"$ref": "#/$defs/a"}], "$defs": {"a": {"$dynamicRef": "#/$defs/a"}}}, "nested too deeply"),
    ],
)
def test_a_schema_that_is_none_rejects_nothing(schema, reason):
    found = verdict(schema, {"x": 1})
    assert found.violation is None
    assert re.search(reason, found.unusable)


def test_deep_nesting_rejects_nothing():
    deep: dict[str, Any] = {}
    for _ in range(400):
        deep = {"properties": {"inner": deep}}
    assert "nested too deeply" in verdict(deep, nested(400)).unusable
    assert "nested too deeply" in verdict({"additionalProperties": {"$ref": "#"}}, nested(900)).unusable


def test_a_schema_without_end_rejects_nothing_wherever_the_stack_is_full():
    def deeper(frames: int) -> Verdict:
        return deeper(frames - 1) if frames else verdict({"not": {"$ref": "#"}}, {})

    assert {deeper(frames).unusable for frames in range(40)} == {"the schema, or a result, is nested too deeply"}


def test_a_reference_to_another_document_is_never_fetched():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.setblocking(False)
        url = f"http://127.0.0.1:{listener.getsockname()[1]}/schema.json"
        assert "cannot be used" in verdict({"properties": {"x": {"$ref": url}}}, {"x": 1}).unusable
        with pytest.raises(BlockingIOError):
            listener.accept()
