# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The servers of this folder.
"""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from haystack_integrations.tools.mcp import MCPServerInfo, StreamableHttpServerInfo
from tests.support.handshake_server import HandshakeServer, result_of
from tests.support.processes import SERVERS, CallLog, StdioServer, python_script


@pytest.fixture
def picky_server(tmp_path: Path) -> Callable[..., StdioServer]:
    """
    Says how to start servers over stdio that are particular: `picky_server(*options)`, with the options of
    `tests/servers/picky_server.py`.
    """

    def describe(*options: str) -> StdioServer:
        log = CallLog(tmp_path / "picky.txt")
        command, *args = python_script(SERVERS / "picky_server.py", "--calls-file", str(log.path), *options)
        return StdioServer(command, args, log)

    return describe


HELLO = {"content": [{"type": "text", "text": "hello"}]}


@pytest.fixture(params=["stdio 2026", "http"])
def start(
    request: pytest.FixtureRequest, tmp_path: Path, picky_server: Callable[..., StdioServer]
) -> Iterator[Callable[..., MCPServerInfo]]:
    """
    Starts a server whose answers to `tools/list` and to calls are given: `start(page, called)`.
    """
    with ExitStack() as stack:

        def start(page: dict[str, Any], called: dict[str, Any] = HELLO) -> MCPServerInfo:
            if request.param == "http":
                answers = {"tools/list": page}
                server = HandshakeServer(
                    lambda _server, message, _: (200, result_of(message, answers.get(message["method"], called)), None)
                )
                stack.callback(server.close)
                return StreamableHttpServerInfo(server.url)
            listing, result = tmp_path / "listing.json", tmp_path / "result.json"
            listing.write_text(json.dumps(page))
            result.write_text(json.dumps(called))
            return picky_server("--listing", str(listing), "--result", str(result), "--initialize", "-32022").info()

        yield start
