# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves functions and methods, and Haystack tools made of functions, components and pipelines, or of any other kind.

FastMCP reads the signatures of functions, checks their arguments and injects their dependencies.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
import json
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, get_args, get_type_hints

from fastmcp import Context
from fastmcp.dependencies import CurrentContext, Dependency
from fastmcp.server.dependencies import resolve_dependencies, without_injected_parameters
from fastmcp.tools.function_tool import FunctionTool
from fastmcp.utilities.docstring_parsing import parse_docstring
from fastmcp.utilities.types import NotSet, get_cached_typeadapter
from haystack.components.agents import Agent
from haystack.dataclasses import ByteStream, FileContent, ImageContent
from haystack.tools import ComponentTool
from haystack.tools.tool import Tool
from pydantic import PydanticUserError, ValidationError, WrapValidator
from pydantic.fields import FieldInfo

from haystack_integrations.tools.mcp.any_tools import shown_result
from haystack_integrations.tools.mcp.haystack_compat import (
    HAS_ASYNC_FUNCTION,
    annotated_description,
    component_of,
    has_all_inputs_of_a_pipeline,
    input_sockets,
    is_state_type,
    output_sockets,
    parameter_descriptions,
)
from haystack_integrations.tools.mcp.serving.calls import Body, CallPool, ServedCall, ServedTool, set_signature
from haystack_integrations.tools.mcp.serving.results import HAYSTACK_TYPES, Answer
from haystack_integrations.tools.mcp.serving.schemas import (
    WRAP_RESULT,
    InputSchema,
    ServedInput,
    as_declared,
    invalid_arguments,
    is_servable,
    keep_arguments,
    object_schema,
    output_schema,
    reasons_of,
)
from haystack_integrations.tools.mcp.serving.sources import ServeOptions, check_known

# Haystack's classes for content other than text.
_MEDIA_TYPES = (ByteStream, FileContent, ImageContent)


def serve_function(
    function: Callable[..., Any], *, options_of: Callable[[str], ServeOptions | None], pool: CallPool
) -> ServedTool:
    """
    Make a tool from a function or method.

    :param function: The function, synchronous or not. The settings of FastMCP's decorator `@tool` are the defaults of
        the options.
    :param options_of: Returns the options for a name.
    :param pool: The pool for its calls.
    :returns: The tool.
    :raises ValueError: If its signature cannot be described to a client.
    """
    if isinstance(function, functools.partial):
        # The values of the partial are not shown, because they may be secret.
        name = getattr(function.func, "__name__", "a callable object")
        msg = f"A partial of {name} cannot be served as a tool. Serve its function, with ServeOptions(bound={{...}})"
        raise ValueError(msg)
    try:
        parsed = FunctionTool.from_function(function)
    except (NameError, PydanticUserError, TypeError, ValueError) as error:
        msg = f"The function {getattr(function, '__name__', function)!r} cannot be served as a tool: {error}"
        raise ValueError(msg) from error
    options = _decorator_options(parsed).overridden_by(options_of(parsed.name))
    _check_options(parsed, options)
    declaration = _declaration_of_function(parsed.fn)
    given = {
        name: ServedInput(hint, required=False)
        for name, hint in declaration.types.items()
        # Not if the type has a ByteStream and also a text or path: for components, these name a file, which only the
        # server may choose, and functions may give them any meaning.
        if _mentions(hint, HAYSTACK_TYPES) and not (_mentions(hint, (ByteStream,)) and _mentions(hint, (str, Path)))
    }
    inputs = InputSchema(given) if given else None
    tool = ServedTool.create(
        name=parsed.name,
        description=parsed.description,
        parameters=_parameters_for_clients(parsed.parameters, declaration, inputs),
        inputs=inputs,
        output_schema=_result_schema(parsed),
        body=_body(parsed),
        options=options,
        pool=pool,
        auth=parsed.auth,
    )
    if options.task and (docket_dependencies := _docket_dependencies(parsed.fn)):
        # Docket runs this method of the tool, and reads dependencies from its signature, which lacks them.
        object.__setattr__(tool, "run", _run_by_docket(tool.run, docket_dependencies))
    return tool


