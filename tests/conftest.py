# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Fixtures that start real MCP servers, and checks that tests leave nothing behind and show no secrets.

Fixtures named `*_server` are factories: call them as often as needed; what they start ends with the fixture's scope.
"""

import gc
import os
import signal
from collections.abc import Callable, Generator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Self

import anyio
import pytest

# Tests send no telemetry. This must be set before Haystack is imported.
os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
# Rich takes 0.2 s of CPU to draw the traceback of a failing tool, and many tools of the tests fail.
os.environ["FASTMCP_ENABLE_RICH_TRACEBACKS"] = "False"

# Shells make background processes ignore Ctrl-C, and every process that a test interrupts would inherit that.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

from haystack.document_stores.in_memory import InMemoryDocumentStore

from haystack_integrations.tools.mcp import MCPServerInfo, StdioServerInfo
from tests.support import external
from tests.support.cutting_proxy import CuttingProxy
from tests.support.kinds import KINDS
from tests.support.leaks import adopt_orphans, assert_nothing_left, footprint
from tests.support.prepared import CAN_FORK, ForkServer, prepared_python
from tests.support.processes import (
    COUNTER_SERVER,
    FASTMCP_SERVER,
    PATIENT_SERVER,
    PLAIN_SERVER,
    SERVERS,
    CallLog,
    HttpServer,
    StdioServer,
    prepared_script,
    python_script,
)
from tests.support.secrecy import SecretWatch

# anyio imports its modules on first use, and pytest parses each of them to rewrite its assertions. CPython 3.11 fails
# if two threads parse at once ("AST constructor recursion depth mismatch"), so all modules are loaded here.
for lazy_name in dir(anyio):
    getattr(anyio, lazy_name)

HttpServerFactory = Callable[..., HttpServer]
StdioServerFactory = Callable[..., StdioServer]
ProxyFactory = Callable[[str], CuttingProxy]

_PATHS = {"sse": "/sse", "streamable-http": "/mcp"}


def pytest_configure(config: pytest.Config) -> None:
    if CAN_FORK and not ForkServer.runs():
        config.add_cleanup(ForkServer().close)
        # pytest-cov does not measure modules that the fork server has imported.
        if not config.getoption("cov_source", None):
            _fork_workers(config)


def _fork_workers(config: pytest.Config) -> None:
    """Fork the workers of pytest-xdist, each of which would otherwise import Haystack, FastMCP and the MCP SDK."""
    if specs := config.getoption("tx", None):
        python = f"popen//python={prepared_python()}"
        config.option.tx = [python if spec == "popen" else spec for spec in specs]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    # Objects that are imported and collected here live until the end. If the garbage collector scanned them, a full
    # collection would take up to half a second, and many tests run several.
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


@pytest.fixture(scope="session", autouse=True)
def nothing_left_behind() -> Iterator[None]:
    """
    Fails if this process has more children, threads or listening sockets at the end of the run than at its start.
    """
    adopt_orphans()
    before = footprint()
    yield
    assert_nothing_left(before)


@pytest.fixture(scope="session", autouse=True)
def secret_watch() -> Iterator[SecretWatch]:
    """
    Watches the texts that are shown while tests run.
    """
    with SecretWatch() as watch:
        yield watch


@pytest.fixture(autouse=True)
def no_secret_is_shown(secret_watch: SecretWatch) -> Iterator[None]:
    """
    Fails a test if one of its secrets appears in a log line, an error, a `repr`, a trace or YAML.
    """
    secret_watch.look()
    yield
    found = secret_watch.look()
    assert not found, found


@pytest.fixture(scope="session", autouse=True)
def test_modules_are_trusted() -> Iterator[None]:
    """
    Allows Haystack 3 to load classes and functions that are defined in tests.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "tests,tests.*,test_*")
        yield


