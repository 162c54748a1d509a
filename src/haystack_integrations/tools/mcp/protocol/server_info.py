# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The base classes of server infos, custom ones included, their serialization, and time limits that logins pause.

The server infos of this package are in `transports.server_infos`.
"""

from __future__ import annotations

import asyncio
import dataclasses
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from difflib import get_close_matches
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, NoReturn, TypeVar

from haystack.core.serialization import generate_qualified_class_name, import_class_by_name
from haystack.utils import Secret
from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.import_paths import import_object
from haystack_integrations.tools.mcp.parameters import CHECKED, MAX_TIMEOUT, Seconds, unchanged_fields
from haystack_integrations.tools.mcp.redaction import redact_fields, secrets_in
from haystack_integrations.tools.mcp.secret_template import load_template, value_of

if TYPE_CHECKING:
    from haystack_integrations.tools.mcp.protocol.mcp_client import MCPClient
    from haystack_integrations.tools.mcp.request_context import MCPRequestContext

InfoT = TypeVar("InfoT", bound="MCPServerInfo")

# The first pause after repeated failures of a server, in seconds.
DEFAULT_FAILURE_PAUSE = 5.0

# How the revision of the protocol is negotiated.
NegotiationMode = Literal["auto", "handshake", "discover"]

# Stored pipelines name built-in server infos by the first module, although they are defined below the second.
_STORED_MODULE = "haystack_integrations.tools.mcp.mcp_tool"
_BUILT_IN = "haystack_integrations.tools.mcp.transports."


# Far more than a model can read, and more than an image or a listing of 5,000 tools takes. Copying a message of this
# size takes 10 to 40 ms, during which the event loop of all sessions is blocked.
DEFAULT_MAX_MESSAGE_SIZE = 16 * 1024 * 1024

# The types of fields that several server infos have.
Retries = Annotated[int, Field(ge=0)]
Delay = Annotated[float, Field(ge=0, le=MAX_TIMEOUT)]
# The minimum leaves room for the answer to a handshake.
MessageSize = Annotated[int, Field(ge=1024)]
Secrets = dict[str, str | Secret]


def _serialize(value: Any) -> Any:
    if isinstance(value, Secret):
        return value.to_dict()
    if isinstance(value, Mapping):
        return {key: _serialize(item) for key, item in value.items()}
    return [_serialize(item) for item in value] if isinstance(value, (list, tuple)) else value


def _deserialize(value: Any) -> Any:
    if isinstance(value, Mapping):
        # An environment may also have a variable of the name `type`, but its values are strings.
        if value.get("type") == "env_var" and isinstance(value.get("env_vars"), list):
            return Secret.from_dict(dict(value))
        if (template := load_template(value)) is not None:
            return template
        return {key: _deserialize(item) for key, item in value.items()}
    return [_deserialize(item) for item in value] if isinstance(value, list) else value


class MCPServerInfo(ABC):
    """
    Abstract base class for MCP server connection parameters.

    This class defines the common interface for all MCP server connection types. To add one, derive a dataclass from it
    and implement `create_client`.
    """

    # The fields that are written to YAML even if they have their default, because every version of this package knows
    # them; None for all.
    _always_stored: ClassVar[Collection[str] | None] = None
    # Name of the transport in structured logs.
    _transport_name: ClassVar[str] = "custom"

    @property
    def _modules(self) -> tuple[str, ...]:
        """
        The modules that its client needs. They are slow to import, so a connection imports them in a thread.
        """
        return ("mcp",)  # a custom client most likely uses it

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """
        Keep `@dataclass` from giving a subclass a `__repr__` that shows secrets.
        """
        super().__init_subclass__(**kwargs)
        cls.__repr__ = cls.__repr__  # type: ignore[method-assign]

    @abstractmethod
    def create_client(self) -> MCPClient:
        """
        Create an appropriate MCP client for this server info.

        :returns: An instance of MCPClient configured with this server info.
        """

    @property
    def _has_providers(self) -> bool:
        """
        Whether functions of the user provide headers of requests.
        """
        return False

    @property
    def _may_log_in(self) -> bool:
        """
        Whether a person may have to log in at the server.
        """
        return False

    def _is_logging_in(self, *, is_own: bool) -> bool:  # noqa: ARG002 - for subclasses
        """
        Return whether a person is logging in at the server now.

        :param is_own: Whether only the user of the running operation counts.
        """
        return False

    async def _provided_headers(self, context: MCPRequestContext) -> dict[str, str]:  # noqa: ARG002 - for subclasses
        """
        Return the headers that functions of the user provide.
        """
        return {}

    def describe(self) -> str:
        """
        Describe the kind and the address of the server for messages, without secrets.

        :returns: A noun phrase.
        """
        return type(self).__name__

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize this server info to a dictionary.

        :returns: Dictionary representation of this server info.
        :raises ValueError: If it holds a token-based `Secret`, which Haystack does not write to files.
        """
        return {"type": self._serialized_type(), **{name: _serialize(value) for name, value in self._fields().items()}}

    @classmethod
    def from_dict(cls: type[InfoT], data: dict[str, Any]) -> InfoT:
        """
        Deserialize server info from a dictionary.

        Called on `MCPServerInfo` itself, it builds an instance of the class that `data["type"]` names.

        :param data: Dictionary containing serialized server info.
        :returns: Instance of the appropriate server info class.
        :raises ValueError: If `data` has parameters unknown to the class.
        """
        if cls is MCPServerInfo:
            return server_info_from_dict(data)  # type: ignore[return-value]
        parameters = {key: _deserialize(value) for key, value in data.items() if key != "type"}
        if dataclasses.is_dataclass(cls):
            known = [field.name for field in dataclasses.fields(cls) if field.init]
            if unknown := [key for key in parameters if key not in known]:
                msg = f"{cls.__name__} has no parameter {', '.join(map(repr, unknown))}; it knows {', '.join(known)}"
                if closest := get_close_matches(unknown[0], known, 1):
                    msg += f". Did you mean `{closest[0]}`?"
                raise ValueError(msg)
        return cls(**parameters)

    def _fields(self) -> dict[str, Any]:
        values = (
            {field.name: getattr(self, field.name) for field in dataclasses.fields(self)}
            if dataclasses.is_dataclass(self)
            else {key: value for key, value in vars(self).items() if not key.startswith("_")}
        )
        always = self._always_stored
        if always is None:
            return values
        usual = unchanged_fields(self)
        return {name: value for name, value in values.items() if name in always or name not in usual}

    def _serialized_type(self) -> str:
        name = generate_qualified_class_name(type(self))
        return f"{_STORED_MODULE}.{type(self).__name__}" if name.startswith(_BUILT_IN) else name

    def _secrets(self) -> set[str]:
        """
        Return the credentials that the server gets, with the current values of Secrets.
        """
        return secrets_in(self._fields())

    def _refuse(self, text: str) -> NoReturn:
        """
        Refuse a parameter.

        :param text: What is wrong.
        :raises ValueError: Always.
        """
        raise ValueError(text)

    def _redacted_fields(self) -> dict[str, Any]:
        return redact_fields(self._fields())

    def _to_trace_dict(self) -> dict[str, Any]:
        return {"type": self._serialized_type(), **self._redacted_fields()}

    def __repr__(self) -> str:
        usual = unchanged_fields(self)
        shown = {name: value for name, value in self._redacted_fields().items() if name not in usual}
        fields = ", ".join(f"{name}={value!r}" for name, value in shown.items())
        return f"{type(self).__name__}({fields})"


