# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What functions of the user are asked for while an access token is got.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from haystack_integrations.tools.mcp.reprs import short_repr

# When the logins began that wait for a person now, by the URL of the MCP server.
_logins: dict[str, list[float]] = {}


@contextmanager
def login_under_way(server_url: str) -> Iterator[None]:
    """
    Note that a person is logging in.

    :param server_url: The MCP server.
    :returns: A context manager.
    """
    began = time.monotonic()
    _logins.setdefault(server_url, []).append(began)
    try:
        yield
    finally:
        _logins[server_url].remove(began)
        if not _logins[server_url]:
            del _logins[server_url]


def login_seconds(server_url: str) -> float | None:
    """
    Tell how long the longest login at a server has been under way.

    :param server_url: The MCP server.
    :returns: Seconds, or None if there is none.
    """
    logins = _logins.get(server_url)
    return time.monotonic() - min(logins) if logins else None


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPLoginRequest:
    """
    A login that waits for a person. The `redirect_handler` and the `callback_handler` of `OAuthConfig` get it.

    :param url: Where the person allows the access: a page of the authorization server. It is for this person only.
    :param redirect_uri: Where the authorization server sends the browser afterwards.
    :param state: The value of `state` in `url`. It comes back to the redirect URI, so it tells which login it is for.
    :param server_url: The MCP server.
    :param user: The user of `mcp_request_context`, if there is one.
    """

    url: str = field(repr=False)
    redirect_uri: str
    state: str = field(repr=False)
    server_url: str
    user: str | None = None


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPAssertionRequest:
    """
    A request for an assertion, e.g. the token of a workload.

    The `assertion_provider` of `OAuthConfig` gets it, and so does its `id_token`, if that is a function.

    :param audience: For whom the assertion must be: the issuer of the authorization server.
    :param resource: Identifier of the MCP server, for ID-JAG.
    :param user: The user of `mcp_request_context`, if there is one.
    """

    audience: str
    resource: str
    user: str | None = None
