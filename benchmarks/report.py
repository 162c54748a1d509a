# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""Makes a table from the measurements, and checks them against the targets."""

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field
from statistics import median

from cases import (
    CLIENTS,
    COMPARED_CLIENTS,
    DIRECT,
    FASTMCP,
    FLOOR,
    HAYHOOKS,
    NEIGHBOURS,
    OURS,
    OURS_PLAIN,
    SERVERS,
    SUBJECTS,
    UPSTREAM,
    Case,
    Ratio,
)


@dataclass
class Row:
    """The measurements of one case: the seconds of each subject in each round, or None for a round without an answer."""

    name: str
    title: str
    unit: str = "s"
    rounds: dict[str, list[float | None]] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)
    """Reasons why subjects have no figures."""
    at_most: dict[str, float] = field(default_factory=dict)
    judged: str = OURS
    """The subject that the targets are for."""
    at_least: float | None = None
    """Target of a figure that should be high."""
    ratios: tuple[Ratio, ...] = ()
    """Targets for its ratios."""
    compares: tuple[str, ...] = CLIENTS
    """The columns of its table."""

    def add(self, subject: str, value: float | None) -> None:
        """Add a round of a subject."""
        self.rounds.setdefault(subject, []).append(value)

    def typical(self, subject: str) -> float | None:
        """Return the median of a subject's rounds."""
        values = [value for value in self.rounds.get(subject, ()) if value is not None]
        return median(values) if values else None

    def ratio(self, subject: str, to: str) -> float | None:
        """
        Return the median, over all rounds, of the ratio of two subjects in the same round.

        The speed of the machine varies over time, but hardly within a round.
        """
        pairs = zip(self.rounds.get(subject, ()), self.rounds.get(to, ()), strict=False)
        ratios = [one / other for one, other in pairs if one is not None and other]
        return median(ratios) if ratios else None


@dataclass(frozen=True)
class Verdict:
    """A target and whether it was reached."""

    row: str
    what: str
    value: float | None
    limit: float
    passed: bool
    bound: str = "at most"


