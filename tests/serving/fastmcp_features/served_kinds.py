# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is served: the same behaviour as a function, a tool, a pipeline and an agent of Haystack.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from haystack import Pipeline, component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage
from haystack.tools import Tool

from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server
from haystack_integrations.tools.mcp.serving.server import HaystackServer

NAME = "thing"

Behaviour = Callable[[str], str]


@component
class Speaker:
    """
    Says what the behaviour makes of a text.
    """

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour

    @component.output_types(answer=str)
    def run(self, text: str) -> dict[str, str]:
        return {"answer": self.behaviour(text)}


@component
class ObligingChatGenerator:
    """
    A model that answers a task with what the behaviour makes of it.
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

    :param name: What is served.
    :param argument: The argument for the text.
    :param answer: The key of the structured content for the answer.
    :param serve: Makes the parameter of `create_mcp_server` and its value.
    """

    name: str
    argument: str
    answer: str
    serve: Callable[[Behaviour], tuple[str, Any]]

    def server(self, behaviour: Behaviour = str.upper, options: Any = None, **of_server: Any) -> HaystackServer:
        """
        Serve the behaviour as `thing`.
        """
        parameter, value = self.serve(behaviour)
        options = {NAME: options or ServeOptions()}
        return create_mcp_server("shop", **{parameter: value}, options=options, **of_server)

    def arguments(self, text: Any) -> dict[str, Any]:
        """
        Arguments of a call with a text.
        """
        return {self.argument: text}

    def several(self, versions: dict[str, Behaviour]) -> HaystackServer:
        """
        Serve several behaviours as versions of `thing`.
        """
        parameter, _ = self.serve(str)
        if parameter == "tools":
            tools = [(self.serve(each)[1][0], ServeOptions(version=version)) for version, each in versions.items()]
            return create_mcp_server("shop", tools=tools)
        things = {f"v{version}": self.serve(each)[1][NAME] for version, each in versions.items()}
        options = {f"v{version}": ServeOptions(name=NAME, version=version) for version in versions}
        return create_mcp_server("shop", **{parameter: things}, options=options)

    def __str__(self) -> str:
        return self.name


def _function(behaviour: Behaviour) -> tuple[str, Any]:
    def thing(text: str) -> str:
        return behaviour(text)

    return "tools", [thing]


def _tool(behaviour: Behaviour) -> tuple[str, Any]:
    def say(text: str) -> str:
        return behaviour(text)

    parameters = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
    return "tools", [Tool(NAME, "Says something.", parameters, say)]


def _pipeline(behaviour: Behaviour) -> tuple[str, Any]:
    pipeline = Pipeline()
    pipeline.add_component("speaker", Speaker(behaviour))
    return "pipelines", {NAME: pipeline}


def _agent(behaviour: Behaviour) -> tuple[str, Any]:
    return "agents", {NAME: Agent(chat_generator=ObligingChatGenerator(behaviour))}


KINDS = [
    Kind("function", "text", "result", _function),
    Kind("tool", "text", "result", _tool),
    Kind("pipeline", "text", "answer", _pipeline),
    Kind("agent", "task", "answer", _agent),
]
