# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Where tokens are stored, which users share them, and how they are renewed.
"""

import asyncio
import copy
import errno
import json
import os
import pickle
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import httpx2
import pytest
from haystack.utils import Secret
from key_value.aio.stores.filetree import FileTreeStore
from key_value.aio.stores.memory import MemoryStore
from mcp.shared.auth import OAuthClientInformationFull, OAuthToken
from starlette.responses import JSONResponse

from haystack_integrations.tools.mcp import MCPAuthorizationError, MCPConnection, mcp_request_context
from haystack_integrations.tools.mcp.auth import token_storage
from haystack_integrations.tools.mcp.auth.token_storage import SDKTokenStorage, TokenKey
from haystack_integrations.tools.mcp.oauth import (
    FileTokenStorage,
    InMemoryTokenStorage,
    KeyValueTokenStorage,
    MCPTokenStorage,
    login,
    logout,
)
from tests.auth.conftest import info, said
from tests.support.background import together
from tests.support.oauth_server import OAuthServer
from tests.support.prepared import PreparedProcess
from tests.support.processes import end
from tests.support.rows import rows
from tests.support.token_network import BACK, TokenNetwork
from tests.support.waiting import wait_until, wait_until_async

ROOT = Path(__file__).parents[2]

KINDS = ("memory", "file", "key-value")
KINDS_OF_FILES = ("file", "files")
SERVICE = {"client_id": "me", "client_secret": Secret.from_token("s3cret-value")}


def storage_of(kind: str, folder: Path) -> MCPTokenStorage:
    match kind:
        case "memory":
            return InMemoryTokenStorage()
        case "file":
            return FileTokenStorage(str(folder))
        case "files":
            folder.mkdir(exist_ok=True)
            return KeyValueTokenStorage(FileTreeStore(data_directory=folder))
    return KeyValueTokenStorage("key_value.aio.stores.memory:MemoryStore")


def let_tokens_expire(server: OAuthServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Let the tokens expire that were issued so far, but not those that are issued from now on.
    """
    server.lifetime *= 4
    monkeypatch.setattr(token_storage, "time", SimpleNamespace(time=lambda: time.time() + server.lifetime / 2))


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_outlive_a_connection_and_are_refreshed_without_a_person(kind, server, tmp_path, monkeypatch):
    storage = storage_of(kind, tmp_path / "tokens")
    for _ in range(2):
        with MCPConnection(info(server, token_storage=storage)) as connection:
            assert said(connection) == "alice"
    let_tokens_expire(server, monkeypatch)
    with MCPConnection(info(server, token_storage=storage, redirect_handler=None)) as connection:
        assert said(connection) == "alice"
        server.provider.access.clear()  # the server revokes it early
        assert said(connection) == "alice"
    assert (server.count["refreshes"], server.count["authorizations"]) == (2, 1)


def test_ten_users_share_a_process_but_no_tokens(server: OAuthServer) -> None:
    users = [f"user-{number}" for number in range(10)]

    def calls(connection: MCPConnection, user: str) -> list[str]:
        with mcp_request_context(user=user):
            return [said(connection, name=user) for _ in range(2)]

    with MCPConnection(info(server), connection_timeout=60) as connection:
        for _ in range(2):
            answers = together([lambda user=user: calls(connection, user) for user in users for _ in range(2)])
            assert [future.result(90) for future in answers] == [[user] * 2 for user in users for _ in range(2)]
            server.provider.access.clear()  # all expire
    assert all(subject == name for subject, name in server.calls)
    assert [server.count[f"refreshes of {user}"] for user in users] == [1] * 10
    assert [server.count[f"tokens of {user}"] for user in users] == [2] * 10


def test_a_hundred_calls_refresh_an_expired_token_once_and_a_refused_refresh_leads_to_a_new_login(server, monkeypatch):
    server.refresh_takes = 0.5
    with MCPConnection(info(server)) as connection:
        assert said(connection) == "alice"
        let_tokens_expire(server, monkeypatch)
        # The calls do not wait for each other, which would take longer than the timeout.
        answers = together([lambda: said(connection, seconds=1.0)] * 100)
        assert {future.result(60) for future in answers} == {"alice"}
        assert (server.count["refreshes"], server.count["authorizations"]) == (1, 1)
        refusal = JSONResponse({"error": "invalid_grant"}, 400)
        server.tamper = lambda path, body: refusal if b"grant_type=refresh_token" in body else None
        server.provider.access.clear()
        assert said(connection) == "alice"
    assert (server.count["refreshes"], server.count["authorizations"]) == (1, 2)


