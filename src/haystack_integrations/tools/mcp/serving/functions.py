# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves functions and methods. FastMCP reads their signatures, checks their arguments and injects what they depend on.
"""

from __future__ import annotations

import dataclasses
import functools
import inspect
from collections.abc import Callable
from typing import Any, get_args, get_type_hints

from fastmcp.exceptions import ToolError, ValidationError
from fastmcp.tools.base import ToolResult
from fastmcp.tools.function_tool import FunctionTool
from fastmcp.utilities.types import NotSet
from haystack.dataclasses import ByteStream, ChatMessage, Document, FileContent, ImageContent
from pydantic import BaseModel, PydanticUserError, RootModel
from pydantic import ValidationError as PydanticValidationError

from haystack_integrations.tools.mcp.serving.arguments import WRAP_RESULT, invalid_arguments, shortened
from haystack_integrations.tools.mcp.serving.background_tasks import dependencies_on_docket, resolved_by_docket
from haystack_integrations.tools.mcp.serving.options import ServeOptions
from haystack_integrations.tools.mcp.serving.pool import CallPool
from haystack_integrations.tools.mcp.serving.schemas import object_schema, output_schema, with_nullable_numbers
from haystack_integrations.tools.mcp.serving.served_tool import ServedCall, ServedTool, current_call

# What Haystack has for content that is no text.
_MEDIA = (ByteStream, FileContent, ImageContent)


class _Function(FunctionTool):
    """
    A function whose result is left as it is.
    """

    def convert_result(self, raw_value: Any) -> ToolResult:
        """
        Keep the result for the served tool, which converts it.

        :param raw_value: What the function returned.
        :returns: It, in a form that FastMCP takes.
        """
        return _Raw(raw_value)


class _Raw(ToolResult):
    value: Any = None

    def __init__(self, value: Any) -> None:
        super().__init__(content=[])
        self.value = value


def serve_function(
    function: Callable[..., Any], *, options_of: Callable[[str], ServeOptions | None], pool: CallPool
) -> ServedTool:
    """
    Make a tool of a function or method.

    :param function: The function, synchronous or not. With FastMCP's decorator `@tool`, what that says holds where the
        options say nothing.
    :param options_of: Gives what the user said of a name.
    :param pool: Where its calls take their places.
    :returns: The tool.
    :raises ValueError: If its signature cannot be described to a client.
    """
    try:
        parsed = FunctionTool.from_function(function)
    except (PydanticUserError, TypeError, ValueError) as error:
        msg = f"The function {getattr(function, '__name__', function)!r} cannot be served as a tool: {error}"
        raise ValueError(msg) from error
    options = _declared(parsed).overridden_by(options_of(parsed.name))
    _check(parsed, options)
    of_docket = dependencies_on_docket(
        {name: each.default for name, each in inspect.signature(parsed.fn).parameters.items()}
    )
    called = _in_thread_of_call(parsed.fn) if parsed.run_in_thread else parsed.fn
    inner = _Function(
        **{name: getattr(parsed, name) for name in ("name", "parameters", "output_schema", "return_type")},
        fn=_with_values_of_docket(called) if of_docket else called,
        run_in_thread=parsed.run_in_thread,
    )

    async def body(arguments: dict[str, Any], call: ServedCall) -> Any:
        try:
            result = await inner.run(arguments)
        except ValidationError as error:
            raise _refusal(call.tool_name, error) from None
        return result.value if isinstance(result, _Raw) else result

    return ServedTool.create(
        name=parsed.name,
        description=parsed.description,
        parameters=parsed.parameters,
        output_schema=_result_schema(parsed),
        body=body,
        options=options,
        pool=pool,
        auth=parsed.auth,
        body_checks=True,
        of_docket=of_docket,
    )


def _check(parsed: FunctionTool, options: ServeOptions) -> None:
    """Refuse options that would be passed over, or make each call fail."""
    takes = list(inspect.signature(parsed.fn).parameters)
    unknown = [name for name in options.bound if name not in takes]
    if unknown:
        msg = (
            f"`bound` names {', '.join(unknown)}, which the function '{parsed.name}' does not take. "
            f"It takes {', '.join(takes) or 'nothing'}."
        )
        raise ValueError(msg)
    for name in ("inputs", "outputs"):
        if getattr(options, name) is not None:
            msg = (
                f"`{name}` cannot be chosen for '{parsed.name}', which is a function. Give what clients are not to set "
                "a value with `bound`, or serve another function that takes and returns less."
            )
            raise ValueError(msg)


def _declared(parsed: FunctionTool) -> ServeOptions:
    """Read what a decorator said of a function."""
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


def _with_values_of_docket(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    async def called(*args: Any, **kwargs: Any) -> Any:
        result = function(*args, **{**kwargs, **resolved_by_docket.get()})
        return await result if inspect.isawaitable(result) else result

    return called


def _in_thread_of_call(function: Callable[..., Any]) -> Callable[..., Any]:
    """Have a synchronous function run in a thread that a timeout leaves behind; FastMCP would wait for it."""
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        return function

    @functools.wraps(function)
    async def in_thread(*args: Any, **kwargs: Any) -> Any:
        result = await current_call().in_thread(_call, function, args, kwargs)
        return await result if inspect.isawaitable(result) else result

    return in_thread


def _call(function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
    result = function(*args, **kwargs)
    return list(result) if inspect.isgenerator(result) else result


def _refusal(tool_name: str, error: ValidationError) -> ToolError:
    cause = error.__cause__
    if not isinstance(cause, PydanticValidationError):
        return invalid_arguments(tool_name, ["they cannot be read"])
    # Pydantic's own text quotes the values.
    details = cause.errors(include_url=False, include_context=False, include_input=False)
    return invalid_arguments(
        tool_name, [f"'{shortened('.'.join(map(str, each['loc'])))}': {each['msg']}" for each in details]
    )


def _result_schema(parsed: FunctionTool) -> dict[str, Any] | None:
    own, of_fastmcp = return_schema(parsed.fn), _derived_schema(parsed.fn)
    # With FastMCP's decorator, the function may have another one, or none.
    return own if parsed.output_schema == of_fastmcp else parsed.output_schema


def return_schema(function: Callable[..., Any]) -> dict[str, Any] | None:
    """
    Derive the output schema of a function from what it says that it returns.

    :param function: The function.
    :returns: The schema, of an object; None if it says nothing, or nothing that can be described.
    """
    if _returns_haystack(function):
        declared = _declared_return(function)
        # FastMCP does not know what Haystack's types look like as JSON. Media become content for the model, which no
        # schema describes.
        if _mentions(declared, _MEDIA):
            return None
        if _is_object(declared):
            return object_schema(declared)
        return {**output_schema({"result": declared}), WRAP_RESULT: True}
    derived = _derived_schema(function)
    return None if derived is None else with_nullable_numbers(derived)


def _derived_schema(function: Callable[..., Any]) -> dict[str, Any] | None:
    try:
        return FunctionTool.from_function(function, name="function", output_schema=NotSet).output_schema
    except (NameError, PydanticUserError, TypeError, ValueError):
        return None


def _returns_haystack(function: Callable[..., Any]) -> bool:
    return _contains(_declared_return(function), (*_MEDIA, Document, ChatMessage))


def _declared_return(function: Callable[..., Any]) -> Any:
    try:
        return get_type_hints(inspect.unwrap(function), include_extras=True).get("return")
    except (NameError, TypeError):
        # FastMCP says what is wrong with them, if it needs them.
        return None


def _mentions(declared: Any, kinds: tuple[type, ...]) -> bool:
    return declared in kinds or any(_mentions(each, kinds) for each in get_args(declared))


def _contains(declared: Any, kinds: tuple[type, ...], seen: frozenset[Any] = frozenset()) -> bool:
    """
    Tell whether values of a type have values of some others in them, also in fields of models and dataclasses.
    """
    if declared in kinds:
        return True
    parts = list(get_args(declared))
    if _is_object(declared) and declared not in seen:
        seen = seen | {declared}
        parts += _hints(declared).values()
    return any(_contains(each, kinds, seen) for each in parts)


def _is_object(declared: Any) -> bool:
    if not isinstance(declared, type) or declared in (*_MEDIA, Document, ChatMessage):
        return False
    is_root_model = issubclass(declared, RootModel)
    return (issubclass(declared, BaseModel) and not is_root_model) or dataclasses.is_dataclass(declared)


def _hints(declared: Any) -> dict[str, Any]:
    try:
        return get_type_hints(declared, include_extras=True)
    except (NameError, TypeError):
        return {}
