# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import base64
import mimetypes
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.arguments import typed_arguments
from haystack_integrations.tools.mcp.cli.asking import ask_in_terminal
from haystack_integrations.tools.mcp.cli.connecting import connected
from haystack_integrations.tools.mcp.cli.exit_codes import CommandError
from haystack_integrations.tools.mcp.cli.options import OUTPUT, Json, Reach, Target, Verbose
from haystack_integrations.tools.mcp.cli.output import Output, as_json
from haystack_integrations.tools.mcp.cli.progress import ProgressBar
from haystack_integrations.tools.mcp.cli.schemas import check_arguments
from haystack_integrations.tools.mcp.cli.targets import server_of
from haystack_integrations.tools.mcp.convert.encoded_data import plain_base64
from haystack_integrations.tools.mcp.convert.results import model_text
from haystack_integrations.tools.mcp.handlers import MCPHandlers

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
    server = server_of(target, reach)
    bar = ProgressBar(output)
    handlers = MCPHandlers(elicitation=lambda request: ask_in_terminal(request, output, bar), progress=bar.report)
    with connected(server, reach, output, handlers=handlers) as session:
        definition = session.tool_named(tool)
        given = typed_arguments(arguments, input, definition.input_schema)
        check_arguments(given, definition.input_schema, f"The tool '{tool}' cannot be called so")
        with bar.running(tool):
            result = session.connection.call_tool(tool, given)
    saved = _save(result, save, tool) if save is not None else []
    if json:
        output.json(result)
    else:
        output.text(_readable(result))
    for file in saved:
        output.note(f"Saved {file}")


def _readable(result: types.CallToolResult) -> str:
    envelope: dict[str, Any] = result.model_dump(mode="json", by_alias=True, exclude_none=True)
    if not envelope.get("content") and result.structured_content is not None:
        return as_json(result.structured_content)
    return model_text(envelope)


def _save(result: types.CallToolResult, folder: Path, name: str) -> list[Path]:
    files: list[Path] = []
    for block in result.content:
        data, mime_type = _bytes_of(block)
        if data is None:
            continue
        file = folder / f"{name}-{len(files) + 1}{_suffix(mime_type or '')}"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        except OSError as error:
            msg = f"{file} cannot be written: {error.strerror}"
            raise CommandError(msg) from None
        files.append(file)
    return files


def _suffix(mime_type: str) -> str:
    # Python 3.11 knows sounds and others by the names that they had before they were registered: audio/x-wav.
    older = mime_type.replace("/", "/x-", 1)
    return mimetypes.guess_extension(mime_type) or mimetypes.guess_extension(older) or ".bin"


def _bytes_of(block: Any) -> tuple[bytes | None, str | None]:
    if block.type in ("image", "audio"):
        return base64.b64decode(plain_base64(block.data)[0]), block.mime_type
    if block.type == "resource":
        resource = block.resource
        if getattr(resource, "blob", None) is not None:
            return base64.b64decode(plain_base64(resource.blob)[0]), resource.mime_type
        return resource.text.encode(), resource.mime_type or "text/plain"
    return None, None
