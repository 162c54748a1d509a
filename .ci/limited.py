# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Run a command, and end all that it has started with it, orphans included:

    python limited.py SECONDS COMMAND...

At the limit the command is ended, too, and the exit code is 124.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path

# How long the ends of killed processes may take, in seconds: forever, if a disk hangs.
PATIENCE = 20
PR_SET_CHILD_SUBREAPER = 36


def children() -> "list[int]":
    """
    The processes whose parent is this one, which on Linux are all whose parents have ended, too.
    """
    found = []
    for status in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):
            # The name, in parentheses, may have blanks.
            _, _, rest = status.read_text(errors="replace").rpartition(")")
            if int(rest.split()[1]) == os.getpid():
                found.append(int(status.parent.name))
    return found


def end_all(group: int) -> None:
    """
    Kill the group of the command, and what is left of it anywhere.
    """
    deadline = time.monotonic() + PATIENCE
    while time.monotonic() < deadline:
        with suppress(OSError):
            os.killpg(group, signal.SIGKILL)
        for pid in children():
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        try:
            # The children of those that have ended are ours next.
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        except ChildProcessError:
            return
        time.sleep(0.02)


def main() -> int:
    """
    Run the command.
    """
    limit, *command = sys.argv[1:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    signal.signal(signal.SIGTERM, lambda number, _frame: sys.exit(128 + number))
    process = subprocess.Popen(command, start_new_session=True)
    try:
        code = process.wait(float(limit))
    except subprocess.TimeoutExpired:
        sys.stderr.write(f"\n{' '.join(command)} did not end within {limit} s and is ended\n")
        return 124
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    finally:
        end_all(process.pid)
    return code if code >= 0 else 128 - code


if __name__ == "__main__":
    sys.exit(main())
