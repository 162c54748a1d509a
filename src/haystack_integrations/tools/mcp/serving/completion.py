# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Values that clients may offer to a user who fills in an argument.
"""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

# Values, or a function of what was typed and of the other arguments that are known.
Candidates = Sequence[str] | Callable[[str, Mapping[str, str]], Any]


def checked_candidates(name: str, completions: Mapping[str, Any], arguments: Iterable[str]) -> dict[str, Candidates]:
    """
    Check that completions are for arguments that there are.

    :param name: What has the arguments.
    :param completions: Values or functions by the names of arguments.
    :param arguments: The arguments.
    :returns: The completions.
    :raises ValueError: If one is for something else.
    """
    arguments = list(arguments)
    unknown = sorted(set(completions) - set(arguments))
    if unknown:
        msg = (
            f"`options[{name!r}].completions`: there is no argument {', '.join(unknown)}. The arguments: "
            f"{', '.join(arguments) or 'none'}"
        )
        raise ValueError(msg)
    return dict(completions)


async def matching(candidates: Candidates, value: str, known: Mapping[str, str]) -> list[str]:
    """
    Give the values that go on from what was typed.

    :param candidates: Values, or a function that gives them; one that is not async runs in a thread.
    :param value: What was typed so far.
    :param known: The other arguments that are known.
    :returns: The values, those of a function as they are, and otherwise those that begin so in upper or lower case.
    """
    if not callable(candidates):
        return [each for each in candidates if each.casefold().startswith(value.casefold())]
    if inspect.iscoroutinefunction(candidates):
        found = await candidates(value, known)
    else:
        found = await asyncio.to_thread(candidates, value, known)
    return [str(each) for each in found]
