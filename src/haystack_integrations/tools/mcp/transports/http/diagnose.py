# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
What is wrong with a URL that does not connect, found without the MCP SDK.

The SDK reports a failed connect as a timeout or a closed stream. Here the endpoint is asked directly, with one or two
plain HTTP requests, and the answer is put into words that say what to change.
"""

import base64
import json
import os
import re
import socket
import ssl
import urllib.request
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing, suppress
from dataclasses import dataclass
from typing import Literal, cast

import anyio
import httpx
from httpx_sse import EventSource

Transport = Literal["sse", "streamable-http"]

# A ping opens no session, and even its refusal ("Missing session ID") is JSON-RPC, which is all the proof needed.
_PING = b'{"jsonrpc":"2.0","id":1,"method":"ping"}'
# An endpoint event and a ping's answer are a few hundred bytes; the bound is for servers that send something else.
_BODY_LIMIT = 65_536
# Shorter values are no secrets, and taking them out would make a sentence unreadable.
_SHORTEST_SECRET = 4

_OTHER: dict[Transport, Transport] = {"sse": "streamable-http", "streamable-http": "sse"}
_ENDPOINT = {"sse": "an SSE endpoint", "streamable-http": "a streamable HTTP endpoint"}
_SERVER_INFO = {"sse": "SSEServerInfo", "streamable-http": "StreamableHttpServerInfo"}

# Answers about the path or the method, which leave open that MCP is spoken nearby. 501 is how some servers say 405.
_NOT_HERE = {400, 404, 405, 501}
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
    The head of a response, and the transport that its body proves, if any.
    """

    response: httpx.Response
    speaks: Transport | None = None

    @property
    def status(self) -> int:
        return self.response.status_code

    @property
    def is_final(self) -> bool:
        """
        Whether asking in another way or at another path would say no more.
        """
        if self.response.is_server_error:
            return self.status not in _NOT_HERE
        return self.response.next_request is not None or self.status in {401, 403, 407, 421, 429}

    @property
    def is_web_page(self) -> bool:
        """
        Whether the URL is good, but that of a page for people.
        """
        return self.response.is_success and _media_type(self.response) == "text/html"


async def diagnose(url: str, headers: Mapping[str, str], *, transport: Transport, timeout: float = 5.0) -> str | None:
    """
    Says what is wrong with a URL that did not connect.

    The headers go to the origin of `url` only: redirects are reported, not followed. The returned text holds no header
    value, and neither the user info nor the query string of `url`.

    :param url: The URL that did not connect.
    :param headers: The headers to send along, credentials included.
    :param transport: The transport that the URL is configured for.
    :param timeout: Seconds that the whole examination may take.
    :returns: One or two sentences with the finding and what to do about it, or None if nothing is wrong.
    """
    try:
        target = httpx.URL(url)
    except (httpx.InvalidURL, TypeError):
        return "The URL is not valid."
    if target.scheme not in {"http", "https"} or not target.host:
        return "The URL must start with http:// or https://, followed by a host."
    examination = _Examination(target, headers, transport, timeout)
    with anyio.move_on_after(timeout):
        await examination.run()
    return examination.finding


