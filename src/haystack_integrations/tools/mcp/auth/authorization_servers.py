# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
How the authorization server of an MCP server is found (RFC 9728, RFC 8414, OpenID Connect), and the requests to it.

.. code-block:: text

    the resource's metadata          where the challenge says, at the well-known paths, or nowhere
    the authorization server         the configured issuer; else the first one in the resource's metadata; else the
                                     origin of the MCP server (2025-03-26)
    its metadata                     at the well-known paths. They must be of the issuer that was asked
    its endpoints, without metadata  `/authorize`, `/token` and `/register`, only if the origin of the MCP server is the
                                     authorization server and has no metadata (2025-03-26)

An MCP server names its authorization server, and that one names its endpoints. So both choose which URLs this process
requests, and could choose ones that only this process can reach. What is refused:

.. code-block:: text

    http:// where the MCP server is https://                         always, except for the configured issuer
    link-local addresses, such as the metadata service of a cloud    always
    loopback and private addresses                                   unless the MCP server itself is at such an address

An IPv6 address counts as the IPv4 address that is embedded in it. Names are looked up once: the connection goes to the
address that was checked. The origins of the MCP server and of the configured issuer are not questioned.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import ipaddress
import json
import socket
import time
import urllib.request
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, NoReturn, Self, TypeAlias, TypeVar
from urllib.parse import urljoin

import httpx2
import jwt
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key
from jwt.algorithms import ECAlgorithm
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_oauth_metadata_request,
    extract_field_from_www_auth,
    extract_resource_metadata_from_www_auth,
    extract_scope_from_www_auth,
    issuers_match,
)
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import AfterValidator, BaseModel, ValidationError, model_validator

from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.parameters import is_url

ModelT = TypeVar("ModelT", bound="_Metadata")

# The endpoints of an authorization server without metadata (2025-03-26).
_GUESSED = {"authorization": "authorize", "token": "token", "registration": "register"}

# Metadata, registrations and tokens take a few kilobytes.
_BODY_LIMIT = 1024 * 1024

# Seconds that one request may take, from connecting to the end of its answer.
REQUEST_TIMEOUT = 20.0

# What is secret in forms.
_SECRET_FIELDS = frozenset(
    {"assertion", "client_assertion", "client_secret", "code", "code_verifier", "refresh_token", "subject_token"}
    | {"token"}
)

# What is secret in answers.
_SECRET_MEMBERS = frozenset({"access_token", "client_secret", "id_token", "refresh_token", "registration_access_token"})

# The addresses of a request's host that were checked.
_CHECKED = "haystack_mcp_checked_addresses"

HttpClients = Callable[[], AbstractAsyncContextManager[httpx2.AsyncClient]]


class Proofs:
    """
    The proofs of possession of one key, and the nonces that servers want in them.
    """

    def __init__(self, pem: str | None) -> None:
        """
        Initialize the Proofs.

        :param pem: The private key; None for a new one.
        """
        key: Any = ec.generate_private_key(ec.SECP256R1()) if pem is None else load_pem_private_key(pem.encode(), None)
        self._key = key
        self.pem: str = pem or key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        public = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
        self._jwk = {name: public[name] for name in ("kty", "crv", "x", "y")}
        self._nonces: dict[bytes, str] = {}

    def prove(self, request: httpx2.Request, token: str | None = None) -> None:
        """
        Put a new proof on a request.

        :param request: The request.
        :param token: The access token that it carries.
        """
        claims: dict[str, Any] = {
            "jti": uuid.uuid4().hex,
            "htm": request.method,
            "htu": str(request.url.copy_with(query=None, fragment=None)),
            "iat": int(time.time()),
        }
        if token is not None:
            claims["ath"] = base64.urlsafe_b64encode(hashlib.sha256(token.encode()).digest()).decode().rstrip("=")
        nonce = self._nonces.get(request.url.netloc)
        if nonce is not None:
            claims["nonce"] = nonce
        headers = {"typ": "dpop+jwt", "jwk": self._jwk}
        request.headers["DPoP"] = jwt.encode(claims, self._key, algorithm="ES256", headers=headers)

    def wants_another(self, response: httpx2.Response, error: Any = None) -> bool:
        """
        Keep the nonce of a response.

        :param response: The response.
        :param error: The `error` of an authorization server.
        :returns: Whether it refuses the request for the lack of this nonce.
        """
        nonce = response.headers.get("dpop-nonce")
        if nonce is None:
            return False
        self._nonces[response.request.url.netloc] = nonce
        if response.status_code == httpx2.codes.UNAUTHORIZED:
            return "use_dpop_nonce" in response.headers.get("www-authenticate", "")
        return bool(error == "use_dpop_nonce")


