# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Messages of the package, which name parameters, in the words of the command line.
"""

from __future__ import annotations

_PARAMETERS = {
    'pass `auth="oauth"`, or the credentials as `token` or in `headers`': (
        "log in with 'mcp-haystack login', or pass the credentials with --token-env or --header"
    ),
    "pass the credentials as `token` or in `headers`": "pass the credentials with --token-env or --header",
    "Check `token`, or the Authorization in `headers`": "Check --token-env, or the Authorization in --header",
    "e.g. `server.run()`": "e.g. `server.run()`. Or name what it makes, as in server.py:server",
    "`connection_timeout`": "--timeout",
    "`invocation_timeout`": "--timeout",
    "command=sys.executable": "the full path of its Python",
}


def for_terminal(error: object) -> str:
    """
    Say what an error says to a person at a terminal.

    :param error: The error.
    :returns: Its message, with options in place of parameters.
    """
    text = str(error)
    for parameter, option in _PARAMETERS.items():
        text = text.replace(parameter, option)
    return text
