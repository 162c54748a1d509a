# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
import os
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

from fastmcp.dependencies import Dependency
from fastmcp.server.extensions import ServerExtension

# What Docket has resolved for the background task that the running code belongs to.
resolved_by_docket: ContextVar[Mapping[str, Any]] = ContextVar(
    "mcp_haystack_resolved_by_docket", default=MappingProxyType({})
)


def tasks_extension(queue: str) -> ServerExtension:
    """
    Make what runs tools as background tasks: FastMCP's extension, with its queue.

    The queue is in memory, unless the environment variable `FASTMCP_DOCKET_URL` names a Redis. All servers that have
    the queue share the work, so they must serve the same. An extension that is added to the server by `add_extension`
    takes its place.

    :param queue: The name of the queue, unless the environment variable `FASTMCP_DOCKET_NAME` names one.
    :returns: The extension.
    :raises ImportError: If it is not installed.
    """
    try:
        from fastmcp_tasks import TasksExtension  # noqa: PLC0415
    except ImportError as error:
        msg = 'Background tasks (`ServeOptions(task=True)`) need fastmcp-tasks: pip install "mcp-haystack[tasks]"'
        raise ImportError(msg) from error

    class BackgroundTasks(TasksExtension):
        """The extension, which a server takes over from its provider."""

        auto_register = True

    return BackgroundTasks(name=None if "FASTMCP_DOCKET_NAME" in os.environ else queue)


def dependencies_on_docket(defaults: Mapping[str, Any]) -> dict[str, Any]:
    """
    Choose what only Docket can resolve, because it concerns the run of a task as a whole: `Timeout`, `Retry` ...

    :param defaults: The defaults of parameters, or what is bound to them, by their names.
    :returns: What of them is Docket's.
    """
    return {
        name: each
        for name, each in defaults.items()
        if isinstance(each, Dependency) and type(each).__module__.partition(".")[0] == "docket"
    }


def run_by_docket(run: Callable[[dict[str, Any]], Awaitable[Any]], dependencies: Mapping[str, Any]) -> Any:
    """
    Make what Docket runs as a background task: it looks for dependencies in the signature of that.

    :param run: Runs the tool with the arguments of a call.
    :param dependencies: What Docket is to resolve, by its names; `resolved_by_docket` has it during the run.
    :returns: The function.
    """

    async def run_with(arguments: dict[str, Any], **resolved: Any) -> Any:
        token = resolved_by_docket.set(resolved)
        try:
            return await run(arguments)
        finally:
            resolved_by_docket.reset(token)

    parameters = [
        inspect.Parameter("arguments", inspect.Parameter.POSITIONAL_OR_KEYWORD),
        *(inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=each) for name, each in dependencies.items()),
    ]
    run_with.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return run_with
