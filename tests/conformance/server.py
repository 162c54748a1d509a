# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The server that the official conformance suite tests: functions, tools, prompt builders, a document store and skills of
Haystack, and beside them what Haystack has no word for.

    python server.py '{"transport": "http", "port": 8000}'

What is called `test_...`, and what it answers, is what the suite asks for.
"""

import asyncio
import base64
import functools
import json
import sys
from typing import Any, Literal

from fastmcp import Context, FastMCP
from fastmcp.exceptions import ToolError
from fastmcp.prompts import Message, PromptResult
from fastmcp.server.event_store import EventStore
from fastmcp.tools import Tool as FastMCPTool
from haystack import Document, component
from haystack.components.builders import ChatPromptBuilder, PromptBuilder
from haystack.dataclasses import ByteStream, ChatMessage, ImageContent
from haystack.document_stores.in_memory import InMemoryDocumentStore
from haystack.tools import Tool
from mcp import MCPError, types
from pydantic import BaseModel, Field

from haystack_integrations.tools.mcp.haystack_compat import SkillInfo
from haystack_integrations.tools.mcp.serving import ServeOptions, create_mcp_server, run_server

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
WAV = "UklGRiQAAABXQVZFZm10IBAAAAABAAEARKwAAIhYAQACABAAZGF0YQAAAAA="

# A tool of Haystack says its schema itself, and it has to reach the client as it is.
SCHEMA: dict[str, Any] = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
        "address": {
            "$anchor": "addressDef",
            "type": "object",
            "properties": {"street": {"type": "string"}, "city": {"type": "string"}},
        }
    },
    "properties": {
        "name": {"type": "string"},
        "address": {"$ref": "#/$defs/address"},
        "contactMethod": {"type": "string", "enum": ["phone", "email"]},
        "phone": {"type": "string"},
        "email": {"type": "string"},
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": False,
}


def text_resource(uri: str, mime_type: str, text: str) -> types.EmbeddedResource:
    contents = types.TextResourceContents(uri=uri, mime_type=mime_type, text=text)
    return types.EmbeddedResource(type="resource", resource=contents)


def test_simple_text() -> str:
    """Answer with text."""
    return "This is a simple text response for testing."


def test_image_content() -> ImageContent:
    """Answer with an image."""
    return ImageContent(base64_image=PNG, mime_type="image/png")


def test_audio_content() -> ByteStream:
    """Answer with a sound."""
    return ByteStream(base64.b64decode(WAV), mime_type="audio/wav")


def test_embedded_resource() -> types.EmbeddedResource:
    """Answer with a resource."""
    return text_resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")


def test_multiple_content_types() -> list[Any]:
    """Answer with text, an image and a resource."""
    resource = text_resource("test://mixed-content-resource", "application/json", '{"test":"data","value":123}')
    return ["Multiple content types test:", test_image_content(), resource]


def test_error_handling() -> None:
    """Fail."""
    msg = "This tool intentionally returns an error for testing"
    raise RuntimeError(msg)


async def test_tool_with_logging(context: Context) -> str:
    """Write to the client's log."""
    for message in ("Tool execution started", "Tool processing data", "Tool execution completed"):
        await context.info(message)
    return "logged"


async def test_tool_with_progress(context: Context) -> str:
    """Tell of progress."""
    for done in (0, 50, 100):
        await context.report_progress(done, 100)
    return "done"


async def test_reconnection(context: Context) -> str:
    """Close the stream in the middle of the call."""
    # The SDK drops the first event of a stream, with the ID to resume it by, if it is closed before that is written.
    await asyncio.sleep(0.5)
    await context.close_sse_stream()
    return "Reconnection test completed"


async def test_sampling(prompt: str, context: Context) -> str:
    """Ask the client's model."""
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=prompt))
    result = await context.session.create_message(
        messages=[message], max_tokens=100, related_request_id=context.request_id
    )
    return f"LLM response: {result.content.text}"


