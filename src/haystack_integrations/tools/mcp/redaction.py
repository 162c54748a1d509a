# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Redacts declared secrets, and tokens with a well-known prefix.

.. code-block:: text

    declared secret                                      removed from
    Secrets, and values of the variables in templates    errors: where they leave the session, and where they leave a
    headers, tokens, API keys, passwords                   client that is used without one (`Redactor.error`)
    values of `env` and of queries of URLs, other than   logs and spans: where a line or a span quotes a server
      words, numbers and absolute paths                    (`Redactor.text`)
    user info of URLs, and keys in their paths
    options and variables that are named as secrets      `repr`, traces and descriptions of server infos: where they
    `secrets` of a call, `bound_arguments`, State          are made (`redact_fields`, `redact_args`, `redact_url`)

All other text from a server is searched only for the tokens in the table below. The result of a successful call is the
server's content, and is not changed.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit, urlunsplit

from haystack.utils import Secret
from pydantic import BaseModel

from haystack_integrations.tools.mcp.secret_template import SecretTemplate

REDACTED = "***"

# Fields of server infos whose values are never shown, whether or not they are Secrets.
SECRET_FIELDS = frozenset({"api_key", "env", "headers", "password", "secret", "token"})

# Shorter values (a port, "true") occur in many texts without being secrets.
MIN_SECRET_LENGTH = 6

# The maximum length of a text, in characters. Only the two ends of a longer text are kept, because the search blocks
# the loop of all sessions.
MAX_TEXT_LENGTH = 10_000
_MAX_END_LENGTH = MAX_TEXT_LENGTH // 2 - 100
# Characters that are searched beyond an end, because a secret may extend there.
_CUT_MARGIN = 10_000

# How many secrets of calls, and of their callers, a connection remembers.
MAX_CALL_SECRETS = 1_000

# Prefixes of well-known tokens.
_TOKEN_PREFIXES = (
    r"gh[opusr]_",
    r"github_pat_",
    r"gl(?:pat|dt|rt|ptt)-",
    r"(?<![\w-])sk-(?=[\w-]*[0-9])(?=[\w-]*\w{12})",  # ordinary names may also contain "sk-"
    r"A[KS]IA",
    r"AIza",
    r"ya29\.",
    r"hf_",
    r"npm_(?=[A-Za-z0-9]{16})",  # npm's environment variables have this prefix as well
    r"pypi-AgE",
    r"(?<![\w-])eyJ",
)
_SHORT_TOKEN_PREFIXES = (r"[srp]k_(?:live|test|prod)_", r"xox[a-z](?:\.xox[a-z])?-", r"xapp-")

# The credentials after `Bearer`, not the next word of a sentence ("Bearer authentication is required"): there must be a
# digit, an inner capital, or more letters than in a word.
_CREDENTIALS = r"(?![\w-]+=[\"'])(?=\S{0,200}[0-9]|[\w-]{0,100}[a-z][A-Z]|\S{24})[\w.~+/-]{6,}=*"

# Patterns of secrets, wherever they occur. Their first group is kept.
_WELL_KNOWN = [
    re.compile(pattern)
    for pattern in (
        rf"(?<![A-Za-z0-9])()(?:{'|'.join(_TOKEN_PREFIXES)})[\w-]{{16,}}(?:\.[\w-]+)*",
        rf"(?<![A-Za-z0-9])()(?:{'|'.join(_SHORT_TOKEN_PREFIXES)})[\w-]{{10,}}",
        r"(hooks\.slack\.com/services/|/api/webhooks/)[\w/-]+",
        # User info of a URL; a short name without a password, as in `ssh://git@host`, is not a secret.
        r"(://)(?:[^/\s@:\"'<>]*:[^/\s@\"'<>]+|[^/\s@:\"'<>]{16,})(?=@)",
        rf"(\b[Bb](?:earer|asic)(?:\s{{1,8}}|%20|\+)){_CREDENTIALS}",
    )
]

# Endings of names of options, variables and headers whose values are secrets.
_NAME_ENDING = (
    r"(?:key|(?<!max[_-])token|secret|(?<!by)pass(?:word|wd|phrase|code)?|pwd|credentials?|cookie|auth(?:orization)?"
    r"|bearer|signature|(?<![a-z])(?:pat|dsn|otp|jwt|sas))"
)
_SECRET_NAME = re.compile(rf"(?i)(?!(?:old)?pwd$)[\w.-]*{_NAME_ENDING}")

