# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""The benchmark cases: what is measured, how often, and the targets."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

DIRECT, FLOOR, OURS, OURS_ASYNCIO, UPSTREAM = "direct", "floor", "ours", "ours-asyncio", "2.1.1"
SUBJECTS = (DIRECT, FLOOR, OURS, OURS_ASYNCIO, UPSTREAM)
ALL_BRIDGES = (FLOOR, OURS, OURS_ASYNCIO, UPSTREAM)
MAIN_SUBJECTS = (FLOOR, OURS, UPSTREAM)

SLOW_SERVERS, SLOW_START = 10, 0.3
FILE_SERVERS, SLOWEST_START, DEAD_SERVER = 20, 1.0, ["-I", "-S", "-c", "raise SystemExit(3)"]
"""The servers of a file: the first takes this long to start, the last ends at once, the others are like the slow ones."""
SINGLE_TOOLS = 20
CALLED_TOOLS = 3
"""`echo`, `sleep` and `big`, which every server has besides the generated tools."""


@dataclass(frozen=True)
class Repeats:
    """How often a case is measured."""

    rounds: int
    """Number of turns per subject."""
    n: int = 1
    """Units per turn. The subject reports their median."""
    upstream_rounds: int | None = None
    """Limits 2.1.1 to this number of rounds, in cases where it is very slow."""


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    title: str
    request: dict[str, Any]
    """The request to the workers. The driver adds `target` and `targets`."""
    quick: Repeats | None
    full: Repeats
    server: Literal["stdio", "http", "costless-stdio", "costless-http", "slow", "file", "none"] = "stdio"
    generated_tools: int = 0
    subjects: tuple[str, ...] = MAIN_SUBJECTS
    at_most: dict[str, float] = field(default_factory=dict)
    """Targets: the highest ratio of `judged` to the named subject or row."""
    judged: str = OURS
    """The subject that the targets are for."""
    most_stall: float | None = None
    """Target: for how many seconds the loop of the caller may stand still."""
    most: dict[str, float] = field(default_factory=dict)
    """Targets for other figures that the case reports in addition to its time."""

    @property
    def connects(self) -> bool:
        """Whether the case measures connecting. All other cases share a connection that stays open."""
        return self.request["case"] in {
            "warm_up_one", "warm_up_many", "warm_up_many_async", "warm_up_file", "single_tools", "toolset",
        }  # fmt: skip

    @property
    def needs_fresh_tools(self) -> bool:
        """Whether every round needs different tools, because a cache by content would speed up the second round."""
        return self.request["case"] == "toolset"


def _call(
    name: str, title: str, request: dict[str, Any], server: Literal["stdio", "http"], quick: int, full: int, **more: Any
) -> Case:
    """A case of single calls. `quick` and `full` are the numbers of calls per turn."""
    subjects = ALL_BRIDGES if more.pop("uvloop_matters", False) else MAIN_SUBJECTS
    return Case(name, title, request, Repeats(15, quick), Repeats(30, full), server, subjects=subjects, **more)


def _single_calls() -> list[Case]:
    echo = {"tool": "echo", "arguments": {"text": "hello"}}
    cases = []
    for server, label, quick, full in (("stdio", "stdio", 30, 50), ("http", "HTTP", 8, 12)):
        cases += [
            _call(
                f"call-sync-{server}", f"one call, sync, {label}", {"case": "call", **echo},
                server, quick, full, uvloop_matters=True, at_most={FLOOR: 1.10},
            ),
            _call(
                f"call-async-{server}", f"one call, async, {label}", {"case": "call_async", **echo},
                server, quick, full, uvloop_matters=True, at_most={FLOOR: 1.10},
            ),
        ]  # fmt: skip
    single = {"via": "tool", **echo}
    cases += [
        _call("call-sync-tool", "one call of a single MCPTool, stdio", {"case": "call", **single}, "stdio", 30, 50),
        _call("call-async-tool", "… async", {"case": "call_async", **single}, "stdio", 30, 50),
        _call("call-ainvoke", "… through ainvoke", {"case": "call_async", **single, "via": "ainvoke"}, "stdio", 30, 50),
    ]
    for size, label, quick, full in ((10_000, "10 KB", 8, 12), (1_000_000, "1 MB", 2, 2)):
        for server, transport in (("stdio", "stdio"), ("http", "HTTP")):
            cases.append(
                _call(
                    f"text-{label.replace(' ', '').lower()}-{server}",
                    f"{label} of text, sync, {transport}",
                    {"case": "call", "tool": "big", "arguments": {"size": size}},
                    server,
                    quick,
                    full,
                )
            )
    return cases


