# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A process that imports Haystack, the MCP SDK, FastMCP and this package once, and forks processes that need them.

    python fork_server.py DESCRIPTOR

It serves a listening socket until its stdin ends, and then ends all processes that it has forked.

A forked process is like any other: it leads a session and a process group, has the descriptors, the folder and the
variables of the client that asked for it, and can be killed. It is killed when that client's connection is closed.
"""

import functools
import json
import os
import signal
import socket
import struct
import sys

_LENGTH = struct.Struct("!Q")
# The most descriptors that a program may inherit.
_DESCRIPTORS = 64

# Modules that the package and its tests import late, such as at the start of a server.
_IMPORTED_LATE = [
    "fastmcp.cli",
    "fastmcp.server.auth.providers.jwt",
    "fastmcp.server.http",
    "fastmcp.server.middleware.dereference",
    "fastmcp.server.sessions",
    "fastmcp_tasks",
    "griffe",
    "haystack.components.agents",
    "haystack.components.generators.chat.openai",
    "mcp.server.mcpserver",
    "mcp.server.runner",
    "multiprocessing.spawn",
    "uvicorn.lifespan.on",
    "uvicorn.loops.auto",
    "uvicorn.protocols.http.auto",
    "uvicorn.protocols.websockets.auto",
]
_PACKAGES = ["haystack_integrations.tools.mcp", "haystack_integrations.components", "haystack_integrations.hooks"]


def ask(
    path: str,
    arguments: list[str],
    descriptors: dict[int, int],
    *,
    cwd: str,
    env: dict[str, str],
    finalize: bool = False,
    python: str | None = None,
) -> socket.socket:
    """
    Ask for a forked process that runs `python ARGUMENTS...`.

    :param path: The fork server's socket.
    :param arguments: A script, `-m` and a module, or `-c` and code, each after options and before arguments.
    :param descriptors: The descriptors that it inherits, including stdin, stdout and stderr, by their number in it.
    :param cwd: Its folder.
    :param env: All its variables.
    :param finalize: Whether it ends like an interpreter. By default its memory is not freed, which would take longer
        than most of the programs.
    :param python: Its `sys.executable`, which `multiprocessing` starts, if not the real one.
    :returns: A connection that receives two lines: the pid, and at the end its status as in `os.waitpid`.
    """
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(path)
    request = {"arguments": arguments, "cwd": cwd, "env": env, "finalize": finalize, "python": python}
    request["descriptors"] = list(descriptors)
    content = json.dumps(request, ensure_ascii=True).encode()
    socket.send_fds(connection, [_LENGTH.pack(len(content))], list(descriptors.values()))
    connection.sendall(content)
    return connection


def run(path: str, arguments: list[str], python: str | None = None) -> None:
    """
    Act as `python ARGUMENTS...` for the parent process: ask for a forked process, and end as it does.
    """
    inherited = [number for number in range(_DESCRIPTORS) if _is_open(number)]
    own = dict(zip(inherited, inherited, strict=True))
    connection = ask(path, arguments, own, cwd=os.getcwd(), env=dict(os.environ), python=python)
    # The pipes now belong to the forked process, and end with it.
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in inherited:
        os.dup2(nowhere, descriptor)
    with connection.makefile() as lines:
        pid = int(lines.readline())
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, lambda number, _frame: os.kill(pid, number))
        code = os.waitstatus_to_exitcode(int(lines.readline()))
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def _is_open(number: int) -> bool:
    try:
        os.fstat(number)
    except OSError:
        return False
    return True


def _serve(listener: socket.socket) -> None:
    import selectors

    wakeup, alarm = socket.socketpair()
    for end in (wakeup, alarm):
        end.setblocking(False)
    signal.set_wakeup_fd(alarm.fileno(), warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # sent by a terminal; the parent ends this process
    own_path = [each for each in sys.path[1:] if each]
    owners: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        for source in (0, wakeup, listener):
            selector.register(source, selectors.EVENT_READ)
        while True:
            for key, _ in selector.select():
                if key.fileobj == 0:
                    _kill_all()
                    return
                if key.fileobj is wakeup:
                    wakeup.recv(4096)
                    _report_ends(owners, selector)
                elif key.fileobj is listener:
                    connection, _ = listener.accept()
                    request, descriptors = _received(connection)
                    _import_once()
                    pid = os.fork()
                    if pid == 0:
                        for each in (wakeup, alarm, listener, connection, *owners.values()):
                            each.close()
                        selector.close()
                        _become(request, descriptors, own_path)
                        return
                    for descriptor in descriptors:
                        os.close(descriptor)
                    owners[pid] = connection
                    selector.register(connection, selectors.EVENT_READ, pid)
                    _tell(connection, pid)
                elif key.data in owners:  # the client is gone
                    selector.unregister(owners.pop(key.data)).fileobj.close()
                    _kill(key.data)


def _received(connection: socket.socket) -> "tuple[dict[str, object], list[int]]":
    header, descriptors, _, _ = socket.recv_fds(connection, _LENGTH.size, _DESCRIPTORS)
    with connection.makefile("rb") as stream:
        return json.loads(stream.read(*_LENGTH.unpack(header))), descriptors


def _tell(connection: socket.socket, number: int) -> None:
    try:
        connection.sendall(f"{number}\n".encode())
    except OSError:  # the client is gone
        pass


def _report_ends(owners: "dict[int, socket.socket]", selector: "object") -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if pid == 0:
            return
        if connection := owners.pop(pid, None):
            selector.unregister(connection)
            _tell(connection, status)
            connection.close()


def _kill(pid: int) -> None:
    for kill in (os.killpg, os.kill):
        try:
            kill(pid, signal.SIGKILL)
        except OSError:  # it has ended, or does not lead a group yet
            pass


def _kill_all() -> None:
    import psutil

    for child in psutil.Process().children(recursive=True):
        _kill(child.pid)


@functools.cache
def _import_once() -> None:
    import gc
    import importlib
    import pkgutil

    names = list(_IMPORTED_LATE)
    for package in map(importlib.import_module, _PACKAGES):
        names += [each.name for each in pkgutil.walk_packages(package.__path__, f"{package.__name__}.", lambda _: None)]
    for name in names:
        try:
            if not name.endswith("__main__"):
                importlib.import_module(name)
        except ImportError:  # a module of only one Haystack major, or of an extra that is not installed
            pass
    gc.collect()
    gc.freeze()


def _become(request: "dict[str, object]", descriptors: "list[int]", path: "list[str]") -> None:
    """Act as the requested process, from its start to its end."""
    import atexit
    import fcntl
    import termios
    import threading
    import traceback

    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # nohup ignores it
    # Move them first, so that none of them occupies a number that another one needs.
    moved = [fcntl.fcntl(descriptor, fcntl.F_DUPFD, 2 * _DESCRIPTORS) for descriptor in descriptors]
    for descriptor in descriptors:
        os.close(descriptor)
    for number, descriptor in zip(request["descriptors"], moved, strict=True):
        os.dup2(descriptor, number)
        os.close(descriptor)
    if os.isatty(0):
        fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    os.chdir(request["cwd"])
    os.environ.clear()
    os.environ.update(request["env"])
    if request["python"]:
        sys.executable = request["python"]
        # These modules have read `sys.executable` already.
        sys.modules["multiprocessing.spawn"].set_executable(sys.executable)
        sys.modules["haystack_integrations.tools.mcp.transports.shorthand"]._INTERPRETERS[".py"] = sys.executable
    if "COVERAGE_PROCESS_CONFIG" in os.environ:
        import coverage

        coverage.process_startup()
    if request["finalize"]:
        _execute(request["arguments"], path)
        return
    code = 0
    try:
        _execute(request["arguments"], path)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if not isinstance(end.code, int | None):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        traceback.print_exception(error.with_traceback(error.__traceback__.tb_next))
        code = 1
    threading._shutdown()
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            if not stream.closed:
                stream.flush()
        except OSError:
            code = code or 120
    os._exit(code)


def _writer(descriptor: int, errors: str, *, line_buffering: bool) -> "object":
    import io

    binary = open(descriptor, "wb", closefd=False)
    return io.TextIOWrapper(binary, "utf-8", errors, line_buffering=line_buffering)


def _execute(arguments: "list[str]", path: "list[str]") -> None:
    """Run what `python` would run with these arguments."""
    import runpy
    import types

    rest = list(arguments)
    unbuffered = os.isatty(1)
    while rest[0].startswith("-") and rest[0] not in ("-c", "-m"):
        unbuffered |= rest.pop(0) == "-u"
    # The earlier streams were opened for other descriptors, which may not have been files or terminals like these.
    sys.stdin = sys.__stdin__ = open(0, encoding="utf-8", closefd=False)
    sys.stdout = sys.__stdout__ = _writer(1, "strict", line_buffering=unbuffered)
    sys.stderr = sys.__stderr__ = _writer(2, "backslashreplace", line_buffering=True)
    first = rest.pop(0)
    sys.path[:] = ["", *filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep)), *path]
    if first == "-m":
        module = rest.pop(0)
        sys.path[0] = os.getcwd()
        sys.argv = [module, *rest]
        runpy._run_module_as_main(module)
        return
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if first == "-c":
        code = compile(rest.pop(0), "<string>", "exec")
        sys.argv = ["-c", *rest]
    else:
        main.__file__ = os.path.abspath(first)
        sys.path[0] = os.path.dirname(os.path.realpath(first))
        sys.argv = [first, *rest]
        with open(first, "rb") as file:
            code = compile(file.read(), first, "exec")
    exec(code, main.__dict__)  # noqa: S102


if __name__ == "__main__":
    _serve(socket.socket(fileno=int(sys.argv[1])))
