# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Fixtures: scripts in separate processes, with the event loops of asyncio and uvloop.
"""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest

from haystack_integrations.tools.mcp import StreamableHttpServerInfo
from tests.conftest import StdioServerFactory
from tests.support.processes import PATIENT_SERVER
from tests.support.scripts import Script


@pytest.fixture(params=["asyncio", "uvloop"])
def script(request: pytest.FixtureRequest, tmp_path: Path, stdio_server: StdioServerFactory) -> Script:
    """
    Runs scripts with the event loops of asyncio and uvloop, for tests of processes, forks and descriptors.
    """
    return Script(tmp_path, stdio_server(), request.param)


@pytest.fixture
def script_with(tmp_path: Path, stdio_server: StdioServerFactory) -> Callable[..., Script]:
    """
    Like `script`, with one loop and with options of the server, for tests that do not depend on the loop.
    """
    return lambda *options, loop="uvloop": Script(tmp_path, stdio_server(*options), loop)


@pytest.fixture(params=["stdio", "streamable-http"])
def patient(request: pytest.FixtureRequest) -> SimpleNamespace:
    """
    A patient server: its `info`, and the `log` of its record.
    """
    if request.param == "stdio":
        server = request.getfixturevalue("patient_stdio_server")()
        return SimpleNamespace(info=server.info(), log=server.log)
    server = request.getfixturevalue("http_server")(script=PATIENT_SERVER)
    return SimpleNamespace(info=StreamableHttpServerInfo(server.url), log=server.log)
