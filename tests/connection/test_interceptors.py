# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Interceptors wrap every call, in the thread or loop that the guide names, and never have a call run twice unasked.
"""

import asyncio
import contextvars
import functools
import threading
from collections.abc import Iterator
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
from haystack_integrations.tools.mcp.executor import THREAD_NAME
from tests.conftest import StdioServerFactory
from tests.support.foreign_server import ForeignServer, definition, text_result
from tests.support.identity_server import IdentityServer
from tests.support.processes import CallLog
from tests.support.rows import rows
from tests.support.waiting import wait_until, wait_until_async

HERE = "tests.connection.test_interceptors"

seen: list[str] = []


def outer(call: MCPToolCall, call_next: Any) -> Any:
    seen.append(f"outer {call.name}")
    result = call_next(call)
    seen.append("outer end")
    return result


async def middle(call: MCPToolCall, call_next: Any) -> Any:
    seen.append(f"middle {call.name}")
    result = await call_next(call)
    seen.append("middle end")
    return result


def inner(call: MCPToolCall, call_next: Any) -> Any:
    seen.append(f"inner {call.name}")
    result = call_next(call)
    seen.append("inner end")
    return result


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


@pytest.fixture(autouse=True)
def nothing_seen() -> Iterator[None]:
    seen.clear()
    yield
    seen.clear()


def awaiting(function: Any) -> Any:
    """
    An async interceptor that does the same as the sync one, whose calls of `call_next` are awaited.
    """

    @functools.wraps(function)
    async def interceptor(call: MCPToolCall, call_next: Any) -> Any:
        steps = function(call, call_next)
        try:
            step = next(steps)
            while True:
                try:
                    result = await step
                except Exception as error:
                    step = steps.throw(error)
                else:
                    step = steps.send(result)
        except StopIteration as end:
            return end.value

    return interceptor


def waiting(function: Any) -> Any:
    """
    A sync interceptor of the same generator.
    """

    @functools.wraps(function)
    def interceptor(call: MCPToolCall, call_next: Any) -> Any:
        async def step_of(following: MCPToolCall) -> Any:
            return call_next(following)  # so that nothing is waited for in an event loop

        with pytest.raises(StopIteration) as end:
            awaiting(function)(call, step_of).send(None)
        return end.value.value

    return interceptor


# The generator yields what `call_next` gives, and gets its result: one text for both kinds of interceptors.
every_kind = pytest.mark.parametrize("kind", [waiting, awaiting], ids=["sync", "async"])


async def both_ways(tool: MCPTool, **arguments: Any) -> list[Any]:
    """
    The results of a blocking and of an awaited call.
    """
    return [
        (await asyncio.to_thread(tool.call, **arguments)).structured["result"],
        (await tool.call_async(**arguments)).structured["result"],
    ]


def retrying(call: MCPToolCall, call_next: Any) -> Any:
    for attempt in range(3):
        try:
            return (yield call_next(call))
        except MCPInvocationError as error:
            seen.append(type(error).__name__)
            if attempt == 2:
                raise


class TestOrder:
    async def test_the_first_is_outermost_and_both_kinds_mix_in_blocking_and_awaited_calls(self, stdio_server):
        with MCPTool("add", stdio_server().info(), interceptors=[outer, middle, inner]) as tool:
            assert await both_ways(tool, a=1, b=2) == [3, 3]
        story = ["outer add", "middle add", "inner add", "inner end", "middle end", "outer end"]
        assert seen == 2 * story

    async def test_sync_ones_run_in_a_thread_of_their_own_and_async_ones_in_the_loop_of_sessions(self, stdio_server):
        threads: list[str] = []
        variable: contextvars.ContextVar[str] = contextvars.ContextVar("variable", default="of a thread")

        def sync(call: MCPToolCall, call_next: Any) -> Any:
            threads.append(threading.current_thread().name)
            seen.append(variable.get())
            return call_next(call)

        async def asynchronous(call: MCPToolCall, call_next: Any) -> Any:
            threads.append(threading.current_thread().name)
            seen.append(variable.get())
            return await call_next(call)

        with MCPTool("add", stdio_server().info(), interceptors=[sync, asynchronous, sync]) as tool:
            thread = threading.Thread(target=tool.invoke, kwargs={"a": 1, "b": 2}, name="caller")
            thread.start()
            await asyncio.to_thread(thread.join)
            variable.set("of a task")
            await tool.invoke_async(a=1, b=2)
        assert seen == ["of a thread"] * 3 + ["of a task"] * 3
        own = "mcp-haystack-interceptor"
        assert threads == [own, THREAD_NAME, own] * 2

    async def test_the_tools_of_a_toolset_and_direct_calls_of_a_connection_are_wrapped(self, stdio_server):
        info = stdio_server().info()
        with MCPToolset(info, interceptors=[add_ten]) as toolset:
            assert toolset["add"].call(a=1, b=2).structured == {"result": 13}
        with MCPConnection(info, interceptors=[add_ten]) as connection:
            assert connection.call_tool("add", {"a": 1, "b": 2}).structured_content == {"result": 13}
            answer = await connection.call_tool_async("add", {"a": 1, "b": 2})
            assert answer.structured_content == {"result": 13}


class TestChanges:
    @every_kind
    async def test_another_tool_is_called_with_other_arguments(self, stdio_server, kind):
        def redirected(call: MCPToolCall, call_next: Any) -> Any:
            return (yield call_next(call.override(name="echo", arguments={"text": str(sum(call.arguments.values()))})))

        with MCPTool("add", stdio_server().info(), interceptors=[kind(redirected)]) as tool:
            assert await both_ways(tool, a=1, b=2) == ["3", "3"]

    @every_kind
    @rows("era", [{}, {"handshake": True}], ids=["2026", "sessions"])
    async def test_headers_user_and_meta_are_seen_and_changed(self, kind: Any, era: dict[str, bool]) -> None:
        def signing(call: MCPToolCall, call_next: Any) -> Any:
            assert call.headers == {"X-Tenant": "before"}
            assert call.meta == {"marker": "before", "other": 1}
            assert call.user == "ada"
            changed = call.override(
                headers={"X-Tenant": "after", "Authorization": Secret.from_token("Bearer signed-token")},
                meta={"marker": "after"},
                user="grace",
            )
            return (yield call_next(changed))

        with IdentityServer(**era) as server:
            info = StreamableHttpServerInfo(url=server.url, token=Secret.from_token("base-token"))
            with MCPTool("whoami", info, interceptors=[kind(signing)]) as tool:
                block = {"headers": {"X-Tenant": "before"}, "user": "ada", "meta": {"marker": "before", "other": 1}}
                with mcp_request_context(**block):
                    answers = [await asyncio.to_thread(tool.call, name="x"), await tool.call_async(name="x")]
            for answer in answers:
                told = answer.structured
                assert (told["token"], told["tenant"], told["marker"]) == ("Bearer signed-token", "after", "after")
                assert told["opener"] in (None, "Bearer signed-token")

    async def test_headers_are_refused_where_the_transport_has_none(self, stdio_server: StdioServerFactory) -> None:
        def adding_header(call: MCPToolCall, call_next: Any) -> Any:
            return call_next(call.override(headers={"X-Tenant": "t"}))

        server = stdio_server()
        with MCPTool("add", server.info(), interceptors=[adding_header]) as tool:
            with pytest.raises(MCPInvocationError, match=r"not reached over HTTP.*or of an interceptor.*did not run"):
                await tool.invoke_async(a=1, b=2)
            with pytest.raises(MCPInvocationError, match="did not run"):
                tool.invoke(a=1, b=2)
        assert server.log.events("add") == []

    async def test_bound_secrets_are_seen_and_not_shown(self, stdio_server: StdioServerFactory) -> None:
        calls: list[MCPToolCall] = []

        def looking(call: MCPToolCall, call_next: Any) -> Any:
            calls.append(call)
            if len(calls) > 1:
                msg = f"no {call.arguments['token']}"
                raise PermissionError(msg)
            return call_next(call)

        secret = Secret.from_token("s3cret-of-mine")
        bound = {"token": secret}
        with MCPTool("secret_echo", stdio_server().info(), bound_arguments=bound, interceptors=[looking]) as tool:
            assert "14 characters" in tool.call(text="hi").text
            with pytest.raises(MCPInvocationError) as raised:
                tool.call(text="hi")
        assert calls[0].arguments == {"text": "hi", "token": "s3cret-of-mine"}
        assert repr(calls[0]) == (
            "MCPToolCall(name='secret_echo', arguments=['text', 'token'], meta=[], headers=[], "
            f"server={calls[0].server!r})"
        )
        assert "looking' raised PermissionError: no ***" in str(raised.value)
        assert raised.value.__cause__ is raised.value.__context__ is None
        assert raised.value.tool_args == {"text": "hi"}

    def test_a_call_cannot_be_changed_in_place(self) -> None:
        arguments = {"a": 1}
        call = MCPToolCall(name="add", arguments=arguments)
        arguments["a"] = 2
        assert call.arguments == {"a": 1}
        with pytest.raises(TypeError):
            call.arguments["a"] = 2  # type: ignore[index]
        with pytest.raises(AttributeError):
            call.name = "other"  # type: ignore[misc]


class TestAnswers:
    @every_kind
    @pytest.mark.parametrize(
        ("answer", "text", "structured"),
        [
            ("cached", "cached", None),
            ({"result": "é"}, '{"result": "é"}', {"result": "é"}),
            (text_result("whole", structured_content={"result": 1}), "whole", {"result": 1}),
            (MCPToolResult.from_result(text_result("typed")), "typed", None),
        ],
    )
    async def test_a_call_may_be_answered_without_the_server(self, stdio_server, kind, answer, text, structured):
        def cached(call: MCPToolCall, call_next: Any) -> Any:
            return answer
            yield

        server = stdio_server()
        with MCPTool("add", server.info(), interceptors=[kind(cached)]) as tool:
            for result in [await asyncio.to_thread(tool.call, a=1, b=2), await tool.call_async(a=1, b=2)]:
                assert (result.text, result.structured) == (text, structured)
        assert server.log.events("add") == []

    @every_kind
    async def test_the_result_is_seen_and_changed(self, stdio_server: StdioServerFactory, kind: Any) -> None:
        def noting(call: MCPToolCall, call_next: Any) -> Any:
            result = yield call_next(call)
            assert isinstance(result, types.CallToolResult)
            return result.model_copy(update={"meta": {"of": result.structured_content["result"]}})

        with MCPTool("add", stdio_server().info(), interceptors=[kind(noting)]) as tool:
            assert (await asyncio.to_thread(tool.call, a=1, b=2)).meta == {"of": 3}
            assert (await tool.call_async(a=1, b=2)).meta == {"of": 3}


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


class TestErrors:
    @rows(
        ("interceptor", "expected", "message"),
        [
            (returning(None), MCPInvocationError, "careless' returned None; return what"),
            (returning(5), MCPInvocationError, "careless' returned int; return what"),
            (returning({"x": object()}), MCPInvocationError, "careless' raised TypeError: Object of type object"),
            (lambda call, _: middle(call, None), MCPInvocationError, "returned coroutine; define it with `async def`"),
            (hasty, MCPInvocationError, r"hasty' returned coroutine; `await call_next\(call\)`\."),
            (
                lambda call, call_next: call_next(call.arguments),
                MCPInvocationError,
                "TypeError: it passed mappingproxy",
            ),
            (raising(KeyError), MCPInvocationError, "`add`: the interceptor '.*broken' raised KeyError"),
            (raising(TimeoutError), MCPTimeoutError, "broken' raised TimeoutError"),
            (raising(StopIteration), MCPInvocationError, "broken' raised .*StopIteration"),
        ],
    )
    async def test_a_mistake_of_an_interceptor_is_an_error_that_names_it(
        self, stdio_server: StdioServerFactory, interceptor: Any, expected: Any, message: str
    ) -> None:
        with MCPTool("add", stdio_server().info(), interceptors=[outer, interceptor]) as tool:
            for call in (lambda: asyncio.to_thread(tool.call, a=1, b=2), lambda: tool.call_async(a=1, b=2)):
                with pytest.raises(expected, match=message) as raised:
                    await call()
                assert not isinstance(raised.value, MCPOutcomeUnknownError)

    @every_kind
    async def test_errors_of_the_call_keep_their_types(self, stdio_server: StdioServerFactory, kind: Any) -> None:
        def passing(call: MCPToolCall, call_next: Any) -> Any:
            return (yield call_next(call))

        info = stdio_server().info()
        for name, arguments, timeout, expected in (
            ("refuse", {"message": "no"}, 30, MCPInvocationError),
            ("sleep", {"seconds": 30}, 0.3, MCPCallTimeoutError),
            ("die", {}, 30, MCPOutcomeUnknownError),
        ):
            with MCPTool(name, info, invocation_timeout=timeout, interceptors=[kind(passing), middle]) as tool:
                with pytest.raises(expected) as error:
                    await tool.call_async(**arguments)
                assert type(error.value) is expected
                assert name != "refuse" or error.value.code == -32050


class TestReplays:
    @every_kind
    async def test_a_call_that_may_have_run_is_not_sent_again(self, stdio_server, kind):
        server = stdio_server()
        with MCPTool("sleep", server.info(), invocation_timeout=0.6, interceptors=[kind(retrying)]) as tool:
            for call in (lambda: asyncio.to_thread(tool.call, seconds=30), lambda: tool.call_async(seconds=30)):
                with pytest.raises(MCPOutcomeUnknownError, match=r"sent the call again, but.*`retry_idempotent`"):
                    await call()
        assert len(server.log.events("sleep")) == 2  # once for each call
        assert seen == ["MCPCallTimeoutError", "MCPOutcomeUnknownError", "MCPOutcomeUnknownError"] * 2

    async def test_a_call_of_an_idempotent_tool_is_sent_again_where_the_user_opted_in(self) -> None:
        server = ForeignServer(
            definition("look", annotations=types.ToolAnnotations(read_only_hint=True)), definition("act")
        )
        arrived: list[str] = []

        async def slow(_context: Any, params: types.CallToolRequestParams) -> types.CallToolResult:
            arrived.append(params.name)
            if len(arrived) < 3:
                await asyncio.sleep(60)
            return text_result("seen")

        server.info.server.add_request_handler("tools/call", types.CallToolRequestParams, slow)
        options: dict[str, Any] = {"invocation_timeout": 0.8, "tool_options": ToolOptions(retry_idempotent=True)}
        with MCPToolset(server.info, **options, interceptors=[waiting(retrying)]) as toolset:
            assert (await toolset["look"].call_async()).text == "seen"
            assert arrived == ["look"] * 3
            arrived.clear()
            with pytest.raises(MCPOutcomeUnknownError):
                await toolset["act"].call_async()
            assert arrived == ["act"]

    async def test_an_error_of_the_tool_may_be_answered_with_another_call(self, stdio_server):
        server = stdio_server()
        with MCPTool("fail", server.info(), interceptors=[waiting(retrying)]) as tool:
            with pytest.raises(MCPInvocationError, match="no"):
                await tool.call_async(message="no")
        assert len(server.log.events("fail")) == 3

    async def test_a_call_that_is_under_way_is_not_sent_beside(self, stdio_server: StdioServerFactory) -> None:
        async def hedging(call: MCPToolCall, call_next: Any) -> Any:
            results = await asyncio.gather(call_next(call), call_next(call), return_exceptions=True)
            assert isinstance(results[1], MCPOutcomeUnknownError)
            return results[0]

        async def splitting(call: MCPToolCall, call_next: Any) -> Any:
            parts = [call.override(arguments={"seconds": 0.01 * number}) for number in (1, 2)]
            return (await asyncio.gather(*map(call_next, parts)))[1]

        server = stdio_server()
        for interceptor in (hedging, splitting):
            with MCPTool("sleep", server.info(), interceptors=[interceptor]) as tool:
                assert (await tool.call_async(seconds=0.02)).text == "slept 0.02 s"
        assert len(server.log.events("sleep")) == 3

    async def test_a_call_that_an_interceptor_gave_up_counts_as_one_that_may_have_run(self, stdio_server):
        async def impatient(call: MCPToolCall, call_next: Any) -> Any:
            try:
                return await asyncio.wait_for(call_next(call), 0.6)
            except TimeoutError:
                return await call_next(call)

        async def giving_up(call: MCPToolCall, call_next: Any) -> Any:
            return await asyncio.wait_for(call_next(call), 0.6)

        server = stdio_server()
        with MCPTool("sleep", server.info(), interceptors=[impatient]) as tool:
            with pytest.raises(MCPOutcomeUnknownError, match="sent before and not answered"):
                await tool.call_async(seconds=30)
        with MCPTool("sleep", server.info(), interceptors=[giving_up]) as tool:
            with pytest.raises(MCPCallTimeoutError, match=r"giving_up' raised TimeoutError\. The tool may have run"):
                await tool.call_async(seconds=30)
        assert len(server.log.events("sleep")) == 2

    async def test_another_tool_may_be_called_instead(self, stdio_server: StdioServerFactory) -> None:
        async def falling_back(call: MCPToolCall, call_next: Any) -> Any:
            try:
                return await call_next(call)
            except MCPOutcomeUnknownError:
                return await call_next(call.override(name="echo", arguments={"text": "instead"}))

        with MCPTool("die", stdio_server().info(), interceptors=[falling_back]) as tool:
            assert (await tool.call_async()).text == "instead"


class TestCancellation:
    @pytest.mark.parametrize("interceptors", [[inner], [middle], [outer, middle, inner]], ids=["sync", "async", "both"])
    async def test_a_cancelled_caller_cancels_the_call_on_the_server(self, stdio_server, interceptors):
        server = stdio_server()
        with MCPTool("sleep", server.info(), interceptors=interceptors) as tool:
            call = asyncio.create_task(tool.call_async(seconds=60))
            await _arrived(server.log, "sleep")
            call.cancel()
            with pytest.raises(asyncio.CancelledError):
                await call
            await _arrived(server.log, "sleep-cancelled")
            await wait_until_async(_no_threads, "the threads of the interceptors end")


async def _arrived(log: CallLog, event: str) -> None:
    await wait_until_async(lambda: log.events(event), f"{event} is recorded")


def _no_threads() -> bool:
    return all(thread.name != "mcp-haystack-interceptor" for thread in threading.enumerate())


class TestProgress:
    async def test_progress_of_a_wrapped_call_arrives_where_the_caller_is(self) -> None:
        with IdentityServer() as server:
            info = StreamableHttpServerInfo(url=server.url, token=Secret.from_token("base-token"))
            for interceptors in ([inner], [middle], [outer, middle, inner]):
                with MCPConnection(info, interceptors=interceptors) as connection:
                    threads: list[Any] = []

                    def note(report: Any, threads: list[Any] = threads) -> None:
                        threads.append((report.progress, threading.current_thread()))

                    await connection.call_tool_async("steps", {"count": 3}, on_progress=note)
                    here = threading.current_thread()
                    assert threads == [(number, here) for number in (0.0, 1.0, 2.0)]
                    threads.clear()
                    connection.call_tool("steps", {"count": 3}, on_progress=note)
                    assert threads == [(number, here) for number in (0.0, 1.0, 2.0)]


class TestParameter:
    def test_loaded_interceptors_wrap_calls(self, stdio_server: StdioServerFactory) -> None:
        made = MCPTool(
            "add",
            stdio_server().info(),
            interceptors=[add_ten, f"{HERE}:add_hundred", Adding(1000)],
        )
        stored = made.to_dict()
        assert stored["data"]["interceptors"] == [
            f"{HERE}.add_ten",
            f"{HERE}:add_hundred",
            {"type": f"{HERE}.Adding", "init_parameters": {"number": 1000}},
        ]
        with MCPTool.from_dict(stored) as tool:
            assert tool.call(a=1, b=2).structured == {"result": 1113}

    @rows("interceptor", [lambda call, call_next: call_next(call), waiting(retrying), functools.partial(outer)])
    def test_what_has_no_import_path_is_an_error_of_to_dict(self, interceptor: Any) -> None:
        tool = MCPTool("add", StreamableHttpServerInfo(url="http://localhost:1/mcp"), interceptors=[interceptor])
        with pytest.raises(SerializationError, match=r"`interceptors`.*cannot be serialized.*top of a module"):
            tool.to_dict()
        tool._to_trace_dict()

    @rows(
        ("interceptors", "named"),
        [
            (outer, "must be (a list of functions|a valid list)"),
            ("tests.x:y", "must be (a list of functions|a valid list)"),
            ([5], "got int"),
            (["tests.nothing:here"], "'tests.nothing:here' cannot be imported"),
            ([f"{HERE}:missing"], "cannot be imported"),
            ([f"{HERE}:HERE"], "got '.*', which is str"),
            ([lambda call: call], "must take two arguments"),
        ],
    )
    @rows("kind", [MCPTool, MCPToolset, MCPConnection])
    def test_invalid_ones_are_refused_at_construction(self, kind: Any, interceptors: Any, named: str) -> None:
        info = StreamableHttpServerInfo(url="http://localhost:1/mcp")
        arguments = ("add", info) if kind is MCPTool else (info,)
        with pytest.raises(ValueError, match=f"`interceptors`.*{named}"):
            kind(*arguments, interceptors=interceptors)

    def test_tools_with_and_without_interceptors_share_a_session(self, stdio_server: StdioServerFactory) -> None:
        info = stdio_server().info()
        with MCPTool("pid", info, interceptors=[inner]) as one, MCPTool("pid", info) as other:
            assert one.call().structured == other.call().structured
            wait_until(lambda: one.connection.status().users == 2, "both are users")
