# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`MCPResourceToolset`: tools with which a model lists and reads the resources of a server.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

from haystack.core.serialization import generate_qualified_class_name
from haystack.dataclasses import TextContent
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from pydantic import Field

from haystack_integrations.tools.mcp.budgets import admit_call
from haystack_integrations.tools.mcp.convert.arguments import fit_arguments_of_own
from haystack_integrations.tools.mcp.convert.content import ContentPart, model_content, model_text
from haystack_integrations.tools.mcp.convert.resources import matches_any
from haystack_integrations.tools.mcp.convert.server_texts import html_table, visible_text
from haystack_integrations.tools.mcp.convert.tool_names import ToolNamePrefix, provider_safe_name
from haystack_integrations.tools.mcp.haystack_compat import HAS_ASYNC_FUNCTION
from haystack_integrations.tools.mcp.import_paths import stored_in
from haystack_integrations.tools.mcp.parameters import Positive, Text, checked
from haystack_integrations.tools.mcp.tool_base import LiveToolset, ReaderBase, loaded_parameters

if TYPE_CHECKING:
    import mcp_types as types

# The maximum length of a description, and of a name, in a line of a listing, in characters.
_MAX_FACT_LENGTH = 200

_OFFSET_SCHEMA = {"type": "integer", "minimum": 0, "default": 0}