class Answer(BaseModel):
    username: str = Field(description="User's response")
    email: str = Field(description="User's email address")


async def test_elicitation(message: str, context: Context) -> str:
    """Ask the user."""
    result = await context.elicit(message, response_type=Answer)
    return f"User response: action={result.action}"


class Person(BaseModel):
    name: str = "John Doe"
    age: int = 30
    score: float = 95.5
    status: Literal["active", "inactive", "pending"] = "active"
    verified: bool = True


async def test_elicitation_sep1034_defaults(context: Context) -> str:
    """Ask the user, who may leave what is proposed."""
    result = await context.elicit("Please review", response_type=Person)
    return f"Elicitation completed: action={result.action}"


ENUMS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "untitledSingle": {"type": "string", "enum": ["option1", "option2", "option3"]},
        "titledSingle": {
            "type": "string",
            "oneOf": [{"const": f"value{n}", "title": f"Option {n}"} for n in (1, 2, 3)],
        },
        "legacyEnum": {"type": "string", "enum": ["opt1", "opt2"], "enumNames": ["Option One", "Option Two"]},
        "untitledMulti": {"type": "array", "items": {"type": "string", "enum": ["option1", "option2"]}},
        "titledMulti": {
            "type": "array",
            "items": {"anyOf": [{"const": f"value{n}", "title": f"Choice {n}"} for n in (1, 2)]},
        },
    },
}


async def test_elicitation_sep1330_enums(context: Context) -> str:
    """Let the user choose."""
    result = await context.session.elicit_form("Please choose", ENUMS, related_request_id=context.request_id)
    return f"Elicitation completed: action={result.action}"


def test_missing_capability(context: Context) -> str:
    """Need the client's model."""
    capabilities = context.session.client_capabilities
    if capabilities is None or capabilities.sampling is None:
        raise MCPError(
            types.MISSING_REQUIRED_CLIENT_CAPABILITY,
            "This tool needs the capability `sampling`",
            {"requiredCapabilities": {"sampling": {}}},
        )
    return "There is a model."


def repeat_region(region: str = "none") -> str:
    return f"region={region}"


def asking(message: str, **properties: str) -> types.ElicitRequest:
    schema = {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }
    return types.ElicitRequest(params=types.ElicitRequestFormParams(message=message, requested_schema=schema))


def sampling(text: str) -> types.CreateMessageRequest:
    message = types.SamplingMessage(role="user", content=types.TextContent(type="text", text=text))
    return types.CreateMessageRequest(params=types.CreateMessageRequestParams(messages=[message], max_tokens=100))


def wants(state: str | None = None, **requests: Any) -> types.InputRequiredResult:
    return types.InputRequiredResult(input_requests=requests, request_state=state)


def answered(context: Context, name: str, kind: type[Any]) -> Any:
    answer = (context.input_responses or {}).get(name)
    return answer if isinstance(answer, kind) else None


def test_input_required_result_elicitation(context: Context) -> Any:
    """Want a name."""
    answer = answered(context, "user_name", types.ElicitResult)
    if answer is None:
        return wants(user_name=asking("What is your name?", name="string"))
    return f"Hello, {(answer.content or {}).get('name')}!"


def test_input_required_result_sampling(context: Context) -> Any:
    """Want an answer of the client's model."""
    answer = answered(context, "capital_question", types.CreateMessageResult)
    if answer is None:
        return wants(capital_question=sampling("What is the capital of France?"))
    return f"Model said: {answer.content.text}"


def test_input_required_result_list_roots(context: Context) -> Any:
    """Want the client's roots."""
    answer = answered(context, "client_roots", types.ListRootsResult)
    return wants(client_roots=types.ListRootsRequest()) if answer is None else f"{len(answer.roots)} roots"


