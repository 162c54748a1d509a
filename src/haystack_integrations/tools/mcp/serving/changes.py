# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Telling clients that a list has changed, or a resource.

FastMCP 4 tells them only of changes of visibility in a session. What is added here, in the two ways of the protocol:

* Clients that speak 2026-07-28 ask for a stream of changes (`subscriptions/listen`).
* Those that shake hands get notifications in their session (`list_changed`), and may subscribe to resources.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable, Iterable
from typing import Any
from weakref import WeakKeyDictionary

from fastmcp import FastMCP
from mcp.server.connection import Connection
from mcp.server.context import CallNext, HandlerResult, ServerRequestContext
from mcp.server.subscriptions import ListenHandler, SubscriptionBus
from mcp.shared.subscriptions import (
    PromptsListChanged,
    ResourcesListChanged,
    ResourceUpdated,
    ServerEvent,
    ToolsListChanged,
)
from mcp.types import (
    EmptyResult,
    SubscribeRequestParams,
    SubscriptionsListenRequestParams,
    UnsubscribeRequestParams,
)

from haystack_integrations.tools.mcp.serving.low_level import low_level_server
from haystack_integrations.tools.mcp.serving.source import Listing

# How many subscriptions to resources a session may have.
_MOST_SUBSCRIPTIONS = 1000

_EVENTS: dict[Listing, ServerEvent] = {
    "tools": ToolsListChanged(),
    "resources": ResourcesListChanged(),
    "prompts": PromptsListChanged(),
}
_ALL: tuple[Listing, ...] = tuple(_EVENTS)

# What changes a FastMCP server while it runs, and which lists.
_SERVER_METHODS: dict[str, tuple[Listing, ...]] = {
    "enable": _ALL,
    "disable": _ALL,
    "mount": _ALL,
    "add_provider": _ALL,
}
# Decorators of the server use these, too.
_LOCAL_METHODS: dict[str, tuple[Listing, ...]] = {
    "add_tool": ("tools",),
    "add_resource": ("resources",),
    "add_template": ("resources",),
    "add_prompt": ("prompts",),
    "remove_tool": ("tools",),
    "remove_resource": ("resources",),
    "remove_template": ("resources",),
    "remove_prompt": ("prompts",),
}


class ChangeAnnouncer:
    """
    Tells the clients of one server what has changed. Its methods may be called in any thread.
    """

    def __init__(self, server: FastMCP[Any]) -> None:
        """
        Teach a server to tell of changes.

        :param server: The server, before anybody has connected to it.
        """
        self._bus = _LoopBus()
        self._listen = ListenHandler(self._bus)
        self._sessions = _Sessions()
        low_level = low_level_server(server)
        low_level.add_request_handler("subscriptions/listen", SubscriptionsListenRequestParams, self._listen)
        low_level.add_request_handler("resources/subscribe", SubscribeRequestParams, self._sessions.subscribe)
        low_level.add_request_handler("resources/unsubscribe", UnsubscribeRequestParams, self._sessions.unsubscribe)
        low_level.middleware.append(self._sessions.note)
        self._watched: set[int] = set()
        self._watch_methods(server, _SERVER_METHODS)
        self._watch_methods(server.local_provider, _LOCAL_METHODS)
        self.watch_providers(server.providers)

    def list_changed(self, listing: Listing) -> None:
        """
        Tell every client that asked, or has a session, to get a list anew.

        :param listing: `"tools"`, `"resources"` or `"prompts"`.
        """
        self._bus.tell(_EVENTS[listing])
        self._sessions.tell_all(listing)

    def resource_updated(self, uri: str) -> None:
        """
        Tell the clients that have subscribed to a resource to read it anew.

        :param uri: The URI of the resource.
        """
        self._bus.tell(ResourceUpdated(uri))
        self._sessions.tell_subscribers(uri)

    def close(self) -> None:
        """
        End the streams of changes, as a server that stops does. Called in the event loop of the server.
        """
        self._listen.close()

    def watch_providers(self, providers: Iterable[object]) -> None:
        """
        Tell of the changes of providers that say that they have changed.

        :param providers: FastMCP's providers; those that have no `on_change` are left alone.
        """
        for provider in providers:
            on_change = getattr(provider, "on_change", None)
            if on_change is not None and id(provider) not in self._watched:
                self._watched.add(id(provider))
                on_change(self.list_changed)

    def _watch_methods(self, owner: Any, methods: dict[str, tuple[Listing, ...]]) -> None:
        for name, listings in methods.items():
            setattr(owner, name, self._announcing(getattr(owner, name), listings))

    def _announcing(self, method: Callable[..., Any], listings: tuple[Listing, ...]) -> Callable[..., Any]:
        @functools.wraps(method)
        def announcing(*args: Any, **kwargs: Any) -> Any:
            result = method(*args, **kwargs)
            self.watch_providers(args)
            for listing in listings:
                self.list_changed(listing)
            return result

        return announcing


