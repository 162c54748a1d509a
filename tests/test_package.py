# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The public names of the package.
"""

import ast
import importlib.metadata
import inspect
import typing
from pathlib import Path

import pytest

import haystack_integrations.tools.mcp as package
from haystack_integrations.tools.mcp import errors


def test_the_package_has_only_its_public_names():
    assert dir(package) == sorted([*package.__all__, "__version__"])
    namespace: dict[str, object] = {}
    exec("from haystack_integrations.tools.mcp import *", namespace)  # noqa: S102
    assert sorted(set(namespace) - {"__builtins__"}) == sorted(package.__all__)
    for name in package.__all__:
        assert namespace[name].__name__ == name
    # Names of version 2.1, besides those that could also be imported from `mcp_tool`.
    assert {"InMemoryTokenStorage", "MCPToolset", "OAuthConfig"} <= namespace.keys()


def test_the_package_has_its_version_and_documentation():
    assert package.__version__ == importlib.metadata.version("mcp-haystack")
    assert "MCPToolset" in package.__doc__
    with pytest.raises(AttributeError, match="no attribute 'MCPTools'"):
        package.MCPTools  # noqa: B018


def test_every_error_is_public_and_in_the_documented_tree():
    own = [
        name
        for name, kind in vars(errors).items()
        if inspect.isclass(kind) and issubclass(kind, Exception) and kind.__module__ == errors.__name__
    ]
    assert own
    for name in own:
        assert name in errors.__all__
        assert name in typing.cast("str", errors.__doc__)


def test_the_script_for_type_checkers_uses_every_public_name():
    script = ast.parse((Path(__file__).parent / "typing" / "user_view.py").read_text())
    used = {node.id for node in ast.walk(script) if isinstance(node, ast.Name)}
    assert set(package.__all__) - used == set()
