# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The storages for tokens.

.. code-block:: text

    InMemoryTokenStorage     in this process
    FileTokenStorage         in files that only their owner can read; processes of one machine share them
    KeyValueTokenStorage     in a store of the `py-key-value-aio` kind; machines share it
    SDKTokenStorage          in any `mcp.client.auth.TokenStorage`, which has only one place and no users
"""

from __future__ import annotations

import asyncio
import errno
import hashlib
import json
import os
import tempfile
import time
import uuid
import weakref
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeGuard, TypeVar
from urllib.parse import urljoin

import anyio.to_thread
from haystack import default_from_dict, default_to_dict, logging

from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.haystack_compat import check_module_may_be_imported
from haystack_integrations.tools.mcp.import_paths import import_object, import_path_of, stored_in
from haystack_integrations.tools.mcp.redaction import redact_url

if TYPE_CHECKING:
    from mcp.client.auth import TokenStorage
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

logger: logging.PatchedLogger = logging.getLogger(__name__)

_T = TypeVar("_T")

# The record for one key: JSON with the members `tokens` (RFC 6749, 5.1), `expires_at` (seconds since the epoch),
# `client` (RFC 7591, 3.2.1), `authorization_server` (RFC 8414), `resource` (RFC 9728), `dpop_key` (a PEM), `asked_for`
# (the scopes that were asked for) and `serial` (which differs for each answer of an authorization server).
Record = dict[str, Any]

# Seconds between two attempts to lock a file.
_LOCK_POLL_INTERVAL = 0.05

# After this many seconds, a warning says what is waited for. A refresh is usually over before.
_LOCK_NOTICE_DELAY = 3.0

# How often an access to a file is tried again while another process uses the file, which prevents it on Windows only.
_FILE_RETRIES = 100 if os.name == "nt" else 0
_FILE_RETRY_INTERVAL = 0.02

# A token that expires within this share of its lifetime, or within this many seconds, is refreshed before it is used.
_EARLY_SHARE, _EARLY_SECONDS = 0.1, 30.0

# The collection of a key-value store in which tokens are kept.
_COLLECTION = "mcp-haystack-tokens"

# How long a process may hold a lock in a key-value store, in seconds. This is longer than any refresh takes. A login
# may take longer, and then two processes may both ask for one.
_LOCK_LEASE = 120.0

# Seconds from claiming such a lock to checking its owner, and between two checks. Of two processes that claim it at the
# same time, only one sees itself as the owner, unless a write takes longer than this (Fischer's algorithm, because
# these stores cannot compare and set).
_CLAIM_CHECK_DELAY = 0.25


@dataclass(frozen=True)
class TokenKey:
    """
    The key of a record: whose tokens it has, and for which server.

    :param server_url: The MCP server.
    :param client: A digest that identifies the OAuth client.
    :param user: The user of `mcp_request_context`; None for the server info's own tokens.
    """

    server_url: str
    client: str
    user: str | None = None

    @property
    def digest(self) -> str:
        """
        A name without secrets that is safe as a file name: 64 hexadecimal digits.
        """
        return hashlib.sha256(json.dumps([self.server_url, self.client, self.user]).encode()).hexdigest()


class MCPTokenStorage(ABC):
    """
    Keeps records with tokens by server, OAuth client and user.

    Records contain secrets. The methods run in the event loop of all connections, which they must not block.
    """

    @abstractmethod
    async def load(self, key: TokenKey) -> Record | None:
        """
        Load a record.

        :param key: Its key.
        :returns: The record; None if it does not exist.
        """

    @abstractmethod
    async def save(self, key: TokenKey, record: Record) -> None:
        """
        Save a record, replacing the previous one.

        :param key: Its key.
        :param record: The record: JSON.
        """

    @abstractmethod
    async def delete(self, key: TokenKey) -> None:
        """
        Delete a record, if there is one.

        :param key: Its key.
        """

    @asynccontextmanager
    async def lock(self, key: TokenKey) -> AsyncIterator[None]:  # noqa: ARG002 - for subclasses
        """
        Prevent other processes from changing a record while this one gets new tokens.

        It is not needed within a process. By default, it does nothing.

        :param key: The key of the record.
        :returns: A context manager.
        """
        yield


class InMemoryTokenStorage(MCPTokenStorage):
    """
    Keeps tokens in memory, until the process ends.

    It is also a `TokenStorage` of the MCP SDK, with the latest tokens that are a server info's own, not a user's.
    """

    def __init__(self) -> None:
        """
        Initialize the InMemoryTokenStorage.
        """
        self._records: dict[TokenKey, Record] = {}
        self._default_record: Record = {}

    async def load(self, key: TokenKey) -> Record | None:
        """
        Load a record.

        :param key: Its key.
        :returns: The record; None if it does not exist.
        """
        record = self._records.get(key) or (self._default_record if key.user is None else None)
        return json.loads(json.dumps(record)) if record else None

    async def save(self, key: TokenKey, record: Record) -> None:
        """
        Save a record, replacing the previous one.

        :param key: Its key.
        :param record: The record.
        """
        self._records[key] = json.loads(json.dumps(record))

    async def delete(self, key: TokenKey) -> None:
        """
        Delete a record, if there is one.

        :param key: Its key.
        """
        self._records.pop(key, None)
        if key.user is None:
            self._default_record = {}

    def _latest_record(self) -> Record:
        return [self._default_record, *(record for key, record in self._records.items() if key.user is None)][-1]

    async def get_tokens(self) -> OAuthToken | None:
        """
        Return the tokens of the server info.

        :returns: The tokens, or None.
        """
        return _tokens_of(self._latest_record())

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """
        Keep tokens for the server info.

        :param tokens: The tokens.
        """
        self._default_record["tokens"] = tokens.model_dump(mode="json", exclude_none=True)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """
        Return the registration of the client.

        :returns: The registration, or None.
        """
        return client_of(self._latest_record())

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """
        Keep the registration of the client.

        :param client_info: The registration.
        """
        self._default_record["client"] = client_info.model_dump(mode="json", exclude_none=True)


@stored_in("haystack_integrations.tools.mcp.oauth")
@dataclass(frozen=True)
class FileTokenStorage(MCPTokenStorage):
    """
    Keeps tokens in files that only their owner can read.

    Processes of one machine that share the folder share the tokens: one of them refreshes, and the others wait for it.
    The tokens are not encrypted. For that, or for several machines, use a `KeyValueTokenStorage`. On a network file
    system without locks, two processes may both refresh, and one of them has to log in again.

    :param folder: The folder, which is created if it does not exist. `~` is the home folder.
    :raises ValueError: If `folder` is not a path.
    """

    folder: str

    def __post_init__(self) -> None:
        """
        Check the folder.

        :raises ValueError: If it is not a path.
        """
        if not isinstance(self.folder, str | Path) or not str(self.folder):
            msg = f"FileTokenStorage: `folder` must be a path, got {self.folder!r}"
            raise ValueError(msg)
        object.__setattr__(self, "folder", str(self.folder))

    def _path(self, key: TokenKey, suffix: str) -> Path:
        return Path(self.folder).expanduser() / f"{key.digest}.{suffix}"

    async def load(self, key: TokenKey) -> Record | None:
        """
        Load a record.

        :param key: Its key.
        :returns: The record; None if it does not exist.
        :raises MCPAuthorizationError: If the file is damaged.
        """
        return await anyio.to_thread.run_sync(self._load, self._path(key, "json"))

    def _load(self, path: Path) -> Record | None:
        try:
            record = json.loads(_while_refused(partial(path.read_text, encoding="utf-8")))
        except FileNotFoundError:
            return None
        except ValueError:
            msg = f"the tokens in {path} cannot be read; delete the file to log in again"
            raise MCPAuthorizationError(msg) from None
        return record if isinstance(record, dict) else None

    async def save(self, key: TokenKey, record: Record) -> None:
        """
        Save a record, atomically replacing the previous one.

        :param key: Its key.
        :param record: The record.
        """
        await anyio.to_thread.run_sync(self._save, self._path(key, "json"), json.dumps(record))

    def _save(self, path: Path, text: str) -> None:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=".", dir=path.parent)  # only its owner can read it
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            _while_refused(partial(Path(name).replace, path))
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    async def delete(self, key: TokenKey) -> None:
        """
        Delete a record, if there is one.

        :param key: Its key.
        """
        await anyio.to_thread.run_sync(_while_refused, partial(self._path(key, "json").unlink, missing_ok=True))

    @asynccontextmanager
    async def lock(self, key: TokenKey) -> AsyncIterator[None]:
        """
        Prevent other processes from getting new tokens at the same time.

        :param key: The key of the record.
        :returns: A context manager. The lock of a process that dies is released.
        """
        path = self._path(key, "lock")
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor, owner = os.open(path, os.O_RDWR | os.O_CREAT, 0o600), os.getpid()
        notice = _warn_later(key)
        try:
            while not _try_lock(descriptor):
                await asyncio.sleep(_LOCK_POLL_INTERVAL)
            notice.cancel()
            yield
        finally:
            notice.cancel()
            if os.getpid() == owner:
                _unlock(descriptor)
            os.close(descriptor)


def _warn_later(key: TokenKey) -> asyncio.TimerHandle:
    message = "Another process is getting a token for {server}, perhaps by a login that nobody has finished yet"
    warn = partial(logger.warning, message, server=redact_url(key.server_url))
    return asyncio.get_running_loop().call_later(_LOCK_NOTICE_DELAY, warn)


def _while_refused(access: Callable[[], _T]) -> _T:
    for _ in range(_FILE_RETRIES):
        with suppress(PermissionError):
            return access()
        time.sleep(_FILE_RETRY_INTERVAL)
    return access()


def _try_lock(descriptor: int) -> bool:
    try:
        if os.name == "nt":
            import msvcrt  # noqa: PLC0415 - only Windows has it

            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        else:
            import fcntl  # noqa: PLC0415 - Windows does not have it

            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        # Network file systems may have no locks: NFS without its lock service, Lustre without `-o flock`.
        if error.errno not in (errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP):
            raise
    return True


def _unlock(descriptor: int) -> None:
    # On Windows, closing the file releases the lock. Elsewhere, a process that was forked meanwhile would keep it.
    if os.name != "nt":
        import fcntl  # noqa: PLC0415 - Windows does not have it

        with suppress(OSError):  # a file system without locks
            fcntl.flock(descriptor, fcntl.LOCK_UN)


@stored_in("haystack_integrations.tools.mcp.oauth")
@dataclass(frozen=True)
class KeyValueTokenStorage(MCPTokenStorage):
    """
    Keeps tokens in a store for `py-key-value-aio`: Redis, DynamoDB, PostgreSQL and many more.

    Processes and machines that share the store share the tokens: one of them refreshes, and the others wait for it. The
    clocks of the machines may differ by up to a minute.
    Wrap the store in that package's `FernetEncryptionWrapper` to encrypt its content.

    ### Usage example

    ```python
    # my_service/stores.py
    from key_value.aio.stores.redis import RedisStore

    def tokens():
        return RedisStore(url="redis://redis:6379")

    # elsewhere
    OAuthConfig(token_storage=KeyValueTokenStorage("my_service.stores:tokens"))
    ```

    :param store: The store (`AsyncKeyValue`), or a function that makes it, or the import path of either. It is used
        only in the event loop of all connections. A process that forks needs a function, which is called again in the
        new process. Only an import path, or a function with one, can be saved to YAML.
    """

    store: Any = field(repr=False)

    @cached_property
    def _stores(self) -> dict[asyncio.AbstractEventLoop, Any]:
        # After a fork, there is another loop. Its requests must not go through connections that both processes have:
        # each would read the answers to the other. The old stores are kept, because closing them may send something.
        return {}

    def __getstate__(self) -> dict[str, Any]:
        """
        Return what a copy has of this object: not the opened stores.
        """
        return {"store": self.store}

    def _open(self) -> Any:
        store = import_object(self.store) if isinstance(self.store, str) else self.store
        return store() if not hasattr(store, "get") or isinstance(store, type) else store

    async def _store(self) -> Any:
        loop = asyncio.get_running_loop()
        if loop not in self._stores:
            store = await anyio.to_thread.run_sync(self._open)  # importing may take long
            self._stores.setdefault(loop, store)
        return self._stores[loop]

    async def load(self, key: TokenKey) -> Record | None:
        """
        Load a record.

        :param key: Its key.
        :returns: The record; None if it does not exist.
        """
        store = await self._store()
        record: Record | None = await store.get(key.digest, collection=_COLLECTION)
        return record

    async def save(self, key: TokenKey, record: Record) -> None:
        """
        Save a record, replacing the previous one.

        :param key: Its key.
        :param record: The record.
        """
        store = await self._store()
        await store.put(key.digest, record, collection=_COLLECTION)

    async def delete(self, key: TokenKey) -> None:
        """
        Delete a record, if there is one.

        :param key: Its key.
        """
        store = await self._store()
        await store.delete(key.digest, collection=_COLLECTION)

    @asynccontextmanager
    async def lock(self, key: TokenKey) -> AsyncIterator[None]:
        """
        Prevent other processes from getting new tokens at the same time.

        :param key: The key of the record.
        :returns: A context manager. The lock of a process that dies expires after two minutes.
        """
        store, owner = await self._store(), uuid.uuid4().hex
        entry = {"key": f"{key.digest}.lock", "collection": _COLLECTION}
        notice = _warn_later(key)
        try:
            while (held := await store.get(**entry) or {}).get("owner") != owner:
                if held.get("until", 0) < time.time():
                    await store.put(
                        value={"owner": owner, "until": time.time() + _LOCK_LEASE}, ttl=_LOCK_LEASE, **entry
                    )
                await asyncio.sleep(_CLAIM_CHECK_DELAY)
            notice.cancel()
            yield
        finally:
            notice.cancel()
            if (await store.get(**entry) or {}).get("owner") == owner:
                await store.delete(**entry)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the storage to a dictionary, without tokens.

        :returns: The dictionary.
        :raises ValueError: If the store has no import path.
        """
        return default_to_dict(self, store=import_path_of(type(self).__name__, "store", self.store))

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> KeyValueTokenStorage:
        """
        Deserialize a storage.

        :param data: The dictionary.
        :returns: The storage.
        :raises DeserializationError: If the module of the store is not on Haystack 3's allowlist.
        """
        check_module_may_be_imported(str(data["init_parameters"]["store"]).partition(":")[0])
        storage: KeyValueTokenStorage = default_from_dict(cls, data)
        return storage


