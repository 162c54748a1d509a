# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0
"""
Fills in the URI templates (RFC 6570) of MCP resources, and tells which URIs may come of one.

The SDK can do this too, but importing it takes long, and what a template needs must be known before anything connects.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, unquote

_RESERVED: Final = ":/?#[]@!$&'()*+,;="
_VARIABLE: Final = re.compile(r"((?:\w|%[0-9A-Fa-f]{2})(?:[\w.]|%[0-9A-Fa-f]{2})*)(?:(\*)|:([1-9][0-9]{0,3}))?", re.A)
_BRACES: Final = re.compile(r"[{}]")
_ESCAPED: Final = re.compile(r"%[0-9A-Fa-f]{2}")

# What is longer, or has more expressions, is compared with no URI: that could take long.
_MOST_CHARACTERS: Final = 4096
_MOST_EXPRESSIONS: Final = 3


@dataclass(frozen=True)
class _Operator:
    # https://datatracker.ietf.org/doc/html/rfc6570#appendix-A
    first: str
    separator: str
    named: bool = False
    if_empty: str = ""
    keeps_reserved: bool = False
    # Which texts may come of it.
    pattern: str = "[^/?#]+"


_OPERATORS: Final = {
    "": _Operator("", ","),
    "+": _Operator("", ",", keeps_reserved=True, pattern=".+"),
    "#": _Operator("#", ",", keeps_reserved=True, pattern="(?:#.*)?"),
    ".": _Operator(".", ".", pattern=r"(?:\.[^/?#]*)?"),
    "/": _Operator("/", "/", pattern="(?:/[^?#]*)?"),
    ";": _Operator(";", ";", named=True, pattern="(?:;[^/?#]*)?"),
    "?": _Operator("?", "&", named=True, if_empty="=", pattern=r"(?:\?[^#]*)?"),
    "&": _Operator("&", "&", named=True, if_empty="=", pattern="(?:&[^#]*)?"),
}


@dataclass(frozen=True)
class _Variable:
    name: str
    explode: bool
    length: int | None


@dataclass(frozen=True)
class _Expression:
    operator: str
    variables: tuple[_Variable, ...]


class UriTemplate:
    """
    A URI with variables in braces.

    :ivar variables: The names of the variables, in their order.
    :ivar optional: Those that are only in the query of the URI, where servers do without them.
    """

    def __init__(self, template: str) -> None:
        """
        Parse a template.

        :param template: The template, as in `notes://days/{day}`.
        :raises ValueError: If it is none.
        """
        self.template = template
        self._parts = _parse(template)
        expressions = [part for part in self._parts if isinstance(part, _Expression)]
        self.variables: tuple[str, ...] = tuple(
            dict.fromkeys(variable.name for expression in expressions for variable in expression.variables)
        )
        required = {
            variable.name
            for expression in expressions
            if expression.operator not in ("?", "&")
            for variable in expression.variables
        }
        self.optional: frozenset[str] = frozenset(self.variables) - required

    def expand(self, values: Mapping[str, Any]) -> str:
        """
        Fill the template in.

        :param values: The values by name: strings, numbers, lists or dictionaries of them. None is as no value.
        :returns: The URI.
        """
        return "".join(_expand(part, values) if isinstance(part, _Expression) else part for part in self._parts)

    def match(self, uri: str) -> dict[str, str] | None:
        """
        Tell whether a URI may have been made with this template, as far as that can be told without knowing the values.

        :param uri: The URI.
        :returns: What stands for each expression, by the names of its variables; None if it does not match.
        """
        expressions = [part for part in self._parts if isinstance(part, _Expression)]
        if len(uri) > _MOST_CHARACTERS or len(expressions) > _MOST_EXPRESSIONS:
            return None
        pattern = "".join(
            f"({_OPERATORS[part.operator].pattern})" if isinstance(part, _Expression) else re.escape(part)
            for part in self._parts
        )
        found = re.fullmatch(pattern, uri)
        if found is None:
            return None
        names = [",".join(variable.name for variable in expression.variables) for expression in expressions]
        return {name: unquote(text) for name, text in zip(names, found.groups(), strict=True)}


def _parse(template: str) -> list[str | _Expression]:
    parts: list[str | _Expression] = []
    position = 0
    while (opening := template.find("{", position)) >= 0:
        closing = template.find("}", opening)
        if closing < 0:
            msg = f"The URI template {template!r} has a brace that is not closed, at position {opening}"
            raise ValueError(msg)
        parts += [template[position:opening], _expression(template, template[opening + 1 : closing])]
        position = closing + 1
    parts.append(template[position:])
    if any(isinstance(part, str) and _BRACES.search(part) for part in parts):
        msg = f"The URI template {template!r} has a closing brace without an opening one"
        raise ValueError(msg)
    return parts


def _expression(template: str, inside: str) -> _Expression:
    operator = inside[:1] if inside[:1] in _OPERATORS else ""
    variables = []
    for specification in inside[len(operator) :].split(","):
        match = _VARIABLE.fullmatch(specification)
        if match is None:
            msg = (
                f"The URI template {template!r} has {{{inside}}}, where {specification!r} is not the name of a variable"
            )
            raise ValueError(msg)
        name, explode, length = match.groups()
        variables.append(_Variable(name, bool(explode), int(length) if length else None))
    return _Expression(operator, tuple(variables))


def _expand(expression: _Expression, values: Mapping[str, Any]) -> str:
    operator = _OPERATORS[expression.operator]
    expanded = [
        text
        for variable in expression.variables
        if (text := _expand_variable(variable, values.get(variable.name), operator)) is not None
    ]
    return operator.first + operator.separator.join(expanded) if expanded else ""


def _expand_variable(variable: _Variable, value: Any, operator: _Operator) -> str | None:
    def encoded(text: Any) -> str:
        return _encode(_as_text(text), keeps_reserved=operator.keeps_reserved)

    def named(name: str, text: str) -> str:
        if not operator.named:
            return text
        return f"{name}={text}" if text else f"{name}{operator.if_empty}"

    match value:
        case None:
            return None
        case Mapping():
            pairs = [(encoded(key), encoded(each)) for key, each in value.items() if each is not None]
            if not pairs:
                return None
            if variable.explode:
                return operator.separator.join(f"{key}={each}" for key, each in pairs)
            return named(variable.name, ",".join(f"{key},{each}" for key, each in pairs))
        case Sequence() if not isinstance(value, str | bytes):
            items = [encoded(each) for each in value if each is not None]
            if not items:
                return None
            if variable.explode:
                return operator.separator.join(named(variable.name, item) for item in items)
            return named(variable.name, ",".join(items))
        case _:
            return named(variable.name, encoded(_as_text(value)[: variable.length]))


def _as_text(value: Any) -> str:
    # As JSON has them, and not as Python prints them.
    return str(value).lower() if isinstance(value, bool) else str(value)


def _encode(text: str, *, keeps_reserved: bool) -> str:
    if not keeps_reserved:
        return quote(text, safe="")
    # What is percent-encoded already stays as it is.
    pieces, position = [], 0
    for match in _ESCAPED.finditer(text):
        pieces += [quote(text[position : match.start()], safe=_RESERVED), match.group()]
        position = match.end()
    return "".join([*pieces, quote(text[position:], safe=_RESERVED)])
