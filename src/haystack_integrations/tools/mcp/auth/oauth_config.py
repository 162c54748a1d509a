# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The settings of OAuth, and the logins under way. It does not import the MCP SDK, so that loading YAML stays cheap.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import sys
import uuid
import webbrowser
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from haystack.utils import Secret
from pydantic import PlainValidator, ValidationInfo
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.auth.token_storage import (
    InMemoryTokenStorage,
    MCPTokenStorage,
    SDKTokenStorage,
    process_memory,
)
from haystack_integrations.tools.mcp.haystack_compat import OBJECT, check_module_may_be_imported
from haystack_integrations.tools.mcp.import_paths import import_object, import_path_of, is_import_path, shown_function
from haystack_integrations.tools.mcp.parameters import (
    CHECKED,
    Options,
    Seconds,
    StoredAs,
    Text,
    explains_options,
    is_url,
    short_repr,
)
from haystack_integrations.tools.mcp.redaction import redact_fields, redact_url
from haystack_integrations.tools.mcp.secret_template import load_template

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import TokenStorage
else:
    TokenStorage = Any


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPLoginRequest:
    """
    A login that waits for a user. The `redirect_handler` and the `callback_handler` of `OAuthConfig` receive it.

    :param url: The authorization server's page where the user allows the access. Show it only to this user.
    :param redirect_uri: Where the authorization server sends the browser afterwards.
    :param state: The `state` in `url`. The answer at the redirect URI has it too, which identifies its login.
    :param server_url: The MCP server.
    :param user: The user of `mcp_request_context`, if there is one.
    """

    url: str = field(repr=False)
    redirect_uri: str
    state: str = field(repr=False)
    server_url: str
    user: str | None = None


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPAssertionRequest:
    """
    A request for an assertion, e.g. the token of a workload.

    The `assertion_provider` of `OAuthConfig` receives it, and so does its `id_token`, if that is a function.

    :param audience: The required audience of the assertion: the issuer of the authorization server.
    :param resource: Identifier of the MCP server, for ID-JAG.
    :param user: The user of `mcp_request_context`, if there is one.
    """

    audience: str
    resource: str
    user: str | None = None


GrantType: TypeAlias = Literal["authorization_code", "client_credentials", "jwt_bearer", "id_jag"]
AuthMethod: TypeAlias = Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]

RedirectHandler: TypeAlias = Callable[[MCPLoginRequest], Awaitable[None] | None]
CallbackHandler: TypeAlias = Callable[
    [MCPLoginRequest], str | Mapping[str, str | None] | Awaitable[str | Mapping[str, str | None]]
]
AssertionProvider: TypeAlias = Callable[[MCPAssertionRequest], str | Awaitable[str]]

_PERSON, _SERVICE, _WORKLOAD, _EMPLOYEE = get_args(GrantType)

_NEEDS: Final[dict[str, tuple[str, ...]]] = {
    _PERSON: (),
    _SERVICE: ("client_id",),
    _WORKLOAD: ("assertion_provider",),
    _EMPLOYEE: ("client_id", "client_secret", "issuer", "id_token", "idp_token_endpoint"),
}


def _for(*grants: str, identifies: bool = True, default: Any = None) -> Any:
    """
    Declare a parameter.

    :param grants: The grants that it is for; by default, all.
    :param identifies: Whether another value means another client, with separate tokens. Other parameters are only about
        how users log in, or how the client authenticates.
    :param default: Its default.
    """
    return field(default=default, metadata={"grants": grants, "identifies": identifies})


def _must(is_valid: Callable[[Any], bool], expected: str) -> PlainValidator:
    """
    Make a validator that does not quote the value, as it may be a secret. None is always valid.
    """

    def check(value: Any, info: ValidationInfo) -> Any:
        if value is None or is_valid(value):
            return value
        msg = f"`{info.field_name}` must be {expected}, got {type(value).__name__}"
        raise ValueError(msg)

    return PlainValidator(check)


def _is_loopback(url: str) -> bool:
    return is_url(url, ("http",)) and urlsplit(url).hostname in ("127.0.0.1", "::1", "localhost")


def _is_function(value: Any) -> bool:
    return callable(value) or is_import_path(value)


def _is_storage(value: Any) -> bool:
    methods = ("get_tokens", "set_tokens", "get_client_info", "set_client_info")
    return isinstance(value, MCPTokenStorage) or all(hasattr(value, method) for method in methods)


_FUNCTION = "a function or its import path 'package.module:name'"


def _store(what: str, value: Any) -> Any:
    owner, name = what.split(".")
    return value.to_dict() if isinstance(value, Secret) else import_path_of(owner, name, value)


