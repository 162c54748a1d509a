# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Interceptors wrap every call, in the thread or loop that the guide names, and never make a call run twice unasked.
"""

import asyncio
import contextvars
import functools
import threading
from typing import Any

import pytest
from haystack.core.errors import SerializationError
from haystack.utils import Secret
from mcp import types

from haystack_integrations.tools.mcp import (
    MCPCallTimeoutError,
    MCPConnection,
    MCPInvocationError,
    MCPOutcomeUnknownError,
    MCPTool,
    MCPToolCall,
    MCPToolResult,
    MCPToolset,
    StreamableHttpServerInfo,
    ToolOptions,
    mcp_request_context,
)
from haystack_integrations.tools.mcp.errors import MCPTimeoutError
from haystack_integrations.tools.mcp.executor import THREAD_NAME, AsyncExecutor
from tests.support.background import in_thread
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.identity_server import IdentityServer
from tests.support.rows import rows
from tests.support.waiting import LIMIT, wait_until_async

HERE = "tests.connection.test_interceptors"


def passing(call: MCPToolCall, call_next: Any) -> Any:
    return call_next(call)


async def passing_async(call: MCPToolCall, call_next: Any) -> Any:
    return await call_next(call)


def add_ten(call: MCPToolCall, call_next: Any) -> Any:
    return call_next(call.override(arguments={**call.arguments, "a": call.arguments["a"] + 10}))


class Adding:
    """An interceptor with settings."""

    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, call: MCPToolCall, call_next: Any) -> Any:
        return call_next(call.override(arguments={**call.arguments, "a": call.arguments["a"] + self.number}))

    def to_dict(self) -> dict[str, Any]:
        return {"type": f"{HERE}.Adding", "init_parameters": {"number": self.number}}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> "Adding":
        return cls(**data["init_parameters"])


add_hundred = Adding(100)


async def test_the_first_interceptor_is_outermost_and_each_kind_runs_in_its_place_and_context(stdio_server):
    story: list[tuple[str, str, str]] = []
    variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="of a thread")

    def note(event: str) -> None:
        story.append((event, threading.current_thread().name, variable.get()))

    def sync(call: MCPToolCall, call_next: Any) -> Any:
        note(f"sync {call.name}")
        result = call_next(call)
        note("end of sync")
        return result

    async def asynchronous(call: MCPToolCall, call_next: Any) -> Any:
        note(f"async {call.name}")
        return await call_next(call)

    with MCPTool("add", stdio_server().info(), interceptors=[sync, asynchronous, sync]) as tool:
        await asyncio.to_thread(in_thread(tool.invoke, a=1, b=2).result, LIMIT)
        variable.set("of a task")
        assert (await tool.call_async(a=1, b=2)).structured == {"result": 3}
    own = "mcp-haystack-interceptor"
    events = [("sync add", own), ("async add", THREAD_NAME), ("sync add", own), *[("end of sync", own)] * 2]
    assert story == [(*event, value) for value in ("of a thread", "of a task") for event in events]


@rows("era", {}, {"handshake": True})
async def test_interceptors_see_and_change_headers_user_and_meta(era):
    async def signing(call: MCPToolCall, call_next: Any) -> Any:
        assert (call.user, call.headers, call.meta) == ("ada", block["headers"], block["meta"])
        signed = {"X-Tenant": "after", "Authorization": Secret.from_token("Bearer signed-token")}
        return await call_next(call.override(headers=signed, meta={"marker": "after"}, user="grace"))

    block = {"headers": {"X-Tenant": "before"}, "user": "ada", "meta": {"marker": "before", "other": 1}}
    with IdentityServer(**era) as server:
        info = StreamableHttpServerInfo(url=server.url, token=Secret.from_token("base-token"))
        with MCPTool("whoami", info, interceptors=[signing]) as tool, mcp_request_context(**block):
            for answer in (await asyncio.to_thread(tool.call, name="x"), await tool.call_async(name="x")):
                told = answer.structured
                assert (told["token"], told["tenant"], told["marker"]) == ("Bearer signed-token", "after", "after")
                assert told["opener"] in (None, "Bearer signed-token")


def test_interceptors_see_bound_secrets_which_are_not_shown(stdio_server):
    calls: list[MCPToolCall] = []

    def looking(call: MCPToolCall, call_next: Any) -> Any:
        calls.append(call)
        if len(calls) > 1:
            raise PermissionError(f"no {call.arguments['token']}")
        return call_next(call)

    bound = {"token": Secret.from_token("s3cret-of-mine")}
    with MCPTool("secret_echo", stdio_server().info(), bound_arguments=bound, interceptors=[looking]) as tool:
        assert "14 characters" in tool.call(text="hi").text
        with pytest.raises(MCPInvocationError, match=r"looking' raised PermissionError: no \*\*\*") as raised:
            tool.call(text="hi")
    assert calls[0].arguments == {"text": "hi", "token": "s3cret-of-mine"}
    assert repr(calls[0]).startswith("MCPToolCall(name='secret_echo', arguments=['text', 'token'], meta=[], ")
    assert raised.value.__cause__ is raised.value.__context__ is None
    assert raised.value.tool_args == {"text": "hi"}
    arguments = {"text": "hi", "token": "s3cret-of-mine"}
    with MCPConnection(stdio_server().info(), interceptors=[looking]) as connection:
        with pytest.raises(MCPInvocationError, match=r"PermissionError: no \*\*\*") as raised:
            connection.call_tool("secret_echo", arguments, secrets=["s3cret-of-mine"])
    assert raised.value.__cause__ is None


def test_the_error_of_a_tool_passes_interceptors_without_the_arguments_that_they_added(stdio_server):
    def adding(call: MCPToolCall, call_next: Any) -> Any:
        return call_next(call.override(arguments={"message": "added"}))

    with MCPConnection(stdio_server().info(), interceptors=[adding]) as connection:
        with pytest.raises(MCPInvocationError, match=r"^(?!.*interceptor).*added") as raised:
            connection.call_tool("fail", {"message": "given"})
    assert raised.value.tool_args == {"message": "given"}


def test_a_call_cannot_be_changed_in_place():
    arguments = {"a": 1}
    call = MCPToolCall(name="add", arguments=arguments)
    arguments["a"] = 2
    with pytest.raises(TypeError):
        call.arguments["a"] = 2
    assert call.arguments == {"a": 1}


async def test_interceptors_may_answer_a_call_themselves_or_change_its_result(stdio_server):
    async def cached(call: MCPToolCall, call_next: Any) -> Any:
        return answers.pop()

    def noting(call: MCPToolCall, call_next: Any) -> Any:
        result = call_next(call)
        assert isinstance(result, types.CallToolResult)
        return result.model_copy(update={"meta": {"of": result.content[0].text}})

    answers: list[Any] = []
    server = stdio_server()
    with MCPTool("add", server.info(), interceptors=[noting, cached]) as tool:
        for answer, said, structured in (
            ("cached", "cached", None),
            ({"result": "é"}, '{"result": "é"}', {"result": "é"}),
            (MCPToolResult.from_result(text_result("typed")), "typed", None),
        ):
            answers.append(answer)
            result = await tool.call_async(a=1, b=2)
            assert (result.text, result.structured, result.meta) == (said, structured, {"of": said})
    assert server.log.events("add") == []


def returning(result: Any) -> Any:
    def careless(call: MCPToolCall, call_next: Any) -> Any:
        call_next(call)
        return result

    return careless


def raising(error: type[BaseException]) -> Any:
    def broken(call: MCPToolCall, call_next: Any) -> Any:
        raise error("told")

    return broken


async def hasty(call: MCPToolCall, call_next: Any) -> Any:
    return call_next(call)


@rows(
    ("interceptor", "expected", "message"),
    (returning(None), MCPInvocationError, "careless' returned None; return what"),
    (returning({"x": object()}), MCPInvocationError, "careless' raised TypeError: Object of type object"),
    (lambda call, _: hasty(call, None), MCPInvocationError, "returned coroutine; define it with `async def`"),
    (hasty, MCPInvocationError, r"hasty' returned coroutine; `await call_next\(call\)`\."),
    (lambda call, send: send(call.arguments), MCPInvocationError, "TypeError: it passed mappingproxy"),
    (raising(KeyError), MCPInvocationError, "`add`: the interceptor '.*broken' raised KeyError"),
    (raising(TimeoutError), MCPTimeoutError, "broken' raised TimeoutError"),
)
async def test_a_mistake_in_an_interceptor_is_an_error_that_names_it(stdio_server, interceptor, expected, message):
    with MCPTool("add", stdio_server().info(), interceptors=[passing, interceptor]) as tool:
        with pytest.raises(expected, match=message) as raised:
            await tool.call_async(a=1, b=2)
        assert not isinstance(raised.value, MCPOutcomeUnknownError)


def retrying(call: MCPToolCall, call_next: Any) -> Any:
    for _ in range(2):
        try:
            return call_next(call)
        except MCPInvocationError:
            pass
    return call_next(call)


async def test_interceptors_can_repeat_a_failed_call_but_not_one_that_may_have_run(stdio_server):
    server = stdio_server()
    with MCPTool("sleep", server.info(), invocation_timeout=0.6, interceptors=[retrying]) as tool:
        with pytest.raises(MCPOutcomeUnknownError, match=r"sent the call again, but.*`retry_idempotent`"):
            await tool.call_async(seconds=30)
    with MCPTool("fail", server.info(), interceptors=[retrying]) as tool:
        with pytest.raises(MCPInvocationError, match="no"):
            await tool.call_async(message="no")
    assert [len(server.log.events(name)) for name in ("sleep", "fail")] == [1, 3]


async def test_interceptors_can_repeat_calls_of_an_idempotent_tool_if_the_user_opted_in():
    is_read_only = types.ToolAnnotations(read_only_hint=True)
    server = ForeignServer(definition("look", annotations=is_read_only), definition("act"))
    arrived: list[str] = []

    async def slow(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
        arrived.append(params.name)
        if len(arrived) < 3 or params.name == "act":
            await asyncio.sleep(60)
        return text_result("seen")

    server.info.server.add_request_handler("tools/call", types.CallToolRequestParams, slow)
    options = {"invocation_timeout": 0.8, "tool_options": ToolOptions(retry_idempotent=True)}
    with MCPToolset(server.info, **options, interceptors=[retrying]) as toolset:
        assert (await toolset["look"].call_async()).text == "seen"
        with pytest.raises(MCPOutcomeUnknownError):
            await toolset["act"].call_async()
    assert arrived == ["look", "look", "look", "act"]


async def test_a_lost_call_whose_repetition_did_not_run_may_still_have_run():
    server = ForeignServer(definition("look", annotations=types.ToolAnnotations(read_only_hint=True)))

    async def silent(_context: Any, _params: types.CallToolRequestParams) -> types.CallToolResult:
        await asyncio.sleep(60)
        raise AssertionError

    def repeating(call: MCPToolCall, call_next: Any) -> Any:
        try:
            return call_next(call)
        except MCPOutcomeUnknownError:
            return call_next(call.override(headers={"X-Attempt": "2"}))  # not over HTTP, so it fails

    server.info.server.add_request_handler("tools/call", types.CallToolRequestParams, silent)
    options = {"invocation_timeout": 0.3, "tool_options": ToolOptions(retry_idempotent=True)}
    with MCPToolset(server.info, **options, interceptors=[repeating]) as toolset:
        with pytest.raises(MCPOutcomeUnknownError, match=r"not reached over HTTP.*The tool may have run\.$"):
            await toolset["look"].call_async()


async def test_interceptors_cannot_send_a_second_call_while_the_first_is_running(stdio_server):
    async def hedging(call: MCPToolCall, call_next: Any) -> Any:
        other = call.override(arguments={"seconds": 0.01})
        result, refused, _ = await asyncio.gather(*map(call_next, (call, call, other)), return_exceptions=True)
        assert isinstance(refused, MCPOutcomeUnknownError)
        return result

    server = stdio_server()
    with MCPTool("sleep", server.info(), interceptors=[hedging]) as tool:
        assert (await tool.call_async(seconds=0.02)).text == "slept 0.02 s"
    assert len(server.log.events("sleep")) == 2


async def test_a_call_that_an_interceptor_gave_up_may_have_run_but_another_tool_may_be_called(stdio_server):
    async def giving_up(call: MCPToolCall, call_next: Any) -> Any:
        return await asyncio.wait_for(call_next(call), 0.6)

    async def impatient(call: MCPToolCall, call_next: Any) -> Any:
        try:
            return await giving_up(call, call_next)
        except TimeoutError:
            return await call_next(call)

    async def falling_back(call: MCPToolCall, call_next: Any) -> Any:
        try:
            return await call_next(call)
        except MCPOutcomeUnknownError:
            return await call_next(call.override(name="echo", arguments={"text": "instead"}))

    server = stdio_server()
    for interceptor, expected, message in (
        (impatient, MCPOutcomeUnknownError, "sent before and not answered"),
        (giving_up, MCPCallTimeoutError, r"giving_up' raised TimeoutError\. The tool may have run"),
    ):
        with MCPTool("sleep", server.info(), interceptors=[interceptor]) as tool:
            with pytest.raises(expected, match=message):
                await tool.call_async(seconds=30)
    assert len(server.log.events("sleep")) == 2
    with MCPTool("die", server.info(), interceptors=[falling_back]) as tool:
        assert (await tool.call_async()).text == "instead"


async def test_a_cancelled_caller_cancels_the_call_on_the_server(stdio_server):
    server = stdio_server()
    with MCPTool("sleep", server.info(), interceptors=[passing, passing_async, passing]) as tool:
        call = asyncio.create_task(tool.call_async(seconds=60))
        await server.wait_for_async("sleep")
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        await server.wait_for_async("sleep-cancelled")

        def names() -> list[str]:
            return [thread.name for thread in threading.enumerate()]

        await wait_until_async(lambda: "mcp-haystack-interceptor" not in names(), "the end of the threads")


async def test_a_repetition_that_does_not_run_leaves_open_whether_a_cancelled_call_ran():
    server = ForeignServer(definition("look", annotations=types.ToolAnnotations(read_only_hint=True)))
    arrived = asyncio.Event()

    async def silent(_context: Any, _params: types.CallToolRequestParams) -> types.CallToolResult:
        arrived.set()
        await asyncio.sleep(60)
        raise AssertionError

    async def repeating(call: MCPToolCall, call_next: Any) -> Any:
        first = asyncio.create_task(call_next(call))
        await arrived.wait()
        first.cancel()
        return await call_next(call.override(headers={"X-Attempt": "2"}))  # which no server in this process takes

    server.info.server.add_request_handler("tools/call", types.CallToolRequestParams, silent)
    options = {"tool_options": ToolOptions(retry_idempotent=True)}
    with MCPToolset(server.info, **options, interceptors=[repeating]) as toolset:
        with pytest.raises(MCPOutcomeUnknownError, match="The tool may have run"):
            await toolset["look"].call_async()


def test_an_interceptor_sends_nothing_while_the_executor_is_shut_down(stdio_server, monkeypatch):
    began, is_ending, is_over = threading.Event(), threading.Event(), threading.Event()

    def late(call: MCPToolCall, call_next: Any) -> Any:
        began.set()
        assert is_ending.wait(LIMIT)
        try:
            return call_next(call)
        finally:
            is_over.set()

    async def hook() -> None:
        is_ending.set()
        await wait_until_async(is_over.is_set, "the end of the interceptor")

    server = stdio_server()
    with MCPTool("add", server.info(), interceptors=[late]) as tool:
        call = in_thread(tool.invoke, a=1, b=2)
        assert began.wait(LIMIT)
        hooks = AsyncExecutor.before_shutdown
        monkeypatch.setattr(AsyncExecutor, "before_shutdown", [hook, *hooks])
        AsyncExecutor.get_instance().shutdown(timeout=LIMIT)
        with pytest.raises(MCPInvocationError, match="shut down"):
            call.result(LIMIT)
    assert server.calls("add") == []


def test_loaded_interceptors_wrap_calls_in_a_shared_session(stdio_server):
    info = stdio_server().info()
    stored = MCPTool("add", info, interceptors=[add_ten, f"{HERE}:add_hundred", Adding(1000)]).to_dict()
    assert stored["data"]["interceptors"] == [
        f"{HERE}.add_ten",
        f"{HERE}:add_hundred",
        {"type": f"{HERE}.Adding", "init_parameters": {"number": 1000}},
    ]
    with MCPTool.from_dict(stored) as tool, MCPTool("add", info) as other:
        assert tool.call(a=1, b=2).structured == {"result": 1113}
        assert other.call(a=1, b=2).structured == {"result": 3}
        assert tool.connection.status().users == 2


def test_an_interceptor_without_an_import_path_is_an_error_of_to_dict():
    interceptors = [functools.partial(passing)]
    tool = MCPTool("add", StreamableHttpServerInfo(url="http://localhost:1/mcp"), interceptors=interceptors)
    with pytest.raises(SerializationError, match=r"`interceptors`.*cannot be serialized.*top of a module"):
        tool.to_dict()
    tool._to_trace_dict()


@rows(
    ("interceptors", "named"),
    (passing, "must be (a list of functions|a valid list)"),
    ([5], "got int"),
    (["tests.nothing:here"], "'tests.nothing:here' cannot be imported"),
    ([f"{HERE}:HERE"], "got '.*', which is str"),
    ([lambda call: call], "must take two arguments"),
)
def test_invalid_interceptors_are_refused_at_construction(interceptors: Any, named: str) -> None:
    info = StreamableHttpServerInfo(url="http://localhost:1/mcp")
    for kind in (MCPToolset, MCPConnection):
        with pytest.raises(ValueError, match=f"`interceptors`.*{named}"):
            kind(info, interceptors=interceptors)