def _body(parsed: FunctionTool) -> Body:
    """Make the body of a tool that calls a function, with its dependencies."""
    function_to_call = parsed.fn
    taken = inspect.signature(function_to_call).parameters
    is_async = inspect.iscoroutinefunction(function_to_call) or inspect.isasyncgenfunction(function_to_call)

    # From Python 3.14, `wraps` does not copy annotations that were set, as FastMCP sets them.
    @functools.wraps(
        without_injected_parameters(function_to_call), assigned=(*functools.WRAPPER_ASSIGNMENTS, "__annotations__")
    )
    def converted(**arguments: Any) -> dict[str, Any]:
        return arguments

    adapter: Any = get_cached_typeadapter(converted)

    async def body(arguments: dict[str, Any], call: ServedCall) -> Any:
        try:
            given = adapter.validate_python(arguments)
        except ValidationError as error:
            raise invalid_arguments(call.tool_name, reasons_of(error)) from None
        async with resolve_dependencies(function_to_call, given) as resolved:
            # FastMCP 4.2 also has arguments that only dependencies take (`CallArgument`).
            kwargs = {name: each for name, each in {**resolved, **_resolved_by_docket.get()}.items() if name in taken}
            if is_async or not parsed.run_in_thread:
                result = function_to_call(**kwargs)
            else:
                # A timeout leaves this thread behind; FastMCP would wait for its own.
                result = await call.in_thread(lambda: _read_generator(function_to_call(**kwargs)))
            if inspect.isawaitable(result):
                result = await result
            return [each async for each in result] if inspect.isasyncgen(result) else _read_generator(result)

    return body


def _read_generator(result: Any) -> Any:
    # A generator is read in the function's thread, because it may use objects of that thread, such as SQLite cursors.
    return list(result) if inspect.isgenerator(result) else result


def _check_options(parsed: FunctionTool, options: ServeOptions) -> None:
    """Refuse options that would be ignored, or would make each call fail."""
    parameters = inspect.signature(parsed.fn).parameters
    check_known("bound", options.bound, parameters, f"the parameters of the function '{parsed.name}'")
    if options.inputs is not None:
        msg = (
            f"`inputs` cannot be chosen for '{parsed.name}', which is a function. Give what clients are not to set "
            "a value with `bound`, or serve another function that takes less."
        )
        raise ValueError(msg)


def _decorator_options(parsed: FunctionTool) -> ServeOptions:
    """Return the settings of a function's decorator as options."""
    mode = parsed.task_config.mode
    return ServeOptions(
        title=parsed.title,
        tags=parsed.tags,
        icons=parsed.icons or (),
        meta=parsed.meta or {},
        annotations=parsed.annotations,
        version=parsed.version,
        timeout=parsed.timeout,
        task="required" if mode == "required" else mode == "optional",
    )


# The dependencies that Docket has resolved for the current background task.
_resolved_by_docket: ContextVar[Mapping[str, Any]] = ContextVar(
    "mcp_haystack__resolved_by_docket", default=MappingProxyType({})
)


def _docket_dependencies(function: Callable[..., Any]) -> dict[str, Any]:
    """Return the dependencies that only Docket can resolve, as they concern a whole task: `Timeout`, `Retry` ..."""
    return {
        name: each.default
        for name, each in inspect.signature(function).parameters.items()
        if isinstance(each.default, Dependency) and _is_of_docket(each.default)
    }


def _is_of_docket(dependency: Dependency[Any]) -> bool:
    return type(dependency).__module__.partition(".")[0] == "docket"


def _run_by_docket(run: Callable[[dict[str, Any]], Awaitable[Any]], dependencies: Mapping[str, Any]) -> Any:
    """Make the function that Docket runs as a background task. Docket reads the dependencies from its signature."""

    async def run_with(arguments: dict[str, Any], **resolved: Any) -> Any:
        token = _resolved_by_docket.set(resolved)
        try:
            return await run(arguments)
        finally:
            _resolved_by_docket.reset(token)

    set_signature(run_with, ("arguments",), dependencies)
    return run_with


def _result_schema(parsed: FunctionTool) -> dict[str, Any] | None:
    derived_by_fastmcp = _derived_schema(parsed.fn)
    derived = _return_schema(parsed.fn, derived_by_fastmcp)
    # FastMCP's decorator may have set another schema, or none. Texts are compared, because NaN does not equal itself.
    return derived if repr(parsed.output_schema) == repr(derived_by_fastmcp) else parsed.output_schema


