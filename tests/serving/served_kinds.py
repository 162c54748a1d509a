# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The kinds of served objects: the same behaviour as a function, a tool, a pipeline and an agent of Haystack.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool

from haystack_integrations.tools.mcp.serving import create_mcp_server
from haystack_integrations.tools.mcp.serving.server import HaystackServer

NAME = "thing"

Behaviour = Callable[[str], str]


@component
class Speaker:
    """
    Applies the behaviour to a text.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    @component.output_types(answer=str)
    def run(self, text: str) -> dict[str, str]:
        return {"answer": self.behaviour(text)}


@component
class ObligingChatGenerator:
    """
    A model that answers with the behaviour, applied to the task.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage], tools: Any = None, **_parameters: Any) -> dict[str, list[ChatMessage]]:
        return {"replies": [ChatMessage.from_assistant(self.behaviour(messages[-1].text))]}


@dataclass(frozen=True)
class Kind:
    """
    One way to serve a behaviour.

    :param name: Its name.
    :param argument: The name of the argument for the text.
    :param answer: The key of the answer in the structured content.
    :param serve: Returns the parameters of `create_mcp_server`.
    """

    name: str
    argument: str
    answer: str
    serve: Callable[[Behaviour], dict[str, Any]]

    def server(self, behaviour: Behaviour = str.upper, options: Any = None, **of_server: Any) -> HaystackServer:
        """
        Serve the behaviour as `thing`.
        """
        return create_mcp_server("shop", **self.serve(behaviour), options={NAME: options}, **of_server)

    def arguments(self, text: Any) -> dict[str, Any]:
        """
        Return the arguments of a call with a text.
        """
        return {self.argument: text}

    def __str__(self) -> str:
        return self.name


def _function(behaviour: Behaviour) -> dict[str, Any]:
    def thing(text: str) -> str:
        return behaviour(text)

    return {"tools": [thing]}


def _tool(behaviour: Behaviour) -> dict[str, Any]:
    def say(text: str) -> str:
        return behaviour(text)

    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return {"tools": [Tool(NAME, "Says something.", parameters, say)]}


def _pipeline(behaviour: Behaviour) -> dict[str, Any]:
    pipeline = Pipeline()
    pipeline.add_component("speaker", Speaker(behaviour))
    return {"pipelines": {NAME: pipeline}}


def _agent(behaviour: Behaviour) -> dict[str, Any]:
    return {"agents": {NAME: Agent(chat_generator=ObligingChatGenerator(behaviour))}}


KINDS = [
    Kind("function", "text", "result", _function),
    Kind("tool", "text", "result", _tool),
    Kind("pipeline", "text", "answer", _pipeline),
    Kind("agent", "task", "answer", _agent),
]