SCRIPT = """
import sys, time
from contextlib import ExitStack
from pathlib import Path
from haystack_integrations.tools.mcp import MCPConnection, OAuthConfig, StreamableHttpServerInfo, mcp_request_context
from tests.auth.test_token_storage import KINDS_OF_FILES, storage_of
folder, url, number = sys.argv[1:]
with ExitStack() as stack:
    connections = {}
    for kind in KINDS_OF_FILES:
        config = OAuthConfig(token_storage=storage_of(kind, Path(folder, kind)))
        info = StreamableHttpServerInfo(url, oauth_config=config)
        connections[kind] = stack.enter_context(MCPConnection(info, connection_timeout=60))
        connections[kind].list_tools()
    Path(folder, f"ready-{number}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.02)
    for kind, connection in connections.items():
        for user in (f"ann-{kind}", f"ben-{kind}"):
            with mcp_request_context(user=user):
                assert connection.call_tool("whoami", {"name": user}).content[0].text == user
"""


def test_two_processes_with_the_same_storage_refresh_once(server: OAuthServer, tmp_path: Path) -> None:
    users = []
    for kind in KINDS_OF_FILES:
        own = info(server, token_storage=storage_of(kind, tmp_path / kind))
        for user in (None, f"ann-{kind}", f"ben-{kind}"):
            login(own, user=user)
            users += [user] if user else []
    authorizations = server.count["authorizations"]
    processes = [
        PreparedProcess(
            [sys.executable, "-c", SCRIPT, str(tmp_path), server.url, str(number)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            cwd=ROOT,
        )
        for number in range(2)
    ]
    try:
        wait_until(lambda: len(list(tmp_path.glob("ready-*"))) == 2, "both processes to be connected", limit=60)
        server.provider.access.clear()  # all expire
        server.refresh_takes = 0.5
        (tmp_path / "go").touch()
        assert [process.wait(60) for process in processes] == [0, 0]
    finally:
        for process in processes:
            end(process)
    assert server.count["authorizations"] == authorizations
    assert [server.count[f"refreshes of {user}"] for user in users] == [1] * 4
    assert sorted(server.calls) == sorted([(user, user) for user in users] * 2)


def test_only_the_owner_can_read_token_files_and_damaged_files_are_named(server, tmp_path, caplog):
    folder = tmp_path / "tokens"
    storage = FileTokenStorage(str(folder))
    login(info(server, token_storage=storage))
    [path] = folder.glob("*.json")
    if os.name == "posix":
        assert (folder.stat().st_mode & 0o777, path.stat().st_mode & 0o777) == (0o700, 0o600)
    assert json.loads(path.read_text())["tokens"]["access_token"] in server.issued
    path.write_text("{")
    with pytest.raises(MCPAuthorizationError, match="delete the file to log in again"):
        MCPConnection(info(server, token_storage=storage)).list_tools()
    assert logout(info(server, token_storage=storage)) is True and not path.exists()
    assert "cannot be read (MCPAuthorizationError), so they are deleted without being revoked" in caplog.text
    with pytest.raises(ValueError, match="`folder` must be a path, got None"):
        FileTokenStorage(None)  # type: ignore[arg-type]


KEY = TokenKey("https://mcp.example.com", "client")
USERS_KEY = TokenKey("https://mcp.example.com", "client", "bob")
RECORD = {"tokens": {"access_token": "t", "token_type": "Bearer"}, "serial": "1"}


@pytest.mark.parametrize("kind", KINDS)
async def test_a_storage_keeps_the_records_of_users_apart_until_they_are_deleted(kind: str, tmp_path: Path) -> None:
    storage = storage_of(kind, tmp_path / "tokens")
    assert await storage.load(KEY) is None
    await storage.delete(KEY)  # nothing is stored yet
    await storage.save(KEY, RECORD)
    await storage.save(USERS_KEY, {"serial": "2"})
    given = await storage.load(KEY)
    assert given == RECORD
    given["tokens"].clear()
    assert await storage.load(KEY) == RECORD
    await storage.delete(USERS_KEY)
    assert (await storage.load(USERS_KEY), await storage.load(KEY)) == (None, RECORD)


@dataclass(slots=True)
class SDKStorage:
    """
    A storage of the MCP SDK's protocol that supports neither hashing nor weak references.
    """

    kept: dict[str, Any] = field(default_factory=dict)

    async def get_tokens(self) -> OAuthToken | None:
        return self.kept.get("tokens")

    async def set_tokens(self, tokens: OAuthToken) -> None:
        self.kept["tokens"] = tokens

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        return self.kept.get("client")

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        self.kept["client"] = client_info


async def test_a_storage_of_the_sdk_is_for_one_server_and_one_user(network: TokenNetwork) -> None:
    storage, other, another = SDKStorage(), TokenNetwork(), TokenNetwork()
    other.answers["/mcp"] = [httpx2.Response(404)]
    # Nothing is stored for a mistyped URL.
    assert (await other.use(other.person(token_storage=storage))).status_code == 404
    for _ in range(2):
        assert (await network.use(network.person(token_storage=storage))).text == "welcome"
    assert (storage.kept["tokens"].access_token, storage.kept["client"].client_id) == ("the-access-token", "registered")
    assert len(network.forms()) == 1
    with pytest.raises(MCPAuthorizationError, match="one place for tokens, and another server uses it"):
        await another.use(another.person(token_storage=storage))
    assert not another.requests
    with pytest.raises(MCPAuthorizationError, match="another server uses it"):
        await SDKTokenStorage(storage).save(TokenKey(another.url, "client"), RECORD)
    assert storage.kept["tokens"].access_token == "the-access-token"
    with pytest.raises(MCPAuthorizationError, match="users of mcp_request_context cannot have their own"):
        await network.person(token_storage=storage).log_in(httpx2.Response(401), "bob")
    with pytest.raises(MCPAuthorizationError, match="SDKStorage cannot delete tokens"):
        await network.person(token_storage=storage).log_out(None)


async def test_a_stored_client_is_used_only_at_its_issuer_and_a_programs_client_at_any(network):
    known = {"client_id": "mine", "redirect_uris": [BACK]}
    registered = OAuthClientInformationFull(**known, client_secret="a-secret", issuer="https://old.example.com")
    tokens = OAuthToken(access_token="over", refresh_token="of-the-old-issuer")
    for kept, expected in (
        ({"client": registered, "tokens": tokens}, ("authorization_code", "registered")),
        ({"client": OAuthClientInformationFull(**known)}, ("authorization_code", "mine")),
    ):
        network.requests.clear()
        assert (await network.use(network.person(token_storage=SDKStorage(kept)))).text == "welcome"
        assert [(form["grant_type"], form["client_id"]) for form in network.forms()] == [expected]


async def test_a_bound_token_is_replaced_if_its_storage_keeps_no_keys(network: TokenNetwork) -> None:
    network.token["token_type"] = "DPoP"
    storage = SDKStorage({"tokens": OAuthToken(access_token="the-access-token")})
    assert (await network.use(network.auth(**SERVICE, dpop=True, token_storage=storage))).text == "welcome"
    assert len(network.forms()) == 1


async def test_tokens_that_a_program_puts_into_memory_are_used() -> None:
    network, storage = TokenNetwork(), InMemoryTokenStorage()
    await storage.set_tokens(OAuthToken(access_token="the-access-token"))
    await storage.set_client_info(OAuthClientInformationFull(client_id="mine", redirect_uris=["http://127.0.0.1/"]))
    assert (await network.use(network.auth(token_storage=storage))).text == "welcome"
    assert len(network.requests) == 1
    assert (await storage.get_client_info()).client_id == "mine"
    assert await network.auth(token_storage=storage).log_out(None) is True
    assert (await storage.get_tokens(), await storage.get_client_info()) == (None, None)


async def test_refused_tokens_of_another_process_are_refreshed() -> None:
    network, storage = TokenNetwork(), InMemoryTokenStorage()
    auth = network.auth(grant_type="authorization_code", client_id="me", token_storage=storage)
    holder = auth.holder_of(None)
    holder.record = {"tokens": {"access_token": "old"}}
    await storage.save(holder.key, {"tokens": {"access_token": "newer", "refresh_token": "again"}})
    assert (await network.use(auth)).text == "welcome"
    assert [form["grant_type"] for form in network.forms()] == ["refresh_token"]


class BrokenStorage(InMemoryTokenStorage):
    async def load(self, key: TokenKey) -> dict[str, Any] | None:
        raise RuntimeError("no connection with password s3cret")


class FullStorage(InMemoryTokenStorage):
    is_full = True

    async def save(self, key: TokenKey, record: dict[str, Any]) -> None:
        if self.is_full:
            raise OSError("No space left on device")
        await super().save(key, record)


async def test_the_error_names_an_unusable_storage_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    network, folder = TokenNetwork(), tmp_path / "file" / "tokens"
    with pytest.raises(MCPAuthorizationError, match=rf"the token storage \(NotADirectoryError: .*{folder}"):
        await network.use(network.auth(token_storage=FileTokenStorage(folder)))
    with pytest.raises(MCPAuthorizationError, match=r"the token storage \(OSError: the host is not known\)"):
        await network.use(network.auth(token_storage=KeyValueTokenStorage(no_store)))
    with pytest.raises(MCPAuthorizationError, match=r"the token storage \(OSError: the host is not known\)"):
        await network.auth(token_storage=KeyValueTokenStorage(no_store)).log_out(None)
    with pytest.raises(MCPAuthorizationError, match=r"the token storage \(RuntimeError\)$"):
        await network.use(network.auth(token_storage=BrokenStorage()))
    with pytest.raises(MCPAuthorizationError, match=r"while saving the token: .*No space left on device"):
        await network.use(network.auth(**SERVICE, token_storage=FullStorage()))


async def test_tokens_that_cannot_be_saved_are_kept_for_this_process_and_saved_before_the_next_refresh() -> None:
    network, storage = TokenNetwork(), FullStorage()
    auth = network.auth(grant_type="authorization_code", client_id="me", token_storage=storage)
    key = auth.holder_of(None).key
    await InMemoryTokenStorage.save(storage, key, {"tokens": {"access_token": "old", "refresh_token": "first"}})
    network.token["refresh_token"] = "second"
    with pytest.raises(MCPAuthorizationError, match="while saving the token"):
        await network.use(auth)
    assert (await network.use(auth)).text == "welcome"
    network.token |= {"access_token": "newer", "refresh_token": "third"}
    storage.is_full = False
    assert (await network.use(auth)).text == "welcome"
    assert [form["refresh_token"] for form in network.forms()] == ["first", "second"]
    assert (await storage.load(key))["tokens"]["refresh_token"] == "third"


async def test_a_failed_write_keeps_the_previous_record(tmp_path: Path, monkeypatch) -> None:
    storage = FileTokenStorage(str(tmp_path))
    await storage.save(KEY, RECORD)
    monkeypatch.setattr(os, "fsync", no_store)
    with pytest.raises(OSError, match="the host is not known"):
        await storage.save(KEY, {"serial": "2"})
    assert await storage.load(KEY) == RECORD
    assert [path.suffix for path in tmp_path.iterdir()] == [".json"]


def no_store(*_: Any) -> Any:
    msg = "the host is not known"
    raise OSError(msg)


@pytest.mark.parametrize("kind", KINDS_OF_FILES)
async def test_a_process_that_waits_for_the_login_of_another_one_logs_that(kind, tmp_path, monkeypatch, caplog) -> None:
    monkeypatch.setattr(token_storage, "_LOCK_NOTICE_DELAY", 0.0)

    async def wait_for_lock() -> None:
        async with storage_of(kind, tmp_path).lock(KEY):
            pass

    async with storage_of(kind, tmp_path).lock(KEY):
        caplog.clear()
        waiting = asyncio.create_task(wait_for_lock())
        await wait_until_async(lambda: "Another process is getting a token" in caplog.text, "the warning")
    await waiting


async def test_a_network_file_system_without_locks_is_used_without_them(tmp_path, monkeypatch) -> None:
    def flock(*_: Any) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(pytest.importorskip("fcntl"), "flock", flock)
    network = TokenNetwork()
    assert (await network.use(network.auth(**SERVICE, token_storage=FileTokenStorage(tmp_path)))).text == "welcome"


@pytest.mark.parametrize("method", ["replace", "read_text", "unlink"])
async def test_a_file_that_windows_refuses_because_it_is_in_use_is_tried_again(method, tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(token_storage, "_FILE_RETRIES", 1)
    refusals, access = [PermissionError()], getattr(Path, method)

    def refused_once(*args: Any, **options: Any) -> Any:
        if refusals:
            raise refusals.pop()
        return access(*args, **options)

    monkeypatch.setattr(Path, method, refused_once)
    storage = FileTokenStorage(str(tmp_path))
    await storage.save(KEY, RECORD)
    assert await storage.load(KEY) == RECORD
    await storage.delete(KEY)
    assert (refusals, list(tmp_path.iterdir())) == ([], [])


def test_a_store_is_opened_again_for_another_event_loop_such_as_that_of_a_forked_process() -> None:
    opened: list[MemoryStore] = []
    storage = KeyValueTokenStorage(lambda: opened.append(MemoryStore()) or opened[-1])
    for _ in range(2):
        asyncio.run(storage.save(KEY, RECORD))
        assert asyncio.run(opened[-1].get(KEY.digest, collection=token_storage._COLLECTION)) == RECORD
    assert len(opened) == 2


async def test_a_storage_can_be_pickled_and_copied_also_while_its_store_is_open() -> None:
    storage = storage_of("key-value", Path())
    await storage.save(KEY, RECORD)
    assert pickle.loads(pickle.dumps(storage)) == copy.deepcopy(storage) == storage  # noqa: S301
    assert await copy.copy(storage).load(KEY) is None


async def test_the_lock_of_a_dead_process_expires() -> None:
    store = MemoryStore()
    storage = KeyValueTokenStorage(store)
    place = {"key": f"{KEY.digest}.lock", "collection": token_storage._COLLECTION}
    await store.put(value={"owner": "dead", "until": time.time() - 1}, **place)
    async with storage.lock(KEY):
        assert (await store.get(**place))["owner"] != "dead"
        # The lock was held for too long, so another process takes it over and keeps it.
        await store.put(value={"owner": "other", "until": time.time() + 60}, **place)
    assert (await store.get(**place))["owner"] == "other"


@rows("error", "invalid_client", "unauthorized_client", "access_denied", "incorrect_client_credentials")
async def test_a_refused_client_keeps_the_refresh_token_until_its_secret_is_right(error: str) -> None:
    network, storage = TokenNetwork(), InMemoryTokenStorage()
    person = {"grant_type": "authorization_code", "client_id": "me", "token_storage": storage}
    auth = network.auth(**person, client_secret=Secret.from_token("0ld-secret"))
    tokens = {"access_token": "old", "refresh_token": "again"}
    await storage.save(auth.holder_of(None).key, {"tokens": tokens, "expires_at": 1.0})
    refusal = httpx2.Response(401, json={"error": error, "error_description": "The secret has expired."})
    network.answers["/token"] = [refusal, httpx2.Response(200, json=network.token)]
    with pytest.raises(MCPAuthorizationError, match=r"refuses the client 'me'; check .*: .*The secret has expired\."):
        await network.use(auth)
    auth = network.auth(**person, client_secret=Secret.from_token("n3w-secret"))
    assert (await network.use(auth)).text == "welcome"
    assert [form["refresh_token"] for form in network.forms()] == ["again"] * 2


@rows(
    ("status", "error"),
    *((400, error) for error in ("temporarily_unavailable", "server_error", "slow_down")),
    (403, None),
    (503, "temporarily_unavailable"),
)
async def test_a_temporarily_failing_refresh_keeps_the_refresh_token(status: int, error: str | None) -> None:
    network, storage = TokenNetwork(), InMemoryTokenStorage()
    auth = network.auth(grant_type="authorization_code", client_id="me", token_storage=storage)
    key, tokens = auth.holder_of(None).key, {"access_token": "old", "refresh_token": "again"}
    await storage.save(key, {"tokens": tokens, "expires_at": 1.0, "authorization_server": network.metadata})
    body = {"error": error} if error else {}
    network.answers["/token"] = [httpx2.Response(status, json=body), httpx2.Response(200, json=network.token)]
    with pytest.raises(MCPAuthorizationError, match=f"the authorization server answered with HTTP {status}"):
        await network.use(auth)
    assert (await storage.load(key))["tokens"] == tokens
    assert (await network.use(auth)).text == "welcome"
    assert [form["refresh_token"] for form in network.forms()] == ["again"] * 2
    # The new token came without a refresh token.
    assert (await storage.load(key))["tokens"]["refresh_token"] == "again"
