# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import json
import os
import sys
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from haystack.utils import Secret
from mcp import types

from haystack_integrations.tools.mcp import (
    MCPRegistry,
    MCPServerInfo,
    MCPToolset,
    MCPToolSnapshot,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    ToolSelection,
    load_mcp_toolsets,
)
from haystack_integrations.tools.mcp.oauth import FileTokenStorage, OAuthConfig
from tests.support.rows import rows

FILES = Path(__file__).parent / "files"
KEY = "s3ntinel-of-a-key"

VARIABLES = ("API_KEY", "API_BASE_URL", "AUTH_TOKEN", "DB_URL", "MY_SERVICE_TOKEN")
VARIABLES += ("GITHUB_PERSONAL_ACCESS_TOKEN", "PERPLEXITY_KEY", "NOTES_FOLDER", "NOTES_KEY", "ISSUES_TOKEN")
VARIABLES += ("DATABASE_URL", "SEARCH_KEY")


@pytest.fixture
def variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, KEY)


def one(entry: Any) -> dict[str, Any]:
    return {"mcpServers": {"one": entry}}


def load(entry: dict[str, Any], **options: Any) -> MCPToolset:
    [toolset] = load_mcp_toolsets(one(entry), **options)
    return toolset


def plain(value: Any) -> Any:
    return value.resolve_value() if isinstance(value, Secret) else value


def reached(info: Any) -> str:
    """Describe how a server is reached in one line, with all variables resolved; `~`: SSE is the fallback."""
    if isinstance(info, StdioServerInfo):
        variables = [f"{name}={plain(value)}" for name, value in (info.env or {}).items()]
        place = [f"(in {info.cwd})"] if info.cwd else []
        return " ".join([*variables, *map(plain, [info.command, *info.args]), *place])
    kind = "sse" if isinstance(info, SSEServerInfo) else "http~" if info.sse_fallback else "http"
    headers = [f"{name}: {plain(value)}" for name, value in (info.headers or {}).items()]
    return " ".join([kind, plain(info.url), *headers])


