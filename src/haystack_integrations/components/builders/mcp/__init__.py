# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A component that turns prompts of MCP servers into ChatMessages in Haystack pipelines.
"""

from .prompt_builder import MCPPromptBuilder

__all__ = ["MCPPromptBuilder"]
