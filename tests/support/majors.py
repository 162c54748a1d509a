# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The major version of Haystack that the tests run on.
"""

import pytest

from tests.support.executors import HAS_TOOL_INVOKER

HAYSTACK = "Haystack 2.31" if HAS_TOOL_INVOKER else "Haystack 3"

# For tests that are slow and do not depend on Haystack's version.
on_one_major = pytest.mark.skipif(HAYSTACK != "Haystack 3", reason="runs on Haystack 3")
