# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
import copy
import json
from typing import Any

import pytest
from mcp.types import CallToolResult, methods
from pydantic import TypeAdapter

from haystack_integrations.tools.mcp.convert.odd_messages import read_plain, repair_params, repair_result
from tests.support.rows import rows

OLD, NEW = "2025-06-18", "2026-07-28"
TEXT = {"type": "text", "text": "kept"}


RESOURCE, PROMPT = {"uri": "a:b", "name": "n"}, {"name": "n"}
ODD_ANNOTATIONS = {"priority": 7, "audience": ["user", "robot"]}


def unsupported(block: Any) -> str:
    return f"[unsupported content: {json.dumps(block)}]"


def mended(method: str, version: str, result: dict[str, Any]) -> dict[str, Any]:
    """Return the repaired result as the SDK parses it."""
    before = copy.deepcopy(result)
    read = repair_result(method, version, result).result
    assert result == before
    model: Any = methods.MONOLITH_RESULTS[method]
    parsed = TypeAdapter(model).validate_python(read, by_name=False)
    return parsed.model_dump(by_alias=True, mode="json", exclude_none=True)


def texts(result: dict[str, Any]) -> list[Any]:
    return [block.get("text") for block in result["content"]]


VIDEO = {"type": "video", "data": "AA"}
UNTYPED_IMAGE = {"type": "image", "data": 5}
IMAGE_AND_LINK = [{"type": "image", "data": "AA"}, {"type": "resource_link", "uri": "a:b"}]

CONTENTS: list[tuple[Any, list[Any]]] = [
    (None, []),
    ({}, []),
    ("plain", ["plain"]),
    (TEXT, ["kept"]),
    *(([{"type": kind, "text": "kept"}], ["kept"]) for kind in ("Text", "markdown", None)),
    ([None, "plain", {"text": "untyped"}], ["plain", "untyped"]),
    ([VIDEO, ["A" * 100_000]], [unsupported(VIDEO), f'[unsupported content: ["{"A" * 998}…]']),
    ([{"type": ["text"]}], [unsupported({"type": ["text"]})]),
    ([{"type": "text", "text": None}, {"type": "text", "text": {"n": 1}}], ["", '{"n": 1}']),
    ([UNTYPED_IMAGE], [unsupported({**UNTYPED_IMAGE, "mimeType": ""})]),
    ([{**TEXT, "annotations": [], "_meta": []}, {**TEXT, "annotations": ODD_ANNOTATIONS}], ["kept"] * 2),
    (IMAGE_AND_LINK, [None, None]),
    ([{"type": "resource", "resource": {"text": "t", "_meta": []}}], [None]),
    ([{"type": "resource", "resource": {"uri": "a:b", "text": {"n": 1}}}], [None]),
]

CALLS: list[tuple[dict[str, Any], list[Any], Any, bool]] = [
    # result, texts of its blocks, structured content, whether it is an error
    *(({"content": content}, said, None, False) for content, said in CONTENTS),
    ({}, [], None, False),
    ({"structuredContent": {"n": 1}, "content": None, "isError": True}, [], {"n": 1}, True),
    ({"isError": True, "content": None, "error": "no luck"}, ["no luck"], None, True),
    ({"isError": True, "message": "no luck", "code": 5}, ['{"message": "no luck", "code": 5}'], None, True),
    ({"toolResult": {"n": 1}}, ['{"n": 1}'], None, False),
    ({"content": [TEXT], "isError": {"why": "so"}}, ["kept"], None, True),
    ({"content": [TEXT], "isError": "True", "structuredContent": None, "_meta": []}, ["kept"], None, True),
]


@pytest.mark.parametrize("version", [OLD, NEW])
@rows(("result", "said", "structured", "is_error"), *CALLS)
def test_the_readable_parts_of_a_result_are_kept(version, result, said, structured, is_error):
    unchanged = copy.deepcopy(result)
    assert not read_plain(unchanged)
    assert unchanged == result
    read = mended("tools/call", version, result)
    assert texts(read) == said
    assert read.get("structuredContent") == structured
    assert read["isError"] is is_error


def test_a_result_that_needs_no_repair_is_read_as_by_the_model_of_the_sdk() -> None:
    resource = {"type": "resource", "resource": {"uri": "a:b", "text": "t"}}
    image, sound = ({"type": kind, "data": "AA", "mimeType": f"{kind}/x"} for kind in ("image", "audio"))
    link = {"type": "resource_link", "uri": "a:b", "name": "n", "annotations": {"priority": 0.5}, "_meta": {"n": 1}}
    result = {"content": [TEXT, {**TEXT, "more": 1}, image, sound, link, resource], "structuredContent": {"n": 1}}
    read = copy.deepcopy(result)
    assert read_plain(read)
    assert CallToolResult.model_validate(read, by_name=False) == CallToolResult.model_validate(result, by_name=False)


