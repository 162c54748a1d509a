# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

CALCULATOR = Path(__file__).with_name("calculator.py")


@contextmanager
def calculator_over(transport: str) -> Iterator[str]:
    """
    Run the calculator in a child process, on a free port.

    :param transport: "http" or "sse".
    :returns: A context manager that yields the URL and finally stops the server.
    """
    command = [sys.executable, str(CALCULATOR), "--transport", transport, "--port", "0"]
    with subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True) as process:
        try:
            url = process.stdout.readline().strip() if process.stdout is not None else ""
            if not url:
                msg = "the calculator did not start"
                raise RuntimeError(msg)
            yield url
        finally:
            process.terminate()
            try:
                process.wait(timeout=5)
            except subprocess.TimeoutExpired:
                process.kill()
