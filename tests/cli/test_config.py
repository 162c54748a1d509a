# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`mcp-haystack config`: converts an mcp.json to the YAML of toolsets, without secrets.
"""

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from haystack_integrations.tools.mcp import MCPToolset
from haystack_integrations.tools.mcp.secret_template import secret_text
from tests.cli.conftest import Run, servers_file
from tests.support.rows import rows

FILES = Path(__file__).parents[1] / "mcp_json" / "files"


def write(folder: Path, **servers: Any) -> str:
    return servers_file(folder / "mcp.json", servers)


@rows("file", *sorted(FILES.iterdir()))
def test_the_yaml_for_any_clients_file_creates_its_toolsets(run: Run, file: Path) -> None:
    ran = run("config", str(file))
    assert ran.code == 0, ran.errors
    stored = yaml.safe_load(ran.screen)["tools"]
    toolsets = [MCPToolset.from_dict(data) for data in stored]
    assert len({toolset.tool_name_prefix for toolset in toolsets}) == len(toolsets) > 0
    assert json.loads(run("config", str(file), "--json").screen) == {"tools": stored}


def test_the_yaml_has_the_settings_of_the_file_and_no_defaults(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET_ANYWHERE", raising=False)
    entry = {"command": "uvx", "args": ["mcp-server-time"], "timeout": 60, "disabledTools": ["convert_time"]}
    entry |= {"env": {"KEY": "${NOT_SET_ANYWHERE}"}, "autoApprove": ["add"]}
    ran = run("config", write(tmp_path, time=entry, off={"command": "uvx", "disabled": True}))
    [stored] = yaml.safe_load(ran.screen)["tools"]
    assert stored["data"]["server_info"].pop("env").keys() == {"KEY"}
    assert stored["data"] == {
        "server_info": {
            "type": "haystack_integrations.tools.mcp.mcp_tool.StdioServerInfo",
            "command": "uvx",
            "args": ["mcp-server-time"],
        },
        "tool_selection": {"exclude_tools": ["convert_time"]},
        "invocation_timeout": 60.0,
        "tool_name_prefix": "time",
    }
    assert "server 'time': these environment variables are not set: NOT_SET_ANYWHERE" in ran.errors
    assert "server 'time': ignored autoApprove" in ran.errors


def test_secrets_in_plain_text_become_environment_variables(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {
        "SHOP_ARGS_1": "sk-0123456789abcdefghij",
        "SHOP_KEY": "a plain secret",
        "HEADERS": "Bearer ghp_0123456789abcdefghijklmnopqrstuvwxyz",
        "DOCS_URL": "https://docs.example.com/mcp?api_key=url-secret-value",
        "DOCS_AUTHORIZATION": "header-secret-value",
        "DOCS_X_API_KEY": "sk-abcdefghijklmnopqrst",
        "DOCS_X_API_KEY_2": "sk-klmnopqrstuvwxyzabcd",
        "_21ST_DEV_MAGIC_ARGS_0": "API_KEY=of-21st-dev",
        "OTHER_CL__API_KEY": "of-the-clé",
    }
    argument, key, variable_headers, url, authorization, *api_keys, of_magic, of_other = values.values()
    env = {"SHOP_KEY": key, "LOG_LEVEL": "debug", "HEADERS": variable_headers}
    headers = {"Authorization": f"Bearer {authorization}", "X-Api-Key": api_keys[0], "X_Api_Key": api_keys[1]}
    shop = {"command": "shop", "args": ["--api-key", argument], "env": env}
    servers = {
        "shop": shop,
        "docs": {"url": url, "headers": headers},
        "other": {"command": "x", "env": {"SHOP_KEY": "b-own-1", "CLÉ_API_KEY": of_other}},
        "@21st-dev/magic": {"command": "npx", "args": ["API_KEY=of-21st-dev"]},
    }
    ran = run("config", write(tmp_path, **servers))
    assert ran.code == 0
    # A server never gets the secret of another server.
    assert re.search("server 'other': .* takes it from the environment variable SHOP_KEY_2: set it", ran.errors)
    assert "set it, and write `Bearer ${DOCS_AUTHORIZATION}` in the file" in ran.errors
    for variable, secret in values.items():
        assert variable in ran.screen
        assert f"environment variable {variable}:" in ran.errors
        assert secret not in ran.screen + ran.errors
        monkeypatch.setenv(variable, secret)
    monkeypatch.setenv("SHOP_KEY_2", "b-own-1")
    shop, docs, other, magic = (MCPToolset.from_dict(data).server_info for data in yaml.safe_load(ran.screen)["tools"])
    assert (shop.args[1].resolve_value(), docs.url.resolve_value()) == (argument, url)
    assert [value.resolve_value() for value in other.env.values()] == ["b-own-1", of_other]
    assert magic.args[0].resolve_value() == of_magic
    assert {name: secret_text(value) for name, value in shop.env.items()} == env
    assert {name: value.resolve_value() for name, value in docs.headers.items()} == headers


@pytest.mark.parametrize(
    "entry",
    [
        {"url": "https://me:pass-word-1@h.example/mcp?api_key=key-12345&page=2&token=tok-76543"},
        {"url": "https://h.example/sk-0123456789abcdefghijklmn/mcp?token=tok-76543"},
        {"command": "x", "args": ["--dsn=postgres://u:pw-123456@h/db?password=other-pw-1"]},
        {"url": "https://h.example/mcp", "headers": {"Cookie": "a=ses-12345; token=tok-76543"}},
        {"url": "https://${HOST:-h.example}/mcp?api_key=key-12345&page=${PAGE}"},
        {"command": "x", "args": ["https://u:pw-123456@${HOST:-h}/mcp", "Authorization: Bearer ${TOKEN}"]},
    ],
)
def test_all_secrets_in_one_value_are_replaced(run: Run, tmp_path: Path, entry: dict[str, Any]) -> None:
    ran = run("config", write(tmp_path, shop=entry))
    assert ran.code == 0
    for secret in re.findall(r"\w+-\w+-1|key-\w+|tok-\w+|p%2B\w+|sk-0\w+|pw-\w+|ses-\w+", str(entry)):
        assert secret not in ran.screen + ran.errors
    assert ran.errors.count("in plain text") == 1


def test_a_text_whose_only_secrets_are_variables_is_unchanged(run: Run, tmp_path: Path) -> None:
    urls = ("https://me:${PW:-}@h.example/mcp?api_key=${KEY:-}", "https://${HOST:-h.example}/mcp")
    headers = {"Authorization": "Bearer ${TOKEN:-}"}
    servers = {f"s{number}": {"url": url, "headers": headers} for number, url in enumerate(urls)}
    servers["x"] = {"command": "x", "args": ["--api-key=${KEY:-}", "Authorization: Bearer ${TOKEN:-}"]}
    ran = run("config", write(tmp_path, **servers))
    assert (ran.code, ran.errors) == (0, "")


def test_every_unusable_entry_is_named(run: Run, tmp_path: Path) -> None:
    file = write(tmp_path, one={"comand": "x"}, two={"url": 5}, three={"command": "uvx"})
    ran = run("config", file)
    assert ran.code == 2
    assert ran.screen == ""
    assert "server 'one': unknown key 'comand'. Did you mean `command`?" in ran.errors
    assert "server 'two': `url` must be a string" in ran.errors
    assert run("config", file, "three").code == 0
    assert "has no server 'four'; it has one, two, three" in run("config", file, "four").errors
    file = write(tmp_path, three={"command": "uvx", "disabled": True})
    assert run("config", file).screen == "tools: []\n"
