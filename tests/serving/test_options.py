# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from typing import Any

import pytest
from mcp.types import Icon, ToolAnnotations

from haystack_integrations.tools.mcp.serving import ServeOptions
from haystack_integrations.tools.mcp.serving.options import check_options
from tests.support.rows import rows


@rows(
    ("options", "told"),
    [
        ({"name": " "}, "`name` must be a text that is not empty, got ' '"),
        ({"title": 5}, "`title` must be a text that is not empty, got 5"),
        ({"enabled": "yes"}, "`enabled` must be True or False, got 'yes'"),
        ({"forward": None}, "`forward` must be True or False, got NoneType"),
        ({"max_documents": 0}, "`max_documents` must be an integer of at least 1, or None, got 0"),
        ({"max_characters": True}, "`max_characters` must be an integer of at least 1, or None, got True"),
        ({"max_concurrency": 1.5}, "`max_concurrency` must be an integer of at least 1, or None, got 1.5"),
        ({"strict_validation": "x"}, "`strict_validation` must be True, False or None, got 'x'"),
        ({"task": "maybe"}, "`task` must be True, False or \"required\", got 'maybe'"),
        ({"timeout": 0}, "`timeout` must be a positive number of seconds, or None, got 0"),
        ({"timeout": True}, "`timeout` must be a positive number of seconds, or None, got True"),
        ({"tags": "public"}, "`tags` must be a list of texts, got 'public'"),
        ({"tags": ["public", ""]}, "`tags` must be a text that is not empty, got ''"),
        ({"scopes": 5}, "`scopes` must be a list of texts, got 5"),
        ({"icons": [5]}, "`icons` must be a dictionary whose keys are texts, got 5"),
        ({"annotations": {"readOnly": True}}, "Unknown annotations: readOnly. There are title, readOnlyHint"),
        ({"annotations": 5}, "`annotations` must be a dictionary whose keys are texts, got 5"),
        ({"version": True}, "`version` must be a text without '@', or an integer, got True"),
        ({"version": "1@2"}, "`version` must be a text without '@', or an integer, got '1@2'"),
        ({"version": ""}, "`version` must be a text without '@', or an integer, got ''"),
        ({"meta": {1: 2}}, "`meta` must be a dictionary whose keys are texts, got dict"),
        ({"bound": [("key", "a-secret")]}, "`bound` must be a dictionary whose keys are texts, got list"),
        ({"completions": {"a": "text"}}, "`completions['a']` must be a list of texts, got 'text'"),
        ({"inputs": "query"}, "`inputs` must be a list of texts, got 'query'"),
        ({"inputs": {"query": 5}}, "`inputs['query']` must be a list of texts, got 5"),
        ({"outputs": {"answer": ["llm.replies"]}}, "`outputs['answer']` must be a text that is not empty, got list"),
        ({"output_schema": 5}, "`output_schema` must be a dictionary whose keys are texts, got 5"),
        ({"output_schema": {"type": "objekt"}}, "`output_schema` is not a valid JSON schema: 'objekt'"),
        ({"output_schema": {"type": "array"}}, 'must be a JSON schema of `"type": "object"`'),
        ({"tag": ["public"]}, "Unknown options: tag. There are name, title"),
    ],
)
def test_an_option_that_cannot_be_is_refused_and_what_can_be_is_told(options: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError) as refused:
        check_options(options)
    assert told in str(refused.value)
    assert "a-secret" not in str(refused.value)


def test_what_is_neither_options_nor_a_dictionary_is_refused() -> None:
    with pytest.raises(ValueError, match="`options` must be ServeOptions or a dictionary of them, got list"):
        check_options([])


def test_options_have_one_form_whatever_they_were_given_as() -> None:
    options = check_options(
        {
            "tags": ["a", "a"],
            "icons": ["https://example.com/a.png", {"src": "b.png"}, Icon(src="c.png")],
            "annotations": {"readOnlyHint": True},
            "version": 2,
            "completions": {"city": ["Bonn"]},
            "inputs": {"query": ["a.query", "b.query"]},
        }
    )
    assert options.tags == frozenset({"a"})
    assert [icon.src for icon in options.icons] == ["https://example.com/a.png", "b.png", "c.png"]
    assert options.hints == ToolAnnotations(read_only_hint=True)
    assert options.version == "2"
    assert options.completions == {"city": ("Bonn",)}
    assert options.inputs == {"query": ["a.query", "b.query"]}
    assert check_options(options) is options
    assert check_options(None) == ServeOptions()


def test_of_two_options_the_other_goes_first_where_it_says_something() -> None:
    general = ServeOptions(title="Search", timeout=5, tags=["public"])
    combined = general.overridden_by(ServeOptions(title="Find", max_documents=3))
    assert (combined.title, combined.timeout, combined.max_documents) == ("Find", 5, 3)
    assert combined.tags == frozenset({"public"})
    assert general.overridden_by(None) is general


def test_bound_values_are_not_shown() -> None:
    assert "a-secret" not in repr(ServeOptions(bound={"key": "a-secret"}))