@checked_dataclass(kw_only=True, repr=False, config=CHECKED)
class BuiltInServerInfo(MCPServerInfo):
    """
    The parameters that all server infos of this package have.

    :param max_in_flight: How many calls of this process may be in flight at the server, from all tools and toolsets.
        Further calls wait, which counts as their time. Calls that became tasks are not counted. Default: any number.
    :param failure_pause: For how many seconds calls fail at once after 5 of the last 10 calls failed because of the
        server. If the next call after the pause also fails, the next pause is twice as long, up to a minute; an answer
        ends the pauses. Default: 5 seconds. None for no pauses.
    :param negotiation: How the revision of the protocol is negotiated. `"handshake"` allows only the revisions up to
        2025-11-25, which some servers need in order to send requests to their client. `"discover"` asks for newer
        revisions first, and does the handshake if the server has none. `"auto"`, the default, is the same as
        `"discover"` in process and over Streamable HTTP; over stdio and SSE it does the handshake first, and asks for
        newer revisions only if the server refuses that.
    """

    # Import path of its client. It is not imported here, because clients load the types of the protocol and httpx2, and
    # a pipeline that is only built or loaded must not wait for that.
    _client: ClassVar[str]

    max_in_flight: Annotated[int, Field(ge=1)] | None = None
    failure_pause: Seconds | None = DEFAULT_FAILURE_PAUSE
    negotiation: NegotiationMode = "auto"

    @property
    def _modules(self) -> tuple[str, ...]:
        return (self._client.partition(":")[0],)

    def create_client(self) -> MCPClient:
        """
        Create an MCP client for this server.

        :returns: A client that is not connected.
        """
        client: MCPClient = import_object(self._client).of(self)
        return client


