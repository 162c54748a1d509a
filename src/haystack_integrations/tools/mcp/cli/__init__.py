# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The command `mcp-haystack`: a file for each command, or for several that belong together.

`app` lists the commands. Each finds its server by a target, connects, and prints with an `Output`. Failures are raised
as a `CommandError` with an exit code.
"""
