# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
OpenAI without a model: chat generators of Haystack talk to it over HTTP, as they would to the real one.
"""

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.support.waiting import LIMIT


class OpenAIStandIn:
    """
    Answers like OpenAI's chat completions, without a model: it makes the calls, and then repeats the tools' results.

    `calls` are the tools to call, with their arguments; `results` collects what the tools gave.
    """

    def __init__(self, calls: list[tuple[str, dict[str, Any]]]) -> None:
        stand_in = self
        self.calls = calls
        self.results: list[str] = []

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                answer = stand_in.answer(request)
                is_stream = request.get("stream", False)
                body = (_events(answer) if is_stream else json.dumps(answer)).encode()
                self.send_response(200)
                self.send_header("Content-Type", "text/event-stream" if is_stream else "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._thread = threading.Thread(target=self._server.serve_forever)

    def __enter__(self) -> "OpenAIStandIn":
        self._thread.start()
        return self

    def __exit__(self, *_exc_info: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(LIMIT)

    @property
    def environment(self) -> dict[str, str]:
        url = f"http://127.0.0.1:{self._server.server_address[1]}/v1"
        return {"OPENAI_API_KEY": "not-a-key", "OPENAI_BASE_URL": url}

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        results = [message["content"] for message in request["messages"] if message["role"] == "tool"]
        if results:
            self.results = results
            message: dict[str, Any] = {"role": "assistant", "content": f"The tools say: {'; '.join(results)}"}
        else:
            offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in request["tools"]}
            for name, arguments in self.calls:
                assert set(arguments) == set(offered[name].get("required", []))
            message = {"role": "assistant", "content": None, "tool_calls": self._tool_calls()}
        choice = {"index": 0, "message": message, "finish_reason": "stop" if results else "tool_calls"}
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": "chat", "object": "chat.completion", "created": 0, "model": request["model"]}
        return {**head, "choices": [choice], "usage": usage}

    def _tool_calls(self) -> list[dict[str, Any]]:
        return [
            {"id": f"call_{number}", "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
            for number, (name, arguments) in enumerate(self.calls)
        ]


def _events(answer: dict[str, Any]) -> str:
    """
    The answer word by word, as OpenAI streams it.
    """
    (choice,) = answer["choices"]
    message = choice["message"]
    deltas: list[dict[str, Any]] = [{"role": "assistant"}]
    deltas += [{"content": f"{word} "} for word in (message["content"] or "").split(" ")] if message["content"] else []
    if deltas[-1].get("content"):
        deltas[-1] = {"content": deltas[-1]["content"][:-1]}
    deltas += [{"tool_calls": [{"index": n, **call}]} for n, call in enumerate(message.get("tool_calls") or [])]
    chunks = [{"index": 0, "delta": delta, "finish_reason": None} for delta in deltas]
    chunks.append({"index": 0, "delta": {}, "finish_reason": choice["finish_reason"]})
    head = {**answer, "object": "chat.completion.chunk", "usage": None}
    lines = [f"data: {json.dumps({**head, 'choices': [chunk]})}" for chunk in chunks]
    return "\n\n".join([*lines, "data: [DONE]", ""])
