# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves tools of Haystack: those made of functions, components and pipelines, and any other.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, get_args, get_type_hints

from fastmcp import Context
from fastmcp.dependencies import CurrentContext, Dependency
from fastmcp.utilities.docstring_parsing import parse_docstring
from haystack.components.agents import Agent
from haystack.tools import ComponentTool
from haystack.tools.tool import Tool
from pydantic.fields import FieldInfo

from haystack_integrations.tools.mcp.haystack_compat import (
    HAS_ASYNC_FUNCTION,
    component_of,
    has_all_inputs_of_a_pipeline,
    input_sockets,
    is_state_type,
    output_sockets,
)
from haystack_integrations.tools.mcp.serving.arguments import invalid_arguments, only, without
from haystack_integrations.tools.mcp.serving.functions import return_schema
from haystack_integrations.tools.mcp.serving.options import ServeOptions
from haystack_integrations.tools.mcp.serving.pool import CallPool
from haystack_integrations.tools.mcp.serving.results import Answer
from haystack_integrations.tools.mcp.serving.schemas import (
    InputSchema,
    ServedInput,
    annotated_description,
    input_descriptions,
    is_servable,
    output_schema,
)
from haystack_integrations.tools.mcp.serving.served_tool import ServedCall, ServedTool

_CONFIGURATION = ("source", "handler", "raw_result")


def serve_tool(tool: Tool, *, options: ServeOptions | None, pool: CallPool) -> ServedTool:
    """
    Make a tool of the server of one of Haystack.

    :param tool: The tool.
    :param options: What the user said of it.
    :param pool: Where its calls take their places.
    :returns: The tool.
    :raises ValueError: If it needs something that clients cannot give.
    """
    options = options or ServeOptions()
    if type(tool) is ComponentTool and isinstance(component_of(tool), Agent):
        # Its parameters would be those of `Agent.run`: tools, snapshots, generation parameters.
        msg = f"Tool '{tool.name}' is an Agent: serve that by `agents={{{tool.name!r}: agent}}`"
        raise ValueError(msg)
    function = _function(tool)
    hints = {} if isinstance(tool, ComponentTool) else _hints(function)
    defaults = _defaults(tool, function)
    options = _with_dependencies(options, hints, defaults)
    _check_state(tool, hints, options)
    parameters = _shown_parameters(tool, options)
    description = tool.description
    if isinstance(tool, ComponentTool):
        parameters = _with_annotations(parameters, component_of(tool))
    elif function is not None and inspect.getdoc(function):
        docstring = parse_docstring(function)
        parameters = _described(parameters, docstring.parameters)
        if tool.description == function.__doc__:
            description = docstring.description or ""
    fields = {name: each for name, each in defaults.items() if isinstance(each, FieldInfo) and not each.is_required()}
    convert = _converter(without(parameters, options.bound), hints)
    hidden = _from_state(tool, hints) - {*parameters.get("properties", {}), *options.bound}

    async def body(arguments: dict[str, Any], call: ServedCall) -> Any:
        if not hidden.isdisjoint(arguments):
            # A schema that allows any name does not refuse these.
            found = sorted(hidden.intersection(arguments))
            raise invalid_arguments(call.tool_name, (f"there is no argument {name!r}" for name in found))
        arguments = convert(arguments, call)
        for name in fields.keys() - arguments.keys():
            arguments = {
                **arguments,
                name: fields[name].get_default(call_default_factory=True, validated_data=arguments),
            }
        return _answer(tool, await _invoke(tool, arguments, call))

    return ServedTool.create(
        name=tool.name,
        description=description,
        parameters=parameters,
        output_schema=_output_schema(tool, function, options),
        body=body,
        options=options,
        pool=pool,
    )


def _function(tool: Any) -> Callable[..., Any] | None:
    # Haystack 3 has tools that are asynchronous only.
    function: Callable[..., Any] | None = tool.function or getattr(tool, "async_function", None)
    return function


async def _invoke(tool: Any, arguments: dict[str, Any], call: ServedCall) -> Any:
    if HAS_ASYNC_FUNCTION and getattr(tool, "async_function", None) is not None:
        return await tool.invoke_async(**arguments)
    return await call.in_thread(lambda: tool.invoke(**arguments))


def _hints(function: Callable[..., Any] | None) -> dict[str, Any]:
    if function is None:
        return {}
    try:
        parameters = inspect.signature(function).parameters
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError, ValueError):
        return {}  # a function that says nothing readable of its parameters
    return {name: hint for name, hint in hints.items() if name in parameters}


def _defaults(tool: Tool, function: Callable[..., Any] | None) -> dict[str, Any]:
    if isinstance(tool, ComponentTool):
        return {name: socket.default_value for name, socket in input_sockets(component_of(tool)).items()}
    try:
        parameters = inspect.signature(function).parameters if function is not None else {}
    except (TypeError, ValueError):
        return {}  # of a function in C
    return {name: each.default for name, each in parameters.items()}


def _with_dependencies(options: ServeOptions, hints: Mapping[str, Any], defaults: Mapping[str, Any]) -> ServeOptions:
    """Have what FastMCP injects into functions injected here, too: its context, and what `Depends` says."""
    injected: dict[str, Any] = {}
    for name in {**defaults, **hints}:
        declared = (defaults.get(name), *getattr(hints.get(name), "__metadata__", ()))
        dependency = next((each for each in declared if isinstance(each, Dependency)), None)
        if dependency is not None:
            injected[name] = dependency
        elif Context in (hints.get(name), *get_args(hints.get(name))):
            injected[name] = CurrentContext()
    return replace(options, bound={**injected, **options.bound}) if injected else options