class PinnedTransport(httpx2.AsyncHTTPTransport):
    """
    Connects to the addresses that were checked, where a request has some, without looking up its host again.

    A proxy looks up hosts itself.
    """

    def __init__(self, *, proxy: httpx2.Proxy | None = None, **options: Any) -> None:
        """
        Initialize the PinnedTransport.

        :param proxy: As for `httpx2.AsyncHTTPTransport`.
        :param options: Likewise.
        """
        super().__init__(proxy=proxy, **options)
        self._has_proxy = proxy is not None

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """
        Send a request.

        :param request: The request.
        :returns: The response.
        :raises httpx2.ConnectError: If no address can be connected to.
        """
        addresses = request.extensions.get(_CHECKED)
        if addresses is None or self._has_proxy:
            return await super().handle_async_request(request)
        failure: httpx2.TransportError = httpx2.ConnectError("the name of its host is not known", request=request)
        # The pool knows connections by address: another host there must not get one with this host's certificate.
        headers = {**request.headers, "Connection": "close"}
        for address in addresses:
            pinned = httpx2.Request(
                request.method,
                request.url.copy_with(host=str(address)),
                headers=headers,
                stream=request.stream,
                extensions={**request.extensions, "sni_hostname": request.url.host},
            )
            try:
                return await super().handle_async_request(pinned)
            except (httpx2.ConnectError, httpx2.ConnectTimeout) as error:
                failure = error
        raise failure


def json_object(response: httpx2.Response) -> dict[str, Any]:
    """
    Read the body of a response.

    :param response: The response.
    :returns: The object, empty if the body is something else.
    """
    try:
        body = json.loads(response.content)
    except (ValueError, RecursionError):
        return {}
    return body if isinstance(body, dict) else {}


def uses_environment_proxies() -> bool:
    """
    Return whether the environment names proxies for HTTP.

    :returns: Whether it does. `NO_PROXY` may still exempt a host.
    """
    return not {"http", "https", "all"}.isdisjoint(urllib.request.getproxies())


@asynccontextmanager
async def plain_client() -> AsyncIterator[httpx2.AsyncClient]:
    """
    Make an HTTP client without options. It uses the proxies of the environment, if there are any.

    :returns: A context manager.
    """
    transport = None if uses_environment_proxies() else PinnedTransport()
    async with httpx2.AsyncClient(transport=transport, follow_redirects=False) as client:
        yield client