# Notations in an argument: `NAME=value`, `Name: value`, `"name": "value"`, `--name value`, `Bearer value`.
_NAMED_SECRET = re.compile(
    rf"(?i)(?<![\w.-])(?:[\w.-]*{_NAME_ENDING}[\"']?\s*+(?:=|:(?!//))\s*|--[\w.-]*{_NAME_ENDING}[\"']?\s++(?=[^\s-])"
    r"|(?:bearer|basic)\s++(?=\S))"
)

# The first word of a value, because only the server knows where the value ends.
_FIRST_WORD = re.compile(r"(?i)[\"' ]*(?:(?:bearer|basic)\s+)?([^\s;&,\"'}]+)")

# A path segment so long and mixed that it must be a key: some services give each user a URL with a key in the path.
_KEY_IN_PATH = re.compile(r"(?=[^/]*[a-z])(?=[^/]*[A-Z])(?=[^/]*[0-9])[\w=+%~-]{32,}")

_URL = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://.*")

# Headers that do not identify the client.
_HARMLESS_HEADERS = frozenset({"accept", "accept-language", "content-type", "host", "origin", "referer", "user-agent"})

# Python servers validate arguments with pydantic, whose errors abbreviate values to 50 characters, so a search for the
# whole value would not find it.
_PYDANTIC_INPUT = re.compile(r"input_value=[^\n]{0,300}?(?=, input_type=)")

# Characters that the JSON of Go, Gson and .NET escapes, but Python's does not. (PHP escapes slashes.)
_JSON_ESCAPES = (("<>&", "\\u{:04x}"), ("<>&='", "\\u{:04x}"), ("<>&'+`", "\\u{:04X}"))
_PERCENT = re.compile("%[0-9A-F]{2}")
_URL_ALPHABET = str.maketrans("+/", "-_")

# Attributes of errors that come from the caller, and are not redacted.
_KEPT_ATTRIBUTES = frozenset({"tool_args", "server_info"})


def redact_text(text: str) -> str:
    """
    Redact tokens with a well-known prefix.

    :param text: The text.
    :returns: The redacted text.
    """
    for pattern in _WELL_KNOWN:
        text = pattern.sub(rf"\1{REDACTED}", text)
    return text


def redact_value(value: Any) -> Any:
    """
    Redact tokens with a well-known prefix in a value.

    :param value: A JSON value.
    :returns: A copy.
    """
    return _map_texts(value, redact_text)


