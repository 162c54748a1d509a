# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The settings for answering a server's requests, and ready-made handlers for questions to the user.

This module does not import the MCP SDK, so that loading YAML stays cheap. `params` is the SDK's
`ElicitRequestFormParams` or `ElicitRequestURLParams`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeAlias
from urllib.parse import urlsplit

from pydantic import Field
from pydantic.dataclasses import dataclass as checked_dataclass

from haystack_integrations.tools.mcp.convert.server_texts import confirmed
from haystack_integrations.tools.mcp.handlers.calling import ProgressCallback
from haystack_integrations.tools.mcp.haystack_compat import OBJECT, deserialize_object, serialize_object
from haystack_integrations.tools.mcp.import_paths import FUNCTION, stored_in
from haystack_integrations.tools.mcp.parameters import CHECKED, Options, StoredAs, explains_options, short_repr

_Function: TypeAlias = Annotated[Callable[[Any], Any] | None, FUNCTION]
LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

# Shown when a form is confirmed as it is, although it has fields without a default.
_LEFT_EMPTY: Final = "A required field is empty: modify the form to fill it in, or reject it."


@stored_in("haystack_integrations.tools.mcp.handlers")
def accept_defaults(params: Any) -> dict[str, Any] | bool:
    """
    Fill in a form with the defaults of its schema, without asking anyone. A handler for `MCPHandlers.elicitation`.

    :param params: The request of the server.
    :returns: The values. False, which declines, for a URL, and for a form with a required field without a default.
    """
    if params.mode != "form":
        return False
    values = default_values(params.requested_schema)
    return values if not missing_fields(params.requested_schema, values) else False


@stored_in("haystack_integrations.tools.mcp.handlers")
def decline(params: Any) -> bool:  # noqa: ARG001 - the signature of a handler
    """
    Decline without asking anyone. A handler for `MCPHandlers.elicitation`.

    :param params: The request of the server.
    :returns: False.
    """
    return False


@stored_in("haystack_integrations.tools.mcp.handlers")
def answer_later(params: Any) -> None:
    """
    Leave a tool call open when its server asks the user a question. A handler for `MCPHandlers.elicitation`.

    If the server speaks revision 2026-07-28, the call fails with an `MCPCallPendingError`, whose `pending_call` can be
    stored and continued with answers at any time, in any process. All other questions are cancelled: those of earlier
    revisions, and those asked while reading resources or prompts.

    :param params: The request of the server.
    :returns: None, which cancels.
    """