def _return_schema(function: Callable[..., Any], derived: dict[str, Any] | None) -> dict[str, Any] | None:
    """
    Derive the output schema of a function from its return annotation, if it has one that can be described.

    :param function: The function.
    :param derived: The schema that FastMCP derives.
    """
    declared = None
    with suppress(NameError, TypeError):  # FastMCP reports invalid annotations, if it needs them
        declared = get_type_hints(inspect.unwrap(function), include_extras=True).get("return")
    # Media become content for the model, which output schemas do not cover.
    if _mentions(declared, _MEDIA_TYPES) or (derived is None and not _mentions(declared, HAYSTACK_TYPES)):
        return None
    if derived is None or derived.get(WRAP_RESULT) or declared in HAYSTACK_TYPES:
        return {**output_schema({"result": declared}), "required": ["result"], WRAP_RESULT: True}
    return object_schema(declared)


def _derived_schema(function: Callable[..., Any]) -> dict[str, Any] | None:
    try:
        return FunctionTool.from_function(function, name="function", output_schema=NotSet).output_schema
    except (NameError, PydanticUserError, TypeError, ValueError):
        return None


def _mentions(declared: Any, kinds: tuple[type, ...]) -> bool:
    return declared in kinds or any(_mentions(each, kinds) for each in get_args(declared))


def serve_tool(tool: Tool, *, options: ServeOptions, pool: CallPool) -> ServedTool:
    """
    Make a tool of the server from a tool of Haystack.

    :param tool: The tool.
    :param options: Its options.
    :param pool: The pool for its calls.
    :returns: The tool.
    :raises ValueError: If it needs something that clients cannot send.
    """
    is_component = isinstance(tool, ComponentTool)
    is_agent = is_component and isinstance(component_of(tool), Agent)
    if is_agent and type(tool) is ComponentTool:
        # Clients would see the parameters of `Agent.run`: tools, snapshots, generation parameters.
        msg = f"Tool '{tool.name}' is an Agent: serve that by `agents={{{tool.name!r}: agent}}`"
        raise ValueError(msg)
    # Tools of Haystack 3 may have only an asynchronous function.
    function: Any = getattr(tool, "function", None) or getattr(tool, "async_function", None)
    declaration = _declaration_of_component(component_of(tool)) if is_component else _declaration_of_function(function)
    options = _with_dependencies(options, declaration)
    _check_state(tool, declaration, options)
    parameters = _shown_parameters(tool, options)
    shown_names = set(parameters.get("properties", {})) - set(options.bound)
    given = {
        # ComponentTools themselves convert everything but Haystack's classes, and would mask what is wrong.
        name: ServedInput(
            Annotated[declared, WrapValidator(_only_check)]
            if is_component and not _mentions(declared, HAYSTACK_TYPES)
            else declared,
            required=False,
        )
        for name, declared in declaration.types.items()
        # An AgentTool has a separate schema for its task.
        if name in shown_names and not is_agent and is_servable(declared)
    }
    inputs = InputSchema(given) if given else None
    description = tool.description
    if function is not None and function.__doc__ and description == function.__doc__:
        description = parse_docstring(function).description or ""
    # Defaults like `Field(10, le=20)`, which pydantic would resolve, but Haystack passes on unresolved.
    field_defaults = {
        name: each
        for name, each in declaration.defaults.items()
        if isinstance(each, FieldInfo) and not each.is_required()
    }
    output_types = _output_types(tool) if is_component else {}
    state_arguments = _arguments_from_state(tool, declaration) - {*shown_names, *options.bound}

    async def body(arguments: dict[str, Any], call: ServedCall) -> Any:
        if not state_arguments.isdisjoint(arguments):
            # A schema that allows any name would let these through.
            found = sorted(state_arguments.intersection(arguments))
            raise invalid_arguments(call.tool_name, (f"there is no argument {name!r}" for name in found))
        defaults = {name: each.get_default(call_default_factory=True) for name, each in field_defaults.items()}
        result = await call.read_generator(await _invoke(tool, {**defaults, **arguments}, call))
        fitting = as_declared(result, output_types) if is_component and not is_agent else result
        if not tool.outputs_to_string:
            return fitting
        # The model sees the same as it would in an Agent. The steps of an AgentTool are not shown to anyone.
        shown = shown_result(tool, result, lambda value: value)
        return shown if is_agent else Answer(fitting, shown)

    return ServedTool.create(
        name=tool.name,
        description=description,
        parameters=_parameters_for_clients(parameters, declaration, inputs),
        inputs=inputs,
        output_schema=None if is_agent else _output_schema(tool, function, options),
        body=body,
        options=options,
        pool=pool,
    )


