# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`MCPPromptBuilder`: a component that gets a prompt of a server as ChatMessages.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from haystack import component, default_to_dict
from haystack.dataclasses import ChatMessage

from haystack_integrations.tools.mcp import MCPConnectionError, MCPHandlers, MCPServerInfo
from haystack_integrations.tools.mcp.convert.content import json_value, prompt_messages
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices
from haystack_integrations.tools.mcp.parameters import Text, checked
from haystack_integrations.tools.mcp.tool_base import ReaderBase, is_out_of_reach

if TYPE_CHECKING:
    import mcp_types as types

# The input of `run` that is not an argument of the prompt.
_ARGUMENTS_INPUT = "arguments"


@component
class MCPPromptBuilder(ReaderBase):
    """
    Gets a prompt of an MCP server as ChatMessages, with its images and embedded resources.

    The arguments of the prompt in `variables` are inputs of the component; others are passed in `arguments`. Creating
    the component, loading it from YAML and connecting it in a pipeline send no request to the server.
    `MCPPromptBuilder.from_server` and `from_server_async` ask the server once for the `variables` of the component.

    ### Usage example

    ```python
    from haystack_integrations.components.builders.mcp import MCPPromptBuilder
    from haystack_integrations.tools.mcp import StdioServerInfo

    builder = MCPPromptBuilder(
        StdioServerInfo(command="npx", args=["-y", "@modelcontextprotocol/server-everything"]),
        "args-prompt",
        variables=["city"],
    )
    messages = builder.run(city="Paris")["prompt"]
    builder.close()
    ```
    """

    @checked()
    def __init__(
        self,
        server_info: MCPServerInfo | Any,
        prompt_name: Text,
        variables: list[Text] | None = None,
        required_variables: list[Text] | Literal["*"] | None = "*",
        *,
        arguments: dict[str, Any] | None = None,
        system_role: Literal["first"] | None = None,
        connection_timeout: float = 30.0,
        invocation_timeout: float | None = 30.0,
        share: bool = True,
        handlers: MCPHandlers | None = None,
        required: bool = True,
    ) -> None:
        """
        Initialize the component. Nothing is connected yet.

        :param server_info: How to reach the server: a server info, or the shorthand that `server_info_from` takes, such
            as a URL, a command line as a list or a server object.
        :param prompt_name: Name of the prompt on the server.
        :param variables: Names of the prompt's arguments that become inputs of the component. Default: none.
        :param required_variables: Which of the `variables` a pipeline must provide: a list of names, `"*"` (default)
            for all, or None for none. Variables with a value in `arguments` need not be provided.
        :param arguments: Default values of arguments.
        :param system_role: `"first"` to return the first message as a system message, if it is text. MCP has no system
            messages.
        :param connection_timeout: Timeout in seconds for connecting.
        :param invocation_timeout: Timeout in seconds for getting the prompt. None for 300.
        :param share: Whether to share the connection with all other objects that have an equal `server_info`.
        :param handlers: Handlers for the server's requests; see MCPHandlers.
        :param required: Whether it is an error if the server cannot be reached. If False, a warning is logged, and
            there are no messages.
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
        self.prompt_name = prompt_name
        self.variables = variables
        self.required_variables = required_variables
        self.arguments: dict[str, Any] = dict(arguments or {})
        self.system_role = system_role
        for name in self.variables or []:
            is_required = required_variables is not None and (required_variables == "*" or name in required_variables)
            optional = {} if is_required and name not in self.arguments else {"default": None}
            component.set_input_type(self, name, Any, **optional)

    @classmethod
    def from_server(cls, server_info: MCPServerInfo | Any, prompt_name: str, **parameters: Any) -> MCPPromptBuilder:
        """
        Create a component with the inputs that the server declares for the prompt.

        This connects to the server, and closes the connection again.

        :param server_info: How to reach the server.
        :param prompt_name: Name of the prompt on the server.
        :param parameters: Further parameters of the component.
        :returns: The component, with `variables` and `required_variables` as the server declares them. An argument with
            the name `arguments` must be passed in the dictionary of the same name.
        :raises MCPConnectionError: If the server cannot be reached.
        :raises ValueError: If the server has no such prompt.
        """
        with cls(server_info, prompt_name, **parameters) as builder:
            listed = builder.connection.list_prompts()
        return cls(server_info, prompt_name, **{**parameters, **builder._declared(listed)})

    @classmethod
    async def from_server_async(
        cls, server_info: MCPServerInfo | Any, prompt_name: str, **parameters: Any
    ) -> MCPPromptBuilder:
        """
        Create a component like `from_server`, without blocking the event loop.

        :param server_info: As in `from_server`.
        :param prompt_name: As in `from_server`.
        :param parameters: As in `from_server`.
        :returns: As `from_server`.
        :raises MCPConnectionError: As `from_server`.
        :raises ValueError: As `from_server`.
        """
        async with cls(server_info, prompt_name, **parameters) as builder:
            listed = await builder.connection.list_prompts_async()
        return cls(server_info, prompt_name, **{**parameters, **builder._declared(listed)})

    def _declared(self, listed: list[types.Prompt]) -> dict[str, Any]:
        prompt = next((each for each in listed if each.name == self.prompt_name), None)
        if prompt is None:
            choices = describe_choices([self.prompt_name], [each.name for each in listed], "The server", "prompts")
            msg = f"Prompt '{self.prompt_name}' not found on {self.server_info.describe()}. {choices}"
            raise ValueError(msg)
        declared = [argument for argument in prompt.arguments or [] if argument.name != _ARGUMENTS_INPUT]
        return {
            "variables": [argument.name for argument in declared],
            "required_variables": [argument.name for argument in declared if argument.required],
        }

    @component.output_types(prompt=list[ChatMessage])
    def run(self, arguments: dict[str, Any] | None = None, **variables: Any) -> dict[str, list[ChatMessage]]:
        """
        Get the prompt.

        Arguments of prompts are strings. Other values, including Haystack objects, are converted to JSON; None means no
        value.

        :param arguments: Arguments of the prompt by name. They take precedence over `variables`.
        :param variables: Arguments of the prompt.
        :returns: A dictionary with:
            - `prompt`: The messages. Assistant messages are text in Haystack, so notes replace their images and files.
        :raises MCPConnectionError: If the server cannot be reached and is required, or refuses the request, e.g.
            because an argument is missing.
        """
        return self._connection._submit(self._get(self._arguments_to_send(arguments, variables)))

    @component.output_types(prompt=list[ChatMessage])
    async def run_async(
        self, arguments: dict[str, Any] | None = None, **variables: Any
    ) -> dict[str, list[ChatMessage]]:
        """
        Get the prompt like `run`, without blocking the event loop.

        :param arguments: As in `run`.
        :param variables: As in `run`.
        :returns: As `run`.
        :raises MCPConnectionError: As `run`.
        """
        return await self._get(self._arguments_to_send(arguments, variables))

    async def _get(self, sent: dict[str, str]) -> dict[str, list[ChatMessage]]:
        try:
            result = await self._connection.get_prompt_async(self.prompt_name, sent)
        except MCPConnectionError as error:
            if not is_out_of_reach(error, "get_prompt"):
                raise
            self._raise_or_leave_out(error)
            return {"prompt": []}
        return {"prompt": self._messages(result)}

    def _arguments_to_send(self, arguments: dict[str, Any] | None, variables: dict[str, Any]) -> dict[str, str]:
        given = {name: value for name, value in variables.items() if value is not None}
        values = {**self.arguments, **given, **(arguments or {})}
        return {
            name: value if isinstance(value, str) else json.dumps(json_value(value), ensure_ascii=False)
            for name, value in values.items()
            if value is not None
        }

    def _messages(self, result: types.GetPromptResult) -> list[ChatMessage]:
        messages = prompt_messages(result)
        first = messages[0] if messages else None
        if self.system_role == "first" and first is not None and first.text is not None and len(first.texts) == 1:
            is_only_text = result.messages[0].content.type == "text"
            return [ChatMessage.from_system(first.text), *messages[1:]] if is_only_text else messages
        return messages

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the component to a dictionary.

        :returns: The dictionary.
        :raises ValueError: If the server info contains a token-based `Secret`, which Haystack does not serialize.
        """
        return default_to_dict(self, **self._stored_parameters(MCPPromptBuilder))
