# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The answers to servers that send requests to the client, in both eras of the protocol and over every transport.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from contextvars import ContextVar
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from haystack import component
from haystack.dataclasses import ChatMessage, ChatRole, ImageContent
from mcp import types
from mcp.server import MCPServer
from mcp.server.extension import Extension

from haystack_integrations.tools.mcp import (
    AskUser,
    AsyncExecutor,
    InProcessServerInfo,
    MCPCallTimeoutError,
    MCPConnection,
    MCPHandlers,
    MCPInvocationError,
    MCPSampling,
    StreamableHttpServerInfo,
)
from haystack_integrations.tools.mcp.handlers import accept_defaults, answer_later, decline
from haystack_integrations.tools.mcp.handlers.sampling import Sampler
from haystack_integrations.tools.mcp.handlers.session_handlers import (
    LOGGER_NAME,
    SessionHandlers,
    elicit_result,
)
from haystack_integrations.tools.mcp.redaction import Redactor
from tests.handlers.conftest import EVERY_WAY, Ask
from tests.servers.asking_server import PIXEL, URL
from tests.support.background import in_thread, text, together
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, say
from tests.support.scripted_peer import HttpRequest, ScriptedPeer, response, result
from tests.support.waiting import LIMIT, wait_until, wait_until_async

# The warning comes from the server in this process.
pytestmark = pytest.mark.filterwarnings("ignore:The logging capability is deprecated")

in_every_way = pytest.mark.parametrize("way", EVERY_WAY)


@component
class Silent:
    """A chat generator that never replies."""

    @component.output_types(replies=list[ChatMessage])
    def run(self, messages: list[ChatMessage]) -> dict[str, list[ChatMessage]]:
        return {"replies": []}


class UI:
    """A ConfirmationUI that gives one answer, and records the questions."""

    def __init__(self, action: str = "confirm", **answer: Any) -> None:
        self.answer = SimpleNamespace(action=action, **answer)
        self.shown: list[Any] = []

    def get_user_confirmation(self, *question: Any) -> Any:
        self.shown.append(question)
        return self.answer


def raises(error: Any) -> Callable[[Any], str]:
    def handler(_: Any) -> str:
        raise error

    return handler


def session_handlers(**fields: Any) -> SessionHandlers:
    """
    Return the handlers of a session with a server.
    """
    return SessionHandlers(MCPHandlers(**fields), "a server", Redactor(["s3cret-key"]))


def sampling_request(*messages: tuple[str, Any], **more: Any) -> types.CreateMessageRequestParams:
    said = [types.SamplingMessage(role=role, content=content) for role, content in messages]  # type: ignore[arg-type]
    return types.CreateMessageRequestParams(messages=said, **{"max_tokens": 10, **more})


HELLO = types.TextContent(type="text", text="Hello")