@dataclass(frozen=True)
class SDKTokenStorage(MCPTokenStorage):
    """
    Keeps the tokens of a server info in a storage of the MCP SDK.

    :param storage: The storage.
    """

    storage: TokenStorage = field(repr=False)

    async def load(self, key: TokenKey) -> Record | None:
        """
        Load the content of the storage.

        :param key: The key.
        :returns: A record; None if the storage is empty.
        :raises MCPAuthorizationError: If the key has a user, or another server uses the storage.
        """
        if key.user is not None:
            msg = (
                "the `token_storage` is one of the MCP SDK's protocol, which has one place for tokens, so users of "
                "mcp_request_context cannot have their own. Use InMemoryTokenStorage, FileTokenStorage or "
                "KeyValueTokenStorage"
            )
            raise MCPAuthorizationError(msg)
        parts = {"tokens": await self.storage.get_tokens(), "client": await self.storage.get_client_info()}
        if any(parts.values()):
            _claim_for_server(self.storage, key.server_url)
        record = {name: part.model_dump(mode="json", exclude_none=True) for name, part in parts.items() if part}
        if scope := record.get("tokens", {}).get("scope"):
            record["asked_for"] = scope.split()  # the next best: the scopes that were granted
        return record or None

    async def save(self, key: TokenKey, record: Record) -> None:
        """
        Save the tokens and the client of a record; these storages cannot keep the rest.

        :param key: The key.
        :param record: The record.
        :raises MCPAuthorizationError: If another server uses the storage.
        """
        client, tokens = client_of(record), _tokens_of(record)
        if client is not None or tokens is not None:
            _claim_for_server(self.storage, key.server_url)
        if client is not None:
            await self.storage.set_client_info(client)
        if tokens is not None:
            await self.storage.set_tokens(tokens)

    async def delete(self, key: TokenKey) -> None:  # noqa: ARG002
        """
        Refuse: these storages cannot delete.

        :param key: The key.
        :raises MCPAuthorizationError: Always.
        """
        msg = f"{type(self.storage).__name__} cannot delete tokens"
        raise MCPAuthorizationError(msg)


