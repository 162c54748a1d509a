# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Negotiates the revision of the protocol that a session speaks.

There are two eras: up to 2025-11-25 a session begins with the handshake, `initialize`; since 2026-07-28 a server is
asked for its revisions with `server/discover`, and no request depends on an earlier one. A server of one era refuses
the opening request of the other, so the client tries one and, if it is refused, the other:

.. code-block:: text

    handshake first    initialize ──refused──> server/discover ──refused──> failed
    discover first     server/discover ──refused, silent, unreadable──> initialize ──refused──> failed

The specification recommends to discover first (https://modelcontextprotocol.io/specification/2026-07-28/basic/versioning).
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, TypeAlias

import mcp_types as types
from mcp_types.version import (
    HANDSHAKE_PROTOCOL_VERSIONS,
    LATEST_HANDSHAKE_VERSION,
    LATEST_MODERN_VERSION,
    MODERN_PROTOCOL_VERSIONS,
)
from pydantic import ValidationError

from haystack_integrations.tools.mcp.convert.odd_messages import repair_result
from haystack_integrations.tools.mcp.protocol.request_errors import (
    LostError,
    ProtocolError,
    RefusedError,
    UnreadableError,
)

# How long a server may take to answer `server/discover`, in seconds.
_DISCOVER_TIMEOUT = 10.0

# Refusals that say nothing about the revisions that a server speaks.
_NO_VERDICT = ("401", "429")

# Sends a request, from its method, its parameters and its revision; None if it belongs to no revision.
Send: TypeAlias = Callable[[str, dict[str, Any], str | None], Awaitable[dict[str, Any]]]


@dataclass(frozen=True, slots=True)
class ServerDetails:
    """
    The details that a server gave about itself when the session was opened.

    :param protocol_version: The negotiated revision of the protocol, e.g. "2026-07-28".
    :param capabilities: Its capabilities, as in the protocol.
    :param implementation: Its name and version.
    :param instructions: Its instructions for a model.
    :param client_extensions: The extensions that this client offered to it, with their settings.
    """

    protocol_version: str | None = None
    capabilities: dict[str, Any] | None = None
    implementation: types.Implementation | None = None
    instructions: str | None = None
    client_extensions: dict[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str | None:
        """
        Name of the server, if it gave one.
        """
        return self.implementation.name if self.implementation else None

    @property
    def version(self) -> str | None:
        """
        Version of the server, if it gave one.
        """
        return self.implementation.version if self.implementation else None

    @property
    def extensions(self) -> dict[str, dict[str, Any]]:
        """
        The extensions of both sides, by identifier.
        """
        both = {"server": (self.capabilities or {}).get("extensions") or {}, "client": self.client_extensions}
        identifiers = sorted({identifier for each in both.values() for identifier in each})
        return {name: {side: offered.get(name) for side, offered in both.items()} for name in identifiers}


class NegotiationError(Exception):
    """
    Raised if client and server have no revision in common. The text lists the revisions.
    """


@dataclass(eq=False)
class Negotiation:
    """
    Negotiates a revision with a server.

    :param send: Sends a request.
    :param client_info: Name and version of the client, as in the protocol.
    :param capabilities: Returns the capabilities of the client in a revision.
    :param within: Limits a wait for the server to seconds, apart from the time in which a person logs in.
    """

    send: Send
    _: KW_ONLY
    client_info: dict[str, Any]
    capabilities: Callable[[str], dict[str, Any]]
    within: Callable[[float], AbstractAsyncContextManager[Any]] = asyncio.timeout

    async def handshake_first(self) -> ServerDetails:
        """
        Begin with the handshake, and ask for newer revisions if it is refused.

        :returns: The server's details.
        :raises RequestError: If the server refuses both.
        :raises NegotiationError: If there is no common revision.
        """
        try:
            return await self.shake_hands()
        except ProtocolError as error:
            refusal = error
        try:
            return await self.discover()
        except (ProtocolError, ValidationError) as error:
            if isinstance(error, ProtocolError) and error.code == types.UNSUPPORTED_PROTOCOL_VERSION:
                raise
            raise refusal from error

    async def discover_first(self) -> ServerDetails:
        """
        Ask for the server's newer revisions, and do the handshake if it has none.

        :returns: The server's details.
        :raises RequestError: If the server refuses both.
        :raises NegotiationError: If there is no common revision.
        """
        try:
            async with self.within(_DISCOVER_TIMEOUT):
                return await self.discover()
        except TimeoutError:
            return await self.handshake_first()  # which asks again if the server is only slow
        except (ValidationError, UnreadableError, NegotiationError):
            pass
        except ProtocolError as error:
            if error.code == types.UNSUPPORTED_PROTOCOL_VERSION and not _lists_handshake(error.data):
                raise
        except (RefusedError, LostError) as error:
            # Some servers cut the connection when they get an unknown request.
            was_cut = isinstance(error, LostError) and error.status is None
            if not was_cut and (error.status is None or error.status.startswith(_NO_VERDICT)):
                raise
        return await self.shake_hands()

    async def shake_hands(self) -> ServerDetails:
        """
        Do the handshake.

        :returns: The server's details.
        :raises RequestError: If the server refuses.
        :raises NegotiationError: If it answers with a revision that this client does not know.
        """
        params = {
            "protocolVersion": LATEST_HANDSHAKE_VERSION,
            "capabilities": self.capabilities(LATEST_HANDSHAKE_VERSION),
            "clientInfo": self.client_info,
        }
        result = await self.send("initialize", params, None)
        version = result.get("protocolVersion")
        if version in MODERN_PROTOCOL_VERSIONS:
            msg = f"it is not for the revision {version}"
            raise ProtocolError(types.UNSUPPORTED_PROTOCOL_VERSION, msg)
        if isinstance(version, str) and version not in HANDSHAKE_PROTOCOL_VERSIONS:
            msg = f"Unsupported protocol version from the server: {version}"
            raise NegotiationError(msg)
        repaired = repair_result("initialize", LATEST_HANDSHAKE_VERSION, result)
        read = types.InitializeResult.model_validate(repaired.result, by_name=False)
        return self._agreed(str(version), read.capabilities, read.server_info, read.instructions)

    async def discover(self) -> ServerDetails:
        """
        Ask for the server's revisions.

        :returns: The server's details.
        :raises RequestError: If the server refuses.
        :raises NegotiationError: If there is no common revision of this era.
        :raises ValidationError: If the answer cannot be read.
        """
        try:
            result = await self._ask(LATEST_MODERN_VERSION)
        except ProtocolError as error:
            common = _common(error.data.get("supported") if isinstance(error.data, dict) else None)
            if error.code != types.UNSUPPORTED_PROTOCOL_VERSION or common is None:
                raise
            result = await self._ask(common)
        repaired = repair_result("server/discover", LATEST_MODERN_VERSION, result)
        read = types.DiscoverResult.model_validate(repaired.result, by_name=False)
        revision = _common(read.supported_versions)
        if revision is None:
            msg = (
                "No mutually supported modern protocol version "
                f"(server: {read.supported_versions}, client: {list(MODERN_PROTOCOL_VERSIONS)})"
            )
            raise NegotiationError(msg)
        return self._agreed(revision, read.capabilities, _server_of(read.meta), read.instructions)

    def _agreed(
        self,
        version: str,
        capabilities: types.ServerCapabilities,
        server: types.Implementation | None,
        instructions: str | None,
    ) -> ServerDetails:
        return ServerDetails(
            protocol_version=version,
            capabilities=capabilities.model_dump(by_alias=True, mode="json", exclude_none=True),
            implementation=server,
            instructions=instructions,
            client_extensions=self.capabilities(version).get("extensions") or {},
        )

    async def _ask(self, version: str) -> dict[str, Any]:
        return await self.send("server/discover", {"_meta": self.envelope(version)}, version)

    def envelope(self, version: str) -> dict[str, Any]:
        """
        Return the fields that describe the client in each request since revision 2026-07-28.

        :param version: The revision.
        :returns: Members of its `_meta`.
        """
        return {
            types.PROTOCOL_VERSION_META_KEY: version,
            types.CLIENT_INFO_META_KEY: self.client_info,
            types.CLIENT_CAPABILITIES_META_KEY: self.capabilities(version),
        }


def _common(supported: Any) -> str | None:
    listed = supported if isinstance(supported, list) else []
    return next((version for version in reversed(MODERN_PROTOCOL_VERSIONS) if version in listed), None)


def _lists_handshake(data: Any) -> bool:
    supported = data.get("supported") if isinstance(data, dict) else None
    return not isinstance(supported, list) or any(version in HANDSHAKE_PROTOCOL_VERSIONS for version in supported)


def _server_of(meta: Any) -> types.Implementation | None:
    # Only for display, so an invalid one is ignored.
    try:
        return types.Implementation.model_validate((meta or {}).get(types.SERVER_INFO_META_KEY), by_name=False)
    except ValidationError:
        return None