def _load(stored: Any) -> Any:
    if isinstance(stored, Mapping):
        return load_template(stored) or Secret.from_dict(dict(stored))
    if is_import_path(stored):
        check_module_may_be_imported(stored.partition(":")[0])
    return stored


def _show(value: Any) -> Any:
    return value if isinstance(value, str | Secret) else f"<{shown_function(value)}>"


# Secrets, and functions by their import paths.
_STORED: Final = StoredAs(_store, _load, _show)

_Url: TypeAlias = Annotated[str | None, _must(is_url, "a URL like https://host/path")]
_Secret: TypeAlias = Annotated[
    Secret | None,
    _must(lambda value: isinstance(value, Secret), "a Secret, as of Secret.from_env_var('NAME')"),
    _STORED,
]
_Source: TypeAlias = Annotated[
    str | Secret | AssertionProvider | None,
    _must(lambda value: isinstance(value, Secret) or _is_function(value), f"a Secret, {_FUNCTION}"),
    _STORED,
]


@explains_options
@checked_dataclass(repr=False, config=CHECKED)
class OAuthConfig(Options):
    """
    Configures how to get access tokens for an MCP server that is protected by OAuth 2.1.

    The authorization server and its endpoints are discovered as in the MCP specification, starting from the server's
    refusal of a request without a token:
    https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization

    ### Usage example

    ```python
    from haystack.utils import Secret
    from haystack_integrations.tools.mcp import MCPToolset, OAuthConfig, StreamableHttpServerInfo

    # A user logs in, in the browser:
    server_info = StreamableHttpServerInfo("https://mcp.example.com/mcp", oauth_config=OAuthConfig())

    # A service has its own credentials:
    server_info = StreamableHttpServerInfo(
        "https://mcp.example.com/mcp",
        oauth_config=OAuthConfig(
            client_id="my-service",
            client_secret=Secret.from_env_var("MCP_CLIENT_SECRET"),
            issuer="https://auth.example.com",
        ),
    )
    ```

    :param client_id: Identifier of this client at the authorization server. Without one, the authorization code grant
        uses `client_metadata_url` where that is supported, and registers a new client where it is not.
    :param client_secret: Secret of this client.
    :param issuer: Issuer identifier of the authorization server at which the client is registered. Credentials are sent
        to this one only. Without it, the MCP server decides who gets them.
    :param scopes: The exact scopes to ask for; `[]` for none. By default, the scopes that the server names, or none if
        it names none. Scopes that the server demands for a request (`insufficient_scope`) are asked for in addition.
    :param token_endpoint_auth_method: How the client authenticates at the token endpoint: `"client_secret_basic"` (the
        default with a `client_secret`; if the server accepts only `"client_secret_post"`, that is used),
        `"client_secret_post"`, `"private_key_jwt"` (the default with a `private_key`), or `"none"`. A client that
        registers itself asks for `"none"` if the authorization server accepts that; otherwise, the server chooses.
    :param grant_type: `"authorization_code"`: a user allows the access in a browser, with PKCE.
        `"client_credentials"`: the client has its own credentials. `"jwt_bearer"`: it has an assertion, such as the
        token of a workload (RFC 7523). `"id_jag"`: the identity provider of an enterprise vouches for the user.
        By default `"client_credentials"` if there is a `client_secret` or a `private_key`, else
        `"authorization_code"`.
    :param token_storage: Where tokens are kept: an `InMemoryTokenStorage`, `FileTokenStorage` or
        `KeyValueTokenStorage`, another `MCPTokenStorage`, or a `TokenStorage` of the MCP SDK. Storages in memory and
        of the SDK are not serialized. By default, tokens are kept in the memory of this process.
    :param client_name: Name under which the client registers itself; users see it when they log in.
    :param client_metadata_url: URL of a Client ID Metadata Document of this client, `https://`.
    :param redirect_uri: Where the authorization server sends the browser. If it is `http://` with a loopback host, or
        by default, a listener in this process waits for the browser. Without a port, it uses any free one.
    :param redirect_handler: Sends the user to the authorization server: a function that gets an `MCPLoginRequest`, or
        its import path. By default, the browser of this machine is opened.
    :param callback_handler: Returns the answer that arrived at the `redirect_uri` for an `MCPLoginRequest`: the URL to
        which the browser was sent, or its query parameters as a dict (`code`, `state`, `iss`, `error`). A function, or
        its import path.
    :param login_timeout: How long a user may take to log in, in seconds; None for no limit. Default: 300.
    :param private_key: Private key in PEM with which the client authenticates (`private_key_jwt`).
    :param signing_algorithm: Algorithm of the `private_key`. By default RS256, ES256, ES384, ES512 or EdDSA, depending
        on the key.
    :param key_id: The `kid` of the `private_key`.
    :param assertion_provider: Returns the assertion for an `MCPAssertionRequest`: a function, its import path, or a
        Secret. For `"jwt_bearer"` the assertion of the workload; for `"client_credentials"` the assertion with which
        the client authenticates, in place of a `private_key`.
    :param id_token: ID token of the user, which the identity provider exchanges for an ID-JAG: a Secret, or a function
        (or its import path) that gets an `MCPAssertionRequest`.
    :param idp_token_endpoint: Token endpoint of the identity provider.
    :param idp_client_id: Identifier of this client at the identity provider.
    :param idp_client_secret: Secret of this client at the identity provider, if it has one.
    :param dpop: Whether tokens must be bound to a key of this client (DPoP, RFC 9449). Unbound tokens are refused.
    :param resource: The resource that tokens are for (parameter `resource`, RFC 8707). By default the MCP server, by
        the name in its metadata. A URI, or `False` to leave the parameter out: Microsoft Entra ID refuses it.
    :raises ValueError: If a parameter is invalid, or is not for the grant.
    """

    _parameter: ClassVar[str] = "oauth_config"

    client_id: Text | None = _for()
    client_secret: _Secret = _for(identifies=False)
    issuer: _Url = _for()
    scopes: list[str] | None = _for()
    token_endpoint_auth_method: AuthMethod | None = _for(identifies=False)
    grant_type: GrantType | None = _for()
    token_storage: Annotated[
        MCPTokenStorage | TokenStorage | None,
        _must(
            _is_storage,
            "an MCPTokenStorage such as FileTokenStorage, or have the methods of a TokenStorage of the MCP SDK",
        ),
        OBJECT,
    ] = None
    _: KW_ONLY
    client_name: Text | None = _for(_PERSON, identifies=False, default="mcp-haystack")
    client_metadata_url: _Url = _for(_PERSON)
    redirect_uri: Text | None = _for(_PERSON, identifies=False)
    redirect_handler: Annotated[str | RedirectHandler | None, _must(_is_function, _FUNCTION), _STORED] = _for(
        _PERSON, identifies=False
    )
    callback_handler: Annotated[str | CallbackHandler | None, _must(_is_function, _FUNCTION), _STORED] = _for(
        _PERSON, identifies=False
    )
    login_timeout: Seconds | None = _for(identifies=False, default=300.0)
    private_key: _Secret = _for(_SERVICE, identifies=False)
    signing_algorithm: Text | None = _for(_SERVICE, identifies=False)
    key_id: Text | None = _for(_SERVICE, identifies=False)
    assertion_provider: _Source = _for(_SERVICE, _WORKLOAD)
    id_token: _Source = _for(_EMPLOYEE)
    idp_token_endpoint: _Url = _for(_EMPLOYEE)
    idp_client_id: Text | None = _for(_EMPLOYEE)
    idp_client_secret: _Secret = _for(_EMPLOYEE, identifies=False)
    dpop: bool | None = _for(_PERSON, _SERVICE, _WORKLOAD, default=False)
    resource: str | Literal[False] | None = _for()

    def __post_init__(self) -> None:
        """
        Choose the grant and the authentication method, and check that the parameters fit together.

        :raises ValueError: If they do not. The message names them.
        """
        has_credentials = self.client_secret is not None or self.private_key is not None
        if self.grant_type is None:
            self.grant_type = "client_credentials" if has_credentials else "authorization_code"
        if self.token_endpoint_auth_method is None and self.client_secret is not None:
            self.token_endpoint_auth_method = "client_secret_basic"
        elif self.token_endpoint_auth_method is None and self.grant_type == "client_credentials":
            self.token_endpoint_auth_method = "private_key_jwt"
        for problem in self._problems(self.grant_type):
            raise ValueError(problem)

    def _problems(self, grant: str) -> Iterator[str]:
        for name in _NEEDS[grant]:
            if getattr(self, name) is None:
                yield f"the grant '{grant}' needs `{name}`"
        for each in dataclasses.fields(self):
            grants = each.metadata.get("grants") or (grant,)
            if grant not in grants and getattr(self, each.name) != each.default:
                yield f"`{each.name}` is for the grant {' or '.join(map(repr, grants))}, not for '{grant}'"
        if self.callback_handler is not None and self.redirect_uri is None:
            yield "a `callback_handler` needs the `redirect_uri` at which it gets the answer"
        if self.redirect_uri is not None and self.callback_handler is None and not _is_loopback(self.redirect_uri):
            yield (
                "a `redirect_uri` that is not http:// with a loopback host (127.0.0.1, [::1] or localhost) needs a "
                "`callback_handler`, because no listener in this process can get the answer"
            )
        method = self.token_endpoint_auth_method
        uses_secret = method in ("client_secret_basic", "client_secret_post")
        if self.client_secret is not None and not uses_secret:
            yield f"a `client_secret` is not for {method!r}: leave one of the two out"
        for name in ("signing_algorithm", "key_id"):
            if getattr(self, name) is not None and self.private_key is None:
                yield f"`{name}` needs a `private_key`"
        if grant == "client_credentials" and uses_secret:
            if self.client_secret is None:
                yield f"{method!r} needs a `client_secret`"
            if self.private_key is not None or self.assertion_provider is not None:
                yield f"a `private_key` or an `assertion_provider` is for 'private_key_jwt', not for {method!r}"
        if method == "private_key_jwt":
            if grant != "client_credentials":
                yield f"'private_key_jwt' is for the grant 'client_credentials', not for '{grant}'"
            if (self.private_key is None) == (self.assertion_provider is None):
                yield "'private_key_jwt' needs either a `private_key` or an `assertion_provider`"

    def create_auth(self, server_url: str) -> httpx2.Auth:
        """
        Create the object that authenticates requests to an MCP server. Server infos call this for each session.

        :param server_url: URL of the MCP server.
        :returns: An `httpx2.Auth` for an `httpx2.AsyncClient`.
        """
        # Imported by its path, because its module loads the MCP SDK and imports this one.
        make = import_object("haystack_integrations.tools.mcp.auth.request_auth:OAuth")
        auth: httpx2.Auth = make(self, server_url)
        return auth

    def _storage(self) -> MCPTokenStorage:
        storage = self.token_storage
        if storage is None:
            return process_memory
        return storage if isinstance(storage, MCPTokenStorage) else SDKTokenStorage(storage)

    def _client_digest(self) -> str:
        """
        Return a digest that distinguishes clients whose tokens must be kept apart. It does not reveal secrets.
        """
        names = {each.name for each in dataclasses.fields(self) if each.metadata.get("identifies", True)}
        ids = {name: self._identifier(name, value) for name, value in self._set_fields().items() if name in names}
        return hashlib.sha256(json.dumps(ids, sort_keys=True).encode()).hexdigest()

    def _identifier(self, name: str, value: Any) -> Any:
        if isinstance(value, Secret):
            variables = vars(value).get("_env_vars")
            return f"env:{variables}" if variables else hashlib.sha256(str(value.resolve_value()).encode()).hexdigest()
        try:
            return import_path_of(type(self).__name__, name, value) if callable(value) else value
        except ValueError:  # a function without an import path, which no other configuration shares
            return self._number

    @cached_property
    def _number(self) -> str:
        return uuid.uuid4().hex

    def _secrets(self) -> list[Secret]:
        return [value for value in self._set_fields().values() if isinstance(value, Secret)]

    def _set_fields(self) -> dict[str, Any]:
        return {name: value for name, value in self.changed().items() if name != "token_storage"}

    def _to_trace_dict(self) -> dict[str, Any]:
        shown = redact_fields(super()._to_trace_dict())
        return {name: redact_url(value) if is_url(value) else value for name, value in shown.items()}

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize this configuration to a dictionary, with Secrets as variables and functions as import paths.

        :returns: The dictionary.
        :raises ValueError: If it has a token-based `Secret`, or a function without an import path.
        """
        storage = self.token_storage
        is_storable = storage is None or isinstance(storage, MCPTokenStorage)
        if not is_storable or isinstance(storage, InMemoryTokenStorage | SDKTokenStorage):
            return dataclasses.replace(self, token_storage=None).to_dict()
        return super().to_dict()


# The number of logins under way, by the URL of the MCP server and the user.
_logins: Counter[tuple[str, str | None]] = Counter()


@contextmanager
def login_under_way(server_url: str, user: str | None) -> Iterator[None]:
    """
    Register a login as under way for the duration of a block.

    :param server_url: The MCP server.
    :param user: The user of `mcp_request_context`, if there is one.
    :returns: A context manager.
    """
    _logins[server_url, user] += 1
    try:
        yield
    finally:
        _logins[server_url, user] -= 1
        if not _logins[server_url, user]:
            del _logins[server_url, user]


def users_logging_in(server_url: str) -> set[str | None]:
    """
    Return the users who are logging in at a server.

    :param server_url: The MCP server.
    :returns: The users. None stands for the server info's own login.
    """
    return {user for url, user in [*_logins] if url == server_url}


def can_open_browser() -> bool:
    """
    Return whether this process can open a browser for a user.

    :returns: False without a browser, and on Unix without a display, where a browser would take over the terminal. If
        the environment variable `BROWSER` is set, no display is needed.
    """
    has_windows = sys.platform in ("win32", "darwin") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    if not has_windows and not os.environ.get("BROWSER"):
        return False
    try:
        webbrowser.get()
    except webbrowser.Error:
        return False
    return True
