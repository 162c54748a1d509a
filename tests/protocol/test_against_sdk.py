# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Plays the same server scripts to our client and to the session of the MCP SDK. Both must see the same, except for the
`DIFFERENCES`.

A script answers one operation in a revision of the protocol, with valid and odd messages, between other messages that a
server may send. The last message is an error with the code UNANSWERED, so that no client waits after an answer that it
cannot use.
"""

import asyncio
import json
import logging
import math
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

import anyio
import mcp_types as types
from mcp import ClientSession, MCPError
from mcp.shared.message import SessionMessage
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from haystack_integrations.tools.mcp import MCPConnectionError, MCPHandlers, MCPInvocationError
from haystack_integrations.tools.mcp.convert.odd_messages import read_messages
from haystack_integrations.tools.mcp.protocol.channel import Exchange, Transport
from haystack_integrations.tools.mcp.protocol.wire_client import WireClient

SEEDS: Final = range(1_000, 1_200)
VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
LISTINGS: Final = ("resources", "templates", "prompts")
OPERATIONS: Final = (*LISTINGS, "read", "prompt", "complete", "call", "call", "call", "call")
ROOT: Final = "file:///data"
TOOL: Final = {
    "name": "pay",
    "inputSchema": {"type": "object"},
    "outputSchema": {"type": "object", "properties": {"x": {"type": "integer"}}},
}
TEXT: Final = {"type": "text", "text": "paid"}
PROMPT: Final = types.PromptReference(type="ref/prompt", name="a")

UNANSWERED: Final = ("error", -1)
INVALID: Final = ("invalid", None)
UNKNOWN_METHOD: Final = ("error", types.METHOD_NOT_FOUND)

UNREADABLE: Final = {"neither", "result is a number", "no version", "1.0"}
ODD_ERRORS: Final = {"odd error", "error without message", "error with odd code"}
ODD_MEMBERS: Final = {"odd result", "odd item", "odd block", "odd structured content"}


def call_results(version: str) -> dict[str, Any]:
    image = {"type": "image", "data": "aGk=", "mimeType": "image/png"}
    link = {"type": "resource_link", "uri": "memo://a", "name": "a"}
    return {
        "result": {"content": [TEXT], "structuredContent": {"x": 1}},
        "blocks": {"content": [TEXT, image, link], "structuredContent": {}},
        "more members": {"content": [TEXT], "structuredContent": {"x": 2}, "later": [1], "_meta": {"a": None}},
        "error of the tool": {"content": [TEXT], "structuredContent": {}, "isError": True},
        "violated schema": {"content": [TEXT], "structuredContent": {"x": "one"}},
        "no structured content": {"content": [TEXT]},
        "odd result": {"content": None, "structuredContent": {"x": 1}},
        "odd block": {"content": ["paid", {"type": "hologram"}], "structuredContent": {"x": 1}},
        "odd structured content": {"content": [], "structuredContent": [] if version < "2026" else {"x": 1}},
    }


def other_results(operation: str, page: int) -> dict[str, Any]:
    name, items = {
        "resources": ("resources", [{"uri": f"memo://{page}", "name": "a"}]),
        "templates": ("resourceTemplates", [{"uriTemplate": f"memo://{page}/{{x}}", "name": "a"}]),
        "prompts": ("prompts", [{"name": f"{page}"}]),
        "read": ("contents", [{"uri": "memo://a", "text": "A"}]),
        "prompt": ("messages", [{"role": "user", "content": TEXT}]),
        "complete": ("completion", {"values": ["a", "b"]}),
    }[operation]
    return {
        "result": {name: items},
        "more members": {name: items, "later": {"a": 1}, "_meta": {"a": 1}},
        "odd result": {name: None},
        "odd item": {name: [*items, 5]} if isinstance(items, list) else {name: {"values": 5}},
    }


def bodies(result: Any) -> dict[str, Any]:
    return {
        "answered": {"result": result},
        "refused": {"error": {"code": -32602, "message": "no", "data": {"a": 1}}},
        "unknown method": {"error": {"code": -32601, "message": "unknown"}},
        "odd error": {"error": "no"},
        "error without message": {"error": {"code": -32602}},
        "error with odd code": {"error": {"code": "x", "message": "no"}},
        "both": {"result": result, "error": {"code": -32000, "message": "no"}},
        "null error": {"result": result, "error": None},
        "neither": {},
        "result is a list": {"result": []},
        "result is a number": {"result": 7},
    }


def other_messages(request_id: Any, number: int) -> dict[str, Any]:
    """
    Return messages that are not answers.
    """

    def note(method: str, params: Any = None) -> dict[str, Any]:
        return {"jsonrpc": "2.0", "method": method, **({} if params is None else {"params": params})}

    def progress(**params: Any) -> dict[str, Any]:
        return note("notifications/progress", {"progressToken": request_id, **params})

    def asked(method: str, params: Any = None) -> dict[str, Any]:
        return {**note(method, params), "id": f"s{number}"}

    sampling = {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 5}
    return {
        "progress": progress(progress=1, total=2),
        "progress with a message": progress(progress=0.5, message="half"),
        "progress without a number": progress(total=2),
        "progress of nobody": progress(progressToken="x", progress=1),
        "log": note("notifications/message", {"level": "info", "data": "text"}),
        "odd log": note("notifications/message", {"level": "loud"}),
        "change": note("notifications/tools/list_changed"),
        "odd change": note("notifications/resources/updated", {"uri": 5}),
        "unknown note": note("notifications/own", {"a": 1}),
        "cancel of nobody": note("notifications/cancelled", {"requestId": 99}),
        "params are a list": note("notifications/message", [1]),
        "ping": asked("ping"),
        "ping with a number": {**asked("ping"), "id": number},
        "roots": asked("roots/list"),
        "sampling": asked("sampling/createMessage", sampling),
        "odd sampling": asked("sampling/createMessage", {"messages": 5}),
        "elicitation": asked("elicitation/create", {"message": "?", "requestedSchema": {"type": "object"}}),
        "unknown request": asked("own/method", {"a": 1}),
        "number": 5,
        "text": "hello",
        "object": {"a": 1},
    }


class Script:
    """
    The messages of a server for one operation; `features` names the special ones.
    """

    def __init__(self, seed: int) -> None:
        source = Random(seed)
        self.seed, self.version, self.operation = seed, source.choice(VERSIONS), source.choice(OPERATIONS)
        self.pages = source.choice([1, 1, 2, 3]) if self.operation in LISTINGS else 1
        self.is_modern = self.version in MODERN_PROTOCOL_VERSIONS
        self.features: set[str] = set()

    def messages(self, page: int, request_id: Any) -> list[Any]:
        """
        Return the answer to a request of the operation, with the messages before and after it.
        """
        source = Random(f"{self.seed}, {page}")

        def pick(choices: dict[str, Any], odd: float) -> Any:
            usual, *_ = names = list(choices)
            name = source.choice(names) if source.random() < odd else usual
            if name != usual:
                self.features.add(name)
            return choices[name]

        def others(*counts: int) -> list[Any]:
            return [
                pick(other_messages(request_id, source.randrange(1_000)), 0.9) for _ in range(source.choice(counts))
            ]

        is_last = page + 1 == self.pages
        odd = 1.0 if is_last else 0.0  # so that both clients reach the last page
        result = pick(
            call_results(self.version) if self.operation == "call" else other_results(self.operation, page), 0.6 * odd
        )
        if not is_last:
            result["nextCursor"] = f"page {page + 1}"
        elif self.operation in LISTINGS:
            result |= pick({"": {}, "null cursor": {"nextCursor": None}}, 0.2)
        if self.is_modern:
            kept = {} if self.operation in ("call", "prompt", "complete") else {"ttlMs": 0, "cacheScope": "private"}
            result |= pick({"": {"resultType": "complete", **kept}, "no resultType": {}}, 0.2 * odd)
        ids = {"": request_id, "id as text": str(request_id), "id as float": float(request_id)}
        answer = {
            **pick({"": {"jsonrpc": "2.0"}, "no version": {}, "1.0": {"jsonrpc": "1.0"}}, 0.1 * odd),
            "id": pick({**ids, "other id": request_id + 1000, "null id": None}, 0.2 * odd),
            **pick(bodies(result), 0.3 * odd),
        }
        answers = pick({"": [answer], "twice": [answer, answer], "batch": [[answer]]}, 0.15 * odd)
        return [*others(0, 0, 1, 2, 3), *answers, *others(0, 0, 0, 1)]


class Server:
    """
    A server that plays a script.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        # Received messages: requests of the operation, and answers to the server's own requests.
        self.requests: list[Any] = []
        self.answers: list[Any] = []

    def hear(self, message: dict[str, Any]) -> list[bytes]:
        script, method, request_id = self._script, message.get("method"), message.get("id")
        if method is None:
            self.answers.append([request_id, message.get("result", (message.get("error") or {}).get("code"))])
        if method is None or request_id is None:
            return []
        capabilities = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}, "logging": {}}
        about = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if script.is_modern else {}
        named = {"capabilities": capabilities, "serverInfo": {"name": "shop", "version": "1"}}
        opening = {
            "initialize": {"protocolVersion": script.version, **named},
            "server/discover": {**about, "supportedVersions": [script.version], "capabilities": capabilities},
            "tools/list": {**about, "tools": [TOOL]},
        }
        if method in opening:
            return [json.dumps({"jsonrpc": "2.0", "id": request_id, "result": opening[method]}).encode()]
        page = len(self.requests)
        self.requests.append(
            [method, {key: value for key, value in message.get("params", {}).items() if key != "_meta"}]
        )
        last = {"jsonrpc": "2.0", "id": request_id, "error": {"code": UNANSWERED[1], "message": "no more"}}
        made = script.messages(page, request_id) if page < script.pages else []
        return [json.dumps(each).encode() for each in (*made, last)]


