# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server over stdio, without the MCP SDK, that says a thousand times a second that its tools changed:

    python restless_server.py CALLS_FILE

At each listing it has another tool beside `rest`. It never answers who subscribes to, or unsubscribes from, a resource
with "silent" in its URI.
"""

import json
import os
import sys
import threading
import time
from pathlib import Path
from typing import Any

_lock = threading.Lock()


def send(**message: Any) -> None:
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def change() -> None:
    while True:
        send(method="notifications/tools/list_changed")
        time.sleep(0.001)


def result(method: str, params: dict[str, Any], listings: int) -> dict[str, Any] | None:
    if method == "initialize":
        capabilities = {"tools": {"listChanged": True}, "resources": {"subscribe": True}}
        info = {"name": "restless", "version": "1"}
        return {"protocolVersion": "2025-06-18", "capabilities": capabilities, "serverInfo": info}
    if method == "tools/list":
        names = ["rest", f"tool_{listings}"]
        return {"tools": [{"name": name, "inputSchema": {"type": "object", "properties": {}}} for name in names]}
    if method == "tools/call":
        return {"content": [{"type": "text", "text": "rested"}]}
    return None if "silent" in params.get("uri", "") else {}


def main() -> None:
    listings = 0
    with Path(sys.argv[1]).open("a", buffering=1) as log:
        log.write(f"@start {json.dumps({'pid': os.getpid()})}\n")
        for line in sys.stdin:
            message = json.loads(line)
            method = message["method"]
            log.write(f"@{method} {{}}\n")
            listings += method == "tools/list"
            if method == "notifications/initialized":
                threading.Thread(target=change, daemon=True).start()
            elif "id" in message and (answer := result(method, message.get("params") or {}, listings)) is not None:
                send(id=message["id"], result=answer)


if __name__ == "__main__":
    main()
