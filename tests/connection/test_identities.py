# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Many users of one connection: each call arrives with the identity of its caller, and users do not share sessions.
"""

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    CallOptions,
    MCPConnection,
    MCPHandlers,
    MCPInvocationError,
    MCPServerInfo,
    MCPTool,
    MCPToolset,
    SSEServerInfo,
    StreamableHttpServerInfo,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.connection import identities
from haystack_integrations.tools.mcp.errors import MCPConnectionError
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.handlers import MCPProgress
from haystack_integrations.tools.mcp.request_context import MCPRequestContext
from tests.servers.counter_server import handshake_era_only
from tests.support.background import in_thread
from tests.support.foreign_server import ForeignServer, definition
from tests.support.identity_server import IdentityServer
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until

HERE = "tests.connection.test_identities"
USERS = 25

ERAS = {"2026": {}, "sessions": {"handshake": True}, "sse": {"transport": "sse", "handshake": True}}
both_eras = pytest.mark.parametrize("era", ["2026", "sessions"])


@pytest.fixture
def server(era: str) -> Iterator[IdentityServer]:
    with IdentityServer(**ERAS[era]) as server:
        yield server


def info_of(server: IdentityServer, **parameters: Any) -> Any:
    info_class = SSEServerInfo if server.url.endswith("/sse") else StreamableHttpServerInfo
    return info_class(url=server.url, base_delay=0.05, **parameters)


def who(connection: MCPConnection, name: str) -> dict[str, Any]:
    return connection.call_tool("whoami", {"name": name}).structured_content


def assert_own(answer: dict[str, Any], name: str) -> None:
    assert (answer["name"], answer["token"]) == (name, f"Bearer {name}-token")
    assert answer["opener"] in (None, f"Bearer {name}-token")


provided: list[MCPRequestContext] = []


def token_of(context: MCPRequestContext) -> str:
    provided.append(context)
    if context.user == "mallory":
        raise PermissionError("no token for mallory-5ecret")
    return f"{context.user or 'service'}-token"


def timed_out(_context: MCPRequestContext) -> str:
    raise TimeoutError


async def tenant_of(context: MCPRequestContext) -> dict[str, str]:
    await asyncio.sleep(0)
    return {"X-Tenant": f"tenant of {context.user}"}


@pytest.mark.parametrize("era", ERAS)
def test_concurrent_calls_arrive_with_the_identities_of_their_callers(server, era):
    server.barrier = asyncio.Barrier(USERS)  # all calls run at the same time

    def call(number: int) -> None:
        name = f"user{number}"
        with mcp_request_context(token=f"{name}-token", headers={"X-Tenant": name}, meta={"marker": name}):
            answer = who(connection, name)
        assert_own(answer, name)
        assert answer["tenant"] == answer["marker"] == name

    with contextlib.closing(MCPConnection(info_of(server), connection_timeout=90, invocation_timeout=90)) as connection:
        with ThreadPoolExecutor(USERS) as pool:
            list(pool.map(call, range(USERS)))
        assert connection.status().sessions == (1 if era == "2026" else USERS)
    assert server.anonymous == 0


@both_eras
class TestManyUsers:
    def test_providers_are_called_for_each_caller(self, server):
        provided.clear()
        info = info_of(server, token_provider=token_of, headers_provider=f"{HERE}:tenant_of")
        with MCPTool("whoami", MCPServerInfo.from_dict(info.to_dict())) as tool:
            for name in ("alice", "bob"):
                with mcp_request_context(user=name):
                    answer = tool.invoke(name=name)
                    assert f"Bearer {name}-token" in answer and f"tenant of {name}" in answer
        assert {context.user for context in provided} == {None, "alice", "bob"}
        assert server.anonymous == 0

    def test_reads_and_calls_are_sent_with_the_identity_of_the_caller(self, server):
        own = {"own": "yes"}
        with contextlib.closing(MCPConnection(info_of(server, token="service-token"))) as connection:
            for name in ("alice", "service", "bob"):
                server.requests.clear()
                context = mcp_request_context(token=f"{name}-token", meta={"marker": name, "own": "no"})
                with context if name != "service" else contextlib.nullcontext():
                    # Read twice: a cached resource must not reach another user.
                    for _ in range(2):
                        assert connection.read_resource("who://ever").contents[0].text == f"Bearer {name}-token"
                    connection.list_resource_templates(meta=own)
                    [prompt] = connection.list_prompts(meta=own)
                    connection.complete(prompt, {"name": "name", "value": "A"}, meta=own)
                    connection.request("prompts/list", meta=own)
                    asyncio.run(connection.get_prompt_async("greet", {"name": "Ada"}, meta=own))
                    assert_own(who(connection, name), name)
                assert {token for _, token, _ in server.requests} == {f"Bearer {name}-token"}
                metas = [meta for _, _, meta in server.requests if "own" in meta]
                assert {meta.get("marker") for meta in metas} == {name if name != "service" else None}
                assert sum(meta["own"] == "yes" for meta in metas) == 5
        assert server.anonymous == 0

    # Servers still use features that revision 2026-07-28 deprecates.
    @pytest.mark.filterwarnings("ignore:The logging capability is deprecated")
    def test_handlers_progress_and_redaction_work_for_every_identity(self, server, caplog):
        noted: list[float] = []
        handlers = MCPHandlers(sampling=lambda _: "Hi!", progress=lambda report: noted.append(report.progress))
        with contextlib.closing(MCPConnection(info_of(server), handlers=handlers, invocation_timeout=60)) as connection:
            for name in ("alice", "bob"):
                direct: list[MCPProgress] = []
                with mcp_request_context(token=f"{name}-pa55word"):
                    assert connection.call_tool("ask_model").content[0].text == "Hi!"
                    connection.call_tool("steps", {"count": 2}, on_progress=direct.append)
                    connection.call_tool("log_token", meta={"io.modelcontextprotocol/logLevel": "debug"})
                assert [report.progress for report in direct] == [0, 1]
        assert noted == [0, 1] * 2
        wait_until(lambda: caplog.text.count("asked by") == 2, "the log messages")
        assert "pa55word" not in caplog.text
        assert server.anonymous == 0


@pytest.mark.parametrize("era", ["sessions"])
def test_pings_have_the_identity_of_their_session(server: IdentityServer) -> None:
    limits = {"call_options": CallOptions(read_timeout=2, ping_interval=0.2), "invocation_timeout": 60}
    with contextlib.closing(MCPConnection(info_of(server), **limits)) as connection:
        for name in ("alice", "bob"):
            with mcp_request_context(token=f"{name}-token"):
                connection.call_tool("sleep", {"seconds": 1})
        assert connection.status().sessions == 2
    pings = [token for method, token, _ in server.requests if method == "ping"]
    assert min(pings.count(f"Bearer {name}-token") for name in ("alice", "bob")) > 1
    assert server.anonymous == 0


NOT_SET = Secret.from_env_var("MCP_NO_TOKEN", strict=False)


@pytest.mark.parametrize("era", ["2026"])
@rows(
    ("provider", "context", "reason"),
    ({"token_provider": lambda _: ""}, {}, "`token_provider` must return a string that is not empty, it"),
    ({"token_provider": lambda _: Secret.from_token("t-5ecret")}, {}, "it returned TokenSecret"),
    ({"token_provider": token_of}, {"user": "mallory"}, "`token_provider` failed (PermissionError)"),
    ({"token_provider": timed_out}, {}, "`token_provider` failed (TimeoutError)"),
    ({"token_provider": "no_such_package.vault:token"}, {}, "ModuleNotFoundError: No module named 'no_such_"),
    ({"headers_provider": lambda _: {"X-Count": 5}}, {}, "`headers_provider` must return a dict of strings"),
    ({}, {"token": Secret.from_env_var("MCP_NO_TOKEN")}, "the token of mcp_request_context: "),
    ({}, {"token": NOT_SET}, "the token of mcp_request_context has no value"),
    ({}, {"headers": {"X-Key": NOT_SET}}, "the header 'X-Key' of mcp_"),
    ({}, {"headers": {"X-Key": "5ecret\nX-Other: 1"}}, "the value of the header 'X-Key' has a line break"),
    ({}, {"headers": {"X-Key": "Bearer "}}, "'X-Key' has nothing after its first word: a token is empty"),
    ({}, {"headers": {"X-Key: 5ecret": ""}}, "the name of a header that begins with 'X-Key' is empty, or has a"),
)
def test_an_identity_that_cannot_be_sent_fails_the_call_without_being_quoted(
    server, provider, context, reason, monkeypatch
):
    monkeypatch.delenv("MCP_NO_TOKEN", raising=False)
    connection = MCPConnection(info_of(server, **provider))
    with mcp_request_context(**context):
        with pytest.raises(MCPInvocationError) as raised:
            who(connection, "alice")
        with pytest.raises(MCPConnectionError) as of_listing:
            connection.list_tools()
    connection.close()
    assert reason in str(raised.value) and reason in str(of_listing.value)
    assert "5ecr" not in f"{raised.value} {of_listing.value} {connection.status().last_error}"
    assert server.messages == 0


def test_many_identities_in_a_row_leave_no_sessions_on_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "MAX_IDLE_SESSIONS", 5)
    with IdentityServer(handshake=True) as server, contextlib.closing(MCPConnection(info_of(server))) as connection:
        # Use the last five again, so that they are closed for their age.
        for numbers, idle_limit in ((range(40), LIMIT), (range(35, 40), 0.1)):
            monkeypatch.setattr(identities, "IDLE_LIMIT", idle_limit)
            for number in numbers:
                with mcp_request_context(user=f"user{number}", token=f"{number}-token"):
                    assert_own(who(connection, f"{number}"), f"{number}")
        assert connection.status().sessions == 40
        # Sessions that are being closed are included.
        assert server.most_sessions <= 5 + 20
        # The connection closes idle sessions by itself.
        wait_until(lambda: not server.openers, "the end of all sessions")


def test_a_session_in_use_is_not_closed_as_idle(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(identities, "IDLE_LIMIT", 0.2)
    user = mcp_request_context(user="ann", token="ann-token")
    with (
        IdentityServer(handshake=True) as server,
        contextlib.closing(MCPConnection(info_of(server))) as connection,
        user,
    ):
        assert_own(who(connection, "ann"), "ann")
        connection.call_tool("sleep", {"seconds": 1.0})
        assert connection.status().sessions == 1


def test_closing_ends_calls_that_wait_to_learn_whether_the_server_has_sessions():
    def call(name: str) -> None:
        with mcp_request_context(user=name), pytest.raises(MCPInvocationError, match="connection was closed"):
            connection.call_tool("whoami")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        connection = MCPConnection(StreamableHttpServerInfo(f"http://127.0.0.1:{silent.getsockname()[1]}/mcp"))
        calls = [in_thread(call, name) for name in ("alice", "bob")]
        sessions = wait_until(lambda: connection._server_sessions, "the first call")
        wait_until(lambda: sessions._statelessness_lock._waiters, "the second, which waits for it")
        connection.close()
        for each in calls:
            each.result(LIMIT)


def test_a_session_is_ended_with_the_newest_token_of_its_user() -> None:
    with IdentityServer(handshake=True) as server, MCPConnection(info_of(server, token="of-all")) as connection:
        for token in ("1", "2"):
            with mcp_request_context(user="somebody", token=token):
                who(connection, "somebody")
        connection.close()
        assert sorted(server.ended) == ["Bearer 2", "Bearer of-all"]


def called_by(connection: MCPConnection, *names: str) -> None:
    for name in names:
        with mcp_request_context(token=f"{name}-token"):
            assert_own(who(connection, name), name)


def end_session(connection: MCPConnection) -> None:
    async def end() -> None:
        connection._session.life.end("the server is gone")

    AsyncExecutor.get_instance().run(end(), LIMIT)


def test_the_session_of_the_server_info_is_reopened_without_the_identity_of_the_caller() -> None:
    with IdentityServer() as server, MCPConnection(info_of(server, token="of-all")) as connection:
        called_by(connection, "alice")
        end_session(connection)
        server.requests.clear()
        called_by(connection, "alice")
        *opening, (_, last, _) = server.requests
        assert {token for _, token, _ in opening} == {"Bearer of-all"} and last == "Bearer alice-token"


def test_a_server_that_starts_to_have_sessions_gets_one_for_each_user() -> None:
    with IdentityServer() as server, contextlib.closing(MCPConnection(info_of(server))) as connection:
        called_by(connection, "alice", "bob")
        assert connection.status().sessions == 1
        server._app = handshake_era_only(server._app)
        end_session(connection)
        called_by(connection, "bob", "alice", "bob")
        assert {"Bearer alice-token", "Bearer bob-token"} == {*server.openers.values()}


def test_a_server_that_is_down_is_not_tried_again_for_the_user_who_found_it_down() -> None:
    provided.clear()
    down = StreamableHttpServerInfo("http://127.0.0.1:1/mcp", token_provider=token_of)
    with contextlib.closing(MCPToolset(down, required=False)) as toolset:
        with mcp_request_context(user="alice"):
            toolset.warm_up()
        wait_until(lambda: len(provided) > 1, "another attempt")
    assert [context.user for context in provided[:2]] == ["alice", None]


@rows("identity", {"token": "t0ken-of-alice"}, {"headers": {"X-User": "alice"}})
def test_transports_without_headers_refuse_identities(identity):
    server = ForeignServer(definition("a"))
    refused = "cannot get the `token` and `headers`.*or of an interceptor"
    with MCPConnection(server.info) as connection, mcp_request_context(**identity):
        with pytest.raises(MCPInvocationError, match=f"{refused}.*did not run"):
            connection.call_tool("a")
        with pytest.raises(MCPConnectionError, match=refused):
            connection.list_tools()
    assert server.calls == []


@rows(
    ("parameters", "message"),
    ({"user": 1}, "`user` must be a string, or None, got int"),
    ({"token": ""}, "`token` must be a string or a Secret, or None, got an empty string"),
)
def test_an_invalid_context_is_refused(parameters, message):
    with pytest.raises(ValueError, match=message), mcp_request_context(**parameters):
        pass


def test_the_error_for_a_block_entered_in_another_thread_says_where_to_use_it() -> None:
    # FastAPI runs both halves of a `def` dependency in threads other than the endpoint's.
    block = mcp_request_context(user="ada")
    with ThreadPoolExecutor(1) as pool:
        pool.submit(block.__enter__).result()
    with pytest.raises(RuntimeError, match="in FastAPI, in the endpoint, in a middleware or in an `async def`"):
        block.__exit__(None, None, None)
