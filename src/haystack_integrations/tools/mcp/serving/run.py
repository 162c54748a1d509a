# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Running a server as a process.
"""

from __future__ import annotations

import asyncio
import functools
import inspect
import logging as python_logging
import multiprocessing
import multiprocessing.connection
import os
import signal
import socket
import threading
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from types import FrameType
from typing import Any, Literal, cast

import uvicorn
from fastmcp import FastMCP
from fastmcp.server.auth import AuthProvider
from haystack import logging
from haystack.utils import Secret
from mcp.server.streamable_http import EventStore
from starlette.applications import Starlette
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.supervisors import Multiprocess

from haystack_integrations.tools.mcp.import_paths import import_object, is_import_path
from haystack_integrations.tools.mcp.parameters import texts
from haystack_integrations.tools.mcp.serving.approvals import keys_for_workers
from haystack_integrations.tools.mcp.serving.http import http_app
from haystack_integrations.tools.mcp.serving.safety import LARGEST_BODY, check_bind
from haystack_integrations.tools.mcp.serving.server import auth_provider
from haystack_integrations.tools.mcp.serving.sessions import share_key
from haystack_integrations.tools.mcp.serving.stdio import serve_stdio
from haystack_integrations.tools.mcp.serving.stopping import STOP_SIGNALS, Stop

logger: logging.PatchedLogger = logging.getLogger(__name__)

ServerFactory = Callable[[], "FastMCP[Any] | Awaitable[FastMCP[Any]]"]

_TRANSPORTS = ("stdio", "http")
_LOG_LEVELS = ("debug", "info", "warning", "error")
_PORT = 8000
# Importing Haystack and a model in a new worker may keep it from answering the supervisor.
_WORKER_SILENCE = 60


def run_server(
    server: FastMCP[Any] | ServerFactory | str,
    *,
    transport: Literal["stdio", "http"] = "stdio",
    host: str = "127.0.0.1",
    port: int | None = None,
    path: str = "/mcp",
    auth: AuthProvider | Secret | None = None,
    insecure: bool = False,
    allowed_hosts: Sequence[str] | None = None,
    allowed_origins: Sequence[str] | None = None,
    max_body_size: int = LARGEST_BODY,
    event_store: EventStore | None = None,
    retry_interval: int | None = None,
    stateless: bool | None = None,
    workers: int = 1,
    grace_period: float = 10.0,
    log_level: str = "info",
) -> None:
    """
    Serve a FastMCP server until the process is told to stop.

    SIGTERM and SIGINT let running calls finish; over stdio the end of stdin, by which a client says that it is gone,
    abandons them. `grace_period` seconds later the process has ended, if need be with `os._exit`: after stopping, do
    nothing in this process that takes long. A second SIGINT ends it at once. Call it on the main thread, the only one
    that signals reach. Handlers of these signals that the process had before are not called while it serves.

    .. code-block:: python

        from fastmcp import FastMCP
        from haystack_integrations.tools.mcp.serving import run_server

        server = FastMCP("Documents")

        if __name__ == "__main__":
            run_server(server, transport="http", port=8000)

    :param server: The server, a function that makes it, or the import path of either, like `"package.module:server"`.
    :param transport: `"stdio"` for one client that starts this process, `"http"` for any number (Streamable HTTP).
    :param host: What to bind to. Anything but a loopback address wants `auth`, or `insecure=True`.
    :param port: The port, 8000 by default; 0 for a free one.
    :param path: Path of the endpoint.
    :param auth: How clients are authenticated, over HTTP only: a provider of `fastmcp.server.auth`, or a Secret with a
        bearer token. By default what the server itself has.
    :param insecure: True to let other machines call a server without `auth`.
    :param allowed_hosts: Names that requests may have in `Host`, as behind a proxy. By default the names of this
        machine if `host` is a loopback address, and any otherwise.
    :param allowed_origins: Origins of web pages that may call the server. By default only pages from this machine, if
        `host` is a loopback address.
    :param max_body_size: The largest message that is read, in bytes, at most 4 MiB.
    :param event_store: Keeps what was sent in sessions over HTTP, so that clients which lost a connection get the rest
        of it, as `fastmcp.server.event_store.EventStore` does.
    :param retry_interval: How long these clients wait before they connect again, in milliseconds.
    :param stateless: True to keep no sessions over HTTP. Clients of the protocol before 2026-07-28 then get no
        notifications outside their calls, and cannot be asked anything. By default True if there are several workers.
    :param workers: Processes that serve the same port. With more than one, `server` must be a function at the top level
        of a module, or an import path, because each worker makes a server of its own.
    :param grace_period: Seconds from the order to stop to the end of the process.
    :param log_level: What is logged to stderr: `"debug"`, `"info"`, `"warning"` or `"error"`. Where the process has set
        up logging of its own, this concerns uvicorn only.
    :raises ValueError: If parameters do not fit together, or if the server would be open to other machines without
        `auth`.
    :raises TypeError: If `server` is something else, or `auth` is.
    :raises ImportError: If the import path leads to nothing.
    :raises OSError: If the port is taken.
    """
    _check_choice("transport", transport, _TRANSPORTS)
    _check_choice("log_level", log_level, _LOG_LEVELS)
    _check_number("grace_period", grace_period, 0.1, 3600)
    _check_number("max_body_size", max_body_size, 1, LARGEST_BODY)
    _check_number("workers", workers, 1, 1024)
    _check_number("port", _PORT if port is None else port, 0, 65535)
    if not path.startswith("/"):
        msg = f"`path` must start with a slash, like '/mcp', not {path!r}"
        raise ValueError(msg)
    _log_to_stderr(log_level)
    if transport == "stdio":
        for_http = {
            "host": host != "127.0.0.1",
            "port": port is not None,
            "path": path != "/mcp",
            "auth": auth is not None,
            "insecure": insecure,
            "allowed_hosts": allowed_hosts is not None,
            "allowed_origins": allowed_origins is not None,
            "event_store": event_store is not None,
            "retry_interval": retry_interval is not None,
            "stateless": stateless,
            "workers": workers != 1,
        }
        if given := [f"`{name}`" for name, is_given in for_http.items() if is_given]:
            names = ", ".join(given)
            msg = f"Over stdio there is one client, and no place for {names}: pass transport='http' with them"
            raise ValueError(msg)
        _run_stdio(_Blueprint(server), grace_period=grace_period, max_body_size=max_body_size)
        return
    if workers > 1 and (stateless is False or event_store is not None):
        msg = (
            "`stateless=False` and `event_store` need `workers=1`: a session lives in one process, and nothing can pin "
            "a client to a worker behind a shared port. Run one process per port, and let a load balancer pin clients "
            "by the header `Mcp-Session-Id`"
        )
        raise ValueError(msg)
    blueprint = _Blueprint(
        server,
        auth=auth_provider(auth),
        options={
            "path": path,
            "event_store": event_store,
            "retry_interval": retry_interval,
            "stateless": workers > 1 if stateless is None else stateless,
            "allowed_hosts": None if allowed_hosts is None else texts("allowed_hosts", allowed_hosts),
            "allowed_origins": None if allowed_origins is None else texts("allowed_origins", allowed_origins),
            "max_body_size": int(max_body_size),
            "grace_period": grace_period,
        },
    )
    _run_http(blueprint, host, _PORT if port is None else port, insecure=insecure, workers=workers, log_level=log_level)


@dataclass
class _Blueprint:
    """
    What makes the server, in this process or in a worker.
    """

    source: FastMCP[Any] | ServerFactory | str
    auth: AuthProvider | None = None
    options: dict[str, Any] | None = None

    def server(self) -> FastMCP[Any]:
        """
        Make the server.
        """
        made: Any = self.source
        if isinstance(made, str):
            if not is_import_path(made):
                msg = f"`server` must be an import path like 'package.module:server', not {made!r}"
                raise ValueError(msg)
            made = import_object(made)
        if not isinstance(made, FastMCP) and callable(made):
            made = made()
        if inspect.isawaitable(made):
            made = asyncio.run(_wait_for(made))
        if not isinstance(made, FastMCP):
            msg = f"`server` must be a FastMCP server, or a function that makes one, not {type(made).__name__}"
            raise TypeError(msg)
        if self.auth is not None:
            made.auth = self.auth
        return made

    def app(self) -> Starlette:
        """
        Make the server and its ASGI application.
        """
        return http_app(self.server(), **(self.options or {}))


def _run_stdio(blueprint: _Blueprint, *, grace_period: float, max_body_size: int) -> None:
    stop = Stop(grace_period)
    failure: BaseException | None = None
    # Over HTTP, uvicorn handles them in place of others, too.
    with stop.on_signals(in_place_of_others=True):
        try:
            asyncio.run(serve_stdio(blueprint.server(), stop, max_body_size=max_body_size))
        except BaseExceptionGroup as group:
            failure = _only_error(group)
    if failure is not None:
        # Not as an error that came up while the groups around it were handled.
        raise failure


def _run_http(blueprint: _Blueprint, host: str, port: int, *, insecure: bool, workers: int, log_level: str) -> None:
    assert blueprint.options is not None  # noqa: S101 - HTTP has some
    grace_period = blueprint.options["grace_period"]
    app: Any
    if workers > 1:
        if isinstance(blueprint.source, FastMCP):
            msg = (
                "With several workers, `server` must be a function that makes the server, or an import path like "
                "'package.module:server': each worker is a process with a server of its own"
            )
            raise ValueError(msg)
        # The workers make their own; this one only tells what it has.
        check_bind(host, blueprint.auth or blueprint.server().auth, insecure=insecure)
        app = functools.partial(_worker_app, blueprint)
    else:
        server = blueprint.server()
        check_bind(host, server.auth, insecure=insecure)
        app = _Blueprint(server, options=blueprint.options).app()
    sockets = _bind(host, port)
    try:
        config = uvicorn.Config(
            app,
            factory=workers > 1,
            workers=workers,
            lifespan="on",
            ws="none",
            log_level=log_level,
            access_log=False,
            server_header=False,
            # Declared as whole seconds, and handed to `asyncio.wait_for`.
            timeout_graceful_shutdown=cast("int", Stop(grace_period).time_for_answers),
            timeout_worker_healthcheck=_WORKER_SILENCE,
        )
        number = sockets[0].getsockname()[1]
        address = f"[{host}]" if ":" in host else host
        logger.info(
            "Serving over HTTP on http://{address}:{port}{path}",
            address=address,
            port=number,
            path=blueprint.options["path"],
        )
        if workers > 1:
            with keys_for_workers():
                _Supervisor(config, sockets).run()
        else:
            _serve(config, sockets)
    finally:
        for listener in sockets:
            listener.close()


def _only_error(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


class _KeepFailureToStart:
    """
    Keeps why an application did not start. uvicorn would log it with a traceback, and exit.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app
        self.failure: Exception | None = None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "lifespan":
            await self._app(scope, receive, send)
            return
        has_started = False

        async def noting(message: Message) -> None:
            nonlocal has_started
            if message["type"] == "lifespan.startup.complete":
                has_started = True
            elif message["type"] == "lifespan.startup.failed":
                message = {"type": "lifespan.startup.failed"}
            await send(message)

        try:
            await self._app(scope, receive, noting)
        except Exception as error:
            if not has_started:
                self.failure = error
            raise


