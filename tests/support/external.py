# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The commands of third-party MCP servers, at fixed versions.

Tests that need Node or uv are skipped where it is missing; in CI (the environment has `CI=true`) they fail.
"""

import os
import platform
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import NoReturn

import pytest

EVERYTHING = "@modelcontextprotocol/server-everything@2026.8.31"
CONFORMANCE = "@modelcontextprotocol/conformance@0.2.0-alpha.12"
TIME = "mcp-server-time==2026.10.19"
OLD_TIME = "mcp-server-time==2025.9.25"
GIT = "mcp-server-git==2026.10.19"
FILESYSTEM = "@modelcontextprotocol/server-filesystem@2026.8.31"
# The first speaks only the handshake era, the second both eras.
TYPESCRIPT_SDKS = ("@modelcontextprotocol/sdk@1.32.2", "@modelcontextprotocol/client@2.4.0")

# Seconds for a first start, which downloads everything.
DOWNLOAD_LIMIT = 240.0


def unavailable(reason: str) -> NoReturn:
    """
    Skip the test; in CI, fail it.
    """
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"{reason} (in CI this is a failure)", pytrace=False)
    pytest.skip(reason)


def npx() -> str:
    """
    Return the path of `npx`.
    """
    return shutil.which("npx") or unavailable("Node's npx was not found: install Node 20 or later")


def uv() -> str:
    """
    Return the path of `uv` in this environment or else on the PATH.
    """
    own = Path(sys.executable).parent / "uv"
    if own.exists():
        return str(own)
    return shutil.which("uv") or unavailable("uv was not found: install the dependency group `test`")


def git() -> str:
    """
    Return the path of `git`.
    """
    return shutil.which("git") or unavailable("git was not found")


def everything(transport: str) -> tuple[str, list[str]]:
    """
    Return the command and arguments of `server-everything` over stdio, sse or streamableHttp.
    """
    return npx(), ["-y", EVERYTHING, transport]


def uvx(requirement: str, *options: str) -> tuple[str, list[str]]:
    """
    Return the command and arguments of a server that is published on PyPI.
    """
    return uv(), ["tool", "run", "--quiet", *options, "--python", sys.executable, requirement]


def filesystem(*folders: str) -> tuple[str, list[str]]:
    """
    Return the command and arguments of `server-filesystem` over stdio.
    """
    return npx(), ["-y", FILESYSTEM, *folders]


def uv_script(requirement: str, script: str, *options: str) -> tuple[str, list[str]]:
    """
    Return the command and arguments that run a script in a separate environment with the requirement.
    """
    environment = ["--no-project", "--isolated", "--python", sys.executable, "--with", requirement]
    return uv(), ["run", "--quiet", *environment, *options, "python", script]


def _from_npm(name: str, folder: Path, *packages: str) -> Path:
    """Install packages into the folder, if they are not there yet."""
    npm = shutil.which("npm") or unavailable("Node's npm was not found: install Node 20 or later")
    folder.mkdir(exist_ok=True)
    options = ["--prefix", str(folder), "--no-audit", "--no-fund", "--ignore-scripts"]
    once(name, folder, lambda: download(npm, ["install", *options, *packages]))
    return folder / "node_modules"


def conformance_suite(folder: Path) -> list[str]:
    """
    Return the command of the protocol's conformance suite, and install it into the folder if it is not there yet.
    """
    system, machine = platform.system().lower(), platform.machine().lower()
    # The suite needs Node 22. The package `node` downloads it in a script, which npm may be configured not to run.
    node = f"node-{'win' if system == 'windows' else system}-{'arm64' if machine in ('arm64', 'aarch64') else 'x64'}"
    modules = _from_npm("conformance", folder, CONFORMANCE, f"{node}@22")
    [program] = [path for path in (modules / node / "bin").iterdir() if path.stem == "node"]
    return [str(program), str(modules / "@modelcontextprotocol" / "conformance" / "dist" / "index.js")]


def typescript_client(folder: Path) -> list[str]:
    """
    Return the command of a client with the TypeScript SDKs, and install them into the folder if they are not there yet.
    """
    _from_npm("typescript", folder, *TYPESCRIPT_SDKS)
    node = shutil.which("node") or unavailable("Node was not found: install Node 20 or later")
    return [node, str(Path(__file__).with_name("typescript_client.cjs")), str(folder)]


def runner_environment() -> dict[str, str] | None:
    """
    Return the variables for package runners that MCP clients do not pass on: registries, proxies, caches.
    """
    prefixes = ("UV_", "NPM_CONFIG_", "SSL_CERT_", "NODE_EXTRA_CA_CERTS", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY")
    return {name: value for name, value in os.environ.items() if name.upper().startswith(prefixes)} or None


def once(name: str, folder: Path, action: Callable[[], None]) -> None:
    """
    Run an action once in this test run, in the first of pytest's processes that calls this; the others wait for it.

    :param name: Names the action.
    :param folder: A folder that only the processes of this run share.
    :param action: The action.
    """
    done = folder / f"{name}.done"
    with closing(sqlite3.connect(folder / f"{name}.lock", timeout=2 * DOWNLOAD_LIMIT)) as lock:
        lock.execute("BEGIN EXCLUSIVE")
        if not done.exists():
            action()
            done.touch()


def download(command: str, arguments: list[str]) -> None:
    """
    Run the command to its end, so that it downloads its packages.
    """
    try:
        finished = subprocess.run(
            [command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, timeout=DOWNLOAD_LIMIT, check=False
        )
    except subprocess.TimeoutExpired:
        unavailable(f"{arguments} could not be downloaded within {DOWNLOAD_LIMIT} s")
    if finished.returncode != 0:
        unavailable(f"{arguments} could not be run: {finished.stderr.decode(errors='replace')[-2000:]}")


def make_repository(folder: Path) -> Path:
    """
    Create a git repository with one commit, `first`, of one file, `README.md`.
    """
    program = git()
    folder.mkdir()
    (folder / "README.md").write_text("hello\n")
    who = ["-c", "user.name=Test", "-c", "user.email=test@example.org", "-c", "commit.gpgsign=false"]
    for arguments in (["init", "--quiet"], ["add", "."], [*who, "commit", "--quiet", "--message", "first"]):
        subprocess.run([program, "-C", str(folder), *arguments], check=True, capture_output=True)
    return folder
