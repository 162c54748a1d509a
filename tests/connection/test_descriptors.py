# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
A process without free file descriptors: the error names the cause, and a later attempt works.
"""

import pytest

from tests.support.processes import leader
from tests.support.scripts import finalized

SCRIPT = """
import resource

spare, is_cold = {spare}, {is_cold}
connection = MCPConnection(server_info, connection_timeout=60)
if not is_cold:
    with connection:
        pass
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
    ("spare", "is_cold"),
    [
        (0, True),  # nothing is imported yet
        (2, False),  # uvloop would end the process
    ],
)
def test_a_lack_of_descriptors_is_a_temporary_error_that_names_the_cause(script_with, spare, is_cold):
    # Only a new interpreter has not imported anything yet.
    start = leader if is_cold else finalized
    [facts] = script_with().run(SCRIPT.format(spare=spare, is_cold=is_cold), start=start)
    assert "Too many open files" in facts["opened"]
    assert "Too many open files" in facts["called"] and "did not run" in facts["called"]
    assert facts["answer"] == "3"
