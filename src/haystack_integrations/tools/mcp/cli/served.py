# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What `mcp-haystack serve` makes a server of.

.. code-block:: text

    pipeline.yaml                     a pipeline; or a component such as an Agent, or `tools`, as `config` prints them
    mcp.json                          the tools, resources and prompts of its servers
    server.py, server.py:name         a server, or anything below, in a Python file: by default `server`, `mcp` or `app`
    package.module:name               the same in a module: a server, or a function without parameters that makes one;
                                      an Agent, a Pipeline, a Tool, a Toolset, a list of these, a function, a document
                                      store, a prompt builder or a skill store
"""

from __future__ import annotations

import contextlib
import inspect
import json
import os
import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.cli.files import read_yaml, servers_in
from haystack_integrations.tools.mcp.cli.targets import module_of, modules_are_found_here, object_in_file
from haystack_integrations.tools.mcp.convert.tool_names import provider_safe_name
from haystack_integrations.tools.mcp.haystack_compat import deserialize_object, super_component_class
from haystack_integrations.tools.mcp.import_paths import import_object, is_import_path
from haystack_integrations.tools.mcp.mcp_toolset import MCPToolset
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo

if TYPE_CHECKING:
    from fastmcp import FastMCP

_NAMES_OF_SERVERS = ("server", "mcp", "app")

# How the workers of a server over HTTP learn what to serve.
_VARIABLE = "MCP_HAYSTACK_SERVE"

_OPTION_OF = {
    "name": "--name",
    "description": "--description",
    "inputs": "--input",
    "outputs": "--output",
    "max_concurrency": "--max-concurrency",
    "shows_errors": "--show-errors",
}

_CHOICES = (
    "serve takes the YAML of a pipeline, an mcp.json, a Python file (server.py or server.py:name) or an import path "
    "(package.module:name)"
)


@dataclass(frozen=True, kw_only=True)
class Order:
    """
    What is to be served, and how.

    :param target: What is served.
    :param name: What the server calls itself; None for a name that fits.
    :param description: What clients are told of the pipeline or agent.
    :param inputs: Which inputs of it clients set: names for clients, and the sockets.
    :param outputs: Which outputs are returned, likewise.
    :param max_concurrency: How many calls run at a time; None for the default.
    :param shows_errors: Whether clients get to see what went wrong.
    """

    target: str
    name: str | None = None
    description: str | None = None
    inputs: dict[str, str | list[str]] = field(default_factory=dict)
    outputs: dict[str, str] = field(default_factory=dict)
    max_concurrency: int | None = None
    shows_errors: bool = False

    def server(self) -> FastMCP[Any]:
        """
        Make the server.

        :returns: The server.
        :raises CommandError: If there is nothing that can be served.
        :raises ValueError: If something of it cannot be served.
        """
        from fastmcp import FastMCP  # noqa: PLC0415 - takes long to import

        from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server  # noqa: PLC0415

        modules_are_found_here()
        # Over stdio, stdout is for the protocol.
        with contextlib.redirect_stdout(sys.stderr):
            name, things = self._things()
            made = things.get("server")
            if isinstance(made, FastMCP):
                given = [_OPTION_OF[key] for key, value in asdict(self).items() if value and key != "target"]
                if given:
                    msg = f"{self.target} is a server already, which says for itself what {', '.join(given)} would say"
                    raise CommandError(msg)
                return made
            own = {"description": self.description, "inputs": self.inputs, "outputs": self.outputs}
            own = {key: value for key, value in own.items() if value}
            options = {name: ServeOptions(**own)} if own else None  # type: ignore[arg-type]
            chosen: dict[str, Any] = {"mask_error_details": not self.shows_errors}
            if self.max_concurrency is not None:
                chosen["max_concurrency"] = self.max_concurrency
            return create_mcp_server(self.name or name, **things, options=options, **chosen)

    def _things(self) -> tuple[str, dict[str, Any]]:
        """
        Find what is served: its name, and the parameters of `create_mcp_server`, or a server.
        """
        target = self.target
        file, colon, attribute = target.rpartition(":")
        if colon and Path(file).is_file():
            return attribute, _kinds(object_in_file(Path(file), attribute), attribute)
        path = Path(target)
        if path.is_file() and path.suffix == ".py":
            return _of_script(path)
        if path.is_file() and path.suffix in (".json", ".jsonc"):
            servers = [server for server in servers_in(path) if not server.is_disabled]
            for server in servers:
                server.usable()  # or say why not
            return provider_safe_name(path.stem), {"tools": [server.toolset for server in servers]}
        if path.is_file() and path.suffix in (".yaml", ".yml"):
            return provider_safe_name(path.stem), _of_yaml(path)
        if is_import_path(target):
            attribute = target.rpartition(":")[2].rpartition(".")[2]
            return attribute, _kinds(import_object(target), attribute)
        where = f"There is no file {target} in {os.getcwd()}; " if path.suffix else f"'{target}' is none of that: "
        raise CommandError(where + _CHOICES)


def from_environment() -> FastMCP[Any]:
    """
    Make the server in a worker.

    :returns: The server.
    """
    return Order(**json.loads(os.environ[_VARIABLE])).server()


def for_workers(order: Order) -> str:
    """
    Say how workers make the server.

    :param order: What is served.
    :returns: An import path.
    """
    os.environ[_VARIABLE] = json.dumps(asdict(order))
    return f"{__name__}:{from_environment.__name__}"


def _of_script(file: Path) -> tuple[str, dict[str, Any]]:
    module = module_of(file)
    for name in _NAMES_OF_SERVERS:
        if hasattr(module, name):
            return provider_safe_name(file.stem), _kinds(getattr(module, name), provider_safe_name(file.stem))
    msg = f"{file} has no {', '.join(_NAMES_OF_SERVERS)}: say what to serve, as in {file}:name"
    raise CommandError(msg)


def _of_yaml(file: Path) -> dict[str, Any]:
    name = provider_safe_name(file.stem)
    content = read_yaml(file)
    known = content if isinstance(content, Mapping) else {}
    if "components" in known:
        return {"pipelines": {name: file.absolute()}}
    if isinstance(known.get("tools"), list):
        return {"tools": [deserialize_object(dict(stored)) for stored in known["tools"]]}
    if isinstance(known.get("type"), str):
        return _kinds(deserialize_object(dict(known)), name)
    msg = f"{file} has neither `components` of a pipeline, nor `tools`, nor the `type` of a component"
    raise CommandError(msg)


def _kinds(thing: Any, name: str) -> dict[str, Any]:
    """
    Tell what kind of thing something is: the parameter of `create_mcp_server` that takes it.
    """
    from fastmcp import FastMCP  # noqa: PLC0415 - takes long to import
    from haystack.components.agents import Agent  # noqa: PLC0415
    from haystack.core.pipeline.base import PipelineBase  # noqa: PLC0415
    from haystack.tools.tool import Tool  # noqa: PLC0415
    from haystack.tools.toolset import Toolset  # noqa: PLC0415

    if isinstance(thing, FastMCP):
        return {"server": thing}
    if isinstance(thing, MCPServerInfo):
        return {"tools": [MCPToolset(thing)]}
    if isinstance(thing, (Tool, Toolset)):
        return {"tools": [thing]}
    if isinstance(thing, (list, tuple)) and thing:
        return {"tools": list(thing)}
    if isinstance(thing, Agent):
        return {"agents": {name: thing}}
    if isinstance(thing, (PipelineBase, super_component_class())):
        return {"pipelines": {name: thing}}
    if callable(getattr(thing, "filter_documents", None)) and callable(getattr(thing, "write_documents", None)):
        return {"document_stores": {name: thing}}
    if callable(getattr(thing, "load_skill", None)) and callable(getattr(thing, "list_skills", None)):
        return {"skills": [thing]}
    if hasattr(thing, "template") and hasattr(thing, "variables") and callable(getattr(thing, "run", None)):
        return {"prompts": {name: thing}}
    if inspect.isroutine(thing):
        return {"tools": [thing]} if inspect.signature(thing).parameters else _kinds(_made(thing), name)
    msg = f"'{name}' is a {type(thing).__name__}, which cannot be served. {_CHOICES}, with something of Haystack"
    raise CommandError(msg)


def _made(function: Any) -> Any:
    made = function()
    if inspect.iscoroutine(made):
        made.close()
        msg = f"'{function.__name__}' is asynchronous: a function that makes what is served must not be"
        raise CommandError(msg)
    return made
