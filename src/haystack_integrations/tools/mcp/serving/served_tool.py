# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, TypeVar

import anyio
from fastmcp import Context
from fastmcp.dependencies import Dependency
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import AuthCheck, require_scopes
from fastmcp.server.dependencies import OptionalCurrentContext, get_context, resolve_dependencies
from fastmcp.tools.base import Tool, ToolResult
from fastmcp.utilities.tasks import TaskConfig
from haystack import logging
from haystack.tools.errors import ToolInvocationError
from mcp.types import ToolAnnotations
from pydantic import PrivateAttr, ValidationError

from haystack_integrations.tools.mcp.serving.arguments import ArgumentCheck, without
from haystack_integrations.tools.mcp.serving.background_tasks import (
    dependencies_on_docket,
    resolved_by_docket,
    run_by_docket,
)
from haystack_integrations.tools.mcp.serving.exits import CodeExitedError, is_for_others
from haystack_integrations.tools.mcp.serving.options import ServeOptions, check_name
from haystack_integrations.tools.mcp.serving.pool import CallPool, Place, ServerBusyError
from haystack_integrations.tools.mcp.serving.results import ResultWriter
from haystack_integrations.tools.mcp.serving.values import well_formed

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# The parameter by which FastMCP resolves the context of a request.
_CONTEXT = "_served_context"


@dataclass(frozen=True)
class ServedCall:
    """
    One call of a served tool, for its body.

    :param tool_name: The name of the tool for clients.
    :param context: FastMCP's context of the request; None if the tool is run without a server.
    :param place: The place of the call in the pool.
    """

    tool_name: str
    context: Context | None
    place: Place

    async def progress(self, done: float, total: float | None = None, message: str | None = None) -> None:
        """
        Tell the client how far the call is. Nothing is sent to a client that did not ask for it.

        :param done: How much is done. It must grow from report to report.
        :param total: How much there is to do, if that is known.
        :param message: What is being done.
        """
        if self.context is not None:
            await self.context.report_progress(done, total, message)

    async def in_thread(self, function: Callable[..., T], *args: Any) -> T:
        """
        Call a blocking function in a thread of its own, with the context of this call.

        If the call is cancelled or runs into its timeout, the client is answered at once. The thread goes on alone.

        :param function: The function.
        :param args: Its arguments.
        :returns: What it returns.
        """
        return await self.place.in_thread(function, *args)


Body = Callable[[dict[str, Any], ServedCall], Awaitable[Any]]

# The call that the running code belongs to.
_current_call: ContextVar[ServedCall] = ContextVar("served_call")


def current_call() -> ServedCall:
    """
    Give the call that the running code belongs to.

    :returns: The call.
    :raises LookupError: If there is none.
    """
    return _current_call.get()


@dataclass(frozen=True)
class _Parts:
    """
    What a served tool consists of, in one place: pydantic is slow in giving private attributes.
    """

    body: Body
    options: ServeOptions
    pool: CallPool
    arguments: ArgumentCheck
    results: ResultWriter
    body_checks: bool
    bound: dict[str, Any]
    injected: Callable[..., None]
    has_dependencies: bool


