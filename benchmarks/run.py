# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Compare this package with mcp-haystack 2.1.1, with other integrations and with the bare SDK client.

    python benchmarks/run.py                         # everything
    python benchmarks/run.py --quick --check         # fewer rounds; fails when a target is missed
    python benchmarks/run.py --cases 'call-*' 'agent*'

Needs only the standard library; the environments of the subjects are built in benchmarks/.envs.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import IO, Any

from cases import (
    CASES,
    DEAD_SERVER,
    DIRECT,
    FILE_SERVERS,
    FLOOR,
    HAYHOOKS,
    IDLE_HTTP,
    IDLE_STDIO,
    NEIGHBOURS,
    OURS,
    OURS_PLAIN,
    SEARCHED_SERVERS,
    SEARCHED_TOOLS,
    SLOW_SERVERS,
    SLOW_START,
    SLOWEST_START,
    SUBJECTS,
    UPSTREAM,
    Case,
    Repeats,
)
from compared_servers import NoServerError, compared_server
from environments import BENCHMARKS, ENVIRONMENTS, build_environments, describe_environments, python_of
from report import Report

ANSWER_WITHIN = 300.0
"""Seconds after which a subject that does not answer is killed. The longest measurement takes about 60."""

WORKERS = {
    DIRECT: ("ours", ["--subject", "direct"]),
    FLOOR: ("ours", ["--subject", "floor"]),
    OURS: ("ours", ["--subject", "ours"]),
    OURS_PLAIN: ("ours", ["--subject", "ours", "--without-fast"]),
    UPSTREAM: ("upstream", ["--subject", "upstream"]),
    **{name: ("pydantic-ai" if name == "fastmcp-client" else name, ["--subject", name]) for name in NEIGHBOURS},
}
"""The environment of each subject, and the arguments of its worker."""


class NoAnswerError(Exception):
    """A subject could not answer a request."""


class Worker:
    """The process of a subject. The next request starts it if it is not running."""

    def __init__(self, subject: str, environment: dict[str, str], log: IO[str]) -> None:
        self._subject = subject
        self._environment = environment
        self._log = log
        self._process: subprocess.Popen[str] | None = None

    def ask(self, request: dict[str, Any]) -> dict[str, Any]:
        """
        Send a request and wait for the answer.

        :raises NoAnswerError: If the subject fails, dies or hangs.
        """
        if self._process is None:
            environment, options = WORKERS[self._subject]
            self._process = subprocess.Popen(
                [python_of(environment), BENCHMARKS / "worker.py", *options],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._log, text=True,
                env=self._environment, start_new_session=True,
            )  # fmt: skip
        process = self._process
        watchdog = threading.Timer(ANSWER_WITHIN, self._kill, [process])
        watchdog.start()
        try:
            print(json.dumps(request), file=process.stdin, flush=True)
            line = process.stdout.readline() if process.stdout else ""
        except BrokenPipeError:
            line = ""
        finally:
            watchdog.cancel()
        if not line:
            self.end()
            message = f"no answer within {ANSWER_WITHIN:g} s, or the process died"
            raise NoAnswerError(message)
        answer: dict[str, Any] = json.loads(line)
        if "seconds" not in answer:
            raise NoAnswerError(answer.get("not_supported") or answer["error"])
        return answer

    def close_connections(self) -> None:
        """Close the connections that earlier requests left open."""
        if self._process is not None:
            self.ask({"case": "close"})

    @staticmethod
    def _kill(process: "subprocess.Popen[str]") -> None:
        try:
            os.killpg(process.pid, signal.SIGKILL)
        except ProcessLookupError:
            pass  # The process has just exited.

    def end(self) -> None:
        """Let the process close its connections and exit; kill it if it does not exit."""
        if self._process is None:
            return
        process, self._process = self._process, None
        try:
            process.communicate(timeout=10)
        except subprocess.TimeoutExpired:
            self._kill(process)
            process.communicate()


@contextmanager
def http_server(environment: dict[str, str], *options: str, script: str = "server.py") -> Iterator[str]:
    """Run an HTTP server and yield its URL."""
    command = [python_of("ours"), BENCHMARKS / script, "--transport", "http", *options]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield process.stdout.readline().strip()
        finally:
            process.terminate()


def measure_in_new_process(case: Case, subject: str, environment: dict[str, str]) -> dict[str, Any]:
    """Measure a case that can happen only once in a process."""
    venv, options = WORKERS[subject]
    command = [python_of(venv), BENCHMARKS / f"{case.request['case']}.py", *options[:2]]
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode:
        raise NoAnswerError(done.stderr)
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


