# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The handshake of the revisions up to 2025-11-25, before the question for newer ones.

The SDK's client asks for newer revisions first, with `server/discover`, as the specification recommends
(https://modelcontextprotocol.io/specification/2026-07-28/basic/transports/stdio). Some servers exit, and some never
answer, if the first request is not the handshake.
"""

from __future__ import annotations

from contextlib import AsyncExitStack
from typing import Any

import mcp
from mcp import MCPError, types
from mcp.shared.message import SessionMessage
from mcp.types.version import LATEST_HANDSHAKE_VERSION, LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS

from haystack_integrations.tools.mcp.client.large_results import check_handshake
from haystack_integrations.tools.mcp.client.messages import is_unusable_answer


class HandshakeFirst:
    """
    Makes the SDK's client begin with the handshake, on the same connection.

    .. code-block:: text

        new ──(the SDK asks for revisions; answered here: the server knows none)──> asked
        asked ──(the SDK sends the handshake)──> shaking hands ──(the server answers)──> over

    If the server refuses the handshake, the SDK is told that the server knows newer revisions only. It then asks for
    them once more, and this time the question reaches the server. If that fails, too, the SDK sends the handshake again
    and reports how it was refused.
    """

    def __init__(self) -> None:
        """
        Initialize the HandshakeFirst.
        """
        self._asked = False
        self._request_id: Any = None
        self.is_over: bool = False
        # The error with which the server refused the handshake.
        self.refusal: MCPError | None = None

    def asking(self) -> None:
        """
        Take note that the SDK asks for revisions.

        :raises MCPError: The first time, in place of the server, which is not asked yet.
        """
        if not self._asked:
            self._asked = True
            raise MCPError(types.METHOD_NOT_FOUND, "The handshake comes first")

    def sending(self, message: Any) -> None:
        """
        Look at a message from the SDK.

        :param message: The JSON-RPC message.
        :raises MCPError: As `asking`.
        """
        method = getattr(message, "method", None)
        if method == "server/discover":
            self.asking()
        elif method == "initialize":
            self._request_id = message.id

    def received(self, item: Any) -> Any:
        """
        Look at what came from the server.

        :param item: A message, or an exception of the transport.
        :returns: What the SDK is to get.
        """
        message: Any = getattr(item, "message", None)
        is_answer = isinstance(message, types.JSONRPCResponse | types.JSONRPCError)
        if not is_answer or self._request_id is None or message.id != self._request_id:
            return item
        self.is_over = True
        if isinstance(message, types.JSONRPCError):
            error = MCPError(message.error.code, message.error.message, message.error.data)
            if is_unusable_answer(error):
                return item  # a server that answered does not refuse
        else:
            version = message.result.get("protocolVersion")
            if not isinstance(version, str) or version not in MODERN_PROTOCOL_VERSIONS:
                return item
            error = MCPError(types.UNSUPPORTED_PROTOCOL_VERSION, f"it is not for the revision {version}")
        self.refusal = error
        data = {"supported": [LATEST_MODERN_VERSION], "requested": LATEST_HANDSHAKE_VERSION}
        refusal = types.ErrorData(code=types.UNSUPPORTED_PROTOCOL_VERSION, message=error.error.message, data=data)
        return SessionMessage(types.JSONRPCError(jsonrpc="2.0", id=self._request_id, error=refusal), item.metadata)


class HandshakeClient(mcp.Client):
    """
    An SDK client that refuses a handshake of too many values.

    If it is to begin with the handshake, its first question for revisions never leaves the session: further down it
    would have its request id, and an OpenTelemetry span with an error, already.
    """

    handshake: HandshakeFirst | None = None

    async def _build_session(self, exit_stack: AsyncExitStack) -> mcp.ClientSession:
        session = await super()._build_session(exit_stack)
        check_handshake(session)
        handshake, ask = self.handshake, session.send_discover
        if handshake is None:
            return session

        async def ask_after_handshake(version: str) -> dict[str, Any]:
            handshake.asking()
            return await ask(version)

        session.send_discover = ask_after_handshake  # type: ignore[method-assign]
        return session
