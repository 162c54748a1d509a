# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Ready-made answers to servers that want something of the user.

They are free of the MCP SDK: `params` is an `ElicitRequestFormParams` or `ElicitRequestURLParams` of it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from haystack_integrations.tools.mcp.haystack_compat import deserialize_object, serialize_object


def accept_defaults(params: Any) -> dict[str, Any] | bool:
    """
    Fill in a form with the defaults of its schema, without asking anybody. A handler for `MCPHandlers.elicitation`.

    :param params: The request of the server.
    :returns: The values. False, which declines, for a URL and for a form with a required field without a default.
    """
    if params.mode != "form":
        return False
    values = defaults(params.requested_schema)
    return values if not missing(params.requested_schema, values) else False


def decline(params: Any) -> bool:  # noqa: ARG001 - the signature of a handler
    """
    Decline, without asking anybody. A handler for `MCPHandlers.elicitation`.

    :param params: The request of the server.
    :returns: False.
    """
    return False


def answer_later(params: Any) -> None:
    """
    Leave a tool call open whose server wants something of the user. A handler for `MCPHandlers.elicitation`.

    Where the server speaks revision 2026-07-28, the call fails with an `MCPCallPendingError`, whose `pending_call` can
    be kept and continued with answers at any time, in any process. Questions that come another way are cancelled: those
    of earlier revisions, and those of resources and prompts.

    :param params: The request of the server.
    :returns: None, which cancels.
    """


@dataclass(frozen=True)
class AskUser:
    """
    Asks the user through a `ConfirmationUI` of Haystack, such as `SimpleConsoleUI`. For `MCPHandlers.elicitation`.

    A form is shown with its defaults, and can be confirmed, modified or rejected; a URL is shown to be opened, and
    confirmed when that is done. The UI runs in a thread of its own; on the console, one question is asked at a time.

    ### Usage example

    ```python
    from haystack.hooks.human_in_the_loop import SimpleConsoleUI  # Haystack 2.31: haystack.human_in_the_loop

    handlers = MCPHandlers(elicitation=AskUser(SimpleConsoleUI()))
    ```

    :param ui: The UI, with a method `get_user_confirmation(tool_name, tool_description, tool_params)`.
    :raises ValueError: If it has no such method.
    """

    ui: Any

    def __post_init__(self) -> None:
        """
        Check the UI.
        """
        if not callable(getattr(self.ui, "get_user_confirmation", None)):
            msg = (
                "AskUser: `ui` must be a ConfirmationUI of Haystack, with a method `get_user_confirmation`, got "
                f"{type(self.ui).__name__}"
            )
            raise ValueError(msg)

    def __call__(self, params: Any, server: str = "an MCP server") -> dict[str, Any] | bool:
        """
        Ask the user.

        :param params: The request of the server.
        :param server: What to call the server.
        :returns: The values of the form, or whether the URL was opened. False if the user declines, or leaves a
            required field empty.
        """
        is_form = params.mode == "form"
        shown = _shown(params.requested_schema) if is_form else {"url": params.url}
        decision = self.ui.get_user_confirmation(server, params.message, dict(shown))
        if decision.action not in ("confirm", "modify"):
            return False
        if not is_form:
            return True
        values = decision.new_tool_params if decision.action == "modify" else shown
        known = defaults(params.requested_schema)
        # Fields that were left empty, unless that is their default.
        filled = {
            name: value for name, value in (values or {}).items() if value not in (None, "") or known.get(name) == value
        }
        filled = {name: value for name, value in filled.items() if value is not None}
        return filled if not missing(params.requested_schema, filled) else False

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the UI.

        :returns: A dictionary.
        :raises SerializationError: If the UI has no `to_dict`.
        """
        return {"ui": serialize_object("AskUser.ui", self.ui)}

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> AskUser:
        """
        Deserialize an AskUser.

        :param data: The result of `to_dict`.
        :returns: The AskUser.
        """
        return cls(deserialize_object(data["ui"]))


def _properties(schema: dict[str, Any]) -> dict[str, Any]:
    properties = schema.get("properties")
    return properties if isinstance(properties, dict) else {}


def defaults(schema: dict[str, Any]) -> dict[str, Any]:
    """
    Collect the defaults of a form.

    :param schema: Its schema.
    :returns: The values of the fields that have one.
    """
    return {
        name: field["default"]
        for name, field in _properties(schema).items()
        if isinstance(field, dict) and field.get("default") is not None
    }


def missing(schema: dict[str, Any], values: dict[str, Any]) -> list[str]:
    """
    Return the required fields without a value.

    :param schema: The schema of a form.
    :param values: What was filled in.
    :returns: Their names.
    """
    required = schema.get("required")
    return [name for name in required if name not in values] if isinstance(required, list) else []


def _shown(schema: dict[str, Any]) -> dict[str, Any]:
    # The UIs of Haystack take what the user types as it is where a string was, and as JSON otherwise.
    known = defaults(schema)
    return {
        name: known.get(name, "" if isinstance(field, dict) and field.get("type") == "string" else None)
        for name, field in _properties(schema).items()
    }
