# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Pipelines, components and Agents that tests serve.
"""

import importlib
import threading
from typing import Any

import haystack
from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.components.builders import PromptBuilder
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.dataclasses import Document
from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_integrations.tools.mcp.haystack_compat import HAS_HOOKS

LIMIT = 30.0
hitl = importlib.import_module("haystack.hooks.human_in_the_loop" if HAS_HOOKS else "haystack.human_in_the_loop")
# On Haystack 2, pipelines that run in an event loop have a separate class.
AsyncPipeline: Any = getattr(haystack, "AsyncPipeline", Pipeline)


class Notes:
    """The progress notifications of a client."""

    def __init__(self) -> None:
        self.numbers: list[float] = []
        self.messages: list[str | None] = []

    async def __call__(self, done: float, total: float | None, message: str | None) -> None:
        self.numbers.append(done)
        self.messages.append(message)


@component
class Gate:
    """Blocks its thread until a test lets it continue."""

    def __init__(self) -> None:
        self.entered = threading.Event()
        self.may_end = threading.Event()

    @component.output_types(text=str)
    def run(self, text: str) -> dict[str, Any]:
        self.entered.set()
        assert self.may_end.wait(LIMIT)
        return {"text": text}


@component
class Shout:
    """Counts its runs."""

    def __init__(self) -> None:
        self.runs = 0

    @component.output_types(text=str, length=int)
    def run(self, text: str, mark: str = "!") -> dict[str, Any]:
        """
        Shout.

        :param text: What to shout.
        :param mark: What comes at its end.
        """
        self.runs += 1
        return {"text": text.upper() + mark, "length": len(text)}


def rag_pipeline() -> Pipeline:
    """Return a pipeline of a retriever and a prompt with its documents."""
    store = InMemoryDocumentStore()
    store.write_documents([Document(content="Berlin is in Germany."), Document(content="Paris is in France.")])
    pipeline = Pipeline(metadata={"description": "Answers questions about cities."})
    pipeline.add_component("retriever", InMemoryBM25Retriever(store, top_k=1))
    pipeline.add_component("prompt", PromptBuilder("{{ query }} {% for d in documents %}{{ d.content }}{% endfor %}"))
    pipeline.connect("retriever.documents", "prompt.documents")
    return pipeline


def chain(*components: Any, kind: Any = Pipeline) -> Any:
    """Return a pipeline of components, each of which gets the `text` of the previous one."""
    pipeline = kind()
    for number, each in enumerate(components):
        pipeline.add_component(f"c{number}", each)
        if number:
            pipeline.connect(f"c{number - 1}.text", f"c{number}.text")
    return pipeline


def approving(strategies: dict[str, Any], **parameters: Any) -> Agent:
    """Return an Agent that asks before it calls a tool with a strategy."""
    if HAS_HOOKS:
        return Agent(hooks={"before_tool": [hitl.ConfirmationHook(strategies)]}, **parameters)
    return Agent(confirmation_strategies=strategies, **parameters)
