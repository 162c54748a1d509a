# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Authorization servers as they are deployed, which differ from the specifications.
"""

import asyncio
import json
import time
from types import SimpleNamespace
from typing import Any
from urllib.parse import urlsplit

import httpx2
import pytest
from haystack.utils import Secret

from haystack_integrations.tools.mcp import MCPAuthorizationError
from haystack_integrations.tools.mcp.auth import outgoing, token_storage
from haystack_integrations.tools.mcp.auth.authorization_servers import same_issuer
from haystack_integrations.tools.mcp.auth.token_storage import SDKTokenStorage
from haystack_integrations.tools.mcp.oauth import InMemoryTokenStorage
from haystack_integrations.tools.mcp.transports.posting import HttpSender
from tests.support.deployed_servers import BACK, DeployedServer
from tests.support.rows import rows
from tests.support.token_network import TokenNetwork
from tests.support.waiting import LIMIT


@pytest.fixture(autouse=True)
def no_lookups(monkeypatch: pytest.MonkeyPatch) -> None:
    """
    Prevents DNS lookups of these hosts.
    """

    async def unknown(host: str) -> list[Any]:
        return []

    monkeypatch.setattr(outgoing, "_addresses", unknown)


SECRET = Secret.from_token("the-client-secret")
PERSON = {"grant_type": "authorization_code", "client_id": "me", "client_secret": SECRET}
SERVICE = {"client_id": "me", "client_secret": SECRET}
REGISTERED = frozenset({"client_name", "redirect_uris", "grant_types", "response_types", "application_type"})

# It has only OpenID Connect metadata, per tenant. The resource is only in the scopes.
ENTRA = {
    "issuer": "https://login.microsoft.test/7/v2.0",
    "at": "/7/v2.0/.well-known/openid-configuration",
    "scopes": ["api://mcp/tools.read"],
    "metadata": {"scopes_supported": ["openid", "profile", "email", "offline_access"]},
    "given": {"ext_expires_in": 3600, "expires_in": "3599"},
    "refused": frozenset({"resource"}),
}
# The issuer ends with a slash, which the MCP server omits.
AUTH0 = {
    "issuer": "https://tenant.auth0.test/",
    "advertised": "https://tenant.auth0.test",
    "scopes": ["tools:read"],
    "metadata": {"authorization_response_iss_parameter_supported": True},
    "registration": REGISTERED | {"scope"},
}
# A gateway that issues tokens to services. It writes numbers as strings, and has its own token type.
APIGEE = {
    "issuer": "https://api.apigee.test/oauth",
    "advertised": None,
    "at": "/.well-known/oauth-authorization-server/oauth",
    "metadata": {"authorization_endpoint": None, "response_types_supported": None},
    "given": {"token_type": "BearerToken", "expires_in": "0", "status": "approved", "refresh_token": "", "scope": ""},
    "refused": frozenset({"scope"}),
}


@pytest.mark.parametrize(
    ("vendor", "options", "scope", "again"),
    [
        (ENTRA, {**PERSON, "resource": False}, "api://mcp/tools.read offline_access", "refresh_token"),
        (AUTH0, {}, "tools:read", "refresh_token"),
        (APIGEE, {**SERVICE, "issuer": "https://api.apigee.test/oauth"}, None, "client_credentials"),
    ],
    ids=["entra", "auth0", "apigee"],
)
async def test_tokens_are_obtained_and_renewed_once(vendor, options, scope, again):
    server = DeployedServer(**vendor)
    auth = server.login(**options)
    for _ in range(3):
        assert (await server.use(auth)).text == "welcome"
    first = ["client_credentials"] if again == "client_credentials" else ["login", "authorization_code"]
    assert server.kinds() == first
    assert server.asked_for[0].get("scope") == scope
    server.valid.clear()
    for _ in range(2):
        assert (await server.use(auth)).text == "welcome"
    # Without a resource, the scope names the target of the token.
    is_kept = again == "refresh_token" and "resource" not in options
    assert server.asked_for[len(first)].get("scope") == (None if is_kept else scope)
    renewed = server.kinds()[len(first) :]
    assert renewed == [again]


async def test_entra_is_not_told_to_ask_for_consent_and_refreshes_only_for_the_requested_scopes() -> None:
    # Entra also grants the scopes that `.default` stands for, and refuses them together.
    asked, granted = "api://mcp/.default offline_access", "api://mcp/tools.read api://mcp/.default"
    entra = {**ENTRA, "issuer": "https://login.microsoftonline.com/7/v2.0", "given": {"scope": granted}}
    server = DeployedServer(**entra)
    auth = server.login(**PERSON, resource=False, scopes=asked.split())
    for _ in range(2):
        assert (await server.use(auth)).text == "welcome"
        server.valid.clear()
    login, _, refresh = server.asked_for
    assert "prompt" not in login
    assert (login["scope"], refresh["scope"]) == (asked, asked)


@pytest.mark.parametrize("reads_documents", [False, True])
async def test_a_server_that_registers_no_clients_is_an_error_and_nothing_is_guessed(reads_documents: bool) -> None:
    server = DeployedServer(metadata={"client_id_metadata_document_supported": reads_documents})
    with pytest.raises(MCPAuthorizationError) as caught:
        await server.use(server.login())
    assert "the authorization server https://as.test registers no clients" in str(caught.value)
    assert "pass its `client_id`" in str(caught.value)
    assert ("pass its `client_metadata_url`" in str(caught.value)) is reads_documents
    assert {request.method for request in server.requests if request.url.path != "/mcp"} == {"GET"}


@pytest.mark.parametrize(
    "said",
    [
        *({"expires_in": lifetime} for lifetime in (0, -1, "absent", "soon", 10**400)),
        *({"token_type": kind} for kind in ("BearerToken", "", None, "absent")),
        {"error": None, "error_description": ""},
    ],
)
@pytest.mark.parametrize("options", [PERSON, SERVICE], ids=["person", "service"])
async def test_a_new_token_is_used_until_it_is_refused_whatever_its_type_and_lifetime(said, options):
    server = DeployedServer(given=said)
    storage = InMemoryTokenStorage()
    for _ in range(2):  # the second login gets its tokens from the storage
        auth = server.login(**options, token_storage=storage)
        answers = await asyncio.gather(*(server.use(auth) for _ in range(5)))
        assert {answer.text for answer in answers} == {"welcome"}
    assert len(server.kinds()) == (2 if options is PERSON else 1)


@rows("options", PERSON, SERVICE)
async def test_a_token_that_expires_at_once_is_used_at_least_once(options, monkeypatch):
    server = DeployedServer(given={"expires_in": 1, "refresh_token": "absent"})
    auth = server.login(**options)
    monkeypatch.setattr(token_storage, "time", SimpleNamespace(time=lambda: time.time() + 60))
    for _ in range(2):
        answers = await asyncio.gather(*(server.use(auth) for _ in range(20)))
        assert {answer.text for answer in answers} == {"welcome"}
    # No new login is needed for a token that may still be valid.
    assert server.kinds() == (["login", "authorization_code"] if options is PERSON else ["client_credentials"] * 2)


@rows("options", PERSON, SERVICE)
async def test_refused_new_tokens_are_reported_and_a_request_logs_in_and_refreshes_only_once(options):
    server = DeployedServer()
    auth = server.login(**options)
    assert (await server.use(auth)).text == "welcome"
    first, serve = server.kinds(), server.__call__
    challenge = {"WWW-Authenticate": 'Bearer error="invalid_token", error_description="of another audience"'}
    answer = httpx2.Response(401, headers=challenge)
    network = httpx2.MockTransport(lambda request: answer if request.url.path == "/mcp" else serve(request))
    async with httpx2.AsyncClient(transport=network, auth=auth) as client:
        with pytest.raises(MCPAuthorizationError) as caught:
            await client.post(server.url, json={})
    assert str(caught.value).endswith("refuses the token that was just issued for it (of another audience)")
    assert server.kinds() == [*first, "refresh_token", *first]


@pytest.mark.parametrize("refused", [frozenset(), frozenset({"refresh_token"})], ids=["good", "refused"])
async def test_streams_and_notifications_may_refresh_tokens_and_never_log_in(refused: frozenset[str]) -> None:
    server = DeployedServer(refused=refused)
    storage = InMemoryTokenStorage()
    auth = server.login(**PERSON, token_storage=storage)
    sender = HttpSender(httpx2.MockTransport(server), headers={}, timeout={}, auth=auth)

    async def ask(method: str, *, is_call: bool = True) -> int:
        may_log_in = method == "POST" and is_call
        return (await sender.send(method, httpx2.URL(server.url), {}, may_log_in=may_log_in)).status_code

    tokens = {"access_token": "over", "refresh_token": "again"}
    await storage.save(auth.holder_of(None).key, {"tokens": tokens, "expires_at": 1})
    # The call waits for the stream's refresh, and logs in itself if that was refused.
    assert await asyncio.gather(ask("GET"), ask("POST")) == [401 if refused else 200, 200]
    expected = ["refresh_token", "login", "authorization_code"] if refused else ["refresh_token"]
    assert server.kinds() == expected
    server.valid.clear()
    assert await ask("POST") == 200  # after a challenge, which is cached
    assert server.kinds() == expected * 2
    server.valid.clear()
    assert await ask("POST", is_call=False) == (401 if refused else 200)
    assert server.kinds() == [*expected * 2, "refresh_token"]
    await auth.log_out(None)
    assert [await ask("GET"), await ask("POST", is_call=False)] == [401, 401]
    assert server.kinds() == [*expected * 2, "refresh_token"]


@rows(
    ("other", "is_same"),
    ("https://AS.test:443/", True),
    ("https://as.test:8443", False),
    ("https://me@as.test", False),
)
def test_only_issuers_of_an_origin_may_differ_by_a_slash(other: str, is_same: bool) -> None:
    assert same_issuer("https://as.test", other) is is_same
    assert not same_issuer("https://as.test/a", "https://as.test/a/")


async def test_the_audience_of_an_assertion_is_spelled_as_in_the_metadata() -> None:
    audiences: list[str] = []
    server = DeployedServer("https://as.test/", advertised="https://as.test")
    config = {"grant_type": "jwt_bearer", "issuer": "https://as.test"}
    call_provider = {"assertion_provider": lambda request: audiences.append(request.audience) or "proof"}
    assert (await server.use(server.auth(**config, **call_provider))).text == "welcome"
    assert audiences == ["https://as.test/"]


@rows(
    ("challenge", "scopes", "expected"),
    ("", None, "a b"),
    (', scope = "c"', None, "c"),
    (', scope = "c"', [], None),
    ("", ["x", "y"], "x y"),
)
async def test_only_demanded_or_configured_scopes_are_requested(challenge, scopes, expected):
    metadata = {"scopes_supported": ["a", "b", "c", "sudo"]}
    server = DeployedServer(scopes=["a", "b"], metadata=metadata, registration=REGISTERED | {"scope"})
    header = {"WWW-Authenticate": f'Bearer error_description="Not of scope=z"{challenge}'}
    await server.login(scopes=scopes).log_in(httpx2.Response(401, headers=header), None)
    assert server.asked_for[0].get("scope") == expected
    assert [json.loads(request.content).get("scope") for request in server.asked("/register")] == [expected]


@rows(
    "members",
    {"client_id": 5},
    {"client_id_issued_at": "2026-01-01", "client_secret_expires_at": "never", "contacts": "me@as.test"},
    {"redirect_uris": BACK, "grant_types": "authorization_code", "response_types": "code", "scope": ["a"]},
)
async def test_a_registration_may_have_odd_members(members: dict[str, Any]) -> None:
    network = TokenNetwork()
    network.answers["/register"] = [httpx2.Response(201, json={"client_id": "registered", **members})]
    assert (await network.use(network.person())).text == "welcome"
    assert network.forms()[0]["client_id"] == str(members.get("client_id", "registered"))


@rows("refusal", httpx2.Response(403, text="not you"), httpx2.Response(201, json={"id": "x"}))
async def test_the_error_of_a_refused_registration_says_what_to_do(refusal: httpx2.Response) -> None:
    network = TokenNetwork()
    network.answers["/register"] = [refusal]
    with pytest.raises(MCPAuthorizationError, match=r"Registration failed: .*pass its `client_id`"):
        await network.use(network.person())


async def test_each_login_registers_a_client_which_refreshes_use_until_it_is_forgotten() -> None:
    network, storage = TokenNetwork(), InMemoryTokenStorage()
    auth = network.person(token_storage=storage)
    tokens = {"access_token": "over", "refresh_token": "r"}
    await storage.save(auth.holder_of(None).key, {"client": {"client_id": "old"}, "tokens": tokens})
    unknown = httpx2.Response(401, json={"error": "invalid_client"})
    network.answers["/token"] = [unknown, httpx2.Response(200, json=network.token)]
    assert (await network.use(auth)).text == "welcome"
    assert [form["client_id"] for form in network.forms()] == ["old", "registered"]


async def test_no_login_follows_if_a_gateway_answers_404_to_everything() -> None:
    server, storage = DeployedServer(), InMemoryTokenStorage()
    auth = server.person(client_id="me", token_storage=storage)
    record = {"tokens": {"access_token": "over", "refresh_token": "r"}, "authorization_server": server.metadata}
    await storage.save(auth.holder_of(None).key, {**record, "expires_at": 1})
    auth.clients = lambda: httpx2.AsyncClient(transport=httpx2.MockTransport(lambda _: httpx2.Response(404)))
    with pytest.raises(MCPAuthorizationError, match=r"refreshing the token at .*: .* answered with HTTP 404"):
        await server.use(auth)


@rows("options, asked_for", ({}, "read write"), ({"scopes": ["read"]}, "read"))
@pytest.mark.parametrize("keep", [lambda storage: storage, SDKTokenStorage], ids=["ours", "sdk"])
async def test_a_new_login_asks_for_the_scopes_of_the_previous_one_unless_they_are_configured(
    keep: Any, options: dict[str, Any], asked_for: str
) -> None:
    server, storage = DeployedServer(scopes=["read"]), keep(InMemoryTokenStorage())
    auth = server.person(client_id="me", token_storage=storage, **options)
    tokens = {"access_token": "over", "token_type": "Bearer", "scope": "read write"}
    await storage.save(auth.holder_of(None).key, {"tokens": tokens, "asked_for": ["read", "write"]})
    assert (await server.use(auth)).text == "welcome"
    assert server.asked_for[0]["scope"] == asked_for


@rows("options", {}, {"client_id": "me"})
async def test_a_login_follows_without_a_scope_of_the_previous_one_that_no_longer_exists(options: Any) -> None:
    refused, members = frozenset({"write"}), REGISTERED | {"scope"}
    server, storage = DeployedServer(scopes=["read"], refused=refused, registration=members), InMemoryTokenStorage()
    auth = server.person(token_storage=storage, **options)
    await storage.save(auth.holder_of(None).key, {"tokens": {"access_token": "over"}, "asked_for": ["read", "write"]})
    assert (await server.use(auth)).text == "welcome"
    assert [asked.get("scope") for asked in server.asked_for][-2:] == ["read", None]


async def test_a_refresh_is_finished_and_its_token_used_although_its_caller_gave_up() -> None:
    network, storage = TokenNetwork(), InMemoryTokenStorage()
    network.token["refresh_token"] = "second"
    auth = network.person(client_id="me", token_storage=storage)
    asked, go_on = network.hold_tokens(auth)
    key = auth.holder_of(None).key
    await storage.save(key, {"tokens": {"access_token": "over", "refresh_token": "first"}, "expires_at": 1})
    async with asyncio.timeout(LIMIT):
        given_up = asyncio.create_task(network.use(auth))
        await asked.wait()
        given_up.cancel()
        await asyncio.wait([given_up])
        go_on.set()
        assert (await network.use(auth)).text == "welcome"
    assert [form["refresh_token"] for form in network.forms()] == ["first"]
    assert ((await storage.load(key)) or {})["tokens"]["refresh_token"] == "second"


@pytest.mark.parametrize("iss", [{}, {"iss": "https://login.microsoft.test/7-2-c/v2.0"}])
async def test_metadata_for_all_tenants_are_accepted_for_each_tenant(iss: dict[str, str]) -> None:
    server = DeployedServer(
        "https://login.microsoft.test/{tenantid}/v2.0",
        advertised="https://login.microsoft.test/common/v2.0",
        at="/common/v2.0/.well-known/openid-configuration",
    )
    answer = {"callback_handler": lambda request: {"code": "the-code", "state": request.state, **iss}}
    assert (await server.use(server.person(client_id="me", **answer))).text == "welcome"


@rows(
    ("issuer", "advertised", "place", "other"),
    # As at Atlassian and at Zephyr.
    ("https://a.test", "https://a.test/7-2-c", "/7-2-c", "https://a.test/another"),
    ("https://z.test/backend/oauthproxy", "https://z.test", "", "https://other.test/backend/oauthproxy"),
)
async def test_metadata_may_name_the_origin_of_an_issuer_and_those_at_an_origin_an_issuer_there(
    issuer: str, advertised: str, place: str, other: str
) -> None:
    server = DeployedServer(issuer, advertised=advertised, at=f"/.well-known/oauth-authorization-server{place}")
    assert (await server.use(server.person(client_id="me"))).text == "welcome"
    server.metadata["issuer"] = other
    with pytest.raises(MCPAuthorizationError, match="issuer mismatch"):
        await server.person(client_id="me").log_in(httpx2.Response(401), None)


@pytest.mark.parametrize("iss", ["https://auth.monday.test", "https://auth.monday.test/", "https://auth.monday.test/x"])
async def test_an_answer_may_name_the_origin_of_the_issuer(iss: str) -> None:
    # As at monday.com.
    server = DeployedServer("https://auth.monday.test/mcp", at="/.well-known/oauth-authorization-server/mcp")
    answer = {"callback_handler": lambda request: {"code": "the-code", "state": request.state, "iss": iss}}
    auth = server.person(client_id="me", **answer)
    if iss == "https://auth.monday.test":
        assert (await server.use(auth)).text == "welcome"
    else:
        with pytest.raises(MCPAuthorizationError, match="iss mismatch"):
            await server.use(auth)


async def test_the_metadata_of_an_advertised_issuer_may_name_the_configured_one() -> None:
    # As at Salesforce. The configured issuer's own metadata count.
    login, advertised = "https://login.salesforce.test", "https://api.salesforce.test/mcp/reads"
    server = DeployedServer(login, advertised=advertised, at="/.well-known/openid-configuration")
    serve = server.__call__

    def copied(request: httpx2.Request) -> httpx2.Response:
        is_copy = request.url.path == "/.well-known/oauth-authorization-server/mcp/reads"
        copy = {**server.metadata, "token_endpoint": advertised}
        return httpx2.Response(200, json=copy) if is_copy else serve(request)

    def client() -> httpx2.AsyncClient:
        return httpx2.AsyncClient(transport=httpx2.MockTransport(copied))

    strict, trusting = server.login(**PERSON), server.login(**PERSON, issuer=login)
    strict.clients = trusting.clients = client
    with pytest.raises(MCPAuthorizationError, match=rf"issuer mismatch: they are for {login}; .*set `issuer` to it"):
        await server.use(strict)
    assert (await server.use(trusting)).text == "welcome"
    assert [request.url.host for request in server.asked("/token")] == ["tokens.login.salesforce.test"]


async def test_a_login_at_google_requests_a_refresh_token_in_googles_way() -> None:
    server = DeployedServer(
        "https://accounts.google.com",
        advertised="https://accounts.google.com/",
        at="/.well-known/openid-configuration",
        scopes=["https://www.googleapis.com/auth/calendar"],
    )
    assert (await server.use(server.login(**PERSON))).text == "welcome"
    assert (server.asked_for[0]["access_type"], server.asked_for[0]["prompt"]) == ("offline", "consent")


async def test_a_client_without_a_secret_registers_as_public_if_the_server_supports_that() -> None:
    # Notion refuses a client_id in the form together with the header of Basic authentication.
    method = "token_endpoint_auth_method"
    server = DeployedServer(
        metadata={f"{method}s_supported": ["client_secret_basic", "client_secret_post", "none"]},
        registration=REGISTERED | {method},
    )
    assert (await server.use(server.login())).text == "welcome"
    assert [json.loads(request.content)[method] for request in server.asked("/register")] == ["none"]
    [exchange] = server.asked("/token")
    assert "authorization" not in exchange.headers
    assert server.asked_for[1]["client_id"] == "registered"


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        ({"data": {"access_token": "s3ntinel-of-a-token"}}, r"without a token \(its members are data\)"),
        ({"accessToken": "s3ntinel-of-a-token", "expiresIn": 5}, "its members are accessToken, expiresIn"),
        ("<html>s3ntinel-of-a-token", "without a token$"),
        ({"ok": False, "error": "invalid_auth"}, 'without a token: {.*"invalid_auth"'),
        ("[" * 100_000, "without a token"),
    ],
)
async def test_a_token_in_an_unexpected_place_is_not_quoted(answer: Any, said: str) -> None:
    network = TokenNetwork()
    body = answer if isinstance(answer, str) else json.dumps(answer)
    network.answers["/token"] = [httpx2.Response(200, text=body)]
    with pytest.raises(MCPAuthorizationError, match=said) as caught:
        await network.use(network.auth(**SERVICE))
    assert "s3ntinel" not in str(caught.value)


async def test_more_scopes_are_requested_from_the_authorization_server_that_issued_the_token() -> None:
    server = DeployedServer()
    auth = server.login(**SERVICE)
    assert (await server.use(auth)).text == "welcome"
    server.advertised = None  # its metadata were at a place that only the first challenge named
    header = {"WWW-Authenticate": 'Bearer error="insufficient_scope", scope="write"'}
    refusals = [httpx2.Response(403, headers=header)]
    network = httpx2.MockTransport(lambda request: refusals.pop() if refusals else server(request))
    async with httpx2.AsyncClient(transport=network, auth=auth) as client:
        assert (await client.post(server.url, json={})).text == "welcome"
    assert server.kinds() == ["client_credentials"] * 2


RESOURCE = "/.well-known/oauth-protected-resource/mcp"
SERVER = "/.well-known/oauth-authorization-server"
OIDC = "/.well-known/openid-configuration"
NOT_FOUND = {"/.well-known/oauth-protected-resource": httpx2.Response(404), OIDC: httpx2.Response(404)}


@rows("odd", "a mark", "a text", "an object", "a redirect")
async def test_odd_metadata_are_still_read(odd: str) -> None:
    network = TokenNetwork()
    body = json.dumps(network.metadata).encode()
    if odd == "a mark":
        network.answers[SERVER] = [httpx2.Response(200, content=b"\xef\xbb\xbf" + body)]
    elif odd == "a redirect":
        network.answers[SERVER] = [httpx2.Response(307, headers={"Location": f"{SERVER}/"})]
        network.answers[f"{SERVER}/"] = [httpx2.Response(200, content=body)]
    else:
        value: Any = "client_secret_post" if odd == "a text" else {}
        network.metadata |= {"token_endpoint_auth_methods_supported": value, "scopes_supported": value}
    assert (await network.use(network.auth(**SERVICE))).text == "welcome"


@pytest.mark.parametrize("origin", ["http://{host}", "http://localhost:8000"])
async def test_metadata_are_read_at_the_servers_url_if_it_names_a_wrong_address(origin: str) -> None:
    network = TokenNetwork()
    url = origin.format(host=urlsplit(network.url).netloc) + RESOURCE
    header = {"WWW-Authenticate": f'Bearer resource_metadata="{url}"'}
    await network.auth(**SERVICE).log_in(httpx2.Response(401, headers=header), None)
    assert len(network.forms()) == 1
    network.answers = {path: [httpx2.Response(404)] for path in (RESOURCE, RESOURCE.removesuffix("/mcp"))}
    with pytest.raises(MCPAuthorizationError, match=rf"{url} is refused.*not https://.*behind a proxy"):
        await network.auth(**SERVICE).log_in(httpx2.Response(401, headers=header), None)


@pytest.mark.parametrize(
    ("answers", "wrong"),
    [
        ({SERVER: httpx2.Response(200, text="<html>")}, [SERVER, "Invalid JSON"]),
        ({SERVER: httpx2.Response(307, headers={"Location": "https://[x.test"})}, ["https://[x.test is not a URL"]),
        ({SERVER: httpx2.Response(200, json={"issuer": "https://x.test"})}, [SERVER, "token_endpoint Field required"]),
        ({SERVER: httpx2.Response(200, json={"issuer": 5, "token_endpoint": "/token"})}, ["issuer", "should be a URL"]),
        (
            {RESOURCE: httpx2.Response(503), SERVER: httpx2.Response(404)},
            [f"{RESOURCE}: HTTP 503", f"{SERVER}: HTTP 404", f"{OIDC}: HTTP 404"],
        ),
        (
            {RESOURCE: httpx2.Response(200, json={"resource": "x"}), SERVER: httpx2.Response(404)},
            ["does not match", "set `resource`"],
        ),
        (
            {RESOURCE: httpx2.Response(200, json={"authorization_servers": ["x"]}), SERVER: httpx2.Response(404)},
            [RESOURCE, "resource Field required", "should be a URL"],
        ),
        (
            {
                RESOURCE: httpx2.Response(404),
                SERVER: httpx2.Response(200, json={"issuer": "https://x.test/a", "token_endpoint": "https://x.test"}),
            },
            ["issuer mismatch", "https://x.test/a"],
        ),
    ],
)
async def test_unusable_metadata_are_reported_with_the_fault_and_nothing_is_guessed(answers, wrong):
    network = TokenNetwork()
    network.answers = {path: [answer] for path, answer in {**NOT_FOUND, **answers}.items()}
    with pytest.raises(MCPAuthorizationError) as caught:
        await network.use(network.person())
    assert all(text in str(caught.value) for text in wrong), str(caught.value)
    assert {request.method for request in network.requests if request.url.path != "/mcp"} == {"GET"}


async def test_metadata_of_another_issuer_at_the_mcp_server_lead_to_that_one() -> None:
    network = TokenNetwork()  # it answers for all hosts
    network.answers = {path: [httpx2.Response(404)] for path in (RESOURCE, RESOURCE.removesuffix("/mcp"))}
    network.metadata["issuer"] = "https://as.test"
    assert (await network.use(network.auth(**SERVICE))).text == "welcome"
    asked = [request.url.host for request in network.asked(SERVER)]
    assert (asked[-1], len(asked)) == ("as.test", 2)


@rows("resource", httpx2.Response(503), httpx2.Response(200, json={}))
async def test_a_configured_issuer_is_enough_without_metadata_of_the_mcp_server(resource: httpx2.Response) -> None:
    network = TokenNetwork()
    network.metadata |= {"authorization_endpoint": None, "response_types_supported": None}
    network.answers = {RESOURCE: [resource], "/.well-known/oauth-protected-resource": [resource]}
    assert (await network.use(network.auth(**SERVICE, issuer=network.origin))).text == "welcome"
