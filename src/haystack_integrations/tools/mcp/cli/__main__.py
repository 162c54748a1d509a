# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The entry point of the command `mcp-haystack`. It imports little, so that `--version` and missing extras need no wait.
"""

from __future__ import annotations

import sys

import haystack_integrations.tools.mcp as package


def main(arguments: list[str] | None = None) -> int:
    """
    Run the command.

    :param arguments: Its arguments; by default those of the process.
    :returns: The exit code; `mcp-haystack --help` lists them.
    """
    arguments = sys.argv[1:] if arguments is None else arguments
    if arguments == ["--version"]:  # handled here, because importing Haystack takes a second
        print(f"mcp-haystack {package.__version__}")  # noqa: T201
        return 0
    try:
        import cyclopts  # noqa: F401, PLC0415 - if it is missing, the message below says how to install it
        import rich  # noqa: F401, PLC0415
    except ModuleNotFoundError as error:
        print(  # noqa: T201 - a command prints
            f"The command mcp-haystack needs the package '{error.name}', which is not installed. "
            'Install it with: pip install "mcp-haystack[cli]"',
            file=sys.stderr,
        )
        return 2
    try:
        from haystack_integrations.tools.mcp.cli.app import run  # noqa: PLC0415 - needs both
    except KeyboardInterrupt:  # the import takes a second or two
        return 130
    except OSError as error:  # Haystack's telemetry makes a folder in the home folder
        print(  # noqa: T201
            f"Error: Haystack cannot be imported: {error}. If the home folder cannot be written to, set the "
            "environment variable HAYSTACK_TELEMETRY_ENABLED=False",
            file=sys.stderr,
        )
        return 2
    return run(arguments)


if __name__ == "__main__":
    sys.exit(main())
