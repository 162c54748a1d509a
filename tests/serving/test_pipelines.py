# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from fastmcp import Client
from fastmcp.dependencies import Depends
from fastmcp.exceptions import ToolError
from haystack import Pipeline, SuperComponent, component
from haystack.components.converters import OutputAdapter
from haystack.core.errors import DeserializationError
from haystack.tools import ComponentTool

from haystack_integrations.tools.mcp import MCPToolset
from haystack_integrations.tools.mcp.serving import ServeOptions, calls, create_mcp_server
from tests.serving.components import (
    LIMIT,
    AsyncPipeline,
    Gate,
    Notes,
    Shout,
    chain,
    rag_pipeline,
)
from tests.support.reachable import reachable
from tests.support.rows import rows


@asynccontextmanager
async def serving(pipeline: Any, **options: Any) -> AsyncIterator[Client[Any]]:
    server = create_mcp_server("shop", pipelines={"ask": pipeline}, options={"ask": ServeOptions(**options)})
    async with Client(server) as client:
        yield client


async def test_clients_set_mandatory_inputs_but_never_a_template_or_a_filter():
    async with serving(rag_pipeline()) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool("ask", {"query": "Where is Berlin?"})
        for name in ("template", "filters", "top_k", "retriever"):
            with pytest.raises(ToolError):
                await client.call_tool("ask", {"query": "Berlin", name: "x"})

    assert tool.description == "Answers questions about cities."
    assert tool.input_schema == {
        "type": "object",
        "properties": {"query": {"type": "string", "description": "The query string for the Retriever."}},
        "required": ["query"],
        "additionalProperties": False,
    }
    assert result.structured_content == {"prompt": "Where is Berlin? Berlin is in Germany."}


class Counting(Pipeline):
    """Counts its runs in its own attributes, where Haystack also stores when it sent telemetry."""

    def __init__(self) -> None:
        super().__init__()
        self.runs = 0
        self.noted: list[int] = []

    def run(self, data: dict[str, Any], *args: Any, **kwargs: Any) -> dict[str, Any]:
        self.runs += 1
        self.noted.append(self.runs)
        return super().run(data, *args, **kwargs)


async def test_attributes_of_a_pipeline_are_kept_between_calls():
    pipeline = chain(Shout(), kind=Counting)
    async with serving(pipeline) as client:
        for _ in range(3):
            await client.call_tool("ask", {"text": "a"})

    assert (pipeline.noted, pipeline.runs) == ([1, 2, 3], 0)


@rows(
    ("inputs", "arguments", "outputs", "expected"),
    (
        ["retriever.query", "prompt.query", "top_k"],
        {"query": "city", "top_k": 2},
        ["documents", "prompt.prompt"],
        ["documents", "prompt"],
    ),
    (
        {"question": ["retriever.query", "prompt.query"], "limit": "retriever.top_k"},
        {"question": "city", "limit": 2},
        {"found": "retriever.documents"},
        ["found"],
    ),
    ({"question": "query", "limit": "top_k"}, {"question": "city", "limit": 2}, {"text": "prompt"}, ["text"]),
)
async def test_inputs_and_outputs_are_chosen_and_named(inputs: Any, arguments: Any, outputs: Any, expected: Any):
    async with serving(rag_pipeline(), inputs=inputs, outputs=outputs) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool("ask", arguments)

    assert list(tool.input_schema["properties"]) == list(arguments)
    assert tool.input_schema["required"] == [next(iter(arguments))]
    assert tool.output_schema is not None and list(tool.output_schema["properties"]) == expected
    assert list(result.structured_content or {}) == expected


async def test_bound_inputs_are_neither_seen_nor_set_by_clients():
    filters = {"field": "meta.tenant", "operator": "==", "value": "nobody"}
    bound: Any = {"retriever.filters": Depends(lambda: filters), "mark": "?"}
    pipeline = rag_pipeline()
    pipeline.add_component("shout", Shout())
    pipeline.connect("prompt", "shout.text")
    async with serving(pipeline, bound=bound) as client:
        (tool,) = await client.list_tools()
        assert list(tool.input_schema["properties"]) == ["query"]
        result = await client.call_tool("ask", {"query": "Berlin"})
        with pytest.raises(ToolError):
            await client.call_tool("ask", {"query": "Berlin", "mark": "."})

    assert result.structured_content == {"text": "BERLIN ?", "length": 7}


@component
class Empty:
    @component.output_types(output=str)
    def run(self, replies: list[str]):
        return {"output": None}


