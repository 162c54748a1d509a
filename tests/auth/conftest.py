# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import logging
from collections.abc import Iterator

import pytest

from tests.support.oauth_server import OAuthServer


@pytest.fixture(autouse=True)
def no_secret_is_logged(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    """
    Whatever a test does, no code and no token is in what this package and the SDK's client log of it.
    """
    ours = ("haystack_integrations", "mcp.client", "mcp.shared", "client")
    OAuthServer.instances.clear()
    for name in ours:
        caplog.set_level(logging.DEBUG, logger=name)
    yield
    secrets = {secret for server in OAuthServer.instances for secret in server.issued}
    for record in caplog.get_records("call"):
        if record.name.startswith(ours):
            text = f"{record.getMessage()} {record.exc_text or record.exc_info or ''}"
            assert not [secret for secret in secrets if secret in text], f"{record.name}: {text}"
