# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Why a URL does not connect, and what to change.

The failure of a connection rarely says what is wrong with the URL. `diagnose` asks the endpoint with a few plain HTTP
requests, through the same proxy and with the same TLS options as the connection.
"""

import json
import os
import re
import socket
import ssl
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Literal

import anyio
import httpx2

from haystack_integrations.tools.mcp.redaction import redact_text
from haystack_integrations.tools.mcp.transports.http.options import Route, environment_proxy, open_client
from haystack_integrations.tools.mcp.transports.http.refusals import (
    is_event_stream,
    media_type,
    redirect_target,
    status_of,
)

Transport = Literal["sse", "streamable-http"]

# A ping opens no session, and even its refusal ("Missing session ID") is JSON-RPC, which proves the transport.
_PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
# An endpoint event and the answer to a ping take a few hundred bytes; the limit is for servers that send anything else.
_BODY_LIMIT = 65_536
_OTHER: dict[Transport, Transport] = {"sse": "streamable-http", "streamable-http": "sse"}
_ENDPOINT = {"sse": "an SSE endpoint", "streamable-http": "a streamable HTTP endpoint"}
_SERVER_INFO = {"sse": "SSEServerInfo", "streamable-http": "StreamableHttpServerInfo"}

# Statuses about the path or the method: there may be an MCP endpoint at another path. Some servers say 501 for 405.
_WRONG_PATH = {400, 404, 405, 501}
_ADVICE = {
    400: "it understands neither MCP's GET nor its POST; check the URL",
    404: "there is nothing at this path; check the URL",
    405: "this path does not take MCP's requests; check the URL",
    406: "it cannot answer with application/json or text/event-stream, as MCP needs; check the URL and proxies between",
    407: "the proxy asks for credentials; put them into the proxy's URL",
    415: "it does not take JSON request bodies, as MCP sends them; check the URL",
    421: "it does not serve this host name; add the name to the server's allowed hosts",
    429: "it gets too many requests; try again later",
    501: "it does not take MCP's requests; check the URL",
}
_OVERLOADED = "the server is overloaded or broken; try again later, and look at its logs"


@dataclass(frozen=True)
class _Answer:
    """
    A response without its body, and the transport that the body proves, if any.
    """

    response: httpx2.Response
    transport: Transport | None = None

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def is_final(self) -> bool:
        """
        Whether another method or path would tell no more.
        """
        is_refusal = self.response.is_server_error or self.status in {401, 403, 407, 421, 429}
        return self.response.has_redirect_location or (is_refusal and self.status not in _WRONG_PATH)

    @property
    def is_web_page(self) -> bool:
        """
        Whether the URL is that of a web page.
        """
        return self.response.is_success and media_type(self.response) == "text/html"


async def diagnose(
    url: str,
    headers: Mapping[str, str],
    *,
    transport: Transport,
    timeout: float = 5.0,
    route: Route | None = None,
    has_auth: bool = False,
    redact: Callable[[str], str] = redact_text,
) -> str | None:
    """
    Say what is wrong with a URL that did not connect.

    The headers go to the origin of `url` only: redirects are reported, not followed.

    :param url: The URL that did not connect.
    :param headers: The headers to send along, credentials included.
    :param transport: The transport that is configured for the URL.
    :param timeout: Seconds that the whole diagnosis may take.
    :param route: Certificates, proxy and transport, for this diagnosis alone.
    :param has_auth: Whether the connection authenticates in a way that this diagnosis does not. That the server refuses
        the diagnosis is then no finding.
    :param redact: Removes secrets from what the server says, which may echo credentials, and from what libraries log.
    :returns: One or two sentences with the finding and what to do about it, or None if nothing is wrong.
    """
    try:
        target = httpx2.URL(url)
    except httpx2.InvalidURL:
        return "The URL is not valid."
    diagnosis = _Diagnosis(target, headers, transport, timeout, route or Route(), has_auth, redact)
    with anyio.move_on_after(timeout):
        await diagnosis.run()
    return diagnosis.finding


@dataclass
class _Diagnosis:
    """
    The diagnosis of one URL.

    `finding` is true at every moment: it is refined as responses come in, so running out of time loses nothing.
    """

    url: httpx2.URL
    headers: Mapping[str, str]
    transport: Transport
    timeout: float
    route: Route
    has_auth: bool
    redact: Callable[[str], str]
    finding: str | None = field(init=False)

    def __post_init__(self) -> None:
        self.port = self.url.port or {"http": 80, "https": 443}[self.url.scheme]
        self.address = f"[{self.url.host}]:{self.port}" if ":" in self.url.host else f"{self.url.host}:{self.port}"
        self.finding = f"{self.address} does not answer within {self.timeout / 2:g} s: the server hangs or is too slow."

    async def run(self) -> None:
        try:
            # Less than the time for a request, to tell an unreachable host from a silent server.
            phases = httpx2.Timeout(None, connect=self.timeout * 0.4)
            async with open_client(self.route, phases, self.redact) as client:
                answer = await self._ask(client, self.url, self.transport, self.timeout * 0.5)
                if answer is None:
                    return
                self.finding = self._explain(answer)
                if not answer.is_final and answer.transport != self.transport:
                    # The first response stays a valid finding if a later request fails.
                    with suppress(httpx2.TransportError):
                        await self._refine(client, answer)
        except Exception as error:  # raised, it would hide the failure that is being diagnosed
            self.finding = await self._explain_failure(error)

    async def _ask(
        self, client: httpx2.AsyncClient, url: httpx2.URL, transport: Transport, timeout: float
    ) -> _Answer | None:
        """
        Open an event stream ("sse") or post a ping; None if there is no response within `timeout` seconds.
        """
        # Not compressed, because bodies are read raw: decompressed, they could exceed _BODY_LIMIT.
        headers = {**self.headers, "Accept": "text/event-stream", "Accept-Encoding": "identity"}
        method, content = "GET", None
        if transport == "streamable-http":
            headers |= {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
            method, content = "POST", _PING
        answer = None
        with anyio.move_on_after(timeout):
            async with client.stream(method, url, headers=headers, content=content) as response:
                answer = _Answer(response)
                answer = _Answer(response, await _transport_of(response))
        return answer

    async def _refine(self, client: httpx2.AsyncClient, answer: _Answer) -> None:
        other = _OTHER[self.transport]
        second = None if answer.transport else await self._ask(client, self.url, other, self.timeout * 0.2)
        if other in {answer.transport, second and second.transport}:
            advice = f'use {_SERVER_INFO[other]}(url="{_display_url(self.url)}")'
            self.finding = f"{_display_url(self.url)} is {_ENDPOINT[other]}: {advice}."
        elif answer.status == httpx2.codes.BAD_REQUEST and self.url.scheme == "http" and await self._is_tls():
            self.finding = self._plain_http_to_tls()
        elif answer.status in _WRONG_PATH or answer.is_web_page:
            await self._try_other_paths(client, answer)

    async def _try_other_paths(self, client: httpx2.AsyncClient, answer: _Answer) -> None:
        own = _path(self.url)
        candidates: dict[str, Transport] = {own.rstrip("/") if own.endswith("/") else f"{own}/": self.transport}
        candidates |= {"/mcp": "streamable-http", "/mcp/": "streamable-http", "/sse": "sse"}
        for path, transport in candidates.items():
            if path in {own, ""}:
                continue
            url = self.url.copy_with(path=path)
            reply = await self._ask(client, url, transport, self.timeout * 0.1)
            if reply is None or not (reply.transport or reply.status == httpx2.codes.UNAUTHORIZED):
                continue
            found = "an MCP endpoint" if reply.transport else "an endpoint that asks for credentials"
            meant = _display_url(url)
            if reply.transport not in {None, self.transport}:
                found = _ENDPOINT[transport]
                meant = f'{_SERVER_INFO[transport]}(url="{meant}")'
            here = "A web page" if answer.is_web_page else status_of(answer.response)
            self.finding = f"{here} at {own}; there is {found} at {path}: did you mean {meant}?"
            return

    def _explain(self, answer: _Answer) -> str | None:
        where = _display_url(self.url)
        status = answer.status
        response = answer.response
        said = f"{where} answers {status_of(response)}"
        if response.has_redirect_location:
            target = redirect_target(response)
            if target is None:
                return f"{said}, a redirect to an invalid URL: check the URL and the configuration of the server."
            out_of_tls = self.url.scheme == "https" and target.scheme == "http"
            use = "use that URL with https://, as it leaves TLS" if out_of_tls else "use that URL"
            return f"{said}, a redirect to {self._shown(_display_url(target))}: {use}, if it is the intended server."
        if status in {401, 403}:
            is_expected = self.has_auth and "authorization" not in response.request.headers
            return None if is_expected else self._explain_refusal(said, response)
        if answer.is_final:
            retry_after = self._shown(response.headers.get("retry-after", ""))
            wait = f" (Retry-After: {retry_after})" if retry_after else ""
            return f"{said}: {_ADVICE.get(status, _OVERLOADED)}{wait}."
        if answer.transport == self.transport and status not in {406, 415}:
            return None
        if answer.is_web_page:
            return f"{where} answers with a web page (text/html), not MCP: check the URL."
        if status in _ADVICE:
            return f"{said}: {_ADVICE[status]}."
        content = self._shown(media_type(response))
        return f"{said}{f' with {content}' if content else ''}, not MCP."

    def _explain_refusal(self, said: str, response: httpx2.Response) -> str:
        challenge = ", ".join(response.headers.get_list("www-authenticate"))[:4096]
        unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', '""', challenge)
        schemes = re.findall(r"(?:^|,)\s*([A-Za-z][\w-]*)(?=\s*(?:,|$)|\s+[^\s=])", unquoted)
        details = [f"asking for {' or '.join(dict.fromkeys(map(self._shown, schemes)))}"] if schemes else []
        for name in ("realm", "resource_metadata"):
            if value := re.search(rf'\b{name}\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))', challenge):
                # A metadata URL names its document without the query, too.
                details.append(f"{name} {self._shown((value[1] or value[2] or '').partition('?')[0])}")
        asks = f" ({', '.join(details)})" if details else ""
        if "authorization" in response.request.headers:
            check = "Check `token`, or the Authorization in `headers`."
            return f"{said}{asks}: the credentials that were sent were not accepted. {check}"
        oauth = '`auth="oauth"`, or ' if "resource_metadata" in challenge else ""
        return f"{said}{asks}: pass {oauth}the credentials as `token` or in `headers`."

    async def _explain_failure(self, error: Exception) -> str:
        # The text of these exceptions is never shown, because it quotes an illegal header.
        proxy = self._proxy()
        place = f"{self.address} (or at {proxy})" if proxy else self.address
        causes = list(_causes(error))
        tls_error = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
        if isinstance(error, httpx2.ConnectTimeout):
            within = f"within {self.timeout * 0.4:g} s"
            return f"No connection to {place} {within}: the host is down or a firewall drops it."
        if isinstance(error, (httpx2.LocalProtocolError, UnicodeEncodeError)):
            return "The request cannot be sent: a header has a line break or another character that HTTP forbids."
        if isinstance(error, httpx2.ProxyError):
            the_proxy = f"T{(proxy or 'the proxy')[1:]}"
            if str(error).startswith("407"):
                return f"{the_proxy} refuses this client: {_ADVICE[407]}."
            return f"{the_proxy} does not let the request through to {self.address}."
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return f"The host name {self.url.host} does not resolve: check the URL and the DNS of this machine."
        if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
            return f"Connection refused: nothing listens at {place}. Is the server started, and on this port?"
        if tls_error is not None:
            return self._explain_tls(tls_error)
        number = next((cause.errno for cause in causes if isinstance(cause, OSError) and cause.errno), None)
        if isinstance(error, httpx2.ConnectError) and number is not None:
            return f"Cannot connect to {place}: {os.strerror(number)}."
        if isinstance(error, (httpx2.NetworkError, httpx2.RemoteProtocolError)):
            closes = f"{self.address} closes the connection without a valid HTTP answer"
            if self.url.scheme == "https":
                return f"{closes}: it is no HTTP server, or demands a client certificate (client_cert=)."
            return self._plain_http_to_tls() if await self._is_tls() else f"{closes}: is it an HTTP server?"
        return f"{self.address} could not be examined ({type(error).__name__})."

    def _proxy(self) -> str | None:
        if self.route.proxy is not None:
            return f"the proxy {self.route.proxy.url.host}"
        is_proxied = self.route.transport is None and environment_proxy(self.url, urllib.request.getproxies())
        return "the proxy that the environment names" if is_proxied else None

    def _explain_tls(self, error: ssl.SSLError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            advice = "Let verify= or SSL_CERT_FILE name the authority that signed it, or repair the certificate"
            return f"The TLS certificate of {self.address} is not trusted: {error.verify_message}. {advice}."
        reason = error.reason or "connection closed"
        failed = f"The TLS handshake with {self.address} fails ({reason.replace('_', ' ').lower()})"
        # Only a server that speaks TLS sends an alert.
        if "ALERT" in reason:
            lack = "perhaps for the lack of a client certificate (client_cert=)"
            return f"{failed}: the server refuses this client, {lack}."
        return f"{failed}: if the server speaks plain HTTP there, use http://{self.address}{_path(self.url)}."

    def _plain_http_to_tls(self) -> str:
        return f"{self.address} speaks TLS, not plain HTTP: use https://{self.address}{_path(self.url)}."

    async def _is_tls(self) -> bool:
        """
        Whether the port completes a TLS handshake; no request is sent.
        """
        if self._proxy() is not None:  # this would go around it
            return False
        with anyio.move_on_after(self.timeout * 0.2):
            try:
                async with await anyio.connect_tcp(self.url.host, self.port, tls=True, tls_standard_compatible=False):
                    return True
            except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
                return isinstance(error, ssl.SSLCertVerificationError)
        return False

    def _shown(self, text: str) -> str:
        return self.redact("".join(filter(str.isprintable, text)))[:200]


async def _transport_of(response: httpx2.Response) -> Transport | None:
    with suppress(httpx2.TransportError):  # the status is known even if the connection breaks within the body
        if is_event_stream(response):
            async for event in httpx2.EventSource(response, max_event_size=_BODY_LIMIT):
                if event.event == "endpoint":
                    return "sse"
                if _is_json_rpc(event.data):
                    return "streamable-http"
            return None
        body = b""
        async for chunk in response.aiter_raw():
            body += chunk
            if len(body) > _BODY_LIMIT:
                return None
        return "streamable-http" if _is_json_rpc(body) else None
    return None


def _is_json_rpc(body: bytes | str) -> bool:
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and message.get("jsonrpc") == "2.0"


def _causes(error: BaseException) -> Iterator[BaseException]:
    yield error
    # anyio groups the failures if a host name has several addresses.
    nested = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for cause in (*nested, error.__cause__ or error.__context__):
        if cause is not None:
            yield from _causes(cause)


def _path(url: httpx2.URL) -> str:
    return url.raw_path.partition(b"?")[0].decode()


def _display_url(url: httpx2.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode()}{_path(url)}"
