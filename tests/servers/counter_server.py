# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A real MCP server, written with the MCP SDK, that records its calls.

Run it over any transport; over HTTP it prints `PORT <n>` on stdout once it listens:

    python counter_server.py --transport stdio|sse|streamable-http [--calls-file PATH] [...]

The file of `--calls-file` gets one line per event: the event's name and its details as JSON. A tool records its name
when it is executed, so that a test can prove how often it really ran. Lines that begin with `@` are about the server
itself: `@start` for the process, and `@<method>` for every MCP request that arrives.
"""

import argparse
import asyncio
import base64
import json
import os
import signal
import socket
import ssl
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, TypedDict

import anyio
import uvicorn
from mcp import MCPError
from mcp.server.lowlevel import NotificationOptions
from mcp.server.mcpserver import Audio, Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.runner import serve_loop
from mcp.types import (
    BlobResourceContents,
    CallToolResult,
    Completion,
    EmbeddedResource,
    TextContent,
    TextResourceContents,
    ToolAnnotations,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from pydantic import Field
from starlette.datastructures import Headers
from starlette.responses import JSONResponse

# A picture of one red pixel, and an empty sound.
PNG = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR42mP4z8AAAAMBAQD3A0FDAAAAAElFTkSuQmCC")
WAV = base64.b64decode("UklGRiQAAABXQVZFZm10IBAAAAABAAEAQB8AAEAfAAABAAgAZGF0YQAAAAA=")

Record = Callable[..., None]


def record_to(path: Path | None) -> Record:
    """Return a function that appends one event to the file at once, from any thread or process."""

    def record(event: str, **details: Any) -> None:
        if path is None:
            return
        line = f"{event} {json.dumps(details, sort_keys=True)}\n".encode()
        descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, line)
        finally:
            os.close(descriptor)

    return record


class Weather(TypedDict):
    city: str
    temperature: float
    conditions: list[str]


def _text(text: str) -> TextContent:
    return TextContent(type="text", text=text)


NOTE = TextResourceContents(uri="memo://note", text="a note", mime_type="text/plain")
PDF = base64.b64encode(b"%PDF-1.4\n%%EOF\n").decode()
REPORT = BlobResourceContents(uri="file:///report.pdf", blob=PDF, mime_type="application/pdf")
PICTURE = Image(data=PNG, format="png").to_image_content()
# Tools without arguments: their descriptions, content and structured content.
CONSTANT: dict[str, tuple[str, list[Any], dict[str, Any] | None]] = {
    "image": ("A picture of one red pixel.", [PICTURE], None),
    "audio": ("A sound of no length.", [Audio(data=WAV, format="wav").to_audio_content()], None),
    "resource": ("An embedded text.", [EmbeddedResource(type="resource", resource=NOTE)], None),
    "blob": ("An embedded file.", [EmbeddedResource(type="resource", resource=REPORT)], None),
    "mixed": ("A text, a picture, and a text.", [_text("before"), PICTURE, _text("after")], None),
    "structured_only": ("A structured result without any content.", [], {"answer": 42}),
    "json_text": ("A JSON object as text, without structured content.", [_text('{"answer": 42}')], None),
    "nothing": ("An empty result.", [], None),
}


def _returning(name: str, result: CallToolResult, record: Record) -> Callable[[], CallToolResult]:
    def tool() -> CallToolResult:
        record(name)
        return result

    tool.__name__ = name
    return tool


def build_server(record: Record, *, name: str = "counter", in_process: bool = False) -> MCPServer[Any]:
    """
    Create a server with every kind of tool that the tests need.

    :param record: Called with the tool's name and arguments at each execution.
    :param name: The server's name.
    :param in_process: Whether to omit the tools that are about the server's own process.
    """
    server: MCPServer[Any] = MCPServer(name, version="1.2.3", instructions="Counts what it does.", log_level="WARNING")

    @server.tool()
    def add(a: int, b: int) -> int:
        """Add two integers."""
        record("add", a=a, b=b)
        return a + b

    @server.tool()
    def echo(text: Annotated[str, Field(description="What to say back")]) -> str:
        """Say the same text back."""
        record("echo", text=text)
        return text

    @server.tool()
    async def sleep(seconds: float) -> str:
        """Take a while; `sleep-finished` or `sleep-cancelled` is recorded at the end."""
        record("sleep", seconds=seconds)
        try:
            await anyio.sleep(seconds)
        except anyio.get_cancelled_exc_class():
            record("sleep-cancelled", seconds=seconds)
            raise
        record("sleep-finished", seconds=seconds)
        return f"slept {seconds} s"

    @server.tool()
    async def progress(steps: int, ctx: Context[Any, Any], pause: float = 0.0) -> str:
        """Report each of the steps, with a pause after each; `progress-cancelled` is recorded if that is cancelled."""
        record("progress", steps=steps)
        try:
            for step in range(1, steps + 1):
                await ctx.report_progress(step, steps, f"step {step}")
                await anyio.sleep(pause)
        except anyio.get_cancelled_exc_class():
            record("progress-cancelled", steps=steps)
            raise
        return "done"

    @server.tool()
    def fail(message: str) -> str:
        """Fail with the message."""
        record("fail", message=message)
        raise ToolError(message)

    @server.tool()
    def refuse(message: str) -> str:
        """Refuse with a protocol error that quotes the message."""
        record("refuse", message=message)
        raise MCPError(-32050, f"refused: {message}", {"quoted": message})

    for tool_name, (description, content, structured_content) in CONSTANT.items():
        result = CallToolResult(content=content, structured_content=structured_content)
        server.add_tool(_returning(tool_name, result, record), description=description)

    @server.tool()
    def structured(city: str = "Berlin") -> Weather:
        """The weather, with an output schema."""
        record("structured", city=city)
        return Weather(city=city, temperature=21.5, conditions=["sunny", "windy"])

    @server.tool()
    def secret_echo(text: str, token: str, refuse: bool = False) -> str:
        """Return the text, and only the length of the token."""
        record("secret_echo", text=text, token_length=len(token))
        if refuse:
            message = "the token was refused"
            raise ToolError(message)
        return f"{text} (with a token of {len(token)} characters)"

    @server.tool()
    def big(size: int) -> CallToolResult:
        """A text of that many characters."""
        record("big", size=size)
        return CallToolResult(content=[TextContent(type="text", text="x" * size)])

    @server.tool(title="Read-only echo", annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
    def readonly_echo(text: str) -> str:
        """Say the same text back, changing nothing."""
        record("readonly_echo", text=text)
        return text

    @server.tool()
    def header(name: str, ctx: Context[Any, Any]) -> str | None:
        """An HTTP header of the request."""
        record("header", name=name)
        return (ctx.headers or {}).get(name.lower())

    @server.tool()
    def pid() -> int:
        """The server's process."""
        record("pid")
        return os.getpid()

    if not in_process:

        @server.tool()
        def die() -> str:
            """End the server's process at once."""
            record("die")
            os._exit(3)

    @server.resource("memo://hello", mime_type="text/plain")
    def hello() -> str:
        """A greeting."""
        return "hello"

    @server.resource("memo://slow/{seconds}")
    async def slow(seconds: str) -> str:
        """Text that takes that long."""
        await anyio.sleep(float(seconds))
        return f"read after {seconds} s"

    @server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> Completion:
        return Completion(values=[name for name in ("Ada", "Alan", "Grace") if name.startswith(argument.value)])

    @server.prompt()
    def greet(name: str) -> str:
        """Ask for a greeting."""
        return f"Please greet {name}."

    note_requests(server, record)
    return server


