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
from typing import Any

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
    valid = isinstance(value, Real) and not isinstance(value, bool) and math.isfinite(value)
    if not valid or value < minimum or (exclusive and value == minimum):
        bound = f"greater than {minimum:g}" if exclusive else f"at least {minimum:g}"
        msg = f"{type(owner).__name__}: `{parameter}` must be a number {bound}, got {value!r}"
        raise ValueError(msg)


def check_secrets(owner: object, parameter: str) -> None:
    """
    Check that a field is None or a mapping from strings to strings or Secrets.

    :param owner: The server info.
    :param parameter: Name of the field.
    :raises ValueError: If the field is invalid. The message names the parameter and contains no values.
    """
    value = getattr(owner, parameter)
    if value is None:
        return
    if not isinstance(value, Mapping):
        msg = f"{type(owner).__name__}: `{parameter}` must be a dict or None, got {type(value).__name__}"
        raise ValueError(msg)
    for key, item in value.items():
        if not isinstance(key, str) or not isinstance(item, (str, Secret)):
            msg = (
                f"{type(owner).__name__}: `{parameter}` maps strings to strings or Secrets; "
                f"the value of {key!r} is of type {type(item).__name__}"
            )
            raise ValueError(msg)


def check_retries(info: Any) -> None:
    """
    Check `max_retries`, `base_delay` and `max_delay`.

    :param info: The server info.
    :raises ValueError: If a value is invalid. The message names the parameter and its minimum.
    """
    check_number(info, "max_retries", minimum=0)
    if not isinstance(info.max_retries, int):
        msg = f"{type(info).__name__}: `max_retries` must be a whole number, got {info.max_retries!r}"
        raise ValueError(msg)
    check_number(info, "base_delay", minimum=0)
    check_number(info, "max_delay", minimum=0)


def check_gate(info: Any) -> None:
    """
    Check `max_in_flight` and `failure_pause`.

    :param info: The server info.
    :raises ValueError: If a value is invalid. The message names the parameter and its valid values.
    """
    most = info.max_in_flight
    if most is not None and (not isinstance(most, int) or isinstance(most, bool) or most < 1):
        msg = (
            f"{type(info).__name__}: `max_in_flight` must be a whole number from 1, or None for no limit, got {most!r}"
        )
        raise ValueError(msg)
    if info.failure_pause is not None:
        check_number(info, "failure_pause", minimum=0, exclusive=True)


def check_negotiation(info: Any) -> None:
    """
    Check `negotiation`.

    :param info: The server info.
    :raises ValueError: If it is none of the choices, which the message names.
    """
    if info.negotiation not in NEGOTIATIONS:
        *others, last = map(repr, NEGOTIATIONS)
        msg = f"{type(info).__name__}: `negotiation` must be {', '.join(others)} or {last}, got {info.negotiation!r}"
        raise ValueError(msg)


def check_message_size(info: Any) -> None:
    """
    Check `max_message_size`.

    :param info: The server info.
    :raises ValueError: If it is no whole number, or too small for any session. The message names the parameter.
    """
    size = info.max_message_size
    if not isinstance(size, int) or isinstance(size, bool) or size < _SMALLEST_MESSAGE_SIZE:
        msg = (
            f"{type(info).__name__}: `max_message_size` must be a whole number of bytes, at least "
            f"{_SMALLEST_MESSAGE_SIZE}, got {size!r}"
        )
        raise ValueError(msg)


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
