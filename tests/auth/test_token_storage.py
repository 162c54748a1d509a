# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Where tokens are kept, who shares them, and how they are renewed.
"""

import asyncio
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from key_value.aio.stores.filetree import FileTreeStore
from key_value.aio.stores.memory import MemoryStore

from haystack_integrations.tools.mcp import (
    FileTokenStorage,
    InMemoryTokenStorage,
    KeyValueTokenStorage,
    MCPAuthorizationError,
    MCPConnection,
    MCPTokenStorage,
    OAuthConfig,
    StreamableHttpServerInfo,
    login,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.auth.token_store import TokenKey
from tests.support.background import together
from tests.support.oauth_server import OAuthServer, allow
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[2]

KINDS = ("memory", "file", "key-value")


def storage_of(kind: str, folder: Path) -> MCPTokenStorage:
    if kind == "memory":
        return InMemoryTokenStorage()
    return FileTokenStorage(str(folder)) if kind == "file" else KeyValueTokenStorage(MemoryStore())


@pytest.fixture
def server() -> Iterator[OAuthServer]:
    with OAuthServer() as server:
        yield server


def info(server: OAuthServer, storage: MCPTokenStorage | None, **options: object) -> StreamableHttpServerInfo:
    options = {"redirect_handler": allow, **options}
    return StreamableHttpServerInfo(server.url, oauth_config=OAuthConfig(token_storage=storage, **options))


def whose(connection: MCPConnection, name: str = "") -> str:
    return str(connection.call_tool("whoami", {"name": name}).content[0].text)


@pytest.mark.parametrize("kind", KINDS)
def test_tokens_outlive_a_connection(kind: str, server: OAuthServer, tmp_path: Path) -> None:
    storage = storage_of(kind, tmp_path / "tokens")
    for _ in range(2):
        with MCPConnection(info(server, storage)) as connection:
            assert whose(connection) == "alice"
    assert server.count["authorizations"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_an_expired_token_of_a_storage_is_refreshed_where_it_was_issued(
    kind: str, server: OAuthServer, tmp_path: Path
) -> None:
    server.lifetime = 1
    storage = storage_of(kind, tmp_path / "tokens")
    with MCPConnection(info(server, storage)) as connection:
        assert whose(connection) == "alice"
    time.sleep(1.1)
    server.lifetime = 3600
    with MCPConnection(info(server, storage, redirect_handler=None)) as connection:
        assert whose(connection) == "alice"
    assert server.count["refreshes"] == server.count["authorizations"] == 1


@pytest.mark.parametrize("kind", KINDS)
def test_twenty_users_share_a_process_and_no_token(kind: str, server: OAuthServer, tmp_path: Path) -> None:
    users = [f"user-{number}" for number in range(20)]
    storage = storage_of(kind, tmp_path / "tokens")

    def calls(connection: MCPConnection, user: str) -> list[str]:
        with mcp_request_context(user=user):
            return [whose(connection, user) for _ in range(2)]

    with MCPConnection(info(server, storage), connection_timeout=60) as connection:
        for _ in range(2):
            answers = together([lambda user=user: calls(connection, user) for user in users for _ in range(2)])
            assert [future.result(90) for future in answers] == [[user] * 2 for user in users for _ in range(2)]
            server.provider.access.clear()  # all expire
    assert all(subject == name for subject, name in server.calls)
    assert [server.count[f"refreshes of {user}"] for user in users] == [1] * 20
    assert [server.count[f"tokens of {user}"] for user in users] == [2] * 20


def test_a_hundred_calls_with_an_expired_token_refresh_it_once(server: OAuthServer) -> None:
    server.lifetime, server.refresh_takes = 1, 0.5
    with MCPConnection(info(server, InMemoryTokenStorage())) as connection:
        assert whose(connection) == "alice"
        time.sleep(1.1)
        server.lifetime = 3600
        answers = together([lambda: whose(connection)] * 100)
        assert {future.result(60) for future in answers} == {"alice"}
    assert server.count["refreshes"] == 1


def test_slow_calls_do_not_wait_for_each_other(server: OAuthServer) -> None:
    with MCPConnection(info(server, InMemoryTokenStorage())) as connection:
        began = time.monotonic()
        slow = together([lambda: connection.call_tool("whoami", {"seconds": 2.0})] * 10)
        for future in slow:
            future.result(60)
    assert time.monotonic() - began < 12


def test_a_token_that_is_revoked_early_is_replaced(server: OAuthServer) -> None:
    with MCPConnection(info(server, InMemoryTokenStorage())) as connection:
        assert whose(connection) == "alice"
        server.provider.access.clear()
        assert whose(connection) == "alice"
    assert server.count["refreshes"] == server.count["authorizations"] == 1


def test_a_refused_refresh_asks_the_person_again(server: OAuthServer) -> None:
    server.refuses_refresh = True
    with MCPConnection(info(server, InMemoryTokenStorage())) as connection:
        assert whose(connection) == "alice"
        server.provider.access.clear()
        assert whose(connection) == "alice"
    assert server.count["authorizations"] == 2


def test_a_refresh_that_comes_too_late_uses_the_token_of_the_process_that_was_faster(server: OAuthServer) -> None:
    class RacedStorage(InMemoryTokenStorage):
        """Another process saves its tokens while a refresh is under way."""

        loads_until_raced = -1
        faster: MCPTokenStorage

        async def load(self, key: TokenKey) -> dict | None:
            self.loads_until_raced -= 1
            if self.loads_until_raced == -1:
                await self.save(key, await self.faster.load(key) or {})
            return await super().load(key)

    storage, storage.faster = RacedStorage(), InMemoryTokenStorage()
    server.refuses_refresh = True
    with MCPConnection(info(server, storage)) as connection:
        assert whose(connection) == "alice"
        server.provider.access.clear()
        with MCPConnection(info(server, storage.faster)) as other:
            assert whose(other) == "alice"
        storage.loads_until_raced = 1
        assert whose(connection) == "alice"
    assert server.count["authorizations"] == 2


SCRIPT = """
import sys, time
from pathlib import Path
from haystack_integrations.tools.mcp import MCPConnection, OAuthConfig, StreamableHttpServerInfo, mcp_request_context
from tests.auth.test_token_storage import storages
kind, folder, url, number = sys.argv[1:]
config = OAuthConfig(token_storage=storages(kind, folder))
with MCPConnection(StreamableHttpServerInfo(url, oauth_config=config), connection_timeout=60) as connection:
    connection.list_tools()
    Path(folder, f"ready-{number}").touch()
    while not Path(folder, "go").exists():
        time.sleep(0.02)
    for user in ("ann", "ben", "cleo"):
        with mcp_request_context(user=user):
            assert connection.call_tool("whoami", {"name": user}).content[0].text == user