def _described(parameters: dict[str, Any], said: Mapping[str, str]) -> dict[str, Any]:
    """Add descriptions to the arguments that have none."""
    properties: dict[str, Any] = parameters.get("properties", {})
    described = {
        name: {**each, "description": said[name]}
        for name, each in properties.items()
        if said.get(name) and isinstance(each, dict) and not each.get("description")
    }
    return {**parameters, "properties": {**properties, **described}} if described else parameters


def _with_annotations(parameters: dict[str, Any], component: Any) -> dict[str, Any]:
    """Say of the arguments what the types of a component say, which Haystack passes over."""
    in_docstring = input_descriptions(component)
    said = {name: annotated_description(socket.type) for name, socket in input_sockets(component).items()}
    properties = dict(parameters.get("properties", {}))
    for name, each in properties.items():
        # What the user said of it stays.
        of_haystack = {f"Input '{name}' for the component.", in_docstring.get(name)}
        if said.get(name) and each.get("description") in of_haystack:
            properties[name] = {key: value for key, value in each.items() if key != "description"}
    return _described({**parameters, "properties": properties}, said)


def _from_state(tool: Tool, types: Mapping[str, Any]) -> set[str]:
    return {*(tool.inputs_from_state or {}).values(), *(name for name in types if is_state_type(types[name]))}


def _check_state(tool: Tool, hints: Mapping[str, Any], options: ServeOptions) -> None:
    """Outside of an Agent there is no State; what comes from it has to come from somewhere else."""
    shown = tool.parameters.get("properties", {})
    if isinstance(tool, ComponentTool):
        sockets = input_sockets(component_of(tool))
        types = {name: socket.type for name, socket in sockets.items()}
        needed = {name for name, socket in sockets.items() if socket.is_mandatory}
    else:
        function = _function(tool)
        parameters = inspect.signature(function).parameters if function is not None else {}
        types = dict(hints)
        needed = {name for name, each in parameters.items() if each.default is inspect.Parameter.empty}
    for name in sorted(_from_state(tool, types)):
        if name in needed and name not in shown and name not in options.bound:
            msg = (
                f"Tool '{tool.name}' takes '{name}' from the State of an Agent, and a served tool has none. "
                f"Give it a value: ServeOptions(bound={{{name!r}: ...}})."
            )
            raise ValueError(msg)


def _shown_parameters(tool: Tool, options: ServeOptions) -> dict[str, Any]:
    parameters = tool.parameters
    if options.inputs is not None:
        if isinstance(options.inputs, Mapping):
            msg = f"`inputs` of tool '{tool.name}' must be a list of its arguments, because they cannot be renamed"
            raise ValueError(msg)
        chosen = only(parameters, options.inputs, tool.name)
        required = [name for name in parameters.get("required", []) if name not in (*options.inputs, *options.bound)]
        if required:
            msg = (
                f"Tool '{tool.name}' cannot be called without {', '.join(map(repr, required))}. Add to `inputs`, or "
                f"give it a value: ServeOptions(bound={{{required[0]!r}: ...}})."
            )
            raise ValueError(msg)
        return chosen
    if isinstance(tool, ComponentTool) and has_all_inputs_of_a_pipeline(tool):
        # All inputs of all components would be shown: templates, filters, generation parameters.
        required = parameters.get("required", [])
        if not required:
            msg = (
                f"{type(tool).__name__} '{tool.name}' has no `input_mapping` and no mandatory input. Give it an "
                "`input_mapping`, or say which inputs clients may set: ServeOptions(inputs=[...])."
            )
            raise ValueError(msg)
        return only(parameters, required, tool.name)
    return parameters


def _converter(
    parameters: Mapping[str, Any], hints: Mapping[str, Any]
) -> Callable[[dict[str, Any], ServedCall], dict[str, Any]]:
    """Turn JSON into what the function says that it takes; components do that themselves."""
    shown = parameters.get("properties", {})
    inputs = {name: ServedInput(hint, required=False) for name, hint in hints.items() if name in shown}
    inputs = {name: each for name, each in inputs.items() if is_servable(each.type)}
    schema = InputSchema(inputs) if inputs else None

    def convert(arguments: dict[str, Any], call: ServedCall) -> dict[str, Any]:
        if schema is None:
            return arguments
        try:
            converted = schema.convert({name: value for name, value in arguments.items() if name in inputs})
        except ValueError as error:
            raise invalid_arguments(call.tool_name, [str(error)]) from None
        return {**arguments, **converted}

    return convert


def _output_schema(tool: Tool, function: Callable[..., Any] | None, options: ServeOptions) -> dict[str, Any] | None:
    if options.output_schema is not None:
        return None
    if isinstance(tool, ComponentTool):
        sockets = output_sockets(component_of(tool))
        types = {name: socket.type for name, socket in sockets.items()}
        return output_schema(types, include_embeddings=options.include_embeddings)
    return None if function is None else return_schema(function)


def _answer(tool: Tool, result: Any) -> Any:
    """Show the model what it would see of the tool in an Agent."""
    config = tool.outputs_to_string
    if not config:
        return result
    if any(key in config for key in _CONFIGURATION):
        return Answer(result, _shown(config, result))
    return Answer(result, {key: _shown(each, result) for key, each in config.items()})


def _shown(config: Mapping[str, Any], result: Any) -> Any:
    source, handler = config.get("source"), config.get("handler")
    value = result.get(source) if source is not None and isinstance(result, dict) else result
    return value if handler is None else handler(value)
