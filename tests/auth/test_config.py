# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What an `OAuthConfig` accepts, refuses, shows and stores, and how files of mcp-haystack 2.1 are loaded.
"""

import traceback
from typing import Any

import httpx2
import pytest
import yaml
from haystack.core.errors import DeserializationError
from haystack.utils import Secret

from haystack_integrations.tools.mcp import (
    MCPServerInfo,
    MCPToolset,
    OAuthConfig,
    SSEServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.auth.request_auth import load_auth
from haystack_integrations.tools.mcp.oauth import FileTokenStorage, InMemoryTokenStorage, KeyValueTokenStorage
from tests.support.oauth_server import allow
from tests.support.rows import rows

SECRET = Secret.from_env_var("MCP_CLIENT_SECRET")
URL = "https://mcp.example.com/mcp"


def make_store() -> Any:
    raise NotImplementedError


def bearer() -> httpx2.Auth:
    raise NotImplementedError


# Written by mcp-haystack 2.1.1.
OLD = """
type: haystack_integrations.tools.mcp.mcp_toolset.MCPToolset
data:
  server_info:
    type: haystack_integrations.tools.mcp.mcp_tool.StreamableHttpServerInfo
    url: https://mcp.example.com/mcp
    token: null
    headers: null
    timeout: 30
    max_retries: 3
    base_delay: 1.0
    max_delay: 30.0
    oauth_config:
      client_id: my-client
      client_secret: {type: env_var, env_vars: [MCP_CLIENT_SECRET], strict: true}
      issuer: https://auth.example.com
      scopes: [mcp:tools]
      token_endpoint_auth_method: client_secret_basic
      grant_type: client_credentials
  tool_names: null
  connection_timeout: 30.0
  invocation_timeout: 30.0
  eager_connect: false
