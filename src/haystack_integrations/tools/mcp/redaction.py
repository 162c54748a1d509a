# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Redaction of possibly secret values in messages, `repr`, logs and traces.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from haystack.utils import Secret

REDACTED = "***"

# Fields of server infos whose values are never shown, Secrets or not.
SECRET_FIELDS = frozenset({"api_key", "env", "headers", "password", "secret", "token"})

# Shorter values (a port, "true") occur in many log lines without being secrets.
SHORTEST_SECRET = 6

_SECRET_NAME = re.compile(r"(?i)(token|key|secret|password|passwd|credential|auth|cookie)")

# The name in `NAME=value`, `--name=value`, `Name: value` and `"name": "value"`: environment variables, options, HTTP
# headers, connection strings and JSON.
_ASSIGNMENT = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)[\"']?\s*(?:=|:(?!//))\s*")

# Servers in Python validate arguments with pydantic, whose errors abbreviate the value, so a search for the whole value
# does not find it.
_REFUSED_VALUE = re.compile(r"input_value=.*?(?=, input_type=)", re.DOTALL)


def redact_url(url: str) -> str:
    """
    Remove the parts of a URL that may be secret: user info, query values and fragment.

    :param url: The URL.
    :returns: The redacted URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return REDACTED
    if not parts.netloc:  # not a URL, or one without a scheme: only what is between "@" and "?" can be shown
        return url.partition("?")[0].rpartition("@")[2]
    host = parts.netloc.rpartition("@")[2]
    query = "&".join(f"{pair.partition('=')[0]}={REDACTED}" for pair in parts.query.split("&") if pair)
    return urlunsplit((parts.scheme, host, parts.path, query, ""))


def redact_args(args: Iterable[str]) -> list[str]:
    """
    Redact the values of command line options that look like credentials.

    :param args: The arguments.
    :returns: The redacted arguments.
    """
    redacted: list[str] = []
    hide_next = False
    for arg in args:
        hidden = hide_next and not arg.startswith("-")
        redacted.append(REDACTED if hidden else _redact_arg(arg))
        hide_next = arg.startswith("-") and "=" not in arg and _SECRET_NAME.search(arg) is not None
    return redacted


def _redact_arg(arg: str) -> str:
    # Everything after the first secret-sounding name is redacted: only the server knows where the value ends.
    secret = next((match for match in _ASSIGNMENT.finditer(arg) if _SECRET_NAME.search(match["name"])), None)
    redacted = arg if secret is None else arg[: secret.end()]
    redacted = redact_url(redacted) if "://" in redacted else redacted
    return redacted if secret is None or redacted.endswith(REDACTED) else f"{redacted}{REDACTED}"


def redact(value: Any) -> Any:
    """
    Redact a value that may be secret.

    :param value: A string, a Secret, a mapping of these, or None.
    :returns: For a Secret from environment variables their names, for anything else stars. Mappings keep their keys.
    """
    if isinstance(value, Mapping):
        return {key: redact(item) for key, item in value.items()}
    if isinstance(value, Secret):
        # The name of the environment variable tells an operator what to look for.
        data = value.__dict__
        return f"env:{'|'.join(data['_env_vars'])}" if "_env_vars" in data else REDACTED
    return value if value is None else REDACTED


def redact_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """
    Redact the fields of a server info for its `repr` and for traces.

    :param fields: The values by their names.
    :returns: The same with the values of `SECRET_FIELDS` (HTTP headers, tokens, environment variables, …) redacted, and
        every Secret elsewhere.
    """
    return {name: redact(value) if name in SECRET_FIELDS else redact_secrets(value) for name, value in fields.items()}


def redact_secrets(value: Any) -> Any:
    """
    Redact the Secrets in a value and keep the rest.

    :param value: Any value; mappings are searched.
    :returns: The value with every Secret replaced as in `redact`.
    """
    if isinstance(value, Mapping):
        return {key: redact_secrets(item) for key, item in value.items()}
    return redact(value) if isinstance(value, Secret) else value


def redact_values(text: str, values: Mapping[str, Any]) -> str:
    """
    Redact values in a text, such as a server's error message.

    :param text: The text.
    :param values: The values to redact, by any names. Strings and numbers inside mappings and lists count, too.
    :returns: The text in which every full quotation of a value of at least 6 characters is redacted, and every value
        that pydantic quotes. If there are no values, the text is unchanged.
    """
    if not values:
        return text
    quoted = {form for value in _scalars(values) for form in _quoted_forms(value) if len(form) >= SHORTEST_SECRET}
    for form in sorted(quoted, key=len, reverse=True):
        text = text.replace(form, REDACTED)
    return _REFUSED_VALUE.sub(f"input_value={REDACTED}", text)


def _scalars(values: Any) -> Iterator[str | int | float]:
    pending, seen = [values], set()
    while pending:
        value = pending.pop()
        if isinstance(value, (str, int, float)):
            yield value
        elif isinstance(value, (Mapping, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            pending += value.values() if isinstance(value, Mapping) else value


def _quoted_forms(value: str | int | float) -> tuple[str, ...]:
    if not isinstance(value, str):
        return (str(value),)
    return value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]
