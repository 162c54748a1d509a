# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A forward proxy, as used in companies.
"""

import asyncio
import base64
import contextlib
from urllib.parse import urlsplit

from tests.support.scripted_peer import LoopbackServer


class ForwardProxy(LoopbackServer):
    """
    Forwards plain HTTP (absolute form) and tunnels TLS (CONNECT), for clients with the credentials, if it has any.

    `requests` has the request lines that it forwarded; `refused` counts the other requests.
    """

    def __init__(self, credentials: str | None = None) -> None:
        super().__init__()
        self._expected = base64.b64encode(credentials.encode()).decode() if credentials else None
        self.requests: list[str] = []
        self.refused = 0

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError), contextlib.closing(writer):
            head = (await reader.readuntil(b"\r\n\r\n")).decode()
            method, target, _ = head.partition("\r\n")[0].split()
            if self._expected is not None and f"Basic {self._expected}" not in head:
                self.refused += 1
                writer.write(b"HTTP/1.1 407 Proxy Authentication Required\r\nContent-Length: 0\r\n\r\n")
                await writer.drain()
                return
            self.requests.append(f"{method} {target}")
            parts = urlsplit(f"//{target}" if method == "CONNECT" else target)
            upstream_reader, upstream = await asyncio.open_connection(parts.hostname, parts.port)
            with contextlib.closing(upstream):
                if method == "CONNECT":
                    writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
                else:
                    head = head.replace(target, parts._replace(scheme="", netloc="").geturl() or "/", 1).replace(
                        "\r\n", "\r\nConnection: close\r\n", 1
                    )
                    upstream.write(head.encode())
                pumps = [asyncio.create_task(_pump(*way)) for way in ((reader, upstream), (upstream_reader, writer))]
                self._tasks.update(pumps)
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65_536):
            writer.write(data)
            await writer.drain()
