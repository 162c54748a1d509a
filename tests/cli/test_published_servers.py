# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The commands with servers that others have published.
"""

import json
import shlex
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.support.processes import StdioServer

pytestmark = pytest.mark.integration


def words_for(server: StdioServer) -> list[str]:
    variables = [word for name, value in (server.env or {}).items() for word in ("--env", f"{name}={value}")]
    return [shlex.join([server.command, *server.args]), *variables, "--timeout", "100"]


def test_the_time_server_is_called_and_healthy(run: Run, time_server: StdioServer, tmp_path: Path) -> None:
    command, *options = words_for(time_server)
    called = run("call", command, "get_current_time", "timezone=Europe/Berlin", *options)
    assert json.loads(called.screen)["timezone"] == "Europe/Berlin"
    assert run("call", command, "get_current_time", *options).code == 2
    assert run("call", command, "get_current_time", "timezone=Nowhere/City", *options).code == 1
    snapshot = str(tmp_path / "time.json")
    assert "source_timezone" in run("inspect", command, "--snapshot", snapshot, *options).screen
    checked = run("doctor", command, "--check", snapshot, *options)
    assert (checked.code, "as they were in the snapshot" in checked.screen) == (0, True), checked.screen


def test_all_that_the_everything_server_offers_is_shown(
    run: Run, everything_stdio: StdioServer, tmp_path: Path
) -> None:
    command, *options = words_for(everything_stdio)
    report = json.loads(run("inspect", command, *options, "--json").screen)
    assert report["resourceTemplates"] and report["prompts"]
    assert {"echo", "get-sum"} <= {tool["name"] for tool in report["tools"]}
    assert "10" in run("call", command, "get-sum", "a=4", "b=6", *options).screen
    assert run("call", command, "get-tiny-image", "--save", str(tmp_path), *options).code == 0
    assert list(tmp_path.glob("get-tiny-image-*.png"))
    assert run("doctor", command, *options).code == 0
