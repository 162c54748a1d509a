# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tables of cases that one test checks in the same way. A separate test for each case would take longer than the check.
"""

import functools
import inspect
from collections.abc import Callable, Iterator
from typing import Any


def rows(names: str | tuple[str, ...], *table: Any) -> Callable[[Callable[..., Any]], Any]:
    """
    Run a test with each row of a table, like `pytest.mark.parametrize` but as one test.

    The test runs with every row, and fails at the end if any row failed; its error names the row.

    The rows share the fixtures of the test, so no row may break them for the next.

    :param names: The parameters of the test.
    :param table: The rows: tuples, or values of a single parameter.
    """
    parameters = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    values = [dict(zip(parameters, row if len(parameters) > 1 else (row,), strict=True)) for row in table]
    assert values, "a table without rows proves nothing"

    def wrap(function: Callable[..., Any]) -> Callable[..., Any]:
        def attempts() -> Iterator[tuple[dict[str, Any], list[Exception]]]:
            failures: list[Exception] = []
            for row in values:
                failed: list[Exception] = []
                yield row, failed
                for error in failed:
                    error.add_note(f"in the row {row}")
                failures += failed
            if len(failures) == 1:
                raise failures[0]
            if failures:
                msg = f"{len(failures)} of {len(values)} rows failed"
                raise ExceptionGroup(msg, failures)

        if inspect.iscoroutinefunction(function):

            @functools.wraps(function)
            async def run(*args: Any, **fixtures: Any) -> None:
                for row, failed in attempts():
                    try:
                        await function(*args, **fixtures, **row)
                    except Exception as error:
                        failed.append(error)
        else:

            @functools.wraps(function)
            def run(*args: Any, **fixtures: Any) -> None:
                for row, failed in attempts():
                    try:
                        function(*args, **fixtures, **row)
                    except Exception as error:
                        failed.append(error)

        signature = inspect.signature(function)
        left = [each for name, each in signature.parameters.items() if name not in parameters]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]
        return run

    return wrap
