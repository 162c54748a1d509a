# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Variables of configuration files beyond those of the environment.

.. code-block:: text

    ${NAME}, ${NAME:-default}, ${env:NAME}          left as they are: they become Secrets
    $NAME                                           the same, as a whole value, if there is such a variable
    ${workspaceFolder}, ${workspaceFolderBasename}  the folder of the file, without its `.vscode` or `.cursor`
    ${userHome}, ${pathSeparator}, ${/}             of this machine
    ${input:ID}                                     what VS Code asks its user for: a value of `inputs`, or its default
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from haystack.utils import Secret

from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.secret_template import SecretTemplate

_PLACEHOLDER = re.compile(
    r"\$\{(?:input:(?P<input>[^{}]+)"
    r"|(?P<name>workspaceFolder|workspaceRoot|workspaceFolderBasename|userHome|cwd|pathSeparator|/))\}"
)
_WHOLE_DOLLAR = re.compile(r"\$(?P<name>[A-Z][A-Z0-9_]*)")

# Folders that clients keep their files in, inside of a workspace.
_CLIENT_FOLDERS = frozenset(
    {".vscode", ".cursor", ".roo", ".kiro", ".gemini", ".windsurf", ".amazonq", ".continue", ".warp", ".zed"}
    | {"settings", "mcpServers"}
)


class Variables:
    """
    What a configuration file may name in `${…}`, other than environment variables.
    """

    def __init__(self, file: Path | None, asked: Any, inputs: Mapping[str, str | Secret], where: str) -> None:
        """
        Initialize the variables of a file.

        :param file: The file; None for a configuration that is no file.
        :param asked: Its `inputs`: what VS Code asks its user for.
        :param inputs: The answers by the ids of the questions.
        :param where: The file, for messages.
        :raises ValueError: If `asked` is no list of objects with ids, or there is an answer to no question.
        """
        if not isinstance(asked, list) or not all(isinstance(one, Mapping) and one.get("id") for one in asked):
            msg = f"{where}: `inputs` must be a list of objects with an `id`"
            raise ValueError(msg)
        folder = Path.cwd() if file is None else file.resolve().parent
        while folder.name in _CLIENT_FOLDERS and folder != folder.parent:
            folder = folder.parent
        self.folder: Path = folder
        self._places: dict[str, str] = {
            "workspaceFolder": str(folder),
            "workspaceRoot": str(folder),
            "cwd": str(folder),
            "workspaceFolderBasename": folder.name,
            "userHome": str(Path.home()),
            "pathSeparator": os.sep,
            "/": os.sep,
        }
        self._asked: dict[str, Mapping[str, Any]] = {str(one["id"]): one for one in asked}
        self._inputs = inputs
        for name, value in inputs.items():
            if name not in self._asked:
                known = ", ".join(self._asked) or "none"
                msg = f"{where}: the file does not declare '{name}' under its `inputs`; it declares: {known}"
                raise ValueError(msg)
            if not isinstance(value, (str, Secret)):
                msg = f"`inputs` maps ids to strings or Secrets; that of '{name}' is of type {type(value).__name__}"
                raise ValueError(msg)

    def expand(self, entry: Any, where: str) -> Any:
        """
        Replace the variables in the texts of an entry.

        :param entry: The entry.
        :param where: Where it stands, for messages.
        :returns: The same, with environment variables only. A text that is one input becomes its Secret.
        :raises ValueError: If an input has no value.
        """
        if isinstance(entry, Mapping):
            return {key: self.expand(item, where) for key, item in entry.items()}
        if isinstance(entry, list):
            return [self.expand(item, where) for item in entry]
        if not isinstance(entry, str):
            return entry
        value = entry
        whole = _PLACEHOLDER.fullmatch(value)
        if whole is not None and whole["input"]:
            return self._input(whole["input"], where)
        if (named := _WHOLE_DOLLAR.fullmatch(value)) is not None and named["name"] in os.environ:
            # It may be a password as well, so it is one unless there is such a variable.
            value = f"${{{named['name']}}}"
        return _PLACEHOLDER.sub(lambda match: self._text(match, where), value)

    def _text(self, match: re.Match[str], where: str) -> str:
        if match["name"]:
            return self._places[match["name"]]
        value = self._input(match["input"], where)
        if isinstance(value, str):
            return value
        names = vars(value).get("_env_vars", ())
        if len(names) != 1 or isinstance(value, SecretTemplate):
            msg = (
                f"{where}: the input '{match['input']}' stands inside a longer text, so it must be a string or "
                "a Secret of one environment variable"
            )
            raise ValueError(msg)
        return f"${{{names[0]}}}" if vars(value).get("_strict", True) else f"${{{names[0]}:-}}"

    def _input(self, name: str, where: str) -> str | Secret:
        if name in self._inputs:
            return self._inputs[name]
        asked = self._asked.get(name)
        if asked is None:
            known = ", ".join(self._asked) or "none"
            msg = (
                f"{where}: `${{input:{name}}}` is not among the `inputs` of the file, which has: {known}; declare it "
                f'there, as in {{"id": "{name}", "type": "promptString"}}, or write `${{NAME}}`'
            )
            raise ValueError(msg)
        if isinstance(asked.get("default"), str):
            return str(asked["default"])
        what = f" ({asked['description']})" if asked.get("description") else ""
        msg = (
            f"{where}: `${{input:{name}}}`{what} has no value: pass "
            f"inputs={{'{name}': Secret.from_env_var('NAME_OF_A_VARIABLE')}}"
        )
        raise ValueError(msg)


def missing_variables(info: MCPServerInfo) -> list[str]:
    """
    Name the environment variables without which a server info cannot be used now.

    :param info: The server info.
    :returns: Their names.
    """
    return list(dict.fromkeys(_missing(info._fields())))


def _missing(value: Any) -> list[str]:
    if isinstance(value, Mapping):
        return [name for item in value.values() for name in _missing(item)]
    if isinstance(value, (list, tuple)):
        return [name for item in value for name in _missing(item)]
    if isinstance(value, SecretTemplate):
        return value.missing()
    if isinstance(value, Secret):
        try:
            value.resolve_value()
        except ValueError:
            return [str(name) for name in vars(value).get("_env_vars", ())]
    return []
