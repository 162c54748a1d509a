# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Runs a server as a process, and stops it so that no call loses its answer.

FastMCP and uvicorn do the work. At SIGTERM and SIGINT they would cut off calls; here, calls get a grace period.
"""

from __future__ import annotations

import asyncio
import codecs
import errno
import functools
import inspect
import logging as python_logging
import multiprocessing
import multiprocessing.connection
import os
import re
import signal
import socket
import sys
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager, nullcontext, suppress
from ipaddress import ip_address
from types import FrameType
from typing import Annotated, Any, Literal, cast

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import AuthProvider
from haystack import logging
from haystack.utils import Secret
from mcp.server.streamable_http import EventStore
from mcp.server.transport_security import DEFAULT_MAX_REQUEST_BODY_SIZE, RequestBodyLimitMiddleware
from pydantic import AfterValidator, Field, SkipValidation
from sse_starlette.sse import AppStatus
from starlette.applications import Starlette
from starlette.datastructures import Headers
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send
from uvicorn.config import STARTUP_FAILURE
from uvicorn.supervisors import Multiprocess
from uvicorn.supervisors.multiprocess import Process

from haystack_integrations.tools.mcp.executor import check_descriptors
from haystack_integrations.tools.mcp.import_paths import import_object, is_import_path
from haystack_integrations.tools.mcp.parameters import checked
from haystack_integrations.tools.mcp.serving.access import auth_provider, keys_for_workers, origins_of_pages
from haystack_integrations.tools.mcp.serving.call_guard import CallGuard, guard_of
from haystack_integrations.tools.mcp.serving.changes import ChangeAnnouncer, announcer_of

logger: logging.PatchedLogger = logging.getLogger(__name__)

ServerFactory = Callable[[], "FastMCP[Any] | Awaitable[FastMCP[Any]]"]

# The largest body that the SDK's HTTP server accepts, in bytes: 4 MiB.
LARGEST_BODY = DEFAULT_MAX_REQUEST_BODY_SIZE


def _check_path(path: str) -> str:
    if not path.startswith("/"):
        msg = f"`path` must start with a slash, like '/mcp', got {path!r}"
        raise ValueError(msg)
    return path


_Path = Annotated[str, AfterValidator(_check_path)]
_BodySize = Annotated[int, Field(ge=1, le=LARGEST_BODY)]
_GracePeriod = Annotated[float, Field(ge=0.1, le=3600)]
_DEFAULT_PORT = 8000
_HEALTH_PATH = "/health"
# Seconds within which a worker must answer the supervisor. A new one cannot while it imports Haystack and a model.
_WORKER_TIMEOUT = 60
# Seconds until a worker that could not start is started again while others serve.
_RESTART_PAUSE = 5
# The last part of the grace period is for cancelling the calls that are left, and for closing what was opened.
_CLOSING_SHARE, _MAX_CLOSING_TIME = 0.2, 2.0
_STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)
# The longest time until a signal is noticed, in seconds.
_SIGNAL_POLL_INTERVAL = 0.5
# The applications of this process whose calls may still run. Event streams of all of them can only be ended together.
_active_guards: set[CallGuard] = set()


class StopRequest:
    """
    A request to stop the process, which a signal or the end of stdin makes once.

    The process then has `grace_period` seconds. If it has not ended by then, because a thread that cannot be
    interrupted is still busy, it is ended with `os._exit`, unless an error has ended the server: the caller may have
    caught it.
    """

    def __init__(self, grace_period: float, wind_down: Callable[[float], Coroutine[Any, Any, None]]) -> None:
        """
        Initialize the StopRequest. Nothing is stopped yet. Call this in the event loop of the server.

        :param grace_period: Seconds from the request to the end of the process.
        :param wind_down: Called in that loop after the request, with the seconds that calls have to finish.
        """
        self.grace_period = grace_period
        self.time_for_calls = grace_period - min(grace_period * _CLOSING_SHARE, _MAX_CLOSING_TIME)
        self.requested = False
        self._has_failed = threading.Event()
        self._loop = asyncio.get_running_loop()
        self._wind_down = wind_down
        # The reference keeps the task from being garbage-collected before it is done.
        self._task: asyncio.Task[None] | None = None

    def request(self, reason: str) -> None:
        """
        Request that the process stops. Later requests have no effect.

        :param reason: The reason, for the log.
        """
        if not self.requested:
            self.requested = True
            try:
                # Thread-safe, because a signal handler may have interrupted the loop at any point.
                self._loop.call_soon_threadsafe(self._begin)
            except RuntimeError:  # the server has ended by itself, and its loop is closed
                return
            threading.Thread(target=self._watch, args=(reason,), name="mcp-serving-watchdog", daemon=True).start()

    def _begin(self) -> None:
        self._task = self._loop.create_task(self._wind_down(self.time_for_calls))

    @contextmanager
    def on_signals(self, *, with_others: bool) -> Iterator[None]:
        """
        Stop at SIGTERM and SIGINT within a block; a second SIGINT ends the process at once.

        Signals reach only the main thread, so this does nothing on any other thread.

        :param with_others: Whether to call the previous handlers as well.
        """
        numbers = _STOP_SIGNALS if threading.current_thread() is threading.main_thread() else ()
        previous = {int(number): signal.getsignal(number) for number in numbers}

        def handle(number: int, frame: FrameType | None) -> None:
            if self.requested and number == signal.SIGINT:
                os._exit(128 + number)
            self.request(signal.Signals(number).name)
            before = previous[number]
            # Python's own handler of SIGINT ends the process.
            if with_others and callable(before) and before is not signal.default_int_handler:
                before(number, frame)

        for number in numbers:
            signal.signal(number, handle)
        waking = self._loop.create_task(_wake_for_signals())
        try:
            yield
        except BaseException:
            self._has_failed.set()
            raise
        finally:
            waking.cancel()
            # After a request, the handlers stay, because further signals during the shutdown belong to it.
            if not self.requested:
                for stop_signal, before in previous.items():
                    signal.signal(stop_signal, before)

    def _watch(self, reason: str) -> None:
        # Logged here and not in the signal handler, which may have interrupted a thread that was writing to the log.
        logger.info("Stopping: {reason}. Running calls have {seconds} s.", reason=reason, seconds=self.time_for_calls)
        if self._has_failed.wait(self.grace_period):
            return
        busy = [thread.name for thread in threading.enumerate() if not thread.daemon]
        logger.warning("The grace period is over. Ending the process with these threads: {threads}", threads=busy)
        for stream in (sys.stdout, sys.stderr):
            with suppress(OSError, ValueError):  # the reader has closed its end
                stream.flush()
        os._exit(0)


async def _wake_for_signals() -> None:
    # Python runs a signal handler between two steps of the main thread. If a signal arrives just before the loop waits
    # for events, its handler would not run until the next event.
    while True:
        await asyncio.sleep(_SIGNAL_POLL_INTERVAL)


@checked()
def http_app(
    server: SkipValidation[FastMCP[Any]],
    *,
    path: _Path = "/mcp",
    stateless: bool = False,
    allowed_hosts: Sequence[str] | None = None,
    allowed_origins: Sequence[str] | None = None,
    max_body_size: _BodySize = LARGEST_BODY,
    event_store: SkipValidation[EventStore | None] = None,
    grace_period: _GracePeriod = 10.0,
) -> Starlette:
    """
    Make the ASGI application that serves a server, for uvicorn or any other ASGI server.

    It answers `GET /health` with `{"status": "ok"}`, and checks the Host and the Origin of requests. When the process
    is told to stop, it lets calls finish, and then ends the streams that would never end by themselves.

    :param server: The server.
    :param path: Path of the endpoint.
    :param stateless: True to keep no sessions, so that any worker can answer any request.
    :param allowed_hosts: Names that requests may have in `Host`. By default, the names of this machine if the server is
        bound to a loopback address, otherwise any name.
    :param allowed_origins: Origins of web pages that may call the server, like `"https://app.example.com"`. By default
        only pages from this machine, if the server is bound to a loopback address. The pages of `auth` always may.
    :param max_body_size: The largest request in bytes, at most 4 MiB; a larger one is answered with 413.
    :param event_store: Keeps the messages of sessions, so that clients can get the rest of them after they lost a
        connection, such as `fastmcp.server.event_store.EventStore`.
    :param grace_period: Seconds that the process may take to end once it is told to stop: 0.1 to 3600, 10 by default.
    :returns: The application. The server lives as long as the application's lifespan.
    :raises TypeError: If `server` is not a FastMCP server.
    """
    if not isinstance(server, FastMCP):
        msg = f"http_app: `server` must be a FastMCP server, not {type(server).__name__}"
        raise TypeError(msg)
    guard, announcer = guard_of(server), announcer_of(server)
    # FastMCP refuses web pages that may not call the server. These headers let the allowed ones read the answers.
    cors = Middleware(
        CORSMiddleware,
        allow_origins=["*"],
        allow_methods=["GET", "POST", "DELETE"],
        allow_headers=["*"],
        expose_headers=["Mcp-Session-Id", "Mcp-Protocol-Version", "WWW-Authenticate"],
    )
    # The SDK enforces the largest limit itself.
    is_smaller = max_body_size < LARGEST_BODY
    smaller_bodies = [Middleware(RequestBodyLimitMiddleware, max_body_size=max_body_size)] if is_smaller else []
    app = server.http_app(
        path=path,
        stateless_http=stateless,
        event_store=event_store,
        middleware=[
            cors,
            Middleware(_RefuseWhileStopping, guard=guard),
            Middleware(_ForgetEndedSessions, announcer=announcer),
            *smaller_bodies,
        ],
        # FastMCP's default lets every host and every web page in. Only with a list, even an empty one, does it check
        # the Origin of requests to an address that is not a loopback address.
        host_origin_protection="auto",
        allowed_hosts=list(allowed_hosts) if allowed_hosts is not None else None,
        allowed_origins=[*(allowed_origins or ()), *origins_of_pages(server.auth)],
    )
    # Starlette would redirect `/mcp/` to `/mcp` at the scheme and the host that a proxy uses, not at those of clients.
    endpoint = next(each for each in app.router.routes if isinstance(each, Route) and each.path == path)
    other = path.rstrip("/") if path.endswith("/") else f"{path}/"
    if other:
        app.router.routes.append(Route(other, endpoint.endpoint, methods=endpoint.methods))
    if not any(isinstance(each, Route) and each.path == _HEALTH_PATH for each in app.router.routes):
        app.add_middleware(_AnswerHealth, guard=guard)  # before Host is checked
    # Otherwise, uvicorn would log a traceback if a client disconnects while it sends a request.
    app.add_exception_handler(ClientDisconnect, lambda _request, _error: Response(status_code=400))
    lifespan = app.router.lifespan_context

    @asynccontextmanager
    async def stoppable(app: Starlette) -> AsyncIterator[Any]:
        async def wind_down(time_for_calls: float) -> None:
            announcer.close()
            await guard.stop(time_for_calls)
            _active_guards.discard(guard)
            AppStatus.should_exit = not _active_guards

        # Otherwise, sse-starlette would cut event streams at the signal, and most answers to calls are sent in one.
        AppStatus.enable_automatic_graceful_drain = False
        _active_guards.add(guard)
        try:
            with StopRequest(grace_period, wind_down).on_signals(with_others=True):
                async with lifespan(app) as state:
                    yield state
        finally:
            guard.is_stopping = False  # the server may be served again
            _active_guards.discard(guard)
            if not _active_guards:
                AppStatus.enable_automatic_graceful_drain = True
                AppStatus.should_exit = False

    app.router.lifespan_context = stoppable
    return app


class _RefuseWhileStopping:
    """
    Refuses requests while the server stops, so that clients and proxies send them again, to the next server.

    Requests of a session are passed on: they may be answers that a running call waits for, and the CallGuard refuses
    new calls.
    """

    def __init__(self, app: ASGIApp, guard: CallGuard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        if self._guard.is_stopping and scope["type"] == "http" and "mcp-session-id" not in Headers(scope=scope):
            app = _stopping_response()
        await app(scope, receive, send)


class _ForgetEndedSessions:
    """
    Drops sessions that clients end, which the SDK does not report. Many clients open a session for each call.
    """

    def __init__(self, app: ASGIApp, announcer: ChangeAnnouncer) -> None:
        self._app = app
        self._announcer = announcer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._app(scope, receive, send)
        if scope["type"] == "http" and scope["method"] == "DELETE":
            self._announcer.forget_session(Headers(scope=scope).get("mcp-session-id", ""))


class _AnswerHealth:
    """
    Answers `GET /health`, whatever its Host is: load balancers send the address of the machine, or no Host at all.
    """

    def __init__(self, app: ASGIApp, guard: CallGuard) -> None:
        self._app = app
        self._guard = guard

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._app
        is_read = scope["type"] == "http" and scope["method"] in ("GET", "HEAD")
        if is_read and scope["path"].removeprefix(scope.get("root_path", "")) == _HEALTH_PATH:
            app = _stopping_response() if self._guard.is_stopping else JSONResponse({"status": "ok"})
        await app(scope, receive, send)


def _stopping_response() -> Response:
    return Response("The server is stopping", 503, {"Retry-After": "1", "Connection": "close"})


@checked()
def run_server(
    server: SkipValidation[FastMCP[Any] | ServerFactory | str],
    *,
    transport: Literal["stdio", "http"] = "stdio",
    host: str = "127.0.0.1",
    port: Annotated[int, Field(ge=0, le=65535)] | None = None,
    path: _Path = "/mcp",
    auth: SkipValidation[AuthProvider | Secret | None] = None,
    insecure: bool = False,
    allowed_hosts: Sequence[str] | None = None,
    allowed_origins: Sequence[str] | None = None,
    max_body_size: _BodySize = LARGEST_BODY,
    event_store: SkipValidation[EventStore | None] = None,
    stateless: bool | None = None,
    workers: Annotated[int, Field(ge=1, le=1024)] = 1,
    grace_period: _GracePeriod = 10.0,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
) -> None:
    """
    Serve a FastMCP server until the process is told to stop.

    SIGTERM and SIGINT let running calls finish. Over stdio, the end of stdin means that the client has gone, so running
    calls are abandoned. After `grace_period` seconds the process has ended, if need be with `os._exit`: after stopping,
    do nothing in this process that takes long. After an error, the process is not ended. A second SIGINT ends it at
    once. Call this on the main thread, the only one that signals reach. Previous handlers of these signals are not
    called while it serves.

    .. code-block:: python

        from fastmcp import FastMCP
        from haystack_integrations.tools.mcp.serving import run_server

        server = FastMCP("Documents")

        if __name__ == "__main__":
            run_server(server, transport="http", port=8000)

    :param server: A FastMCP server, a function that makes it, or the import path of either, like
        `"package.module:server"`.
    :param transport: `"stdio"` for one client that starts this process, `"http"` for any number (Streamable HTTP). The
        parameters that follow are for HTTP, except `grace_period` and `log_level`.
    :param host: The address to bind to. Any address except a loopback address requires `auth`, or `insecure=True`.
    :param port: The port, 8000 by default; 0 for a free one.
    :param path: Path of the endpoint.
    :param auth: How clients are authenticated: a provider of `fastmcp.server.auth`, or a Secret with a bearer token. By
        default, the server's own `auth`.
    :param insecure: True to let other machines call a server without `auth`.
    :param allowed_hosts: Names that requests may have in `Host`, for example behind a proxy. By default, the names of
        this machine if `host` is a loopback address, otherwise any name.
    :param allowed_origins: Origins of web pages that may call the server. By default only pages from this machine, if
        `host` is a loopback address. The pages of `auth` always may.
    :param max_body_size: The largest request that is read, in bytes, at most 4 MiB.
    :param event_store: Keeps the messages of sessions, so that clients can get the rest of them after they lost a
        connection, such as `fastmcp.server.event_store.EventStore`.
    :param stateless: True to keep no sessions. Clients of revisions before 2026-07-28 then get no notifications outside
        their calls, and cannot be asked anything. By default, True if there are several workers.
    :param workers: Processes that serve the same port. With more than one, `server` must be a function at the top level
        of a module, or an import path, because each worker makes its own server.
    :param grace_period: Seconds from the request to stop to the end of the process: 0.1 to 3600, 10 by default.
    :param log_level: The level of the log on stderr. If the process has already set up logging, this applies only to
        uvicorn.
    :raises ValueError: If parameters do not fit together, or if the server would be open to other machines without
        `auth`.
    :raises TypeError: If `server` or `auth` is of a wrong type.
    :raises ImportError: If the import path leads to nothing.
    :raises OSError: If the port is taken.
    :raises RuntimeError: If a worker cannot start the server.
    """
    _log_to_stderr(log_level)
    if transport == "stdio":
        if (host, port, path, workers) != ("127.0.0.1", None, "/mcp", 1):
            msg = "Over stdio there is one client, and no `host`, `port`, `path` or `workers`: pass transport='http'"
            raise ValueError(msg)
        asyncio.run(_serve_stdio(_make_server(server, None), grace_period))
        return
    # A name with <lambda> or <locals> cannot be imported by another process.
    is_nameless = "<" in getattr(server, "__qualname__", "")
    if workers > 1 and (stateless is False or event_store is not None or isinstance(server, FastMCP) or is_nameless):
        msg = (
            "With several workers, `server` must be a function at the top of a module that makes the server, or an "
            "import path like 'package.module:server': each worker is a process with its own server. A session "
            "lives in one process, so `stateless=False` and `event_store` need `workers=1`: run one process per port, "
            "and let a load balancer pin clients by the header `Mcp-Session-Id`"
        )
        raise ValueError(msg)
    provider = auth_provider(auth)
    fastmcp_server = _make_server(server, provider)
    if not (_is_loopback(host) or fastmcp_server.auth is not None or insecure):
        msg = (
            f"`host={host!r}` lets other machines call this server, and it has no `auth`: whoever reaches the port "
            'could use it. Pass `auth=` (a Secret with a bearer token, or a provider of FastMCP), bind to "127.0.0.1", '
            "or pass `insecure=True` if something in front of it authenticates the callers"
        )
        raise ValueError(msg)
    options: dict[str, Any] = {
        "path": path,
        "event_store": event_store,
        "stateless": workers > 1 if stateless is None else stateless,
        "allowed_hosts": allowed_hosts,
        "allowed_origins": allowed_origins,
        "max_body_size": max_body_size,
        "grace_period": grace_period,
    }
    check_descriptors()
    listeners = _bind(host, _DEFAULT_PORT if port is None else port)
    address = f"[{host}]" if ":" in host else host
    bound_port = listeners[0].getsockname()[1]
    logger.info("Serving over HTTP on http://{address}:{number}{path}", address=address, number=bound_port, path=path)
    configure = functools.partial(
        uvicorn.Config,
        ws="none",
        log_level=log_level,
        access_log=False,
        server_header=False,
        use_colors=None if sys.stdout else False,  # without stdout, uvicorn would fail when it looks for a terminal
        # Declared as an int, but passed to `asyncio.wait_for`. It cuts connections left after calls were answered.
        timeout_graceful_shutdown=cast("int", grace_period * 0.9),
    )
    try:
        if workers > 1:
            worker: Any = functools.partial(_worker_app, server, provider, options)
            config = configure(worker, factory=True, workers=workers, timeout_worker_healthcheck=_WORKER_TIMEOUT)
            # The workers share the keys for the state that clients carry from call to call. The keys are passed in the
            # environment, because a worker may make its server while it imports the modules of its parameters.
            with keys_for_workers():
                supervisor = _Supervisor(config, listeners)
                supervisor.run()
            if any(each.exitcode == STARTUP_FAILURE for each in supervisor.processes):
                # Otherwise, the exit code of this process would look as if it had been told to stop.
                msg = "The server ended because a worker could not start it. The log says why"
                raise RuntimeError(msg)
        else:
            app = http_app(fastmcp_server, **options)
            config = configure(app, lifespan="off")
            with asyncio.Runner(loop_factory=config.get_loop_factory()) as runner:
                runner.run(_serve_http(app, config, listeners))
    finally:
        for listener in listeners:
            listener.close()


def _make_server(source: Any, auth: AuthProvider | None) -> FastMCP[Any]:
    """Make the server, in this process or in a worker."""
    server = source
    if isinstance(server, str):
        if not is_import_path(server):
            msg = f"`server` must be an import path like 'package.module:server', not {server!r}"
            raise ValueError(msg)
        server = import_object(server)
    if not isinstance(server, FastMCP) and callable(server):
        server = server()
    if inspect.iscoroutine(server):
        server = asyncio.run(server)
    if not isinstance(server, FastMCP):
        msg = f"`server` must be a FastMCP server, or a function that makes one, not {type(server).__name__}"
        raise TypeError(msg)
    if auth is not None:
        server.auth = auth
    return server


class _Supervisor(Multiprocess):
    """
    uvicorn's supervisor of workers, with three differences.

    A worker that dies during a health check would hold it up for `_WORKER_TIMEOUT` seconds, because it has the worker's
    end of their pipe open. A signal to stop would wait until all workers are replaced. And a new worker that cannot
    start, for example because another server is down, would end those that serve.
    """

    def __init__(self, config: uvicorn.Config, listeners: list[socket.socket]) -> None:
        super().__init__(config, listeners)
        for number, stop in ((signal.SIGTERM, self.handle_term), (signal.SIGINT, self.handle_int)):
            # In a thread, because the interrupted code may hold the lock that `stop` needs.
            signal.signal(number, lambda *_, stop=stop: threading.Thread(target=stop).start())

    def keep_subprocess_alive(self) -> None:
        for process in self.processes:
            process.child_conn.close()  # the worker has its own copy by now
        for index, process in enumerate(self.processes):
            if self.should_exit.is_set() or process.is_alive(timeout=_WORKER_TIMEOUT):
                continue
            process.kill()
            process.join()
            logger.warning("Worker {pid} has ended with exit code {code}", pid=process.pid, code=process.exitcode)
            if process.exitcode == STARTUP_FAILURE:
                if not any(each.is_ready(timeout=_WORKER_TIMEOUT) for each in self.processes):
                    self.should_exit.set()
                    return
                self.should_exit.wait(_RESTART_PAUSE)
            self.processes[index] = Process(self.config, self.sockets)
            self.processes[index].start()


def _worker_app(source: Any, auth: AuthProvider | None, options: dict[str, Any]) -> Starlette:
    threading.Thread(target=_stop_with_supervisor, name="mcp-serving-supervisor", daemon=True).start()
    return http_app(_make_server(source, auth), **options)


def _stop_with_supervisor() -> None:
    """
    Stop this worker when its supervisor is gone, which may have been killed without stopping its workers.

    Otherwise, the worker would keep the port, and the next server could not listen on it.
    """
    supervisor = multiprocessing.parent_process()
    if supervisor is not None:
        multiprocessing.connection.wait([supervisor.sentinel])
        os.kill(os.getpid(), signal.SIGTERM)


def _bind(host: str, port: int) -> list[socket.socket]:
    """
    Listen on every address of a host. For example, `localhost` has two.
    """
    listeners: list[socket.socket] = []
    addresses: list[Any] = []
    failure: OSError | None = None
    try:
        addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except OSError as error:  # not the name of a machine
        failure = error
    for family, _, _, _, address in dict.fromkeys(addresses):
        number = listeners[0].getsockname()[1] if listeners else port
        try:
            created = socket.create_server((address[0], number), family=family, backlog=2048)
        except OSError as error:
            failure = error
            if port and error.errno == errno.EADDRINUSE:  # clients of the other addresses would find this server
                for each in listeners:
                    each.close()
                listeners = []
                break
            continue
        # With the protocol set to TCP, asyncio sets TCP_NODELAY on connections. Without that, the last part of an
        # answer would wait 40 ms for the client's delayed acknowledgement of the first part.
        listeners.append(socket.socket(family, created.type, socket.IPPROTO_TCP, fileno=created.detach()))
    if not listeners:
        msg = (
            f"The server cannot listen on {host}:{port}: {failure}. Choose another `port`, or 0 for a free one; `host` "
            "must be an address of this machine"
        )
        raise OSError(msg) from failure
    return listeners


class _HttpServer(uvicorn.Server):
    """
    A uvicorn server that runs within its application's lifespan, whose signal handlers call `handle_exit`.
    """

    def capture_signals(self) -> AbstractContextManager[None]:  # type: ignore[override]
        return nullcontext()


async def _serve_http(app: Starlette, config: uvicorn.Config, listeners: list[socket.socket]) -> None:
    server = _HttpServer(config)
    previous = {number: signal.signal(number, server.handle_exit) for number in _STOP_SIGNALS}
    try:
        # The lifespan is entered here, so that its errors are raised. uvicorn would log a traceback and exit.
        async with app.router.lifespan_context(app):
            await server.serve(listeners)
    except BaseExceptionGroup as group:
        raise _only_error(group) from None
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _only_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


async def _serve_stdio(server: FastMCP[Any], grace_period: float) -> None:
    guard, announcer = guard_of(server), announcer_of(server)
    lines = _StdinRelay()

    async def wind_down(time_for_calls: float) -> None:
        announcer.close()
        if not lines.have_ended:
            await guard.stop(time_for_calls)
        lines.close()

    stop = StopRequest(grace_period, wind_down)
    with stop.on_signals(with_others=False), lines.in_place_of_stdin(stop):
        try:
            await server.run_stdio_async(show_banner=False)
        except* BrokenPipeError:
            logger.info("The client has gone, so the answers cannot be sent")
        finally:
            guard.is_stopping = False  # the server may be served again


# An escape in JSON: a surrogate pair, half of one, or anything else.
_ESCAPE = re.compile(
    rb"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)", re.DOTALL
)


def _repaired(line: bytes) -> bytes:
    """
    Repair a message that the SDK could not read and would not answer.

    Some clients send halves of surrogate pairs, and some clients on Windows begin with a byte order mark.
    """
    return _ESCAPE.sub(lambda escape: rb"\ufffd" if escape[1] else escape[0], line).removeprefix(codecs.BOM_UTF8)


class _StdinRelay:
    """
    The lines of stdin, passed to FastMCP through a pipe by a daemon thread.

    A read from stdin cannot be interrupted, and neither the request to stop nor the end of the process may wait for it.
    This pipe can be closed instead, which FastMCP takes for the end of stdin.
    """

    def __init__(self) -> None:
        self.have_ended = False
        self._lock = threading.Lock()
        self._stdin = os.dup(0)
        reading, self._writing = os.pipe()
        os.dup2(reading, 0)
        os.close(reading)

    @contextmanager
    def in_place_of_stdin(self, stop: StopRequest) -> Iterator[None]:
        """
        Pass the lines on for the duration of a `with` block.

        :param stop: Requested at the end of stdin.
        """
        threading.Thread(target=self._relay, args=(stop,), name="mcp-serving-stdin", daemon=True).start()
        try:
            yield
        finally:
            self.close()
            # The original descriptor stays open, because the thread may still wait for a line.
            os.dup2(self._stdin, 0)

    def close(self) -> None:
        """
        End the lines, as if stdin had ended.
        """
        with self._lock:
            writing, self._writing = self._writing, -1
            if writing >= 0:
                os.close(writing)

    def _relay(self, stop: StopRequest) -> None:
        with os.fdopen(self._stdin, "rb", closefd=False) as lines:
            for line in lines:
                try:
                    # Under the lock, because the number of a closed descriptor may be reused.
                    with self._lock:
                        copied = os.dup(self._writing)
                    with os.fdopen(copied, "wb") as writing:
                        writing.write(_repaired(line))
                except OSError:  # the pipe is closed
                    return
        self.have_ended = True
        stop.request("the client closed stdin")


def _is_loopback(host: str) -> bool:
    try:
        return host.lower() == "localhost" or ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def _log_to_stderr(level: str) -> None:
    """
    Show the log of serving on stderr, unless the process has set up logging.
    """
    serving = python_logging.getLogger(__package__)
    if not serving.hasHandlers():
        handler = python_logging.StreamHandler()
        handler.setFormatter(python_logging.Formatter("%(levelname)s: %(message)s"))
        serving.addHandler(handler)
        serving.setLevel(level.upper())
