# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The logins of this user: at which servers with a URL, and how. Tokens are in a FileTokenStorage beside this record.
"""

from __future__ import annotations

import dataclasses
import json
import os
import sys
from pathlib import Path
from typing import Any

from haystack_integrations.tools.mcp.auth.authorization_code import can_open_browser
from haystack_integrations.tools.mcp.auth.oauth_config import MCPLoginRequest, OAuthConfig
from haystack_integrations.tools.mcp.auth.token_storage import FileTokenStorage
from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.secret_template import shown
from haystack_integrations.tools.mcp.transports.server_infos import HttpServerInfo


def settings_folder() -> Path:
    """
    Return where programs keep what belongs to this user.

    :returns: `XDG_CONFIG_HOME` or `~/.config`, and its counterparts on macOS and Windows.
    """
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Application Support"
    if sys.platform == "win32":
        return Path(os.environ.get("APPDATA") or Path.home())
    return Path(os.environ.get("XDG_CONFIG_HOME") or Path.home() / ".config")


def token_folder() -> Path:
    """
    Return where the tokens of logins are kept.

    :returns: The folder, which may not exist.
    """
    return settings_folder() / "mcp-haystack" / "tokens"


def with_login(info: MCPServerInfo, *, wants_oauth: bool = False) -> MCPServerInfo:
    """
    Use a login, where the person has logged in at a server.

    :param info: The server info.
    :param wants_oauth: Whether to use OAuth even if there is no login yet.
    :returns: The server info, with an `oauth_config` if there is a login.
    """
    if not isinstance(info, HttpServerInfo) or info.oauth_config is not None or info.auth not in (None, "oauth"):
        return info
    if info.token or info.token_provider or any(name.lower() == "authorization" for name in info.headers or {}):
        return info
    stored = _load().get(shown(info.url))
    if stored is not None:
        config = OAuthConfig.from_dict(stored)
    elif wants_oauth or info.auth == "oauth":
        config = OAuthConfig(token_storage=FileTokenStorage(str(token_folder())))
    else:
        return info
    return asked_in_terminal(dataclasses.replace(info, auth=None, oauth_config=config))


def asked_in_terminal(info: HttpServerInfo) -> HttpServerInfo:
    """
    Print the page of a login where no browser can show it.

    :param info: The server info, with an `oauth_config`.
    :returns: The server info.
    """
    config = info.oauth_config
    is_asked = config is not None and config.grant_type == "authorization_code" and config.redirect_handler is None
    if config is None or not is_asked or can_open_browser():
        return info
    changed: Any = dataclasses.replace(info, oauth_config=dataclasses.replace(config, redirect_handler=_print_page))
    return changed  # type: ignore[no-any-return]


def _print_page(request: MCPLoginRequest) -> None:
    sys.stderr.write(
        f"Open this page in a browser on this machine:\n\n{request.url}\n\nWith a browser on another machine, forward "
        f"the port of {request.redirect_uri} to this one before (`ssh -L`).\n"
    )
    sys.stderr.flush()


def remember(info: HttpServerInfo) -> None:
    """
    Remember how a person has logged in at a server.

    :param info: The server info, with an `oauth_config` that can be stored.
    """
    config = info.oauth_config
    if config is not None:
        # Its functions are those of this command.
        _save({**_load(), shown(info.url): dataclasses.replace(config, redirect_handler=None).to_dict()})


def forget(info: HttpServerInfo) -> None:
    """
    Forget a login.

    :param info: The server info.
    """
    logins = _load()
    if logins.pop(shown(info.url), None) is not None:
        _save(logins)


def _file() -> Path:
    return settings_folder() / "mcp-haystack" / "logins.json"


def _load() -> dict[str, Any]:
    file = _file()
    if not file.exists():
        return {}
    try:
        logins = json.loads(file.read_text(encoding="utf-8"))
    except ValueError as error:
        msg = f"{file} cannot be read ({type(error).__name__}). Delete it, and log in again."
        raise CommandError(msg) from None
    return logins if isinstance(logins, dict) else {}


def _save(logins: dict[str, Any]) -> None:
    file = _file()
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    written = file.with_name(f".{file.name}.{os.getpid()}")
    written.write_text(json.dumps(logins, indent=2) + "\n", encoding="utf-8")
    written.replace(file)
