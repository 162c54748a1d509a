# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""Starts the servers that are compared: this package, FastMCP alone, and hayhooks. Needs only the standard library."""

import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from cases import FASTMCP, HAYHOOKS, OURS
from environments import BENCHMARKS, python_of
from hayhooks_files import PRAISE, write_hayhooks_files

STARTS_WITHIN = 120.0
"""Seconds to wait until a server listens. The longest start, with 1,000 wrappers, takes about 20."""
_POLL_INTERVAL = 0.005


class NoServerError(Exception):
    """A server did not start."""


@contextmanager
def compared_server(subject: str, content: str, environment: dict[str, str]) -> Iterator[dict[str, Any]]:
    """
    Run a server over HTTP.

    :param subject: The subject whose server to run.
    :param content: What it serves; see served.py.
    :param environment: Environment variables of the process.
    :returns: A context manager for the target of requests, as soon as the server listens.
    :raises NoServerError: If it does not.
    """
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryFile("w+") as log, socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
        free.close()
        command = _command(subject, content, Path(folder), port)
        process = subprocess.Popen(
            [str(part) for part in command], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
            env={**environment, "HAYHOOKS_LOG_LEVEL": "ERROR"},
        )  # fmt: skip
        try:
            if not _listens(process, port):
                log.seek(0)
                message = f"the server of {subject} does not listen: {log.read()[-2000:]}"
                raise NoServerError(message)
            # hayhooks redirects from the path without the slash.
            path = "/mcp/" if subject == HAYHOOKS else "/mcp"
            yield {"url": f"http://127.0.0.1:{port}{path}", "pid": process.pid}
        finally:
            process.terminate()
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()


def _command(subject: str, content: str, folder: Path, port: int) -> list[Any]:
    if subject == HAYHOOKS:
        write_hayhooks_files(folder, content)
        program = python_of("hayhooks").with_name("hayhooks")
        return [program, "mcp", "run", "--host", "127.0.0.1", "--port", port, "--pipelines-dir", folder]
    if subject == OURS and content == "yaml":
        file = folder / "praise.yaml"
        file.write_text(PRAISE)
        # Not the installed script, which does not exist if the package is imported from a folder.
        program = "haystack_integrations.tools.mcp.cli"
        return [python_of("ours"), "-m", program, "serve", file, "--http", "--port", port, "--log-level", "error"]
    assert subject in (OURS, FASTMCP)
    return [python_of("ours"), BENCHMARKS / "served.py", subject, content, port]


def _listens(process: "subprocess.Popen[bytes]", port: int) -> bool:
    give_up = time.monotonic() + STARTS_WITHIN
    while time.monotonic() < give_up and process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(_POLL_INTERVAL)
        else:
            return True
    return False
