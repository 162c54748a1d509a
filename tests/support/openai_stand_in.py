# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
OpenAI without a model: Haystack's chat generators talk to it over HTTP, as to the real one.
"""

import json
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.reachable import AppThread

# Haystack's generators leave their connections open.
_CLOSE = {"Connection": "close"}


class OpenAIStandIn(AppThread):
    """
    Answers like OpenAI's chat completions: it requests the calls, and then repeats the tools' results.

    `calls` are the tools to call, with their arguments; `results` collects the results of the tools.
    """

    def __init__(self, calls: list[tuple[str, dict[str, Any]]]) -> None:
        self.calls = calls
        self.results: list[str] = []
        super().__init__(Starlette(routes=[Route("/v1/chat/completions", self._complete, methods=["POST"])]))

    @property
    def environment(self) -> dict[str, str]:
        return {"OPENAI_API_KEY": "not-a-key", "OPENAI_BASE_URL": f"{self.origin}/v1"}

    async def _complete(self, request: Request) -> Response:
        asked = await request.json()
        results = [message["content"] for message in asked["messages"] if message["role"] == "tool"]
        if results:
            self.results = results
            message: dict[str, Any] = {"role": "assistant", "content": f"The tools say: {'; '.join(results)}"}
        else:
            offered = {tool["function"]["name"]: tool["function"]["parameters"] for tool in asked["tools"]}
            for name, arguments in self.calls:
                assert set(arguments) == set(offered[name].get("required", []))
            message = {"role": "assistant", "content": None, "tool_calls": self._tool_calls()}
        choice = {"index": 0, "finish_reason": "stop" if results else "tool_calls"}
        head = {"id": "chat", "created": 0, "model": asked["model"]}
        if asked.get("stream"):
            delta = {**choice, "delta": message}
            chunk = json.dumps({**head, "object": "chat.completion.chunk", "choices": [delta]})
            return Response(f"data: {chunk}\n\ndata: [DONE]\n\n", media_type="text/event-stream", headers=_CLOSE)
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        whole = {"object": "chat.completion", "choices": [{**choice, "message": message}], "usage": usage}
        return JSONResponse({**head, **whole}, headers=_CLOSE)

    def _tool_calls(self) -> list[dict[str, Any]]:
        return [
            {
                "index": number,
                "id": f"call_{number}",
                "type": "function",
                "function": {"name": name, "arguments": json.dumps(arguments)},
            }
            for number, (name, arguments) in enumerate(self.calls)
        ]
