# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The server scenarios of the official conformance suite, in both eras.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.suite import HANDSHAKE, MODERN, run_suite
from tests.support.served import ServedOverHttp

SERVER = Path(__file__).with_name("server.py")

# The options of the suite, and how many scenarios it runs then: all that it has for servers. All extensions are
# pending, and an extension has no revision of its own, so the suite takes its default.
SUITES: dict[str, tuple[list[str], int]] = {
    HANDSHAKE: (["--suite", "all", "--spec-version", HANDSHAKE], 33),
    MODERN: (["--suite", "all", "--spec-version", MODERN], 40),
    "pending": (["--suite", "pending"], 17),
}

# What cannot pass, and why. The test fails when it does, so that the entry goes.
EXPECTED_FAILURES = {
    "tasks-mrtr-composition": "fastmcp-tasks 4.1 makes a task of a call before the tool can say what it wants",
    "tasks-status-notifications": "it checks nothing in this version of the suite, whatever the server does",
}

# For each scenario, in milliseconds.
SCENARIO_LIMIT = 40_000


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedOverHttp]:
    with ServedOverHttp(script=SERVER) as process:
        yield process


@pytest.mark.integration
@pytest.mark.parametrize("name", SUITES)
def test_the_conformance_suite_finds_nothing_wrong(
    name: str, conformance_suite: list[str], served: ServedOverHttp, tmp_path: Path
) -> None:
    # The suite takes a server for safe from other hosts' pages only if it is reached by this name.
    url = served.url.replace("127.0.0.1", "localhost")
    options, count = SUITES[name]
    arguments = ["server", "--url", url, "--timeout", str(SCENARIO_LIMIT), *options]
    # Warnings are about what a server should do, and the suite lets them pass.
    verdict = run_suite(conformance_suite, *arguments, folder=tmp_path, wrong={"FAILURE"})
    wrong = {name: what for name, what in verdict.wrong.items() if what}
    assert len(verdict.wrong) == count
    expected = EXPECTED_FAILURES.keys() & verdict.wrong.keys()
    assert wrong.keys() == expected, f"{wrong}\n{verdict.output}\n{served.errors[-4000:]}"
