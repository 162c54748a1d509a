# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What is quoted of a server's standard error: the lines that say what is wrong, as real programs write them.
"""

import logging
import shutil
import sys
import textwrap

import pytest

from haystack_integrations.tools.mcp import MCPConnection, MCPConnectionError, MCPInvocationError, StdioServerInfo
from haystack_integrations.tools.mcp.transports.stdio.stderr_tail import StderrTail
from tests.support.kinds import LONG
from tests.support.processes import run_to_end


def quoted(written: str) -> str:
    tail = StderrTail(())
    tail.feed(textwrap.dedent(written).encode())
    return tail.text()


def quoted_of(*command: str) -> str:
    return quoted(run_to_end(command, limit=LONG).stderr)


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("raise ValueError('no such table: users')", "ValueError: no such table: users"),
        ("import nope", "ModuleNotFoundError: No module named 'nope'"),
        ("def f(:", "SyntaxError: invalid syntax"),
        ("import sys; sys.exit('API_KEY is not set')", "API_KEY is not set"),
        (
            """
            try:
                open("/no/config.toml")
            except OSError as error:
                raise RuntimeError("configuration is missing\\nsee the docs") from error
            """,
            (
                "FileNotFoundError: [Errno 2] No such file or directory: '/no/config.toml' | "
                "RuntimeError: configuration is missing | see the docs"
            ),
        ),
        (
            """
            import asyncio
            async def fail(): raise KeyError("users")
            async def main():
                async with asyncio.TaskGroup() as group:
                    group.create_task(fail())
            asyncio.run(main())
            """,
            "ExceptionGroup: unhandled errors in a TaskGroup (1 sub-exception) | KeyError: 'users'",
        ),
        (
            """
            class Unusual(Exception): pass
            def f(n):
                if n: f(n - 1)
                raise Unusual("deep down")
            f(400)
            """,
            "Unusual: deep down",
        ),
        (
            """
            import argparse
            parser = argparse.ArgumentParser(prog="server")
            parser.add_argument("--db", required=True)
            parser.parse_args()
            """,
            "server: error: the following arguments are required: --db",
        ),
        (
            "import sys; print('ERROR: no plugin\\nINFO: ready\\ndisk full', file=sys.stderr)",
            "ERROR: no plugin | disk full",
        ),
    ],
)
def test_of_python_the_exceptions_are_quoted_without_their_stacks(script, expected):
    assert quoted_of(sys.executable, "-c", textwrap.dedent(script)) == expected


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("function f() { throw new Error('no config.json') } f()", "Error: no config.json"),
        ("require('./nope')", "Error: Cannot find module './nope' | code: 'MODULE_NOT_FOUND'"),
        (
            "Promise.reject(Object.assign(new Error('connect 127.0.0.1:5432'), {code: 'ECONNREFUSED'}))",
            "Error: connect 127.0.0.1:5432 | code: 'ECONNREFUSED'",
        ),
    ],
)
def test_of_node_the_error_is_quoted_with_its_code(script, expected):
    node = shutil.which("node")
    if node is None:
        pytest.skip("there is no Node")
    assert quoted_of(node, "-e", script).removesuffix(",") == expected


@pytest.mark.parametrize("command", ["nope-command --x", "exec nope-command"])
def test_of_a_shell_the_command_that_it_does_not_find_is_quoted(command):
    assert quoted_of("/bin/sh", "-c", command).endswith("nope-command: not found")


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        (
            """
            npm warn Unknown user config "x". This will stop working in the next major version of npm.
            npm error code E404
            npm error 404 Not Found - GET https://registry.npmjs.org/nope
            npm error 404
            npm error 404  The requested resource 'nope@*' could not be found.
            npm error 404
            npm error 404 Note that you can also install from a
            npm error 404 tarball, folder, http url, or git url.
            npm error A complete log of this run can be found in: /home/user/.npm/_logs/debug-0.log
            """,
            (
                "npm error 404 Not Found - GET https://registry.npmjs.org/nope | "
                "npm error 404 The requested resource 'nope@*' could not be found."
            ),
        ),
        (
            """
            Resolved nothing
              \u00d7 No solution found when resolving tool dependencies:
              ╰─▶ Because nope was not found in the package registry and you require nope,
                  we can conclude that your requirements are unsatisfiable.
            """,
            (
                "\u00d7 No solution found when resolving tool dependencies: | ╰─▶ Because nope was not found in the "
                "package registry and you require nope, | we can conclude that your requirements are unsatisfiable."
            ),
        ),
        (
            """
            error: Request failed after 3 retries
              Caused by: Failed to fetch: `https://pypi.org/simple/x/`
              Caused by: invalid peer certificate: UnknownIssuer
            """,
            (
                "error: Request failed after 3 retries | Caused by: Failed to fetch: `https://pypi.org/simple/x/` | "
                "Caused by: invalid peer certificate: UnknownIssuer"
            ),
        ),
        (
            """
            thread 'main' panicked at src/main.rs:2:5:
            no config found
            note: run with `RUST_BACKTRACE=1` environment variable to display a backtrace
            """,
            "thread 'main' panicked at src/main.rs:2:5: | no config found",
        ),
        (
            """
            Exception in thread "main" java.lang.IllegalStateException: no config
            \tat app.Main.main(Main.java:3)
            Caused by: java.io.FileNotFoundException: x.yaml
            \tat app.Main.load(Main.java:9)
            \t... 1 more
            """,
            (
                'Exception in thread "main" java.lang.IllegalStateException: no config | '
                "Caused by: java.io.FileNotFoundException: x.yaml"
            ),
        ),
        (
            """
            Usage: server [OPTIONS]
            Try 'server --help' for help.
            ╭─ Error ────────────────────╮
            │ No such option: --database │
            ╰────────────────────────────╯
            """,
            "No such option: --database",
        ),
        (
            """
            ╭────────────────────────────╮
            │         Banner 4.1         │
            │   https://example.com      │
            ╰────────────────────────────╯
            ────────────────────────────
            port 8000 is taken
            """,
            "port 8000 is taken",
        ),
        ("═════\n\n ─── \n", ""),
    ],
    ids=["npm", "uv", "uv behind a proxy", "Rust", "Java", "Typer", "a banner", "only lines"],
)
def test_of_others_the_error_is_quoted_without_banners_stacks_and_advice(written, expected):
    assert quoted(written) == expected


def test_a_quotation_is_short_and_shows_the_last_error():
    written = "".join(f"Error: attempt {number} failed {'x' * 50}\n" for number in range(100))
    assert len(quoted(written)) <= 500
    assert "attempt 99 failed" in quoted(written)
    assert len(quoted(f"Error: {'x' * 10_000}\n")) <= 500


def test_the_banner_of_a_real_server_does_not_hide_why_it_ended(caplog):
    caplog.set_level(logging.DEBUG, "haystack_integrations.tools.mcp")
    script = """
