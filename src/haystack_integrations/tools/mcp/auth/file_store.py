# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import json
import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread
from haystack import default_from_dict, default_to_dict, logging

from haystack_integrations.tools.mcp.auth.token_store import MCPTokenStorage, Record, TokenKey
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError

logger: logging.PatchedLogger = logging.getLogger(__name__)

# Seconds between two looks at a lock that another process has.
_POLL = 0.05


@dataclass(frozen=True)
class FileTokenStorage(MCPTokenStorage):
    """
    Keeps tokens in files that only their owner can read.

    Processes of one machine that share the folder share the tokens: one of them refreshes, and the others wait for it.
    The tokens are not encrypted. For that, or for several machines, use a `KeyValueTokenStorage`.

    :param folder: The folder, which is created if it does not exist. `~` is the home folder.
    """

    folder: str

    def __post_init__(self) -> None:
        """
        Refuse an invalid folder.

        :raises ValueError: If it is no path.
        """
        if isinstance(self.folder, Path):
            object.__setattr__(self, "folder", str(self.folder))
        if not isinstance(self.folder, str) or not self.folder:
            msg = f"FileTokenStorage: `folder` must be a path, got {self.folder!r}"
            raise ValueError(msg)

    def _path(self, key: TokenKey, suffix: str) -> Path:
        return Path(self.folder).expanduser() / f"{key.digest}.{suffix}"

    async def load(self, key: TokenKey) -> Record | None:
        """
        Load a record.

        :param key: Its key.
        :returns: The record, or None if there is none.
        :raises MCPAuthorizationError: If it cannot be read.
        """
        return await anyio.to_thread.run_sync(self._load, key)

    def _load(self, key: TokenKey) -> Record | None:
        path = self._path(key, "json")
        try:
            with path.open(encoding="utf-8") as file:
                if os.name == "posix" and os.fstat(file.fileno()).st_mode & 0o077:
                    logger.warning("{path} could be read by others; now only its owner can", path=str(path))
                    os.fchmod(file.fileno(), 0o600)
                record = json.load(file)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            msg = f"the tokens in {path} cannot be read ({_reason(error)}); delete the file to log in again"
            raise MCPAuthorizationError(msg) from None
        return record if isinstance(record, dict) else None

    async def save(self, key: TokenKey, record: Record) -> None:
        """
        Save a record in place of the one before, whole or not at all.

        :param key: Its key.
        :param record: The record.
        :raises MCPAuthorizationError: If it cannot be written.
        """
        await anyio.to_thread.run_sync(self._save, key, record)

    def _save(self, key: TokenKey, record: Record) -> None:
        path = self._path(key, "json")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor, name = tempfile.mkstemp(prefix=".", dir=path.parent)  # for its owner only
            try:
                with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                    json.dump(record, file)
                    file.flush()
                    os.fsync(file.fileno())
                Path(name).replace(path)
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise
        except OSError as error:
            msg = f"the tokens cannot be written to {path} ({_reason(error)})"
            raise MCPAuthorizationError(msg) from None

    async def delete(self, key: TokenKey) -> None:
        """
        Delete a record, if there is one.

        :param key: Its key.
        """
        await anyio.to_thread.run_sync(lambda: self._path(key, "json").unlink(missing_ok=True))

    @asynccontextmanager
    async def lock(self, key: TokenKey) -> AsyncIterator[None]:
        """
        Keep other processes from getting new tokens at the same time.

        :param key: The key of the record.
        :returns: A context manager. A process that dies leaves no lock.
        """
        path = self._path(key, "lock")
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
        except OSError as error:
            msg = f"the lock {path} cannot be opened ({_reason(error)})"
            raise MCPAuthorizationError(msg) from None
        try:
            while not _try_lock(descriptor):
                await asyncio.sleep(_POLL)
            yield
        finally:
            os.close(descriptor)  # which unlocks it

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the storage to a dictionary, without tokens.

        :returns: The dictionary.
        """
        return default_to_dict(self, folder=self.folder)

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> FileTokenStorage:
        """
        Deserialize a storage.

        :param data: The dictionary.
        :returns: The storage.
        """
        storage: FileTokenStorage = default_from_dict(cls, data)
        return storage


def _try_lock(descriptor: int) -> bool:
    if os.name == "nt":
        import msvcrt  # noqa: PLC0415 - there is none elsewhere

        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
        except OSError:
            return False
        return True
    import fcntl  # noqa: PLC0415 - Windows has none

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _reason(error: Exception) -> str:
    return getattr(error, "strerror", None) or type(error).__name__
