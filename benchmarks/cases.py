# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""The benchmark cases: what is measured, how often, and the targets."""

from dataclasses import dataclass, field, replace
from typing import Any, Literal

DIRECT, FLOOR, OURS, OURS_PLAIN, UPSTREAM = "direct", "floor", "ours", "ours-plain", "2.1.1"
CLIENTS = (DIRECT, FLOOR, OURS, OURS_PLAIN, UPSTREAM)
NEIGHBOURS = ("pydantic-ai", "langchain", "openai-agents", "fastmcp-client")
FASTMCP, HAYHOOKS = "fastmcp", "hayhooks"
SERVERS = (FASTMCP, OURS, HAYHOOKS)
SUBJECTS = (*CLIENTS, *NEIGHBOURS, FASTMCP, HAYHOOKS)
COMPARED_CLIENTS = (DIRECT, OURS, OURS_PLAIN, *NEIGHBOURS)
ALL_BRIDGES = (FLOOR, OURS, OURS_PLAIN, UPSTREAM)
MAIN_SUBJECTS = (FLOOR, OURS, UPSTREAM)

SLOW_SERVERS, SLOW_START = 10, 0.3
FILE_SERVERS, SLOWEST_START, DEAD_SERVER = 20, 1.0, ["-I", "-S", "-c", "raise SystemExit(3)"]
"""The servers of a file: the first takes SLOWEST_START to start, the last exits at once, the others take SLOW_START."""
SEARCHED_SERVERS, SEARCHED_TOOLS = 20, 250
"""The servers whose tools are searched, and how many tools each has."""
IDLE_STDIO, IDLE_HTTP = 50, 200
"""How many unused sessions are open."""
SINGLE_TOOLS = 20
MANY_TOOLS = 1_000
"""How many tools the server has whose listing is measured."""
LOAD_CLIENTS, LOAD_PLACES, LOAD_SECONDS = 64, 8, 0.2
"""How many clients call a pipeline at once, how many of their calls run at a time, and how long the pipeline takes."""
CALLED_TOOLS = 3
"""The number of tools that every server has besides the generated ones: `echo`, `sleep` and `big`."""


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
class Ratio:
    """A target: the highest ratio of one subject's time, or of another figure, to that of another subject."""

    subject: str
    to: str
    at_most: float
    figure: str = ""


@dataclass(frozen=True)
class Case:
    """One row of the table."""

    name: str
    title: str
    request: dict[str, Any]
    """The request to the workers. The driver adds `target` and `targets`."""
    quick: Repeats | None
    full: Repeats
    server: Literal[
        "stdio",
        "http",
        "costless-stdio",
        "costless-http",
        "slow",
        "file",
        "many-tools",
        "idle-stdio",
        "idle-http",
        "served",
        "none",
    ] = "stdio"
    generated_tools: int = 0
    subjects: tuple[str, ...] = MAIN_SUBJECTS
    at_most: dict[str, float] = field(default_factory=dict)
    """Targets: the highest ratio of `judged` to the named subject or row."""
    judged: str = OURS
    """The subject that the targets are for."""
    most_stall: float | None = None
    """Target: for how many seconds the caller's loop may stall."""
    most: dict[str, float] = field(default_factory=dict)
    """Targets for other figures that the case reports in addition to its time."""
    least: dict[str, float] = field(default_factory=dict)
    """Targets for other figures that should be high."""
    ratios: tuple[Ratio, ...] = ()
    """Targets for several subjects."""
    content: str = ""
    """What the compared servers serve; see served.py."""

    def ratios_of(self, figure: str) -> tuple[Ratio, ...]:
        """The targets for one figure, "" for the time."""
        return tuple(ratio for ratio in self.ratios if ratio.figure == figure)

    @property
    def connects(self) -> bool:
        """Whether the case measures connecting. All other cases share a connection that stays open."""
        return self.request["case"] in {
            "warm_up_one", "warm_up_many", "warm_up_many_async", "warm_up_file", "warm_up_registry", "single_tools", "toolset",
            "cold_snapshot", "idle",
        }  # fmt: skip

    @property
    def compares(self) -> tuple[str, ...]:
        """The subjects that may have figures for this case: ways to call servers, or ways to serve."""
        if self.server == "served" or self.request["case"] == "serving":
            return SERVERS
        return COMPARED_CLIENTS if self.subjects == COMPARED_CLIENTS else CLIENTS

    @property
    def needs_new_process(self) -> bool:
        """Whether every round needs a new process, because memory that earlier rounds have freed would be reused."""
        return self.request["case"] == "idle"

    @property
    def needs_fresh_tools(self) -> bool:
        """Whether every round needs different tools, because a cache by content would speed up the second round."""
        return self.request["case"] == "toolset"


