# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Which inputs of a pipeline clients set, and which outputs they get.

A socket is written as in `Pipeline.connect`: `"retriever.query"`. A name without a dot stands for all open sockets of
that name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from fastmcp.dependencies import Dependency
from pydantic.fields import FieldInfo

from haystack_integrations.tools.mcp.serving.schemas import (
    ServedInput,
    UnservableTypeError,
    input_descriptions,
    is_servable,
)

# The component and the name of its socket.
Socket = tuple[str, str]


@dataclass(frozen=True)
class InputMapping:
    """
    What becomes of the arguments of a call.

    :param served: The inputs that clients set, by their names for clients.
    :param sockets: Where the arguments go, including bound ones, by name.
    """

    served: dict[str, ServedInput]
    sockets: dict[str, tuple[Socket, ...]]

    def to_run(self, values: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
        """
        Arrange values as `Pipeline.run` takes them.

        :param values: The values by name.
        :returns: The values by component and socket.
        """
        arranged: dict[str, dict[str, Any]] = {}
        for name, value in values.items():
            for component, socket in self.sockets[name]:
                arranged.setdefault(component, {})[socket] = value
        return arranged


def map_inputs(pipeline: Any, chosen: Mapping[str, Any] | Sequence[str] | None, bound: Iterable[str]) -> InputMapping:
    """
    Decide which inputs clients set.

    :param pipeline: The pipeline.
    :param chosen: What the user chose; None for the mandatory inputs and the variables of prompts.
    :param bound: The names of what the server sets.
    :returns: The mapping.
    :raises ValueError: If there is no such input, if a mandatory one is left over, or if clients cannot send it.
    """
    sockets = {
        (component, name): socket for component, found in pipeline.inputs().items() for name, socket in found.items()
    }
    mapped = _default_inputs(pipeline, sockets) if chosen is None else _chosen_inputs(chosen, sockets)
    hidden = {name: mapped.pop(name) if name in mapped else _find("bound", name, sockets) for name in bound}
    taken = {socket for group in hidden.values() for socket in group}
    mapped = {
        name: left for name, group in mapped.items() if (left := tuple(each for each in group if each not in taken))
    }
    _check_mandatory(sockets, taken.union(*mapped.values()))
    _check_defaults(sockets, taken)
    served = {
        name: _served_input(name, [sockets[each] for each in group], pipeline, group) for name, group in mapped.items()
    }
    return InputMapping(served, {**mapped, **hidden})


def map_outputs(pipeline: Any, chosen: Mapping[str, str] | Sequence[str] | None) -> dict[str, tuple[Socket, Any]]:
    """
    Decide which outputs clients get.

    :param pipeline: The pipeline.
    :param chosen: What the user chose; None for those that no other component takes.
    :returns: The socket and its type, by the name for clients.
    :raises ValueError: If there is no such output, or if there are several.
    """
    every = _typed(pipeline.outputs(include_components_with_connected_outputs=True))
    if chosen is None:
        return {name: (socket, every[socket]) for name, socket in _named(_typed(pipeline.outputs())).items()}
    wanted = chosen if isinstance(chosen, Mapping) else {each.rpartition(".")[2]: each for each in chosen}
    if len(wanted) < len(chosen):
        msg = f"Several of the outputs {list(chosen)} have the same name. Name them: {{'name': 'component.output'}}."
        raise ValueError(msg)
    mapped = {}
    for name, path in wanted.items():
        found = _find("outputs", path, every)
        socket, *others = found
        if others:
            msg = f"Several components have the output '{path}': {_listed(found)}. Say which one."
            raise ValueError(msg)
        mapped[name] = (socket, every[socket])
    return mapped


def _typed(outputs: dict[str, dict[str, Any]]) -> dict[Socket, Any]:
    return {(component, name): info["type"] for component, found in outputs.items() for name, info in found.items()}


def _named(sockets: Iterable[Socket]) -> dict[str, Socket]:
    """
    Name each socket for itself; with its component where that is not enough.
    """
    sockets = list(sockets)
    names = [name for _, name in sockets]
    return {name if names.count(name) == 1 else f"{component}_{name}": (component, name) for component, name in sockets}


def _default_inputs(pipeline: Any, sockets: dict[Socket, Any]) -> dict[str, tuple[Socket, ...]]:
    """
    The mandatory inputs, and the variables of prompts, which are not mandatory on Haystack 2.

    One argument goes to all sockets of its name if their types are the same.
    """
    wanted = [
        (component, name)
        for (component, name), socket in sockets.items()
        if socket["is_mandatory"] or name in _prompt_variables(pipeline.get_component(component))
    ]
    groups: dict[str, tuple[Socket, ...]] = {}
    for name in dict.fromkeys(name for _, name in wanted):
        group = tuple(each for each in wanted if each[1] == name)
        if len({str(sockets[each]["type"]) for each in group if sockets[each]["type"] is not Any}) > 1:
            groups.update({f"{component}_{name}": ((component, name),) for component, _ in group})
        else:
            groups[name] = group
    return groups


def _prompt_variables(component: Any) -> Sequence[str]:
    """
    Variables that a prompt builder renders as nothing when they are missing, because nobody said which are required.
    """
    if getattr(component, "required_variables", None):
        return ()
    return getattr(component, "variables", None) or ()


def _chosen_inputs(
    chosen: Mapping[str, Any] | Sequence[str], sockets: dict[Socket, Any]
) -> dict[str, tuple[Socket, ...]]:
    if not isinstance(chosen, Mapping):
        chosen = {each.rpartition(".")[2]: [other for other in chosen if _same_name(each, other)] for each in chosen}
    return {
        name: tuple(
            dict.fromkeys(
                socket
                for path in ([paths] if isinstance(paths, str) else paths)
                for socket in _find("inputs", path, sockets)
            )
        )
        for name, paths in chosen.items()
    }


def _same_name(first: str, second: str) -> bool:
    return first.rpartition(".")[2] == second.rpartition(".")[2]


def _find(option: str, path: str, sockets: Mapping[Socket, Any]) -> tuple[Socket, ...]:
    component, _, name = path.rpartition(".")
    found = tuple(each for each in sockets if each[1] == name and component in ("", each[0]))
    if not found:
        msg = f"`{option}` names '{path}', which is not there. There are {_listed(sockets)}."
        raise ValueError(msg)
    return found


def _listed(sockets: Iterable[Socket]) -> str:
    return ", ".join(".".join(each) for each in sockets) or "none"


def _check_defaults(sockets: dict[Socket, Any], set_: set[Socket]) -> None:
    for each, socket in sockets.items():
        default = socket.get("default_value")
        if isinstance(default, Dependency | FieldInfo) and each not in set_:
            msg = (
                f"The default of {_listed([each])} is a {type(default).__name__.strip('_')}, which a pipeline does not "
                "resolve. Give it another default in the component, or a value with `bound`."
            )
            raise ValueError(msg)


def _check_mandatory(sockets: dict[Socket, Any], given: set[Socket]) -> None:
    missing = [each for each, socket in sockets.items() if socket["is_mandatory"] and each not in given]
    if missing:
        msg = f"Nothing sets {_listed(missing)}, without which the pipeline cannot run. Add to `inputs` or `bound`."
        raise ValueError(msg)


def _served_input(name: str, found: list[dict[str, Any]], pipeline: Any, group: tuple[Socket, ...]) -> ServedInput:
    typed = [socket for socket in found if socket["type"] is not Any] or found
    if len({str(socket["type"]) for socket in typed}) > 1:
        shown = ", ".join(f"{'.'.join(each)} ({socket['type']})" for each, socket in zip(group, found, strict=True))
        msg = f"The input '{name}' goes to sockets of different types: {shown}. Give them names of their own."
        raise ValueError(msg)
    declared = typed[0]["type"]
    if not is_servable(declared):
        msg = (
            f"The input '{name}' ({_listed(group)}) is of type {declared}, which clients cannot send. "
            "Set it with `bound`, or connect it."
        )
        raise UnservableTypeError(msg)
    described = [input_descriptions(pipeline.get_component(component)).get(socket, "") for component, socket in group]
    default = typed[0].get("default_value")
    return ServedInput(
        declared,
        required=any(socket["is_mandatory"] for socket in found),
        default=default,
        description=next(filter(None, described), ""),
    )
