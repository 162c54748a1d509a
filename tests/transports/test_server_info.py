# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Server infos: the values of their fields, how they are stored, and the short forms for one.
"""

import copy
import dataclasses
import inspect
import json
import logging
import pickle
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP
from haystack.utils import Secret
from haystack.utils.auth import SecretType, TokenSecret
from mcp.server import MCPServer, Server
from pydantic import AnyUrl

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPClient,
    MCPConnection,
    MCPConnectionError,
    MCPServerInfo,
    MCPTool,
    MCPToolset,
    SecretTemplate,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    server_info_from,
)
from haystack_integrations.tools.mcp.transports.http_route import find_route
from tests.servers import fastmcp_server
from tests.support.rows import rows

SECRET = "s3ntinel-in-an-info"
CALC = MCPServer("calc")
OPTIONAL = Secret.from_env_var("MCP_TEST_NOT_SET", strict=False)


@dataclasses.dataclass
class CarrierPigeonInfo(MCPServerInfo):
    """A custom server info."""

    loft: str
    leg_ring: Any = None

    def create_client(self) -> MCPClient:
        raise NotImplementedError


class PlainInfo(MCPServerInfo):
    """A server info that is not a dataclass."""

    def __init__(self, where: str) -> None:
        self.where = where
        self._cache = object()

    def create_client(self) -> MCPClient:
        raise NotImplementedError


class TestDocumentedFields:
    @rows(
        ("info_class", "positional"),
        (StdioServerInfo, "command args env max_retries base_delay max_delay"),
        (SSEServerInfo, "url base_url token headers timeout max_retries base_delay max_delay oauth_config"),
        (StreamableHttpServerInfo, "url token headers timeout max_retries base_delay max_delay oauth_config"),
        (InProcessServerInfo, "server"),
    )
    def test_the_fields_of_2_1_are_positional_and_the_others_are_keywords(self, info_class, positional):
        parameters = inspect.signature(info_class).parameters.values()
        keywords = [parameter.name for parameter in parameters if parameter.kind is parameter.KEYWORD_ONLY]
        assert [parameter.name for parameter in parameters if parameter.name not in keywords] == positional.split()
        assert {"max_in_flight", "failure_pause", "negotiation"} <= set(keywords)
        assert dataclasses.is_dataclass(info_class)

    def test_infos_with_equal_fields_are_equal(self):
        assert StdioServerInfo("a", ["b"]) == StdioServerInfo("a", args=["b"])
        assert StdioServerInfo("a") != StdioServerInfo("b")
        secret = Secret.from_env_var("X")
        info = SSEServerInfo("http://h/sse", token=secret)
        assert info == SSEServerInfo("http://h/sse", token=secret) == copy.deepcopy(info)
        assert pickle.loads(pickle.dumps(info)) == info  # noqa: S301


class TestValidation:
    @rows(
        ("info_class", "parameters", "message"),
        (StdioServerInfo, {"command": f"https://host/mcp?key={SECRET}"}, r"use StreamableHttpServerInfo\(url="),
        (StdioServerInfo, {"command": ""}, "`command` must be a non-empty string, got ''"),
        (StdioServerInfo, {"command": "python server.py"}, r"a program alone.*command='python', args=\[...\]"),
        (StdioServerInfo, {"command": f"uvx  some-server --token {SECRET}"}, r"arguments belong in `args`"),
        (StdioServerInfo, {"args": "server.py"}, "`args` must be a valid list"),
        (StdioServerInfo, {"env": ["A=1"]}, "`env` must be a valid dictionary, got list"),
        (StdioServerInfo, {"env": {"A": 1}}, r"`env` \(A\) must be a valid string, got int"),
        (StdioServerInfo, {"max_retries": -1}, "`max_retries` must be greater than or equal to 0, got -1"),
        (StdioServerInfo, {"max_message_size": 1023}, "`max_message_size`.*1023"),
        (StdioServerInfo, {"failure_pause": 0}, "`failure_pause` must be"),
        (StdioServerInfo, {"negotiation": "legacy"}, "`negotiation` must be 'auto', 'handshake' or 'discover'"),
        (StdioServerInfo, {"inherit_env": [1]}, "`inherit_env`.* must be a valid string, got int"),
        (StreamableHttpServerInfo, {"headers": {"X": 1}}, r"`headers` \(X\) must be a valid string, got int"),
        (StreamableHttpServerInfo, {"verify": 1}, "`verify` must be"),
        (StreamableHttpServerInfo, {"client_cert": ("a", "b", SECRET)}, "`client_cert`"),
        (StreamableHttpServerInfo, {"proxy": "proxy:3128"}, "`proxy` must be a URL"),
        (StreamableHttpServerInfo, {"proxy": f"ftp://alice:{SECRET}@proxy"}, "`proxy` must be a URL"),
        (StreamableHttpServerInfo, {"http_transport": "not a path"}, "`http_transport` must be a function"),
        (SSEServerInfo, {"timeout": 0}, "`timeout` must be greater than 0, got 0"),
        *(
            (http_info, {"url": url}, r"(?s)url.*https://host/path")
            for http_info in (SSEServerInfo, StreamableHttpServerInfo)
            for url in (
                "localhost:8000/mcp",
                f"ftp://h/mcp?key={SECRET}#{SECRET}",
                f"user:{SECRET}@h/mcp",
                "http://",
                f"http://user:{SECRET}@h:abc/mcp",
                "http://h:99999/x",
                f"http://user:{SECRET}@[::1/mcp",
            )
        ),
    )
    def test_an_invalid_value_is_refused_with_its_name_and_without_its_secrets(self, info_class, parameters, message):
        valid = {"command": "uvx"} if info_class is StdioServerInfo else {"url": "http://h/mcp"}
        with pytest.raises(ValueError, match=message) as raised:
            info_class(**{**valid, **parameters})
        assert info_class.__name__ in str(raised.value)
        assert SECRET not in f"{raised.value} {raised.value.__cause__} {raised.value.__context__}"

    @rows("url", "http://h", "http://[::1]:8000/mcp", "HTTP://h/x", "https://u:p@h/x?k=v", "http://münchen.de/mcp")
    def test_any_http_url_is_valid_and_white_space_around_it_is_removed(self, url, monkeypatch):
        assert StreamableHttpServerInfo(f" {url} \n").url == SSEServerInfo(url).url == url
        monkeypatch.setenv("MCP_URL", f"{url}\n")
        assert StreamableHttpServerInfo(Secret.from_env_var("MCP_URL"))._resolved_url() == url

    @rows(
        ("server", "reason"),
        (None, "it is a NoneType, not an MCP server"),
        ("json", "there is no '' in the module 'json'"),
        ("json:dumps", "it is a function, not an MCP server"),
        ("tests.servers.inprocess:calls", "it is a list, not an MCP server"),
        ("no_such_module_here:server", "no_such_module_here"),
    )
    def test_an_object_that_is_not_a_server_is_a_connection_error(self, server, reason):
        tool = MCPTool("x", InProcessServerInfo(server))
        with pytest.raises(MCPConnectionError, match=reason):
            tool.warm_up()
        tool.close()


class TestBaseUrl:
    @pytest.mark.filterwarnings("ignore:base_url is deprecated")
    def test_base_url_is_deprecated_and_becomes_the_url_unless_there_is_one(self):
        with pytest.warns(DeprecationWarning, match="use url instead") as caught:
            info = SSEServerInfo(base_url=f"http://u:{SECRET}@h:8000/")
        assert info.url == f"http://u:{SECRET}@h:8000/sse" and SECRET not in repr(info)
        assert [warning.filename for warning in caught] == [__file__]
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert MCPServerInfo.from_dict(info.to_dict()) == info
        assert not any("base_url will be ignored" in str(warning.message) for warning in caught)
        with pytest.warns(DeprecationWarning, match="base_url will be ignored"):
            assert SSEServerInfo(url="http://h/events", base_url="http://other").url == "http://h/events"

    @rows("base_url", None, 5, "ftp://h", "h")
    @pytest.mark.filterwarnings("ignore::DeprecationWarning")
    def test_a_url_or_a_base_url_is_required(self, base_url):
        with pytest.raises(ValueError, match="url"):
            SSEServerInfo(base_url=base_url)


class TestTokenAndHeaders:
    @rows(
        ("parameters", "sent"),
        ({}, {}),
        ({"token": ""}, {}),
        ({"token": "t", "headers": {"X-Tenant": "acme"}}, {"X-Tenant": "acme", "Authorization": "Bearer t"}),
        ({"token": "Bearer t"}, {"Authorization": "Bearer t"}),
        ({"token": "t", "headers": {"authorization": "Basic abc"}}, {"authorization": "Basic abc"}),
        (
            {
                "token": Secret.from_env_var("MY_TOKEN"),
                "headers": {"X-Key": Secret.from_env_var("MY_KEY"), "X-Fix": Secret.from_token("three")},
            },
            {"X-Key": "two", "X-Fix": "three", "Authorization": "Bearer one"},
        ),
        # Optional secrets without a value are omitted.
        ({"token": OPTIONAL, "headers": {"X-Key": OPTIONAL, "X-Fix": "y"}}, {"X-Fix": "y"}),
    )
    def test_token_and_headers_are_sent_unless_the_headers_have_an_authorization(self, monkeypatch, parameters, sent):
        monkeypatch.setenv("MY_TOKEN", "one")
        monkeypatch.setenv("MY_KEY", "two")
        for http_info in (SSEServerInfo, StreamableHttpServerInfo):
            assert http_info(url="http://h/x", **parameters)._resolved_headers() == sent

    @pytest.mark.parametrize(
        ("info", "field"), [(SSEServerInfo("http://h/x"), "headers"), (StdioServerInfo("x"), "env")]
    )
    def test_a_header_or_variable_without_a_value_is_omitted_unlike_in_version_2_1(self, info, field, caplog):
        caplog.set_level(logging.WARNING, logger="haystack_integrations")
        stored = {**info.to_dict(), field: {"X-Key": None, "X-Fix": "y"}}
        assert getattr(type(info).from_dict(stored), field) == {"X-Fix": "y"}
        assert "The header or variable 'X-Key' has no value" in caplog.text

    def test_a_required_secret_without_a_value_is_an_error_that_names_the_variable(self):
        tool = MCPTool("add", SSEServerInfo("http://h/x", headers={"X-Key": Secret.from_env_var("MCP_TEST_NOT_SET")}))
        with pytest.raises(MCPConnectionError, match="MCP_TEST_NOT_SET"):
            tool.warm_up()
        tool.close()

    def test_the_error_of_a_users_own_kind_of_secret_is_shown(self):
        class Vault(TokenSecret):
            def resolve_value(self) -> str:
                msg = "the vault is sealed"
                raise ValueError(msg)

        with pytest.raises(MCPConnectionError, match="the vault is sealed"):
            MCPConnection(StreamableHttpServerInfo("http://127.0.0.1:9/mcp", token=Vault("t"))).open()

    def test_an_empty_variable_of_a_token_is_a_warning_because_version_2_1_sent_no_token(self, monkeypatch, caplog):
        monkeypatch.setenv("MCP_TEST_EMPTY", "")
        caplog.set_level(logging.WARNING, logger="haystack_integrations")
        assert SSEServerInfo("http://h/x", token=Secret.from_env_var("MCP_TEST_EMPTY"))._resolved_headers() == {}
        assert "variable MCP_TEST_EMPTY is empty, so no token is sent" in caplog.text

    async def test_a_warning_names_an_optional_secret_without_a_value(self, caplog):
        caplog.set_level(logging.WARNING, logger="haystack_integrations")
        info = SSEServerInfo("http://h/x", token=OPTIONAL, headers={"X-Key": OPTIONAL}, proxy=OPTIONAL)
        info._resolved_headers()
        await find_route(info)
        for name in ("token", "X-Key", "proxy"):
            assert f"The optional Secret for '{name}' has no value, so '{name}' is omitted" in caplog.text

    def test_a_stdio_server_gets_its_environment(self, stdio_server, monkeypatch):
        monkeypatch.setenv("MY_KEY", "from-secret")
        server = stdio_server()
        env = {"PLAIN": "plain", "KEY": Secret.from_env_var("MY_KEY"), "NONE": OPTIONAL}
        with MCPTool("env", StdioServerInfo(server.command, server.args, env=env)) as tool:
            for name, value in {"PLAIN": "plain", "KEY": "from-secret", "NONE": None}.items():
                assert json.loads(tool.invoke(name=name))["structuredContent"] == {"result": value}

    @rows(("kind", "value"), (SSEServerInfo, f"{SECRET}\n"), (StreamableHttpServerInfo, f"{SECRET}é"))
    def test_an_error_names_a_header_that_cannot_be_sent_without_its_value(self, kind: Any, value: str) -> None:
        connection = MCPConnection(kind(url="http://127.0.0.1:1/mcp", token=value))
        with pytest.raises(MCPConnectionError, match="header 'Authorization'") as raised:
            connection.open()
        connection.close()
        assert SECRET not in str(raised.value)
        assert SECRET not in str(raised.value.__cause__)


class TestDescriptions:
    def test_descriptions_name_the_kind_and_the_address(self):
        assert SSEServerInfo("http://h/sse").describe() == "SSE server at http://h/sse"
        assert StreamableHttpServerInfo("http://h/mcp").describe() == "streamable HTTP server at http://h/mcp"
        assert StdioServerInfo("uvx").describe() == "stdio server `uvx`"
        assert InProcessServerInfo("a.b:c").describe() == "in-process server 'a.b:c'"
        assert InProcessServerInfo(CALC).describe() == "in-process server 'calc'"
        assert InProcessServerInfo(fastmcp_server.server).describe() == "in-process server 'fastmcp'"
        assert CarrierPigeonInfo("roof").describe() == "CarrierPigeonInfo"


class TestDictionaries:
    @rows(
        "info",
        StdioServerInfo("a", env={"type": "env_var"}, max_in_flight=3, failure_pause=None, max_message_size=5000),
        InProcessServerInfo("a.b:c", failure_pause=None, negotiation="handshake"),
        StdioServerInfo("a", ["b"], {"C": Secret.from_env_var("X", strict=False), "D": "e"}, 1, 2, 3, cwd="/tmp"),
        SSEServerInfo("http://h/sse", token=Secret.from_env_var(["A", "B"]), headers={"X": Secret.from_env_var("Y")}),
        StreamableHttpServerInfo("http://h/mcp", token="plain", headers={"X": "y"}, timeout=5),
        CarrierPigeonInfo("roof", leg_ring="7"),
    )
    def test_a_round_trip_gives_an_equal_info(self, info, monkeypatch):
        monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "tests.*,a.b")
        data = json.loads(json.dumps(info.to_dict()))
        before = copy.deepcopy(data)
        assert type(info).from_dict(data) == MCPServerInfo.from_dict(data) == info
        assert data == before == type(info).from_dict(data).to_dict()

    def test_fields_that_2_1_does_not_know_are_written_only_if_they_were_set(self):
        newer = {"max_message_size", "max_in_flight", "failure_pause", "negotiation"}
        for info in (StdioServerInfo("a"), SSEServerInfo("http://h/sse"), StreamableHttpServerInfo("http://h/mcp")):
            assert not newer & info.to_dict().keys()

    def test_an_info_that_is_not_a_dataclass_makes_the_round_trip(self):
        twin = MCPServerInfo.from_dict(PlainInfo("here").to_dict())
        assert isinstance(twin, PlainInfo)
        assert twin.where == "here"
        assert repr(twin) == "PlainInfo(where='here')"

    def test_an_unknown_parameter_is_refused_with_its_name(self):
        with pytest.raises(ValueError, match=r"SSEServerInfo has no parameter 'colour'; it knows .*max_retries"):
            SSEServerInfo.from_dict({"type": "x", "colour": "red"})
        with pytest.raises(ValueError, match=r"has no parameter 'comand'.*Did you mean `command`\?"):
            StdioServerInfo.from_dict({"type": "x", "comand": "red"})

    def test_the_empty_oauth_config_of_older_files_is_ignored(self):
        data = {"type": "x", "url": "http://h/mcp", "oauth_config": None}
        assert StreamableHttpServerInfo.from_dict(data) == StreamableHttpServerInfo("http://h/mcp")
        with pytest.raises(ValueError, match="OAuthConfig has no parameter 'client'"):
            StreamableHttpServerInfo.from_dict({**data, "oauth_config": {"client": "x"}})

    @rows("data", {}, {"url": "http://h"}, {"type": None}, {"type": 5}, {"type": "stdio"}, None, "x", [])
    def test_data_without_a_class_is_refused(self, data):
        with pytest.raises(ValueError, match="class path of a server info under 'type'"):
            MCPServerInfo.from_dict(data)

    def test_a_server_object_is_traced_by_name_and_cannot_be_stored(self):
        info = InProcessServerInfo(CALC)
        assert info._to_trace_dict()["server"] == "in-process server 'calc'"
        with pytest.raises(ValueError, match=r"cannot be serialized. Create it with the import path"):
            info.to_dict()
        assert InProcessServerInfo.from_dict({"server": CALC}).server is CALC

    def test_a_tuple_of_arguments_becomes_a_list_and_a_path_a_text(self, tmp_path):
        info = StdioServerInfo("a", args=("b", "c"), cwd=tmp_path)  # type: ignore[arg-type]
        assert (info.to_dict()["args"], info.cwd) == (["b", "c"], str(tmp_path))


SERVERS = [MCPServer("one"), Server("two"), FastMCP("three")]


@rows(
    ("target", "info"),
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
)
def test_every_short_form_becomes_a_server_info(target: Any, info: Any) -> None:
    assert server_info_from(target) == info
    assert MCPToolset(target).server_info == info
    assert MCPTool("add", target).server_info == info


def test_the_path_of_a_script_is_run_with_its_interpreter(tmp_path: Path) -> None:
    for name in ("server.py", "server.js"):
        (tmp_path / name).touch()
    python, script = tmp_path / "server.py", str(tmp_path / "server.js")
    assert server_info_from(python) == StdioServerInfo(sys.executable, [str(python)])
    assert server_info_from(script) == StdioServerInfo("node", [script])


@rows(
    ("target", "reason"),
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
)
def test_anything_else_is_an_error_that_lists_what_is_accepted(target: Any, reason: str) -> None:
    with pytest.raises(ValueError) as error:
        server_info_from(target)
    assert reason in str(error.value)
    assert "s3ntinel" not in str(error.value)


@rows("template", "", "plain", "${}", "${a b}", "${A:-${B}}", "${A")
def test_a_template_without_usable_variables_is_refused(template: str) -> None:
    with pytest.raises(ValueError, match=r"SecretTemplate|variable"):
        SecretTemplate(template)


def test_a_template_uses_its_defaults_and_names_missing_variables(monkeypatch: pytest.MonkeyPatch) -> None:
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
