# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Everything that uses private parts of Haystack, or that differs between Haystack 2 and 3.

Features are detected; versions are never compared.
"""

from __future__ import annotations

import importlib
import importlib.util
import sys
import weakref
from contextvars import ContextVar
from typing import Any, get_type_hints

from haystack import dataclasses as haystack_dataclasses
from haystack.core.errors import DeserializationError, SerializationError
from haystack.core.serialization import (
    component_from_dict,
    component_to_dict,
    generate_qualified_class_name,
    import_class_by_name,
)
from haystack.dataclasses import FileContent
from haystack.dataclasses.chat_message import ToolCallResult
from haystack.tools import toolset as haystack_toolset
from haystack.tools.serde_utils import deserialize_tools_or_toolset_inplace

# Private, but the only way to serialize handlers exactly as Haystack's own tools do.
from haystack.tools.tool import (
    Tool,
    _deserialize_outputs_to_state,
    _deserialize_outputs_to_string,
    _serialize_outputs_to_state,
    _serialize_outputs_to_string,
)
from haystack.tools.toolset import Toolset

# Haystack 3 has natively asynchronous tools.
HAS_ASYNC_FUNCTION = "async_function" in Tool.__dataclass_fields__

# An Agent of Haystack 3 gives each run a copy of its toolsets.
HAS_SPAWN = hasattr(Toolset, "spawn")
# Haystack 3 has hooks of Agents.
HAS_HOOKS = "haystack.hooks" in sys.modules or importlib.util.find_spec("haystack.hooks") is not None

# Haystack 2 cannot serialize a tool message that contains a FileContent.
TOOL_MESSAGES_TAKE_FILES = FileContent.__name__ in str(get_type_hints(ToolCallResult)["result"])

# The class path under which combinations of toolsets are stored; it stays the same if the class moves.
_STORED_COMBINATION = "haystack_integrations.tools.mcp.mcp_toolset.MCPToolsetCombination"

# What Haystack 3 says of a skill in a SkillStore; None on Haystack 2, which has neither.
SkillInfo: Any = getattr(haystack_dataclasses, "SkillInfo", None)

_SERIALIZERS = {"outputs_to_state": _serialize_outputs_to_state, "outputs_to_string": _serialize_outputs_to_string}
# Imported at its first use, because it imports much.
_STATE = "haystack.components.agents.state.state"

_DESERIALIZERS = {
    "outputs_to_state": _deserialize_outputs_to_state,
    "outputs_to_string": _deserialize_outputs_to_string,
}
# The parameters of tools that may contain handlers (functions, stored by their import path).
HANDLER_PARAMETERS = tuple(_SERIALIZERS)


def serialize_handlers(parameter: str, config: dict[str, Any]) -> dict[str, Any]:
    """
    Replace the handlers in a tool's configuration with their import paths.

    :param parameter: One of `HANDLER_PARAMETERS`.
    :param config: The value of that parameter for one tool.
    :returns: The serializable configuration.
    """
    return _SERIALIZERS[parameter](config)


def deserialize_handlers(parameter: str, config: dict[str, Any]) -> dict[str, Any]:
    """
    Import the handlers of a stored configuration.

    :param parameter: One of `HANDLER_PARAMETERS`.
    :param config: The result of `serialize_handlers`.
    :returns: The configuration with its handlers.
    """
    return _DESERIALIZERS[parameter](config)


def check_state_schema(schema: dict[str, Any]) -> None:
    """
    Check the schema of a State.

    :param schema: A dictionary from keys to their type and handler.
    :raises ValueError: If a key has no type, or something else than a function as its handler.
    """
    importlib.import_module(_STATE)._validate_schema(schema)


def serialize_state_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """
    Serialize the schema of a State, as Haystack's Agent does.

    :param schema: A dictionary from keys to their type and handler.
    :returns: The same with the names of the types and the import paths of the handlers.
    """
    stored: dict[str, Any] = importlib.import_module(_STATE)._schema_to_dict(schema)
    return stored


def deserialize_state_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """
    Import what a stored schema of a State names.

    :param schema: The result of `serialize_state_schema`.
    :returns: The schema.
    """
    loaded: dict[str, Any] = importlib.import_module(_STATE)._schema_from_dict(schema)
    return loaded


def check_module_may_be_imported(module: str) -> None:
    """
    Check a module that serialized data names against Haystack 3's allowlist. Haystack 2 has no such check.

    :param module: Name of the module.
    :raises DeserializationError: If the module is not on the allowlist.
    """
    try:
        security = importlib.import_module("haystack.core.serialization_security")
    except ModuleNotFoundError:
        return
    security._check_module_allowed(module)


def serialize_object(field: str, value: Any) -> dict[str, Any]:
    """
    Serialize a component, or another object with `to_dict` and `from_dict`.

    :param field: Names it in the error.
    :param value: The object.
    :returns: A dictionary with its type.
    :raises SerializationError: If it cannot be serialized.
    """
    try:
        return component_to_dict(value, field)
    except Exception as error:
        msg = f"`{field}` cannot be serialized: {error}"
        raise SerializationError(msg) from error


def deserialize_object(data: dict[str, Any]) -> Any:
    """
    Deserialize what `serialize_object` returned.

    :param data: The dictionary.
    :returns: The object.
    :raises DeserializationError: If its class cannot be imported, or its module is not on Haystack 3's allowlist.
    """
    try:
        found: Any = import_class_by_name(data["type"])
    except (ImportError, KeyError) as error:
        msg = f"Class '{data.get('type')}' could not be imported"
        raise DeserializationError(msg) from error
    return component_from_dict(found, data, data["type"])


# Where an Agent of Haystack 2 keeps what belongs to one run.
_AGENT_MODULE = "haystack.components.agents.agent"
_STATE_OF_RUN = "exe_context"

# The run that the code is part of, also in threads that Haystack starts with a copy of the context.
_run_of_context: ContextVar[weakref.ref[Any] | None] = ContextVar("mcp_haystack_run", default=None)


def current_run() -> Any:
    """
    Tell which run of an Agent of Haystack 2 the code is part of.

    An Agent of Haystack 3 gives each run toolsets of its own, with `spawn`. One of Haystack 2 has its toolsets
    flattened by the chat generator and by the ToolInvoker at every step, and tells them nothing; so this looks who
    calls.

    :returns: What Haystack keeps for the run and nothing else; None on Haystack 3, and outside of a run.
    """
    if HAS_SPAWN:
        return None
    frame = sys._getframe(1)
    while frame is not None:
        if _STATE_OF_RUN in frame.f_code.co_varnames and frame.f_globals.get("__name__") == _AGENT_MODULE:
            run = frame.f_locals.get(_STATE_OF_RUN)
            if run is not None:
                _run_of_context.set(weakref.ref(run))
            return run
        frame = frame.f_back  # type: ignore[assignment]
    known = _run_of_context.get()
    return known() if known is not None else None


def model_was_asked(run: Any) -> bool:
    """
    Tell whether the model has been shown tools in a run.

    :param run: What `current_run` returned.
    :returns: True once it has replied.
    """
    return bool(run.component_visits.get("chat_generator"))


def combine(first: Any, second: Any) -> Any:
    """
    Combine tools and toolsets as `+` does on Haystack 2, but keep each toolset as it is.

    Haystack's own combination serializes a snapshot of the tools that its toolsets have at that moment, and it is false
    while they are cold.

    :param first: A Tool, a Toolset or a list of Tools.
    :param second: A Tool, a Toolset or a list of Tools.
    :returns: The combination, or `NotImplemented` on Haystack 3 and for other types.
    """
    toolsets = [_as_toolset(first), _as_toolset(second)]
    return NotImplemented if MCPToolsetCombination is None or None in toolsets else MCPToolsetCombination(toolsets)


def _as_toolset(tools: Any) -> Toolset | None:
    if isinstance(tools, Toolset):
        return tools
    if isinstance(tools, Tool):
        return Toolset(tools=[tools])
    is_list = isinstance(tools, list) and all(isinstance(tool, Tool) for tool in tools)
    return Toolset(tools=tools) if is_list else None


def _trace_dict(part: Tool | Toolset) -> dict[str, Any]:
    to_trace_dict = getattr(part, "_to_trace_dict", None)
    if to_trace_dict is not None:
        traced: dict[str, Any] = to_trace_dict()
        return traced
    if type(part) is Toolset:
        return {"type": generate_qualified_class_name(Toolset), "data": {"tools": [_trace_dict(tool) for tool in part]}}
    return part.to_dict()


# Haystack 2 only; both are None on Haystack 3.
_Wrapper: Any = getattr(haystack_toolset, "_ToolsetWrapper", None)
MCPToolsetCombination: Any = None
if _Wrapper is not None:

    class _Combination(_Wrapper):  # type: ignore[misc]
        """
        A combination of toolsets that is true even while all of them are cold, and that serializes the toolsets.
        """

        def __bool__(self) -> bool:
            return True

        def __add__(self, other: Any) -> Any:
            return _Combination(super().__add__(other).toolsets)

        def to_dict(self) -> dict[str, Any]:
            return self._as_dict([toolset.to_dict() for toolset in self.toolsets])

        def _to_trace_dict(self) -> dict[str, Any]:
            return self._as_dict([_trace_dict(toolset) for toolset in self.toolsets])

        def _as_dict(self, toolsets: list[dict[str, Any]]) -> dict[str, Any]:
            return {"type": _STORED_COMBINATION, "data": {"toolsets": toolsets}}

        @classmethod
        def from_dict(cls, data: dict[str, Any]) -> Any:
            parameters = dict(data["data"])
            deserialize_tools_or_toolset_inplace(parameters, key="toolsets")
            return cls(parameters["toolsets"])

    MCPToolsetCombination = _Combination
