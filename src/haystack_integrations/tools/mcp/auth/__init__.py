# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Access tokens for servers with a URL: OAuth, with one flow for each grant, and storages for tokens.
"""