def _only_check(value: Any, check: Callable[[Any], Any]) -> Any:
    check(value)
    return value


async def _invoke(tool: Any, arguments: dict[str, Any], call: ServedCall) -> Any:
    if HAS_ASYNC_FUNCTION and getattr(tool, "async_function", None) is not None:
        return await tool.invoke_async(**arguments)
    return await call.in_thread(lambda: tool.invoke(**arguments))


@dataclasses.dataclass(frozen=True)
class _Declaration:
    """
    The parameters of the function or component behind a tool, as far as they can be read.

    :param types: Their types, by their names.
    :param defaults: Their defaults; `inspect.Parameter.empty` for required ones.
    :param descriptions: Their descriptions.
    :param kept_keywords: The members of a parameter's own schema that are kept if its type is a class of Haystack. The
        class's docstring is for programmers.
    """

    types: Mapping[str, Any]
    defaults: Mapping[str, Any]
    descriptions: Mapping[str, str]
    kept_keywords: tuple[str, ...] = ("default",)


def _declaration_of_function(function: Callable[..., Any] | None) -> _Declaration:
    if function is None:
        return _Declaration({}, {}, {})
    parameters = inspect.signature(function).parameters
    try:
        hints = get_type_hints(function, include_extras=True)
    except (NameError, TypeError):
        hints = {}
    types = {name: hint for name, hint in hints.items() if name in parameters}
    annotated = {name: description for name, hint in types.items() if (description := annotated_description(hint))}
    in_docstring = parse_docstring(function).parameters if inspect.getdoc(function) else {}
    return _Declaration(types, {name: each.default for name, each in parameters.items()}, {**in_docstring, **annotated})


def _declaration_of_component(component: Any) -> _Declaration:
    sockets = input_sockets(component)
    return _Declaration(
        {name: each.type for name, each in sockets.items()},
        {name: inspect.Parameter.empty if each.is_mandatory else None for name, each in sockets.items()},
        parameter_descriptions(component),
        kept_keywords=("default", "description"),
    )


def _with_dependencies(options: ServeOptions, declaration: _Declaration) -> ServeOptions:
    """Bind the values that FastMCP injects into functions: its Context and `Depends`. Clients never set them."""
    injected: dict[str, Any] = {}
    for name, hint in declaration.types.items():
        for each in (declaration.defaults[name], hint, *get_args(hint)):
            if each is Context:
                injected[name] = CurrentContext()
            elif isinstance(each, Dependency) and not _is_of_docket(each):
                injected[name] = each
    return dataclasses.replace(options, bound={**injected, **options.bound}) if injected else options


def _parameters_for_clients(
    parameters: dict[str, Any], declaration: _Declaration, inputs: InputSchema | None
) -> dict[str, Any]:
    """Replace the schemas of Haystack's classes by the form that clients send, and add missing descriptions."""
    return _with_descriptions(_in_haystack_form(parameters, declaration, inputs), declaration.descriptions)


def _in_haystack_form(
    parameters: dict[str, Any], declaration: _Declaration, inputs: InputSchema | None
) -> dict[str, Any]:
    # These definitions are renamed, because there may be others of the same classes in pydantic's form.
    written = json.dumps(inputs.json_schema if inputs else {}).replace('"#/$defs/', '"#/$defs/haystack.')
    form: dict[str, Any] = json.loads(written)
    properties = dict(parameters.get("properties", {}))
    for name in properties.keys() & form.get("properties", {}).keys():
        if _mentions(declaration.types[name], HAYSTACK_TYPES):
            kept = {key: each for key, each in properties[name].items() if key in declaration.kept_keywords}
            properties[name] = {**form["properties"][name], **kept}
            parameters = {**parameters, "properties": properties}
            if "$defs" in form:
                own_form = {f"haystack.{key}": each for key, each in form["$defs"].items()}
                parameters["$defs"] = {**parameters.get("$defs", {}), **own_form}
    return parameters


