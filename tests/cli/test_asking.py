# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Questions of servers, answered in a terminal.
"""

import io
import sys
from types import SimpleNamespace
from typing import Any

import pytest
from rich.progress import Progress

from haystack_integrations.tools.mcp.cli.call import ask_in_terminal
from haystack_integrations.tools.mcp.cli.output import Output


class Keyboard(io.StringIO):
    """
    A terminal in which somebody types.
    """

    def isatty(self) -> bool:
        return True


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """
    Asks, and types: the answers for the server, and what was shown.
    """
    monkeypatch.setenv("COLUMNS", "300")

    def ask(typed: str, **request: Any) -> tuple[Any, str]:
        monkeypatch.setattr(sys, "stdin", Keyboard(typed))
        output = Output()
        answers = ask_in_terminal(SimpleNamespace(message="Please", **request), output, Progress(disable=True))
        return answers, capsys.readouterr().err

    return ask


@pytest.mark.parametrize(
    ("typed", "answer"), [("y\n", True), ("Yes\n", True), ("\n", False), ("no\n", False), ("", None)]
)
def test_a_page_is_opened_by_the_person(ask: Any, typed: str, answer: bool | None) -> None:
    answers, shown = ask(typed, mode="url", url="https://example.com/pay\x1b[2J")
    assert answers is answer
    assert "The server asks: Please" in shown
    assert "Open this page if you trust the server: https://example.com/pay\\x1b[2J" in shown


@pytest.mark.parametrize(("typed", "answer"), [("y\n", True), ("\n", False), ("", None)])
def test_a_question_without_fields_is_accepted_or_declined(ask: Any, typed: str, answer: bool | None) -> None:
    answers, shown = ask(typed, mode="form", requested_schema={"type": "object", "properties": {}})
    assert answers is answer
    assert "Accept? [y/N]" in shown


FORM = {
    "type": "object",
    "properties": {
        "count": {"type": "integer", "description": "How many"},
        "colour": {"enum": ["red", "blue"], "default": "blue"},
        "note": {"type": "string"},
    },
    "required": ["count"],
}


@pytest.mark.parametrize(
    ("typed", "answers", "told"),
    [
        ("2\nred\nsoon\n", {"count": 2, "colour": "red", "note": "soon"}, "count, How many (integer): "),
        ("2\n\n\n", {"count": 2, "colour": "blue"}, 'colour ("red" | "blue", default: blue): '),
        ("2\n\n\n", {"count": 2, "colour": "blue"}, "  note (string, optional): "),
        ("\n2\n\n\n", {"count": 2, "colour": "blue"}, "An answer is needed; Ctrl-D cancels."),
        ("many\n2\n\n\n", {"count": 2, "colour": "blue"}, "'count' must be of type integer"),
        ("2\n", None, "How many"),
    ],
)
def test_a_form_is_filled_in_field_by_field(ask: Any, typed: str, answers: Any, told: str) -> None:
    found, shown = ask(typed, mode="form", requested_schema=FORM)
    assert found == answers
    assert told in shown


def test_nothing_typed_into_a_form_of_optional_fields_can_still_be_accepted(ask: Any) -> None:
    schema = {"type": "object", "properties": {"note": {"type": "string"}, "more": True}}
    assert ask("\n\ny\n", mode="form", requested_schema=schema)[0] is True
    assert ask("\n\n\n", mode="form", requested_schema=schema)[0] is False


def test_without_a_terminal_nobody_is_asked(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("y\n"))
    output = Output()
    request = SimpleNamespace(message="Pay?", mode="url", url="https://example.com")
    assert ask_in_terminal(request, output, Progress(disable=True)) is None
    assert "there is no terminal to answer in: Pay?" in capsys.readouterr().err
