# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A pipeline that takes minutes, as a background task (Haystack 2 and 3).

It is served as a task, and takes longer than a call may. An Agent calls it like any other tool. Without an Agent, a task
is started, stored, and continued later.
"""

import json
import time

from haystack import Document, Pipeline, component
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from scripted_chat import chat_generator, print_conversation

from haystack_integrations.tools.mcp import CallOptions, InProcessServerInfo, MCPConnection, MCPToolset
from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server


@component
class Survey:
    """A stand-in for a slow component."""

    @component.output_types(documents=list[Document])
    def run(self, topic: str):
        """
        Survey a topic.

        :param topic: The topic.
        """
        time.sleep(2)
        return {"documents": [Document(content=f"All about {topic}.")]}


pipeline = Pipeline()
pipeline.add_component("survey", Survey())
server = create_mcp_server(
    "archive",
    pipelines={"survey": pipeline},
    options={"survey": ServeOptions(task=True, description="Survey a topic.")},
)
ARCHIVE = InProcessServerInfo(server)


def ask_an_agent() -> None:
    with MCPToolset(ARCHIVE, invocation_timeout=1, call_options=CallOptions(task_timeout=600)) as toolset:
        agent = Agent(chat_generator=chat_generator([ToolCall("survey", {"topic": "tea"})]), tools=toolset)
        print_conversation(agent.run(messages=[ChatMessage.from_user("What is known of tea?")])["messages"])


def take_it_up_again() -> None:
    # A server in this process stops with its last connection, so this one stays open until the task has ended.
    with MCPConnection(ARCHIVE) as connection, MCPToolset(ARCHIVE) as toolset:
        kept = json.dumps(connection.begin_call("survey", {"topic": "jam"}).to_dict())
        call = MCPPendingCall.from_dict(json.loads(kept))
        print(f"{call.tool_name} runs as a task: {call.task_id is not None}")
        print(toolset["survey"].continue_call(call).structured["documents"][0]["content"])


def main() -> None:
    ask_an_agent()
    take_it_up_again()


if __name__ == "__main__":
    main()
