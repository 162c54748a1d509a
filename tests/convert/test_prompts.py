# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from haystack.dataclasses import ChatMessage, ChatRole, ImageContent, TextContent
from mcp import types

from haystack_integrations.tools.mcp.convert.content import prompt_messages
from tests.support.rows import rows

PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="


def converted(role: types.Role, content: types.ContentBlock) -> ChatMessage:
    result = types.GetPromptResult(messages=[types.PromptMessage(role=role, content=content)])
    [message] = prompt_messages(result)
    # What a pipeline does with it.
    assert ChatMessage.from_dict(message.to_dict()) == message
    return message


@rows("role", ["user", "assistant"])
@rows("text", ["Hello", "", '{"content": [], "isError": false}'])
def test_text_is_kept_as_it_is(role, text):
    message = converted(role, types.TextContent(type="text", text=text))
    assert message.is_from(ChatRole(role))
    assert message.text == text


def test_messages_keep_their_order_and_are_not_merged():
    texts = [("user", "a"), ("user", "b"), ("assistant", "c"), ("user", "d")]
    messages = [
        types.PromptMessage(role=role, content=types.TextContent(type="text", text=text)) for role, text in texts
    ]
    converted_messages = prompt_messages(types.GetPromptResult(messages=messages))
    assert [(message.role.value, message.text) for message in converted_messages] == texts


def test_an_image_of_the_user_is_an_image_and_one_of_the_assistant_a_note():
    image = types.ImageContent(type="image", data=PIXEL, mime_type="image/png")
    assert isinstance(converted("user", image)._content[0], ImageContent)
    assert "[image: image/png" in converted("assistant", image).text


def test_a_file_of_the_user_is_a_file_and_one_of_the_assistant_a_note():
    resource = types.BlobResourceContents(uri="memo://report.pdf", blob="JVBERi0xLjQK", mime_type="application/pdf")
    file = types.EmbeddedResource(type="resource", resource=resource)
    assert converted("user", file).file.filename == "report.pdf"
    assert converted("assistant", file).text == "[resource: memo://report.pdf, application/pdf, 9 B]"


def test_an_embedded_text_says_where_it_is_from():
    resource = types.TextResourceContents(uri="memo://notes", text="Buy milk.", mime_type="text/plain")
    message = converted("user", types.EmbeddedResource(type="resource", resource=resource))
    assert [type(part) for part in message._content] == [TextContent]
    assert message.text == "[resource: memo://notes, text/plain]\nBuy milk."


def test_a_message_for_the_user_only_is_kept():
    annotations = types.Annotations(audience=["user"])
    image = types.ImageContent(type="image", data=PIXEL, mime_type="image/png", annotations=annotations)
    assert isinstance(converted("user", image)._content[0], ImageContent)
