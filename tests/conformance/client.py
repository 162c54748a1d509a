# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The client that the official conformance suite tests, written with the public names of this package only:

    MCP_CONFORMANCE_SCENARIO=tools_call python client.py http://localhost:1234/mcp

The suite starts it once for each of its scenarios, and looks at what its server got.
"""

import json
import os
import sys
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import httpx2
from haystack.utils import Secret

from haystack_integrations.tools.mcp import MCPHandlers, MCPToolset, OAuthConfig, StreamableHttpServerInfo
from haystack_integrations.tools.mcp.convert.content import prompt_messages
from haystack_integrations.tools.mcp.convert.resources import resource_contents
from haystack_integrations.tools.mcp.handlers import accept_defaults
from haystack_integrations.tools.mcp.oauth import MCPLoginRequest

# What the tools of the suite are called with, where they want something.
ARGUMENTS = {"add_numbers": {"a": 5, "b": 3}}


def call_every_tool(toolset: MCPToolset) -> None:
    for tool in toolset:
        tool.invoke(**ARGUMENTS.get(tool.name, {}))


def use_everything(toolset: MCPToolset) -> None:
    call_every_tool(toolset)
    for resource in toolset.list_resources():
        resource_contents(toolset.read_resource(resource))
    for prompt in toolset.list_prompts():
        prompt_messages(toolset.get_prompt(prompt.name))


def make_the_calls_of_the_context(toolset: MCPToolset) -> None:
    for call in json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])["toolCalls"]:
        toolset[call["name"]].invoke(**call["arguments"])


def echo_a_schema(toolset: MCPToolset) -> None:
    # A model sees it folded into one object, which is what providers accept.
    definitions = {definition.name: definition for definition in toolset.connection.list_tools()}
    toolset["json_schema_echo"].invoke(schema=definitions["json_schema_2020_12_tool"].input_schema)


def list_skills(toolset: MCPToolset) -> None:
    assert toolset.list_skills()


def use_every_skill(toolset: MCPToolset) -> None:
    for skill in toolset.list_skills():
        toolset.load_skill(skill)
        for path in skill.paths:
            toolset.read_skill_file(skill, path)


SCENARIOS: dict[str, Callable[[MCPToolset], Any]] = {
    "initialize": len,
    "json-schema-ref-no-deref": len,
    "json-schema-2020-12-preservation": echo_a_schema,
    "http-standard-headers": use_everything,
    "sep-2640-client-no-prefetch": list_skills,
    "sep-2640-client-verify-digest": use_every_skill,
    "sep-2640-client-verify-size": use_every_skill,
    "sep-2640-client-verify-frontmatter": use_every_skill,
    "http-custom-headers": make_the_calls_of_the_context,
}


async def browse(login: MCPLoginRequest) -> None:
    """
    Be the browser of somebody who is logged in, and allows everything: the suite sends it back at once.
    """
    async with httpx2.AsyncClient(follow_redirects=True) as browser:
        await browser.get(login.url)


def issuer_of(url: str) -> str:
    """
    Read which authorization server the suite has started, as an administrator would know it.
    """
    parts = urlsplit(url)
    metadata = httpx2.get(f"{parts.scheme}://{parts.netloc}/.well-known/oauth-protected-resource{parts.path}").json()
    return str(metadata["authorization_servers"][0])


# How a client gets its tokens in these scenarios; in the others somebody logs in, with a client that is not registered.
GRANTS = {
    "auth/client-credentials-basic": "client_credentials",
    "auth/client-credentials-jwt": "client_credentials",
    "auth/enterprise-managed-authorization": "id_jag",
    "auth/wif-jwt-bearer": "jwt_bearer",
    "auth/pre-registration": "authorization_code",
}
# What the suite calls the secrets of `OAuthConfig`.
SECRETS = {
    "client_secret": "client_secret",
    "private_key": "private_key_pem",
    "id_token": "idp_id_token",
    "assertion_provider": "valid_jwt",
}


def oauth_config(scenario: str, url: str) -> OAuthConfig | None:
    """
    Configure OAuth for a scenario, which has given the credentials of its client to the environment.
    """
    if not scenario.startswith("auth/"):
        return None
    if scenario not in GRANTS:
        page = "https://conformance-test.local/client-metadata.json"
        return OAuthConfig(redirect_handler=browse, client_metadata_url=page, dpop=scenario.startswith("auth/dpop"))
    context = json.loads(os.environ["MCP_CONFORMANCE_CONTEXT"])
    plain = ("client_id", "signing_algorithm", "idp_client_id", "idp_token_endpoint")
    config = {name: context[name] for name in plain if name in context}
    config |= {name: Secret.from_token(context[given]) for name, given in SECRETS.items() if given in context}
    if GRANTS[scenario] == "authorization_code":
        config["redirect_handler"] = browse
    return OAuthConfig(grant_type=GRANTS[scenario], issuer=context.get("issuer") or issuer_of(url), **config)


def main() -> None:
    [url] = sys.argv[1:]
    scenario = os.environ["MCP_CONFORMANCE_SCENARIO"]
    server_info = StreamableHttpServerInfo(url, oauth_config=oauth_config(scenario, url))
    handlers = MCPHandlers(elicitation=accept_defaults)
    with MCPToolset(server_info, handlers=handlers) as toolset:
        SCENARIOS.get(scenario, call_every_tool)(toolset)


if __name__ == "__main__":
    main()
