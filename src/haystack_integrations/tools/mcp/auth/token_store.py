# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Where tokens are kept.

.. code-block:: text

    InMemoryTokenStorage     in this process
    FileTokenStorage         in files that only their owner can read; processes of one machine share them
    KeyValueTokenStorage     in a store of the `py-key-value-aio` kind; machines share it
    SDKTokenStorage          in any `mcp.client.auth.TokenStorage`, which has one place for tokens and knows no users
"""

from __future__ import annotations

import hashlib
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from haystack_integrations.tools.mcp.errors import MCPAuthorizationError

if TYPE_CHECKING:
    from mcp.client.auth import TokenStorage
    from mcp.shared.auth import OAuthClientInformationFull, OAuthToken

# What is kept for one key: JSON with the members `tokens` (RFC 6749, 5.1), `expires_at` (seconds since the epoch),
# `client` (RFC 7591, 3.2.1), `authorization_server` (RFC 8414), `resource` (RFC 9728) and `dpop_key` (a PEM).
Record = dict[str, Any]


@dataclass(frozen=True)
class TokenKey:
    """
    Whose tokens they are.

    :param server_url: The MCP server.
    :param client: A digest of what makes the OAuth client another one.
    :param user: The user of `mcp_request_context`, or None for the server info's own.
    """

    server_url: str
    client: str
    user: str | None = None

    @property
    def digest(self) -> str:
        """
        A name without secrets, and safe for files: 64 hexadecimal digits.
        """
        return hashlib.sha256(json.dumps([self.server_url, self.client, self.user]).encode()).hexdigest()


class MCPTokenStorage(ABC):
    """
    Keeps tokens, and what belongs to them, by server, OAuth client and user.

    Records contain secrets. The methods are awaited in the event loop of all connections, which they must not block.
    """

    @abstractmethod
    async def load(self, key: TokenKey) -> Record | None:
        """
        Load a record.

        :param key: Its key.
        :returns: The record, or None if there is none.
        """

    @abstractmethod
    async def save(self, key: TokenKey, record: Record) -> None:
        """
        Save a record in place of the one before.

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
        Keep other processes from changing a record, while one of them gets new tokens.

        Within a process nobody needs it. By default it does nothing.

        :param key: The key of the record.
        :returns: A context manager.
        """
        yield


class InMemoryTokenStorage(MCPTokenStorage):
    """
    Keeps tokens in memory, until the process ends.

    It is also a `TokenStorage` of the MCP SDK, with the tokens of the server info that got some last, of no user.
    """

    def __init__(self) -> None:
        """
        Initialize the InMemoryTokenStorage.
        """
        self._records: dict[TokenKey, Record] = {}
        self._own: Record = {}

    async def load(self, key: TokenKey) -> Record | None:
        """
        Load a record.

        :param key: Its key.
        :returns: The record, or None if there is none.
        """
        record = self._records.get(key)
        if record is None and key.user is None and self._own:
            record = self._own
        return None if record is None else json.loads(json.dumps(record))

    async def save(self, key: TokenKey, record: Record) -> None:
        """
        Save a record in place of the one before.

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
            self._own = {}

    def _last(self) -> Record:
        own = [record for key, record in self._records.items() if key.user is None]
        return own[-1] if own else self._own

    async def get_tokens(self) -> OAuthToken | None:
        """
        Give the tokens of the server info.

        :returns: The tokens, or None.
        """
        return _tokens_of(self._last())

    async def set_tokens(self, tokens: OAuthToken) -> None:
        """
        Keep tokens for the server info.

        :param tokens: The tokens.
        """
        self._own["tokens"] = tokens.model_dump(mode="json", exclude_none=True)

    async def get_client_info(self) -> OAuthClientInformationFull | None:
        """
        Give the registration of the client.

        :returns: It, or None.
        """
        return client_of(self._last())

    async def set_client_info(self, client_info: OAuthClientInformationFull) -> None:
        """
        Keep the registration of the client.

        :param client_info: The registration.
        """
        self._own["client"] = client_info.model_dump(mode="json", exclude_none=True)


@dataclass(frozen=True)
class SDKTokenStorage(MCPTokenStorage):
    """
    Keeps the tokens of a server info in a storage of the MCP SDK.

    :param storage: The storage.
    """

    storage: TokenStorage = field(repr=False)

    async def load(self, key: TokenKey) -> Record | None:
        """
        Load what the storage has.

        :param key: The key.
        :returns: A record, or None if there is nothing.
        :raises MCPAuthorizationError: If the key is that of a user.
        """
        _refuse_users(key)
        tokens, client = await self.storage.get_tokens(), await self.storage.get_client_info()
        record: Record = {}
        if tokens is not None:
            record["tokens"] = tokens.model_dump(mode="json", exclude_none=True)
        if client is not None:
            record["client"] = client.model_dump(mode="json", exclude_none=True)
        return record or None

    async def save(self, key: TokenKey, record: Record) -> None:
        """
        Save tokens and client; there is no place for more.

        :param key: The key.
        :param record: The record.
        :raises MCPAuthorizationError: If the key is that of a user.
        """
        _refuse_users(key)
        client, tokens = client_of(record), _tokens_of(record)
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


def _refuse_users(key: TokenKey) -> None:
    if key.user is not None:
        msg = (
            "the `token_storage` is one of the MCP SDK's protocol, which has one place for tokens, so users of "
            "mcp_request_context cannot have their own. Use InMemoryTokenStorage, FileTokenStorage or "
            "KeyValueTokenStorage"
        )
        raise MCPAuthorizationError(msg)


def _tokens_of(record: Record) -> OAuthToken | None:
    from mcp.shared.auth import OAuthToken  # noqa: PLC0415 - loading a pipeline does not need the SDK

    return OAuthToken.model_validate(record["tokens"]) if record.get("tokens") else None


def client_of(record: Record) -> OAuthClientInformationFull | None:
    """
    Give the client of a record.

    :param record: The record.
    :returns: The registration, or None if there is none.
    """
    from mcp.shared.auth import OAuthClientInformationFull  # noqa: PLC0415 - likewise

    return OAuthClientInformationFull.model_validate(record["client"]) if record.get("client") else None


# Where tokens are without a `token_storage`: a server info that is loaded twice must not log in twice.
process_memory: InMemoryTokenStorage = InMemoryTokenStorage()
