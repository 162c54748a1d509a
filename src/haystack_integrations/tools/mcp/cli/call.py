# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from haystack_integrations.tools.mcp.cli.arguments import check_arguments, typed_arguments
from haystack_integrations.tools.mcp.cli.asking import ask_in_terminal
from haystack_integrations.tools.mcp.cli.output import Output, as_json, one_line, save_bytes
from haystack_integrations.tools.mcp.cli.targets import OUTPUT, Json, Reach, Target, Verbose, connected, server_of
from haystack_integrations.tools.mcp.convert.resources import plain_base64
from haystack_integrations.tools.mcp.convert.results import model_text
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.handlers.progress import MCPProgress

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
    save: Annotated[Path | None, Parameter(metavar="FOLDER", group=OUTPUT, show_default=False)] = None,
    reach: Reach | None = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - read before the command runs
) -> None:
    """
    Call a tool, and print its result.

    The arguments are checked against the tool's schema before anything is sent. Progress goes to stderr. If the tool
    asks you something, it is asked in the terminal.

    :param input: Arguments as a JSON object; @FILE to read it from a file, - from stdin.
    :param save: Write the images, sounds and files of the result into this folder.
    :param json: Print the result of the protocol as JSON.
    """
    reach = reach or Reach()
    output = Output(is_json=json)
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
    with connected(server_of(target, reach), reach, output, handlers=handlers) as session:
        schema = session.tool_named(tool).input_schema
        given = typed_arguments(arguments, input, schema)
        check_arguments(given, schema, f"The tool '{tool}' cannot be called so")
        bar.add_task(name, total=None)
        with bar:
            result = session.connection.call_tool(tool, given)
    if save is not None:
        for number, (data, mime_type) in enumerate(_files_in(result), 1):
            save_bytes(save / f"{tool}-{number}{_suffix(mime_type or '')}", data, output)
    if json:
        output.json(result)
    else:
        output.text(_readable(result))


def _readable(result: types.CallToolResult) -> str:
    envelope: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    if not envelope.get("content") and result.structured_content is not None:
        return as_json(result.structured_content)
    return model_text(envelope)


def _files_in(result: types.CallToolResult) -> list[tuple[bytes, str | None]]:
    files = []
    for block in result.content:
        source: Any = getattr(block, "resource", block)
        data = getattr(source, "data", None) or getattr(source, "blob", None)
        if data is not None:
            files.append((base64.b64decode(plain_base64(data)[0]), source.mime_type))
        elif block.type == "resource":
            files.append((source.text.encode(), source.mime_type or "text/plain"))
    return files


def _suffix(mime_type: str) -> str:
    # Python 3.11 knows sounds and others by the names that they had before they were registered: audio/x-wav.
    older = mime_type.replace("/", "/x-", 1)
    return mimetypes.guess_extension(mime_type) or mimetypes.guess_extension(older) or ".bin"
