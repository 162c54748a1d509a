# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
An MCP server over stdio with one tool, `hello`, that is particular about how a session begins. It starts in no time.

    python picky_server.py --discover exit            # as servers on the Rust SDK do before they know 2026-07-28
    python picky_server.py --discover silence         # as servers on FastMCP for TypeScript do
    python picky_server.py --initialize -32022        # one that only knows 2026-07-28
"""

import argparse
import json
import os
import sys
from typing import Any


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls-file", required=True)
    parser.add_argument("--discover", choices=["answer", "refuse", "exit", "silence"], default="answer")
    parser.add_argument("--initialize", type=int, metavar="CODE", help="refuse the handshake with this error")
    parser.add_argument("--version", default="2025-06-18", help="what the answer to the handshake names")
    parser.add_argument("--listing", metavar="FILE", help="the result of tools/list, as JSON")
    parser.add_argument("--result", metavar="FILE", help="the result of tools/call, as JSON")
    return parser.parse_args()


def stored(path: str | None, otherwise: dict[str, Any]) -> dict[str, Any]:
    if path is None:
        return otherwise
    with open(path) as file:
        content: dict[str, Any] = json.load(file)
        return content


def main() -> None:
    options = parse()
    log = open(options.calls_file, "a", buffering=1)

    def record(event: str, **details: Any) -> None:
        log.write(f"{event} {json.dumps(details)}\n")

    record("@start", pid=os.getpid())
    modern = False
    for line in sys.stdin:
        message = json.loads(line)
        if "method" not in message:
            continue
        method = message["method"]
        record(f"@{method}")
        if "id" not in message:
            continue
        answer: dict[str, Any] = {"error": {"code": -32601, "message": "Method not found"}}
        if method == "server/discover" and options.discover != "refuse":
            if options.discover == "exit":
                sys.exit(1)
            if options.discover == "silence":
                continue
            modern = True
            answer = {"result": {"supportedVersions": ["2026-07-28"], "capabilities": {"tools": {}}}}
        elif method == "initialize" and options.initialize:
            # Requests of the server may have the same numbers as those of the client.
            print(json.dumps({"jsonrpc": "2.0", "id": message["id"], "method": "ping"}), flush=True)
            error = {"code": options.initialize, "message": "not like this"}
            if options.initialize == -32022:
                error["data"] = {"supported": ["2026-07-28"], "requested": message["params"]["protocolVersion"]}
            answer = {"error": error}
        elif method == "initialize":
            info = {"name": "picky", "version": "1"}
            answer = {"result": {"protocolVersion": options.version, "capabilities": {"tools": {}}, "serverInfo": info}}
        elif method == "tools/list":
            hello = {"name": "hello", "inputSchema": {"type": "object"}}
            answer = {"result": stored(options.listing, {"tools": [hello]})}
        elif method == "tools/call":
            record("hello")
            answer = {"result": stored(options.result, {"content": [{"type": "text", "text": "hello"}]})}
        if modern and "result" in answer:
            answer["result"] |= {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"}
        print(json.dumps({"jsonrpc": "2.0", "id": message["id"], **answer}), flush=True)


if __name__ == "__main__":
    main()
