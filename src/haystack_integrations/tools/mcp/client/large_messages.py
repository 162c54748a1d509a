# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Messages of megabytes, read so that the event loop serves the other sessions meanwhile.
"""

from __future__ import annotations

from typing import Any, Final

from haystack import logging
from mcp import types
from mcp.types import jsonrpc_message_adapter, methods
from pydantic_core import from_json

from haystack_integrations.tools.mcp.concurrency import MAX_VALUES, Turns, count_values
from haystack_integrations.tools.mcp.convert.parse_json import count_brackets, parse_in_pieces

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The SDK reads a message into a model at once, and its result into another. So many bytes take it a millisecond, and
# 40 ms if every value in them is invalid.
_MEDIUM: Final = 32_768
# The parser alone takes 15 ms for so many, unless there are more than so many arrays and objects.
_LARGE: Final = 1_500_000
_MANY_CONTAINERS: Final = 50_000

# What a server may ask for. Anything else is not named in the log: it might be a secret, or escapes for a terminal.
_SERVER_METHODS: Final = frozenset(method for method, _ in methods.SERVER_REQUESTS)

# What of a message is as large as the server likes, and not for the SDK's reader to look at.
_CONTENTS: Final = ("result", "params")


class LargeResult(dict[str, Any]):
    """
    The result in a message of more than thirty kilobytes. The SDK must not validate it all at once.
    """


def is_large(data: bytes | str) -> bool:
    """
    Tell whether a message is so large that `parse_large` is to read it.

    :param data: The message.
    :returns: True if it is.
    """
    return len(data) > _LARGE or (len(data) > 2 * _MANY_CONTAINERS and count_brackets(data) > _MANY_CONTAINERS)


def parse(data: bytes | str) -> types.JSONRPCMessage:
    """
    Read a message that is not large.

    :param data: The message.
    :returns: The message; a request without its parameters if they have too many values.
    :raises ValueError: If it is none.
    """
    if len(data) <= _MEDIUM:
        return jsonrpc_message_adapter.validate_json(data, by_name=False)
    return _as_message(from_json(data))


async def parse_large(data: bytes | str) -> types.JSONRPCMessage:
    """
    Read a message in pieces. Other tasks of the event loop run in between.

    :param data: The message.
    :returns: The message, as `parse` would return it.
    :raises ValueError: If it is none.
    """
    return _as_message(await parse_in_pieces(data, Turns()))


def _as_message(value: Any) -> types.JSONRPCMessage:
    if not isinstance(value, dict):
        return jsonrpc_message_adapter.validate_python(value, by_name=False)  # refused, with the SDK's words
    shell: dict[str, Any] = dict(value)
    contents = {name: shell[name] for name in _CONTENTS if isinstance(shell.get(name), dict)}
    shell.update({name: {} for name in contents})
    data = None
    if isinstance(error := shell.get("error"), dict):
        data = error.get("data")
        shell["error"] = {**error, "data": None}
    message = jsonrpc_message_adapter.validate_python(shell, by_name=False)
    if isinstance(message, types.JSONRPCRequest) and count_values(contents.get("params"))[0] > MAX_VALUES:
        # The SDK would validate them all at once. It answers that they are missing.
        logger.warning(
            "Refused a request of an MCP server for {method}: its parameters have more than {limit} values",
            method=message.method if message.method in _SERVER_METHODS else "an unknown method",
            limit=MAX_VALUES,
        )
        del contents["params"]
        message.params = None
    for name in contents.keys() & type(message).model_fields.keys():
        content = contents[name]
        setattr(message, name, LargeResult(content) if name == "result" else content)
    if data is not None and isinstance(message, types.JSONRPCError):
        message.error.data = data
    return message