def test_structured_content_becomes_an_object_if_required_and_null_is_a_value_if_allowed() -> None:
    for version, value, read in (OLD, [], {}), (OLD, [1], [1]), (NEW, [], []), (NEW, "a", "a"):
        assert mended("tools/call", version, {"content": [], "structuredContent": value})["structuredContent"] == read
    null = {"content": [], "structuredContent": None}
    read = [repair_result("tools/call", version, null).result for version in (OLD, NEW)]
    assert ["structuredContent" in each for each in read] == [False, True]


def test_only_the_odd_blocks_of_a_result_change() -> None:
    odd = {**TEXT, "annotations": []}
    read = repair_result("tools/call", OLD, {"content": [TEXT, odd] * 50, "isError": None}).result
    assert read == {"content": [TEXT, {**TEXT, "annotations": {}}] * 50, "isError": False}


# Contents of servers that write both members, `text` and `blob`, and how they are read.
BOTH_MEMBERS = [
    ({"text": "t", "blob": None}, {"text": "t"}),
    ({"text": "t", "blob": "AAAA"}, {"text": "t"}),
    ({"text": None, "blob": "AAAA"}, {"blob": "AAAA"}),
    ({"text": "", "blob": "AAAA"}, {"blob": "AAAA"}),
]


def contents(which: int) -> dict[str, Any]:
    return {"contents": [{"uri": "a:b", **both[which]} for both in BOTH_MEMBERS]}


def embedded(which: int) -> dict[str, Any]:
    resources = [{"type": "resource", "resource": each} for each in contents(which)["contents"]]
    return {"messages": [{"role": "user", "content": resource} for resource in resources]}


@pytest.mark.parametrize("version", [OLD, NEW])
@rows(
    ("method", "result", "expected"),
    (
        "resources/list",
        {"resources": [{**RESOURCE, "annotations": [], "_meta": [], "size": "big", "icons": [{}]}], "_meta": []},
        {"resources": [{**RESOURCE, "annotations": {}, "_meta": {}, "icons": []}], "_meta": {}},
    ),
    ("resources/list", {"resources": [{"name": "no URI"}, RESOURCE], "nextCursor": {}}, {"resources": [RESOURCE]}),
    ("resources/list", {"resources": [{"uri": "a:b"}]}, {"resources": [{"uri": "a:b", "name": "a:b"}]}),
    (
        "resources/templates/list",
        {"resourceTemplates": [{"uriTemplate": "a:{b}"}]},
        {"resourceTemplates": [{"uriTemplate": "a:{b}", "name": "a:{b}"}]},
    ),
    ("resources/list", {"resources": [], "nextCursor": 5}, {"resources": [], "nextCursor": "5"}),
    ("resources/read", contents(0), contents(1)),
    ("resources/read", {"contents": {"text": None}}, {"contents": [{"uri": "", "text": ""}]}),
    ("prompts/get", embedded(0), embedded(1)),
    (
        "prompts/get",
        {"messages": ["kept", {"role": "Assistant", "text": "kept"}, {"role": "user"}]},
        {"messages": [{"role": role, "content": TEXT} for role in ("user", "assistant")]},
    ),
    (
        "prompts/get",
        {"messages": [{"role": "system", "content": ["kept", {**TEXT, "_meta": []}]}]},
        {"messages": [{"role": "user", "content": block} for block in (TEXT, {**TEXT, "_meta": {}})]},
    ),
    ("resources/templates/list", {"resourceTemplates": None}, {"resourceTemplates": []}),
    ("prompts/list", {"prompts": [{**PROMPT, "arguments": [{}]}]}, {"prompts": [{**PROMPT, "arguments": []}]}),
    ("completion/complete", {"completion": {"values": None, "total": "many"}}, {"completion": {"values": []}}),
    ("ping", {"_meta": "odd", "more": 1}, {}),
)
def test_odd_members_of_other_results_are_repaired_or_dropped(version, method, result, expected):
    read = mended(method, version, result)
    of_newest = ("resultType", "ttlMs", "cacheScope")
    assert {name: value for name, value in read.items() if name not in of_newest} == expected


PROGRESS = {"progressToken": 1, "progress": 1}
URL = {"mode": "url", "message": "m", "url": "https://example.com", "elicitationId": "1"}


@rows(
    ("method", "params", "expected"),
    ("notifications/progress", {"progressToken": 1, "progress": 1, "total": []}, PROGRESS),
    ("roots/list", {"_meta": []}, {"_meta": {}}),
    ("elicitation/create", {"message": "m", "requestedSchema": []}, {"message": "m", "requestedSchema": {}}),
    ("elicitation/create", {**URL, "_meta": []}, {**URL, "_meta": {}}),
    (
        "sampling/createMessage",
        {"messages": [{"role": "user", "content": [{**TEXT, "_meta": []}]}, {}], "maxTokens": 5, "metadata": []},
        {"messages": [{"role": "user", "content": [{**TEXT, "_meta": {}}]}], "maxTokens": 5, "metadata": {}},
    ),
    ("unknown/method", {"_meta": []}, {"_meta": []}),
    ("elicitation/create", {"message": 5}, {"message": 5}),
)
def test_odd_parameters_of_requests_and_notifications_are_repaired(method: str, params: Any, expected: Any) -> None:
    assert repair_params(method, params) == expected