@rows(("made", "output"), (lambda: OutputAdapter("{{ replies[0] }}", str), {"output": "42"}), (Empty, {}))
async def test_an_output_is_the_declared_text_even_if_it_looks_like_a_number_and_none_is_left_out(made, output):
    pipeline = Pipeline()
    pipeline.add_component("adapter", made())
    tool = ComponentTool(made(), name="tool", description="Adapts.")
    async with Client(create_mcp_server("shop", tools=[tool], pipelines={"ask": pipeline})) as client:
        for name in ("tool", "ask"):
            assert (await client.call_tool(name, {"replies": ["42"]})).structured_content == output


async def test_sockets_with_the_same_name_get_different_names():
    pipeline = Pipeline()
    pipeline.add_component("a", Shout())
    pipeline.add_component("b", Shout())
    pipeline.add_component("c", Takes())
    pipeline.add_component("d", TakesAnotherNumber())
    async with serving(pipeline) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool("ask", {"text": "hi", "c_number": 1, "d_number": "2"})

    # One argument is passed to all inputs with its name and type.
    assert tool.input_schema["required"] == ["text", "c_number", "d_number"]
    shouted = {"a_text": "HI!", "a_length": 2, "b_text": "HI!", "b_length": 2}
    assert result.structured_content == {**shouted, "c_done": True, "d_done": True}


@component
class Takes:
    @component.output_types(done=bool)
    def run(self, text: str, number: int, callback: Any = None) -> dict[str, Any]:
        return {"done": True}


@component
class TakesAnotherNumber:
    @component.output_types(done=bool)
    def run(self, number: str, tools: MCPToolset | None = None) -> dict[str, Any]:
        return {"done": True}


@rows(
    ("options", "message"),
    ({"inputs": ["text"]}, r"Nothing sets a\.number"),
    ({"inputs": ["other"]}, r"`inputs` names 'other', which is not among the sockets of the pipeline: a\.text"),
    ({"outputs": ["other"]}, "`outputs` names 'other'"),
    ({"bound": {"other": 1}}, "`bound` names 'other'"),
    ({"inputs": ["text", "number"]}, "sockets of different types"),
    ({"outputs": ["done"]}, "Several components have the output 'done'"),
    ({"outputs": ["a.done", "b.done"]}, "have the same name"),
    (
        {"inputs": {"text": "text", "one": "a.number", "two": "b.number", "tools": "b.tools"}},
        r"The input 'tools' \(b\.tools\) is of type",
    ),
)
def test_invalid_options_are_refused_when_the_server_is_created(options: Any, message: str):
    pipeline = Pipeline()
    pipeline.add_component("a", Takes())
    pipeline.add_component("b", TakesAnotherNumber())
    with pytest.raises(ValueError, match=f"'ask' cannot be served.*{message}"):
        create_mcp_server("shop", pipelines={"ask": pipeline}, options={"ask": options})


class CitySearch(SuperComponent):
    """Finds cities."""


MAPPING = {"question": ["retriever.query", "prompt.query"], "limit": ["retriever.top_k"]}


@rows(
    ("mapping", "options", "properties"),
    (MAPPING, {}, ["question", "limit"]),
    (MAPPING, {"inputs": {"text": "question"}, "bound": {"limit": 1}}, ["text"]),
    ({"große Frage": MAPPING["question"]}, {}, ["große Frage"]),
    (None, {}, ["query"]),
)
async def test_a_super_component_is_served_under_its_own_names(mapping: Any, options: Any, properties: list[str]):
    served = CitySearch(rag_pipeline(), input_mapping=mapping, output_mapping={"prompt.prompt": "answer"})
    async with serving(served, **options) as client:
        (tool,) = await client.list_tools()
        result = await client.call_tool("ask", {properties[0]: "Berlin"})

    assert tool.description == "Finds cities."
    assert list(tool.input_schema["properties"]) == properties
    assert result.structured_content == {"answer": "Berlin Berlin is in Germany."}


async def test_yaml_is_served_as_text_and_as_file(tmp_path: Path):
    text, file = chain(Shout()).dumps(), tmp_path / "shout.yaml"
    file.write_text(text, encoding="utf-8")
    async with Client(create_mcp_server("shop", pipelines={"text": text, "path": file, "name": str(file)})) as client:
        for name in ("text", "path", "name"):
            assert (await client.call_tool(name, {"text": "a"})).structured_content == {"text": "A!", "length": 1}


