# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which requests are sent again after a fault, and after which pause.

.. code-block:: text

    what happened                                              what is done
    a call provably did not run: the connection was refused,   it is sent again, up to `max_retries` times
    nothing was written, the server forgot the session
    … and the server would refuse it again (401, 403, 405)     never sent again
    a call was sent, and its outcome is unknown                sent again only if the tool may run twice: the server
                                                               annotates it so, and the user opted in
    a call timed out, or its caller gave up                    cancelled on the server, never sent again
    a listing or another read was interrupted                  it is sent again, up to `max_retries` times
"""

from __future__ import annotations

import random

from haystack_integrations.tools.mcp.errors import MCPOutcomeUnknownError
from haystack_integrations.tools.mcp.protocol.outcome_errors import CallDidNotRunError


def may_be_sent_again(error: CallDidNotRunError | MCPOutcomeUnknownError, *, may_repeat: bool) -> bool:
    """
    Decide whether a tool call that got no answer is sent again.

    :param error: What became of it.
    :param may_repeat: Whether it does no harm if the tool runs twice.
    :returns: True if it is.
    """
    return not error.denied if isinstance(error, CallDidNotRunError) else may_repeat


def back_off(attempt: int, *, base: float, longest: float) -> float:
    """
    Choose the pause before another attempt.

    :param attempt: How many attempts failed before the last one.
    :param base: The pause after the first attempt, in seconds; it doubles with each further one.
    :param longest: The longest pause, in seconds.
    :returns: Seconds. Half of it is jitter, so that many clients do not return to a restarted server at once.
    """
    pause: float = min(longest, base * 2**attempt)
    return pause * random.uniform(0.5, 1)  # noqa: S311
