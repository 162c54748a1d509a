# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A separate PostgreSQL for the tests, if it is installed: its data and its socket are in a folder.
"""

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


def programs() -> Path | None:
    """
    Return the folder of `initdb` and `pg_ctl`, or None if PostgreSQL is not installed.
    """
    found = shutil.which("pg_ctl")
    installed = [Path(found).resolve().parent] if found else sorted(Path("/usr/lib/postgresql").glob("*/bin"))
    return next((folder for folder in reversed(installed) if (folder / "initdb").exists()), None)


@contextmanager
def postgres() -> Iterator[str]:
    """
    Start a server in a new folder, and yield its URL.
    """
    bin_folder = programs()
    assert bin_folder is not None
    folder = Path(tempfile.mkdtemp(prefix="mcp-haystack-"))
    data = folder / "data"
    data.mkdir()
    as_user: list[str] = []
    if os.geteuid() == 0:  # PostgreSQL refuses to run as root
        folder.chmod(0o755)
        shutil.chown(data, "postgres", "postgres")
        as_user = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups"]

    def run(*command: str) -> None:
        done = subprocess.run([*as_user, *command], cwd="/", capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    run(str(bin_folder / "initdb"), "-D", str(data), "-U", "tests", "-A", "trust", "-N")
    options = f"-c listen_addresses='' -c unix_socket_directories='{data}' -c fsync=off"
    control = [str(bin_folder / "pg_ctl"), "-D", str(data), "-w"]
    run(*control, "-o", options, "-l", str(data / "log.txt"), "start")
    try:
        yield f"postgresql+psycopg://tests@/postgres?host={data}"
    finally:
        run(*control, "-m", "immediate", "stop")
        shutil.rmtree(folder)
