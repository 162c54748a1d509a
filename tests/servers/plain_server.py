# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The counter server over stdio without the MCP SDK, which takes most of a second to import. This one starts in 50 ms.

It has the tools of `counter_server.py` that tests of processes, sessions and calls need, and records the same events.
It speaks the revisions that begin with the handshake.
"""

import argparse
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]
KINDS = {str: "string", int: "integer", float: "number", bool: "boolean"}


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls-file", required=True)
    parser.add_argument("--slow-list", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--hang-at-start", action="store_true", help="be there and never answer")
    parser.add_argument("--token", help="a value that is not to show anywhere; nothing is done with it")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
    return parser.parse_args()


class ToolError(Exception):
    """An error that the caller gets as a result."""


class ProtocolError(Exception):
    """An error that the caller gets as a JSON-RPC error."""


class Cancelled(Exception):  # noqa: N818 - as in asyncio
    """The caller has given up the call, so it gets no answer."""


class Tools:
    """Each method is a tool."""

    def add(self, a: int, b: int) -> int:
        """Add two integers."""
        return a + b

    def echo(self, text: str) -> str:
        """Say the same text back."""
        return text

    def sleep(self, seconds: float) -> str:
        """Take a while; `sleep-finished` or `sleep-cancelled` is recorded at the end."""
        raise NotImplementedError  # the server implements it

    def fail(self, message: str) -> str:
        """Fail with the message."""
        raise ToolError(message)

    def refuse(self, message: str) -> str:
        """Refuse with a protocol error that quotes the message."""
        raise ProtocolError(message)

    def secret_echo(self, text: str, token: str, refuse: bool = False) -> str:
        """Return the text, and only the length of the token."""
        if refuse:
            message = "the token was refused"
            raise ToolError(message)
        return f"{text} (with a token of {len(token)} characters)"

    def pid(self) -> int:
        """The server's process."""
        return os.getpid()

    def env(self, name: str) -> str | None:
        """An environment variable of the server."""
        return os.environ.get(name)

    def die(self) -> str:
        """End the server's process at once."""
        os._exit(3)


def definition(name: str, function: Callable[..., Any]) -> dict[str, Any]:
    kinds = {parameter: KINDS[kind] for parameter, kind in function.__annotations__.items() if kind in KINDS}
    kinds.pop("return", None)
    required = [*kinds][: len(kinds) - len(function.__defaults__ or ())]
    schema = {"type": "object", "properties": {each: {"type": kind} for each, kind in kinds.items()}}
    return {"name": name, "description": function.__doc__, "inputSchema": {**schema, "required": required}}


class PlainServer:
    """A server that answers each request that may take long in a thread of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._write_lock = threading.Lock()
        self._cancelled: dict[Any, threading.Event] = {}
        self._threads: list[threading.Thread] = []
        self._version = VERSIONS[-1]
        self._tools = {name: getattr(Tools, name) for name in vars(Tools) if not name.startswith("_")}

    def record(self, event: str, **details: Any) -> None:
        descriptor = os.open(self._options.calls_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{event} {json.dumps(details, sort_keys=True)}\n".encode())
        finally:
            os.close(descriptor)

    def serve(self) -> None:
        """Answer requests until stdin ends, then cancel the calls that are still running."""
        for line in sys.stdin.buffer:
            try:
                message = json.loads(line)
            except ValueError:
                continue
            if "method" in message:
                self._take(message)
        for cancelled in [*self._cancelled.values()]:
            cancelled.set()
        for thread in self._threads:
            thread.join()

    def _take(self, message: dict[str, Any]) -> None:
        method, params = message["method"], message.get("params") or {}
        if method == "initialize" and params["protocolVersion"] in VERSIONS:
            self._version = params["protocolVersion"]
        self.record(f"@{method}", protocol_version=self._version)
        if "id" not in message:
            if method == "notifications/cancelled" and (call := self._cancelled.get(params.get("requestId"))):
                call.set()
            return
        if method == "tools/list":
            in_thread = self._options.slow_list > 0
        else:
            in_thread = method == "tools/call" and params["name"] == "sleep"
        cancelled = self._cancelled[message["id"]] = threading.Event()
        arguments = (message["id"], method, params, cancelled)
        if in_thread:
            self._threads.append(threading.Thread(target=self._answer, args=arguments, daemon=True))
            self._threads[-1].start()
        else:
            self._answer(*arguments)

    def _answer(self, request: Any, method: str, params: dict[str, Any], cancelled: threading.Event) -> None:
        try:
            answer = {"result": self._result(method, params, cancelled)}
        except Cancelled:
            return
        except ProtocolError as error:
            answer = {"error": {"code": -32050, "message": f"refused: {error}", "data": {"quoted": str(error)}}}
        except LookupError:
            answer = {"error": {"code": -32601, "message": "Method not found", "data": method}}
        finally:
            self._cancelled.pop(request, None)
        data = memoryview(json.dumps({"jsonrpc": "2.0", "id": request, **answer}).encode() + b"\n")
        with self._write_lock:
            try:
                while data:
                    data = data[os.write(1, data) :]
            except BrokenPipeError:
                os._exit(0)

    def _result(self, method: str, params: dict[str, Any], cancelled: threading.Event) -> dict[str, Any]:
        if method == "initialize":
            return {
                "protocolVersion": self._version,
                "capabilities": {"tools": {"listChanged": False}},
                "serverInfo": {"name": "counter", "version": "1.2.3"},
                "instructions": "Counts what it does.",
            }
        if method == "tools/list":
            if cancelled.wait(self._options.slow_list):
                raise Cancelled
            return {"tools": [definition(name, function) for name, function in self._tools.items()]}
        if method == "tools/call":
            return self._call(params["name"], params.get("arguments") or {}, cancelled)
        return {"ping": {}}[method]

    def _call(self, name: str, arguments: dict[str, Any], cancelled: threading.Event) -> dict[str, Any]:
        def failed(message: str) -> dict[str, Any]:
            return {"content": [{"text": message, "type": "text"}], "isError": True}

        if name not in self._tools:
            return failed(f"Unknown tool: {name}")
        if name == "sleep":
            value = self._sleep(cancelled, float(arguments["seconds"]))
        else:
            self.record(name, **{key: each for key, each in arguments.items() if key != "token"})
            try:
                value = self._tools[name](Tools(), **arguments)
            except (ToolError, TypeError) as error:
                return failed(f"Error executing tool {name}: {error}")
        content = [] if value is None else [{"text": str(value), "type": "text"}]
        return {"content": content, "isError": False, "structuredContent": {"result": value}}

    def _sleep(self, cancelled: threading.Event, seconds: float) -> str:
        self.record("sleep", seconds=seconds)
        if cancelled.wait(seconds):
            self.record("sleep-cancelled", seconds=seconds)
            raise Cancelled
        self.record("sleep-finished", seconds=seconds)
        return f"slept {seconds} s"


def main() -> None:
    options = parse()
    server = PlainServer(options)
    server.record("@start", pid=os.getpid(), transport="stdio")
    print("counter server: starting", file=sys.stderr, flush=True)
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while options.hang_at_start:
        time.sleep(3600)
    server.serve()


if __name__ == "__main__":
    main()
