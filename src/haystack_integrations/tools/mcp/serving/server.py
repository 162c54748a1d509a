# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import hashlib
import hmac
import importlib.metadata
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from typing import Any, Self

from fastmcp import FastMCP, settings
from fastmcp.server.auth import AccessToken, AuthProvider, TokenVerifier
from fastmcp.server.http import StarletteWithLifespan
from haystack.tools.tool import Tool as HaystackTool
from haystack.tools.toolset import Toolset
from haystack.utils import Secret
from mcp.server.request_state import RequestStateSecurity

from haystack_integrations.tools.mcp.parameters import texts
from haystack_integrations.tools.mcp.secret_template import value_of
from haystack_integrations.tools.mcp.serving.calls import DEFAULT_MAX_CONCURRENCY, guard_of
from haystack_integrations.tools.mcp.serving.changes import announcer_of
from haystack_integrations.tools.mcp.serving.provider import DuplicatePolicy, HaystackProvider
from haystack_integrations.tools.mcp.serving.sources import ServeOptions

# The environment variable with the keys.
_KEYS_VARIABLE = "MCP_HAYSTACK_REQUEST_STATE_KEYS"


class BearerToken(TokenVerifier):
    """
    One token that all clients share: for a few clients of your own.

    For users with rights of their own, take one of FastMCP's providers (`JWTVerifier`, `RemoteAuthProvider`,
    `OAuthProxy` ...).
    """

    def __init__(self, token: Secret | str, *, scopes: Sequence[str] = ()) -> None:
        """
        Initialize the verifier.

        :param token: The token, as a Secret so that it stays out of code and files.
        :param scopes: The scopes that whoever has the token has, for tools that want some.
        :raises ValueError: If the token is empty, or the environment variable of the Secret is not set.
        """
        super().__init__()
        value = value_of(token) if isinstance(token, Secret) else token
        if not isinstance(value, str) or not value.strip():
            msg = "`token` is empty: set the environment variable it comes from, or pass another one"
            raise ValueError(msg)
        # Digests have one length, so that comparing them says nothing about the token. Files of secrets often end with
        # a newline, which no header can have.
        self._digest = hashlib.sha256(value.strip().encode()).digest()
        self._scopes = texts("scopes", scopes)

    async def verify_token(self, token: str) -> AccessToken | None:
        """
        Check a token that a client sent.

        :param token: The token, without `Bearer`.
        :returns: What the client may do, or None if the token is another one.
        """
        if not hmac.compare_digest(hashlib.sha256(token.encode()).digest(), self._digest):
            return None
        return AccessToken(token=token, client_id="bearer", scopes=self._scopes)


def auth_provider(auth: AuthProvider | Secret | None) -> AuthProvider | None:
    """
    Turn what users pass as `auth` into a FastMCP provider.

    :param auth: A provider, which stays as it is, or a Secret: the bearer token that all clients share.
    :returns: The provider, or None for None.
    :raises TypeError: If it is something else.
    """
    if auth is None or isinstance(auth, AuthProvider):
        return auth
    if isinstance(auth, Secret):
        return BearerToken(auth)
    msg = (
        "`auth` must be a provider of `fastmcp.server.auth` (JWTVerifier, RemoteAuthProvider, OAuthProxy ...) or a "
        f"haystack.utils.Secret with a bearer token, not {type(auth).__name__}"
    )
    raise TypeError(msg)


def request_state_security(keys: Sequence[str | Secret] | None = None) -> RequestStateSecurity | None:
    """
    Protect the state that clients carry between two calls with keys that several processes share.

    :param keys: Secrets of at least 32 bytes each. The first one encrypts; all of them decrypt, so that a key can be
        replaced while the server runs. By default those of the environment variable
        `MCP_HAYSTACK_REQUEST_STATE_KEYS`, separated by commas.
    :returns: What FastMCP takes; None without keys: then it makes a key that no other process has.
    :raises ValueError: If a key is too short, or given twice.
    """
    if keys is None:
        found = _keys_of_environment()
    else:
        found = [each if isinstance(each, str) else each.resolve_value() or "" for each in keys]
    found = [each for each in found if each]
    return RequestStateSecurity(keys=found) if found else None


def _keys_of_environment() -> list[str]:
    return [each for each in map(str.strip, os.environ.get(_KEYS_VARIABLE, "").split(",")) if each]


