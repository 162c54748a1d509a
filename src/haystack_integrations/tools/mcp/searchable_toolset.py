# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
`MCPSearchableToolset`: a tool that searches many tools, in place of all of them.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from typing import Annotated, Any, Final, Literal, Self

from haystack import logging
from haystack.components.retrievers.in_memory import InMemoryBM25Retriever
from haystack.core.serialization import generate_qualified_class_name
from haystack.dataclasses import Document
from haystack.tools import (
    ToolsType,
    deserialize_tools_or_toolset_inplace,
    flatten_tools_or_toolsets,
    serialize_tools_or_toolset,
)
from haystack.tools.tool import Tool
from haystack.tools.toolset import Toolset
from pydantic import Field

from haystack_integrations.tools.mcp.any_tools import (
    close_tools,
    close_tools_async,
    connected_items,
    tool_items,
    try_to_warm_up,
    warm_up_tools,
    warm_up_tools_async,
)
from haystack_integrations.tools.mcp.budgets import admit_call
from haystack_integrations.tools.mcp.connection.context_managed import Compound, UserCount
from haystack_integrations.tools.mcp.convert.arguments import fit_arguments_of_own
from haystack_integrations.tools.mcp.convert.server_texts import html_table
from haystack_integrations.tools.mcp.errors import (
    MCPConfigurationError,
    MCPConnectionError,
    MCPDriftError,
    MCPToolNotFoundError,
)
from haystack_integrations.tools.mcp.haystack_compat import (
    private_document_store,
    trace_dict,
)
from haystack_integrations.tools.mcp.import_paths import stored_in
from haystack_integrations.tools.mcp.mcp_toolset import ToolsOfRun
from haystack_integrations.tools.mcp.parameters import Positive, Text, checked, own_parameters
from haystack_integrations.tools.mcp.server_instructions import without_instructions
from haystack_integrations.tools.mcp.tool_base import HasConnection, LiveToolset

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The maximum number of tools that one search loads, no matter how many the model asks for.
MAX_RESULTS: Final = 20

DESCRIPTION: Final = (
    "Find and load tools. Use this first whenever no loaded tool does what is needed: there are many more. Tools that "
    "are found can be called from then on."
)
_ARGUMENT_SCHEMAS: Final = {"tool_keywords": {"type": "string"}, "k": {"type": "integer"}}
_PARAMETER_DESCRIPTIONS: Final = {
    "tool_keywords": "What the tool should do, in words that its name or description is likely to have, e.g. 'weather "
    "forecast city'. Not the question of the user.",
    "k": "How many tools to load at most (default: {top_k}).",
}
# A boundary between words of a name: before a capital letter, or punctuation.
_NAME_BREAK: Final = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|[_\W]+")


