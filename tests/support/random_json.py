# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Random values of JSON, with what is difficult to parse and to write.
"""

import random
from typing import Any

TEXTS = ["", "x" * 40, 'a "quote"\n', "\\", "\\\\", "[,]{}", "\u00e9\U0001f600", ",", "\x00"]
SCALARS: list[Any] = [0, -2.5, 1e300, float("inf"), 10**25, True, None, *TEXTS]

_DEEPEST = 5


def random_value(source: random.Random, depth: int = 0) -> Any:
    kind = source.random()
    if depth < _DEEPEST and kind < 0.35:
        return [random_value(source, depth + 1) for _ in range(source.randrange(7))]
    if depth < _DEEPEST and kind < 0.7:
        keys = [source.choice(TEXTS) + str(source.randrange(4)) for _ in range(source.randrange(7))]
        return {key: random_value(source, depth + 1) for key in keys}
    return source.choice(SCALARS)