@rows(
    ("text", "reason"),
    ("components:\n  x: [secret, 2\n  y: 3\n", "malformed in line 3, column 4: expected ',' or"),
    ("components:\n  x:\n    type: no.such.Class\n", r"no\.such"),
    (
        "components: {x: {type: haystack.components.joiners.branch.BranchJoiner, init_parameters: {a: secret}}}",
        r"'x' of class 'BranchJoiner'\. Original error: ",
    ),
    ("nowhere.yaml", "No such file or directory.*Pass the path"),
    (Path(__file__).parent, "in UTF-8"),
)
def test_yaml_that_cannot_be_loaded_is_refused_with_its_name_and_the_reason(text: Any, reason: str):
    message = f"(?s)^The pipeline 'ask' cannot be loaded from .*: .*{reason}"
    with pytest.raises(DeserializationError, match=message) as told:
        create_mcp_server("shop", pipelines={"ask": text})
    assert "secret" not in str(told.value)


async def test_a_cancelled_call_does_not_start_another_component():
    gate, shout = Gate(), Shout()
    async with serving(chain(gate, shout), timeout=60) as client:
        call = asyncio.create_task(client.call_tool("ask", {"text": "a"}))
        assert await asyncio.to_thread(gate.entered.wait, LIMIT)
        call.cancel()
        await asyncio.wait([call])
        # The server has processed the cancellation when it answers a later request.
        await client.list_tools()
        gate.may_end.set()
        assert (await client.call_tool("ask", {"text": "b"})).structured_content == {"text": "B!", "length": 1}

    assert shout.runs == 1


async def test_a_cancellation_reaches_an_asynchronous_component():
    entered, cancelled = asyncio.Event(), asyncio.Event()

    @component
    class Waits:
        @component.output_types(text=str)
        def run(self, text: str) -> dict[str, Any]:
            raise NotImplementedError

        @component.output_types(text=str)
        async def run_async(self, text: str) -> dict[str, Any]:
            entered.set()
            try:
                await asyncio.sleep(LIMIT)
            finally:
                cancelled.set()
            return {"text": text}

    server = create_mcp_server("shop", pipelines={"ask": chain(Waits(), kind=AsyncPipeline)})
    async with asyncio.timeout(LIMIT / 2), Client(server) as client:
        call = asyncio.create_task(client.call_tool("ask", {"text": "a"}))
        await entered.wait()
        call.cancel()
        await cancelled.wait()


@rows("over_http", False, True)
async def test_progress_names_each_component_in_its_order_and_shows_that_a_slow_call_is_alive(
    over_http: bool, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(calls, "HEARTBEAT_INTERVAL", 0.05)
    monkeypatch.setattr(calls, "FIRST_REPORT_DELAY", 0.05)
    gate = Gate()
    seen: list[tuple[float, float | None, str | None]] = []

    async def note(*told: Any) -> None:
        seen.append(told)
        if told[2] == "Running c1 ...":
            gate.may_end.set()

    server = create_mcp_server("shop", pipelines={"ask": chain(Shout(), gate, Shout())})
    async with reachable(server, over_http=over_http) as target, Client(target) as client:
        await client.call_tool("ask", {"text": "a"}, progress_handler=note)
        await client.list_tools()

    # On a busy machine, other components may also be slow.
    steps = dict.fromkeys(str(message).removesuffix(" ...") for _, _, message in seen)
    assert [step for step in steps if step != "Working"] == ["Running c0", "Running c1", "Running c2"]
    assert [done for done, _, _ in seen] == sorted({done for done, _, _ in seen})
    assert {total for _, total, _ in seen} == {3}


@pytest.mark.parametrize(("size", "patience", "steps"), [(3_000_000, LIMIT, 0), (900_000, 0.0, 1)])
async def test_a_large_result_reaches_a_client_that_asks_for_progress_over_http(
    monkeypatch: pytest.MonkeyPatch, size: int, patience: float, steps: int
):
    monkeypatch.setattr(calls, "FIRST_REPORT_DELAY", patience)
    notes = Notes()
    server = create_mcp_server("shop", pipelines={"ask": chain(Shout())})
    async with reachable(server) as url, Client(url, progress_handler=notes) as client:
        result = await client.call_tool("ask", {"text": "a" * size})

    assert len((result.structured_content or {})["text"]) == size + 1
    # The result is not sent twice.
    assert len("".join(block.text for block in result.content)) < 100_000
    assert result.content[-1].text.endswith("All of it is in the structured content.")
    assert len(notes.messages) == steps
