# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The same scripts of servers, played to our client and to the session of the MCP SDK: both see the same, except for what
is listed in `DIFFERENCES`.

A script answers one operation, in a revision of the protocol, with messages of right and of odd shapes, in between
others that a server may send. The last of them is an error with the code UNANSWERED, so that nobody waits for an answer
that cannot be used.
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
from haystack_integrations.tools.mcp.protocol import frames
from haystack_integrations.tools.mcp.protocol.channel import Transport
from haystack_integrations.tools.mcp.protocol.exchange import Exchange
from haystack_integrations.tools.mcp.protocol.wire_client import WireClient

SEEDS: Final = range(1_000, 1_200)
VERSIONS: Final = ("2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25", "2026-07-28")
UNANSWERED: Final = -1
ROOT: Final = "file:///data"

OPERATIONS: Final = {
    "call": "tools/call",
    "resources": "resources/list",
    "templates": "resources/templates/list",
    "read": "resources/read",
    "prompts": "prompts/list",
    "prompt": "prompts/get",
    "complete": "completion/complete",
}
TOOL: Final = {
    "name": "pay",
    "inputSchema": {"type": "object"},
    "outputSchema": {"type": "object", "properties": {"x": {"type": "integer"}}},
}
TEXT: Final = {"type": "text", "text": "paid"}
PROMPT: Final = types.PromptReference(type="ref/prompt", name="a")


def call_results(version: str) -> dict[str, Any]:
    return {
        "result": {"content": [TEXT], "structuredContent": {"x": 1}},
        "blocks": {
            "content": [
                TEXT,
                {"type": "image", "data": "aGk=", "mimeType": "image/png"},
                {"type": "resource_link", "uri": "memo://a", "name": "a"},
            ],
            "structuredContent": {},
        },
        "more members": {"content": [TEXT], "structuredContent": {"x": 2}, "later": [1], "_meta": {"a": None}},
        "error of the tool": {"content": [TEXT], "structuredContent": {}, "isError": True},
        "violated schema": {"content": [TEXT], "structuredContent": {"x": "one"}},
        "no structured content": {"content": [TEXT]},
        "odd result": {"content": None, "structuredContent": {"x": 1}},
        "odd block": {"content": ["paid", {"type": "hologram"}], "structuredContent": {"x": 1}},
        "odd structured content": {"content": [], "structuredContent": [] if version < "2026" else {"x": 1}},
    }


def other_results(operation: str, page: int) -> dict[str, Any]:
    item = {
        "resources": {"resources": [{"uri": f"memo://{page}", "name": "a"}]},
        "templates": {"resourceTemplates": [{"uriTemplate": f"memo://{page}/{{x}}", "name": "a"}]},
        "prompts": {"prompts": [{"name": f"{page}"}]},
        "read": {"contents": [{"uri": "memo://a", "text": "A"}]},
        "prompt": {"messages": [{"role": "user", "content": TEXT}]},
        "complete": {"completion": {"values": ["a", "b"]}},
    }[operation]
    name, items = next(iter(item.items()))
    return {
        "result": item,
        "more members": {**item, "later": {"a": 1}, "_meta": {"a": 1}},
        "odd result": {name: None},
        "odd item": {name: [*items, 5]} if isinstance(items, list) else {name: {"values": 5}},
    }


