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
import inspect
import sys
import weakref
from typing import Annotated, Any, Final, get_args, get_origin, get_type_hints

from haystack import dataclasses as haystack_dataclasses
from haystack.core.errors import DeserializationError, SerializationError
from haystack.core.serialization import (
    component_from_dict,
    component_to_dict,
    generate_qualified_class_name,
    import_class_by_name,
)
from haystack.dataclasses import ChatMessage, FileContent
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

from haystack_integrations.tools.mcp.parameters import StoredAs

# Haystack 3 has natively asynchronous tools.
HAS_ASYNC_FUNCTION = "async_function" in Tool.__dataclass_fields__

# In Haystack 3, Agents have hooks, and each run of an Agent has its own toolset.
HAS_HOOKS = "haystack.hooks" in sys.modules or importlib.util.find_spec("haystack.hooks") is not None

# Haystack 2 cannot serialize a tool message that contains a FileContent.
TOOL_MESSAGES_TAKE_FILES = FileContent.__name__ in str(get_type_hints(ToolCallResult)["result"])

# Stands for the input mapping of a component that is not a SuperComponent.
_NO_PIPELINE = object()

# The class path under which combinations of toolsets are stored; it stays the same if the class moves.
_STORED_COMBINATION = "haystack_integrations.tools.mcp.mcp_toolset.MCPToolsetCombination"

# Haystack 3's description of a skill in a SkillStore; None on Haystack 2, which has neither.
SkillInfo: Any = getattr(haystack_dataclasses, "SkillInfo", None)

# Modules that are imported at first use, because they import a lot.
_STATE_MODULE = "haystack.components.agents.state.state"
_PARAMETERS_MODULE = "haystack.tools.parameters_schema_utils"
_VALUES_MODULE = "haystack.utils.base_serialization"

# Functions that serialize and deserialize the parameters of tools that may contain handlers.
HANDLERS = {
    "outputs_to_state": (_serialize_outputs_to_state, _deserialize_outputs_to_state),
    "outputs_to_string": (_serialize_outputs_to_string, _deserialize_outputs_to_string),
}


def parts_of(message: ChatMessage) -> list[Any]:
    """
    Return the parts of a message in order; texts and images may be mixed.

    :param message: The message.
    :returns: Its texts, images, files, tool calls and so on.
    """
    return list(message._content)


def check_state_schema(schema: dict[str, Any]) -> None:
    """
    Check the schema of a State.

    :param schema: A dictionary from keys to their type and handler.
    :raises ValueError: If a key has no type, or its handler is not a function.
    """
    importlib.import_module(_STATE_MODULE)._validate_schema(schema)


def serialize_state_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """
    Serialize the schema of a State, as Haystack's Agent does.

    :param schema: A dictionary from keys to their type and handler.
    :returns: The schema with the names of the types and the import paths of the handlers.
    """
    stored: dict[str, Any] = importlib.import_module(_STATE_MODULE)._schema_to_dict(schema)
    return stored


def deserialize_state_schema(schema: dict[str, Any]) -> dict[str, Any]:
    """
    Deserialize the schema of a State, importing its types and handlers.

    :param schema: The result of `serialize_state_schema`.
    :returns: The schema.
    """
    loaded: dict[str, Any] = importlib.import_module(_STATE_MODULE)._schema_from_dict(schema)
    return loaded


def contains_callable(declared: Any) -> bool:
    """
    Return whether values of a type are functions.

    :param declared: The type of an input.
    :returns: True for `Callable`, and for unions with it.
    """
    found: bool = importlib.import_module(_PARAMETERS_MODULE)._contains_callable_type(declared)
    return found


def is_state_type(declared: Any) -> bool:
    """
    Return whether an input takes the State of an Agent.

    :param declared: The type of the input.
    :returns: True for `State` and for `State | None`.
    """
    members = get_args(declared) or (declared,)
    return importlib.import_module(_STATE_MODULE).State in members


