# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server written with the MCP SDK whose tools send requests to the client, in every revision.

    python asking_server.py --transport stdio|sse|streamable-http [--protocol legacy] [--port N] [--calls-file PATH]

Importable as `tests.servers.asking_server:server`. Over HTTP it prints `PORT <n>` on stdout once it listens.
"""

import sys
import warnings
from pathlib import Path
from typing import Annotated, Any

from mcp.server.mcpserver import Context, Elicit, ListRoots, MCPServer, Resolve, Sample
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import (
    CreateMessageResult,
    CreateMessageResultWithTools,
    ElicitRequest,
    ElicitRequestURLParams,
    ImageContent,
    InputRequiredResult,
    ListRootsResult,
    ModelHint,
    ModelPreferences,
    NotificationParams,
    SamplingMessage,
    TextContent,
    Tool,
    ToolChoice,
    ToolResultContent,
    ToolUseContent,
)
from pydantic import BaseModel, Field

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.servers.counter_server import common_options, run

# The SDK warns that sampling, roots and log messages are deprecated, but they are still in use.
warnings.simplefilter("ignore")

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
URL = "https://example.com/pay"


class Order(BaseModel):
    colour: str = "blue"
    count: int = Field(default=2, ge=1)


class Name(BaseModel):
    name: str


def _sample(prompt: str) -> Sample:
    return Sample(
        [
            SamplingMessage(role="user", content=TextContent(type="text", text=prompt)),
            SamplingMessage(role="assistant", content=TextContent(type="text", text="Go on.")),
            SamplingMessage(role="user", content=ImageContent(type="image", data=PIXEL, mime_type="image/png")),
        ],
        max_tokens=50,
        system_prompt="Be brief.",
        temperature=0.25,
        stop_sequences=["END"],
        model_preferences=ModelPreferences(hints=[ModelHint(name="unknown"), ModelHint(name="mini")]),
    )


WEATHER = Tool(
    name="weather.of",
    description="Tell the weather.",
    input_schema={"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
)


def _first_question(prompt: str) -> Sample:
    asked = SamplingMessage(role="user", content=TextContent(type="text", text=prompt))
    return Sample([asked], max_tokens=50, tools=[WEATHER], tool_choice=ToolChoice(mode="required"))


def _second_question(prompt: str, reply: Annotated[CreateMessageResultWithTools, Resolve(_first_question)]) -> Sample:
    results = [
        ToolResultContent(
            tool_use_id=use.id,
            content=[TextContent(type="text", text=f"rain in {use.input['city']}")],
            is_error=use.input["city"] == "Atlantis",
        )
        for use in reply.content_as_list
        if isinstance(use, ToolUseContent) and use.name == WEATHER.name
    ]
    messages = [
        SamplingMessage(role="user", content=TextContent(type="text", text=prompt)),
        SamplingMessage(role="assistant", content=reply.content_as_list),
        SamplingMessage(role="user", content=list(results)),
    ]
    return Sample(messages, max_tokens=50, tools=[WEATHER], tool_choice=ToolChoice(mode="auto"))


def _order() -> Elicit[Order]:
    return Elicit("What do you order?", Order)


def _name() -> Elicit[Name]:
    return Elicit("Who are you?", Name)


def _roots() -> ListRoots:
    return ListRoots()


def build_server() -> MCPServer[Any]:
    server: MCPServer[Any] = MCPServer("asking.server", log_level="WARNING")
    failed_for_url: list[bool] = []
    changes: list[bool] = []

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    @server.tool()
    def ask_model(prompt: str, reply: Annotated[CreateMessageResult, Resolve(_sample)]) -> str:
        text = reply.content.text if isinstance(reply.content, TextContent) else reply.content.type
        return f"{text} ({reply.model}, {reply.stop_reason})"

    @server.tool()
    def ask_model_with_tools(
        prompt: str,
        reply: Annotated[CreateMessageResultWithTools, Resolve(_first_question)],
        answer: Annotated[CreateMessageResultWithTools, Resolve(_second_question)],
    ) -> str:
        """Ask a model that may use a tool, run the tool, and ask again with its results."""
        text = "".join(block.text for block in answer.content_as_list if isinstance(block, TextContent))
        return f"{reply.stop_reason}, then {answer.stop_reason}: {text}"

    @server.tool()
    def ask_order(order: Annotated[Order, Resolve(_order)]) -> str:
        return f"{order.count} {order.colour}"

    @server.tool()
    def ask_name(name: Annotated[Name, Resolve(_name)]) -> str:
        return name.name

    @server.tool()
    def ask_roots(roots: Annotated[ListRootsResult, Resolve(_roots)]) -> list[str]:
        return [f"{root.uri} {root.name}" for root in roots.roots]

    @server.tool()
    async def root_changes() -> int:
        """How often a client said that its roots have changed."""
        return len(changes)

    async def note_change(context: Any, params: Any) -> None:
        changes.append(True)

    server._lowlevel_server.add_notification_handler(
        "notifications/roots/list_changed", NotificationParams, note_change
    )

    @server.tool()
    async def ask_url(ctx: Context[Any, Any]) -> str | InputRequiredResult:
        if (ctx.protocol_version or "") < "2026":
            return (await ctx.elicit_url("Please pay.", URL, "pay-1")).action
        if ctx.input_responses is None:
            params = ElicitRequestURLParams(message="Please pay.", url=URL)
            return InputRequiredResult(input_requests={"pay": ElicitRequest(params=params)}, request_state="paying")
        return ctx.input_responses["pay"].action  # type: ignore[union-attr]

    @server.tool()
    def need_url() -> str:
        if not failed_for_url:
            failed_for_url.append(True)
            raise UrlElicitationRequiredError(
                [ElicitRequestURLParams(message="Please pay.", url=URL, elicitation_id="pay-2")]
            )
        return "paid"

    @server.tool()
    async def always_need_url() -> str:
        raise UrlElicitationRequiredError(
            [ElicitRequestURLParams(message="Please pay.", url=URL, elicitation_id="pay-3")]
        )

    @server.tool()
    async def who(ctx: Context[Any, Any]) -> str:
        """Say who the client is."""
        params = ctx.session.client_params
        assert params is not None
        extensions = params.capabilities.extensions or {}
        return f"{params.client_info.name} {params.client_info.version} {sorted(extensions)}"

    @server.tool()
    async def log(level: str, text: str, ctx: Context[Any, Any]) -> str:
        await ctx.log(level, text, logger_name="kitchen")  # type: ignore[arg-type]
        return "logged"

    return server


server = build_server()


def main() -> None:
    run(server, common_options().parse_args())


if __name__ == "__main__":
    main()
