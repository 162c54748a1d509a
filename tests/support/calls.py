# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What became of many calls, and whether that is what the server has recorded.
"""

from collections import Counter
from concurrent.futures import Future
from typing import Any

from haystack_integrations.tools.mcp import MCPInvocationError
from tests.support.processes import CallLog


def outcome(call: "Future[Any]", limit: float) -> str:
    """
    How the call ended, in the words of its error: `"ran"`, `"may have run"` or `"did not run"`.
    """
    error = call.exception(timeout=limit)
    if error is None:
        return "ran"
    assert isinstance(error, MCPInvocationError), repr(error)
    told = [words for words in ("may have run", "did not run") if words in str(error)]
    assert len(told) == 1, f"the error does not say whether the tool ran: {error}"
    return told[0]


def assert_told_the_truth(outcomes: dict[Any, str], log: CallLog, tool: str, argument: str) -> None:
    """
    No call was executed twice, those that succeeded once, and those that "did not run" never.

    :param outcomes: By the argument's value, which is unique to each call, what the caller was told.
    :param log: What the server has recorded.
    :param tool: The tool.
    :param argument: The name of the argument.
    """
    executions = Counter(details[argument] for _, details in log.events(tool))
    allowed = {"ran": {1}, "may have run": {0, 1}, "did not run": {0}}
    lies = {
        value: (told, executions[value]) for value, told in outcomes.items() if executions[value] not in allowed[told]
    }
    assert not lies, f"what was told, and how often it was executed: {lies}"
