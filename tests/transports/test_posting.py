# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A single HTTP request: its headers, redirects and fate. Also the parser of event streams, in pieces of every size.
"""

from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any

import httpx2
import pytest

from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.protocol.channel import Exchange
from haystack_integrations.tools.mcp.protocol.request_errors import Fate
from haystack_integrations.tools.mcp.request_context import Identity, current_identity
from haystack_integrations.tools.mcp.transports import posting
from haystack_integrations.tools.mcp.transports.posting import CONNECT_ERRORS, HttpSender, TooLargeError
from tests.support.rows import rows

pytestmark = pytest.mark.usefixtures("no_proxies")

URL = httpx2.URL("https://mcp.test/mcp")
PHASES: dict[str, float | None] = {"connect": 5.0, "write": 5.0, "pool": 5.0, "read": None}
BODY = b'{"jsonrpc":"2.0","id":1,"method":"tools/call"}'


class Network:
    """
    A transport whose answers are responses, statuses or functions; exceptions are raised.
    """

    def __init__(self, *answers: Any) -> None:
        self._answers = list(answers)
        self.requests: list[httpx2.Request] = []

    async def __call__(self, request: httpx2.Request) -> httpx2.Response:
        self.requests.append(request)
        answer = self._answers.pop(0) if len(self._answers) > 1 else self._answers[0]
        answer = answer(request) if callable(answer) else answer
        if isinstance(answer, Exception):
            raise answer
        return answer if isinstance(answer, httpx2.Response) else httpx2.Response(answer)

    def sender(self, **options: Any) -> HttpSender:
        options = {"headers": {}, "timeout": PHASES, **options}
        return HttpSender(httpx2.MockTransport(self), **options)


async def post(sender: HttpSender, exchange: Exchange | None = None, url: httpx2.URL = URL) -> httpx2.Response:
    return await sender.send("POST", url, {"Content-Type": "application/json"}, BODY, exchange=exchange)


def redirect(status: int, location: str) -> Callable[[httpx2.Request], httpx2.Response]:
    return lambda _: httpx2.Response(status, headers={"Location": location})


class TestHeaders:
    async def test_headers_of_a_request_override_those_of_all_requests_and_the_users_override_both(self) -> None:
        network = Network(200)
        sender = network.sender(headers={"X-A": "all", "x-b": "all", "Accept": "all"})
        token = current_identity.set(Identity(headers={"x-a": "user", "Authorization": "Bearer user-t0ken"}))
        try:
            await sender.send("POST", URL, {"X-B": "one", "accept": "one"}, BODY)
        finally:
            current_identity.reset(token)
        sent = network.requests[0].headers
        assert (sent.get_list("x-a"), sent.get_list("x-b"), sent.get_list("accept")) == (["user"], ["one"], ["one"])
        assert sent["authorization"] == "Bearer user-t0ken"
        assert "gzip" in sent["accept-encoding"]
        assert network.requests[0].extensions["timeout"] == PHASES

    @rows(("method", "read"), ("tools/call", 2.0), ("subscriptions/listen", None))
    async def test_a_stream_of_changes_may_be_silent(self, method: str, read: float | None) -> None:
        network = Network(200)
        await post(network.sender(timeout={**PHASES, "read": 2.0}), Exchange(1, method))
        assert network.requests[0].extensions["timeout"]["read"] == read

    async def test_cookies_of_a_user_are_not_sent_with_requests_of_another_user(self) -> None:
        def answer(request: httpx2.Request) -> httpx2.Response:
            user = request.headers["x-user"]
            cookies = [("Set-Cookie", f"login={user}; Path=/"), ("Set-Cookie", "zone=b; Path=/; HttpOnly")]
            return httpx2.Response(200, headers=cookies if user != "none" else [])

        network = Network(answer)
        sender = network.sender()
        for user in ("ann", "ann", "none", "bob", "bob", "ann"):
            token = current_identity.set(Identity(key=user, headers={"x-user": user}))
            await post(sender)
            current_identity.reset(token)
        cookies = [request.headers.get("cookie") for request in network.requests]
        assert cookies == [None, "login=ann; zone=b", None, None, "login=bob; zone=b", "login=ann; zone=b"]

    async def test_a_request_without_an_identity_gets_no_cookies_of_the_last_user(self) -> None:
        network = Network(lambda _: httpx2.Response(200, headers={"Set-Cookie": "login=ann; Path=/"}))
        ann = Identity(key="ann", headers={})
        sender = network.sender()
        sender.life.owner.latest_identity = lambda: ann
        await sender.send("GET", URL, {})
        await post(sender)
        assert [request.headers.get("cookie") for request in network.requests] == [None, None]


class TestRedirects:
    @rows(
        ("status", "location", "leads_to"),
        (307, "/mcp/", "https://mcp.test/mcp/"),
        (308, "https://mcp.test:443/other", "https://mcp.test/other"),
        (301, "/mcp/", None),
        (302, "/mcp/", None),
        (303, "/mcp/", None),
        (307, "https://elsewhere.test/mcp", None),
        (307, "https://mcp.test:8443/mcp", None),
        (307, "http://mcp.test/mcp", None),
        (307, "https://mallory:x@mcp.test/mcp", None),
        (307, "http://[::1", None),
    )
    async def test_redirects_within_the_origin_are_followed_with_the_whole_request(self, status, location, leads_to):
        network = Network(redirect(status, location), 200)
        exchange = Exchange(1, "tools/call")
        answered = await post(network.sender(headers={"Authorization": "Bearer x"}), exchange)
        assert answered.status_code == (status if leads_to is None else 200)
        if leads_to is not None:
            first, second = network.requests
            assert (str(second.url), second.content, second.method) == (leads_to, BODY, "POST")
            assert second.headers["authorization"] == "Bearer x"
            assert second.headers["host"] == first.headers["host"] == "mcp.test"
        assert exchange.fate is (Fate.NEW if leads_to is None else Fate.SENT)

    async def test_redirects_to_https_are_followed_and_for_get_all_redirects_within_the_origin(self) -> None:
        network = Network(redirect(308, "https://mcp.test/mcp"), 200)
        assert (await post(network.sender(), url=httpx2.URL("http://mcp.test/mcp"))).status_code == 200
        network = Network(redirect(302, "/events"), 200)
        assert (await network.sender().send("GET", URL, {})).status_code == 200
        assert [request.method for request in network.requests] == ["GET", "GET"]

    async def test_a_redirect_loop_ends(self) -> None:
        network = Network(redirect(307, "/mcp"))
        assert (await post(network.sender())).status_code == 307
        assert len(network.requests) == posting._MAX_REDIRECTS


class TestFates:
    @rows(
        ("error", "fate"),
        *((kind("why"), Fate.REFUSED) for kind in CONNECT_ERRORS),
        *((kind("why"), Fate.LOST) for kind in (httpx2.WriteTimeout, httpx2.ReadError, RuntimeError)),
    )
    async def test_only_a_failed_connect_proves_that_nothing_was_sent(self, error, fate):
        sender, exchange = Network(error).sender(), Exchange(1, "tools/call")
        with pytest.raises(type(error)) as raised:
            await post(sender, exchange)
        sender.settle(exchange, raised.value)
        assert exchange.fate is fate
        name = type(error).__name__
        assert str(exchange.answer.exception()) == (
            f"no connection could be made to mcp.test ({name}: why)"
            if fate is Fate.REFUSED
            else f"the connection was cut before the answer came ({name})"
        )

    async def test_a_request_stays_sent_if_its_second_attempt_cannot_connect(self) -> None:
        class Stubborn(httpx2.Auth):
            async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
                yield request
                yield request

        sender, exchange = Network(500, httpx2.ConnectError("gone")).sender(auth=Stubborn()), Exchange(1, "x")
        with pytest.raises(httpx2.ConnectError):
            await post(sender, exchange)
        assert exchange.fate is Fate.SENT

    async def test_a_request_is_marked_as_sent_before_a_byte_can_leave(self) -> None:
        exchange = Exchange(1, "tools/call")
        fates: list[Fate] = []
        network = Network(lambda _: fates.append(exchange.fate) or httpx2.Response(200))
        await post(network.sender(), exchange)
        assert fates == [Fate.SENT]


class Tokens(httpx2.Auth):
    """
    Gets a token from another server when a request is refused; uses the bodies of both responses.
    """

    requires_response_body = True

    def __init__(self, fails: bool = False) -> None:
        self._fails = fails

    def auth_flow(self, request: httpx2.Request) -> Any:
        refused = yield request
        if refused.status_code == 401:
            if self._fails:
                msg = "no token"
                raise MCPAuthorizationError(msg)
            answer = yield httpx2.Request("POST", "https://tokens.test/", content=b"grant")
            request.headers["Authorization"] = f"Bearer {refused.text}-{answer.text}"
            yield request


class TestAuth:
    async def test_a_custom_auth_reads_bodies_and_sends_its_own_requests(self) -> None:
        network = Network(httpx2.Response(401, text="who"), httpx2.Response(200, text="t0ken"), 200)
        exchange = Exchange(1, "tools/call")
        assert (await post(network.sender(auth=Tokens()), exchange)).status_code == 200
        assert [request.url.host for request in network.requests] == ["mcp.test", "tokens.test", "mcp.test"]
        assert network.requests[2].headers["authorization"] == "Bearer who-t0ken"
        assert exchange.fate is Fate.SENT

    async def test_the_request_did_not_run_if_its_token_cannot_be_obtained(self) -> None:
        sender, exchange = Network(401).sender(auth=Tokens(fails=True)), Exchange(1, "tools/call")
        with pytest.raises(MCPAuthorizationError) as raised:
            await post(sender, exchange)
        sender.settle(exchange, raised.value)
        assert exchange.fate is Fate.REFUSED
        assert exchange.answer.exception().is_unauthorized  # type: ignore[union-attr]

    async def test_a_copy_of_the_request_is_treated_like_the_request(self) -> None:
        class Signing(httpx2.Auth):
            async def async_auth_flow(self, request: httpx2.Request) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
                url = request.url.copy_merge_params({"signature": "x"})
                yield httpx2.Request("POST", url, headers=request.headers, content=request.content)

        network, exchange = Network(200), Exchange(1, "tools/call")
        await post(network.sender(auth=Signing()), exchange)
        assert exchange.fate is Fate.SENT
        assert network.requests[0].extensions["timeout"] == PHASES

    async def test_the_refusal_is_returned_if_no_login_is_allowed(self) -> None:
        network = Network(401)
        refused = await network.sender(auth=Tokens()).send("GET", URL, {}, may_log_in=False)
        assert refused.status_code == 401
        assert len(network.requests) == 1


def busy(status: int, after: str) -> httpx2.Response:
    return httpx2.Response(status, headers={"Retry-After": after})


class TestThrottle:
    async def test_a_stream_is_neither_throttled_nor_throttles_others(self) -> None:
        sender = Network(busy(503, "60")).sender()
        assert (await sender.send("GET", URL, {})).status_code == 503
        assert sender.life.owner.throttle.seconds == 0


async def test_an_event_stream_is_not_read_as_a_body() -> None:
    stream = httpx2.Response(200, headers={"Content-Type": "Text/Event-Stream; charset=utf-8"}, content=b"data: 1\n\n")
    sender = Network(stream).sender()
    assert await sender.read(await post(sender)) == b""


MAX_SIZE = 1000


async def read(*pieces: bytes, content_type: str = "text/event-stream") -> list[tuple[str, str, str, int | None]]:
    async def body() -> AsyncIterator[bytes]:
        for piece in pieces:
            yield piece

    answer = httpx2.Response(200, headers={"Content-Type": content_type}, content=body())
    sender = Network(answer).sender(max_message_size=MAX_SIZE)
    response = await sender.send("GET", URL, {})
    return [(event.event, event.data, event.id, event.retry) async for event in sender.events(response)]


def message(data: str, last_id: str = "", retry: int | None = None) -> tuple[str, str, str, int | None]:
    return "message", data, last_id, retry


# httpx2 parses these streams as specified.
STREAMS = [
    (b"data: a\r\rdata:b\r\n\r\n", [message("a"), message("b")]),
    ("data: \u6f22\u2028\x0b\x85\n\n".encode(), [message("\u6f22\u2028\x0b\x85")]),
    (b"\xef\xbb\xbfdata: a\n: alive\n\n", [message("a")]),
    (b"event: endpoint\ndata: /m\n\ndata: a\ndata:  b\n\n", [("endpoint", "/m", "", None), message("a\n b")]),
    (b"id: 1\n\ndata: a\n\nid: x\0y\ndata: b\n\n", [message("", "1"), message("a", "1"), message("b", "1")]),
    (b"retry: 1500\n\nretry: soon\n\n", [message("", retry=1500)]),
    (b"id: 1\n\nid: 2\ndata: cut\n", [message("", "1")]),
]


@rows(("stream", "events"), *STREAMS)
@pytest.mark.parametrize("size", [1, 2, 1000])
async def test_a_stream_is_utf_8_whatever_its_content_type_says_and_read_in_any_pieces(stream, events, size):
    pieces = [stream[at : at + size] for at in range(0, len(stream), size)]
    assert await read(*pieces, content_type="text/event-stream; charset=latin-1") == events


@rows("stream", b"data: " + b"x" * MAX_SIZE, b":" + b"x" * MAX_SIZE, b"data: 1\n" * 200, b"other: 1\n" * 200)
async def test_events_that_are_too_large_are_an_error(stream: bytes) -> None:
    with pytest.raises(TooLargeError):
        await read(*(stream[at : at + 10] for at in range(0, len(stream), 10)))


async def test_many_small_events_and_comments_are_not_too_large() -> None:
    assert len(await read(*[b"data: " + b"x" * 500 + b"\n\n" + b": still there\n" * 50] * 100)) == 100
