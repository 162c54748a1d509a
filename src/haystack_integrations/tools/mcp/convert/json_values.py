# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any


def json_value(value: Any) -> Any:
    """
    Convert a value to what JSON has.

    :param value: The value: of JSON already, a collection, a Haystack object such as a Document, a dataclass, or any
        other, which becomes its text.
    :returns: The converted value.
    """
    if value is None or isinstance(value, str | bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {str(key): json_value(each) for key, each in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [json_value(each) for each in value]
    for method in ("to_dict", "tolist"):  # Haystack's objects; arrays of numbers
        convert = getattr(value, method, None)
        if callable(convert) and not isinstance(value, type):
            return json_value(convert())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return json_value({field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    return str(value)


def json_text(value: Any) -> str:
    """
    Convert a value to text for a model.

    :param value: The value.
    :returns: A string as it is, any other value as JSON.
    """
    return value if isinstance(value, str) else json.dumps(json_value(value), ensure_ascii=False)
