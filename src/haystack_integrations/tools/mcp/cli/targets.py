# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Targets on the command line: how they are resolved, the options for reaching them, and the connection.

.. code-block:: text

    https://host/mcp, ${URL}          a URL
    server.py, server.js              a script
    server.py:name                    an object in a Python file
    package.module:name               an object in a module
    "uvx mcp-server-time"             a command with its arguments
    mcp.json                          the server in a configuration file, if it has only one
    mcp.json:name                     the server of that name in it
    name                              the same, in the file of `--config`, this folder or an editor; else a command
"""

from __future__ import annotations

import asyncio
import dataclasses
import importlib.util
import io
import os
import re
import shlex
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, TypeAlias, TypeVar

from cyclopts import Group, Parameter
from cyclopts.validators import Number
from haystack.utils import Secret

from haystack_integrations.tools.mcp.cli.files import (
    CONFIG_SUFFIXES,
    Server,
    config_files,
    names_in,
    servers_in,
    with_login,
)
from haystack_integrations.tools.mcp.cli.output import (
    OUTPUT,  # noqa: F401 - cyclopts looks up here what the fields of OutputOptions are annotated with
    CommandError,
    OutputOptions,
)
from haystack_integrations.tools.mcp.concurrency import start_in_thread
from haystack_integrations.tools.mcp.connection.connection import MCPConnection
from haystack_integrations.tools.mcp.connection.limits import CallOptions
from haystack_integrations.tools.mcp.convert.tool_names import describe_choices
from haystack_integrations.tools.mcp.executor import AsyncExecutor
from haystack_integrations.tools.mcp.handlers import MCPHandlers
from haystack_integrations.tools.mcp.import_paths import is_import_path
from haystack_integrations.tools.mcp.mcp_json import missing_variables
from haystack_integrations.tools.mcp.parameters import MAX_TIMEOUT
from haystack_integrations.tools.mcp.protocol.request_errors import leaves
from haystack_integrations.tools.mcp.protocol.server_info import MCPServerInfo
from haystack_integrations.tools.mcp.redaction import redact_args, redact_text, redact_url
from haystack_integrations.tools.mcp.secret_template import from_template
from haystack_integrations.tools.mcp.transports.server_infos import HttpServerInfo, InProcessServerInfo, StdioServerInfo
from haystack_integrations.tools.mcp.transports.shorthand import server_info_from

if TYPE_CHECKING:
    import mcp_types as types

    TargetText: TypeAlias = str
else:
    TargetText = str | Path  # always a text at run time; with Path, shells complete the names of files

T = TypeVar("T")
Named = TypeVar("Named", "types.Tool", "types.Prompt", Server)
R = TypeVar("R")

_TARGET_CHOICES = (
    "A target is a URL (https://host/mcp), a command in quotes ('uvx mcp-server-time'), a script (server.py), an "
    "import path (package.module:server), a configuration file (mcp.json), or the name of a server in one "
    "(mcp.json:name, or name)."
)

_SCRIPTS = (".py", ".js", ".mjs", ".cjs")

# Commands that need arguments to start a server.
LAUNCHERS = frozenset({"python", "python3", "node", "bun", "deno", "uvx", "pipx", "npx", "uv", "docker"})

_DEFAULT_TIMEOUT, _DEFAULT_TIMEOUT_WITH_QUESTIONS = 30.0, 600.0

TARGET = (
    "The server: a URL, a command in quotes, a script (server.py), an import path (package.module:server), a "
    "configuration file, or a name from one."
)

Target = Annotated[TargetText, Parameter(help=TARGET)]


@Parameter(name="*", group=Group("How to reach the server", sort_key=1))
@dataclass(frozen=True, kw_only=True)
class ServerOptions(OutputOptions):
    """
    The options for reaching the server, in addition to the target, and for output.

    :param config: The mcp.json that has the name. Default: those in this folder and of your editors.
    :param header: An HTTP header, as 'Name: value'. ${NAME} in it is an environment variable. Repeatable.
    :param token_env: The environment variable with the bearer token.
    :param env: An environment variable of the command, as NAME=value. Repeatable.
    :param cwd: The folder in which the command starts.
    :param timeout: Seconds for connecting, and for each answer. Default: 30; in a terminal, 600 for the answer of a
        tool, which may ask you something.
    """

    config: Annotated[Path | None, Parameter(metavar="FILE")] = None
    header: Annotated[list[str] | None, Parameter(metavar="TEXT")] = None
    token_env: Annotated[str | None, Parameter(metavar="NAME")] = None
    env: Annotated[list[str] | None, Parameter(metavar="NAME=VALUE")] = None
    cwd: Annotated[Path | None, Parameter(metavar="FOLDER")] = None
    timeout: Annotated[float | None, Parameter(metavar="SECONDS", validator=Number(gt=0, lte=MAX_TIMEOUT))] = None

    def seconds(self, *, may_ask: bool = False) -> float:
        """
        Return how many seconds to wait for the server, which may ask the user something meanwhile.
        """
        is_person = may_ask and sys.stdin.isatty()
        return self.timeout or (_DEFAULT_TIMEOUT_WITH_QUESTIONS if is_person else _DEFAULT_TIMEOUT)

    def apply(self, info: MCPServerInfo) -> MCPServerInfo:
        """
        Apply the options to a server info.

        :raises CommandError: If an option does not apply to servers of this kind.
        """
        changes: dict[str, Any] = {}
        if self.header or self.token_env:
            if not isinstance(info, HttpServerInfo):
                msg = f"--header and --token-env are for servers with a URL, not for the {info.describe()}"
                raise CommandError(msg)
            pairs = (_pair(text, ":", "--header", "'Name: value'", "'X-Tenant: acme'") for text in self.header or ())
            headers = dict(pairs)
            replaced = {name.lower() for name in headers}
            if self.token_env:
                changes["token"] = secret_of("--token-env", self.token_env)
                replaced.add("authorization")  # the header would take precedence over the token
            if "authorization" in replaced:
                changes |= {"auth": None, "oauth_config": None}
            if replaced:
                kept = {name: each for name, each in (info.headers or {}).items() if name.lower() not in replaced}
                changes["headers"] = {**kept, **headers} or None
        if self.env or self.cwd:
            if not isinstance(info, StdioServerInfo):
                msg = f"--env and --cwd are for servers that are started, not for the {info.describe()}"
                raise CommandError(msg)
            if self.env:
                variables = (_pair(text, "=", "--env", "NAME=value", "LOG_LEVEL=debug") for text in self.env)
                changes["env"] = {**(info.env or {}), **dict(variables)}
            if self.cwd:
                changes["cwd"] = str(self.cwd)
        changed = dataclasses.replace(info, **changes) if changes else info  # type: ignore[type-var]
        return with_login(changed)


def secret_of(option: str, variable: str) -> Secret:
    """
    Return the Secret of an option that names an environment variable.

    :param option: The option.
    :param variable: Its value.
    :returns: The Secret.
    :raises CommandError: If the value is not a name (it is not quoted then, as it may be the secret itself), or if the
        variable is empty: a request would be sent without the secret.
    """
    if not re.fullmatch(r"[A-Za-z_]\w*", variable, re.ASCII) or redact_text(variable) != variable:
        msg = f"{option} takes the name of an environment variable that has the value, e.g. {option} API_TOKEN"
        raise CommandError(msg)
    if os.environ.get(variable) == "":
        msg = f"The environment variable {variable}, which {option} names, is empty"
        raise CommandError(msg)
    return Secret.from_env_var(variable)


def _pair(text: str, separator: str, option: str, form: str, example: str) -> tuple[str, str | Secret]:
    name, found, value = text.partition(separator)
    if not found or not name.strip():
        msg = f"{option} takes {form}, e.g. {option} {example}"
        raise CommandError(msg)
    try:
        return name.strip(), from_template(value.strip() if separator == ":" else value)
    except ValueError as error:
        msg = f"{option}: {error}"
        raise CommandError(msg) from None


def server_of(target: str, options: ServerOptions) -> Server:
    """
    Return the one server that a target refers to.

    :param target: The target.
    :param options: The options for reaching it.
    :returns: The server.
    :raises CommandError: If it refers to no server, or to several.
    """
    servers = servers_of(target, options)
    if len(servers) > 1:  # if all are disabled, `Server.usable` of the first one reports that
        servers = [server for server in servers if not server.is_disabled] or servers[:1]
    if len(servers) == 1:
        return servers[0]
    names = ", ".join(server.name for server in servers)
    example = shlex.quote(f"{target}:{servers[0].name}")
    msg = f"{target} has {len(servers)} servers: {names}. Name one, e.g. {example}"
    raise CommandError(msg)


def servers_of(target: str | None, options: ServerOptions) -> list[Server]:
    """
    Return the servers that a target refers to. A file may have several.

    :param target: The target. None for the servers of `--config`, of the files of the working directory, or else of
        the editors.
    :param options: The options for reaching them.
    :returns: The servers, including unusable ones of a file.
    :raises CommandError: If the target cannot be resolved, or has no servers.
    """
    if target is None:
        return _servers_of_files(options)
    try:
        found = _resolve_target(target, options)
    except (ValueError, OSError) as error:
        raise CommandError(str(error)) from error
    if not found:
        msg = f"{target} has no servers."
        raise CommandError(msg)
    return found


def _servers_of_files(options: ServerOptions) -> list[Server]:
    files = [options.config] if options.config is not None else config_files()
    files = [file for file in files if not file.is_absolute()] or files
    if not files:
        msg = f"There is no target, and no configuration file in {os.getcwd()} or of an editor. {_TARGET_CHOICES}"
        raise CommandError(msg)
    servers: dict[str, Server] = {}
    for file in files:
        try:
            found = servers_in(file)
        except CommandError as error:
            if len(files) == 1:
                raise
            options.output.note(f"Skipped a file: {error}", style="yellow")
            continue
        for server in found:
            servers.setdefault(server.name, server)
    if not servers:
        msg = f"There is no target, and there are no servers in {', '.join(map(str, files))}. {_TARGET_CHOICES}"
        raise CommandError(msg)
    return list(servers.values())


def file_and_name(target: str) -> tuple[Path, str] | None:
    """
    Split a target of the form `file:name`.

    :param target: The target.
    :returns: The file, which exists, and the name; None for other targets.
    """
    file, _, name = target.rpartition(":")
    return (Path(file), name) if os.path.isfile(file) else None


def _resolve_target(target: str, options: ServerOptions) -> list[Server]:
    if not target.strip():
        msg = f"The target is empty. {_TARGET_CHOICES}"
        raise CommandError(msg)
    in_file = file_and_name(target)
    # A path may have spaces, and so may the name of a server in a file.
    is_one_word = in_file is not None or os.path.isfile(target) or _is_name_with_spaces(target, options)
    words = [target] if is_one_word else _words_of(target)
    if len(words) > 1:
        return [Server(" ".join(redact_args(words)), server_info_from(words))]
    if "://" in target or target.startswith("${"):
        return [Server(redact_url(target), server_info_from(target))]
    if in_file is not None:
        file, name = in_file
        if file.suffix in CONFIG_SUFFIXES:
            return [item_named("server", name, servers_in(file), str(file))]
        return [Server(target, InProcessServerInfo(object_in_file(file, name)))]
    path = Path(target)
    if path.is_file() and path.suffix in CONFIG_SUFFIXES:
        return servers_in(path)
    if path.is_file() and path.suffix in _SCRIPTS:
        return [Server(target, server_info_from(target))]
    _refuse_missing_file(target.rpartition(":")[0])
    if is_import_path(target):
        make_modules_importable()
        return [Server(target, InProcessServerInfo(target))]
    return [_server_by_name(target, options)]


def _is_name_with_spaces(target: str, options: ServerOptions) -> bool:
    first_word, *others = target.split()
    if not others:
        return False
    files = [options.config] if options.config is not None else [] if shutil.which(first_word) else config_files()
    return any(target in names_in(file) for file in files)


def _words_of(command: str) -> list[str]:
    try:
        return shlex.split(command.replace("\\", "\\\\") if sys.platform == "win32" else command)
    except ValueError as error:
        msg = f"The command has a quotation mark too few or too many ({error})"
        raise CommandError(msg) from None


def _server_by_name(name: str, options: ServerOptions) -> Server:
    file = options.config or next((file for file in config_files() if name in names_in(file)), None)
    if file is not None:
        return item_named("server", name, servers_in(file), str(file))
    if name in LAUNCHERS:
        msg = f"'{name}' alone does not start a server. Put the whole command in quotes, with its arguments."
        raise CommandError(msg)
    if shutil.which(name):
        return Server(name, server_info_from([name]))
    _refuse_missing_file(name)
    known = list(dict.fromkeys(each for file in config_files() for each in names_in(file)))
    names_of_servers = f"{describe_choices([name], known, 'They have', 'servers')}. " if known else ""
    msg = (
        f"'{name}' is neither a script nor a configuration file, nor a command on the PATH, nor the name of a server. "
        f"{names_of_servers}{_TARGET_CHOICES}"
    )
    raise CommandError(msg)


def _refuse_missing_file(name: str) -> None:
    if Path(name).suffix in (*CONFIG_SUFFIXES, *_SCRIPTS):
        msg = f"There is no file {name} in {os.getcwd()}."
        raise CommandError(msg)


def make_modules_importable() -> None:
    """
    Make modules of the working directory importable, as `python -m` does.
    """
    if os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())


def object_in_file(file: Path, name: str) -> Any:
    """
    Run a Python file and return one of its objects.

    :param file: The file.
    :param name: The name of the object.
    :returns: The object.
    :raises CommandError: If the file cannot be run, or has no such object.
    """
    module = module_of(file)
    found: Any = module
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        closest = get_close_matches(name, vars(module), n=1)
        msg = f"{file} has no object '{name}'" + (f". Did you mean '{closest[0]}'?" if closest else "")
        raise CommandError(msg)
    return found


def module_of(file: Path) -> ModuleType:
    """
    Run a Python file as a module.

    :param file: The file.
    :returns: The module.
    :raises CommandError: If it cannot be run.
    """
    folder = str(file.resolve().parent)
    if folder not in sys.path:
        sys.path.insert(0, folder)
    module_name = file.stem if file.stem.isidentifier() else "mcp_haystack_target"
    specification = importlib.util.spec_from_file_location(module_name, file)
    if specification is None or specification.loader is None:
        msg = f"{file} is not a Python file. {_TARGET_CHOICES}"
        raise CommandError(msg)
    module = importlib.util.module_from_spec(specification)
    sys.modules[module_name] = module  # pickle and dataclasses look modules up there
    stdin, sys.stdin = sys.stdin, io.TextIOWrapper(io.BufferedReader(_NoStdin()), encoding="utf-8")
    try:
        specification.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        cause = next(leaves(error))
        msg = f"{file} cannot be run: {type(cause).__name__}: {cause}"
        raise CommandError(msg) from error
    finally:
        sys.stdin = stdin
    return module


class _NoStdin(io.RawIOBase):
    """
    Replaces stdin for a file that is run. A file that reads it usually serves over stdio already, and would never end.
    """

    def readable(self) -> bool:
        return True

    def readinto(self, _: Any) -> int:
        msg = 'it reads stdin. Put what runs the server under `if __name__ == "__main__":`'
        raise RuntimeError(msg)


class Session(NamedTuple):
    """
    An open connection to a server.

    :param connection: The connection.
    :param tools: The tools of the server.
    :param seconds: How long it took to connect and to list them.
    """

    connection: MCPConnection
    tools: list[types.Tool]
    seconds: float


@contextmanager
def open_session(server: Server, options: ServerOptions, handlers: MCPHandlers | None = None) -> Iterator[Session]:
    """
    Connect to a server for the duration of a block.

    :param server: The server.
    :param options: The options of the command.
    :param handlers: Answer the requests of the server.
    :returns: A context manager that yields the open connection.
    :raises CommandError: If the server cannot be used, or an option does not apply to servers of this kind.
    :raises MCPConnectionError: If the connection cannot be opened.
    """
    info = options.apply(server.usable())
    if missing := missing_variables(info):
        these = f"{server.place}: these" if server.place else "These"
        msg = f"{these} environment variables are not set: {', '.join(missing)}"
        raise CommandError(msg)
    connection = MCPConnection(
        info,
        connection_timeout=options.seconds(),
        invocation_timeout=options.seconds(may_ask=handlers is not None),
        call_options=CallOptions(reset_timeout_on_progress=True),
        handlers=handlers,
    )
    started = time.monotonic()
    try:
        _, tools = connection.open()
        yield Session(connection, tools, time.monotonic() - started)
    finally:
        connection.close()


def item_named(kind: str, name: str, items: Iterable[Named], owner: str = "The server") -> Named:
    """
    Return the item of a name.

    :param kind: The kind of item for the message: "tool", "prompt" or "server".
    :param name: The name.
    :param items: All items.
    :param owner: The owner of the items for the message.
    :returns: The item.
    :raises CommandError: If there is no such item. The message lists the names of the others.
    """
    found = {item.name: item for item in items}
    if name not in found:
        msg = f"{owner} has no {kind} '{name}'. {describe_choices([name], list(found), 'It', f'{kind}s')}"
        raise CommandError(msg)
    return found[name]


def for_each(function: Callable[[T], R], items: Sequence[T]) -> list[R]:
    """
    Call a function for several servers concurrently.

    A KeyboardInterrupt ends the wait at once: the threads do not keep the process alive, and sessions are closed when
    it exits.

    :param function: The function.
    :param items: The servers.
    :returns: The results in the order of the servers.
    """

    async def all_results() -> list[R]:
        return await asyncio.gather(*(start_in_thread(function, item) for item in items))

    return AsyncExecutor.get_instance().run(all_results())
