# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A server that is protected by OAuth (Haystack 2 and 3).

By default a browser opens. Here a function replaces it, so that the example runs by itself.
"""

import tempfile

import httpx2
from servers.vault import running

from haystack_integrations.tools.mcp import MCPTool, OAuthConfig, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.oauth import FileTokenStorage, MCPLoginRequest, login


async def browse(request: MCPLoginRequest) -> None:
    print("Somebody allows the access")
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(request.url)


def main() -> None:
    with running() as url, tempfile.TemporaryDirectory() as folder:
        storage = FileTokenStorage(folder)
        print("Logging in, once:")
        login(StreamableHttpServerInfo(url, oauth_config=OAuthConfig(redirect_handler=browse, token_storage=storage)))
        print("A service finds the tokens, and needs nobody:")
        info = StreamableHttpServerInfo(url, oauth_config=OAuthConfig(token_storage=storage))
        with MCPTool("open_vault", info, outputs_to_string={"handler": str}) as tool:
            print(tool.call().text)


if __name__ == "__main__":
    main()
