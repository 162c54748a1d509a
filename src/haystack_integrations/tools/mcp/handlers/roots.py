# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The folders and files that a server may work on.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mcp_types as types

from haystack_integrations.tools.mcp.handlers import is_root


def roots_result(roots: Any) -> types.ListRootsResult:
    """
    Answer a request for roots.

    :param roots: Paths, `file://` URIs, or roots of the MCP SDK.
    :returns: The answer. Relative paths are resolved now.
    :raises TypeError: If it is something else.
    """
    if isinstance(roots, types.ListRootsResult):
        return roots
    if isinstance(roots, (str, Path)) or not isinstance(roots, Iterable):
        msg = f"roots must be a list of paths or file:// URIs, got {type(roots).__name__}"
        raise TypeError(msg)
    return types.ListRootsResult(roots=[_root(root) for root in roots])


def _root(root: Any) -> types.Root:
    if isinstance(root, types.Root):
        return root
    if not is_root(root):
        what = f"{urlsplit(root).scheme}://…" if isinstance(root, str) and "://" in root else type(root).__name__
        msg = f"a root must be a path or a file:// URI, got {what}"
        raise TypeError(msg)
    if isinstance(root, str) and "://" in root:
        return types.Root.model_validate({"uri": root})
    path = Path(root).expanduser().absolute()
    return types.Root.model_validate({"uri": path.as_uri(), "name": path.name or str(path)})
