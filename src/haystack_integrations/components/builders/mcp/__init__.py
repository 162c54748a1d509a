# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Makes ChatMessages of the prompts of MCP servers in Haystack pipelines.
"""

from .prompt_builder import MCPPromptBuilder

__all__ = ["MCPPromptBuilder"]
