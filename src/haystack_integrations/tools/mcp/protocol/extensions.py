# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Extensions of the protocol that the user brings, as `ClientExtension` objects of the MCP SDK.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Final

from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, TypeAdapter

from haystack_integrations.tools.mcp.protocol.exchange import ProtocolError

# Servers may run calls as tasks (SEP-2663).
TASKS_EXTENSION: Final = "io.modelcontextprotocol/tasks"

# Sends a request of a method with parameters, and its name for the header `Mcp-Name`.
Send = Callable[[str, dict[str, Any] | None, str | None], Awaitable[dict[str, Any]]]


class ClaimSession:
    """
    What the resolver of a claim gets in place of the SDK's session: it can send requests.
    """

    def __init__(self, send: Send, protocol_version: str) -> None:
        """
        Initialize the ClaimSession.

        :param send: Sends a request.
        :param protocol_version: The revision of the protocol.
        """
        self._send = send
        self.protocol_version: str = protocol_version

    async def send_request(self, request: BaseModel, result_type: Any, *_: Any, **__: Any) -> Any:
        """
        Send a request, as the method of the SDK's session does. The limits are those of the call.

        :param request: The request.
        :param result_type: The model of its result, or a type adapter.
        :returns: The result.
        :raises mcp.MCPError: If the server answers with an error.
        """
        from mcp import MCPError  # noqa: PLC0415 - who has such an extension has imported the SDK

        data = request.model_dump(by_alias=True, mode="json", exclude_none=True)
        params = data.get("params")
        name = (params or {}).get(getattr(request, "name_param", None))
        try:
            result = await self._send(data["method"], params, name)
        except ProtocolError as error:
            raise MCPError(error.code, error.message, error.data) from error
        adapter = result_type if isinstance(result_type, TypeAdapter) else TypeAdapter(result_type)
        return adapter.validate_python(result, by_name=False)


class Extensions:
    """
    The extensions that a client has: the user's, and that for tasks.
    """

    def __init__(self, extensions: Sequence[Any]) -> None:
        """
        Initialize the Extensions.

        :param extensions: Those of the user.
        """
        self._settings: dict[str, dict[str, Any]] = {each.identifier: each.settings() for each in extensions}
        self._claims: dict[str, list[Any]] = {each.identifier: list(each.claims()) for each in extensions}
        # What the server may tell of, by method.
        self.bindings: dict[str, Any] = {
            binding.method: binding for each in extensions for binding in each.notifications()
        }

    def advertised(self, version: str) -> dict[str, dict[str, Any]]:
        """
        Return what a server is told. An extension whose only kinds of results a revision does not have is left out.

        :param version: The revision of the protocol.
        :returns: The settings by identifier.
        """
        told = {
            identifier: settings
            for identifier, settings in self._settings.items()
            if not self._claims[identifier] or any(_is_active(claim, version) for claim in self._claims[identifier])
        }
        return {**told, TASKS_EXTENSION: told.get(TASKS_EXTENSION, {})} if version in MODERN_PROTOCOL_VERSIONS else told

    def claim(self, result_type: str, version: str) -> Any:
        """
        Return what the user has for a kind of results.

        :param result_type: The `resultType`.
        :param version: The revision of the protocol.
        :returns: The claim of an extension; None if there is none.
        """
        claims = (claim for of_extension in self._claims.values() for claim in of_extension)
        return next((each for each in claims if each.result_type == result_type and _is_active(each, version)), None)


async def resolve(claim: Any, tool_name: str, result: Mapping[str, Any], session: ClaimSession) -> dict[str, Any]:
    """
    Let the user's extension make an ordinary result of one of its kind.

    :param claim: The claim of the extension.
    :param tool_name: Name of the tool.
    :param result: The result of the call.
    :param session: What the extension sends requests with.
    :returns: The result of the tool, as in the protocol.
    :raises ProtocolError: If the server answers a request of the extension with an error.
    :raises ValidationError: If the result is not what the extension wants.
    """
    from mcp import MCPError  # noqa: PLC0415 - as above
    from mcp.client.extension import ClaimContext  # noqa: PLC0415

    read = claim.model.model_validate(result, by_name=False)
    context = ClaimContext(session=session, tool_name=tool_name, read_timeout_seconds=None)  # type: ignore[arg-type]
    try:
        final = await claim.resolve(read, context)
    except MCPError as error:
        raise ProtocolError(error.code, error.message, error.data) from error
    dumped: dict[str, Any] = final.model_dump(by_alias=True, mode="json", exclude_none=True)
    return dumped


def _is_active(claim: Any, version: str) -> bool:
    versions = MODERN_PROTOCOL_VERSIONS if claim.protocol_versions is None else claim.protocol_versions
    return version in MODERN_PROTOCOL_VERSIONS and version in versions