def parameter_descriptions(component: Any) -> dict[str, str]:
    """
    Read descriptions of a component's inputs from docstrings and annotations; a SuperComponent's from its pipeline.

    :param component: The component.
    :returns: The descriptions by input name.
    """
    found = importlib.import_module(_PARAMETERS_MODULE)._get_component_param_descriptions(component)
    # Haystack 2 also returns the description of the component.
    described: dict[str, str] = found[1] if isinstance(found, tuple) else found
    annotated = {name: annotated_description(socket.type) for name, socket in input_sockets(component).items()}
    return {**annotated, **described}


def annotated_description(declared: Any) -> str:
    """
    Read the description of a parameter from `Annotated`.

    :param declared: Its type: `Annotated[int, "How many"]`, or with `Field(description="How many")`.
    :returns: The description; empty if there is none.
    """
    metadata = get_args(declared)[1:] if get_origin(declared) is Annotated else ()
    found = (each if isinstance(each, str) else getattr(each, "description", None) for each in metadata)
    return next((each for each in found if isinstance(each, str)), "")


def input_sockets(component: Any) -> dict[str, Any]:
    """
    Read the inputs of a component.

    :param component: The component.
    :returns: Its input sockets by name, each with `type`, `is_mandatory` and `default_value`.
    """
    sockets: dict[str, Any] = component.__haystack_input__._sockets_dict
    return sockets


def component_of(tool: Any) -> Any:
    """
    Return the component of a ComponentTool or PipelineTool.

    :param tool: The tool.
    :returns: The component.
    """
    return tool._component


def has_all_inputs_of_a_pipeline(tool: Any) -> bool:
    """
    Return whether a PipelineTool, or a ComponentTool of a SuperComponent, takes every input of every component.

    :param tool: The ComponentTool or PipelineTool.
    :returns: False if the user chose its inputs, or if it has no pipeline.
    """
    if getattr(tool, "_unresolved_parameters", None) is not None:
        return False
    return getattr(tool._component, "_original_input_mapping", _NO_PIPELINE) is None


def output_sockets(component: Any) -> dict[str, Any]:
    """
    Read the outputs of a component.

    :param component: The component.
    :returns: Its output sockets by name, each with `type`.
    """
    sockets: dict[str, Any] = component.__haystack_output__._sockets_dict
    return sockets


def serialize_values(values: dict[str, Any]) -> dict[str, Any]:
    """
    Serialize values together with their types, as Haystack serializes the State of an Agent.

    :param values: Instances of Haystack's classes, and other objects with `to_dict`.
    :returns: A dictionary that JSON can represent.
    :raises Exception: Any exception of Haystack, if it cannot serialize a value.
    """
    stored: dict[str, Any] = importlib.import_module(_VALUES_MODULE)._serialize_value_with_schema(values)
    return stored


def deserialize_values(stored: dict[str, Any]) -> dict[str, Any]:
    """
    Deserialize the result of `serialize_values`. Haystack 3 imports only classes of modules on its allowlist.

    :param stored: The dictionary.
    :returns: The values.
    """
    values: dict[str, Any] = importlib.import_module(_VALUES_MODULE)._deserialize_value_with_schema(stored)
    return values


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

    :param field: The name of the field, for the error message.
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
    Deserialize the result of `serialize_object`.

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


# Objects in options with `to_dict` and `from_dict`.
OBJECT: Final = StoredAs(
    serialize_object,
    lambda stored: deserialize_object(stored) if isinstance(stored, dict) else stored,
    lambda value: type(value).__name__,
)


def private_document_store() -> Any:
    """
    Make an in-memory document store that is freed with the last reference to it.

    :returns: An InMemoryDocumentStore that scores only documents with at least one of the words searched for.
    """
    module = importlib.import_module("haystack.document_stores.in_memory.document_store")
    if "shared" in inspect.signature(module.InMemoryDocumentStore).parameters:
        return module.InMemoryDocumentStore(bm25_algorithm="BM25Okapi", shared=False)
    store = module.InMemoryDocumentStore(bm25_algorithm="BM25Okapi")
    # Haystack 2 keeps the documents in the module.
    weakref.finalize(store, _free_documents, module, store.index)
    return store


def _free_documents(module: Any, index: str) -> None:
    for name in ("", "_BM25_STATS", "_AVERAGE_DOC_LEN", "_FREQ_VOCAB_FOR_IDF"):
        getattr(module, f"{name}_STORAGES").pop(index, None)


