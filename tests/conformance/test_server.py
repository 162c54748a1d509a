# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The server scenarios of the official conformance suite, all but those about authorization servers, in both eras.
"""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from haystack_integrations.tools.mcp.haystack_compat import SkillInfo
from tests.support.served import ServedOverHttp

SERVER = Path(__file__).with_name("server.py")

HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"

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
            "required-task-error",
            "mrtr-composition",
        )
    ),
]
# `tasks-status-notifications` checks nothing in this version of the suite, whatever the server does.

SCENARIOS: list[tuple[str, str | None]] = [
    *((name, HANDSHAKE) for name in HANDSHAKE_ONLY),
    *((name, revision) for name in BOTH for revision in (HANDSHAKE, MODERN)),
    *((name, MODERN) for name in MODERN_ONLY),
    *((name, None) for name in EXTENSIONS),
]

# What cannot pass yet, and why. The test fails when it does, so that the entry goes.
EXPECTED_FAILURES = {
    "tasks-mrtr-composition": "fastmcp-tasks 4.1 makes a task of a call before the tool can say what it wants",
}

# For the suite, in milliseconds; and for its process, in seconds.
SCENARIO_LIMIT, SUITE_LIMIT = 40_000, 90.0


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServedOverHttp]:
    with ServedOverHttp(script=SERVER) as process:
        yield process


def run(scenario: str, revision: str | None, suite: list[str], url: str, folder: Path) -> tuple[list[str], str]:
    """
    Run the suite for one scenario.

    :returns: What is wrong, and the output of the suite.
    """
    arguments = ["server", "--url", url, "--scenario", scenario, "--timeout", str(SCENARIO_LIMIT), "-o", str(folder)]
    finished = subprocess.run(
        [*suite, *arguments, *(["--spec-version", revision] if revision else [])],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        timeout=SUITE_LIMIT,
        text=True,
        check=False,
    )
    checks: list[dict[str, Any]] = [
        check for path in folder.rglob("checks.json") for check in json.loads(path.read_text())
    ]
    # Warnings are about what a server should do, and the suite lets them pass.
    wrong = [f"{check['id']}: {check.get('errorMessage')}" for check in checks if check["status"] == "FAILURE"]
    if not any(check["status"] == "SUCCESS" for check in checks):
        wrong.append("nothing was checked")
    if finished.returncode:
        wrong.append(f"the suite ended with exit code {finished.returncode}")
    return wrong, finished.stdout


def marks_of(scenario: str) -> list[pytest.MarkDecorator]:
    marks = []
    if scenario in EXPECTED_FAILURES:
        marks.append(pytest.mark.xfail(reason=EXPECTED_FAILURES[scenario], strict=True))
    if "skills" in scenario:
        marks.append(pytest.mark.skipif(SkillInfo is None, reason="Haystack 2 has no skills"))
    return marks


@pytest.mark.integration
@pytest.mark.parametrize(
    ("scenario", "revision"),
    [
        pytest.param(
            scenario, revision, id=f"{scenario}-{revision}" if revision else scenario, marks=marks_of(scenario)
        )
        for scenario, revision in SCENARIOS
    ],
)
def test_the_conformance_suite_finds_nothing_wrong(
    scenario: str, revision: str | None, conformance_suite: list[str], served: ServedOverHttp, tmp_path: Path
) -> None:
    # The suite takes a server for safe from other hosts' pages only if it is reached by this name.
    url = served.url.replace("127.0.0.1", "localhost")
    wrong, output = run(scenario, revision, conformance_suite, url, tmp_path)
    assert not wrong, f"{wrong}\n{output}\n{served.errors[-4000:]}"