@dataclass
class Script:
    """
    What a server sends in answer to one operation.

    :param features: What is special about it.
    """

    seed: int
    version: str
    operation: str
    features: set[str] = field(default_factory=set)
    # For each request of the operation, what comes before, as and after its answer.
    answers: list[Callable[[Any], list[Any]]] = field(default_factory=list)

    @property
    def is_modern(self) -> bool:
        return self.version in MODERN_PROTOCOL_VERSIONS

    @classmethod
    def of(cls, seed: int) -> "Script":
        source = Random(seed)
        script = cls(seed, source.choice(VERSIONS), source.choice([*OPERATIONS, "call", "call", "call"]))
        pages = source.choice([1, 1, 2, 3]) if script.operation in ("resources", "templates", "prompts") else 1
        script.answers = [script._answer(source, following=page + 1 < pages, page=page) for page in range(pages)]
        return script

    def _pick(self, source: Random, choices: dict[str, Any], usual: float) -> Any:
        name = next(iter(choices)) if source.random() < usual else source.choice(list(choices))
        if name != next(iter(choices)):
            self.features.add(name)
        return choices[name]

    def _answer(self, source: Random, *, following: bool, page: int) -> Callable[[Any], list[Any]]:
        # Only the last page is odd, so that both clients come to it.
        odd = 0.0 if following else 1.0
        results = call_results(self.version) if self.operation == "call" else other_results(self.operation, page)
        result = dict(self._pick(source, results, 1 - 0.6 * odd))
        if following:
            result["nextCursor"] = f"page {page + 1}"
        elif self.operation in ("resources", "prompts") and source.random() < 0.1:
            self.features.add("null cursor")
            result["nextCursor"] = None
        if self.is_modern and (following or source.random() < 0.9):
            result["resultType"] = "complete"
            if self.operation not in ("call", "prompt", "complete"):
                result |= {"ttlMs": 0, "cacheScope": "private"}
        elif self.is_modern:
            self.features.add("no resultType")
        make_id = self._pick(
            source,
            {
                "same id": lambda request_id: request_id,
                "id as text": str,
                "id as float": float,
                "other id": lambda request_id: request_id + 1000,
                "null id": lambda _: None,
            },
            1 - 0.2 * odd,
        )
        body = self._pick(
            source,
            {
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
            },
            1 - 0.3 * odd,
        )
        head = self._pick(
            source, {"2.0": {"jsonrpc": "2.0"}, "no version": {}, "1.0": {"jsonrpc": "1.0"}}, 1 - 0.1 * odd
        )
        copies = self._pick(source, {"once": 1, "twice": 2}, 1 - 0.1 * odd)
        before, after = (
            [self._other(source) for _ in range(source.choice([0, 0, 1, 2, 3]))],
            [self._other(source) for _ in range(source.choice([0, 0, 0, 1]))],
        )
        in_batch = source.random() < 0.04 * odd
        if in_batch:
            self.features.add("batch")

        def answer(request_id: Any) -> list[Any]:
            message = {**head, "id": make_id(request_id), **body}
            return [
                *(other(request_id) for other in before),
                *([[message]] if in_batch else [message] * copies),
                *(other(request_id) for other in after),
            ]

        return answer

    def _other(self, source: Random) -> Callable[[Any], Any]:
        """Something that is no answer."""
        number = source.randrange(1_000)

        def note(method: str, params: Any = None) -> Callable[[Any], Any]:
            message = {"jsonrpc": "2.0", "method": method}
            return lambda _: message if params is None else {**message, "params": params}

        def asked(method: str, params: Any = None, request_id: Any = None) -> Callable[[Any], Any]:
            own = f"s{number}" if request_id is None else request_id
            return lambda _: {**note(method, params)(None), "id": own}

        def progress(params: dict[str, Any]) -> Callable[[Any], Any]:
            return lambda request_id: note("notifications/progress", {"progressToken": request_id, **params})(None)

        log = {"level": "info", "data": "text"}
        sampling = {"messages": [{"role": "user", "content": TEXT}], "maxTokens": 5}
        return self._pick(
            source,
            {
                "progress": progress({"progress": 1, "total": 2}),
                "progress with a message": progress({"progress": 0.5, "message": "half"}),
                "progress without a number": progress({"total": 2}),
                "progress of nobody": note("notifications/progress", {"progressToken": "x", "progress": 1}),
                "log": note("notifications/message", log),
                "odd log": note("notifications/message", {"level": "loud"}),
                "change": note("notifications/tools/list_changed"),
                "odd change": note("notifications/resources/updated", {"uri": 5}),
                "unknown note": note("notifications/own", {"a": 1}),
                "cancel of nobody": note("notifications/cancelled", {"requestId": 99}),
                "params are a list": note("notifications/message", [1]),
                "ping": asked("ping"),
                "ping with a number": asked("ping", request_id=number),
                "roots": asked("roots/list"),
                "sampling": asked("sampling/createMessage", sampling),
                "odd sampling": asked("sampling/createMessage", {"messages": 5}),
                "elicitation": asked("elicitation/create", {"message": "?", "requestedSchema": {"type": "object"}}),
                "unknown request": asked("own/method", {"a": 1}),
                "number": lambda _: 5,
                "text": lambda _: "hello",
                "object": lambda _: {"a": 1},
            },
            0.1,
        )


