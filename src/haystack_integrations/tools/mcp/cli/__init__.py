# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The command `mcp-haystack`: one file a command, or those that belong together.

`app` names the commands. Each finds its server by a target, connects, and prints by `Output`; what goes wrong is a
`CommandError` with an exit code.
"""