@stored_in("haystack_integrations.tools.mcp")
class MCPResourceToolset(ReaderBase, LiveToolset):
    """
    Two tools with which a model finds and reads the resources of an MCP server, within limits.

    `list_resources` lists resources and templates, or searches them; `read_resource` reads a resource by its URI.
    Results of the server's tools may contain links to resources, which the model sees with their URIs. Together with
    the MCPToolset of the same server, this toolset lets the model follow them, over the same session.

    A model may read any resource, perhaps because a text that it has read told it to. `uris` restricts that.

    ### Usage example

    ```python
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack_integrations.tools.mcp import MCPResourceToolset, MCPToolset, StdioServerInfo

    everything = StdioServerInfo(command="npx", args=["-y", "@modelcontextprotocol/server-everything"])
    tools = [MCPToolset(everything), MCPResourceToolset(everything, uris=["demo://resource/*"])]
    agent = Agent(chat_generator=OpenAIChatGenerator(), tools=tools)
    ```
    """

    @checked()
    def __init__(
        self,
        server_info: Any,
        *,
        uris: list[Text] | None = None,
        max_size: Annotated[int, Field(ge=200)] = 20_000,
        max_listed: Positive = 50,
        tool_name_prefix: ToolNamePrefix | None = None,
        result_format: Literal["text", "content"] = "text",
        connection_timeout: float = 30.0,
        invocation_timeout: float | None = 30.0,
        share: bool = True,
        handlers: Any = None,
        required: bool = True,
    ) -> None:
        """
        Initialize the toolset. Nothing is connected yet.

        :param server_info: How to reach the server: a server info, or the shorthand that `server_info_from` takes, such
            as a URL, a command line as a list or a server object.
        :param uris: The resources that the model may list and read: URIs, or patterns such as `"notes://public/*"`.
            Default: all resources of the server. A URI that contains, encoded or not, white space, invisible
            characters, backslashes or dot segments matches no pattern.
        :param max_size: How many characters of a resource the model gets at a time, at least 200. It can ask for more.
            Default: 20,000.
        :param max_listed: How many resources and templates the model gets at a time. It can ask for more. Default: 50.
        :param tool_name_prefix: Optional prefix for the names of the tools, as in `prefix_list_resources`. Use it for
            the resources of several servers.
        :param result_format: `"text"` (default) for a note in place of images; `"content"` for the images, for chat
            generators that accept them in tool messages.
        :param connection_timeout: Timeout in seconds for connecting.
        :param invocation_timeout: Timeout in seconds for each request. None for 300.
        :param share: Whether to share the connection with all other objects that have an equal `server_info`.
        :param handlers: Handlers for the server's requests; see MCPHandlers.
        :param required: Whether it is an error if the server cannot be reached at warm-up. If False, a warning is
            logged, and the model gets an error when it uses the tools, until the server is back.
        :raises ValueError: If a parameter is invalid.
        """
        self._connect_to(
            server_info,
            connection_timeout=connection_timeout,
            invocation_timeout=invocation_timeout,
            share=share,
            handlers=handlers,
            required=required,
        )
        self.uris: list[str] | None = uris
        self.max_size = max_size
        self.max_listed = max_listed
        self.tool_name_prefix = tool_name_prefix
        self.result_format = result_format
        Toolset.__init__(self, tools=[self._listing_tool(), self._reading_tool()])

    def _listing_tool(self) -> Tool:
        reading = provider_safe_name("read_resource", self.tool_name_prefix)
        query = {"type": "string", "default": "", "description": "Words that the name, URI or description contains."}
        return self._tool(
            "list_resources",
            f"List the resources that can be read with {reading}: documents, files and other data. A template has "
            "names in braces; fill them in to get a URI.",
            {"query": query, "offset": {**_OFFSET_SCHEMA, "description": "How many to skip."}},
            self._list,
            self._list_async,
        )

    def _reading_tool(self) -> Tool:
        uri = {"type": "string", "description": "The URI, from a list of resources or a link."}
        return self._tool(
            "read_resource",
            f"Read a resource by its URI, at most {self.max_size} characters at a time.",
            {"uri": uri, "offset": {**_OFFSET_SCHEMA, "description": "How many characters to skip."}},
            self._read,
            self._read_async,
        )

    def _tool(
        self, name: str, description: str, properties: dict[str, Any], function: Any, async_function: Any
    ) -> Tool:
        required = [parameter for parameter, schema in properties.items() if "default" not in schema]
        parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return Tool(
            name=provider_safe_name(name, self.tool_name_prefix),
            description=description,
            parameters=parameters,
            function=function,
            outputs_to_string={"raw_result": True},
            **({"async_function": async_function} if HAS_ASYNC_FUNCTION else {}),
        )

    def _fit_and_admit(self, name: str, parameter: str, arguments: dict[str, Any]) -> tuple[str, int]:
        tool_name = provider_safe_name(name, self.tool_name_prefix)
        fitted = fit_arguments_of_own(tool_name, {parameter: {"type": "string"}, "offset": _OFFSET_SCHEMA}, arguments)
        admit_call(tool_name, is_mcp_tool=False)
        return fitted.get(parameter, ""), fitted.get("offset", 0)

    def _list(self, **arguments: Any) -> str:
        return self._connection._submit(self._list_async(**arguments))

    async def _list_async(self, **arguments: Any) -> str:
        query, offset = self._fit_and_admit("list_resources", "query", arguments)
        resources = await self._connection.list_resources_async()
        templates = await self._connection.list_resource_templates_async()
        return self._format_listing(resources, templates, query, offset)

    def _read(self, **arguments: Any) -> str | list[ContentPart]:
        return self._connection._submit(self._read_async(**arguments))

    async def _read_async(self, **arguments: Any) -> str | list[ContentPart]:
        uri, offset = self._fit_and_admit("read_resource", "uri", arguments)
        return self._format_contents(await self._connection.read_resource_async(self._check_uri(uri)), offset)

    def _may_read(self, uri: str) -> bool:
        return self.uris is None or matches_any(uri, self.uris)

    def _check_uri(self, uri: str) -> str:
        if not uri:
            msg = "`uri` must be the URI of a resource"
            raise ValueError(msg)
        if not self._may_read(uri):
            msg = f"This resource may not be read. Those that may be: {', '.join(self.uris or [])}"
            raise ValueError(msg)
        return uri

    def _format_listing(
        self,
        resources: Iterable[types.Resource],
        templates: Iterable[types.ResourceTemplate],
        query: str,
        offset: int,
    ) -> str:
        lines = [_line("", each.uri, each) for each in resources if self._may_read(each.uri)]
        lines += [
            _line("template: ", each.uri_template, each) for each in templates if self._may_read(each.uri_template)
        ]
        words = query.casefold().split()
        found = [line for line in lines if all(word in line.casefold() for word in words)]
        if not found:
            return f"None of {len(lines)} resources has these words." if lines else "There are no resources."
        shown = found[offset : offset + self.max_listed]
        if left := len(found) - offset - len(shown):
            following = offset + len(shown)
            more = f"[{left} more of {len(found)}: use offset={following}, or words to search for]"
            shown.append(more if left > 0 else f"[there are only {len(found)}]")
        return "\n".join(shown)

    def _format_contents(self, result: types.ReadResourceResult, offset: int) -> str | list[ContentPart]:
        texts: list[str] = []
        parts: list[ContentPart] = []
        for contents in result.contents:
            text = getattr(contents, "text", None)
            if isinstance(text, str):
                texts.append(text)
                continue
            resource = contents.model_dump(by_alias=True, mode="json", exclude_none=True)
            envelope = {"content": [{"type": "resource", "resource": resource}], "isError": False}
            shown = model_content(envelope) if self.result_format == "content" else model_text(envelope)
            if isinstance(shown, str):
                texts.append(shown)
            else:
                parts += shown
        text = self._cut("\n".join(texts), offset)
        if not parts:
            return text or "[no content]"
        return [TextContent(text), *parts] if text else parts

    def _cut(self, text: str, offset: int) -> str:
        end = offset + self.max_size
        if offset == 0 and end >= len(text):
            return text
        if offset >= len(text):
            return f"[there are only {len(text)} characters]"
        rest = f"use offset={end} to go on" if end < len(text) else "this is the end"
        return f"{text[offset:end]}\n[characters {offset} to {min(end, len(text))} of {len(text)}: {rest}]"

    def _as_dict(self, method: str) -> dict[str, Any]:
        data = self._stored_parameters(MCPResourceToolset, method)
        return {"type": generate_qualified_class_name(type(self)), "data": data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize a toolset, without connecting.

        :param data: The result of `to_dict`.
        :returns: The toolset.
        """
        return cls(**loaded_parameters(data["data"]))

    def _repr_html_(self) -> str:
        return html_table(self.tools, f"{type(self).__name__} of {self.server_info.describe()}")

    def __repr__(self) -> str:
        """
        Describe the toolset without secrets.
        """
        return f"{type(self).__name__}(server_info={self.server_info!r}, tools={[tool.name for tool in self.tools]!r})"


def toolset_of_reader(tool: Tool | None) -> MCPResourceToolset | None:
    """
    Return the toolset of a tool that lists or reads resources.

    :param tool: Any tool; None for an unknown tool.
    :returns: The toolset; None for any other tool.
    """
    owner = getattr(getattr(tool, "function", None), "__self__", None)
    return owner if isinstance(owner, MCPResourceToolset) else None


def _shortened(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _MAX_FACT_LENGTH else f"{text[: _MAX_FACT_LENGTH - 1]}…"


def _line(kind: str, uri: str, listed: types.Resource | types.ResourceTemplate) -> str:
    name = listed.title or listed.name
    size = getattr(listed, "size", None)
    facts = ", ".join(
        _shortened(fact)
        for fact in (name if name != uri else "", listed.mime_type, f"{size} bytes" if size else "")
        if fact
    )
    description = _shortened(listed.description or "")
    line = visible_text(f"{kind}{uri}{f' ({facts})' if facts else ''}{f': {description}' if description else ''}")
    # Keep each resource on one line, whatever the server sends.
    return " ".join(line.split())
