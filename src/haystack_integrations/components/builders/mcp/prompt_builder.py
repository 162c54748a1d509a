# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import json
from collections.abc import Iterable
from functools import partial
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
_INPUT = "arguments"


@component
class MCPPromptBuilder(ReaderBase):
    """
    Gets a prompt of an MCP server and gives it as ChatMessages, with its images and embedded resources.

    The arguments of the prompt are inputs of the component: those in `variables`, or, without them, those that the
    server declares, from warm-up on. Only inputs that are in `variables` can be connected to other components, because
    neither creating the component, nor loading it from YAML, nor connecting it asks the server.
    `MCPPromptBuilder.from_server` and `from_server_async` ask it once, and make a component with these `variables`.

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

        :param server_info: How to reach the server: a server info, or what `server_info_from` takes, such as a URL, a
            command line as a list or a server object.
        :param prompt_name: Name of the prompt on the server.
        :param variables: Names of the prompt's arguments that become inputs of the component. Default: all that the
            server declares, from warm-up on.
        :param required_variables: Which of the `variables` a pipeline must provide: a list of names, `"*"` (default)
            for all, or None for none. Those in `arguments` need not be provided. Without `variables`, the server says
            what is required.
        :param arguments: Values of arguments for which a run gets no others.
        :param system_role: `"first"` to give the first message as a system message, if it is text. MCP has no system
            messages.
        :param connection_timeout: Timeout in seconds for connecting.
        :param invocation_timeout: Timeout in seconds for getting the prompt. None for 300.
        :param share: Whether to share the connection with every other user of an equal `server_info`.
        :param handlers: What to do for a server that asks for something; see MCPHandlers.
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
        if _INPUT in (variables or []):
            msg = f"`variables` has {_INPUT!r}, which is an input of MCPPromptBuilder already: the dictionary of all"
            raise ValueError(msg)
        if isinstance(required_variables, list) and (unknown := set(required_variables) - set(variables or [])):
            msg = f"`required_variables` has {', '.join(map(repr, sorted(unknown)))}, which `variables` does not have"
            raise ValueError(msg)
        self.prompt_name = prompt_name
        self.variables = variables
        self.required_variables = required_variables
        self.arguments: dict[str, Any] = dict(arguments or {})
        self.system_role = system_role
        self._has_inputs = variables is not None
        for name in self.variables or []:
            is_required = self.required_variables == "*" or name in (self.required_variables or [])
            self._add_input(name, is_required=is_required)

    @classmethod
    def from_server(cls, server_info: MCPServerInfo | Any, prompt_name: str, **parameters: Any) -> MCPPromptBuilder:
        """
        Ask the server for the arguments of the prompt, and make a component with these inputs.

        This connects to the server, and closes the connection again.

        :param server_info: How to reach the server.
        :param prompt_name: Name of the prompt on the server.
        :param parameters: Further parameters of the component.
        :returns: The component, with `variables` and `required_variables` as the server declares them.
        :raises MCPConnectionError: If the server cannot be reached.
        :raises ValueError: If it has no such prompt.
        """
        with cls(server_info, prompt_name, [], **parameters) as asking:
            listed = asking.connection.list_prompts()
        return cls(server_info, prompt_name, **{**parameters, **asking._declared(listed)})

    @classmethod
    async def from_server_async(
        cls, server_info: MCPServerInfo | Any, prompt_name: str, **parameters: Any
    ) -> MCPPromptBuilder:
        """
        Make a component with the inputs that the server declares like `from_server`, without blocking the event loop.

        :param server_info: As in `from_server`.
        :param prompt_name: As in `from_server`.
        :param parameters: As in `from_server`.
        :returns: As `from_server`.
        :raises MCPConnectionError: As `from_server`.
        :raises ValueError: As `from_server`.
        """
        async with cls(server_info, prompt_name, [], **parameters) as asking:
            listed = await asking.connection.list_prompts_async()
        return cls(server_info, prompt_name, **{**parameters, **asking._declared(listed)})

    def _declared(self, listed: list[types.Prompt]) -> dict[str, Any]:
        prompt = _named(listed, self.prompt_name)
        if prompt is None:
            msg = f"Prompt '{self.prompt_name}' not found on {self.server_info.describe()}. "
            raise ValueError(msg + _choices(self.prompt_name, listed))
        declared = prompt.arguments or []
        return {
            "variables": [argument.name for argument in declared],
            "required_variables": [argument.name for argument in declared if argument.required],
        }

    def _add_input(self, name: str, *, is_required: bool) -> None:
        optional = {} if is_required and name not in self.arguments else {"default": None}
        component.set_input_type(self, name, Any, **optional)

    def warm_up(self) -> None:
        """
        Connect to the server. Without `variables`, the first time, ask it for the arguments of the prompt.

        :raises MCPConnectionError: If that fails and the server is required.
        """
        ReaderBase.warm_up(self)
        if not self._has_inputs and self._absence is None:
            self._take_inputs(self._connection.list_prompts())

    async def warm_up_async(self) -> None:
        """
        Connect to the server like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: If that fails.
        """
        await ReaderBase.warm_up_async(self)
        if not self._has_inputs and self._absence is None:
            self._take_inputs(await self._connection.list_prompts_async())

    def _take_inputs(self, listed: list[types.Prompt]) -> None:
        prompt = _named(listed, self.prompt_name)
        for argument in (prompt.arguments or []) if prompt else []:
            if argument.name != _INPUT:
                self._add_input(argument.name, is_required=bool(argument.required))
        self._has_inputs = True

    @component.output_types(prompt=list[ChatMessage])
    def run(self, arguments: dict[str, Any] | None = None, **variables: Any) -> dict[str, list[ChatMessage]]:
        """
        Get the prompt.

        Arguments of prompts are strings: other values, also objects of Haystack, are given as JSON, and None as no
        value.

        :param arguments: Arguments of the prompt by name. They take precedence over `variables`.
        :param variables: Arguments of the prompt.
        :returns: A dictionary with:
            - `prompt`: The messages. In those of the assistant, which are text in Haystack, notes take the place of
              images and files.
        :raises MCPConnectionError: If the server cannot be reached and is required, or refuses, e.g. because an
            argument is missing.
        :raises TypeError: If an argument is neither a string, nor a JSON value or an object of Haystack.
        :raises ValueError: If the name of an argument is no string.
        """
        return self._run(partial(self._get, self._sent(arguments, variables)))

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
        :raises TypeError: As `run`.
        :raises ValueError: As `run`.
        """
        return await self._get(self._sent(arguments, variables))

    async def _get(self, sent: dict[str, str]) -> dict[str, list[ChatMessage]]:
        try:
            result = await self._connection.get_prompt_async(self.prompt_name, sent)
        except MCPConnectionError as error:
            if is_out_of_reach(error, "get_prompt"):
                self._note_absence(error)
                return {"prompt": []}
            if error.code is None:
                raise
            try:
                listed = await self._connection.list_prompts_async()
            except MCPConnectionError:
                raise error from None  # it says more than that there is no list
            raise self._explained(error, sent, listed) from error
        return {"prompt": self._messages(result)}

    def _sent(self, arguments: dict[str, Any] | None, variables: dict[str, Any]) -> dict[str, str]:
        given = {name: value for name, value in variables.items() if value is not None}
        values = {**self.arguments, **given, **(arguments or {})}
        return {
            name: value if isinstance(value, str) else self._json(name, value)
            for name, value in values.items()
            if value is not None
        }

    def _json(self, name: str, value: Any) -> str:
        def convert(part: Any) -> Any:
            if hasattr(part, "to_dict") and not isinstance(part, type):
                return json_value(part.to_dict())  # which may have dates, e.g. in the meta of a Document
            msg = (
                f"The argument '{name}' of prompt '{self.prompt_name}' has a value of type {type(part).__name__}, "
                "which JSON does not have. Pass a string, a JSON value, or an object with `to_dict`."
            )
            raise TypeError(msg)

        return json.dumps(value, ensure_ascii=False, default=convert)

    def _messages(self, result: types.GetPromptResult) -> list[ChatMessage]:
        messages = prompt_messages(result)
        first = messages[0] if messages else None
        if self.system_role == "first" and first is not None and first.text is not None and len(first.texts) == 1:
            is_only_text = result.messages[0].content.type == "text"
            return [ChatMessage.from_system(first.text), *messages[1:]] if is_only_text else messages
        return messages

    def _explained(
        self, error: MCPConnectionError, sent: dict[str, str], listed: list[types.Prompt]
    ) -> MCPConnectionError:
        prompt = _named(listed, self.prompt_name)
        if prompt is None:
            hint = _choices(self.prompt_name, listed)
        else:
            declared = prompt.arguments or []
            missing = [each.name for each in declared if each.required and each.name not in sent]
            unknown = [name for name in sent if name not in [each.name for each in declared]]
            hint = f"The prompt takes: {', '.join(each.name for each in declared) or 'no arguments'}."
            hint += f" Required and not given: {', '.join(missing)}." if missing else ""
            hint += f" Given and not among them: {', '.join(unknown)}." if unknown else ""
        text = str(error)
        text = text if text.endswith((".", "!", "?")) else f"{text}."
        return MCPConnectionError(
            f"{text} {hint}", error.server_info, error.operation, code=error.code, data=error.data
        )

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the component to a dictionary.

        :returns: The dictionary.
        :raises ValueError: If the server info holds a token-based `Secret`, which Haystack does not write to files.
        """
        return default_to_dict(self, **self._stored_parameters(MCPPromptBuilder))


def _named(listed: Iterable[types.Prompt], name: str) -> types.Prompt | None:
    return next((prompt for prompt in listed if prompt.name == name), None)


def _choices(name: str, listed: Iterable[types.Prompt]) -> str:
    return describe_choices([name], [prompt.name for prompt in listed], "The server", "prompts")