def test_input_required_result_request_state(context: Context) -> Any:
    """Want a confirmation, and remember that in the client."""
    if answered(context, "confirm", types.ElicitResult) is None or context.request_state != "waiting":
        return wants("waiting", confirm=asking("Please confirm", ok="boolean"))
    return "state-ok"


def test_input_required_result_multiple_inputs(context: Context) -> Any:
    """Want three things at once."""
    if {"user_name", "greeting", "client_roots"} <= set(context.input_responses or {}):
        return "All of it came."
    return wants(
        "several",
        user_name=asking("What is your name?", name="string"),
        greeting=sampling("Greet somebody"),
        client_roots=types.ListRootsRequest(),
    )


def test_input_required_result_multi_round(context: Context) -> Any:
    """Want one thing after the other."""
    state = json.loads(context.request_state or '{"round": 0}')
    if state["round"] == 1 and answered(context, "step1", types.ElicitResult):
        name = (answered(context, "step1", types.ElicitResult).content or {}).get("name")
        later = json.dumps({"round": 2, "name": name})
        return wants(later, step2=asking("Step 2: What is your favorite color?", color="string"))
    if state["round"] == 2 and answered(context, "step2", types.ElicitResult):
        return f"{state['name']} likes {(answered(context, 'step2', types.ElicitResult).content or {}).get('color')}."
    return wants(json.dumps({"round": 1}), step1=asking("Step 1: What is your name?", name="string"))


def test_input_required_result_tampered_state(context: Context) -> Any:
    """Want a confirmation, and believe only what this server has said."""
    if context.request_state is None:
        return wants("first", confirm=asking("Please confirm", ok="boolean"))
    return "state-ok"


def test_input_required_result_capabilities(context: Context) -> Any:
    """Want only what the client can do."""
    capabilities = context.session.client_capabilities
    requests: dict[str, Any] = {}
    if capabilities is None or capabilities.sampling is not None:
        requests["sample"] = sampling("Greet somebody")
    if capabilities is None or capabilities.elicitation is not None:
        requests["ask"] = asking("What is your name?", name="string")
    return wants("asked", **requests)


def greet(name: str) -> str:
    """Greet somebody, at once."""
    return f"Hello, {name}!"


async def slow_compute(seconds: float, label: str = "") -> str:
    """Take some time."""
    await asyncio.sleep(seconds)
    return f"{label} took {seconds} s"


async def failing_job() -> None:
    """Fail after some time."""
    await asyncio.sleep(1)
    msg = "This job fails"
    raise ToolError(msg)


async def protocol_error_job() -> None:
    """Fail with an error of the protocol."""
    raise MCPError(types.INTERNAL_ERROR, "This job breaks")


def confirm_delete(filename: str, context: Context) -> Any:
    """Ask before something is deleted."""
    answer = answered(context, "confirm", types.ElicitResult)
    return wants(confirm=asking(f"Delete {filename}?", confirm="boolean")) if answer is None else f"{filename} is gone"


def multi_input(context: Context) -> Any:
    """Ask two things at once."""
    if {"first", "second"} <= set(context.input_responses or {}):
        return "Both came."
    return wants(first=asking("First?", ok="boolean"), second=asking("Second?", ok="boolean"))


def test_tool_with_task(context: Context) -> Any:
    """Want a name, and go on in the background."""
    return test_input_required_result_elicitation(context)


@component
class PictureBuilder:
    """
    A prompt with an image.
    """

    variables: tuple[str, ...] = ()

    @component.output_types(prompt=list[ChatMessage])
    def run(self) -> dict[str, Any]:
        return {"prompt": [ChatMessage.from_user(content_parts=[test_image_content(), "Please analyze the image."])]}


class Skills:
    """
    A skill store.
    """

    def list_skills(self) -> dict[str, Any]:
        return {"greeting": SkillInfo("greeting", "Greets people")}

    def load_skill(self, name: str) -> tuple[str, list[str]]:
        return "Say hello.", ["languages/french.md"]

    def read_skill_file(self, name: str, path: str) -> str:
        return "Say salut."


