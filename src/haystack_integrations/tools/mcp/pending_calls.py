# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls that are left open: their server wants input that nobody can give now, or runs them as a task.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from types import NoneType
from typing import Any, Final, Self

from pydantic_core import to_jsonable_python

from haystack_integrations.tools.mcp.reprs import short_repr

_NOT_FROM_TO_DICT = "`MCPPendingCall.from_dict` takes what `to_dict` of an MCPPendingCall of this version gave"

_ELICITATION = "elicitation/create"

# The form of what `to_dict` gives.
_VERSION = 1

# What JSON has for each field of a call.
_TYPES: Final[dict[str, tuple[type, ...]]] = {
    "tool_name": (str,),
    "arguments": (dict,),
    "server": (str,),
    "withheld": (list,),
    "requests": (dict,),
    "request_state": (str, NoneType),
    "task_id": (str, NoneType),
    "poll_interval": (int, float, NoneType),
    "expires_at": (int, float, NoneType),
    "created_at": (int, float),
}


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPQuestion:
    """
    What a server wants to know of the user before it goes on with a call.

    :param key: What the answer goes by in `continue_call`.
    :param message: The question, in the server's words.
    :param schema: The JSON schema of the form to fill in; None if it is about a URL.
    :param url: The URL to open; None if it is about a form.
    """

    key: str
    message: str
    schema: dict[str, Any] | None = None
    url: str | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class MCPPendingCall:
    """
    A call that was begun and is not finished, to be kept anywhere and continued anywhere.

    `to_dict` gives it for JSON. It contains the arguments of the call and what the server gave to find the call again,
    in which the server may have put what it likes, but no Secret of `bound_arguments` and no credential of the
    connection. Keep it as you keep the conversation, and continue it once: most servers do not notice a second time.

    ### Usage example

    ```python
    call = connection.begin_call("order", {"drink": "tea"})
    stored = json.dumps(call.to_dict())
    # later, elsewhere
    call = MCPPendingCall.from_dict(json.loads(stored))
    result = connection.continue_call(call, {question.key: {"size": "small"} for question in call.questions})
    ```

    :param tool_name: Name of the tool at the server.
    :param arguments: The arguments of the call, without those in `withheld`.
    :param server: The server, as messages name it. A connection to another one refuses the call; with the empty string,
        none does.
    :param withheld: Names of the arguments that are Secrets. They are needed again to continue.
    :param requests: What the server wants to know, as in the protocol, by key.
    :param request_state: What the server gave to go on with this call, as it came.
    :param task_id: The server's name of the task that the call is; None if it is none.
    :param poll_interval: How many seconds the server wants between two questions for the task.
    :param expires_at: When the server may forget the task, in seconds since the epoch; None if it does not say.
    :param created_at: When the call was left open, in seconds since the epoch.
    """

    tool_name: str
    arguments: dict[str, Any] = field(default_factory=dict)
    server: str = ""
    withheld: tuple[str, ...] = ()
    requests: dict[str, Any] = field(default_factory=dict)
    request_state: str | None = None
    task_id: str | None = None
    poll_interval: float | None = None
    expires_at: float | None = None
    created_at: float = field(default_factory=time.time)

    @property
    def questions(self) -> list[MCPQuestion]:
        """
        What the server wants to know of the user. Empty if it only runs a task.
        """
        asked = []
        for key, request in self.requests.items():
            if is_question(request):
                params = request.get("params") or {}
                url = params.get("url")
                message = str(params.get("message", ""))
                asked.append(MCPQuestion(key=key, message=message, schema=params.get("requestedSchema"), url=url))
        return asked

    @property
    def can_be_continued(self) -> bool:
        """
        Whether there is something to go on with. A call without it would begin anew, and so run the tool once more.
        """
        return bool(self.task_id or self.requests or self.request_state)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the call to what JSON can say. Arguments become what was sent of them, e.g. a date its text.

        :returns: A dictionary.
        """
        fields: dict[str, Any] = to_jsonable_python(asdict(self))
        return {"version": _VERSION, **fields}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """
        Deserialize a call.

        :param data: The result of `to_dict`.
        :returns: The call.
        :raises ValueError: If it is something else.
        """
        # All of it: the server needs what it gave.
        if (
            not isinstance(data, Mapping)
            or data.get("version") != _VERSION
            or set(data) != {"version", *_TYPES}
            or not all(isinstance(data[name], kinds) for name, kinds in _TYPES.items())
        ):
            raise ValueError(_NOT_FROM_TO_DICT)
        call = cls(**{**{name: data[name] for name in _TYPES}, "withheld": tuple(data["withheld"])})
        if not call.can_be_continued:
            raise ValueError(_NOT_FROM_TO_DICT)
        return call

    def __repr__(self) -> str:
        """
        Show what it waits for, without arguments and without what opens it.
        """
        waits_for = "input" if self.requests else "a task"
        return f"MCPPendingCall(tool_name={self.tool_name!r}, server={self.server!r}, waits for {waits_for})"


def is_question(request: Any) -> bool:
    """
    Tell whether a server's request wants something of the user.

    :param request: The request, as in the protocol.
    :returns: True for an elicitation.
    """
    return isinstance(request, Mapping) and request.get("method") == _ELICITATION


def without_secrets(
    arguments: Mapping[str, Any], secrets: tuple[str, ...], shortest: int
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """
    Take the arguments apart that contain a secret.

    A short secret, which other texts may well contain, counts only as a whole value.

    :param arguments: The arguments of a call.
    :param secrets: The secrets among them.
    :param shortest: How many characters a secret has that is looked for within texts, too.
    :returns: The others, and the names of those that do.
    """
    withheld = tuple(name for name, value in arguments.items() if _contains(value, secrets, shortest))
    return without(arguments, withheld), withheld


def without(arguments: Mapping[str, Any], withheld: Collection[str]) -> dict[str, Any]:
    """
    Leave arguments out.

    :param arguments: The arguments of a call.
    :param withheld: The names of those to leave out.
    :returns: The others.
    """
    return {name: value for name, value in arguments.items() if name not in withheld}


def strings_in(value: Any) -> Iterator[str]:
    """
    Find the strings in an argument, at any depth.

    :param value: The argument.
    :returns: The strings, without the keys of mappings.
    """
    match value:
        case str():
            yield value
        case Mapping():
            for each in value.values():
                yield from strings_in(each)
        case list() | tuple():
            for each in value:
                yield from strings_in(each)


def _contains(value: Any, secrets: tuple[str, ...], shortest: int) -> bool:
    match value:
        case str():
            return any(secret == value or (len(secret) >= shortest and secret in value) for secret in secrets if secret)
        case Mapping():
            return any(_contains(each, secrets, shortest) for pair in value.items() for each in pair)
        case list() | tuple():
            return any(_contains(each, secrets, shortest) for each in value)
    return False
