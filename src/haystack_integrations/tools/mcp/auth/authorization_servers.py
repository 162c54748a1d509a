# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Discovery of the authorization server of an MCP server (RFC 9728, RFC 8414, OpenID Connect), and its metadata.

.. code-block:: text

    the resource's metadata          at the URL in the challenge, else at the well-known paths; there may be none
    the authorization server         the configured issuer; else the first one in the resource's metadata; else the
                                     origin of the MCP server (2025-03-26), or the issuer that its metadata name
    its metadata                     at the well-known paths; their issuer must be the one that was asked, or its
                                     origin; or any with the origin that was asked
    its endpoints, without metadata  `/authorize`, `/token` and `/register`, only if the origin of the MCP server is the
                                     authorization server and has no metadata (2025-03-26)
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Self, TypeAlias, TypeVar
from urllib.parse import urljoin

import httpx2
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    create_oauth_metadata_request,
    issuers_match,
)
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import (
    AfterValidator,
    BaseModel,
    ValidationError,
    ValidatorFunctionWrapHandler,
    WrapValidator,
    model_validator,
)

from haystack_integrations.tools.mcp.auth.outgoing import Outgoing
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.parameters import is_url

ModelT = TypeVar("ModelT", bound="_Metadata")

# The endpoints of an authorization server without metadata (2025-03-26).
_GUESSED = {"authorization": "authorize", "token": "token", "registration": "register"}

_MAX_REDIRECTS = 3

# A parameter of a challenge (RFC 9110, 11.2).
_PARAMETER = re.compile(r'(?<![\w-])([\w-]+)\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]*))')


@dataclass(frozen=True)
class Challenge:
    """
    The challenge with which a server refused a request.

    :param is_step_up: Whether it demands more scopes than the token has.
    :param scope: The scopes that it demands, separated by spaces.
    :param metadata_url: The URL of its metadata.
    """

    is_step_up: bool = False
    scope: str | None = None
    metadata_url: str | None = None

    @classmethod
    def of(cls, response: httpx2.Response) -> Challenge | None:
        """
        Read the challenge in a response.

        :param response: The response.
        :returns: The challenge; None if the response does not refuse the request because of its token.
        """
        challenge = challenge_parameters(response)
        is_step_up = response.status_code == httpx2.codes.FORBIDDEN and challenge.get("error") == "insufficient_scope"
        if response.status_code != httpx2.codes.UNAUTHORIZED and not is_step_up:
            return None
        return cls(is_step_up, challenge.get("scope"), challenge.get("resource_metadata"))


def challenge_parameters(response: httpx2.Response) -> dict[str, str]:
    """
    Read the parameters of a challenge, regardless of the scheme.

    :param response: The response.
    :returns: The values by name, the first of each name. Empty values are left out.
    """
    found = _PARAMETER.findall(response.headers.get("www-authenticate", ""))
    return {name.lower(): quoted or word for name, quoted, word in reversed(found) if quoted or word}


def same_issuer(one: str, other: str) -> bool:
    """
    Compare two issuers. A trailing slash does not matter for an origin, but it does for a path.

    :param one: An issuer.
    :param other: Another.
    :returns: Whether they are the same.
    """
    return issuers_match(_normalized(one), _normalized(other))


def is_one_of_tenants(issuer: str, named: str) -> bool:
    """
    Return whether an issuer is a tenant of Microsoft Entra ID that the metadata of all tenants cover.

    :param issuer: The issuer, which may also be one for several tenants, such as `common`.
    :param named: The issuer in the metadata, which has a placeholder for the tenant.
    :returns: True if it is.
    """
    before, placeholder, after = named.partition("{tenantid}")
    return bool(placeholder) and re.fullmatch(f"{re.escape(before)}[^/]+{re.escape(after)}", issuer) is not None


def _normalized(url: str) -> str:
    try:
        return str(httpx2.URL(url))
    except httpx2.InvalidURL:  # not an error here, because this authorization server may not be the one to use
        return url


def _check_url(url: str) -> str:
    if not is_url(url):
        msg = "should be a URL"
        raise ValueError(msg)
    return url


Url: TypeAlias = Annotated[str, AfterValidator(_check_url)]


def _words(value: Any, validate: ValidatorFunctionWrapHandler) -> Any:
    # They may also be in one text. Anything else counts as absent, because these members are optional.
    try:
        return validate(value.split() if isinstance(value, str) else value)
    except ValidationError:
        return None


Words: TypeAlias = Annotated[list[str] | None, WrapValidator(_words)]