@dataclass(frozen=True)
class AskUser:
    """
    Asks the user through a `ConfirmationUI` of Haystack, such as `SimpleConsoleUI`. For `MCPHandlers.elicitation`.

    A form is shown with its defaults, and can be confirmed, modified or rejected. A URL is shown; the user opens it and
    then confirms. The UI runs in its own thread; on the console, one question is asked at a time.

    ### Usage example

    ```python
    from haystack.hooks.human_in_the_loop import SimpleConsoleUI  # Haystack 2.31: haystack.human_in_the_loop

    handlers = MCPHandlers(elicitation=AskUser(SimpleConsoleUI()))
    ```

    :param ui: The UI, with a method `get_user_confirmation(tool_name, tool_description, tool_params)`.
    :raises ValueError: If it has no such method.
    """

    ui: Any

    def __post_init__(self) -> None:
        """
        Check the UI.
        """
        if not callable(getattr(self.ui, "get_user_confirmation", None)):
            msg = (
                "AskUser: `ui` must be a ConfirmationUI of Haystack, with a method `get_user_confirmation`, got "
                f"{type(self.ui).__name__}"
            )
            raise ValueError(msg)

    def __call__(self, params: Any, server: str = "an MCP server") -> dict[str, Any] | bool:
        """
        Ask the user.

        :param params: The request of the server.
        :param server: The name of the server to show.
        :returns: The values of the form, or True if the URL was opened. False if the user declines, or leaves a
            required field empty twice.
        """
        is_form = params.mode == "form"
        shown = _form_values(params.requested_schema) if is_form else {"url": params.url}
        lines = [params.message, *(_meanings(params.requested_schema) if is_form else ())]
        for remark in ([], [_LEFT_EMPTY]):
            decision, changed = confirmed(self.ui, server, "\n".join([*lines, *remark]), shown)
            if decision.action not in ("confirm", "modify"):
                return False
            if not is_form:
                return True
            values = changed if decision.action == "modify" else shown
            known = default_values(params.requested_schema)
            # Drop fields that were left empty, unless empty is their default.
            filled = {
                name: value
                for name, value in values.items()
                if value is not None and (value != "" or known.get(name) == "")
            }
            if not missing_fields(params.requested_schema, filled):
                return filled
            shown = {**shown, **filled}
        return False

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the UI.

        :returns: A dictionary.
        :raises SerializationError: If the UI cannot be stored. The message says why.
        """
        return {"ui": serialize_object("AskUser.ui", self.ui)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AskUser:
        """
        Deserialize an AskUser.

        :param data: The result of `to_dict`.
        :returns: The AskUser.
        """
        return cls(deserialize_object(data["ui"]))


def fields_of(schema: dict[str, Any]) -> dict[str, Any]:
    """
    Return the fields of a form.

    :param schema: Its schema.
    :returns: The schemas by the names of the fields.
    """
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def default_values(schema: dict[str, Any]) -> dict[str, Any]:
    """
    Collect the defaults of a form.

    :param schema: Its schema.
    :returns: The values of the fields that have one.
    """
    return {
        name: field["default"]
        for name, field in fields_of(schema).items()
        if isinstance(field, dict) and field.get("default") is not None
    }


def missing_fields(schema: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """
    Return the required fields without a value.

    :param schema: The schema of a form.
    :param values: The values that were filled in.
    :returns: Their names.
    """
    required = schema.get("required")
    names = required if isinstance(required, list) else []
    return [name for name in names if isinstance(name, str) and name not in values]


def options_of(field: Mapping[str, Any]) -> dict[str, str]:
    """
    Return the choices of a field that takes one or several of them.

    :param field: Its schema.
    :returns: The titles by value; empty if the field is free-form.
    """
    items = field.get("items") if field.get("type") == "array" else field
    items = items if isinstance(items, dict) else {}
    values, titles = items.get("enum"), items.get("enumNames")
    pairs: Iterable[tuple[Any, Any]]
    if isinstance(values, list):
        pairs = zip(values, titles if isinstance(titles, list) and len(titles) == len(values) else values, strict=True)
    else:
        named = items.get("oneOf") or items.get("anyOf")
        listed = [each for each in named if isinstance(each, dict)] if isinstance(named, list) else []
        pairs = ((each.get("const"), each.get("title") or each.get("const")) for each in listed)
    return {value: str(title) for value, title in pairs if isinstance(value, str)}


def described_options(options: dict[str, str]) -> str:
    """
    Describe the choices of a field.

    :param options: As `options_of` returns them.
    :returns: For example "r (Red), b (Blue)".
    """
    return ", ".join(value if value == title else f"{value} ({title})" for value, title in options.items())


def _meanings(schema: dict[str, Any]) -> list[str]:
    """Describe the fields that have more than a name."""
    lines, required = [], missing_fields(schema, default_values(schema))
    for name, field in fields_of(schema).items():
        known = field if isinstance(field, dict) else {}
        facts = [str(known.get("description") or ""), described_options(options_of(known))]
        facts += ["required"] if name in required else []
        if any(facts):
            lines.append(f"{name}: {'; '.join(filter(None, facts))}")
    return lines


def _form_values(schema: dict[str, Any]) -> dict[str, Any]:
    # Haystack's UIs take the user's input literally if the default is a string, and parse it as JSON otherwise.
    known = default_values(schema)
    return {
        name: known.get(name, "" if isinstance(field, dict) and field.get("type") == "string" else None)
        for name, field in fields_of(schema).items()
    }


@short_repr
@explains_options
@checked_dataclass(frozen=True, kw_only=True, repr=False, config=CHECKED)
class MCPSampling(Options):
    """
    Answers servers that ask for a model's reply ("sampling"), with limits.

    ### Usage example

    ```python
    sampling = MCPSampling(chat_generator=OpenAIChatGenerator(), max_requests=20, max_tokens=10_000)
    toolset = MCPToolset(server_info, handlers=MCPHandlers(sampling=sampling))
    ```

    :param chat_generator: Any Haystack chat generator. It gets the server's messages and, as `generation_kwargs`, its
        `maxTokens`, `temperature` and `stopSequences`, translated to the parameter names of the generators for OpenAI,
        Anthropic, Google, Ollama, Amazon Bedrock, Cohere and Hugging Face. It runs in its own thread.
    :param function: A function in place of a generator. It gets the server's request (`CreateMessageRequestParams` of
        the MCP SDK) and returns a string, a `ChatMessage`, or a `CreateMessageResult` or `ErrorData` of the MCP SDK. It
        runs like the other functions of MCPHandlers.
    :param consent: A function that gets the request, like `function`, and returns whether it may be answered. By
        default, every request is answered.
    :param max_requests: How many requests are answered in a session. By default, there is no limit.
    :param max_tokens: Total number of tokens for the replies of a session. Close to the limit, the model gets a smaller
        `maxTokens` than the server asks for; beyond it, requests are refused. A reply whose `meta` does not state its
        tokens in `usage` counts as `maxTokens`. By default, there is no limit.
    :param tools: Whether servers may offer the model tools (revision 2025-11-25 and newer). The server runs them
        itself: the model's tool calls are the reply to the server. By default, True if the generator takes `tools`. A
        function gets such requests only if this is True; to call a tool, it returns a `ChatMessage` with tool calls.
    :raises ValueError: Unless exactly one of `chat_generator` and `function` is given, or if a value is invalid.
    """

    _parameter: ClassVar[str] = "sampling"

    chat_generator: Annotated[Any, OBJECT] = None
    function: _Function = None
    consent: _Function = None
    max_requests: Annotated[int, Field(ge=0)] | None = None
    max_tokens: Annotated[int, Field(ge=0)] | None = None
    tools: bool | None = None

    def __post_init__(self) -> None:
        """
        Check constraints between fields.
        """
        generator = self.chat_generator
        if (generator is None) == (self.function is None):
            msg = f"pass either `chat_generator` or `function`, got {'neither' if generator is None else 'both'}"
            raise ValueError(msg)
        if generator is not None and (isinstance(generator, type) or not callable(getattr(generator, "run", None))):
            msg = "`chat_generator` must be a Haystack chat generator, not a class. Pass a function as `function`"
            raise ValueError(msg)
        if self.tools and generator is not None and not takes_tools(generator):
            msg = f"`tools` is True, but {type(generator).__name__} takes no `tools`"
            raise ValueError(msg)


def _stored_handler(what: str, value: Any) -> Any:
    if isinstance(value, AskUser):
        return {"ask_user": value.to_dict()}
    return FUNCTION.store(what, value) if callable(value) else list(value)


def _loaded_handler(stored: Any) -> Any:
    return AskUser.from_dict(stored["ask_user"]) if isinstance(stored, dict) else FUNCTION.load(stored)


# A function, an AskUser, or the list of roots.
_HANDLER: Final = StoredAs(_stored_handler, _loaded_handler)
_SAMPLING: Final = StoredAs(
    lambda _, sampling: sampling.to_dict(),
    lambda stored: MCPSampling.from_dict(stored) if isinstance(stored, dict) else stored,
)


@short_repr
@explains_options
@checked_dataclass(frozen=True, kw_only=True, repr=False, config=CHECKED)
class MCPHandlers(Options):
    """
    Handlers for a server's requests and notifications, and this client's description of itself.

    Each is off unless given, except that a server's log messages go to Haystack's logging. Two toolsets share a session
    only if their handlers are equal, because a server's request does not name the call that it belongs to.

    Sync functions run in their own threads, and may call tools of the same server or run pipelines. Async functions run
    in the event loop in which the call is awaited, and end with the call. If a thread waits for the call, or that loop
    has ended, they run in the event loop of all sessions, which they must not block. If a function raises, the server
    only learns that it failed; the log says why.

    ### Usage example

    ```python
    handlers = MCPHandlers(
        sampling=OpenAIChatGenerator(), elicitation=accept_defaults, roots=["/srv/documents"], log_level="info"
    )
    toolset = MCPToolset(server_info, handlers=handlers)
    ```

    :param sampling: Answers a server that asks for a model's reply: a Haystack chat generator, a function, or an
        `MCPSampling`, which documents both and has a consent hook and limits.
    :param elicitation: Answers a server's questions to the user. A function that gets the server's request
        (`ElicitRequestFormParams` or `ElicitRequestURLParams` of the MCP SDK) and returns a dictionary, which fills in
        the form; True to accept (a URL, or a form with its defaults); False to decline; None to cancel; or an
        `ElicitResult` or `ErrorData` of the MCP SDK. Ready-made: `accept_defaults`, `decline`, `AskUser(ui)`, and
        `answer_later`, which leaves the call open so that it can be continued at any time.
    :param roots: The folders and files that a server may work on: paths or `file://` URIs, or a function without
        parameters that returns the current ones. When they change, `MCPConnection.notify_roots_changed` makes servers
        up to revision 2025-11-25 ask again; newer servers ask in each call.
    :param logging: Gets a server's log messages (`LoggingMessageNotificationParams` of the MCP SDK), one at a time, in
        place of the logger `haystack_integrations.tools.mcp.servers.NAME`.
    :param log_level: The lowest level of log messages that a server should send: "debug", "info", "notice", "warning",
        "error", "critical", "alert" or "emergency". By default, servers up to revision 2025-11-25 decide, and newer
        servers send none.
    :param messages: Gets a server's notifications, as types of the MCP SDK, one at a time, after the package has
        handled them. They do not include reports of progress; see `progress`.
    :param progress: Called with an MCPProgress for each report of a tool call's progress, in order. The call returns
        only after it has been called for all reports. If it raises, that is logged, and it gets no further reports of
        that call. Without it, servers are not asked for progress.
    :param pending_calls: Called with an `MCPPendingCall` for each call that `answer_later` leaves open, and for each
        call that a server runs as a task, before anything else is done with it. It can store the pending call, so that
        the call can be continued whatever happens to this process. The call waits for it. If it raises, that is logged.
    :param client_info: How this client introduces itself to the server: "name", "version" and optionally "title",
        "description", "websiteUrl" and "icons"; or an `Implementation` of the MCP SDK. By default, this package.
    :raises ValueError: If a field is invalid. The message names it and its valid values.
    """

    _parameter: ClassVar[str] = "handlers"

    sampling: Annotated[Any, _SAMPLING] = None
    elicitation: Annotated[Callable[[Any], Any] | None, _HANDLER] = None
    roots: Annotated[Any, _HANDLER] = None
    logging: _Function = None
    log_level: LogLevel | None = None
    messages: _Function = None
    progress: Annotated[ProgressCallback | None, FUNCTION] = None
    pending_calls: _Function = None
    client_info: Any = None

    def __post_init__(self) -> None:
        """
        Check constraints beyond types, and expand short forms.
        """
        sampling = self.sampling
        if callable(getattr(sampling, "run", None)):
            object.__setattr__(self, "sampling", MCPSampling(chat_generator=sampling))
        elif callable(sampling):
            object.__setattr__(self, "sampling", MCPSampling(function=sampling))
        elif sampling is not None and not isinstance(sampling, MCPSampling):
            msg = "`sampling` must be a Haystack chat generator, a function or an MCPSampling, got "
            raise ValueError(msg + type(sampling).__name__)
        if self.roots is not None and not callable(self.roots):
            is_list = isinstance(self.roots, Iterable) and not isinstance(self.roots, str | Mapping)
            roots = tuple(self.roots) if is_list else (None,)
            if not all(map(is_root, roots)):
                msg = "`roots` must be a list of paths and file:// URIs, or a function"
                raise ValueError(msg)
            object.__setattr__(self, "roots", tuple(map(str, roots)))
        if self.client_info is not None:
            object.__setattr__(self, "client_info", _checked_client_info(self.client_info))

    def _to_trace_dict(self) -> dict[str, Any]:
        return dict.fromkeys(self.changed(), True)  # a function without an import path must not break tracing


def takes_tools(chat_generator: Any) -> bool:
    """
    Return whether a chat generator can give its model tools.

    :param chat_generator: The generator.
    :returns: True if it takes `tools`.
    """
    return "tools" in inspect.signature(chat_generator.run).parameters


def is_root(root: object) -> bool:
    """
    Return whether a value can be sent to a server as a root.

    :param root: The value.
    :returns: True for paths and `file://` URIs.
    """
    if not isinstance(root, (str, Path)) or not str(root):
        return False
    return not (isinstance(root, str) and "://" in root) or urlsplit(root).scheme == "file"


def _checked_client_info(client_info: Any) -> dict[str, Any]:
    # Recognizes an `Implementation` by its method, because this module must not import the MCP SDK.
    if callable(dump := getattr(client_info, "model_dump", None)):
        client_info = dump(by_alias=True, mode="json", exclude_none=True)
    if not isinstance(client_info, dict) or not all(
        isinstance(client_info.get(key), str) and client_info[key] for key in ("name", "version")
    ):
        msg = "`client_info` must be a dictionary with the strings 'name' and 'version', or an Implementation of `mcp`"
        raise ValueError(msg)
    return client_info