class Run:
    """A run over the chosen cases, in which the subjects take turns."""

    def __init__(
        self, subjects: list[str], environment: dict[str, str], ours_path: Path | None, log: IO[str], report: Report
    ) -> None:
        self._subjects = subjects
        self._environment = environment
        # PYTHONPATH is set only for our subjects, because 2.1.1 has the same import path.
        ours = environment | ({"PYTHONPATH": str(ours_path.resolve())} if ours_path else {})
        self._environments = {
            subject: environment if subject in (UPSTREAM, HAYHOOKS, *NEIGHBOURS) else ours for subject in subjects
        }
        self._workers = {
            subject: Worker(subject, self._environments[subject], log) for subject in subjects if subject in WORKERS
        }
        # The SDK's client calls all compared servers.
        self._client = self._workers.get(DIRECT) or Worker(DIRECT, ours, log)
        self._report = report
        self._servers = ExitStack()
        self._common_urls: dict[str, str] = {}
        self._compared: dict[tuple[str, str], dict[str, Any]] = {}

    def measure(self, case: Case, repeats: Repeats) -> None:
        """Measure a case with all subjects, in turns."""
        subjects = [subject for subject in case.subjects if subject in self._subjects]
        row = self._report.row(case)
        if case.connects:
            self._close_connections()
        if case.server == "none":  # This start is not counted, because it compiles the modules.
            for subject in subjects:
                self._measure_one(case, subject, {})
        for number in range(repeats.rounds):
            with self._targets_of(case, seed=number if case.needs_fresh_tools else 0) as targets:
                request = {**case.request, **targets, "n": repeats.n}
                # Each round starts with another subject, so that the order favours no subject.
                shift = number % len(subjects) if subjects else 0
                for subject in subjects[shift:] + subjects[:shift]:
                    if case.needs_new_process:
                        self._workers[subject].end()
                    sits_out = repeats.upstream_rounds is not None and number >= repeats.upstream_rounds
                    if subject in row.notes or (subject == UPSTREAM and sits_out):
                        row.add(subject, None)
                        continue
                    answer = self._measure_one(case, subject, request)
                    row.add(subject, answer.get("seconds"))
                    for name, value in answer.get("figures", {}).items():
                        self._report.figure(case, subject, name, value)

    def _measure_one(self, case: Case, subject: str, request: dict[str, Any]) -> dict[str, Any]:
        try:
            if case.server == "none":
                return measure_in_new_process(case, subject, self._environments[subject])
            if case.server == "served":
                return self._measure_server(case, subject, request)
            return self._workers[subject].ask(request)
        except (NoAnswerError, NoServerError) as error:
            self._report.row(case).notes[subject] = str(error)
            return {}

    def _measure_server(self, case: Case, subject: str, request: dict[str, Any]) -> dict[str, Any]:
        """Let the client call a compared server. All of these use the same protocol revision, unless the case says so."""
        environment = self._environments[subject]
        mode = {"mode": request.get("mode", "legacy" if len(case.subjects) > 1 else "auto")}
        if request["case"] == "start":
            self._client.ask({"case": "close"})  # This also starts the client if it is not running.
            begin = time.perf_counter()
            with compared_server(subject, case.content, environment) as target:
                self._client.ask({**request, "case": "listing", "target": {**target, **mode}})
                seconds = time.perf_counter() - begin
                self._client.close_connections()
            return {"seconds": seconds}
        key = (subject, case.content)
        if key not in self._compared:
            self._compared[key] = self._servers.enter_context(compared_server(*key, environment))
        return self._client.ask({**request, "target": {**self._compared[key], **mode}})

    def _close_connections(self) -> None:
        for worker in self._workers.values():
            worker.close_connections()

    @contextmanager
    def _targets_of(self, case: Case, seed: int) -> Iterator[dict[str, Any]]:
        """Run the servers of a case and yield the targets for its requests."""
        python = str(python_of("ours"))
        options = ["--tools", str(case.generated_tools), "--seed", str(seed)]
        if case.server == "served":
            yield {}  # Each subject starts its own server.
        elif case.server == "http" and case.connects:
            with http_server(self._environment, *options) as url:
                yield {"target": {"url": url}}
        elif case.server in ("http", "costless-http"):
            if case.server not in self._common_urls:
                script = "server.py" if case.server == "http" else "costless_server.py"
                url = self._servers.enter_context(http_server(self._environment, script=script))
                self._common_urls[case.server] = url
            yield {"target": {"url": self._common_urls[case.server]}}
        elif case.server == "costless-stdio":
            yield {"target": {"command": python, "args": ["-I", "-S", str(BENCHMARKS / "costless_server.py")]}}
        elif case.server == "slow":
            args = ["-I", "-S", str(BENCHMARKS / "slow_server.py"), str(SLOW_START)]
            # The arguments differ, because a bridge that shares connections would otherwise start only one server.
            targets = [{"command": python, "args": [*args, f"number-{number}"]} for number in range(SLOW_SERVERS)]
            yield {"target": targets[0], "targets": targets}
        elif case.server == "idle-stdio":
            args = ["-I", "-S", str(BENCHMARKS / "slow_server.py"), "0"]
            yield {"targets": [{"command": python, "args": [*args, f"number-{n}"]} for n in range(IDLE_STDIO + 1)]}
        elif case.server == "idle-http":
            with http_server(self._environment, *options) as url:
                # The URLs differ, because a bridge that shares connections would otherwise open only one session.
                yield {"targets": [{"url": f"{url}?session={n}"} for n in range(IDLE_HTTP + 1)]}
        elif case.server == "many-tools":
            args = ["-I", "-S", str(BENCHMARKS / "slow_server.py"), "0"]
            yield {
                "targets": [
                    {"command": python, "args": [*args, f"server{number}", str(SEARCHED_TOOLS)]}
                    for number in range(SEARCHED_SERVERS)
                ]
            }
        elif case.server == "file":
            args = ["-I", "-S", str(BENCHMARKS / "slow_server.py")]
            starts = [SLOWEST_START, *[SLOW_START] * (FILE_SERVERS - 2)]
            targets = [
                {"command": python, "args": [*args, str(start), f"number-{number}"]}
                for number, start in enumerate(starts)
            ]
            yield {"targets": [*targets, {"command": python, "args": DEAD_SERVER}]}
        else:
            yield {"target": {"command": python, "args": [str(BENCHMARKS / "server.py"), *options]}}

    def end(self) -> None:
        """Stop the workers and the servers."""
        for worker in (*self._workers.values(), self._client):
            worker.end()
        self._servers.close()