class _Examination:
    """
    One look at one URL.

    `finding` is true at every moment: it is refined as answers come in, so running out of time loses nothing.
    """

    def __init__(self, url: httpx.URL, headers: Mapping[str, str], transport: Transport, timeout: float) -> None:
        self._url = url
        self._headers = headers
        self._transport: Transport = transport
        self._timeout = timeout
        self._port = url.port or {"http": 80, "https": 443}[url.scheme]
        self._place = f"[{url.host}]:{self._port}" if ":" in url.host else f"{url.host}:{self._port}"
        silence = f"{self._place} does not answer within {timeout / 2:g} s"
        self.finding: str | None = f"{silence}: the server hangs or is too slow."

    async def run(self) -> None:
        try:
            async with httpx.AsyncClient(
                headers=self._headers,
                follow_redirects=False,
                # Below the bound of a request, so that an unreachable host and a silent server stay apart.
                timeout=httpx.Timeout(None, connect=self._timeout * 0.4),
            ) as client:
                answer = await self._ask(client, self._url, self._transport, self._timeout * 0.5)
                if answer is None:
                    return
                self.finding = self._explain(answer)
                if not answer.is_final and answer.speaks != self._transport:
                    # A request that fails now takes nothing away from what the first answer said.
                    with suppress(httpx.TransportError):
                        await self._look_around(client, answer)
        except Exception as error:  # a diagnosis that raises would hide the failure that it is asked to explain
            self.finding = await self._explain_failure(error)

    async def _ask(
        self, client: httpx.AsyncClient, url: httpx.URL, transport: Transport, bound: float
    ) -> _Answer | None:
        """
        Opens an event stream ("sse") or posts a ping; None if there is no response within `bound` seconds.
        """
        # Bodies are read raw to keep _BODY_LIMIT true, hence no compression.
        headers = {"Accept": "text/event-stream", "Accept-Encoding": "identity"}
        content = None
        if transport == "streamable-http":
            headers |= {"Accept": "application/json, text/event-stream", "Content-Type": "application/json"}
            content = _PING
        answer = None
        with anyio.move_on_after(bound):
            async with client.stream("POST" if content else "GET", url, headers=headers, content=content) as response:
                answer = _Answer(response)
                answer = _Answer(response, await _read_transport(response))
        return answer

    async def _look_around(self, client: httpx.AsyncClient, answer: _Answer) -> None:
        other = _OTHER[self._transport]
        second = None if answer.speaks else await self._ask(client, self._url, other, self._timeout * 0.2)
        if other in {answer.speaks, second and second.speaks}:
            advice = f'use {_SERVER_INFO[other]}(url="{_shown(self._url)}")'
            self.finding = f"{_shown(self._url)} is {_ENDPOINT[other]}: {advice}."
        elif answer.status == httpx.codes.BAD_REQUEST and self._url.scheme == "http" and await self._is_tls():
            self.finding = self._plain_http_to_tls()
        elif answer.status in _NOT_HERE or answer.is_web_page:
            await self._look_at_siblings(client, answer)

    async def _look_at_siblings(self, client: httpx.AsyncClient, answer: _Answer) -> None:
        own = _path(self._url)
        siblings: dict[str, Transport] = {own.rstrip("/") if own.endswith("/") else f"{own}/": self._transport}
        siblings |= {"/mcp": "streamable-http", "/mcp/": "streamable-http", "/sse": "sse"}
        for path, transport in siblings.items():
            if path in {own, ""}:
                continue
            url = self._url.copy_with(path=path)
            sibling = await self._ask(client, url, transport, self._timeout * 0.1)
            if sibling is None or not (sibling.speaks or sibling.status == httpx.codes.UNAUTHORIZED):
                continue
            found = "an MCP endpoint" if sibling.speaks else "an endpoint that asks for credentials"
            meant = _shown(url)
            if sibling.speaks not in {None, self._transport}:
                found = _ENDPOINT[transport]
                meant = f'{_SERVER_INFO[transport]}(url="{meant}")'
            here = "A web page" if answer.is_web_page else _status(answer)
            self.finding = f"{here} at {own}; there is {found} at {path}: did you mean {meant}?"
            return

    def _explain(self, answer: _Answer) -> str | None:
        where = _shown(self._url)
        status = answer.status
        response = answer.response
        said = f"{where} answers {_status(answer)}"
        if response.next_request is not None:
            target = response.next_request.url
            out_of_tls = self._url.scheme == "https" and target.scheme == "http"
            use = "use that URL with https://, as it leaves TLS" if out_of_tls else "use that URL"
            return f"{said}, a redirect to {self._quote(_shown(target))}: {use}, if it is the intended server."
        if status in {401, 403}:
            return self._explain_refusal(said, response)
        if answer.is_final:
            retry_after = self._quote(response.headers.get("retry-after", ""))
            wait = f" (Retry-After: {retry_after})" if retry_after else ""
            return f"{said}: {_ADVICE.get(status, _OVERLOADED)}{wait}."
        if answer.speaks == self._transport and status not in {406, 415}:
            return None
        if answer.is_web_page:
            return f"{where} answers with a web page (text/html), not MCP: check the URL."
        if status in _ADVICE:
            return f"{said}: {_ADVICE[status]}."
        media_type = self._quote(_media_type(response))
        return f"{said}{f' with {media_type}' if media_type else ''}, not MCP."

    def _explain_refusal(self, said: str, response: httpx.Response) -> str:
        challenge = ", ".join(response.headers.get_list("www-authenticate"))[:4096]
        unquoted = re.sub(r'"(?:[^"\\]|\\.)*"', '""', challenge)
        schemes = re.findall(r"(?:^|,)\s*([A-Za-z][\w-]*)(?=\s*(?:,|$)|\s+[^\s=])", unquoted)
        details = [f"asking for {' or '.join(dict.fromkeys(map(self._quote, schemes)))}"] if schemes else []
        for name in ("realm", "resource_metadata"):
            if value := re.search(rf'\b{name}\s*=\s*(?:"((?:[^"\\]|\\.)*)"|([^\s,"]+))', challenge):
                # A metadata URL without its query still finds the document by hand.
                details.append(f"{name} {self._quote((value[1] or value[2] or '').partition('?')[0])}")
        asks = f" ({', '.join(details)})" if details else ""
        if "authorization" in response.request.headers:
            return f"{said}{asks}: the Authorization that was sent was not accepted; check token=/headers=."
        return f"{said}{asks}: pass token= or headers= with the credentials."

    async def _explain_failure(self, error: Exception) -> str:
        # The text of these exceptions is never shown: an illegal header is quoted in it.
        proxied = urllib.request.getproxies().keys() & {self._url.scheme, "all"}
        proxied_here = proxied and not urllib.request.proxy_bypass(self._url.host)
        place = f"{self._place} (or at the proxy that the environment names)" if proxied_here else self._place
        causes = list(_causes(error))
        tls_error = next((cause for cause in causes if isinstance(cause, ssl.SSLError)), None)
        if isinstance(error, httpx.ConnectTimeout):
            within = f"within {self._timeout * 0.4:g} s"
            return f"No connection to {place} {within}: the host is down or a firewall drops it."
        if isinstance(error, (httpx.LocalProtocolError, UnicodeEncodeError)):
            return "The request cannot be sent: a header has a line break or another character that HTTP forbids."
        if isinstance(error, httpx.ProxyError):
            return f"The proxy that the environment names does not let the request through to {self._place}."
        if any(isinstance(cause, socket.gaierror) for cause in causes):
            return f"The host name {self._url.host} does not resolve: check the URL and the DNS of this machine."
        if any(isinstance(cause, ConnectionRefusedError) for cause in causes):
            return f"Connection refused: nothing listens at {place}. Is the server started, and on this port?"
        if tls_error is not None:
            return self._explain_tls(tls_error)
        number = next((cause.errno for cause in causes if isinstance(cause, OSError) and cause.errno), None)
        if isinstance(error, httpx.ConnectError) and number is not None:
            return f"Cannot connect to {place}: {os.strerror(number)}."
        if isinstance(error, (httpx.NetworkError, httpx.RemoteProtocolError)):
            closes = f"{self._place} closes the connection without a valid HTTP answer"
            if self._url.scheme == "https":
                return f"{closes}: it is no HTTP server, or demands a client certificate."
            return self._plain_http_to_tls() if await self._is_tls() else f"{closes}: is it an HTTP server?"
        return f"{self._place} could not be examined ({type(error).__name__})."

    def _explain_tls(self, error: ssl.SSLError) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            advice = "Let SSL_CERT_FILE name the authority that signed it, or repair the certificate"
            return f"The TLS certificate of {self._place} is not trusted: {error.verify_message}. {advice}."
        reason = error.reason or "connection closed"
        failed = f"The TLS handshake with {self._place} fails ({reason.replace('_', ' ').lower()})"
        # An alert is sent by a server that does speak TLS.
        if "ALERT" in reason:
            return f"{failed}: the server refuses this client, perhaps for the lack of a client certificate."
        return f"{failed}: if the server speaks plain HTTP there, use http://{self._place}{_path(self._url)}."

    def _plain_http_to_tls(self) -> str:
        return f"{self._place} speaks TLS, not plain HTTP: use https://{self._place}{_path(self._url)}."

    async def _is_tls(self) -> bool:
        """
        Whether the port answers a TLS handshake; nothing is sent over it.
        """
        with anyio.move_on_after(self._timeout * 0.2):
            try:
                async with await anyio.connect_tcp(self._url.host, self._port, tls=True, tls_standard_compatible=False):
                    return True
            except (OSError, anyio.BrokenResourceError, anyio.EndOfStream) as error:
                return isinstance(error, ssl.SSLCertVerificationError)
        return False

    def _quote(self, text: str) -> str:
        """
        A server's own words, made safe to show: some servers echo the credentials that they refuse.
        """
        userinfo = f"{self._url.username}:{self._url.password}"
        secrets = {self._url.query.decode(), *self._url.params.values(), self._url.userinfo.decode()}
        secrets |= {self._url.username, self._url.password, userinfo, base64.b64encode(userinfo.encode()).decode()}
        secrets |= {word for value in self._headers.values() for word in (value, value.rpartition(" ")[2])}
        text = "".join(character for character in text if character.isprintable())
        for secret in sorted(secrets, key=len, reverse=True):
            text = text.replace(secret, "***") if len(secret) >= _SHORTEST_SECRET else text
        return text[:200]


