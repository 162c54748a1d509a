# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The handlers of one session: calls them, and converts what they return to responses for the server.
"""

from __future__ import annotations

import asyncio
import json
import logging as stdlib_logging
import re
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeAlias, TypeVar, get_args
from urllib.parse import urlsplit

import mcp_types as types
from haystack import logging
from jsonschema import Draft202012Validator, SchemaError
from mcp_types.version import LATEST_HANDSHAKE_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from haystack_integrations.tools.mcp.executor import Caller, caller_of_operation
from haystack_integrations.tools.mcp.handlers.calling import DeliveryQueue, call
from haystack_integrations.tools.mcp.handlers.mcp_handlers import (
    AskUser,
    MCPHandlers,
    answer_later,
    default_values,
    fields_of,
    is_root,
    missing_fields,
)
from haystack_integrations.tools.mcp.handlers.sampling import Sampler
from haystack_integrations.tools.mcp.redaction import Redactor
from haystack_integrations.tools.mcp.request_context import current_request

logger: logging.PatchedLogger = logging.getLogger(__name__)

T = TypeVar("T")

# A server's log messages go to the logger with this name plus the server's name.
LOGGER_NAME: Final = "haystack_integrations.tools.mcp.servers"

# Keywords of a form's fields that are quick to check, whatever the server wrote. Matching a pattern may never end.
_CHECKED_KEYWORDS = ("type", "enum", "const", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")

# The levels for which `logging` has another name.
_LEVELS = {"notice": "INFO", "alert": "CRITICAL", "emergency": "CRITICAL"}

# The maximum length of a log message, in characters.
_MAX_LOG_MESSAGE = 10_000

# The fields of MCPHandlers that answer the requests of a server.
FIELDS: Final = {"sampling/createMessage": "sampling", "elicitation/create": "elicitation", "roots/list": "roots"}

_Answer: TypeAlias = types.InputResponse | types.ErrorData


class SessionHandlers:
    """
    The handlers of one session.

    They never raise, because in the newer revisions an exception would become the error of the tool call.
    """

    def __init__(self, handlers: MCPHandlers, server: str, redactor: Redactor) -> None:
        """
        Initialize the SessionHandlers.

        :param handlers: The user's handlers.
        :param server: Describes the server in logs.
        :param redactor: Redacts secrets in logs.
        """
        self.handlers = handlers
        self._server = server
        self._server_name = server
        self._redactor = redactor
        # Returns the caller whose event loop to use for handlers that belong to no operation.
        self.caller: Callable[[], Caller | None] = lambda: None
        # Returns the tasks of the requests that such a handler may belong to.
        self.requests_in_flight: Callable[[], list[asyncio.Task[Any]]] = list
        # Makes the context manager in which a handler answers the server.
        self.on_question: Callable[[], AbstractContextManager[None]] = nullcontext
        self._sampler = Sampler(handlers.sampling, server) if handlers.sampling is not None else None
        self._log_queue = DeliveryQueue(partial(self._deliver, "logging"))
        self._notification_queue = DeliveryQueue(partial(self._deliver, "messages"))
        # The revision of the protocol; until it is known, the latest with a handshake.
        self.version: str = LATEST_HANDSHAKE_VERSION
        # How often the server wanted a field of MCPHandlers that is not set, by field.
        self.missing_counts: dict[str, int] = {}

    @property
    def is_modern(self) -> bool:
        """
        Whether the revision of the protocol is 2026-07-28 or later.
        """
        return self.version in MODERN_PROTOCOL_VERSIONS

    @property
    def takes_tools(self) -> bool:
        """
        Whether servers may offer the model tools.
        """
        return self._sampler is not None and self._sampler.takes_tools

    def missing_handler_error(self, method: str) -> types.ErrorData | None:
        """
        Return the error for a request without a handler; count it, and warn the first time.

        :param method: The method of the server's request.
        :returns: The error for the server, with which the call fails in newer revisions; None if there is a handler.
        """
        field = FIELDS[method]
        if getattr(self.handlers, field) is not None:
            return None
        self.missing_counts[field] = self.missing_counts.get(field, 0) + 1
        if self.missing_counts[field] == 1:
            logger.warning(
                "{server} asks for {field}, for which there is no handler. Set `{field}` of MCPHandlers, and pass it "
                "as `handlers` to the toolset, tool or connection.",
                server=self._server,
                field=field,
            )
        message = f"{field.capitalize()} not supported"
        if self.is_modern:
            data: dict[str, Any] = {"requiredCapabilities": {field: {}}}
            return types.ErrorData(code=types.MISSING_REQUIRED_CLIENT_CAPABILITY, message=message, data=data)
        return types.ErrorData(code=types.METHOD_NOT_FOUND, message=message)

    async def answer(self, request: types.InputRequest) -> _Answer:
        """
        Answer a request of the server with its handler, which must be set.

        :param request: The request.
        :returns: The answer.
        """
        match request:
            case types.CreateMessageRequest(params=params) if self._sampler is not None:
                return await self._call_handler("sampling", self._sampler.answer(params))
            case types.ElicitRequest(params=params):
                return await self._call_handler("elicitation", self.elicit(params))
            case _:
                return await self._call_handler("roots", self._roots())

    def opened(
        self, version: str, capabilities: Mapping[str, Any], server_name: str | None
    ) -> types.LoggingLevel | None:
        """
        Store the results of the negotiation, and warn about handlers that will never be called.

        :param version: The revision of the protocol.
        :param capabilities: The server's capabilities.
        :param server_name: The name that the server gives itself.
        :returns: The log level to request from the server with `logging/setLevel`; None for no request.
        """
        self._server_name = server_name or self._server
        handlers = self.handlers
        self.version = version
        if self.is_modern:
            if handlers.logging is not None and handlers.log_level is None:
                self._warn_unused("logging", f"revision {version} sends log messages only if `log_level` is also set")
        elif handlers.elicitation is answer_later:
            self._warn_unused(
                "elicitation", f"revision {version} has no calls that are left open; questions are cancelled"
            )
        return None if self.is_modern or "logging" not in capabilities else handlers.log_level

    def advice(self, before: dict[str, int], code: int | None = None, data: Any = None) -> str | None:
        """
        Return which handlers to configure, for the error of a call.

        :param before: A copy of `missing_counts` from before the call.
        :param code: The code of the protocol error, if it is one.
        :param data: The data of the protocol error.
        :returns: Sentences, or None if the error is not about handlers.
        """
        fields = [field for field, count in self.missing_counts.items() if count > before.get(field, 0)]
        if _needs_url(code, data):
            if self.handlers.elicitation is not None:
                return "The user has not done yet what the server asks for at a URL; call the tool again afterwards."
            fields = ["elicitation"]
        elif code == types.MISSING_REQUIRED_CLIENT_CAPABILITY and isinstance(data, dict):
            required = data.get("requiredCapabilities")
            unset = [name for name in FIELDS.values() if getattr(self.handlers, name) is None]
            fields = [name for name in unset if isinstance(required, dict) and name in required]
        advice = (
            f"The server needs {field}, for which there is no handler: set `{field}` of MCPHandlers."
            for field in fields
        )
        return " ".join(advice) or None

    async def elicit_urls(self, code: int, data: Any) -> bool:
        """
        Ask the user to open the URLs that a call needs (-32042).

        :param code: The code of the call's error.
        :param data: The data of that error.
        :returns: True if the user opened them, so that the call can be sent again.
        """
        if not _needs_url(code, data) or self.handlers.elicitation is None:
            return False
        try:
            required = types.ElicitationRequiredErrorData.model_validate(data)
            for params in required.elicitations:
                with self.on_question():
                    answer = await self.elicit(params)
                if not isinstance(answer, types.ElicitResult) or answer.action != "accept":
                    return False
        except Exception as failure:
            self.failed("elicitation", failure)
            return False
        return True

    def _warn_unused(self, field: str, reason: str) -> None:
        logger.warning(
            "`{field}` of MCPHandlers has no effect for {server}: {reason}",
            field=field,
            server=self._server,
            reason=reason,
        )

    def failed(self, field: str, error: Exception) -> None:
        """
        Log why a handler failed.

        :param field: The field of MCPHandlers.
        :param error: The exception that it raised.
        """
        error = self._redactor.error(error)
        logger.error(
            "The handler `{field}` for {server} failed: {kind}: {error}",
            field=field,
            server=self._server,
            kind=type(error).__name__,
            error=str(error),
            exc_info=error,
        )

    @contextmanager
    def _on_behalf_of_caller(self) -> Iterator[None]:
        token = caller_of_operation.set(caller_of_operation.get() or self.caller())
        try:
            yield
        finally:
            caller_of_operation.reset(token)

    async def _call_handler(self, field: str, answer: Coroutine[Any, Any, T]) -> T | types.ErrorData:
        request = current_request.get()
        requests = self.requests_in_flight() if request is None else [request]
        try:
            with self.on_question(), self._on_behalf_of_caller():
                return await (_answer_while_awaited(requests, answer) if requests else answer)
        except _AbandonedAnswerError as error:
            logger.info(
                "{server} gets no answer of `{field}`: {error}", server=self._server, field=field, error=str(error)
            )
            return types.ErrorData(code=types.INTERNAL_ERROR, message=f"The client gave up: {error}")
        except Exception as error:
            self.failed(field, error)
            return types.ErrorData(code=types.INTERNAL_ERROR, message=f"The client's {field} handler failed")

    async def elicit(self, params: types.ElicitRequestParams) -> types.ElicitResult | types.ErrorData:
        """
        Answer an elicitation request with the user's handler.

        :param params: The request.
        :returns: The answer.
        """
        handler = self.handlers.elicitation
        if isinstance(handler, AskUser):
            answer = await call(handler, params, self._server_name)
        else:
            answer = await call(handler, params)  # type: ignore[arg-type]
        return elicit_result(params, answer)

    async def _roots(self) -> types.ListRootsResult:
        roots = self.handlers.roots
        return roots_result(await call(roots) if callable(roots) else roots)

    def log(self, params: types.LoggingMessageNotificationParams) -> None:
        """
        Pass on a log message of the server.

        :param params: The message.
        """
        # Some servers ignore the level that they are asked for.
        if self.handlers.log_level is not None and _severity(params.level) < _severity(self.handlers.log_level):
            return
        if self.handlers.logging is None:
            _log_message(self._server_name, params, self._redactor)
        else:
            with self._on_behalf_of_caller():
                self._log_queue.put(params)

    def deliver_notification(self, message: types.Notification[Any, Any]) -> None:
        """
        Pass a notification of the server to the user's handler for all notifications.

        :param message: The notification.
        """
        with self._on_behalf_of_caller():
            self._notification_queue.put(message)

    async def _deliver(self, field: str, item: Any) -> None:
        try:
            await call(getattr(self.handlers, field), item)
        except Exception as error:
            self.failed(field, error)


class _AbandonedAnswerError(Exception):
    """Raised when nothing waits for a handler's answer any more."""


