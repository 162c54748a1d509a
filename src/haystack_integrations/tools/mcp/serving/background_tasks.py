# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os

from fastmcp.server.extensions import ServerExtension


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
