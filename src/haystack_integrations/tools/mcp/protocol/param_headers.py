# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_ANNOTATION = "x-mcp-header"


class ParamHeaders:
    """
    The arguments of tools that also go as HTTP headers, for what looks at requests on their way (SEP-2243).

    Since revision 2026-07-28 the schema of an argument names its header in `x-mcp-header`.
    """

    def __init__(self) -> None:
        """
        Initialize the ParamHeaders: none.
        """
        self._headers: dict[str, dict[tuple[str, ...], str]] = {}

    def note(self, page: dict[str, Any], *, is_used: bool) -> dict[str | int, str]:
        """
        Take the annotations of a page of tools, and leave tools out whose annotations are not valid.

        :param page: A page of `tools/list`, which is changed.
        :param is_used: Whether the revision of the protocol has them.
        :returns: Why tools were left out, by their names.
        """
        left_out: dict[str | int, str] = {}
        for tool in page["tools"]:
            self._headers.pop(tool["name"], None)
            if not is_used or not _mentions(tool.get("inputSchema")):
                continue
            from mcp.shared.inbound import (  # noqa: PLC0415 - the SDK takes a second to import, and few tools need it
                find_invalid_x_mcp_header,
                x_mcp_header_map,
            )

            reason = find_invalid_x_mcp_header(tool["inputSchema"])
            if reason is not None:
                left_out[tool["name"]] = f"invalid {_ANNOTATION} ({reason})"
            elif found := x_mcp_header_map(tool["inputSchema"]):
                self._headers[tool["name"]] = found
        if left_out:
            page["tools"] = [tool for tool in page["tools"] if tool["name"] not in left_out]
        return left_out

    def of(self, tool_name: str, arguments: Mapping[str, Any]) -> dict[str, str] | None:
        """
        Return the headers of a call.

        :param tool_name: Name of the tool.
        :param arguments: Its arguments.
        :returns: The headers; None if there are none.
        """
        found = self._headers.get(tool_name)
        if found is None:
            return None
        from mcp.shared.inbound import mcp_param_headers  # noqa: PLC0415 - it was imported with the annotations

        return mcp_param_headers(found, arguments)


def _mentions(schema: Any) -> bool:
    if isinstance(schema, dict):
        return _ANNOTATION in schema or any(map(_mentions, schema.values()))
    return isinstance(schema, list) and any(map(_mentions, schema))
