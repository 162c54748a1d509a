# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The kinds of servers, and one interface for all of them: how to reach, kill, take down and freeze one.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from haystack_integrations.tools.mcp import MCPServerInfo, SSEServerInfo, StreamableHttpServerInfo
from tests.support.cutting_proxy import CuttingProxy
from tests.support.processes import CallLog, StdioServer

# Seconds; longer than a test may take, so a call that waits this long hangs.
LONG = 1000.0

QUICKLY = {"base_delay": 0.05, "max_delay": 0.2}


@dataclass(frozen=True)
class Kind:
    """
    A kind of server: the arguments of the fixtures that start one, and the server info that reaches it.

    :param transport: `"stdio"`, `"streamable-http"` or `"sse"`.
    :param options: Options of the server.
    :param from_sdk: Whether a server over stdio is the one written with the SDK.
    """

    transport: str
    options: tuple[str, ...] = ()
    from_sdk: bool = True

    @property
    def is_http(self) -> bool:
        return self.transport != "stdio"

    @property
    def notices_the_end(self) -> bool:
        """
        Return whether the client notices the end of such a server without a call.
        """
        return self.transport != "streamable-http"

    def reach(self, url: str, **parameters: Any) -> StreamableHttpServerInfo | SSEServerInfo:
        """
        Return the server info of such a server over HTTP, with short delays between attempts.

        :param url: Its URL.
        :param parameters: Further parameters of the server info.
        :returns: The server info.
        """
        info_class = SSEServerInfo if self.transport == "sse" else StreamableHttpServerInfo
        return info_class(url, **{**QUICKLY, **parameters})


# Servers of the era before 2026-07-28 over Streamable HTTP have sessions, unless they are stateless.
KINDS = {
    "stdio": Kind("stdio", from_sdk=False),
    "stdio of the SDK": Kind("stdio"),
    "2026": Kind("streamable-http"),
    "2026 json": Kind("streamable-http", ("--json",)),
    "sessions": Kind("streamable-http", ("--protocol", "legacy")),
    "stateless": Kind("streamable-http", ("--protocol", "legacy", "--stateless")),
    "sse": Kind("sse"),
}


def kinds(*names: str) -> pytest.MarkDecorator:
    """
    Run a test with each of these kinds of servers, as its argument `kind`.

    :param names: Keys of `KINDS`.
    :returns: The mark.
    """
    return pytest.mark.parametrize("kind", [KINDS[name] for name in names], ids=names)


# Tests of faults run over stdio and Streamable HTTP, in both eras, and over other transports where they may differ.
every_kind = kinds("stdio", "2026", "sessions", "sse")
every_way = kinds("stdio", "2026", "sessions")
every_http_transport = kinds("2026", "sse")
every_streamable_kind = kinds("2026", "sessions")


class Gate:
    """
    A server over stdio that starts only while the gate is open; otherwise it exits at once with exit code 9.
    """

    def __init__(self, server: StdioServer, folder: Path) -> None:
        self._closed = folder / "closed"
        self._starts = folder / "starts"
        self._starts.touch()
        script = (
            'echo start >> "$1"; if test -e "$2"; then echo down for maintenance >&2; exit 9; fi; shift 2; exec "$@"'
        )
        args = ["-c", script, "sh", str(self._starts), str(self._closed), server.command, *server.args]
        self.server = StdioServer("/bin/sh", args, server.log)

    def close(self) -> None:
        self._closed.touch()

    def open(self) -> None:
        self._closed.unlink()

    @property
    def starts(self) -> int:
        return len(self._starts.read_text().splitlines())


class Peer:
    """
    A server of some kind, with methods that break it.

    Over stdio, the client starts it, behind a gate. Over HTTP, it already runs, perhaps behind a proxy. The proxy goes
    down when no request is on its way, and can freeze a server that other tests share.
    """

    def __init__(self, kind: Kind, server: Any, *, gate: Gate | None = None, proxy: CuttingProxy | None = None) -> None:
        self.kind = kind
        self.log: CallLog = server.log
        self.gate = gate
        self.proxy = proxy
        self.calls, self.wait_for = server.calls, server.wait_for
        # `freeze` stops its process or its connections without ending them; `thaw` resumes them.
        self.freeze: Callable[[], None] = proxy.hold if proxy else server.freeze
        self.thaw: Callable[[], None] = proxy.release if proxy else server.thaw
        # After this, it can be reached again as soon as `revive` was called.
        self.kill: Callable[[], None] = server.kill
        self._server = server

    def reach(self, **parameters: Any) -> MCPServerInfo:
        """
        Return its server info, with short delays between attempts.
        """
        if self.gate:
            return self.gate.server.info(**parameters)
        return self.kind.reach((self.proxy or self._server).url, **parameters)

    def revive(self) -> None:
        """
        Start the killed server again, unless the client starts it.
        """
        if self.kind.is_http:
            self._server.start()

    def restart(self) -> None:
        """
        Kill it, and make its successor reachable at the same place.
        """
        self.kill()
        self.revive()

    def go_down(self) -> None:
        """
        Break its connections and refuse new ones until `come_back`.
        """
        if self.proxy:
            self.proxy.refuse()
            self.proxy.cut()
            return
        if self.gate:
            self.gate.close()
        self.kill()

    def come_back(self) -> None:
        """
        Accept new connections again.
        """
        if self.proxy:
            self.proxy.accept()
        elif self.gate:
            self.gate.open()
        else:
            self.revive()

    def wait_until_gone(self) -> None:
        """
        Wait until all processes that the client has started are gone.
        """
        if self.gate:
            self._server.wait_until_gone()


PeerFactory = Callable[..., Peer]
