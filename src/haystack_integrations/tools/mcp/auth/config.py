# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import uuid
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NoReturn, TypeAlias, get_args
from urllib.parse import urlsplit

from haystack.utils import Secret

from haystack_integrations.tools.mcp.auth.requests import MCPAssertionRequest, MCPLoginRequest
from haystack_integrations.tools.mcp.auth.token_store import (
    InMemoryTokenStorage,
    MCPTokenStorage,
    SDKTokenStorage,
    process_memory,
)
from haystack_integrations.tools.mcp.haystack_compat import (
    check_module_may_be_imported,
    deserialize_object,
    serialize_object,
)
from haystack_integrations.tools.mcp.import_paths import import_object, import_path_of, is_import_path
from haystack_integrations.tools.mcp.redaction import redact_fields, redact_url
from haystack_integrations.tools.mcp.secret_template import stored_template

if TYPE_CHECKING:
    import httpx2
    from mcp.client.auth import TokenStorage

GrantType: TypeAlias = Literal["authorization_code", "client_credentials", "jwt_bearer", "id_jag"]
AuthMethod: TypeAlias = Literal["client_secret_basic", "client_secret_post", "private_key_jwt", "none"]

RedirectHandler: TypeAlias = Callable[[MCPLoginRequest], Awaitable[None] | None]
CallbackHandler: TypeAlias = Callable[
    [MCPLoginRequest], str | Mapping[str, str | None] | Awaitable[str | Mapping[str, str | None]]
]
AssertionProvider: TypeAlias = Callable[[MCPAssertionRequest], str | Awaitable[str]]

# RFC 8707, 2: absolute, and without a fragment.
_URI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\s#]+")

_LOOPBACK = ("127.0.0.1", "::1", "localhost")
_FUNCTIONS = ("redirect_handler", "callback_handler", "assertion_provider", "id_token")
_SECRETS = ("client_secret", "private_key", "idp_client_secret")

# What the fields are for that only some of the grants have.
_NEEDS: dict[str, tuple[str, ...]] = {
    "authorization_code": (),
    "client_credentials": ("client_id",),
    "jwt_bearer": ("assertion_provider",),
    "id_jag": ("client_id", "client_secret", "issuer"),
}
_PERSONS, _SERVICES, _EMPLOYEES = ("authorization_code",), ("client_credentials",), ("id_jag",)
_ONLY_FOR: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("client_name", "client_metadata_url"), _PERSONS),
    **dict.fromkeys(("redirect_uri", "redirect_handler", "callback_handler"), _PERSONS),
    **dict.fromkeys(("private_key", "signing_algorithm", "key_id"), _SERVICES),
    **dict.fromkeys(("id_token", "idp_token_endpoint", "idp_client_id", "idp_client_secret"), _EMPLOYEES),
    "assertion_provider": (*_SERVICES, "jwt_bearer", *_EMPLOYEES),
    "dpop": (*_PERSONS, *_SERVICES, "jwt_bearer"),
}

# What does not make another client: how people log in, and how the client proves who it is.
_HOW = frozenset(
    {"client_name", "login_timeout", "redirect_uri", "redirect_handler", "callback_handler"}
    | {"client_secret", "private_key", "signing_algorithm", "key_id", "idp_client_secret", "token_endpoint_auth_method"}
)


