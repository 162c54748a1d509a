# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from pathlib import Path
from typing import Any

import pytest
from haystack import Document, Pipeline
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.components.writers import DocumentWriter
from haystack.dataclasses import ImageContent, TextContent
from haystack.document_stores.in_memory import InMemoryDocumentStore
from mcp import types

from haystack_integrations.components.fetchers.mcp import MCPResourceFetcher
from haystack_integrations.components.tools.mcp import MCPToolRunner
from haystack_integrations.tools.mcp import (
    MCPInvocationError,
    MCPTool,
    MCPToolNotFoundError,
    MCPToolSnapshot,
    StdioServerInfo,
)
from tests.components.conftest import inputs_of
from tests.support.foreign_server import PIXEL, ForeignServer, definition, text_result
from tests.support.prepared import prepared_python

CALCULATOR = Path(__file__).parents[2] / "examples" / "servers" / "calculator.py"
NUMBERS = {"type": "array", "items": {"type": "number"}}


PROPERTIES = {"numbers": NUMBERS, "note": {"type": "string"}, "arguments": {"type": "string"}}
RESOURCE = types.TextResourceContents(uri="sums://1", mime_type="text/plain", text="a sum")
SUM = types.CallToolResult(
    content=[
        types.TextContent(type="text", text="It is 3."),
        types.ImageContent(type="image", data=PIXEL, mime_type="image/png"),
        types.EmbeddedResource(type="resource", resource=RESOURCE),
        types.ResourceLink(type="resource_link", uri="sums://all", name="all"),
    ],
    structured_content={"total": 3, "count": 2},
)


class Adder(ForeignServer):
    """
    A server with a tool that adds numbers.
    """

    def __init__(self) -> None:
        super().__init__(definition("total", {"type": "object", "properties": PROPERTIES, "required": ["numbers"]}))
        self.answer = SUM

    def tool(self, name: str = "total", **parameters: Any) -> MCPTool:
        return MCPTool(name, self.info, **parameters)

    @property
    def arguments(self) -> list[dict[str, Any]]:
        return [arguments for _, arguments in self.calls]


@pytest.fixture
def adder() -> Adder:
    return Adder()


def test_a_tool_returns_its_result_in_every_form(use, adder, caplog):
    outputs = use(MCPToolRunner(adder.tool(), ["numbers"], outputs={"total": float, "other": str}), numbers=[1, 2])
    assert outputs["text"] == "It is 3."
    assert outputs["structured"] == {"total": 3, "count": 2}
    assert outputs["total"] == 3
    assert [type(part) for part in outputs["content"]] == [TextContent, ImageContent, TextContent, TextContent]
    assert [(document.content, document.meta) for document in outputs["documents"]] == [
        ("It is 3.", {"tool": "total"}),
        ("a sum", {"tool": "total", "uri": "sums://1", "mime_type": "text/plain"}),
    ]
    assert outputs["links"] == ["sums://all"]
    assert not {"error", "other"} & outputs.keys()
    assert "no value for the outputs other" in caplog.text
    assert "has: total, count" in caplog.text


def test_inputs_override_the_dictionary_of_arguments_which_overrides_defaults(use, adder):
    runner = MCPToolRunner(adder.tool(), ["numbers", "note"], arguments={"note": "default", "numbers": [0]})
    use(runner)
    use(runner, numbers=[1], note=None)
    use(runner, numbers=[1], arguments={"numbers": [2], "note": None})
    assert adder.arguments == [
        {"numbers": [0], "note": "default"},
        {"numbers": [1], "note": "default"},
        {"numbers": [2]},
    ]


def test_objects_of_haystack_are_passed_as_json(use, adder):
    document = Document(content="text", meta={"page": 1})
    note = {"documents": [document], "type": Document, "file": b"\xff"}
    use(MCPToolRunner(adder.tool(), ["numbers", "note"]), numbers=(), note=note)
    [sent] = adder.arguments
    assert sent["note"]["file"] == "/w=="
    assert sent["note"]["documents"][0]["content"] == "text"
    assert sent["numbers"] == []