"""


def storages(kind: str, folder: str) -> MCPTokenStorage:
    return FileTokenStorage(folder) if kind == "file" else KeyValueTokenStorage(FileTreeStore(data_directory=folder))


@pytest.mark.parametrize("kind", ["file", "key-value"])
def test_two_processes_with_one_storage_refresh_once(kind: str, server: OAuthServer, tmp_path: Path) -> None:
    folder, users = tmp_path / "tokens", ("ann", "ben", "cleo")
    folder.mkdir()
    own = info(server, storages(kind, str(folder)))
    for user in (None, *users):
        login(own, user=user)
    authorizations = server.count["authorizations"]
    processes = [
        subprocess.Popen(
            [sys.executable, "-c", SCRIPT, kind, str(folder), server.url, str(number)],
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}{os.pathsep}{ROOT}"},
            cwd=ROOT,
        )
        for number in range(2)
    ]
    wait_until(lambda: len(list(folder.glob("ready-*"))) == 2, "both processes to be connected", limit=60)
    server.provider.access.clear()  # all expire
    server.refresh_takes = 1.0
    (folder / "go").touch()
    assert [process.wait(60) for process in processes] == [0, 0]
    assert server.count["authorizations"] == authorizations
    assert [server.count[f"refreshes of {user}"] for user in users] == [1, 1, 1]
    assert sorted(server.calls) == sorted([(user, user) for user in users] * 2)


@pytest.mark.skipif(os.name != "posix", reason="Windows has other permissions")
def test_files_with_tokens_are_for_their_owner_only(server: OAuthServer, tmp_path: Path) -> None:
    folder = tmp_path / "tokens"
    login(info(server, FileTokenStorage(str(folder))))
    assert folder.stat().st_mode & 0o777 == 0o700
    [path] = folder.glob("*.json")
    assert path.stat().st_mode & 0o777 == 0o600
    assert json.loads(path.read_text())["tokens"]["access_token"] in server.issued
    path.chmod(0o644)
    with MCPConnection(info(server, FileTokenStorage(str(folder)))) as connection:
        whose(connection)
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_damaged_file_fails_the_connect_and_says_so(server: OAuthServer, tmp_path: Path) -> None:
    storage = FileTokenStorage(str(tmp_path))
    login(info(server, storage))
    [path] = tmp_path.glob("*.json")
    path.write_text("{")
    with pytest.raises(MCPAuthorizationError, match="delete the file to log in again"):
        MCPConnection(info(server, storage)).list_tools()


def test_a_lock_is_one_processs_at_a_time() -> None:
    storage, key = KeyValueTokenStorage(MemoryStore()), TokenKey("https://mcp.example.com", "client")
    inside: list[int] = []

    async def work(number: int) -> None:
        async with storage.lock(key):
            inside.append(number)
            assert inside == [number]
            await asyncio.sleep(0.05)
            inside.clear()

    async def all_at_once() -> None:
        await asyncio.gather(*map(work, range(5)))

    asyncio.run(all_at_once())
