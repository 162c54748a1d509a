# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What this client does for a server that asks it for something. Free of the MCP SDK, so that loading YAML stays cheap.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, get_args
from urllib.parse import urlsplit

from haystack.core.errors import SerializationError
from haystack.utils import deserialize_callable

from haystack_integrations.tools.mcp.handlers.elicitation import AskUser
from haystack_integrations.tools.mcp.handlers.progress import ProgressCallback
from haystack_integrations.tools.mcp.haystack_compat import (
    check_module_may_be_imported,
    deserialize_object,
    serialize_object,
)
from haystack_integrations.tools.mcp.import_paths import store_callable
from haystack_integrations.tools.mcp.parameters import short_repr

if TYPE_CHECKING:
    from mcp_types import Implementation

    from haystack_integrations.tools.mcp.handlers.callbacks import Callbacks
    from haystack_integrations.tools.mcp.pending_calls import MCPPendingCall
    from haystack_integrations.tools.mcp.redaction import Redactor

LogLevel: TypeAlias = Literal["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"]

# What of a request for sampling becomes `generation_kwargs` of a chat generator.
GENERATION_KWARGS = ("max_tokens", "temperature", "stop", "model", "tool_choice")

_CLIENT_INFO_KEYS = ("name", "version", "title", "description", "websiteUrl", "icons")


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPSampling:
    """
    Answers servers that want a model's reply ("sampling"), with limits.

    ### Usage example

    ```python
    sampling = MCPSampling(chat_generator=OpenAIChatGenerator(), max_requests=20, max_tokens=10_000)
    toolset = MCPToolset(server_info, handlers=MCPHandlers(sampling=sampling))
    ```

    :param chat_generator: Any Haystack chat generator. It gets the server's messages and, as `generation_kwargs`, its
        `maxTokens`, `temperature` and `stopSequences`. It runs in a thread of its own.
    :param function: A function instead: it gets the server's request (`CreateMessageRequestParams` of the MCP SDK) and
        returns a string, a `ChatMessage`, or a `CreateMessageResult` or `ErrorData` of the MCP SDK. It runs
        where functions of MCPHandlers do.
    :param consent: A function that gets the request, like `function`, and returns whether it may be answered. By
        default, every request may.
    :param max_requests: How many requests are answered in a session. By default, there is no limit.
    :param max_tokens: How many tokens the replies of a session may have altogether. Close to the limit, the model gets
        a smaller `maxTokens` than the server asks for; beyond it, requests are refused. A reply whose number of tokens
        is not in the `usage` of its meta counts as `maxTokens`. By default, there is no limit.
    :param models: Names of models that the server may choose from by its hints, as the generator's parameter `model`.
        The first hint that is part of one of these names wins. By default, and if no hint fits, the generator's own
        model replies.
    :param generation_kwargs_names: How this generator names `max_tokens`, `temperature`, `stop`, `model` and
        `tool_choice`, if not so; None for one that it does not have, e.g.
        `{"max_tokens": "num_predict", "model": None}`. The names of the generators for OpenAI, Anthropic, Google,
        Ollama, Amazon Bedrock, Cohere and Hugging Face are known.
    :param tools: Whether servers may offer the model tools (revision 2025-11-25 and newer). The server runs them
        itself: the model's calls go back to it as the reply. By default, if the generator takes `tools`. A function
        gets such requests only if this is True; to call a tool, it returns a `ChatMessage` with tool calls.
    :raises ValueError: If there is not exactly one of `chat_generator` and `function`, or a value is invalid.
    """

    chat_generator: Any = None
    function: Callable[[Any], Any] | None = None
    consent: Callable[[Any], Any] | None = None
    max_requests: int | None = None
    max_tokens: int | None = None
    models: list[str] | None = None
    generation_kwargs_names: dict[str, str | None] | None = None
    tools: bool | None = None

    def __post_init__(self) -> None:
        """
        Validate the fields.
        """
        if (self.chat_generator is None) == (self.function is None):
            given = "neither" if self.function is None else "both"
            msg = f"MCPSampling needs either `chat_generator` or `function`, got {given}"
            raise ValueError(msg)
        _check_object("MCPSampling", "chat_generator", self.chat_generator)
        if self.chat_generator is not None and not callable(getattr(self.chat_generator, "run", None)):
            msg = (
                "MCPSampling: `chat_generator` must be a Haystack chat generator, with a method `run`, got "
                f"{type(self.chat_generator).__name__}. Pass a function as `function`."
            )
            raise ValueError(msg)
        _check_callable("MCPSampling", "function", self.function)
        _check_callable("MCPSampling", "consent", self.consent)
        for name in ("max_requests", "max_tokens"):
            value = getattr(self, name)
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 0):
                msg = f"MCPSampling: `{name}` must be a whole number from 0, or None for no limit, got {value!r}"
                raise ValueError(msg)
        if self.models is not None and (
            isinstance(self.models, str) or not all(isinstance(name, str) for name in self.models)
        ):
            msg = f"MCPSampling: `models` must be a list of names, got {self.models!r}"
            raise ValueError(msg)
        if self.tools not in (None, True, False):
            msg = f"MCPSampling: `tools` must be True, False, or None for what the generator can do, got {self.tools!r}"
            raise ValueError(msg)
        if self.tools and self.chat_generator is not None and not takes_tools(self.chat_generator):
            msg = f"MCPSampling: `tools` is True, but {type(self.chat_generator).__name__} takes no `tools`"
            raise ValueError(msg)
        unknown = set(self.generation_kwargs_names or {}) - set(GENERATION_KWARGS)
        if unknown:
            msg = (
                f"MCPSampling: `generation_kwargs_names` has unknown keys {sorted(unknown)}; valid ones are "
                f"{', '.join(GENERATION_KWARGS)}"
            )
            raise ValueError(msg)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the settings, functions as import paths and the generator as Haystack does.

        :returns: What differs from the defaults.
        :raises SerializationError: If a function has no import path, or the generator no `to_dict`.
        """
        data = _changed(self)
        for name in ("function", "consent"):
            if name in data:
                data[name] = store_callable(f"`MCPSampling.{name}`", data[name])
        if "chat_generator" in data:
            data["chat_generator"] = serialize_object("MCPSampling.chat_generator", data["chat_generator"])
        return data

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MCPSampling:
        """
        Deserialize settings.

        :param data: The result of `to_dict`.
        :returns: The settings.
        """
        data = dict(data)
        for name in ("function", "consent"):
            if isinstance(data.get(name), str):
                data[name] = deserialize_callable(data[name])
        if isinstance(data.get("chat_generator"), dict):
            data["chat_generator"] = deserialize_object(data["chat_generator"])
        return cls(**data)


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPHandlers:
    """
    What this client does for a server that asks it for something, and what it says of itself.

    Each is off unless given, except that log messages of a server go to Haystack's logging. Two toolsets share a
    session only if their handlers are equal, because a server's request names no call.

    Sync functions run in threads of their own, and may call tools of the same server or run pipelines. Async functions
    run in the event loop in which the call is awaited, and end with the call; for calls that a thread waits for, and
    after that loop has ended, they run in the event loop of all sessions, which they must not block. If a function
    raises, the server is only told that it failed; the log says why.

    ### Usage example

    ```python
    handlers = MCPHandlers(
        sampling=OpenAIChatGenerator(), elicitation=accept_defaults, roots=["/srv/documents"], log_level="info"
    )
    toolset = MCPToolset(server_info, handlers=handlers)
    ```

    :param sampling: Answers a server that wants a model's reply: a Haystack chat generator, a function, or an
        `MCPSampling`, which documents both and has a consent hook and limits.
    :param elicitation: Answers a server that wants something of the user. A function that gets the server's request
        (`ElicitRequestFormParams` or `ElicitRequestURLParams` of the MCP SDK) and returns a dictionary, which fills in
        the form; True to accept (a URL, or a form with its defaults); False to decline; None to cancel; or an
        `ElicitResult` or `ErrorData` of the MCP SDK. Ready-made: `accept_defaults`, `decline`, `AskUser(ui)`, and
        `answer_later`, with which the call is left open to be continued at any time.
    :param roots: The folders and files that a server may work on: paths or `file://` URIs, or a function without
        parameters that returns those of the moment. When they change, `MCPConnection.notify_roots_changed` has servers
        up to revision 2025-11-25 ask again; newer ones ask in each call.
    :param logging: Gets the log messages of a server (`LoggingMessageNotificationParams` of the MCP SDK), one after
        the other, instead of the logger `haystack_integrations.tools.mcp.servers.NAME`.
    :param log_level: From which level on a server is to send log messages: "debug", "info", "notice", "warning",
        "error", "critical", "alert" or "emergency". By default, servers up to revision 2025-11-25 decide, and newer
        ones send none.
    :param messages: Gets the notifications of a server, as types of the MCP SDK, one after the other and after the
        package has dealt with them. Reports of progress are not among them, see `progress`.
    :param progress: Called with an MCPProgress for each report of a tool call's progress, in order. A function runs in
        a thread of the call; what an asynchronous one awaits is awaited where async functions run. The call returns
        after it. If it raises, that is logged, and it gets no more of that call. Without it, servers are not asked for
        progress.
    :param pending_calls: Called with an `MCPPendingCall` for each call that is left open with `answer_later`, and for
        each that a server runs as a task, before anything else is done with it: to keep it, so that the call can be
        continued whatever happens to this process. The call waits for it. If it raises, that is logged.
    :param client_info: What the server is told that this client is: "name", "version" and, if wanted, "title",
        "description", "websiteUrl" and "icons"; or an `Implementation` of the MCP SDK. By default, this package.
    :param extensions: Extensions of the protocol, as `ClientExtension` objects of the MCP SDK, or import paths
        `"package.module:attribute"` of such objects or classes. Only the paths can be serialized.
    :raises ValueError: If a field is invalid. The message names it and its valid values.
    """

    sampling: Any = None
    elicitation: Callable[[Any], Any] | AskUser | None = None
    roots: Sequence[str | Path] | Callable[[], Any] | None = None
    logging: Callable[[Any], Any] | None = None
    log_level: LogLevel | None = None
    messages: Callable[[Any], Any] | None = None
    progress: ProgressCallback | None = None
    pending_calls: Callable[[MCPPendingCall], Any] | None = None
    client_info: dict[str, Any] | Implementation | None = None
    extensions: Sequence[Any] | None = None

    def __post_init__(self) -> None:
        """
        Validate the fields.
        """
        _check_object("MCPHandlers", "sampling", self.sampling)
        if self.elicitation is AskUser:
            _check_object("MCPHandlers", "elicitation", self.elicitation)
        sampling = self.sampling
        if sampling is not None and not isinstance(sampling, MCPSampling):
            is_generator = callable(getattr(sampling, "run", None))
            if not is_generator and not callable(sampling):
                msg = (
                    "MCPHandlers: `sampling` must be a Haystack chat generator, a function or an MCPSampling, got "
                    f"{type(sampling).__name__}"
                )
                raise ValueError(msg)
            made = MCPSampling(chat_generator=sampling) if is_generator else MCPSampling(function=sampling)
            object.__setattr__(self, "sampling", made)
        for name in ("elicitation", "logging", "messages", "progress", "pending_calls"):
            _check_callable("MCPHandlers", name, getattr(self, name))
        if self.roots is not None and not callable(self.roots):
            object.__setattr__(self, "roots", _checked_roots(self.roots))
        if self.log_level is not None and self.log_level not in get_args(LogLevel):
            msg = f"MCPHandlers: `log_level` must be one of {', '.join(get_args(LogLevel))}, got {self.log_level!r}"
            raise ValueError(msg)
        if self.client_info is not None:
            object.__setattr__(self, "client_info", _checked_client_info(self.client_info))
        if self.extensions is not None:
            object.__setattr__(self, "extensions", _checked_extensions(self.extensions))

    def callbacks(self, server: str, redactor: Redactor) -> Callbacks:
        """
        Make what the MCP SDK calls in one session.

        :param server: Describes the server in logs.
        :param redactor: Redacts secrets in logs.
        :returns: The callbacks.
        """
        # The module imports the MCP SDK, which takes 0.6 s, so it waits until a session is opened.
        from haystack_integrations.tools.mcp.handlers.callbacks import Callbacks  # noqa: PLC0415

        return Callbacks(self, server, redactor)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the handlers, functions as import paths.

        :returns: What differs from the defaults.
        :raises SerializationError: If something cannot be stored. The message says what to do.
        """
        data = _changed(self)
        if "sampling" in data:
            data["sampling"] = data["sampling"].to_dict()
        for name in ("elicitation", "logging", "messages", "progress", "pending_calls", "roots"):
            value = data.get(name)
            if isinstance(value, AskUser):
                data[name] = {"ask_user": value.to_dict()}
            elif callable(value):
                data[name] = store_callable(f"`MCPHandlers.{name}`", value)
        if isinstance(data.get("roots"), tuple):
            data["roots"] = list(data["roots"])
        if "extensions" in data:
            if not all(isinstance(extension, str) for extension in data["extensions"]):
                msg = (
                    "MCPHandlers: `extensions` contains an object, which cannot be serialized. Give its import path "
                    "'package.module:attribute' instead."
                )
                raise SerializationError(msg)
            data["extensions"] = list(data["extensions"])
        return data

    def _to_trace_dict(self) -> dict[str, Any]:
        return dict.fromkeys(_changed(self), True)  # functions without an import path must not break tracing

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> MCPHandlers:
        """
        Deserialize handlers.

        :param data: The result of `to_dict`.
        :returns: The handlers.
        :raises DeserializationError: If a function cannot be imported, or its module is not on Haystack 3's allowlist.
        """
        data = dict(data)
        if isinstance(data.get("sampling"), dict):
            data["sampling"] = MCPSampling.from_dict(data["sampling"])
        if isinstance(data.get("elicitation"), dict):
            data["elicitation"] = AskUser.from_dict(data["elicitation"]["ask_user"])
        for name in ("elicitation", "logging", "messages", "progress", "pending_calls", "roots"):
            if isinstance(data.get(name), str):
                data[name] = deserialize_callable(data[name])
        for extension in data.get("extensions") or ():
            check_module_may_be_imported(extension.partition(":")[0])
        return cls(**data)