# The servers in the files of other clients.
SERVERS = {
    "claude_desktop_config.json": {
        "filesystem": "npx -y @modelcontextprotocol/server-filesystem /Users/username/Desktop "
        "/Users/username/Downloads",
        "brave-search": "BRAVE_API_KEY=YOUR_API_KEY_HERE APPDATA=C:\\Users\\user\\AppData\\Roaming\\ npx -y "
        "@modelcontextprotocol/server-brave-search",
        "tickets": "AUTH_HEADER=Bearer YOUR_TOKEN_HERE npx mcp-remote https://tickets.example.com/mcp --header "
        "Authorization:${AUTH_HEADER}",
    },
    "claude_code.mcp.json": {
        "api-server": f"http {KEY}/mcp Authorization: Bearer {KEY}",
        "database-tools": f"DB_URL={KEY} {FILES}/servers/db-server --config {FILES}/config.json",
        "asana": "sse https://mcp.asana.com/sse",
    },
    "cursor.mcp.json": {
        "local-server": f"NOTES_FOLDER=/srv/notes API_KEY={KEY} GREETING=two\nlines # of text "
        f"python {FILES}/tools/mcp_server.py",
        "remote-server": f"http~ https://api.example.com/mcp Authorization: Bearer {KEY}",
    },
    "vscode.mcp.json": {
        "Perplexity": f"PERPLEXITY_API_KEY={KEY} npx -y server-perplexity-ask --region=eu",
        "github": f"http https://api.githubcopilot.com/mcp/ Authorization: Bearer {KEY}",
    },
    "windsurf_mcp_config.json": {
        "github": f"GITHUB_PERSONAL_ACCESS_TOKEN={KEY} docker run -i --rm -e GITHUB_PERSONAL_ACCESS_TOKEN "
        "ghcr.io/github/github-mcp-server",
        "remote-http-mcp": f"http~ https://mcp.example.com/mcp API_KEY: Bearer {KEY}",
    },
    "zed_settings.json": {
        "notes": f"NOTES_KEY={KEY} uvx mcp-server-notes --folder={KEY}",
        "issues": f"http~ https://issues.example.com/mcp Authorization: Bearer {KEY}",
    },
    "opencode.jsonc": {
        "notes": f"NOTES_KEY={KEY} npx -y notes-server",
        "issues": f"http https://issues.example.com/mcp Authorization: Bearer {KEY}",
    },
    "gemini_settings.json": {
        "database": f"DATABASE_URL={KEY} node dist/server.js (in /srv/database-server)",
        "search": f"http https://search.example.com/mcp X-API-Key: Key {KEY}",
        "events": "sse https://events.example.com/sse",
        "issues": f"http https://issues.example.com/mcp Authorization: Bearer {KEY}",
    },
    "roo.mcp.json": {
        "notes": f"NOTES_KEY={KEY} npx -y notes-server {FILES}",
        "remote": "http https://roo.example.com/mcp X-Key: plain",
    },
    "cherry_studio.json": {
        "fetcher": "uvx mcp-server-fetch",
        "maps": f"http https://maps.example.com/mcp Authorization: Bearer {KEY}",
    },
    "warp.mcp.json": {
        "Files": f"FILES_KEY={KEY} npx -y files-server . (in /srv/files)",
        "Metrics": f"sse https://metrics.example.com/sse X-Key: {KEY}",
    },
}


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize("name", SERVERS)
def test_the_files_of_other_clients_load_and_can_be_stored(name: str) -> None:
    inputs = {"perplexity-key": Secret.from_env_var("PERPLEXITY_KEY")} if "vscode" in name else None
    toolsets = load_mcp_toolsets(FILES / name, inputs=inputs)
    assert {toolset.tool_name_prefix: reached(toolset.server_info) for toolset in toolsets} == SERVERS[name]
    for toolset in toolsets:
        stored = toolset.to_dict()
        assert KEY not in json.dumps(stored) + repr(toolset) + json.dumps(toolset._to_trace_dict(), default=str)
        assert MCPToolset.from_dict(stored).to_dict() == stored


def test_settings_of_an_entry_about_its_tools_become_parameters_of_the_toolset() -> None:
    options = {"max_tool_failures": 3, "on_tool_error": "raise", "include_instructions": True}
    entries = {
        "my server!": {"command": "x", "timeout": 90, "enabledTools": ["a", "b"], "disabledTools": ["b"]},
        "other server?": {"command": "x", "timeout": 5_000, "required": False, "connection_timeout": 3},
        "named": {"command": "x", "tool_name_prefix": "n", "allowedTools": ["*"], "tool_options": options},
        "off": {"command": "x", "disabled": True},
    }
    content = {"mcpServers": entries}
    first, second, named = load_mcp_toolsets(content, tool_options={"result_format": "json"}, connection_timeout=4)
    prefixes = [(each.tool_name_prefix, each.tool_names) for each in (first, second, named)]
    assert prefixes == [("my_server", ["a"]), ("other_server", None), ("n", None)]
    timeouts = [(each.invocation_timeout, each.connection_timeout) for each in (first, second, named)]
    assert timeouts == [(90, 4), (5, 3), (30, 4)]
    assert (first.required, second.required) == (True, False)
    assert first.tool_options.changed() == {"result_format": "json"}
    assert named.tool_options.changed() == {"result_format": "json", **options}
    for nothing in (None, ""):
        unlimited = load({"command": "x", "timeout": 9, "tool_name_prefix": nothing, "invocation_timeout": nothing})
        assert (unlimited.tool_name_prefix, unlimited.invocation_timeout) == (None, None)
    unprefixed = load_mcp_toolsets(content, prefix_tool_names=False)
    assert [toolset.tool_name_prefix for toolset in unprefixed] == [None, None, "n"]
    assert load_mcp_toolsets(content, servers=["named"])[0].server_info == named.server_info
    for excluding in ({"disabledTools": ["b"]}, {"disabled_tools": ["b"]}):  # the latter is for Crush
        assert load({"command": "x", **excluding}, tool_selection=None).tool_selection.exclude_tools == ["b"]
    for selection in ({"exclude_tools": ["a"]}, ToolSelection(exclude_tools=["a"])):
        toolset = load({"command": "x", "disabledTools": ["b"]}, tool_selection=selection)
        assert toolset.tool_selection.exclude_tools == ["a", "b"]
    assert load({"command": "x", "tools": ["a"]}).tool_names == ["a"]  # GitHub Copilot
    for other in ({"a": {"enabled": True}}, "*", True):  # FastMCP and others
        assert load({"command": "x", "tools": other}).tool_names is None
    for load_config in (load_mcp_toolsets, MCPRegistry.from_config):
        with pytest.raises(TypeError, match="MCPToolset has no parameter 'limit'"):
            load_config(one({"command": "x"}), limit=False)


