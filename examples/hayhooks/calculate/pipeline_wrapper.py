# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A durable Agent that hayhooks serves and restarts, with a journal, so that nothing is paid twice.

    pip install "hayhooks[durable]" "mcp-haystack[durable]"
    cd examples
    HAYHOOKS_DURABLE_MODE=true HAYHOOKS_PIPELINES_DIR=hayhooks HAYHOOKS_ADDITIONAL_PYTHON_PATH=. hayhooks run

hayhooks knows which executions did not end, and runs them again; the journal knows what was done in them. Do not use
`context.run_agent`: it restores the Agent's State from its own checkpoint, which the journal treats as another run.
"""

import sys
import time
from pathlib import Path

from hayhooks import BasePipelineWrapper
from hayhooks.durable import DurableContext
from haystack.components.agents import Agent
from haystack.dataclasses import ChatMessage, ToolCall
from pydantic import BaseModel
from scripted_chat import chat_generator

from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo
from haystack_integrations.tools.mcp.durable import RunJournal
from haystack_integrations.tools.mcp.errors import MCPRunElsewhereError

SERVER = Path(__file__).parents[2] / "servers" / "calculator.py"


class Question(BaseModel):
    text: str


class Answer(BaseModel):
    text: str


class PipelineWrapper(BasePipelineWrapper):
    durable_revision = "1"

    def setup(self) -> None:
        self.journal = RunJournal("sqlite:///runs.db", lease=5)
        tools = MCPToolset(StdioServerInfo(command=sys.executable, args=[str(SERVER)]))
        generator = chat_generator([ToolCall("add", {"a": 5, "b": 3})])
        self.pipeline = Agent(chat_generator=self.journal.generator(generator), tools=tools)

    def run_durable(self, context: DurableContext, request: Question) -> Answer:
        while True:
            try:
                with self.journal.run(context.execution_id):
                    result = self.pipeline.run(messages=[ChatMessage.from_user(request.text)])
                return Answer(text=result["messages"][-1].text)
            except MCPRunElsewhereError:  # until the lease of the killed process ends
                time.sleep(0.5)
