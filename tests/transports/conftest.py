# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Fixtures: the HTTP stacks, a certificate, and an environment without proxies.
"""

import ssl
import sys
from pathlib import Path

import pytest

from tests.support.certificates import Authority


@pytest.fixture
def no_proxies(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.fixture(params=["httpx2", "aiohttp"])
def http_stack(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """
    Runs a test with each transport for HTTP requests: that of httpx2, and that of the extra `fast`.
    """
    if request.param == "aiohttp":
        pytest.importorskip("aiohttp")
        pytest.importorskip("uvloop")
    else:
        monkeypatch.setitem(sys.modules, "aiohttp", None)
    return request.param


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """
    A self-signed certificate for 127.0.0.1, and its key.
    """
    authority = Authority(tmp_path_factory.mktemp("tls"))
    return authority.bundle, authority.key


@pytest.fixture
def server_context(certificate: tuple[Path, Path]) -> ssl.SSLContext:
    """
    The TLS context of a server with that certificate.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    return context
