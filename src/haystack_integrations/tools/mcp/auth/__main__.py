# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Logging in and out at servers: `python -m haystack_integrations.tools.mcp.auth login https://mcp.example.com/mcp`.

The same as `mcp-haystack login` and `mcp-haystack logout`.
"""

from __future__ import annotations

import sys

# Nothing imports an entry point, so this arrow upwards closes no circle.
from haystack_integrations.tools.mcp.cli.__main__ import main

if __name__ == "__main__":
    if sys.argv[1:2] not in (["login"], ["logout"]):
        print(  # noqa: T201 - a command prints
            "This command has `login TARGET` and `logout TARGET`; `mcp-haystack --help` lists all others.",
            file=sys.stderr,
        )
        sys.exit(2)
    sys.exit(main())
