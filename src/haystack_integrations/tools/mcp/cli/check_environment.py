# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What of this machine may keep servers from working.
"""

from __future__ import annotations

import importlib.metadata
import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator
from pathlib import Path

import haystack_integrations.tools.mcp as package
from haystack_integrations.tools.mcp.cli.files import config_files, names_in
from haystack_integrations.tools.mcp.cli.findings import Finding, State
from haystack_integrations.tools.mcp.redaction import redact_url
from haystack_integrations.tools.mcp.transports.allow_lists import (
    ALLOWED_COMMANDS_VARIABLE,
    ALLOWED_ENV_VARIABLE,
    ALLOWED_HOSTS_VARIABLE,
)

_SUBJECT = "environment"

# What is needed for what: a module, what it is for, and how to get it.
_EXTRAS = {
    "fastmcp": ("serving (mcp-haystack serve)", 'pip install "mcp-haystack[serve]"'),
    "uvloop": ("a faster event loop", 'pip install "mcp-haystack[fast]"'),
    "aiohttp": ("faster calls over HTTP", 'pip install "mcp-haystack[fast]"'),
}

_PROGRAMS = {
    "uvx": ("servers that are published on PyPI", "https://docs.astral.sh/uv"),
    "npx": ("servers that are published on npm", "https://nodejs.org"),
}

_PROXIES = ("HTTPS_PROXY", "HTTP_PROXY", "ALL_PROXY")
_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "NODE_EXTRA_CA_CERTS")

# Each session over stdio takes three.
_FEW_DESCRIPTORS = 256


def check_environment() -> Iterator[Finding]:
    """
    Look at this machine.

    :returns: The findings.
    """
    yield _versions()
    for module, (purpose, advice) in _EXTRAS.items():
        if importlib.util.find_spec(module) is None:
            yield Finding(_SUBJECT, State.OK, f"{module} is not installed; it is for {purpose}", advice)
    for program, (purpose, where) in _PROGRAMS.items():
        found = shutil.which(program)
        if found is None:
            yield Finding(_SUBJECT, State.WARNING, f"{program} is not on the PATH; it starts {purpose}", f"See {where}")
        else:
            yield Finding(_SUBJECT, State.OK, f"{program} is {found}")
    yield from _variables()
    yield from _descriptors()
    files = config_files()
    for file in files:
        names = names_in(file)
        yield Finding(_SUBJECT, State.OK, f"{file} has the servers {', '.join(names) or '(none)'}")


def _versions() -> Finding:
    versions = [f"Python {platform.python_version()}", f"mcp-haystack {package.__version__}"]
    for name in ("haystack-ai", "mcp", "fastmcp"):
        try:
            versions.append(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            continue
    return Finding(_SUBJECT, State.OK, ", ".join(versions))


def _variables() -> Iterator[Finding]:
    for name in (ALLOWED_COMMANDS_VARIABLE, ALLOWED_HOSTS_VARIABLE, ALLOWED_ENV_VARIABLE):
        if name in os.environ:
            yield Finding(_SUBJECT, State.OK, f"{name} allows only: {os.environ[name] or 'nothing'}")
    for name in _PROXIES:
        value = os.environ.get(name) or os.environ.get(name.lower())
        if value:
            yield Finding(
                _SUBJECT, State.OK, f"{name} is {redact_url(value)}: servers with a URL are reached through it"
            )
    for name in _CERTIFICATES:
        value = os.environ.get(name)
        if value and not Path(value).exists():
            text = f"{name} names {value}, which does not exist"
            yield Finding(_SUBJECT, State.PROBLEM, text, f"Correct {name}, or unset it")


def _descriptors() -> Iterator[Finding]:
    try:
        import resource  # noqa: PLC0415 - Windows has none
    except ImportError:
        return
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    if limit != resource.RLIM_INFINITY and limit < _FEW_DESCRIPTORS:
        text = f"This process may open only {limit} files, and each server takes some"
        yield Finding(_SUBJECT, State.WARNING, text, "Raise the limit: ulimit -n 4096")