@dataclass
class Seen:
    """
    Everything that was observed of a client.
    """

    server: Server
    outcome: tuple[str, Any] = INVALID
    progress: list[Any] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def report(self, *values: Any) -> None:
        self.progress.append(list(values))

    def result(self, result: Any) -> None:
        items = result if isinstance(result, list) else [result]
        self.outcome = "result", [item.model_dump(by_alias=True, mode="json", exclude_none=True) for item in items]

    async def settle(self) -> None:
        """
        Wait until the requests of the server are answered, and its notifications delivered.
        """
        count = -1
        while count != len(self.server.answers):
            count = len(self.server.answers)
            for _ in range(30):
                await asyncio.sleep(0)


class MemoryTransport(Transport):
    def __init__(self, server: Server) -> None:
        self._server = server

    async def carry(self, content: bytes, exchange: Exchange) -> None:
        exchange.mark_sent()
        await self.send(content)

    async def send(self, content: bytes) -> None:
        for data in self._server.hear(json.loads(content)):
            for frame in read_messages(data):
                self.channel.received(frame)

    async def close(self) -> None:
        pass


class OurClient(WireClient):
    def __init__(self, server: Server, *, handshake_first: bool) -> None:
        super().__init__()
        self._server = server
        self._handshake_first = handshake_first

    async def _make_transport(self) -> Transport:
        return MemoryTransport(self._server)


