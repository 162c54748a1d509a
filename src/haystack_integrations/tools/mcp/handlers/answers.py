# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What a server gets of the answers of handlers: what the user fills in, and the folders that it may work on.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import mcp_types as types
from jsonschema import Draft202012Validator, SchemaError
from pydantic import ValidationError

from haystack_integrations.tools.mcp.handlers import is_root
from haystack_integrations.tools.mcp.handlers.elicitation import defaults, missing

# Keywords of a form's fields that are checked quickly, whatever a server wrote there. Patterns may never end.
_CHECKED = ("type", "enum", "const", "minimum", "maximum", "minLength", "maxLength", "minItems", "maxItems")


def elicit_result(params: types.ElicitRequestParams, answer: Any) -> types.ElicitResult | types.ErrorData:
    """
    Make what the server gets of what a handler, or a caller, answers.

    :param params: The request of the server.
    :param answer: A dictionary, True, False, None, or an ElicitResult or ErrorData of the MCP SDK.
    :returns: The result.
    :raises TypeError: If the answer is something else.
    :raises ValueError: If the answer does not fit the form. The text does not quote it.
    """
    result = _result(params, answer)
    if isinstance(params, types.ElicitRequestFormParams) and isinstance(result, types.ElicitResult):
        _check_form(params.requested_schema, result)
    return result


def _result(params: types.ElicitRequestParams, answer: Any) -> types.ElicitResult | types.ErrorData:
    if isinstance(answer, (types.ElicitResult, types.ErrorData)):
        return answer
    is_form = isinstance(params, types.ElicitRequestFormParams)
    if answer is None:
        return types.ElicitResult(action="cancel")
    if answer is False:
        return types.ElicitResult(action="decline")
    if answer is True:
        content = defaults(params.requested_schema) if isinstance(params, types.ElicitRequestFormParams) else None
        return types.ElicitResult(action="accept", content=content)
    if isinstance(answer, dict) and is_form:
        try:
            return types.ElicitResult(action="accept", content=answer)
        except ValidationError:
            # Its text quotes what was filled in.
            msg = "the values of a form must be strings, numbers, booleans or lists of strings"
            raise ValueError(msg) from None
    msg = (
        f"it returned {type(answer).__name__} for a {'form' if is_form else 'URL'}; it must return "
        f"{'a dictionary, ' if is_form else ''}True, False, None, or an ElicitResult or ErrorData of the MCP SDK"
    )
    raise TypeError(msg)


def _check_form(schema: dict[str, Any], result: types.ElicitResult) -> None:
    if result.action != "accept":
        return
    properties, required = schema.get("properties"), schema.get("required")
    fields = {
        name: {key: field[key] for key in _CHECKED if key in field}
        for name, field in (properties.items() if isinstance(properties, dict) else ())
        if isinstance(field, dict)
    }
    checked = {"type": "object", "properties": fields, "required": required or []}
    try:
        Draft202012Validator.check_schema(checked)
    except SchemaError:
        return  # the server has to know what it asks for
    errors = Draft202012Validator(checked).iter_errors(result.content or {})
    # The texts of the errors quote what was filled in.
    wrong = sorted({str(error.path[0]) for error in errors if error.path})
    wrong += [f"{name} is required" for name in missing(schema, result.content or {})]
    if wrong:
        msg = f"what it filled in does not fit the form: {', '.join(wrong)}"
        raise ValueError(msg)


def roots_result(roots: Any) -> types.ListRootsResult:
    """
    Answer a request for roots.

    :param roots: Paths, `file://` URIs, or roots of the MCP SDK.
    :returns: The answer. Relative paths are resolved now.
    :raises TypeError: If it is something else.
    """
    if isinstance(roots, types.ListRootsResult):
        return roots
    if isinstance(roots, (str, Path)) or not isinstance(roots, Iterable):
        msg = f"roots must be a list of paths or file:// URIs, got {type(roots).__name__}"
        raise TypeError(msg)
    return types.ListRootsResult(roots=[_root(root) for root in roots])


def _root(root: Any) -> types.Root:
    if isinstance(root, types.Root):
        return root
    if not is_root(root):
        what = f"{urlsplit(root).scheme}://…" if isinstance(root, str) and "://" in root else type(root).__name__
        msg = f"a root must be a path or a file:// URI, got {what}"
        raise TypeError(msg)
    if isinstance(root, str) and "://" in root:
        return types.Root.model_validate({"uri": root})
    path = Path(root).expanduser().absolute()
    return types.Root.model_validate({"uri": path.as_uri(), "name": path.name or str(path)})
