# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from haystack_integrations.tools.mcp.convert.invisible_text import invisible_characters
from haystack_integrations.tools.mcp.convert.tool_schemas import map_texts
from haystack_integrations.tools.mcp.shaping import unusable_by_model
from haystack_integrations.tools.mcp.snapshot.definitions import (
    FIELDS,
    canonical_definition,
    canonical_schema,
    in_order,
    sorted_value,
    value_hash,
)

if TYPE_CHECKING:
    import mcp_types as types


@dataclass(frozen=True)
class PinnedTool:
    """
    One tool of a snapshot.

    :param definition: The canonical form of its definition; see definitions.py.
    :param parameters: The names of its parameters in the server's order, in which models see them.
    :param is_for_models: Whether a model may see it. The server says so in its `_meta`, which is no part of the form.
    """

    definition: dict[str, Any]
    parameters: tuple[str, ...] = ()
    is_for_models: bool = True

    @property
    def name(self) -> str:
        """
        The server's name of the tool.
        """
        name: str = self.definition["name"]
        return name

    @property
    def hash(self) -> str:
        """
        The hash of the definition: `sha256:` and 64 hexadecimal digits.
        """
        return value_hash(self.definition)

    @classmethod
    def of(cls, tool: types.Tool) -> PinnedTool:
        """
        Pin a tool.

        :param tool: What the server says of it.
        :returns: Its canonical form.
        """
        properties = tool.input_schema.get("properties")
        parameters = tuple(properties) if isinstance(properties, dict) else ()
        return cls(canonical_definition(tool), parameters, is_for_models=unusable_by_model(tool) is None)

    def as_tool(self) -> types.Tool:
        """
        Give the definition as the MCP SDK has it.

        :returns: A tool of its own, whose parameters are in the server's order.
        """
        # A fourth of what `mcp` takes to import, which nothing needs before the first call.
        import mcp_types  # noqa: PLC0415

        definition = sorted_value(self.definition)
        definition["inputSchema"] = in_order(definition["inputSchema"], list(self.parameters))
        return mcp_types.Tool.model_validate(definition)

    def invisible_characters(self) -> Counter[str]:
        """
        Find the invisible characters in its texts.

        :returns: How often they have which, as `U+200B`.
        """
        found: Counter[str] = Counter()

        def count(text: str) -> str:
            found.update(invisible_characters(text))
            return text

        for field in ("title", "description"):
            count(self.definition.get(field, ""))
        for field in ("inputSchema", "outputSchema"):
            map_texts(self.definition.get(field), count)
        return found

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the tool.

        :returns: `hash`, `parameters` and `definition`, and `is_for_models` if it is not.
        """
        return {
            "hash": self.hash,
            "parameters": list(self.parameters),
            "definition": sorted_value(self.definition),
            **({} if self.is_for_models else {"is_for_models": False}),
        }

    @classmethod
    def from_dict(cls, data: Any) -> PinnedTool:
        """
        Deserialize a tool.

        :param data: The result of `to_dict`.
        :returns: The tool.
        :raises ValueError: If it is something else, or the hash is not that of the definition.
        """
        definition = data.get("definition") if isinstance(data, Mapping) else None
        name = definition.get("name") if isinstance(definition, dict) else None
        parameters = data.get("parameters", []) if isinstance(data, Mapping) else None
        if (
            definition is None
            or not isinstance(name, str)
            or not name
            or not isinstance(definition.get("inputSchema"), dict)
            or not set(definition) <= set(FIELDS)
            or not isinstance(parameters, list)
            or not all(isinstance(each, str) for each in parameters)
        ):
            msg = f"it is no snapshot of tools: the definition of tool {name!r} cannot be read"
            raise ValueError(msg)
        canonical = sorted_value(definition)
        for field in ("inputSchema", "outputSchema"):
            if field in definition:
                canonical[field] = canonical_schema(definition[field])
        tool = cls(canonical, tuple(parameters), is_for_models=data.get("is_for_models") is not False)
        if tool.hash != data.get("hash"):
            msg = (
                f"the definition of tool '{name}' was changed after it was captured: its hash is another. Look at what "
                "the server says now, and capture it again"
            )
            raise ValueError(msg)
        return tool