class TestSampling:
    async def test_the_value_of_a_function_is_sent_including_pictures_and_answers_of_the_sdk(self) -> None:
        async def sent(given: Any) -> Any:
            sampler = Sampler(MCPSampling(function=lambda _: given), "a server")
            return await sampler.answer(sampling_request(("user", HELLO)))

        result = types.CreateMessageResult(role="assistant", content=HELLO, model="mine")
        refusal = types.ErrorData(code=-1, message="Not now")
        assert (await sent(result), await sent(refusal)) == (result, refusal)
        picture = ChatMessage(ChatRole.ASSISTANT, [ImageContent(PIXEL, "image/png", validation=False)])
        assert (await sent(picture)).content == types.ImageContent(type="image", data=PIXEL, mime_type="image/png")

    async def test_audio_is_passed_to_the_model_as_a_file(self) -> None:
        model = ScriptedChatGenerator([say("heard")])
        sound = types.AudioContent(type="audio", data="AAAA", mime_type="audio/wav")
        sampler = Sampler(MCPSampling(chat_generator=model), "a server")
        answer = await sampler.answer(sampling_request(("user", [HELLO, sound])))
        assert isinstance(answer, types.CreateMessageResult)
        [file] = model.turns[0].messages[0].files
        assert (file.base64_data, file.mime_type) == ("AAAA", "audio/wav")

    async def test_used_tokens_are_counted_and_a_request_for_too_many_gets_the_rest(self, caplog):
        asked: list[int] = []

        def answer(params: types.CreateMessageRequestParams) -> ChatMessage:
            asked.append(params.max_tokens)
            return ChatMessage.from_assistant("text", meta={"usage": {"output_tokens": 4}})

        sampler = Sampler(MCPSampling(function=answer, max_tokens=10), "a server")
        for _ in range(3):
            assert isinstance(await sampler.answer(sampling_request(("user", HELLO))), types.CreateMessageResult)
        refused = await sampler.answer(sampling_request(("user", HELLO)))
        assert isinstance(refused, types.ErrorData)
        assert "limit for sampling in this session is reached" in refused.message
        assert asked == [10, 6, 2]
        sampler = Sampler(MCPSampling(function=answer, max_requests=1), "a server")
        assert isinstance(await sampler.answer(sampling_request(("user", HELLO))), types.CreateMessageResult)
        assert isinstance(await sampler.answer(sampling_request(("user", HELLO))), types.ErrorData)
        assert "`max_requests`=1" in caplog.text

    def test_a_chat_generator_answers_with_the_options_of_the_server(self, ask: Ask) -> None:
        meta = {"model": "tiny-1", "finish_reason": "length"}
        model = ScriptedChatGenerator([ChatMessage.from_assistant("a reply", meta=meta)])
        threads: list[threading.Thread] = []
        model.warm_up = model.before_reply = lambda *_: threads.append(threading.current_thread())
        connection = ask(sampling=MCPSampling(chat_generator=model))
        assert text(connection.call_tool("ask_model", {"prompt": "Tell me"})) == "a reply (tiny-1, maxTokens)"
        assert len(threads) == 2 and AsyncExecutor.get_instance()._thread not in threads
        messages = model.turns[0].messages
        assert [(message.role.value, message.text) for message in messages[:3]] == [
            ("system", "Be brief."),
            ("user", "Tell me"),
            ("assistant", "Go on."),
        ]
        assert messages[3].images == [ImageContent(PIXEL, "image/png", validation=False)]
        assert model.generation_kwargs == [{"max_tokens": 50, "temperature": 0.25, "stop": ["END"]}]

    def test_nothing_is_answered_without_consent(self, ask: Ask) -> None:
        model, asked = ScriptedChatGenerator([say("a reply")]), []

        def consent(params: types.CreateMessageRequestParams) -> Any:
            asked.append(params.system_prompt)
            return "no" if len(asked) == 1 else True

        connection = ask(sampling=MCPSampling(chat_generator=model, consent=consent))
        with pytest.raises(MCPInvocationError, match="User rejected sampling request"):
            connection.call_tool("ask_model", {"prompt": "x"})
        assert model.turns == []
        assert "a reply" in text(connection.call_tool("ask_model", {"prompt": "x"}))
        assert asked == ["Be brief.", "Be brief."]


FORM = types.ElicitRequestFormParams(
    message="Who?",
    requested_schema={
        "type": "object",
        "properties": {"name": {"type": "string", "default": "Ada"}},
        "required": ["name"],
    },
)
CHOICES = types.ElicitRequestFormParams(
    message="Which?",
    requested_schema={
        "type": "object",
        "properties": {
            "one": {"type": "string", "oneOf": [{"const": "r", "title": "Red"}, {"const": "b", "title": "Blue"}]},
            "some": {"type": "array", "items": {"type": "string", "enum": ["x", "y"]}},
            "titled": {"type": "array", "items": {"anyOf": [{"const": "p", "title": "Pea"}]}},
            # Without their patterns, more than one of these would fit.
            "free": {"oneOf": [{"type": "string", "pattern": "^a"}, {"type": "string", "pattern": "^b"}]},
        },
    },
)
CHOSEN = {"one": "b", "some": ["x", "y"], "titled": ["p"], "free": "abc"}
# Nonsense in the form is the server's responsibility.
ODD_FORM = types.ElicitRequestFormParams(message="?", requested_schema={"properties": {"name": {"type": "odd"}}})
TO_URL = types.ElicitRequestURLParams(message="Pay.", url=URL, elicitation_id="1")


