# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The repr, traces and messages of a server info never contain a secret.
"""

import dataclasses
import html
import json
import re
from urllib import parse

from haystack.utils import Secret
from mcp.types import CallToolResult, TextContent

from haystack_integrations.tools.mcp import (
    MCPInvocationError,
    OAuthConfig,
    SSEServerInfo,
    StdioServerInfo,
    StreamableHttpServerInfo,
    redaction,
)
from haystack_integrations.tools.mcp.protocol.request_errors import redacted_result
from haystack_integrations.tools.mcp.redaction import MAX_TEXT_LENGTH, Redactor, redact_text, redact_url
from haystack_integrations.tools.mcp.request_context import MCPRequestContext
from tests.support.rows import rows
from tests.transports.test_server_info import CarrierPigeonInfo

SECRET = "s3ntinel-in-an-info"
KEY = "aB3s3ntinel" * 4
ALPHABET = "abcdefghijklmnopqrstuvwxyz"


OPTIONS = "--api-key --db-password --pass --pwd --pat --bearer --secret --auth --github-pat --db-pass".split()
ARGUMENTS = [
    *([option, SECRET, "x"] for option in OPTIONS),
    [f"--token={SECRET}", "--verbose"],
    ["run", "-e", f"API_KEY={SECRET}", "image"],
    ["mcp-remote", "--header", f"Authorization: Bearer {SECRET}"],
    ["mcp-remote", f"https://u:{SECRET}@h/sse", f"https://h/sse?api_key={SECRET}", f"https://h/a;token={SECRET}/b"],
    [f"postgresql://u:{SECRET}@h/db", f"host=h user=u password={SECRET}", f"Server=h;Uid=u;Pwd={SECRET};Database=d"],
    ["--config", f'{{"apiKey": "{SECRET}", "x": 1}}'],
    ["-c", f"PGPASSWORD={SECRET} psql"],
    ["-c", f"exec server --port 80 --api-key {SECRET} --verbose"],
    ["-c", f"exec server --port 80 --pass {SECRET} --verbose"],
    ["-H", f"X: Bearer {SECRET}"],
    [f"--x=ghp_{KEY}", f"https://h/sk-{KEY}/mcp"],
]


def test_plain_secrets_of_a_server_info_are_neither_in_repr_nor_in_traces_nor_in_messages():
    for info in (
        *(StdioServerInfo("a", args=arguments) for arguments in ARGUMENTS),
        StdioServerInfo("a", env={"K": SECRET, "L": Secret.from_token(SECRET)}),
        StdioServerInfo(f"/opt/ghp_{KEY}/bin/server", cwd=f"/srv/glpat-{KEY}"),
        SSEServerInfo(f"http://h/{KEY}/sse"),
        SSEServerInfo("http://h/sse", token=SECRET, headers={"X": SECRET}),
        SSEServerInfo(f"http://u:{SECRET}@h/sse?key={SECRET}#{SECRET}"),
        StreamableHttpServerInfo(f"http://h/s/sk-ant-api03-{KEY}/mcp", token=Secret.from_token(SECRET)),
        StreamableHttpServerInfo(f"http://{SECRET}@h/mcp?key={SECRET}&x={SECRET}"),
    ):
        for shown in (repr(info), info.describe(), json.dumps(info._to_trace_dict())):
            assert "s3ntinel" not in shown


def test_a_custom_server_info_shows_plain_secrets_only_if_its_own_repr_does():
    @dataclasses.dataclass
    class Mine(StreamableHttpServerInfo):
        region: str = "eu"

    class Other(Mine):
        __repr__ = object.__repr__

    shown = repr(Mine("http://h/mcp", token=SECRET, region="us"))
    assert shown.endswith("region='us')") and SECRET not in shown
    assert "object at" in repr(Other("http://h/mcp"))


def test_a_repr_shows_values_that_are_neither_secret_nor_default():
    command = ["mcp-server-git", "--repository", "/repo", "--verbose", "--key-file=/k", "--max-tokens", "4096"]
    command += ["--keyword", "value", "--author", "Jane", "--pattern", "x*", "--bypass", "yes"]
    env = {"A": Secret.from_env_var(["ONE", "TWO"]), "B": "plain"}
    info = StdioServerInfo("uvx", command, env=env, cwd="/tmp")
    shown = f"StdioServerInfo(command='uvx', args={command}, env={{'A': 'env:ONE|TWO', 'B': '***'}}, cwd='/tmp')"
    assert repr(info) == shown
    assert info.describe() == f"stdio server `uvx {' '.join(command)}`"
    assert repr(StreamableHttpServerInfo("http://h/mcp")) == "StreamableHttpServerInfo(url='http://h/mcp')"
    assert repr(OAuthConfig(client_id="me")) == "OAuthConfig(client_id='me', grant_type='authorization_code')"
    assert repr(MCPRequestContext(user="me", token="t0ken-of-me")) == "MCPRequestContext(user='me')"


def test_a_secret_in_a_field_of_any_name_is_redacted():
    nested = CarrierPigeonInfo("roof", leg_ring={"number": Secret.from_env_var("RING"), "colour": "red"})
    assert nested._to_trace_dict()["leg_ring"] == {"number": "env:RING", "colour": "red"}


def test_a_token_of_a_known_shape_is_redacted_everywhere():
    prefixes = (
        "ghp_ gho_ github_pat_11AB_ sk- sk-proj- sk-ant-api03- xoxb-1234- glpat- hf_ npm_ pypi-AgEIcHlwaS5vcmc AIza"
    )
    credentials = [f"{prefix}{KEY}" for prefix in [*prefixes.split(), "hooks.slack.com/services/T000/B000/"]]
    credentials += ["AKIAIOSFODNN7EXAMPLE", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.c2lnbmF0dXJl"]
    for credential in credentials:
        for context in ("{}", "no access with {}.", "https://h/p/{}/x", "'{}'", 'key="{}"', "\n{}\n", "({},"):
            redacted = redact_text(context.format(credential))
            assert credential[-8:] not in redacted
            assert redacted.startswith(context.partition("{")[0])
            assert "***" in redacted


@rows(
    ("text", "redacted"),
    ("sent Authorization: Bearer abc123.def", "sent Authorization: Bearer ***"),
    ("Basic dXNlcjpwYXNz failed", "Basic *** failed"),
    ("postgres://user:pw1234@h/db", "postgres://***@h/db"),
    # A token may be short, and follow a character that cannot be part of it.
    (f"令牌ghp_{KEY}", "令牌***"),
    (f"token_ghp_{KEY}", "token_***"),
    ("x-sk_live_abcdefghij12", "x-***"),
    ("=xoxb-1234567890ab", "=***"),
    (f"task-{KEY}", f"task-{KEY}"),
)
def test_only_the_credentials_in_a_text_are_redacted(text, redacted):
    assert redact_text(text) == redacted
    assert redact_url("https://u:p@h:8000/a/b?x=1&y=2#z") == "https://h:8000/a/b?x=***&y=***"
    assert redact_url("http://[::1]:8000/mcp") == "http://[::1]:8000/mcp"


@rows("argument", "--db={}", "DATABASE_URL={}", "jdbc:{}", "{}")
def test_only_the_password_of_a_url_in_an_argument_is_redacted(argument):
    secrets = StdioServerInfo("a", [argument.format("postgresql://u:pw-123456@h/db?api=key-12345")])._secrets()
    assert Redactor(secrets).text("'pw-123456' or 'key-12345' is wrong") == "'***' or '***' is wrong"


def test_a_harmless_text_is_not_changed():
    for text in (
        "the password: must be at least 8 characters long",
        "Basic authentication is required, Bearer authentication too",
        'WWW-Authenticate: Bearer realm="mcp", error="invalid_token", scope="a b1"',
        "use next_page_token=abc123def456 to go on; Server=h;Pwd=hunter22; --pass hunter22",
        "ENOENT: no such file or directory, open '/home/me/sk-learn/risk-based-scikit-tests/x.py'",
        "the task-force-is-a-long-name-1234 and sk-fading-circle-container-element",
        "https://example.com/a/b?x=1 https://registry.npmjs.org/@scope/pkg ssh://git@github.com/o/r.git",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b, run 550e8400-e29b-41d4-a716-446655440000",
        "SyntaxError: unexpected token = at line 3; max_tokens=4096; keyword=foo; key=value",
        "npm ERR! code E404; hf_hub_download(repo_id); pypi-server is not running; ghp_import.py; AKIA; eyJ; AIza",
        "the option --password requires a value; --max-token 100000; --tokenizer gpt4turbo; --password-file /etc/pw123",
        "password=$PASSWORD password=None token=<your token> secret=${SECRET}",
        "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAQAAAC1HAwCAAAAC0lEQVR42mNk",
    ):
        assert redact_text(text) == text
        assert Redactor(["some secret"]).text(text) == text


def test_texts_of_a_megabyte_are_redacted_in_time():
    # With a quadratic regular expression, one of these would take longer than a test may.
    redactor = Redactor(["some secret"])
    for part in "sk- eyJ eyJaaaaaaaa. ghp_ Bearer ://a: password= input_value= pypi- xoxb-".split():
        text = part * (1_000_000 // len(part))
        redactor.text(text)
        repr(StdioServerInfo("a", args=[text[:100_000]]))
        redact_url(f"https://h/{text[:100_000]}")


@rows(
    ("secret", "text", "redacted"),
    (ALPHABET, "[input_value='abcdefghij...uvwxyz', input_type=str]", "[input_value=***, input_type=str]"),
    (ALPHABET, "[input_value={'key': 'abcdefg...}, input_type=str]", "[input_value=***, input_type=str]"),
    (ALPHABET, "[input_value='five', input_type=str]", "[input_value='five', input_type=str]"),
    # A secret with fewer than six characters is treated as an ordinary word.
    ("12345", "a 12345 text", "a 12345 text"),
    ("", "a text", "a text"),
)
def test_only_the_secret_is_redacted_even_if_pydantic_abbreviates_it(secret, text, redacted):
    assert Redactor([secret]).text(text) == redacted


def test_the_secrets_of_a_server_process_are_its_environment_and_arguments_named_like_secrets(monkeypatch):
    monkeypatch.setenv("INHERITED_TOKEN", "t0ken-6")
    monkeypatch.setenv("INHERITED_LEVEL", "level-of-all")
    harmless = {"LEVEL": "warning", "FOLDER": "/path/to/it", "PWD": "/home"}
    secret = {"DATA": "t0ken-3", "DB": "db://u:t0ken-4@h/d", "PASSWORD": "letters", "ANY": Secret.from_token("t0ken-5")}
    info = StdioServerInfo(
        "a",
        ["--token", "t0ken-1", "--header", "X-Key: Bearer t0ken-2", "--key-file", "/run/k", "--level=debug"],
        env={**harmless, **secret},
        inherit_env=["INHERITED_*"],
    )
    assert info._secrets() >= {*(f"t0ken-{number}" for number in range(1, 7)), "letters"}
    assert not {*harmless.values(), "/run/k", "debug", "level-of-all"} & info._secrets()


def test_the_secrets_of_an_http_server_are_its_credentials_headers_and_query(monkeypatch):
    info = StreamableHttpServerInfo(
        "http://u:t0ken-1@h/mcp?api_key=letters&profile=production&workspace=t0ken-2",
        token="t0ken-3",
        headers={"Accept": "application/json", "Cookie": "a=t0ken-4; b=t0ken-5", "X-Any": "Basic dTp0MGtlbi02"},
    )
    assert info._secrets() >= {*(f"t0ken-{number}" for number in range(1, 7)), "letters"}
    assert not {"application/json", "production"} & info._secrets()
    monkeypatch.delenv("NO_SUCH_SECRET", raising=False)
    absent = StreamableHttpServerInfo("http://h", token=Secret.from_env_var("NO_SUCH_SECRET"))
    assert Redactor(absent._secrets()).forms == []


@rows(
    "quoted",
    r"tok+en\/<é&'=",  # PHP
    r"tok+en/\u003cé\u0026'=",  # Go
    r"tok+en/\u003c\u00e9\u0026\u0027\u003d",  # Gson
    r"tok\u002Ben/\u003C\u00e9\u0026\u0027=",  # .NET
    r"tok+en/<\xe9&'=",  # Python
    "tok+en/&lt;é&amp;'=",
    "tok+en/&lt;é&amp;&#39;=",
    "tok%2ben%2f%3c%c3%a9%26%27%3d",
    "tok%2Ben%2F%3C%C3%A9%26'%3D",  # JavaScript
    "dG9rK2VuLzzDqSYnPQ",
    "aWQ6dG9rK2VuLzzDqSYnPQ",
)
def test_a_secret_is_found_in_the_spellings_of_other_languages_libraries(quoted):
    assert "***" in Redactor(["tok+en/<é&'="]).text(f"refused: {quoted}.")


class TestSecretsOfCalls:
    VALUES = ('of a-"call"/1', "of a call with\ntwo lines of it", "of a call", "Zürich & Genève", "short")

    def test_secrets_of_calls_are_found_like_all_others(self):
        for write in (str, repr, json.dumps, html.escape, lambda value: parse.quote(value, safe="")):
            redactor = Redactor([SECRET])
            redactor.remember(self.VALUES)
            quoted = "; ".join(write(value) for value in self.VALUES)
            text = f"{SECRET} {quoted} [input_value='of a-\"ca...', input_type=str]"
            assert redactor.text(text) == Redactor([SECRET, *self.VALUES]).text(text)
            assert redactor.secrets == {SECRET, *self.VALUES}

    def test_secrets_of_calls_are_remembered_until_enough_newer_ones_replace_them(self, monkeypatch):
        monkeypatch.setattr(redaction, "MAX_CALL_SECRETS", 3)
        redactor = Redactor([SECRET])
        redactor.remember(["of an early call", "of every call"])
        for number in range(2):
            assert redactor.text("of an early call, of every call") == "***, ***"
            redactor.remember([f"of call {number}", "of every call"])
        assert redactor.text(f"of an early call, of every call, {SECRET}") == "of an early call, ***, ***"


class TestLargeTexts:
    def test_large_texts_keep_their_ends_but_no_part_of_a_secret_at_the_cut(self):
        secret = "".join(f"<{number}>" for number in range(400))
        redactor = Redactor([secret])
        for place in range(0, MAX_TEXT_LENGTH, 97):
            text = f"begin{'.' * place}{secret}{'.' * (3 * MAX_TEXT_LENGTH - place)}{secret}{'.' * place}end"
            redacted = redactor.text(text)
            assert not re.search(r"<\d+>", redacted)
            assert redacted.startswith("begin") and redacted.endswith("end")
            assert f"{len(text):,} characters" in redacted
            assert redactor.text(redacted) == redacted

    @rows("data", ["x"] * 10_000, ["x" * 9_000] * 10)
    def test_large_texts_are_left_out_of_an_error_and_its_data(self, data):
        error = MCPInvocationError('"\\\n' * MAX_TEXT_LENGTH, "tool", {"argument": data}, data={"texts": data})
        assert Redactor(["secret-value"]).error(error) is error
        assert error.data == "*** (left out, because it is too large)"
        assert error.tool_args == {"argument": data}
        assert len(error.message) <= MAX_TEXT_LENGTH


def test_a_secret_that_equals_a_word_of_the_protocol_does_not_break_errors_of_tools():
    result = CallToolResult(content=[TextContent(type="text", text="content is missing")], is_error=True)
    redacted = redacted_result(result, Redactor(["content", "isError"]))
    assert redacted.is_error
    assert [part.text for part in redacted.content] == ["*** is missing"]