def _changed(settings: Any) -> dict[str, Any]:
    values = {field.name: (getattr(settings, field.name), field.default) for field in dataclasses.fields(settings)}
    return {name: value for name, (value, default) in values.items() if value is not default}


def _check_object(owner: str, name: str, value: object) -> None:
    if isinstance(value, type):
        msg = f"{owner}: `{name}` must be an object, got the class {value.__name__}; call it: {value.__name__}(...)"
        raise ValueError(msg)


def _check_callable(owner: str, name: str, value: Any) -> None:
    if value is not None and not callable(value):
        msg = f"{owner}: `{name}` must be a function or None, got {type(value).__name__}"
        raise ValueError(msg)


def takes_tools(chat_generator: Any) -> bool:
    """
    Tell whether a chat generator can give its model tools.

    :param chat_generator: The generator.
    :returns: True if it takes `tools`.
    """
    return "tools" in inspect.signature(chat_generator.run).parameters


def _checked_roots(roots: Any) -> tuple[str, ...]:
    if isinstance(roots, (str, bytes, Path)) or not isinstance(roots, Sequence):
        msg = f"MCPHandlers: `roots` must be a list of paths or file:// URIs, or a function, got {roots!r}"
        raise ValueError(msg)
    for root in roots:
        if not is_root(root):
            msg = f"MCPHandlers: `roots` must contain paths and file:// URIs, got {root!r}"
            raise ValueError(msg)
    return tuple(str(root) for root in roots)


