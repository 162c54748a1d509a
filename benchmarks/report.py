# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""From measurements to a table, and from targets to a verdict."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import median

from cases import FLOOR, OURS, OURS_ASYNCIO, SUBJECTS, UPSTREAM, Case


@dataclass
class Row:
    """What was measured in one case: seconds of every subject in every round (None: no answer in this round)."""

    name: str
    title: str
    unit: str = "s"
    rounds: dict[str, list[float | None]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """Why a subject has no figures."""
    at_most: dict[str, float] = field(default_factory=dict)

    def add(self, subject: str, value: float | None) -> None:
        """Add a round of a subject."""
        self.rounds.setdefault(subject, []).append(value)

    def typical(self, subject: str) -> float | None:
        """The median of a subject's rounds."""
        values = [value for value in self.rounds.get(subject, ()) if value is not None]
        return median(values) if values else None

    def ratio(self, subject: str, to: str) -> float | None:
        """
        The median, over the rounds, of how a subject compares with another in the same round.

        The machine is slower in some minutes than in others; two neighbours in time saw the same machine.
        """
        pairs = zip(self.rounds.get(subject, ()), self.rounds.get(to, ()), strict=False)
        ratios = [one / other for one, other in pairs if one is not None and other]
        return median(ratios) if ratios else None


@dataclass(frozen=True)
class Verdict:
    """A target and what became of it."""

    row: str
    what: str
    value: float | None
    limit: float
    passed: bool


class Report:
    """All rows of a run."""

    def __init__(self, environments: dict[str, str]) -> None:
        self.environments = environments
        self.rows: dict[str, Row] = {}

    def row(self, case: Case) -> Row:
        """The row of a case, which is made if it is not there."""
        return self.rows.setdefault(case.name, Row(case.name, case.title, at_most=dict(case.at_most)))

    def figure(self, case: Case, subject: str, name: str, value: float) -> None:
        """Add what a case showed beside its time."""
        titles = {
            "stall": ("… the caller's loop stood still for", "s"),
            "processes": ("… processes", ""),
            "megabytes": ("… their memory", "MB"),
            "import": ("the import alone", "s"),
        }
        title, unit = titles[name]
        limits = {"processes": {"limit": 1.0}}.get(name, {})
        key = f"{case.name}:{name}"
        self.rows.setdefault(key, Row(key, title, unit, at_most=dict(limits))).add(subject, value)

    def add_linearity(self) -> None:
        """
        What one more tool costs in a large toolset, compared with a small one.

        Quadratic cost would give 5.5. Linear cost is seen as up to 2, because only many tools are worth a full garbage
        collection, which the smaller toolsets escape.
        """
        for server in ("stdio", "http"):
            sizes = (100, 1_000, 5_000)
            rows = [self.rows.get(f"toolset-{size}-{server}") for size in sizes]
            if not all(rows):
                continue
            key = f"linearity-{server}"
            row = Row(key, f"… a tool's cost at 5,000 against 1,000, {server}", "x", at_most={"limit": 2.5})
            for subject in SUBJECTS:
                small, middle, large = (found.typical(subject) if found else None for found in rows)
                if small is not None and middle is not None and large is not None and middle > small:
                    row.add(
                        subject, (large - middle) / (sizes[2] - sizes[1]) / (middle - small) * (sizes[1] - sizes[0])
                    )
            if row.rounds:
                self.rows[key] = row

    def _compare(self, row: Row, to: str) -> float | None:
        """What a target of a row is about; `to` is a subject, or names another row."""
        if to == "limit":
            return row.typical(OURS)
        if to in SUBJECTS:
            return row.ratio(OURS, to)
        ours = row.typical(OURS)
        other = {
            "floor of warm-up-1": ("warm-up-1", FLOOR),
            "2.1.1's import": ("cold-start:import", UPSTREAM),
        }[to]
        reference = self.rows[other[0]].typical(other[1]) if other[0] in self.rows else None
        return ours / reference if ours is not None and reference else None

    def verdicts(self, tolerance: float) -> list[Verdict]:
        """Every target, and that nothing is slower than 2.1.1."""
        found = []
        for row in self.rows.values():
            if OURS in row.notes:
                found.append(Verdict(row.name, f"{OURS} failed", None, 0, passed=False))
                continue
            if row.typical(OURS) is None:
                continue
            targets = dict(row.at_most)
            if row.unit == "s" and row.typical(UPSTREAM) is not None:
                targets[UPSTREAM] = 1.0
            for to, limit in targets.items():
                value = self._compare(row, to)
                if value is None:
                    continue  # That subject or row was left out of this run.
                what = OURS if to == "limit" else f"{OURS} / {to}"
                allowed = limit if row.unit == "" else limit * (1 + tolerance)
                found.append(Verdict(row.name, what, value, limit, passed=value <= allowed))
        return found

    def as_json(self, tolerance: float) -> dict:
        """Everything, for machines."""
        return {
            "environments": self.environments,
            "rows": [
                {
                    **asdict(row),
                    "median": {subject: row.typical(subject) for subject in row.rounds},
                    "ratio": {to: row.ratio(OURS, to) for to in (FLOOR, UPSTREAM)},
                }
                for row in self.rows.values()
            ],
            "targets": [asdict(verdict) for verdict in self.verdicts(tolerance)],
        }

    def table(self, tolerance: float) -> str:
        """A Markdown table, one row a case."""
        head = [
            "case", "", FLOOR, OURS, "… no uvloop", UPSTREAM, f"{OURS} / {FLOOR}", f"… no uvloop / {FLOOR}",
            f"{OURS} / {UPSTREAM}", "target",
        ]  # fmt: skip
        verdicts: dict[str, list[Verdict]] = {}
        for verdict in self.verdicts(tolerance):
            verdicts.setdefault(verdict.row, []).append(verdict)
        lines = [
            [
                row.name,
                row.title,
                *(_cell(row, subject) for subject in (FLOOR, OURS, OURS_ASYNCIO, UPSTREAM)),
                *(_ratio(row.ratio(*pair)) for pair in ((OURS, FLOOR), (OURS_ASYNCIO, FLOOR), (OURS, UPSTREAM))),
                "; ".join(_verdict(verdict) for verdict in verdicts.get(row.name, ()) if _worth_saying(verdict)),
            ]
            for row in self.rows.values()
        ]
        return _markdown([head, *lines])

    def failures(self) -> list[str]:
        """Subjects that gave no answer, and the last line of what they said instead."""
        return [
            f"{row.name}, {name}: {note.strip().splitlines()[-1]}"
            for row in self.rows.values()
            for name, note in row.notes.items()
        ]


def _worth_saying(verdict: Verdict) -> bool:
    """That something is faster than 2.1.1 can be seen from its column."""
    return not verdict.passed or verdict.what != f"{OURS} / {UPSTREAM}"


def _verdict(verdict: Verdict) -> str:
    if verdict.value is None:
        return verdict.what.upper()
    outcome = "MISSED" if not verdict.passed else "ok" if verdict.value <= verdict.limit else "within tolerance"
    return f"{outcome}: {verdict.what} {verdict.value:.2f}, at most {verdict.limit:g}"


def _cell(row: Row, subject: str) -> str:
    value = row.typical(subject)
    if value is None:
        return "-"
    if row.unit != "s":
        return f"{value:.2f}" if row.unit == "x" else f"{value:,.0f} {row.unit}".strip()
    return f"{value:,.2f} s" if value >= 1 else f"{value * 1e3:,.{0 if value >= 0.1 else 2}f} ms"


def _ratio(value: float | None) -> str:
    return "-" if value is None else f"{value:.2f}"


def _markdown(rows: Iterable[list[str]]) -> str:
    rows = list(rows)
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    numbers = range(2, len(widths) - 1)

    def line(cells: list[str]) -> str:
        padded = [
            cell.rjust(width) if column in numbers else cell.ljust(width)
            for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
        ]
        return f"| {' | '.join(padded)} |"

    rule = ["-" * (width - 1) + ":" if column in numbers else "-" * width for column, width in enumerate(widths)]
    return "\n".join([line(rows[0]), line(rule), *(line(row) for row in rows[1:])])
