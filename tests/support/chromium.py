# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A headless Chromium, over the pipe of its DevTools protocol.
"""

import itertools
import json
import os
import select
import shutil
import subprocess
import time
from pathlib import Path
from typing import Any, Self

from tests.support.processes import end, leader
from tests.support.waiting import LIMIT

PROGRAMS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome")


def find_chromium() -> str | None:
    """
    The path of a Chromium on this machine.
    """
    return next(filter(None, map(shutil.which, PROGRAMS)), None)


class Chromium:
    """
    A browser with one tab.
    """

    def __init__(self, program: str, profile: Path) -> None:
        read_commands, self._commands = os.pipe()
        self._answers, write_answers = os.pipe()
        # Chromium reads its file descriptor 3, and writes to 4.
        options = f"--headless --no-sandbox --disable-gpu --remote-debugging-pipe --user-data-dir={profile}"
        script = f"exec {program} {options} about:blank 3<&{read_commands} 4>&{write_answers}"
        self._process = leader(
            ["bash", "-c", script],
            pass_fds=(read_commands, write_answers),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(read_commands)
        os.close(write_answers)
        self._buffer = b""
        self._ids = itertools.count(1)
        [page] = [target for target in self.ask("Target.getTargets")["targetInfos"] if target["type"] == "page"]
        self._session = self.ask("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]

    def ask(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(self._ids)
        message = {"id": number, "method": method, "params": params} | ({"sessionId": session} if session else {})
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                assert select.select([self._answers], [], [], LIMIT)[0], f"Chromium does not answer {method}"
                self._buffer += os.read(self._answers, 65536) or self._gone()
            line, _, self._buffer = self._buffer.partition(b"\0")
            answer = json.loads(line)
            if answer.get("id") == number:
                assert "error" not in answer, answer
                return dict(answer["result"])

    def _gone(self) -> bytes:
        msg = f"Chromium ended with {self._process.wait(10)}"
        raise AssertionError(msg)

    def open(self, url: str) -> None:
        self.ask("Page.navigate", self._session, url=url)

    def evaluate(self, script: str) -> Any:
        result = self.ask("Runtime.evaluate", self._session, expression=script, returnByValue=True)
        return result["result"].get("value")

    def wait_for(self, script: str, seconds: float = 30.0) -> Any:
        """
        Wait until a script gives something that is true.
        """
        end = time.monotonic() + seconds
        while not (value := self.evaluate(script)):
            assert time.monotonic() < end, f"{script} on {self.evaluate('location.href')}"
            time.sleep(0.05)
        return value

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._commands)
        os.close(self._answers)
        end(self._process)