def is_root(root: object) -> bool:
    """
    Tell whether a server can be told of a folder or file.

    :param root: What names it.
    :returns: True for paths and `file://` URIs.
    """
    if not isinstance(root, (str, Path)) or not str(root):
        return False
    return not (isinstance(root, str) and "://" in root) or urlsplit(root).scheme == "file"


def _checked_client_info(client_info: Any) -> dict[str, Any]:
    # An `Implementation` of the MCP SDK, which this module must not import.
    if callable(dump := getattr(client_info, "model_dump", None)):
        client_info = dump(by_alias=True, mode="json", exclude_none=True)
    is_valid = (
        isinstance(client_info, Mapping)
        and set(client_info) <= set(_CLIENT_INFO_KEYS)
        and all(isinstance(client_info.get(key), str) and client_info[key] for key in ("name", "version"))
    )
    if not is_valid:
        msg = (
            "MCPHandlers: `client_info` must be a dictionary with the strings 'name' and 'version', and if wanted "
            f"{', '.join(_CLIENT_INFO_KEYS[2:])}, got {client_info!r}"
        )
        raise ValueError(msg)
    return dict(client_info)


def _checked_extensions(extensions: Any) -> tuple[Any, ...]:
    if isinstance(extensions, (str, Mapping)) or not isinstance(extensions, Sequence):
        msg = (
            "MCPHandlers: `extensions` must be a list of ClientExtension objects or import paths "
            f"'package.module:attribute', got {type(extensions).__name__}"
        )
        raise ValueError(msg)
    for extension in extensions:
        if isinstance(extension, str):
            module, _, attribute = extension.partition(":")
            if all(part.isidentifier() for part in [*module.split("."), *attribute.split(".")]):
                continue
        elif isinstance(getattr(extension, "identifier", None), str):
            continue
        shown = repr(extension) if isinstance(extension, str) else type(extension).__name__
        msg = (
            "MCPHandlers: `extensions` must contain ClientExtension objects, which have an `identifier`, or import "
            f"paths 'package.module:attribute', got {shown}"
        )
        raise ValueError(msg)
    return tuple(extensions)
