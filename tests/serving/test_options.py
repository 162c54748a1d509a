# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from typing import Any

import pytest
from mcp.types import Icon, ToolAnnotations

from haystack_integrations.tools.mcp.serving import ServeOptions
from haystack_integrations.tools.mcp.serving.sources import check_options
from tests.support.rows import rows


@rows(
    ("options", "told"),
    [
        ({"name": " "}, "must match pattern"),
        ({"max_documents": 0}, "must be greater than or equal to 1"),
        ({"task": "maybe"}, "must be True, False or 'required'"),
        ({"timeout": 0}, "must be greater than 0"),
        ({"tags": "public"}, "must be"),
        ({"icons": "a.png"}, "must be a valid list"),
        ({"meta": {1: 2}}, "must be a valid string"),
        ({"bound": [("key", "a-secret")]}, "must be"),
        ({"outputs": {"answer": ["llm.replies"]}}, "must be a valid string"),
        ({"output_schema": {"type": "objekt"}}, "is not a valid JSON schema: 'objekt'"),
        ({"output_schema": {"type": "array"}}, 'must be a JSON schema of `"type": "object"`'),
        ({"tag": ["public"]}, "Did you mean `tags`?"),
    ],
)
def test_an_option_that_cannot_be_is_refused_by_name(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as refused:
        check_options(options)
    [name] = options
    assert name in str(refused.value) and "\n" not in str(refused.value)
    assert told in str(refused.value)
    assert "a-secret" not in str(refused.value)


def test_what_is_neither_options_nor_a_dictionary_is_refused() -> None:
    with pytest.raises(ValueError, match="`options` must be ServeOptions or a dictionary of them, got list"):
        check_options([])


def test_options_have_one_form_whatever_they_were_given_as() -> None:
    icons = ["https://example.com/a.png", {"src": "b.png"}, Icon(src="c.png")]
    given = {"tags": ["a", "a"], "icons": icons, "annotations": {"readOnlyHint": True}, "version": 2}
    options = check_options({**given, "inputs": {"query": ["a.query", "b.query"]}})
    assert set(options.tags) == {"a"}
    assert [icon.src for icon in options.icons] == ["https://example.com/a.png", "b.png", "c.png"]
    assert options.annotations == ToolAnnotations(read_only_hint=True)
    assert options.version == "2"
    assert options.inputs == {"query": ["a.query", "b.query"]}
    assert check_options(options) is options
    assert check_options(None) == ServeOptions()


def test_of_two_options_the_other_goes_first_where_it_says_something() -> None:
    general = ServeOptions(title="Search", timeout=5, tags=["public"])
    combined = general.overridden_by(ServeOptions(title="Find", max_documents=3))
    assert (combined.title, combined.timeout, combined.max_documents) == ("Find", 5, 3)
    assert combined.tags == ["public"]
    assert general.overridden_by(None) is general


def test_bound_values_are_not_shown() -> None:
    assert "a-secret" not in repr(ServeOptions(bound={"key": "a-secret"}))