class TestElicitation:
    @rows(
        ("params", "answer", "expected"),
        (FORM, None, types.ElicitResult(action="cancel")),
        (FORM, False, types.ElicitResult(action="decline")),
        (FORM, True, types.ElicitResult(action="accept", content={"name": "Ada"})),
        (TO_URL, True, types.ElicitResult(action="accept")),
        (CHOICES, CHOSEN, types.ElicitResult(action="accept", content=CHOSEN)),
        (ODD_FORM, {"name": "x"}, types.ElicitResult(action="accept", content={"name": "x"})),
        (FORM, types.ErrorData(code=-1, message="No"), types.ErrorData(code=-1, message="No")),
    )
    def test_short_answers_are_converted_to_those_of_the_protocol(
        self, params: Any, answer: Any, expected: Any
    ) -> None:
        assert elicit_result(params, answer) == expected

    @rows(
        ("params", "answer", "error"),
        (FORM, "s3ntinel", "it returned str for a form; it must return a dictionary, True, False, None, or an E"),
        (TO_URL, {"s3ntinel": 1}, "it returned dict for a URL; it must return True, False, None, or an ElicitResu"),
        (FORM, {"name": {"s3ntinel": 1}}, "the values of a form must be strings, numbers, booleans or lists of"),
        (FORM, {"name": 5}, "what it filled in does not fit the form: name"),
        (CHOICES, {"one": "s3ntinel"}, "what it filled in does not fit the form: one"),
        (CHOICES, {"some": ["x", "s3ntinel"]}, "what it filled in does not fit the form: some"),
        (CHOICES, {"titled": ["s3ntinel"]}, "what it filled in does not fit the form: titled"),
        (FORM, {"s3ntinel": "x"}, "what it filled in does not fit the form: name is required"),
    )
    def test_the_error_for_an_answer_that_cannot_be_sent_does_not_quote_it(
        self, params: Any, answer: Any, error: str
    ) -> None:
        with pytest.raises((TypeError, ValueError)) as raised:
            elicit_result(params, answer)
        assert error in str(raised.value)
        assert "s3ntinel" not in str(raised.value)

    @in_every_way
    def test_a_function_fills_in_a_form_and_sends_the_user_to_a_url(self, ask: Ask) -> None:
        asked: list[Any] = []

        def answer(params: types.ElicitRequestFormParams | types.ElicitRequestURLParams) -> Any:
            if isinstance(params, types.ElicitRequestURLParams):
                asked.append(params.url)
                return True
            asked.append((params.message, sorted(params.requested_schema["properties"])))
            return {"colour": "red", "count": 3}

        connection = ask(elicitation=answer)
        assert text(connection.call_tool("ask_order")) == "3 red"
        assert text(connection.call_tool("ask_url")) == "accept"
        assert asked == [("What do you order?", ["colour", "count"]), URL]

    @rows(
        ("elicitations", "answer"),
        ([TO_URL.model_dump(by_alias=True)], False),
        ([TO_URL.model_dump(by_alias=True)], 5),
        ("nonsense", True),
        ([], True),
    )
    async def test_a_call_is_not_repeated_unless_the_user_has_opened_the_url(self, elicitations, answer):
        data = {"elicitations": elicitations}
        handlers = session_handlers(elicitation=lambda _: answer)
        assert await handlers.elicit_urls(types.URL_ELICITATION_REQUIRED, data) is False

    def test_the_ready_made_handlers_answer_without_asking(self, ask: Ask) -> None:
        accepting = ask(elicitation=accept_defaults)
        assert text(accepting.call_tool("ask_order")) == "2 blue"
        assert text(accepting.call_tool("ask_url")) == "decline"
        for handler, tool in [(accept_defaults, "ask_name"), (decline, "ask_order")]:
            with pytest.raises(MCPInvocationError, match="decline"):
                ask(elicitation=handler).call_tool(tool)

    @rows(("typed", "sent"), (r"\u202ered", "\u202ered"), ("green", "green"))
    def test_a_question_cannot_hide_text_from_the_user(self, typed: str, sent: str) -> None:
        ui = UI("modify", new_tool_params={r"colour\u200b": typed})
        schema = {"type": "object", "properties": {"colour\u200b": {"type": "string", "default": "\u202ered"}}}
        form = types.ElicitRequestFormParams(message="Fine?\x1b[2K\rOK?", requested_schema=schema)
        assert AskUser(ui)(form, "Bank\u200b") == {"colour\u200b": sent}
        url = types.ElicitRequestURLParams(message="Pay.", url="https://a\u202e.example", elicitation_id="1")
        assert AskUser(ui)(url) is True
        assert ui.shown[0] == (r"Bank\u200b", r"Fine?\u001b[2K\rOK?", {r"colour\u200b": r"\u202ered"})
        assert ui.shown[1][2] == {"url": r"https://a\u202e.example"}

    def test_the_user_sees_the_fields_and_choices_of_a_form(self) -> None:
        colours = [{"const": "r", "title": "Red"}, {"const": "b", "title": "B\x1blue"}, "odd"]
        schema = {
            "properties": {
                "count": {"type": "integer", "description": "How many"},
                "colour": {"type": "string", "oneOf": colours, "description": "Of the walls"},
                "sizes": {"type": "array", "items": {"enum": ["s", "l"]}},
                "odd": True,
            }
        }
        ui = UI("reject")
        assert AskUser(ui)(types.ElicitRequestFormParams(message="Fine?", requested_schema=schema)) is False
        told = ["count: How many", r"colour: Of the walls; r (Red), b (B\u001blue)", "sizes: s, l"]
        assert ui.shown[0][1].split("\n") == ["Fine?", *told]

    @rows(("second", "result"), ({"name": "Ada", "cups": None}, {"name": "Ada"}), ({"name": ""}, False))
    def test_a_user_who_leaves_a_required_field_empty_is_asked_once_more(self, second: Any, result: Any) -> None:
        ui = UI()
        answers = [UI().answer, UI("modify", new_tool_params=second).answer]
        ui.get_user_confirmation = lambda *question: (ui.shown.append(question), answers.pop(0))[1]
        fields = {"name": {"type": "string"}, "cups": {"type": "integer"}}
        form = types.ElicitRequestFormParams(message="?", requested_schema={"properties": fields, "required": ["name"]})
        assert AskUser(ui)(form) == result
        remark = "A required field is empty: modify the form to fill it in, or reject it."
        assert [shown[1] for shown in ui.shown] == ["?\nname: required", f"?\nname: required\n{remark}"]

    def test_a_call_that_needs_a_url_is_sent_again_after_the_user_has_opened_it(self, ask: Ask) -> None:
        urls = []

        def open_url(params: types.ElicitRequestURLParams) -> bool:
            urls.append(params.url)
            return True

        connection = ask(elicitation=open_url)
        assert text(connection.call_tool("need_url")) == "paid"
        with pytest.raises(MCPInvocationError, match="call the tool again") as raised:
            connection.call_tool("always_need_url")
        assert raised.value.code == types.URL_ELICITATION_REQUIRED
        assert urls == [URL] * len(urls)


