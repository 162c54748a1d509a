# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`serve`: serves what was built in Haystack to MCP clients.
"""

from __future__ import annotations

import contextlib
import inspect
import logging
import os
import sys
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from cyclopts import Group, Parameter
from haystack.components.agents import Agent
from haystack.core.errors import ComponentError, DeserializationError, PipelineError
from haystack.core.pipeline.base import PipelineBase
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset

from haystack_integrations.tools.mcp.cli.files import CONFIG_SUFFIXES, servers_in
from haystack_integrations.tools.mcp.cli.output import (
    CommandError,
    ExitCode,
    Output,
    exit_code_of,
    for_terminal,
    stdout_for_protocol,
)
from haystack_integrations.tools.mcp.cli.targets import (
    TargetText,
    file_and_name,
    make_modules_importable,
    module_of,
    object_in_file,
    secret_of,
)
from haystack_integrations.tools.mcp.convert.tool_names import provider_safe_name
from haystack_integrations.tools.mcp.errors import MCPError
from haystack_integrations.tools.mcp.haystack_compat import deserialize_object, super_component_class
from haystack_integrations.tools.mcp.import_paths import import_object, is_import_path
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.parameters import unchanged_fields
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.transports.server_infos import InProcessServerInfo

if TYPE_CHECKING:
    from fastmcp import FastMCP

_LOAD = Group("Load and logs", sort_key=3)

# Errors that a wrong target or wrong options cause.
_TARGET_ERRORS = (ValueError, TypeError, ImportError, MCPError, ComponentError, DeserializationError, PipelineError)

_SERVER_NAMES = ("server", "mcp", "app")

_CHOICES = (
    "serve takes the YAML of a pipeline, an mcp.json, a Python file (server.py or server.py:name) or an import path "
    "(package.module:name)"
)


@Parameter(name="*", group=Group("What clients see", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class ViewOptions:
    """
    The options for what clients see.

    :param name: The name of the server.
    :param description: The description of the pipeline or agent for clients.
    :param input: An input of the pipeline that clients set, as NAME=component.socket. Repeatable, also with the same
        NAME for several inputs. Default: the mandatory ones.
    :param output: An output that is returned, as NAME=component.socket. Repeatable. Default: those that no other
        component takes.
    :param show_errors: Tell clients what went wrong, and not only that something did.
    :param max_concurrency: How many calls run at the same time. Default: 32.
    """

    name: Annotated[str | None, Parameter(metavar="NAME")] = None
    description: Annotated[str | None, Parameter(metavar="TEXT")] = None
    input: Annotated[list[str] | None, Parameter(metavar="NAME=SOCKET")] = None
    output: Annotated[list[str] | None, Parameter(metavar="NAME=SOCKET")] = None
    show_errors: bool = False
    max_concurrency: Annotated[int, Parameter(metavar="N", group=_LOAD)] = 32


@Parameter(name="*", group=Group("Over HTTP", sort_key=2))
@dataclass(frozen=True, kw_only=True)
class HttpOptions:
    """
    The options for how clients reach the server: parameters of `run_server`.

    :param host: The address to listen on. If it is not a loopback address, other machines can reach it. Default:
        127.0.0.1.
    :param port: The port; 0 for any free one. Default: 8000.
    :param path: The path of the endpoint. Default: /mcp.
    :param token_env: The environment variable with the bearer token that all clients must send.
    :param insecure: Let other machines use a server without a token.
    :param allowed_hosts: A host name by which clients may reach the server, for example behind a proxy. Repeatable.
    :param allowed_origins: An origin of web pages that may use the server. Repeatable.
    :param stateless: Keep no sessions.
    :param workers: Processes that serve the same port. Default: 1.
    """

    host: Annotated[str, Parameter(metavar="HOST")] = "127.0.0.1"
    port: Annotated[int | None, Parameter(metavar="PORT")] = None
    path: Annotated[str, Parameter(metavar="PATH")] = "/mcp"
    token_env: Annotated[str | None, Parameter(metavar="NAME")] = None
    insecure: bool = False
    allowed_hosts: Annotated[list[str] | None, Parameter(name="--allowed-host", metavar="HOST")] = None
    allowed_origins: Annotated[list[str] | None, Parameter(name="--allowed-origin", metavar="ORIGIN")] = None
    stateless: bool | None = None
    workers: Annotated[int, Parameter(metavar="N")] = 1


def serve(
    target: Annotated[
        TargetText,
        Parameter(
            help="The YAML of a pipeline, an mcp.json, a Python file (server.py or server.py:name), or an import path "
            "(package.module:name)."
        ),
    ],
    /,
    *,
    view: ViewOptions = ViewOptions(),
    http: Annotated[bool, Parameter(group="Over HTTP")] = False,
    over_http: HttpOptions = HttpOptions(),
    grace_period: Annotated[float, Parameter(metavar="SECONDS", group=_LOAD)] = 10.0,
    log_level: Annotated[Literal["debug", "info", "warning", "error"], Parameter(group=_LOAD)] = "info",
) -> ExitCode:
    """
    Serve what was built in Haystack as an MCP server: over stdio, or over HTTP.

    The target may be the YAML of a pipeline; an Agent, a Pipeline, a Tool or Toolset, a function, a document store, a
    prompt builder, a skill store, a list of tools or a whole server in a Python file or a module; or an mcp.json, whose
    servers become one. Functions without parameters are called, and what they return is served.

    Over stdio the client starts this command and talks to it through stdin and stdout.

    :param http: Serve over Streamable HTTP.
    :param grace_period: Seconds that running calls get when the server is stopped. Default: 10.
    :param log_level: What is logged to stderr. Default: info.
    """
    logging.getLogger("haystack_integrations.tools.mcp").setLevel(log_level.upper())
    if not http and over_http != HttpOptions():
        msg = "Over stdio there is one client, which starts this command. The options for HTTP need --http"
        raise CommandError(msg)
    options = asdict(over_http)
    variable = options.pop("token_env")
    try:
        from haystack_integrations.tools.mcp.serving import run_server  # noqa: PLC0415 - needs the extra `serve`

        if not http and sys.stdin.isatty():
            Output().note(
                "This speaks MCP over stdin and stdout: it waits for a client, which starts this command itself. To "
                "serve clients that come by a URL, add --http. Ctrl-C ends it."
            )
        with stdout_for_protocol():
            run_server(
                partial(make_server, target, view),
                transport="http" if http else "stdio",
                auth=secret_of("--token-env", variable) if variable else None,
                grace_period=grace_period,
                log_level=log_level,
                **options,
            )
    except _TARGET_ERRORS as error:
        # The settings of other servers are in their file: serve has no options for them.
        text = str(error) if isinstance(error, MCPError) else for_terminal(error)
        raise CommandError(text, exit_code_of(error) or ExitCode.USAGE) from error
    except RuntimeError as error:
        if over_http.workers == 1:
            raise
        raise CommandError(str(error), ExitCode.FAILED) from error  # a worker cannot start the server
    return ExitCode.OK


def make_server(target: str, view: ViewOptions = ViewOptions()) -> FastMCP[Any]:
    """
    Make the server for a target.

    :param target: The target to serve.
    :param view: The options for what clients see.
    :returns: The server.
    :raises CommandError: If the target is nothing that can be served.
    :raises ValueError: If a part of it cannot be served.
    """
    from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server  # noqa: PLC0415 - needs the extra

    make_modules_importable()
    # Prints go to stderr, because stdout is reserved for the protocol over stdio.
    with contextlib.redirect_stdout(sys.stderr):
        name, parameters = _parameters_for_target(target)
        if "server" in parameters:
            unchanged = unchanged_fields(view)
            if given := [f"--{each.name.replace('_', '-')}" for each in fields(view) if each.name not in unchanged]:
                msg = (
                    f"{target} is a server already, for which serve does not take {', '.join(given)}: set it where the "
                    "server is made, with create_mcp_server"
                )
                raise CommandError(msg)
            server: FastMCP[Any] = parameters["server"]
            return server
        inputs: dict[str, list[str]] = {}
        for name_of_input, socket in _sockets(view.input or [], "--input"):
            inputs.setdefault(name_of_input, []).append(socket)
        options: dict[str, Any] = {
            "description": view.description,
            "inputs": {each: sockets if len(sockets) > 1 else sockets[0] for each, sockets in inputs.items()},
            "outputs": dict(_sockets(view.output or [], "--output")),
        }
        options = {key: value for key, value in options.items() if value}
        return create_mcp_server(
            view.name or name,
            **parameters,
            options={name: ServeOptions(**options)} if options else None,
            mask_error_details=not view.show_errors,
            max_concurrency=view.max_concurrency,
        )


def _sockets(pairs: list[str], option: str) -> Iterator[tuple[str, str]]:
    for pair in pairs:
        name, _, socket = pair.partition("=")
        # A socket need not have a dot: inputs and outputs of Agents and SuperComponents belong to no component.
        if not name or not socket:
            msg = f"{option} takes NAME=component.socket, e.g. {option} query=retriever.query"
            raise CommandError(msg)
        yield name, socket


def _parameters_for_target(target: str) -> tuple[str, dict[str, Any]]:
    """
    Return the name of what is served, and the parameters of `create_mcp_server` for it, or a finished server.
    """
    path = Path(target)
    name = provider_safe_name(path.stem or "server")
    if (in_file := file_and_name(target)) is not None:
        file, attribute = in_file
        return attribute, _parameters_for_object(object_in_file(file, attribute), attribute)
    if path.is_file() and path.suffix == ".py":
        module = module_of(path)
        made = [getattr(module, each) for each in _SERVER_NAMES if hasattr(module, each)]
        if made:
            return name, _parameters_for_object(made[0], name)
        msg = f"{path} has no {', '.join(_SERVER_NAMES)}: name what to serve, as in {path}:name"
        raise CommandError(msg)
    if path.is_file() and path.suffix in CONFIG_SUFFIXES:
        servers = [server for server in servers_in(path) if not server.is_disabled]
        if not servers:
            msg = f"{path} has no servers, or none that is enabled"
            raise CommandError(msg)
        for server in servers:
            server.usable()  # raises an error if it cannot be used
        return name, {"tools": [server.toolset for server in servers]}
    if path.is_file() and path.suffix in (".yaml", ".yml"):
        return name, _parameters_from_yaml(path, name)
    if is_import_path(target) and not target.rpartition(":")[0].endswith(".py"):
        attribute = target.rpartition(":")[2].rpartition(".")[2]
        with _errors_reported(target):
            imported = import_object(target)
        return attribute, _parameters_for_object(imported, attribute)
    is_missing = path.suffix and not path.exists()
    where = f"There is no file {target} in {os.getcwd()}; " if is_missing else f"'{target}' is none of these: "
    raise CommandError(where + _CHOICES)


@contextlib.contextmanager
def _errors_reported(of: str) -> Iterator[None]:
    # Other errors than those in `_TARGET_ERRORS` would look like a bug in this program.
    try:
        yield
    except (*_TARGET_ERRORS, CommandError):
        raise
    except Exception as error:
        msg = f"{of} raised {type(error).__name__}: {error}"
        raise CommandError(msg) from error


def _read_yaml(file: Path) -> Any:
    try:
        return yaml.safe_load(file.read_text(encoding="utf-8"))
    except UnicodeDecodeError:
        msg = f"{file} is not in UTF-8: save it in this encoding"
        raise CommandError(msg) from None
    except yaml.YAMLError as error:  # its text quotes the file, which may contain a secret
        mark = getattr(error, "problem_mark", None)
        place = f": line {mark.line + 1}, column {mark.column + 1}, or what is before it" if mark is not None else ""
        msg = f"{file} is not valid YAML{place}"
        raise CommandError(msg) from None


def _parameters_from_yaml(file: Path, name: str) -> dict[str, Any]:
    content = _read_yaml(file)
    known = content if isinstance(content, Mapping) else {}
    if "components" in known:
        return {"pipelines": {name: file.absolute()}}
    if isinstance(known.get("tools"), list):
        return {"tools": [deserialize_object(dict(stored)) for stored in known["tools"]]}
    if isinstance(known.get("type"), str):
        return _parameters_for_object(deserialize_object(dict(known)), name)
    msg = f"{file} has neither `components` of a pipeline, nor `tools`, nor the `type` of a component"
    raise CommandError(msg)


def _parameters_for_object(thing: Any, name: str) -> dict[str, Any]:
    """
    Return the parameter of `create_mcp_server` that takes an object, with the object as its value.
    """
    from fastmcp import FastMCP  # noqa: PLC0415 - needs the extra `serve`

    def has(*methods: str) -> bool:
        return all(callable(getattr(thing, method, None)) for method in methods)

    if inspect.isroutine(thing) and not inspect.signature(thing).parameters:
        with _errors_reported(f"The function '{name}'"):
            thing = thing()
    match thing:
        case FastMCP():
            return {"server": thing}
        case MCPServerInfo():
            return {"tools": [MCPToolset(thing)]}
        case Tool() | Toolset():
            return {"tools": [thing]}
        case list() if thing:
            return {"tools": thing}
        case Agent():
            return {"agents": {name: thing}}
    if type(thing).__module__.startswith("mcp.server."):  # of the SDK
        return {"tools": [MCPToolset(InProcessServerInfo(thing))]}
    if isinstance(thing, (PipelineBase, super_component_class())):
        return {"pipelines": {name: thing}}
    if has("filter_documents", "write_documents"):
        return {"document_stores": {name: thing}}
    if has("load_skill", "list_skills"):
        return {"skills": [thing]}
    if has("run") and hasattr(thing, "template") and hasattr(thing, "variables"):
        return {"prompts": {name: thing}}
    if inspect.isroutine(thing):
        return {"tools": [thing]}
    msg = f"'{name}' is of type {type(thing).__name__}, which cannot be served. {_CHOICES}, with something of Haystack"
    raise CommandError(msg)