@pytest.fixture(scope="session", autouse=True)
def document_stores_end_quietly() -> Iterator[None]:
    """
    Keeps document stores from joining their threads when they are garbage-collected. The collector may run while a
    thread starts and holds a lock of `threading` that joining needs, which is a deadlock. The threads end anyway.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.delattr(InMemoryDocumentStore, "__del__", raising=False)
        yield


@pytest.fixture(scope="session")
def run_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """
    Folder that all processes of this test run share.
    """
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


class _Started:
    """Starts HTTP servers, and ends them all at the end of the `with` block."""

    def __init__(self, tmp_path_factory: pytest.TempPathFactory) -> None:
        self._folders = tmp_path_factory
        self._servers: list[HttpServer] = []

    def script(
        self,
        transport: str = "streamable-http",
        *options: str,
        env: dict[str, str] | None = None,
        script: Path = COUNTER_SERVER,
    ) -> HttpServer:
        folder = self._folders.mktemp("server")
        log = CallLog(folder / "calls.txt")
        command = python_script(script, "--transport", transport, "--calls-file", str(log.path), *options)
        return self.start(HttpServer(command, _PATHS[transport], folder, log, env=env or {}))

    def everything(self, transport: str) -> HttpServer:
        folder = self._folders.mktemp("everything")
        program, arguments = external.everything({"sse": "sse", "streamable-http": "streamableHttp"}[transport])
        first = SERVERS / "listen_on_loopback.cjs"
        options = {"env": {"NODE_OPTIONS": f'--require "{first}"'}, "port_option": None}
        log = CallLog(folder / "calls.txt")
        return self.start(HttpServer([program, *arguments], _PATHS[transport], folder, log, **options))

    def start(self, server: HttpServer) -> HttpServer:
        self._servers.append(server)
        return server.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()


@pytest.fixture
def http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerFactory]:
    """
    Starts counter servers over HTTP for one test: `http_server(transport="streamable-http", *options, env=None)`. A
    `script` starts another server.

    The transport is `"streamable-http"` or `"sse"`; the options are those of `tests/servers/counter_server.py`.
    """
    with _Started(tmp_path_factory) as started:
        yield started.script


@pytest.fixture(scope="module")
def shared_http_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServerFactory]:
    """
    Like `http_server`, for a module whose tests do not break their server; equal requests share a server.
    """
    servers: dict[tuple[Any, ...], HttpServer] = {}

    def get(transport: str = "streamable-http", *options: str, script: Path = COUNTER_SERVER) -> HttpServer:
        key = (script, transport, *options)
        if key not in servers:
            servers[key] = started.script(transport, *options, script=script)
        return servers[key]

    with _Started(tmp_path_factory) as started:
        yield get


@contextmanager
def _stdio_servers(script: Path, folders: pytest.TempPathFactory) -> Iterator[StdioServerFactory]:
    servers: list[StdioServer] = []

    def describe(
        *options: str, env: dict[str, str] | None = None, cwd: str | None = None, script: Path = script
    ) -> StdioServer:
        log = CallLog(folders.mktemp("server") / "calls.txt")
        # The plain server needs no fork, because it imports nothing slow.
        start = python_script if script == PLAIN_SERVER else prepared_script
        command, *arguments = start(script, "--calls-file", str(log.path))
        servers.append(StdioServer(command, [*arguments, *options], log, env, cwd))
        return servers[-1]

    yield describe
    if any(server.alive() for server in servers):
        gc.collect()  # ends the servers of connections that were dropped without being closed
    try:
        for server in servers:
            server.wait_until_gone(limit=15)
    finally:
        for server in servers:
            server.thaw()
            server.kill()


@pytest.fixture
def stdio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioServerFactory]:
    """
    Describes plain servers over stdio, which start quickly: `stdio_server(*options, env=None, cwd=None)`.

    The options are those of `tests/servers/plain_server.py`. The test fails if a server process outlives it.
    """
    with _stdio_servers(PLAIN_SERVER, tmp_path_factory) as describe:
        yield describe


@pytest.fixture
def sdk_stdio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioServerFactory]:
    """
    Like `stdio_server`, for the counter server or another `script`: written with the MCP SDK, for every revision.
    """
    with _stdio_servers(COUNTER_SERVER, tmp_path_factory) as describe:
        yield describe


@pytest.fixture
def patient_stdio_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StdioServerFactory]:
    """
    Like `stdio_server`, for the patient server, whose calls outlive their clients.
    """
    with _stdio_servers(PATIENT_SERVER, tmp_path_factory) as describe:
        yield describe


@pytest.fixture
def cutting_proxy() -> Iterator[ProxyFactory]:
    """
    Starts proxies that can break the connections to a server: `cutting_proxy(server.url)`.
    """
    with ExitStack() as stack:
        yield lambda url: stack.enter_context(CuttingProxy(url))


@pytest.fixture(scope="session")
def fastmcp_http(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HttpServer]:
    """
    A FastMCP 4 server over Streamable HTTP.
    """
    with _Started(tmp_path_factory) as started:
        yield started.script(script=FASTMCP_SERVER)


@pytest.fixture(scope="session", params=["stdio", "streamable-http", "sse"])
def everything(
    request: pytest.FixtureRequest, run_folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MCPServerInfo]:
    """
    Reaches `@modelcontextprotocol/server-everything` over each transport; it is already downloaded.
    """
    command, arguments = external.everything("stdio")
    external.once("everything", run_folder, lambda: external.download(command, arguments))
    if request.param == "stdio":
        yield StdioServerInfo(command, arguments, env=external.runner_environment())
    else:
        with _Started(tmp_path_factory) as started:
            yield KINDS["sse" if request.param == "sse" else "2026"].reach(started.everything(request.param).url)


def _from_pypi(run_folder: Path, name: str, requirement: str, *options: str) -> StdioServer:
    command, arguments = external.uvx(requirement, *options)
    external.once(name, run_folder, lambda: external.download(command, [*arguments, "--help"]))
    # Everything is in uv's cache now, so no start waits for the network.
    command, arguments = external.uvx(requirement, "--offline", *options)
    return StdioServer(command, arguments, CallLog(run_folder / "none"), env=external.runner_environment())


@pytest.fixture(scope="session")
def time_server(run_folder: Path) -> StdioServer:
    """
    `mcp-server-time`, a server of the MCP SDK 2.x, over stdio.
    """
    return _from_pypi(run_folder, "time", external.TIME)


@pytest.fixture(scope="session")
def old_time_server(run_folder: Path) -> StdioServer:
    """
    An earlier `mcp-server-time`, a server of the MCP SDK 1.x, over stdio.
    """
    return _from_pypi(run_folder, "old-time", external.OLD_TIME, "--with", "mcp<2")


@pytest.fixture(scope="session")
def filesystem_server(run_folder: Path) -> StdioServer:
    """
    `@modelcontextprotocol/server-filesystem` over stdio, without a folder, so that it asks for roots.
    """
    command, arguments = external.filesystem()
    external.once("filesystem", run_folder, lambda: external.download(command, arguments))
    return StdioServer(command, arguments, CallLog(run_folder / "none"), env=external.runner_environment())


@pytest.fixture(scope="session")
def conformance_suite(run_folder: Path) -> list[str]:
    """
    Command of the official conformance suite.
    """
    return external.conformance_suite(run_folder / "conformance")


@pytest.fixture(scope="session")
def git_server(run_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> StdioServer:
    """
    `mcp-server-git` over stdio, for a repository with one commit; `cwd` is the repository.
    """
    server = _from_pypi(run_folder, "git", external.GIT)
    repository = external.make_repository(tmp_path_factory.mktemp("git") / "repository")
    arguments = [*server.args, "--repository", str(repository)]
    return StdioServer(server.command, arguments, server.log, server.env, str(repository))