class TestRoots:
    def test_paths_become_uris_and_a_function_returns_the_current_roots(self, ask: Ask, tmp_path: Path) -> None:
        roots: list[Any] = [tmp_path, "file:///srv/data"]
        connection = ask(roots=lambda: roots)
        assert f"{tmp_path.as_uri()} {tmp_path.name}" in text(connection.call_tool("ask_roots"))
        assert "file:///srv/data None" in text(connection.call_tool("ask_roots"))
        roots[:] = ["file:///srv"]
        assert "file:///srv None" in text(connection.call_tool("ask_roots"))

    @in_every_way
    async def test_a_server_with_sessions_is_notified_of_changed_roots_and_others_ask_in_each_call(
        self, ask: Ask
    ) -> None:
        connection = ask(roots=lambda: ["/srv"])
        assert connection.notify_roots_changed() is False  # there is no session yet
        told = int(text(await connection.call_tool_async("root_changes")))
        has_sessions = (connection.status().protocol_version or "") < "2026"
        for number in (1, 2):
            notified = (
                await connection.notify_roots_changed_async() if number > 1 else connection.notify_roots_changed()
            )
            assert notified is has_sessions
            expected = str(told + (number if has_sessions else 0))
            wait_until(lambda: text(connection.call_tool("root_changes")) == expected, "the server was told")  # noqa: B023


