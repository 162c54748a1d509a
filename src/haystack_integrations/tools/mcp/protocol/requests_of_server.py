# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a server asks its client, and what it tells.

Up to revision 2025-11-25 it sends requests, since 2026-07-28 they are in the result of a request of ours.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, Final

import mcp_types as types
from haystack import logging
from mcp_types import methods
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from haystack_integrations.tools.mcp.convert.odd_messages import mend_params
from haystack_integrations.tools.mcp.handlers.callbacks import FIELDS, Callbacks
from haystack_integrations.tools.mcp.handlers.calling import InOrder
from haystack_integrations.tools.mcp.protocol.changes import ACKNOWLEDGED
from haystack_integrations.tools.mcp.protocol.exchange import Exchange, ProtocolError

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Servers may run calls as tasks (SEP-2663).
_TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

_LOG: Final = "notifications/message"


class ServerRequests:
    """
    Answers what the server of one session asks, and passes on what it tells.
    """

    def __init__(self, callbacks: Callbacks) -> None:
        """
        Initialize the ServerRequests.

        :param callbacks: The user's handlers. They are loaded.
        """
        self.callbacks = callbacks
        # The user's extensions of the protocol, but for those with kinds of results of their own, and what the server
        # may tell of, by method.
        self._extensions: dict[str, Any] = {
            each.identifier: each.settings() for each in callbacks.extensions if not each.claims()
        }
        self._bindings: dict[str, Any] = {
            binding.method: binding for each in callbacks.extensions for binding in each.notifications()
        }
        self._bound = {
            method: InOrder(partial(self._deliver, binding.handler), lambda: callbacks.overflowed("extensions"))
            for method, binding in self._bindings.items()
        }

    def capabilities(self, version: str) -> dict[str, Any]:
        """
        Return what a server is told that this client can do: that for which there is a handler.

        :param version: The revision of the protocol.
        :returns: The capabilities, as in the protocol.
        """
        handlers = self.callbacks.handlers
        told: dict[str, Any] = {}
        if handlers.sampling is not None:
            told["sampling"] = {"tools": {}} if self.callbacks.takes_tools else {}
        if handlers.elicitation is not None:
            told["elicitation"] = {"form": {}, "url": {}}
        if handlers.roots is not None:
            told["roots"] = {} if version in MODERN_PROTOCOL_VERSIONS else {"listChanged": True}
        extensions = dict(self._extensions)
        if version in MODERN_PROTOCOL_VERSIONS:
            extensions.setdefault(_TASKS_EXTENSION, {})
        return {**told, "extensions": extensions} if extensions else told

    async def answer(self, method: str, params: dict[str, Any]) -> dict[str, Any] | None:
        """
        Answer a JSON-RPC request of the server.

        :param method: Its method.
        :param params: Its parameters.
        :returns: The result; None if the revision has no such requests, so that there is no answer.
        :raises ProtocolError: To answer with an error.
        """
        if self.callbacks.is_modern:
            logger.debug("A request of the server is ignored, because its revision of the protocol has none")
            return None
        if method == "ping":
            return {}
        if method not in FIELDS:
            raise ProtocolError(types.METHOD_NOT_FOUND, "Method not found")
        self._check_handler(method)
        try:
            request = _read(method, params)
        except ValidationError:
            raise ProtocolError(types.INVALID_PARAMS, "Invalid request parameters") from None
        return await self._answer(request)

    async def answers(self, requests: Mapping[str, types.InputRequest]) -> dict[str, dict[str, Any]]:
        """
        Answer what a server wants to know before it goes on with a request, all of it at the same time.

        :param requests: The requests by their keys.
        :returns: The answers by the same keys, as in the protocol.
        :raises ProtocolError: If a handler refuses or is not there, which is then the error of the request.
        """
        answering = [asyncio.ensure_future(self._answer(request)) for request in requests.values()]
        try:
            return dict(zip(requests, await asyncio.gather(*answering), strict=True))
        finally:
            for each in answering:
                each.cancel()

    def _check_handler(self, method: str) -> None:
        if (missing := self.callbacks.missing(method)) is not None:
            raise ProtocolError(missing.code, missing.message, missing.data)

    async def _answer(self, request: types.InputRequest) -> dict[str, Any]:
        self._check_handler(request.method)
        answer = await self.callbacks.answer(request)
        if isinstance(answer, types.ErrorData):
            raise ProtocolError(answer.code, answer.message, answer.data)
        dumped: dict[str, Any] = answer.model_dump(by_alias=True, mode="json", exclude_none=True)
        return dumped

    def notified(self, method: str, params: dict[str, Any], exchange: Exchange | None = None) -> None:
        """
        Pass on what the server tells. What cannot be read, or is unknown, is ignored.

        :param method: The method of the notification.
        :param params: Its parameters.
        :param exchange: The request of ours in whose stream it came; its caller is who gets it.
        """
        if exchange is not None:
            exchange.context.run(self._notified, method, params)
        else:
            self._notified(method, params)

    def _notified(self, method: str, params: dict[str, Any]) -> None:
        version, handlers = self.callbacks.version, self.callbacks.handlers
        is_known = (method, version) in methods.SERVER_NOTIFICATIONS
        binding = None if is_known else self._bindings.get(method)
        try:
            if binding is not None:
                self._bound[method].put(binding.params_type.model_validate(params))
            elif is_known and method != ACKNOWLEDGED and (method == _LOG or handlers.messages is not None):
                message = methods.parse_server_notification(method, version, mend_params(method, params))
                if isinstance(message, types.LoggingMessageNotification):
                    self.callbacks.log(message.params)
                if handlers.messages is not None:
                    self.callbacks.note(message)
        except ValidationError:
            logger.debug("A notification of the server cannot be read: {method}", method=method)

    async def _deliver(self, handler: Callable[[Any], Awaitable[None]], params: Any) -> None:
        try:
            await handler(params)
        except Exception as error:
            self.callbacks.failed("extensions", error)


def read_requests(requests: Any) -> dict[str, types.InputRequest]:
    """
    Read what a server wants to know.

    :param requests: The requests by their keys, as in the protocol.
    :returns: The requests by their keys.
    :raises ValidationError: If they are not what the protocol says.
    """
    return types.InputRequiredResult.model_validate({"inputRequests": requests}, by_name=False).input_requests or {}


def _read(method: str, params: dict[str, Any]) -> Any:
    mended = mend_params(method, params)
    if params.get("mode") is not None:
        mended = {**mended, "mode": params["mode"]}  # one that is unknown must not be taken for the usual one
    request = {"method": method, "params": mended}
    return methods.MONOLITH_REQUESTS[method].model_validate(request, by_name=False)
