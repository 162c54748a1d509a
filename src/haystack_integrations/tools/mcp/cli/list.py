# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from typing import Annotated, Any

from cyclopts import Parameter

from haystack_integrations.tools.mcp.cli.connecting import connected
from haystack_integrations.tools.mcp.cli.options import OUTPUT, Json, Reach, Target, Verbose
from haystack_integrations.tools.mcp.cli.output import Output
from haystack_integrations.tools.mcp.cli.tables import prompts_table, resources_table, tools_table
from haystack_integrations.tools.mcp.cli.targets import server_of

_Also = Annotated[bool, Parameter(negative="", show_default=False, group=OUTPUT)]


def list_tools(
    target: Target,
    /,
    *,
    resources: _Also = False,
    prompts: _Also = False,
    reach: Reach | None = None,
    json: Json = False,
    verbose: Verbose = False,  # noqa: ARG001 - read before the command runs
) -> None:
    """
    List what a server offers: its tools and, if asked, its resources and prompts.

    :param resources: List resources and resource templates, too.
    :param prompts: List prompts, too.
    :param json: Print JSON: the objects of the protocol.
    """
    reach = reach or Reach()
    output = Output(is_json=json)
    server = server_of(target, reach)
    with connected(server, reach, output) as session:
        found: dict[str, Any] = {"tools": session.tools}
        if resources:
            found["resources"] = session.connection.list_resources()
            found["resourceTemplates"] = session.connection.list_resource_templates()
        if prompts:
            found["prompts"] = session.connection.list_prompts()
    if json:
        output.json(found)
        return
    output.print(tools_table(found["tools"]) if found["tools"] else "The server has no tools.")
    if resources:
        output.print()
        everything = [*found["resources"], *found["resourceTemplates"]]
        output.print(resources_table(everything) if everything else "The server has no resources.")
    if prompts:
        output.print()
        output.print(prompts_table(found["prompts"]) if found["prompts"] else "The server has no prompts.")