@stored_in("haystack_integrations.tools.mcp")
class MCPSearchableToolset(Compound, LiveToolset):
    """
    A search for tools in place of all tools, for servers with many tools. It searches their current tools.

    Like Haystack's SearchableToolset, and with the same parameters, it shows the model one tool, `search_tools`, and
    the tools that the model has found with it. Unlike it, the next search finds tools that a server has added, and
    connections are opened concurrently. On Haystack 2.31, runs of Agents share the tools that they find.

    A run keeps the tools that it has found. If a server has removed one, calling it returns an error to the model.

    ### Usage example

    ```python
    from haystack.components.agents import Agent
    from haystack.components.generators.chat import OpenAIChatGenerator
    from haystack_integrations.tools.mcp import MCPSearchableToolset, MCPToolset, StdioServerInfo

    git = MCPToolset(StdioServerInfo(command="uvx", args=["mcp-server-git"]))
    time = MCPToolset(StdioServerInfo(command="uvx", args=["mcp-server-time", "--local-timezone=Europe/Berlin"]))
    agent = Agent(chat_generator=OpenAIChatGenerator(), tools=MCPSearchableToolset([git, time]))
    ```
    """

    @checked(MCPConfigurationError)
    def __init__(
        self,
        catalog: list[Tool | Toolset] | Toolset,
        *,
        top_k: Annotated[int, Field(ge=1, le=MAX_RESULTS)] = 3,
        search_threshold: Positive = 8,
        search_tool_name: Text = "search_tools",
        search_tool_description: str | None = None,
        search_tool_parameters_description: dict[Literal["tool_keywords", "k"], str] | None = None,
    ) -> None:
        """
        Initialize the toolset. Nothing is connected yet.

        :param catalog: The tools: a Toolset, or a list of Tools and Toolsets, from MCP servers or not.
        :param top_k: How many tools a search loads, 1 to 20, unless the model chooses a number.
        :param search_threshold: If there are fewer tools than this, all are shown, and there is no search.
        :param search_tool_name: Name of the search tool.
        :param search_tool_description: Its description for the model. Default: a text in English.
        :param search_tool_parameters_description: Descriptions of its parameters `tool_keywords` and `k`.
        :raises MCPConfigurationError: If a parameter is invalid. The message names it and the valid choices.
        """
        self.catalog: ToolsType = catalog
        self.top_k = top_k
        self.search_threshold = search_threshold
        self.search_tool_name = search_tool_name
        self.search_tool_description = search_tool_description
        self.search_tool_parameters_description = search_tool_parameters_description
        self._users = UserCount()
        for item in connected_items(self.catalog):
            item._users.count_users_of(self._users)
        self._index = _ToolIndex({})
        self._parameters = _search_parameters(search_tool_parameters_description or {}, top_k)
        # Whether there are too few tools for a search; None before warm-up.
        self._is_small: bool | None = None
        # The tools found outside of runs of Agents. On Haystack 3, each run has its own.
        self._found_outside_runs = ToolsFound(self)
        super().__init__(tools=[self._found_outside_runs.search_tool])

    def _tools_by_name(self, *, strictly: bool) -> dict[str, Tool]:
        tools: dict[str, Tool] = {}
        duplicates = []
        for tool in without_instructions(flatten_tools_or_toolsets(self.catalog)):
            if tool.name == self.search_tool_name or tools.setdefault(tool.name, tool) is not tool:
                duplicates.append(tool.name)
        # During a run, the first tool with a name keeps it.
        if duplicates and strictly:
            msg = (
                f"{type(self).__name__}: more than one tool is called {', '.join(map(repr, duplicates))}. Pass "
                "`tool_name_prefix` to the MCPToolset of one of them."
            )
            raise MCPConfigurationError(msg)
        return tools

    def _update_index(self) -> None:
        tools = self._tools_by_name(strictly=True)
        self._is_small = len(tools) < self.search_threshold
        if not self._is_small:
            self._index_of(tools)

    def _index_of(self, tools: Mapping[str, Tool]) -> _ToolIndex:
        facts = {name: (tool.description, *tool.parameters.get("properties", ())) for name, tool in tools.items()}
        index = self._index
        if index.facts != facts:
            index = self._index = _ToolIndex(facts)
        return index

    def warm_up(self) -> None:
        """
        Connect to all servers concurrently, and index their tools. Cheap if nothing has changed.

        :raises MCPConnectionError: If a server that is required cannot be reached.
        :raises MCPConfigurationError: If two tools have the same name.
        """
        warm_up_tools(self.catalog)
        self._update_index()

    async def warm_up_async(self) -> None:
        """
        Connect and index like `warm_up`, without blocking the event loop.

        :raises MCPConnectionError: As `warm_up`.
        :raises MCPConfigurationError: As `warm_up`.
        """
        await warm_up_tools_async(self.catalog)
        await asyncio.to_thread(self._update_index)

    def close(self) -> None:
        """
        Close the tools for all their users, and forget the tools that were found.

        The next warm-up or search connects again.
        """
        close_tools(self.catalog)
        self._forget()

    async def close_async(self) -> None:
        """
        Close like `close`, without blocking the event loop.
        """
        await close_tools_async(self.catalog)
        self._forget()

    def _forget(self) -> None:
        self._is_small = None
        self.clear()
        self._index = _ToolIndex({})

    def _parts(self) -> list[HasConnection]:
        return connected_items(self.catalog)

    def _enter(self) -> None:
        self.warm_up()

    async def _enter_async(self) -> None:
        await self.warm_up_async()

    def _close_unused(self) -> None:
        super()._close_unused()
        self._forget()

    async def _close_unused_async(self) -> None:
        await super()._close_unused_async()
        self._forget()

    def clear(self) -> None:
        """
        Forget the tools that were found.

        On Haystack 3, each run of an Agent begins without any. On Haystack 2.31, all runs share the tools they find.
        """
        self._found_outside_runs.clear()

    def _search(self, found: ToolsFound, arguments: dict[str, Any]) -> str:
        fitted = fit_arguments_of_own(self.search_tool_name, _ARGUMENT_SCHEMAS, arguments)
        tool_keywords, k = fitted.get("tool_keywords", ""), fitted.get("k")
        admit_call(self.search_tool_name, is_mcp_tool=False)
        if not tool_keywords.strip():  # Haystack's document stores refuse an empty query
            return "Say what the tool should do, in words that its name or description is likely to have."
        if self._is_small is None:
            self.warm_up()
        else:
            self._refresh()
        tools = self._tools_by_name(strictly=False)
        names = self._index_of(tools).search(tool_keywords, max(1, min(k or self.top_k, MAX_RESULTS)), found.names)
        if not names:
            return f"None of {len(tools)} tools was found with these words. Try others."
        found.show(tools[name] for name in names)
        return f"Loaded, and can be called now: {', '.join(names)}"

    def _refresh(self) -> None:
        # Refresh only servers with an open session. The next call or warm-up reopens lost sessions.
        servers = connected_items(self.catalog)
        due = [each for each in servers if each.connection.is_ready and not each._is_current()]
        # One server must not end the search for the tools of others.
        for error in try_to_warm_up(due) if due else ():
            if isinstance(error, MCPConnectionError | MCPDriftError | MCPToolNotFoundError | ValueError):
                logger.warning("Some tools could not be refreshed before the search: {error}", error=str(error))
            elif error is not None:
                raise error

    def spawn(self, selected_tool_names: set[str] | None = None) -> Toolset:
        """
        Return a separate search for a run of an Agent. Haystack 3 calls this at the start of each run.

        :param selected_tool_names: Names of the tools that the run may find and use. Default: all.
        :returns: A toolset for the run.
        """
        if self._is_small is None:
            self.warm_up()
        self._is_small = len(self._tools_by_name(strictly=False)) < self.search_threshold
        return ToolsFound(self, selected_tool_names, is_small=self._is_small)

    def __iter__(self) -> Iterator[Tool]:
        """
        Iterate over the tools that the model sees, without connecting.

        :returns: The search tool, and the tools that it has found; all tools if there are few.
        """
        return iter(self._found_outside_runs)

    def get_selectable_tools(self) -> list[Tool]:
        """
        Return the tools available for selection by name, as in `Agent.run(tools=["tool_name"])`.

        :returns: All tools of the catalog, found or not.
        """
        return list(self._tools_by_name(strictly=False).values())

    def add(self, tool: Tool | Toolset) -> None:
        """
        Refuse to add a tool; add it to a toolset of the catalog instead.

        :param tool: The tool.
        :raises NotImplementedError: Always.
        """
        name = tool.name if isinstance(tool, Tool) else type(tool).__name__
        msg = f"{type(self).__name__} has the tools of its catalog. Add '{name}' to a toolset of the catalog."
        raise NotImplementedError(msg)

    def _as_dict(self, method: str) -> dict[str, Any]:
        catalog: Any
        if method == "to_dict":
            catalog = serialize_tools_or_toolset(self.catalog)
        else:
            parts = [trace_dict(item) for item in tool_items(self.catalog)]
            catalog = parts[0] if isinstance(self.catalog, Toolset) else parts
        data = {**own_parameters(self, MCPSearchableToolset), "catalog": catalog}
        return {"type": generate_qualified_class_name(type(self)), "data": data}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> Self:
        """
        Deserialize a toolset, without connecting.

        :param data: The result of `to_dict`.
        :returns: The toolset.
        """
        parameters = dict(data["data"])
        deserialize_tools_or_toolset_inplace(parameters, key="catalog")
        return cls(**parameters)

    def __reduce__(self) -> tuple[Any, ...]:
        """
        Pickle the parameters. The unpickled object opens its own connections.
        """
        return partial(type(self), **own_parameters(self, MCPSearchableToolset)), ()

    def _repr_html_(self) -> str:
        tools = self._tools_by_name(strictly=False)
        return html_table(tools.values(), f"{type(self).__name__}, which searches {len(tools)} tools")

    def __repr__(self) -> str:
        """
        Describe the toolset without secrets.
        """
        cold = ", not warmed up" if self._is_small is None else ""
        return f"{type(self).__name__}({self.catalog!r}{cold})"


