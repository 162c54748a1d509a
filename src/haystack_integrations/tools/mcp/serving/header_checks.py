# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Checks of the headers in which clients repeat arguments (`Mcp-Param-*`), without a listing of all tools at each call.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any
from weakref import ref

from fastmcp import FastMCP
from fastmcp.server.context import Context
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.shared.inbound import MCP_METHOD_HEADER, MCP_NAME_HEADER, X_MCP_HEADER_KEY, decode_header_value
from starlette.requests import Request

from haystack_integrations.tools.mcp.serving.low_level import low_level_server
from haystack_integrations.tools.mcp.serving.provider import HaystackProvider


def look_up_called_tools(server: FastMCP[Any]) -> None:
    """
    Spare a server listings that nobody asked for. Doing it again changes nothing.

    Before each call over HTTP in revision 2026-07-28, the SDK lists all tools to see whether the schema of the called
    one declares headers. It has a hook for servers that know their schemas (`get_tool_input_schema`), but that is a
    plain function, and FastMCP's providers have to be awaited. From 4.2 on, FastMCP answers it with the schemas
    that it has listed, and leaves calls unchecked that come before.

    :param server: A FastMCP server.
    """
    low_level = low_level_server(server)
    known = low_level.get_tool_input_schema
    if known is not None:
        if not isinstance(known, _KnownSchemas):
            low_level.get_tool_input_schema = _KnownSchemas(server, known)
    elif not any(isinstance(each, _LookUp) for each in low_level.middleware):
        low_level.middleware.append(_LookUp(server))


class _KnownSchemas:
    """
    Adds the tools of Haystack that were never listed to the schemas that FastMCP knows.
    """

    def __init__(self, server: FastMCP[Any], of_fastmcp: Callable[[str], Mapping[str, Any] | None]) -> None:
        self._server = ref(server)
        self._of_fastmcp = of_fastmcp

    def __call__(self, name: str) -> Mapping[str, Any] | None:
        schema, server = self._of_fastmcp(name), self._server()
        if schema is not None or server is None:
            return schema
        providers = [each for each in server.providers if isinstance(each, HaystackProvider)]
        return next((found for each in providers if (found := each.input_schema(name)) is not None), None)


class _LookUp:
    """
    Answers the SDK's own listings, if the called tool declares no headers.
    """

    def __init__(self, server: FastMCP[Any]) -> None:
        self._server = ref(server)

    async def __call__(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        name, server = _called_tool(ctx), self._server()
        if name is None or server is None:
            return await call_next(ctx)
        async with Context(fastmcp=server, session=ctx.session):
            tool = await server.get_tool(name)
        if tool is None or _declares_headers(tool.parameters):
            return await call_next(ctx)
        return {"tools": [{"name": name, "inputSchema": {"type": "object"}}]}


def _called_tool(ctx: ServerRequestContext[Any, Any]) -> str | None:
    """
    Give the tool of the call that a listing is for. A client's own listing names `tools/list` in its headers.
    """
    if ctx.method != "tools/list" or not isinstance(ctx.request, Request):
        return None
    headers = ctx.request.headers
    if headers.get(MCP_METHOD_HEADER) != "tools/call":
        return None
    return decode_header_value(headers.get(MCP_NAME_HEADER))


def _declares_headers(schema: Any) -> bool:
    if isinstance(schema, dict):
        return X_MCP_HEADER_KEY in schema or any(map(_declares_headers, schema.values()))
    return isinstance(schema, list) and any(map(_declares_headers, schema))