class Server:
    """
    Plays a script.
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._asked = 0
        # What it got: requests of the operation, notifications, and answers to its own requests.
        self.requests: list[Any] = []
        self.notes: list[str] = []
        self.answers: list[Any] = []

    def hear(self, message: dict[str, Any]) -> list[bytes]:
        method, request_id = message.get("method"), message.get("id")
        if method is None:
            self.answers.append([request_id, message.get("result", (message.get("error") or {}).get("code"))])
            return []
        if request_id is None:
            self.notes.append(method)
            return []
        capabilities = {"tools": {}, "resources": {}, "prompts": {}, "completions": {}, "logging": {}}
        named = {"name": "shop", "version": "1"}
        about = {"resultType": "complete", "ttlMs": 0, "cacheScope": "private"} if self._script.is_modern else {}
        opening = {
            "initialize": {
                "protocolVersion": self._script.version,
                "capabilities": capabilities,
                "serverInfo": named,
            },
            "server/discover": {**about, "supportedVersions": [self._script.version], "capabilities": capabilities},
            "tools/list": {**about, "tools": [TOOL]},
        }.get(method)
        if opening is not None:
            return [json.dumps({"jsonrpc": "2.0", "id": request_id, "result": opening}).encode()]
        params = {key: value for key, value in message.get("params", {}).items() if key != "_meta"}
        self.requests.append([method, params])
        made = self._script.answers[self._asked](request_id) if self._asked < len(self._script.answers) else []
        self._asked += 1
        last = {"jsonrpc": "2.0", "id": request_id, "error": {"code": UNANSWERED, "message": "no more"}}
        return [json.dumps(each).encode() for each in (*made, last)]


@dataclass
class Seen:
    """
    What there was to see of a client.
    """

    outcome: tuple[str, Any]
    requests: list[Any]
    answers: list[Any]
    progress: list[Any]
    notes: list[str]


class MemoryTransport(Transport):
    def __init__(self, server: Server) -> None:
        self._server = server

    async def carry(self, content: bytes, exchange: Exchange) -> None:
        exchange.mark_sent()
        await self.tell(content)

    async def tell(self, content: bytes) -> None:
        for data in self._server.hear(json.loads(content)):
            for frame in frames.read(data):
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


async def settle(server: Server) -> None:
    """
    Wait until the requests of the server are answered, and its notifications delivered.
    """
    count = -1
    while count != len(server.answers):
        count = len(server.answers)
        for _ in range(30):
            await asyncio.sleep(0)


def as_json(result: Any) -> Any:
    return json.loads(json.dumps([each.model_dump(by_alias=True, mode="json", exclude_none=True) for each in result]))


async def our_client(script: Script) -> Seen:
    server, progress, notes = Server(script), [], []

    async def note(message: Any) -> None:
        notes.append(message.method)

    def report(*values: Any) -> None:
        progress.append(list(values))

    client = OurClient(server, handshake_first=not script.is_modern)
    client.handlers = MCPHandlers(roots=[ROOT], messages=note)
    await client.connect()
    operations: dict[str, Callable[[], Any]] = {
        "call": lambda: client.request_tool("pay", {"a": 1}, on_progress=report),
        "resources": client.list_resources,
        "templates": client.list_resource_templates,
        "prompts": client.list_prompts,
        "read": lambda: client.read_resource("memo://a"),
        "prompt": lambda: client.get_prompt("a", {"b": "c"}),
        "complete": lambda: client.complete(
            types.PromptReference(type="ref/prompt", name="a"), {"name": "b", "value": ""}
        ),
    }
    outcome: tuple[str, Any]
    try:
        result = await operations[script.operation]()
        outcome = ("result", as_json(result if isinstance(result, list) else [result]))
    except (MCPInvocationError, MCPConnectionError) as error:
        outcome = ("invalid", None) if error.code is None else ("error", error.code)
    await settle(server)
    await client.aclose()
    return Seen(outcome, server.requests, server.answers, progress, notes)


async def sdk_session(script: Script) -> Seen:
    server, progress, notes = Server(script), [], []
    sending, incoming = anyio.create_memory_object_stream[SessionMessage | Exception](math.inf)
    outgoing, heard = anyio.create_memory_object_stream[SessionMessage](math.inf)

    async def serve() -> None:
        async for item in heard:
            for data in server.hear(json.loads(item.message.model_dump_json(by_alias=True, exclude_unset=True))):
                try:
                    await sending.send(SessionMessage(types.jsonrpc_message_adapter.validate_json(data)))
                except ValueError as error:
                    await sending.send(error)

    async def note(message: Any) -> None:
        if not isinstance(message, types.ProgressNotification | Exception):
            notes.append(message.method)

    async def report(*values: Any) -> None:
        progress.append(list(values))

    async def roots(_context: Any) -> types.ListRootsResult:
        return types.ListRootsResult(roots=[types.Root(uri=ROOT)])

    async def listed(method: Any, name: str) -> list[Any]:
        items: list[Any] = []
        cursor = None
        while True:
            page = await method(params=types.PaginatedRequestParams(cursor=cursor) if cursor else None)
            items += getattr(page, name)
            cursor = page.next_cursor
            if not cursor:
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
            outcome: tuple[str, Any]
            try:
                result = await operations[script.operation]()
                result = result.completion if isinstance(result, types.CompleteResult) else result
                outcome = ("result", as_json(result if isinstance(result, list) else [result]))
            except MCPError as error:
                outcome = ("error", error.code)
            except (ValueError, RuntimeError):
                outcome = ("invalid", None)
            await settle(server)
        group.cancel_scope.cancel()
    return Seen(outcome, server.requests, server.answers, progress, notes)


@dataclass(frozen=True)
class Difference:
    """
    What is meant to be different.

    :param reason: Why.
    :param features: Of which scripts at least one is needed.
    :param holds: Whether it explains what came of the operation in both clients.
    """

    reason: str
    features: frozenset[str]
    holds: Callable[[Script, Any, Any], bool]


ODD: Final = frozenset({"odd result", "odd item", "odd block", "odd structured content"})
UNREADABLE: Final = frozenset(
    {
        "neither",
        "result is a number",
        "no version",
        "1.0",
    }
)

DIFFERENCES: Final = (
    Difference(
        "a server that knows one kind of number only writes ids as floats, and is understood",
        frozenset({"id as float"}),
        lambda _script, ours, theirs: ours != theirs == ("error", UNANSWERED),
    ),
    Difference(
        "revision 2025-03-26 has batches, and some servers of others send them",
        frozenset({"batch"}),
        lambda _script, ours, theirs: ours != theirs == ("error", UNANSWERED),
    ),
    Difference(
        "an answer that cannot be read fails its request at once, instead of leaving it to its timeout",
        UNREADABLE,
        lambda _script, ours, theirs: ours == ("invalid", None) and theirs == ("error", UNANSWERED),
    ),
    Difference(
        "an error of another shape is one with what it says",
        frozenset({"odd error", "error without message", "error with odd code"}),
        lambda _script, ours, theirs: ours[0] == "error" and theirs == ("error", UNANSWERED),
    ),
    Difference(
        "an empty object may be written as an empty list, as PHP does it",
        frozenset({"result is a list"}),
        lambda _script, ours, theirs: ours != theirs == ("error", UNANSWERED),
    ),
    Difference(
        "an odd member takes nothing else away",
        ODD,
        lambda _script, ours, theirs: theirs == ("invalid", None) != ours,
    ),
    Difference(
        "up to 2025-11-25 structured content is an object, and is made one",
        frozenset({"odd structured content"}),
        lambda script, ours, _theirs: ours[0] == "result" and not script.is_modern,
    ),
    Difference(
        "without a `resultType` a result is complete (SEP-2322)",
        frozenset({"no resultType"}),
        lambda _script, ours, theirs: theirs == ("invalid", None) != ours,
    ),
    Difference(
        "a server that does not know a listing has nothing to list",
        frozenset({"unknown method"}),
        lambda _script, ours, theirs: ours == ("result", []) and theirs == ("error", types.METHOD_NOT_FOUND),
    ),
    Difference(
        "the error of a tool is shown as text, redacted",
        frozenset({"error of the tool"}),
        lambda _script, ours, theirs: ours[0] == theirs[0] == "result" and theirs[1][0]["isError"],
    ),
)


def expected_answers(script: Script, answers: list[Any]) -> list[Any]:
    """
    What our client answers where the session of the SDK answers this.
    """
    if script.is_modern:
        return []  # a server of these revisions asks nothing, so that nobody waits for an answer
    # Without a handler, a client does not have the method, whatever its parameters are.
    missing = {types.INVALID_REQUEST: types.METHOD_NOT_FOUND, types.INVALID_PARAMS: types.METHOD_NOT_FOUND}
    return [
        [request_id, missing.get(answer, answer) if isinstance(answer, int) else answer]
        for request_id, answer in answers
    ]


async def test_our_client_and_the_session_of_the_sdk_see_the_same_of_a_server_but_for_what_is_listed(caplog):
    caplog.set_level(logging.CRITICAL)  # what is odd is logged, with tracebacks
    used: set[str] = set()
    for seed in SEEDS:
        script = Script.of(seed)
        ours, theirs = await our_client(script), await sdk_session(script)
        about = f"seed {seed}, {script.version}, {script.operation}, {sorted(script.features)}"
        if ours.outcome != theirs.outcome:
            reasons = [
                each.reason
                for each in DIFFERENCES
                if each.features & script.features and each.holds(script, ours.outcome, theirs.outcome)
            ]
            assert reasons, f"{about}: {ours.outcome} is not {theirs.outcome}"
            used.update(reasons)
            continue  # the rest follows from it
        assert ours.requests == theirs.requests, about
        assert sorted(map(str, ours.answers)) == sorted(map(str, expected_answers(script, theirs.answers))), about
        assert ours.progress == theirs.progress, about
        assert ours.notes == theirs.notes, about
    assert used == {each.reason for each in DIFFERENCES}