def test_keys_without_a_meaning_here_are_ignored_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    keys = ["autoApprove", "$typeName", "//", "name", "5"]
    assert load({"command": "x", **{key: ["s3ntinel"] for key in keys}}).server_info == StdioServerInfo("x")
    assert f"server 'one': ignored {', '.join(keys)}" in caplog.text
    load({"command": "x", "headers": {"A": "s3ntinel"}, "cwd": "."})
    load({"url": "http://x/mcp", "env": {"A": "s3ntinel"}, "headers": {"A": "b"}})
    assert "server 'one': not used without a `url`: `headers`\n" in caplog.text
    assert "server 'one': not used without a `command`: `env`\n" in caplog.text
    assert "s3ntinel" not in caplog.text


def test_a_disabled_server_that_was_requested_is_omitted_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    config = {"mcpServers": {"on": {"command": "x"}, "off": {"command": "x", "disabled": True}}}
    assert len(load_mcp_toolsets(config)) == 1
    assert "off" not in caplog.text
    assert load_mcp_toolsets(config, servers=["off"]) == []
    assert "server 'off': is disabled, and left out although it was asked for" in caplog.text


@rows(
    ("typo", "meant"),
    ("comand", "command"),
    ("Command", "command"),
    ("isDisabled", "disabled"),
    ("disabled-tools", "disabledTools"),
)
def test_a_key_that_looks_like_a_typo_is_refused_unless_the_entry_is_disabled(typo: str, meant: str) -> None:
    entry = {"command": "x", typo: "s3ntinel"}
    with pytest.raises(ValueError, match=f"server 'one': unknown key '{typo}'. Did you mean `{meant}`") as error:
        load(entry)
    assert "s3ntinel" not in str(error.value)
    assert load_mcp_toolsets(one({**entry, "disabled": True})) == []


@rows(
    "entry",
    {"disabled": True},
    {"enabled": False, "command": 5, "args": "x", "type": "tcp", "timeout": "never"},
    {"isActive": False, "url": "", "env": {"A": "${not closed"}, "args": ["${input:unknown}"]},
    {"type": "inMemory", "isActive": True},
)
def test_disabled_entries_and_parts_of_the_client_never_make_the_file_invalid(entry: dict[str, Any]) -> None:
    content = {"mcpServers": {"off": entry, "on": {"command": "x"}}}
    assert [toolset.tool_name_prefix for toolset in load_mcp_toolsets(content)] == ["on"]


URL = "https://h.example.com/x"


HTTP, SSE = StreamableHttpServerInfo(URL), SSEServerInfo(URL)


