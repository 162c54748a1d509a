# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Prints the seconds of one call of a served tool, and the cost of serving relative to plain FastMCP, as ratios.

Each ratio is the median of pairs that are measured in turns, with FastMCP's client in the same process. In plain
FastMCP, a hand-written function does the same: it adds the numbers, or runs the pipeline.
"""

import argparse
import asyncio
import json
import logging
import statistics
from collections.abc import Awaitable, Callable
from time import perf_counter
from typing import Any

from fastmcp import Client, FastMCP
from haystack import Pipeline
from haystack.components.builders import PromptBuilder
from haystack.tools import Tool, Toolset

from haystack_integrations.tools.mcp.serving import create_mcp_server

CALLS, LISTINGS, STARTS = 150, 7, 7
MANY = 1_000
ADDING = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}


def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


def prompt_pipeline() -> Pipeline:
    """Return a pipeline that takes almost no time."""
    pipeline = Pipeline()
    pipeline.add_component("prompt", PromptBuilder("Praise {{ what }}.", required_variables=["what"]))
    return pipeline


def by_hand() -> FastMCP[Any]:
    """Return the same server, written with FastMCP alone."""
    server: FastMCP[Any] = FastMCP("plain")
    server.tool(add)
    pipeline = prompt_pipeline()

    @server.tool
    def praise(what: str) -> dict[str, str]:
        return {"prompt": pipeline.run({"what": what})["prompt"]["prompt"]}

    return server


async def paired(one: Callable[[], Awaitable[Any]], other: Callable[[], Awaitable[Any]], n: int) -> tuple[float, float]:
    """
    Measure two things in turns.

    :returns: The median time of the first, and the median of the ratios.
    """
    times: list[tuple[float, float]] = []
    for number in range(n + n // 5 + 1):
        seconds = {}
        for each in (one, other) if number % 2 else (other, one):
            begin = perf_counter()
            await each()
            seconds[each] = perf_counter() - begin
        times.append((seconds[one], seconds[other]))
    times = times[n // 5 + 1 :]  # the first calls fill caches
    return statistics.median(first for first, _ in times), statistics.median(first / second for first, second in times)


async def measure() -> dict[str, Any]:
    """Measure calls, listings and starts."""
    served = create_mcp_server(
        "served", tools=[Tool("add", "Adds.", ADDING, add)], pipelines={"praise": prompt_pipeline()}
    )
    figures: dict[str, float] = {}
    async with Client(served) as ours, Client(by_hand()) as plain:
        numbers, what = {"a": 1, "b": 2}, {"what": "tea"}
        seconds, figures["tool"] = await paired(
            lambda: ours.call_tool("add", numbers), lambda: plain.call_tool("add", numbers), CALLS
        )
        _, figures["pipeline"] = await paired(
            lambda: ours.call_tool("praise", what), lambda: plain.call_tool("praise", what), CALLS
        )

    many = create_mcp_server("many", tools=[Toolset([Tool(f"add_{n}", "Adds.", ADDING, add) for n in range(MANY)])])
    plain_many: FastMCP[Any] = FastMCP("many")
    for number in range(MANY):
        plain_many.tool(add, name=f"add_{number}")
    async with Client(many) as ours, Client(plain_many) as plain:
        _, figures["list-1000"] = await paired(ours.list_tools, plain.list_tools, LISTINGS)

    yaml = prompt_pipeline().dumps()

    async def start() -> None:
        async with Client(create_mcp_server("yaml", pipelines={"praise": yaml})) as client:
            await client.list_tools()

    async def start_by_hand() -> None:
        pipeline = Pipeline.loads(yaml)
        server: FastMCP[Any] = FastMCP("plain")
        server.tool(lambda what: pipeline.run({"what": what}), name="praise")
        async with Client(server) as client:
            await client.list_tools()

    figures["yaml-start"] = (await paired(start, start_by_hand, STARTS))[1]
    return {"seconds": seconds, "figures": figures}


def main() -> None:
    """Print the figures as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--subject", choices=["ours"], required=True)
    parser.parse_args()
    logging.disable(logging.WARNING)
    print(json.dumps(asyncio.run(measure())))


if __name__ == "__main__":
    main()
