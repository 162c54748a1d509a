# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`call`, `read` and `prompt`: requests to one server. Arguments are typed and checked with a JSON schema.

.. code-block:: text

    name=text        a value of the schema's type: 5 is a number if the schema has a number there, otherwise a text
    name=a name=b    a list
    name:=JSON       any value, as JSON
    name@FILE        the content of a file, of the type in the schema; `-` is stdin
"""

from __future__ import annotations

import base64
import json
import mimetypes
import re
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NoReturn

from cyclopts import Parameter
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import Draft202012Validator, validator_for
from referencing import Registry
from referencing.exceptions import Unresolvable
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

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
from haystack_integrations.tools.mcp.cli.targets import ServerOptions, Target, item_named, open_session, server_of
from haystack_integrations.tools.mcp.convert.arguments import (
    dereferenced,
    describe_violation,
    fit_arguments,
    undeclared,
)
from haystack_integrations.tools.mcp.convert.content import model_text
from haystack_integrations.tools.mcp.convert.resources import plain_base64, resource_streams
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices
from haystack_integrations.tools.mcp.convert.tool_schemas import normalize_parameters
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.handlers.calling import MCPProgress
from haystack_integrations.tools.mcp.handlers.mcp_handlers import described_options, options_of

if TYPE_CHECKING:
    import mcp_types as types

_ARGUMENT_WORD = re.compile(r"(?P<name>[^=]+?)(?P<kind>:=|=|@)(?P<value>.*)", re.DOTALL)

_BOOLEANS = {**dict.fromkeys(("true", "yes", "on"), True), **dict.fromkeys(("false", "no", "off"), False)}

# An unreadable word is shown only up to this many characters, because it may be a secret.
_MAX_SHOWN_OF_WORD = 3

# Limits for describing a schema: levels of nesting, and alternatives.
_MAX_DEPTH, _MAX_ALTERNATIVES = 3, 8


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

    The arguments are checked against the tool's schema before anything is sent. Progress goes to stderr. Questions
    of the tool are asked in the terminal.

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
    with open_session(server_of(target, options), options, handlers) as session:
        schema = item_named("tool", tool, session.tools).input_schema
        given = typed_arguments(arguments, input, schema)
        check_arguments(given, schema, f"The tool '{tool}' cannot be called with these arguments")
        given, unknown = sent_arguments(given, schema)
        if unknown:
            choices = describe_choices(unknown, list(properties_of(schema)), "It", "arguments")
            text = f"Warning: the tool '{name}' has no argument {', '.join(map(repr, unknown))}. {one_line(choices)}"
            output.note(text, style="yellow")
        bar.add_task(name, total=None)
        with bar:
            result = session.connection.call_tool(tool, given)
    # The tool was called, so its result is shown even if it cannot be saved.
    code = ExitCode.OK if save is None else _save(result, save, tool, output)
    if output.is_json:
        output.json(result)
    elif not result.content and result.structured_content is not None:
        output.text(as_json(result.structured_content))
    else:
        shown = protocol_json(result)
        for block in shown["content"]:
            block.pop("annotations", None)  # a person also sees content that is not meant for a model
        output.text(model_text(shown))
    return code


def _save(result: types.CallToolResult, folder: Path, tool: str, output: Output) -> ExitCode:
    try:
        for number, (data, mime_type) in enumerate(_files_in(result), 1):
            save_bytes(folder / f"{tool}-{number}{_suffix(mime_type or '')}", data, output)
    except (OSError, ValueError) as error:  # ValueError: it is not base64
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
    # Python 3.11 knows some types, such as sounds, only by the names before their registration: audio/x-wav.
    older = mime_type.replace("/", "/x-", 1)
    return mimetypes.guess_extension(mime_type) or mimetypes.guess_extension(older) or ".bin"


def ask_in_terminal(request: Any, output: Output, bar: Progress) -> dict[str, Any] | bool | None:
    """
    Ask the user the question of a server ("elicitation").

    Without a terminal, the request is cancelled.

    :param request: The request of the server: `ElicitRequestFormParams` or `ElicitRequestURLParams` of the MCP SDK.
    :param output: Shows the question.
    :param bar: The progress bar, which is hidden meanwhile.
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
            value = _typed_value(name, texts, schema) if text else default
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

    Texts are printed unchanged, and so are bytes if stdout is a pipe or a file.

    :param save: Write the content into this file.
    """
    output = options.output
    if not uri:
        msg = "The URI is empty. 'mcp-haystack list TARGET --resources' lists the URIs of the server"
        raise CommandError(msg)
    with open_session(server_of(target, options), options) as session:
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

    Each message begins with its role.
    """
    output = options.output
    given = {name: text for name, _, text in map(_split, arguments)}
    with open_session(server_of(target, options), options) as session:
        # Checked here, because servers of the SDK answer a wrong name or argument with "Internal server error".
        known = item_named("prompt", name, session.connection.list_prompts()).arguments or []
        schema = {
            "properties": {each.name: {"type": "string"} for each in known},
            "required": [each.name for each in known if each.required],
            "additionalProperties": False,
        }
        check_arguments(given, schema, f"The prompt '{name}' cannot be made with these arguments")
        result = session.connection.get_prompt(name, given)
    if output.is_json:
        output.json(result)
        return
    for message in result.messages:
        output.print(f"{message.role}:", style="bold")
        output.text(model_text({"content": [protocol_json(message.content)], "isError": False}))


