# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What `repr` shows of objects: their fields, without those that have their default.
"""

from __future__ import annotations

import dataclasses
from typing import Any, TypeVar

C = TypeVar("C", bound=type)


def short_repr(cls: C) -> C:
    """
    Leave the fields that have their default out of the `repr` of a dataclass.

    :param cls: The dataclass.
    :returns: The class.
    """

    def __repr__(self: Any) -> str:  # noqa: N807
        usual = unchanged_fields(self)
        names = [field.name for field in dataclasses.fields(self) if field.repr and field.name not in usual]
        return f"{type(self).__name__}({', '.join(f'{name}={getattr(self, name)!r}' for name in names)})"

    cls.__repr__ = __repr__  # type: ignore[assignment, method-assign]
    return cls


def unchanged_fields(instance: Any) -> set[str]:
    """
    List the fields of a dataclass that have their default.

    :param instance: The object.
    :returns: Their names; none of an object of another class.
    """
    if not dataclasses.is_dataclass(instance):
        return set()
    return {field.name for field in dataclasses.fields(instance) if getattr(instance, field.name) == _default(field)}


def _default(field: dataclasses.Field[Any]) -> Any:
    made = field.default_factory
    return field.default if made is dataclasses.MISSING else made()
