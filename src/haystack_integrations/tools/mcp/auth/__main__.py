# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Log in at MCP servers before a service needs their tokens.

.. code-block:: text

    python -m haystack_integrations.tools.mcp.auth login pipeline.yaml
    python -m haystack_integrations.tools.mcp.auth login https://mcp.example.com/mcp --tokens ~/.config/service/tokens
"""

from __future__ import annotations

import argparse
import dataclasses
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    FileTokenStorage,
    MCPError,
    MCPLoginRequest,
    MCPServerInfo,
    OAuthConfig,
    StreamableHttpServerInfo,
    login,
)
from haystack_integrations.tools.mcp.auth.browser import can_open


def main(arguments: list[str] | None = None) -> int:
    """
    Run the command.

    :param arguments: Its arguments; by default those of the process.
    :returns: The exit code: 0 if all logins succeeded, 1 if one failed, 2 if there is nothing to log in at.
    """
    options = _parser().parse_args(arguments)
    try:
        infos = list(_server_infos(options))
    except (OSError, ValueError, TypeError, ImportError, yaml.YAMLError) as error:
        print(f"{options.target}: {error}", file=sys.stderr)  # noqa: T201 - a command prints
        return 2
    if not infos:
        print(f"{options.target} has no server info with OAuth and the grant 'authorization_code'", file=sys.stderr)  # noqa: T201
        return 2
    failed = 0
    for info in infos:
        print(f"Logging in at the {info.describe()}")  # noqa: T201
        try:
            login(_shown_to_person(info), user=options.user)
        except (MCPError, ValueError) as error:
            print(error, file=sys.stderr)  # noqa: T201
            failed = 1
        else:
            print("Logged in")  # noqa: T201
    return failed


def _shown_to_person(info: MCPServerInfo) -> MCPServerInfo:
    config = getattr(info, "oauth_config")  # noqa: B009 - of both HTTP kinds
    if config.redirect_handler is not None or can_open():
        return info
    changed: Any = dataclasses.replace(config, redirect_handler=_print_url)
    return dataclasses.replace(info, oauth_config=changed)  # type: ignore[type-var]


def _print_url(request: MCPLoginRequest) -> None:
    print(f"Open this page in a browser on this machine:\n\n{request.url}\n")  # noqa: T201
    print(  # noqa: T201
        f"With a browser on another machine, forward the port of {request.redirect_uri} to this one before (`ssh -L`).",
        flush=True,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m haystack_integrations.tools.mcp.auth", description="Log in at MCP servers."
    )
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("login", help="log in, and keep the tokens where a service finds them")
    command.add_argument(
        "target",
        help="URL of an MCP server, or a YAML or JSON file, such as a pipeline's, with server infos that have an "
        "`oauth_config` with a `token_storage`",
    )
    command.add_argument("--user", help="the user of mcp_request_context; by default the server info itself")
    command.add_argument("--tokens", help="for a URL: folder of the FileTokenStorage")
    command.add_argument("--client-id", help="for a URL: `client_id` of the OAuthConfig")
    command.add_argument("--client-secret-env", help="for a URL: environment variable with the `client_secret`")
    command.add_argument("--issuer", help="for a URL: `issuer` of the OAuthConfig")
    command.add_argument("--scope", action="append", help="for a URL: one of the `scopes` of the OAuthConfig")
    command.add_argument("--redirect-uri", help="for a URL: `redirect_uri` of the OAuthConfig")
    return parser


def _server_infos(options: argparse.Namespace) -> Iterator[MCPServerInfo]:
    if "://" not in options.target:
        text = Path(options.target).read_text(encoding="utf-8")
        yield from _found(yaml.safe_load(text))
        return
    if options.tokens is None:
        msg = "a login at a URL needs --tokens FOLDER, where the service finds the tokens"
        raise ValueError(msg)
    secret = options.client_secret_env
    config = OAuthConfig(
        grant_type="authorization_code",
        client_id=options.client_id,
        client_secret=Secret.from_env_var(secret) if secret else None,
        issuer=options.issuer,
        scopes=options.scope,
        redirect_uri=options.redirect_uri,
        token_storage=FileTokenStorage(options.tokens),
    )
    yield StreamableHttpServerInfo(options.target, oauth_config=config)


def _found(value: Any) -> Iterator[MCPServerInfo]:
    if isinstance(value, list):
        for item in value:
            yield from _found(item)
    if not isinstance(value, Mapping):
        return
    if isinstance(value.get("type"), str) and isinstance(value.get("oauth_config"), Mapping):
        info = MCPServerInfo.from_dict(dict(value))
        if getattr(info, "oauth_config").grant_type == "authorization_code":  # noqa: B009 - of both HTTP kinds
            yield info
        return
    for item in value.values():
        yield from _found(item)


if __name__ == "__main__":
    sys.exit(main())