# Arguments


def typed_arguments(words: Iterable[str], given: str | None, schema: Mapping[str, Any]) -> dict[str, Any]:
    """
    Return the arguments of a call.

    :param words: Words such as `name=value`.
    :param given: JSON with further arguments, or `@FILE`, or `-` for stdin. The words take precedence.
    :param schema: The schema of the arguments.
    :returns: The arguments, which may still not fit the schema.
    :raises CommandError: If a word does not have this form, or its file or JSON cannot be read.
    """
    arguments = {} if given is None else _arguments_from_json(given)
    texts: dict[str, list[str]] = {}
    values: dict[str, Any] = {}
    for word in words:
        name, kind, text = _split(word, signature(schema))
        if kind == ":=":
            values[name] = _json(text, f"The argument '{name}'")
        else:
            texts.setdefault(name, []).append(text)
    return {**arguments, **values, **{name: _typed_value(name, each, schema) for name, each in texts.items()}}


def _split(word: str, takes: str = "") -> tuple[str, str, str]:
    match = _ARGUMENT_WORD.fullmatch(word)
    if match is None:
        shown = word if len(word) <= _MAX_SHOWN_OF_WORD else f"{word[:_MAX_SHOWN_OF_WORD]}…"
        msg = f"An argument is given as name=value, name:=JSON or name@FILE; '{shown}' is none of these"
        msg += f". The tool takes {takes}" if takes else ""
        raise CommandError(msg)
    value = match["value"]
    return match["name"], match["kind"], _content(value, word) if match["kind"] == "@" else value


def _content(file: str, word: str) -> str:
    try:
        # As bytes, because the text mode would change the ends of lines.
        return sys.stdin.read() if file == "-" else Path(file).read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        msg = f"The file of '{word}' cannot be read: it is not in UTF-8"
        raise CommandError(msg) from None


def _json(text: str, what: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse_constant)
    except ValueError as error:
        msg = f"{what} is not valid JSON: {error}"
        raise CommandError(msg) from None


def _refuse_constant(constant: str) -> NoReturn:
    msg = f"it has {constant}, which would be sent as null"
    raise ValueError(msg)


def _arguments_from_json(text: str) -> dict[str, Any]:
    if text == "-" or text.startswith("@"):
        text = _content(text.removeprefix("@"), f"--input {text}")
    arguments = _json(text, "--input")
    if not isinstance(arguments, dict):
        msg = f"--input must be a JSON object with the arguments, got a {type(arguments).__name__}"
        raise CommandError(msg)
    return arguments


def _typed_value(name: str, texts: list[str], schema: Mapping[str, Any]) -> Any:
    """
    Return the value of an argument with the type that the schema asks for. Several texts make a list.

    It is the first of these that fits: the text as JSON, the text itself, a boolean for yes or no, a list. If none
    fits, it is the first.
    """
    values = [_value(text) for text in texts]
    lists = [item for value in values for item in (value if isinstance(value, list) else [value])]
    readings: list[Any] = [lists, texts]
    if len(texts) == 1:
        readings = [values[0], texts[0], _BOOLEANS.get(texts[0].lower(), values[0]), lists, texts]
    return next((each for each in readings if _fits(name, each, schema)), readings[0])


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=str)  # NaN is not JSON, and would be sent as null
    except ValueError:
        return text


