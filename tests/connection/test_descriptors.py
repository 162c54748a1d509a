# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A process without free file descriptors: the error says so, nothing breaks for good, and a later attempt works.
"""

import json
import os
import subprocess
import sys

import pytest

from tests.support.processes import PLAIN_SERVER
from tests.support.scripts import SOURCE

_SCRIPT = """
import json, os, resource, sys
way, url, spare, preloaded, uvloop = json.loads(sys.argv[1])
if not uvloop:
    sys.modules["uvloop"] = None
from haystack_integrations.tools.mcp import *

server = [sys.executable, [sys.argv[2], "--calls-file", os.devnull]]
infos = {"stdio": lambda: StdioServerInfo(*server), "sse": lambda: SSEServerInfo(url), "http": lambda: StreamableHttpServerInfo(url)}
connection = MCPConnection(infos[way](), connection_timeout=60)
if preloaded:
    with connection:
        pass
    AsyncExecutor.get_instance().shutdown()
_, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
held = []
try:
    while True:
        held.append(os.open(os.devnull, os.O_RDONLY))
except OSError:
    pass
for _ in range(spare):
    os.close(held.pop())
try:
    connection.open()
except MCPConnectionError as error:
    said = str(error)
try:
    connection.call_tool("add", {"a": 1, "b": 2})
except MCPInvocationError as error:
    called = str(error)
for descriptor in held:
    os.close(descriptor)
connection.open()
answer = connection.call_tool("add", {"a": 1, "b": 2}).content[0].text
connection.close()
print(json.dumps([said, called, answer]))
"""


@pytest.mark.parametrize("uvloop", [False, True], ids=["asyncio", "uvloop"])
@pytest.mark.parametrize(
    ("way", "spare", "preloaded"),
    [("stdio", 0, False), ("stdio", 0, True), ("stdio", 2, True), ("stdio", 18, True), ("sse", 2, True)]
    + [("http", 0, True), ("http", 2, True)],
)
def test_a_lack_of_descriptors_is_an_error_that_says_so_and_passes(shared_http_server, way, spare, preloaded, uvloop):
    url = {"stdio": "", "sse": "sse", "http": "streamable-http"}[way]
    arguments = [way, url and shared_http_server(url).url, spare, preloaded, uvloop]
    command = [sys.executable, "-c", _SCRIPT, json.dumps(arguments), str(PLAIN_SERVER)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "HAYSTACK_TELEMETRY_ENABLED": "False"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=110, check=False)
    assert done.returncode == 0, done.stderr
    said, called, answer = json.loads(done.stdout.splitlines()[-1])
    assert "no file descriptor left" in said
    assert "ulimit -n" in said
    assert "no file descriptor left" in called
    assert "did not run" in called
    assert answer == "3"
