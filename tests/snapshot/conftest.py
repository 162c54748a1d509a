# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.support.kinds import Gate, Kind, Peer
from tests.support.processes import SERVERS, CallLog, HttpServer, StdioServer, prepared_script, python_script

ROOT = Path(__file__).parents[2]


@pytest.fixture
def rug_puller(tmp_path: Path) -> Iterator[Callable[[Kind], Peer]]:
    """
    A server that pulls rugs, in a process of its own; one that is started again is as the one before it was.
    """
    started: list[HttpServer | StdioServer] = []

    def start(kind: Kind) -> Peer:
        log = CallLog(tmp_path / "calls.txt")
        options = ["--calls-file", str(log.path), "--state", str(tmp_path / "state.txt"), *kind.options]
        script = SERVERS / "rug_pulling_server.py"
        if not kind.is_http:
            command, *arguments = prepared_script(script, *options)
            # It imports from `tests`, and inherits little.
            stdio = StdioServer("/usr/bin/env", [f"PYTHONPATH={ROOT}", command, *arguments], log)
            started.append(stdio)
            return Peer(kind, stdio, gate=Gate(stdio, tmp_path))
        http = HttpServer(python_script(script, "--transport", kind.transport, *options), "/mcp", tmp_path, log)
        started.append(http)
        return Peer(kind, http.start())

    yield start
    for server in started:
        if isinstance(server, HttpServer):
            server.close()
        else:
            server.wait_until_gone()
