# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import os
import shlex
import sys
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NoReturn

from haystack.utils import Secret

from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_args, redact_text
from haystack_integrations.tools.mcp.secret_template import from_template
from haystack_integrations.tools.mcp.transports.entries import is_sse_url, server_info_of, settings_of
from haystack_integrations.tools.mcp.transports.http.server_info import SSEServerInfo, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.transports.in_process.server_info import InProcessServerInfo
from haystack_integrations.tools.mcp.transports.stdio.server_info import StdioServerInfo

_CHOICES = (
    "A server is reached by a URL ('https://host/mcp'), a command line as a list (['uvx', 'mcp-server-time']), the "
    "path of a script ('server.py' or 'server.js'), a server object (MCPServer, Server, FastMCP), a dictionary as in "
    "`mcpServers` ({'command': 'uvx', 'args': ['mcp-server-time']}), or a server info (StdioServerInfo, "
    "StreamableHttpServerInfo, SSEServerInfo, InProcessServerInfo or a custom one)"
)

# What a script is run with, by its ending.
_INTERPRETERS = {".py": sys.executable, ".js": "node", ".mjs": "node", ".cjs": "node"}


def server_info_from(target: Any) -> MCPServerInfo:
    """
    Make a server info of whatever says how to reach a server.

    ```python
    from haystack_integrations.tools.mcp import server_info_from

    server_info_from("https://mcp.example.com/mcp")         # StreamableHttpServerInfo
    server_info_from("https://mcp.example.com/sse")         # SSEServerInfo
    server_info_from(["uvx", "mcp-server-time"])            # StdioServerInfo
    server_info_from({"command": "npx", "args": ["-y", "@modelcontextprotocol/server-everything"]})
    ```

    `MCPTool` and `MCPToolset` take the same as `server_info`. Variables (`${NAME}`, `${NAME:-default}`, `${env:NAME}`)
    in URLs, command lines and dictionaries are kept as Secrets, and resolved when a session is opened.

    :param target: One of

        * a URL, as a string or an `AnyUrl` of pydantic. Streamable HTTP is tried first, and SSE if the server refuses
          it with status 400, 404 or 405; a URL that ends in `/sse` is one of SSE;
        * a list: a command and its arguments;
        * the path of a script, which exists: `.py` is run with this Python, `.js`, `.mjs` and `.cjs` with `node`;
        * a server object: `MCPServer` or `Server` of the MCP SDK, or a FastMCP server;
        * a dictionary, as one entry of `mcpServers`;
        * a server info, which is returned as it is.
    :returns: The server info.
    :raises ValueError: If it is something else. The message names the choices.
    """
    if isinstance(target, MCPServerInfo):
        return target
    if isinstance(target, (str, os.PathLike)) and target:
        return _from_text(os.fspath(target))
    if any(f"{base.__module__}.{base.__name__}" == "pydantic.networks.AnyUrl" for base in type(target).__mro__):
        return _from_text(str(target))  # by name, so that pydantic need not be imported
    if isinstance(target, (list, tuple)) and target:
        return _from_command_line(list(target))
    if isinstance(target, Mapping):
        return _from_entry(target)
    if _is_server(target):
        return InProcessServerInfo(target)
    _refuse("it is empty" if isinstance(target, (str, list, tuple)) else f"got {type(target).__name__}")


def _refuse(reason: str) -> NoReturn:
    msg = f"`server_info` is of no known kind: {reason}. {_CHOICES}."
    raise ValueError(msg)


def _from_text(text: Any) -> MCPServerInfo:
    text = os.fsdecode(text)
    if "://" in text or text.startswith("${"):
        url = from_template(text)
        return SSEServerInfo(url=url) if is_sse_url(text) else StreamableHttpServerInfo(url=url, sse_fallback=True)
    path = Path(text)
    interpreter = _INTERPRETERS.get(path.suffix)
    if interpreter is not None and path.is_file():
        return StdioServerInfo(command=interpreter, args=[str(path)])
    shown_text = redact_text(text)
    if interpreter is not None:
        _refuse(f"there is no file '{shown_text}' in {os.getcwd()}")
    if len(text.split()) == 1:
        _refuse(f"'{shown_text}' is neither a URL nor the path of a script ({', '.join(_INTERPRETERS)})")
    words = text.split()
    with suppress(ValueError):  # a quotation mark that is not closed
        words = shlex.split(text)
    _refuse(f"a command line is a list: {redact_args(words)}")


def _from_command_line(words: list[Any]) -> StdioServerInfo:
    words = [os.fspath(word) if isinstance(word, os.PathLike) else word for word in words]
    wrong = [type(word).__name__ for word in words if not isinstance(word, (str, Secret))]
    if wrong:
        msg = f"`server_info`: a command line is a list of strings; there is a value of type {wrong[0]}. {_CHOICES}."
        raise ValueError(msg)
    command, *args = (word if isinstance(word, Secret) else from_template(word) for word in words)
    return StdioServerInfo(command=command, args=args)


def _from_entry(entry: Mapping[Any, Any]) -> MCPServerInfo:
    where = "`server_info`"
    problem = None
    if whole := [key for key in ("mcpServers", "servers") if key in entry]:
        problem = f"this is a whole configuration with {whole[0]!r}"
    elif entry and all(isinstance(each, Mapping) for each in entry.values()):
        problem = f"these are several servers, {', '.join(map(repr, entry))}"
    if problem is not None:
        msg = f"{where}: {problem}; pass one of the dictionaries, or use load_mcp_toolsets({{'mcpServers': {{...}}}}), "
        msg += "which makes a toolset for each server"
        raise ValueError(msg)
    settings = settings_of(entry, where)
    if settings.disabled or settings.only_tools is not None or settings.not_tools or settings.parameters:
        msg = f"{where}: a dictionary says how to reach the server. What it says about the tools are parameters of "
        msg += "MCPToolset; load_mcp_toolsets({'mcpServers': {...}}) reads both"
        raise ValueError(msg)
    return server_info_of(entry, where)


def _is_server(target: Any) -> bool:
    # By name, because importing the SDK takes half a second. A server that wraps another, as the first FastMCP does,
    # has the SDK's own inside.
    names = {f"{base.__module__}.{base.__name__}" for base in type(target).__mro__}
    is_known = any(
        name.startswith(("mcp.server.", "fastmcp.")) and name.rpartition(".")[2] in ("FastMCP", "MCPServer", "Server")
        for name in names
    )
    return is_known or hasattr(target, "_mcp_server")