# The server of each storage of the SDK by the storage's id, and the storages that cannot be referenced weakly.
_server_by_storage: Final[dict[int, str]] = {}
_kept_alive: Final[list[TokenStorage]] = []


def _claim_for_server(storage: TokenStorage, server_url: str) -> None:
    # A storage belongs to the first server that loads or saves something in it.
    server = urljoin(server_url, "/")
    if id(storage) not in _server_by_storage:
        try:
            weakref.finalize(storage, _server_by_storage.pop, id(storage)).atexit = False
        except TypeError:  # an object with `__slots__` is kept alive, so that its id is not reused
            _kept_alive.append(storage)
    if _server_by_storage.setdefault(id(storage), server) != server:
        msg = (
            "authorization failed: the `token_storage` is one of the MCP SDK's protocol, which has one place for "
            "tokens, and another server uses it. Give each server a separate storage, or use InMemoryTokenStorage, "
            "FileTokenStorage or KeyValueTokenStorage"
        )
        raise MCPAuthorizationError(msg)


def _tokens_of(record: Record) -> OAuthToken | None:
    from mcp.shared.auth import OAuthToken  # noqa: PLC0415 - loading a pipeline does not need the SDK

    return OAuthToken.model_validate(record["tokens"]) if record.get("tokens") else None


