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

HANDSHAKE_ONLY = [
    "server-initialize",
    "server-session-lifecycle",
    "logging-set-level",
    "ping",
    "tools-call-with-logging",
    "tools-call-sampling",
    "tools-call-elicitation",
    "elicitation-sep1034-defaults",
    "elicitation-sep1330-enums",
    "server-sse-polling",
    "resources-subscribe",
    "resources-unsubscribe",
]
BOTH = [
    "completion-complete",
    "tools-list",
    "tools-call-simple-text",
    "tools-call-image",
    "tools-call-audio",
    "tools-call-embedded-resource",
    "tools-call-mixed-content",
    "tools-call-error",
    "tools-call-with-progress",
    "json-schema-2020-12",
    "server-sse-multiple-streams",
    "resources-list",
    "resources-read-text",
    "resources-read-binary",
    "resources-templates-read",
    "prompts-list",
    "prompts-get-simple",
    "prompts-get-with-args",
    "prompts-get-embedded-resource",
    "prompts-get-with-image",
    "dns-rebinding-protection",
]
MODERN_ONLY = [
    "server-stateless",
    "sep-2164-resource-not-found",
    "caching",
    "http-header-validation",
    "http-custom-header-server-validation",
    *(
        f"input-required-result-{name}"
        for name in (
            "basic-elicitation",
            "basic-sampling",
            "basic-list-roots",
            "request-state",
            "multiple-input-requests",
            "multi-round",
            "missing-input-response",
            "non-tool-request",
            "result-type",
            "unsupported-methods",
            "tampered-state",
            "capability-check",
            "ignore-extra-params",
            "validate-input",
        )
    ),
]
# An extension has no revision of its own, so the suite takes its default.
EXTENSIONS = [
    *(f"sep-2640-skills-{name}" for name in ("directory", "enumeration", "manifest")),
    *(
        f"tasks-{name}"
        for name in (
            "lifecycle",
            "capability-negotiation",
            "wire-fields",
            "request-state-removal",
            "mrtr-input",
            "request-headers",
            "dispatch-and-envelope",
            "status-notifications",
            "required-task-error",
            "mrtr-composition",
        )
    ),
]
# The options of the suite, and the scenarios that it runs then.
SUITES: dict[str, tuple[list[str], set[str]]] = {
    HANDSHAKE: (["--suite", "all", "--spec-version", HANDSHAKE], {*HANDSHAKE_ONLY, *BOTH}),
    MODERN: (["--suite", "all", "--spec-version", MODERN], {*BOTH, *MODERN_ONLY}),
    # All extensions, and four of the others, at the revision that the suite takes if none is named.
    "pending": (
        ["--suite", "pending"],
        {
            *EXTENSIONS,
            "json-schema-2020-12",
            "server-sse-polling",
            "http-header-validation",
            "http-custom-header-server-validation",
        },
    ),
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
    options, scenarios = SUITES[name]
    arguments = ["server", "--url", url, "--timeout", str(SCENARIO_LIMIT), *options]
    # Warnings are about what a server should do, and the suite lets them pass.
    verdict = run_suite(conformance_suite, *arguments, folder=tmp_path, wrong={"FAILURE"})
    wrong = {name: what for name, what in verdict.wrong.items() if what}
    assert verdict.wrong.keys() == scenarios
    assert wrong.keys() == EXPECTED_FAILURES.keys() & scenarios, f"{wrong}\n{verdict.output}\n{served.errors[-4000:]}"
