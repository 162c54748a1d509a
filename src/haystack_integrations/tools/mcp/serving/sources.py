# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which source serves what. Each is imported only if it is used.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from typing import Any

from haystack_integrations.tools.mcp.serving.options import ServeOptions, check_options
from haystack_integrations.tools.mcp.serving.pool import CallPool
from haystack_integrations.tools.mcp.serving.source import Source

# The parameters of `create_mcp_server` beside `tools`, and the class that serves what is given there. Each is made with
# `Class(things, options=..., pool=...)`.
_SOURCES = {
    "pipelines": "pipelines.PipelineSource",
    "agents": "agents.AgentSource",
    "document_stores": "document_stores.DocumentStoreSource",
    "prompts": "prompts.PromptSource",
    "skills": "skills.SkillSource",
}


def build_sources(*, options: Mapping[str, ServeOptions], pool: CallPool, **things: Any) -> list[Source]:
    """
    Make the sources of what a user gave.

    :param options: ServeOptions by the name of what they are for.
    :param pool: Where calls take their places.
    :param things: What is served, by the parameter: `pipelines`, `agents`, ...; None for nothing.
    :returns: The sources.
    :raises ValueError: If something cannot be served.
    """
    return [
        _class(parameter)(given, options=options, pool=pool) for parameter, given in things.items() if given is not None
    ]


class NamedOptions(dict[str, ServeOptions]):
    """
    Options by the name of what they are for, which remember the names that were asked for.
    """

    def __init__(self, options: Mapping[str, ServeOptions]) -> None:
        """
        Initialize the NamedOptions.

        :param options: The options.
        """
        super().__init__(options)
        self._asked_for: set[str] = set()

    def get(self, name: str, default: Any = None) -> Any:
        """
        Give options.

        :param name: The name of what they are for.
        :param default: What to give if there are none.
        :returns: The options.
        """
        self._asked_for.add(name)
        return super().get(name, default)

    def check_all_used(self) -> None:
        """
        Refuse options for something that is not served.

        :raises ValueError: If there are some.
        """
        if message := self.unused:
            raise ValueError(message)

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


def options_by_name(options: Any) -> NamedOptions:
    """
    Check what was given as options.

    :param options: ServeOptions, or dictionaries of them, by the name of what they are for; None for none.
    :returns: The options.
    :raises ValueError: If it is something else.
    """
    if options is None:
        return NamedOptions({})
    if not isinstance(options, Mapping):
        msg = f"`options` must be a dictionary of names to ServeOptions, got {type(options).__name__}"
        raise ValueError(msg)
    return NamedOptions({name: check_options(value) for name, value in options.items()})


def _class(parameter: str) -> Any:
    module, _, name = _SOURCES[parameter].partition(".")
    return getattr(importlib.import_module(f"{__package__}.{module}"), name)