def client_of(record: Record) -> OAuthClientInformationFull | None:
    """
    Return the client of a record as the SDK's type.

    :param record: The record.
    :returns: The registration; None if it has none.
    """
    from mcp.shared.auth import OAuthClientInformationFull  # noqa: PLC0415 - loading a pipeline does not need the SDK

    return OAuthClientInformationFull.model_validate(record["client"]) if record.get("client") else None


def has_token(record: Record | None) -> TypeGuard[Record]:
    """
    Return whether a record has an access token.

    :param record: The record.
    :returns: True if it has one.
    """
    return record is not None and bool(record.get("tokens", {}).get("access_token"))


def scopes_of(record: Record | None) -> list[str]:
    """
    Return the scopes for which the token of a record was asked, and those that were granted.

    :param record: The record.
    :returns: The scopes, each once.
    """
    tokens = (record or {}).get("tokens") or {}
    return list(dict.fromkeys([*(record or {}).get("asked_for", ()), *(tokens.get("scope") or "").split()]))


def secrets_of(record: Record | None) -> list[str]:
    """
    Return the tokens of a record.

    :param record: The record.
    :returns: Its access token and refresh token, if any.
    """
    tokens = (record or {}).get("tokens") or {}
    return [tokens[name] for name in ("access_token", "refresh_token") if tokens.get(name)]


def is_same(record: Record | None, other: Record | None) -> bool:
    """
    Return whether two records come from the same answer of an authorization server.

    :param record: A record.
    :param other: Another.
    :returns: True if they do. Servers may issue the same token twice, so the serial numbers decide, if both have one.
    """
    one, two = record or {}, other or {}
    if "serial" in one and "serial" in two:
        return bool(one["serial"] == two["serial"])
    return bool(one.get("tokens", {}).get("access_token") == two.get("tokens", {}).get("access_token"))


def has_expired(record: Record | None) -> bool:
    """
    Return whether the token of a record has expired, or will expire soon.

    :param record: The record.
    :returns: True if it has.
    """
    expires_at = (record or {}).get("expires_at")
    lifetime = (record or {}).get("tokens", {}).get("expires_in") or 0
    return expires_at is not None and time.time() >= expires_at - min(_EARLY_SECONDS, lifetime * _EARLY_SHARE)


# The default storage. It is shared, so that a server info that is loaded twice need not log in twice.
process_memory: InMemoryTokenStorage = InMemoryTokenStorage()