async def _answer_while_awaited(requests: list[asyncio.Task[Any]], answer: Coroutine[Any, Any, T]) -> T:
    # In some revisions, a server's question neither names the request that it belongs to, nor is ever withdrawn.
    answering = asyncio.create_task(answer)
    waiting_requests = set(requests)

    def ended(request: asyncio.Task[Any]) -> None:
        if request.cancelled() or request.exception() is not None:
            waiting_requests.discard(request)
        # Cancelling twice would interrupt the handler's cleanup.
        if not waiting_requests and not answering.cancelling():
            answering.cancel()

    for request in requests:
        request.add_done_callback(ended)
    try:
        return await answering
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is not None and task.cancelling():
            raise
        msg = "the call that it was for has ended" if not waiting_requests else "it was cancelled"
        raise _AbandonedAnswerError(msg) from None
    finally:
        for request in requests:
            request.remove_done_callback(ended)


def _needs_url(code: int | None, data: Any) -> bool:
    # Some servers use this code for their own errors.
    return code == types.URL_ELICITATION_REQUIRED and isinstance(data, dict) and bool(data.get("elicitations"))


def _severity(level: types.LoggingLevel) -> int:
    return get_args(types.LoggingLevel).index(level)


def elicit_result(params: types.ElicitRequestParams, answer: Any) -> types.ElicitResult | types.ErrorData:
    """
    Convert the answer of a handler, or of a caller, to the result for the server.

    :param params: The request of the server.
    :param answer: A dictionary, True, False, None, or an ElicitResult or ErrorData of the MCP SDK.
    :returns: The result.
    :raises TypeError: If the answer has another type.
    :raises ValueError: If the answer does not fit the form. The message does not quote it.
    """
    form = params.requested_schema if isinstance(params, types.ElicitRequestFormParams) else None
    result: types.ElicitResult | types.ErrorData
    if isinstance(answer, (types.ElicitResult, types.ErrorData)):
        result = answer
    elif answer is None:
        result = types.ElicitResult(action="cancel")
    elif answer is False:
        result = types.ElicitResult(action="decline")
    elif answer is True:
        result = types.ElicitResult(action="accept", content=None if form is None else default_values(form))
    elif isinstance(answer, dict) and form is not None:
        result = _accepted_form(answer)
    else:
        msg = (
            f"it returned {type(answer).__name__} for a {'URL' if form is None else 'form'}; it must return "
            f"{'' if form is None else 'a dictionary, '}True, False, None, or an ElicitResult or ErrorData of the MCP "
            "SDK"
        )
        raise TypeError(msg)
    if form is not None and isinstance(result, types.ElicitResult) and result.action == "accept":
        _check_form(form, result.content or {})
    return result


