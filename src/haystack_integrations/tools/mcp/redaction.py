# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Redaction of possibly secret values in messages, `repr`, logs and traces.

.. code-block:: text

    what is shown                                          what is redacted
    fields of a server info (repr, traces)                 `redact_fields`: Secrets, tokens, headers, environment
    command lines and URLs                                 `redact_args`, `redact_url`: by names and places
    texts of servers (errors, refusals, standard error)    `Redactor`: the values that the server was given; and, as in
                                                           all of these, what has the shape of a credential
    values from the State that a server's error quotes     `redact_values`

The result of a successful call is the server's content, and is not touched.
"""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from functools import cached_property
from typing import Any
from urllib.parse import parse_qsl, quote, quote_plus, unquote, urlsplit, urlunsplit

from haystack.utils import Secret
from pydantic import BaseModel, ValidationError

from haystack_integrations.tools.mcp.secret_template import SecretTemplate

REDACTED = "***"

# Fields of server infos whose values are never shown, Secrets or not.
SECRET_FIELDS = frozenset({"api_key", "env", "headers", "password", "secret", "token"})

# Shorter values (a port, "true") occur in many texts without being secrets.
SHORTEST_SECRET = 6

# A query value of an inconspicuous name counts as a secret if it is at least as long as this: a region or a profile,
# which a server's error may well name, is shorter, and a key is longer.
_SHORTEST_KEY = 20

_SECRET_NAME = re.compile(
    r"(?i)(?<!max[_-])token(?!iz)|key(?!board|word|cloak|space|ring)|secret|passw|passphrase|passcode|pwd|credential|cookie"
    r"|auth(?!or(?!i[sz]))|bearer|signature|conn(?:ection)?[_-]?str"
    r"|(?:^|[_.-])(?:pass|pat|dsn|otp|jwt|sas)(?:$|[_.-])"
)

# What an option or a variable of such a name holds is something about a secret, such as where it is.
_NOT_SECRET_ITSELF = re.compile(
    r"(?i)(?:file|path|dir|directory|folder|sock|url|uri|host|name|type|mode|method|provider|enabled)$"
)

# Variables whose names sound like secrets, but which shells set to folders.
_FOLDER_VARIABLES = frozenset({"PWD", "OLDPWD"})

# Headers that say nothing about who the client is.
_HARMLESS_HEADERS = frozenset(
    {"accept", "accept-charset", "accept-encoding", "accept-language", "cache-control", "connection", "content-type"}
    | {"host", "mcp-protocol-version", "origin", "pragma", "referer", "user-agent"}
)

# The name in `NAME=value`, `--name=value`, `Name: value` and `"name": "value"`: environment variables, options, HTTP
# headers, connection strings and JSON.
_ASSIGNMENT = re.compile(r"(?<![\w.-])(?P<name>[\d.-]*[A-Za-z_][\w.-]*+)[\"']?\s*+(?:=|:(?!//))\s*")

# An option and the white space before its value, in an argument that is a whole command line (`sh -c "..."`).
_OPTION = re.compile(r"(?<![\w-])--(?P<name>[A-Za-z][\w.-]*+)[\"']?\s++(?=[^\s-])")

_SCHEME = re.compile(r"(?i)\b(?:bearer|basic)\s+(?=\S)")

# Servers in Python validate arguments with pydantic, whose errors abbreviate the value, so a search for the whole value
# does not find it. The bound keeps the search linear; pydantic shows 50 characters of a value.
_REFUSED_VALUE = re.compile(r"input_value=[^\n]{0,300}?(?=, input_type=)")

# A part of a URL's path that is as long, and as mixed, as only a key is.
_KEY_IN_PATH = re.compile(r"(?=[^/]*[a-z])(?=[^/]*[A-Z])(?=[^/]*[0-9])[\w=+%~-]{32,}")

# Credentials of known shapes, each with a text that any of its kind contains: looking for that is much faster than the
# pattern. Every pattern takes linear time, because what it begins with cannot begin again within what it repeats.
_SHAPES: tuple[tuple[tuple[str, ...], re.Pattern[str], str], ...] = tuple(
    (needles, re.compile(pattern), replacement)
    for needles, pattern, replacement in (
        (("gh",), r"(?<![A-Za-z0-9])gh[opusr]_[A-Za-z0-9]{20,}", REDACTED),
        (("github_pat_",), r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{20,}", REDACTED),
        (("glpat-", "gldt-", "glrt-", "glptt-"), r"(?<![A-Za-z0-9])gl(?:pat|dt|rt|ptt)-[\w-]{20,}", REDACTED),
        # Hyphens occur in names, too, so there must be a digit and a run without one.
        (("sk-",), r"(?<![\w-])sk-(?=[\w-]*[0-9])(?=[\w-]*\w{12})[\w-]{16,}", REDACTED),
        (("k_",), r"(?<![A-Za-z0-9])[srp]k_(?:live|test|prod)_[A-Za-z0-9]{10,}", REDACTED),
        (("xox", "xapp-"), r"(?<![A-Za-z0-9])(?:xox[a-z](?:\.xox[a-z])?|xapp)-[A-Za-z0-9-]{10,}", REDACTED),
        (("AKIA", "ASIA"), r"(?<![A-Za-z0-9])A(?:KI|SI)A[A-Z0-9]{16}(?![A-Za-z0-9])", REDACTED),
        (("hf_",), r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{20,}", REDACTED),
        (("npm_",), r"(?<![A-Za-z0-9])npm_[A-Za-z0-9]{30,}", REDACTED),
        (("pypi-",), r"(?<![A-Za-z0-9])pypi-(?=[\w-]{0,40}[A-Z])[\w-]{40,}", REDACTED),
        (("AIza",), r"(?<![A-Za-z0-9])AIza[\w-]{30,}", REDACTED),
        (("ya29.",), r"(?<![A-Za-z0-9])ya29\.[\w-]{20,}", REDACTED),
        (("eyJ",), r"(?<![\w-])eyJ[\w-]{8,}\.[\w-]{8,}\.[\w-]*", REDACTED),
        (
            ("hooks.slack.com", "/api/webhooks/"),
            r"(hooks\.slack\.com/[a-z]+/|discord(?:app)?\.com/api/webhooks/)[\w/-]+",
            rf"\1{REDACTED}",
        ),
        # User info of a URL; a mere name of a few letters, as in `ssh://git@host`, is none.
        (("://",), r"(?<=://)(?:[^/\s@:\"'<>]*:[^/\s@\"'<>]+|[^/\s@:\"'<>]{16,})(?=@)", REDACTED),
    )
)

# `Bearer X` in a text: not the name of the scheme in a sentence ("Bearer authentication is required"), so there must be
# a digit, an inner capital, or more letters than a word has.
_SCHEME_VALUE = re.compile(
    r"\b([Bb]earer|BEARER|[Bb]asic|BASIC)(\s{1,8}|%20|\+)"
    r"(?![\w-]+=[\"'])(?=\S{0,200}[0-9]|[\w-]{0,100}[a-z][A-Z]|\S{24})[\w.~+/-]{6,}=*"
)

# `Password=X` in a text. No white space: "the password: must be longer" is a sentence.
_ASSIGNED_VALUE = re.compile(
    r"(?i)(passw(?:or)?d|pwd|passphrase|secret|api[_-]?key|access[_-]?key|shared_?access_?key|account_?key"
    r"|(?:(?<![\w-])|(?<=access_)|(?<=access-)|(?<=refresh_)|(?<=auth_)|(?<=api_)|(?<=id_)|(?<=bearer_)"
    r"|(?<=--))token)"
    r"([\"']?=[\"']?)(?!\*\*\*|[$<{%]|None\b|null\b|true\b|false\b)[^\s;,&\"'<>(){}\[\]|]{4,}"
)

# `--password X` in a text, as of a command line that is quoted. What follows the option in a sentence is no such value,
# as above.
_OPTION_VALUE = re.compile(
    r"(?i)((?<![\w-])--(?!max)(?:[\w-]{0,40}-)?(?:pass|passwd|password|passphrase|pwd|pat|bearer|token|secret|api-?key)"
    r"[\"']?\s{1,8}[\"']?)(?=\S{0,200}[0-9]|[\w-]{0,100}(?-i:[a-z][A-Z])|\S{24})[^\s;,&\"'<>(){}\[\]|*]{6,}"
)


def redact_text(text: str) -> str:
    """
    Redact what has the shape of a credential.

    That is: known kinds of tokens (`ghp_…`, `sk-…`, JWTs, …) wherever they stand, `Bearer X`, `Password=X`,
    `--password X`, and user info in URLs.

    :param text: The text.
    :returns: The redacted text.
    """
    for needles, pattern, replacement in _SHAPES:
        if any(needle in text for needle in needles):
            text = pattern.sub(replacement, text)
    if "earer" in text or "asic" in text or "BEARER" in text or "BASIC" in text:
        text = _SCHEME_VALUE.sub(rf"\1\2{REDACTED}", text)
    if "=" in text:
        text = _ASSIGNED_VALUE.sub(rf"\1\2{REDACTED}", text)
    if "--" in text:
        text = _OPTION_VALUE.sub(rf"\1{REDACTED}", text)
    return text


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
    if not parts.netloc:  # not a URL, or one without a scheme: only what is between "@" and "?" can be shown
        return redact_text(url.partition("?")[0].rpartition("@")[2])
    host = parts.netloc.rpartition("@")[2]
    path = "/".join(REDACTED if _KEY_IN_PATH.fullmatch(part) else part for part in parts.path.split("/"))
    query = "&".join(f"{pair.partition('=')[0]}={REDACTED}" for pair in parts.query.split("&") if pair)
    return redact_text(urlunsplit((parts.scheme, host, path, query, "")))


def redact_args(args: Iterable[str]) -> list[str]:
    """
    Redact the values of command line options that look like credentials.

    :param args: The arguments.
    :returns: The redacted arguments.
    """
    redacted: list[str] = []
    for option, arg in _with_options(args):
        redacted.append(_redact_arg(arg) if option is None else REDACTED)
    return redacted


def _with_options(args: Iterable[str]) -> Iterator[tuple[str | None, str]]:
    """Pair each argument with the option of a secret-sounding name before it, whose value it is, or with None."""
    before: str | None = None
    for arg in args:
        yield (None if arg.startswith("-") else before), arg
        is_secret = arg.startswith("-") and "=" not in arg and _SECRET_NAME.search(arg) is not None
        before = arg if is_secret else None


def _secret_start(arg: str) -> tuple[int, str] | None:
    """Tell where the value of the first secret-sounding name begins, and the name."""
    named = (
        next((match for match in pattern.finditer(arg) if _SECRET_NAME.search(match["name"])), None)
        for pattern in (_ASSIGNMENT, _OPTION)
    )
    first = min(filter(None, named), key=re.Match.end, default=None)
    if first is not None:
        return first.end(), first["name"]
    scheme = _SCHEME.search(arg)
    return None if scheme is None else (scheme.end(), scheme[0])


def _redact_arg(arg: str) -> str:
    # Everything after the first secret-sounding name is redacted: only the server knows where the value ends.
    secret = _secret_start(arg)
    redacted = arg if secret is None else arg[: secret[0]]
    redacted = redact_url(redacted) if "://" in redacted else redact_text(redacted)
    return redacted if secret is None or redacted.endswith(REDACTED) else f"{redacted}{REDACTED}"


def redact(value: Any) -> Any:
    """
    Redact a value that may be secret.

    :param value: A string, a Secret, a mapping of these, or None.
    :returns: For a Secret from environment variables their names, for anything else stars. Mappings keep their keys.
    """
    if isinstance(value, Mapping):
        return {key: redact(item) for key, item in value.items()}
    if isinstance(value, Secret):
        # The name of the environment variable tells an operator what to look for.
        data = value.__dict__
        return f"env:{'|'.join(data['_env_vars'])}" if "_env_vars" in data else REDACTED
    return value if value is None else REDACTED


def redact_fields(fields: Mapping[str, Any]) -> dict[str, Any]:
    """
    Redact the fields of a server info for its `repr` and for traces.

    :param fields: The values by their names.
    :returns: The same with the values of `SECRET_FIELDS` (HTTP headers, tokens, environment variables, …) redacted, and
        elsewhere every Secret and what has the shape of a credential.
    """
    return {name: redact(value) if name in SECRET_FIELDS else redact_secrets(value) for name, value in fields.items()}


def redact_secrets(value: Any) -> Any:
    """
    Redact the Secrets, and what has the shape of a credential, in a value and keep the rest.

    :param value: Any value; mappings are searched.
    :returns: The value with every Secret replaced as in `redact`.
    """
    if isinstance(value, Mapping):
        return {key: redact_secrets(item) for key, item in value.items()}
    if isinstance(value, str):
        return redact_text(value)
    return redact(value) if isinstance(value, Secret) else value


def redact_values(text: str, values: Mapping[str, Any]) -> str:
    """
    Redact values in a text, such as a server's error message.

    :param text: The text.
    :param values: The values to redact, by any names. Strings and numbers inside mappings and lists count, too.
    :returns: The text in which every full quotation of a value of at least 6 characters is redacted, and every value
        that pydantic quotes. If there are no values, the text is unchanged.
    """
    if not values:
        return text
    quoted = {form for value in _scalars(values) for form in _quoted_forms(value) if len(form) >= SHORTEST_SECRET}
    for form in sorted(quoted, key=len, reverse=True):
        text = text.replace(form, REDACTED)
    return _REFUSED_VALUE.sub(f"input_value={REDACTED}", text)


def _scalars(values: Any) -> Iterator[str | int | float]:
    pending, seen = [values], set()
    while pending:
        value = pending.pop()
        if isinstance(value, (str, int, float)):
            yield value
        elif isinstance(value, (Mapping, list, tuple)) and id(value) not in seen:
            seen.add(id(value))
            pending += value.values() if isinstance(value, Mapping) else value


def _quoted_forms(value: str | int | float) -> tuple[str, ...]:
    if not isinstance(value, str):
        return (str(value),)
    return value, repr(value)[1:-1], json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1]


# A server's text is searched in the loop of all sessions, which takes some 10 ms for so many characters; of a longer
# one only the two ends are kept. A value of JSON may consist of so many values.
LONGEST_TEXT = 10_000
_LONGEST_END = LONGEST_TEXT // 2 - 100
_MAX_VALUES = 2_000

# A ValidationError names so many faults at most; it is text that takes 0.1 ms each to be searched.
_MAX_FAULTS = 100

# What is dropped of an end where it was cut, because it may be part of a secret, which is then not recognised.
_CUT_MARGIN = 1_000


class SharedSecrets:
    """
    Secrets that come and go, for all redactors that look for them. To be used in one thread.

    A server info has a few secrets, but calls may have thousands, each its own. So they are not looked for one after
    the other: an index tells which of them begin at a place of a text.
    """

    def __init__(self) -> None:
        """
        Initialize the SharedSecrets, without any.
        """
        # How each may be written; None until there is a text to search.
        self._forms: dict[str, tuple[str, ...] | None] = {}
        self._not_indexed: list[str] = []
        # By their first characters, with the number of secrets that may be written so.
        self._starting: dict[str, dict[str, int]] = {}
        # What their abbreviations begin or end with, likewise.
        self._ends: dict[str, int] = {}
        self._longest = 0

    def __len__(self) -> int:
        """
        Count the secrets.

        :returns: How many there are.
        """
        return len(self._forms)

    def __iter__(self) -> Iterator[str]:
        """
        Give the secrets.

        :returns: The values, as they were given.
        """
        return iter(self._forms)

    def add(self, value: str) -> None:
        """
        Look for a secret from now on.

        :param value: The value.
        """
        if value not in self._forms:
            self._forms[value] = None
            self._not_indexed.append(value)

    def discard(self, value: str) -> None:
        """
        Look for a secret no more.

        :param value: The value.
        """
        forms = self._forms.pop(value, None)
        for form in forms or ():
            start = form[:SHORTEST_SECRET]
            if _count(self._starting[start], form, -1):
                del self._starting[start]
        for part in _parts(value) if forms is not None else ():
            for end in (part[:SHORTEST_SECRET], part[-SHORTEST_SECRET:]):
                _count(self._ends, end, -1)

    def _index(self) -> None:
        for value in self._not_indexed:
            if self._forms.get(value, ()) is not None:
                continue  # it is gone, or is here for the second time
            parts = _parts(value)
            forms = self._forms[value] = tuple(_forms_of(parts))
            for form in forms:
                _count(self._starting.setdefault(form[:SHORTEST_SECRET], {}), form, 1)
            for part in parts:
                for end in (part[:SHORTEST_SECRET], part[-SHORTEST_SECRET:]):
                    _count(self._ends, end, 1)
            self._longest = max(self._longest, *map(len, forms), 0)
        self._not_indexed.clear()

    @property
    def longest(self) -> int:
        """
        How many characters the longest form has that was ever known.
        """
        self._index()
        return self._longest

    def forms_in(self, text: str) -> set[str]:
        """
        Find out how a text quotes the secrets.

        :param text: The text.
        :returns: Parts of the text.
        """
        self._index()
        starting, found = self._starting, set()
        if starting:
            for place in range(len(text) - SHORTEST_SECRET + 1):
                for form in starting.get(text[place : place + SHORTEST_SECRET], ()):
                    if text.startswith(form, place):
                        found.add(form)
        return found

    def ends_in(self, text: str) -> bool:
        """
        Tell whether a text has the beginning or the end of a secret.

        :param text: The text.
        :returns: True if it has.
        """
        self._index()
        ends = self._ends
        return bool(ends) and any(
            text[place : place + SHORTEST_SECRET] in ends for place in range(len(text) - SHORTEST_SECRET + 1)
        )


def _count(counts: dict[str, int], key: str, change: int) -> bool:
    # Whether nothing is left.
    counts[key] = counts.get(key, 0) + change
    if not counts[key]:
        del counts[key]
    return not counts


def _parts(value: str) -> set[str]:
    # A value of several lines may be quoted line by line.
    return {stripped for part in (value, *value.splitlines()) if len(stripped := part.strip()) >= SHORTEST_SECRET}


def _forms_of(values: Iterable[str]) -> set[str]:
    return {form for value in values for form in _sent_forms(value) if len(form) >= SHORTEST_SECRET}


class Redactor:
    """
    Redacts, in all that comes back from one server, the secrets that it was given.

    Values of at least 6 characters are found as they are, as Python, JSON and HTML quote them, percent-encoded, and in
    Base64, also within a longer text, as in Basic authentication. What has the shape of a credential (`redact_text`) is
    redacted, too.
    """

    def __init__(self, secrets: Iterable[str] = (), shared: SharedSecrets | None = None) -> None:
        """
        Initialize the Redactor.

        :param secrets: The values.
        :param shared: More of them, as they are whenever there is a text to redact.
        """
        self._given = frozenset(secrets)
        self._shared = shared

    # Each call on behalf of somebody has a redactor of its own, and few have a text to redact: what they search for is
    # made out when there is one.
    @cached_property
    def _secrets(self) -> frozenset[str]:
        return frozenset(part for value in self._given for part in _parts(value))

    @property
    def secrets(self) -> frozenset[str]:
        """
        What is searched for.

        :returns: The values that are long enough.
        """
        return self._secrets.union(*map(_parts, self._shared or ()))

    @cached_property
    def forms(self) -> list[str]:
        """
        How the secrets may be written, without the shared ones.

        :returns: The texts, the longest first: one may contain another.
        """
        return sorted(_forms_of(self._secrets), key=_longest_first)

    def knowing(self, secrets: Iterable[str]) -> Redactor:
        """
        Add secrets.

        :param secrets: More values.
        :returns: A redactor of all.
        """
        return Redactor((*self._given, *secrets), self._shared)

    def sharing(self, secrets: SharedSecrets) -> Redactor:
        """
        Add secrets that come and go, in place of those that do so far.

        :param secrets: The secrets.
        :returns: A redactor of all.
        """
        return Redactor(self._given, secrets)

    def text(self, text: str) -> str:
        """
        Redact a text.

        :param text: A text that may quote the server.
        :returns: The redacted text; of one of more than `LONGEST_TEXT` characters its beginning and its end.
        """
        if len(text) <= LONGEST_TEXT:
            return self._searched(text)
        margin = max(_CUT_MARGIN, *map(len, self.forms[:1]), self._shared.longest if self._shared else 0)
        beginning = self._searched(text[: _LONGEST_END + margin])[:-margin][:_LONGEST_END]
        end = self._searched(text[-_LONGEST_END - margin :])[margin:][-_LONGEST_END:]
        return f"{beginning} [... {len(text):,} characters in all ...] {end}"

    def _searched(self, text: str) -> str:
        forms = self.forms
        if self._shared:
            found = self._shared.forms_in(text)
            if found:
                forms = sorted(found.union(forms), key=_longest_first)
        for form in forms:
            text = text.replace(form, REDACTED)
        if "input_value=" in text:
            text = _REFUSED_VALUE.sub(self._without_abbreviated, text)
        return redact_text(text)

    def _without_abbreviated(self, quoted: re.Match[str]) -> str:
        ends = (end for secret in self._secrets for end in (secret[:SHORTEST_SECRET], secret[-SHORTEST_SECRET:]))
        shared = self._shared
        is_quoted = any(end in quoted[0] for end in ends) or (shared is not None and shared.ends_in(quoted[0]))
        return f"input_value={REDACTED}" if is_quoted else quoted[0]

    def value(self, value: Any) -> Any:
        """
        Redact the texts in a value as of JSON.

        :param value: The value, at most as deep as JSON parsers allow.
        :returns: A copy with every text redacted, names in mappings included; a remark, if it consists of too many
            values, or of too much text, to be searched.
        """
        try:
            return self._value(value, [_MAX_VALUES, 5 * LONGEST_TEXT])
        except _TooLargeError:
            return f"{REDACTED} (left out, because it is too large)"

    def _value(self, value: Any, left: list[int]) -> Any:
        left[0] -= 1
        if isinstance(value, str):
            left[1] -= min(len(value), LONGEST_TEXT)
        if left[0] < 0 or left[1] < 0:
            raise _TooLargeError
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self._value(name, left): self._value(item, left) for name, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self._value(item, left) for item in value)
        return value

    def error(self, error: Exception) -> Exception:
        """
        Redact an exception in place, with its causes, its context and the members of a group.

        :param error: The exception. Its texts, its attributes (such as `data`) and its notes are redacted; the
            arguments of a call, which are the caller's own, are not.
        :returns: The exception; or, if it is of a kind that cannot be changed, another one with the redacted text.
            Causes that cannot be changed are left out.
        """
        if self._clean(error, {}):
            return error
        replacement = RuntimeError(self.text(f"{type(error).__name__}: {error}"))
        return replacement.with_traceback(error.__traceback__)

    def _clean(self, error: BaseException, known: dict[int, bool]) -> bool:
        if id(error) in known:
            return known[id(error)]
        known[id(error)] = True
        try:
            error.args = tuple(map(self.value, error.args))
            for name, value in list(vars(error).items()):
                if name in _KEPT_ATTRIBUTES:
                    continue
                if isinstance(value, BaseModel):
                    for field, item in vars(value).items():
                        vars(value)[field] = self.value(item)
                else:
                    vars(error)[name] = self.value(value)
            is_clean = not _is_too_large(error) and all(
                self._searched(shown) == shown for shown in (str(error), repr(error))
            )
        except RecursionError:
            is_clean = False
        for name in ("__cause__", "__context__"):
            linked = getattr(error, name)
            if linked is not None and not self._clean(linked, known):
                setattr(error, name, None)
        members = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        is_clean = all([is_clean, *(self._clean(member, known) for member in members)])
        known[id(error)] = is_clean
        return is_clean


def _longest_first(form: str) -> tuple[int, str]:
    return -len(form), form


def _is_too_large(error: BaseException) -> bool:
    # Some 150 characters of text for each.
    return isinstance(error, ValidationError) and error.error_count() > _MAX_FAULTS


class _TooLargeError(Exception):
    """Raised when a value is too large to be searched."""


# Attributes of errors that are the caller's own.
_KEPT_ATTRIBUTES = frozenset({"tool_args", "server_info"})


def _sent_forms(value: str) -> Iterator[str]:
    yield from _quoted_forms(value)
    yield html.escape(value)
    for encoded in (quote(value), quote(value, safe=""), quote_plus(value)):
        yield encoded
        yield re.sub("%[0-9A-F]{2}", lambda octet: octet[0].lower(), encoded)
    data = value.encode(errors="surrogatepass")
    for shift in range(3):  # where it begins within the three octets that four characters stand for
        text = base64.b64encode(bytes(shift) + data).decode()
        core = text[(shift * 8 + 5) // 6 : (shift + len(data)) * 8 // 6]
        yield core
        yield core.replace("+", "-").replace("/", "_")


def secrets_in(fields: Mapping[str, Any]) -> set[str]:
    """
    Find the secrets in the fields of a server info, with the values that Secrets have now.

    These are: every Secret; the values of `SECRET_FIELDS`, but of `env` only those of secret-sounding names, and of
    `headers` none of harmless names (`Accept`, `User-Agent`, …); in URLs the user info, the values of secret-sounding
    names in the query and all long ones; in `args` the values of secret-sounding options.

    :param fields: The values by their names.
    :returns: The secrets, of any length. A Secret without a value has none.
    """
    found: set[str] = set()
    for name, value in fields.items():
        if isinstance(value, Mapping):
            for key, item in value.items():
                found.update(_secrets_of_entry(name, str(key), item))
        elif name == "args" and isinstance(value, (list, tuple)):
            for arg in value:
                found.update(_secrets_of_reference(arg))
            found.update(_secrets_of_args([_plain(arg) for arg in value]))
        elif isinstance(value, SecretTemplate) and name not in SECRET_FIELDS:
            # Not the whole text, e.g. a URL, which messages name.
            found.update(value.secrets())
            found.update(_secrets_of_url(_plain(value)))
        elif isinstance(value, Secret) or (isinstance(value, str) and name in SECRET_FIELDS):
            found.update(_secrets_of_credential(_plain(value)))
        elif isinstance(value, str):
            found.update(_secrets_of_url(value))
    return found


def _secrets_of_reference(value: Any) -> Iterator[str]:
    if isinstance(value, SecretTemplate):
        yield from value.secrets()
    elif isinstance(value, Secret):
        yield from _secrets_of_credential(_plain(value))


def _plain(value: Any) -> str:
    if not isinstance(value, Secret):
        return value if isinstance(value, str) else ""
    try:
        plain = value.resolve_value()
    except ValueError:  # a required Secret without a value, which the connect reports
        return ""
    return "" if plain is None else str(plain)


def _secrets_of_entry(field: str, name: str, value: Any) -> Iterator[str]:
    plain = _plain(value)
    if field == "headers":
        is_secret = name.lower() not in _HARMLESS_HEADERS
    elif field == "env":
        is_named_secret = _SECRET_NAME.search(name) is not None and _NOT_SECRET_ITSELF.search(name) is None
        is_secret = is_named_secret and name not in _FOLDER_VARIABLES
    else:
        is_secret = field in SECRET_FIELDS
    yield from _secrets_of_reference(value)
    if is_secret or (isinstance(value, Secret) and not isinstance(value, SecretTemplate)):
        yield from _secrets_of_credential(plain)
    else:
        yield from _secrets_of_arg(plain)


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
    if "://" not in text:
        return
    try:
        parts = urlsplit(text)
    except ValueError:
        return
    userinfo, has_userinfo, _ = parts.netloc.rpartition("@")
    if has_userinfo:
        name, has_password, password = userinfo.partition(":")
        secret = password if has_password else name  # a token may stand alone
        yield from (secret, unquote(secret), userinfo, unquote(userinfo))
    for name, value in parse_qsl(parts.query):
        if _SECRET_NAME.search(name) or len(value) >= _SHORTEST_KEY:
            yield value
    yield from (part for part in parts.path.split("/") if _KEY_IN_PATH.fullmatch(part))


def _secrets_of_args(args: list[str]) -> Iterator[str]:
    for option, arg in _with_options(args):
        if option is None:
            yield from _secrets_of_arg(arg)
        elif not _NOT_SECRET_ITSELF.search(option):
            yield from _secrets_of_credential(arg)


def _secrets_of_arg(arg: str) -> Iterator[str]:
    yield from _secrets_of_url(arg)
    found = _secret_start(arg)
    if found is not None and not _NOT_SECRET_ITSELF.search(found[1]):
        rest = arg[found[0] :]
        yield rest
        # Only the server knows where the value ends.
        yield re.split(r"[\s;&,\"'}]", rest.lstrip("\"' "), maxsplit=1)[0]
        scheme = _SCHEME.match(rest)
        if scheme is not None:
            yield re.split(r"[\s;&,\"'}]", rest[scheme.end() :], maxsplit=1)[0]