def parse_options() -> argparse.Namespace:
    """Parse the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="fewer rounds, no toolset of 5,000")
    parser.add_argument("--cases", nargs="+", metavar="PATTERN", help="only cases whose names match one of these")
    parser.add_argument("--subjects", nargs="+", choices=SUBJECTS, default=SUBJECTS)
    parser.add_argument("--check", action="store_true", help="exit with 1 if a target is missed")
    parser.add_argument("--tolerance", type=float, default=0.05, help="how far a target may be missed (0.05: 5 %%)")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write all measurements to this file")
    parser.add_argument("--ours-path", type=Path, help="take the package from this folder instead of installing it")
    parser.add_argument("--list", action="store_true", help="print the names of the cases")
    return parser.parse_args()


def chosen_cases(options: argparse.Namespace) -> list[tuple[Case, Repeats]]:
    """Return the cases to measure, and how often."""
    patterns = options.cases or ["*"]
    cases = [case for case in CASES if any(fnmatch(case.name, pattern) for pattern in patterns)]
    repeats = [(case, case.quick if options.quick else case.full) for case in cases]
    return [(case, repeat) for case, repeat in repeats if repeat is not None]


def main() -> int:
    """Measure the cases, print the table and check the targets."""
    options = parse_options()
    cases = chosen_cases(options)
    if options.list:
        print("\n".join(f"{case.name:28} {case.title}" for case, _ in cases))
        return 0
    needed = {subject for case, _ in cases for subject in case.subjects} & {*options.subjects}
    build_environments(
        ours_path=options.ours_path,
        upstream=UPSTREAM in needed,
        hayhooks=HAYHOOKS in needed,
        neighbours=not needed.isdisjoint(NEIGHBOURS),
    )
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    environment["HAYSTACK_TELEMETRY_ENABLED"] = "False"
    # Use compiled modules, as users do, but keep them out of the checkout.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(ENVIRONMENTS / "compiled")

    report = Report(describe_environments())
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as log:
        run = Run(list(options.subjects), environment, options.ours_path, log, report)
        try:
            for number, (case, repeats) in enumerate(cases, 1):
                started = time.monotonic()
                run.measure(case, repeats)
                print(f"[{number}/{len(cases)}] {case.name}: {time.monotonic() - started:.1f} s", file=sys.stderr)
        finally:
            run.end()
    report.add_linearity()

    print(f"{', '.join(f'{name}: {versions}' for name, versions in report.environments.items())}")
    print(f"{len(cases)} cases in {time.monotonic() - begin:.0f} s\n")
    print(report.table(options.tolerance))
    for failure in report.failures():
        print(f"\nno figures: {failure}")
    if options.json:
        options.json.write_text(json.dumps(report.as_json(options.tolerance), indent=2))
    missed = [verdict for verdict in report.verdicts(options.tolerance) if not verdict.passed]
    print(f"\n{len(missed)} of {len(report.verdicts(options.tolerance))} targets missed")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main())