def note_requests(server: MCPServer[Any], record: Record) -> None:
    """Record every request that arrives."""

    async def note(ctx: Any, call_next: Callable[[Any], Awaitable[Any]]) -> Any:
        noted = {key: value for key, value in dict(ctx.meta or {}).items() if key.startswith("test/")}
        token = {"progress_token": True} if "progress_token" in (ctx.meta or {}) else {}
        record(f"@{ctx.method}", protocol_version=ctx.protocol_version, **noted, **token)
        return await call_next(ctx)

    server.middleware.append(note)


def announce_changes(server: MCPServer[Any]) -> None:
    """Make the server declare in the handshake that its lists may change."""
    options = server._lowlevel_server.create_initialization_options

    def with_changes(*_args: Any, **kwargs: Any) -> Any:
        changes = NotificationOptions(prompts_changed=True, resources_changed=True, tools_changed=True)
        return options(**{**kwargs, "notification_options": changes})

    server._lowlevel_server.create_initialization_options = with_changes  # type: ignore[method-assign]


async def announce_changed_tools(ctx: Context[Any, Any]) -> None:
    """Announce changed tools in the way of the session's revision."""
    await (ctx.notify_tools_changed() if is_modern(ctx) else ctx.session.send_tool_list_changed())


def is_modern(ctx: Context[Any, Any]) -> bool:
    return ctx.request_context.protocol_version in MODERN_PROTOCOL_VERSIONS


def serve_handshake_era_only(server: MCPServer[Any]) -> None:
    """Make the stream transports (stdio, SSE) speak only the protocol revisions that begin with `initialize`."""
    lowlevel = server._lowlevel_server

    async def run(read_stream: Any, write_stream: Any, options: Any, raise_exceptions: bool = False) -> None:
        async with lowlevel.lifespan(lowlevel) as state:
            await serve_loop(
                lowlevel,
                read_stream,
                write_stream,
                lifespan_state=state,
                init_options=options,
                raise_exceptions=raise_exceptions,
            )

    lowlevel.run = run  # type: ignore[method-assign]


