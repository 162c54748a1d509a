# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Validation of server info fields, and resolution of their secrets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from numbers import Real
from typing import Any, NoReturn, TypeGuard

from haystack import logging
from haystack.utils import Secret

from haystack_integrations.tools.mcp.protocol.server_info import NEGOTIATIONS
from haystack_integrations.tools.mcp.secret_template import value_of

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Far more than a model can read, and than an image or a listing of 5,000 tools takes. What nobody can take apart of so
# large a message, such as copying it, takes 10 to 40 ms.
DEFAULT_MAX_MESSAGE_SIZE = 16 * 1024 * 1024

# The answer to a handshake must fit.
_SMALLEST_MESSAGE_SIZE = 1024


def refuse(owner: object, text: str) -> NoReturn:
    """
    Refuse a parameter.

    :param owner: The server info.
    :param text: What is wrong.
    :raises ValueError: Always.
    """
    msg = f"{type(owner).__name__}: {text}"
    raise ValueError(msg)


def is_number(value: object) -> TypeGuard[float]:
    """
    Tell whether a value is a finite number, and no bool.

    :param value: The value.
    :returns: Whether it is one.
    """
    return isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)


def check_number(owner: object, parameter: str, *, minimum: float, exclusive: bool = False) -> None:
    """
    Check that a field is a finite number and not below its minimum.

    :param owner: The server info.
    :param parameter: Name of the field.
    :param minimum: The smallest valid value.
    :param exclusive: Whether the minimum itself is invalid, too.
    :raises ValueError: If the value is invalid. The message names the parameter and its minimum.
    """
    value = getattr(owner, parameter)
    if not is_number(value) or value < minimum or (exclusive and value == minimum):
        bound = f"greater than {minimum:g}" if exclusive else f"at least {minimum:g}"
        refuse(owner, f"`{parameter}` must be a number {bound}, got {value!r}")


def check_secrets(owner: object, parameter: str) -> None:
    """
    Check that a field is None or a mapping from strings to strings or Secrets.

    :param owner: The server info.
    :param parameter: Name of the field.
    :raises ValueError: If the field is invalid. The message names the parameter and contains no values.
    """
    value = getattr(owner, parameter)
    if value is not None and not isinstance(value, Mapping):
        refuse(owner, f"`{parameter}` must be a dict or None, got {type(value).__name__}")
    for key, item in (value or {}).items():
        if not isinstance(key, str) or not isinstance(item, (str, Secret)):
            kind = type(item).__name__
            refuse(owner, f"`{parameter}` maps strings to strings or Secrets; the value of {key!r} is of type {kind}")


def check_shared_fields(info: Any) -> None:
    """
    Check the fields that server infos share.

    :param info: The server info. One of a server in this process has no retries, and no limit of messages.
    :raises ValueError: If a value is invalid. The message names the parameter and its valid values.
    """
    if hasattr(info, "max_retries"):
        for parameter in ("max_retries", "base_delay", "max_delay"):
            check_number(info, parameter, minimum=0)
        if not isinstance(info.max_retries, int):
            refuse(info, f"`max_retries` must be a whole number, got {info.max_retries!r}")
        size, least = info.max_message_size, _SMALLEST_MESSAGE_SIZE
        if not _is_whole(size, least):
            refuse(info, f"`max_message_size` must be a whole number of bytes, at least {least}, got {size!r}")
    most = info.max_in_flight
    if most is not None and not _is_whole(most, 1):
        refuse(info, f"`max_in_flight` must be a whole number from 1, or None for no limit, got {most!r}")
    if info.failure_pause is not None:
        check_number(info, "failure_pause", minimum=0, exclusive=True)
    if info.negotiation not in NEGOTIATIONS:
        *others, last = map(repr, NEGOTIATIONS)
        refuse(info, f"`negotiation` must be {', '.join(others)} or {last}, got {info.negotiation!r}")


def _is_whole(value: Any, minimum: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def resolve_secrets(values: Mapping[str, str | Secret] | None) -> dict[str, str]:
    """
    Replace Secrets with their values.

    :param values: Headers or environment variables.
    :returns: The values as strings. Entries whose optional Secret has no value are omitted, with a warning.
    :raises ValueError: If a required Secret has no value.
    """
    resolved: dict[str, str] = {}
    for name, value in (values or {}).items():
        plain = value_of(value, name) if isinstance(value, Secret) else value
        if plain is None:
            logger.warning("The optional Secret for '{key}' has no value, so '{key}' is omitted", key=name)
        else:
            resolved[name] = str(plain)
    return resolved
