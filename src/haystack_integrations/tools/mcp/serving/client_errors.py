# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from fastmcp.exceptions import ToolError
from haystack.core.errors import PipelineRuntimeError
from haystack.tools.errors import ToolInvocationError


@contextmanager
def errors_for_client() -> Iterator[None]:
    """
    Turn an error of a pipeline or Agent into what it is for the client.

    That is the `ToolError` that a component or tool meant for clients, if there is one behind it, and the cause of a
    failed tool call, because Haystack's own text quotes all its arguments. Others are raised as they are.

    :returns: A context manager around the run.
    """
    try:
        yield
    except (PipelineRuntimeError, ToolInvocationError) as error:
        inner = _inner(error)
        if inner is error:
            raise
        # Not from the error, whose cause it is.
        raise inner from None


def _inner(error: Exception) -> BaseException:
    inner: BaseException = error
    quotes_arguments = False
    while isinstance(inner, PipelineRuntimeError | ToolInvocationError) and inner.__cause__ is not None:
        quotes_arguments = quotes_arguments or isinstance(inner, ToolInvocationError)
        inner = inner.__cause__
    return inner if isinstance(inner, ToolError) or quotes_arguments else error
