# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import sys
import webbrowser

import anyio.to_thread
from haystack import logging

from haystack_integrations.tools.mcp.errors import MCPAuthorizationError

logger: logging.PatchedLogger = logging.getLogger(__name__)


def can_open() -> bool:
    """
    Tell whether this process can show a page to a person.

    :returns: False without a browser, and on Unix without a display, where a browser would take over the terminal. The
        environment variable `BROWSER` says that there is one.
    """
    has_windows = sys.platform in ("win32", "darwin") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if not has_windows and not os.environ.get("BROWSER"):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True


async def open_url(url: str) -> None:
    """
    Open the browser of this machine.

    :param url: The page.
    :raises MCPAuthorizationError: If it does not open.
    """
    # In a thread: it starts a program, and may wait for it.
    if not await anyio.to_thread.run_sync(webbrowser.open, url, abandon_on_cancel=True):
        msg = "the browser does not open"
        raise MCPAuthorizationError(msg)
    logger.info("Waiting for a login in the browser")