async def _read_transport(response: httpx.Response) -> Transport | None:
    body = b""
    with suppress(httpx.TransportError):  # a connection that breaks within the body has still given its status
        async with aclosing(cast("AsyncGenerator[bytes, None]", response.aiter_raw())) as chunks:
            async for chunk in chunks:
                body += chunk
                spoken = _spoken_transport(_media_type(response), body)
                if spoken or len(body) > _BODY_LIMIT:
                    return spoken
    return None


def _spoken_transport(media_type: str, body: bytes) -> Transport | None:
    if media_type != "text/event-stream":
        return "streamable-http" if _is_json_rpc(body) else None
    arrived = httpx.Response(200, headers={"Content-Type": "text/event-stream"}, content=body)
    for event in EventSource(arrived).iter_sse():
        if event.event == "endpoint":
            return "sse"
        if _is_json_rpc(event.data):
            return "streamable-http"
    return None


def _is_json_rpc(text: str | bytes) -> bool:
    try:
        message = json.loads(text)
    except (ValueError, RecursionError):
        return False
    return isinstance(message, dict) and message.get("jsonrpc") == "2.0"


def _causes(error: BaseException) -> Iterator[BaseException]:
    yield error
    # anyio groups the failures when a name has several addresses.
    nested = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    for cause in (*nested, error.__cause__ or error.__context__):
        if cause is not None:
            yield from _causes(cause)


def _path(url: httpx.URL) -> str:
    return url.raw_path.partition(b"?")[0].decode()


def _shown(url: httpx.URL) -> str:
    return f"{url.scheme}://{url.netloc.decode()}{_path(url)}"


def _media_type(response: httpx.Response) -> str:
    return str(response.headers.get("content-type", "")).partition(";")[0].strip().lower()


def _status(answer: _Answer) -> str:
    return f"{answer.status} {httpx.codes.get_reason_phrase(answer.status)}".strip()