def _with_descriptions(parameters: dict[str, Any], descriptions: Mapping[str, str]) -> dict[str, Any]:
    """Add descriptions to the arguments that have none, or one that Haystack has generated from the name."""
    properties: dict[str, Any] = parameters.get("properties", {})
    described = {
        name: {**each, "description": descriptions[name]}
        for name, each in properties.items()
        if descriptions.get(name)
        and isinstance(each, dict)
        and each.get("description") in (None, "", f"Input '{name}' for the component.")
    }
    return {**parameters, "properties": {**properties, **described}} if described else parameters


def _arguments_from_state(tool: Tool, declaration: _Declaration) -> set[str]:
    return {
        *(tool.inputs_from_state or {}).values(),
        *(name for name in declaration.types if is_state_type(declaration.types[name])),
    }


def _check_state(tool: Tool, declaration: _Declaration, options: ServeOptions) -> None:
    """Refuse a tool with a required argument from State, which does not exist outside an Agent."""
    known = {*tool.parameters.get("properties", {}), *options.bound}
    for name in sorted(_arguments_from_state(tool, declaration) - known):
        if declaration.defaults.get(name) is inspect.Parameter.empty:
            raise needs_state(tool.name, name)


def chosen_parameters(tool_name: str, parameters: dict[str, Any], options: ServeOptions) -> dict[str, Any]:
    """
    Keep the arguments of a tool that clients may set, according to `inputs` of its options.

    :param tool_name: The name of the tool, for messages.
    :param parameters: JSON schema of all its arguments.
    :param options: The options.
    :returns: JSON schema of the kept arguments; of all of them if `inputs` is not set.
    :raises ValueError: If `inputs` has an unknown name, or lacks a required argument.
    """
    if options.inputs is None:
        return parameters
    if isinstance(options.inputs, Mapping):
        msg = f"`inputs` of tool '{tool_name}' must be a list of its arguments, because they cannot be renamed"
        raise ValueError(msg)
    chosen = keep_arguments(parameters, options.inputs, tool_name)
    required = [name for name in parameters.get("required", []) if name not in (*options.inputs, *options.bound)]
    if required:
        msg = (
            f"Tool '{tool_name}' cannot be called without {', '.join(map(repr, required))}. Add to `inputs`, or "
            f"give it a value: ServeOptions(bound={{{required[0]!r}: ...}})."
        )
        raise ValueError(msg)
    return chosen


def needs_state(tool_name: str, argument: str) -> ValueError:
    """
    Make the error for an argument that comes from the State of an Agent, which a served tool does not have.

    :param tool_name: The name of the tool.
    :param argument: The argument.
    :returns: The error.
    """
    msg = (
        f"Tool '{tool_name}' takes '{argument}' from the State of an Agent, and a served tool has none. "
        f"Give it a value: ServeOptions(bound={{{argument!r}: ...}})."
    )
    return ValueError(msg)


def _shown_parameters(tool: Tool, options: ServeOptions) -> dict[str, Any]:
    parameters = tool.parameters
    if options.inputs is not None:
        return chosen_parameters(tool.name, parameters, options)
    if isinstance(tool, ComponentTool) and has_all_inputs_of_a_pipeline(tool):
        # Otherwise, clients would see all inputs of all components: templates, filters, generation parameters.
        required = parameters.get("required", [])
        if not required:
            msg = (
                f"{type(tool).__name__} '{tool.name}' has no `input_mapping` and no mandatory input. Give it an "
                "`input_mapping`, or say which inputs clients may set: ServeOptions(inputs=[...])."
            )
            raise ValueError(msg)
        return keep_arguments(parameters, required, tool.name)
    return parameters


def _output_schema(tool: Tool, function: Callable[..., Any] | None, options: ServeOptions) -> dict[str, Any] | None:
    if options.output_schema is not None:
        return None
    if isinstance(tool, ComponentTool):
        return output_schema(_output_types(tool), include_embeddings=options.include_embeddings)
    return None if function is None else _return_schema(function, _derived_schema(function))


def _output_types(tool: Any) -> dict[str, Any]:
    return {name: socket.type for name, socket in output_sockets(component_of(tool)).items()}
