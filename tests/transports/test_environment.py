# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Servers inherit variables to reach the network and install packages, but no secrets, and others only on request.
"""

import json
import os
import sys

import pytest

from haystack_integrations.tools.mcp import MCPConnectionError, MCPServerInfo, MCPTool, StdioServerInfo
from haystack_integrations.tools.mcp.transports.allow_lists import inherited_environment
from tests.support.rows import rows

NAMES = (
    "SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS HTTPS_PROXY https_proxy NO_PROXY "
    "no_proxy ALL_PROXY UV_INDEX_URL UV_INDEX_COMPANY_PASSWORD UV_CACHE_DIR PIP_INDEX_URL PIP_CONFIG_FILE "
    "NPM_CONFIG_REGISTRY npm_config_cache LANG LC_ALL LANGUAGE TZ XDG_CACHE_HOME"
)
INHERITED = {"TMPDIR": "/var/tmp", **{name: f"the value of {name}" for name in NAMES.split()}}

SECRET_NAMES = (
    "OPENAI_API_KEY AWS_SECRET_ACCESS_KEY AWS_PROFILE GITHUB_TOKEN NPM_TOKEN UV_PUBLISH_TOKEN UV_PUBLISH_PASSWORD "
    "DATABASE_URL PYTHONPATH NODE_OPTIONS LD_PRELOAD BASH_ENV HAYSTACK_MCP_ALLOWED_ENV SSL_CERT_FILE_2"
)
NOT_INHERITED = {
    **dict.fromkeys(SECRET_NAMES.split(), "/x"),
    **dict.fromkeys(("BASH_FUNC_x%%", "UV_FUNCTION"), "() { :; }"),
}


@pytest.fixture(autouse=True)
def environment(monkeypatch):
    for name in list(os.environ):
        if inherited_environment().get(name) and name not in ("PATH", "HOME", "TMPDIR"):
            monkeypatch.delenv(name)
    for name in ("HAYSTACK_MCP_ALLOWED_COMMANDS", "HAYSTACK_MCP_ALLOWED_HOSTS"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {**INHERITED, **NOT_INHERITED}.items():
        monkeypatch.setenv(name, value)


def seen_by(server, info: StdioServerInfo) -> dict[str, str | None]:
    with MCPTool("env", info) as tool:
        return {
            name: json.loads(tool.invoke(name=name))["structuredContent"]["result"]
            for name in [*INHERITED, *NOT_INHERITED, "PATH"]
        }


def test_a_server_inherits_variables_for_the_network_and_for_packages_but_no_secrets(stdio_server):
    server = stdio_server()
    seen = seen_by(server, StdioServerInfo(server.command, server.args, env={"TZ": "UTC"}))
    assert seen == {**INHERITED, **dict.fromkeys(NOT_INHERITED), "TZ": "UTC", "PATH": os.environ["PATH"]}


@rows(
    ("inherit_env", "further"),
    (["AWS_PROFILE", "NO_SUCH_VARIABLE"], {"AWS_PROFILE"}),
    (("AWS_*", "PYTHONPATH"), {"AWS_PROFILE", "AWS_SECRET_ACCESS_KEY", "PYTHONPATH"}),
    (["UV_PUBLISH_TOKEN", "NPM_TOKEN", "UV_FUNCTION"], {"UV_PUBLISH_TOKEN", "NPM_TOKEN"}),
    (True, {name for name, value in NOT_INHERITED.items() if not value.startswith("()")}),
    (False, set()),
    ([], set()),
)
def test_inherit_env_adds_variables(inherit_env, further):
    always = inherited_environment()
    assert set(inherited_environment(inherit_env)) - set(always) >= further
    if inherit_env is not True:
        assert set(inherited_environment(inherit_env)) - set(always) == further


@rows("inherit_env", None, ["A", "B_*"], [], True, False)
def test_inherit_env_is_stored_only_if_it_is_set(inherit_env):
    info = StdioServerInfo("a", inherit_env=inherit_env)
    stored = json.loads(json.dumps(info.to_dict()))
    assert ("inherit_env" in stored) is (inherit_env is not None)
    assert MCPServerInfo.from_dict(stored) == info


class TestWhereCommandsAreRestricted:
    @pytest.fixture(autouse=True)
    def restricted(self, monkeypatch):
        monkeypatch.setenv("HAYSTACK_MCP_ALLOWED_COMMANDS", sys.executable)
        monkeypatch.setenv("HAYSTACK_MCP_ALLOWED_ENV", "AWS_PROFILE,OTEL_*")

    @rows(
        ("inherit_env", "asked"),
        (["AWS_SECRET_ACCESS_KEY"], "AWS_SECRET_ACCESS_KEY"),
        (["AWS_PROFILE", "AWS_*"], r"AWS_\*"),
        (["UV_PUBLISH_TOKEN", "UV_PUBLISH_*"], r"UV_PUBLISH_\*, UV_PUBLISH_TOKEN"),
        (["UV_*"], r"UV_\*"),
        (["OTEL_TOKEN"], "OTEL_TOKEN"),
        (True, "all variables"),
    )
    def test_variables_that_the_operator_does_not_list_are_not_inherited(self, inherit_env, asked):
        with pytest.raises(MCPConnectionError, match=f"`inherit_env` asks for {asked}, and where") as refusal:
            MCPTool("env", StdioServerInfo(sys.executable, inherit_env=inherit_env)).warm_up()
        assert "HAYSTACK_MCP_ALLOWED_ENV must name each variable that `inherit_env` may name" in str(refusal.value)
        assert "it allows AWS_PROFILE, OTEL_*" in str(refusal.value)

    def test_the_fixed_list_and_the_variables_listed_by_the_operator_are_inherited(self, stdio_server):
        server = stdio_server()
        names = ["AWS_PROFILE", "OTEL_*", "UV_CACHE_DIR", "LC_*"]
        seen = seen_by(server, StdioServerInfo(server.command, server.args, inherit_env=names))
        assert seen == {**INHERITED, **dict.fromkeys(NOT_INHERITED), "AWS_PROFILE": "/x", "PATH": os.environ["PATH"]}


def test_an_inherited_secret_is_redacted_in_the_errors_of_the_server():
    script = "import os, sys; sys.exit('no index: ' + os.environ['UV_INDEX_COMPANY_PASSWORD'])"
    with pytest.raises(MCPConnectionError, match=r"no index: \*\*\*"):
        MCPTool("x", StdioServerInfo(sys.executable, ["-c", script])).warm_up()