class ServedTool(Tool):
    """
    A tool of the server that runs something of Haystack.

    For tools that are not plain functions, FastMCP neither checks arguments nor keeps to the timeout; this one does.
    """

    _parts: _Parts = PrivateAttr()

    @classmethod
    def create(
        cls,
        *,
        name: str,
        description: str | None,
        parameters: dict[str, Any],
        body: Body,
        options: ServeOptions,
        pool: CallPool,
        output_schema: dict[str, Any] | None = None,
        title: str | None = None,
        annotations: ToolAnnotations | None = None,
        auth: AuthCheck | list[AuthCheck] | None = None,
        body_checks: bool = False,
        of_docket: Mapping[str, Any] | None = None,
        kind: str = "tools",
    ) -> ServedTool:
        """
        Create a tool.

        What the options say goes before what the other parameters say.

        :param name: Its name.
        :param description: What it does, for the model.
        :param parameters: JSON schema of its arguments. Those that are bound need not be removed.
        :param body: Does what the tool is for: gets the arguments, checked and with the bound ones, and the call.
            Whatever it returns is turned into content and structured content; a `ToolResult` is sent as it is.
        :param options: What the user said of it.
        :param pool: Where it takes its places.
        :param output_schema: JSON schema of the structured result, if it can be derived.
        :param title: Its name for people.
        :param annotations: Hints for clients.
        :param auth: Who may use it, if the options name no scopes.
        :param body_checks: Whether the body itself checks arguments and raises a `ToolError`. Then they are checked
            before only if values of another type are to be refused.
        :param of_docket: What the body wants Docket to resolve if the tool is run as a background task.
        :param kind: The parameter of `create_mcp_server` that it comes from.
        :returns: The tool.
        :raises ValueError: If clients cannot call it.
        """
        check_name("`ServeOptions(name=...)`" if options.name else f"`{kind}`", options.name or name)
        if options.output_schema is not None:
            output_schema = dict(options.output_schema) if options.output_schema else None
        shown = without(_of_object(options.name or name, parameters), options.bound)
        tool = cls(
            name=options.name or name,
            **{"title": title, "description": description, **options.of_component()},
            annotations=options.hints or annotations,
            parameters=shown,
            output_schema=output_schema,
            timeout=options.timeout,
            auth=require_scopes(*options.scopes) if options.scopes else auth,
            task_config=_task_config(options),
        )
        dependencies = {name: each for name, each in options.bound.items() if isinstance(each, Dependency)}
        tool._parts = _Parts(
            body=body,
            options=options,
            pool=pool if options.max_concurrency is None else CallPool(options.max_concurrency),
            arguments=ArgumentCheck(tool.name, shown),
            results=ResultWriter(tool.name, output_schema, options),
            body_checks=body_checks,
            bound={name: each for name, each in options.bound.items() if name not in dependencies},
            injected=_injected({_CONTEXT: OptionalCurrentContext(), **dependencies}),
            has_dependencies=bool(dependencies),
        )
        of_docket = {**(of_docket or {}), **dependencies_on_docket(dependencies)}
        if of_docket and options.task:
            # Docket runs this method of the tool, whose signature has none of them.
            object.__setattr__(tool, "run", run_by_docket(tool.run, of_docket))
        return tool

    @property
    def is_enabled(self) -> bool:
        """
        Whether clients see it, as long as nobody enables or disables it.
        """
        return self._parts.options.enabled

    async def run(self, arguments: dict[str, Any]) -> ToolResult:
        """
        Run the tool.

        :param arguments: The client's arguments.
        :returns: The result.
        :raises ToolError: If the arguments cannot be used, the server is busy, or the call takes too long. The client
            gets to see the message.
        """
        parts = self._parts
        context = None if parts.has_dependencies else _context_of_request()
        if context is not None:
            return await self._result_of(parts, arguments, {}, context)
        async with resolve_dependencies(parts.injected, {}) as injected:
            context = injected.pop(_CONTEXT)
            return await self._result_of(parts, arguments, injected, context)

    async def _result_of(
        self, parts: _Parts, arguments: dict[str, Any], injected: dict[str, Any], context: Context | None
    ) -> ToolResult:
        arguments = {**_checked(parts, arguments, context), **parts.bound, **injected}
        if parts.has_dependencies:
            arguments.update({name: each for name, each in resolved_by_docket.get().items() if name in injected})
        # A background task has all the time that it needs.
        if self.timeout is None or (context is not None and context.is_background_task):
            return parts.results.result(await self._call(parts, arguments, context))
        with anyio.move_on_after(self.timeout):
            return parts.results.result(await self._call(parts, arguments, context))
        raise self._timed_out()

    async def _call(self, parts: _Parts, arguments: dict[str, Any], context: Context | None) -> Any:
        try:
            async with parts.pool.place() as place:
                call = ServedCall(self.name, context, place)
                token = _current_call.set(call)
                try:
                    return await parts.body(arguments, call)
                finally:
                    _current_call.reset(token)
        except ServerBusyError as busy:
            raise ToolError(str(busy)) from None
        except ToolError as error:
            text = well_formed(str(error))
            if text == str(error):
                raise
            # The client gets it, and it could not be sent.
            raise ToolError(text, log_level=error.log_level) from error
        except ToolInvocationError as error:
            failure = _cause(error)  # its text quotes all arguments, bound ones, too
        except ValidationError as error:
            failure = error
        except BaseException as error:
            if is_for_others(error):
                raise
            raise CodeExitedError(error) from error
        if isinstance(failure, ValidationError):
            # FastMCP would take it for one of the arguments. Its text quotes values.
            failure = InvalidValueError(failure)
        raise failure

    def _timed_out(self) -> ToolError:
        logger.warning(
            "A call of tool '{tool}' ran into its timeout of {timeout} s. {advice}, which has no such limit",
            tool=self.name,
            timeout=self.timeout,
            advice="Clients can call it as a background task"
            if self.task_config.supports_tasks()
            else "Offer it as a background task (`ServeOptions(task=True)`)",
        )
        return ToolError(f"Tool '{self.name}' did not finish within {self.timeout:g} s.")


class InvalidValueError(ValueError):
    """
    Raised when code of a tool made an object of the wrong values.
    """

    def __init__(self, error: ValidationError) -> None:
        """
        Initialize the InvalidValueError.

        :param error: What pydantic says.
        """
        details = error.errors(include_url=False, include_context=False, include_input=False)
        super().__init__("; ".join(f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in details))


def _of_object(tool_name: str, parameters: dict[str, Any]) -> dict[str, Any]:
    """Have a schema say that arguments are an object, which MCP demands of it: no client could list any tool."""
    kinds = parameters.get("type", "object")
    if "object" not in (kinds if isinstance(kinds, list) else [kinds]):
        msg = f"The parameters of tool '{tool_name}' must be of type 'object', as arguments have names, not {kinds!r}"
        raise ValueError(msg)
    return {**parameters, "type": "object"}


def _checked(parts: _Parts, arguments: dict[str, Any], context: Context | None) -> dict[str, Any]:
    strict = parts.options.strict_validation
    if strict is None:
        strict = context is not None and context.fastmcp.strict_input_validation
    if parts.body_checks and not strict:
        return parts.arguments.prepare(arguments)
    return parts.arguments.check(arguments, strict=strict)


def _cause(error: BaseException) -> BaseException:
    while isinstance(error, ToolInvocationError) and error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, ToolInvocationError):
        return RuntimeError(f"Tool '{error.tool_name}' could not be invoked")
    return error


def _context_of_request() -> Context | None:
    """
    Give the context that there is already. In a worker of background tasks there is none before one is asked for.
    """
    try:
        return get_context()
    except RuntimeError:
        return None


def _injected(dependencies: dict[str, Any]) -> Callable[..., None]:
    """Make a function that has these dependencies as parameters, because that is what FastMCP resolves."""

    def function(**_resolved: Any) -> None:
        """Never called."""

    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=each) for name, each in dependencies.items()
    ]
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    return function


def _task_config(options: ServeOptions) -> TaskConfig:
    if options.task == "required":
        return TaskConfig(mode="required")
    return TaskConfig.from_bool(options.task is True)
