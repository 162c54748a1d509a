# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The outcomes of many calls, compared with the server's record.
"""

from collections import Counter
from concurrent.futures import Future
from typing import Any

from haystack_integrations.tools.mcp import MCPInvocationError
from tests.support.processes import CallLog


def outcome(call: "Future[Any]", limit: float) -> str:
    """
    Return the call's outcome, in the words of its error: `"ran"`, `"may have run"` or `"did not run"`.
    """
    error = call.exception(timeout=limit)
    if error is None:
        return "ran"
    assert isinstance(error, MCPInvocationError), repr(error)
    told = [words for words in ("may have run", "did not run") if words in str(error)]
    assert len(told) == 1, f"the error does not say whether the tool ran: {error}"
    return told[0]


def assert_outcomes_match_the_log(outcomes: dict[Any, str], log: CallLog, tool: str, argument: str) -> None:
    """
    Check that no call was executed twice, each successful call once, and calls that "did not run" never.

    :param outcomes: The reported outcomes, by the value of the argument, which is unique to each call.
    :param log: The server's record.
    :param tool: The tool's name.
    :param argument: The argument's name.
    """
    executions = Counter(details[argument] for _, details in log.events(tool))
    allowed = {"ran": {1}, "may have run": {0, 1}, "did not run": {0}}
    lies = {
        value: (told, executions[value]) for value, told in outcomes.items() if executions[value] not in allowed[told]
    }
    assert not lies, f"reported outcome, and how often the call was executed: {lies}"
