# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server process by itself, in both kinds of event loop: what it reads and writes, and how it ends.
"""

import asyncio
import errno
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import psutil
import pytest

from haystack_integrations.tools.mcp.transports.process import ServerProcess
from tests.support.background import on_each_loop
from tests.support.processes import is_alive
from tests.support.waiting import LIMIT, wait_until_async

# More than a pipe holds.
BIG = 1_000_000


class LineProcess(ServerProcess):
    """
    One whose output is kept by the line; after its end there is None.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lines: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._rest = b""
        self.on_output = self._keep

    def _keep(self, data: bytes) -> None:
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            self.lines.put_nowait(line)
        if not data:
            self.lines.put_nowait(None)


@asynccontextmanager
async def process_of(script: str, *args: str, env: dict[str, str] | None = None) -> AsyncIterator[LineProcess]:
    process = LineProcess(sys.executable, ["-u", "-c", script, *args], env or {}, None, secrets=(env or {}).values())
    process.start()
    try:
        yield process
    finally:
        await process.stop()
        process.end_children()


async def read_line(process: LineProcess) -> bytes | None:
    return await process.lines.get()


class TestStarting:
    @on_each_loop
    async def test_hands_no_copies_of_the_pipes_to_the_process(self):
        script = "import os, time; print('last'); os.close(1); time.sleep(1000)"
        async with process_of(script) as process:
            assert await read_line(process) == b"last"
            assert await read_line(process) is None
            assert await process.exit_code(0.1) is None
            with pytest.raises(BrokenPipeError):  # nothing would answer it
                await process.write(b"x")

    @on_each_loop
    async def test_needs_no_pidfd(self, monkeypatch):
        monkeypatch.delattr(os, "pidfd_open", raising=False)
        async with process_of("import sys; print(sys.stdin.readline()); sys.exit(3)") as process:
            assert not process.has_exited()
            await process.write(b"hello\n")
            assert await read_line(process) == b"hello"
            assert await process.exit_code(LIMIT) == 3

    @on_each_loop
    async def test_bears_that_somebody_else_waits_for_the_process(self):
        async with process_of("import time; time.sleep(1000)") as process:
            os.kill(process._process.pid, 9)
            os.waitpid(process._process.pid, 0)
            assert await read_line(process) is None
            assert process.has_exited()
            await process._exited.wait()


class TestReading:
    @on_each_loop
    async def test_what_a_process_writes_right_before_its_end_is_read(self):
        for _ in range(10):
            async with process_of("import os; print('x' * 200_000); print('last'); os._exit(3)") as process:
                assert await read_line(process) == b"x" * 200_000
                assert await read_line(process) == b"last"
                assert await read_line(process) is None
                assert await process.exit_code() == 3


class TestStopping:
    # Another process holds the pipes, so that they are not closed by the end of the first.
    HOLDER = """
import subprocess, sys
print(subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"], start_new_session=True).pid)
sys.stdin.read()
"""

    @on_each_loop
    async def test_leaves_no_descriptor_although_another_process_holds_the_pipes(self, tmp_path):
        async with process_of(""):
            pass  # uvloop opens one of its own with the first process
        before = descriptors()
        async with process_of(self.HOLDER) as process:
            child = psutil.Process(int(await read_line(process) or b""))
            await process.write(b"x" * BIG)
        try:
            await wait_until_async(lambda: descriptors() <= before, lambda: str(descriptors() - before))
        finally:
            child.kill()

    @on_each_loop
    async def test_of_a_process_that_writes_on_lets_it_end_by_itself(self, tmp_path):
        script = """
import sys
print("ready")
sys.stdin.read()
for _ in range(50):
    print("x" * 100_000)
open(sys.argv[1], "w").close()
"""
        async with process_of(script, str(tmp_path / "ended")) as process:
            assert await read_line(process) == b"ready"
        assert (tmp_path / "ended").exists()
        assert await process.exit_code() == 0

    @on_each_loop
    async def test_that_cannot_watch_the_pipes_leaves_nothing(self, monkeypatch):
        before = descriptors()
        process = ServerProcess("/bin/sh", ["-c", "sleep 1000 & exec cat"], {}, None)
        with monkeypatch.context() as patch:
            patch.setattr(os, "set_blocking", too_many)
            with pytest.raises(OSError, match="Too many open files"):
                process.start()
        assert descriptors() <= before
        group = process._process.pid
        await wait_until_async(lambda: not group_is_alive(group), "the end of all that was started")


def too_many(*_args: object) -> None:
    raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def group_is_alive(group: int) -> bool:
    return any(is_alive(process.pid) for process in psutil.process_iter() if group_of(process.pid) == group)


def group_of(pid: int) -> int | None:
    try:
        return os.getpgid(pid)
    except ProcessLookupError:
        return None


def descriptors() -> set[str]:
    folder = Path("/proc/self/fd")
    if not folder.exists():
        pytest.skip("needs /proc")
    return {f"{entry.name} {os.readlink(entry)}" for entry in folder.iterdir() if entry.is_symlink()}
