# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

from cyclopts import Group, Parameter

from haystack_integrations.tools.mcp.auth.oauth_config import OAuthConfig
from haystack_integrations.tools.mcp.auth.token_storage import FileTokenStorage
from haystack_integrations.tools.mcp.cli.files import asked_in_terminal, remember_login, token_folder, with_login
from haystack_integrations.tools.mcp.cli.output import CommandError, ExitCode, Output, OutputOptions, exit_code_of
from haystack_integrations.tools.mcp.cli.targets import ServerOptions, Target, secret_of, servers_of
from haystack_integrations.tools.mcp.errors import MCPError
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.transports.http_auth import login as log_in
from haystack_integrations.tools.mcp.transports.http_auth import logout as log_out
from haystack_integrations.tools.mcp.transports.server_infos import HttpServerInfo

_User = Annotated[str | None, Parameter(metavar="NAME", help="The user of mcp_request_context. Default: no user.")]
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
    As which client to log in, at a server with a URL.

    :param client_id: Identifier of the client at the authorization server. Default: it registers itself.
    :param client_secret_env: The environment variable with the secret of the client.
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
        Return the configuration.

        :returns: The configuration, of the grant for people.
        :raises ValueError: If the options do not go together.
        """
        secret = self.client_secret_env
        return OAuthConfig(
            grant_type="authorization_code",
            client_id=self.client_id,
            client_secret=secret_of("--client-secret-env", secret) if secret else None,
            issuer=self.issuer,
            scopes=self.scope,
            resource=False if self.no_resource else self.resource,
            redirect_uri=self.redirect_uri,
            token_storage=FileTokenStorage(str(self.tokens or token_folder())),
        )


def login(
    target: Target,
    /,
    *,
    user: _User = None,
    client: Client = Client(),
    config: _Config = None,
    options: OutputOptions = OutputOptions(),
) -> ExitCode:
    """
    Log in at a server that wants it (OAuth), in the browser.

    Other commands find the login from then on. With the YAML of a pipeline, the tokens go where its server infos look
    for them (`token_storage`), so that a service needs no browser.

    """

    def act(info: HttpServerInfo) -> str:
        own = client.oauth_config() if info.oauth_config is None else None
        if own is not None:
            info = dataclasses.replace(info, auth=None, oauth_config=own)
        log_in(asked_in_terminal(info), user=user)
        if own is not None:
            remember_login(info, own)
        return "Logged in at"

    return _each(target, config, act, options.output)


def logout(
    target: Target,
    /,
    *,
    user: _User = None,
    config: _Config = None,
    options: OutputOptions = OutputOptions(),
) -> ExitCode:
    """
    Forget the login at a server.

    The tokens are deleted, and revoked where the authorization server can do that.

    """

    def act(info: HttpServerInfo) -> str:
        had_tokens = log_out(with_login(info, wants_oauth=True), user=user)
        if user is None:
            remember_login(info, None)
        return "Logged out at" if had_tokens else "There was no login at"

    return _each(target, config, act, options.output)


def _each(target: str, config: Path | None, act: Callable[[Any], str], output: Output) -> ExitCode:
    """
    Do something for each server at which a person can log in, also if it fails for one.
    """
    found = servers_of(target, ServerOptions(config=config))
    infos: dict[str, Any] = {
        server.name: server.info for server in found if _can_log_in(server.info, is_alone=len(found) == 1)
    }
    if not infos:
        msg = f"{target} has no server at which a person can log in: one with a URL, and without other credentials"
        raise CommandError(msg)
    code = ExitCode.OK
    report: list[dict[str, Any]] = []
    for name, info in infos.items():
        try:
            output.note(f"{act(info)} the {info.describe()}")
            report.append({"server": name})
        except (MCPError, ValueError) as error:
            output.note(f"Error: {error}", style="red")
            code = exit_code_of(error) or ExitCode.USAGE
            report.append({"server": name, "error": str(error)})
    if output.is_json:
        output.json({"servers": report})
    return code


def _can_log_in(info: MCPServerInfo | None, is_alone: bool) -> bool:
    if not isinstance(info, HttpServerInfo):
        return False
    if info.oauth_config is not None:
        return info.oauth_config.grant_type == "authorization_code"
    return info.auth == "oauth" or (is_alone and info.auth is None and info.token is None)