@contextmanager
def keys_for_workers() -> Iterator[None]:
    """
    Give the processes that are started meanwhile one key, unless the environment has some.

    :returns: A context manager.
    """
    before = os.environ.get(_KEYS_VARIABLE)
    if not _keys_of_environment():
        os.environ[_KEYS_VARIABLE] = secrets.token_hex(32)
    try:
        yield
    finally:
        os.environ.pop(_KEYS_VARIABLE)
        if before is not None:
            os.environ[_KEYS_VARIABLE] = before


class HaystackServer(FastMCP[Any]):
    """
    A FastMCP that serves what was built in Haystack, as `create_mcp_server` makes it.

    It also tells clients what changed, and takes keys as FastMCP 3 wrote them: `disable(keys={"tool:x"})` disables all
    versions of the tool `x`, where FastMCP 4 would disable nothing.
    """

    def __init__(self, name: str, haystack: HaystackProvider, **options: Any) -> None:
        """
        Initialize the HaystackServer.

        :param name: The name of the server.
        :param haystack: What it serves.
        :param options: Parameters of FastMCP.
        """
        super().__init__(name, **options)
        self.haystack = haystack
        # What is Haystack's is removed in the same way.
        local = self.local_provider
        local.remove_tool = _or_else(local.remove_tool, haystack.remove_tool)  # type: ignore[method-assign]
        guard_of(self)
        announcer_of(self)
        self.add_provider(haystack)
        if haystack.completes:
            self.add_completion_handler(haystack.complete)

    def add_tool(self, tool: Any, options: ServeOptions | None = None) -> Any:
        """
        Serve one more tool.

        :param tool: A tool or toolset of Haystack, which is served with the options; or a function, or a tool of
            FastMCP, which FastMCP serves.
        :param options: What is said of a tool or toolset of Haystack.
        :returns: What was added.
        :raises ValueError: If it cannot be served, or there are options for a tool of FastMCP.
        """
        if isinstance(tool, HaystackTool | Toolset):
            self.haystack.add_tool(tool, options)
            return tool
        if options is not None:
            msg = "`options` are for tools and toolsets of Haystack; FastMCP has the decorator `server.tool`"
            raise ValueError(msg)
        return super().add_tool(tool)

    def http_app(self, *args: Any, **options: Any) -> StarletteWithLifespan:
        """
        Make an ASGI application as FastMCP does, which checks Host and Origin.

        `haystack_integrations.tools.mcp.serving.http_app` makes one that also lets calls finish when the process stops.

        :param args: As for FastMCP.
        :param options: As for FastMCP. By default `host_origin_protection` and `allowed_origins` are what FastMCP's
            settings say, or else `"auto"` and none.
        :returns: The application.
        """
        if options.get("allowed_origins") is None:
            # Without a list, FastMCP does not look at the Origin of requests to an address that is no loopback one.
            options["allowed_origins"] = list(settings.http_allowed_origins or ())
        return super().http_app(*args, **_with_protection(options))

    async def run_http_async(self, *args: Any, **options: Any) -> None:
        """
        Serve over HTTP as FastMCP does, for `run` and `fastmcp run`, and check Host and Origin.

        :param args: As for FastMCP.
        :param options: As for `http_app`, and as for FastMCP.
        """
        await super().run_http_async(*args, **_with_protection(options))

    def enable(self, *, keys: set[str] | None = None, only: bool = False, **criteria: Any) -> Self:
        """
        Enable what meets all criteria for clients.

        :param keys: Keys: `tool:x@2` for one version, `tool:x@` for a tool without version, `tool:x` for all versions.
        :param only: Whether everything else is disabled.
        :param criteria: Names, versions, tags and components, as for FastMCP.
        :returns: The server.
        """
        for each in _split(keys, criteria):
            super().enable(**each, only=only)
            only = False
        return self

    def disable(self, *, keys: set[str] | None = None, **criteria: Any) -> Self:
        """
        Hide from clients what meets all criteria, and refuse calls of it.

        :param keys: As for `enable`.
        :param criteria: As for `enable`.
        :returns: The server.
        """
        for each in _split(keys, criteria):
            super().disable(**each)
        return self


def _with_protection(options: dict[str, Any]) -> dict[str, Any]:
    # FastMCP's own default is to check nothing.
    setting = "http_host_origin_protection"
    default = settings.http_host_origin_protection if setting in settings.model_fields_set else "auto"
    chosen = options.get("host_origin_protection")
    return {**options, "host_origin_protection": default if chosen is None else chosen}


