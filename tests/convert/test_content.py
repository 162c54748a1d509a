# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
import base64
import copy
import json
import pickle
from typing import Any

import pytest
from haystack.components.agents import State
from haystack.dataclasses import ChatMessage, FileContent, ImageContent, TextContent, ToolCall
from mcp import types

from haystack_integrations.tools.mcp.convert import content
from haystack_integrations.tools.mcp.convert.content import (
    RESULT_HANDLERS,
    error_text,
    model_content,
    model_text,
    prompt_messages,
    state_result,
)
from tests.support.foreign_server import PIXEL
from tests.support.rows import rows

PNG = PIXEL
PNG_NOTE = "[image: image/png, 70 B]"
WAV = base64.b64encode(b"RIFF\x24\x00\x00\x00WAVEfmt " + bytes(12_000)).decode()
PDF = base64.b64encode(b"%PDF-1.7\n" + bytes(1_500_000)).decode()
SVG = base64.b64encode(b"<svg/>").decode()
NO_BASE64 = "*** not base64 ***"
IMAGE = ImageContent(PNG, "image/png")
LINK = TextContent("[resource link: report.pdf, file:///report.pdf]")
OBJECT = '{"status": "clean", "result": 1}'

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


class TestModelText:
    @rows(
        ("content", "expected"),
        ([text("first"), text(""), text("zweite Zeile: ü")], "first\n\nzweite Zeile: ü"),
        ([text("see"), image()], f"see\n{PNG_NOTE}"),
        ([image(mime_type="Image/PNG; charset=binary")], PNG_NOTE),
        ([audio()], "[audio: audio/wav, 12,016 B]"),
        ([document("# Hi\nthere")], "[resource: file:///readme.md, text/markdown]\n# Hi\nthere"),
        ([blob(PDF, "application/pdf", uri="a:r.pdf")], "[resource: a:r.pdf, application/pdf, 1,500,009 B]"),
        ([blob("AAAA", None, uri="x://y")], "[resource: x://y, unknown type, 3 B]"),
        ([link()], "[resource link: report.pdf, file:///report.pdf]"),
        (
            [link(title="Report", mime_type="application/pdf", size=3_210_000_000, description="Two\n lines")],
            "[resource link: Report, file:///report.pdf, application/pdf, 3,210,000,000 B, Two lines]",
        ),
    )
    def test_the_text_for_the_model_describes_every_kind_of_content(self, content: list[Any], expected: str) -> None:
        assert model_text(envelope(*content)) == expected

    @rows(
        ("result", "expected"),
        # Structured content of any type is used only if the content is effectively empty.
        (envelope(text("3"), structured={"result": 3}), "3"),
        (envelope(structured={"stadt": "Köln", "n": [1]}), '{"stadt": "Köln", "n": [1]}'),
        (envelope(text(" \n"), text(""), structured={"n": 1}), '{"n": 1}'),
        *((envelope(structured=value), json.dumps(value)) for value in ([1, 2], 0, False, "", {})),
        *((empty, "[no content]") for empty in (envelope(), envelope(text(" ")), handwritten(content=None))),
        # Content for the user only is omitted, unless nothing else would be left.
        (envelope(text("shown to you", annotations=USER_ONLY), text("b", annotations=FOR_BOTH), text("c")), "b\nc"),
        (envelope(text("only this", annotations=USER_ONLY), text("")), "only this\n"),
        (envelope(text("chart", annotations=USER_ONLY), structured={"n": 1}), '{"n": 1}'),
        # A single block in place of a list of blocks, and a parsed envelope.
        (handwritten(content={"type": "text", "text": "alone"}), "alone"),
        (json.loads(envelope(text("3"))), "3"),
        # The bytes of data URIs are omitted.
        (handwritten({"type": "resource_link", "name": "logo", "uri": DATA_URI}), "[resource link: logo, data:…]"),
    )
    def test_the_text_for_the_model_has_the_content_for_the_model(self, result: Any, expected: str) -> None:
        assert model_text(result) == expected

    @rows(
        ("block", "expected"),
        ({"type": "hologram", "data": "A"}, "[unsupported content: {'data': 'A', 'type': 'hologram'}]"),
        ("just a string", "[unsupported content: 'just a string']"),
        ({"type": "audio", "data": NO_BASE64, "mimeType": None}, "[audio: unknown type, 11 B]"),
        ({"type": "resource", "resource": {"text": "body"}}, "[resource]\nbody"),
        ({"type": "resource_link", "uri": "x://y", "size": "big"}, "[resource link: x://y]"),
    )
    def test_malformed_content_does_not_break_the_text(self, block: Any, expected: str) -> None:
        assert model_text(handwritten(block)) == model_content(handwritten(block)) == expected

    @rows(
        ("value", "expected"),
        *((each, each) for each in ("", '{"broken": ', '{"content": [1, 2]}', '{"content":' + "[" * 100_000)),
        (None, "null"),
        ([], "[]"),
        ({"content": "ü"}, '{"content": "ü"}'),
        ({1, 2}, '"{1, 2}"'),
        ({(1, 2): 3}, "{(1, 2): 3}"),
    )
    def test_a_string_that_is_not_an_envelope_is_unchanged_and_other_values_become_json(self, value, expected) -> None:
        assert model_text(value) == model_content(value) == expected

    def test_content_blocks_selected_by_a_source_are_described(self) -> None:
        file = FileContent(PDF, "application/pdf", filename="a.pdf")
        nameless = FileContent("AAAA", validation=False)
        picked = [TextContent("see"), ImageContent(PNG, "image/png"), file, nameless]
        expected = ["see", PNG_NOTE, "[file: a.pdf, application/pdf, 1,500,009 B]", "[file: unknown type, 3 B]"]
        assert model_text(picked) == "\n".join(expected)
        assert model_text({"result": picked}) == json.dumps({"result": expected})


