# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What may be shown of values that may be secret.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from haystack.utils import Secret

REDACTED = "***"

_SECRET_OPTION = re.compile(r"(?i)(token|key|secret|password|passwd|credential|auth)")


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
        name, equals, _ = arg.partition("=")
        is_option = arg.startswith("-") and _SECRET_OPTION.search(name) is not None
        if hide_next and not arg.startswith("-"):
            shown.append(REDACTED)
        elif is_option and equals:
            shown.append(f"{name}={REDACTED}")
        else:
            shown.append(arg)
        hide_next = is_option and not equals
    return shown


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