class ToolsFound(ToolsOfRun):
    """
    The tools of an MCPSearchableToolset for one run of an Agent, or for everything outside of runs.
    """

    def __init__(
        self, toolset: MCPSearchableToolset, names: set[str] | None = None, *, is_small: bool | None = None
    ) -> None:
        """
        Initialize the ToolsFound.

        :param toolset: The toolset.
        :param names: Names of the tools that may be found and used; None for all.
        :param is_small: Whether all tools are shown; None to follow the toolset.
        """
        # Add the search tool to the names, because it is not in the catalog.
        super().__init__(toolset, self._current_tools, None if names is None else {*names, toolset.search_tool_name})
        self._toolset = toolset
        self._is_small = is_small
        self._found: dict[str, Tool] = {}
        # If a run of Haystack 3 sees all tools, it keeps those with which it began.
        self._all_tools = [_spawned(item, names) for item in tool_items(toolset.catalog)] if is_small else None
        description = toolset.search_tool_description
        self.search_tool: Tool = Tool(
            name=toolset.search_tool_name,
            description=DESCRIPTION if description is None else description,
            parameters=toolset._parameters,
            function=self._search,
        )

    def _search(self, **arguments: Any) -> str:
        return self._toolset._search(self, arguments)

    def show(self, tools: Iterable[Tool]) -> None:
        """
        Show tools that were found.

        :param tools: The tools, the best match first.
        """
        # This is one assignment, so that another thread sees either the old tools or the new ones.
        self._found = {**self._found, **{each.name: each for each in tools}}

    def clear(self) -> None:
        """
        Stop showing the tools that were found.
        """
        self._found = {}

    def _current_tools(self) -> list[Tool]:
        is_small = self._toolset._is_small if self._is_small is None else self._is_small
        if not is_small:
            return [self.search_tool, *self._found.values()]
        return flatten_tools_or_toolsets(self._toolset.catalog if self._all_tools is None else self._all_tools)

    def get_selectable_tools(self) -> list[Tool]:
        """
        Return the tools of the catalog.
        """
        return self._toolset.get_selectable_tools()