def _concurrent_calls() -> list[Case]:
    sleep = {"tool": "sleep", "arguments": {"seconds": 0.05}}
    cases = []
    for server, label in (("stdio", "stdio"), ("http", "HTTP")):
        for concurrency in (64, 256):
            cases.append(
                Case(
                    f"concurrent-{concurrency}-async-{server}",
                    f"{concurrency} calls of 50 ms at once, async, {label}",
                    {"case": "concurrent_async", **sleep, "concurrency": concurrency},
                    Repeats(2 if concurrency == 256 else 3, 1, upstream_rounds=1),
                    Repeats(7, 1, upstream_rounds=2),
                    server,
                    subjects=ALL_BRIDGES if server == "stdio" else MAIN_SUBJECTS,
                    at_most={FLOOR: 1.15} if concurrency == 256 else {},
                )
            )
        cases.append(
            Case(
                f"concurrent-64-threads-{server}",
                f"64 calls of 50 ms at once, threads, {label}",
                {"case": "concurrent", **sleep, "concurrency": 64},
                Repeats(3, 1),
                Repeats(30, 1),
                server,
            )
        )
    return cases


def _costless() -> list[Case]:
    """What the client itself costs. Without uvloop, as the SDK in the caller's loop runs."""
    echo = {"tool": "echo", "arguments": {"text": "hello"}}
    subjects = (DIRECT, FLOOR, OURS, OURS_ASYNCIO)
    cases = []
    for server, single, many in (("stdio", 1.3, 1.2), ("http", 1.15, 1.1)):
        label = "HTTP" if server == "http" else server
        server_name: Literal["costless-stdio", "costless-http"] = (
            "costless-http" if server == "http" else "costless-stdio"
        )
        cases += [
            Case(
                f"costless-async-{server}", f"one async call that costs the server nothing, {label}",
                {"case": "call_async", **echo}, Repeats(15, 50), Repeats(40, 100), server_name,
                subjects=subjects, at_most={DIRECT: single}, judged=OURS_ASYNCIO,
            ),
            Case(
                f"costless-256-async-{server}", f"… 256 of them at once, {label}",
                {"case": "concurrent_async", **echo, "concurrency": 256}, Repeats(7, 3), Repeats(20, 5), server_name,
                subjects=subjects, at_most={DIRECT: many}, judged=OURS_ASYNCIO, most_stall=0.03,
            ),
        ]  # fmt: skip
    subjects = (FLOOR, OURS, OURS_ASYNCIO)
    big = {"tool": "big", "arguments": {"size": 1_000_000}}
    cases += [
        Case(
            "costless-256-threads-stdio", "… 256 sync calls at once, in threads, stdio",
            {"case": "concurrent", **echo, "concurrency": 256}, Repeats(7, 3), Repeats(20, 5), "costless-stdio",
            subjects=subjects, at_most={FLOOR: 1.05}, judged=OURS_ASYNCIO,
        ),
        Case(
            "costless-1mb-http", "… 1 MB of text, sync, HTTP", {"case": "call", **big},
            Repeats(15, 3), Repeats(40, 5), "costless-http",
            subjects=subjects, at_most={FLOOR: 1.05}, judged=OURS_ASYNCIO,
        ),
    ]  # fmt: skip
    return cases


