# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
import base64
import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest
from haystack.components.agents import Agent, State
from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCall
from haystack.tools import Tool
from mcp import types

from haystack_integrations.tools.mcp.convert import content
from haystack_integrations.tools.mcp.convert.content import (
    RESULT_HANDLERS,
    StateResult,
    error_text,
    model_content,
    model_json,
    model_text,
    state_result,
)
from tests.support.rows import rows
from tests.support.scripted_chat import ScriptedChatGenerator, call, say

try:
    from haystack.components.tools import ToolInvoker
except ImportError:
    ToolInvoker = None

PNG_BYTES = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)
PNG = base64.b64encode(PNG_BYTES).decode()
PNG_NOTE = f"[image: image/png, {len(PNG_BYTES)} B]"
WAV = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(12_000)).decode()
PDF = base64.b64encode(b"%PDF-1.7\n" + bytes(1_500_000)).decode()
SVG = base64.b64encode(b"<svg/>").decode()
NO_BASE64 = "*** not base64 ***"
DECLARED = ["image/png", "image/jpeg", "application/octet-stream"]

DATA_URI = f"Data:image/png;base64,{PNG}"
USER_ONLY = types.Annotations(audience=["user"])
FOR_BOTH = types.Annotations(audience=["user", "assistant"])


def text(value: str, **kwargs: Any) -> types.TextContent:
    return types.TextContent(type="text", text=value, **kwargs)


def image(data: str = PNG, mime_type: str = "image/png", **kwargs: Any) -> types.ImageContent:
    return types.ImageContent(type="image", data=data, mime_type=mime_type, **kwargs)


def audio(data: str = WAV, mime_type: str = "audio/wav") -> types.AudioContent:
    return types.AudioContent(type="audio", data=data, mime_type=mime_type)


def blob(data: str, mime_type: str | None, uri: str = "file:///docs/a%20report.pdf?v=2#p1") -> types.EmbeddedResource:
    contents = types.BlobResourceContents(uri=uri, mime_type=mime_type, blob=data)
    return types.EmbeddedResource(type="resource", resource=contents)


def document(value: str, mime_type: str | None = "text/markdown") -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri="file:///readme.md", mime_type=mime_type, text=value)
    return types.EmbeddedResource(type="resource", resource=contents)


def link(**kwargs: Any) -> types.ResourceLink:
    return types.ResourceLink(type="resource_link", name="report.pdf", uri="file:///report.pdf", **kwargs)


def envelope(*content: Any, structured: Any = None, is_error: bool = False) -> str:
    result = types.CallToolResult(content=list(content), structured_content=structured, is_error=is_error)
    return result.model_dump_json(by_alias=True)


def handwritten(*content: Any, **fields: Any) -> str:
    return json.dumps({"content": list(content), "isError": False, **fields})


@pytest.fixture
def files_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "TOOL_MESSAGES_TAKE_FILES", True)


@pytest.fixture
def files_are_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(content, "TOOL_MESSAGES_TAKE_FILES", False)


