# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Measures how much of the interface of tools has the same type in all type checkers, with `pyright --verifytypes`.

`make types` runs this. It fails below `FLOOR`, and names what lacks a type.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

PACKAGE = "haystack_integrations.tools.mcp"
FLOOR = 0.99


def main() -> int:
    """
    Print the share of the package's names with a known type.

    :returns: 1 if the share is too small, else 0.
    """
    # pyright asks the first `python` on the PATH for the packages. It must find those of this environment, and prefer
    # the sources of this checkout to an installed package.
    environment = {
        **os.environ,
        "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]),
        "PYTHONPATH": str(Path(__file__).parents[2] / "src"),
        "PYRIGHT_PYTHON_IGNORE_WARNINGS": "1",
    }
    command = ["pyright", "--outputjson", "--ignoreexternal", "--verifytypes", PACKAGE]
    answer = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False)
    report = json.loads(answer.stdout)["typeCompleteness"]
    score = report["completenessScore"]
    print(f"{score:.1%} of {PACKAGE} has a known type, as {report['pyTypedPath']} promises; the floor is {FLOOR:.0%}")
    for symbol in report["symbols"] if score < FLOOR else []:
        for diagnostic in symbol["diagnostics"]:
            print(f"{symbol['name']}: {diagnostic['message']}")
    return int(score < FLOOR)


if __name__ == "__main__":
    sys.exit(main())
