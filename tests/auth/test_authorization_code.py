# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
People who allow the access, against the authorization server of the MCP SDK, also in a real browser, and for tokens
that are bound to a key (DPoP).
"""

import asyncio
import socket
import threading
import webbrowser
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import anyio.to_thread
import httpx2
import pytest
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    MCPAuthorizationError,
    MCPConnection,
    MCPConnectionError,
    MCPToolset,
    OAuthConfig,
    SSEServerInfo,
    StreamableHttpServerInfo,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.auth import authorization_code
from haystack_integrations.tools.mcp.auth.token_storage import TokenKey
from haystack_integrations.tools.mcp.errors import MCPTimeoutError
from haystack_integrations.tools.mcp.oauth import FileTokenStorage, InMemoryTokenStorage, MCPLoginRequest
from tests.auth.conftest import info, said
from tests.support.background import in_thread
from tests.support.bound_tokens import DPoPGate
from tests.support.chromium import Chromium, find_chromium
from tests.support.oauth_server import OAuthServer, allow
from tests.support.rows import rows
from tests.support.token_network import TokenNetwork, basic
from tests.support.waiting import LIMIT

every_kind = pytest.mark.parametrize(
    ("kind", "options"),
    [
        (StreamableHttpServerInfo, {}),
        (StreamableHttpServerInfo, {"handshake": True}),
        (SSEServerInfo, {"transport": "sse"}),
    ],
    ids=["stateless", "sessions", "sse"],
)


@every_kind
def test_a_person_allows_the_access_once_for_a_whole_session(kind: Any, options: dict[str, Any]) -> None:
    config = OAuthConfig(redirect_handler=allow, token_storage=InMemoryTokenStorage())
    with OAuthServer(**options) as server, MCPConnection(kind(server.url, oauth_config=config)) as connection:
        assert said(connection, "whoami") == "alice"
        assert said(connection, "whoami") == "alice"
        assert server.count["authorizations"] == server.count["registrations"] == 1


def test_a_request_for_more_scope_asks_the_person_again(server: OAuthServer) -> None:
    with MCPConnection(info(server)) as connection:
        assert said(connection, "whoami") == "alice"
        assert said(connection, "write") == "written"
        assert said(connection, "write") == "written"
    assert server.count["authorizations"] == 2
    assert server.count["step-ups"] == 1


def test_without_a_browser_the_error_says_how_to_log_in(server: OAuthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER"):
        monkeypatch.delenv(variable, raising=False)
    with pytest.raises(MCPAuthorizationError, match=r"has no browser\. Log in beforehand, with `login\(server_info\)`"):
        MCPToolset(info(server, redirect_handler=None)).warm_up()
    assert not server.count


@rows("handshake", [False, True], ids=["stateless", "sessions"])
def test_a_server_that_breaks_after_the_login_is_not_told_to_want_one(handshake: bool) -> None:
    with OAuthServer(handshake=handshake) as server:

        async def allow_and_break(login: MCPLoginRequest) -> None:
            await allow(login)
            server.breaks_with_token = True

        with pytest.raises(MCPConnectionError) as caught, MCPConnection(info(server, redirect_handler=allow_and_break)):
            pass
    assert str(caught.value).endswith("/mcp: it answered with HTTP 500 Internal Server Error.")


async def allow_slowly(login: MCPLoginRequest) -> None:
    await asyncio.sleep(4)
    await allow(login)


def test_the_time_that_a_person_takes_counts_for_no_timeout_of_the_server(server: OAuthServer) -> None:
    slow = info(server, redirect_handler=allow_slowly)
    with MCPConnection(slow, connection_timeout=3, invocation_timeout=3) as connection:
        assert said(connection, "whoami") == "alice"
        assert said(connection, "write") == "written"
        with pytest.raises(MCPTimeoutError, match="after 3 seconds"):
            said(connection, "whoami", seconds=30.0)


def test_the_login_of_a_user_extends_no_timeout_of_another(server: OAuthServer) -> None:
    asked, go_on = threading.Event(), threading.Event()

    async def allow_ann_later(login: MCPLoginRequest) -> None:
        if login.user == "ann":
            asked.set()
            await asyncio.to_thread(go_on.wait, LIMIT)
        await allow(login)

    def ask_for_ann() -> str:
        with mcp_request_context(user="ann"):
            return said(connection, "whoami", name="ann")

    with MCPConnection(info(server, redirect_handler=allow_ann_later), invocation_timeout=3) as connection:
        ann = in_thread(ask_for_ann)
        assert asked.wait(LIMIT)
        with mcp_request_context(user="bob"), pytest.raises(MCPTimeoutError, match="after 3 seconds"):
            said(connection, "whoami", seconds=30.0)
        assert not ann.done()
        go_on.set()
        assert ann.result(LIMIT) == "ann"


async def test_a_spare_connection_of_the_browser_ends_with_the_login() -> None:
    listener = authorization_code.Listener("the-state")
    await listener.listen("http://127.0.0.1/callback")
    url = urlsplit(listener.redirect_uri)
    spare, own_end = await asyncio.open_connection(url.hostname, url.port)
    async with httpx2.AsyncClient() as browser, asyncio.timeout(LIMIT):
        await browser.get(f"{listener.redirect_uri}?code=c&state=the-state")
        listener.close()
        async with asyncio.timeout(authorization_code._REQUEST_TIMEOUT / 2):
            assert await spare.read() == b""
    own_end.close()


BACK = "https://me.example.com/back"


class TestWithoutAListener:
    """
    The login of a web application, which gets the answer of the authorization server itself.
    """

    def auth(self, network: TokenNetwork, answer: Any, **options: Any) -> Any:
        common = {"redirect_uri": BACK, "redirect_handler": lambda _: None, "callback_handler": answer}
        return network.auth(**{**common, **options})

    @rows("kind", ["url", "dict"])
    async def test_the_answer_is_a_url_or_its_parameters(self, kind: str) -> None:
        network = TokenNetwork()

        def answer(request: MCPLoginRequest) -> Any:
            assert (request.redirect_uri, request.server_url) == (BACK, network.url)
            if kind == "url":
                return f"{BACK}?code=the-code&state={request.state}"
            return {"code": "the-code", "state": request.state}

        assert (await network.use(self.auth(network, answer, scopes=["a"]))).text == "welcome"
        [form] = network.forms()
        assert (form["code"], form["redirect_uri"], form["client_id"]) == ("the-code", BACK, "registered")

    @rows(
        ("answer", "message"),
        [
            (lambda _: 5, "`callback_handler` must give a URL or a dict, it gave int"),
            (lambda _: BACK, "the answer of the authorization server has no code"),
            (lambda request: {"state": request.state}, "the answer of the authorization server has no code"),
            (
                lambda request: {"error": "access_denied", "error_description": "not today", "state": request.state},
                "the authorization server refused: access_denied: not today",
            ),
            (lambda _: {"error": "access_denied"}, "the authorization server refused: access_denied"),
            (lambda _: {"error": "forged", "state": "another"}, "the answer has another `state`"),
            (lambda _: 1 / 0, "`callback_handler` failed (ZeroDivisionError"),
        ],
        ids=["number", "no code in URL", "no code", "refused", "refused without state", "forged", "raises"],
    )
    async def test_an_answer_without_a_code_says_what_is_wrong(self, answer: Any, message: str) -> None:
        network = TokenNetwork()
        with pytest.raises(MCPAuthorizationError, match="while waiting for the login") as caught:
            await network.use(self.auth(network, answer))
        assert message in str(caught.value)
        assert network.forms() == []

    async def test_nobody_is_waited_for_longer_than_the_login_timeout(self) -> None:
        async def never(request: MCPLoginRequest) -> str:
            await asyncio.Event().wait()
            return ""

        network = TokenNetwork()
        with pytest.raises(MCPAuthorizationError, match=r"nobody logged in within 0\.05 seconds \(`login_timeout`\)"):
            await network.use(self.auth(network, never, login_timeout=0.05))

    async def test_a_function_that_waits_for_a_person_holds_up_nobody_else(self, tmp_path: Path) -> None:
        anyio.to_thread.current_default_thread_limiter().total_tokens = 1
        network, is_asked, may_answer = TokenNetwork(), asyncio.Event(), threading.Event()
        loop = asyncio.get_running_loop()

        def answer(request: MCPLoginRequest) -> Any:
            loop.call_soon_threadsafe(is_asked.set)
            may_answer.wait(LIMIT)
            return {"code": "the-code", "state": request.state}

        logging_in = asyncio.create_task(network.use(self.auth(network, answer)))
        try:
            async with asyncio.timeout(LIMIT / 2):
                await is_asked.wait()
                assert await FileTokenStorage(str(tmp_path)).load(TokenKey(network.url, "client")) is None
        finally:
            may_answer.set()
        assert (await logging_in).text == "welcome"

    @rows(
        ("methods", "is_basic"),
        [(None, True), (["client_secret_post"], False), (["client_secret_post", "client_secret_basic"], True)],
    )
    @rows("is_registered", [True, False])
    async def test_a_secret_is_sent_as_the_server_takes_it(self, methods, is_basic, *, is_registered):
        own = {"client_id": "given", "client_secret": Secret.from_token("the-secret")}
        options = {} if is_registered else {**own, "grant_type": "authorization_code"}
        network = TokenNetwork()
        network.metadata["token_endpoint_auth_methods_supported"] = methods
        registered = {"client_id": "given", "client_secret": "the-secret", "redirect_uris": [BACK]}
        network.answers["/register"] = [httpx2.Response(201, json=registered)]
        auth = self.auth(network, lambda request: {"code": "the-code", "state": request.state}, **options)
        assert (await network.use(auth)).text == "welcome"
        [form], [request] = network.forms(), network.asked("/token")
        assert request.headers.get("authorization") == (basic("given", "the-secret") if is_basic else None)
        assert form.get("client_secret") == (None if is_basic else "the-secret")


async def press(login: MCPLoginRequest) -> None:
    """
    Be sent back with a code at once.
    """
    async with httpx2.AsyncClient() as browser:
        await browser.get(login.redirect_uri, params={"code": "the-code", "state": login.state})


async def test_a_port_of_the_configuration_that_is_taken_fails_the_login() -> None:
    network = TokenNetwork()
    with socket.create_server(("127.0.0.1", 0)) as taken:
        uri = f"http://127.0.0.1:{taken.getsockname()[1]}/callback"
        with pytest.raises(MCPAuthorizationError, match="the port of the `redirect_uri` cannot be listened on"):
            await network.use(network.auth(redirect_uri=uri, redirect_handler=press))
    assert network.forms() == []


def use_browser(monkeypatch: pytest.MonkeyPatch, browser: webbrowser.BaseBrowser) -> None:
    monkeypatch.setenv("BROWSER", "a-browser")
    monkeypatch.setattr(webbrowser, "_tryorder", [])
    monkeypatch.setattr(webbrowser, "_browsers", {})
    webbrowser.register("a-browser", None, browser, preferred=True)


class Pages(webbrowser.BaseBrowser):
    """
    A browser that opens pages, or does not.
    """

    def __init__(self, works: bool) -> None:
        super().__init__()
        self.works = works
        self.closed = threading.Event()
        self.opened: list[str] = []

    def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
        self.opened.append(url)
        if self.works:
            query = parse_qs(urlsplit(url).query)
            answer = {"code": "the-code", "state": query["state"][0]}
            httpx2.get(query["redirect_uri"][0], params=answer)
            self.closed.wait(LIMIT)  # as of programs in `BROWSER`
        return self.works


@pytest.mark.parametrize("works", [True, False])
async def test_the_browser_of_this_machine_shows_the_page(works: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    network, pages = TokenNetwork(), Pages(works)
    use_browser(monkeypatch, pages)
    monkeypatch.setattr(authorization_code, "_OPENING_TIMEOUT", 0.5)
    auth = network.auth()
    if works:
        async with asyncio.timeout(LIMIT / 2):
            assert (await network.use(auth)).text == "welcome"
        pages.closed.set()
    else:
        with pytest.raises(MCPAuthorizationError, match="the browser does not open"):
            await network.use(auth)
    [url] = pages.opened
    assert url.startswith(f"{network.origin}/authorize?")


@every_kind
def test_a_login_calls_and_a_refresh_prove_the_key(kind: Any, options: dict[str, Any], tmp_path: Path) -> None:
    with OAuthServer(**options) as server:
        gate = DPoPGate(server)
        config = OAuthConfig(dpop=True, redirect_handler=allow, token_storage=FileTokenStorage(str(tmp_path)))
        for _ in range(2):  # the second connection has the tokens of the storage, and their key
            with MCPConnection(kind(server.url, oauth_config=config)) as connection:
                assert connection.call_tool("whoami").content[0].text == "alice"
                server.provider.access.clear()
                assert connection.call_tool("whoami").content[0].text == "alice"
        assert (server.count["authorizations"], server.count["refreshes"]) == (1, 2)
        assert len(set(gate.keys.values())) == 1
        stolen = next(iter(server.provider.access))
        for scheme in ("Bearer", "DPoP"):
            assert httpx2.post(server.url, headers={"Authorization": f"{scheme} {stolen}"}).status_code == 401


@pytest.mark.integration
def test_somebody_presses_allow_in_the_browser_that_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = find_chromium()
    if program is None:
        pytest.skip("No Chromium was found: install the package chromium-headless-shell, or chromium")
    with OAuthServer() as server, Chromium(str(program), tmp_path / "profile") as chromium:

        def press() -> str:
            chromium.wait_for("!!document.getElementById('allow')")
            chromium.evaluate("document.getElementById('allow').click()")
            return str(chromium.wait_for("document.title == 'Logged in' && document.body.innerText"))

        class Browser(webbrowser.BaseBrowser):
            def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
                chromium.open(url)
                pressed.append(in_thread(press))
                return True

        pressed: list = []
        use_browser(monkeypatch, Browser())
        config = OAuthConfig(client_name="Chromium's friend", token_storage=InMemoryTokenStorage())
        with MCPConnection(StreamableHttpServerInfo(server.url, oauth_config=config)) as connection:
            assert connection.call_tool("whoami").content[0].text == "alice"
        assert "You can close this page." in pressed[0].result(30)
    assert server.count["authorizations"] == 1
