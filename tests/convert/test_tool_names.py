# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
import hashlib
import re

import pytest

from haystack_integrations.tools.mcp.convert.tool_names import (
    assign_tool_names,
    describe_choices,
    prefix_of,
    provider_safe_name,
    with_safe_arguments,
)
from tests.support.rows import rows

SAFE_NAME = re.compile(r"^[A-Za-z_][A-Za-z0-9_-]{0,63}\Z")


@rows(
    ("name", "prefix", "safe"),
    *((name, None, name) for name in ("search", "A-b_9", "_", "n" * 64)),
    ("search", "gh", "gh_search"),
    ("repo/search.code", None, "repo_search_code"),
    ("été\n", None, "_t__"),
    ("21st_magic", None, "_21st_magic"),
)
def test_a_safe_name_is_unchanged_and_other_characters_become_underscores(name, prefix, safe):
    assert provider_safe_name(name, prefix) == safe


def test_a_name_that_gets_an_underscore_does_not_become_that_of_another_tool():
    first, second = assign_tool_names(["1st", "_1st"]).values()
    assert second == "_1st" != first
    assert SAFE_NAME.match(first)


def test_an_overlong_name_keeps_its_head_and_ends_in_a_hash_of_the_whole():
    name = "n" * 70
    digest = hashlib.sha256(f"gh_{name}".encode()).hexdigest()[:8]
    assert provider_safe_name(name, "gh") == f"gh_{'n' * 52}_{digest}"
    assert provider_safe_name(name + ".") != provider_safe_name(name + "/")


def test_servers_whose_names_have_no_safe_character_get_different_prefixes():
    assert prefix_of("my server (docs)") == "my_server_docs"
    maps, search = prefix_of("\u5730\u56fe"), prefix_of("\u641c\u7d22")
    assert maps != search
    assert re.fullmatch("server_[0-9a-f]{8}", maps)


@rows("prefix", None, "p" * 32)
@rows(
    ("names", "kept"),
    (["a_b", "a.b", "a/b", "other"], ["a_b", "other"]),
    (["été", "ètè", "_t_"], ["_t_"]),
    (["名" * 64, "字" * 64, "\ud800" * 80, " ", "\0"], []),
)
def test_names_that_would_become_equal_get_a_hash_whatever_their_order(names, kept, prefix):
    assigned = assign_tool_names(names, prefix)
    assert assigned == assign_tool_names(reversed(names), prefix)
    assert list(assigned) == names
    assert len(set(assigned.values())) == len(names)
    assert all(map(SAFE_NAME.match, assigned.values()))
    assert kept == [name for name in names if assigned[name] == provider_safe_name(name, prefix) and len(name) < 64]


def test_names_are_unique_and_a_rename_has_precedence():
    assert assign_tool_names(["x", "y"], renamed={"y": "x"})["x"].startswith("x_")
    with pytest.raises(ValueError, match="two tools named 'a'"):
        assign_tool_names(["a", "b", "a"])
    with pytest.raises(ValueError, match="must not be empty"):
        provider_safe_name("")


@rows(
    ("names", "safe"),
    (["a", "b.c-D_9", "x" * 64], ["a", "b.c-D_9", "x" * 64]),
    (["filter[id]", "$top", "@odata.type", "my key"], ["filter_id", "top", "odata.type", "my_key"]),
    (["a b", "a/b"], ["a_b", "a_b_c14cddc0"]),
    (["x" * 65], ["x" * 55 + "_9537c5fd"]),
    (["天气", ""], ["___4d947325", "_e3b0c442"]),
)
def test_arguments_get_names_that_all_model_providers_accept(names, safe):
    schema = {"type": "object", "properties": {name: {"description": name} for name in names}, "required": names}
    renamed, originals = with_safe_arguments(schema)
    assert [*renamed["properties"]] == renamed["required"] == safe
    assert originals == {new: name for name, new in zip(names, safe, strict=True) if name != new}
    assert [each["description"] for each in renamed["properties"].values()] == names
    assert [*schema["properties"]] == names


def test_the_title_of_a_renamed_argument_cannot_hide_text():
    schema, _ = with_safe_arguments({"type": "object", "properties": {"a\u200b[b]": {}}})
    assert schema["properties"] == {"a_b": {"title": "a[b]"}}


@rows(
    ("wanted", "available", "said"),
    (["ADD"], ["add", "echo"], "Did you mean 'add'? Available tools: add, echo"),
    (["github_get_issue"], ["get_issue"], "Did you mean 'get_issue'? Available tools: get_issue"),
    (["ad", "x"], ["add", "echo"], "For 'ad', did you mean 'add'? Available tools: add, echo"),
    (["x"], [], "The server has no tools"),
    (["serch"], [*(f"get_{n}" for n in range(199)), "search"], "Did you mean 'search'? The server has 200 tools"),
    (["modulo"], [f"get_{n}" for n in range(200)], "The server has 200 tools, none of them with a similar name"),
)
def test_the_error_for_an_unknown_tool_has_the_closest_names_and_the_number_of_tools(wanted, available, said):
    assert describe_choices(wanted, available, "The server") == said
