# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Parameters that users pass wrongly: to another class, under the name that another library has, a text for a list.
"""

from __future__ import annotations

import difflib
import functools
import inspect
from collections.abc import Iterable
from typing import Any, Final, TypeVar

C = TypeVar("C", bound=type)

# What others call our parameters.
_OTHER_NAMES: Final = {
    other: name
    for name, others in {
        "tool_name_prefix": "tool_prefix prefix name_prefix tool_names_prefix",
        "tool_names": "tools allowed_tools include_tools enabled_tools tool_allowlist selected_tools",
        "exclude_tools": "excluded_tools disabled_tools blocked_tools tool_denylist",
        "invocation_timeout": "timeout tool_timeout call_timeout request_timeout client_session_timeout_seconds",
        "connection_timeout": "init_timeout startup_timeout connect_timeout initialize_timeout",
        "read_timeout": "sse_read_timeout",
        "on_tool_error": "tool_error_behavior raise_on_error raise_on_failure handle_tool_error handle_tool_errors",
        "include_output_schema": "include_return_schema",
        "interceptors": "process_tool_call tool_interceptors middleware",
        "cache_tools": "cache_tools_list",
        "required_hints": "annotations",
        "eager_connect": "connect autoconnect",
        "headers_provider": "header_provider headers_factory",
        "url": "endpoint server_url uri",
        "token": "bearer_token access_token api_key auth_token",
        "auth": "auth_provider oauth",
        "verify": "ssl_verify verify_ssl ssl",
        "http_transport": "http_client httpx_client httpx_client_factory client",
        "args": "arguments command_args",
        "env": "env_vars environment",
        "cwd": "working_dir working_directory",
    }.items()
    for other in others.split()
}

_HANDLERS: Final = "Pass handlers=MCPHandlers({}) to the toolset, tool or connection"

# Parameters of others for which there is something else than a parameter of the same kind.
_ADVICE: Final = {
    other: advice
    for others, advice in {
        "transport transport_type type": "The class of the server info says it: StdioServerInfo, "
        "StreamableHttpServerInfo or SSEServerInfo, as in MCPToolset(SSEServerInfo(url=…))",
        "name id": "The names of tools begin with `tool_name_prefix`; a server has a name in an MCPRegistry",
        "max_retries": "`max_tool_failures` limits how often a tool fails in a run, `max_retries` of the server info "
        "how often connecting is tried",
        "params server_params server_parameters connection_params server config": "Say how to reach the server with "
        "the first parameter, `server_info`",
        "servers mcp_servers connections": "For several servers, use load_mcp_toolsets({'mcpServers': {…}})",
        "require_confirmation require_approval tool_confirmation": "Use MCPConfirmationHook, or "
        "confirmation_strategies_for on Haystack 2.31",
        "sampling_callback sampling_handler sampling_model sampling allow_sampling": _HANDLERS.format("sampling=…"),
        "elicitation_callback elicitation_handler elicitation": _HANDLERS.format("elicitation=…"),
        "roots list_roots_callback roots_callback": _HANDLERS.format("roots=…"),
        "log_handler logging_callback logging_handler logging": _HANDLERS.format("logging=…"),
        "log_level message_handler progress_handler progress_callback client_info": _HANDLERS.format("…"),
    }.items()
    for other in others.split()
}

# The parameters of the classes that know each other's.
_parameters: Final[dict[str, list[str]]] = {}


def explains_options(cls: C) -> C:
    """
    Make the constructor of a class say where an unknown parameter belongs.

    :param cls: The class, with a constructor that takes no arbitrary parameters.
    :returns: The class.
    """
    construct = cls.__init__  # type: ignore[misc]
    own = [*inspect.signature(construct).parameters][1:]
    _parameters[cls.__name__] = own

    @functools.wraps(construct)
    def checked(self: Any, *args: Any, **options: Any) -> None:
        for name in options:
            if name not in own:
                raise TypeError(_unknown(cls.__name__, name))
        construct(self, *args, **options)

    cls.__init__ = checked  # type: ignore[misc]
    return cls


def _unknown(owner: str, name: str) -> str:
    return f"{owner} has no parameter '{name}'. {_advice(owner, name)}"


def _advice(owner: str, name: str) -> str:
    own = _parameters[owner]
    meant = _OTHER_NAMES.get(name, name)
    if meant in own:
        return f"Use `{meant}`."
    if name in _ADVICE:
        return f"{_ADVICE[name]}."
    places = [place for place, parameters in _parameters.items() if meant in parameters]
    servers = [place for place in places if place.endswith("ServerInfo")]
    if servers:
        first = _parameters[servers[-1]][0]
        shown = ", ".join(f"{each}=…" for each in dict.fromkeys([first, meant]))
        example = f"{servers[-1]}({shown})"
        if not owner.endswith("ServerInfo"):
            example = f"{owner}({'name, ' if 'name' in own else ''}{example}, …)"
        return f"`{meant}` is a parameter of {_listed(servers)}: {example}."
    if places:
        example = f": MCPToolset({owner}(…), {meant}=…)" if owner.endswith("ServerInfo") else ""
        return f"`{meant}` is a parameter of {_listed(places)}{example}."
    closest = difflib.get_close_matches(name, own, 1)
    return f"Did you mean `{closest[0]}`?" if closest else f"It has: {', '.join(own)}."


def _listed(names: list[str]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), names[-1]])


def texts(name: str, value: Any) -> list[str]:
    """
    Check the value of a parameter that is a list of texts. A text itself would be a list of its letters.

    :param name: Name of the parameter.
    :param value: The value. It is not quoted.
    :returns: The texts.
    :raises ValueError: If it is something else.
    """
    given = None if isinstance(value, str | bytes) or not isinstance(value, Iterable) else list(value)
    if given is None or not all(isinstance(each, str) for each in given):
        what = type(value).__name__ if given is None else "one with something else"
        msg = f"`{name}` must be a list of strings, got {what}"
        raise ValueError(msg)
    return given
