# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is shown of a server info, in its repr, in traces and in messages: never a secret.
"""

import dataclasses
import json

import pytest
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    MCPClient,
    MCPServerInfo,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.redaction import redact_url

SECRET = "s3ntinel-in-an-info"


@dataclasses.dataclass
class CarrierPigeonInfo(MCPServerInfo):
    """A custom server info."""

    loft: str
    leg_ring: dict[str, Secret | str] | None = None

    def create_client(self) -> MCPClient:
        raise NotImplementedError


@pytest.mark.parametrize(
    "info",
    [
        StdioServerInfo("a", env={"K": SECRET}),
        StdioServerInfo("a", env={"K": Secret.from_token(SECRET)}),
        StdioServerInfo("a", args=["--api-key", SECRET]),
        StdioServerInfo("a", args=[f"--token={SECRET}", "--verbose"]),
        StdioServerInfo("a", args=["--db-password", SECRET, "x"]),
        StdioServerInfo("a", args=["run", "-e", f"API_KEY={SECRET}", "image"]),
        StdioServerInfo("a", args=["mcp-remote", "--header", f"Authorization: Bearer {SECRET}"]),
        StdioServerInfo("a", args=["mcp-remote", f"https://u:{SECRET}@h/sse"]),
        StdioServerInfo("a", args=["mcp-remote", f"https://h/sse?api_key={SECRET}"]),
        StdioServerInfo("a", args=[f"postgresql://u:{SECRET}@h/db"]),
        StdioServerInfo("a", args=["--config", f'{{"apiKey": "{SECRET}", "x": 1}}']),
        StdioServerInfo("a", args=[f"host=h user=u password={SECRET}"]),
        StdioServerInfo("a", args=["-c", f"PGPASSWORD={SECRET} psql"]),
        SSEServerInfo("http://h/sse", token=SECRET),
        SSEServerInfo("http://h/sse", headers={"X": SECRET}),
        SSEServerInfo(f"http://u:{SECRET}@h/sse?key={SECRET}#{SECRET}"),
        StreamableHttpServerInfo("http://h/mcp", token=Secret.from_token(SECRET)),
        StreamableHttpServerInfo("http://h/mcp", headers={"X": SECRET}),
        StreamableHttpServerInfo(f"http://{SECRET}@h/mcp?key={SECRET}&x={SECRET}"),
    ],
    ids=lambda info: f"{type(info).__name__}-{getattr(info, 'args', None) or ''}".replace(SECRET, "S"),
)
def test_plain_secrets_of_a_server_info_are_neither_in_repr_nor_in_traces_nor_in_messages(info):
    assert SECRET not in repr(info)
    assert SECRET not in info.describe()
    assert SECRET not in json.dumps(info._to_trace_dict())


def test_a_custom_server_info_that_is_a_dataclass_does_not_show_plain_secrets():
    @dataclasses.dataclass
    class Mine(StreamableHttpServerInfo):
        region: str = "eu"

    assert repr(Mine("http://h/mcp", token=SECRET, region="us")).endswith("region='us')")
    assert SECRET not in repr(Mine("http://h/mcp", token=SECRET))


def test_a_custom_server_info_may_have_a_repr_of_its_own():
    @dataclasses.dataclass
    class Mine(StreamableHttpServerInfo):
        def __repr__(self) -> str:
            return "mine"

    assert repr(Mine("http://h/mcp")) == "mine"


def test_what_is_no_secret_is_shown_in_the_repr_of_a_server_info():
    info = StdioServerInfo(
        "uvx",
        ["mcp-server-git", "--repository", "/repo", "--verbose", "--key-file=/k"],
        env={"A": Secret.from_env_var(["ONE", "TWO"]), "B": "plain"},
        cwd="/tmp",
    )
    assert repr(info) == (
        "StdioServerInfo(command='uvx', args=['mcp-server-git', '--repository', '/repo', '--verbose', "
        "'--key-file=***'], env={'A': 'env:ONE|TWO', 'B': '***'}, max_retries=3, base_delay=1.0, max_delay=30.0, "
        "cwd='/tmp')"
    )
    assert info.describe() == ("stdio server `uvx mcp-server-git --repository /repo --verbose --key-file=***`")


def test_a_secret_in_a_field_of_any_name_is_redacted():
    nested = CarrierPigeonInfo("roof", leg_ring={"number": Secret.from_env_var("RING"), "colour": "red"})
    assert nested._to_trace_dict()["leg_ring"] == {"number": "env:RING", "colour": "red"}


def test_an_absent_secret_is_shown_as_absent():
    assert "token=None, headers=None" in repr(StreamableHttpServerInfo("http://h/mcp"))


def test_a_redacted_url_keeps_all_that_helps():
    assert redact_url("https://u:p@h:8000/a/b?x=1&y=2#z") == "https://h:8000/a/b?x=***&y=***"
    assert redact_url("http://[::1]:8000/mcp") == "http://[::1]:8000/mcp"
    assert redact_url("http://h/mcp") == "http://h/mcp"
