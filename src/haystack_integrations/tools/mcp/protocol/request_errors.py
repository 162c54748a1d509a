# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The errors of requests to a server, and the wording of error messages.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, ClassVar

from pydantic import ValidationError
from pydantic_core import to_json

from haystack_integrations.tools.mcp.convert.content import error_text
from haystack_integrations.tools.mcp.errors import (
    MCPConnectionError,
    MCPInvocationError,
    MCPOutcomeUnknownError,
)
from haystack_integrations.tools.mcp.redaction import Redactor

if TYPE_CHECKING:
    import mcp_types as types


class Fate(Enum):
    """
    The fate of a request.
    """

    NEW = auto()
    # A byte of it may have left.
    SENT = auto()
    ANSWERED = auto()
    # It did not run.
    REFUSED = auto()
    # It may have run, and no answer will come.
    LOST = auto()
    GIVEN_UP = auto()


class RequestError(Exception):
    """
    Base class of the errors of requests.

    :param reason: What happened, as a clause; the empty string for the reason why the session ended.
    :param status: The HTTP status with its reason phrase, e.g. "401 Unauthorized", if the error comes from one.
    """

    # The fate of the request.
    fate: ClassVar[Fate]
    # The text in the body of an HTTP error, or advice. It may quote the request, so only its caller may see it.
    server_text: str = ""

    def __init__(self, reason: str, *, status: str | None = None) -> None:
        """
        Initialize the RequestError.
        """
        super().__init__(reason)
        self.reason: str = reason
        self.status: str | None = status


class ProtocolError(RequestError):
    """
    Raised for a request that the server answered with a JSON-RPC error.

    :param code: The code of the error.
    :param message: Its message.
    :param data: Its data.
    """

    fate = Fate.ANSWERED

    def __init__(self, code: int, message: str, data: Any = None, *, status: str | None = None) -> None:
        """
        Initialize the ProtocolError.
        """
        super().__init__(message, status=status)
        self.code: int = code
        self.message: str = message
        self.data: Any = data


class RefusedError(RequestError):
    """
    Raised for a request that provably did not run: it never left, or the server's refusal proves it.

    :param is_final: Whether the server would refuse the same request again.
    :param is_unauthorized: Whether it was not sent for lack of an access token.
    """

    fate = Fate.REFUSED

    def __init__(
        self, reason: str, *, status: str | None = None, is_final: bool = False, is_unauthorized: bool = False
    ) -> None:
        """
        Initialize the RefusedError.
        """
        super().__init__(reason, status=status)
        self.is_final: bool = is_final
        self.is_unauthorized: bool = is_unauthorized


class LostError(RequestError):
    """
    Raised for a request that was sent and will not be answered. It may have run.
    """

    fate = Fate.LOST


class UnreadableError(LostError):
    """
    Raised for a request whose answer arrived but cannot be used.
    """


class NoAnswerError(UnreadableError):
    """
    Raised for a request whose response contains no MCP message, e.g. a proxy's error page.
    """


class CallDidNotRunError(MCPConnectionError):
    """
    Raised when a tool call provably did not run, so that it may be sent again.
    """

    def __init__(self, message: str, *, denied: bool = False) -> None:
        """
        Initialize the CallDidNotRunError.

        :param message: What went wrong.
        :param denied: Whether the server would refuse it again.
        """
        super().__init__(message, operation="call_tool")
        self.denied = denied
        # Why the session of the call ended, if it did.
        self.lost_because: str | None = None


class ReadInterruptedError(MCPConnectionError):
    """
    Raised when the connection broke while something was read, so that it may be read again.
    """

    # Whether the server may have got the request.
    was_sent: bool = True


def raise_tool_error(result: types.CallToolResult, tool_name: str, tool_args: dict[str, Any]) -> None:
    """
    Raise the error that a tool reported, if it did.

    :param result: The result of a call.
    :param tool_name: Name of the tool.
    :param tool_args: The arguments it was called with.
    :raises MCPInvocationError: If the result has `isError`; with the server's own text.
    """
    if result.is_error:
        text = error_text(result.model_dump(by_alias=True, mode="json"))
        error = MCPInvocationError(f"Failed to invoke Tool `{tool_name}`: {text}", tool_name, tool_args)
        error.is_tool_error = True
        raise error


