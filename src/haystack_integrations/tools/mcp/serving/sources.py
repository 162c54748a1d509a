# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import anyio.to_thread
from fastmcp.prompts.base import Prompt
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.extensions import ServerExtension
from fastmcp.tools.base import Tool

from haystack_integrations.tools.mcp.serving.changes import Changes


class Source(Changes):
    """
    What a provider serves. Each kind of thing has its own: tools, pipelines, agents, document stores, prompts, skills.

    It is asked for each listing and for each call, so it builds what it returns once, and again when that changed.
    """

    # The tools that are known before anything is warmed up.
    known_tools: Sequence[Tool] = ()
    # What is warmed up when the server starts, and closed when it stops.
    parts: Sequence[Any] = ()

    def __init__(self) -> None:
        """
        Initialize the Source.
        """
        super().__init__()
        # The names and versions of the tools that are not served any more; all versions of the name for None.
        self.dropped: set[tuple[str, str | None]] = set()

    def left(self, tools: Sequence[Tool]) -> list[Tool]:
        """
        Leave out the tools that are not served any more.

        :param tools: Tools of this source.
        :returns: The others.
        """
        return [tool for tool in tools if self.dropped.isdisjoint({(tool.name, None), (tool.name, tool.version)})]

    @property
    def uses_tasks(self) -> bool:
        """
        Whether clients may run something of it as a background task.
        """
        return any(tool.task_config.supports_tasks() for tool in self.known_tools)

    async def list_tools(self) -> Sequence[Tool]:
        """
        List the tools, all versions of them.
        """
        return self.known_tools

    async def list_resources(self) -> Sequence[Resource]:
        """
        List the resources.
        """
        return []

    async def find_resources(self, uri: str) -> Sequence[Resource]:
        """
        Find a resource by its URI, to read it. Sources that need not list all of theirs for that say so here.

        :param uri: The URI.
        :returns: All versions of the resource; none if it is no resource of this source.
        """
        return [resource for resource in await self.list_resources() if str(resource.uri) == uri]

    async def list_resource_templates(self) -> Sequence[ResourceTemplate]:
        """
        List the templates of resources.
        """
        return []

    async def list_prompts(self) -> Sequence[Prompt]:
        """
        List the prompts.
        """
        return []

    async def complete(
        self,
        reference: str,  # noqa: ARG002 - for subclasses
        argument: str,  # noqa: ARG002
        value: str,  # noqa: ARG002
        known: Mapping[str, str],  # noqa: ARG002
    ) -> Sequence[str] | None:
        """
        Complete an argument of a prompt or of a template of resources.

        :param reference: The name of the prompt, or the URI template.
        :param argument: The name of the argument.
        :param value: What was typed so far.
        :param known: The other arguments that are known.
        :returns: Values that clients may offer; None if this source does not have that.
        """
        return None

    @property
    def extensions(self) -> Sequence[ServerExtension]:
        """
        The extensions of the protocol that are needed for what is served.
        """
        return []

    async def warm_up(self) -> None:
        """
        Load models and open connections, when the server starts. It may be called again after `close`.
        """
        for each in self.parts:
            await call_if_there(each, "warm_up")

    async def close(self) -> None:
        """
        Release what `warm_up` opened, when the server stops. It may be called without `warm_up`, and more than once.
        """
        for each in self.parts:
            await call_if_there(each, "close")


async def call_if_there(thing: Any, method: str) -> None:
    """
    Call `warm_up` or `close`, which not all parts of Haystack have on all majors, without blocking the event loop.

    :param thing: The tool, toolset, pipeline, Agent or component.
    :param method: The name of the synchronous method; `..._async` is preferred.
    """
    asynchronous = getattr(thing, f"{method}_async", None)
    if asynchronous is not None:
        await asynchronous()
    elif callable(synchronous := getattr(thing, method, None)):
        await anyio.to_thread.run_sync(synchronous)
