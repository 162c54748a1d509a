# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import sys
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from haystack.utils import Secret
from haystack.utils.auth import SecretType
from mcp.server import MCPServer, Server
from pydantic import AnyUrl

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPServerInfo,
    MCPTool,
    MCPToolset,
    SecretTemplate,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    server_info_from,
)
from tests.support.rows import rows

SERVERS = [MCPServer("one"), Server("two"), FastMCP("three")]


@rows(
    ("target", "info"),
    [
        ("https://h/mcp", StreamableHttpServerInfo("https://h/mcp", sse_fallback=True)),
        (AnyUrl("https://h/mcp"), StreamableHttpServerInfo("https://h/mcp", sse_fallback=True)),
        ("https://h/sse/", SSEServerInfo("https://h/sse/")),
        ("https://${H}/mcp", StreamableHttpServerInfo(SecretTemplate("https://${H}/mcp"), sse_fallback=True)),
        (
            ["uvx", "--key=${K}", "${V}"],
            StdioServerInfo("uvx", [SecretTemplate("--key=${K}"), Secret.from_env_var("V")]),
        ),
        ({"command": "uvx", "args": ["a"], "disabled": False}, StdioServerInfo("uvx", ["a"])),
        ({"url": "https://h/x", "type": "sse"}, SSEServerInfo("https://h/x")),
        (StdioServerInfo("uvx"), StdioServerInfo("uvx")),
        *((server, InProcessServerInfo(server)) for server in SERVERS),
    ],
    ids=lambda value: type(value).__name__,
)
def test_what_reaches_a_server_becomes_its_server_info(target: Any, info: Any) -> None:
    assert server_info_from(target) == info
    assert MCPToolset(target).server_info == info
    assert MCPTool("add", target).server_info == info


def test_the_path_of_a_script_is_run_with_what_it_is_written_for(tmp_path: Path) -> None:
    for name in ("server.py", "server.js"):
        (tmp_path / name).touch()
    python, script = tmp_path / "server.py", str(tmp_path / "server.js")
    assert server_info_from(python) == StdioServerInfo(sys.executable, [str(python)])
    assert server_info_from(script) == StdioServerInfo("node", [script])


@rows(
    ("target", "reason"),
    [
        ("", "it is empty"),
        ([], "it is empty"),
        (None, "got NoneType"),
        (5, "got int"),
        (object(), "got object"),
        ("nothing-here.py", "'nothing-here.py' is neither a URL nor the path of a script that exists (.py, "),
        ("mcp.json", "load_mcp_toolsets('mcp.json') makes toolsets of a configuration file"),
        ("uvx some-server --token s3ntinel", "'uvx some-server --token ***' is neither"),
        (["uvx", 5], "`args`"),
        ("http://${A", "is not closed"),
        ({"mcpServers": {"a": {"command": "x"}}}, "use load_mcp_toolsets"),
        ({"command": "x", "disabledTools": ["a"]}, "are parameters of MCPToolset"),
        ({"comand": "x"}, "Did you mean `command`?"),
    ],
)
def test_anything_else_is_an_error_that_says_what_is_meant(target: Any, reason: str) -> None:
    with pytest.raises(ValueError) as error:
        server_info_from(target)
    assert reason in str(error.value)
    assert "s3ntinel" not in str(error.value)


@rows("template", ["", "plain", "${}", "${a b}", "${A:-${B}}", "${A"])
def test_a_template_without_usable_variables_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"SecretTemplate|variable"):
        SecretTemplate(template)


def test_a_template_takes_its_defaults_and_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    template = SecretTemplate("$1 ${NOT_SET_1} ${env:NOT_SET_2:-a:-b} ${SET}")
    monkeypatch.setenv("SET", "s3ntinel")
    with pytest.raises(ValueError, match=r"are not set: NOT_SET_1$"):
        template.resolve_value()
    monkeypatch.setenv("NOT_SET_1", "one")
    assert template.resolve_value() == "$1 one a:-b s3ntinel"
    assert template.secrets() == {"one", "s3ntinel"}
    assert "s3ntinel" not in repr(template) + str(template)


def test_a_template_is_a_secret_of_the_environment_and_is_stored_as_it_was_written() -> None:
    template = SecretTemplate("Bearer ${KEY}")
    assert template.type is SecretType.ENV_VAR
    stored = template.to_dict()
    assert stored["template"] == "Bearer ${KEY}"
    info = StreamableHttpServerInfo("https://mcp.example.com/mcp", headers={"Authorization": template})
    loaded = MCPServerInfo.from_dict(info.to_dict())
    assert loaded.headers == {"Authorization": template}
