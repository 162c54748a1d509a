# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Pure functions from MCP to Haystack: schemas and names of tools, results, resources, prompts and skills.

Servers send odd data, and model providers refuse much of it. This folder decides what a model or a program receives.
"""