class Report:
    """All rows of a run."""

    def __init__(self, environments: dict[str, str]) -> None:
        self.environments = environments
        self.rows: dict[str, Row] = {}

    def row(self, case: Case) -> Row:
        """Return the row of a case, created if necessary."""
        return self.rows.setdefault(
            case.name,
            Row(
                case.name,
                case.title,
                at_most=dict(case.at_most),
                judged=case.judged,
                compares=case.compares,
                ratios=case.ratios_of(""),
            ),
        )

    def figure(self, case: Case, subject: str, name: str, value: float) -> None:
        """Add a figure that a case reports in addition to its time."""
        is_load = case.request["case"] == "load_memory"
        titles = {
            "stall": ("… longest stall of the caller's loop", "s"),
            "cpu": ("… CPU of the client for each call", "s"),
            "processes": ("… processes", ""),
            "megabytes": ("… memory of the server after all calls" if is_load else "… their memory", "MB"),
            "import": ("the import alone", "s"),
            "overhead": ("… divided by the same call without it", "x"),
            "against-haystack": ("… divided by a search of Haystack's SearchableToolset", "x"),
            "against-slowest": ("… divided by the slowest of them alone", "x"),
            "sessions": ("… sessions that were opened", ""),
            "against-connecting": ("… divided by a toolset that connects", "x"),
            "threads": ("… threads more than for one of them", ""),
            "kilobytes": ("… memory for each", "KB"),
            "wake-ups": ("… wake-ups of each in a second", "/s"),
            "tool": ("… a call of a tool, divided by one of plain FastMCP", "x"),
            "pipeline": ("… a call of a pipeline, divided by one of plain FastMCP", "x"),
            "list-1000": ("… a listing of 1,000 tools, divided by one of plain FastMCP", "x"),
            "yaml-start": ("… a start from YAML, divided by one of plain FastMCP", "x"),
            "throughput": ("… their throughput, divided by what the pool allows", "x"),
            "held-up": ("… the longest call of another session meanwhile", "s"),
            "failed": ("… calls that failed", ""),
            "megabytes-1000": ("… memory of the server after 1,000 calls", "MB"),
            "growth": ("… its memory after all calls, divided by that", "x"),
        }
        title, unit = titles[name]
        limits = {"processes": 1.0, "stall": case.most_stall, **case.most}
        at_most = {"limit": limit} if (limit := limits.get(name)) is not None else {}
        key = f"{case.name}:{name}"
        row = Row(
            key, title, unit, at_most=at_most, judged=case.judged, at_least=case.least.get(name), compares=case.compares,
            ratios=case.ratios_of(name),
        )  # fmt: skip
        self.rows.setdefault(key, row).add(subject, value)

    def add_linearity(self) -> None:
        """
        Compare the cost of one more tool in a large toolset and in a small one.

        Quadratic cost gives 5.5. Linear cost gives up to 2, because only large toolsets trigger a full garbage
        collection.
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
        """Return the value to compare with a target. `to` is a subject or the name of another row."""
        if to == "limit":
            return row.typical(row.judged)
        if to in SUBJECTS:
            return row.ratio(row.judged, to)
        ours = row.typical(OURS)
        other = {
            "floor of warm-up-1": ("warm-up-1", FLOOR),
            "2.1.1's import": ("cold-start:import", UPSTREAM),
        }[to]
        reference = self.rows[other[0]].typical(other[1]) if other[0] in self.rows else None
        return ours / reference if ours is not None and reference else None

    def verdicts(self, tolerance: float) -> list[Verdict]:
        """Return the verdict on every target, including that nothing is slower than 2.1.1."""
        found = []
        for row in self.rows.values():
            if row.judged in row.notes:
                found.append(Verdict(row.name, f"{row.judged} failed", None, 0, passed=False))
                continue
            if row.typical(row.judged) is None:
                continue
            targets = dict(row.at_most)
            if row.unit == "s" and row.typical(UPSTREAM) is not None:
                targets[UPSTREAM] = 1.0
            for to, limit in targets.items():
                value = self._compare(row, to)
                if value is None:
                    continue  # This run does not include that subject or row.
                what = row.judged if to == "limit" else f"{row.judged} / {to}"
                allowed = limit if row.unit == "" else limit * (1 + tolerance)
                found.append(Verdict(row.name, what, value, limit, passed=value <= allowed))
            for wanted in row.ratios:
                value = row.ratio(wanted.subject, wanted.to)
                if value is not None:
                    passed = value <= wanted.at_most * (1 + tolerance)
                    what = f"{wanted.subject} / {wanted.to}"
                    found.append(Verdict(row.name, what, value, wanted.at_most, passed=passed))
            value = row.typical(row.judged)
            if row.at_least is not None and value is not None:
                passed = value >= row.at_least * (1 - tolerance)
                found.append(Verdict(row.name, row.judged, value, row.at_least, passed=passed, bound="at least"))
        return found

    def as_json(self, tolerance: float) -> dict:
        """Return all measurements and verdicts."""
        return {
            "environments": self.environments,
            "rows": [
                {
                    **asdict(row),
                    "median": {subject: row.typical(subject) for subject in row.rounds},
                    "ratio": {to: row.ratio(OURS, to) for to in (FLOOR, UPSTREAM, FASTMCP, HAYHOOKS)},
                }
                for row in self.rows.values()
            ],
            "targets": [asdict(verdict) for verdict in self.verdicts(tolerance)],
        }

    def table(self, tolerance: float) -> str:
        """Return Markdown tables of the ways to call servers, of other integrations, and of the servers, with one row for each case."""
        ratios = {
            CLIENTS: (
                (OURS, DIRECT),
                (OURS_PLAIN, DIRECT),
                (OURS, FLOOR),
                (OURS_PLAIN, FLOOR),
                (OURS, UPSTREAM),
            ),
            COMPARED_CLIENTS: tuple((OURS_PLAIN, neighbour) for neighbour in NEIGHBOURS),
            SERVERS: ((OURS, FASTMCP), (OURS, HAYHOOKS)),
        }
        return "\n\n".join(
            self._table_of(rows, compares, pairs, tolerance)
            for compares, pairs in ratios.items()
            if (rows := [row for row in self.rows.values() if row.compares == compares])
        )

    def _table_of(
        self, rows: list[Row], compares: tuple[str, ...], pairs: tuple[tuple[str, str], ...], tolerance: float
    ) -> str:
        names = {OURS_PLAIN: "… without fast"}
        head = [
            "case", "", *(names.get(subject, subject) for subject in compares),
            *(f"{names.get(one, one)} / {other}" for one, other in pairs), "target",
        ]  # fmt: skip
        verdicts: dict[str, list[Verdict]] = {}
        for verdict in self.verdicts(tolerance):
            verdicts.setdefault(verdict.row, []).append(verdict)
        lines = [
            [
                row.name,
                row.title,
                *(_cell(row, subject) for subject in compares),
                *(_ratio(row.ratio(*pair)) for pair in pairs),
                "; ".join(_verdict(verdict) for verdict in verdicts.get(row.name, ()) if _worth_saying(verdict)),
            ]
            for row in rows
        ]
        return _markdown([head, *lines])

    def failures(self) -> list[str]:
        """Return the subjects that failed, with the last meaningful line of their error."""
        return [
            f"{row.name}, {name}: {_last_words(note)}" for row in self.rows.values() for name, note in row.notes.items()
        ]


def _last_words(note: str) -> str:
    # The last line of an exception group is only a line of dashes.
    lines = [line.strip(" |+-") for line in note.splitlines()]
    return next((line for line in reversed(lines) if line), note)


def _worth_saying(verdict: Verdict) -> bool:
    """Return whether to show a verdict. A column of the table already shows which cases are faster than 2.1.1."""
    return not verdict.passed or verdict.what != f"{OURS} / {UPSTREAM}"


def _verdict(verdict: Verdict) -> str:
    if verdict.value is None:
        return verdict.what.upper()
    is_met = verdict.value >= verdict.limit if verdict.bound == "at least" else verdict.value <= verdict.limit
    outcome = "MISSED" if not verdict.passed else "ok" if is_met else "within tolerance"
    return f"{outcome}: {verdict.what} {verdict.value:.2f}, {verdict.bound} {verdict.limit:g}"


def _cell(row: Row, subject: str) -> str:
    value = row.typical(subject)
    if value is None:
        return "-"
    if row.unit != "s":
        return f"{value:.2f}" if row.unit in ("x", "/s") else f"{value:,.0f} {row.unit}".strip()
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