@dataclass(repr=False)
class OAuthConfig:
    """
    How to get access tokens for an MCP server that is protected by OAuth 2.1.

    The authorization server and its endpoints are found as the MCP specification says, starting from the server's
    refusal of a request without a token:
    https://modelcontextprotocol.io/specification/2025-11-25/basic/authorization

    ### Usage example

    ```python
    from haystack.utils import Secret
    from haystack_integrations.tools.mcp import MCPToolset, OAuthConfig, StreamableHttpServerInfo

    # A person logs in, in the browser:
    server_info = StreamableHttpServerInfo("https://mcp.example.com/mcp", oauth_config=OAuthConfig())

    # A service has credentials of its own:
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
        uses `client_metadata_url` where that is supported, and registers a client of its own where it is not.
    :param client_secret: Secret of this client.
    :param issuer: Issuer identifier of the authorization server at which the client is registered. Credentials are sent
        to this one only. Without it, the MCP server decides who gets them.
    :param scopes: Scopes to ask for, exactly these; `[]` for none. By default, those that the server wants, and none
        if it does not say. What the server demands for a request (`insufficient_scope`) is asked for in addition.
    :param token_endpoint_auth_method: How the client authenticates at the token endpoint: `"client_secret_basic"` (the
        default with a `client_secret`), `"client_secret_post"`, `"private_key_jwt"` (the default with a `private_key`),
        or `"none"`. A client that registers itself leaves it to the authorization server.
    :param grant_type: `"authorization_code"`: a person allows the access in a browser, with PKCE.
        `"client_credentials"`: the client has credentials of its own. `"jwt_bearer"`: it has an assertion, such as the
        token of a workload (RFC 7523). `"id_jag"`: the identity provider of an enterprise vouches for the user.
        By default `"client_credentials"` if there is a `client_secret` or a `private_key`, else
        `"authorization_code"`.
    :param token_storage: Where tokens are kept: an `InMemoryTokenStorage`, `FileTokenStorage` or
        `KeyValueTokenStorage`, another `MCPTokenStorage`, or a `TokenStorage` of the MCP SDK. Those in memory and of
        the SDK are not serialized. By default, they are kept in the memory of this process.
    :param client_name: Name under which the client registers itself; people see it when they log in.
    :param client_metadata_url: URL of a Client ID Metadata Document of this client, `https://`.
    :param redirect_uri: Where the authorization server sends the browser. By default, and if it is `http://` with a
        loopback host, a listener in this process waits for it; without a port, or by default, at any free one.
    :param redirect_handler: Leads the person to the authorization server: a function that gets an `MCPLoginRequest`, or
        its import path. By default, the browser of this machine is opened.
    :param callback_handler: Gives what came to the `redirect_uri` for an `MCPLoginRequest`: the URL to which the
        browser was sent, or its query parameters as a dict (`code`, `state`, `iss`, `error`). A function, or its import
        path.
    :param login_timeout: How long a person may take to log in, in seconds.
    :param private_key: Private key in PEM with which the client authenticates (`private_key_jwt`).
    :param signing_algorithm: Algorithm of the `private_key`. By default RS256, ES256, ES384, ES512 or EdDSA, as the key
        allows.
    :param key_id: The `kid` of the `private_key`.
    :param assertion_provider: Gives the assertion for an `MCPAssertionRequest`: a function, its import path, or a
        Secret. For `"jwt_bearer"` the assertion of the workload, for `"id_jag"` the ID-JAG, unless `id_token` gets
        one; for `"client_credentials"` the assertion by which the client authenticates, in place of a `private_key`.
    :param id_token: ID token of the user, which the identity provider exchanges for an ID-JAG: a Secret, or a function
        (or its import path) that gets an `MCPAssertionRequest`.
    :param idp_token_endpoint: Token endpoint of the identity provider.
    :param idp_client_id: Identifier of this client at the identity provider.
    :param idp_client_secret: Secret of this client at the identity provider, if it has one.
    :param resource: What tokens are for (the parameter `resource`, RFC 8707). By default the MCP server, as its
        metadata name it. A URI, or `False` to leave the parameter out: Microsoft Entra ID refuses it.
    :param dpop: Whether tokens are bound to a key of this client (DPoP, RFC 9449). A token that is not is refused.
    :raises ValueError: If a parameter is invalid, or does not go with the grant.
    """

    client_id: str | None = None
    client_secret: Secret | None = None
    issuer: str | None = None
    scopes: list[str] | None = None
    token_endpoint_auth_method: AuthMethod | None = None
    grant_type: GrantType | None = None
    token_storage: MCPTokenStorage | TokenStorage | None = field(default=None, compare=False)
    client_name: str = field(default="mcp-haystack", kw_only=True)
    client_metadata_url: str | None = field(default=None, kw_only=True)
    redirect_uri: str | None = field(default=None, kw_only=True)
    redirect_handler: str | RedirectHandler | None = field(default=None, kw_only=True)
    callback_handler: str | CallbackHandler | None = field(default=None, kw_only=True)
    login_timeout: float = field(default=300.0, kw_only=True)
    private_key: Secret | None = field(default=None, kw_only=True)
    signing_algorithm: str | None = field(default=None, kw_only=True)
    key_id: str | None = field(default=None, kw_only=True)
    assertion_provider: str | Secret | AssertionProvider | None = field(default=None, kw_only=True)
    id_token: str | Secret | AssertionProvider | None = field(default=None, kw_only=True)
    idp_token_endpoint: str | None = field(default=None, kw_only=True)
    idp_client_id: str | None = field(default=None, kw_only=True)
    idp_client_secret: Secret | None = field(default=None, kw_only=True)
    dpop: bool = field(default=False, kw_only=True)
    resource: str | Literal[False] | None = field(default=None, kw_only=True)

    def __post_init__(self) -> None:
        """
        Refuse invalid parameters, and choose grant and authentication method.

        :raises ValueError: Naming the parameter and what it takes.
        """
        self._check_types()
        has_credentials = self.client_secret is not None or self.private_key is not None
        if self.grant_type is None:
            self.grant_type = "client_credentials" if has_credentials else "authorization_code"
        if self.grant_type not in get_args(GrantType):
            self._refuse(f"`grant_type` must be one of {_list(get_args(GrantType))}, got {self.grant_type!r}")
        if self.token_endpoint_auth_method is None and self.client_secret is not None:
            self.token_endpoint_auth_method = "client_secret_basic"
        elif self.token_endpoint_auth_method is None and self.grant_type == "client_credentials":
            self.token_endpoint_auth_method = "private_key_jwt"
        self._check_grant()
        self._check_urls()

    def _refuse(self, text: str) -> NoReturn:
        msg = f"{type(self).__name__}: {text}"
        raise ValueError(msg)

    def _check_types(self) -> None:
        for name in ("client_id", "issuer", "client_metadata_url", "redirect_uri", "signing_algorithm", "key_id"):
            self._check_text(name)
        for name in ("idp_token_endpoint", "idp_client_id", "client_name"):
            self._check_text(name)
        for name in _SECRETS:
            value = getattr(self, name)
            if value is not None and not isinstance(value, Secret):
                self._refuse(f"`{name}` must be a Secret, e.g. Secret.from_env_var('NAME'), got {type(value).__name__}")
        for name in _FUNCTIONS:
            value = getattr(self, name)
            takes_secret = name in ("assertion_provider", "id_token")
            is_valid = callable(value) or is_import_path(value) or (takes_secret and isinstance(value, Secret))
            if value is not None and not is_valid:
                kinds = "a function, its import path 'package.module:name'" + (", a Secret" if takes_secret else "")
                self._refuse(f"`{name}` must be {kinds}, or None, got {type(value).__name__}")
        if isinstance(self.scopes, tuple):
            self.scopes = list(self.scopes)
        is_list = isinstance(self.scopes, list) and all(_is_scope(scope) for scope in self.scopes)
        if self.scopes is not None and not is_list:
            self._refuse("`scopes` must be a list of scopes, each a string without white space, or None")
        is_number = isinstance(self.login_timeout, (int, float)) and not isinstance(self.login_timeout, bool)
        if not is_number or not 0 < self.login_timeout <= 86_400:  # noqa: PLR2004 - a day
            self._refuse(f"`login_timeout` must be a number of seconds up to 86400, got {self.login_timeout!r}")
        if not isinstance(self.dpop, bool):
            self._refuse(f"`dpop` must be True or False, got {self.dpop!r}")
        is_uri = isinstance(self.resource, str) and _URI.fullmatch(self.resource) is not None
        if self.resource is not None and self.resource is not False and not is_uri:
            self._refuse("`resource` must be a URI without a fragment, False to leave it out, or None")
        methods = ("get_tokens", "set_tokens", "get_client_info", "set_client_info")
        storage = self.token_storage
        is_storage = isinstance(storage, MCPTokenStorage) or all(hasattr(storage, method) for method in methods)
        if storage is not None and not is_storage:
            self._refuse(
                "`token_storage` must be an MCPTokenStorage such as FileTokenStorage, or have the methods of a "
                f"TokenStorage of the MCP SDK, got {type(storage).__name__}"
            )

    def _check_text(self, name: str) -> None:
        value = getattr(self, name)
        if value is not None and (not isinstance(value, str) or not value):
            self._refuse(f"`{name}` must be a string that is not empty, or None, got {type(value).__name__}")

    def _check_grant(self) -> None:
        grant = str(self.grant_type)
        for name in _NEEDS[grant]:
            if getattr(self, name) is None:
                self._refuse(f"the grant '{grant}' needs `{name}`")
        defaults = {each.name: each.default for each in dataclasses.fields(self)}
        for name, grants in _ONLY_FOR.items():
            if getattr(self, name) != defaults[name] and grant not in grants:
                self._refuse(f"`{name}` is for the grant {_list(grants, 'or')}, not for '{grant}'")
        method = self.token_endpoint_auth_method
        if method is not None and method not in get_args(AuthMethod):
            self._refuse(f"`token_endpoint_auth_method` must be one of {_list(get_args(AuthMethod))}, got {method!r}")
        if method in ("client_secret_basic", "client_secret_post") and self.client_secret is None:
            self._refuse(f"`token_endpoint_auth_method` '{method}' needs a `client_secret`")
        if method == "private_key_jwt":
            if grant != "client_credentials":
                self._refuse(f"'private_key_jwt' is for the grant 'client_credentials', not for '{grant}'")
            if (self.private_key is None) == (self.assertion_provider is None):
                self._refuse("'private_key_jwt' needs either a `private_key` or an `assertion_provider`")
        elif grant == "client_credentials":
            if method == "none":
                self._refuse("the grant 'client_credentials' is for clients that authenticate, not for 'none'")
            if self.private_key is not None or self.assertion_provider is not None:
                self._refuse(f"a `private_key` or an `assertion_provider` does not go with '{method}'")
        if self.client_secret is not None and self.client_id is None:
            self._refuse("a `client_secret` needs its `client_id`")
        if grant == "jwt_bearer" and self.client_secret is not None and method == "none":
            self._refuse("a `client_secret` does not go with the authentication method 'none'")
        if grant == "id_jag":
            has_id_token = [self.id_token is not None, self.idp_token_endpoint is not None]
            if any(has_id_token) != all(has_id_token) or any(has_id_token) == (self.assertion_provider is not None):
                self._refuse(
                    "the grant 'id_jag' needs either `id_token` and `idp_token_endpoint`, or an `assertion_provider`"
                )
        if self.callback_handler is not None and self.redirect_uri is None:
            self._refuse("a `callback_handler` needs the `redirect_uri` at which it gets the answer")

    def _check_urls(self) -> None:
        for name in ("issuer", "idp_token_endpoint", "redirect_uri", "client_metadata_url"):
            value = getattr(self, name)
            parts = urlsplit(value) if value is not None else None
            if parts is not None and name != "redirect_uri" and not _is_http(parts):
                self._refuse(f"`{name}` must be a URL like https://host/path, got {redact_url(str(value))!r}")
        url = self.client_metadata_url
        if url is not None and (not url.startswith("https://") or urlsplit(url).path in ("", "/")):
            self._refuse("`client_metadata_url` must begin with https:// and have a path")
        if self.redirect_uri is None or self.callback_handler is not None:
            return
        if not is_loopback(self.redirect_uri):
            self._refuse(
                "a `redirect_uri` that is not http:// with a loopback host (127.0.0.1, [::1] or localhost) needs a "
                "`callback_handler`, because no listener in this process can get the answer"
            )

    def create_auth(self, server_url: str) -> httpx2.Auth:
        """
        Create what authenticates the requests to an MCP server. Server infos call it for each session.

        :param server_url: URL of the MCP server.
        :returns: An `httpx2.Auth` for an `httpx2.AsyncClient`.
        """
        # By its path, because it loads the MCP SDK, and knows this class.
        make = import_object("haystack_integrations.tools.mcp.auth.authorization:OAuth")
        auth: httpx2.Auth = make(self, server_url)
        return auth

    def _storage(self) -> MCPTokenStorage:
        storage = self.token_storage
        if storage is None:
            return process_memory
        return storage if isinstance(storage, MCPTokenStorage) else SDKTokenStorage(storage)

    def _client_digest(self) -> str:
        """
        Tell clients apart whose tokens must not be mixed up, without their secrets.
        """
        own = {name: value for name, value in self._shown().items() if name not in _HOW}
        for name in ("assertion_provider", "id_token"):
            value = getattr(self, name)
            if value is not None and not isinstance(value, str):
                own[name] = self._source(name, value)
        return hashlib.sha256(json.dumps(own, sort_keys=True, default=str).encode()).hexdigest()

    def _source(self, name: str, value: Any) -> str:
        if isinstance(value, Secret) and "_env_vars" not in vars(value):
            return hashlib.sha256(str(value.resolve_value()).encode()).hexdigest()
        if isinstance(value, Secret):
            return f"env:{vars(value)['_env_vars']}"
        try:
            return import_path_of(self, name, value)
        except ValueError:  # nobody else can have the same
            self._number = getattr(self, "_number", None) or uuid.uuid4().hex
            return self._number

    def _secrets(self) -> list[Secret]:
        fields = (*_SECRETS, "assertion_provider", "id_token")
        return [value for value in (getattr(self, name) for name in fields) if isinstance(value, Secret)]

    def _set_fields(self) -> dict[str, Any]:
        return {
            each.name: getattr(self, each.name)
            for each in dataclasses.fields(self)
            if each.name != "token_storage" and getattr(self, each.name) != each.default
        }

    def _shown(self) -> dict[str, Any]:
        shown = redact_fields(self._set_fields())
        for name in _FUNCTIONS:
            if callable(shown.get(name)):
                shown[name] = f"<{getattr(shown[name], '__qualname__', type(shown[name]).__name__)}>"
        for name in ("issuer", "idp_token_endpoint", "redirect_uri", "client_metadata_url"):
            if name in shown:
                shown[name] = redact_url(shown[name])
        return dict(shown)

    def __repr__(self) -> str:
        usual = {"grant_type": "authorization_code"}
        fields = {name: value for name, value in self._shown().items() if usual.get(name) != value}
        shown = ", ".join(f"{name}={value!r}" for name, value in fields.items())
        storage = "" if self.token_storage is None else f", token_storage={type(self.token_storage).__name__}"
        return f"{type(self).__name__}({shown}{storage})"

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize this configuration to a dictionary: Secrets by their variables, functions by their import paths.

        :returns: The dictionary.
        :raises ValueError: If it holds a token-based `Secret`, or a function without import path.
        """
        data = self._set_fields()
        for name, value in data.items():
            if isinstance(value, Secret):
                data[name] = value.to_dict()
            elif name in _FUNCTIONS:
                data[name] = import_path_of(self, name, value)
            elif isinstance(value, list):
                data[name] = list(value)
        storage = self.token_storage
        if isinstance(storage, MCPTokenStorage) and not isinstance(storage, (InMemoryTokenStorage, SDKTokenStorage)):
            data["token_storage"] = serialize_object("token_storage", storage)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> OAuthConfig:
        """
        Deserialize a configuration from a dictionary, also from one of mcp-haystack 2.1.

        :param data: The dictionary.
        :returns: The configuration.
        :raises ValueError: If it has parameters that this class does not know.
        :raises DeserializationError: If the module in an import path is not on Haystack 3's allowlist.
        """
        known = [each.name for each in dataclasses.fields(cls) if each.init]
        if unknown := [name for name in data if name not in known]:
            msg = f"{cls.__name__} has no parameter {', '.join(map(repr, unknown))}; it knows {', '.join(known)}"
            raise ValueError(msg)
        parameters = dict(data)
        for name, value in parameters.items():
            if isinstance(value, Mapping) and name == "token_storage":
                parameters[name] = deserialize_object(dict(value))
            elif isinstance(value, Mapping):
                parameters[name] = stored_template(value) or Secret.from_dict(dict(value))
            elif name in _FUNCTIONS and is_import_path(value):
                check_module_may_be_imported(value.partition(":")[0])
        return cls(**parameters)


def is_loopback(url: str) -> bool:
    """
    Tell whether a redirect URI leads to a listener of this machine.

    :param url: The URI.
    :returns: True for `http://` with a loopback host.
    """
    try:
        parts = urlsplit(url)
        return parts.scheme == "http" and parts.hostname in _LOOPBACK and parts.port != 0
    except ValueError:
        return False


def _is_http(parts: Any) -> bool:
    try:
        return parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        return False


def _is_scope(scope: object) -> bool:
    return isinstance(scope, str) and bool(scope) and not any(map(str.isspace, scope))


def _list(names: Any, last: str = "or") -> str:
    quoted = [f"'{name}'" for name in names]
    return quoted[0] if len(quoted) == 1 else f"{', '.join(quoted[:-1])} {last} {quoted[-1]}"
