# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A hotel as an MCP server. Its tools ask the client for something: the user's input, and a model's reply.
"""

from typing import Annotated

from mcp.server.mcpserver import Elicit, MCPServer, Resolve, Sample
from mcp.server.request_state import RequestStateSecurity
from mcp.types import CreateMessageResult, SamplingMessage, TextContent
from pydantic import BaseModel, Field

# By default, users have ten minutes to answer, and the process that asked must still run. A real key is a secret.
WITHIN_A_WEEK = RequestStateSecurity(keys=["an example of a key, which is not secret"], ttl=7 * 86_400)
server = MCPServer("hotel", version="1.0.0", log_level="WARNING", request_state_security=WITHIN_A_WEEK)


class Stay(BaseModel):
    """The form that the user fills in."""

    nights: int = Field(default=1, ge=1)


def ask_for_nights() -> Elicit[Stay]:
    return Elicit("How many nights?", Stay)


def ask_for_praise(hotel: str) -> Sample:
    question = SamplingMessage(role="user", content=TextContent(type="text", text=f"Praise the {hotel}."))
    return Sample([question], max_tokens=50)


@server.tool()
def book(hotel: str, stay: Annotated[Stay, Resolve(ask_for_nights)]) -> str:
    """Book a room. The user is asked for the number of nights."""
    return f"Booked: {stay.nights} nights at the {hotel}."


@server.tool()
def praise(hotel: str, reply: Annotated[CreateMessageResult, Resolve(ask_for_praise)]) -> str:
    """Praise a hotel, in the words of the client's model."""
    praised = reply.content.text if isinstance(reply.content, TextContent) else reply.content.type
    return f"{hotel}: {praised}"


if __name__ == "__main__":
    server.run("stdio")
