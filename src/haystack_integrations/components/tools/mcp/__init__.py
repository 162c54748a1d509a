# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls tools in Haystack pipelines: those that a model asks for, without an Agent, and a single one, without a model.
"""

from .tool_caller import MCPToolCaller
from .tool_runner import MCPToolRunner

__all__ = ["MCPToolCaller", "MCPToolRunner"]
