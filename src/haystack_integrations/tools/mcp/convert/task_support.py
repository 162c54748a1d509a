# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Tools of revision 2025-11-25 that can only be called as tasks of that revision.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    import mcp_types as types

NEEDS_TASKS: Final = (
    "it can only be called as a task of revision 2025-11-25 (execution.taskSupport), which later revisions have "
    "replaced. This client runs tasks with servers of revision 2026-07-28"
)


def needs_tasks(definition: types.Tool) -> bool:
    """
    Tell whether a tool can be called only as a task.

    :param definition: What the server says of it.
    :returns: Whether it says so.
    """
    return definition.execution is not None and definition.execution.task_support == "required"