def _accepted_form(values: dict[str, Any]) -> types.ElicitResult:
    try:
        return types.ElicitResult(action="accept", content=values)
    except ValidationError:
        # Pydantic's message quotes the values.
        msg = "the values of a form must be strings, numbers, booleans or lists of strings"
        raise ValueError(msg) from None


def _check_form(schema: dict[str, Any], values: dict[str, Any]) -> None:
    checked = {"properties": {name: _quickly_checked(field) for name, field in fields_of(schema).items()}}
    try:
        Draft202012Validator.check_schema(checked)
    except SchemaError:
        return  # only the server can check the answers to a form with an invalid schema
    errors = Draft202012Validator(checked).iter_errors(values)
    # The messages of the errors quote the values, so only the fields are named.
    wrong = sorted({str(error.path[0]) for error in errors if error.path})
    wrong += [f"{name} is required" for name in missing_fields(schema, values)]
    if wrong:
        msg = f"what it filled in does not fit the form: {', '.join(wrong)}"
        raise ValueError(msg)


def _quickly_checked(field: Any) -> dict[str, Any]:
    if not isinstance(field, dict):
        return {}
    checked = {key: field[key] for key in _CHECKED_KEYWORDS if key in field}
    # Fields with several choices list them in `items`, fields with titled choices in `oneOf` or `anyOf`.
    if "items" in field:
        checked["items"] = _quickly_checked(field["items"])
    choices = field.get("oneOf") or field.get("anyOf")
    if isinstance(choices, list):
        # Not `oneOf`: without the unchecked keywords, more than one choice may match.
        checked["anyOf"] = [_quickly_checked(choice) for choice in choices]
    return checked


