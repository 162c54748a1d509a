# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The authorization code grant: a user allows the access in a browser (RFC 6749, 4.1, with PKCE, RFC 7636).

The client is the configured one, one with a metadata document, or one that registers itself (RFC 7591). A listener in
this process waits for the browser (RFC 8252, 7.3), unless the configuration has a `callback_handler`.
"""

from __future__ import annotations

import asyncio
import secrets
import webbrowser
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urljoin, urlsplit, urlunsplit

import httpx2
from haystack import logging
from mcp.client.auth import PKCEParameters
from mcp.client.auth.utils import union_scopes
from mcp.shared.auth import OAuthClientInformationFull
from pydantic import ValidationError

from haystack_integrations.tools.mcp.auth.authorization_servers import (
    ResourceMetadata,
    is_one_of_tenants,
)
from haystack_integrations.tools.mcp.auth.flow import Flow, RefusedScopesError
from haystack_integrations.tools.mcp.auth.oauth_config import (
    MCPLoginRequest,
    can_open_browser,
    login_under_way,
)
from haystack_integrations.tools.mcp.auth.outgoing import json_object
from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.convert.odd_messages import repair
from haystack_integrations.tools.mcp.errors import MCPAuthorizationError
from haystack_integrations.tools.mcp.protocol.request_errors import describe_error

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The address of the listener by default.
_DEFAULT_REDIRECT_URI = "http://127.0.0.1/callback"

# The maximum size of a request's line and headers, in bytes. Browsers may send cookies for the host.
_REQUEST_LIMIT = 64 * 1024

# Seconds within which a connection must send its request.
_REQUEST_TIMEOUT = 10.0

# A browser command that still runs after this many seconds is assumed to return only when the browser is closed.
_OPENING_TIMEOUT = 5.0

# Microsoft Entra ID, also of national clouds, and for customers.
_HOSTS_OF_ENTRA = (".microsoftonline.com", ".microsoftonline.us", ".microsoftonline.cn", ".ciamlogin.com")

_OTHER_STATE = "the answer does not have the `state` of the login under way"

_PAGE = (
    '<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title>'
    "<body style='font-family: sans-serif; margin: 4em'><h1>{title}</h1><p>{text}</p></body></html>"
)


class AuthorizationCode(Flow):
    """
    The flow in which a user allows the access in a browser.
    """

    step = "exchanging the code for a token"

    def scope(self, resource: ResourceMetadata | None) -> str | None:
        """
        Choose the scopes: also those of the previous login, and that for a refresh token if the server has one.

        :param resource: As in `Flow`.
        :returns: As in `Flow`.
        """
        scope = super().scope(resource)
        if self.config.scopes is not None:
            return scope
        # Without the previous ones, a person would log in once more at the next call that needs them.
        scope = union_scopes(" ".join(self.record.get("asked_for", ())), scope)
        if scope and "offline_access" in (self.found.server.scopes_supported or ()):
            return union_scopes(scope, "offline_access")
        return scope

    async def grant(self, scope: str | None) -> dict[str, str]:
        """
        Send the user to the authorization server, and wait for the code that it issues.

        :param scope: As in `Flow`.
        :returns: As in `Flow`.
        :raises MCPAuthorizationError: If the access is refused, or the answer is not for this login.
        """
        config, server, pkce = self.config, self.found.server, PKCEParameters.generate()
        server_url, user = self.key.server_url, self.key.user
        state = secrets.token_urlsafe(32)
        self.secrets.update((pkce.code_verifier, state))
        if config.redirect_handler is None and not can_open_browser():
            msg = (
                "a person has to log in, and this process has no browser. Log in beforehand, with `login(server_info)` "
                "or `mcp-haystack login`, and a `token_storage` that this process shares, "
                "such as FileTokenStorage; or pass a `redirect_handler`"
            )
            raise MCPAuthorizationError(msg)
        if server.authorization_endpoint is None:
            msg = f"{server.issuer} has no `authorization_endpoint`, so no person can log in there"
            raise MCPAuthorizationError(msg)
        endpoint = httpx2.URL(server.authorization_endpoint)
        # Google has no such scope, and gives a refresh token for this parameter only.
        is_google = endpoint.host == "accounts.google.com"
        # Entra needs no `prompt`. With it, users who may not consent need an administrator each time.
        is_entra = endpoint.host.endswith(_HOSTS_OF_ENTRA)
        is_offline = is_google or "offline_access" in (scope or "").split()
        async with self._listening(state) as listener:
            redirect_uri = str(config.redirect_uri) if listener is None else listener.redirect_uri
            if self.client is None or config.client_id is None:
                self.client = await self._client_for(redirect_uri, scope, is_native=listener is not None)
            parameters = {
                "response_type": "code",
                "client_id": self.client.client_id,
                "redirect_uri": redirect_uri,
                "state": state,
                "code_challenge": pkce.code_challenge,
                "code_challenge_method": "S256",
                "resource": self.resource(),
                "scope": scope,
                # OpenID Connect Core, 11
                "prompt": "consent" if is_offline and not is_entra else None,
                "access_type": "offline" if is_google else None,
            }
            sent = {name: value for name, value in parameters.items() if value}
            url = endpoint.copy_merge_params(sent)
            await self.outgoing.check(url)
            request = MCPLoginRequest(
                url=str(url), redirect_uri=redirect_uri, state=state, server_url=server_url, user=user
            )
            with login_under_way(server_url, user):
                code = self._code_in(await self._answer(request, listener), state)
        return {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "client_id": self.client.client_id,
            "code_verifier": pkce.code_verifier,
        }

    @asynccontextmanager
    async def _listening(self, state: str) -> AsyncIterator[_Listener | None]:
        if self.config.callback_handler is not None:
            yield None
            return
        listener = _Listener(state)
        try:
            await listener.listen(self.config.redirect_uri or _DEFAULT_REDIRECT_URI)
        except OSError as error:
            msg = f"the port of the `redirect_uri` cannot be listened on ({error.strerror})"
            raise MCPAuthorizationError(msg) from None
        try:
            yield listener
        finally:
            listener.close()

    async def _client_for(self, redirect_uri: str, scope: str | None, *, is_native: bool) -> OAuthClientInformationFull:
        """
        Return the client with the metadata document or the one in a storage of the MCP SDK, or register a new one.

        Each login registers a new one, because many authorization servers accept only the port of the registration.
        """
        server, document, known = self.found.server, self.config.client_metadata_url, self.client
        if server.client_id_metadata_document_supported and document is not None:
            return OAuthClientInformationFull(
                client_id=document, token_endpoint_auth_method="none", issuer=server.issuer
            )
        # A client without an issuer was stored by the user's program: clients that were registered here have one.
        if known is not None and known.issuer is None and redirect_uri in map(str, known.redirect_uris or []):
            return known
        if server.registration_endpoint is None:
            refused = "" if document is None else ", and it takes no `client_metadata_url`"
            is_read = server.client_id_metadata_document_supported
            document_instead = ", or publish a Client ID Metadata Document, and pass its `client_metadata_url`"
            msg = (
                f"the authorization server {server.issuer} registers no clients (its metadata have no "
                f"`registration_endpoint`{refused}). Register one there by hand, and pass its `client_id`"
                f"{document_instead if is_read else ''}"
            )
            raise MCPAuthorizationError(msg)
        metadata = {
            "client_name": self.config.client_name,
            "redirect_uris": [redirect_uri],
            "grant_types": ["authorization_code", "refresh_token"],
            "response_types": ["code"],
            "application_type": "native" if is_native else "web",
            **({"scope": scope} if scope else {}),
        }
        if "none" in (server.token_endpoint_auth_methods_supported or ()):
            # Notion issues a secret to any other client, and then refuses the `client_id` in the form, which other
            # servers require.
            metadata["token_endpoint_auth_method"] = "none"
        client = await self._register(server.registration_endpoint, metadata)
        client.issuer = server.issuer
        return client

    async def _register(self, endpoint: str, metadata: dict[str, Any]) -> OAuthClientInformationFull:
        response = await self.outgoing.send(httpx2.Request("POST", endpoint, json=metadata), "registering the client")
        answer = json_object(response)
        try:
            if response.is_success:
                if isinstance(answer.get("client_id"), int):
                    answer["client_id"] = str(answer["client_id"])
                # Invalid members that are not used, such as dates and contacts, are ignored.
                return OAuthClientInformationFull.model_validate(repair(OAuthClientInformationFull, answer) or answer)
            text = f"{response.status_code} {response.text}"
        except ValidationError as error:
            text = describe_error(error)
        msg = f"Registration failed: {text}"
        if self.found.is_guessed:
            msg += (
                ". It names no authorization server: if it has none, pass the credentials as `token` or in `headers`, "
                "if it wants any"
            )
        else:
            msg += ". Register a client there by hand, and pass its `client_id`"
        raise RefusedScopesError(msg)

    async def _answer(self, request: MCPLoginRequest, listener: _Listener | None) -> Mapping[str, str | None]:
        self.outgoing.step = "opening the page of the authorization server"
        try:
            async with asyncio.timeout(self.config.login_timeout):
                if self.config.redirect_handler is not None:
                    await self._call_user_function("redirect_handler", request)
                elif await open_in_browser(request.url):
                    logger.info("Waiting for a login in the browser")
                else:
                    msg = "the browser does not open"
                    raise MCPAuthorizationError(msg)
                self.outgoing.step = "waiting for the login"
                if listener is not None:
                    return await listener.answer
                answer = await self._call_user_function("callback_handler", request)
        except TimeoutError:
            msg = f"nobody logged in within {self.config.login_timeout:g} seconds (`login_timeout`)"
            raise MCPAuthorizationError(msg) from None
        if isinstance(answer, str):
            return dict(parse_qsl(urlsplit(answer).query))
        if not isinstance(answer, Mapping):
            msg = f"`callback_handler` must return a URL or a dict, got {type(answer).__name__}"
            raise MCPAuthorizationError(msg)
        return answer

    def _code_in(self, answer: Mapping[str, str | None], expected: str) -> str:
        code, state, iss = (answer.get(name) for name in ("code", "state", "iss"))
        if code:
            self.secrets.add(str(code))
        is_ours = state is not None and secrets.compare_digest(str(state).encode(), expected.encode())
        # An answer needs the right state. Only a refusal may come without one, because some servers leave it out then.
        if not is_ours and (state is not None or (code and not answer.get("error"))):
            raise MCPAuthorizationError(_OTHER_STATE)
        if answer.get("error"):
            text = ": ".join(filter(None, (answer.get("error"), answer.get("error_description"))))
            msg = f"the authorization server refused: {text}"
            raise (RefusedScopesError if answer["error"] == "invalid_scope" else MCPAuthorizationError)(msg)
        if not code:
            msg = "the answer of the authorization server has no code"
            raise MCPAuthorizationError(msg)
        # RFC 9207, 2.4: issuers are compared character by character, without the tolerance of `same_issuer`. But some
        # servers name the origin of their issuer, as monday.com's.
        server = self.found.server
        origin = urljoin(server.issuer, "/").rstrip("/")
        is_server = iss in (server.issuer, origin) or is_one_of_tenants(iss or "", server.issuer)
        if not is_server and (iss is not None or server.authorization_response_iss_parameter_supported):
            msg = f"iss mismatch: the answer is from {iss or 'no issuer'}, but {server.issuer} was asked"
            raise MCPAuthorizationError(msg)
        return str(code)


async def open_in_browser(url: str) -> bool:
    """
    Open a page in the browser of this machine.

    :param url: The URL of the page.
    :returns: Whether it opens, as far as is known after a few seconds.
    """
    # This runs in a thread, because it starts a program and may wait until it is closed.
    opening = start_in_thread(webbrowser.open, url, name="mcp-haystack-browser")
    try:
        await asyncio.wait({opening}, timeout=_OPENING_TIMEOUT)
        return not opening.done() or opening.result()
    finally:
        opening.cancel()


class _Listener:
    """
    An HTTP server at a loopback address that waits for one answer of an authorization server.
    """

    def __init__(self, state: str) -> None:
        # The answer must be for the login with this `state`.
        self._state = state
        self._server: asyncio.Server
        self._connections: set[asyncio.StreamWriter] = set()
        self.redirect_uri: str = ""
        self.answer: asyncio.Future[dict[str, str]] = asyncio.get_running_loop().create_future()

    async def listen(self, redirect_uri: str) -> None:
        """
        Start listening at this address: `http://` with a loopback host. Without a port, any free one is used.
        """
        parts = urlsplit(redirect_uri)
        host = "127.0.0.1" if parts.hostname == "localhost" else parts.hostname
        port = parts.port or 0
        self._server = await asyncio.start_server(self._serve, host, port, limit=_REQUEST_LIMIT)
        name = f"[{parts.hostname}]" if ":" in str(parts.hostname) else parts.hostname
        netloc = f"{name}:{self._server.sockets[0].getsockname()[1]}"
        self.redirect_uri = urlunsplit(("http", netloc, parts.path, parts.query, ""))

    def close(self) -> None:
        self._server.close()
        # Browsers open spare connections. If one stayed open, Python 3.11 would log a traceback when the process exits.
        for connection in self._connections:
            connection.close()
        self.answer.cancel()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._connections.add(writer)
        try:
            async with asyncio.timeout(_REQUEST_TIMEOUT):
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                writer.write(self._respond(head))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # not a browser
        finally:
            self._connections.discard(writer)
            writer.close()

    def _respond(self, head: str) -> bytes:
        line, *headers = head.split("\r\n")
        method, _, rest = line.partition(" ")
        requested_url, redirect_url = urlsplit(rest.partition(" ")[0]), urlsplit(self.redirect_uri)
        hosts = [header[5:].strip() for header in headers if header.lower().startswith("host:")]
        # Another host name means that a web page has pointed its own name here (DNS rebinding), so it is refused.
        if hosts != [redirect_url.netloc] or method != "GET" or requested_url.path != (redirect_url.path or "/"):
            return _page("404 Not Found", "Not found", "There is nothing here.")
        if self.answer.done():
            return _page("400 Bad Request", "Too late", "This login is over.")
        parameters = dict(parse_qsl(requested_url.query))
        state = parameters.get("state")
        is_refusal = "error" in parameters and state is None  # some servers omit the state in a refusal
        if not is_refusal and not secrets.compare_digest((state or "").encode(), self._state.encode()):
            # An earlier login was given up, and its page is still open. It must not end this one.
            text = "This answer is not for the login under way. Go on in the page that was opened last."
            if "code" in parameters and state is None:  # the server leaves it out, so no answer would be accepted
                self.answer.set_exception(MCPAuthorizationError(_OTHER_STATE))
                text = "The authorization server has sent no state. This login is over."
            return _page("400 Bad Request", "Login failed", text)
        self.answer.set_result(parameters)
        if "error" in parameters:
            return _page("200 OK", "Login failed", "The access was not allowed. You can close this page.")
        return _page("200 OK", "Logged in", "You can close this page.")


def _page(status: str, title: str, text: str) -> bytes:
    body = _PAGE.format(title=title, text=text).encode()
    head = (
        f"HTTP/1.1 {status}\r\nContent-Type: text/html; charset=utf-8\r\nContent-Length: {len(body)}\r\n"
        "Cache-Control: no-store\r\nReferrer-Policy: no-referrer\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body
