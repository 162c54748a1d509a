# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Log messages of servers, in Haystack's logging.
"""

from __future__ import annotations

import json
import logging as stdlib_logging
import re
from typing import TYPE_CHECKING, Any

from haystack import logging

if TYPE_CHECKING:
    import mcp_types as types

    from haystack_integrations.tools.mcp.redaction import Redactor

LOGGER_NAME = "haystack_integrations.tools.mcp.servers"

_LEVELS = {
    "debug": stdlib_logging.DEBUG,
    "info": stdlib_logging.INFO,
    "notice": stdlib_logging.INFO,
    "warning": stdlib_logging.WARNING,
    "error": stdlib_logging.ERROR,
    "critical": stdlib_logging.CRITICAL,
    "alert": stdlib_logging.CRITICAL,
    "emergency": stdlib_logging.CRITICAL,
}

_LONGEST = 10_000


def log_message(server_name: str, params: types.LoggingMessageNotificationParams, redactor: Redactor) -> None:
    """
    Write a server's log message to the logger of this server.

    :param server_name: What the server calls itself.
    :param params: The message.
    :param redactor: Redacts the secrets that the server was given.
    """
    name = re.sub(r"[^\w-]+", "_", server_name)[:64] or "unnamed"
    logger = logging.getLogger(f"{LOGGER_NAME}.{name}")
    level = _LEVELS.get(params.level, stdlib_logging.INFO)
    if not stdlib_logging.getLogger(f"{LOGGER_NAME}.{name}").isEnabledFor(level):
        return
    text = redactor.text(_as_text(params.data))
    origin = f"{redactor.text(params.logger)}: " if params.logger else ""
    logger.log(level, "{origin}{text}", origin=_line(origin), text=_line(text))


def _as_text(data: Any) -> str:
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)


def _line(text: str) -> str:
    # Control characters of a server must not forge lines of the log, or steer a terminal.
    text = text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
