# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Components that call tools in Haystack pipelines: for a model without an Agent, or one tool without a model.
"""

from .tool_caller import MCPToolCaller
from .tool_runner import MCPToolRunner

__all__ = ["MCPToolCaller", "MCPToolRunner"]