class Outgoing:
    """
    Sends the requests of one flow, and remembers what it was doing and which secrets it saw.
    """

    def __init__(
        self,
        clients: HttpClients,
        server_url: str,
        trusted: Iterable[str | None],
        check: Callable[[str], None] | None,
    ) -> None:
        """
        Initialize the Outgoing.

        :param clients: Makes the HTTP client of a request.
        :param server_url: The MCP server.
        :param trusted: URLs whose origins are not questioned.
        :param check: Called with each URL; raises an exception if it must not be requested.
        """
        self._check = check
        self._clients = clients
        self._server = httpx2.URL(server_url)
        self._trusted = {_origin(httpx2.URL(url)) for url in trusted if url}
        self.step: str = "preparing to ask for a token"
        self.secrets: set[str] = set()

    async def post(
        self,
        url: str,
        form: Mapping[str, str],
        step: str,
        headers: Mapping[str, str] | None = None,
        proofs: Proofs | None = None,
    ) -> httpx2.Response:
        """
        Send a form.

        :param url: The endpoint.
        :param form: The form.
        :param step: What it is for.
        :param headers: Headers.
        :param proofs: Prove the possession of their key.
        :returns: The response, with its body read.
        :raises MCPAuthorizationError: As in `send`.
        """
        self.secrets.update(value for name, value in form.items() if name in _SECRET_FIELDS)
        if headers and "Authorization" in headers:
            self.secrets.add(headers["Authorization"].partition(" ")[2])
        return await self.send(httpx2.Request("POST", url, data=form, headers=headers), step, proofs)

    async def send(self, request: httpx2.Request, step: str, proofs: Proofs | None = None) -> httpx2.Response:
        """
        Send a request.

        :param request: The request.
        :param step: What it is for.
        :param proofs: Prove the possession of their key.
        :returns: The response, with its body read.
        :raises MCPAuthorizationError: If there is none, or the URL must not be requested.
        """
        self.step = f"{step} at {request.url.netloc.decode()}"
        # Without it, GitHub answers with a form.
        request.headers.setdefault("Accept", "application/json")
        shown = str(request.url)
        addresses = await self.check(request.url)
        if addresses is not None:
            request.extensions = {**request.extensions, _CHECKED: addresses}
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT):
                if proofs is not None:
                    proofs.prove(request)
                response = await self._send(request, shown)
                if proofs is not None and proofs.wants_another(response, json_object(response).get("error")):
                    proofs.prove(request)
                    response = await self._send(request, shown)
        except TimeoutError:
            msg = f"{shown} has not answered within {REQUEST_TIMEOUT:g} seconds"
            raise MCPAuthorizationError(msg) from None
        except (httpx2.RequestError, httpx2.InvalidURL) as error:
            msg = f"{shown} could not be reached ({type(error).__name__}: {error})"
            raise MCPAuthorizationError(msg) from error
        answer = json_object(response)
        self.secrets.update(str(answer[name]) for name in _SECRET_MEMBERS & answer.keys() if answer[name])
        return response

    async def _send(self, request: httpx2.Request, shown: str) -> httpx2.Response:
        body = bytearray()
        async with self._clients() as client:
            sending = client.send(request, stream=True, auth=None, follow_redirects=False)
            async with aclosing(await sending) as response:
                async for chunk in response.aiter_bytes():
                    body += chunk
                    if len(body) > _BODY_LIMIT:
                        msg = f"the answer of {shown} has more than {_BODY_LIMIT:,} bytes"
                        raise MCPAuthorizationError(msg)
        dropped = (b"content-encoding", b"content-length", b"transfer-encoding")
        headers = [(name, value) for name, value in response.headers.raw if name.lower() not in dropped]
        return httpx2.Response(response.status_code, headers=headers, content=bytes(body), request=request)

    async def check(self, url: httpx2.URL) -> list[Any] | None:
        """
        Refuse a URL that an authorization server has no reason to be at.

        :param url: The URL.
        :returns: The addresses of its host, if they had to be looked up.
        :raises MCPAuthorizationError: If it is one.
        """
        if self._check is not None:
            self._check(str(url))
        if _origin(url) in self._trusted:
            return None
        if url.scheme != "https" and (url.scheme != "http" or self._server.scheme == "https"):
            msg = f"{url} is refused, because it is not https://"
            raise MCPAuthorizationError(msg)
        addresses = await _addresses(url.host)
        places = [_place(address) for address in addresses]
        is_refused = any(place.is_link_local for place in places)
        if not is_refused and not all(place.is_global for place in places):
            is_refused = all(_place(address).is_global for address in await _addresses(self._server.host))
        if is_refused:
            msg = (
                f"{url} is refused, because it leads into the network of this process, and the "
                "MCP server is outside of it. If it is right, set `issuer`"
            )
            raise MCPAuthorizationError(msg)
        return addresses


Address = ipaddress.IPv4Address | ipaddress.IPv6Address

_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")


async def _addresses(host: str) -> list[Address]:
    try:
        return [ipaddress.ip_address(host.rstrip("."))]
    except ValueError:
        pass
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # a proxy may know the name; if nobody does, the request says so
        return []
    addresses = {ipaddress.ip_address(str(entry[4][0]).partition("%")[0]): None for entry in found}
    # One after the other is tried, and a network without IPv6 may let attempts wait.
    return sorted(addresses, key=lambda address: address.version)


