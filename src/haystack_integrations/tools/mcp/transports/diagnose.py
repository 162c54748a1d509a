# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Finds out why a URL does not connect, and what to change.

The error of a connection rarely shows what is wrong with the URL. `Diagnosis` probes the endpoint with a few plain HTTP
requests, through the same proxy and with the same TLS options as the connection.
"""

import re
import socket
import ssl
import urllib.request
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal
from urllib.parse import urlsplit

import anyio
import httpx2

from haystack_integrations.tools.mcp.errors import causes
from haystack_integrations.tools.mcp.redaction import redact_text
from haystack_integrations.tools.mcp.transports.http_route import Route, environment_proxy, open_client
from haystack_integrations.tools.mcp.transports.refusals import (
    is_event_stream,
    media_type,
    redirect_target,
    status_of,
)

TransportName = Literal["sse", "streamable-http"]

# A ping opens no session, and even its refusal ("Missing session ID") is JSON-RPC, which proves the transport.
_PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
# An endpoint event and the answer to a ping take a few hundred bytes; the limit is for servers that send anything else.
_BODY_LIMIT = 65_536
_ENDPOINT_EVENT = re.compile(rb"^event: ?endpoint\s", re.MULTILINE)
_TITLE = re.compile("<title>(.*?)</title>", re.IGNORECASE | re.DOTALL)
_JSON_RPC = re.compile(rb'"jsonrpc"\s*:\s*"2.0"')
_OTHER_TRANSPORT: dict[TransportName, TransportName] = {"sse": "streamable-http", "streamable-http": "sse"}
_ENDPOINT_NAMES = {"sse": "an SSE endpoint", "streamable-http": "a streamable HTTP endpoint"}
_SERVER_INFO_NAMES = {"sse": "SSEServerInfo", "streamable-http": "StreamableHttpServerInfo"}

_NO_HTTP = (
    "{place} closes the connection without a valid HTTP answer: it is not an HTTP server, speaks TLS (use https://), "
    "or demands a client certificate (client_cert=)."
)
# The meaning of a failure, by the first of these exceptions among its causes. The text of most exceptions is never
# shown, because it may quote a header.
_FAILURES: dict[type[BaseException], str] = {
    httpx2.ConnectTimeout: (
        "No connection to {place} in time: the host is down, a firewall drops it, or the DNS does not answer."
    ),
    socket.gaierror: "The host name of {place} does not resolve: check the URL and the DNS of this machine.",
    ConnectionRefusedError: "Connection refused: nothing listens at {place}. Is the server started, and on this port?",
    ssl.SSLCertVerificationError: (
        "The TLS certificate of {place} is not trusted: {error.verify_message}. Repair the certificate, or let verify= "
        "or SSL_CERT_FILE name the authority that signed it."
    ),
    ssl.SSLError: (
        "The TLS handshake with {place} fails ({error}): the server speaks plain HTTP there (use http://), or refuses "
        "this client, perhaps for the lack of a client certificate (client_cert=)."
    ),
    httpx2.ProxyError: (
        "{place} cannot be reached: check the credentials in the URL of the proxy, which hosts and ports it allows, "
        "and that the server is up."
    ),
    httpx2.RemoteProtocolError: _NO_HTTP,
    httpx2.ReadError: _NO_HTTP,
    Exception: "{place} cannot be reached ({error.__class__.__name__}).",
}


@dataclass(frozen=True)
class _Answer:
    """
    A response, the transport that its body proves, if any, and its text, or the title of a page.
    """

    response: httpx2.Response
    transport: TransportName | None = None
    text: str = ""


@dataclass(kw_only=True)
class Diagnosis:
    """
    Finds out what is wrong with a URL that did not connect.

    The headers go to the origin of the URL only: redirects are reported, not followed.

    :param url: The URL that did not connect.
    :param headers: The headers to send along, credentials included.
    :param transport: The transport that is configured for the URL.
    :param timeout: Seconds that the whole diagnosis may take.
    :param route: Certificates, proxy and transport, for this diagnosis alone.
    :param has_auth: Whether the connection authenticates in a way that this diagnosis does not. A refusal of the
        diagnosis is then not reported.
    :param redact: Removes secrets from texts of the server, which may echo credentials, and from logs of libraries.
    """

    url: str
    headers: Mapping[str, str]
    transport: TransportName
    timeout: float = 5.0
    route: Route = field(default_factory=Route)
    has_auth: bool = False
    redact: Callable[[str], str] = redact_text
    # Always valid: it is refined as responses come in, so running out of time loses nothing.
    _finding: str | None = field(init=False, default="The URL is not valid.")
    _url: httpx2.URL = field(init=False)

    async def run(self) -> str | None:
        """
        Probe the server.

        :returns: One or two sentences with the finding and what to do about it, or None if nothing is wrong.
        """
        with suppress(httpx2.InvalidURL), anyio.move_on_after(self.timeout):
            self._url = httpx2.URL(self.url)
            await self._run()
        return self._finding

    async def _run(self) -> None:
        within = f"within {self.timeout / 2:g} s"
        self._finding = f"{self._place()} does not answer {within}: the server hangs or is too slow."
        try:
            async with open_client(self.route, self.timeout, self.redact) as client:
                answer = await self._ask(client, self._url, self.transport, self.timeout * 0.5)
                if answer is None:
                    return
                self._finding, is_final = self._explain(answer)
                if not is_final:
                    # The first response stays a valid finding if a later request fails.
                    with suppress(httpx2.TransportError):
                        await self._probe_other_paths(client, answer)
        except Exception as failure:  # if raised, it would hide the failure that is being diagnosed
            found = list(causes(failure))
            error, text = next(
                (error, text) for kind, text in _FAILURES.items() for error in found if isinstance(error, kind)
            )
            self._finding = text.format(place=self._place(), error=error)

    async def _ask(
        self, client: httpx2.AsyncClient, url: httpx2.URL, transport: TransportName, timeout: float
    ) -> _Answer | None:
        """
        Open an event stream ("sse") or post a ping; None if there is no response within `timeout` seconds.
        """
        # Without compression, because bodies are read raw; decompressed, they could exceed _BODY_LIMIT.
        headers = {**self.headers, "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        method, content = "GET", None
        if transport == "streamable-http":
            headers |= {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
            method, content = "POST", _PING
        # Connecting gets only part of the time, to tell an unreachable host from a silent server.
        phases = httpx2.Timeout(None, connect=timeout * 0.8)
        answer = None
        with anyio.move_on_after(timeout):
            async with client.stream(method, url, headers=headers, content=content, timeout=phases) as response:
                answer = _Answer(response)
                answer = _Answer(response, *await _read(response))
        return answer

    def _explain(self, answer: _Answer) -> tuple[str | None, bool]:
        """
        Return the meaning of an answer, and whether it is final, so that no other method or path needs to be tried.
        """
        response, status = answer.response, answer.response.status_code
        finding = f"{_display_url(self._url)} answers {status_of(response)}"
        if self._url.scheme == "http" and (proxy := self._proxy()):  # it can answer for the server
            finding += f" through the proxy {proxy}"
        target = redirect_target(response)
        if target is not None:
            if self._url.scheme == "https":
                target = target.copy_with(scheme="https")
            where = self._redacted_text(_display_url(target))
            return f"{finding}, a redirect: use {where}, if it is the intended server.", True
        if status in {401, 403}:
            challenge = self._redacted_text(response.headers.get("www-authenticate") or answer.text)
            challenge = "" if challenge in finding else challenge
            finding += f" ({challenge})" if challenge else ""
            if "authorization" in response.request.headers:
                return f"{finding}: the credentials in `token` or in `headers` were not accepted.", True
            oauth = '`auth="oauth"`, or ' if "resource_metadata" in challenge else ""
            credentials = f"pass {oauth}the credentials as `token` or in `headers`"
            if status == httpx2.codes.FORBIDDEN and "www-authenticate" not in response.headers:
                # Playwright's server and the TypeScript SDK refuse other names of their machine like this.
                credentials += ", or use the host name in the URL that the server allows"
            return None if self.has_auth else f"{finding}: {credentials}.", True
        if status == httpx2.codes.MISDIRECTED_REQUEST:
            return f"{finding}: add the host name to those that the server allows.", True
        if status == httpx2.codes.PROXY_AUTHENTICATION_REQUIRED:
            return f"{finding}: check the credentials in the URL of the proxy.", True
        if response.is_server_error or status == httpx2.codes.TOO_MANY_REQUESTS:
            return f"{finding}.", True
        if answer.transport == self.transport:
            return None, True
        content = self._redacted_text(media_type(response))
        if content == "text/html" and answer.text:  # nginx explains the lack of a client certificate only there
            content += f" ({self._redacted_text(answer.text)})"
        return f"{finding}{f' with {content}' if content else ''}, not MCP: check the URL.", False

    async def _probe_other_paths(self, client: httpx2.AsyncClient, answer: _Answer) -> None:
        own_path, other = _path(self._url), _OTHER_TRANSPORT[self.transport]
        streamable: list[tuple[str, TransportName]] = [(path, "streamable-http") for path in ("/mcp", "/mcp/")]
        for path, transport in [(own_path, other), *streamable, ("/sse", "sse")]:
            if (path, transport) == (own_path, self.transport):
                continue
            url = self._url if path == own_path else self._url.copy_with(path=path)
            reply = answer if answer.transport else await self._ask(client, url, transport, self.timeout * 0.2)
            if reply is None:
                continue
            use = f'{_SERVER_INFO_NAMES[transport]}(url="{_display_url(url)}")'
            if reply.transport == transport:
                at = f"{_display_url(url)} is {_ENDPOINT_NAMES[transport]}"
                self._finding = (
                    f"{at}: use {use}." if path == own_path else f"{self._finding} {at}: did you mean {use}?"
                )
                return

    def _place(self) -> str:
        host = f"[{self._url.host}]" if ":" in self._url.host else self._url.host
        place = f"{host}:{self._url.port or {'http': 80, 'https': 443}[self._url.scheme]}"
        proxy = self._proxy()
        return f"{place} (through the proxy {proxy})" if proxy else place

    def _proxy(self) -> str | None:
        named = self.route.proxy and str(self.route.proxy.url)
        if named is None and self.route.transport is None:
            named = environment_proxy(self._url, urllib.request.getproxies())
        with suppress(ValueError):
            return urlsplit(named).hostname if named else None
        return None

    def _redacted_text(self, text: str) -> str:
        return self.redact("".join(filter(str.isprintable, text)))[:200]


async def _read(response: httpx2.Response) -> tuple[TransportName | None, str]:
    body = b""
    transport: TransportName | None = None
    with suppress(httpx2.TransportError):  # the status is known even if the connection breaks within the body
        async for chunk in response.aiter_raw():
            body += chunk
            if is_event_stream(response) and _ENDPOINT_EVENT.search(body):
                transport = "sse"
            elif _JSON_RPC.search(body) and media_type(response) != "text/html":
                transport = "streamable-http"
            if transport or len(body) > _BODY_LIMIT:
                break
    text = body.decode(errors="replace").strip()
    if media_type(response) == "text/html":
        title = _TITLE.search(text)
        return transport, title[1].strip() if title else ""
    return transport, text if media_type(response) in {"text/plain", "application/json", ""} else ""


def _path(url: httpx2.URL) -> str:
    return url.raw_path.partition(b"?")[0].decode()


def _display_url(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode()}{_path(url)}"
