# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A process without free file descriptors: the error says so, nothing breaks for good, and a later attempt works.
"""

import json
import os
import sys

from tests.support.prepared import PreparedProcess
from tests.support.processes import PLAIN_SERVER, leader, run_to_end
from tests.support.rows import rows
from tests.support.scripts import SOURCE

_SCRIPT = """
import json, os, resource, sys
url, spare, stage = json.loads(sys.argv[1])
from haystack_integrations.tools.mcp import *
from haystack_integrations.tools.mcp.errors import *
from haystack_integrations.tools.mcp.handlers import *

server = [sys.executable, [sys.argv[2], "--calls-file", os.devnull]]
info = StreamableHttpServerInfo(url) if url else StdioServerInfo(*server)
connection = MCPConnection(info, connection_timeout=60)
if stage != "cold":
    with connection:
        pass
if stage == "loaded":
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


@rows(
    ("way", "spare", "stage"),
    [
        ("stdio", 0, "cold"),  # nothing is imported yet
        ("stdio", 2, "loaded"),  # uvloop would end the process
        ("http", 0, "running"),
    ],
)
def test_a_lack_of_descriptors_is_an_error_that_says_so_and_passes(shared_http_server, way, spare, stage):
    url = shared_http_server().url if way == "http" else None
    command = [sys.executable, "-c", _SCRIPT, json.dumps([url, spare, stage]), str(PLAIN_SERVER)]
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), "HAYSTACK_TELEMETRY_ENABLED": "False"}
    # Only what starts an interpreter of its own has not imported anything yet.
    start = leader if stage == "cold" else PreparedProcess
    done = run_to_end(command, limit=110, start=start, env=environment, check=True)
    said, called, answer = json.loads(done.stdout.splitlines()[-1])
    assert "Too many open files" in said
    assert "Too many open files" in called and "did not run" in called
    assert answer == "3"
