# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`login` and `logout`: OAuth logins at servers with a URL.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

from cyclopts import Group, Parameter

from haystack_integrations.tools.mcp.auth.oauth_config import OAuthConfig
from haystack_integrations.tools.mcp.auth.token_storage import FileTokenStorage
from haystack_integrations.tools.mcp.cli.files import remember_login, token_folder, with_login, with_oauth
from haystack_integrations.tools.mcp.cli.output import CommandError, Output, OutputOptions
from haystack_integrations.tools.mcp.cli.targets import ServerOptions, Target, secret_of, server_of
from haystack_integrations.tools.mcp.transports.http_auth import login as log_in
from haystack_integrations.tools.mcp.transports.http_auth import logout as log_out
from haystack_integrations.tools.mcp.transports.server_infos import HttpServerInfo

_Config = Annotated[
    Path | None,
    Parameter(
        metavar="FILE", help="The mcp.json that has the name. Default: those in this folder and of your editors."
    ),
]


@Parameter(name="*", group=Group("The client, if it is registered already", sort_key=1))
@dataclasses.dataclass(frozen=True, kw_only=True)
class Client:
    """
    The OAuth client with which to log in, at a server with a URL.

    :param client_id: Identifier of the client at the authorization server. Default: it registers itself.
    :param client_secret_env: The environment variable with the client's secret.
    :param issuer: The authorization server at which the client is registered.
    :param scope: A scope to ask for. Repeatable. Default: those that the server wants.
    :param resource: What the tokens are for. Default: the server, as it names itself.
    :param no_resource: Do not say what the tokens are for: Microsoft Entra ID refuses it.
    :param redirect_uri: Where the authorization server sends the browser. Default: any free port of this machine.
    :param tokens: The folder for the tokens, such as that of a service. Default: one of your own.
    """

    client_id: Annotated[str | None, Parameter(metavar="ID")] = None
    client_secret_env: Annotated[str | None, Parameter(metavar="NAME")] = None
    issuer: Annotated[str | None, Parameter(metavar="URL")] = None
    scope: Annotated[list[str] | None, Parameter(metavar="SCOPE")] = None
    resource: Annotated[str | None, Parameter(metavar="URI")] = None
    no_resource: bool = False
    redirect_uri: Annotated[str | None, Parameter(metavar="URL")] = None
    tokens: Annotated[Path | None, Parameter(metavar="FOLDER")] = None

    def oauth_config(self) -> OAuthConfig:
        """
        Make the OAuth configuration.

        :returns: The configuration for a login in the browser (authorization code).
        :raises ValueError: If the options contradict each other.
        """
        secret = self.client_secret_env
        # The path is absolute, so that other commands find the login from any folder.
        folder = (self.tokens or token_folder()).expanduser().absolute()
        return OAuthConfig(
            grant_type="authorization_code",
            client_id=self.client_id,
            client_secret=secret_of("--client-secret-env", secret) if secret else None,
            issuer=self.issuer,
            scopes=self.scope,
            resource=False if self.no_resource else self.resource,
            redirect_uri=self.redirect_uri,
            token_storage=FileTokenStorage(str(folder)),
        )


def login(
    target: Target,
    /,
    *,
    client: Client = Client(),
    config: _Config = None,
    options: OutputOptions = OutputOptions(),
) -> None:
    """
    Log in at a server that wants it (OAuth), in the browser.

    Other commands use the login from then on.
    """
    info = _info_of(target, config)
    try:
        oauth_config = client.oauth_config()
        log_in(with_oauth(info, oauth_config))
    except ValueError as error:
        raise CommandError(str(error)) from error
    remember_login(info, oauth_config)
    _report("Logged in at", info, options.output)


def logout(
    target: Target,
    /,
    *,
    config: _Config = None,
    options: OutputOptions = OutputOptions(),
) -> None:
    """
    Forget the login at a server.

    The tokens are deleted, and revoked where the authorization server can do that.
    """
    info = _info_of(target, config)
    known = with_login(info)
    had_tokens = isinstance(known, HttpServerInfo) and known.oauth_config is not None and log_out(known)
    remember_login(info, None)
    _report("Logged out at" if had_tokens else "There was no login at", info, options.output)


def _info_of(target: str, config: Path | None) -> HttpServerInfo:
    info = server_of(target, ServerOptions(config=config)).usable()
    if not isinstance(info, HttpServerInfo):
        msg = f"A login is for a server with a URL, and not for the {info.describe()}"
        raise CommandError(msg)
    return info


def _report(what: str, info: HttpServerInfo, output: Output) -> None:
    output.note(f"{what} the {info.describe()}")
    if output.is_json:
        output.json({"server": info.describe()})