def test_the_inputs_are_declared_and_required_as_configured(adder):
    assert inputs_of(MCPToolRunner(adder.tool())) == {"arguments": False}
    named = MCPToolRunner(adder.tool(), ["numbers", "note"], optional_inputs=["note"])
    assert inputs_of(named) == {"arguments": False, "numbers": True, "note": False}
    given = MCPToolRunner(adder.tool(), {"numbers": list[float]}, arguments={"numbers": []})
    assert inputs_of(given) == {"arguments": False, "numbers": False}
    assert given.__haystack_input__._sockets_dict["numbers"].type == list[float]
    assert not given.tool.connection.is_ready


def test_a_tool_runner_connects_to_components_for_documents_and_links(adder):
    pipeline, store = Pipeline(), InMemoryDocumentStore()
    pipeline.add_component("retriever", InMemoryBM25Retriever(store))
    pipeline.add_component("runner", MCPToolRunner(adder.tool(), {"numbers": list[Document]}))
    pipeline.add_component("writer", DocumentWriter(store))
    pipeline.add_component("fetcher", MCPResourceFetcher(adder.info))
    # Pipelines refuse connections between different types.
    pipeline.connect("retriever.documents", "runner.numbers")
    pipeline.connect("runner.documents", "writer.documents")
    pipeline.connect("runner.links", "fetcher.uris")


def test_the_default_inputs_are_those_that_the_server_declares(adder):
    pipeline = Pipeline()
    runner = MCPToolRunner(adder.tool(), outputs={"total": float})
    pipeline.add_component("runner", runner)
    assert pipeline.run({"runner": {"numbers": [1, 2]}})["runner"]["total"] == 3
    assert inputs_of(runner) == {"arguments": False, "numbers": True, "note": False}
    with pytest.raises(ValueError, match="Missing mandatory input 'numbers'"):
        pipeline.run({"runner": {"note": "x"}})
    runner.close()


def test_a_call_that_fails_is_an_error_or_an_output(use, adder):
    adder.answer = text_result("no sum today", is_error=True)
    with pytest.raises(MCPInvocationError, match="no sum today"):
        use(MCPToolRunner(adder.tool(), ["numbers"]), numbers=[])
    outputs = use(MCPToolRunner(adder.tool(), ["numbers"], raise_on_failure=False), numbers=[])
    assert list(outputs) == ["error"]
    assert "no sum today" in outputs["error"]
    with pytest.raises(MCPToolNotFoundError, match="Did you mean 'total'"):
        MCPToolRunner(adder.tool("totals")).warm_up()


def test_with_a_snapshot_the_inputs_are_known_without_connecting_before_the_first_run(tmp_path):
    snapshot = tmp_path / "calculator.json"
    with MCPTool("multiply", StdioServerInfo(prepared_python(), [str(CALCULATOR)])) as there:
        MCPToolSnapshot.capture(there).save(snapshot)
    tool = MCPTool("multiply", there.server_info, snapshot=snapshot)
    pipeline = Pipeline()
    pipeline.add_component("first", MCPToolRunner(tool, outputs={"result": float}))
    pipeline.add_component("second", MCPToolRunner(tool))
    pipeline.connect("first.result", "second.a")
    text = pipeline.dumps()
    loaded = Pipeline.loads(text)
    assert loaded.dumps() == text
    loaded.warm_up()
    runners = [loaded.get_component(name) for name in ("first", "second")]
    assert [runner.tool.connection.status().state for runner in runners] == ["idle", "idle"]
    assert inputs_of(runners[0]) == {"arguments": False, "a": True, "b": True}
    with pytest.raises(ValueError, match="Missing"):
        loaded.run({"first": {"a": 2}})
    assert loaded.run({"first": {"a": 2, "b": 3}, "second": {"b": 7}})["second"]["text"] == "42.0"
    for runner in runners:
        runner.close()
