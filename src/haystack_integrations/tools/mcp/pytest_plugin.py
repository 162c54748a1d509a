# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The pytest plugin that plays cassettes. It imports nothing until a test uses it.
"""

from __future__ import annotations

import re
import warnings
import zlib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from haystack_integrations.tools.mcp.durable import Cassette

# Longer names of cassettes are cut. File systems allow 255 characters.
_MAX_NAME = 150

_FILE = "mcp_cassette(file): the cassette of `mcp_cassette`, relative to the folder of the test"


def pytest_addoption(parser: pytest.Parser) -> None:
    """
    Add the option that selects which cassettes are recorded.

    :param parser: The command line of pytest.
    """
    parser.getgroup("mcp-haystack").addoption(
        "--mcp-record-mode",
        choices=("none", "once", "all"),
        default="none",
        help="Cassettes of agents: play them (none, the default), record those that are missing (once), or all (all).",
    )


def pytest_configure(config: pytest.Config) -> None:
    """
    Declare the marker.

    :param config: The configuration of pytest.
    """
    config.addinivalue_line("markers", _FILE)


@pytest.fixture
def mcp_cassette(request: pytest.FixtureRequest) -> Iterator[Cassette]:
    """
    Provide the test's own cassette, in `cassettes/` next to the test file, for a `with` or `async with` block.
    """
    from haystack_integrations.tools.mcp.durable import Cassette  # noqa: PLC0415 - only where it is used

    marker = request.node.get_closest_marker("mcp_cassette")
    # The name includes the test's classes, because several classes may have tests of the same name.
    test = request.node.nodeid.partition("::")[2].replace("::", ".")
    file_name = re.sub(r"[^\w.-]+", "_", test)
    if len(file_name) > _MAX_NAME or re.search(r"[^][\w.-]", test):  # parameters may differ in other characters only
        file_name = f"{file_name[:_MAX_NAME]}-{zlib.crc32(test.encode()):08x}"
    named = (*marker.args, *marker.kwargs.values()) if marker else ()
    file = named[0] if named else f"cassettes/{request.path.stem}/{file_name}.json"
    mode: Any = request.config.getoption("--mcp-record-mode")
    cassette = Cassette(request.path.parent / file, mode)
    yield cassette
    if not cassette._was_entered:
        msg = "This test did not enter `with mcp_cassette:`, so nothing was recorded or replayed"
        warnings.warn(pytest.PytestWarning(msg), stacklevel=1)