class TestModelText:
    @rows(
        ("content", "expected"),
        [
            ([text("3")], "3"),
            ([text("first"), text(""), text("zweite Zeile: ü")], "first\n\nzweite Zeile: ü"),
            ([text("see"), image()], f"see\n{PNG_NOTE}"),
            ([image(mime_type="Image/PNG; charset=binary")], PNG_NOTE),
            ([audio()], "[audio: audio/wav, 12,016 B]"),
            ([document("# Hi\nthere")], "[resource: file:///readme.md, text/markdown]\n# Hi\nthere"),
            (
                [blob(PDF, "application/pdf", uri="file:///r.pdf")],
                "[resource: file:///r.pdf, application/pdf, 1,500,009 B]",
            ),
            ([blob("AAAA", None, uri="x://y")], "[resource: x://y, unknown type, 3 B]"),
            ([link()], "[resource link: report.pdf, file:///report.pdf]"),
            (
                [link(title="Report", mime_type="application/pdf", size=3_210_000_000, description="Two\n lines")],
                "[resource link: Report, file:///report.pdf, application/pdf, 3,210,000,000 B, Two lines]",
            ),
        ],
    )
    def test_describes_every_kind_of_content(self, content: list[Any], expected: str) -> None:
        assert model_text(envelope(*content)) == expected

    @rows(
        ("result", "expected"),
        [
            # Structured content, of any type, only where the content is effectively empty.
            (envelope(text("3"), structured={"result": 3}), "3"),
            *(
                (envelope(*nothing, structured={"stadt": "Köln", "n": [1]}), '{"stadt": "Köln", "n": [1]}')
                for nothing in ([], [text("")], [text(" \n"), text("")])
            ),
            *((envelope(structured=value), json.dumps(value)) for value in ([1, 2], 0, False, "", {})),
            *((empty, "[no content]") for empty in (envelope(), envelope(text(" ")), handwritten(content=None))),
            # What is meant for the user only, where nothing else would be left.
            (envelope(text("shown to you", annotations=USER_ONLY), text("b", annotations=FOR_BOTH), text("c")), "b\nc"),
            (envelope(text("only this", annotations=USER_ONLY)), "only this"),
            (envelope(text("only this", annotations=USER_ONLY), text("")), "only this\n"),
            (envelope(text("chart", annotations=USER_ONLY), structured={"n": 1}), '{"n": 1}'),
            # A single block for a list of blocks, and a parsed envelope.
            (handwritten(content={"type": "text", "text": "alone"}), "alone"),
            (json.loads(envelope(text("3"))), "3"),
            # The bytes of data URIs are kept out.
            (handwritten({"type": "resource_link", "name": "logo", "uri": DATA_URI}), "[resource link: logo, data:…]"),
        ],
    )
    def test_gives_what_is_there_for_the_model(self, result: Any, expected: str) -> None:
        assert model_text(result) == expected

    @rows(
        ("block", "expected"),
        [
            ({"type": "hologram", "data": "A"}, "[unsupported content: {'data': 'A', 'type': 'hologram'}]"),
            ("just a string", "[unsupported content: 'just a string']"),
            ({"type": "text", "text": 5}, "[unsupported content: {'text': 5, 'type': 'text'}]"),
            ({"type": "image", "data": "", "mimeType": " ; "}, "[image: unknown type, 0 B]"),
            ({"type": "audio", "data": NO_BASE64, "mimeType": None}, "[audio: unknown type, 11 B]"),
            ({"type": "resource", "resource": {"text": "body"}}, "[resource]\nbody"),
            ({"type": "resource_link"}, "[resource link]"),
            ({"type": "resource_link", "uri": "x://y", "size": "big"}, "[resource link: x://y]"),
            ({"type": "text", "text": "ok", "annotations": "user"}, "ok"),
        ],
    )
    def test_survives_malformed_content(self, block: Any, expected: str) -> None:
        assert model_text(handwritten(block)) == expected
        assert model_content(handwritten(block)) == expected

    def test_never_shows_base64(self) -> None:
        shown = model_text(envelope(image(), audio(), blob(PDF, "application/pdf"), document("text"), link()))
        assert not any(data[:16] in shown for data in (PNG, WAV, PDF))

    @rows(
        "plain",
        [
            "",
            '{"broken": ',
            '{"content": [1, 2]}',
            '{"answer": 42}',
            '{"content":' + "[" * 100_000,
        ],
    )
    def test_returns_a_string_that_is_no_envelope_as_it_is(self, plain: str) -> None:
        assert model_text(plain) == plain
        assert model_content(plain) == plain

    @rows(
        ("value", "expected"),
        [
            (None, "null"),
            (3, "3"),
            ([], "[]"),
            ({"content": "ü"}, '{"content": "ü"}'),
            ({1, 2}, '"{1, 2}"'),
            ({(1, 2): 3}, "{(1, 2): 3}"),
        ],
    )
    def test_gives_another_value_as_json(self, value: Any, expected: str) -> None:
        assert model_text(value) == expected
        assert model_content(value) == expected

    def test_survives_a_value_that_contains_itself(self) -> None:
        circle: list[Any] = []
        circle.append(circle)
        assert model_text(circle).startswith("[[")

    def test_describes_content_blocks_that_a_source_picked_out(self) -> None:
        file = FileContent(PDF, "application/pdf", filename="a.pdf")
        nameless = FileContent("AAAA", validation=False)
        picked = [TextContent("see"), ImageContent(PNG, "image/png"), file, nameless]
        expected = ["see", PNG_NOTE, "[file: a.pdf, application/pdf, 1,500,009 B]", "[file: unknown type, 3 B]"]
        assert model_text(picked) == "\n".join(expected)
        assert model_text({"result": picked}) == json.dumps({"result": expected})