FUNCTIONS = [
    *(function for name, function in [*globals().items()] if name.startswith("test_")),
    *(greet, slow_compute, failing_job, protocol_error_job, confirm_delete, multi_input),
]

# What may run in the background, and what has to.
OPTIONS = {
    "test_prompt_with_arguments": ServeOptions(completions={"arg1": ["paris", "park", "party"]}),
    **{
        name: ServeOptions(task=True)
        for name in ("slow_compute", "protocol_error_job", "confirm_delete", "multi_input")
    },
    **{name: ServeOptions(task="required") for name in ("failing_job", "test_tool_with_task")},
}

PROMPTS = {
    "test_simple_prompt": PromptBuilder("This is a simple prompt for testing."),
    "test_prompt_with_arguments": ChatPromptBuilder(
        template=[ChatMessage.from_user("Prompt with arguments: arg1='{{ arg1 }}', arg2='{{ arg2 }}'")],
        required_variables="*",
    ),
    "test_prompt_with_image": PictureBuilder(),
}


def make_server() -> FastMCP[Any]:
    store = InMemoryDocumentStore()
    store.write_documents([Document(id="text", content="A document.")])
    header_schema = {"type": "object", "properties": {"region": {"type": "string", "x-mcp-header": "Region"}}}
    server = create_mcp_server(
        "Conformance",
        tools=[
            *FUNCTIONS,
            Tool("json_schema_2020_12_tool", "Take what the schema says.", SCHEMA, lambda **arguments: "taken"),
            Tool("test_x_mcp_header", "Repeat an argument in a header.", header_schema, repeat_region),
        ],
        prompts=PROMPTS,
        document_stores={"library": store},
        skills=Skills(),
        options=OPTIONS,
        dereference_schemas=False,
        mask_error_details=False,
    )

    @server.tool
    def test_trigger_tool_change() -> str:
        """Add a tool, and remove it."""
        server.add_tool(FastMCPTool.from_function(lambda: "there", name="test_dynamic_tool"))
        server.local_provider.remove_tool("test_dynamic_tool")
        return "changed"

    @server.tool
    def test_trigger_prompt_change() -> str:
        """Add a prompt, and remove it."""
        server.prompt(lambda: "there", name="test_dynamic_prompt")
        server.local_provider.remove_prompt("test_dynamic_prompt")
        return "changed"

    @server.resource("test://static-text", mime_type="text/plain")
    def static_text() -> str:
        return "This is the content of the static text resource."

    @server.resource("test://static-binary", mime_type="image/png")
    def static_binary() -> bytes:
        return base64.b64decode(PNG)

    @server.resource("test://watched-resource")
    def watched() -> str:
        return "Watched"

    @server.resource("test://template/{id}/data", mime_type="application/json")
    def template(id: str) -> str:  # noqa: A002 - the name that the suite uses
        return json.dumps({"id": id, "templateTest": True, "data": f"Data for ID: {id}"})

    @server.prompt
    def test_prompt_with_embedded_resource(resourceUri: str) -> PromptResult:  # noqa: N803
        """Show a resource."""
        resource = text_resource(resourceUri, "text/plain", "Embedded resource content for testing.")
        return PromptResult([Message(resource), Message("Please process the embedded resource above.")])

    @server.prompt
    async def test_input_required_result_prompt(context: Context) -> Any:
        """Want something before the prompt can be made."""
        answer = answered(context, "user_context", types.ElicitResult)
        if answer is None:
            return wants(user_context=asking("What context should the prompt use?", context="string"))
        return f"Use the following context: {(answer.content or {}).get('context')}"

    return server


def main() -> None:
    server = make_server()
    server.http_app = functools.partial(server.http_app, retry_interval=100)
    run_server(server, event_store=EventStore(), **json.loads(sys.argv[1]))


if __name__ == "__main__":
    main()
