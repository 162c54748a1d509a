# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server of revision 2026-07-28 whose calls outlive their clients:

    python patient_server.py --transport stdio|streamable-http --calls-file PATH [--port N]

`order` and `order_twice` ask for input, and keep their state in the request state. `bake`, `bake_asking` and `burn`
are tasks (SEP-2663). Tasks are kept in a folder beside the calls file, so that they continue after a process over
stdio has ended. Calls are recorded when they really run. `bare` answers without a `resultType`.
"""

import base64
import json
import os
import sys
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.servers.counter_server import common_options, record_to, serve_http

BURNT = f"it burnt {os.environ.get('OVEN_KEY', '')}".strip()

VERSION = "2026-07-28"
TASKS = "io.modelcontextprotocol/tasks"
SIZE = {"type": "object", "properties": {"size": {"type": "string"}}, "required": ["size"]}
MILK = {"type": "object", "properties": {"milk": {"type": "boolean", "default": False}}}
STRING, NUMBER = {"type": "string"}, {"type": "number"}


def tool(name: str, **properties: Any) -> dict[str, Any]:
    schema = {"type": "object", "properties": properties, "required": list(properties)}
    return {"name": name, "description": name, "inputSchema": schema}


TOOLS = [
    tool("bare"),
    tool("order", drink=STRING),
    tool("order_twice", drink=STRING),
    tool("bake", seconds=NUMBER),
    tool("bake_asking", seconds=NUMBER),
    tool("burn", seconds=NUMBER),
]


class Refusal(Exception):  # noqa: N818 - the protocol calls it an error
    def __init__(self, code: int, message: str, data: Any = None) -> None:
        self.error = {"code": code, "message": message, **({"data": data} if data is not None else {})}


def form(message: str, schema: dict[str, Any]) -> dict[str, Any]:
    return {"method": "elicitation/create", "params": {"mode": "form", "message": message, "requestedSchema": schema}}


def text(said: str) -> dict[str, Any]:
    return {"resultType": "complete", "content": [{"type": "text", "text": said}]}


def pack(state: dict[str, Any]) -> str:
    return base64.b64encode(json.dumps(state).encode()).decode()


def unpack(state: str) -> dict[str, Any]:
    unpacked: dict[str, Any] = json.loads(base64.b64decode(state))
    return unpacked


class PatientServer:
    def __init__(self, calls_file: Path) -> None:
        self.record = record_to(calls_file)
        self._tasks = calls_file.parent / "tasks"
        self._tasks.mkdir(exist_ok=True)

    def answer(self, message: dict[str, Any]) -> dict[str, Any]:
        """
        Answer a request.
        """
        method, params = message["method"], message.get("params") or {}
        trace = {key: value for key, value in (params.get("_meta") or {}).items() if key == "traceparent"}
        self.record(f"@{method}", id=message["id"], **trace)
        answers: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "server/discover": self._discover,
            "tools/list": lambda _: {"resultType": "complete", "tools": TOOLS, "ttlMs": 0, "cacheScope": "private"},
            "tools/call": self._call,
            "tasks/get": self._get,
            "tasks/update": self._update,
            "tasks/cancel": self._cancel,
        }
        try:
            if method not in answers:
                raise Refusal(-32601, "Method not found")
            return {"jsonrpc": "2.0", "id": message["id"], "result": answers[method](params)}
        except Refusal as refusal:
            return {"jsonrpc": "2.0", "id": message["id"], "error": refusal.error}
        except Exception as error:
            error_text = {"code": -32603, "message": f"{type(error).__name__}: {error}"}
            return {"jsonrpc": "2.0", "id": message["id"], "error": error_text}

    def _discover(self, _params: dict[str, Any]) -> dict[str, Any]:
        return {
            "resultType": "complete",
            "supportedVersions": [VERSION],
            "capabilities": {"tools": {}, "extensions": {TASKS: {}}},
            "ttlMs": 0,
            "cacheScope": "private",
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "patient", "version": "1"}},
        }

    def _call(self, params: dict[str, Any]) -> dict[str, Any]:
        name, arguments = params["name"], params.get("arguments") or {}
        if name == "bare":
            self.record("bare")
            return {"content": [{"type": "text", "text": "bare"}]}
        if name in ("order", "order_twice"):
            return self._order(name, arguments, params.get("requestState"), params.get("inputResponses") or {})
        return self._begin(name, arguments, params.get("_meta") or {})

    def _order(
        self, name: str, arguments: dict[str, Any], packed: str | None, responses: dict[str, Any]
    ) -> dict[str, Any]:
        if packed is None:
            self.record(f"{name}-asked", **arguments)
            return self._ask({"name": name, **arguments}, "size", form("Which size?", SIZE))
        state = unpack(packed)
        if (state["name"], state["drink"]) != (name, arguments["drink"]):
            raise Refusal(-32602, "the request state belongs to another call")
        if "size" not in state:
            if responses["size"]["action"] != "accept":
                return text(f"no {arguments['drink']}")
            state["size"] = responses["size"]["content"]["size"]
            if name == "order_twice":
                return self._ask(state, "milk", form("With milk?", MILK))
        milk = responses["milk"]["content"]["milk"] if "milk" in responses else False
        self.record(name, drink=arguments["drink"], size=state["size"])
        return text(f"a {state['size']} {arguments['drink']}{' with milk' if milk else ''}")

    def _ask(self, state: dict[str, Any], key: str, request: dict[str, Any]) -> dict[str, Any]:
        return {"resultType": "input_required", "inputRequests": {key: request}, "requestState": pack(state)}

    def _begin(self, name: str, arguments: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
        capabilities = meta.get("io.modelcontextprotocol/clientCapabilities") or {}
        if TASKS not in (capabilities.get("extensions") or {}):
            raise Refusal(-32021, "This tool runs as a task.", {"requiredCapabilities": {"extensions": {TASKS: {}}}})
        self.record(name, **arguments)
        task = {"name": name, "began": time.time(), "seconds": arguments["seconds"], "id": uuid.uuid4().hex}
        task["interval"] = arguments.get("interval", 50)
        self._save(task)
        return {"resultType": "task", **self._shown(task)}

    def _save(self, task: dict[str, Any]) -> None:
        path = self._tasks / task["id"]
        path.with_suffix(".new").write_text(json.dumps(task))
        path.with_suffix(".new").replace(path)

    def _task(self, params: dict[str, Any]) -> dict[str, Any]:
        path = self._tasks / params["taskId"]
        if not path.exists():
            raise Refusal(-32602, "There is no such task.")
        task: dict[str, Any] = json.loads(path.read_text())
        return task

    def _shown(self, task: dict[str, Any]) -> dict[str, Any]:
        is_over = time.time() >= task["began"] + task["seconds"]
        shown: dict[str, Any] = {
            "taskId": task["id"],
            "createdAt": "2026-07-28T00:00:00Z",
            "lastUpdatedAt": "2026-07-28T00:00:00Z",
            "ttlMs": 600_000,
            "pollIntervalMs": task["interval"],
            "status": "working",
            "statusMessage": f"in the oven for {time.time() - task['began']:.1f} s",
        }
        if task.get("cancelled"):
            return {**shown, "status": "cancelled"}
        if task["name"] == "bake_asking" and "size" not in task:
            return {**shown, "status": "input_required", "inputRequests": {"size": form("Which size?", SIZE)}}
        if is_over and task["name"] == "burn":
            return {**shown, "status": "failed", "error": {"code": -32603, "message": BURNT}}
        if is_over:
            return {**shown, "status": "completed", "result": text(f"a {task.get('size', 'plain')} cake")}
        return shown

    def _get(self, params: dict[str, Any]) -> dict[str, Any]:
        return {"resultType": "complete", **self._shown(self._task(params))}

    def _update(self, params: dict[str, Any]) -> dict[str, Any]:
        task, response = self._task(params), params["inputResponses"].get("size")
        if response is not None and response["action"] == "accept":
            self._save({**task, "size": response["content"]["size"]})
        elif response is not None:
            self._save({**task, "cancelled": True})
        return {"resultType": "complete"}

    def _cancel(self, params: dict[str, Any]) -> dict[str, Any]:
        task = self._task(params)
        self.record(f"{task['name']}-cancelled")
        self._save({**task, "cancelled": True})
        return {"resultType": "complete"}


def serve_stdio(server: PatientServer) -> None:
    lock = threading.Lock()

    def respond(message: dict[str, Any]) -> None:
        answer = json.dumps(server.answer(message))
        with lock:
            print(answer, flush=True)

    for line in sys.stdin:
        message = json.loads(line)
        if "id" in message:
            threading.Thread(target=respond, args=(message,), daemon=True).start()


def application(server: PatientServer) -> Starlette:
    async def respond(request: Request) -> Response:
        message = await request.json()
        if "id" not in message:
            return Response(status_code=202)
        task = message.get("params", {}).get("taskId")
        if task is not None and request.headers.get("mcp-name") != task:
            return Response("the header Mcp-Name must name the task", status_code=400)
        return JSONResponse(await run_in_threadpool(server.answer, message))

    return Starlette(routes=[Route("/mcp", respond, methods=["POST"])])


def main() -> None:
    options = common_options().parse_args()
    server = PatientServer(options.calls_file)
    server.record("@start", pid=os.getpid())
    if options.transport == "stdio":
        serve_stdio(server)
    else:
        serve_http(application(server), options.port)


if __name__ == "__main__":
    main()