def _place(address: Address) -> Address:
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    return address.ipv4_mapped or address.sixtofour or address


def _origin(url: httpx2.URL) -> tuple[str, str, int]:
    return url.scheme, url.host, url.port or (443 if url.scheme == "https" else 80)


@dataclass(frozen=True)
class Challenge:
    """
    What a server said when it refused a request.

    :param is_step_up: Whether it wants more scopes than the token has.
    :param scope: The scopes that it wants, with blanks between them.
    :param metadata_url: Where its metadata are.
    """

    is_step_up: bool = False
    scope: str | None = None
    metadata_url: str | None = None

    @classmethod
    def of(cls, response: httpx2.Response) -> Challenge | None:
        """
        Read a response.

        :param response: The response.
        :returns: The challenge, or None if it does not refuse the request for its token.
        """
        is_step_up = (
            response.status_code == httpx2.codes.FORBIDDEN
            and extract_field_from_www_auth(response, "error") == "insufficient_scope"
        )
        if response.status_code != httpx2.codes.UNAUTHORIZED and not is_step_up:
            return None
        scope, url = extract_scope_from_www_auth(response), extract_resource_metadata_from_www_auth(response)
        return cls(is_step_up, scope, url)


def same_issuer(one: str, other: str) -> bool:
    """
    Compare two issuers: those of an origin are the same with and without a slash at the end, and paths are strict.

    :param one: An issuer.
    :param other: Another.
    :returns: Whether they are the same.
    """
    return issuers_match(_normalized(one), _normalized(other))


def _normalized(url: str) -> str:
    try:
        return str(httpx2.URL(url))
    except httpx2.InvalidURL:  # that of an authorization server that may not be the one to use
        return url


def _check_url(url: str) -> str:
    if not is_url(url):
        msg = "should be a URL"
        raise ValueError(msg)
    return url


Url: TypeAlias = Annotated[str, AfterValidator(_check_url)]


class _Metadata(BaseModel):
    """
    The members that are used here; what is wrong with others does no harm.
    """

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {name: value for name, value in data.items() if value is not None and value != ""}


class ResourceMetadata(_Metadata):
    """
    RFC 9728, 2.
    """

    resource: str
    authorization_servers: list[Url] = []
    scopes_supported: list[str] | None = None


class ServerMetadata(_Metadata):
    """
    RFC 8414, 2.
    """

    issuer: Url
    token_endpoint: Url
    authorization_endpoint: Url | None = None
    registration_endpoint: Url | None = None
    revocation_endpoint: Url | None = None
    scopes_supported: list[str] = []
    token_endpoint_auth_methods_supported: list[str] | None = None
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


@dataclass(frozen=True)
class Discovered:
    """
    Where tokens come from.

    :param server: The authorization server.
    :param resource: The metadata of the MCP server, if it has any.
    :param is_guessed: Whether the authorization server has no metadata.
    """

    server: ServerMetadata
    resource: ResourceMetadata | None = None
    is_guessed: bool = False

    @classmethod
    def of(cls, record: Mapping[str, Any]) -> Self | None:
        """
        Restore what was discovered before.

        :param record: A stored record.
        :returns: It, or None if nothing usable was stored.
        """
        try:
            resource = ResourceMetadata.model_validate(record["resource"]) if record.get("resource") else None
            return cls(ServerMetadata.model_validate(record["authorization_server"]), resource)
        except (KeyError, ValidationError):
            return None


