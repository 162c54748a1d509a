# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import json
import logging
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from haystack.utils import Secret
from mcp import types

from haystack_integrations.tools.mcp import (
    MCPRegistry,
    MCPToolset,
    MCPToolSnapshot,
    SecretTemplate,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    load_mcp_toolsets,
    warm_up_toolsets,
)

FILES = Path(__file__).parent / "files"
KEY = "s3ntinel-of-a-key"

VARIABLES = ("API_KEY", "API_BASE_URL", "AUTH_TOKEN", "CLAUDE_PLUGIN_ROOT", "DB_URL", "MY_SERVICE_TOKEN")
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


# Short names for the table.
stdio, http, sse = StdioServerInfo, StreamableHttpServerInfo, SSEServerInfo
variable, template = Secret.from_env_var, SecretTemplate


@pytest.mark.usefixtures("variables")
@pytest.mark.parametrize(
    ("name", "infos"),
    [
        (
            "claude_desktop_config.json",
            {
                "filesystem": stdio(
                    "npx",
                    [
                        "-y",
                        "@modelcontextprotocol/server-filesystem",
                        "/Users/username/Desktop",
                        "/Users/username/Downloads",
                    ],
                ),
                "brave-search": stdio(
                    "npx",
                    ["-y", "@modelcontextprotocol/server-brave-search"],
                    {"BRAVE_API_KEY": "YOUR_API_KEY_HERE", "APPDATA": "C:\\Users\\user\\AppData\\Roaming\\"},
                ),
            },
        ),
        (
            "claude_code.mcp.json",
            {
                "api-server": http(
                    template("${API_BASE_URL:-https://api.example.com}/mcp"),
                    headers={"Authorization": template("Bearer ${API_KEY}")},
                ),
                "database-tools": stdio(
                    template("${CLAUDE_PLUGIN_ROOT}/servers/db-server"),
                    ["--config", template("${CLAUDE_PLUGIN_ROOT}/config.json")],
                    {"DB_URL": variable("DB_URL")},
                ),
                "asana": sse("https://mcp.asana.com/sse"),
            },
        ),
        (
            "cursor.mcp.json",
            {
                "local-server": stdio(
                    "python",
                    [f"{FILES}/tools/mcp_server.py"],
                    {
                        "NOTES_FOLDER": template(f"${{envFile:{FILES}/../variables.env:NOTES_FOLDER}}"),
                        "API_KEY": variable("API_KEY"),
                        "GREETING": template(f"${{envFile:{FILES}/../variables.env:GREETING}}"),
                    },
                ),
                "remote-server": http(
                    "https://api.example.com/mcp",
                    headers={"Authorization": template("Bearer ${env:MY_SERVICE_TOKEN}")},
                    sse_fallback=True,
                ),
            },
        ),
        (
            "vscode.mcp.json",
            {
                "Perplexity": stdio(
                    "npx",
                    ["-y", "server-perplexity-ask", "--region=eu"],
                    {"PERPLEXITY_API_KEY": variable("PERPLEXITY_KEY")},
                ),
                "github": http(
                    "https://api.githubcopilot.com/mcp/",
                    headers={"Authorization": template("Bearer ${PERPLEXITY_KEY}")},
                ),
            },
        ),
        (
            "windsurf_mcp_config.json",
            {
                "github": stdio(
                    "docker",
                    ["run", "-i", "--rm", "-e", "GITHUB_PERSONAL_ACCESS_TOKEN", "ghcr.io/github/github-mcp-server"],
                    {"GITHUB_PERSONAL_ACCESS_TOKEN": variable("GITHUB_PERSONAL_ACCESS_TOKEN")},
                ),
                "remote-http-mcp": http(
                    "https://mcp.example.com/mcp",
                    headers={"API_KEY": template("Bearer ${env:AUTH_TOKEN}")},
                    sse_fallback=True,
                ),
            },
        ),
        (
            "zed_settings.json",
            {
                "notes": stdio(
                    "uvx",
                    ["mcp-server-notes", template("--folder=${env:NOTES_FOLDER}")],
                    {"NOTES_KEY": variable("NOTES_KEY")},
                ),
                "issues": http(
                    "https://issues.example.com/mcp",
                    headers={"Authorization": template("Bearer ${ISSUES_TOKEN}")},
                    sse_fallback=True,
                ),
            },
        ),
        (
            "opencode.jsonc",
            {
                "notes": stdio("npx", ["-y", "notes-server"], {"NOTES_KEY": variable("NOTES_KEY")}),
                "issues": http(
                    "https://issues.example.com/mcp", headers={"Authorization": template("Bearer ${ISSUES_TOKEN}")}
                ),
            },
        ),
        (
            "gemini_settings.json",
            {
                "database": stdio(
                    "node", ["dist/server.js"], {"DATABASE_URL": variable("DATABASE_URL")}, cwd="/srv/database-server"
                ),
                "search": http("https://search.example.com/mcp", headers={"X-API-Key": template("Key ${SEARCH_KEY}")}),
                "events": sse("https://events.example.com/sse"),
            },
        ),
        (
            "roo.mcp.json",
            {
                "notes": stdio("npx", ["-y", "notes-server", str(FILES)], {"NOTES_KEY": variable("NOTES_KEY")}),
                "remote": http("https://roo.example.com/mcp", headers={"X-Key": "plain"}),
            },
        ),
        (
            "cherry_studio.json",
            {
                "fetcher": stdio("uvx", ["mcp-server-fetch"]),
                "maps": http("https://maps.example.com/mcp", headers={"Authorization": template("Bearer ${API_KEY}")}),
            },
        ),
        (
            "warp.mcp.json",
            {
                "Files": stdio(
                    "npx", ["-y", "files-server", "."], {"FILES_KEY": variable("API_KEY")}, cwd="/srv/files"
                ),
                "Metrics": sse("https://metrics.example.com/sse", headers={"X-Key": variable("AUTH_TOKEN")}),
            },
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_files_of_other_clients_load_and_can_be_stored(name: str, infos: dict[str, Any]) -> None:
    inputs = {"perplexity-key": Secret.from_env_var("PERPLEXITY_KEY")} if "vscode" in name else None
    toolsets = load_mcp_toolsets(FILES / name, inputs=inputs)

    assert {toolset.tool_name_prefix: toolset.server_info for toolset in toolsets} == infos
    for toolset in toolsets:
        stored = toolset.to_dict()
        assert KEY not in json.dumps(stored) + repr(toolset) + json.dumps(toolset._to_trace_dict(), default=str)
        assert MCPToolset.from_dict(stored).to_dict() == stored


def test_what_an_entry_says_about_its_tools_becomes_parameters_of_the_toolset() -> None:
    content = {
        "mcpServers": {
            "my server!": {"command": "x", "timeout": 90, "enabledTools": ["a", "b"], "disabledTools": ["b"]},
            "other server?": {"command": "x", "timeout": 5_000, "required": False, "connection_timeout": 3},
            "named": {"command": "x", "tool_name_prefix": "n", "allowedTools": ["*"]},
            "off": {"command": "x", "disabled": True},
        }
    }
    first, second, named = load_mcp_toolsets(content, tool_options={"result_format": "json"}, connection_timeout=4)

    assert (first.tool_name_prefix, second.tool_name_prefix, named.tool_name_prefix) == (
        "my_server",
        "other_server",
        "n",
    )
    assert (first.invocation_timeout, second.invocation_timeout) == (90, 5)
    assert (first.connection_timeout, second.connection_timeout) == (4, 3)
    assert (first.required, second.required) == (True, False)
    assert (first.tool_names, named.tool_names) == (["a"], None)
    assert load({"command": "x", "disabledTools": ["b"]}).tool_selection.exclude_tools == ["b"]
    without = load({"command": "x", "disabledTools": ["b"]}, tool_selection=None)
    assert without.tool_selection.exclude_tools == ["b"]
    assert load({"command": "x", "disabled_tools": ["b"]}).tool_selection.exclude_tools == ["b"]  # Crush
    assert load({"command": "x", "tools": ["a"]}).tool_names == ["a"]  # GitHub Copilot
    for other in ({"a": {"enabled": True}}, "*", True):  # FastMCP and others
        assert load({"command": "x", "tools": other}).tool_names is None
    assert first.tool_options.result_format == "json"
    assert [toolset.tool_name_prefix for toolset in load_mcp_toolsets(content, prefix_tool_names=False)] == [
        None,
        None,
        "n",
    ]
    assert load_mcp_toolsets(content, servers=["named"])[0].server_info == named.server_info


@pytest.mark.parametrize("name", ["is_checked", "limit"])
def test_a_parameter_that_no_toolset_has_is_refused(name: str) -> None:
    with pytest.raises(TypeError, match=f"MCPToolset has no parameter '{name}'"):
        load_mcp_toolsets({"mcpServers": {"a": {"command": "x"}}}, **{name: False})
    with pytest.raises(TypeError, match=f"MCPToolset has no parameter '{name}'"):
        MCPRegistry.from_config({"mcpServers": {"a": {"command": "x"}}}, **{name: False})


@pytest.mark.parametrize(
    "key",
    "autoApprove $typeName alwaysLoad // name 5".split(),
)
def test_keys_that_mean_nothing_here_are_passed_over_with_a_warning(key: str, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert load({"command": "x", key: ["s3ntinel"]}).server_info == StdioServerInfo("x")
    assert f"server 'one': passed over {key}" in caplog.text
    assert "s3ntinel" not in caplog.text


@pytest.mark.parametrize(
    ("typo", "meant"),
    [
        *(("comand", "command"), ("Command", "command"), ("evn", "env")),
        *(("URL", "url"), ("isDisabled", "disabled"), ("disabled-tools", "disabledTools")),
    ],
)
def test_a_key_that_looks_like_a_typo_is_refused_unless_the_entry_is_disabled(typo: str, meant: str) -> None:
    entry = {"command": "x", typo: "s3ntinel"}
    with pytest.raises(ValueError, match=f"server 'one': unknown key '{typo}'. Did you mean `{meant}`") as error:
        load(entry)
    assert "s3ntinel" not in str(error.value)
    assert load_mcp_toolsets({"mcpServers": {"one": {**entry, "disabled": True}}}) == []


@pytest.mark.parametrize(
    "entry",
    [
        {"disabled": True},
        {"enabled": False, "command": 5, "args": "x", "type": "tcp", "timeout": "never"},
        {"isActive": False, "url": "", "env": {"A": "${not closed"}},
        {"disabled": True, "enabled": True, "command": "x", "url": "http://h/", "args": ["${input:unknown}"]},
        {"type": "inMemory", "isActive": True},
    ],
)
def test_what_is_disabled_or_part_of_its_client_never_fails_the_file(entry: dict[str, Any]) -> None:
    content = {"mcpServers": {"off": entry, "on": {"command": "x"}}}
    assert [toolset.tool_name_prefix for toolset in load_mcp_toolsets(content)] == ["on"]


URL = "https://h.example.com/x"


@pytest.mark.parametrize(
    ("entry", "kind"),
    [
        *(({"type": name, "url": URL}, "http") for name in ("http", "HTTP", "streamablehttp", "streamable-http")),
        *(
            ({"type": name, "url": URL}, "http")
            for name in ("streamable_http", "streamableHttp", "http-stream", "remote")
        ),
        *(({"transport": name, "url": URL}, "sse") for name in ("sse", "SSE", "http-sse")),
        ({"transportType": "Streamable HTTP", "url": URL, "command": ""}, "http"),
        *(({key: URL}, "guessed") for key in ("url", "serverUrl", "baseUrl")),
        ({"url": URL, "auth": "oauth"}, "with a login"),
        ({"httpUrl": URL}, "http"),
        ({"type": "http", "url": URL, "command": "x"}, "http"),
        ({"type": "STDIO", "url": "", "command": "x"}, "stdio"),
        ({"type": "stdio", "url": URL, "command": "x"}, "stdio"),
        ({"type": "local", "command": "x"}, "stdio"),
    ],
)
def test_the_kind_of_a_server_has_many_names(entry: dict[str, Any], kind: str) -> None:
    infos = {
        "http": StreamableHttpServerInfo(URL),
        "guessed": StreamableHttpServerInfo(URL, sse_fallback=True),
        "with a login": StreamableHttpServerInfo(URL, sse_fallback=True, auth="oauth"),
        "sse": SSEServerInfo(URL),
        "stdio": StdioServerInfo("x"),
    }
    assert load(entry).server_info == infos[kind]


def test_the_variables_of_an_env_file_are_stored_by_their_names_and_read_when_they_are_needed(
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
    (tmp_path / "project" / "own.env").write_text("\r\n".join(lines), encoding="utf-8")
    servers = {
        "one": {"command": "x", "envFile": "own.env", "env": {"URL": "mine"}},
        "two": {"command": "x", "envFile": "no.env"},
    }
    file.write_text(json.dumps({"servers": servers}))
    one, two = load_mcp_toolsets(file)
    values = {
        name: value.resolve_value() if isinstance(value, Secret) else value
        for name, value in one.server_info.env.items()
    }
    assert values == {"PLAIN": "last", "QUOTED": "s3ntinel #1", "DOUBLE": 'line\nnext "x"', "EMPTY": "", "URL": "mine"}
    assert two.server_info.env is None
    assert "server 'two': `envFile` cannot be read: No such file or directory" in caplog.text
    assert "s3ntinel" not in caplog.text
    stored = json.dumps(one.to_dict())
    assert "s3ntinel" not in stored + repr(one) + repr(one.server_info.env["QUOTED"])
    assert "'QUOTED': '***'" in repr(one.server_info)
    loaded = MCPToolset.from_dict(json.loads(stored))
    assert loaded.server_info == one.server_info
    (tmp_path / "project" / "own.env").unlink()
    with pytest.raises(ValueError, match="not set: QUOTED"):
        loaded.server_info.env["QUOTED"].resolve_value()


@pytest.mark.parametrize(
    ("entry", "argument"),
    [
        ({"args": ["$API_KEY"]}, KEY),
        ({"args": ["$NOT_SET_1"]}, "$NOT_SET_1"),
        ({"args": ["a $API_KEY"]}, "a $API_KEY"),
        ({"args": ["$5 or $(x)"]}, "$5 or $(x)"),
        ({"args": ["{env:API_KEY}"]}, "{env:API_KEY}"),  # but OpenCode, whose files have another section
        ({"command": ["x", "a ${API_KEY}"]}, f"a {KEY}"),
    ],
)
@pytest.mark.usefixtures("variables")
def test_variables_are_expanded_as_the_clients_do_it(entry: dict[str, Any], argument: str) -> None:
    [value] = load({"command": "x", **entry}).server_info.args
    assert (value.resolve_value() if isinstance(value, Secret) else value) == argument


@pytest.mark.parametrize(
    "content",
    [
        {"mcp": {"servers": {"one": {"command": "${PROGRAM}"}}}, "editor.fontSize": 12},  # settings of VS Code
        {"one": {"command": "${PROGRAM}"}},  # a plugin of Claude Code
        {"mcp": {"servers": {"one": {"type": "local", "command": ["${PROGRAM}"]}}}},  # the second OpenCode
        {"mcp": {"one": {"type": "stdio", "command": "${PROGRAM}"}}, "lsp": {}},  # Crush
        {"mcp": {"enabled": True}, "context_servers": {"one": {"command": "${PROGRAM}"}}},
        {"amp.mcpServers": {"one": {"command": "${PROGRAM}", "env": [], "args": {}}}},
        {"mcpServers": {"one": {"command": "${PROGRAM}"}, "two": {"url": "https://h/", "enabled": False}}},
    ],
)
def test_servers_are_found_wherever_clients_keep_them(content: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PROGRAM", "x")
    [toolset] = load_mcp_toolsets(content)
    assert toolset.server_info == StdioServerInfo(Secret.from_env_var("PROGRAM"))


@pytest.mark.parametrize("section", ["mcpServers", "servers", "context_servers"])
@pytest.mark.parametrize("empty", [None, {}, []])
def test_a_file_may_have_no_servers_yet(section: str, empty: Any) -> None:
    assert load_mcp_toolsets({section: empty}) == []


@pytest.mark.parametrize("config", ['{"mcpServers": {"a": {"env": {"KEY": "s3ntinel"}}}}', None, 5, [{}]])
def test_what_is_neither_a_path_nor_a_dictionary_is_refused(config: Any) -> None:
    with pytest.raises(ValueError, match="the path of a file, or its content as a dictionary") as error:
        load_mcp_toolsets(config)
    assert "s3ntinel" not in str(error.value)


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"mcpServer": {}}, "`servers` or `context_servers`, but mcpServer. Did you mean `mcpServers`?"),
        ({"mcpServers": 5}, "`mcpServers` must be an object with an entry for each server"),
        ([], "must be an object with `mcpServers`"),
        (one({"chatMenu": True}), "server 'one': an entry has either `command` with"),
        ({"mcpServers": {"one": "x"}}, "server 'one': an entry is an object with `command`"),
        (one({"command": "x", "url": "http://h/"}), "it has `command` and `url`"),
        (one({"command": "x", "type": "sse"}), "type 'sse' does not go with `command`"),
        (one({"command": "x", "type": "tcp"}), "must be one of stdio, http (streamable-http) and sse"),
        (one({"command": "x", "args": "y"}), "`args` must be a list of strings, got str"),
        (one({"command": "x", "env": {"A": "${1}"}}), "in `env.A`, `${1}` is no variable"),
        (one({"command": "x", "env": {"A": "${A B:-s3ntinel}"}}), "in `env.A`, `${A B:-…}` is no variable"),
        (one({"command": "x", "timeout": "9"}), "`timeout` must be a number"),
        (one({"command": "x", "disabled": "no"}), "`disabled` must be true or false"),
        (one({"command": "x", "enabledTools": "a"}), "`enabledTools` must be a list of names"),
        (one({"command": "x", "tool_name_prefix": "a b"}), "server 'one': MCPToolset: `tool_name_prefix` must"),
        *(
            (one({"url": URL, "auth": auth}), '`auth` must be "oauth". Pass a bearer token in `headers`')
            for auth in ("sk-s3ntinel", "Bearer s3ntinel", "sk:s3ntinel")
        ),
        (one({"url": "ftp://h/"}), "server 'one': StreamableHttpServerInfo: Invalid url: ftp://h/"),
        (one({"url": "http://${NOT_SET_1}/${NOT_SET_2:-x}"}), "are not set: NOT_SET_1; set them"),
        (one({"command": "x", "args": ["${input:a}"]}), "`${input:a}` is not among the `inputs`"),
        (
            one({"command": "x", "args": ["${input:a}"]}),
            '; declare it there, as in {"id": "a", "type": "promptString"}, or write `${NAME}`',
        ),
        (
            {"servers": {"one": {"command": "x", "args": ["${input:a}"]}}, "inputs": [{"id": "a", "description": "A"}]},
            "`${input:a}` (A) has no value: pass inputs={'a': Secret",
        ),
    ],
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


ASKING = {"inputs": [{"id": "key"}], "servers": {"one": {"command": "x", "args": ["--key=${input:key}"]}}}


@pytest.mark.parametrize(
    ("content", "inputs", "message"),
    [
        ({**ASKING, "inputs": {"id": "key"}}, {}, "`inputs` must be a list of objects with an `id`"),
        (ASKING, {"kee": "s3ntinel"}, "does not declare 'kee' under its `inputs`; it declares: key"),
        (ASKING, {"key": 5}, "`inputs` maps ids to strings or Secrets; that of 'key' is of type int"),
        (
            ASKING,
            {"key": Secret.from_token("s3ntinel")},
            "stands inside a longer text, so it must be a string or a Secret of one environment variable",
        ),
    ],
)
def test_inputs_that_do_not_fit_the_file_are_refused_and_not_quoted(
    content: dict[str, Any], inputs: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError) as error:
        load_mcp_toolsets(content, inputs=inputs)
    assert message in str(error.value)
    assert "s3ntinel" not in str(error.value)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"key": "plain"}, "--key=plain"),
        ({"key": Secret.from_env_var("API_KEY")}, f"--key={KEY}"),
        ({"key": Secret.from_env_var("NOT_SET", strict=False)}, "--key="),
        ({}, "--key=usual"),
    ],
    ids=["text", "secret", "optional secret", "the default of the file"],
)
@pytest.mark.usefixtures("variables")
def test_an_input_may_stand_inside_a_longer_text(
    given: dict[str, Any], expected: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NOT_SET", raising=False)
    content = ASKING if given else {**ASKING, "inputs": [{"id": "key", "default": "usual"}]}
    [toolset] = load_mcp_toolsets(content, inputs=given)
    [argument] = toolset.server_info.args
    assert (argument.resolve_value() if isinstance(argument, Secret) else argument) == expected


def test_the_workspace_of_a_file_in_a_folder_of_its_client_is_the_folder_above(tmp_path: Path) -> None:
    file = tmp_path / "project" / ".vscode" / "mcp.json"
    file.parent.mkdir(parents=True)
    arguments = ["${workspaceFolder}", "${workspaceFolderBasename}", "${userHome}", "${pathSeparator}${/}"]
    file.write_text(json.dumps({"servers": {"one": {"command": "x", "args": arguments}}}))
    [toolset] = load_mcp_toolsets(file)
    assert toolset.server_info.args == [str(file.parents[1]), "project", str(Path.home()), os.sep * 2]
    link = tmp_path / "linked" / ".cursor" / "mcp.json"
    link.parent.mkdir(parents=True)
    link.symlink_to(file)
    [toolset] = load_mcp_toolsets(link)
    assert toolset.server_info.args[:2] == [str(link.parents[1]), "linked"]


def test_a_file_is_read_where_nobody_has_a_home(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os.path, "expanduser", lambda path: path)  # as in a container with any user
    [toolset] = load_mcp_toolsets({"mcpServers": {"one": {"command": "x", "envFile": "~/.env"}}})
    assert toolset.server_info.command == "x"


def test_a_file_that_cannot_be_read_is_an_error_that_names_the_place(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    with pytest.raises(FileNotFoundError, match=r"no file .*mcp\.json"):
        load_mcp_toolsets(file)
    file.write_text('{\n// servers\n"mcpServers": {"a": }}')
    with pytest.raises(ValueError, match=r"mcp\.json is not valid JSON: .* in line 3, column 21"):
        load_mcp_toolsets(str(file))
    with pytest.raises(ValueError, match="has no server 'b'; it has a"):
        load_mcp_toolsets({"mcpServers": {"a": {"command": "x"}}}, servers=["b"])


def test_a_missing_variable_of_a_server_that_is_not_required_shows_when_it_is_needed(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with load({"command": "x", "args": ["--key=${NOT_SET_1}"]}, required=False) as toolset:
        assert "these environment variables are not set: NOT_SET_1" in caplog.text
        assert list(toolset) == []
        assert "NOT_SET_1" in (toolset.connection.status().last_error or "")


def test_servers_get_the_values_of_variables_in_commands_urls_headers_and_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, stdio_server: Any, http_server: Any
) -> None:
    http = http_server()
    program = stdio_server()
    script = next(arg for arg in program.args if arg.endswith(".py"))
    port = http.url.partition("127.0.0.1:")[2].partition("/")[0]
    for name, value in {"T": KEY, "PYTHON": sys.executable, "PORT": port, "SCRIPT": script}.items():
        monkeypatch.setenv(name, value)
    args = [arg.replace(script, "${SCRIPT}") for arg in program.args]
    file = tmp_path / ".vscode" / "mcp.json"
    file.parent.mkdir()
    servers = {
        "remote": {"url": "http://127.0.0.1:${PORT}/mcp?key=${T}", "headers": {"X-Key": "Bearer ${T}"}},
        "local": {
            "command": "${PYTHON}",
            "args": args,
            "env": {"KEY": "of ${T}", "HERE": "${NOT_SET_1:-x}"},
            "cwd": "${workspaceFolder}",
        },
    }
    file.write_text(json.dumps({"servers": servers}))

    toolsets = load_mcp_toolsets(file)
    stored = [MCPToolset.from_dict(toolset.to_dict()) for toolset in toolsets]
    warm_up_toolsets(stored)
    remote, local = stored
    try:
        assert KEY in remote["remote_header"].invoke(name="X-Key")
        assert f"of {KEY}" in local["local_env"].invoke(name="KEY")
        assert '"x"' in local["local_env"].invoke(name="HERE")
        assert local.server_info.cwd == str(tmp_path)
        assert KEY not in repr(stored) + remote.server_info.describe()
        assert {KEY, f"Bearer {KEY}"} <= remote.server_info._secrets()
    finally:
        for toolset in stored:
            toolset.close()


def test_an_entry_may_have_a_snapshot_beside_the_file(tmp_path: Path) -> None:
    calculator = StdioServerInfo("python", ["calculator.py"])
    tool = types.Tool(name="add", description="Add two numbers.", input_schema={"type": "object"})
    MCPToolSnapshot.from_tools([tool]).save(tmp_path / "tools.json")
    entry = {"command": calculator.command, "args": calculator.args, "snapshot": "tools.json"}
    quarantine = {**entry, "snapshot": {"snapshot": "tools.json", "on_drift": "quarantine"}}
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"sums": entry, "careful": quarantine}}))
    for toolset, on_drift in zip(load_mcp_toolsets(config), ("error", "quarantine"), strict=True):
        assert [(tool.remote_name, tool.description) for tool in toolset] == [("add", "Add two numbers.")]
        assert toolset.on_drift == on_drift
    assert MCPToolset.from_dict(toolset.to_dict()).snapshot == toolset.snapshot

    (tmp_path / "tools.json").unlink()
    with pytest.raises(ValueError, match="server 'sums': There is no snapshot file"):
        load_mcp_toolsets(config)
    config.write_text(json.dumps({"mcpServers": {"sums": {**entry, "snapshot": {"snapshot": None}}}}))
    with pytest.raises(ValueError, match=r"server 'sums': .*`snapshot`"):
        load_mcp_toolsets(config)


def test_of_the_projects_of_claude_code_that_of_the_working_directory_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def servers(command: str, *names: str) -> dict[str, Any]:
        return {"mcpServers": {name: {"command": command} for name in names}}

    projects = {tmp_path.as_posix(): servers("here", "a", "b"), "/elsewhere": servers("there", "c"), "/odd": None}
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    loaded = load_mcp_toolsets({**servers("all", "a", "d"), "projects": projects})
    assert [(each.tool_name_prefix, each.server_info.command) for each in loaded] == [
        ("a", "here"),
        ("d", "all"),
        ("b", "here"),
    ]
    assert len(load_mcp_toolsets({"projects": projects})) == 2
