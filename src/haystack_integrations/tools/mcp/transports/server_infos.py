# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The server infos, which say how to reach a server: as a child process, in this process, or over HTTP.
"""

from __future__ import annotations

import os
import shutil
import ssl
import sys
import warnings
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Protocol, Self

from haystack import logging
from haystack.utils import Secret
from pydantic import BeforeValidator, GetPydanticSchema
from pydantic.dataclasses import dataclass as checked_dataclass
from pydantic_core import core_schema

from haystack_integrations.tools.mcp.auth.oauth_config import OAuthConfig, users_logging_in
from haystack_integrations.tools.mcp.haystack_compat import (
    check_module_may_be_imported,
    deserialize_object,
    serialize_object,
)
from haystack_integrations.tools.mcp.import_paths import (
    call_provider,
    import_path_of,
    is_import_path,
    leads_to_a_module,
    shown_function,
)
from haystack_integrations.tools.mcp.parameters import CHECKED, Seconds, explains_options, is_url
from haystack_integrations.tools.mcp.protocol.server_info import (
    DEFAULT_MAX_MESSAGE_SIZE,
    BuiltInServerInfo,
    Delay,
    MessageSize,
    Retries,
    Secrets,
    resolve_secrets,
)
from haystack_integrations.tools.mcp.redaction import REDACTED, redact_args, redact_text, redact_url, secrets_in
from haystack_integrations.tools.mcp.request_context import (
    IdentityRefusedError,
    MCPRequestContext,
    bearer,
    current_user,
    problem_with_headers,
)
from haystack_integrations.tools.mcp.secret_template import secret_text, shown, value_of
from haystack_integrations.tools.mcp.transports.allow_lists import inherited_environment

if TYPE_CHECKING:
    from httpx2 import Auth
else:
    Auth = Any

logger: logging.PatchedLogger = logging.getLogger(__name__)

_TRANSPORTS = "haystack_integrations.tools.mcp.transports"

# anyio imports it at its first use, as httpx2 does httpcore2. A process that was forked meanwhile would hang when it
# imports them.
_ANYIO_BACKEND = "anyio._backends._asyncio"


def _text_of_path(value: Any) -> Any:
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _without_none(values: Any) -> Any:
    # Version 2.1 took headers and variables without a value, such as `os.getenv("TOKEN")`, and wrote them to files.
    if not isinstance(values, dict):
        return values
    for name in [name for name, value in values.items() if value is None]:
        logger.warning("The header or variable '{key}' has no value, so it is omitted", key=name)
    return {name: value for name, value in values.items() if value is not None}


@explains_options
@checked_dataclass(repr=False, config=CHECKED)
class StdioServerInfo(BuiltInServerInfo):
    """
    Connection parameters of an MCP server that is started as a child process and uses stdio.

    Use Secrets for environment variables with sensitive data:

    ```python
    server_info = StdioServerInfo(
        command="uv",
        args=["run", "my-mcp-server"],
        env={
            "WORKSPACE_PATH": "/path/to/workspace",
            "API_KEY": Secret.from_env_var("API_KEY"),
        }
    )
    ```

    The server inherits a fixed list of this process's variables: those that every program needs (`PATH`, `HOME`,
    `USER`, `SHELL`, `TERM`, locale, time zone, temporary folders, `XDG_*`), certificate authorities and proxies
    (`SSL_CERT_FILE`, `REQUESTS_CA_BUNDLE`, `NODE_EXTRA_CA_CERTS`, `HTTPS_PROXY`, …), and the settings of package
    managers (`UV_*`, `PIP_*`, `NPM_CONFIG_*`), which may include credentials for reading from a package index. It
    inherits no other variables, in particular no API keys, unless `inherit_env` names them.

    `max_in_flight`, `failure_pause` and `negotiation` are documented by `BuiltInServerInfo`.

    :param command: Command to run, e.g. "python" or "node".
    :param args: Arguments of the command.
    :param env: Additional environment variables. A variable that is None, or an optional
        Secret without a value, is omitted.
    :param max_retries: Maximum number of retries when a lost session is reopened, or when a call provably did not run.
    :param base_delay: Initial delay in seconds between retries; grows exponentially.
    :param max_delay: Maximum delay in seconds between retries.
    :param cwd: Working directory of the command. Default: this process's.
    :param inherit_env: Names of further variables of this process that the server inherits, e.g.
        `["AWS_PROFILE", "OTEL_*"]`, where `*` at the end matches any rest; or True for all variables. Names of unset
        variables are ignored; variables in `env` take precedence. Default: no further variables.
    :param max_message_size: How many bytes one message of the server, e.g. the result of a call, may have. Default:
        16 MiB. A call whose answer is larger fails with an MCPOutcomeUnknownError. On Windows, which uses the transport
        of the MCP SDK, this has no effect.
    """

    _transport_name: ClassVar[str] = "stdio"
    _client = f"{_TRANSPORTS}.stdio:StdioClient"

    @property
    def _modules(self) -> tuple[str, ...]:
        of_the_sdk = ["mcp.client.stdio"] if sys.platform == "win32" else []
        return (*super()._modules, *of_the_sdk)

    command: str | Secret
    args: Sequence[str | Secret] | None = None
    env: Annotated[Secrets | None, BeforeValidator(_without_none)] = None
    max_retries: Retries = 3
    base_delay: Delay = 1.0
    max_delay: Delay = 30.0
    _: KW_ONLY
    cwd: Annotated[str | Secret | None, BeforeValidator(_text_of_path)] = None
    inherit_env: Sequence[str] | bool | None = None
    max_message_size: MessageSize = DEFAULT_MAX_MESSAGE_SIZE

    _always_stored = "command args env max_retries base_delay max_delay".split()

    def __post_init__(self) -> None:
        """
        Validate the parameters.

        :raises ValueError: If a parameter is invalid. The message names it and its valid values.
        """
        command = self.command
        if isinstance(command, Secret):
            return
        if not command.strip():
            self._refuse(f"`command` must be a non-empty string, got {command!r}")
        if command.startswith(("http://", "https://")):
            self._refuse("`command` must be a program; for a server with a URL, use StreamableHttpServerInfo(url=...)")
        program, *rest = command.split()
        if rest and not (os.path.isfile(command) or shutil.which(command)):
            self._refuse(
                "`command` must be a program alone; its arguments belong in `args`, as in "
                f"StdioServerInfo(command={program!r}, args=[...]). There is no file of the name that was given.",
            )

    def describe(self) -> str:
        """
        Describe the server for messages.

        :returns: The command line, with the values of options that are named as secrets redacted.
        """
        return f"stdio server `{self._command_line()}`"

    def _command_line(self) -> str:
        return " ".join([redact_text(shown(self.command)), *redact_args(map(shown, self.args or []))])

    def _secrets(self) -> set[str]:
        # An error may also quote an inherited value, such as the password of a package index.
        return super()._secrets() | secrets_in({"inherited": inherited_environment(self.inherit_env)})

    def _redacted_fields(self) -> dict[str, Any]:
        fields = super()._redacted_fields()
        return {
            **fields,
            "command": redact_text(shown(self.command)),
            "args": None if self.args is None else redact_args(map(shown, self.args)),
        }


@explains_options
@checked_dataclass(repr=False, config=CHECKED)
class InProcessServerInfo(BuiltInServerInfo):
    """
    An MCP server in the same process, without a child process or a port.

    For tests, notebooks and quick starts, and for MCP tools that only one process needs. The server runs in the event
    loop of the `AsyncExecutor`.

    ```python
    from mcp.server import MCPServer

    server = MCPServer("calculator")

    @server.tool()
    def add(a: int, b: int) -> int:
        return a + b

    server_info = InProcessServerInfo(server)                         # the server object, or
    server_info = InProcessServerInfo("my_package.my_module:server")  # its import path, which can be serialized
    ```

    `max_in_flight`, `failure_pause` and `negotiation` are documented by `BuiltInServerInfo`.

    :param server: An `mcp` server (`MCPServer` or low-level `Server`), a FastMCP server, or the import path of one,
        `"package.module:attribute"`. The path is imported when the session is opened.
    """

    _transport_name: ClassVar[str] = "in-process"
    _client = f"{_TRANSPORTS}.in_process:InProcessClient"

    server: Any

    _always_stored = ("server",)

    @property
    def _modules(self) -> tuple[str, ...]:
        return (*super()._modules, _ANYIO_BACKEND)

    def describe(self) -> str:
        """
        Describe the server for messages.

        :returns: The import path, or the name of the server object.
        """
        name = self.server if isinstance(self.server, str) else getattr(self.server, "name", type(self.server).__name__)
        return f"in-process server '{name}'"

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize this server info to a dictionary.

        :returns: Dictionary representation of this server info.
        :raises ValueError: If `server` is an object instead of an import path.
        """
        if not isinstance(self.server, str):
            msg = (
                "This InProcessServerInfo contains a server object, which cannot be serialized. Create it with the "
                "import path of the server instead: InProcessServerInfo('package.module:server')."
            )
            raise ValueError(msg)
        return super().to_dict()

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> InProcessServerInfo:
        """
        Deserialize server info from a dictionary.

        :param data: Dictionary containing serialized server info.
        :returns: The server info.
        :raises DeserializationError: If the module in the import path is not on Haystack 3's allowlist.
        """
        info = super().from_dict(data)
        if isinstance(info.server, str):
            check_module_may_be_imported(info.server.partition(":")[0])
        return info

    def _to_trace_dict(self) -> dict[str, Any]:
        return {"type": self._serialized_type(), "server": self.describe()}


