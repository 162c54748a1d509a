# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Secrets made from texts with environment variables, and the values of Secrets.
"""

from __future__ import annotations

import errno
import io
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from dotenv.parser import parse_stream
from haystack import logging
from haystack.utils import Secret
from haystack.utils.auth import SecretType

logger: logging.PatchedLogger = logging.getLogger(__name__)

# The `type` of a template in stored files, which differs from the types of Haystack's own Secrets.
_STORED_TYPE = "env_template"

_PLACEHOLDER = re.compile(r"\$\{([^{}]*)\}")
_REFERENCE = re.compile(r"(?:env:|envFile:(?P<file>.+):)?(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P<default>:-.*)?", re.DOTALL)
# How much of a file of variables is read, in characters.
_MAX_ENV_FILE_LENGTH = 1_000_000

VARIABLE_FORMS = "`${NAME}`, `${NAME:-default}` or `${env:NAME}`"


@dataclass(frozen=True, init=False, repr=False)
class SecretTemplate(Secret):
    """
    A Secret made from a text with environment variables, such as `Bearer ${API_TOKEN}`.

    Use it wherever a server info takes a Secret (header values, tokens and environment variables), and for URLs,
    commands and their arguments. It is stored unresolved, and resolved when a session is opened. The values of its
    variables are redacted everywhere.

    ```python
    from haystack_integrations.tools.mcp import SecretTemplate, StreamableHttpServerInfo

    server_info = StreamableHttpServerInfo(
        url=SecretTemplate("https://${MCP_HOST:-mcp.example.com}/mcp"),
        headers={"Authorization": SecretTemplate("Bearer ${API_TOKEN}")},
    )
    ```

    :param template: The text. `${NAME}` and `${env:NAME}` stand for an environment variable, which must be set;
        `${NAME:-default}` has a default for a variable that is not set, or empty; `${envFile:/path/.env:NAME}` stands
        for a variable in a file. A `$` that is not followed by `{` is literal.
    """

    _template: str
    _env_vars: tuple[str, ...]

    def __init__(self, template: str) -> None:
        """
        Initialize the template.

        :param template: The text with variables.
        :raises ValueError: If the text between `${` and `}` is not a variable, or there is no variable.
        """
        variables = list(_variables(template))
        if not variables:
            msg = f"SecretTemplate: `template` must contain a variable, like {VARIABLE_FORMS}"
            raise ValueError(msg)
        names = dict.fromkeys(variable.name for variable in variables if variable.file is None)
        object.__setattr__(self, "_template", template)
        object.__setattr__(self, "_env_vars", tuple(names))

    def resolve_value(self) -> str:
        """
        Replace the variables in the text with their values.

        :returns: The text.
        :raises ValueError: If a variable without a default is not set. The message names it.
        """
        if missing := self.missing():
            msg = f"these environment variables are not set: {', '.join(missing)}"
            raise ValueError(msg)
        return _substitute(self._template, lambda variable: variable.value() or variable.default or "")

    def missing(self) -> list[str]:
        """
        Return the variables that are missing to resolve the text.

        :returns: Names of variables that are not set and have no default.
        """
        missing = (each.name for each in _variables(self._template) if each.default is None and each.value() is None)
        return list(dict.fromkeys(missing))

    def secrets(self) -> set[str]:
        """
        Return the current values of the variables. Defaults are not secrets.

        :returns: The values.
        """
        return {value for variable in _variables(self._template) if (value := variable.value())}

    @property
    def type(self) -> SecretType:
        """
        The type of the Secret: environment variables.
        """
        return SecretType.ENV_VAR

    def to_dict(self) -> dict[str, Any]:
        """
        Serialize the template, without the values of its variables.

        :returns: A dictionary with the original text.
        """
        return {"type": _STORED_TYPE, **self._to_dict()}

    def _to_dict(self) -> dict[str, Any]:
        return {"template": self._template}

    @staticmethod
    def _from_dict(_: dict[str, Any]) -> SecretTemplate:
        return SecretTemplate(_["template"])

    def __str__(self) -> str:
        """
        Return the text with the names of its variables, without their defaults.
        """
        return _substitute(self._template, lambda variable: f"${{{variable.name}}}")

    def __repr__(self) -> str:
        return f"SecretTemplate(variables={[variable.name for variable in _variables(self._template)]})"


class _Variable(NamedTuple):
    """
    A variable in a text.

    :param name: Its name.
    :param default: Its value if it is not set.
    :param file: The file that contains it; None for an environment variable.
    """

    name: str
    default: str | None
    file: str | None

    def value(self) -> str | None:
        if self.file is None:
            return os.environ.get(self.name)
        try:
            return read_env_file(Path(self.file)).values.get(self.name)
        except OSError:  # the code that needs the variable reports that it is missing
            return None


class EnvFile(NamedTuple):
    """
    The content of a file of variables.

    :param values: The values by name; the last value of each. Nothing in them is expanded.
    :param unreadable: The numbers of lines that do not define a variable.
    """

    values: dict[str, str]
    unreadable: list[int]


def read_env_file(file: Path) -> EnvFile:
    """
    Read a file of variables: lines like `NAME=value`, with quotes, comments and `export` as in a shell.

    :param file: The file.
    :returns: Its content.
    :raises OSError: If it cannot be read, or is not a file.
    """
    if not file.is_file():  # reading a device may never end
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT))
    with file.open(encoding="utf-8-sig", errors="replace") as lines:
        text = lines.read(_MAX_ENV_FILE_LENGTH)
    # Not `dotenv_values`, which logs each unreadable line at every call, without the name of the file.
    bindings = list(parse_stream(io.StringIO(text)))
    values = {each.key: each.value for each in bindings if each.key is not None and each.value is not None}
    return EnvFile(values, [each.original.line for each in bindings if each.error])


def _substitute(template: str, value: Callable[[_Variable], str]) -> str:
    return _PLACEHOLDER.sub(lambda match: value(_parse_variable(match)), template)


def _variables(template: str) -> Iterator[_Variable]:
    if "${" in _PLACEHOLDER.sub("", template):
        msg = f"a `${{` is not closed, or has another inside; variables are written {VARIABLE_FORMS}"
        raise ValueError(msg)
    return (_parse_variable(match) for match in _PLACEHOLDER.finditer(template))


def _parse_variable(match: re.Match[str]) -> _Variable:
    variable = _REFERENCE.fullmatch(match[1])
    if variable is None:
        name, has_default, _ = match[1].partition(":-")  # the default may be a secret, so it is not shown
        msg = f"`${{{name}{has_default and ':-…'}}}` is not a variable; write {VARIABLE_FORMS}"
        raise ValueError(msg)
    default = variable["default"]
    return _Variable(variable["name"], None if default is None else default.removeprefix(":-"), variable["file"])


def from_template(text: str) -> str | Secret:
    """
    Convert a text that may contain variables.

    :param text: The text.
    :returns: The text itself if it contains none; Haystack's own Secret if it is a single variable without a default;
        otherwise a template.
    :raises ValueError: If the text between `${` and `}` is not a variable.
    """
    match = _PLACEHOLDER.fullmatch(text)
    if match is not None:
        variable = _parse_variable(match)
        if variable.default is None and variable.file is None:
            return Secret.from_env_var(variable.name)
    return SecretTemplate(text) if "${" in text else text


def load_template(data: Mapping[str, Any]) -> SecretTemplate | None:
    """
    Load a stored template.

    :param data: A dictionary that may be a stored template.
    :returns: The template; None if it is anything else.
    """
    is_template = data.get("type") == _STORED_TYPE and isinstance(data.get("template"), str) and len(data) == 2  # noqa: PLR2004
    return SecretTemplate(data["template"]) if is_template else None


def value_of(secret: Secret, name: str | None = None) -> Any:
    """
    Return the value of a Secret.

    :param secret: The Secret.
    :param name: Its use, e.g. the name of a header, for messages.
    :returns: Its value; None if it is optional and has no value, which is logged.
    :raises ValueError: If it is required and has no value. The message names the environment variable.
    """
    try:
        value = secret.resolve_value()
    except ValueError as error:
        variables = " or ".join(vars(secret).get("_env_vars", ()))
        if not variables:  # a user's own subclass of Secret
            raise
        use = "" if name in (None, variables) else f", wanted for '{name}',"
        msg = f"the environment variable {variables}{use} is not set"
        raise ValueError(msg) from error
    if value is None and name is not None:
        logger.warning("The optional Secret for '{key}' has no value, so '{key}' is omitted", key=name)
    return value


def secret_text(value: str | Secret) -> str:
    """
    Return a text, or the value of a Secret as text.

    :param value: The text, or the Secret.
    :returns: The text.
    :raises ValueError: If the Secret has no value.
    """
    if not isinstance(value, Secret):
        return value
    plain = value_of(value)
    if plain is None:
        msg = "a Secret that is not optional here has no value"
        raise ValueError(msg)
    return str(plain)


def shown(value: str | Secret) -> str:
    """
    Return a text, or a Secret as text without its value.

    :param value: The text, or the Secret.
    :returns: The text, with the names of variables in place of their values.
    """
    if isinstance(value, Secret) and not isinstance(value, SecretTemplate):
        return "${" + "|".join(vars(value).get("_env_vars", ("***",))) + "}"
    return str(value)
