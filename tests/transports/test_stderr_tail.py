# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
import sys

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError, StdioServerInfo
from haystack_integrations.tools.mcp.transports.stdio import StderrTail
from tests.support.rows import rows
from tests.support.waiting import LIMIT

SECRET = "kw8-4f_Zq0-mV3xT6"


def tail(*chunks, secrets=(SECRET,)):
    taken = StderrTail(secrets)
    for chunk in chunks:
        taken.feed(chunk.encode())
    return taken.text()


class TestLines:
    def test_the_last_lines_are_quoted(self):
        assert tail("".join(f"line {i}\n" for i in range(1000))).endswith("line 997 | line 998 | line 999")
        assert tail(*(f"\r{i} %" for i in range(1000)), "\rstopped\n").endswith(" | stopped")  # a progress bar
        quoted = tail("".join(f"{i} {'x' * 100}\n" for i in range(1000)))
        assert len(quoted) == 1000
        assert quoted.startswith("…")
        assert quoted.endswith(f" | 999 {'x' * 100}")

    def test_an_error_further_up_is_quoted_before_the_last_lines(self):
        usage = "".join(f"--flag-{i}  {'x' * 40}\n" for i in range(40))
        quoted = tail("starting\n", "Error: no context is set\n", usage)
        assert len(quoted) == 1000
        assert quoted.startswith("Error: no context is set | …")
        assert quoted.endswith(f" | --flag-39 {'x' * 40}")
        assert tail(usage, "Error: no context is set\n").count("Error: no context is set") == 1

    @rows("written", '{"level":"fatal","message":"no token"}', "panic: no token")
    def test_the_error_of_a_go_program_is_quoted_before_that_of_its_npm_package(self, written):
        assert tail(f"{written}\nError: Command failed\n", "  at a line of the stack\n" * 40).startswith(written)

    @rows(
        ("chunks", "quoted"),
        (["no such ", "file\nbye\n"], "no such file | bye"),  # a line in several parts
        (["one\ntw"], "one | tw"),  # a line without its end
        (["\n  a\t b \r\n\n"], "a b"),  # empty lines and indentation
        (["a" * 300, "b" * 10_000, "c\nd\n"], f"{'a' * 300}{'b' * 200} | d"),  # a long line
    )
    def test_lines_are_tidied(self, chunks, quoted):
        assert tail(*chunks) == quoted

    def test_a_character_may_arrive_in_parts(self):
        taken = StderrTail(())
        first, second = "é".encode()[:1], "é".encode()[1:]
        taken.feed(b"caf" + first)
        taken.feed(second + b"\xff\n")
        assert taken.text() == "café\ufffd"


@rows(
    "written",
    "\x1b[1;38;5;196mError: \x1b[22mdisk\x1b[K full",
    "\x1b]0;a title\x07Error: disk full",
    "\x1b]8;;https://example.com\x1b\\Error: disk\x1b]8;;\x1b\\ full",
    "\x1b(BError: disk full\x1bM",
    "\x9b31mError: disk full\x07\x00",
    "Error: disk full\x1b",
)
def test_escape_sequences_and_control_characters_are_removed(written):
    assert tail(f"{written}\n") == tail(written) == "Error: disk full"


class TestSecrets:
    @rows(
        ("chunks", "secrets", "quoted"),
        (["token=kw8-4f_", f"{SECRET[7:]} refused\n"], [SECRET], "token=*** refused"),
        # The process ends within a secret.
        (["token=kw8-4f_Zq0-mV"], [SECRET], "token="),
        # The secret has several lines.
        (["1 first-half\n2 second-half\n"], ["first-half\nsecond-half\n"], "1 *** | 2 ***"),
        # A secret that contains another one is redacted completely.
        (["1 db://user:passw0rd@host\n2 passw0rd\n"], ["passw0rd", "db://user:passw0rd@host"], "1 *** | 2 ***"),
        # Short values are treated as ordinary words.
        (["listening on 8080, debug true\n"], ["8080", "true"], "listening on 8080, debug true"),
        # Escape sequences may be within a secret or belong to it.
        ([f"token={SECRET[:5]}\x1b[1m{SECRET[5:]} refused\n"], [SECRET], "token=*** refused"),
        (["token=abc\x1b[1mdef\x07ghi\n"], ["abc\x1b[1mdef\x07ghi"], "token=***"),
    )
    def test_secrets_are_redacted_in_the_lines(self, chunks, secrets, quoted):
        assert tail(*chunks, secrets=secrets) == quoted

    @rows("filler", "x", f"{SECRET} ")
    @rows("end", "", "\n")
    def test_a_cut_line_never_shows_a_part_of_a_secret(self, filler, end):
        # The cut may be anywhere in a long line, whose shown text may be much shorter.
        for before in [0, 480, 495, *range(1980, 2004)]:
            for after in [0, 495, 1990]:
                text = f"{filler * (before // len(filler))}{SECRET}{'z' * after}"
                shown = tail(text[:1000], text[1000:], end)
                assert not any(SECRET[i : i + 6] in shown for i in range(len(SECRET) - 5)), (before, after)


@pytest.mark.parametrize("script", ["sys.exit(3)", "sys.stdin.read()"], ids=["exits", "hangs"])
def test_secrets_on_the_stderr_of_a_server_are_redacted_in_errors(script: str) -> None:
    code = f"import os, sys; sys.stderr.write('bad key: ' + os.environ['KEY']); sys.stderr.flush(); {script}"
    info = StdioServerInfo(sys.executable, ["-c", code], env={"KEY": SECRET})
    connection = MCPConnection(info, connection_timeout=3)
    with pytest.raises(MCPConnectionError, match=r"bad key: \*\*\*") as raised:
        connection.open()
    connection.close()
    assert SECRET not in str(raised.value)


def test_the_error_of_a_server_that_ends_silently_has_its_command_and_the_names_of_its_variables(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/company-ca.pem")
    info = StdioServerInfo(
        "/bin/sh", ["-c", "exit 3", "sh", "--token", "s3same-open"], env={"API_KEY": "s3same-open", "LEVEL": "l0ud"}
    )
    connection = MCPConnection(info, connection_timeout=LIMIT)
    with pytest.raises(MCPConnectionError, match="exit code 3") as failure:
        connection.open()
    connection.close()
    said = str(failure.value)
    assert "was started as `/bin/sh -c exit 3 sh --token ***`, with API_KEY, LEVEL from `env`" in said
    assert "inherit_env" in said
    assert not [value for value in ("s3same", "l0ud", "company-ca") if value in said]
