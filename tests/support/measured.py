# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Coverage of other processes: commands, and servers that are ended by a signal.
"""

from coverage import Coverage
from coverage.config import CoverageConfig


def measured() -> dict[str, str]:
    """
    Return the variables that make a Python process measure its coverage, if this one does. The data are combined.
    """
    current = Coverage.current()
    if current is None:
        return {}
    config = CoverageConfig.deserialize(current.config.serialize())
    config.parallel = True
    config.patch = ["_exit"]
    return {"COVERAGE_PROCESS_CONFIG": config.serialize()}