class TestLogging:
    def test_functions_get_log_messages_unchanged_and_in_order_without_delaying_calls(self, ask: Ask) -> None:
        got: list[Any] = []
        raw: list[Any] = []
        release = threading.Event()

        def log(params: types.LoggingMessageNotificationParams) -> None:
            release.wait(LIMIT)
            got.append((params.level, params.data))

        connection = ask(logging=log, messages=raw.append, log_level="debug")
        for number in range(5):
            assert text(connection.call_tool("log", {"level": "info", "text": str(number)})) == "logged"
        release.set()
        wait_until(lambda: len(got) == 5 and raw, "five log messages")
        assert got == [("info", str(number)) for number in range(5)]
        assert isinstance(raw[0], types.LoggingMessageNotification)
        assert raw[0].params.data == "0"

    @pytest.mark.parametrize("way", ["2026"])
    def test_a_handler_that_will_never_be_called_is_reported(self, ask: Ask, caplog: pytest.LogCaptureFixture) -> None:
        ask(logging=print).open()
        assert "`logging` of MCPHandlers has no effect" in caplog.text
        assert "`log_level`" in caplog.text
        session_handlers(elicitation=answer_later).opened("2025-06-18", {}, None)
        assert "has no calls that are left open; questions are cancelled" in caplog.text

    async def test_a_failing_log_handler_gets_the_next_message_and_a_slow_one_the_newest(self, caplog, monkeypatch):
        monkeypatch.setattr("haystack_integrations.tools.mcp.handlers.calling._MAX_QUEUED", 2)
        go_on, got = asyncio.Event(), []

        async def log(params: types.LoggingMessageNotificationParams) -> None:
            got.append(params.data)
            await go_on.wait()
            msg = "no s3cret-key"
            raise LookupError(msg)

        deliver = session_handlers(logging=log).log
        deliver(types.LoggingMessageNotificationParams(level="info", data=0))
        await wait_until_async(lambda: got, "the first message")
        for number in range(1, 4):
            deliver(types.LoggingMessageNotificationParams(level="info", data=number))
        go_on.set()
        await wait_until_async(lambda: caplog.text.count("LookupError: no ***") >= 3, "three failures")
        assert got == [0, 2, 3]
        assert "A function is too slow for what a server sends; the oldest message was dropped" in caplog.text
        assert "s3cret-key" not in caplog.text

    async def test_a_server_that_refuses_the_log_level_in_an_odd_way_can_be_used(self) -> None:
        opening = {"protocolVersion": "2025-06-18", "capabilities": {"logging": {}, "tools": {}}, "serverInfo": {}}
        results: dict[str, Any] = {"initialize": opening, "tools/list": {"tools": []}}

        async def answer(request: HttpRequest) -> bytes:
            method = request.message["method"]
            if method in results:
                return response("200 OK", result(request, **results[method]))
            is_request = "id" in request.message
            return response("400 Bad Request", {"error": f"no {method}"}) if is_request else response("202 Accepted")

        async with ScriptedPeer(answer) as peer:
            info = StreamableHttpServerInfo(peer.url, negotiation="handshake")
            async with MCPConnection(info, handlers=MCPHandlers(log_level="info")) as connection:
                assert await connection.list_tools_async() == []

    @in_every_way
    def test_log_messages_are_passed_to_a_logger_with_the_name_of_the_server(self, ask, caplog):
        connection = ask(log_level="info")
        with caplog.at_level(logging.DEBUG, logger=LOGGER_NAME):
            connection.call_tool("log", {"level": "warning", "text": "hot\n{pan}"})
            connection.call_tool("log", {"level": "debug", "text": "too fine"})
            connection.call_tool("log", {"level": "alert", "text": "last"})
            wait_until(lambda: "last" in caplog.text, "the last log message")
        records = [
            record for record in caplog.records if record.name.startswith("haystack_integrations.tools.mcp.serv")
        ]
        assert [(record.name.rpartition(".")[2], record.levelname, record.getMessage()) for record in records] == [
            ("asking_server", "WARNING", "kitchen: hot\\n{pan}"),
            ("asking_server", "CRITICAL", "kitchen: last"),
        ]


# Requests that the server refuses itself, and requests that only the client refuses.
@pytest.mark.parametrize(
    ("tool", "field"), [("ask_model", "sampling"), ("ask_roots", "roots"), ("ask_url", "elicitation")]
)
def test_the_error_of_a_call_names_the_handler_that_is_missing(ask: Ask, tool: str, field: str) -> None:
    arguments = {"prompt": "x"} if tool == "ask_model" else {}
    with pytest.raises(MCPInvocationError, match=f"set `{field}` of MCPHandlers") as raised:
        ask().call_tool(tool, arguments)
    assert raised.value.code in (types.MISSING_REQUIRED_CLIENT_CAPABILITY, types.METHOD_NOT_FOUND)
    with pytest.raises(MCPInvocationError, match="set `elicitation` of MCPHandlers") as raised:
        ask().call_tool("always_need_url")
    assert raised.value.code == types.URL_ELICITATION_REQUIRED


