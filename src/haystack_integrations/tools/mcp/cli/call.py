# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`call`, `read` and `prompt`: what is asked of one server.
"""

from __future__ import annotations

import base64
import mimetypes
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from haystack_integrations.tools.mcp.cli.call_arguments import (
    check_arguments,
    describe_type,
    problem_with,
    properties_of,
    required_in,
    sent_arguments,
    text_arguments,
    typed,
    typed_arguments,
)
from haystack_integrations.tools.mcp.cli.output import (
    OUTPUT,
    CommandError,
    ExitCode,
    Output,
    as_json,
    for_terminal,
    one_line,
    protocol_json,
    save_bytes,
    visible,
)
from haystack_integrations.tools.mcp.cli.targets import ServerOptions, Target, connected, named, server_of
from haystack_integrations.tools.mcp.convert.content import model_text
from haystack_integrations.tools.mcp.convert.resources import plain_base64, resource_streams
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.handlers.calling import MCPProgress
from haystack_integrations.tools.mcp.handlers.mcp_handlers import described_options, options_of

if TYPE_CHECKING:
    import mcp_types as types


def call(
    target: Target,
    tool: Annotated[str, Parameter(help="The name of the tool.")],
    /,
    *arguments: Annotated[
        str,
        Parameter(
            help="name=value, typed by the tool's schema; repeated for a list. name:=JSON for any JSON. name@FILE for "
            "the content of a file."
        ),
    ],
    input: Annotated[str | None, Parameter(metavar="JSON", allow_leading_hyphen=True)] = None,  # noqa: A002 - the option's name
    save: Annotated[Path | None, Parameter(metavar="FOLDER", group=OUTPUT)] = None,
    options: ServerOptions = ServerOptions(),
) -> ExitCode:
    """
    Call a tool, and print its result.

    The arguments are checked against the tool's schema before anything is sent. Progress goes to stderr. If the tool
    asks you something, it is asked in the terminal.

    :param input: Arguments as a JSON object; @FILE to read it from a file, - from stdin.
    :param save: Write the images, sounds and files of the result into this folder.
    """
    output = options.output
    name = one_line(tool)
    bar = Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TaskProgressColumn(),
        TimeElapsedColumn(),
        console=output.notes,
        transient=True,
        disable=not output.notes.is_terminal,
    )

    def report(progress: MCPProgress) -> None:
        text = f"{name}: {one_line(progress.message)}" if progress.message else name
        for task in bar.task_ids:
            bar.update(task, completed=progress.progress, total=progress.total, description=text)

    handlers = MCPHandlers(elicitation=lambda request: ask_in_terminal(request, output, bar), progress=report)
    with connected(server_of(target, options), options, handlers) as session:
        schema = named("tool", tool, session.tools).input_schema
        given = typed_arguments(arguments, input, schema)
        check_arguments(given, schema, f"The tool '{tool}' cannot be called so")
        given, unknown = sent_arguments(given, schema)
        if unknown:
            choices = describe_choices(unknown, list(properties_of(schema)), "It", "arguments")
            text = f"Warning: the tool '{name}' has no argument {', '.join(map(repr, unknown))}. {one_line(choices)}"
            output.note(text, style="yellow")
        bar.add_task(name, total=None)
        with bar:
            result = session.connection.call_tool(tool, given)
    # The tool was called, so its result is shown also if it cannot be saved.
    code = ExitCode.OK if save is None else _save(result, save, tool, output)
    if output.is_json:
        output.json(result)
    elif not result.content and result.structured_content is not None:
        output.text(as_json(result.structured_content))
    else:
        shown = protocol_json(result)
        for block in shown["content"]:
            block.pop("annotations", None)  # a person sees what is not for a model, too
        output.text(model_text(shown))
    return code


def _save(result: types.CallToolResult, folder: Path, tool: str, output: Output) -> ExitCode:
    try:
        for number, (data, mime_type) in enumerate(_files_in(result), 1):
            save_bytes(folder / f"{tool}-{number}{_suffix(mime_type or '')}", data, output)
    except OSError as error:
        output.note(f"Error: the files of the result are not saved: {for_terminal(error)}", style="red")
        return ExitCode.FAILED
    return ExitCode.OK


def _files_in(result: types.CallToolResult) -> Iterator[tuple[bytes, str | None]]:
    for block in result.content:
        source: Any = getattr(block, "resource", block)
        data = getattr(source, "data", None) or getattr(source, "blob", None)
        if data is not None:
            yield base64.b64decode(plain_base64(data)[0]), source.mime_type
        elif block.type == "resource":
            yield source.text.encode(), source.mime_type or "text/plain"


def _suffix(mime_type: str) -> str:
    # Python 3.11 knows sounds and others by the names that they had before they were registered: audio/x-wav.
    older = mime_type.replace("/", "/x-", 1)
    return mimetypes.guess_extension(mime_type) or mimetypes.guess_extension(older) or ".bin"


def ask_in_terminal(request: Any, output: Output, bar: Progress) -> dict[str, Any] | bool | None:
    """
    Ask the person what a server wants to know ("elicitation").

    Without a terminal, nobody is asked, and the server is told so.

    :param request: The request of the server: `ElicitRequestFormParams` or `ElicitRequestURLParams` of the MCP SDK.
    :param output: Where it is asked.
    :param bar: What else is shown there.
    :returns: The answers; True or False to accept or decline; None to cancel.
    """
    text = visible(request.message)
    if not sys.stdin.isatty():
        output.note(f"The server asks, and there is no terminal to answer in: {text}", style="yellow")
        return None
    bar.stop()
    output.note(f"\nThe server asks: {text}", style="bold")
    try:
        if request.mode == "form":
            return _form(request.requested_schema, output)
        output.note(f"Open this page if you trust the server: {one_line(request.url)}")
        return output.confirm("Have you opened it?")
    except EOFError:  # Ctrl-D
        return None
    finally:
        bar.start()


def _form(schema: Mapping[str, Any], output: Output) -> dict[str, Any] | bool:
    required = required_in(schema)
    values: dict[str, Any] = {}
    for name, each in properties_of(schema).items():
        default, options, is_list = each.get("default"), options_of(each), each.get("type") == "array"
        facts = [one_line(described_options(options)) if options else describe_type(each, schema)]
        if is_list:
            facts.append("separated by commas")
        if default is not None:
            facts.append(f"default: {one_line(default)}")
        elif name not in required:
            facts.append("optional")
        meaning = ", ".join(filter(None, [one_line(name), one_line(each.get("description", ""))]))
        question = f"  {meaning} ({', '.join(facts)}): "
        while True:
            text = output.ask(question)
            texts = [part.strip() for part in text.split(",")] if is_list else [text]
            value = typed(name, texts, schema) if text else default
            problem = problem_with({name: value}, {**schema, "required": []}) if value is not None else None
            if problem is None and (value is not None or name not in required):
                break
            output.note(f"{problem}." if problem else "An answer is needed; Ctrl-D cancels.", style="yellow")
        if value is not None:
            values[name] = value
    return values if values or required else output.confirm("Accept?")


def read(
    target: Target,
    uri: Annotated[str, Parameter(help="The URI of the resource.")],
    /,
    *,
    save: Annotated[Path | None, Parameter(metavar="FILE", group=OUTPUT)] = None,
    options: ServerOptions = ServerOptions(),
) -> None:
    """
    Read a resource, and print its content.

    A text is printed as it is, and so are bytes into a pipe or a file.

    :param save: Write the content into this file.
    """
    output = options.output
    if not uri:
        msg = "The URI is empty. 'mcp-haystack list TARGET --resources' shows those that there are"
        raise CommandError(msg)
    with connected(server_of(target, options), options) as session:
        result = session.connection.read_resource(uri)
    parts: list[Any] = result.contents
    texts = [getattr(part, "text", None) for part in parts]
    try:
        contents = [stream.data for stream in resource_streams(result)]
    except ValueError as error:
        raise CommandError(str(error)) from error
    if save is not None:
        save_bytes(save, b"".join(contents), output)
    if output.is_json:
        output.json(result)
    if output.is_json or save is not None:
        return
    for part, text, content in zip(parts, texts, contents, strict=True):
        if text is not None:
            output.text(text)
        elif output.results.is_terminal:
            kind = part.mime_type or "unknown type"
            output.note(f"{part.uri}: {len(content):,} bytes ({kind}). Use --save FILE, or a pipe.")
        else:
            output.bytes(content)


def prompt(
    target: Target,
    name: Annotated[str, Parameter(help="The name of the prompt.")],
    /,
    *arguments: Annotated[str, Parameter(help="name=value, or name@FILE for the content of a file.")],
    options: ServerOptions = ServerOptions(),
) -> None:
    """
    Get a prompt, and print its messages.

    Each begins with who says it.
    """
    output = options.output
    given = text_arguments(arguments)
    with connected(server_of(target, options), options) as session:
        # Servers of the SDK call a wrong name or argument an "Internal server error".
        known = named("prompt", name, session.connection.list_prompts()).arguments or []
        schema = {
            "properties": {each.name: {"type": "string"} for each in known},
            "required": [each.name for each in known if each.required],
            "additionalProperties": False,
        }
        check_arguments(given, schema, f"The prompt '{name}' cannot be made so")
        result = session.connection.get_prompt(name, given)
    if output.is_json:
        output.json(result)
        return
    for message in result.messages:
        output.print(f"{message.role}:", style="bold")
        output.text(model_text({"content": [protocol_json(message.content)], "isError": False}))
