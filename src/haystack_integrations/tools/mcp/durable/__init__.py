# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Durable runs: another process finishes the run of a killed one, and no tool runs twice. Extra `[durable]`.
"""

try:
    import sqlalchemy as _sqlalchemy  # noqa: F401
except ImportError as error:
    msg = 'Durable runs need SQLAlchemy, which is not installed: pip install "mcp-haystack[durable]"'
    raise ImportError(msg) from error

from haystack_integrations.tools.mcp.durable.cassette import Cassette
from haystack_integrations.tools.mcp.durable.journal import JournaledChatGenerator, RunJournal
from haystack_integrations.tools.mcp.durable.run import UnknownCall
from haystack_integrations.tools.mcp.durable.store import RecordedRun

__all__ = ["Cassette", "JournaledChatGenerator", "RecordedRun", "RunJournal", "UnknownCall"]
