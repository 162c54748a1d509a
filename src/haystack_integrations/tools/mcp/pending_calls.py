# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Calls that are left open, because their server needs input that is not available now, or runs them as a task.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Self

from pydantic import TypeAdapter, ValidationError
from pydantic_core import to_jsonable_python

from haystack_integrations.tools.mcp.parameters import short_repr
from haystack_integrations.tools.mcp.redaction import MIN_SECRET_LENGTH, texts_in

__all__ = ["MCPPendingCall", "MCPQuestion"]

_ELICITATION = "elicitation/create"

# The version of the format of `to_dict`.
_VERSION = 1


@short_repr
@dataclass(frozen=True, kw_only=True)
class MCPQuestion:
    """
    A question to the user that a server needs answered before it continues a call.

    :param key: The key of the answer in `continue_call`.
    :param message: The question, in the server's words.
    :param schema: The JSON schema of the form to fill in; None if the question is about a URL.
    :param url: The URL to open; None if the question is a form.
    """

    key: str
    message: str
    schema: dict[str, Any] | None = None
    url: str | None = None


@dataclass(frozen=True, kw_only=True, repr=False)
class MCPPendingCall:
    """
    An unfinished call, which can be stored anywhere and continued anywhere.

    `to_dict` converts it for JSON. It contains the arguments of the call, and data from the server for continuing it,
    which may contain anything. It contains no Secret of `bound_arguments` and no credential of the connection. Store it
    as carefully as the conversation, and continue it only once: most servers do not detect a second time.

    ### Usage example

    ```python
    call = connection.begin_call("order", {"drink": "tea"})
    stored = json.dumps(call.to_dict())
    # later, elsewhere
    call = MCPPendingCall.from_dict(json.loads(stored))
    result = connection.continue_call(call, {question.key: {"size": "small"} for question in call.questions})
    ```

    :param tool_name: The server's name of the tool.
    :param arguments: The arguments of the call, without those in `withheld`.
    :param server: The description of the server, as in messages. A connection to another server refuses the call; if it
        is empty, no connection does.
    :param withheld: Names of the arguments that are Secrets. They are needed again to continue.
    :param requests: The server's requests for input, as in the protocol, by key.
    :param request_state: The server's opaque state for continuing this call.
    :param task_id: The server's ID of the task that runs the call; None if there is no task.
    :param poll_interval: The interval at which the server wants to be polled for the task, in seconds.
    :param expires_at: When the server may forget the task, in seconds since the epoch; None if unknown.
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
        The server's questions to the user. Empty if the server only runs a task.
        """
        questions = []
        for key, request in self.requests.items():
            if is_question(request):
                params = request.get("params") or {}
                url = params.get("url")
                message = str(params.get("message", ""))
                questions.append(MCPQuestion(key=key, message=message, schema=params.get("requestedSchema"), url=url))
        return questions

    @property
    def can_be_continued(self) -> bool:
        """
        Whether there is any state to continue from. Without it, the call would start over and run the tool again.
        """
        return bool(self.task_id or self.requests or self.request_state)

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the call to JSON types. Arguments are stored as they were sent, e.g. a date as text.

        :returns: A dictionary.
        """
        return {"version": _VERSION, **to_jsonable_python(asdict(self))}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """
        Deserialize a call.

        :param data: The result of `to_dict`.
        :returns: The call.
        :raises ValueError: If it is anything else.
        """
        # Require all fields, because the server needs its data back.
        if isinstance(data, Mapping) and set(data) == {"version", *(field.name for field in fields(cls))}:
            try:
                call = TypeAdapter(cls).validate_python(dict(data))
            except ValidationError:
                call = None
            if call is not None and call.can_be_continued and data["version"] == _VERSION:
                return call
        msg = "`MCPPendingCall.from_dict` takes what `to_dict` of an MCPPendingCall of this version gave"
        raise ValueError(msg)

    def __repr__(self) -> str:
        """
        Show what the call waits for, without arguments and without the data that continues it.
        """
        waits_for = "input" if self.requests else "a task"
        return f"MCPPendingCall(tool_name={self.tool_name!r}, server={self.server!r}, waits for {waits_for})"


def is_question(request: Any) -> bool:
    """
    Return whether a server's request is a question to the user.

    :param request: The request, as in the protocol.
    :returns: True for an elicitation.
    """
    return isinstance(request, Mapping) and request.get("method") == _ELICITATION


def arguments_with_secrets(arguments: Mapping[str, Any], secrets: Collection[str]) -> tuple[str, ...]:
    """
    Find the arguments that contain a secret.

    A short secret may occur in other texts by chance, so it counts only as a whole value.

    :param arguments: The arguments of a call.
    :param secrets: The secrets among them.
    :returns: The names of those arguments.
    """

    def is_secret(text: str) -> bool:
        return any(
            secret == text or (len(secret) >= MIN_SECRET_LENGTH and secret in text) for secret in secrets if secret
        )

    return tuple(name for name, value in arguments.items() if any(map(is_secret, texts_in(value))))
