# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
The names under which the model sees a server's tools.
"""

import hashlib
import re
from collections.abc import Iterable
from typing import Any, Final

_MAX_LENGTH: Final = 64
_MAX_QUOTED: Final = 200
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]")
_PREFIX: Final = re.compile(r"[A-Za-z0-9_-]{1,32}")


def check_prefix(prefix: object) -> None:
    """
    Validate a tool name prefix.

    :param prefix: The prefix, without the underscore that joins it to a tool's name.
    :raises ValueError: If it is not 1 to 32 ASCII letters, digits, underscores or hyphens.
    """
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        msg = f"tool_name_prefix must be 1 to 32 characters from A-Z, a-z, 0-9, '_' and '-', not {_quote(prefix)}"
        raise ValueError(msg)


def provider_safe_name(remote_name: str, prefix: str | None = None) -> str:
    """
    Make the name under which the model sees a tool. It matches `^[A-Za-z0-9_-]{1,64}$`.

    A name that matches stays as it is. Other characters become underscores. The end of a long name is replaced with a
    hash of the whole name, so that long names remain distinct. Equal arguments always give the same name.

    :param remote_name: The server's name of the tool.
    :param prefix: Prefix, joined to the name by an underscore.
    :returns: The safe name.
    :raises ValueError: If the name is empty or the prefix invalid.
    """
    if not remote_name:
        msg = "a tool name must not be empty"
        raise ValueError(msg)
    full = remote_name
    if prefix is not None:
        check_prefix(prefix)
        full = f"{prefix}_{remote_name}"
    safe = _UNSAFE.sub("_", full)
    if len(safe) <= _MAX_LENGTH:
        return safe
    # JSON strings may contain lone surrogates, which strict UTF-8 cannot encode.
    digest = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{safe[: _MAX_LENGTH - 1 - len(digest)]}_{digest}"


def assign_tool_names(remote_names: Iterable[str], prefix: str | None = None) -> dict[str, str]:
    """
    Assign a safe name to every tool of a server.

    :param remote_names: The server's names of its tools.
    :param prefix: Prefix, joined to every name by an underscore.
    :returns: Safe names by remote name, in the given order.
    :raises ValueError: If a remote name occurs twice, or two remote names have the same safe name.
    """
    assigned: dict[str, str] = {}
    owners: dict[str, str] = {}
    for remote_name in remote_names:
        if remote_name in assigned:
            msg = f"the server lists two tools named {_quote(remote_name)}"
            raise ValueError(msg)
        safe = provider_safe_name(remote_name, prefix)
        if safe in owners:
            msg = (
                f"the tools {_quote(owners[safe])} and {_quote(remote_name)} would both be called {safe!r}. "
                "Choose one of them with tool_names=[...]."
            )
            raise ValueError(msg)
        owners[safe] = remote_name
        assigned[remote_name] = safe
    return assigned


def _quote(value: Any) -> str:
    if isinstance(value, str):
        return repr(value if len(value) <= _MAX_QUOTED else f"{value[:_MAX_QUOTED]}...")
    return type(value).__name__