"""


def test_a_pipeline_stored_with_2_1_loads() -> None:
    toolset = MCPToolset.from_dict(yaml.safe_load(OLD))
    config = toolset.server_info.oauth_config
    assert config == OAuthConfig("my-client", SECRET, "https://auth.example.com", ["mcp:tools"])
    assert (config.grant_type, config.token_endpoint_auth_method) == ("client_credentials", "client_secret_basic")


CONFIGS = [
    OAuthConfig(),
    OAuthConfig("me", SECRET, "https://auth.example.com", ["a", "b"], "client_secret_post"),
    OAuthConfig(
        client_metadata_url="https://me.example.com/client.json",
        redirect_uri="http://localhost:8765/callback",
        redirect_handler="tests.support.oauth_server:allow",
        dpop=True,
        login_timeout=60,
    ),
    OAuthConfig(
        grant_type="id_jag",
        client_id="me",
        client_secret=SECRET,
        issuer="https://auth.example.com",
        id_token=SECRET,
        idp_token_endpoint="https://idp.example.com/token",
        idp_client_id="me there",
        idp_client_secret=SECRET,
    ),
    OAuthConfig(token_storage=FileTokenStorage("~/tokens"), resource=False, scopes=[]),
    OAuthConfig(token_storage=KeyValueTokenStorage("tests.auth.test_config:make_store")),
]


@rows("config", *CONFIGS)
def test_a_configuration_survives_yaml(config: OAuthConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "tests.*")
    info = StreamableHttpServerInfo(URL, oauth_config=config)
    stored = yaml.safe_dump(info.to_dict())
    loaded = MCPServerInfo.from_dict(yaml.safe_load(stored))
    assert yaml.safe_dump(loaded.to_dict()) == stored
    assert loaded.oauth_config.to_dict() == config.to_dict()
    assert loaded.oauth_config._client_digest() == config._client_digest()


def test_an_unknown_parameter_in_a_stored_configuration_is_refused_with_the_closest_name() -> None:
    with pytest.raises(ValueError, match=r"has no parameter 'scope'\. Did you mean `scopes`"):
        OAuthConfig.from_dict({"scope": "a"})
    assert OAuthConfig.from_dict({"dpop": None, "login_timeout": None}).login_timeout is None  # not wanted


def test_equal_configurations_share_a_connection() -> None:
    one, other, another = (
        StreamableHttpServerInfo(URL, oauth_config=OAuthConfig(token_storage=FileTokenStorage(folder), scopes=["a"]))
        for folder in ("here", "here", "there")
    )
    assert one == other != another


def test_a_token_storage_in_memory_is_not_stored() -> None:
    assert OAuthConfig(token_storage=InMemoryTokenStorage()).to_dict() == {"grant_type": "authorization_code"}


def test_a_configuration_shows_no_secret() -> None:
    config = OAuthConfig(client_id="me", client_secret=Secret.from_token("s3cret-value"))
    info = StreamableHttpServerInfo(URL, oauth_config=config, proxy="http://s3cret-key:@proxy:3128")
    for shown in (repr(config), str(config), repr(info), str(info._to_trace_dict())):
        assert "me" in shown
        assert "s3cret" not in shown
    with pytest.raises(ValueError, match="Cannot serialize token-based secret"):
        info.to_dict()


@rows(
    ("options", "message"),
    ({"client_secret": "plain"}, "`client_secret` must be a Secret"),
    ({"grant_type": "password"}, "`grant_type` must be 'authorization_code'"),
    ({"grant_type": "id_jag", "client_id": "me"}, "the grant 'id_jag' needs `client_secret`"),
    ({"private_key": SECRET, "client_id": "me", "redirect_uri": "http://localhost/"}, "`redirect_uri` is for the"),
    ({"redirect_uri": "https://me.example.com/back"}, "needs a `callback_handler`"),
    ({"callback_handler": allow}, "needs the `redirect_uri`"),
    ({"redirect_handler": 5}, "`redirect_handler` must be a function"),
    ({"issuer": "auth.example.com"}, "`issuer` must be a URL like https://host/path"),
    ({"token_storage": {}}, "`token_storage` must be an MCPTokenStorage"),
    ({"token_endpoint_auth_method": "private_key_jwt"}, "is for the grant 'client_credentials'"),
    ({"client_secret": SECRET, "client_id": "me", "token_endpoint_auth_method": "none"}, "is not for 'none'"),
    ({"client_secret": SECRET, "client_id": "me", "private_key": SECRET}, "not for 'client_secret_basic'"),
    ({"client_secret": SECRET, "client_id": "me", "key_id": "1"}, "`key_id` needs a `private_key`"),
    (
        {"grant_type": "client_credentials", "client_id": "me", "token_endpoint_auth_method": "client_secret_post"},
        "'client_secret_post' needs a `client_secret`",
    ),
    (
        {"client_id": "me", "private_key": SECRET, "assertion_provider": SECRET},
        "'private_key_jwt' needs either a `private_key` or an `assertion_provider`",
    ),
)
def test_an_invalid_configuration_is_refused_with_the_reason(options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        OAuthConfig(**options)
    assert message in str(caught.value)


@rows(
    ("options", "message"),
    ({"auth": "oauth", "oauth_config": OAuthConfig()}, "`auth` and `oauth_config` exclude each other"),
    ({"auth": OAuthConfig()}, "pass an OAuthConfig as `oauth_config`, not as `auth`"),
    ({"auth": "oauth", "token": "t"}, "`token` and `auth` exclude each other"),
    ({"oauth_config": OAuthConfig(), "token_provider": make_store}, "`token_provider` and `oauth_config` exclude"),
    ({"oauth_config": OAuthConfig(), "headers": {"authorization": "x"}}, "a header `Authorization` and"),
    ({"auth": "basic"}, "`auth` must be 'oauth', an httpx2.Auth, the import path"),
    ({"auth": "no_such_package.module:auth"}, "got one of a package that is not there"),
    ({"token": 5}, "`token` must be a string, a Secret, a token source or None"),
)
@rows("kind", StreamableHttpServerInfo, SSEServerInfo)
def test_two_ways_to_authenticate_exclude_each_other(kind: type, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError) as caught:
        kind(url=URL, **options)
    assert message in str(caught.value)


@rows(
    "bearer_token",
    "sk-s3cret",
    "Bearer s3cret",
    "sk:s3cret",
    "user_s3cret:word",
    "s3cret.a:s3cret",
    "token:s3cret",
    "",
    b"s3cret",
)
def test_a_bearer_token_in_place_of_an_auth_is_not_quoted_in_the_error(bearer_token: Any) -> None:
    with pytest.raises(ValueError, match="bearer token as `token=`") as caught:
        info = StreamableHttpServerInfo(URL, auth=bearer_token)
        assert "s3cret" not in repr(info) + str(info._to_trace_dict())
        load_auth(info.auth)  # as a connection does
    assert "s3cret" not in "".join(traceback.format_exception(caught.value, limit=0))
    with pytest.raises((ValueError, DeserializationError)) as refused:
        load_auth(MCPServerInfo.from_dict({**StreamableHttpServerInfo(URL).to_dict(), "auth": bearer_token}).auth)
    assert "s3cret" not in str(refused.value)


@pytest.mark.parametrize("auth", ["oauth", "tests.auth.test_config:bearer"])
def test_auth_survives_yaml(auth: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HAYSTACK_DESERIALIZATION_ALLOWLIST", "tests.*")
    stored = yaml.safe_dump(StreamableHttpServerInfo(URL, auth=auth).to_dict())
    assert MCPServerInfo.from_dict(yaml.safe_load(stored)).auth == auth
    with pytest.raises(ValueError, match="Pass an import path"):
        StreamableHttpServerInfo(URL, auth=httpx2.BasicAuth("a", "b")).to_dict()
