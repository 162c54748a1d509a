# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, quote_plus

from haystack.utils import Secret

from haystack_integrations.tools.mcp.cli.files import variable_name
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_text, secrets_in
from haystack_integrations.tools.mcp.secret_template import from_template

_SCHEME = re.compile(r"(?i)(?P<scheme>bearer|basic|token)\s+(?P<credentials>\S+)")

_FIELDS = ("command", "args", "env", "cwd", "url", "headers", "token")


def without_plain_secrets(name: str, info: MCPServerInfo) -> tuple[MCPServerInfo, dict[str, str]]:
    """
    Replace the secrets that stand in a server info as plain text by environment variables.

    :param name: The server's name, for the names of the variables.
    :param info: The server info.
    :returns: The server info, and the variables with the places that they are for.
    """
    changes: dict[str, Any] = {}
    variables: dict[str, str] = {}
    prefix = variable_name(name)

    def replaced(value: Any, field: str, key: str, place: str, found: set[str]) -> Any:
        if not isinstance(value, str) or (field == "env" and not found):
            return value
        if not found and redact_text(value) == value:
            return value
        variable = key if field == "env" and key.isidentifier() else f"{prefix}_{variable_name(key)}"

        def variable_for_next() -> str:
            number, name = 1, variable
            while name in variables:
                number, name = number + 1, f"{variable}_{number + 1}"
            variables[name] = place
            return f"${{{name}}}"

        return from_template(_with_variables(value, found, variable_for_next))

    for field in _FIELDS:
        value = getattr(info, field, None)
        if isinstance(value, Mapping):
            # Of variables, only those that are named as secrets: the others are better read.
            searched = "variables" if field == "env" else field
            changes[field] = {
                key: replaced(item, field, str(key), f"{field}.{key}", _plain_secrets({searched: {key: item}}))
                for key, item in value.items()
            }
        elif isinstance(value, (list, tuple)):
            secrets = _plain_secrets({field: [item if isinstance(item, str) else "" for item in value]})
            changes[field] = [
                replaced(item, field, f"{field}_{number}", f"{field}[{number}]", set(_within(item, secrets)))
                for number, item in enumerate(value)
            ]
        elif isinstance(value, str):
            changes[field] = replaced(value, field, field, field, _plain_secrets({field: value}))
    return (dataclasses.replace(info, **changes) if variables else info), variables  # type: ignore[type-var]


def _plain_secrets(fields: Mapping[str, Any]) -> set[str]:
    has_reference = any(isinstance(item, Secret) for value in fields.values() for item in _items(value))
    return set() if has_reference else {secret for secret in secrets_in(fields) if secret}


def _items(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    else:
        yield value


def _within(text: Any, secrets: set[str]) -> Iterator[str]:
    yield from (secret for secret in secrets if isinstance(text, str) and secret in text)


def _with_variables(value: str, secrets: set[str], next_variable: Callable[[], str]) -> str:
    scheme = _SCHEME.fullmatch(value)
    if scheme is not None:
        return f"{scheme['scheme']} {next_variable()}"
    # In a URL, they may be encoded.
    written = {form for secret in secrets for form in (secret, quote(secret, safe=""), quote_plus(secret))}
    found = [form for form in sorted(written, key=len, reverse=True) if form in value]
    parts = re.split("|".join(map(re.escape, found)), value) if found else [value]
    rest = "".join(parts)
    if len(parts) == 1 or _plain_secrets({"url": rest}) or redact_text(rest) != rest:
        return next_variable()  # there is one that cannot be told from the rest
    return "".join([parts[0], *(f"{next_variable()}{part}" for part in parts[1:])])
