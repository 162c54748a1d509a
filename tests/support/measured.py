# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Coverage of what runs in processes of their own: commands, and servers that end by a signal.
"""

from coverage import Coverage
from coverage.config import CoverageConfig


def measured() -> dict[str, str]:
    """
    The variables that have a Python process measure itself, if this one does. Its data are combined with those here.
    """
    current = Coverage.current()
    if current is None:
        return {}
    config = CoverageConfig.deserialize(current.config.serialize())
    config.parallel = True
    config.patch = ["_exit"]
    return {"COVERAGE_PROCESS_CONFIG": config.serialize()}