def _spawned(item: Any, names: set[str] | None) -> Any:
    spawn = getattr(item, "spawn", None)
    return item if spawn is None else spawn(names)


def _search_parameters(descriptions: Mapping[Any, str], top_k: int) -> dict[str, Any]:
    described = {**_PARAMETER_DESCRIPTIONS, "k": _PARAMETER_DESCRIPTIONS["k"].format(top_k=top_k), **descriptions}
    return {
        "type": "object",
        "properties": {
            "tool_keywords": {"type": "string", "description": described["tool_keywords"]},
            "k": {"type": "integer", "minimum": 1, "maximum": MAX_RESULTS, "description": described["k"]},
        },
        "required": ["tool_keywords"],
    }


class _ToolIndex:
    """
    Finds tools by the words of their names, descriptions and parameters. Each tool is a document, ranked by BM25.
    """

    def __init__(self, facts: Mapping[str, tuple[Any, ...]]) -> None:
        # The description and the parameters of each tool, by name.
        self.facts = facts
        store = private_document_store()
        documents = [_document(name, tool_facts) for name, tool_facts in facts.items()]
        if documents and len(documents) % 2 == 0:
            # BM25 ignores a word in exactly half of the documents, such as the prefix of one of two servers.
            documents.append(Document(content=""))
        store.write_documents(documents)
        self._retriever = InMemoryBM25Retriever(document_store=store)

    def search(self, query: str, top_k: int, names: Collection[str] | None = None) -> list[str]:
        """
        Return the names of tools, the best match first; only of these names, if they are given.
        """
        filters = None if names is None else {"field": "id", "operator": "in", "value": sorted(names)}
        found = self._retriever.run(query=query, top_k=top_k, filters=filters)["documents"]
        # Documents without any of the words have no score.
        return [document.id for document in found if document.score]


def _document(name: str, facts: tuple[Any, ...]) -> Document:
    description, *parameters = facts
    words = " ".join(_NAME_BREAK.sub(" ", each) for each in (name, *parameters))
    return Document(id=name, content=f"{name}: {description}\n{words}")
