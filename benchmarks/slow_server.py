# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A stdio MCP server that starts slowly but uses hardly any CPU for it.

It does not use the SDK: importing that takes 0.6 s of CPU, and with ten servers at once on two cores the benchmark would
measure imports. It needs only the standard library; run it as `python -I -S slow_server.py 0.3`. A second argument names
the server, and a third sets how many tools it has besides `echo`.
"""

import json
import sys
import time


def answer(method: str, params: dict) -> dict | None:
    """Return the result of a request, or None for a method that this server does not know."""
    if method == "initialize":
        return {
            "protocolVersion": params["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "slow", "version": "1"},
        }
    if method == "tools/list":
        schema = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
        return {"tools": [{"name": "echo", "description": "Return the text", "inputSchema": schema}, *more_tools()]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": params["arguments"]["text"]}], "isError": False}
    return {} if method == "ping" else None


def more_tools() -> list[dict]:
    """Return tools that are never called, but that a search may find."""
    server, count = (sys.argv[2], int(sys.argv[3])) if len(sys.argv) > 3 else ("", 0)
    fields = {"query": {"type": "string"}, "limit": {"type": "integer"}, "language": {"type": "string"}}
    return [
        {
            "name": f"search_{server}_{index}",
            "description": f"Search collection {index} of {server} and return the entries that match best.",
            "inputSchema": {"type": "object", "properties": fields, "required": ["query"]},
        }
        for index in range(count)
    ]


def main() -> None:
    """Sleep, then answer one line at a time until stdin is closed."""
    time.sleep(float(sys.argv[1]))
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request:
            continue
        result = answer(request["method"], request.get("params") or {})
        reply: dict = {"jsonrpc": "2.0", "id": request["id"]}
        if result is None:
            reply["error"] = {"code": -32601, "message": "Method not found"}
        else:
            reply["result"] = result
        print(json.dumps(reply), flush=True)


if __name__ == "__main__":
    main()