def _call(
    name: str, title: str, request: dict[str, Any], server: Literal["stdio", "http"], quick: int, full: int, **more: Any
) -> Case:
    """A case of single calls. `quick` and `full` are the numbers of calls per turn."""
    subjects = ALL_BRIDGES if more.pop("fast_matters", False) else MAIN_SUBJECTS
    return Case(name, title, request, Repeats(15, quick), Repeats(30, full), server, subjects=subjects, **more)


def _single_calls() -> list[Case]:
    echo = {"tool": "echo", "arguments": {"text": "hello"}}
    cases = []
    for server, label, quick, full in (("stdio", "stdio", 30, 50), ("http", "HTTP", 8, 12)):
        cases += [
            _call(
                f"call-sync-{server}", f"one call, sync, {label}", {"case": "call", **echo},
                server, quick, full, fast_matters=True, at_most={FLOOR: 1.10},
            ),
            _call(
                f"call-async-{server}", f"one call, async, {label}", {"case": "call_async", **echo},
                server, quick, full, fast_matters=True, at_most={FLOOR: 1.10},
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


_COSTLESS_TARGETS: dict[str, tuple[tuple[str, str, float, float], ...]] = {
    "async-stdio": (("", DIRECT, 0.65, 0.65), ("cpu", DIRECT, 0.6, 0.6)),
    "async-http": (("", DIRECT, 0.5, 0.8), ("cpu", DIRECT, 0.45, 0.8)),
    "sync-stdio": (("", FLOOR, 0.45, 0.5),),
    "sync-http": (("", FLOOR, 0.4, 0.75),),
    "256-sleeping-stdio": (("", DIRECT, 0.4, 0.4),),
    "256-sleeping-http": (("", DIRECT, 0.5, 1.0),),
    "1mb-stdio": (("", DIRECT, 0.7, 0.7),),
    "1mb-http": (("", DIRECT, 0.95, 1.1),),
}
"""The figure, the subject to compare with, and our highest ratio with the extra `fast` and without it."""


def _costless_case(
    kind: str, server: str, title: str, request: dict[str, Any], quick: int, full: int, **more: Any
) -> Case:
    """A case of `_costless`. `quick` and `full` are the numbers of units per turn."""
    name = f"{kind}-{server}"
    ratios = [
        Ratio(subject, to, at_most, figure)
        for figure, to, fast, plain in _COSTLESS_TARGETS.get(name, ())
        for subject, at_most in ((OURS, fast), (OURS_PLAIN, plain))
    ]
    label = "HTTP" if server == "http" else server
    subjects = (
        (FLOOR, OURS, OURS_PLAIN) if request["case"] in {"call", "concurrent"} else (DIRECT, FLOOR, OURS, OURS_PLAIN)
    )
    return Case(
        f"costless-{name}", f"{title}, {label}", {**request, "counts_cpu": True},
        Repeats(15 if quick > 3 else 5 if quick > 1 else 3, quick), Repeats(40 if quick > 1 else 10, full),
        "costless-http" if server == "http" else "costless-stdio", subjects=subjects, ratios=tuple(ratios), **more,
    )  # fmt: skip


def _costless() -> list[Case]:
    """Cases for the cost of the client itself, with the extra `fast` and without."""
    echo = {"tool": "echo", "arguments": {"text": "hello"}}
    sleep = {"tool": "sleep", "arguments": {"seconds": 0.05}}
    big = {"tool": "big", "arguments": {"size": 1_000_000}}
    cases = []
    for server in ("stdio", "http"):
        cases += [
            _costless_case(
                "async", server, "one async call that costs the server nothing", {"case": "call_async", **echo}, 50, 100
            ),
            _costless_case("sync", server, "… sync", {"case": "call", **echo}, 50, 100),
            _costless_case(
                "256-async", server, "… 256 of them at once, async",
                {"case": "concurrent_async", **echo, "concurrency": 256}, 3, 5, judged=OURS_PLAIN, most_stall=0.03,
            ),
            _costless_case(
                "256-sleeping", server, "256 calls of 50 ms at once, async",
                {"case": "concurrent_async", **sleep, "concurrency": 256}, 1, 2,
            ),
            _costless_case("1mb", server, "one async call with 1 MB of text", {"case": "call_async", **big}, 3, 5),
        ]  # fmt: skip
    cases.append(
        Case(
            "costless-256-threads-stdio", "256 sync calls at once, in threads, stdio",
            {"case": "concurrent", **echo, "concurrency": 256},
            Repeats(7, 3), Repeats(20, 5), "costless-stdio",
            subjects=(FLOOR, OURS, OURS_PLAIN), at_most={FLOOR: 1.05}, judged=OURS_PLAIN,
        )
    )  # fmt: skip
    cases.append(
        Case(
            "large-result-http", "… 50,000 content blocks, sync, HTTP",
            {"case": "held_up", "tool": "blocks", "arguments": {"size": 50_000}},
            Repeats(5), Repeats(10), "costless-http", subjects=(FLOOR, OURS, OURS_PLAIN, UPSTREAM),
            ratios=(Ratio(OURS_PLAIN, UPSTREAM, 0.3, "held-up"),), judged=OURS_PLAIN,
        )
    )  # fmt: skip
    return cases


def _neighbours() -> list[Case]:
    """Cases for other integrations, with the costless server."""
    echo = {"tool": "echo", "arguments": {"text": "hello"}, "counts_cpu": True}
    return [
        Case(
            f"neighbours-{kind}{server}", f"{title}, {label}", {**request, **echo}, Repeats(10, n), Repeats(20, n),
            f"costless-{server}", subjects=COMPARED_CLIENTS,
            judged=OURS_PLAIN, at_most=dict.fromkeys(NEIGHBOURS, 1.0),
        )
        for server, label in (("stdio", "stdio"), ("http", "HTTP"))
        for kind, title, request, n in (
            ("", "one async call", {"case": "call_async"}, 30),
            ("64-", "… 64 of them at once", {"case": "concurrent_async", "concurrency": 64}, 1),
        )
    ]  # fmt: skip


def _overheads() -> list[Case]:
    """Cases for the overhead of additions to a call; see extras.py."""
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
            subjects=(OURS, OURS_PLAIN), most={"against-slowest": 1.5},
        ),
        Case(
            "warm-up-registry", "… the same servers in a registry, by one alias",
            {"case": "warm_up_registry"}, Repeats(3), Repeats(7), "file",
            subjects=(OURS, OURS_PLAIN), most={"against-slowest": 1.5},
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


def _idle() -> list[Case]:
    """Cases for the cost of unused sessions."""
    most = {"threads": 2.0, "wake-ups": 0.1}
    common = {"request": {"case": "idle"}, "quick": Repeats(1), "full": Repeats(3), "subjects": (FLOOR, OURS)}
    return [
        Case(
            f"idle-{IDLE_STDIO}-stdio", f"{IDLE_STDIO} idle servers over stdio, opened one after the other",
            server="idle-stdio", most={**most, "kilobytes": 250.0}, **common,
        ),
        Case(
            f"idle-{IDLE_HTTP}-http", f"{IDLE_HTTP} idle sessions over HTTP, opened one after the other",
            server="idle-http", most={**most, "kilobytes": 350.0}, **common,
        ),
        Case(
            f"idle-{IDLE_HTTP}-http-at-once", "… opened all at once",
            server="idle-http", most={**most, "kilobytes": 350.0}, **{**common, "request": {"case": "idle", "at_once": True}},
        ),
    ]  # fmt: skip


def _snapshots() -> list[Case]:
    size = 100
    return [
        Case(
            "cold-snapshot", f"{size} tools from a snapshot until usable", {"case": "cold_snapshot", "expected": size},
            Repeats(3), Repeats(7), generated_tools=size - CALLED_TOOLS, subjects=(OURS,),
            most={"sessions": 0.0, "against-connecting": 0.5},
        )
    ]  # fmt: skip


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


def _hooks() -> list[Case]:
    """Cases for the cost of an Agent's hooks."""
    common = {"case": "agent_hooks", "tool": "echo", "arguments": {"text": "hello"}, "calls": 8}
    return [
        Case(
            f"agent-hooks-{server}", f"an Agent with a budget, confirmation and instructions, 8 calls in a step, {label}",
            common, Repeats(9, 5), Repeats(30, 10), server, subjects=(OURS,), most={"overhead": 1.05},
        )
        for server, label in (("stdio", "stdio"), ("http", "HTTP"))
    ]  # fmt: skip


TOOL_SEARCH = Case(
    "tool-search",
    f"a search among {SEARCHED_SERVERS * SEARCHED_TOOLS:,} tools of {SEARCHED_SERVERS} servers",
    {"case": "tool_search", "expected": SEARCHED_SERVERS * (SEARCHED_TOOLS + 1)},
    Repeats(3, 5),
    Repeats(9, 10),
    "many-tools",
    subjects=(OURS,),
    most={"against-haystack": 3.0},
)
SERVING = Case(
    "serving",
    "one call of a served tool, and what serving costs beside FastMCP",
    {"case": "serving"},
    Repeats(1),
    Repeats(3),
    "none",
    subjects=(OURS,),
    most={"tool": 1.5, "pipeline": 1.6, "list-1000": 1.5, "yaml-start": 2.0},
)


def _served() -> list[Case]:
    """Cases in which the same client calls servers over HTTP: this package, functions of FastMCP, and hayhooks."""
    common: dict[str, Any] = {"server": "served", "subjects": SERVERS}
    at_most = {FASTMCP: 1.5, HAYHOOKS: 1.0}
    of_calls = {FASTMCP: 1.2, HAYHOOKS: 1.0}
    adding, praising = {"tool": "add", "arguments": {"a": 1, "b": 2}}, {"tool": "praise", "arguments": {"what": "tea"}}
    return [
        Case(
            "served-tool", "one call of a served tool, HTTP", {"case": "call_async", **adding},
            Repeats(9, 15), Repeats(30, 25), content="calls", at_most=of_calls, **common,
        ),
        Case(
            "served-pipeline", "one call of a served pipeline, HTTP", {"case": "call_async", **praising},
            Repeats(9, 15), Repeats(30, 25), content="calls", at_most=of_calls, **common,
        ),
        Case(
            "served-list-1000", f"a listing of {MANY_TOOLS:,} served tools, HTTP", {"case": "listing", "expected": MANY_TOOLS},
            Repeats(3, 2), Repeats(9, 3), content="many", at_most=at_most, **common,
        ),
        Case(
            "served-yaml-start", "from the start of a process until the pipeline of a YAML file is listed",
            {"case": "start", "expected": 1}, Repeats(2), Repeats(5), content="yaml", at_most=at_most, **common,
        ),
    ]  # fmt: skip


def _load() -> list[Case]:
    """Cases with many clients at once."""
    common: dict[str, Any] = {"server": "served", "subjects": (OURS,), "content": "load"}
    seconds = LOAD_CLIENTS / LOAD_PLACES * LOAD_SECONDS
    waiting = {"case": "load", "tool": "wait", "arguments": {"text": "tea"}, "clients": LOAD_CLIENTS}
    adding = {"case": "load_memory", "tool": "add", "arguments": {"a": 1, "b": 2}, "clients": LOAD_CLIENTS}
    what = f"{LOAD_CLIENTS} clients, a pipeline of {LOAD_SECONDS} s, {LOAD_PLACES} calls at a time"
    cases = [
        Case(
            name, title, {**waiting, "best": seconds, **more}, Repeats(1, 3), Repeats(3, 10),
            least={"throughput": 0.9}, most={"failed": 0.0}, **common,
        )
        for name, title, more in (
            ("load-64", what, {}),
            ("load-64-2025", "… over sessions of revision 2025-11-25", {"mode": "legacy"}),
        )
    ]  # fmt: skip
    return [
        *cases,
        Case(
            "load-memory", f"one of many calls of a served tool by {LOAD_CLIENTS} clients", adding,
            Repeats(1, 2_000), Repeats(1, 10_000), most={"failed": 0.0, "growth": 1.05}, **common,
        ),
    ]  # fmt: skip


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
    *_single_calls(), *_concurrent_calls(), *_costless(), *_neighbours(), *_overheads(), *_agents(), *_hooks(), *_connecting(), *_toolsets(),
    *_snapshots(), *_idle(),
    TOOL_SEARCH, COLD_START, FIRST_WARM_UP,
    SERVING, *_served(), *_load(),
]  # fmt: skip