class TestModelContent:
    @rows(
        "result",
        [
            envelope(text("3"), structured={"result": 3}),
            envelope(text("a"), text("b")),
            envelope(document("# Hi"), link()),
            envelope(structured={"n": 1}),
            envelope(),
        ],
    )
    def test_is_the_plain_text_where_all_is_text(self, result: str) -> None:
        assert model_content(result) == model_text(result)

    @rows(
        ("result", "expected"),
        [
            (
                envelope(text("before"), image(), text(""), text("after"), link()),
                [
                    TextContent("before"),
                    ImageContent(PNG, "image/png"),
                    TextContent("after"),
                    TextContent("[resource link: report.pdf, file:///report.pdf]"),
                ],
            ),
            (envelope(blob(PNG, "image/png")), [ImageContent(PNG, "image/png")]),
            # A type that is missing, or that model providers know by another name.
            (handwritten({"type": "image", "data": PNG, "mimeType": None}), [ImageContent(PNG, "image/png")]),
            (envelope(image("AAAA", "image/jpg")), [ImageContent("AAAA", "image/jpeg")]),
            (envelope(text("drawn"), image(annotations=USER_ONLY)), "drawn"),
        ],
    )
    def test_gives_images_in_the_order_of_the_server(self, result: str, expected: Any) -> None:
        assert model_content(result) == expected

    @rows(
        ("begin", "mime_type"),
        [
            (b"\x89PNG\r\n\x1a\n", "image/png"),
            (b"\xff\xd8\xff\xe0", "image/jpeg"),
            (b"GIF89a", "image/gif"),
            (b"RIFF\x01\x02\x03\x04WEBPVP8 ", "image/webp"),
        ],
    )
    def test_gives_the_type_that_an_image_is_whatever_the_server_declares(self, begin: bytes, mime_type: str) -> None:
        data = base64.b64encode(begin + bytes(30)).decode()
        expected = [ImageContent(data, mime_type)]
        assert [model_content(envelope(image(data, each))) for each in DECLARED] == [expected] * len(DECLARED)
        assert [model_content(envelope(blob(data, each))) for each in DECLARED] == [expected] * len(DECLARED)

    @pytest.mark.parametrize(
        "data",
        [
            f"data:image/png;base64,{PNG}",
            f" DATA:image/png;charset=utf-8;base64,{PNG.replace('+', '%2B')}",
            f"data:;base64,{PNG}",
            "\r\n".join(PNG[start : start + 76] for start in range(0, len(PNG), 76)),
            f"{PNG[:10]} \n{PNG[10:]}\n",
            PNG.replace("+", "-").replace("/", "_"),
            PNG.rstrip("="),
        ],
        ids=["URI", "quoted URI", "URI without type", "lines", "line breaks", "URL alphabet", "no padding"],
    )
    @pytest.mark.parametrize("mime_type", ["image/png", ""])
    def test_gives_an_image_in_any_form_of_base64(self, data: str, mime_type: str) -> None:
        blocks = image(data, mime_type), blob(data, "image/png")
        assert model_content(envelope(*blocks)) == [ImageContent(PNG, "image/png")] * 2
        assert model_text(envelope(image(data))) == PNG_NOTE

    @pytest.mark.usefixtures("files_are_taken")
    @rows(
        ("block", "expected"),
        [
            (audio(), FileContent(WAV, "audio/wav")),
            (blob(PDF, "application/pdf"), FileContent(PDF, "application/pdf", filename="a report.pdf")),
            (blob(PDF, None, uri="x:///"), FileContent(PDF, "application/pdf", filename="x:")),
            (blob(PDF, None, uri="data:,"), FileContent(PDF, "application/pdf")),
            (image(SVG, "image/svg+xml"), FileContent(SVG, "image/svg+xml")),
            (image(PDF, mime_type=""), FileContent(PDF, "application/pdf")),
        ],
    )
    def test_gives_files_where_tool_messages_take_them(self, block: Any, expected: FileContent) -> None:
        assert model_content(envelope(block)) == [expected]

    @pytest.mark.usefixtures("files_are_not_taken")
    @rows("block", [audio(), blob(PDF, "application/pdf"), image(SVG, "image/svg+xml")])
    def test_describes_files_where_tool_messages_take_none(self, block: Any) -> None:
        assert model_content(envelope(block)) == model_text(envelope(block))

    @pytest.mark.parametrize("taken", [True, False])
    @pytest.mark.parametrize(
        "block",
        [
            image(NO_BASE64),
            blob(NO_BASE64, "application/pdf"),
            image(""),
            image("AAAA", mime_type=""),
            blob("AAAA", None),
        ],
    )
    def test_describes_what_haystack_refuses(self, monkeypatch: pytest.MonkeyPatch, block: Any, *, taken: bool) -> None:
        monkeypatch.setattr(content, "TOOL_MESSAGES_TAKE_FILES", taken)
        shown = model_content(envelope(text("and"), block))
        assert shown == model_text(envelope(text("and"), block))

    def test_knows_whether_tool_messages_take_files(self) -> None:
        message = ChatMessage.from_tool([FileContent(PDF, "application/pdf")], origin=ToolCall("t", {}))
        try:
            message.to_dict()
        except ValueError:
            assert not content.TOOL_MESSAGES_TAKE_FILES
        else:
            assert content.TOOL_MESSAGES_TAKE_FILES

    def test_gives_nothing_that_a_tool_message_cannot_hold(self) -> None:
        content = model_content(envelope(text("all"), image(), audio(), blob(PDF, "application/pdf"), link()))
        message = ChatMessage.from_tool(content, origin=ToolCall("t", {}))
        assert ChatMessage.from_dict(message.to_dict()) == message


