# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The counter server over stdio without the MCP SDK, which takes most of a second to import. This one starts in 50 ms.

It has the tools of `counter_server.py` that tests of processes, sessions and calls need, defined and answered in the
same words, and it keeps the same record; `tests/support/test_support.py` compares the two. It knows the revisions that
begin with the handshake.
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

Tool = Callable[..., Any]

VERSIONS = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls-file", required=True)
    parser.add_argument("--page-size", type=int, help="tools per page of tools/list")
    parser.add_argument("--tools", type=int, default=0, help="how many numbered tools to add")
    parser.add_argument("--slow-list", type=float, default=0.0, metavar="SECONDS")
    parser.add_argument("--hang-at-start", action="store_true", help="be there and never answer")
    parser.add_argument("--token", help="a value that is not to show anywhere; nothing is done with it")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
    return parser.parse_args()


class ToolError(Exception):
    """What the caller is told."""


class ProtocolError(Exception):
    """What the caller is told in a JSON-RPC error."""


class Cancelled(Exception):  # noqa: N818 - as in asyncio
    """The caller has given the call up: no answer."""


def schema(title: str, /, **properties: dict[str, Any]) -> dict[str, Any]:
    """The JSON schema of an object, in the SDK's words."""
    titled = {name: {"title": name.capitalize(), **each} for name, each in properties.items()}
    required = [name for name, each in properties.items() if "default" not in each]
    return {"properties": titled, **({"required": required} if required else {}), "type": "object", "title": title}


STRING, INTEGER, NUMBER = ({"type": kind} for kind in ("string", "integer", "number"))


def numbered(text: str = "") -> str:
    return text


class PlainServer:
    """Answers each request that may take long in a thread of its own."""

    def __init__(self, options: argparse.Namespace) -> None:
        self._options = options
        self._write_lock = threading.Lock()
        self._cancelled: dict[Any, threading.Event] = {}
        self._threads: list[threading.Thread] = []
        self._version = VERSIONS[-1]
        self._definitions: dict[str, dict[str, Any]] = {}
        self._functions: dict[str, Tool] = {}
        self._add_tools()

    def record(self, event: str, **details: Any) -> None:
        descriptor = os.open(self._options.calls_file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, f"{event} {json.dumps(details, sort_keys=True)}\n".encode())
        finally:
            os.close(descriptor)

    def _add_tools(self) -> None:
        self._add("add", "Add two integers.", self._add_numbers, INTEGER, a=INTEGER, b=INTEGER)
        text = {"description": "What to say back", **STRING}
        self._add("echo", "Say the same text back.", self._echo, STRING, text=text)
        takes = "Take a while; `sleep-finished` or `sleep-cancelled` is recorded at the end."
        self._add("sleep", takes, self._sleep, STRING, seconds=NUMBER)
        self._add("fail", "Fail with the message.", self._fail, STRING, message=STRING)
        self._add(
            "refuse", "Refuse with a protocol error that quotes the message.", self._refuse, STRING, message=STRING
        )
        secret = "Say the text back, and of the token only how long it is."
        refuse = {"default": False, "type": "boolean"}
        self._add("secret_echo", secret, self._secret_echo, STRING, text=STRING, token=STRING, refuse=refuse)
        self._add("pid", "The server's process.", self._pid, INTEGER)
        variable = {"anyOf": [STRING, {"type": "null"}]}
        self._add("env", "An environment variable of the server.", self._env, variable, name=STRING)
        self._add("cwd", "The server's working directory.", self._cwd, STRING)
        self._add("die", "End the server's process at once.", self._die, STRING)
        for number in range(self._options.tools):
            optional = {"default": "", **STRING}
            self._add(f"tool_{number:04}", f"Tool number {number}", numbered, STRING, text=optional)

    def _add(self, name: str, description: str, function: Tool, result: dict[str, Any], /, **inputs: Any) -> None:
        title = "numbered" if function is numbered else name
        self._functions[name] = function
        self._definitions[name] = {
            "name": name,
            "description": description,
            "inputSchema": schema(f"{title}Arguments", **inputs),
            "outputSchema": schema(f"{title}Output", result=result),
        }

    def _add_numbers(self, a: int, b: int) -> int:
        self.record("add", a=a, b=b)
        return a + b

    def _echo(self, text: str) -> str:
        self.record("echo", text=text)
        return text

    def _sleep(self, cancelled: threading.Event, seconds: float) -> str:
        seconds = float(seconds)
        self.record("sleep", seconds=seconds)
        if cancelled.wait(seconds):
            self.record("sleep-cancelled", seconds=seconds)
            raise Cancelled
        self.record("sleep-finished", seconds=seconds)
        return f"slept {seconds} s"

    def _fail(self, message: str) -> str:
        self.record("fail", message=message)
        raise ToolError(message)

    def _refuse(self, message: str) -> str:
        self.record("refuse", message=message)
        raise ProtocolError(message)

    def _secret_echo(self, text: str, token: str, refuse: bool = False) -> str:
        self.record("secret_echo", text=text, token_length=len(token))
        if refuse:
            message = "the token was refused"
            raise ToolError(message)
        return f"{text} (with a token of {len(token)} characters)"

    def _pid(self) -> int:
        self.record("pid")
        return os.getpid()

    def _env(self, name: str) -> str | None:
        self.record("env", name=name)
        return os.environ.get(name)

    def _cwd(self) -> str:
        self.record("cwd")
        return os.getcwd()

    def _die(self) -> str:
        self.record("die")
        os._exit(3)

    def serve(self) -> None:
        """Answer until stdin ends; calls that are under way then are cancelled."""
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
            return self._page(int(params.get("cursor") or 0))
        if method == "tools/call":
            return self._call(params["name"], params.get("arguments") or {}, cancelled)
        return {"ping": {}}[method]

    def _page(self, start: int) -> dict[str, Any]:
        tools = [*self._definitions.values()]
        size = self._options.page_size or len(tools)
        following = start + size
        more = following < len(tools)
        return {"tools": tools[start:following], **({"nextCursor": str(following)} if more else {})}

    def _call(self, name: str, arguments: dict[str, Any], cancelled: threading.Event) -> dict[str, Any]:
        def failed(message: str) -> dict[str, Any]:
            return {"content": [{"text": message, "type": "text"}], "isError": True}

        if name not in self._functions:
            return failed(f"Unknown tool: {name}")
        try:
            own = {"cancelled": cancelled} if name == "sleep" else {}
            value = self._functions[name](**own, **arguments)
        except (ToolError, TypeError) as error:
            return failed(f"Error executing tool {name}: {error}")
        content = [] if value is None else [{"text": str(value), "type": "text"}]
        return {"content": content, "isError": False, "structuredContent": {"result": value}}


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
