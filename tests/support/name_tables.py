# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Guides with a table that says where each name of another library is here, and which test shows it.
"""

import dataclasses
import inspect
import re
from typing import Any

from haystack.components.agents import Agent
from mcp import types

from haystack_integrations.tools import mcp as package
from haystack_integrations.tools.mcp.connection.requests import CallOptions, RepeatableCallOptions
from tests.support.pages import ROOT, Page

# What tables may name beside the public names of the package.
_OTHERS = {"Agent": Agent, "types": types}


class NameTables:
    """
    The tables of a guide: their first column has the other library's names, the second ours, the last the test.
    """

    def __init__(self, page: str) -> None:
        lines = re.findall(r"^\| (`.+) \|$", Page(page).text, re.MULTILINE)
        self.rows: list[list[list[str]]] = [
            [re.findall(r"`([^`]+)`", cell) for cell in line.split(" | ")] for line in lines
        ]

    @property
    def theirs(self) -> list[str]:
        return [name for row in self.rows for name in row[0]]

    def check_ours(self) -> None:
        """
        Check that each row names something of ours, and that all of it exists.
        """
        named = [[name for name in row[1] if re.fullmatch(r"[\w.]+", name)] for row in self.rows]
        assert all(named)
        assert {name for names in named for name in names if not _is_there(name)} == set()

    def check_tests(self) -> None:
        """
        Check that each row names one test, and that all of them exist.
        """
        missing = set()
        for row in self.rows:
            assert len(row[2]) == 1, row
            path, _, test = row[2][0].partition("::")
            file = ROOT / "tests" / path
            if not file.is_file() or not re.search(rf"^ *(?:async )?def {test}\(", file.read_text(), re.MULTILINE):
                missing.add(row[2][0])
        assert missing == set()


def _has(owner: Any, name: str) -> bool:
    """Whether a class or function has an attribute, a field or a parameter of that name."""
    fields = {field.name for field in dataclasses.fields(owner)} if dataclasses.is_dataclass(owner) else set()
    function = owner.__init__ if inspect.isclass(owner) else owner
    parameters = {*inspect.signature(function).parameters} if callable(function) else set()
    if "options" in parameters:
        parameters |= RepeatableCallOptions.__annotations__.keys() | CallOptions.__annotations__.keys()
    return hasattr(owner, name) or name in fields or name in parameters or name in getattr(owner, "model_fields", ())


def _is_there(name: str) -> bool:
    first, *rest = name.split(".")
    owner: Any = _OTHERS.get(first) or getattr(package, first, None)
    for part in rest:
        if owner is None or not _has(owner, part):
            return False
        owner = getattr(owner, part, None)
    return first in _OTHERS or first in package.__all__
