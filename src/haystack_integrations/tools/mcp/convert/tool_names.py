# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
The names under which the model sees a server's tools.
"""

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from pydantic import Field

from haystack_integrations.tools.mcp.convert.server_texts import visible_text

_MAX_LENGTH: Final = 64
# How many names a message lists at most, and how many it suggests.
_FEW_NAMES: Final = 10
_CLOSEST_NAMES: Final = 3
# Gemini and Kimi refuse a name that begins with a digit, or with `-`, so it gets an underscore in front.
_UNSAFE: Final = re.compile(r"[^A-Za-z0-9_-]|^(?=[0-9-])")
_MAX_PREFIX_LENGTH: Final = 32

# Anthropic refuses a whole request if one argument of one tool has a name that does not match.
_SAFE_ARGUMENT: Final = re.compile(r"[A-Za-z0-9_.-]{1,64}")

ToolNamePrefix: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,32}$")]
ExposedName: TypeAlias = Annotated[str, Field(pattern=r"^[A-Za-z0-9_-]{1,64}$")]


def provider_safe_name(remote_name: str, prefix: str | None = None) -> str:
    """
    Make the name under which the model sees a tool. It matches `^[A-Za-z_][A-Za-z0-9_-]{0,63}$`.

    A name that matches is kept. Other characters become underscores, and one is put in front of a digit. The end of a
    long name is replaced with a hash of the whole name, so that long names remain distinct. Equal arguments always
    produce the same name.

    :param remote_name: The server's name of the tool.
    :param prefix: Prefix, joined to the name by an underscore.
    :returns: The safe name.
    :raises ValueError: If the name is empty.
    """
    if not remote_name:
        msg = "a tool name must not be empty"
        raise ValueError(msg)
    full = _prefixed(remote_name, prefix)
    safe = _UNSAFE.sub("_", full)
    return safe if len(safe) <= _MAX_LENGTH else _hashed(full)


def _prefixed(remote_name: str, prefix: str | None) -> str:
    if prefix is None:
        return remote_name
    return f"{prefix}_{remote_name}"


def _hashed(full: str) -> str:
    # JSON strings may contain lone surrogates, which strict UTF-8 cannot encode.
    digest = hashlib.sha256(full.encode("utf-8", "surrogatepass")).hexdigest()[:8]
    return f"{_UNSAFE.sub('_', full)[: _MAX_LENGTH - 1 - len(digest)]}_{digest}"


def assign_tool_names(
    remote_names: Iterable[str], prefix: str | None = None, renamed: Mapping[str, str] | None = None
) -> dict[str, str]:
    """
    Assign a safe name to every tool of a server.

    If the safe names of several tools would be equal, each ends in a hash of its whole name, except one whose own name
    is already safe. So the names do not depend on the order of the tools.

    :param remote_names: The server's names of its tools.
    :param prefix: Prefix, joined to every name by an underscore.
    :param renamed: Different names by remote name, which are used unchanged.
    :returns: Safe names by remote name, in the given order.
    :raises ValueError: If a remote name occurs twice.
    """
    chosen = dict(renamed or {})
    assigned: dict[str, str] = {}
    for remote_name in remote_names:
        if remote_name in assigned:
            msg = f"the server lists two tools named {remote_name!r:.200}"
            raise ValueError(msg)
        assigned[remote_name] = chosen.get(remote_name) or provider_safe_name(remote_name, prefix)
    reserved, claims = set(chosen.values()), Counter(assigned.values())
    merged = [
        name
        for name, safe in assigned.items()
        if name not in chosen and (safe in reserved or (claims[safe] > 1 and safe != _prefixed(name, prefix)))
    ]
    return assigned | {name: _hashed(_prefixed(name, prefix)) for name in merged}


def with_safe_arguments(schema: dict[str, Any]) -> tuple[dict[str, Any], dict[str, str]]:
    """
    Rename arguments such as `filter[id]` and `$top`, whose names some model providers refuse.

    :param schema: The result of `normalize_parameters`. It is not changed.
    :returns: The schema, and the original names of the renamed arguments by their new names.
    """
    renamed: dict[str, str] = {}
    taken = {name for name in schema["properties"] if _SAFE_ARGUMENT.fullmatch(name)}
    for name in schema["properties"]:
        if name in taken:
            continue
        safe = re.sub(r"[^A-Za-z0-9_.-]+", "_", name).strip("_")
        if not safe or len(safe) > _MAX_LENGTH or safe in taken or safe in renamed.values():
            safe = _hashed(name)
        renamed[name] = safe
    if not renamed:
        return schema, {}
    # Constraints that relate several arguments are dropped, so the new schema accepts more.
    result = {key: value for key, value in schema.items() if key not in ("dependentRequired", "dependentSchemas")}
    result["properties"] = {
        renamed.get(name, name): {"title": visible_text(name), **each}
        if name in renamed and isinstance(each, dict)
        else each
        for name, each in schema["properties"].items()
    }
    if "required" in schema:
        result["required"] = [renamed.get(name, name) for name in schema["required"]]
    return result, {safe: name for name, safe in renamed.items()}


def prefix_of(name: str) -> str:
    """
    Turn the name of a server into a tool name prefix.

    :param name: Any name.
    :returns: A valid prefix. It contains a hash if the name has no ASCII letters or digits.
    """
    return re.sub(r"[^A-Za-z0-9_-]+", "_", name).strip("_")[:_MAX_PREFIX_LENGTH] or f"server{_hashed(name)[-9:]}"


def describe_choices(wanted: Sequence[str], available: Sequence[str], owner: str, kind: str = "tools") -> str:
    """
    Suggest names for an error message about tools, or other things, that do not exist.

    :param wanted: The names that do not exist.
    :param available: The names that exist.
    :param owner: The server or object that has them, for the message.
    :param kind: The plural noun for the things.
    :returns: Sentences with the closest names and the number of names, or with all names if there are few.
    """
    if not available:
        return f"{owner} has no {kind}"
    hints = []
    for name in wanted:
        if closest := " or ".join(map(repr, _closest(name, available))):
            hints.append(f"Did you mean {closest}? " if len(wanted) == 1 else f"For {name!r}, did you mean {closest}? ")
    if len(available) <= _FEW_NAMES:
        return f"{''.join(hints)}Available {kind}: {', '.join(map(_printable, available))}"
    unlike = ", none of them with a similar name" if wanted and not hints else ""
    return f"{''.join(hints)}{owner} has {len(available)} {kind}{unlike}"


def _printable(name: str) -> str:
    return name if name.isprintable() else repr(name)


def _closest(wanted: str, available: Sequence[str]) -> list[str]:
    by_key = {name.casefold(): name for name in reversed(available)}
    key = wanted.casefold()
    # A missing or extra prefix may be more than half of a name, so difflib would not find it.
    prefixed = [other for other in by_key if other.endswith(f"_{key}") or key.endswith(f"_{other}")]
    similar = difflib.get_close_matches(key, by_key, n=_CLOSEST_NAMES)
    return [by_key[other] for other in dict.fromkeys([*prefixed, *similar])][:_CLOSEST_NAMES]