def _serve(config: uvicorn.Config, sockets: list[socket.socket]) -> None:
    config.app = app = _KeepFailureToStart(cast("ASGIApp", config.app))
    server = uvicorn.Server(config)

    def stop(_number: int, _frame: FrameType | None) -> None:
        server.should_exit = True

    # For signals that come before uvicorn listens to them. It raises them again once it has stopped; the caller of
    # `run_server` then goes on to its end.
    previous = {number: signal.signal(number, stop) for number in STOP_SIGNALS}
    try:
        server.run(sockets)
    except SystemExit:
        if app.failure is None:
            raise
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)
    if app.failure is not None:
        raise _only_error(app.failure)


class _Supervisor(Multiprocess):
    """
    uvicorn's supervisor of workers, which also stops while it waits for a worker that is dead.

    A terminal sends Ctrl-C to the workers, too. One that was asked whether it lives, and ends without an answer, would
    hold up the supervisor for `_WORKER_SILENCE`, because the supervisor has the worker's end of their pipe open.
    """

    def __init__(self, config: uvicorn.Config, sockets: list[socket.socket]) -> None:
        super().__init__(config, sockets)
        for number in STOP_SIGNALS:
            signal.signal(number, self._stop)

    def _stop(self, number: int, _frame: FrameType | None) -> None:
        self.signal_queue.append(number)
        for process in self.processes:
            process.child_conn.close()


