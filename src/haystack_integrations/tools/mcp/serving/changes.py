# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Notifications that a list or a resource has changed. FastMCP 4 does not send any when something is added or removed.

* Clients of revision 2026-07-28 ask for a stream of changes (`subscriptions/listen`).
* Clients of earlier revisions get notifications in their session (`list_changed`), and may subscribe to resources.
"""

from __future__ import annotations

import asyncio
import functools
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Iterable
from contextlib import suppress
from typing import Any, Literal

from fastmcp import FastMCP
from fastmcp.server.context import Context
from fastmcp.server.middleware import CallNext, Middleware, MiddlewareContext
from mcp import types
from mcp.server import subscriptions
from mcp.server.context import ServerRequestContext
from mcp.server.session import ServerSession
from mcp.shared.dispatcher import coerce_request_id
from mcp.types.version import MODERN_PROTOCOL_VERSIONS

# The list that changed, which clients have to request again.
Listing = Literal["tools", "resources", "prompts"]

# The maximum number of sessions that are notified. Those that were unused for longest are dropped.
_MAX_SESSIONS = 1000

_EVENTS: dict[Listing, subscriptions.ServerEvent] = {
    "tools": subscriptions.ToolsListChanged(),
    "resources": subscriptions.ResourcesListChanged(),
    "prompts": subscriptions.PromptsListChanged(),
}
_ALL_LISTINGS: tuple[Listing, ...] = tuple(_EVENTS)

# The methods that change a FastMCP server while it runs, and the lists that they change.
_SERVER_METHODS: dict[str, tuple[Listing, ...]] = dict.fromkeys(
    ("enable", "disable", "mount", "add_provider"), _ALL_LISTINGS
)
_LISTING_BY_COMPONENT: dict[str, Listing] = {
    "tool": "tools",
    "resource": "resources",
    "template": "resources",
    "prompt": "prompts",
}
# The decorators of the server use these as well.
_PROVIDER_METHODS: dict[str, tuple[Listing, ...]] = {
    f"{verb}_{component}": (listing,)
    for component, listing in _LISTING_BY_COMPONENT.items()
    for verb in ("add", "remove")
}


class ChangeAnnouncer(Middleware):
    """
    Notifies the clients of one server of changes. Its public methods may be called in any thread.
    """

    def __init__(self, server: FastMCP[Any]) -> None:
        """
        Initialize the ChangeAnnouncer.

        :param server: The server, before any client has connected to it.
        """
        self._bus = _LoopBus()
        self._listen = subscriptions.ListenHandler(self._bus)
        # The sessions by id, the last used one last. The SDK does not report that one was lost; what is sent to it is
        # dropped.
        self._sessions: OrderedDict[str, _Session] = OrderedDict()
        self._methods: dict[str | None, Callable[[Any, Context], Awaitable[Any]]] = {
            "notifications/initialized": self._note_session,
            "subscriptions/listen": self._serve_stream,
            "resources/subscribe": self._subscribe,
            "resources/unsubscribe": self._unsubscribe,
        }
        self._watched: set[int] = set()
        self._watch_methods(server, _SERVER_METHODS)
        self._watch_methods(server.local_provider, _PROVIDER_METHODS)
        self.watch_providers(server.providers)

    def list_changed(self, listing: Listing) -> None:
        """
        Notify all clients with a stream of changes or a session that a list has changed.

        :param listing: `"tools"`, `"resources"` or `"prompts"`.
        """
        self._bus.deliver(_EVENTS[listing])
        for each in list(self._sessions.values()):
            send = getattr(each.session, f"send_{listing.removesuffix('s')}_list_changed")
            _call_in(each.loop, each.notify, listing, send)

    def resource_updated(self, uri: str) -> None:
        """
        Notify the subscribers of a resource that it has changed.

        :param uri: The URI of the resource.
        """
        self._bus.deliver(subscriptions.ResourceUpdated(uri))
        for each in list(self._sessions.values()):
            if uri in each.subscriptions:
                _call_in(each.loop, each.notify, uri, functools.partial(each.session.send_resource_updated, uri))

    def forget_session(self, session_id: str) -> None:
        """
        Stop notifying a session, because its client has ended it.

        :param session_id: Its id.
        """
        self._sessions.pop(session_id, None)

    def close(self) -> None:
        """
        End the streams of changes, because the server stops. Call it in the event loop of the server.
        """
        self._listen.close()

    def watch_providers(self, providers: Iterable[object]) -> None:
        """
        Notify clients of changes in providers that have an `on_change`.

        :param providers: Providers of FastMCP. Those without an `on_change` are skipped.
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

    async def __call__(self, context: MiddlewareContext[Any], call_next: CallNext[Any, Any]) -> Any:
        """
        Answer methods for which FastMCP has no handlers, and declare in its answers that there are notifications.

        :param context: The message of a client.
        :param call_next: Passes it on to FastMCP.
        :returns: The answer.
        """
        if context.method in ("initialize", "server/discover"):
            return _with_notifications(await call_next(context))
        current = context.fastmcp_context
        if current is None or current.request_context is None:
            return await call_next(context)
        is_modern = current.session.protocol_version in MODERN_PROTOCOL_VERSIONS
        if not is_modern and current.session_id in self._sessions:
            self._session(current)
        method = self._methods.get(context.method)
        if method is None or is_modern != (context.method == "subscriptions/listen"):
            # Each revision has only one of the two ways.
            return await call_next(context)
        if context.type == "notification":
            await call_next(context)
        return await method(context.message, current)

    async def _note_session(self, _params: Any, context: Context) -> None:
        request: Any = context.request_context and context.request_context.request
        # Over HTTP without sessions, notifications cannot be sent outside a call.
        if request is None or "mcp-session-id" in request.headers:
            self._session(context)

    def _session(self, context: Context) -> _Session:
        if context.session_id in self._sessions:
            self._sessions.move_to_end(context.session_id)
        else:
            while len(self._sessions) >= _MAX_SESSIONS:
                self._sessions.popitem(last=False)
            self._sessions[context.session_id] = _Session(context.session)
        return self._sessions[context.session_id]

    async def _subscribe(self, params: Any, context: Context) -> types.EmptyResult:
        self._session(context).subscriptions.add(types.SubscribeRequestParams.model_validate(params, by_name=False).uri)
        return types.EmptyResult()

    async def _unsubscribe(self, params: Any, context: Context) -> types.EmptyResult:
        uri = types.UnsubscribeRequestParams.model_validate(params, by_name=False).uri
        self._session(context).subscriptions.discard(uri)
        return types.EmptyResult()

    async def _serve_stream(self, params: Any, context: Context) -> Any:
        request = context.request_context
        request_context: ServerRequestContext[Any, Any] = ServerRequestContext(
            session=context.session,
            lifespan_context=None,
            protocol_version=context.session.protocol_version,
            method="subscriptions/listen",
            # FastMCP passes numeric ids as texts.
            request_id=coerce_request_id(request.request_id) if request and request.request_id else None,
        )
        parsed = types.SubscriptionsListenRequestParams.model_validate(params, by_name=False)
        return await self._listen(request_context, parsed)


