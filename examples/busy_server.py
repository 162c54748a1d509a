# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Limiting the load of a server: few calls at a time, and a pause after it failed again and again (Haystack 2 and 3).
"""

import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from haystack_integrations.tools.mcp import MCPConnection, MCPInvocationError, StdioServerInfo

KITCHEN = Path(__file__).parent / "servers" / "kitchen.py"


def main() -> None:
    info = StdioServerInfo(sys.executable, [str(KITCHEN)], max_in_flight=1, failure_pause=1.0)
    with MCPConnection(info) as kitchen:
        print("Three dishes are ordered, and cooked one after the other:")
        with ThreadPoolExecutor(3) as waiters:
            for cooked in waiters.map(lambda dish: kitchen.call_tool("cook", {"dish": dish}), ["soup", "fish", "cake"]):
                print(" ", cooked.content[0].text)

        print("A kitchen that explodes again and again is left alone:")
        for _ in range(6):
            try:
                kitchen.call_tool("explode")
            except MCPInvocationError as error:
                print("  not sent" if "is left alone" in str(error) else "  the server was gone")
        status = kitchen.status()
        print(f"  circuit: {status.circuit}")

        time.sleep(status.retry_in or 0)
        print("After the pause:", kitchen.call_tool("cook", {"dish": "tea"}).content[0].text)
        print("Circuit:", kitchen.status().circuit)


if __name__ == "__main__":
    main()