def handshake_era_only(app: Any) -> Any:
    """Answer HTTP requests of later protocol revisions with 400, as servers do that do not know them."""

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        version = Headers(scope=scope).get("mcp-protocol-version") if scope["type"] == "http" else None
        answer = app
        if version and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            message = f"Bad Request: Unsupported protocol version: {version}"
            error = {"code": -32600, "message": message}
            answer = JSONResponse({"jsonrpc": "2.0", "id": "server-error", "error": error}, 400)
        await answer(scope, receive, send)

    return respond


def token_required(app: Any, token: str) -> Any:
    """Answer requests without the bearer token with 401."""

    async def respond(scope: Any, receive: Any, send: Any) -> None:
        answer = app
        if scope["type"] == "http" and Headers(scope=scope).get("authorization") != f"Bearer {token}":
            challenge = {"www-authenticate": 'Bearer realm="counter", error="invalid_token"'}
            answer = JSONResponse({"error": "invalid_token"}, 401, challenge)
        await answer(scope, receive, send)

    return respond


def listen(port: int) -> socket.socket:
    """Listen on the loopback interface and print the port on stdout."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    # The parent process keeps the port bound (not listening), so that the port is free after a restart.
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    listener.bind(("127.0.0.1", port))
    listener.listen(128)
    print(f"PORT {listener.getsockname()[1]}", flush=True)
    return listener


def serve_http(app: Any, port: int, tls: Sequence[str] = ()) -> None:
    options: dict[str, Any] = dict(zip(("ssl_certfile", "ssl_keyfile", "ssl_ca_certs"), tls, strict=False))
    if "ssl_ca_certs" in options:
        options["ssl_cert_reqs"] = ssl.CERT_REQUIRED
    config = uvicorn.Config(app, log_level="warning", timeout_keep_alive=60, timeout_graceful_shutdown=1, **options)
    listener = listen(port)
    asyncio.run(uvicorn.Server(config).serve(sockets=[listener]))


def hang(transport: str, port: int) -> None:
    """Accept connections or stdin, but never answer."""
    listener = listen(port) if transport != "stdio" else None
    while True:
        time.sleep(3600)
    del listener


def common_options(description: str | None = None) -> argparse.ArgumentParser:
    """Return a parser for the options that all servers of the SDK share."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--transport", choices=["stdio", "sse", "streamable-http"], default="stdio")
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--calls-file", type=Path)
    parser.add_argument("--protocol", choices=["legacy", "auto"], default="auto")
    return parser


def run(
    server: MCPServer[Any], options: argparse.Namespace, wrap: Callable[[Any], Any] = lambda app: app, **http: Any
) -> None:
    """
    Run a server with these options, in the revisions before 2026-07-28 or in all revisions.

    :param wrap: Wraps the ASGI application.
    :param http: Options of Streamable HTTP.
    """
    if options.protocol == "legacy":
        serve_handshake_era_only(server)
    if options.transport == "stdio":
        server.run("stdio")
        return
    app: Any = server.sse_app() if options.transport == "sse" else server.streamable_http_app(**http)
    app = wrap(handshake_era_only(app) if options.protocol == "legacy" else app)
    serve_http(app, options.port, getattr(options, "tls", ()))


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = common_options(__doc__)
    parser.add_argument("--stateless", action="store_true", help="streamable HTTP without sessions")
    parser.add_argument("--json", action="store_true", help="streamable HTTP with JSON responses instead of SSE")
    parser.add_argument("--token", help="over HTTP, answer 401 without this bearer token")
    parser.add_argument(
        "--tls", nargs="+", default=[], metavar="FILE", help="certificate, key, and the CA of client certificates"
    )
    parser.add_argument("--hang-at-start", action="store_true", help="be there and never answer")
    parser.add_argument("--stubborn", action="store_true", help="ignore SIGTERM")
    return parser.parse_args(arguments)


def main() -> None:
    options = parse()
    record = record_to(options.calls_file)
    record("@start", pid=os.getpid(), transport=options.transport)
    print("counter server: starting", file=sys.stderr)
    print(f"counter server: {options.transport}, protocol {options.protocol}", file=sys.stderr, flush=True)
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.hang_at_start:
        hang(options.transport, options.port)

    server = build_server(record)

    def wrap(app: Any) -> Any:
        return token_required(app, options.token) if options.token else app

    run(server, options, wrap, json_response=options.json, stateless_http=options.stateless)


if __name__ == "__main__":
    main()