import os
from fastmcp import FastMCP
server = FastMCP("brief")
@server.tool
def end() -> str:
    os.write(2, b"stopped, disk full\\n")
    os._exit(4)
server.run()
"""
    info = StdioServerInfo(sys.executable, ["-c", script])
    with MCPConnection(info, connection_timeout=LONG) as connection:
        with pytest.raises(MCPInvocationError, match=r"exit code 4 \(its stderr says: .*stopped, disk full") as failure:
            connection.call_tool("end")
    assert not set("│╭╰─█") & set(str(failure.value))
    assert "FastMCP" not in str(failure.value)
    assert {"╭", "█"} <= set(caplog.text)  # all that it wrote is there


def test_of_a_server_that_ends_without_a_word_the_command_and_the_names_of_its_variables_are_shown(monkeypatch):
    monkeypatch.setenv("SSL_CERT_FILE", "/etc/company-ca.pem")
    info = StdioServerInfo(
        "/bin/sh", ["-c", "exit 3", "sh", "--token", "s3same-open"], env={"API_KEY": "s3same-open", "LEVEL": "l0ud"}
    )
    connection = MCPConnection(info, connection_timeout=LONG)
    with pytest.raises(MCPConnectionError, match="exit code 3") as failure:
        connection.open()
    connection.close()
    said = str(failure.value)
    assert "was started as `/bin/sh -c exit 3 sh --token ***`, with API_KEY, LEVEL from `env`" in said
    assert "inherit_env" in said
    assert not [value for value in ("s3same", "l0ud", "company-ca") if value in said]