def _worker_app(blueprint: _Blueprint) -> Starlette:
    threading.Thread(target=_stop_with_supervisor, name="mcp-serving-supervisor", daemon=True).start()
    # uvicorn would only note a signal, and make the server to its end. Nobody has been promised anything yet.
    previous = {number: signal.signal(number, lambda number, _: os._exit(128 + number)) for number in STOP_SIGNALS}
    try:
        server = blueprint.server()
    finally:
        for stop_signal, handler in previous.items():
            signal.signal(stop_signal, handler)
    share_key(server)
    return _Blueprint(server, options=blueprint.options).app()


def _stop_with_supervisor() -> None:
    """
    Stop this worker when its supervisor is gone, which may have been killed and told nobody.

    Otherwise it would go on listening, and no next server could.
    """
    supervisor = multiprocessing.parent_process()
    if supervisor is None:
        return
    multiprocessing.connection.wait([supervisor.sentinel])
    os.kill(os.getpid(), signal.SIGTERM)


def _bind(host: str, port: int) -> list[socket.socket]:
    """
    Listen on every address that a host has: `localhost` has two.
    """
    addresses = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    listeners: list[socket.socket] = []
    failure: OSError | None = None
    for family, _, _, _, address in dict.fromkeys(addresses):
        number = listeners[0].getsockname()[1] if listeners else port
        try:
            created = socket.create_server((address[0], number), family=family, backlog=2048)
        except OSError as error:
            failure = error
            continue
        # asyncio sets TCP_NODELAY on connections whose protocol is known to be TCP. Without it, the last part of an
        # answer waits for the client's delayed acknowledgement of the first one: 40 ms.
        listeners.append(socket.socket(family, created.type, socket.IPPROTO_TCP, fileno=created.detach()))
    if not listeners:
        msg = f"The server cannot listen on {host}:{port}: {failure}. Choose another `port`, or 0 for a free one"
        raise OSError(msg) from failure
    return listeners


def _log_to_stderr(level: str) -> None:
    """
    Show what this package logs while it serves, unless the process has set up logging.
    """
    serving = python_logging.getLogger(__package__)
    if not serving.hasHandlers():
        handler = python_logging.StreamHandler()
        handler.setFormatter(python_logging.Formatter("%(levelname)s: %(message)s"))
        serving.addHandler(handler)
        serving.setLevel(level.upper())


async def _wait_for(made: Awaitable[Any]) -> Any:
    return await made


def _check_choice(parameter: str, value: object, choices: Sequence[str]) -> None:
    if value not in choices:
        msg = f"`{parameter}` must be one of {', '.join(map(repr, choices))}, not {value!r}"
        raise ValueError(msg)


def _check_number(parameter: str, value: float, least: float, most: float) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= most:
        msg = f"`{parameter}` must be a number from {least} to {most}, not {value!r}"
        raise ValueError(msg)