_PROXY_SCHEMES = ("http", "https", "socks5", "socks5h")

# The fields that may hold an object, which is stored by its import path.
_OBJECTS = {"verify", "http_transport", "token_provider", "headers_provider", "auth"}


def _tuple_of_list(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value  # from YAML


# `auth="oauth"` is short for this.
_ALL_BY_DEFAULT = OAuthConfig()

# For fields that are checked by hand, with better messages than those of pydantic about unions.
_UNCHECKED = GetPydanticSchema(lambda *_: core_schema.any_schema())

TokenProvider = Callable[[MCPRequestContext], str | Awaitable[str]]
HeadersProvider = Callable[[MCPRequestContext], Mapping[str, str] | Awaitable[Mapping[str, str]]]
# `cert`, `(cert, key)` or `(cert, key, password)`.
ClientCert = str | tuple[str, str] | tuple[str, str, Secret]


class TokenSource(Protocol):
    """
    Returns a token whenever one is needed, like the token sources of Haystack.
    """

    def resolve(self) -> str:
        """
        Return a currently valid token.

        :returns: The token.
        """
        ...


def check_proxy_url(url: str) -> None:
    """
    Check the URL of a proxy.

    :param url: The URL.
    :raises ValueError: If it is not the URL of a proxy. The message contains no credentials.
    """
    if not is_url(url, _PROXY_SCHEMES):
        msg = (
            f"`proxy` must be a URL like http://host:3128 with the scheme "
            f"{', '.join(_PROXY_SCHEMES[:-1])} or {_PROXY_SCHEMES[-1]}, got {redact_url(url)!r}"
        )
        raise ValueError(msg)


def _has_authorization(headers: Iterable[str]) -> bool:
    return any(name.lower() == "authorization" for name in headers)


@checked_dataclass(repr=False, config=CHECKED)
class HttpServerInfo(BuiltInServerInfo):
    """
    The parameters that `SSEServerInfo` and `StreamableHttpServerInfo` share.

    `max_in_flight`, `failure_pause` and `negotiation` are documented by `BuiltInServerInfo`.

    :param url: Full URL of the MCP server.
    :param token: Authentication token for the server (optional, generates the header `Authorization: Bearer <token>`).
        Or a token source of Haystack, an object with `resolve` or `resolve_async`, which is called before each request.
    :param headers: Custom HTTP headers. They are sent together with the token's header; an `Authorization` among them
        takes precedence.
    :param timeout: Seconds that each phase of a request may take: to connect, to write, and to wait for a free
        connection. Over SSE, also to wait for the acknowledgement of a message. Calls have `invocation_timeout`.
        Default: 30.
    :param max_retries: How often a lost session is reopened, or a call that provably did not run is sent again.
    :param base_delay: Base delay of the exponential back-off between these attempts, in seconds.
    :param max_delay: Longest delay between these attempts, in seconds.
    :param max_message_size: How many bytes one message of the server, e.g. the result of a call, may have after
        decompression. Default: 16 MiB. A call whose answer is larger fails with an MCPOutcomeUnknownError. Over
        Streamable HTTP, the session goes on; over SSE it ends, and so do the other calls under way.
    :param verify: The certificates of servers to trust: True for those that `SSL_CERT_FILE` or `SSL_CERT_DIR` names, or
        the system's if neither is set; the path of a CA bundle or of a folder with certificates; False for any; or an
        `ssl.SSLContext`, which cannot be saved to YAML.
    :param client_cert: Certificate of this client: the path of a PEM file with certificate and key, a pair of paths
        (certificate, key), or (certificate, key, password of the key as a Secret).
    :param proxy: URL of a proxy, `http://`, `https://`, or with the package `socksio` `socks5://`. If it contains
        credentials, pass it as a Secret. It is used for all requests; the proxies and `NO_PROXY` in the environment are
        ignored.
    :param http_transport: Makes the transport of the HTTP client: a function, or its import path. It is called in a
        thread for each attempt to open a session, and to find out why one failed. It gets the keyword arguments for
        `httpx2.AsyncHTTPTransport` that follow from the parameters above (`verify`, `limits`, `socket_options`,
        `proxy`), and returns a new `httpx2.AsyncBaseTransport`. The proxies in the environment are then ignored.
    :param token_provider: Returns the token of each call: a function, or its import path. It gets the
        `MCPRequestContext` of the call, which is empty outside of `mcp_request_context`, and returns a string. A sync
        function runs in a thread; an async one is awaited in the event loop of all connections and must not block it.
        If it fails, so does the call, and nothing is sent.
    :param headers_provider: Likewise, for a dictionary of headers. Its `Authorization` takes precedence over the token.
    :param oauth_config: How to get access tokens (OAuth 2.1). It excludes `token`, `token_provider` and a header
        `Authorization`. A token of `mcp_request_context` takes precedence over it.
    :param auth: `"oauth"` is short for `oauth_config=OAuthConfig()`. Or any `httpx2.Auth`, or the import path
        (`"package.module:name"`) of one or of a function that makes one; only an import path can be saved to YAML.
    """

    url: Any
    token: Annotated[str | Secret | TokenSource | None, _UNCHECKED] = None
    headers: Annotated[Secrets | None, BeforeValidator(_without_none)] = None
    timeout: Seconds = 30.0
    max_retries: Retries = 3
    base_delay: Delay = 1.0
    max_delay: Delay = 30.0
    oauth_config: OAuthConfig | None = None
    _: KW_ONLY
    max_message_size: MessageSize = DEFAULT_MAX_MESSAGE_SIZE
    verify: bool | str | ssl.SSLContext = True
    client_cert: Annotated[ClientCert | None, BeforeValidator(_tuple_of_list)] = None
    proxy: str | Secret | None = None
    http_transport: str | Callable[..., Any] | None = None
    token_provider: str | TokenProvider | None = None
    headers_provider: str | HeadersProvider | None = None
    auth: Annotated[str | Auth | None, _UNCHECKED] = None

    _always_stored = "url base_url token headers timeout max_retries base_delay max_delay".split()

    def __post_init__(self) -> None:
        """
        Refuse invalid parameters.

        :raises ValueError: Naming the parameter and what it takes.
        """
        if isinstance(self.url, str):
            self.url = self.url.strip()
        if not isinstance(self.url, Secret) and not is_url(self.url):  # a Secret is a URL only when it is resolved
            msg = f"Invalid url: {redact_url(str(self.url))}. `url` must be like https://host/path."
            raise ValueError(msg)
        if isinstance(self.proxy, str):
            check_proxy_url(self.proxy)
        for parameter in ("http_transport", "token_provider", "headers_provider"):
            value = getattr(self, parameter)
            if isinstance(value, str) and not is_import_path(value):  # `from_dict` would not check the module
                self._refuse(f"`{parameter}` must be a function, or its import path 'package.module:name'")
        self._check_auth()

    def _check_auth(self) -> None:
        source = self._token_source
        if source is not None:
            kind = type(source).__name__
            if not hasattr(source, "resolve") and not hasattr(source, "resolve_async"):
                self._refuse(f"`token` must be a string, a Secret, a token source or None, got {kind}")
            if getattr(source, "requires_subject_token", False):
                self._refuse(f"`token` cannot be a {kind}, which needs a token of each user. Use `token_provider`")
        auth = self.auth
        if isinstance(auth, OAuthConfig):
            self._refuse("pass an OAuthConfig as `oauth_config`, not as `auth`")
        is_path = is_import_path(auth) and leads_to_a_module(str(auth))
        if auth is not None and auth != "oauth" and not is_path and not hasattr(auth, "async_auth_flow"):
            # The message leaves out the value, because it may be a bearer token, which other packages take as `auth`.
            kind = "one of a package that is not there" if is_import_path(auth) else f"another {type(auth).__name__}"
            self._refuse(
                "`auth` must be 'oauth', an httpx2.Auth, the import path 'package.module:name' of one or of a function "
                f"that makes one, or None, got {kind}. Pass a bearer token as `token=`",
            )
        parameters = ("token", "token_provider", "auth", "oauth_config")
        chosen = [parameter for parameter in parameters if getattr(self, parameter) is not None]
        if len(chosen) > 1:
            self._refuse(f"`{chosen[0]}` and `{chosen[1]}` exclude each other")
        if _has_authorization(self.headers or {}) and (auth is not None or self.oauth_config is not None):
            self._refuse(f"a header `Authorization` and `{chosen[0]}` exclude each other")

    @property
    def _oauth(self) -> OAuthConfig | None:
        return _ALL_BY_DEFAULT if self.auth == "oauth" else self.oauth_config

    @property
    def _token_source(self) -> Any:
        return None if isinstance(self.token, (str, Secret)) else self.token

    @property
    def _modules(self) -> tuple[str, ...]:
        of_auth = [f"{_TRANSPORTS}.http_auth"] if self._has_auth else []
        # The last one needs the extra `fast`.
        return (*super()._modules, *of_auth, "httpcore2", _ANYIO_BACKEND, f"{_TRANSPORTS}.aiohttp_transport")

    @property
    def _has_auth(self) -> bool:
        return self.auth is not None or self.oauth_config is not None or self._token_source is not None

    @property
    def _may_log_in(self) -> bool:
        config = self._oauth
        return config is not None and config.grant_type == "authorization_code"

    def _is_logging_in(self, *, is_own: bool) -> bool:
        users = users_logging_in(secret_text(self.url))
        return current_user() in users if is_own else bool(users)

    @property
    def _has_providers(self) -> bool:
        return self.token_provider is not None or self.headers_provider is not None

    def _resolved_url(self) -> str:
        """Return the URL with the values of its variables; raise a ValueError if either is invalid."""
        url = secret_text(self.url).strip()
        if not is_url(url):
            msg = f"with the values of its variables, `url` is not a URL like https://host/path: {shown(self.url)}"
            raise ValueError(msg)
        return url

    def _resolved_headers(self) -> dict[str, str]:
        """Return the headers, with the token and the values of Secrets; raise a ValueError if one cannot be sent."""
        headers = resolve_secrets(self.headers)
        if self._token_source is None and not _has_authorization(headers):
            token = value_of(self.token, "token") if isinstance(self.token, Secret) else self.token
            if token == "" and isinstance(self.token, Secret) and vars(self.token).get("_strict"):
                variables = " or ".join(vars(self.token)["_env_vars"])
                logger.warning("The environment variable {variable} is empty, so no token is sent", variable=variables)
            if token:
                headers["Authorization"] = bearer(str(token))
        if fault := problem_with_headers(headers):
            raise ValueError(fault)
        return headers

    async def _provided_headers(self, context: MCPRequestContext) -> dict[str, str]:
        headers: dict[str, str] = {}
        if self.headers_provider is not None:
            provided = await call_provider(self.headers_provider, context)
            if not isinstance(provided, Mapping) or not all(
                isinstance(text, str) for pair in provided.items() for text in pair
            ):
                msg = "`headers_provider` must return a dict of strings"
                raise IdentityRefusedError(msg)
            headers.update(provided)
        if self.token_provider is not None and not _has_authorization(headers):
            token = await call_provider(self.token_provider, context)
            if not isinstance(token, str) or not token:
                kind = "an empty string" if token == "" else type(token).__name__
                msg = f"`token_provider` must return a string that is not empty, it returned {kind}"
                raise IdentityRefusedError(msg)
            headers["Authorization"] = bearer(token)
        return headers

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize this server info to a dictionary, functions as import paths.

        :returns: Dictionary representation of this server info.
        :raises ValueError: If it holds a token-based `Secret`, an `ssl.SSLContext`, or a function without import path.
        """
        data = super().to_dict()
        for parameter in _OBJECTS & data.keys():
            if not isinstance(data[parameter], (bool, str)):
                data[parameter] = import_path_of(type(self).__name__, parameter, data[parameter])
        if self.oauth_config is not None:
            data["oauth_config"] = self.oauth_config.to_dict()
        if self._token_source is not None:
            data["token"] = serialize_object("token", self.token)
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize server info from a dictionary.

        :param data: Dictionary containing serialized server info.
        :returns: The server info.
        :raises DeserializationError: If the module in an import path is not on Haystack 3's allowlist.
        """
        data = dict(data)
        if isinstance(data.get("oauth_config"), Mapping):
            data["oauth_config"] = OAuthConfig.from_dict(dict(data["oauth_config"]))
        if isinstance(data.get("token"), Mapping) and "init_parameters" in data["token"]:
            data["token"] = deserialize_object(dict(data["token"]))
        info = super().from_dict(data)
        for parameter in _OBJECTS:
            value = getattr(info, parameter)
            if is_import_path(value):
                check_module_may_be_imported(value.partition(":")[0])
        return info

    def describe(self) -> str:
        """
        Describe the server for messages.

        :returns: Transport and URL.
        """
        name = "SSE" if self._transport_name == "sse" else "streamable HTTP"
        return f"{name} server at {redact_url(shown(self.url))}"

    def _secrets(self) -> set[str]:
        *_, password = self.client_cert if isinstance(self.client_cert, tuple) else [None]
        secrets = [password] if isinstance(password, Secret) else []
        secrets += self.oauth_config._secrets() if self.oauth_config is not None else []
        return super()._secrets().union(*(secrets_in({"password": secret}) for secret in secrets))

    def _redacted_fields(self) -> dict[str, Any]:
        fields = {**super()._redacted_fields(), "url": redact_url(shown(self.url))}
        if isinstance(self.proxy, str):
            fields["proxy"] = redact_url(self.proxy)
        if isinstance(self.client_cert, tuple):
            fields["client_cert"] = [part if isinstance(part, str) else REDACTED for part in self.client_cert]
        for parameter in _OBJECTS & fields.keys():
            if not isinstance(fields[parameter], (bool, str)):
                fields[parameter] = f"<{shown_function(fields[parameter])}>"
        if isinstance(self.auth, str) and self.auth != "oauth" and "." not in self.auth.partition(":")[0]:
            fields["auth"] = REDACTED  # it may be a bearer token that looks like an import path
        if self.oauth_config is not None:
            fields["oauth_config"] = self.oauth_config._to_trace_dict()
        return fields


@dataclass(repr=False)
class _BeforeToken:  # positional arguments rely on this order
    url: str | Secret | None = None
    base_url: str | None = None


@explains_options
@checked_dataclass(repr=False, config=CHECKED)
class SSEServerInfo(HttpServerInfo, _BeforeToken):
    """
    Data class that encapsulates SSE MCP server connection parameters.

    For authentication tokens containing sensitive data, you can use Secret objects for secure handling and
    serialization:

    ```python
    server_info = SSEServerInfo(
        url="https://my-mcp-server.com/sse",
        token=Secret.from_env_var("API_KEY"),
    )
    ```

    An answer that is too large ends the session.

    :param url: Full URL of the MCP server (including /sse endpoint).
    :param base_url: Base URL of the MCP server (deprecated, use url instead).
    :param token: This and all further parameters are documented by `HttpServerInfo`.
    """

    _transport_name = "sse"
    _client = f"{_TRANSPORTS}.http_client:SSEClient"

    url: str | Secret | None = None

    def __post_init__(self) -> None:
        """
        Refuse invalid parameters and resolve the deprecated `base_url`.

        :raises ValueError: Naming the parameter and what it takes.
        """
        if not self.url and not self.base_url:
            msg = "Either url or base_url must be provided"
            raise ValueError(msg)
        if self.base_url:
            derived_url = f"{self.base_url.rstrip('/')}/sse"
            if self.url and self.url != derived_url:
                warnings.warn(
                    "Only one of url or base_url should be provided, if both are provided, base_url will be ignored",
                    DeprecationWarning,
                    stacklevel=4,
                )
            warnings.warn("base_url is deprecated, use url instead", DeprecationWarning, stacklevel=4)
            self.url = self.url or derived_url
        super().__post_init__()

    def _redacted_fields(self) -> dict[str, Any]:
        return {**super()._redacted_fields(), "base_url": self.base_url and redact_url(self.base_url)}


@explains_options
@checked_dataclass(repr=False, config=CHECKED)
class StreamableHttpServerInfo(HttpServerInfo):
    """
    Data class that encapsulates streamable HTTP MCP server connection parameters.

    For authentication tokens containing sensitive data, you can use Secret objects for secure handling and
    serialization:

    ```python
    server_info = StreamableHttpServerInfo(
        url="https://my-mcp-server.com/mcp",
        token=Secret.from_env_var("API_KEY"),
    )
    ```

    For custom headers (e.g., non-standard authentication):

    ```python
    server_info = StreamableHttpServerInfo(
        url="https://my-mcp-server.com/mcp",
        headers={
            "X-API-Key": Secret.from_env_var("API_KEY"),
            "X-Client-ID": "my-client-id",
        },
    )
    ```

    :param url: Full URL of the MCP server (streamable HTTP endpoint).
    :param sse_fallback: Whether to try SSE if the server refuses Streamable HTTP with status 400, 404 or 405, as
        servers of the revision 2024-11-05 do. Default: False; True in a server info made from a URL alone.
    :param token: This and all other parameters are documented by `HttpServerInfo`.
    """

    _transport_name = "streamable-http"
    _client = f"{_TRANSPORTS}.http_client:StreamableHttpClient"

    url: str | Secret
    _: KW_ONLY
    sse_fallback: bool = False
