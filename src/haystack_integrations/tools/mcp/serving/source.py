# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Literal

from fastmcp.prompts.base import Prompt
from fastmcp.resources.base import Resource
from fastmcp.resources.template import ResourceTemplate
from fastmcp.server.extensions import ServerExtension
from fastmcp.tools.base import Tool
from haystack import logging

logger: logging.PatchedLogger = logging.getLogger(__name__)

# What changed: which list a client has to get anew.
Listing = Literal["tools", "resources", "prompts"]

Unsubscribe = Callable[[], None]


class Changes:
    """
    Tells callbacks what changed. From any thread.
    """

    def __init__(self) -> None:
        """
        Initialize the Changes.
        """
        self._callbacks: tuple[Callable[[Listing], None], ...] = ()
        self._lock = threading.Lock()

    def on_change(self, callback: Callable[[Listing], None]) -> Unsubscribe:
        """
        Call a function when something was added, removed or changed.

        :param callback: Gets what changed: `"tools"`, `"resources"` or `"prompts"`. It is called in any thread, and
            must neither block nor raise.
        :returns: Ends that.
        """
        with self._lock:
            self._callbacks = (*self._callbacks, callback)

        def unsubscribe() -> None:
            with self._lock:
                self._callbacks = tuple(each for each in self._callbacks if each is not callback)

        return unsubscribe

    def changed(self, listing: Listing) -> None:
        """
        Tell the callbacks of a change.

        :param listing: What changed.
        """
        for callback in self._callbacks:
            callback(listing)


class Source(Changes):
    """
    What a provider serves. Each kind of thing has its own: tools, pipelines, agents, document stores, prompts, skills.

    It is asked for each listing and for each call, so it builds what it returns once, and again when that changed.
    """

    @property
    def known_tools(self) -> Sequence[Tool]:
        """
        The tools that are known before anything is warmed up.
        """
        return []

    @property
    def uses_tasks(self) -> bool:
        """
        Whether clients may run something of it as a background task.
        """
        return any(tool.task_config.supports_tasks() for tool in self.known_tools)

    async def list_tools(self) -> Sequence[Tool]:
        """
        List the tools, all versions of them.

        :returns: The tools.
        """
        return []

    async def list_resources(self) -> Sequence[Resource]:
        """
        List the resources.

        :returns: The resources.
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

        :returns: The templates.
        """
        return []

    async def list_prompts(self) -> Sequence[Prompt]:
        """
        List the prompts.

        :returns: The prompts.
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
        Prepare what is served, when the server starts. It may be called again after `close`.
        """

    async def close(self) -> None:
        """
        Release what `warm_up` opened, when the server stops. It may be called without `warm_up`, and more than once.
        """