def redacted_result(result: types.CallToolResult, redactor: Redactor) -> types.CallToolResult:
    """
    Redact what a tool's own error quotes.

    :param result: A result with `isError`.
    :param redactor: Knows the secrets of the server.
    :returns: A result with the redacted text of the error, and nothing else.
    """
    # Metadata is not part of the text.
    dumped = result.model_dump(by_alias=True, mode="json", exclude={"meta": True, "content": {"__all__": {"meta"}}})
    text = redactor.text(error_text(dumped))
    # `type(result)` avoids an import of the protocol's types, which is slow.
    return type(result).model_validate({"content": [{"type": "text", "text": text}], "isError": True})


def not_connected() -> MCPConnectionError:
    """
    Make the error of a client that is used before `connect`.

    :returns: The error.
    """
    return MCPConnectionError("Not connected to an MCP server: call connect() first", operation="call_tool")


def with_full_stop(text: str) -> str:
    """
    End a text with a full stop.

    :param text: The text.
    :returns: The text, unchanged if it ends with a full stop, a question mark or an exclamation mark.
    """
    return text if text.endswith((".", "?", "!")) else f"{text}."


def outcome_unknown(reason: str, tool_name: str, tool_args: dict[str, Any]) -> MCPOutcomeUnknownError:
    """
    Make the error of a call that was sent and never answered.

    :param reason: What happened.
    :param tool_name: Name of the tool.
    :param tool_args: The arguments it was called with.
    :returns: The error.
    """
    msg = (
        f"Failed to invoke Tool `{tool_name}`: {with_full_stop(reason)} The tool may have run; the next call "
        "reconnects if necessary."
    )
    error = MCPOutcomeUnknownError(msg, tool_name, tool_args)
    error.reason = reason
    return error


def leaves(error: BaseException) -> Iterator[BaseException]:
    """
    Flatten exception groups.

    :param error: An exception, perhaps a group.
    :returns: The exceptions in it that are not groups.
    """
    if isinstance(error, BaseExceptionGroup):
        for inner in error.exceptions:
            yield from leaves(inner)
    else:
        yield error


def describe_validation(error: ValidationError) -> str:
    """
    Describe what is wrong with a value, without the value.

    :param error: A validation error of pydantic.
    :returns: How many fields are invalid, and where the first one is.
    """
    first = error.errors(include_input=False, include_url=False)[0]
    if first["type"] == "json_invalid":
        return "it is not JSON"
    place = ".".join(map(str, first["loc"]))
    return f"{error.error_count()} fields are invalid, the first is '{place}' ({first['type']})"


def describe_error(error: BaseException) -> str:
    """
    Describe what went wrong: the innermost errors, each by its text, or by its name if it has none.

    :param error: An exception, perhaps a group of them.
    :returns: The text. It contains no value that was validated.
    """
    texts = []
    for leaf in leaves(error):
        if isinstance(leaf, ProtocolError):
            text = leaf.message or f"protocol error {leaf.code}"
            # The Ruby SDK, for example, sends "Invalid params", and "Tool not found: x" as data; mcp-lite an object.
            detail = leaf.data.get("message") if isinstance(leaf.data, dict) else leaf.data
            texts.append(f"{text}: {detail}" if isinstance(detail, str) and detail not in text else text)
        elif isinstance(leaf, ValidationError):
            texts.append(describe_validation(leaf))
        else:
            texts.append(str(leaf) or type(leaf).__name__)
    return "; ".join(dict.fromkeys(texts))


def describe_unsendable(tool_args: dict[str, Any], error: ValueError) -> str:
    """
    Describe which argument cannot be written as JSON.

    :param tool_args: The arguments.
    :param error: The error of writing them all.
    :returns: A clause with the argument's name and without its value.
    """
    culprit = "an argument"
    for name, value in tool_args.items():
        try:
            to_json({name: value})
        except ValueError as its_error:
            culprit, error = f"the argument {name!a}", its_error
            break
    # Errors about invalid text quote the text, so they are replaced.
    what = "it contains text that is not valid Unicode" if "utf-8" in str(error) else describe_error(error)
    return f"{culprit} cannot be sent as JSON: {what}"


def failed_to(operation: str, server: str) -> str:
    """
    Describe which operation failed.

    :param operation: Name of the operation, or the method of a request.
    :param server: The server.
    :returns: A clause.
    """
    return f"`{operation}` of {server} failed"