_ANNOUNCERS: WeakKeyDictionary[FastMCP[Any], ChangeAnnouncer] = WeakKeyDictionary()


def announcer_of(server: FastMCP[Any]) -> ChangeAnnouncer:
    """
    Give what tells the clients of a server of changes. The server learns to do so at the first time.

    :param server: Any FastMCP server.
    :returns: The same announcer each time.
    """
    announcer = _ANNOUNCERS.get(server)
    if announcer is None:
        announcer = _ANNOUNCERS[server] = ChangeAnnouncer(server)
    announcer.watch_providers(server.providers)
    return announcer


class _LoopBus(SubscriptionBus):
    """
    Hands events over to listeners, each in the event loop in which it listens.
    """

    def __init__(self) -> None:
        self._listeners: dict[object, tuple[asyncio.AbstractEventLoop, Callable[[ServerEvent], None]]] = {}

    async def publish(self, event: ServerEvent) -> None:
        self.tell(event)

    def tell(self, event: ServerEvent) -> None:
        for loop, listener in list(self._listeners.values()):
            _call_in(loop, listener, event)

    def subscribe(self, listener: Callable[[ServerEvent], None]) -> Callable[[], None]:
        key = object()
        self._listeners[key] = (asyncio.get_running_loop(), listener)

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe


class _Sessions:
    """
    The sessions of clients that have shaken hands.
    """

    def __init__(self) -> None:
        # A session ends with its connection, of which nobody else tells.
        self._loops: WeakKeyDictionary[Connection, asyncio.AbstractEventLoop] = WeakKeyDictionary()
        self._subscriptions: WeakKeyDictionary[Connection, set[str]] = WeakKeyDictionary()

    async def note(self, ctx: ServerRequestContext[Any, Any], call_next: CallNext) -> HandlerResult:
        """
        Remember a session once its client is ready for notifications.
        """
        result = await call_next(ctx)
        connection = _connection(ctx)
        if ctx.method == "notifications/initialized" and connection.has_standalone_channel:
            self._loops[connection] = asyncio.get_running_loop()
        return result

    async def subscribe(self, context: ServerRequestContext[Any, Any], params: SubscribeRequestParams) -> EmptyResult:
        uris = self._subscriptions.setdefault(_connection(context), set())
        if len(uris) < _MOST_SUBSCRIPTIONS:
            uris.add(str(params.uri))
        return EmptyResult()

    async def unsubscribe(
        self, context: ServerRequestContext[Any, Any], params: UnsubscribeRequestParams
    ) -> EmptyResult:
        self._subscriptions.get(_connection(context), set()).discard(str(params.uri))
        return EmptyResult()

    def tell_all(self, listing: Listing) -> None:
        for connection, loop in list(self._loops.items()):
            send = {
                "tools": connection.send_tool_list_changed,
                "resources": connection.send_resource_list_changed,
                "prompts": connection.send_prompt_list_changed,
            }[listing]
            _call_in(loop, _start, send)

    def tell_subscribers(self, uri: str) -> None:
        for connection, loop in list(self._loops.items()):
            if uri in self._subscriptions.get(connection, ()):
                _call_in(loop, _start, functools.partial(connection.send_resource_updated, uri))


# Tasks that nobody else refers to could be collected before they are done.
_SENDING: set[asyncio.Task[None]] = set()


def _start(send: Callable[[], Any]) -> None:
    task: asyncio.Task[None] = asyncio.ensure_future(send())
    _SENDING.add(task)
    task.add_done_callback(_SENDING.discard)


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: Any) -> None:
    if loop.is_closed():
        return
    try:
        loop.call_soon_threadsafe(function, *args)
    except RuntimeError:
        # Closed in this moment: its clients have gone.
        return


def _connection(context: ServerRequestContext[Any, Any]) -> Connection:
    """
    Give the connection behind a request, for which the SDK has no public name.
    """
    return context.session._connection