@rows(
    ("entry", "info"),
    *(({"type": name, "url": URL}, HTTP) for name in ("HTTP", "streamable-http", "streamableHttp", "remote")),
    ({"transportType": "Streamable HTTP", "url": URL, "command": ""}, HTTP),
    *(({"transport": name, "url": URL}, SSE) for name in ("SSE", "http-sse")),
    *(({key: URL}, StreamableHttpServerInfo(URL, sse_fallback=True)) for key in ("url", "serverUrl", "baseUrl")),
    ({"url": URL, "auth": "oauth"}, StreamableHttpServerInfo(URL, sse_fallback=True, auth="oauth")),
    ({"httpUrl": URL}, HTTP),
    ({"type": "http", "url": URL, "command": "x"}, HTTP),
    ({"type": "STDIO", "url": URL, "command": "x"}, StdioServerInfo("x")),
    ({"type": "local", "command": "x"}, StdioServerInfo("x")),
)
def test_the_kind_of_a_server_has_many_names(entry: dict[str, Any], info: MCPServerInfo) -> None:
    assert load(entry).server_info == info


def test_logins_may_be_kept_for_the_servers_that_want_them(tmp_path: Path) -> None:
    kept = OAuthConfig(token_storage=FileTokenStorage(str(tmp_path)))
    servers = {"private": {"url": URL, "auth": "oauth"}, "public": {"url": URL}, "local": {"command": "x"}}
    private, public, local = load_mcp_toolsets(servers, oauth_config=kept)
    assert private.server_info == StreamableHttpServerInfo(URL, sse_fallback=True, oauth_config=kept)
    assert (public.server_info, local.server_info) == (load(servers["public"]).server_info, StdioServerInfo("x"))
    registry = MCPRegistry.from_config(servers, oauth_config=kept)
    assert registry.providers["private"].server_info == private.server_info


def test_connections_of_langchain_mcp_adapters_are_accepted_in_their_python_form() -> None:
    local = {"transport": "stdio", "command": "python", "args": (Path("server.py"),), "cwd": Path("/tmp"), "env": None}
    remote = {"transport": "streamable_http", "url": "https://h/mcp", "timeout": timedelta(seconds=90)}
    toolsets = load_mcp_toolsets({"local": local, "remote": remote})
    assert toolsets[0].server_info == StdioServerInfo("python", ["server.py"], cwd="/tmp")
    assert toolsets[1].invocation_timeout == 90