async def our_client(script: Script) -> Seen:
    seen = Seen(Server(script))

    async def note(message: Any) -> None:
        seen.notes.append(message.method)

    client = OurClient(seen.server, handshake_first=not script.is_modern)
    client.handlers = MCPHandlers(roots=[ROOT], messages=note)
    await client.connect()
    operations: dict[str, Callable[[], Any]] = {
        "call": lambda: client.request_tool("pay", {"a": 1}, on_progress=seen.report),
        "resources": client.list_resources,
        "templates": client.list_resource_templates,
        "prompts": client.list_prompts,
        "read": lambda: client.read_resource("memo://a"),
        "prompt": lambda: client.get_prompt("a", {"b": "c"}),
        "complete": lambda: client.complete(PROMPT, {"name": "b", "value": ""}),
    }
    try:
        seen.result(await operations[script.operation]())
    except (MCPInvocationError, MCPConnectionError) as error:
        seen.outcome = INVALID if error.code is None else ("error", error.code)
    await seen.settle()
    await client.aclose()
    return seen


async def sdk_session(script: Script) -> Seen:
    seen = Seen(Server(script))
    sending, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
    outgoing, heard = anyio.create_memory_object_stream[SessionMessage](math.inf)

    async def serve() -> None:
        async for item in heard:
            for data in seen.server.hear(json.loads(item.message.model_dump_json(by_alias=True, exclude_unset=True))):
                try:
                    await sending.send(SessionMessage(types.jsonrpc_message_adapter.validate_json(data)))
                except ValueError as error:
                    await sending.send(error)

    async def note(message: Any) -> None:
        if not isinstance(message, types.ProgressNotification | Exception):
            seen.notes.append(message.method)

    async def report(*values: Any) -> None:
        seen.report(*values)

    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=ROOT)])

    async def listed(method: Any, name: str) -> list[Any]:
        page = await method()
        items = [*getattr(page, name)]
        while page.next_cursor:
            page = await method(params=types.PaginatedRequestParams(cursor=page.next_cursor))
            items += getattr(page, name)
        return items

    async with anyio.create_task_group() as group, sending, incoming, outgoing, heard:
        group.start_soon(serve)
        async with ClientSession(incoming, outgoing, message_handler=note, list_roots_callback=roots) as session:
            await (session.discover() if script.is_modern else session.initialize())
            await session.list_tools()
            operations: dict[str, Callable[[], Any]] = {
                "call": lambda: session.call_tool("pay", {"a": 1}, progress_callback=report),
                "resources": lambda: listed(session.list_resources, "resources"),
                "templates": lambda: listed(session.list_resource_templates, "resource_templates"),
                "prompts": lambda: listed(session.list_prompts, "prompts"),
                "read": lambda: session.read_resource("memo://a"),
                "prompt": lambda: session.get_prompt("a", {"b": "c"}),
                "complete": lambda: session.complete(PROMPT, {"name": "b", "value": ""}),
            }
            try:
                result = await operations[script.operation]()
                seen.result(result.completion if isinstance(result, types.CompleteResult) else result)
            except MCPError as error:
                seen.outcome = "error", error.code
            except (ValueError, RuntimeError):
                seen.outcome = INVALID
            await seen.settle()
        group.cancel_scope.cancel()
    return seen


