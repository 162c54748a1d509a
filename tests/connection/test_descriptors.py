# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A process without free file descriptors: the error says so, nothing breaks for good, and a later attempt works.
"""

import pytest

from tests.support.processes import leader
from tests.support.scripts import finalized

SCRIPT = """
import resource

url, spare, stage = {url!r}, {spare}, {stage!r}
connection = MCPConnection(StreamableHttpServerInfo(url) if url else server_info, connection_timeout=60)
if stage != "cold":
    with connection:
        pass
if stage == "loaded":
    AsyncExecutor.get_instance().shutdown()
resource.setrlimit(resource.RLIMIT_NOFILE, (256, resource.getrlimit(resource.RLIMIT_NOFILE)[1]))
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
    opened = str(error)
try:
    connection.call_tool("add", {{"a": 1, "b": 2}})
except MCPInvocationError as error:
    called = str(error)
for descriptor in held:
    os.close(descriptor)
connection.open()
answer = connection.call_tool("add", {{"a": 1, "b": 2}}).content[0].text
connection.close()
report(opened=opened, called=called, answer=answer)
"""


@pytest.mark.parametrize(
    ("way", "spare", "stage"),
    [
        ("stdio", 0, "cold"),  # nothing is imported yet
        ("stdio", 2, "loaded"),  # uvloop would end the process
        ("http", 0, "running"),
    ],
)
def test_a_lack_of_descriptors_is_an_error_that_says_so_and_passes(script_with, shared_http_server, way, spare, stage):
    url = shared_http_server().url if way == "http" else None
    # Only what starts an interpreter of its own has not imported anything yet.
    start = leader if stage == "cold" else finalized
    [facts] = script_with().run(SCRIPT.format(url=url, spare=spare, stage=stage), start=start)
    assert "Too many open files" in facts["opened"]
    assert "Too many open files" in facts["called"] and "did not run" in facts["called"]
    assert facts["answer"] == "3"
