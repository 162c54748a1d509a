# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves prompt builders as prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Literal

from fastmcp.exceptions import PromptError
from fastmcp.prompts.base import Message, Prompt, PromptArgument, PromptResult
from haystack.dataclasses import ChatMessage
from mcp import types
from pydantic import PrivateAttr

from haystack_integrations.tools.mcp.haystack_compat import parts_of
from haystack_integrations.tools.mcp.serving.calls import CallPool, ReadRunner, invalid_request
from haystack_integrations.tools.mcp.serving.results import content_blocks
from haystack_integrations.tools.mcp.serving.sources import NamedOptions, ServeOptions, Source, check_known, check_name

_OUTPUT = "prompt"


def prompt_sources(prompts: Mapping[str, Any], *, options: NamedOptions, pool: CallPool) -> Iterator[Source]:
    """
    Serve prompt builders as prompts: their variables are the arguments.

    :param prompts: Prompt builders by the names that clients see: `PromptBuilder`, `ChatPromptBuilder` or any component
        with `variables` and an output `prompt`, a text or ChatMessages.
    :param options: Their options, by the same names: `bound` sets variables that clients neither see nor set,
        `inputs` chooses or renames the others, and `completions` has values that clients offer.
    :param pool: The pool for rendering prompts.
    :returns: A source for each.
    :raises ValueError: If something is not a prompt builder, or options do not fit its variables.
    """
    for name, builder, own_options in options.each("prompts", prompts, "prompt builders"):
        yield Source(parts=[builder], prompts=[ServedPrompt.create(name, builder, own_options, pool)])


class ServedPrompt(Prompt):
    """
    A prompt that a prompt builder renders.
    """

    _run: Callable[..., Any] = PrivateAttr()
    _options: ServeOptions = PrivateAttr()
    _reads: ReadRunner = PrivateAttr()
    # Variables of the builder by the names of arguments.
    _variables: dict[str, str] = PrivateAttr()

    @classmethod
    def create(cls, name: str, builder: Any, options: ServeOptions, pool: CallPool) -> ServedPrompt:
        """
        Make a prompt from a builder.

        :param name: The name for clients, unless the options have another one.
        :param builder: The component.
        :param options: Its options.
        :param pool: The pool for rendering it.
        :returns: The prompt.
        :raises ValueError: If it is not a prompt builder, or the options do not fit its variables.
        """
        variables = getattr(builder, "variables", 0)
        if variables is None:  # an MCPPromptBuilder without variables
            variables = ()
        if not callable(getattr(builder, "run", None)) or not isinstance(variables, Sequence | Mapping):
            msg = (
                f"`prompts[{name!r}]` must be a prompt builder, a component with `variables` and an output "
                f"`{_OUTPUT}`, got {type(builder).__name__}"
            )
            raise ValueError(msg)
        check_name("`prompts`", options.name or name)
        shown = _variables_by_argument(name, sorted(variables), options)
        required = getattr(builder, "required_variables", None) or ()
        prompt = cls(
            **{
                "name": options.name or name,
                "description": f"Builds the prompt '{name}'" + (f" from {', '.join(shown)}." if shown else "."),
                **options.of_component(),
            },
            arguments=[
                PromptArgument(name=argument, required=required == "*" or variable in required)
                for argument, variable in shown.items()
            ],
        )
        prompt._run = builder.run
        prompt._options = options
        prompt._reads = ReadRunner(f"Prompt '{prompt.name}'", options, pool)
        prompt._variables = shown
        check_known(f"options[{name!r}].completions", options.completions, shown, "the arguments of the prompt")
        return prompt

    async def render(self, arguments: dict[str, Any] | None = None) -> PromptResult:
        """
        Build the prompt.

        :param arguments: Values of its arguments.
        :returns: Its messages.
        :raises ValidationError: If an argument is missing or unknown.
        """
        given = arguments or {}
        unknown = sorted(set(given) - set(self._variables))
        missing = [each.name for each in self.arguments or () if each.required and each.name not in given]
        if unknown or missing:
            problem = f"has no argument {', '.join(unknown)}" if unknown else f"needs {', '.join(missing)}"
            msg = f"Prompt '{self.name}' {problem}. Its arguments: {', '.join(self._variables) or 'none'}"
            raise invalid_request(msg)
        values = {self._variables[argument]: value for argument, value in given.items()}
        outputs = await self._reads.run_bound(lambda bound: self._run(**values, **bound))
        prompt = outputs[_OUTPUT]
        messages = [ChatMessage.from_user(prompt)] if isinstance(prompt, str) else prompt
        return PromptResult(
            [each for message in messages for each in _mcp_messages(message, self._options)],
            description=self.description,
        )

    async def complete(self, argument: str, value: str, known: Mapping[str, str]) -> Sequence[str]:
        """
        Complete an argument.

        :param argument: Its name.
        :param value: The text that was typed so far.
        :param known: The values of other arguments.
        :returns: The possible values.
        """
        candidates = self._options.completions.get(argument, ())
        if not callable(candidates):
            return [each for each in candidates if each.casefold().startswith(value.casefold())]
        try:
            found = await self._reads.run(candidates, value, known)
            return [str(each) for each in found]
        except Exception as error:
            # Clients of revisions up to 2025-11-25 would get the text of any other error.
            msg = f"Error completing '{argument}' of prompt '{self.name}'"
            raise PromptError(msg) from error


def _variables_by_argument(name: str, variables: Sequence[str], options: ServeOptions) -> dict[str, str]:
    """
    Return the variables that clients set, by the names of the arguments.
    """
    chosen: Any = variables if options.inputs is None else options.inputs
    by_argument = dict(chosen) if isinstance(chosen, Mapping) else {each: each for each in chosen}
    named = [*by_argument.values(), *options.bound]
    check_known(f"options[{name!r}]", named, variables, "the variables of the prompt")
    return {argument: variable for argument, variable in by_argument.items() if variable not in options.bound}


def _mcp_messages(message: ChatMessage, options: ServeOptions) -> list[Message]:
    """
    Convert a message to messages of MCP, which have one content each, and only the roles user and assistant.
    """
    role: Literal["user", "assistant"] = "assistant" if message.role.value == "assistant" else "user"
    messages = []
    for part in parts_of(message):
        for block in content_blocks(part, options):
            if message.role.value == "system" and isinstance(block, types.TextContent):
                block.meta = {"haystack": {"role": "system"}}
            if not isinstance(block, types.ResourceLink):
                messages.append(Message(block, role=role))
    return messages