def _or_else(first: Callable[..., None], second: Callable[..., None]) -> Callable[..., None]:
    @wraps(first)
    def function(*args: Any, **kwargs: Any) -> None:
        try:
            first(*args, **kwargs)
        except KeyError:
            second(*args, **kwargs)

    return function


def _split(keys: set[str] | None, criteria: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Write keys without a version as names of one kind; FastMCP takes criteria that are met together only."""
    short = {key for key in keys or () if "@" not in key}
    if keys is None or keys != short:
        yield {**criteria, "keys": None if keys is None else keys - short}
    by_kind: dict[str, set[str]] = {}
    for key in short:
        kind, _, name = key.partition(":")
        if not name:
            msg = f"{key!r} is no key: it must be like tool:NAME"
            raise ValueError(msg)
        by_kind.setdefault(kind, set()).add(name)
    for kind, names in by_kind.items():
        yield {**criteria, "names": names, "components": {kind}}


def create_mcp_server(
    name: str,
    *,
    tools: Any = None,
    pipelines: Any = None,
    agents: Any = None,
    document_stores: Any = None,
    prompts: Any = None,
    skills: Any = None,
    options: Any = None,
    auth: AuthProvider | Secret | None = None,
    max_concurrency: int = DEFAULT_MAX_CONCURRENCY,
    mask_error_details: bool = True,
    strict_input_validation: bool = False,
    dereference_schemas: bool = True,
    on_duplicate: DuplicatePolicy = "warn",
    request_state_keys: Sequence[str | Secret] | None = None,
    **fastmcp_options: Any,
) -> HaystackServer:
    """
    Create an MCP server that serves what was built in Haystack.

    :param name: The name of the server, and of its queue of background tasks: servers that share a Redis and serve
        different things need different names.
    :param tools: Tools, Toolsets and functions, as a list; each alone, or with options for this one as a pair:
        `(tool, ServeOptions(...))`.
    :param pipelines: Pipelines, by the names that clients see.
    :param agents: Agents, by the names that clients see.
    :param document_stores: Document stores, by the names that clients see in URIs.
    :param prompts: Prompt builders, by the names that clients see.
    :param skills: Skill stores (Haystack 3).
    :param options: ServeOptions by the name of what they are for.
    :param auth: Who may use the server over HTTP: a provider of `fastmcp.server.auth`, or a Secret that is the bearer
        token of all clients.
    :param max_concurrency: How many calls run at a time, of all that has no limit of its own. Eight times as many wait;
        the next is refused with an error that says that the server is busy.
    :param mask_error_details: Whether clients get to see no more of an error than that there was one. The message of a
        `fastmcp.exceptions.ToolError` is always shown.
    :param strict_input_validation: Whether arguments of another JSON type are refused. Otherwise "10" is taken for the
        integer 10.
    :param dereference_schemas: Whether clients get schemas without `$ref`, which some of them do not understand.
    :param on_duplicate: What becomes of two things of one name and version: the last one is served, with a warning in
        the log (`"warn"`, the default) or without (`"replace"`), the first one (`"ignore"`), or it is an error
        (`"error"`).
    :param request_state_keys: Secrets of at least 32 bytes. They encrypt what a client of revision 2026-07-28 carries
        from a call that asks something to the call that answers. Processes that share the work need the same ones, and
        servers of the same name. The first one encrypts, all of them decrypt. By default those of the environment
        variable `MCP_HAYSTACK_REQUEST_STATE_KEYS`, separated by commas, or else one that only this process has.
    :param fastmcp_options: Further parameters of `fastmcp.FastMCP`: `instructions`, `version` (by default that of this
        package), `middleware`, ...
    :returns: The server. It is a FastMCP, so everything that FastMCP does with servers works with it.
    :raises ValueError: If something cannot be served.
    :raises ImportError: If something needs a package that is not installed.
    """
    provider = HaystackProvider(
        tools=tools,
        pipelines=pipelines,
        agents=agents,
        document_stores=document_stores,
        prompts=prompts,
        skills=skills,
        options=options,
        max_concurrency=max_concurrency,
        on_duplicate=on_duplicate,
        task_queue=name,
    )
    return HaystackServer(
        name,
        provider,
        auth=auth_provider(auth),
        mask_error_details=mask_error_details,
        strict_input_validation=strict_input_validation,
        dereference_schemas=dereference_schemas,
        on_duplicate=on_duplicate,
        **{
            "request_state_security": request_state_security(request_state_keys),
            # Not FastMCP's, which it would be otherwise.
            "version": importlib.metadata.version("mcp-haystack"),
            **fastmcp_options,
        },
    )