class TestModelContent:
    @rows(
        ("result", "expected"),
        (
            envelope(text("before"), image(), text(""), text("after"), link()),
            [TextContent("before"), IMAGE, TextContent("after"), LINK],
        ),
        (envelope(blob(PNG, "image/png")), [IMAGE]),
        # The type is missing, or model providers use another name for it.
        (handwritten({"type": "image", "data": PNG, "mimeType": None}), [IMAGE]),
        (envelope(image("AAAA", "image/jpg")), [ImageContent("AAAA", "image/jpeg")]),
        (envelope(text("drawn"), image(annotations=USER_ONLY)), "drawn"),
    )
    def test_images_keep_the_order_of_the_server(self, result: str, expected: Any) -> None:
        assert model_content(result) == expected

    @rows(
        ("begin", "mime_type"),
        (b"\x89PNG\r\n\x1a\n", "image/png"),
        (b"\xff\xd8\xff\xe0", "image/jpeg"),
        (b"GIF89a", "image/gif"),
        (b"RIFF\x01\x02\x03\x04WEBPVP8 ", "image/webp"),
    )
    def test_an_image_gets_its_real_type_whatever_the_server_declares(self, begin, mime_type) -> None:
        data = base64.b64encode(begin + bytes(30)).decode()
        for block in (image(data, "image/png"), image(data, "image/jpeg"), blob(data, "application/octet-stream")):
            assert model_content(envelope(block)) == [ImageContent(data, mime_type)]

    def test_an_image_may_be_in_any_form_of_base64(self) -> None:
        quoted, urlsafe = PNG.replace("+", "%2B"), PNG.replace("+", "-").replace("/", "_").rstrip("=")
        in_lines = f"{PNG[:10]} \n{PNG[10:76]}\r\n{PNG[76:]}\n"
        for data in (f" DATA:image/png;charset=utf-8;base64,{quoted}", f"data:;base64,{PNG}", in_lines, urlsafe):
            assert model_content(envelope(image(data, ""), blob(data, "image/png"))) == [IMAGE] * 2
            assert model_text(envelope(image(data))) == PNG_NOTE

    @rows(
        ("block", "file"),
        (audio(), FileContent(WAV, "audio/wav")),
        (blob(PDF, "application/pdf"), FileContent(PDF, "application/pdf", filename="a report.pdf")),
        (blob(PDF, None, uri="x:///"), FileContent(PDF, "application/pdf", filename="x:")),
        (blob(PDF, None, uri="data:,"), FileContent(PDF, "application/pdf")),
        (image(SVG, "image/svg+xml"), FileContent(SVG, "image/svg+xml")),
        (image(PDF, mime_type=""), FileContent(PDF, "application/pdf")),
        # Haystack refuses these.
        *((block, None) for block in (image(NO_BASE64), image(""), blob("AAAA", None))),
    )
    def test_files_are_passed_if_tool_messages_support_them(self, block, file, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(content, "TOOL_MESSAGES_TAKE_FILES", True)
        assert model_content(envelope(block)) == ([file] if file else model_text(envelope(block)))
        monkeypatch.setattr(content, "TOOL_MESSAGES_TAKE_FILES", False)
        assert model_content(envelope(block)) == model_text(envelope(block))

    def test_content_that_a_tool_message_cannot_hold_is_described_as_text(self) -> None:
        content = model_content(envelope(text("all"), image(), audio(), blob(PDF, "application/pdf"), link()))
        message = ChatMessage.from_tool(content, origin=ToolCall("t", {}))
        assert ChatMessage.from_dict(message.to_dict()) == message


@rows(
    ("result", "expected"),
    (envelope(text("no such"), text("table"), is_error=True), "no such\ntable"),
    ({"content": [{"type": "text", "text": "boom"}], "isError": True}, "boom"),
    (envelope(structured={"code": 7}, is_error=True), '{"code": 7}'),
    ("boom", "boom"),
    *((nothing, "the server gave no error text") for nothing in (envelope(text(" "), is_error=True), "", "\n")),
)
def test_the_text_of_an_error_is_the_servers(result: Any, expected: str) -> None:
    assert error_text(result) == expected


class TestStateResult:
    def test_a_result_keeps_its_envelope_in_a_copy_and_in_state(self) -> None:
        original = state_result(envelope(text("3"), structured={"result": 3}))
        state = State(schema={"call": {"type": dict}})
        state.set("call", original)
        twins = copy.copy(original), copy.deepcopy(original), pickle.loads(pickle.dumps(original))  # noqa: S301
        for duplicate in (*twins, state.get("call")):
            assert duplicate == original == {"result": 3}
            assert duplicate.envelope == original.envelope
        assert State.from_dict(state.to_dict()).get("call") == original

    @rows(
        ("result", "expected"),
        (envelope(text('{"n":'), text("3}")), {"n": 3}),
        (envelope(text("Found:"), text('{"n": 3}'), text('{"n": 4}')), {"n": 3}),
        (envelope(text("a"), text("b", annotations=USER_ONLY)), {"result": "a\nb"}),
        (envelope(), {"result": ""}),
        (envelope(structured=[1, 2]), {"result": [1, 2]}),
        (envelope(text("[1, 2]"), structured=[1, 2]), {"result": "[1, 2]"}),
        (envelope(text("see"), image()), {"result": [TextContent("see"), IMAGE]}),
        (envelope(link()), {"result": [LINK]}),
        ("no envelope", {"result": "no envelope"}),
        # A JSON object that the server wrapped as a string is also found.
        (envelope(text(OBJECT), structured={"result": OBJECT}), {"result": OBJECT, "status": "clean"}),
        (envelope(text("3"), structured={"result": "3"}), {"result": "3"}),
    )
    def test_a_result_finds_the_values_of_its_envelope(self, result: str, expected: dict[str, Any]) -> None:
        assert state_result(result) == expected

    def test_the_model_sees_a_result_like_its_envelope(self) -> None:
        for result in (envelope(text("three"), structured={"n": 3}), envelope(image()), "no envelope"):
            for handler in RESULT_HANDLERS.values():
                assert handler(state_result(result)) == handler(result)


def test_a_prompt_keeps_the_users_texts_images_and_files_and_describes_those_of_the_assistant() -> None:
    said = '{"content": [], "isError": false}'
    pdf = blob(PDF, "application/pdf")
    given = [("user", text(said)), ("user", image()), ("user", pdf), ("user", document("Hi")), ("assistant", image())]
    sent = [types.PromptMessage(role=role, content=block) for role, block in given]
    messages = prompt_messages(types.GetPromptResult(messages=sent))
    assert [ChatMessage.from_dict(message.to_dict()) for message in messages] == messages
    assert [message.role.value for message in messages] == [role for role, _ in given]
    plain, picture, file, embedded, note = messages
    assert (plain.text, picture.images, file.file.filename) == (said, [IMAGE], "a report.pdf")
    assert embedded.text == "[resource: file:///readme.md, text/markdown]\nHi"
    assert note.text == PNG_NOTE
