# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The client scenarios of the official conformance suite.

With several scenarios the suite looks neither at the exit code of a client nor at whether it ended in time: so both are
looked at here. Its server is reached over Streamable HTTP; for the protocol's other transports it has none.
"""

import os
import re
from pathlib import Path

import pytest

from tests.conformance.suite import HANDSHAKE, LIMIT, MODERN, run_suite
from tests.support.prepared import SOURCE, prepared_python
from tests.support.processes import run_to_end

CLIENT = Path(__file__).with_name("client.py")


# These are in none of its suites.
SKILLS = [f"sep-2640-client-{name}" for name in ("no-prefetch", "verify-digest", "verify-size", "verify-frontmatter")]

# The options of the suite, and how many scenarios it runs then.
SUITES: dict[str, tuple[list[str], int]] = {
    HANDSHAKE: (["--suite", "all", "--spec-version", HANDSHAKE], 19),
    MODERN: (["--suite", "all", "--spec-version", MODERN], 33),
    "extensions": (["--suite", "extensions"], 6),
    "backcompat": (["--suite", "backcompat"], 2),
    **{name: (["--scenario", name], 1) for name in SKILLS},
}

# There the suite does what must be refused, and how the client ends then is left to it.
MAY_FAIL = {
    "http-invalid-tool-headers",
    *(name for name in SKILLS if "verify" in name),
    "auth/scope-retry-limit",
    "auth/resource-mismatch",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
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


def failures(suite: list[str], options: list[str], count: int, folder: Path) -> tuple[dict[str, object], str]:
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
    assert len(verdict.wrong) == count, verdict.output
    wrong: dict[str, object] = {name: what for name, what in verdict.wrong.items() if what}
    for name in verdict.wrong:
        end = ends / name.replace("/", ":")
        code = end.read_text().strip() if end.exists() else "none: it did not end"
        if code != "0" and name not in MAY_FAIL:
            wrong.setdefault(name, f"exit code of the client: {code}")
    return wrong, verdict.output


@pytest.mark.integration
@pytest.mark.parametrize("name", SUITES)
def test_the_conformance_suite_finds_nothing_wrong(name: str, conformance_suite: list[str], tmp_path: Path) -> None:
    options, count = SUITES[name]
    wrong, output = failures(conformance_suite, options, count, tmp_path / "all")
    for attempt in range(ATTEMPTS):
        if wrong.keys() == {SENSITIVE}:
            alone = ["--scenario", SENSITIVE, "--spec-version", HANDSHAKE]
            wrong, output = failures(conformance_suite, alone, 1, tmp_path / str(attempt))
    assert not wrong, f"{wrong}\n{output}"


@pytest.mark.integration
def test_no_scenario_is_left_out(conformance_suite: list[str]) -> None:
    listed = run_to_end([*conformance_suite, "list", "--client"], limit=LIMIT, check=True).stdout
    # Those of both revisions, and the others.
    assert len(re.findall("^  - ", listed, re.MULTILINE)) == 48
