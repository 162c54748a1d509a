# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Looks for the secrets of the tests in everything that this package shows while they run.

.. code-block:: text

    secrets                                          what is shown
    the values of Haystack's Secrets                 log lines of this package, of Haystack and of the SDK's client,
                                                     also those too fine for the log's level, with their errors
    tokens and headers of `mcp_request_context`      errors of this package that `pytest.raises` catches
    what was sent and received for OAuth tokens      with their causes, and this package's dataclasses among the local
    whatever the authorization servers issued        variables of their frames, every `repr` of a public class, tags
                                                     of Haystack's tracing, and YAML

It watches this process only, and not the results of calls, which belong to the server.
"""

import functools
import logging
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import is_dataclass
from pathlib import Path
from traceback import walk_tb
from typing import Any, Self

import pytest
from haystack.marshal.yaml import YamlMarshaller
from haystack.tracing.tracer import NullSpan, ProxyTracer
from haystack.utils.auth import EnvVarSecret, TokenSecret

import haystack_integrations.tools.mcp as mcp_haystack
from haystack_integrations.tools.mcp.auth.outgoing import Outgoing
from haystack_integrations.tools.mcp.redaction import MIN_SECRET_LENGTH
from haystack_integrations.tools.mcp.request_context import MCPRequestContext

OURS = "haystack_integrations"
LOGGERS = (OURS, "haystack.", "mcp.client", "mcp.shared", "client")

# Secrets that servers in this process issue during a test; each server adds its own set.
issued: list[set[str]] = []


class SecretWatch:
    """
    Watches within its `with` block; `look` returns the texts with secrets since its last call.
    """

    def __init__(self) -> None:
        self._secrets: set[str] = set()
        self._shown: set[tuple[str, str]] = set()
        self._patch = pytest.MonkeyPatch()

    def look(self) -> list[str]:
        """
        Return the texts of the test that contain secrets, and forget them.
        """
        secrets = {secret for secret in self._secrets.union(*issued) if _can_be_told(secret)}
        found = [f"{where}: {text}" for where, text in self._shown if any(secret in text for secret in secrets)]
        self._secrets.clear()
        issued.clear()
        self._shown.clear()
        return found

    def learn(self, *secrets: Any) -> None:
        """
        Also look for these strings. The values of Haystack's Secrets are learned when they are resolved.
        """
        self._secrets.update(secret for secret in secrets if isinstance(secret, str))

    def show(self, where: str, text: str) -> None:
        """
        Record a text that is shown.
        """
        self._shown.add((where, text))

    def __enter__(self) -> Self:
        for kind in (TokenSecret, EnvVarSecret):
            self._after(kind, "resolve_value", lambda _, value: self.learn(value))
        self._after(
            MCPRequestContext,
            "__post_init__",
            lambda context, _: self.learn(context.token, *(context.headers or {}).values()),
        )
        self._after(Outgoing, "__init__", lambda outgoing, _: issued.append(outgoing.secrets))
        self._watch_logs()
        self._watch_errors()
        for kind in _classes():
            self._after(kind, "__repr__", lambda thing, text: self.show(f"repr of {type(thing).__name__}", text))
        self._after(YamlMarshaller, "marshal", lambda _, text: self.show("YAML", text))
        self._watch_tags()
        return self

    def __exit__(self, *_: object) -> None:
        self._patch.undo()

    def _after(self, kind: type, method: str, note: Callable[[Any, Any], None]) -> None:
        original = getattr(kind, method)

        @functools.wraps(original)
        def noted(self: Any, *arguments: Any, **keywords: Any) -> Any:
            result = original(self, *arguments, **keywords)
            note(self, result)
            return result

        self._patch.setattr(kind, method, noted)

    def _watch_logs(self) -> None:
        is_enabled_for, call_handlers = logging.Logger.isEnabledFor, logging.Logger.callHandlers

        def is_watched(logger: logging.Logger, level: int) -> bool:
            return logger.name.startswith(LOGGERS) or is_enabled_for(logger, level)

        def show_and_call(logger: logging.Logger, record: logging.LogRecord) -> None:
            if logger.name.startswith(LOGGERS):
                error = record.exc_info[1] if record.exc_info else None
                self.show(record.name, " ".join([record.getMessage(), *map(str, _chain(error))]))
                if not is_enabled_for(logger, record.levelno):
                    return
            call_handlers(logger, record)

        self._patch.setattr(logging.Logger, "isEnabledFor", is_watched)
        self._patch.setattr(logging.Logger, "callHandlers", show_and_call)

    def _watch_errors(self) -> None:
        leave = pytest.RaisesExc.__exit__

        def show_and_leave(raises: Any, kind: Any, error: BaseException | None, traceback: Any) -> bool:
            chain = list(_chain(error))
            if any(type(each).__module__.startswith(OURS) for each in chain):
                for each in chain:
                    self.show(type(each).__name__, f"{each} {each!r}")
                    for value in _dataclasses_in_frames(each):
                        with suppress(AttributeError):  # its `__init__` has failed
                            self.show(f"repr of a local {type(value).__name__}", repr(value))
            return bool(leave(raises, kind, error, traceback))

        self._patch.setattr(pytest.RaisesExc, "__exit__", show_and_leave)

    def _watch_tags(self) -> None:
        trace, set_tag = ProxyTracer.trace, NullSpan.set_tag

        def show_and_trace(tracer: ProxyTracer, name: str, tags: Any = None, parent_span: Any = None) -> Any:
            if name.startswith("haystack.mcp"):
                self.show(name, repr(tags))
            return trace(tracer, name, tags, parent_span)

        def show_and_set(span: NullSpan, key: str, value: Any) -> None:
            self.show(f"tag {key}", str(value))
            set_tag(span, key, value)

        self._patch.setattr(ProxyTracer, "trace", show_and_trace)
        self._patch.setattr(NullSpan, "set_tag", show_and_set)


def _can_be_told(secret: str) -> bool:
    # A single word, or a string too short to be redacted, may occur in a text by chance. The path of a program is not
    # a secret, although a variable may hold it.
    return len(secret) >= MIN_SECRET_LENGTH and not secret.isalpha() and not Path(secret).is_absolute()


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or (None if error.__suppress_context__ else error.__context__)


def _dataclasses_in_frames(error: BaseException) -> list[Any]:
    # Error trackers such as Sentry send the `repr` of each local variable.
    values = [value for frame, _ in walk_tb(error.__traceback__) for value in frame.f_locals.values()]
    return [value for value in values if is_dataclass(value) and type(value).__module__.startswith(OURS)]


def _classes() -> set[type]:
    public = [getattr(mcp_haystack, name) for name in mcp_haystack.__all__]
    kinds = {base for thing in public if isinstance(thing, type) for base in thing.__mro__}
    return {kind for kind in kinds if kind.__module__.startswith(OURS) and "__repr__" in vars(kind)}
