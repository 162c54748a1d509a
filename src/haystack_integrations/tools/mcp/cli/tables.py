# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What servers offer, as tables.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from rich.table import Table

from haystack_integrations.tools.mcp.cli.output import table
from haystack_integrations.tools.mcp.cli.schemas import describe_type, properties_of, required_in, signature

if TYPE_CHECKING:
    import mcp_types as types


def tools_table(tools: Sequence[types.Tool]) -> Table:
    """
    Show tools, one in a row.

    :param tools: The tools.
    :returns: The table.
    """
    rows = [(tool.name, signature(tool.input_schema), tool.description or tool.title or "") for tool in tools]
    return table(("Tool", "Arguments", "Description"), rows)


def resources_table(resources: Sequence[types.Resource | types.ResourceTemplate]) -> Table:
    """
    Show resources and resource templates, one in a row.

    :param resources: Resources and templates.
    :returns: The table.
    """
    return table(("Resource", "Type", "Description"), [_resource_row(each) for each in resources])


def _resource_row(each: types.Resource | types.ResourceTemplate) -> tuple[str, str, str]:
    uri = str(getattr(each, "uri", None) or getattr(each, "uri_template", ""))
    name = each.title or each.name
    said = [name] * (name not in uri) + [each.description or ""]
    return uri, each.mime_type or "", ": ".join(filter(None, said))


def prompts_table(prompts: Sequence[types.Prompt]) -> Table:
    """
    Show prompts, one in a row.

    :param prompts: The prompts.
    :returns: The table.
    """
    rows = [(each.name, prompt_signature(each), each.description or each.title or "") for each in prompts]
    return table(("Prompt", "Arguments", "Description"), rows)


def prompt_signature(prompt: types.Prompt) -> str:
    """
    Write the arguments of a prompt in a line.

    :param prompt: The prompt.
    :returns: Such as `text, style?`.
    """
    return ", ".join(f"{each.name}{'' if each.required else '?'}" for each in prompt.arguments or ())


def schema_table(schema: Mapping[str, Any], heading: str) -> Table | None:
    """
    Show the properties of an object, one in a row.

    :param schema: The schema of the object.
    :param heading: What they are.
    :returns: The table; None if there are no properties.
    """
    required = required_in(schema)
    rows = [
        (
            name,
            describe_type(each, schema),
            "yes" if name in required else _default(each),
            each.get("description", "") if isinstance(each, Mapping) else "",
        )
        for name, each in properties_of(schema).items()
    ]
    return table((heading, "Type", "Required", "Description"), rows) if rows else None


def _default(schema: Any) -> str:
    if isinstance(schema, Mapping) and schema.get("default") is not None:
        return f"default: {json.dumps(schema['default'], ensure_ascii=False)}"
    return "no"