class TestFunctions:
    @rows(
        ("field", "handler", "told"),
        ("sampling", lambda _: 5, "TypeError: the function returned int; it must return a string, a ChatMessage"),
        ("sampling", Silent(), "the chat generator gave no reply"),
        ("sampling", raises(LookupError("no such shelf")), "LookupError: no such shelf"),
        ("sampling", raises(StopIteration), "it raised StopIteration"),
        ("roots", lambda: "/srv", "TypeError: roots must be a list of paths or file:// URIs, got str"),
        ("roots", lambda: ["https://example.com/secret"], "a root must be a path or a file:// URI, got https://…"),
    )
    async def test_the_log_says_why_a_handler_failed(self, field, handler, told, caplog):
        sampling = types.CreateMessageRequest(params=sampling_request(("user", HELLO)))
        request = sampling if field == "sampling" else types.ListRootsRequest()
        answer = await session_handlers(**{field: handler}).answer(request)
        assert answer == types.ErrorData(code=types.INTERNAL_ERROR, message=f"The client's {field} handler failed")
        assert f"The handler `{field}` for a server failed: " in caplog.text
        assert told in caplog.text
        caplog.clear()

    async def test_the_server_does_not_learn_why_a_handler_failed_and_the_session_continues(self, ask: Ask) -> None:
        async def answer(_: Any) -> str:
            raise asyncio.CancelledError("no such shelf")  # it ends only the handler

        connection = ask(sampling=answer)
        with pytest.raises(MCPInvocationError, match="The client's sampling handler failed") as raised:
            await connection.call_tool_async("ask_model", {"prompt": "x"})
        assert "shelf" not in str(raised.value)
        assert text(await connection.call_tool_async("add", {"a": 1, "b": 1})) == "2"

    def test_a_handler_sees_its_callers_context_variables_and_outlives_the_callers_loop(self, ask: Ask) -> None:
        user, seen = ContextVar("user", default="nobody"), []

        def consent(_: Any) -> bool:
            seen.append(user.get())
            return True

        async def answer(_: Any) -> str:
            await asyncio.sleep(0)
            return user.get()

        connection = ask(sampling=MCPSampling(function=answer, consent=consent))
        for name in ("alice", "bob"):
            user.set(name)
            result = asyncio.run(connection.call_tool_async("ask_model", {"prompt": "x"}))
            assert text(result).startswith(name)
            assert text(connection.call_tool("ask_model", {"prompt": "x"})).startswith(name)
        assert seen == ["alice", "alice", "bob", "bob"]

    @pytest.mark.parametrize("way", ["2026"])
    def test_the_timeout_of_a_call_applies_while_a_handler_hangs(self, ask: Ask) -> None:
        release = threading.Event()
        connection = ask(invocation_timeout=1.0, sampling=lambda _: release.wait(LIMIT))
        connection.open()
        try:
            with pytest.raises(MCPCallTimeoutError):
                connection.call_tool("ask_model", {"prompt": "x"})
        finally:
            release.set()

    async def test_async_handlers_run_in_the_loop_of_their_caller(self, ask: Ask) -> None:
        loops: dict[str, set[asyncio.AbstractEventLoop]] = {}
        here, theirs = asyncio.get_running_loop(), AsyncExecutor.get_instance().get_loop()

        def noting(field: str, answer: Any = None) -> Any:
            async def handler(*_: Any) -> Any:
                await asyncio.sleep(0)
                loops.setdefault(field, set()).add(asyncio.get_running_loop())
                return answer

            return handler

        connection = ask(
            sampling=MCPSampling(function=noting("function", "reply"), consent=noting("consent", True)),
            logging=noting("logging"),
            messages=lambda _: noting("messages")(),
            log_level="info",
        )
        for loop in (here, theirs):
            loops.clear()
            for request in (("ask_model", {"prompt": "x"}), ("log", {"level": "info", "text": "x"})):
                if loop is here:
                    await connection.call_tool_async(*request)
                else:  # a sync handler may run in the thread of the loop, which is blocked meanwhile
                    connection.call_tool(*request)
            expected = {field: {loop} for field in ("function", "consent", "logging", "messages")}
            await wait_until_async(lambda: loops == expected, lambda: f"{expected}, not {loops}")  # noqa: B023

    @pytest.mark.parametrize(("way", "how"), [("sessions", "cancelled"), ("2026", "cancelled"), ("stdio", "timed out")])
    async def test_an_async_handler_ends_with_its_call(self, ask: Ask, how: str) -> None:
        started, ended = asyncio.Event(), asyncio.Event()

        async def answer(_: Any) -> str:
            started.set()
            try:
                await asyncio.Event().wait()
            finally:
                ended.set()
            raise AssertionError

        connection = ask(sampling=answer, invocation_timeout=2.0 if how == "timed out" else LIMIT)
        await connection.open_async()
        calling = asyncio.create_task(connection.call_tool_async("ask_model", {"prompt": "x"}))
        await asyncio.wait_for(started.wait(), LIMIT)
        if how == "cancelled":
            calling.cancel()
        with pytest.raises(asyncio.CancelledError if how == "cancelled" else MCPCallTimeoutError):
            await calling
        await asyncio.wait_for(ended.wait(), LIMIT)
        assert text(await connection.call_tool_async("add", {"a": 1, "b": 1}, invocation_timeout=LIMIT)) == "2"

    @pytest.mark.parametrize("way", ["sessions", "stdio"])
    def test_an_async_handler_may_clean_up_when_the_connection_is_closed(
        self, ask: Ask, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr("haystack_integrations.tools.mcp.protocol.channel._ENDING_TIMEOUT", LIMIT)
        notes, call_has_failed = [], asyncio.Event()

        async def answer(_: Any) -> str:
            notes.append("started")
            try:
                await asyncio.Event().wait()
            finally:
                await call_has_failed.wait()
                notes.append("cleaned up")
            raise AssertionError

        connection = ask(sampling=answer)
        connection.open()
        calling = in_thread(connection.call_tool, "ask_model", {"prompt": "x"})
        calling.add_done_callback(lambda _: AsyncExecutor.get_instance().post(call_has_failed.set))
        wait_until(lambda: notes, "the question")
        connection.close()
        assert isinstance(calling.exception(LIMIT), MCPInvocationError)
        assert notes == ["started", "cleaned up"]

    @pytest.mark.parametrize("way", ["sessions"])
    def test_many_concurrent_handlers_may_wait_for_each_other_without_running_out_of_threads(self, ask: Ask) -> None:
        barrier = threading.Barrier(50)

        def answer(_: Any) -> str:
            barrier.wait(LIMIT)
            return "together"

        connection = ask(sampling=answer)
        answers = together([lambda: text(connection.call_tool("ask_model", {"prompt": "x"}))] * 50)
        assert all("together" in answer.result(LIMIT) for answer in answers)


def test_connections_share_a_session_only_if_their_handlers_are_equal(ask: Ask) -> None:
    model, other, ui = ScriptedChatGenerator([say("x")]), ScriptedChatGenerator([say("x")]), UI()
    given: list[dict[str, Any]] = [
        *({"sampling": each, "elicitation": AskUser(ui), "roots": ["/srv"]} for each in (model, model, other)),
        {},
    ]
    connections = [ask(**fields) for fields in given]
    for connection in connections:
        connection.open()
    assert [connection.status().users for connection in connections] == [2, 2, 1, 1]


def test_the_server_gets_the_clients_name_and_its_support_of_tasks(ask: Ask) -> None:
    connection = ask(client_info={"name": "kiosk", "version": "7"})
    connection.open()
    told = [TASKS] if (connection.status().protocol_version or "") > "2026" else []
    assert text(connection.call_tool("who")) == f"kiosk 7 {told}"


# The package itself uses this extension, where it supports tasks.
TASKS = "io.modelcontextprotocol/tasks"


class One(Extension):
    identifier = "com.example/one"


def test_the_status_lists_the_extensions_of_both_sides() -> None:
    with MCPConnection(InProcessServerInfo(MCPServer("extended", extensions=[One()]))) as connection:
        assert connection.status().extensions == {
            "com.example/one": {"server": {}, "client": None},
            TASKS: {"server": None, "client": {}},
        }
