# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
What pydantic would write of a model, field by field and with the values as they are.

`model_dump` would write what is inside of the fields, too: Documents with their embeddings.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args, get_origin

from pydantic import BaseModel, PlainSerializer, RootModel, SerializeAsAny, WrapSerializer


def writes_itself(model: BaseModel) -> bool:
    """
    Tell whether a model has a serializer for the whole of it.

    :param model: The model.
    :returns: True if only `model_dump` knows what it looks like.
    """
    return bool(type(model).__pydantic_decorators__.model_serializers)


def writes_aliases(kind: Any) -> bool:
    """
    Tell whether the fields of a model are written by their aliases, as pydantic and FastMCP do it.

    :param kind: The class of a model, or a pydantic dataclass.
    :returns: True if its configuration says `serialize_by_alias`.
    """
    config = getattr(kind, "model_config", None) or getattr(kind, "__pydantic_config__", None) or {}
    return config.get("serialize_by_alias") is True


def fields_of(model: Any, declared: Any = Any) -> Iterator[tuple[str | None, Any, Any]]:
    """
    Give what is written of a model that has no serializer for the whole of it.

    As with `model_dump`, of a model that a field declares to be of a base class, only what that has is written: the
    rest may be nobody's business.

    :param model: The model, or an instance of a pydantic dataclass.
    :param declared: What the field that it comes from says that it is.
    :returns: For each field, the name in the JSON schema, the value, and what the field says that it is. The name is
        None if the value stands for the whole model.
    """
    kind = _written_as(type(model), declared)
    by_alias = writes_aliases(kind)
    if issubclass(kind, RootModel):
        yield None, model.root, kind.model_fields["root"].annotation
        return
    for name, info in kind.__pydantic_fields__.items():
        value = getattr(model, name)
        excluded_if = getattr(info, "exclude_if", None)
        if info.exclude or (excluded_if is not None and excluded_if(value)):
            continue
        key = (by_alias and info.serialization_alias) or name
        if _has_serializer(kind, name, info):
            dumped = kind.__pydantic_serializer__.to_python(model, mode="json", include={name})
            yield key, dumped[key], Any
        else:
            as_any = any(_is_as_any(each) for each in info.metadata)
            yield key, value, Any if as_any else info.annotation
    for name, computed in kind.__pydantic_decorators__.computed_fields.items():
        yield (by_alias and computed.info.alias) or name, getattr(model, name), computed.info.return_type
    for name, value in (getattr(model, "model_extra", None) or {}).items():
        yield name, value, Any


def _written_as(kind: Any, declared: Any) -> Any:
    declared_models = set(_models_in(declared))
    return next((base for base in kind.__mro__ if base in declared_models), kind)


def _models_in(declared: Any) -> Iterator[Any]:
    if any(_is_as_any(each) for each in getattr(declared, "__metadata__", ())):
        return
    if isinstance(declared, type) and get_origin(declared) is None and issubclass(declared, BaseModel):
        yield declared
    for each in get_args(declared):
        yield from _models_in(each)


def _is_as_any(metadata: Any) -> bool:
    # Of a generic class, as type checkers see it.
    kind: Any = SerializeAsAny
    return isinstance(metadata, kind)


def _has_serializer(kind: Any, name: str, info: Any) -> bool:
    decorated = kind.__pydantic_decorators__.field_serializers.values()
    return any(isinstance(each, PlainSerializer | WrapSerializer) for each in info.metadata) or any(
        name in each.info.fields or "*" in each.info.fields for each in decorated
    )