# Intended differences: features of the script, the outcome of our client, and the outcome of the SDK's session. None
# stands for any outcome.
DIFFERENCES: Final = {
    # Servers in languages with only one type of number write ids like that.
    "ids that are floats are understood": ({"id as float"}, None, UNANSWERED),
    # Revision 2025-03-26 has batches, and some servers of other revisions send them.
    "batches are read": ({"batch"}, None, UNANSWERED),
    # The SDK waits for its timeout instead.
    "an answer that cannot be read fails its request": (UNREADABLE, "invalid", UNANSWERED),
    "an error of another shape is one with what it says": (ODD_ERRORS, "error", UNANSWERED),
    # PHP writes it like that.
    "an empty object may be written as an empty list": ({"result is a list"}, None, UNANSWERED),
    # Structured content of revisions up to 2025-11-25 is converted to an object.
    "an odd member takes nothing else away": (ODD_MEMBERS, None, INVALID),
    # Many servers declare an output schema and return only text.
    "a result without structured content passes": ({"no structured content"}, "result", INVALID),
    # SEP-2322
    "without a `resultType` a result is complete": ({"no resultType"}, None, INVALID),
    "a server that does not know a listing has nothing to list": ({"unknown method"}, "result", UNKNOWN_METHOD),
    "the error of a tool is shown as text, redacted": ({"error of the tool"}, "result", None),
}


def expected_answers(script: Script, answers: list[Any]) -> list[Any]:
    """
    Return the expected answers of our client, given those of the SDK's session.
    """
    if script.is_modern:
        return []  # servers of these revisions send no requests, so no answer is expected
    # A client without a handler does not have the method, whatever the parameters are.
    missing = {types.INVALID_REQUEST: types.METHOD_NOT_FOUND, types.INVALID_PARAMS: types.METHOD_NOT_FOUND}
    return [
        [request_id, missing.get(answer, answer) if isinstance(answer, int) else answer]
        for request_id, answer in answers
    ]


async def test_our_client_and_the_session_of_the_sdk_see_the_same_except_for_listed_differences(caplog):
    caplog.set_level(logging.CRITICAL)  # odd messages are logged with tracebacks
    used: set[str] = set()
    for seed in SEEDS:
        script = Script(seed)
        ours, theirs = await our_client(script), await sdk_session(script)
        about = f"seed {seed}, {script.version}, {script.operation}, {sorted(script.features)}"
        if ours.outcome != theirs.outcome:
            reasons = {
                reason
                for reason, (features, kind, outcome) in DIFFERENCES.items()
                if features & script.features and kind in (ours.outcome[0], None) and outcome in (theirs.outcome, None)
            }
            assert reasons, f"{about}: {ours.outcome} is not {theirs.outcome}"
            used |= reasons
            continue  # all other differences follow from this one
        assert ours.server.requests == theirs.server.requests, about
        answers = expected_answers(script, theirs.server.answers)
        assert sorted(map(str, ours.server.answers)) == sorted(map(str, answers)), about
        assert ours.progress == theirs.progress, about
        assert ours.notes == theirs.notes, about
    assert used == DIFFERENCES.keys()
