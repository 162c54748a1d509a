# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fastmcp.prompts.base import Prompt
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.extensions import ServerExtension
from fastmcp.tools.base import Tool

from haystack_integrations.tools.mcp.serving.calls import call_if_there
from haystack_integrations.tools.mcp.serving.changes import Changes
from haystack_integrations.tools.mcp.serving.options import ServeOptions, check_options


class Source(Changes):
    """
    What a provider serves. Each kind of thing has its own: tools, pipelines, agents, document stores, prompts, skills.

    It is asked for each listing and for each call, so it builds what it returns once, and again when that changed.
    """

    # The tools that are known before anything is warmed up.
    known_tools: Sequence[Tool] = ()
    # What is warmed up when the server starts, and closed when it stops.
    parts: Sequence[Any] = ()

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


class NamedOptions(dict[str, ServeOptions]):
    """
    Options by the name of what they are for, which remember the names that were asked for.
    """

    def __init__(self, options: Any) -> None:
        """
        Initialize the NamedOptions.

        :param options: ServeOptions, or dictionaries of them, by the name of what they are for; None for none.
        :raises ValueError: If it is something else.
        """
        if not isinstance(options, Mapping | None):
            msg = f"`options` must be a dictionary of names to ServeOptions, got {type(options).__name__}"
            raise ValueError(msg)
        super().__init__({name: check_options(value) for name, value in (options or {}).items()})
        self._asked_for: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """
        Return options.

        :param name: The name of what they are for.
        :param default: What to return if there are none.
        :returns: The options.
        """
        self._asked_for.add(name)
        return super().get(name, default)

    @property
    def unused(self) -> str | None:
        """
        What is wrong with options for something that is not served; None if there are none.
        """
        unused = sorted(set(self) - self._asked_for)
        if not unused:
            return None
        return (
            f"`options` name {', '.join(map(repr, unused))}, which is not served. "
            f"There is {', '.join(sorted(self._asked_for)) or 'nothing'}."
        )


def things_by_name(parameter: str, things: Any, kind: str) -> dict[str, Any]:
    """
    Check what a user gave to be served by names.

    :param parameter: The parameter.
    :param things: What was given.
    :param kind: What it should contain, for messages.
    :returns: The things by their names.
    :raises ValueError: If it is no dictionary.
    """
    if not isinstance(things, Mapping):
        msg = f"`{parameter}` must be a dictionary of names to {kind}, got {type(things).__name__}"
        raise ValueError(msg)
    return dict(things)
