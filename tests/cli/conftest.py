# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import io
import json
import logging
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any

import pytest

from haystack_integrations.tools.mcp.cli import output
from haystack_integrations.tools.mcp.cli.__main__ import main
from haystack_integrations.tools.mcp.cli.app import _LIBRARIES
from tests.support.terminal import ROOT, Ran

Run = Callable[..., Ran]


# These commands start servers, which is slow beside other tests.
_CONNECTING = ("list", "call", "read", "prompt", "inspect", "doctor")


@pytest.fixture(autouse=True)
def process_as_before() -> Iterator[None]:
    """
    Restores the process settings that a command changes.
    """
    loggers = [logging.getLogger(name) for name in ("haystack_integrations.tools.mcp", *_LIBRARIES)]
    before = [(logger, logger.level, logger.propagate, list(logger.handlers)) for logger in loggers]
    handlers = [(number, signal.getsignal(number)) for number in (signal.SIGTERM, signal.SIGHUP)]
    with redirect_stdout(sys.stdout):
        yield
    output._results_stream = None
    for number, handler in handlers:
        signal.signal(number, handler)
    for logger, level, propagate, its_handlers in before:
        logger.setLevel(level)
        logger.propagate = propagate
        logger.handlers[:] = its_handlers


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """
    Runs commands in this process, without a terminal.
    """
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "300")

    def run(*words: str, stdin: str | None = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", None if stdin is None else io.StringIO(stdin))
        patience = ["--timeout", "100"] if words and words[0] in _CONNECTING and "--timeout" not in words else []
        with redirect_stdout(sys.stdout):
            code = main([*words, *patience])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run


def servers_file(file: Path, servers: dict[str, Any]) -> str:
    """
    Write an mcp.json, and return its path.
    """
    file.write_text(json.dumps({"mcpServers": servers}))
    return str(file)