class _Metadata(BaseModel):
    """
    Metadata with only the members that are used here, so that others may be invalid.
    """

    @model_validator(mode="before")
    @classmethod
    def _empty_is_absent(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        return {name: value for name, value in data.items() if value is not None and value != ""}


class ResourceMetadata(_Metadata):
    """
    The metadata of an MCP server (RFC 9728, 2).
    """

    resource: str
    authorization_servers: list[Url] = []
    scopes_supported: Words = None


class ServerMetadata(_Metadata):
    """
    The metadata of an authorization server (RFC 8414, 2).
    """

    issuer: Url
    token_endpoint: Url
    authorization_endpoint: Url | None = None
    registration_endpoint: Url | None = None
    revocation_endpoint: Url | None = None
    scopes_supported: Words = None
    token_endpoint_auth_methods_supported: Words = None
    client_id_metadata_document_supported: bool = False
    authorization_response_iss_parameter_supported: bool = False


@dataclass(frozen=True)
class Discovered:
    """
    The result of a discovery.

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
        Restore an earlier result.

        :param record: A stored record.
        :returns: The result, or None if nothing usable was stored.
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
    # The problems by URL, and whether one of them is other than missing metadata.
    _problems: dict[str, str] = field(default_factory=dict)
    _is_broken: bool = False

    async def run(self, challenge: Challenge) -> Discovered:
        """
        Find the authorization server to which the MCP server refers.

        :param challenge: The challenge of the MCP server.
        :returns: The authorization server.
        :raises MCPAuthorizationError: If there is none, or one that must not be used.
        """
        resource = await self._find_resource(challenge.metadata_url)
        advertised = resource.authorization_servers if resource is not None else []
        if self.issuer is not None and advertised:
            # Metadata there may name the configured issuer, as Salesforce's do.
            leads_to = advertised
            if not any(same_issuer(each, self.issuer) for each in leads_to):
                leads_to = await self._named_by(advertised[0])
            if not any(same_issuer(each, self.issuer) for each in leads_to):
                shown = ", ".join(advertised)
                msg = f"the MCP server leads to {shown}, which is not the configured issuer {self.issuer}"
                raise MCPAuthorizationError(msg)
        return await self.find_server(self.issuer or next(iter(advertised), None), resource)

    async def _named_by(self, issuer: str) -> list[str]:
        urls = build_oauth_authorization_server_metadata_discovery_urls(issuer, self.server_url)
        step = "reading the metadata of the authorization server"
        found = [await self._read(url, ServerMetadata, step) for url in urls]
        return [server.issuer for server in found if server is not None]

    async def find_server(self, issuer: str | None, resource: ResourceMetadata | None = None) -> Discovered:
        """
        Find the endpoints of an authorization server.

        :param issuer: Its issuer; None for the origin of the MCP server.
        :param resource: The metadata of the MCP server.
        :returns: The authorization server.
        :raises MCPAuthorizationError: If its metadata are missing although required, or are unusable.
        """
        origin = urljoin(self.server_url, "/").rstrip("/")
        expected = issuer or origin
        named: str | None = None
        for url in build_oauth_authorization_server_metadata_discovery_urls(expected, self.server_url):
            server = await self._read(url, ServerMetadata, "reading the metadata of the authorization server")
            if server is None:
                continue
            # Metadata at the path of an issuer may name its origin, as Atlassian's do, and those at an origin may name
            # an issuer with a path, as Zephyr's do.
            is_named = any(same_issuer(server.issuer, each) for each in (expected, urljoin(expected, "/")))
            is_named |= same_issuer(expected, urljoin(server.issuer, "/"))
            if is_named or is_one_of_tenants(expected, server.issuer):
                return Discovered(server, resource)
            self._note(url, f"issuer mismatch: they are for {server.issuer}; if that is right, set `issuer` to it")
            named = named or server.issuer
        if issuer is None and named is not None:  # the MCP server has a copy of the metadata, as at Atlassian
            return await self.find_server(named, resource)
        if not self._is_broken and resource is None and same_issuer(expected, origin):
            endpoints = {f"{kind}_endpoint": f"{origin}/{path}" for kind, path in _GUESSED.items()}
            return Discovered(ServerMetadata.model_validate({"issuer": origin, **endpoints}), is_guessed=True)
        shown = "; ".join(f"{url}: {problem}" for url, problem in self._problems.items())
        msg = f"there are no usable metadata of the authorization server {expected} ({shown})"
        raise MCPAuthorizationError(msg)

    async def _find_resource(self, advertised: str | None) -> ResourceMetadata | None:
        resource = resource_url_from_server_url(self.server_url)
        advertised = urljoin(self.server_url, advertised) if advertised else None
        failure: MCPAuthorizationError | None = None
        for url in dict.fromkeys(build_protected_resource_metadata_discovery_urls(advertised, self.server_url)):
            try:
                found = await self._read(url, ResourceMetadata, "reading the metadata of the MCP server")
            except MCPAuthorizationError as error:
                failure = failure or error
                self._note(url, str(error))
                continue
            if found is None:
                continue
            if found.resource != self.resource and not check_resource_allowed(resource, _normalized(found.resource)):
                msg = (
                    f"the metadata at {url} are for {found.resource}, which does not "
                    f"match {resource}. If it is the same, set `resource`"
                )
                raise MCPAuthorizationError(msg)
            return found
        if failure is not None and self.issuer is None:
            raise failure
        return None

    async def _read(self, url: str, model: type[ModelT], step: str) -> ModelT | None:
        response = await self._ask(url, "", step)
        for _ in range(_MAX_REDIRECTS):  # for example, to the same path with a trailing slash
            if response.has_redirect_location:
                response = await self._ask(str(response.request.url), response.headers["location"], step)
        if response.status_code != httpx2.codes.OK:
            is_down = response.is_server_error or response.status_code == httpx2.codes.TOO_MANY_REQUESTS
            self._note(url, f"HTTP {response.status_code}", is_broken=is_down)
            return None
        try:
            return model.model_validate_json(response.content.removeprefix(codecs.BOM_UTF8))
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, each['loc']))} {each['msg']}".strip() for each in error.errors()]
            self._note(url, f"they are invalid: {', '.join(problems)}")
            return None

    async def _ask(self, url: str, target: str, step: str) -> httpx2.Response:
        try:
            place = urljoin(url, target)
            request = create_oauth_metadata_request(place)
        except (ValueError, httpx2.InvalidURL) as error:
            msg = f"{target or url} is not a URL ({error})"
            raise MCPAuthorizationError(msg) from None
        return await self.outgoing.send(request, step)

    def _note(self, url: str, problem: str, *, is_broken: bool = True) -> None:
        self._problems[url] = problem
        self._is_broken |= is_broken
