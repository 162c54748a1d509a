# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a person is asked about a tool call, and what the answer means.

The arguments are shown as JSON in which no character is invisible or changes the direction of the text, so that what is
read is what is approved.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mcp import types

# Longer arguments are cut in a question, which says so.
_MOST_SHOWN = 4000
_APPROVE, _FEEDBACK, _ARGUMENTS = "approve", "feedback", "arguments"


@dataclass(frozen=True)
class Verdict:
    """
    What somebody decided about a tool call.

    :param approved: Whether it may be made.
    :param feedback: What the model is told.
    :param arguments: The arguments to call it with, if the person changed those that the model chose.
    :param was_asked: Whether there was somebody to ask.
    """

    approved: bool
    feedback: str | None = None
    arguments: dict[str, Any] | None = None
    was_asked: bool = True


@dataclass(frozen=True)
class Question:
    """
    A tool call that somebody has to decide about.

    :param key: Identifies it among those of its step.
    :param message: What the person reads.
    :param arguments: The arguments that the model chose, as JSON.
    """

    key: str
    message: str
    arguments: str

    @classmethod
    def about(cls, caller: str, tool_name: str, arguments: Mapping[str, Any], key: str) -> Question:
        """
        Write a question.

        :param caller: Who wants to call the tool.
        :param tool_name: The tool.
        :param arguments: The arguments that the model chose.
        :param key: Identifies the question.
        :returns: The question.
        """
        as_json = _visible(json.dumps(dict(arguments), ensure_ascii=False, default=str))
        shown = as_json
        if len(shown) > _MOST_SHOWN:
            shown = f"{shown[:_MOST_SHOWN]}... ({len(shown) - _MOST_SHOWN} more characters)"
        return cls(key, f"{caller} wants to call the tool '{_visible(tool_name)}' with {shown}", as_json)

    @property
    def form(self) -> dict[str, Any]:
        """
        The JSON schema of the answer.
        """
        properties: dict[str, Any] = {
            _APPROVE: {"type": "boolean", "title": "Approve", "description": "Whether the tool may run"},
            _FEEDBACK: {"type": "string", "title": "Feedback", "description": "What the agent should know about it"},
        }
        # Nobody should change what is not shown in whole.
        if json.loads(self.arguments) and len(self.arguments) <= _MOST_SHOWN:
            properties[_ARGUMENTS] = {
                "type": "string",
                "title": "Arguments",
                "description": "What to call the tool with, as JSON",
                "default": self.arguments,
            }
        return {"type": "object", "properties": properties, "required": [_APPROVE]}

    def as_request(self) -> types.ElicitRequest:
        """
        Write the question as a client gets it.

        :returns: The elicitation.
        """
        return types.ElicitRequest(
            params=types.ElicitRequestFormParams(message=self.message, requested_schema=self.form)
        )

    def verdict(self, answer: types.ElicitResult) -> Verdict:
        """
        Read an answer. Whatever is not clearly an approval is none.

        :param answer: What the client sent.
        :returns: The verdict.
        """
        if answer.action != "accept":
            return Verdict(False)
        content = answer.content or {}
        given = content.get(_FEEDBACK)
        feedback = given if isinstance(given, str) and given else None
        if content.get(_APPROVE) is not True:
            return Verdict(False, feedback)
        changed = content.get(_ARGUMENTS)
        if changed is None or changed in ("", self.arguments):
            return Verdict(True, feedback)
        return self._changed(changed, feedback)

    def _changed(self, text: Any, feedback: str | None) -> Verdict:
        chosen = json.loads(self.arguments)
        try:
            arguments = json.loads(text, parse_constant=_refuse_constant)
        except (RecursionError, TypeError, ValueError):
            arguments = None
        if not isinstance(arguments, dict):
            return Verdict(False, "The arguments that the user gave instead are not a JSON object.")
        if _ARGUMENTS not in self.form["properties"] or not set(arguments) <= set(chosen):
            # Others could be those that the agent takes from its State, which no client may set.
            return Verdict(False, "The user gave arguments that the call does not have.")
        return Verdict(True, feedback, None if _same(arguments, chosen) else arguments)


def digest(salt: str, tool_name: str, arguments: Mapping[str, Any]) -> str:
    """
    Identify a call by all that it would be made with.

    :param salt: What the client does not know. Without it, a client could find out an argument that it is not shown by
        trying values.
    :param tool_name: The tool.
    :param arguments: All arguments, those from State, too.
    :returns: A text that differs if anything of it differs, the same in each process.
    """
    canonical = json.dumps([salt, tool_name, _canonical(arguments)])
    return hashlib.sha256(canonical.encode()).hexdigest()[:32]


def _same(one: Any, other: Any) -> bool:
    # True equals 1 in Python, and 1.0 equals 1, but not for a tool.
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def _refuse_constant(name: str) -> None:
    msg = f"{name} is not JSON"
    raise ValueError(msg)


def _visible(text: str) -> str:
    """
    Write what a reader would not see as JSON would: what is invisible, or turns the text around it.
    """
    return "".join(each if each == " " or each.isprintable() else json.dumps(each)[1:-1] for each in text)


def _canonical(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return ["dict", sorted(([str(key), _canonical(each)] for key, each in value.items()), key=json.dumps)]
    if isinstance(value, list | tuple):
        return ["list", [_canonical(each) for each in value]]
    if isinstance(value, set | frozenset):
        return ["set", sorted((_canonical(each) for each in value), key=json.dumps)]
    kind: Any = type(value)
    name = f"{kind.__module__}.{kind.__qualname__}"
    if callable(getattr(value, "to_dict", None)) and not isinstance(value, type):
        return [name, _canonical(value.to_dict())]
    # The representation of a function has its address, which is another one in each process.
    if callable(value):
        return [name, getattr(value, "__qualname__", None)]
    is_default = kind.__str__ is object.__str__ and kind.__repr__ is object.__repr__
    return [name, None if is_default else str(value)]