class _Session:
    """
    The session of a client of a revision with handshakes.
    """

    def __init__(self, session: ServerSession) -> None:
        self.session = session
        self.loop = asyncio.get_running_loop()
        self.subscriptions: set[str] = set()
        # The notifications being sent, by what changed. A client that has stopped reading may stay connected for hours.
        self._sending: dict[str, asyncio.Task[None]] = {}

    def notify(self, about: str, send: Callable[[], Any]) -> None:
        """
        Send a notification, unless the same one is still being sent, which then covers this change as well.

        :param about: The list or URI that changed.
        :param send: Sends the notification.
        """
        if about not in self._sending:
            task = self._sending[about] = asyncio.ensure_future(send())
            task.add_done_callback(lambda _: self._sending.pop(about))


class _LoopBus(subscriptions.SubscriptionBus):
    """
    Passes events to listeners, each in the event loop in which it listens.
    """

    def __init__(self) -> None:
        self._listeners: dict[object, Callable[[subscriptions.ServerEvent], None]] = {}

    async def publish(self, event: subscriptions.ServerEvent) -> None:
        self.deliver(event)

    def deliver(self, event: subscriptions.ServerEvent) -> None:
        for hand_over in list(self._listeners.values()):
            hand_over(event)

    def subscribe(self, listener: Callable[[subscriptions.ServerEvent], None]) -> Callable[[], None]:
        key = object()
        self._listeners[key] = functools.partial(_call_in, asyncio.get_running_loop(), listener)

        def unsubscribe() -> None:
            self._listeners.pop(key, None)

        return unsubscribe


def announcer_of(server: FastMCP[Any]) -> ChangeAnnouncer:
    """
    Return the ChangeAnnouncer of a server. The first time, it is added to the server's middleware.

    :param server: Any FastMCP server.
    :returns: The same announcer each time.
    """
    announcer = next((each for each in server.middleware if isinstance(each, ChangeAnnouncer)), None)
    if announcer is None:
        announcer = ChangeAnnouncer(server)
        server.add_middleware(announcer)
    announcer.watch_providers(server.providers)
    return announcer


def _with_notifications(result: Any) -> Any:
    """Declare the capabilities for notifications in the result of `initialize` or `server/discover`."""
    capabilities = getattr(result, "capabilities", None)
    for each in _ALL_LISTINGS:
        capability = getattr(capabilities, each, None)
        if capability is not None:
            capability.list_changed = True
            if each == "resources":
                capability.subscribe = True
    return result


def _call_in(loop: asyncio.AbstractEventLoop, function: Callable[..., object], *args: Any) -> None:
    with suppress(RuntimeError):  # the loop is closed, so its clients have gone
        loop.call_soon_threadsafe(function, *args)
