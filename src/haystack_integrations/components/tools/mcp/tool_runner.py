# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`MCPToolRunner`: a component that calls one tool of a server, without a model.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from haystack import Document, component, default_to_dict, logging
from haystack.dataclasses import FileContent, ImageContent, TextContent
from haystack.tools import deserialize_tools_or_toolset_inplace
from haystack.utils import deserialize_type, serialize_type
from pydantic import InstanceOf

from haystack_integrations.tools.mcp import MCPInvocationError, MCPTool, MCPToolResult
from haystack_integrations.tools.mcp.convert.content import json_value
from haystack_integrations.tools.mcp.parameters import Text, checked, own_parameters

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The input of `run` that is not a parameter of the tool, and the outputs that every tool has.
_ARGUMENTS_INPUT = "arguments"
_OUTPUTS: dict[str, Any] = {
    "text": str,
    "structured": Any,
    "content": list[TextContent | ImageContent | FileContent],
    "documents": list[Document],
    "links": list[str],
    "error": str,
}


@component
class MCPToolRunner:
    """
    Calls one tool of an MCP server in a pipeline, without a model.

    The parameters of the tool are inputs of the component: those in `inputs`, or by default all of them. All parameters
    are known at once if the tool has a `snapshot`, otherwise only from warm-up on. Only inputs that are known at once
    can be connected to other components, because creating the component, loading it from YAML and connecting it in a
    pipeline send no request to the server.

    Documents and other Haystack objects are passed to the tool as JSON.

    ### Usage example

    ```python
    from haystack_integrations.components.tools.mcp import MCPToolRunner
    from haystack_integrations.tools.mcp import MCPTool, StdioServerInfo

    time_server = StdioServerInfo(command="uvx", args=["mcp-server-time", "--local-timezone=Europe/Berlin"])
    runner = MCPToolRunner(MCPTool("get_current_time", time_server), inputs=["timezone"])
    print(runner.run(timezone="America/New_York")["text"])
    runner.close()
    ```
    """

    @checked()
    def __init__(
        self,
        tool: InstanceOf[MCPTool],
        inputs: list[Text] | dict[Text, Any] | None = None,
        *,
        optional_inputs: list[str] | None = None,
        outputs: dict[Text, Any] | None = None,
        arguments: dict[str, Any] | None = None,
        raise_on_failure: bool = True,
    ) -> None:
        """
        Initialize the component. Nothing is connected yet.

        :param tool: The tool.
        :param inputs: The parameters of the tool that become inputs of the component: a list of names, or a dictionary
            from names to types. Default: all parameters in the tool's `snapshot`, or those that the server declares,
            from warm-up on.
        :param optional_inputs: The `inputs` that need not be provided. Inputs in `arguments` are optional as well.
        :param outputs: Keys of the tool's structured content that become outputs of the component, with their types:
            `{"total": float}`. The types are for connecting components; they are not checked.
        :param arguments: Default values of parameters.
        :param raise_on_failure: Whether a failed call is an error of the component. If False, the message is the output
            `error`, and there are no other outputs.
        :raises ValueError: If a parameter is invalid.
        """
        self.tool = tool
        self.inputs: dict[str, Any] | None = dict.fromkeys(inputs, Any) if isinstance(inputs, list) else inputs
        self.optional_inputs: list[str] = list(optional_inputs or [])
        self.outputs = outputs
        self.arguments: dict[str, Any] = dict(arguments or {})
        self.raise_on_failure = raise_on_failure
        # True from warm-up on, or at once with `inputs` or a snapshot.
        self._knows_parameters = self.inputs is not None
        for name, kind in (self.inputs or {}).items():
            self._add_input(name, kind, is_required=name not in self.optional_inputs)
        if tool.snapshot is not None:
            self._declare_inputs()
        component.set_output_types(self, **_OUTPUTS, **(self.outputs or {}))

    def _add_input(self, name: str, kind: Any, *, is_required: bool) -> None:
        optional = {} if is_required and name not in self.arguments else {"default": None}
        component.set_input_type(self, name, kind, **optional)

    def warm_up(self) -> None:
        """
        Connect to the server. Cheap while the connection is open; reopens it if it was closed or lost.

        If the tool has a `snapshot`, `run` connects instead.

        :raises MCPConnectionError: If connecting fails.
        :raises MCPDriftError: If the server is connected, and its tool differs from the `snapshot`.
        :raises MCPToolNotFoundError: If the server does not have the tool.
        """
        self.tool.warm_up()
        self._declare_inputs()

    async def warm_up_async(self) -> None:
        """
        Connect to the server like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: As `warm_up`.
        :raises MCPDriftError: As `warm_up`.
        :raises MCPToolNotFoundError: As `warm_up`.
        """
        await self.tool.warm_up_async()
        self._declare_inputs()

    def _declare_inputs(self) -> None:
        if self._knows_parameters:
            return
        schema = self.tool._schema
        for name in schema.get("properties", {}):
            if name != _ARGUMENTS_INPUT:
                self._add_input(name, Any, is_required=name in schema.get("required", []))
        self._knows_parameters = True

    def close(self) -> None:
        """
        Release the connection to the server. The next warm-up or call opens it again.
        """
        self.tool.close()

    async def close_async(self) -> None:
        """
        Release the connection like `close`, without blocking the event loop.
        """
        await self.tool.close_async()

    def run(self, arguments: dict[str, Any] | None = None, **parameters: Any) -> dict[str, Any]:
        """
        Call the tool.

        :param arguments: Arguments of the tool by name. They take precedence over `parameters`.
        :param parameters: Arguments of the tool. None means no value; to send None, pass it in `arguments`.
        :returns: A dictionary with:
            - `text`: The text of the result.
            - `structured`: The structured content of the result, parsed; None if there is none.
            - `content`: All content as Haystack objects: TextContent, ImageContent and FileContent.
            - `documents`: A Document for each text and each embedded text resource of the result.
            - `links`: The URIs of the resources that the result links to, e.g. for an MCPResourceFetcher.
            - The value of each key of `outputs` that the structured content has.
            - `error`: Why the call failed. Only if it failed, without `raise_on_failure`.
        :raises MCPInvocationError: If the call fails, with `raise_on_failure`.
        """
        try:
            result = self.tool.call(**self._arguments_to_send(arguments, parameters))
        except MCPInvocationError as error:
            return self._failure_output(error)
        return self._outputs(result)

    async def run_async(self, arguments: dict[str, Any] | None = None, **parameters: Any) -> dict[str, Any]:
        """
        Call the tool like `run`, without blocking the event loop.

        :param arguments: As in `run`.
        :param parameters: As in `run`.
        :returns: As `run`.
        :raises MCPInvocationError: As `run`.
        """
        try:
            result = await self.tool.call_async(**self._arguments_to_send(arguments, parameters))
        except MCPInvocationError as error:
            return self._failure_output(error)
        return self._outputs(result)

    def _arguments_to_send(self, arguments: dict[str, Any] | None, parameters: dict[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in parameters.items() if value is not None}
        return {name: json_value(value) for name, value in {**self.arguments, **given, **(arguments or {})}.items()}

    def _failure_output(self, error: MCPInvocationError) -> dict[str, Any]:
        if self.raise_on_failure:
            raise error
        logger.warning("A tool call failed: {error}", error=str(error))
        return {"error": str(error)}

    def _outputs(self, result: MCPToolResult) -> dict[str, Any]:
        structured = result.structured
        found: Mapping[str, Any] = structured if isinstance(structured, Mapping) else {}
        if missing := [name for name in self.outputs or {} if name not in found]:
            logger.warning(
                "Tool '{tool}' returned no value for the outputs {missing}; components connected to them do not run. "
                "Its structured content has: {found}",
                tool=self.tool.name,
                missing=", ".join(missing),
                found=", ".join(found) or "nothing",
            )
        return {
            "text": result.text,
            "structured": structured,
            "content": result.content,
            "documents": self._documents(result),
            "links": [block.uri for block in result.raw.content if block.type == "resource_link"],
            **{name: found[name] for name in self.outputs or {} if name in found},
        }

    def _documents(self, result: MCPToolResult) -> list[Document]:
        documents = []
        for block in result.raw.content:
            meta: dict[str, Any] = {"tool": self.tool.remote_name}
            resource = getattr(block, "resource", block)
            text = getattr(resource, "text", None)
            if text is None:
                continue
            for field in ("uri", "mime_type"):
                if (value := getattr(resource, field, None)) is not None:
                    meta[field] = value
            documents.append(Document(content=text, meta=meta))
        return documents

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the component to a dictionary.

        :returns: The dictionary.
        """
        types = {"inputs": _stored_types(self.inputs), "outputs": _stored_types(self.outputs)}
        return default_to_dict(self, **{**own_parameters(self, MCPToolRunner), "tool": self.tool.to_dict(), **types})

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MCPToolRunner:
        """
        Deserialize the component, without connecting.

        :param data: The result of `to_dict`.
        :returns: The component.
        """
        parameters = dict(data.get("init_parameters", {}))
        # Haystack's own function for loading tools, with all its checks, takes lists.
        stored = {"tools": [parameters["tool"]]}
        deserialize_tools_or_toolset_inplace(stored, key="tools")
        [parameters["tool"]] = stored["tools"]
        for name in ("inputs", "outputs"):
            if isinstance(parameters.get(name), Mapping):
                parameters[name] = {key: deserialize_type(kind) for key, kind in parameters[name].items()}
        # Not `default_from_dict`: on Haystack 3 it would treat `arguments` with the key "type" as an object to import.
        return cls(**parameters)


def _stored_types(types: dict[str, Any] | None) -> dict[str, str] | None:
    return None if types is None else {name: serialize_type(kind) for name, kind in types.items()}