def redact_url(url: str) -> str:
    """
    Remove the parts of a URL that may be secret: user info, query values, the fragment, and keys in its path.

    :param url: The URL.
    :returns: The redacted URL.
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return REDACTED
    if not parts.netloc:  # not a URL, or one without a scheme: only the part between "@" and "?" can be shown
        return redact_text(url.partition("?")[0].rpartition("@")[2])
    host = parts.netloc.rpartition("@")[2]
    path = "/".join(REDACTED if _KEY_IN_PATH.fullmatch(part) else part for part in parts.path.split("/"))
    query = "&".join(f"{pair.partition('=')[0]}={REDACTED}" for pair in parts.query.split("&") if pair)
    return redact_text(urlunsplit((parts.scheme, host, path, query, "")))


def redact_args(args: Iterable[str]) -> list[str]:
    """
    Redact URLs, and values of options and variables that are named as secrets, in a command line.

    :param args: The arguments.
    :returns: The redacted arguments.
    """
    redacted = []
    for shown, secret in _split_args(args):
        text = redact_url(shown) if "://" in shown else redact_text(shown)
        redacted.append(f"{text}{REDACTED}" if secret and not text.endswith(REDACTED) else text)
    return redacted


def _split_args(args: Iterable[str]) -> Iterator[tuple[str, str]]:
    """Split each argument where a value begins whose name marks it as a secret."""
    is_value = False
    for arg in args:
        named = _NAMED_SECRET.search(arg)
        start = 0 if is_value and not arg.startswith("-") else named.end() if named else len(arg)
        yield arg[:start], arg[start:]
        is_value = arg.startswith("-") and _SECRET_NAME.fullmatch(arg) is not None


def redact_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """
    Redact the fields of a server info for its `repr` and for traces.

    :param fields: The values by field name.
    :returns: The fields with the values of `SECRET_FIELDS` redacted, and every Secret in other fields. Mappings keep
        their keys. A Secret from environment variables is shown as their names, so that an operator can find it.
    """
    return {name: _redact_field(value, is_secret=name in SECRET_FIELDS) for name, value in fields.items()}


def _redact_field(value: Any, *, is_secret: bool) -> Any:
    if isinstance(value, Mapping):
        return {key: _redact_field(item, is_secret=is_secret) for key, item in value.items()}
    if isinstance(value, Secret):
        variables = vars(value).get("_env_vars")
        return f"env:{'|'.join(variables)}" if variables else REDACTED
    if is_secret:
        return value if value is None else REDACTED
    return redact_text(value) if isinstance(value, str) else value


def texts_in(value: Any) -> Iterator[str]:
    """
    List the strings and numbers in a JSON value, without the names of members.

    :param value: The value.
    :returns: Strings, and numbers converted to strings.
    """
    if isinstance(value, (str, int, float)):
        yield str(value)
    elif isinstance(value, (Mapping, list, tuple)):
        for item in value.values() if isinstance(value, Mapping) else value:
            yield from texts_in(item)


class Redactor:
    """
    Redacts secrets that one server was given, in all texts that it sends back.

    Values of at least 6 characters are found verbatim, quoted as in Python, JSON and HTML, percent-encoded, and in
    Base64, even as part of a longer encoded text, as in Basic authentication. Well-known tokens (`redact_text`) are
    redacted as well.

    Secrets are remembered after their call and their session. A server may log a secret later, or quote it in the error
    of another call, and over HTTP the next session is with the same process.
    """

    def __init__(self, secrets: Iterable[str] = ()) -> None:
        """
        Initialize the Redactor.

        :param secrets: The values.
        """
        self._server_secrets: frozenset[str] = frozenset()
        # The secrets of the latest calls, each with the ways in which it may be written.
        self._call_secrets: dict[str, frozenset[str]] = {}
        self.learn(secrets)

    @property
    def secrets(self) -> frozenset[str]:
        """
        The values that are searched for.
        """
        return self._server_secrets.union(self._call_secrets)

    def learn(self, secrets: Iterable[str]) -> None:
        """
        Redact secrets of the server from now on.

        :param secrets: The values.
        """
        self._server_secrets = self._server_secrets.union(secrets)
        # The ways in which they may be written; the longest first, because one may contain another.
        self.forms: list[str] = sorted(_forms_of(self._server_secrets), key=len, reverse=True)

    def remember(self, secrets: Iterable[str]) -> None:
        """
        Redact secrets of a call or its caller, until `MAX_CALL_SECRETS` newer ones have replaced them.

        :param secrets: The values.
        """
        for secret in secrets:
            self._call_secrets[secret] = self._call_secrets.pop(secret, frozenset()) or _forms_of((secret,))
        while len(self._call_secrets) > MAX_CALL_SECRETS:
            del self._call_secrets[next(iter(self._call_secrets))]

    def text(self, text: str) -> str:
        """
        Redact a text.

        :param text: A text that may quote the server.
        :returns: The redacted text; only its beginning and end if it has more than `MAX_TEXT_LENGTH` characters.
        """
        if len(text) <= MAX_TEXT_LENGTH:
            return self._redacted(text)
        beginning = self._redacted(text[: _MAX_END_LENGTH + _CUT_MARGIN])[:-_CUT_MARGIN][:_MAX_END_LENGTH]
        end = self._redacted(text[-_MAX_END_LENGTH - _CUT_MARGIN :])[_CUT_MARGIN:][-_MAX_END_LENGTH:]
        return f"{beginning} [... {len(text):,} characters in all ...] {end}"

    def _redacted(self, text: str) -> str:
        return redact_text(self._without_declared(text))

    def _without_declared(self, text: str) -> str:
        forms = self.forms
        if found := [form for latest in self._call_secrets.values() for form in latest if form in text]:
            forms = sorted({*forms, *found}, key=len, reverse=True)
        for form in forms:
            text = text.replace(form, REDACTED)
        if "input_value=" in text:
            text = _PYDANTIC_INPUT.sub(self._without_abbreviated, text)
        return text

    def _without_abbreviated(self, quoted: re.Match[str]) -> str:
        ends = (end for secret in self.secrets for end in (secret[:MIN_SECRET_LENGTH], secret[-MIN_SECRET_LENGTH:]))
        is_quoted = any(len(end) == MIN_SECRET_LENGTH and end in quoted[0] for end in ends)
        return f"input_value={REDACTED}" if is_quoted else quoted[0]

    def value(self, value: Any) -> Any:
        """
        Redact the texts in a JSON value.

        :param value: The value.
        :returns: A copy with every text redacted, including names in mappings; a remark if the value is too large.
        """
        if isinstance(value, (Mapping, list, tuple)) and not _is_short(value):
            return f"{REDACTED} (left out, because it is too large)"
        return _map_texts(value, self.text)

    def redact_declared(self, value: Any) -> Any:
        """
        Redact only the declared secrets, in a value that is stored to be used again.

        :param value: A JSON value of any size.
        :returns: A copy without the secrets; the value itself if there are no secrets.
        """
        return _map_texts(value, self._without_declared) if self.secrets else value

    def error(self, error: Exception) -> Exception:
        """
        Redact an exception in place, with its causes, its context and the members of a group.

        :param error: The exception. Its texts, its attributes (such as `data`) and its notes are redacted. The
            arguments of a call are not, because they come from the caller.
        :returns: The exception; if its type does not allow changes, another exception with the redacted text. Causes
            that cannot be changed are left out.
        """
        if self._redact_error(error, {}):
            return error
        replacement = RuntimeError(self.text(f"{type(error).__name__}: {error}"))
        return replacement.with_traceback(error.__traceback__)

    def _redact_error(self, error: BaseException, known: dict[int, bool]) -> bool:
        if id(error) in known:
            return known[id(error)]
        known[id(error)] = True
        error.args = tuple(map(self.value, error.args))
        for name, value in [*vars(error).items()]:
            if isinstance(value, BaseModel):  # in an error of the SDK
                vars(value).update({field: self.value(item) for field, item in vars(value).items()})
            elif name not in _KEPT_ATTRIBUTES:
                vars(error)[name] = self.value(value)
        for name in ("__cause__", "__context__"):
            linked = getattr(error, name)
            if linked is not None and not self._redact_error(linked, known):
                setattr(error, name, None)
        members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        shown = f"{error} {error!r}"
        known[id(error)] = all(
            [self._redacted(shown) == shown, *(self._redact_error(member, known) for member in members)]
        )
        return known[id(error)]


def _map_texts(value: Any, change: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return change(value)
    if isinstance(value, Mapping):
        return {_map_texts(name, change): _map_texts(item, change) for name, item in value.items()}
    return type(value)(_map_texts(item, change) for item in value) if type(value) in (list, tuple) else value


def _is_short(value: Any) -> bool:
    try:
        return len(json.dumps(value, default=str)) <= 5 * MAX_TEXT_LENGTH
    except (TypeError, ValueError, RecursionError):  # not JSON, or a reference cycle
        return False


def _forms_of(secrets: Iterable[str]) -> frozenset[str]:
    # A multi-line value may be quoted line by line.
    parts = {part.strip() for secret in secrets for part in (secret, *secret.splitlines())}
    forms = (form for part in parts if len(part) >= MIN_SECRET_LENGTH for form in _spellings(part))
    return frozenset(form for form in forms if len(form) >= MIN_SECRET_LENGTH)


def _spellings(value: str) -> Iterator[str]:
    """List the ways in which a text may quote a value."""
    data = value.encode(errors="surrogatepass")
    yield from (value, repr(value)[1:-1], ascii(value)[1:-1])
    for as_json in (json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]):
        yield from (as_json, as_json.replace("/", r"\/"))
        for characters, escape in _JSON_ESCAPES:
            yield "".join(escape.format(ord(each)) if each in characters else each for each in as_json)
    for as_html in (html.escape(value), html.escape(value, quote=False)):
        yield from (
            as_html,
            as_html.replace("&#x27;", "&#39;"),
            as_html.replace("&#x27;", "&#39;").replace("&quot;", "&#34;"),
        )
    for as_url in (quote(data), quote(data, safe=""), quote_plus(data), quote(data, safe="!'()*")):
        yield from (as_url, _PERCENT.sub(lambda found: found[0].lower(), as_url))
    for shift in range(3):  # the position of its first byte within a group of three bytes, or four Base64 characters
        text = base64.b64encode(bytes(shift) + data).decode()
        text = text[(shift * 8 + 5) // 6 : (shift + len(data)) * 8 // 6]
        yield from (text, text.translate(_URL_ALPHABET))


def secrets_in(fields: Mapping[str, Any]) -> set[str]:
    """
    Return the secrets that the fields of a server info declare, with the current values of Secrets.

    These are: every Secret; the values of `SECRET_FIELDS`, except `headers` with harmless names (`Accept`,
    `User-Agent`, …); in URLs the user info, the query and keys in the path; in `args` and in other mappings the values
    that are named as secrets. Words, numbers and absolute paths in `env` and in queries count only if named as secrets.

    :param fields: The values by field name.
    :returns: The secrets, of any length. A Secret without a value adds none.
    """
    found: set[str] = set()
    for field, value in fields.items():
        if isinstance(value, Mapping):
            for name, item in value.items():
                found.update(_secrets_of_value(item, is_secret=_is_secret(field, str(name), _resolved(item))))
            continue
        for item in value if isinstance(value, (list, tuple)) else [value]:
            found.update(_secrets_of_value(item, is_secret=field in SECRET_FIELDS))
        if field == "args":
            found.update(_secrets_of_args(map(_resolved, value or ())))
    return found


def _is_secret(field: str, name: str, value: str) -> bool:
    if field == "headers":
        return name.lower() not in _HARMLESS_HEADERS
    return (field in SECRET_FIELDS and not _is_ordinary(value)) or _SECRET_NAME.fullmatch(name) is not None


def _is_ordinary(value: str) -> bool:
    # A word, a number or a path may occur in messages that do not quote the value.
    return value.isalpha() or value.isdecimal() or os.path.isabs(value)


def _resolved(value: Any) -> str:
    if not isinstance(value, Secret):
        return value if isinstance(value, str) else ""
    try:
        return str(value.resolve_value() or "")
    except ValueError:  # a required Secret without a value; connecting reports it
        return ""


def _secrets_of_value(value: Any, *, is_secret: bool) -> Iterator[str]:
    plain = _resolved(value)
    if isinstance(value, SecretTemplate):  # only its variables are secret: the whole, e.g. a URL, may be shown
        yield from value.secrets()
    elif isinstance(value, Secret):
        is_secret = True
    yield from _secrets_of_credential(plain) if is_secret else _secrets_of_url(plain)


def _secrets_of_credential(value: str) -> Iterator[str]:
    yield value
    yield from _secrets_of_url(value)
    scheme, _, credentials = value.partition(" ")
    if credentials:
        yield credentials
        if scheme.lower() == "basic":
            try:
                user, _, password = base64.b64decode(credentials).decode().partition(":")
            except ValueError:
                return
            yield from (user, password, f"{user}:{password}")
    for pair in value.split(";"):  # cookies
        yield pair.partition("=")[2].strip()


def _secrets_of_url(text: str) -> Iterator[str]:
    url = _URL.search(text)  # perhaps after the name of an option, as in `--url=https://…`
    if url is None:
        return
    try:
        parts = urlsplit(url[0])
    except ValueError:
        return
    userinfo, has_userinfo, _ = parts.netloc.rpartition("@")
    if has_userinfo:
        name, has_password, password = userinfo.partition(":")
        secret = password if has_password else name  # a token may stand alone
        yield from (secret, unquote(secret), userinfo, unquote(userinfo))
    query = parse_qsl(parts.query)
    yield from (value for name, value in query if _SECRET_NAME.fullmatch(name) or not _is_ordinary(value))
    yield from (part for part in parts.path.split("/") if _KEY_IN_PATH.fullmatch(part))


def _secrets_of_args(args: Iterable[str]) -> Iterator[str]:
    for _, secret in _split_args(args):
        yield from _secrets_of_credential(secret)
        if first := _FIRST_WORD.match(secret):
            yield first[1]
