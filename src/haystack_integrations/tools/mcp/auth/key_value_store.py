# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

import anyio.to_thread
from haystack import default_from_dict, default_to_dict

from haystack_integrations.tools.mcp.auth.token_store import MCPTokenStorage, Record, TokenKey
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.haystack_compat import check_module_may_be_imported
from haystack_integrations.tools.mcp.import_paths import import_object, import_path_of, is_import_path

# How long a process may hold a lock, in seconds: longer than any refresh takes. A login may take longer, and then two
# processes may ask for one.
_LEASE = 120.0

# Seconds from claiming a lock to looking who has it, and between two looks. Two processes that claim it at the same
# time see the same one of them, unless a write takes longer than this (Fischer's algorithm: these stores cannot
# compare and set).
_SETTLE = 0.25


@dataclass(frozen=True)
class KeyValueTokenStorage(MCPTokenStorage):
    """
    Keeps tokens in a store of the kind of `py-key-value-aio`: Redis, DynamoDB, PostgreSQL and many more.

    Processes and machines that share the store share the tokens: one of them refreshes, and the others wait for it.
    Wrap the store in the package's `FernetEncryptionWrapper` to encrypt what is in it.

    ### Usage example

    ```python
    # my_service/stores.py
    from key_value.aio.stores.redis import RedisStore

    def tokens():
        return RedisStore(url="redis://redis:6379")

    # elsewhere
    OAuthConfig(token_storage=KeyValueTokenStorage("my_service.stores:tokens"))
    ```

    :param store: The store (`AsyncKeyValue`), or a function that makes it, or the import path of either. It is used in
        the event loop of all connections only. Only an import path, or a function with one, can be saved to YAML.
    :param collection: The collection of the store.
    :raises ValueError: If a parameter is invalid.
    """

    store: Any = field(repr=False)
    collection: str = "mcp-haystack-tokens"

    def __post_init__(self) -> None:
        """
        Refuse invalid parameters.

        :raises ValueError: Naming the parameter and what it takes.
        """
        has_methods = all(hasattr(self.store, method) for method in ("get", "put", "delete"))
        if not has_methods and not callable(self.store) and not is_import_path(self.store):
            shown = repr(self.store) if isinstance(self.store, str) else type(self.store).__name__
            msg = (
                "KeyValueTokenStorage: `store` must be a store of py-key-value-aio, a function that makes one, "
                f"or an import path 'package.module:name', got {shown}"
            )
            raise ValueError(msg)
        if not isinstance(self.collection, str) or not self.collection:
            msg = f"KeyValueTokenStorage: `collection` must be a string that is not empty, got {self.collection!r}"
            raise ValueError(msg)
        object.__setattr__(self, "_made", {})

    async def _store(self) -> Any:
        made: dict[str, Any] = vars(self)["_made"]
        if "store" not in made:
            try:
                made["store"] = await anyio.to_thread.run_sync(self._make)
            except Exception as error:
                what = f"{type(error).__name__}: {error}"
                msg = f"the `store` of KeyValueTokenStorage could not be made ({what})"
                raise MCPAuthorizationError(msg) from error
        return made["store"]

    def _make(self) -> Any:
        store = import_object(self.store) if isinstance(self.store, str) else self.store
        return store() if not hasattr(store, "get") or isinstance(store, type) else store

    async def load(self, key: TokenKey) -> Record | None:
        """
        Load a record.

        :param key: Its key.
        :returns: The record, or None if there is none.
        """
        store = await self._store()
        record: Record | None = await store.get(key.digest, collection=self.collection)
        return record

    async def save(self, key: TokenKey, record: Record) -> None:
        """
        Save a record in place of the one before.

        :param key: Its key.
        :param record: The record.
        """
        store = await self._store()
        await store.put(key.digest, record, collection=self.collection)

    async def delete(self, key: TokenKey) -> None:
        """
        Delete a record, if there is one.

        :param key: Its key.
        """
        store = await self._store()
        await store.delete(key.digest, collection=self.collection)

    @asynccontextmanager
    async def lock(self, key: TokenKey) -> AsyncIterator[None]:
        """
        Keep other processes from getting new tokens at the same time.

        :param key: The key of the record.
        :returns: A context manager. The lock of a process that dies ends after two minutes.
        """
        store, name, owner = await self._store(), f"{key.digest}.lock", uuid.uuid4().hex
        place = {"key": name, "collection": self.collection}
        while True:
            held = await store.get(**place)
            if held is None or held.get("until", 0) < time.time():
                await store.put(value={"owner": owner, "until": time.time() + _LEASE}, ttl=_LEASE, **place)
                await asyncio.sleep(_SETTLE)
                held = await store.get(**place)
                if held is not None and held.get("owner") == owner:
                    break
            else:
                await asyncio.sleep(_SETTLE)
        try:
            yield
        finally:
            held = await store.get(**place)
            if held is not None and held.get("owner") == owner:
                await store.delete(**place)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the storage to a dictionary, without tokens.

        :returns: The dictionary.
        :raises ValueError: If the store has no import path.
        """
        return default_to_dict(self, store=import_path_of(self, "store", self.store), collection=self.collection)

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