class TestModelJson:
    def test_is_the_envelope_as_it_is(self) -> None:
        raw = envelope(text("3"), structured={"result": 3})
        assert model_json(raw) is raw
        assert model_json(state_result(raw)) is raw

    def test_gives_another_value_as_json(self) -> None:
        assert model_json([1, "ü"]) == '[1, "ü"]'


class TestErrorText:
    @rows(
        ("result", "expected"),
        [
            (envelope(text("no such"), text("table"), is_error=True), "no such\ntable"),
            ({"content": [{"type": "text", "text": "boom"}], "isError": True}, "boom"),
            (envelope(structured={"code": 7}, is_error=True), '{"code": 7}'),
            ("boom", "boom"),
            *(
                (nothing, "the server gave no error text")
                for nothing in (envelope(is_error=True), envelope(text(" "), is_error=True), "", "\n")
            ),
        ],
    )
    def test_is_what_the_server_said(self, result: Any, expected: str) -> None:
        assert error_text(result) == expected


class TestStateResult:
    @rows(
        "copied",
        [copy.copy, copy.deepcopy, lambda value: pickle.loads(pickle.dumps(value))],  # noqa: S301
        ids=["copy", "deepcopy", "pickle"],
    )
    def test_keeps_its_envelope_in_a_copy(self, copied: Callable[[Any], Any]) -> None:
        original = state_result(envelope(text("3"), structured={"result": 3}))
        duplicate = copied(original)
        assert type(duplicate) is StateResult
        assert duplicate == original
        assert duplicate.envelope == original.envelope

    @rows(
        ("result", "expected"),
        [
            (envelope(text("three"), structured={"n": 3}), {"n": 3}),
            (envelope(text('{"n": 3}')), {"n": 3}),
            (envelope(text('{"n":'), text("3}")), {"n": 3}),
            (envelope(text("Found:"), text('{"n": 3}'), text('{"n": 4}')), {"n": 3}),
            (envelope(text("[1, 2]")), {"result": "[1, 2]"}),
            (envelope(text("a"), text("b", annotations=USER_ONLY)), {"result": "a\nb"}),
            (envelope(), {"result": ""}),
            (envelope(structured=[1, 2]), {"result": [1, 2]}),
            (envelope(text("[1, 2]"), structured=[1, 2]), {"result": "[1, 2]"}),
            (envelope(text("see"), image()), {"result": [TextContent("see"), ImageContent(PNG, "image/png")]}),
            (envelope(link()), {"result": [TextContent("[resource link: report.pdf, file:///report.pdf]")]}),
            ("no envelope", {"result": "no envelope"}),
            ('{"n": 3}', {"n": 3}),
        ],
    )
    def test_finds_the_values(self, result: str, expected: dict[str, Any]) -> None:
        assert state_result(result) == expected

    @rows("result", [envelope(text("three"), structured={"n": 3}), envelope(image()), "no envelope"])
    def test_reads_to_the_model_like_its_envelope(self, result: str) -> None:
        for handler in RESULT_HANDLERS.values():
            assert handler(state_result(result)) == handler(result)


