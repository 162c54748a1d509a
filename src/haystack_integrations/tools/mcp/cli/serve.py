# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from cyclopts import Group, Parameter
from haystack.core.errors import ComponentError, DeserializationError, PipelineError

from haystack_integrations.tools.mcp.cli.exit_codes import CommandError, ExitCode, exit_code_of, for_terminal
from haystack_integrations.tools.mcp.cli.output import stdout_for_protocol
from haystack_integrations.tools.mcp.cli.served import Order, for_workers
from haystack_integrations.tools.mcp.cli.targets import secret_of
from haystack_integrations.tools.mcp.errors import MCPError

_WHAT = Group("What clients see", sort_key=1)
_HTTP = Group("Over HTTP", sort_key=2)
_LOAD = Group("Load and logs", sort_key=3)

_Pairs = list[str] | None

# What is wrong with what was named, or with the options.
_REFUSALS = (ValueError, TypeError, ImportError, MCPError, ComponentError, DeserializationError, PipelineError)


def serve(
    target: Annotated[
        str,
        Parameter(
            help="The YAML of a pipeline, an mcp.json, a Python file (server.py or server.py:name), or an import path "
            "(package.module:name)."
        ),
    ],
    /,
    *,
    name: Annotated[str | None, Parameter(metavar="NAME", group=_WHAT)] = None,
    description: Annotated[str | None, Parameter(metavar="TEXT", group=_WHAT)] = None,
    input: Annotated[_Pairs, Parameter(metavar="NAME=SOCKET", group=_WHAT)] = None,  # noqa: A002 - option
    output: Annotated[_Pairs, Parameter(metavar="NAME=SOCKET", group=_WHAT)] = None,
    show_errors: Annotated[bool, Parameter(group=_WHAT)] = False,
    http: Annotated[bool, Parameter(group=_HTTP)] = False,
    host: Annotated[str | None, Parameter(metavar="HOST", group=_HTTP)] = None,
    port: Annotated[int | None, Parameter(metavar="PORT", group=_HTTP)] = None,
    path: Annotated[str | None, Parameter(metavar="PATH", group=_HTTP)] = None,
    token_env: Annotated[str | None, Parameter(metavar="NAME", group=_HTTP)] = None,
    insecure: Annotated[bool, Parameter(group=_HTTP)] = False,
    allowed_host: Annotated[_Pairs, Parameter(metavar="HOST", group=_HTTP)] = None,
    allowed_origin: Annotated[_Pairs, Parameter(metavar="ORIGIN", group=_HTTP)] = None,
    stateless: Annotated[bool, Parameter(group=_HTTP)] = False,
    workers: Annotated[int, Parameter(metavar="N", group=_HTTP)] = 1,
    max_concurrency: Annotated[int | None, Parameter(metavar="N", group=_LOAD)] = None,
    grace_period: Annotated[float, Parameter(metavar="SECONDS", group=_LOAD)] = 10.0,
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Parameter(group=_LOAD)] = "info",
) -> ExitCode:
    """
    Serve what was built in Haystack as an MCP server: over stdio, or over HTTP.

    The target may be the YAML of a pipeline; an Agent, a Pipeline, a Tool or Toolset, a function, a document store, a
    prompt builder, a skill store, a list of tools or a whole server in a Python file or a module; or an mcp.json, whose
    servers become one. Functions without parameters are called, and what they return is served.

    Over stdio the client starts this command and talks to it through stdin and stdout.

    :param name: What the server calls itself.
    :param description: What clients are told of the pipeline or agent.
    :param input: An input of the pipeline that clients set, as NAME=component.socket. Repeatable, also with the same
        NAME for several inputs. Default: the mandatory ones.
    :param output: An output that is returned, as NAME=component.socket. Repeatable. Default: all.
    :param show_errors: Tell clients what went wrong, and not only that something did.
    :param http: Serve over Streamable HTTP.
    :param host: Where to listen. Other machines can reach anything but a loopback address. Default:
        127.0.0.1.
    :param port: The port; 0 for any free one. Default: 8000.
    :param path: The path of the endpoint. Default: /mcp.
    :param token_env: The environment variable with the bearer token that all clients must send.
    :param insecure: Let other machines use a server without a token.
    :param allowed_host: A name by which clients may reach the server, as behind a proxy. Repeatable.
    :param allowed_origin: An origin of web pages that may use the server. Repeatable.
    :param stateless: Keep no sessions.
    :param workers: Processes that serve the same port. Default: 1.
    :param max_concurrency: How many calls run at the same time.
    :param grace_period: Seconds that running calls get when the server is stopped. Default: 10.
    :param log_level: What is logged to stderr. Default: info.
    """
    endpoint: dict[str, Any] = {"host": host, "port": port, "path": path}
    for_http = {
        **{f"--{option}": value is not None for option, value in endpoint.items()},
        "--token-env": token_env,
        "--insecure": insecure,
        "--allowed-host": allowed_host,
        "--allowed-origin": allowed_origin,
        "--stateless": stateless,
        "--workers": workers != 1,
    }
    if not http and (given := [option for option, is_given in for_http.items() if is_given]):
        msg = f"Over stdio there is one client, and no place for {', '.join(given)}: add --http"
        raise CommandError(msg)
    try:
        from haystack_integrations.tools.mcp.serving import run_server  # noqa: PLC0415 - needs the extra `serve`
    except ImportError as error:
        raise CommandError(str(error)) from error
    order = Order(
        target=target,
        name=name,
        description=description,
        inputs=_inputs(input or ()),
        outputs=_outputs(output or ()),
        max_concurrency=max_concurrency,
        shows_errors=show_errors,
    )
    logging.getLogger("haystack_integrations.tools.mcp").setLevel(log_level.upper())
    auth = secret_of("--token-env", token_env) if token_env else None
    try:
        # Workers make theirs; this one only finds out whether they can.
        server = order.server()
        with stdout_for_protocol():
            if not http:
                run_server(server, grace_period=grace_period, log_level=log_level)
                return ExitCode.OK
            run_server(
                server if workers == 1 else for_workers(order),
                transport="http",
                auth=auth,
                insecure=insecure,
                allowed_hosts=allowed_host,
                allowed_origins=allowed_origin,
                stateless=stateless or None,
                workers=workers,
                grace_period=grace_period,
                log_level=log_level,
                **{option: value for option, value in endpoint.items() if value is not None},
            )
    except _REFUSALS as error:
        raise CommandError(for_terminal(error), exit_code_of(error) or ExitCode.USAGE) from error
    return ExitCode.OK


def _inputs(given: Sequence[str]) -> dict[str, str | list[str]]:
    sockets: dict[str, Any] = {}
    for name, socket in (_pair(text, "--input") for text in given):
        sockets.setdefault(name, []).append(socket)
    return {name: of_name if len(of_name) > 1 else of_name[0] for name, of_name in sockets.items()}


def _outputs(given: Sequence[str]) -> dict[str, str]:
    pairs = [_pair(text, "--output") for text in given]
    names = [name for name, _ in pairs]
    if twice := [name for name in dict.fromkeys(names) if names.count(name) > 1]:
        msg = f"--output {twice[0]} is given twice: choose another name for one of them"
        raise CommandError(msg)
    return dict(pairs)


def _pair(text: str, option: str) -> tuple[str, str]:
    name, equals, socket = text.partition("=")
    # Agents and SuperComponents have inputs and outputs without the name of a component.
    if not equals or not name or not socket:
        msg = f"{option} takes NAME=component.socket, e.g. {option} query=retriever.query"
        raise CommandError(msg)
    return name, socket