def roots_result(roots: Any) -> types.ListRootsResult:
    """
    Answer a request for roots.

    :param roots: Paths or `file://` URIs.
    :returns: The answer, in which relative paths have been resolved.
    :raises TypeError: If `roots` is anything else.
    """
    if isinstance(roots, (str, Path, Mapping)) or not isinstance(roots, Iterable):
        msg = f"roots must be a list of paths or file:// URIs, got {type(roots).__name__}"
        raise TypeError(msg)
    return types.ListRootsResult(roots=[_root(root) for root in roots])


def _root(root: Any) -> types.Root:
    if not is_root(root):
        actual = f"{urlsplit(root).scheme}://…" if isinstance(root, str) and "://" in root else type(root).__name__
        msg = f"a root must be a path or a file:// URI, got {actual}"
        raise TypeError(msg)
    if isinstance(root, str) and "://" in root:
        return types.Root.model_validate({"uri": root})
    path = Path(root).expanduser().absolute()
    return types.Root.model_validate({"uri": path.as_uri(), "name": path.name or str(path)})


def _log_message(server_name: str, params: types.LoggingMessageNotificationParams, redactor: Redactor) -> None:
    """
    Write a server's log message to the logger of this server.

    :param server_name: The name that the server gives itself.
    :param params: The message.
    :param redactor: Redacts the secrets that the server was given.
    """
    name = re.sub(r"[^\w-]+", "_", server_name)[:64] or "unnamed"
    server_logger = logging.getLogger(f"{LOGGER_NAME}.{name}")
    name_of_level = _LEVELS.get(params.level, params.level.upper())
    level = stdlib_logging.getLevelNamesMapping().get(name_of_level, stdlib_logging.INFO)
    if not stdlib_logging.getLogger(f"{LOGGER_NAME}.{name}").isEnabledFor(level):
        return
    text = redactor.text(_as_text(params.data))
    origin = f"{redactor.text(params.logger)}: " if params.logger else ""
    server_logger.log(level, "{origin}{text}", origin=_printable_line(origin), text=_printable_line(text))


def _as_text(data: Any) -> str:
    return data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, default=str)


def _printable_line(text: str) -> str:
    # Control characters from a server must not forge lines in the log or control a terminal.
    text = text if len(text) <= _MAX_LOG_MESSAGE else f"{text[:_MAX_LOG_MESSAGE]}… ({len(text)} characters)"
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