def is_async_agent(agent: Any) -> bool:
    """
    Return whether an Agent should run in an event loop.

    When an Agent of Haystack 2 is cancelled, it would block the whole loop until its tools end.

    :param agent: An Agent.
    :returns: True if it can wait for its model and its tools without blocking the loop.
    """
    return HAS_ASYNC_FUNCTION and hasattr(agent.chat_generator, "run_async")


def is_async_pipeline(pipeline: Any) -> bool:
    """
    Return whether a pipeline should run in an event loop.

    :param pipeline: A pipeline.
    :returns: True if it can, and if at least one of its components does not need a thread.
    """
    return hasattr(pipeline, "run_async") and any(
        getattr(component, "__haystack_supports_async__", False) for _, component in pipeline.walk()
    )


def super_component_class() -> Any:
    """
    Return the base class of all SuperComponents.

    :returns: The class.
    """
    return importlib.import_module("haystack.core.super_component.super_component")._SuperComponent


def has_chosen_inputs(super_component: Any) -> bool:
    """
    Return whether the author of a SuperComponent chose its inputs.

    :param super_component: The SuperComponent.
    :returns: False if it has all inputs of its pipeline by default.
    """
    return getattr(super_component, "_original_input_mapping", None) is not None


def was_declined(result: ToolCallResult) -> bool:
    """
    Return whether a user declined a tool call. Haystack's confirmation strategies send the model a known text then.

    :param result: The result that the model got for the call.
    :returns: True for that text; False even for a declined call if the strategy has a custom `reject_template`.
    """
    module = f"haystack.{'hooks.' if HAS_HOOKS else ''}human_in_the_loop.strategies"
    template: str = importlib.import_module(module).REJECTION_FEEDBACK_TEMPLATE
    text = result.result if isinstance(result.result, str) else ""
    return result.error and text.startswith(template.format(tool_name=result.origin.tool_name))


def combine(first: Any, second: Any) -> Any:
    """
    Combine tools and toolsets like `+` on Haystack 2, but keep each toolset intact.

    Haystack's own combination serializes only the current tools of its toolsets, and it is falsy while they are cold.

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


def trace_dict(part: Tool | Toolset) -> dict[str, Any]:
    """
    Describe a tool or toolset for a trace, without secrets.

    :param part: The tool or toolset.
    :returns: The description.
    """
    to_trace_dict = getattr(part, "_to_trace_dict", None)
    if to_trace_dict is not None:
        traced: dict[str, Any] = to_trace_dict()
        return traced
    if type(part) is Toolset:
        return {"type": generate_qualified_class_name(Toolset), "data": {"tools": [trace_dict(tool) for tool in part]}}
    return part.to_dict()


# Haystack 2 only; both are None on Haystack 3.
_Wrapper: Any = getattr(haystack_toolset, "_ToolsetWrapper", None)
MCPToolsetCombination: Any = None
if _Wrapper is not None:

    class _Combination(_Wrapper):  # type: ignore[misc]
        """
        A combination of toolsets that is truthy even while all of them are cold, and that serializes the toolsets.
        """

        def __bool__(self) -> bool:
            return True

        def __add__(self, other: Any) -> Any:
            return _Combination(super().__add__(other).toolsets)

        def __radd__(self, other: Any) -> Any:
            return combine(other, self)

        def to_dict(self) -> dict[str, Any]:
            return self._as_dict([toolset.to_dict() for toolset in self.toolsets])

        def _to_trace_dict(self) -> dict[str, Any]:
            return self._as_dict([trace_dict(toolset) for toolset in self.toolsets])

        def _as_dict(self, toolsets: list[dict[str, Any]]) -> dict[str, Any]:
            return {"type": _STORED_COMBINATION, "data": {"toolsets": toolsets}}

        @classmethod
        def from_dict(cls, data: dict[str, Any]) -> Any:
            parameters = dict(data["data"])
            deserialize_tools_or_toolset_inplace(parameters, key="toolsets")
            return cls(parameters["toolsets"])

    MCPToolsetCombination = _Combination
