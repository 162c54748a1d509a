# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
The names under which the model sees the tools of a server.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final

_MAX_LENGTH: Final = 64
_MAX_SHOWN: Final = 200
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")


def check_prefix(prefix: object) -> None:
    """
    Check a tool name prefix.

    :param prefix: The prefix, without the underscore that will join it to a tool's name.
    :raises ValueError: If it is not 1 to 32 ASCII letters, digits, underscores or hyphens.
    """
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        msg = f"tool_name_prefix must be 1 to 32 characters out of A-Z, a-z, 0-9, '_' and '-', not {_shown(prefix)}"
        raise ValueError(msg)


def provider_safe_name(remote_name: str, prefix: str | None = None) -> str:
    """
    Make the name under which the model sees a tool: `^[A-Za-z0-9_-]{1,64}$`, depending on nothing but the arguments.

    A name that is already safe stays as it is. Other characters become underscores. A name that is too long keeps its
    head and ends in a hash of the whole, so that names that differ only in their tails stay apart.

    :param remote_name: The name the server gave the tool.
    :param prefix: Put before the name, joined by an underscore.
    :returns: The safe name.
    :raises ValueError: If the name is empty or the prefix not valid.
    """
    if not remote_name:
        msg = "a tool's name must not be empty"
        raise ValueError(msg)
    full = remote_name
    if prefix is not None:
        check_prefix(prefix)
        full = f"{prefix}_{remote_name}"
    safe = _UNSAFE.sub("_", full)
    if len(safe) <= _MAX_LENGTH:
        return safe
    # JSON can carry lone surrogates, which plain UTF-8 cannot.
    digest = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe[: _MAX_LENGTH - 1 - len(digest)]}_{digest}"


def assign_tool_names(remote_names: Iterable[str], prefix: str | None = None) -> dict[str, str]:
    """
    Give every tool of a server the name under which the model sees it.

    :param remote_names: The names the server gave its tools.
    :param prefix: Put before each name, joined by an underscore.
    :returns: The safe name of each remote name, in their order.
    :raises ValueError: If a remote name occurs twice, or two of them have the same safe name.
    """
    assigned: dict[str, str] = {}
    owners: dict[str, str] = {}
    for remote_name in remote_names:
        if remote_name in assigned:
            msg = f"the server lists two tools named {_shown(remote_name)}"
            raise ValueError(msg)
        safe = provider_safe_name(remote_name, prefix)
        if safe in owners:
            msg = (
                f"the tools {_shown(owners[safe])} and {_shown(remote_name)} would both be called {safe!r}: "
                "pass tool_names=... to choose one of them, or tool_name_prefix=... to change the names"
            )
            raise ValueError(msg)
        owners[safe] = remote_name
        assigned[remote_name] = safe
    return assigned


def _shown(value: Any) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_SHOWN else f"{value[:_MAX_SHOWN]}...")
    return type(value).__name__
