# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from haystack.dataclasses import ChatMessage, ImageContent, TextContent
from mcp import types

from haystack_integrations.tools.mcp.convert.content import prompt_messages

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
PNG = {"data": PIXEL, "mime_type": "image/png"}
REPORT = types.BlobResourceContents(uri="memo://report.pdf", blob="JVBERi0xLjQK", mime_type="application/pdf")
NOTES = types.TextResourceContents(uri="memo://notes", text="Buy milk.", mime_type="text/plain")
IMAGE = types.ImageContent(type="image", **PNG)
FOR_USER = types.ImageContent(type="image", annotations=types.Annotations(audience=["user"]), **PNG)


def converted(*messages: tuple[types.Role, types.ContentBlock]) -> list[ChatMessage]:
    result = types.GetPromptResult(
        messages=[types.PromptMessage(role=role, content=content) for role, content in messages]
    )
    chat = prompt_messages(result)
    # What a pipeline does with it.
    assert [ChatMessage.from_dict(message.to_dict()) for message in chat] == chat
    return chat


def test_messages_keep_their_text_and_their_order_and_are_not_merged():
    texts = [("user", "a"), ("user", ""), ("assistant", '{"content": [], "isError": false}'), ("user", "d")]
    messages = converted(*((role, types.TextContent(type="text", text=text)) for role, text in texts))
    assert [(message.role.value, message.text) for message in messages] == texts


def test_images_and_files_of_the_user_stay_what_they_are_and_those_of_the_assistant_are_notes():
    report, notes = (types.EmbeddedResource(type="resource", resource=each) for each in (REPORT, NOTES))
    pixel, seen, file, text = converted(("user", IMAGE), ("user", FOR_USER), ("user", report), ("user", notes))
    assert [type(each._content[0]) for each in (pixel, seen, text)] == [ImageContent, ImageContent, TextContent]
    assert file.file.filename == "report.pdf"
    assert text.text == "[resource: memo://notes, text/plain]\nBuy milk."
    pixel, file = converted(("assistant", IMAGE), ("assistant", report))
    assert "[image: image/png" in pixel.text
    assert file.text == "[resource: memo://report.pdf, application/pdf, 9 B]"
