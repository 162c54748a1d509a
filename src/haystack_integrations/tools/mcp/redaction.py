# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What may be shown of values that may be secret.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from haystack.utils import Secret

REDACTED = "***"

# Shorter values (a port, "true") are words of every log line.
SHORTEST_SECRET = 6

_SECRET_NAME = re.compile(r"(?i)(token|key|secret|password|passwd|credential|auth|cookie)")

# `NAME=value`, `--name=value`, `Name: value` and `"name": "value"`, as in environment variables, options, HTTP headers,
# connection strings and JSON.
_ASSIGNMENT = re.compile(r"(?P<name>-{0,2}[A-Za-z_][\w.-]*)[\"']?\s*(?:=|:(?!//))\s*")

# How pydantic, which validates the arguments for servers in Python, shows a value it refuses: cut in the middle.
_REFUSED_VALUE = re.compile(r"input_value=.*?(?=, input_type=)", re.DOTALL)


def redact_url(url: str) -> str:
    """
    Give a URL without what may be secret in it: user info, the values of the query, the fragment.

    :param url: The URL.
    :returns: The URL, fit for messages.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return REDACTED
    if not parts.netloc:  # no URL, or one without its scheme: where its secrets are is anybody's guess
        return url.partition("?")[0].rpartition("@")[2]
    host = parts.netloc.rpartition("@")[2]
    query = "&".join(f"{pair.partition('=')[0]}={REDACTED}" for pair in parts.query.split("&") if pair)
    return urlunsplit((parts.scheme, host, parts.path, query, ""))


def redact_args(args: Iterable[str]) -> list[str]:
    """
    Give command line arguments without the values of options that look like credentials.

    :param args: The arguments.
    :returns: The arguments, fit for messages.
    """
    shown: list[str] = []
    hide_next = False
    for arg in args:
        hidden = hide_next and not arg.startswith("-")
        redacted = REDACTED if hidden else _redact_arg(arg)
        shown.append(redacted)
        hide_next = arg.startswith("-") and "=" not in arg and _SECRET_NAME.search(arg) is not None
    return shown


def _redact_arg(arg: str) -> str:
    # What follows the first name that sounds like a secret goes unseen, to the end: where a value ends, only the
    # server knows.
    secret = next((match for match in _ASSIGNMENT.finditer(arg) if _SECRET_NAME.search(match["name"])), None)
    shown = arg if secret is None else arg[: secret.end()]
    shown = redact_url(shown) if "://" in shown else shown
    return shown if secret is None or shown.endswith(REDACTED) else f"{shown}{REDACTED}"


def redact(value: Any) -> Any:
    """
    Give a value that may be secret in a form that can be shown.

    :param value: A string, a Secret, or a mapping of such.
    :returns: The names of the environment variables of a Secret; stars in the place of everything else.
    """
    if isinstance(value, Mapping):
        return {key: redact(item) for key, item in value.items()}
    if isinstance(value, Secret):
        # An environment variable's name is what an operator looks for; a token has nothing to show.
        data = value.__dict__
        return f"env:{'|'.join(data['_env_vars'])}" if "_env_vars" in data else REDACTED
    return value if value is None else REDACTED


def redact_secrets(value: Any) -> Any:
    """
    Give a value with every Secret in it in a form that can be shown.

    :param value: Any value.
    :returns: The value; of a Secret what `redact` makes of it.
    """
    if isinstance(value, Mapping):
        return {key: redact_secrets(item) for key, item in value.items()}
    return redact(value) if isinstance(value, Secret) else value


def redact_values(text: str, values: Mapping[str, Any]) -> str:
    """
    Take values that must not be shown out of a text that somebody else wrote.

    :param text: The text.
    :param values: The values, by any names. What is in them counts, too.
    :returns: The text without those of at least 6 characters, where they are quoted whole, and without all values that
        pydantic quotes.
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
