# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import io
import sys
from collections.abc import Callable

import pytest

from haystack_integrations.tools.mcp.cli.__main__ import main
from tests.support.terminal import ROOT, Ran

Run = Callable[..., Ran]


# Servers that are started beside other tests take their time.
_CONNECTING = ("list", "call", "read", "prompt", "inspect", "doctor")


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """
    Runs the command in this process, without a terminal.
    """
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("COLUMNS", "300")

    def run(*words: str, stdin: str = "") -> Ran:
        monkeypatch.setattr(sys, "stdin", io.StringIO(stdin))
        patience = ["--timeout", "100"] if words and words[0] in _CONNECTING and "--timeout" not in words else []
        code = main([*words, *patience])
        captured = capsys.readouterr()
        return Ran(code, captured.out, captured.err)

    return run
