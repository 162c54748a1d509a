# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A person in front of a real browser, which this package opens itself.
"""

import webbrowser
from pathlib import Path

import pytest

from haystack_integrations.tools.mcp import MCPConnection, OAuthConfig, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.oauth import InMemoryTokenStorage
from tests.support.background import in_thread
from tests.support.chromium import Chromium, find_chromium
from tests.support.oauth_server import OAuthServer


@pytest.mark.integration
def test_somebody_presses_allow_in_the_browser_that_opens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = find_chromium()
    if program is None:
        pytest.skip("No Chromium was found: install the package chromium-headless-shell, or chromium")
    with OAuthServer() as server, Chromium(str(program), tmp_path / "profile") as chromium:

        def press() -> str:
            chromium.wait_for("!!document.getElementById('allow')")
            chromium.evaluate("document.getElementById('allow').click()")
            return str(chromium.wait_for("document.title == 'Logged in' && document.body.innerText"))

        class Browser(webbrowser.BaseBrowser):
            def open(self, url: str, new: int = 0, autoraise: bool = True) -> bool:
                chromium.open(url)
                pressed.append(in_thread(press))
                return True

        pressed: list = []
        monkeypatch.setenv("BROWSER", "a-browser")
        monkeypatch.setattr(webbrowser, "_tryorder", [])
        monkeypatch.setattr(webbrowser, "_browsers", {})
        webbrowser.register("a-browser", None, Browser(), preferred=True)
        config = OAuthConfig(client_name="Chromium's friend", token_storage=InMemoryTokenStorage())
        with MCPConnection(StreamableHttpServerInfo(server.url, oauth_config=config)) as connection:
            assert connection.call_tool("whoami").content[0].text == "alice"
        assert "You can close this page." in pressed[0].result(30)
    assert server.count["authorizations"] == 1
