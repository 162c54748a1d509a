# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest

Use = Callable[..., dict[str, Any]]


@pytest.fixture(params=["run", "run_async"])
def use(request: pytest.FixtureRequest) -> Iterator[Use]:
    """
    Runs a component in each of its two ways, and closes it at the end.
    """
    used: list[Any] = []

    def run(component: Any, **inputs: Any) -> dict[str, Any]:
        used.append(component)
        result: dict[str, Any]
        result = component.run(**inputs) if request.param == "run" else asyncio.run(component.run_async(**inputs))
        return result

    yield run
    for component in used:
        component.close()


def inputs_of(component: Any) -> dict[str, bool]:
    """
    Return the inputs of a component, and whether they are mandatory.
    """
    return {name: socket.is_mandatory for name, socket in component.__haystack_input__._sockets_dict.items()}