def server_info_from_dict(data: dict[str, Any]) -> MCPServerInfo:
    """
    Build a server info of the class that serialized data names.

    The import goes through Haystack's own deserialisation checks, and nothing but a server info is ever built.

    :param data: Dictionary containing serialized server info.
    :returns: The server info.
    :raises ValueError: If `data` has no class name.
    :raises TypeError: If the class is not a server info.
    """
    path = data.get("type") if isinstance(data, Mapping) else None
    if not isinstance(path, str) or "." not in path:
        example = "haystack_integrations.tools.mcp.StdioServerInfo"
        msg = f"`server_info` must be a dictionary with the class path of a server info under 'type', such as {example}"
        raise ValueError(msg)
    cls = import_class_by_name(path)
    if not (isinstance(cls, type) and issubclass(cls, MCPServerInfo)) or cls is MCPServerInfo:
        msg = f"'{path}' is not a subclass of MCPServerInfo, so no server info is built from it"
        raise TypeError(msg)
    return cls.from_dict(dict(data))


def resolve_secrets(values: Mapping[str, str | Secret] | None) -> dict[str, str]:
    """
    Replace Secrets with their values.

    :param values: Headers or environment variables.
    :returns: The values as strings. Entries whose optional Secret has no value are omitted, with a warning.
    :raises ValueError: If a required Secret has no value.
    """
    resolved: dict[str, str] = {}
    for name, value in (values or {}).items():
        plain = value_of(value, name) if isinstance(value, Secret) else value
        if plain is not None:
            resolved[name] = str(plain)
    return resolved


# Seconds between two checks whether a person is still logging in.
_LOGIN_POLL_INTERVAL = 0.5


@asynccontextmanager
async def within(seconds: float | None, server_info: MCPServerInfo | None) -> AsyncIterator[None]:
    """
    Limit a wait for a server. Its clock stops while a person logs in there; logins have a limit of their own.

    :param seconds: How long it may take; None for no limit.
    :param server_info: The server; None if it is not known.
    :returns: A context manager.
    """
    async with asyncio.timeout(seconds) as limit:

        def extend(more: float) -> None:
            end = limit.when()
            if end is not None and not limit.expired():
                limit.reschedule(end + more)

        if server_info is not None and server_info._may_log_in:
            # A different user may open the shared session.
            with extended_by_logins(server_info, extend, is_own=False):
                yield
        else:
            yield


@contextmanager
def extended_by_logins(server_info: MCPServerInfo, extend: Callable[[float], None], *, is_own: bool) -> Iterator[None]:
    """
    Pause a limit while a person logs in: the time that is left when the login begins is left when it ends.

    :param server_info: The server.
    :param extend: Moves the end of the limit by the seconds that it gets.
    :param is_own: Whether only a login of the running operation's user counts.
    :returns: A context manager.
    """
    now = asyncio.get_running_loop().time

    async def look() -> None:
        while True:
            checked_at = now()
            await asyncio.sleep(_LOGIN_POLL_INTERVAL)
            if server_info._is_logging_in(is_own=is_own):
                extend(now() - checked_at)

    polling = asyncio.create_task(look())
    try:
        yield
    finally:
        polling.cancel()