def test_variables_of_an_env_file_are_stored_by_name_and_read_on_demand(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lines = [
        "\ufeff# comment",
        "PLAIN = a b # comment",
        "export QUOTED='s3ntinel #1'",
        'DOUBLE="line\\nnext \\"x\\""',
        "EMPTY=",
        "URL=http://h/#part",
        "no variable",
        "s3ntinel-of/a+key==",
        "PLAIN=last",
    ]
    file = tmp_path / "project" / ".vscode" / "mcp.json"
    file.parent.mkdir(parents=True)
    own = tmp_path / "project" / "own.env"
    own.write_text("\r\n".join(lines), encoding="utf-8")
    entries = {"one": {"envFile": "own.env", "env": {"URL": "mine"}}, "two": {"envFile": "no.env"}}
    file.write_text(json.dumps({"servers": {name: {"command": "x", **entry} for name, entry in entries.items()}}))
    one, two = load_mcp_toolsets(file)
    values = {name: plain(value) for name, value in one.server_info.env.items()}
    assert values == {"PLAIN": "last", "QUOTED": "s3ntinel #1", "DOUBLE": 'line\nnext "x"', "EMPTY": "", "URL": "mine"}
    assert two.server_info.env is None
    assert "server 'two': `envFile` cannot be read: No such file or directory" in caplog.text
    assert caplog.text.count("server 'one': `envFile` has lines that are not like NAME=value: ") == 1
    assert "dotenv" not in caplog.text
    stored = json.dumps(one.to_dict())
    assert "s3ntinel" not in caplog.text + stored + repr(one) + repr(one.server_info.env["QUOTED"])
    loaded = MCPToolset.from_dict(json.loads(stored))
    assert loaded.server_info == one.server_info
    own.unlink()
    with pytest.raises(ValueError, match="not set: QUOTED"):
        loaded.server_info.env["QUOTED"].resolve_value()


@rows(
    "content",
    {"mcp": {"servers": {"one": {"command": "${PROGRAM}"}}}, "editor.fontSize": 12},  # settings of VS Code
    {"one": {"command": "${PROGRAM}"}},  # a plugin of Claude Code
    {"mcp": {"servers": {"one": {"type": "local", "command": ["${PROGRAM}"]}}}},  # the second OpenCode
    {"mcp": {"one": {"type": "stdio", "command": "${PROGRAM}"}}, "lsp": {}},  # Crush
    {"mcp": {"enabled": True}, "context_servers": {"one": {"command": "${PROGRAM}"}}},
    {"amp.mcpServers": {"one": {"command": "${PROGRAM}", "env": [], "args": {}}}},
)
def test_servers_are_found_wherever_clients_keep_them(content: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROGRAM", "x")
    [toolset] = load_mcp_toolsets(content)
    assert toolset.server_info == StdioServerInfo(Secret.from_env_var("PROGRAM"))
    odd = {"command": ["x", "a ${PROGRAM}", "$PROGRAM", "$NOT_SET_1", "a $PROGRAM", "{env:PROGRAM}"]}
    assert [plain(value) for value in load(odd).server_info.args] == ["a x", "x", *odd["command"][3:]]


@rows("empty", None, {}, [])
def test_a_file_may_have_no_servers_yet(empty: Any) -> None:
    assert load_mcp_toolsets({"mcpServers": empty}) == []


ASKING = {"inputs": [{"id": "key"}], "servers": {"one": {"command": "x", "args": ["--key=${input:key}"]}}}


@rows(
    ("content", "message"),
    ({"mcpServer": {}}, "`servers` or `context_servers`, but mcpServer. Did you mean `mcpServers`?"),
    ({"mcpServers": 5}, "`mcpServers` must be an object with an entry for each server"),
    ([], "must be an object with `mcpServers`"),
    (one({"chatMenu": True}), "server 'one': an entry has either `command` with"),
    (one("x"), "server 'one': an entry is an object with `command`"),
    (one({"command": "x", "url": "http://h/"}), "it has `command` and `url`"),
    (one({"command": "x", "type": "sse"}), "type 'sse' does not go with `command`"),
    (one({"command": "x", "type": "tcp"}), "must be one of stdio, http (streamable-http) and sse"),
    (one({"command": "x", "args": "y"}), "`args` must be a list of strings, got str"),
    (one({"command": "x", "env": {"A": "${1}"}}), "in `env.A`, `${1}` is not a variable"),
    (one({"command": "x", "env": {"A": "${A B:-s3ntinel}"}}), "in `env.A`, `${A B:-…}` is not a variable"),
    (one({"command": "x", "timeout": "9"}), "`timeout` must be a number"),
    (one({"command": "x", "disabled": "no"}), "`disabled` must be true or false"),
    (one({"command": "x", "enabledTools": "a"}), "`enabledTools` must be a list of names"),
    (one({"command": "x", "tool_name_prefix": "a b"}), "server 'one': MCPToolset: `tool_name_prefix` must"),
    (one({"url": URL, "auth": "sk:s3ntinel"}), '`auth` must be "oauth". Pass a bearer token in `headers`'),
    (one({"url": URL, "auth": {"CLIENT_ID": "a"}}), "a registered client as `oauth_config=OAuthConfig(client_id="),
    (one({"url": "ftp://h/"}), "server 'one': StreamableHttpServerInfo: Invalid url: ftp://h/"),
    (one({"url": "http://${NOT_SET_1}/${NOT_SET_2:-x}"}), "are not set: NOT_SET_1; set them"),
    (one({"command": "x", "args": ["${input:a}"]}), '; declare it there, as in {"id": "a", "type": "promptStr'),
    ({**ASKING, "inputs": [{"id": "key", "description": "A"}]}, "`${input:key}` (A) has no value: pass inputs={'"),
    ({**ASKING, "inputs": {"id": "key"}}, "`inputs` must be a list of objects with an `id`"),
)
def test_a_bad_configuration_is_an_error_that_names_the_place_and_the_choices(
    content: Any, message: str, tmp_path: Path
) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(json.dumps(content))
    with pytest.raises(ValueError) as error:
        load_mcp_toolsets(file)
    assert str(error.value).startswith(str(file))
    assert message in str(error.value)
    assert "s3ntinel" not in str(error.value)


@rows(
    ("inputs", "message"),
    ({"kee": "s3ntinel"}, "does not declare 'kee' under its `inputs`; it declares: key"),
    ({"key": 5}, "`inputs` maps ids to strings or Secrets; that of 'key' is of type int"),
    ({"key": Secret.from_token("s3ntinel")}, "so it must be a string or a Secret of one environment variable"),
)
def test_inputs_that_do_not_fit_the_file_are_refused_and_not_quoted(inputs: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as error:
        load_mcp_toolsets(ASKING, inputs=inputs)
    assert message in str(error.value)
    assert "s3ntinel" not in str(error.value)


@rows(
    ("given", "expected"),
    ({"key": "plain"}, "--key=plain"),
    ({"key": Secret.from_env_var("API_KEY")}, f"--key={KEY}"),
    ({"key": Secret.from_env_var("NOT_SET", strict=False)}, "--key="),
    ({}, "--key=usual"),
)
@pytest.mark.usefixtures("variables")
def test_an_input_may_be_inside_a_longer_text_and_have_a_default(given: dict[str, Any], expected: str) -> None:
    content = ASKING if given else {**ASKING, "inputs": [{"id": "key", "default": "usual"}]}
    [toolset] = load_mcp_toolsets(content, inputs=given)
    assert [plain(argument) for argument in toolset.server_info.args] == [expected]


def test_the_workspace_of_a_file_in_its_clients_folder_is_the_parent_folder(tmp_path: Path) -> None:
    file = tmp_path / "project" / ".vscode" / "mcp.json"
    file.parent.mkdir(parents=True)
    arguments = ["${workspaceFolder}", "${workspaceFolderBasename}", "${userHome}", "${pathSeparator}${/}"]
    linked = tmp_path / "linked.json"
    linked.write_text(json.dumps({"servers": {"one": {"command": "x", "args": arguments}}}))
    file.symlink_to(linked)
    [toolset] = load_mcp_toolsets(file)
    assert toolset.server_info.args == [str(file.parents[1]), "project", str(Path.home()), os.sep * 2]


def test_the_path_of_the_file_may_begin_at_the_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: str(path).replace("~", str(tmp_path)))
    (tmp_path / "mcp.json").write_text(json.dumps({"mcpServers": {"one": {"command": "x"}}}))
    assert len(load_mcp_toolsets("~/mcp.json")) == 1


def test_a_file_can_be_read_without_a_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # like in a container with an unknown user
    assert load({"command": "x", "envFile": "~/.env"}).server_info.command == "x"


def test_a_file_that_cannot_be_read_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    with pytest.raises(FileNotFoundError, match=r"no file .*mcp\.json"):
        load_mcp_toolsets(file)
    file.write_text('{\n// servers\n"mcpServers": {"a": }}')
    with pytest.raises(ValueError, match=r"mcp\.json is not valid JSON: .* in line 3, column 21"):
        load_mcp_toolsets(str(file))
    file.write_text('{"mcpServers": {}}', encoding="utf-16")
    with pytest.raises(ValueError, match=r"mcp\.json is not in UTF-8: save it in this encoding"):
        load_mcp_toolsets(file)
    with pytest.raises(ValueError, match=r"has no server 'clac'; it has calc\. Did you mean 'calc'\?"):
        load_mcp_toolsets({"mcpServers": {"calc": {"command": "x"}}}, servers=["clac"])
    with pytest.raises(ValueError, match=r"a list of names, as in servers=\['calc'\]"):
        load_mcp_toolsets({"mcpServers": {"calc": {"command": "x"}}}, servers="calc")
    with pytest.raises(ValueError, match="the path of a file, or its content as a dictionary") as error:
        load_mcp_toolsets('{"mcpServers": {"a": {"env": {"KEY": "s3ntinel"}}}}')
    assert "s3ntinel" not in str(error.value)


def test_a_missing_variable_of_an_optional_server_is_an_error_when_it_is_needed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with load({"command": "x", "args": ["--key=${NOT_SET_1}"]}, required=False) as toolset:
        assert "these environment variables are not set: NOT_SET_1" in caplog.text
        assert list(toolset) == []
        assert "NOT_SET_1" in (toolset.connection.status().last_error or "")


def test_servers_get_the_values_of_variables_in_commands_urls_headers_and_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stdio_server: Any, http_server: Any
) -> None:
    http, program = http_server(), stdio_server()
    for name, value in {"T": KEY, "PYTHON": sys.executable, "SERVER": http.url.removesuffix("/mcp")}.items():
        monkeypatch.setenv(name, value)
    file = tmp_path / ".vscode" / "mcp.json"
    file.parent.mkdir()
    servers = {
        "remote": {"url": "${SERVER}/mcp?key=${T}", "headers": {"X-Key": "Bearer ${T}"}},
        "local": {
            "command": "${PYTHON}",
            "args": program.args,
            "env": {"KEY": "of ${T}", "HERE": "${NOT_SET_1:-x}"},
            "cwd": "${workspaceFolder}",
        },
    }
    file.write_text(json.dumps({"servers": servers}))
    stored = [MCPToolset.from_dict(toolset.to_dict()) for toolset in load_mcp_toolsets(file)]
    remote, local = stored
    with remote, local:
        assert KEY in remote["remote_header"].invoke(name="X-Key")
        assert f"of {KEY}" in local["local_env"].invoke(name="KEY")
        assert '"x"' in local["local_env"].invoke(name="HERE")
        assert local.server_info.cwd == str(tmp_path)
        assert KEY not in repr(stored) + remote.server_info.describe()
        assert {KEY, f"Bearer {KEY}"} <= remote.server_info._secrets()


def test_an_entry_may_have_a_snapshot_beside_the_file(tmp_path: Path) -> None:
    tool = types.Tool(name="add", description="Add two numbers.", input_schema={"type": "object"})
    MCPToolSnapshot.from_tools([tool]).save(tmp_path / "tools.json")
    config = tmp_path / "mcp.json"

    def load_with(snapshot: Any) -> MCPToolset:
        config.write_text(json.dumps(one({"command": "python", "snapshot": snapshot})))
        [toolset] = load_mcp_toolsets(config)
        return toolset

    careful = {"snapshot": "tools.json", "on_drift": "quarantine"}
    for snapshot, on_drift in (("tools.json", "error"), (careful, "quarantine")):
        toolset = load_with(snapshot)
        assert [(tool.remote_name, tool.description) for tool in toolset] == [("add", "Add two numbers.")]
        assert toolset.on_drift == on_drift
    (tmp_path / "tools.json").unlink()
    with pytest.raises(ValueError, match="server 'one': There is no snapshot file"):
        load_with("tools.json")
    with pytest.raises(ValueError, match=r"server 'one': .*`snapshot`"):
        load_with({"snapshot": None})


def test_the_claude_code_project_of_the_working_directory_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def servers(command: str, *names: str) -> dict[str, Any]:
        return {"mcpServers": {name: {"command": command} for name in names}}

    projects = {tmp_path.as_posix(): servers("here", "a", "b"), "/elsewhere": servers("there", "c"), "/odd": None}
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    loaded = load_mcp_toolsets({**servers("all", "a", "d"), "projects": projects})
    commands = {each.tool_name_prefix: each.server_info.command for each in loaded}
    assert commands == {"a": "here", "d": "all", "b": "here"}
    assert len(load_mcp_toolsets({"projects": projects})) == 2