def _fits(name: str, value: Any, schema: Mapping[str, Any]) -> bool:
    return not any(list(error.absolute_path)[:1] == [name] for error in _errors({name: value}, schema))


def _errors(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> list[ValidationError]:
    try:
        validator = validator_for(schema, default=Draft202012Validator)
        validator.check_schema(dict(schema))
        # The empty registry keeps references in the schema from being fetched.
        return list(validator(dict(schema), registry=Registry()).iter_errors(dict(arguments)))
    except (SchemaError, Unresolvable, RecursionError, TypeError, ValueError, AttributeError):
        return []  # the server will check


def check_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any], what: str) -> None:
    """
    Check arguments against their schema.

    :param arguments: The arguments.
    :param schema: The schema.
    :param what: The beginning of the message, which says what cannot be done.
    :raises CommandError: If they do not fit. The message names the argument, but quotes no value.
    """
    reason = problem_with(arguments, schema)
    if reason is not None:
        _, unknown = sent_arguments(dict(arguments), schema)
        # An unknown argument may be a missing one with its name misspelt.
        if names := [repr(name) for name in unknown if repr(name) not in reason]:
            reason = f"{reason}; there is no argument {', '.join(names)}"
        msg = f"{what}: {reason}. It takes {signature(schema) or 'no arguments'}"
        raise CommandError(msg)


def sent_arguments(arguments: dict[str, Any], schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """
    Prepare arguments that fit their schema for sending.

    :param arguments: The arguments.
    :param schema: The schema.
    :returns: The arguments, with 5 in place of 5.0 where the schema asks for an integer, and the names that the schema
        does not have.
    """
    try:
        usable = normalize_parameters(schema)
    except ValueError:
        return arguments, []  # the server will check
    return fit_arguments(arguments, usable), undeclared(arguments, usable["properties"], usable)


def problem_with(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> str | None:
    """
    Describe why arguments do not fit their schema, without their values; None if they fit.
    """
    error = best_match(_errors(arguments, schema))
    return None if error is None else describe_violation(error)


def properties_of(schema: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """
    Return the schemas of all arguments by name.
    """
    properties = dereferenced(schema, schema).get("properties")
    known = properties if isinstance(properties, Mapping) else {}
    return {str(name): each if isinstance(each, Mapping) else {} for name, each in known.items()}


def required_in(schema: Mapping[str, Any]) -> list[str]:
    """
    Return the names of the required arguments.
    """
    required = dereferenced(schema, schema).get("required")
    return [str(name) for name in required] if isinstance(required, list) else []


def describe_type(schema: Any, root: Mapping[str, Any], depth: int = 0) -> str:
    """
    Describe in a few words which values a schema allows.

    :param schema: The schema.
    :param root: The schema that contains it, for references.
    :param depth: How deep the schema is nested in other ones.
    :returns: A text such as `integer`, `"a" | "b"`, `list of string` or `object`.
    """
    schema = dereferenced(schema, root)
    choices = [schema["const"]] if "const" in schema else schema.get("enum")
    if isinstance(choices, list):
        return " | ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
    options = schema.get("anyOf") or schema.get("oneOf")
    if isinstance(options, list):
        described = (
            [describe_type(each, root, depth + 1) for each in options[:_MAX_ALTERNATIVES]] if depth < _MAX_DEPTH else []
        )
        return " | ".join(dict.fromkeys(described)) or "any"
    kind = schema.get("type") or "any"  # some servers write null
    if kind == "array":
        return f"list of {describe_type(schema.get('items'), root, depth + 1)}" if depth < _MAX_DEPTH else "list"
    kinds = kind if isinstance(kind, list) else [kind]
    return " | ".join("list" if each == "array" else str(each) for each in kinds)


def signature(schema: Mapping[str, Any]) -> str:
    """
    Describe the arguments of a tool in one line.

    :param schema: Their schema.
    :returns: A text such as `query: string, limit: integer = 10, tags?: list of string`.
    """
    required = required_in(schema)
    parts = []
    for name, each in properties_of(schema).items():
        described = describe_type(each, schema)
        if each.get("default") is not None:
            parts.append(f"{name}: {described} = {json.dumps(each['default'], ensure_ascii=False)}")
        else:
            parts.append(f"{name}{'' if name in required else '?'}: {described}")
    return ", ".join(parts)
