# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Access tokens for servers with a URL: OAuth, one flow a grant, and where tokens are kept.
"""