def lookup_tool(result: Any, **outputs: Any) -> Tool:
    def lookup() -> Any:
        return result

    parameters = {"type": "object", "properties": {}}
    return Tool(name="lookup", description="Look it up.", parameters=parameters, function=lookup, **outputs)


def run_agent(tool: Tool, state_schema: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    """What the model saw as the tool's result, and what the Agent gave."""
    generator = ScriptedChatGenerator([call("lookup"), say("done")])
    agent = Agent(chat_generator=generator, tools=[tool], state_schema=state_schema)
    given = agent.run(messages=[ChatMessage.from_user("go")])
    return seen(generator.turns[1].messages[-1]), given


def run_invoker(tool: Tool, state_schema: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
    state = State(schema=state_schema or {})
    calls = ChatMessage.from_assistant(tool_calls=[ToolCall("lookup", {}, id="1")])
    [message] = ToolInvoker(tools=[tool]).run(messages=[calls], state=state)["tool_messages"]
    return seen(message), state.data


def seen(message: ChatMessage) -> Any:
    assert message.to_dict()
    assert not message.tool_call_results[0].error
    return message.tool_call_results[0].result


@pytest.fixture(params=[run_agent, run_invoker])
def run(request: pytest.FixtureRequest) -> Any:
    if request.param is run_invoker and ToolInvoker is None:
        pytest.skip("this Haystack has no ToolInvoker")
    return request.param


class TestInHaystack:
    @rows(
        ("result", "handler", "expected"),
        [
            (envelope(text("3"), structured={"result": 3}), model_text, "3"),
            (envelope(text("see"), image()), model_content, [TextContent("see"), ImageContent(PNG, "image/png")]),
        ],
    )
    def test_the_model_sees_text_and_images(self, run: Any, result: str, handler: Any, expected: Any) -> None:
        assert run(lookup_tool(result, outputs_to_string={"handler": handler}))[0] == expected

    def test_state_gets_the_values_and_the_model_the_text(self, run: Any) -> None:
        tool = lookup_tool(
            state_result(envelope(text("three, of course"), structured={"n": 3, "who": ["ann"]})),
            outputs_to_string={"handler": model_text},
            outputs_to_state={"number": {"source": "n"}, "everything": {}, "missing": {"source": "nope"}},
        )
        seen, given = run(tool, {"number": {"type": int}, "everything": {"type": dict}, "missing": {"type": str}})
        assert seen == "three, of course"
        assert given["number"] == 3
        assert given["everything"] == {"n": 3, "who": ["ann"]}
        assert given.get("missing") is None

    @rows(
        ("handler", "expected"),
        [(model_text, f"see\n{PNG_NOTE}"), (model_content, [TextContent("see"), ImageContent(PNG, "image/png")])],
    )
    def test_a_source_picks_out_what_the_model_sees(self, handler: Callable[[Any], Any], expected: Any) -> None:
        tool = lookup_tool(
            state_result(envelope(text("see"), image())), outputs_to_string={"source": "result", "handler": handler}
        )
        assert run_agent(tool)[0] == expected

    def test_a_json_object_that_the_server_wrapped_as_a_string_is_there_too(self) -> None:
        answer = '{"status": "clean", "files": 3}'
        result = state_result(envelope(text(answer), structured={"result": answer}))
        assert result == {"result": answer, "status": "clean", "files": 3}
        assert state_result(envelope(text("3"), structured={"result": "3"})) == {"result": "3"}
        own = '{"result": 1, "n": 2}'
        assert state_result(envelope(text(own), structured={"result": own})) == {"result": own, "n": 2}

    def test_state_keeps_the_envelope(self) -> None:
        result = state_result(envelope(text("3"), structured={"result": 3}))
        state = State(schema={"call": {"type": dict}})
        state.set("call", result)
        assert state.get("call") == {"result": 3}
        assert state.get("call").envelope == result.envelope
        assert State.from_dict(state.to_dict()).get("call") == {"result": 3}

    @rows("handler", RESULT_HANDLERS.values())
    def test_the_handler_survives_serialisation(self, handler: Callable[[Any], Any]) -> None:
        tool = Tool("lookup", "Look it up.", {"type": "object"}, print, outputs_to_string={"handler": handler})
        assert Tool.from_dict(tool.to_dict()).outputs_to_string == {"handler": handler}
