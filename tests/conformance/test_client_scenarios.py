# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The client scenarios of the official conformance suite.

With several scenarios the suite looks neither at the exit code of a client nor at whether it ended in time: so both are
looked at here. Its server is reached over Streamable HTTP; for the protocol's other transports it has none.
"""

import os
from pathlib import Path

import pytest

from tests.conformance.suite import HANDSHAKE, LIMIT, MODERN, run_suite
from tests.support.prepared import SOURCE, prepared_python
from tests.support.processes import run_to_end

CLIENT = Path(__file__).with_name("client.py")


def auth(*names: str) -> set[str]:
    return {f"auth/{name}" for name in names}


IN_BOTH = {
    "tools_call",
    "json-schema-2020-12-preservation",
    *auth(
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
    ),
}
EXTENSIONS = auth(
    "client-credentials-jwt",
    "client-credentials-basic",
    "enterprise-managed-authorization",
    "dpop",
    "dpop-nonce",
    "wif-jwt-bearer",
)
# These are in none of its suites.
SKILLS = [f"sep-2640-client-{name}" for name in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")]

# The options of the suite, and the scenarios that it runs then.
SUITES: dict[str, tuple[list[str], set[str]]] = {
    HANDSHAKE: (
        ["--suite", "all", "--spec-version", HANDSHAKE],
        {*IN_BOTH, "initialize", "elicitation-sep1034-client-defaults", "sse-retry"},
    ),
    MODERN: (
        ["--suite", "all", "--spec-version", MODERN],
        {
            *IN_BOTH,
            "request-metadata",
            "sep-2322-client-request-state",
            "http-standard-headers",
            "http-custom-headers",
            "http-invalid-tool-headers",
            "json-schema-ref-no-deref",
            *auth(
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
            ),
        },
    ),
    "extensions": (["--suite", "extensions"], EXTENSIONS),
    "backcompat": (
        ["--suite", "backcompat"],
        auth("2025-03-26-oauth-metadata-backcompat", "2025-03-26-oauth-endpoint-fallback"),
    ),
    **{name: (["--scenario", name], {name}) for name in SKILLS},
}

# There the suite does what must be refused, and how the client ends then is left to it.
MAY_FAIL = {
    "http-invalid-tool-headers",
    *(name for name in SKILLS if "verify" in name),
    *auth(
        "scope-retry-limit",
        "resource-mismatch",
        "iss-supported-missing",
        "iss-wrong-issuer",
        "iss-unexpected",
        "iss-normalized",
        "metadata-issuer-mismatch",
    ),
}

# The server of this one closes a stream and wants it back within a window of 250 ms, which a busy machine may miss: it
# is tried again, alone.
SENSITIVE, ATTEMPTS = "sse-retry", 3

# For a client, in milliseconds.
CLIENT_LIMIT = 100_000

# The suite names the scenario, and passes the URL.
RECORDING = """
"{python}" "{client}" "$@"
code=$?
echo $code > "{ends}/$(echo "$MCP_CONFORMANCE_SCENARIO" | tr / :)"
exit $code
"""


def failures(suite: list[str], options: list[str], scenarios: set[str], folder: Path) -> tuple[dict[str, object], str]:
    """
    Run scenarios.

    :returns: What is wrong, by scenario, and the output of the suite.
    """
    results, ends = folder / "results", folder / "ends"
    for each in (results, ends):
        each.mkdir(parents=True)
    script = folder / "client.sh"
    script.write_text(RECORDING.format(python=prepared_python(), client=CLIENT, ends=ends))
    arguments = ["client", "--command", f"exec sh {script}", "--timeout", str(CLIENT_LIMIT), *options]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    verdict = run_suite(suite, *arguments, folder=results, wrong={"FAILURE", "WARNING"}, **environment)
    wrong: dict[str, object] = {name: what for name, what in verdict.wrong.items() if what}
    for name in scenarios:
        end = ends / name.replace("/", ":")
        code = end.read_text().strip() if end.exists() else "none: it did not end"
        if name not in verdict.wrong or (code != "0" and name not in MAY_FAIL):
            wrong.setdefault(name, f"exit code of the client: {code}")
    assert verdict.wrong.keys() <= scenarios
    return wrong, verdict.output


@pytest.mark.integration
@pytest.mark.parametrize("name", SUITES)
def test_the_conformance_suite_finds_nothing_wrong(name: str, conformance_suite: list[str], tmp_path: Path) -> None:
    options, scenarios = SUITES[name]
    wrong, output = failures(conformance_suite, options, scenarios, tmp_path / "all")
    for attempt in range(ATTEMPTS):
        if wrong.keys() == {SENSITIVE}:
            alone = ["--scenario", SENSITIVE, "--spec-version", HANDSHAKE]
            wrong, output = failures(conformance_suite, alone, {SENSITIVE}, tmp_path / str(attempt))
    assert not wrong, f"{wrong}\n{output}"


@pytest.mark.integration
def test_no_scenario_is_left_out(conformance_suite: list[str]) -> None:
    def listed(*options: str) -> set[str]:
        lines = run_to_end([*conformance_suite, "list", *options], limit=LIMIT, check=True).stdout.splitlines()
        first = next(number for number, line in enumerate(lines) if line.startswith("Client scenarios"))
        after = [number for number, line in enumerate(lines) if number > first and line[:1].isalpha()]
        found = {line.split()[1] for line in lines[first : min(after, default=None)] if line.startswith("  - ")}
        assert len(found) > 10, lines
        return found

    assert listed("--client") == set().union(*(scenarios for _, scenarios in SUITES.values()))
    for revision in (HANDSHAKE, MODERN):  # the frozen requirement sets
        assert listed("--requirements", revision) <= SUITES[revision][1]
