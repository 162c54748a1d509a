# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Counts the Python calls of one `tool.invoke(a=5, b=3)` over stdio, in all threads.

It counts calls, not seconds, so the machine does not matter. Each time a coroutine is resumed counts as a call of it.

    python benchmarks/frames.py            the totals
    python benchmarks/frames.py --list     and the functions of this package, in the order of their first call
"""

import argparse
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from types import FrameType

SERVER = Path(__file__).parent.parent / "examples" / "servers" / "calculator.py"
PACKAGE = "/haystack_integrations/tools/mcp/"


class Recorder:
    """
    Counts calls while it is switched on.
    """

    def __init__(self) -> None:
        self.is_on = False
        self.calls: Counter[tuple[str, str]] = Counter()

    def __call__(self, frame: FrameType, event: str, _argument: object) -> None:
        if self.is_on and event == "call":
            self.calls[frame.f_code.co_filename, frame.f_code.co_qualname] += 1


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--list", action="store_true", help="list the functions of this package")
    options = parser.parse_args()

    recorder = Recorder()
    threading.setprofile(recorder)  # for the executor's thread, which is not started yet
    sys.setprofile(recorder)
    from haystack_integrations.tools.mcp import MCPTool, StdioServerInfo

    with MCPTool("add", StdioServerInfo(sys.executable, [str(SERVER)])) as tool:
        for _ in range(3):  # the first calls fill caches
            recorder.calls.clear()
            recorder.is_on = True
            tool.invoke(a=5, b=3)
            recorder.is_on = False
            time.sleep(0.1)  # the executor's thread still works after the answer
    sys.setprofile(None)
    threading.setprofile(None)

    ours = {place: count for place, count in recorder.calls.items() if PACKAGE in place[0]}
    files = {file for file, _ in ours}
    print(f"{recorder.calls.total()} Python calls, {sum(ours.values())} of them in {len(files)} files of this package")
    if options.list:
        for (file, name), count in ours.items():
            print(f"{count:3} {file.partition(PACKAGE)[2]} {name}")


if __name__ == "__main__":
    main()
