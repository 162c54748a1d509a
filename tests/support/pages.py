# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
The pages of the documentation and their blocks. CONTRIBUTING.md lists the comments that blocks may have.
"""

import ast
import importlib.util
import inspect
import re
import types
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from tests.support.majors import HAYSTACK

ROOT = Path(__file__).parents[2]

# A block that needs one of these packages is only compiled where it is missing. All others must be installed.
NOT_IN_THE_TEST_ENVIRONMENT = frozenset({"hayhooks"})


@dataclass(frozen=True)
class Block:
    page: str
    language: str
    code: str
    line: int

    @property
    def id(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def file(self) -> str | None:
        saved = re.match(r"(?:#|//) save as (\S+)\n", self.code)
        return saved[1] if saved else None

    @property
    def needs(self) -> set[str]:
        return set(re.findall(r"^# needs (.+)$", self.code, re.MULTILINE))

    @property
    def calls(self) -> list[tuple[str, dict[str, Any]]]:
        """The tools that the model is supposed to call, with their arguments."""
        calls = []
        for text in re.findall(r"^# the model calls (.+)$", self.code, re.MULTILINE):
            call = ast.parse(text, mode="eval").body
            assert isinstance(call, ast.Call)
            calls.append((ast.unparse(call.func), {str(a.arg): ast.literal_eval(a.value) for a in call.keywords}))
        return calls

    @property
    def printed(self) -> list[str]:
        return re.findall(r"# -> (.*)$", self.code, re.MULTILINE)

    @property
    def runs_until_stopped(self) -> bool:
        return re.search(r"^# stop it with Ctrl\+C$", self.code, re.MULTILINE) is not None

    @property
    def commands(self) -> list[str]:
        """The command lines of a shell block, without comments."""
        lines = (line.partition(" #")[0].strip() for line in self.code.replace("\\\n", " ").splitlines())
        return [line for line in lines if line and not line.startswith("#")]

    @property
    def dialogue(self) -> list[tuple[str, str]]:
        """The commands of a console block, each with its output."""
        said = re.split(r"^\$ (.+)\n", self.code, flags=re.MULTILINE)
        assert said[0] == "", f"{self.id} must begin with a command: $ …"
        return list(zip(said[1::2], said[2::2], strict=True))

    @property
    def runs_here(self) -> bool:
        for need in self.needs - {"OPENAI_API_KEY"}:
            if need.startswith("Haystack"):
                if need != HAYSTACK:
                    return False
            elif importlib.util.find_spec(need) is None:
                assert need in NOT_IN_THE_TEST_ENVIRONMENT, f"{self.id} needs {need}, which is not installed"
                return False
        return True

    def compile(self, urls: dict[str, str] | None = None) -> types.CodeType:
        """
        Compile a Python block, which may use `await` as in a notebook. Lines are numbered as in the page.

        :param urls: URLs to replace in it, with their replacements.
        """
        code = "\n" * self.line + self.code
        for shown, real in (urls or {}).items():
            code = code.replace(shown, real)
        return compile(code, self.page, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)

    @property
    def awaits(self) -> bool:
        return bool(self.compile().co_flags & inspect.CO_COROUTINE)


@dataclass(frozen=True)
class Page:
    name: str

    @cached_property
    def text(self) -> str:
        return (ROOT / self.name).read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        return re.sub(r"^```.*?^```$", "", self.text, flags=re.MULTILINE | re.DOTALL)

    @cached_property
    def blocks(self) -> list[Block]:
        blocks = []
        lines = iter(enumerate(self.text.splitlines(), start=1))
        for number, line in lines:
            if line.startswith("```"):
                code = []
                for _, inner in lines:
                    if inner == "```":
                        break
                    code.append(inner)
                blocks.append(Block(self.name, line[3:], "\n".join(code) + "\n", number))
        return blocks

    @property
    def cells(self) -> list[Block]:
        """The Python blocks that are run, without the files that they use."""
        return [block for block in self.blocks if block.language == "python" and not block.file]

    @property
    def tells_majors_apart(self) -> bool:
        return any(need.startswith("Haystack") for block in self.blocks for need in block.needs)

    @property
    def anchors(self) -> set[str]:
        headings = re.findall(r"^#+ (.+)$", self.prose, re.MULTILINE)
        return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}

    @property
    def sections(self) -> dict[str, str]:
        """The text below each heading of the second level."""
        _heading, *rest = re.split(r"^## (.+)$", self.text, flags=re.MULTILINE)
        return dict(zip(rest[::2], rest[1::2], strict=True))

    def save_files(self, folder: Path) -> None:
        for block in self.blocks:
            if block.file:
                path = folder / block.file
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_text(block.code, encoding="utf-8")


README = Page("README.md")
PAGES = [README, Page("CONTRIBUTING.md"), *(Page(f"docs/{path.name}") for path in sorted((ROOT / "docs").glob("*.md")))]
BLOCKS = [block for page in PAGES for block in page.blocks]
