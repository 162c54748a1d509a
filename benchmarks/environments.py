# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The virtual environments of the subjects.

They are separate, because this package and 2.1.1 have the same import path, and hayhooks needs an older SDK.
"""

import hashlib
import json
import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

BENCHMARKS = Path(__file__).parent
PROJECT = BENCHMARKS.parent
ENVIRONMENTS = BENCHMARKS / ".envs"

UPSTREAM = "mcp-haystack==2.1.1"
COMMON = ["haystack-ai>=3,<4", "mcp>=2.3,<3", "psutil"]
"""The environments of both bridges get the same versions of these and of their dependencies."""
EXTRAS = ("cli", "fast", "serve")
"""The measured extras of this package."""
HAYHOOKS = ["hayhooks[mcp]==2.1.0", "haystack-ai>=3,<4"]
"""The compared version of hayhooks, which needs version 1 of the SDK."""
NEIGHBOURS = {
    "pydantic-ai": ["pydantic-ai-slim[mcp]==2.68.0", "fastmcp==4.2.3", "psutil"],
    "langchain": ["langchain-mcp-adapters==0.3.2", "psutil"],
    "openai-agents": ["openai-agents==0.24.0", "psutil"],
}
"""The compared versions of other integrations. That for LangChain needs version 1 of the SDK."""


def python_of(name: str) -> Path:
    """Return the path of an environment's interpreter."""
    folder = ENVIRONMENTS / name
    return folder / "Scripts" / "python.exe" if os.name == "nt" else folder / "bin" / "python"


def _run(*command: str | Path) -> str:
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, check=False)
    if done.returncode:
        message = f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}"
        raise SystemExit(message)
    return done.stdout


def _build(name: str, requirements: list[str], *, made_from: str) -> bool:
    """
    Build an environment, unless it exists and its requirements have not changed.

    :returns: Whether it was built.
    """
    folder = ENVIRONMENTS / name
    stamp = folder / "made-from"
    fingerprint = hashlib.sha256("\n".join([sys.version, *requirements, made_from]).encode()).hexdigest()
    if stamp.exists() and stamp.read_text() == fingerprint:
        return False
    print(f"building the environment {name!r}: {' '.join(requirements)}", file=sys.stderr, flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    _run(sys.executable, "-m", "venv", folder)
    uv = _uv()
    if uv:
        _run(uv, "pip", "install", "--quiet", "--python", python_of(name), *requirements)
    else:
        _run(python_of(name), "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *requirements)
    stamp.write_text(fingerprint)
    return True


def _uv() -> str | None:
    """Return the path of uv, which is much faster than pip, if it is on the PATH or next to this interpreter."""
    return shutil.which("uv") or shutil.which("uv", path=Path(sys.executable).parent)


def _metadata() -> dict[str, Any]:
    project: dict[str, Any] = tomllib.loads((PROJECT / "pyproject.toml").read_text())["project"]
    return project


def build_environments(*, ours_path: Path | None, upstream: bool, hayhooks: bool, neighbours: bool) -> None:
    """
    Build the environments that are missing or out of date.

    :param ours_path: Import this package from this folder instead of installing the checkout.
    :param upstream: Whether to build the environment of mcp-haystack 2.1.1.
    :param hayhooks: Whether to build the environment of hayhooks.
    :param neighbours: Whether to build the environments of other integrations.
    """
    ENVIRONMENTS.mkdir(exist_ok=True)
    # Editable, so that changes to the code do not require a new environment.
    package = (
        ["--editable", f"{PROJECT}[{','.join(EXTRAS)}]"]
        if ours_path is None
        else [
            *_metadata()["dependencies"],
            *(each for extra in EXTRAS for each in _metadata()["optional-dependencies"][extra]),
        ]
    )
    _build("ours", [*package, *COMMON], made_from=json.dumps(_metadata()) if ours_path is None else "")
    if hayhooks:
        _build("hayhooks", HAYHOOKS, made_from="")
    for name, requirements in NEIGHBOURS.items() if neighbours else ():
        _build(name, requirements, made_from="")
    if not upstream:
        return
    apart = [part for name in ("aiohttp", "mcp-haystack", "uvloop") for part in ("--exclude", name)]
    frozen = _run(python_of("ours"), "-m", "pip", "freeze", *apart)
    constraints = ENVIRONMENTS / "constraints.txt"
    constraints.write_text(frozen)
    _build("upstream", [UPSTREAM, *COMMON, "--constraint", str(constraints)], made_from=frozen)


def describe_environments() -> dict[str, str]:
    """Return the versions of Python and of what is compared in the environments."""
    code = (
        "import platform, sys; from importlib.metadata import version;"
        "print(platform.python_version(), *(f'{name} {version(name)}' for name in sys.argv[1:]), sep=', ')"
    )
    packages = {
        **{name: ["haystack-ai", "mcp"] for name in ("ours", "upstream", "hayhooks")},
        **{
            name: [requirements[0].partition("==")[0].partition("[")[0], "mcp"]
            for name, requirements in NEIGHBOURS.items()
        },
    }
    return {
        name: _run(python_of(name), "-c", code, *installed).strip()
        for name, installed in packages.items()
        if python_of(name).exists()
    }
