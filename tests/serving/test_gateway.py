# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
import threading
from base64 import b64decode
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import Annotated, Any

import anyio
import httpx2
import pytest
from fastmcp import Client, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.server.auth import StaticTokenVerifier
from haystack import Document
from haystack.components.builders import PromptBuilder
from haystack.document_stores.in_memory import InMemoryDocumentStore
from mcp import Client as SDKClient
from mcp import MCPError, types
from mcp.server.mcpserver import Context, Elicit, MCPServer, Resolve
from mcp.server.mcpserver.exceptions import ToolError as UpstreamError
from pydantic import BaseModel

from haystack_integrations.tools.mcp import (
    InProcessServerInfo,
    MCPHandlers,
    MCPTool,
    MCPToolset,
    StdioServerInfo,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.errors import MCPCallPendingError, MCPInvocationError
from haystack_integrations.tools.mcp.handlers import answer_later
from haystack_integrations.tools.mcp.serving import ServeOptions, calls, create_mcp_server
from tests.servers.changing_server import build_server as build_changing_server
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.handshake_server import HandshakeServer, result_of
from tests.support.raw import raw_server
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until_async


class Order(BaseModel):
    size: str = "small"


ICON = types.Icon(src="https://example.com/add.png", mime_type="image/png")


def ask_size() -> Elicit[Order]:
    return Elicit("Which size?", Order)


def asking(question: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests={"a": types.ElicitRequest(params=question)}, request_state="asked")


class User:
    """Gives every question the same answer, and records the questions."""

    def __init__(self, action: str = "accept", **content: str) -> None:
        self.answer = types.ElicitResult(action=action, content=content or None)
        self.asked: list[str] = []

    async def __call__(self, message: str, response_type: Any, params: Any, context: Any) -> types.ElicitResult:
        self.asked.append(getattr(params, "url", message))
        return self.answer


class Upstream:
    """A third-party server that records its calls."""

    def __init__(self) -> None:
        self.server = server = MCPServer("upstream")
        self.info = InProcessServerInfo(server)
        self.started, self.cancelled = threading.Event(), threading.Event()

        @server.tool(title="Adder", annotations=types.ToolAnnotations(read_only_hint=True), icons=[ICON])
        def add(a: int, b: int) -> int:
            """Add."""
            return a + b

        @server.tool()
        def fail() -> str:
            raise UpstreamError("the cupboard is bare")

        @server.tool()
        async def count(ctx: Context) -> str:
            for step in (1, 2):
                await ctx.report_progress(step, 2, f"step {step}")
            return "counted"

        @server.tool()
        async def hang() -> str:
            self.started.set()
            try:
                await anyio.sleep(60)
            finally:
                self.cancelled.set()
            return "never"

        @server.tool()
        async def brew(ctx: Context, drink: str, order: Annotated[Order, Resolve(ask_size)]) -> str:
            for step in (1, 2):
                await ctx.report_progress(step, 2, f"{order.size} step {step}")
            return f"a {order.size} {drink}"

        @server.tool()
        def nag(ctx: Context) -> str | types.InputRequiredResult:
            schema = {"type": "object", "properties": {"size": {"type": "string"}}}
            return asking(types.ElicitRequestFormParams(message="Are you sure?", requested_schema=schema))

        @server.tool()
        def pay(ctx: Context) -> str | types.InputRequiredResult:
            if ctx.input_responses:
                return ctx.input_responses["a"].action
            return asking(types.ElicitRequestURLParams(message="Please pay.", url="https://example.com/pay"))

        @server.resource("shelf://top", meta={"board": 1})
        def top() -> str:
            return "jam"

        @server.resource("shelf://{board}/count")
        def how_many(board: str) -> str:
            return f"{board}: 3"

        @server.prompt()
        def praise(what: str) -> str:
            return f"Praise {what}."


@pytest.fixture
def upstream():
    return Upstream()


@pytest.fixture
def toolset(upstream):
    with MCPToolset(upstream.info, handlers=MCPHandlers(elicitation=answer_later)) as toolset:
        yield toolset


@pytest.fixture(params=["legacy", "auto"])
def mode(request):
    return request.param


async def test_definitions_and_errors_of_another_server_are_forwarded(toolset):
    server = create_mcp_server("gate", tools=[toolset], options={"count": ServeOptions(title="Counter")})
    async with Client(server) as client:
        tools = {tool.name: tool for tool in await client.list_tools()}
        assert (tools["add"].title, tools["add"].icons) == ("Adder", [ICON])
        assert tools["add"].annotations.read_only_hint is True
        assert tools["add"].output_schema["properties"]["result"]["type"] == "integer"
        assert tools["count"].title == "Counter"
        result = await client.call_tool("add", {"a": 1, "b": "2"})
        assert result.structured_content == {"result": 3}
        # The gateway masks only its own errors.
        with pytest.raises(ToolError, match=r"the cupboard is bare$"):
            await client.call_tool("fail", {})


async def test_a_tool_of_another_server_that_lists_no_arguments_takes_any():
    upstream = ForeignServer(definition("log", {"type": "object"}))
    async with Client(create_mcp_server("gate", tools=[MCPToolset(upstream.info)])) as client:
        await client.call_tool("log", {"level": "high"})
    assert upstream.calls == [("log", {"level": "high"})]


async def test_a_result_of_another_server_that_is_not_an_object_is_text(mode):
    upstream = ForeignServer(definition("primes", output_schema={"type": "array"}))
    with MCPToolset(upstream.info) as toolset:
        async with Client(create_mcp_server("gate", tools=[toolset]), mode=mode) as client:
            assert [tool.output_schema for tool in await client.list_tools()] == [None]
            for texts in ([], ["2, 3"]):
                upstream.answer = text_result(*texts, structured_content=[2, 3])
                result = await client.call_tool("primes", {})
                assert [block.text for block in result.content] == (texts or ["[2, 3]"])
                assert result.structured_content is None


async def test_servers_start_concurrently_and_a_missing_one_is_reported_although_another_one_hangs():
    @asynccontextmanager
    async def hang(server):
        await asyncio.sleep(2 * LIMIT)
        yield

    hanging = MCPToolset(InProcessServerInfo(MCPServer("hanging", lifespan=hang)), connection_timeout=2 * LIMIT)
    server = create_mcp_server("gateway", tools=[hanging, MCPToolset(StdioServerInfo("no-such-command"))])
    async with asyncio.timeout(LIMIT):
        with pytest.raises(RuntimeError, match="'no-such-command' was not found"):
            async with Client(server):
                pass
    assert hanging.connection.status().state == "closed"


async def test_a_single_tool_of_another_server_keeps_its_definition(upstream):
    with MCPTool("add", upstream.info, outputs_to_state={"sum": {"source": "result"}}) as tool:
        async with Client(create_mcp_server("gate", tools=[tool])) as client:
            [listed] = await client.list_tools()
            assert set(listed.input_schema["properties"]) == {"a", "b"}
            assert (await client.call_tool("add", {"a": 1, "b": 2})).structured_content == {"result": 3}


async def test_a_server_that_does_not_answer_in_time_is_reported(upstream):
    with MCPTool("hang", upstream.info, invocation_timeout=0.2) as tool:
        async with Client(create_mcp_server("gate", tools=[tool])) as client:
            with pytest.raises(ToolError) as failed:
                await client.call_tool("hang", {})
    assert str(failed.value) == "The server behind tool 'hang' did not answer in time. The tool may have run."


async def test_if_a_server_ends_clients_learn_whether_the_tool_may_have_run(http_server, caplog):
    server = http_server("streamable-http")
    info = StreamableHttpServerInfo(server.url, max_retries=1, base_delay=0.05)
    with MCPToolset(info, tool_names=["die", "add"]) as toolset:
        async with Client(create_mcp_server("gate", tools=[toolset])) as client:
            with pytest.raises(ToolError) as failed:
                await client.call_tool("die", {})
            assert str(failed.value) == ("The server behind tool 'die' sent no usable answer. The tool may have run.")
            # A dying process may still accept a connection and then cut it.
            await wait_until_async(lambda: not server.running, "end of the server")
            with pytest.raises(ToolError) as failed:
                await client.call_tool("add", {"a": 1, "b": 2})
            assert str(failed.value) == "The server behind tool 'add' cannot be reached. The tool did not run."
    assert "the connection was cut" in caplog.text


@rows(
    ("answer", "told", "logged"),
    (httpx2.Response(429), "refused the call. The tool did not run.", "HTTP 429"),
    (None, "sent no usable answer. The tool may have run.", "does not conform to the tool's output schema"),
)
async def test_clients_learn_whether_a_tool_ran_that_was_refused_or_broke_its_schema(answer, told, logged, caplog):
    pay = definition("pay", output_schema={"type": "object", "required": ["receipt"]}).model_dump(by_alias=True)
    upstream = HandshakeServer(
        lambda _, message: answer or result_of(message, {"content": [], "structuredContent": {}}),
        lambda _, message: result_of(message, {"tools": [pay]}),
    )
    with MCPToolset(upstream.info(max_retries=0)) as toolset:
        async with Client(create_mcp_server("gate", tools=[toolset])) as client:
            with pytest.raises(ToolError, match=told):
                await client.call_tool("pay", {})
    assert logged in caplog.text
    assert "Traceback" not in caplog.text


@rows(
    ("tool", "arguments", "answer", "step"),
    ("count", {}, "counted", "step"),
    ("brew", {"drink": "tea"}, "a large tea", "large step"),
)
async def test_progress_is_forwarded_even_after_a_question(toolset, mode, tool, arguments, answer, step):
    seen = []

    async def note(progress, total, message):
        seen.append((progress, total, message))

    server, user = create_mcp_server("gate", tools=[toolset]), User(size="large")
    async with Client(server, mode=mode, elicitation_handler=user) as client:
        result = await client.call_tool(tool, arguments, progress_handler=note)
        assert result.content[0].text == answer
    # Earlier notifications may be an SDK's, about the question.
    assert seen[-2:] == [(1, 2, f"{step} 1"), (2, 2, f"{step} 2")]
    assert len(seen) == 2 or tool == "brew"


async def test_a_cancelled_call_is_cancelled_at_the_other_server(upstream, toolset, mode):
    async with Client(create_mcp_server("gate", tools=[toolset]), mode=mode) as client:
        calling = asyncio.create_task(client.call_tool("hang", {}))
        await wait_until_async(upstream.started.is_set, "the call")
        calling.cancel()
        await wait_until_async(upstream.cancelled.is_set, "its end", limit=LIMIT / 2)


async def test_a_question_of_the_other_server_reaches_the_client(toolset, mode):
    server = create_mcp_server("gate", tools=[toolset])
    for user, is_error in ((User(size="large"), False), (User("decline"), True)):
        async with Client(server, mode=mode, elicitation_handler=user) as client:
            result = await client.call_tool("brew", {"drink": "tea"}, raise_on_error=False)
        assert (result.is_error, user.asked) == (is_error, ["Which size?"])
        assert is_error or result.content[0].text == "a large tea"
    # The request to open a page reaches the client during the call.
    for action in ("accept", "decline"):
        user = User(action)
        async with Client(server, mode="legacy", elicitation_handler=user) as client:
            assert (await client.call_tool("pay", {})).content[0].text == action
        assert user.asked == ["https://example.com/pay"]
    async with Client(server, mode="legacy") as client:
        with pytest.raises(ToolError, match="needs an answer from the user, and the client cannot ask"):
            await client.call_tool("brew", {"drink": "tea"})


async def test_an_answer_that_does_not_fit_the_form_is_an_error_and_one_for_a_page_may_have_contents(toolset, mode):
    async def answer(_context: Any, _question: Any) -> types.ElicitResult:
        return types.ElicitResult(action="accept", content={"size": ["large"]})

    # Use the SDK's client, because that of FastMCP 4.2 checks forms itself.
    server = create_mcp_server("gate", tools=[toolset])._mcp_server
    async with SDKClient(server, mode=mode, elicitation_callback=answer) as client:
        failed = await client.call_tool("brew", {"drink": "tea"})
        assert "answer of the user cannot be used: " in failed.content[0].text
        assert failed.content[0].text.endswith("does not fit the form: size")
        assert (await client.call_tool("pay", {})).content[0].text == "accept"


async def test_a_client_that_never_answers_does_not_block_the_call_forever(toolset, monkeypatch):
    async def never(*_):
        await asyncio.sleep(LIMIT)

    monkeypatch.setattr(calls, "ANSWER_TIMEOUT", 0.1)
    async with Client(create_mcp_server("gate", tools=[toolset]), mode="legacy", elicitation_handler=never) as client:
        for tool, arguments in (("brew", {"drink": "tea"}), ("pay", {})):
            with pytest.raises(ToolError, match="who did not reply in time"):
                await client.call_tool(tool, arguments)


async def test_a_call_fails_if_the_server_never_stops_asking(toolset):
    server, user = create_mcp_server("gate", tools=[toolset]), User(size="large")
    async with Client(server, mode="legacy", elicitation_handler=user) as client:
        with pytest.raises(ToolError, match="asked more than 20 times"):
            await client.call_tool("nag", {})
    assert len(user.asked) == 20


async def test_a_call_is_continued_at_its_server_and_only_with_the_same_tool_and_arguments(toolset):
    gates = [create_mcp_server("gate", tools=[toolset]) for _ in range(2)]
    handlers = MCPHandlers(elicitation=answer_later)
    first, stranger = (MCPToolset(InProcessServerInfo(gate), handlers=handlers) for gate in gates)
    with first, stranger:
        [brew] = [tool for tool in first if tool.name == "brew"]
        with pytest.raises(MCPCallPendingError) as pending:
            await brew.invoke_async(drink="tea")
        call = replace(pending.value.pending_call, server="")
        answers = {question.key: {"size": "large"} for question in call.questions}
        assert [question.message for question in call.questions] == ["Which size?"]
        with pytest.raises(MCPInvocationError, match=r"[Ss]tate"):
            await stranger["brew"].continue_call_async(call, answers)
        with pytest.raises(MCPInvocationError, match=r"[Ss]tate"):
            await first["count"].continue_call_async(replace(call, tool_name="count", arguments={}), answers)
        result = await first["brew"].continue_call_async(call, answers)
    assert result.raw.content[0].text == "a large tea"


async def test_failed_reads_of_another_server_are_reported_without_its_details(upstream, toolset, caplog):
    def broken() -> str:
        raise RuntimeError("a-detail-of-the-error")

    async def refuse(_context, _parameters):
        raise MCPError(-32050, "the shelf is locked")

    upstream.server.resource("shelf://broken")(broken)
    upstream.server.prompt()(broken)
    async with Client(create_mcp_server("gate", tools=[toolset])) as client:
        with pytest.raises(Exception, match="resource 'shelf://broken' did not return it") as resource:
            await client.read_resource("shelf://broken")
        with pytest.raises(Exception, match="The server behind prompt 'broken' did not return it") as prompt:
            await client.get_prompt("broken")
        assert (await client.read_resource("shelf://top"))[0].text == "jam"
        assert "a-detail-of-the-error" not in f"{resource.value}{prompt.value}"

        # A list that fails upstream is empty, and the rest is served.
        upstream.server._lowlevel_server.add_request_handler("prompts/list", types.PaginatedRequestParams, refuse)
        assert await client.list_prompts() == []
        assert "shelf://top" in [str(each.uri) for each in await client.list_resources()]
    assert "the shelf is locked" in caplog.text


async def test_bytes_that_are_not_base64_are_an_error_not_other_bytes():
    listed, contents = {"uri": "x://y", "name": "y"}, {"uri": "x://y", "blob": "!!!notb64"}
    about = {"protocolVersion": "2025-06-18", "serverInfo": {"name": "raw", "version": "1"}}
    results = {
        "initialize": {**about, "capabilities": {"tools": {}, "resources": {}}},
        "resources/list": {"resources": [listed]},
        "resources/read": {"contents": [contents]},
    }
    async with Client(create_mcp_server("gate", tools=[MCPToolset(raw_server("json", results))])) as client:
        with pytest.raises(Exception, match="The server behind resource 'x://y' did not return it"):
            await client.read_resource("x://y")


async def test_resources_and_prompts_of_the_other_server_are_served_unless_turned_off(upstream, toolset):
    @upstream.server.resource("shelf://logo", mime_type="image/png")
    def logo() -> bytes:
        return b"\x89PNG\xff"

    async with Client(create_mcp_server("gate", tools=[toolset])) as client:
        top, picture = await client.list_resources()
        assert (str(top.uri), top.meta["board"]) == ("shelf://top", 1)
        assert (await client.read_resource("shelf://top"))[0].text == "jam"
        [content] = await client.read_resource(str(picture.uri))
        assert (b64decode(content.blob), content.mime_type) == (b"\x89PNG\xff", "image/png")
        assert [each.uri_template for each in await client.list_resource_templates()] == ["shelf://{board}/count"]
        assert (await client.read_resource("shelf://low/count"))[0].text == "low: 3"
        [prompt] = await client.list_prompts()
        assert [argument.name for argument in prompt.arguments] == ["what"]
        assert (await client.get_prompt("praise", {"what": "tea"})).messages[0].content.text == "Praise tea."
    async with Client(create_mcp_server("gate", tools=[(toolset, ServeOptions(forward=False))])) as client:
        assert await client.list_resources() == []
        assert await client.list_prompts() == []
        assert await client.list_tools() != []


async def test_arguments_of_prompts_are_completed_by_the_other_server_if_it_completes_any(upstream, toolset):
    what = types.PromptReference(name="praise"), {"name": "what", "value": "t"}
    async with Client(create_mcp_server("gate", tools=[toolset])) as client:
        assert (await client.complete(*what)).values == []

    @upstream.server.completion()
    async def complete(ref: Any, argument: Any, context: Any) -> types.Completion:
        return types.Completion(values=[f"{argument.value}ea of {ref.name} at {context.arguments['time']}"])

    async with Client(create_mcp_server("gate", tools=[toolset])) as client:
        assert (await client.complete(*what, {"time": "five"})).values == ["tea of praise at five"]
        with pytest.raises(MCPError):
            await client.complete(*what)


async def test_a_client_that_may_not_use_the_tools_of_the_other_server_may_not_read_from_it(toolset):
    auth = StaticTokenVerifier({"token": {"client_id": "c", "scopes": []}})
    server = create_mcp_server("gate", tools=[(toolset, ServeOptions(scopes=["admin"]))], auth=auth)
    async with Client(server) as client:
        for listing in ("tools", "resources", "resource_templates", "prompts"):
            assert await getattr(client, f"list_{listing}")() == []
        for uri in ("shelf://top", "shelf://low/count"):
            with pytest.raises(MCPError, match="not found"):
                await client.read_resource(uri)
        with pytest.raises(MCPError, match="Unknown prompt"):
            await client.get_prompt("praise", {"what": "tea"})


async def test_local_objects_are_found_without_asking_another_server_which_may_hang():
    asked = []
    toolset = MCPToolset(InProcessServerInfo(build_changing_server(lambda what, **_: asked.append(what))))
    store = InMemoryDocumentStore()
    store.write_documents([Document(id="jam", content="Jam.")])
    own = {"document_stores": {"shelf": store}, "prompts": {"greet": PromptBuilder("Hello!")}}
    async with Client(create_mcp_server("gate", tools=[toolset], **own)) as client:
        asked.clear()
        assert (await client.read_resource("documents://shelf/jam"))[0].text == "Jam."
        assert '"jam"' in (await client.read_resource("documents://shelf?limit=1"))[0].text
        assert (await client.get_prompt("greet")).messages[0].content.text == "Hello!"
        for uri, is_asked in (("documents://shelf/tea", False), ("documents://other/tea", True)):
            assert not {"@resources/list", "@resources/templates/list", "@prompts/list"} & {*asked}
            with pytest.raises(MCPError, match="not found"):
                await client.read_resource(uri)
            assert ("@resources/list" in asked) is is_asked


async def test_unusual_uris_templates_with_operators_and_links_in_results_can_be_read(upstream, mode):
    uris = ["shelf://top", "notes/1", "shelf://left side/1", "shelf://über", "SHELF://Low"]
    operators = ["files://{+path}", "pages://shelf{/board*}{?lines}", "{broken"]

    async def listing(_context, _parameters):
        return types.ListResourcesResult(resources=[types.Resource(uri=each, name=each) for each in uris])

    async def templates(_context, _parameters):
        listed = [types.ResourceTemplate(name=each, uri_template=each) for each in operators]
        return types.ListResourceTemplatesResult(resource_templates=listed)

    async def read(_context, parameters):
        return types.ReadResourceResult(
            contents=[types.TextResourceContents(uri=parameters.uri, text=f"read {parameters.uri}")]
        )

    @upstream.server.tool()
    def link() -> list[types.ResourceLink]:
        return [types.ResourceLink(type="resource_link", name="it", uri="linked://once")]

    handle = upstream.server._lowlevel_server.add_request_handler
    handle("resources/list", types.PaginatedRequestParams, listing)
    handle("resources/templates/list", types.PaginatedRequestParams, templates)
    handle("resources/read", types.ReadResourceRequestParams, read)
    toolset = MCPToolset(upstream.info)
    async with Client(create_mcp_server("gate", tools=[toolset]), mode=mode) as client:
        assert [each.uri for each in await client.list_resources()] == uris
        # Use the session, because FastMCP's client rewrites URIs.
        for uri in uris:
            assert (await client.session.read_resource(uri)).contents[0].text == f"read {uri}"
        # Clients that know only URLs ask in this form.
        assert (await client.session.read_resource("shelf://%C3%BCber")).contents[0].text == "read shelf://über"
        for uri in ("files:///home/notes.txt", "files://notes.txt", "pages://shelf/top/left?lines=3"):
            assert (await client.read_resource(uri))[0].text == f"read {uri}"
        for uri in ("files://../../secret", "pages://other", "linked://once"):
            with pytest.raises(Exception, match=r"not found|Unknown"):
                await client.read_resource(uri)
        await client.call_tool("link", {})
        assert (await client.read_resource("linked://once"))[0].text == "read linked://once"
        with pytest.raises(Exception, match=r"not found|Unknown"):
            await client.read_resource("linked://twice")


@rows("prefix", None, "second")
async def test_prompts_with_the_same_name_get_the_prefix_of_the_tools_or_the_last_one_is_served(
    upstream, caplog, prefix
):
    second = MCPServer("second")
    second.prompt(name="praise")(lambda what: f"Sing of {what}.")
    prefixed = MCPToolset(InProcessServerInfo(second), tool_name_prefix=prefix)
    names = ["praise", "second_praise"] if prefix else ["praise"]
    caplog.clear()
    async with Client(create_mcp_server("gate", tools=[MCPToolset(upstream.info), prefixed])) as client:
        assert sorted(prompt.name for prompt in await client.list_prompts()) == names
        assert (await client.get_prompt(names[-1], {"what": "tea"})).messages[0].content.text == "Sing of tea."
    told = caplog.text.count("There are two things named 'praise'. The one that was given first is not served.")
    assert told == (0 if prefix else 1)


async def test_clients_are_notified_when_the_other_server_has_more_tools_or_resources():
    told = asyncio.Queue()

    async def note(message):
        await told.put(getattr(message, "method", None))

    toolset = MCPToolset(InProcessServerInfo(build_changing_server()))
    server = create_mcp_server("gate")
    async with asyncio.timeout(LIMIT), Client(server, mode="legacy", message_handler=note) as client:
        server.add_tool(toolset)
        assert "more" not in {each.name for each in await client.list_tools()}
        before = {str(each.uri) for each in await client.list_resources()}
        # The first notification may come from the start, when changes may have been missed.
        for _ in range(2):
            await client.call_tool("list_more", {})
            while await told.get() != "notifications/resources/list_changed":
                pass
        await client.call_tool("offer", {"name": "more"})
        while "more" not in {each.name for each in await client.list_tools()}:
            await told.get()
        assert {str(each.uri) for each in await client.list_resources()} - before == {"memo://more"}


async def test_clients_are_notified_when_a_missing_server_becomes_available():
    is_there, told = threading.Event(), asyncio.Queue()

    @asynccontextmanager
    async def start(_server):
        if not is_there.is_set():
            raise RuntimeError("not yet")
        yield

    async def note(message):
        await told.put(getattr(message, "method", None))

    late = FastMCP("late", lifespan=start)  # which does not announce changes itself
    late.tool(name="add")(lambda: 1)
    toolset = MCPToolset(InProcessServerInfo(late), required=False)
    server = create_mcp_server("gate", tools=[toolset])
    async with asyncio.timeout(LIMIT), Client(server, mode="legacy", message_handler=note) as client:
        assert (await client.list_tools(), await client.list_resources()) == ([], [])
        is_there.set()
        while await told.get() != "notifications/tools/list_changed":
            pass
        assert [each.name for each in await client.list_tools()] == ["add"]


@pytest.mark.parametrize("more", [{}, {"inputs": ["amount"]}, {"bound": {"customer": "C"}}])
async def test_options_choose_the_arguments_of_another_servers_tool_that_clients_may_set(caplog, more):
    fields = {name: {"type": "string"} for name in ("amount", "customer", "note")}
    pay = definition("pay", {"type": "object", "properties": fields, "required": ["customer"]})
    upstream = ForeignServer(pay, definition("look"))
    from_state = None if "inputs" in more else {"pay": {"user": "customer"}}
    toolset = MCPToolset(upstream.info, inputs_from_state=from_state)
    options = {"inputs": ["amount"], **more}
    async with Client(create_mcp_server("gateway", tools=[toolset], options={"pay": options})) as client:
        names = [tool.name for tool in await client.list_tools()]
        if "bound" not in more:
            assert names == ["look"]  # nobody sets the customer of the other tool
            assert "ServeOptions(bound={'customer': ...})" in caplog.text
            return
        with pytest.raises(ToolError, match="there is no argument 'note'"):
            await client.call_tool("pay", {"amount": "1", "note": "x"})
        await client.call_tool("pay", {"amount": "1"})
    assert upstream.calls == [("pay", {"amount": "1", "customer": "C"})]


@rows(
    ("options", "reason"),
    ({"bound": {"custmer": "C"}}, "`bound` names 'custmer', which is not among the arguments of tool 'pay': customer."),
    ({"outputs": ["receipt"]}, "`outputs` cannot be chosen for tool 'pay'"),
)
async def test_a_tool_of_another_server_is_not_served_with_options_that_would_be_ignored(caplog, options, reason):
    pay = definition("pay", {"type": "object", "properties": {"customer": {"type": "string"}}})
    toolset = MCPToolset(ForeignServer(pay).info)
    async with Client(create_mcp_server("gateway", tools=[toolset], options={"pay": options})) as client:
        assert await client.list_tools() == []
    assert reason in caplog.text


async def test_a_change_that_is_noted_as_the_server_stops_opens_no_session(upstream, monkeypatch):
    noted: list[Any] = []
    watch = MCPToolset.on_list_change
    monkeypatch.setattr(MCPToolset, "on_list_change", lambda *given: noted.append(given[1]) or watch(*given))
    toolset = MCPToolset(upstream.info)
    async with Client(create_mcp_server("gate", tools=[toolset])) as client:
        assert await client.list_tools() != []
    await asyncio.to_thread(noted[0], "tools")  # the thread that notes a change may begin late
    assert toolset.connection.status().state == "closed"
