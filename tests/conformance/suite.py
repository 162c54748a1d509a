# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The official conformance suite, which is run for many scenarios at once: its start takes longer than a scenario.
"""

import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

from tests.support.processes import run_to_end

HANDSHAKE, MODERN = "2025-11-25", "2026-07-28"

# For the whole suite, in seconds.
LIMIT = 150.0


@dataclass(frozen=True)
class Verdict:
    """
    What the suite found.

    :param wrong: By scenario, what is wrong: nothing, where all is well.
    :param output: What the suite has written.
    """

    wrong: dict[str, list[str]]
    output: str


def run_suite(suite: list[str], *options: str, folder: Path, wrong: set[str], **environment: str) -> Verdict:
    """
    Run the suite.

    :param suite: Its command.
    :param options: Its options.
    :param folder: An empty folder for its results.
    :param wrong: The statuses of checks that must not be.
    :param environment: Its variables, if not those of this process.
    """
    finished = run_to_end(
        [*suite, *options, "-o", str(folder)],
        limit=LIMIT,
        cwd=folder,
        stderr=subprocess.STDOUT,
        **({"env": environment} if environment else {}),
    )
    found = {}
    for path in folder.rglob("checks.json"):
        # A folder's name is that of the scenario with the time, and for servers with another word before it.
        name = re.sub(r"^server-|-\d{4}-\d\d-\d\dT[\d-]+Z$", "", str(path.parent.relative_to(folder)))
        checks = json.loads(path.read_text())
        found[name] = [f"{each['id']}: {each.get('errorMessage')}" for each in checks if each["status"] in wrong]
        if not any(each["status"] == "SUCCESS" for each in checks):
            found[name].append("nothing was checked")
    return Verdict(found, finished.stdout)
