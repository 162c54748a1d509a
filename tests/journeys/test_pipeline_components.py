# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Pipelines of the components without an Agent, and pipelines from YAML.
"""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import haystack
import pytest
import yaml
from haystack import Document, Pipeline
from haystack.components.agents import Agent, State
from haystack.components.joiners import BranchJoiner
from haystack.dataclasses import ChatMessage
from haystack.utils import Secret

from haystack_integrations.components.builders.mcp import MCPPromptBuilder
from haystack_integrations.components.fetchers.mcp import MCPResourceFetcher
from haystack_integrations.components.tools.mcp import MCPToolCaller, MCPToolRunner
from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPHandlers,
    MCPResourceToolset,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from tests.support.in_process import COUNTER
from tests.support.scripted_chat import ScriptedChatGenerator, calls, say

ROOT = Path(__file__).parents[2]
NOTES = InProcessServerInfo("examples.servers.notes:server")

# On Haystack 2, pipelines that run asynchronously have a separate class.
AsyncPipeline = Pipeline if hasattr(Pipeline, "run_async") else haystack.AsyncPipeline


@pytest.fixture(params=["run", "run_async"])
def run(request: pytest.FixtureRequest) -> Iterator[Any]:
    """
    Builds a pipeline of components and connections, runs it in each of its two ways, and closes the components.
    """
    used: list[Any] = []

    def run(components: dict[str, Any], connections: list[tuple[str, str]], data: dict[str, Any]) -> dict[str, Any]:
        pipeline = (Pipeline if request.param == "run" else AsyncPipeline)()
        for name, instance in components.items():
            pipeline.add_component(name, instance)
            used.append(instance)
        for sender, receiver in connections:
            pipeline.connect(sender, receiver)
        result: dict[str, Any] = pipeline.run(data) if request.param == "run" else asyncio.run(pipeline.run_async(data))
        return result

    yield run
    for instance in used:
        if hasattr(instance, "close"):
            instance.close()


def test_a_pipeline_loop_with_a_tool_caller_gives_the_answer_of_an_agent(run) -> None:
    script = [
        calls(("add", {"a": 5, "b": 3}), ("echo", {"text": "hello"})),
        calls(("no_such_tool", {}), ("fail", {"message": "on purpose"})),
        say("8, and hello"),
    ]
    question = [ChatMessage.from_user("go")]
    with MCPToolset(COUNTER) as toolset:
        agent = Agent(chat_generator=ScriptedChatGenerator(script), tools=toolset)
        of_agent = agent.run(messages=question)["messages"]
        llm = ScriptedChatGenerator(script)
        result = run(
            {"turn": BranchJoiner(list[ChatMessage]), "llm": llm, "caller": MCPToolCaller(toolset)},
            [
                ("turn", "llm.messages"),
                ("turn", "caller.history"),
                ("llm.replies", "caller.messages"),
                ("caller.messages", "turn"),
            ],
            {"turn": {"value": question}, "llm": {"tools": toolset}},
        )
    [answer] = result["caller"]["replies"]
    of_loop = [*llm.turns[-1].messages, answer]
    assert [message.role for message in of_loop] == [message.role for message in of_agent]
    assert answer.text == of_agent[-1].text
    same, unknown = [0, 1, 2, 3, 4, 6, 7], 5
    assert [of_loop[number] for number in same] == [of_agent[number] for number in same]
    # Only the error for an unknown tool differs: ours does not list all tools.
    assert of_loop[unknown].tool_call_results[0].error


def test_a_state_that_is_connected_back_lasts_for_all_turns_of_a_loop(run) -> None:
    llm = ScriptedChatGenerator([calls(("add", {"a": 5, "b": 3})), calls(("add", {"b": 1})), say("9")])
    with MCPToolset(
        COUNTER,
        inputs_from_state={"add": {"sum": "a"}},
        outputs_to_state={"add": {"sum": {"source": "result"}}},
    ) as toolset:
        caller = MCPToolCaller(toolset, state_schema={"sum": {"type": int}})
        result = run(
            {"turn": BranchJoiner(list[ChatMessage]), "llm": llm, "caller": caller, "kept": BranchJoiner(State)},
            [
                ("turn", "llm.messages"),
                ("turn", "caller.history"),
                ("llm.replies", "caller.messages"),
                ("caller.messages", "turn"),
                ("caller.state", "kept"),
                ("kept", "caller.state"),
            ],
            {"turn": {"value": [ChatMessage.from_user("go")]}},
        )
    assert (result["caller"]["sum"], result["caller"]["replies"][0].text) == (9, "9")


@pytest.mark.skipif(not hasattr(Pipeline, "close"), reason="pipelines of Haystack 2 cannot be closed")
async def test_a_pipeline_closes_the_connections_of_its_components() -> None:
    # A separate server info, because components of other tests may not have been garbage-collected yet.
    notes = InProcessServerInfo(NOTES.server, max_in_flight=100)
    components = {
        "fetcher": MCPResourceFetcher(notes, prefix=""),
        "builder": MCPPromptBuilder(notes, "summarize"),
        "caller": MCPToolCaller([MCPToolset(notes), MCPResourceToolset(notes)]),
        "runner": MCPToolRunner(MCPTool("find", notes), ["word"]),
    }
    pipeline = Pipeline()
    for name, instance in components.items():
        pipeline.add_component(name, instance)
    connections = [components["fetcher"].connection, components["builder"].connection]
    connections += [components["runner"].tool.connection, *(each.connection for each in components["caller"].tools)]
    pipeline.warm_up()
    assert connections[0].status().users == len(connections)
    pipeline.close()
    assert not any(connection.is_ready for connection in connections)
    await pipeline.warm_up_async()
    assert connections[0].status().users == len(connections)
    await pipeline.close_async()
    assert not any(connection.is_ready for connection in connections)


def test_the_resources_linked_in_the_result_of_a_tool_are_fetched(run) -> None:
    runner = MCPToolRunner(MCPTool("find", NOTES), ["word"])
    result = run(
        {"runner": runner, "fetcher": MCPResourceFetcher(NOTES)},
        [("runner.links", "fetcher.uris")],
        {"runner": {"word": "roses"}},
    )
    [document] = result["fetcher"]["documents"]
    assert document.content.startswith("# Garden")


def keep_last(_current: Any, new: Any) -> Any:
    return new


def stored_pipeline() -> Pipeline:
    """
    Return a pipeline with every component, whose servers do not exist.
    """
    http = StreamableHttpServerInfo("http://127.0.0.1:9/mcp", token=Secret.from_env_var("MCP_TOKEN"))
    stdio = StdioServerInfo("/there/is/no/such/program", env={"KEY": Secret.from_env_var("MCP_TOKEN")})
    pipeline = Pipeline()
    components = {
        "fetcher": MCPResourceFetcher(
            http, ["a://b"], uri_template="a://{day}{?page}", max_resources=None, handlers=MCPHandlers(roots=["/srv"])
        ),
        "builder": MCPPromptBuilder(
            stdio, "greet", ["name", "documents"], ["name"], arguments={"type": "a.b.C"}, system_role="first"
        ),
        "llm": ScriptedChatGenerator([say("done")]),
        "caller": MCPToolCaller(
            [MCPToolset(http, tool_names=["add"]), MCPResourceToolset(stdio, uris=["a://*"])],
            max_concurrency=2,
            state_schema={"sum": {"type": list[float], "handler": keep_last}},
        ),
        "runner": MCPToolRunner(
            MCPTool("count", stdio),
            {"documents": list[Document], "limit": int},
            optional_inputs=["limit"],
            outputs={"total": list[float]},
            arguments={"type": "a.b.C"},
        ),
    }
    for name, instance in components.items():
        pipeline.add_component(name, instance)
    pipeline.connect("fetcher.documents", "builder.documents")
    pipeline.connect("fetcher.documents", "runner.documents")
    pipeline.connect("builder.prompt", "llm.messages")
    pipeline.connect("llm.replies", "caller.messages")
    pipeline.connect("runner.total", "caller.sum")
    return pipeline


def load(text: str) -> Pipeline:
    options = {"allowed_modules": ["tests.*"]} if "allowed_modules" in Pipeline.loads.__annotations__ else {}
    return Pipeline.loads(text, **options)


def test_every_component_survives_yaml_with_its_connections(monkeypatch) -> None:
    monkeypatch.setenv("MCP_TOKEN", "s3ntinel")
    text = stored_pipeline().dumps()
    assert "s3ntinel" not in text
    loaded = load(text)
    assert loaded.to_dict()["components"] == yaml.safe_load(text)["components"]
    assert set(loaded.graph.edges) == set(stored_pipeline().graph.edges)
    assert loaded.get_component("runner").__haystack_input__._sockets_dict["documents"].type == list[Document]
    assert loaded.get_component("caller").state_schema["sum"]["handler"] is keep_last