@dataclass
class Discovery:
    """
    One search for the authorization server of an MCP server.

    :param outgoing: Sends its requests.
    :param server_url: The MCP server.
    :param issuer: The configured issuer.
    :param resource: The configured resource.
    """

    outgoing: Outgoing
    server_url: str
    issuer: str | None
    resource: str | None
    # What is wrong at which URL; whether something is there that is wrong; and whether that may be so for a while.
    _problems: dict[str, str] = field(default_factory=dict)
    _is_broken: bool = False
    _is_down: bool = False

    async def run(self, challenge: Challenge) -> Discovered:
        """
        Find the authorization server, as the MCP server says.

        :param challenge: What the MCP server said.
        :returns: What was found.
        :raises MCPAuthorizationError: If nothing was found, or something that must not be used.
        """
        resource = await self._find_resource(challenge.metadata_url)
        advertised = resource.authorization_servers if resource is not None else []
        if self.issuer is not None and advertised and not any(same_issuer(each, self.issuer) for each in advertised):
            shown = ", ".join(advertised)
            msg = f"the MCP server leads to {shown}, which is not the configured issuer {self.issuer}"
            raise MCPAuthorizationError(msg)
        return await self.find_server(self.issuer or next(iter(advertised), None), resource)

    async def find_server(self, issuer: str | None, resource: ResourceMetadata | None = None) -> Discovered:
        """
        Find the endpoints of an authorization server.

        :param issuer: Its issuer; None for the origin of the MCP server.
        :param resource: The metadata of the MCP server.
        :returns: What was found.
        :raises MCPAuthorizationError: If it has no metadata and must have some, or none that can be used.
        """
        origin = urljoin(self.server_url, "/").rstrip("/")
        expected = issuer or origin
        for url in build_oauth_authorization_server_metadata_discovery_urls(expected, self.server_url):
            server = await self._read(url, ServerMetadata, "reading the metadata of the authorization server")
            if server is not None and same_issuer(server.issuer, expected):
                return Discovered(server, resource)
            if server is not None:
                self._note(url, f"issuer mismatch: they are those of {server.issuer}")
        if not self._is_broken and resource is None and same_issuer(expected, origin):
            endpoints = {f"{kind}_endpoint": f"{origin}/{path}" for kind, path in _GUESSED.items()}
            return Discovered(ServerMetadata.model_validate({"issuer": origin, **endpoints}), is_guessed=True)
        self._give_up(f"the authorization server {expected}")

    async def _find_resource(self, advertised: str | None) -> ResourceMetadata | None:
        own = resource_url_from_server_url(self.server_url)
        advertised = urljoin(self.server_url, advertised) if advertised else None
        for url in dict.fromkeys(build_protected_resource_metadata_discovery_urls(advertised, self.server_url)):
            try:
                found = await self._read(url, ResourceMetadata, "reading the metadata of the MCP server")
            except MCPAuthorizationError as error:
                if self.issuer is None:
                    raise
                self._note(url, str(error))
                continue
            if found is None:
                continue
            if found.resource != self.resource and not check_resource_allowed(own, _normalized(found.resource)):
                msg = (
                    f"the metadata at {url} are those of {found.resource}, which does not "
                    f"match {own}. If it is the same, set `resource`"
                )
                raise MCPAuthorizationError(msg)
            return found
        if self._is_down and self.issuer is None:  # which says nothing about whether there are metadata
            self._give_up("the MCP server")
        return None

    async def _read(self, url: str, model: type[ModelT], step: str) -> ModelT | None:
        try:
            request = create_oauth_metadata_request(url)
        except httpx2.InvalidURL as error:
            msg = f"{url} is no URL ({error})"
            raise MCPAuthorizationError(msg) from None
        response = await self.outgoing.send(request, step)
        if response.status_code != httpx2.codes.OK:
            is_down = response.is_server_error or response.status_code == httpx2.codes.TOO_MANY_REQUESTS
            self._is_down |= is_down
            self._note(url, f"HTTP {response.status_code}", is_broken=is_down)
            return None
        try:
            return model.model_validate_json(response.content)
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, each['loc']))} {each['msg']}".strip() for each in error.errors()]
            self._note(url, f"they are invalid: {', '.join(problems)}")
            return None

    def _note(self, url: str, problem: str, *, is_broken: bool = True) -> None:
        self._problems[url] = problem
        self._is_broken |= is_broken

    def _give_up(self, whose: str) -> NoReturn:
        shown = "; ".join(f"{url}: {problem}" for url, problem in self._problems.items())
        msg = f"there are no usable metadata of {whose} ({shown})"
        raise MCPAuthorizationError(msg)