def _overheads() -> list[Case]:
    """What a call costs more if it has something in addition; see extras.py."""
    echo = {"tool": "echo", "arguments": {"text": "hello"}}
    titles = {
        "progress": "one call that asks for progress",
        "handlers": "… of a server that may ask for everything",
        "context": "… on behalf of a user",
        "interceptor": "… through an interceptor",
    }
    cases = []
    for extra, title in titles.items():
        for server, label, quick, full in (("stdio", "stdio", 50, 100), ("http", "HTTP", 20, 40)):
            cases.append(
                _call(
                    f"overhead-{extra}-{server}", f"{title}, {label}", {"case": "overhead", "extra": extra, **echo},
                    server, quick, full, most={"overhead": 1.05},
                )
            )  # fmt: skip
    return [replace(case, subjects=(OURS,)) for case in cases]


def _connecting() -> list[Case]:
    seconds = f"{SLOW_START} s"
    return [
        Case("warm-up-1", f"1 server of {seconds}", {"case": "warm_up_one"}, Repeats(3), Repeats(7), "slow", subjects=ALL_BRIDGES),
        Case(
            "warm-up-10", f"{SLOW_SERVERS} servers of {seconds}, together", {"case": "warm_up_many"},
            Repeats(2, upstream_rounds=1), Repeats(7, upstream_rounds=2), "slow", subjects=ALL_BRIDGES,
            at_most={"floor of warm-up-1": 1.5},
        ),
        Case(
            "warm-up-10-async", "… from a running loop", {"case": "warm_up_many_async"},
            None, Repeats(5, upstream_rounds=2), "slow",
        ),
        Case(
            "warm-up-file", f"{FILE_SERVERS} servers of a file, one of {SLOWEST_START} s and one dead",
            {"case": "warm_up_file"}, Repeats(3), Repeats(7), "file",
            subjects=(OURS, OURS_ASYNCIO), most={"against-slowest": 1.5},
        ),
        Case(
            "single-tools", f"{SINGLE_TOOLS} MCPTools of one server",
            {"case": "single_tools", "tools": [f"search_collection_0_{index}" for index in range(SINGLE_TOOLS)]},
            Repeats(2, upstream_rounds=0), Repeats(4, upstream_rounds=1), generated_tools=SINGLE_TOOLS,
        ),
    ]  # fmt: skip


def _toolsets() -> list[Case]:
    cases = []
    for server, label in (("stdio", "new process"), ("http", "HTTP")):
        for size in (10, 100, 1_000, 5_000):
            large = size == 5_000
            quick = None if size != 1_000 else Repeats(2, upstream_rounds=1)
            cases.append(
                Case(
                    f"toolset-{size}-{server}",
                    f"a server of {size:,} tools until usable, {label}",
                    {"case": "toolset", "expected": size},
                    quick,
                    Repeats(3 if large else 5, upstream_rounds=1 if large else 2),
                    server,
                    generated_tools=size - CALLED_TOOLS,
                    at_most={FLOOR: 1.5} if size == 1_000 else {},
                )
            )
    return cases


def _agents() -> list[Case]:
    common = {"tool": "echo", "arguments": {"text": "hello"}, "calls": 8}
    cases = []
    for server, label in (("stdio", "stdio"), ("http", "HTTP")):
        cases += [
            Case(
                f"agent-{server}", f"an Agent's run, 8 calls in a step, {label}", {"case": "agent", **common},
                Repeats(9, 2), Repeats(40, 5), server,
            ),
            Case(
                f"agent-async-{server}", f"… run_async, {label}", {"case": "agent_async", **common},
                Repeats(9, 2), Repeats(40, 5), server,
            ),
        ]  # fmt: skip
    return cases


COLD_START = Case(
    "cold-start",
    "import, build tools, load a pipeline",
    {"case": "cold_start"},
    Repeats(2),
    Repeats(5),
    "none",
    at_most={"2.1.1's import": 0.2},
)
FIRST_WARM_UP = Case(
    "first-warm-up",
    "import, first `await warm_up_async()` of a process",
    {"case": "first_warm_up"},
    Repeats(3),
    Repeats(7),
    "none",
    subjects=(OURS, UPSTREAM),
    most_stall=0.05,
)

CASES = [
    *_single_calls(), *_concurrent_calls(), *_costless(), *_overheads(), *_agents(), *_connecting(), *_toolsets(),
    COLD_START, FIRST_WARM_UP,
]  # fmt: skip
