# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The client scenarios of the official conformance suite.

The suite is started for one scenario at a time: with several it looks neither at the exit code of the client nor at the
time it takes. Its server is reached over Streamable HTTP; for the protocol's other transports it has none.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]
CLIENT = Path(__file__).with_name("client.py")

FIRST_OAUTH, HANDSHAKE, MODERN = "2025-03-26", "2025-11-25", "2026-07-28"

# An extension has no revision of its own, so the suite takes its default.
SCENARIOS: list[tuple[str, str | None]] = [
    ("initialize", HANDSHAKE),
    ("tools_call", HANDSHAKE),
    ("tools_call", MODERN),
    ("elicitation-sep1034-client-defaults", HANDSHAKE),
    ("sse-retry", HANDSHAKE),
    ("request-metadata", MODERN),
    ("sep-2322-client-request-state", MODERN),
    ("http-standard-headers", MODERN),
    ("http-custom-headers", MODERN),
    ("http-invalid-tool-headers", MODERN),
    ("json-schema-ref-no-deref", MODERN),
    ("json-schema-2020-12-preservation", HANDSHAKE),
    ("json-schema-2020-12-preservation", MODERN),
    ("sep-2640-client-no-prefetch", None),
    ("sep-2640-client-verify-digest", None),
    ("sep-2640-client-verify-size", None),
    ("sep-2640-client-verify-frontmatter", None),
    *(
        (f"auth/{name}", revision)
        for name in (
            "metadata-default",
            "metadata-var1",
            "metadata-var2",
            "metadata-var3",
            "basic-cimd",
            "scope-from-www-authenticate",
            "scope-from-scopes-supported",
            "scope-omitted-when-undefined",
            "scope-step-up",
            "scope-retry-limit",
            "token-endpoint-auth-basic",
            "token-endpoint-auth-post",
            "token-endpoint-auth-none",
            "pre-registration",
        )
        for revision in (HANDSHAKE, MODERN)
    ),
    ("auth/2025-03-26-oauth-metadata-backcompat", FIRST_OAUTH),
    ("auth/2025-03-26-oauth-endpoint-fallback", FIRST_OAUTH),
    *(
        (f"auth/{name}", MODERN)
        for name in (
            "resource-mismatch",
            "offline-access-scope",
            "offline-access-not-supported",
            "authorization-server-migration",
            "iss-supported",
            "iss-not-advertised",
            "iss-supported-missing",
            "iss-wrong-issuer",
            "iss-unexpected",
            "iss-normalized",
            "metadata-issuer-mismatch",
        )
    ),
    ("auth/client-credentials-jwt", None),
    ("auth/client-credentials-basic", None),
    ("auth/enterprise-managed-authorization", None),
    ("auth/dpop", None),
    ("auth/dpop-nonce", None),
    ("auth/wif-jwt-bearer", None),
]

# The server of this one closes a stream and wants it back within a window of 250 ms, which a busy machine may miss.
ATTEMPTS = {"sse-retry": 3}

# For the client, in milliseconds; and for the suite, in seconds, which waits for the client's server to close.
CLIENT_LIMIT, SUITE_LIMIT = 40_000, 80.0


def run(scenario: str, revision: str | None, suite: list[str], folder: Path) -> tuple[list[str], str]:
    """
    Run the suite for one scenario.

    :returns: What is wrong, and the output of the suite.
    """
    # The suite hands the command to a shell, and at its time limit ends only that: so the shell becomes the client.
    command = f"exec {sys.executable} {CLIENT}"
    arguments = ["client", "--command", command, "--scenario", scenario, "--timeout", str(CLIENT_LIMIT)]
    finished = subprocess.run(
        [*suite, *arguments, "-o", str(folder), *(["--spec-version", revision] if revision else [])],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
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
    wrong = [
        f"{check['id']}: {check.get('errorMessage')}" for check in checks if check["status"] in ("FAILURE", "WARNING")
    ]
    if not any(check["status"] == "SUCCESS" for check in checks):
        wrong.append("nothing was checked")
    if finished.returncode:
        wrong.append(f"the suite ended with exit code {finished.returncode}")
    return wrong, finished.stdout


@pytest.mark.integration
@pytest.mark.parametrize(
    ("scenario", "revision"),
    SCENARIOS,
    ids=[f"{scenario} {revision or ''}".strip() for scenario, revision in SCENARIOS],
)
def test_the_conformance_suite_finds_nothing_wrong(
    scenario: str, revision: str | None, conformance_suite: list[str], tmp_path: Path
) -> None:
    for attempt in range(ATTEMPTS.get(scenario, 1)):
        folder = tmp_path / str(attempt)
        folder.mkdir()
        wrong, output = run(scenario, revision, conformance_suite, folder)
        if not wrong:
            break
    assert not wrong, output


@pytest.mark.integration
def test_no_scenario_is_left_out(conformance_suite: list[str]) -> None:
    def listed(*options: str) -> set[str]:
        command = [*conformance_suite, "list", *options]
        lines = subprocess.run(
            command, capture_output=True, text=True, timeout=SUITE_LIMIT, check=True
        ).stdout.splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("Client scenarios"))
        after = [number for number, line in enumerate(lines) if number > first and line[:1].isalpha()]
        found = {line.split()[1] for line in lines[first : min(after, default=None)] if line.startswith("  - ")}
        assert len(found) > 10, lines
        return found

    assert listed("--client") == {scenario for scenario, _ in SCENARIOS}
    for revision in (HANDSHAKE, MODERN):  # the frozen requirement sets
        assert listed("--requirements", revision) <= {scenario for scenario, at in SCENARIOS if at == revision}
