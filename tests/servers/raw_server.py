# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server over stdio, without the MCP SDK, that answers with exactly the text that it gets:

    python raw_server.py RESULTS [CALLS_FILE]

RESULTS is a JSON object of answers by method that replace its own: a result, `{"error": ...}`, "exit" to end the
process, or "silence" for no answer. CALLS_FILE gets a line for each message.

The tool `say` answers with its argument `raw`, in which `$ID` stands for the request's id, `$FILL` for `fill` letters,
and each character for the byte with its number. With `endless`, the answer never ends. `wait` is answered after
`release` was called; all other tools are answered at once.
"""

import json
import os
import sys
import threading
from typing import Any

ENDLESS = b"x" * 65536
RESULTS = {
    "initialize": {
        "protocolVersion": "2025-06-18",
        "capabilities": {"tools": {}},
        "serverInfo": {"name": "raw", "version": "1"},
    },
    "tools/list": {
        "tools": [{"name": name, "inputSchema": {"type": "object"}} for name in ("say", "wait", "release", "fine")]
    },
}


class RawServer:
    def __init__(self, results: dict[str, Any]) -> None:
        self._results = {**RESULTS, **results}
        self._released = threading.Event()

    def answer(self, message: dict[str, Any]) -> tuple[bytes, bool]:
        """
        Return the answer to a request, and whether it never ends.
        """
        params = message.get("params") or {}
        result = self._results.get(message["method"])
        if result == "exit":
            os._exit(1)
        if result == "silence":
            threading.Event().wait()
        if result is None and message["method"] == "tools/call":
            name, given = params["name"], params.get("arguments") or {}
            if name == "say":
                raw = (
                    given["raw"].replace("$ID", json.dumps(message["id"])).replace("$FILL", "x" * given.get("fill", 0))
                )
                return raw.encode("latin-1"), given.get("endless", False)
            if name == "wait":
                self._released.wait()
            elif name == "release":
                self._released.set()
            result = {"content": [{"type": "text", "text": name}]}
        if result is None:
            result = {"error": {"code": -32601, "message": "Method not found"}}
        answered = result if "error" in result else {"result": result}
        return json.dumps({"jsonrpc": "2.0", "id": message["id"], **answered}).encode(), False


def main() -> None:
    server, lock = RawServer(json.loads(sys.argv[1])), threading.Lock()
    log = open(sys.argv[2] if len(sys.argv) > 2 else os.devnull, "a", buffering=1)
    log.write(f'@start {{"pid": {os.getpid()}}}\n')

    def respond(message: dict[str, Any]) -> None:
        data, is_endless = server.answer(message)
        with lock:
            sys.stdout.buffer.write(data)
            while is_endless:
                sys.stdout.buffer.write(ENDLESS)
            sys.stdout.buffer.write(b"\n")
            sys.stdout.buffer.flush()

    for line in sys.stdin.buffer:
        message = json.loads(line)
        log.write(f"@{message.get('method')} {{}}\n")
        if "id" in message:
            threading.Thread(target=respond, args=(message,), daemon=True).start()


if __name__ == "__main__":
    main()
