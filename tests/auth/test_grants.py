# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Grants without a person: the token requests, and the errors if no token is issued.
"""

from typing import Any

import httpx2
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from haystack.utils import Secret

from haystack_integrations.tools.mcp import MCPAuthorizationError
from haystack_integrations.tools.mcp.oauth import FileTokenStorage, MCPAssertionRequest
from haystack_integrations.tools.mcp.transports.posting import HttpSender
from tests.support.rows import rows
from tests.support.token_network import ID_JAG, TokenNetwork

JWT_BEARER = "urn:ietf:params:oauth:grant-type:jwt-bearer"
SECRET = Secret.from_token("the-client-secret")
SERVICE = {"client_id": "me", "client_secret": SECRET}


def pem_of(key: Any) -> Secret:
    return Secret.from_token(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode())


RSA = rsa.generate_private_key(65537, 2048)
P256 = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()


async def failure(network: TokenNetwork, **options: Any) -> str:
    with pytest.raises(MCPAuthorizationError) as caught:
        await network.use(network.auth(**options))
    return str(caught.value)


@pytest.mark.parametrize(
    ("key", "expected"), [(RSA, "RS256"), (P256, "ES256"), (ED, "EdDSA")], ids=["rsa", "p-256", "ed25519"]
)
async def test_a_key_signs_with_the_algorithm_of_its_type(network, key, expected):
    auth = network.auth(client_id="me", private_key=pem_of(key), key_id="7")
    assert (await network.use(auth)).text == "welcome"
    token = network.forms()[0]["client_assertion"]
    header = jwt.get_unverified_header(token)
    assert (header["alg"], header["kid"]) == (expected, "7")
    claims = jwt.decode(token, key.public_key(), algorithms=[expected], audience=network.origin)
    assert claims["iss"] == claims["sub"] == "me"
    assert claims["exp"] - claims["iat"] == 300


@pytest.mark.parametrize(
    ("key", "algorithm", "message"),
    [
        (Secret.from_token("c2VjcmV0LWtleQ"), None, "the `private_key` is not a private key in PEM without a password"),
        (pem_of(ED), "RS256", "the `private_key` cannot sign with RS256"),
    ],
)
async def test_the_error_for_a_key_that_cannot_sign_does_not_quote_it(network, key, algorithm, message):
    text = await failure(network, client_id="me", private_key=key, signing_algorithm=algorithm)
    assert message in text
    assert str(key.resolve_value() or "-----BEGIN")[:40] not in text
    assert network.forms() == []


async def an_assertion(request: MCPAssertionRequest) -> str:
    return f"for {request.audience} of {request.user}"


@pytest.mark.parametrize("source", [an_assertion, Secret.from_token("stored")], ids=["function", "secret"])
async def test_an_assertion_comes_from_a_function_or_a_secret(network: TokenNetwork, source: Any) -> None:
    auth = network.auth(grant_type="client_credentials", client_id="me", assertion_provider=source)
    await auth.log_in(httpx2.Response(401), "bob")
    expected = "stored" if isinstance(source, Secret) else f"for {network.origin} of bob"
    assert network.forms()[0]["client_assertion"] == expected


def fails(request: MCPAssertionRequest) -> str:
    msg = "the vault said s3cret"
    raise RuntimeError(msg)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        (fails, "`assertion_provider` failed (RuntimeError)"),
        (lambda _: None, "`assertion_provider` must return a string that is not empty, got NoneType"),
    ],
)
async def test_the_error_names_an_assertion_provider_that_fails(
    network: TokenNetwork, source: Any, message: str
) -> None:
    text = await failure(network, grant_type="jwt_bearer", assertion_provider=source)
    assert message in text
    assert "s3cret" not in text
    assert network.forms() == []


async def test_a_workload_needs_metadata_for_the_audience_of_its_assertion(network: TokenNetwork) -> None:
    auth = network.auth(grant_type="jwt_bearer", assertion_provider=Secret.from_token("proof"))
    for path in ("protected-resource/mcp", "protected-resource", "authorization-server"):
        network.answers[f"/.well-known/oauth-{path}"] = [httpx2.Response(404)]
    with pytest.raises(MCPAuthorizationError, match="no metadata, so the audience of the assertion is not known"):
        await network.use(auth)
    assert network.forms() == []


def exchange(network: TokenNetwork, **options: Any) -> dict[str, Any]:
    return {
        "grant_type": "id_jag",
        "client_id": "me",
        "client_secret": SECRET,
        "issuer": network.origin,
        "scopes": ["a"],
        "id_token": Secret.from_token("the-id-token"),
        "idp_token_endpoint": network.idp_url,
        **options,
    }


async def test_an_id_token_is_exchanged_for_an_id_jag_with_the_demanded_scopes_and_that_for_a_token(network):
    step_up = 'Bearer error="insufficient_scope", scope="write"'
    network.answers["/mcp"] = [
        httpx2.Response(401, headers={"WWW-Authenticate": 'Bearer scope="read"'}),
        httpx2.Response(403, headers={"WWW-Authenticate": step_up}),
        httpx2.Response(200, text="welcome"),
        httpx2.Response(403, headers={"WWW-Authenticate": step_up}),
    ]
    known = {"idp_client_id": "me there", "idp_client_secret": Secret.from_token("secret there")}
    auth = network.auth(**exchange(network, scopes=None, **known))
    assert (await network.use(auth)).text == "welcome"
    for path in ("/idp", "/token"):
        assert [form["scope"] for form in network.forms(path)] == ["read", "read write"]
    [asked, _], [form, _] = network.forms("/idp"), network.forms()
    assert (asked["subject_token"], asked["requested_token_type"]) == ("the-id-token", ID_JAG)
    assert (asked["audience"], asked["resource"]) == (network.origin, network.url)
    assert (asked["client_id"], asked["client_secret"]) == ("me there", "secret there")
    assert (form["grant_type"], form["assertion"]) == (JWT_BEARER, "the-id-jag")
    with pytest.raises(MCPAuthorizationError, match="the scope 'write', for which the token was asked already"):
        await network.use(auth)


@rows(
    ("answer", "message"),
    (httpx2.Response(403, text="no such person"), "answered with HTTP 403, without a token: no such person"),
    (
        httpx2.Response(200, json={"access_token": "t", "issued_token_type": "a-bearer"}),
        "gave a token of the type 'a-bearer' in place of an ID-JAG",
    ),
)
async def test_the_error_quotes_an_identity_provider_that_issues_no_id_jag(answer, message):
    network = TokenNetwork()
    network.answers["/idp"] = [answer]
    text = await failure(network, **exchange(network))
    assert "asking the identity provider for an ID-JAG at idp.example.com" in text
    assert message in text
    assert "the-id-token" not in text
    assert network.forms() == []


def grants(network: TokenNetwork) -> dict[str, dict[str, Any]]:
    return {
        "authorization_code": {"grant_type": "authorization_code", "client_id": "me"},
        "client_credentials": SERVICE,
        "private_key_jwt": {"client_id": "me", "private_key": pem_of(P256)},
        "jwt_bearer": {"grant_type": "jwt_bearer", "client_id": "me", "assertion_provider": Secret.from_token("proof")},
        "id_jag": exchange(network),
    }


@pytest.mark.parametrize("resource", [None, False, "api://the-server"])
@pytest.mark.parametrize("grant", grants(TokenNetwork()))
async def test_every_grant_and_refresh_names_the_resource_of_its_tokens(network, grant, resource):
    network.token["refresh_token"] = "again"
    make = network.person if grant == "authorization_code" else network.auth
    auth = make(**grants(network)[grant], resource=resource)
    for _ in range(2):
        assert (await network.use(auth)).text == "welcome"
        network.token = {**network.token, "access_token": "another"}
    expected = network.url if resource is None else (resource or None)
    forms = network.forms() + network.forms("/idp")
    assert {form.get("resource") for form in forms} == {expected}
    assert [form["grant_type"] for form in network.forms()][1:] == [
        JWT_BEARER if grant == "id_jag" else "refresh_token"
    ]
    assert all(("client_assertion" in form) is (grant == "private_key_jwt") for form in network.forms())


async def test_the_metadata_of_a_server_may_name_the_configured_resource(network: TokenNetwork) -> None:
    metadata = {"resource": "api://the-server", "authorization_servers": [network.origin]}
    network.answers["/.well-known/oauth-protected-resource/mcp"] = [httpx2.Response(200, json=metadata)]
    text = await failure(network, **SERVICE)
    assert text.endswith(f"which does not match {network.url}. If it is the same, set `resource`")
    auth = network.auth(**SERVICE, resource="api://the-server")
    assert (await network.use(auth)).text == "welcome"


async def test_a_refused_token_is_also_renewed_behind_a_redirect(network: TokenNetwork) -> None:
    network.answers["/mcp"] = [httpx2.Response(307, headers={"location": "/mcp/"})]
    network.answers["/mcp/"] = [httpx2.Response(status) for status in (401, 200, 401, 200)]
    sender = HttpSender(httpx2.MockTransport(network), headers={}, timeout={}, auth=network.auth(**SERVICE))
    for count in (1, 2):
        assert (await sender.send("POST", httpx2.URL(network.url), {}, b"{}")).status_code == 200
        assert len(network.forms()) == count


class TestProofsOfPossession:
    def proof(self, request: httpx2.Request) -> tuple[str, str | None]:
        """
        Return the key and the nonce of a proof; the conformance suite checks the rest.
        """
        header = jwt.get_unverified_header(request.headers["dpop"])
        return header["jwk"]["x"], jwt.decode(request.headers["dpop"], jwt.PyJWK(header["jwk"])).get("nonce")

    async def test_logins_refreshes_and_calls_prove_the_same_key_which_is_kept_with_the_tokens(self, network, tmp_path):
        network.token = {**network.token, "token_type": "DPoP", "refresh_token": "again"}
        for _ in range(2):
            auth = network.person(client_id="me", dpop=True, token_storage=FileTokenStorage(str(tmp_path)))
            assert (await network.use(auth)).text == "welcome"
            network.token["access_token"] = "another"
        assert [form["grant_type"] for form in network.forms()] == ["authorization_code", "refresh_token"]
        keys = [self.proof(request)[0] for request in network.requests if "dpop" in request.headers]
        assert (len(keys), len(set(keys))) == (5, 1)

    async def test_a_changed_nonce_is_used(self, network: TokenNetwork) -> None:
        network.token["token_type"] = "DPoP"
        auth = network.auth(**SERVICE, dpop=True)
        assert (await network.use(auth)).text == "welcome"
        refused = {"dpop-nonce": "new", "www-authenticate": 'DPoP error="use_dpop_nonce"'}
        network.answers["/mcp"] = [httpx2.Response(401, headers=refused), httpx2.Response(200, text="welcome")]
        assert (await network.use(auth)).text == "welcome"
        assert len(network.forms()) == 1
        assert self.proof(network.requests[-1])[1] == "new"

    async def test_no_assertion_is_sent_twice_to_an_authorization_server_that_wants_a_nonce(self, network):
        refusal = httpx2.Response(400, json={"error": "use_dpop_nonce"}, headers={"dpop-nonce": "new"})
        network.answers["/token"] = [refusal, httpx2.Response(200, json={**network.token, "token_type": "DPoP"})]
        assert (await network.use(network.auth(client_id="me", private_key=pem_of(P256), dpop=True))).text == "welcome"
        assert [self.proof(request)[1] for request in network.asked("/token")] == [None, "new"]
        assert len({form["client_assertion"] for form in network.forms()}) == 2

    async def test_a_token_that_is_not_bound_is_refused(self, network: TokenNetwork) -> None:
        text = await failure(network, **SERVICE, dpop=True)
        assert "gave a token that is not bound to the client's key, although `dpop` is set" in text
        assert len(network.asked("/mcp")) == 1
