# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The tools of published third-party servers, which are really started.
"""

import json
from typing import Any

import pytest
from haystack.dataclasses import ByteStream, ImageContent, TextContent

from haystack_integrations.tools.mcp import (
    MCPHandlers,
    MCPInvocationError,
    MCPServerInfo,
    MCPTool,
    MCPToolset,
    ToolOverride,
)
from haystack_integrations.tools.mcp.convert.content import model_content, model_text, prompt_messages
from haystack_integrations.tools.mcp.convert.resources import resource_contents
from tests.support.executors import by_agent
from tests.support.processes import StdioServer
from tests.support.waiting import wait_until

pytestmark = pytest.mark.integration

# `npx` and `uvx` may have to unpack the server first.
START = 120


def toolset(info: MCPServerInfo, **parameters: Any) -> MCPToolset:
    return MCPToolset(info, connection_timeout=START, invocation_timeout=60, **parameters)


def test_the_everything_server_works_over_every_transport_and_gets_answers(everything: MCPServerInfo) -> None:
    messages: list[Any] = []
    urls: list[str] = []

    def elicit(params: Any) -> dict[str, str] | bool:
        if params.mode == "form":
            return {"name": "Ada"}
        urls.append(params.url)
        return True

    handlers = MCPHandlers(
        sampling=lambda params: f"sampled with {params.max_tokens}",
        elicitation=elicit,
        roots=["/srv/documents"],
        messages=messages.append,
        log_level="debug",
    )
    with toolset(everything, handlers=handlers) as tools:
        envelope = tools["echo"].invoke(message="hello over the wire")
        assert json.loads(envelope)["isError"] is False
        assert model_text(envelope) == "Echo: hello over the wire"
        with pytest.raises(MCPInvocationError, match="Failed to invoke Tool `get-sum`: ") as raised:
            tools["get-sum"].invoke(a="no number, but Sentinel-4711", b=1)
        assert "Sentinel-4711" not in str(raised.value)
        image = tools["get-tiny-image"].invoke()
        assert "[image: image/png" in model_text(image)
        assert {type(part) for part in model_content(image)} == {TextContent, ImageContent}

        assert "Everything Server" in (tools.instructions or "")
        assert resource_contents(tools.read_resource(tools.list_resources()[0]))
        [blob] = resource_contents(tools.read_resource("demo://resource/dynamic/blob/1"))
        assert isinstance(blob, ByteStream)
        [message] = prompt_messages(tools.get_prompt("args-prompt", {"city": "Paris"}))
        assert "Paris" in (message.text or "")
        [prompt] = [prompt for prompt in tools.list_prompts() if prompt.name == "completable-prompt"]
        assert tools.complete(prompt, {"name": "department", "value": "E"}).values == ["Engineering"]
        assert tools.list_skills() == []

        answer = model_text(tools["trigger-sampling-request"].invoke(prompt="Hello", maxTokens=7))
        assert "sampled with 7" in answer
        assert "/srv/documents" in model_text(tools["get-roots-list"].invoke())
        assert "Ada" in model_text(tools["trigger-elicitation-request"].invoke())
        tools["trigger-url-elicitation"].invoke(url="https://example.com/pay")
        assert urls == ["https://example.com/pay"]
        tools["toggle-simulated-logging"].invoke()
        wait_until(lambda: any(m.method == "notifications/message" for m in messages), "a log message")


@pytest.mark.parametrize("fixture", ["time_server", "old_time_server"])
def test_the_time_server_works_with_both_majors_of_its_sdk(fixture, request):
    server: StdioServer = request.getfixturevalue(fixture)
    with MCPTool("get_current_time", server.info(), connection_timeout=START) as tool:
        answer = json.loads(model_text(tool.invoke(timezone="America/New_York")))
        assert answer["timezone"] == "America/New_York"
        assert "datetime" in answer


def test_an_agent_uses_the_git_server_without_knowing_the_path_of_the_repository(git_server: StdioServer) -> None:
    bound = ToolOverride(bound_arguments={"repo_path": str(git_server.cwd)})
    with toolset(git_server.info(), tool_names=["git_log"], tool_overrides={"git_log": bound}) as tools:
        outcome = by_agent(tools, ("git_log", {"max_count": 1}))
    assert "first" in outcome.result
    assert "repo_path" not in outcome.turns[0].tool_specs[0]["parameters"]["properties"]


def test_the_filesystem_server_may_use_only_the_folders_that_are_roots(filesystem_server, tmp_path):
    mine, others = tmp_path.resolve() / "mine", tmp_path.resolve() / "others"
    for folder in (mine, others):
        folder.mkdir()
        (folder / "note.txt").write_text(f"in {folder.name}")
    handlers = MCPHandlers(roots=[mine])
    with toolset(
        filesystem_server.info(), handlers=handlers, tool_names=["read_text_file", "list_allowed_directories"]
    ) as tools:
        # It requests the roots after the session has opened, and does not report when it has them.
        wait_until(lambda: str(mine) in tools["list_allowed_directories"].call().text, "the roots")
        assert tools["read_text_file"].call(path=str(mine / "note.txt")).text == "in mine"
        with pytest.raises(MCPInvocationError, match="outside allowed directories"):
            tools["read_text_file"].call(path=str(others / "note.txt"))
