# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Prints how long a new process takes from importing the package to its first toolset, warmed up with
`await toolset.warm_up_async()`, and how long the caller's loop stalls in that call.
"""

import argparse
import asyncio
import json
import sys
from pathlib import Path
from time import perf_counter

from haystack.tools.utils import warm_up_tools_async
from stall import stall_watch


async def measure() -> tuple[float, float]:
    """Warm up a toolset of a server that starts at once."""
    imported_from = perf_counter()
    from haystack_integrations.tools.mcp import MCPToolset, StdioServerInfo

    imported = perf_counter() - imported_from
    server = Path(__file__).with_name("costless_server.py")
    toolset = MCPToolset(StdioServerInfo(command=sys.executable, args=["-I", "-S", str(server)]))
    async with stall_watch() as gaps:
        begin = perf_counter()
        await warm_up_tools_async([toolset])
        seconds = perf_counter() - begin
    await asyncio.to_thread(toolset.close)
    return imported + seconds, max(gaps)


def main() -> None:
    """Print the times as JSON."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--subject", choices=["ours", "upstream"], required=True)
    parser.parse_args()
    seconds, stall = asyncio.run(measure())
    print(json.dumps({"seconds": seconds, "figures": {"stall": stall}}))


if __name__ == "__main__":
    main()
