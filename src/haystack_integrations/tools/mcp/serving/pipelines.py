# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

"""
Serves pipelines as tools: chooses the inputs and outputs for clients, and runs calls.

A socket is written as in `Pipeline.connect`: `"retriever.query"`. A name without a dot stands for all open sockets of
that name.
"""

from __future__ import annotations

import asyncio
import copy
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml
from haystack import Pipeline
from haystack.core.errors import DeserializationError
from haystack.core.pipeline.base import PipelineBase

from haystack_integrations.tools.mcp.haystack_compat import (
    has_chosen_inputs,
    is_async_pipeline,
    parameter_descriptions,
    super_component_class,
)
from haystack_integrations.tools.mcp.serving.calls import (
    CallPool,
    ProgressReporter,
    ServedCall,
    ServedTool,
    errors_named,
)
from haystack_integrations.tools.mcp.serving.schemas import (
    InputSchema,
    ServedInput,
    UnservableTypeError,
    as_declared,
    is_servable,
    output_schema,
)
from haystack_integrations.tools.mcp.serving.sources import NamedOptions, ServeOptions, Source, check_known

_YAML_SUFFIXES = (".yaml", ".yml")

_QUOTED_DATA = re.compile(r" with the following data:\n.*\n\n(?=Original error: )", re.DOTALL)

# The component and the name of its socket.
Socket = tuple[str, str]


def pipeline_sources(pipelines: Mapping[str, Any], *, options: NamedOptions, pool: CallPool) -> Iterator[Source]:
    """
    Serve each pipeline as a tool: its inputs are the arguments, its outputs the structured result.

    :param pipelines: Pipelines and SuperComponents by the names that clients see. A `Path`, or a text that ends with
        `.yaml` or `.yml`, is a YAML file; any other text is YAML itself. Both go through the checks of
        `Pipeline.loads`.
    :param options: Their options, by the same names.
    :param pool: The pool for their calls.
    :returns: A source for each.
    :raises ValueError: If one cannot be served; the message says why.
    :raises DeserializationError: If YAML cannot be loaded.
    """
    for name, given, own_options in options.each("pipelines", pipelines, "pipelines"):
        with errors_named("pipeline", name):
            if isinstance(given, super_component_class()):
                pipeline, inputs, outputs = given.pipeline, *_sockets_of_names(given, own_options)
                served_as = replace(own_options, description=own_options.description or _docstring_of_subclass(given))
            else:
                pipeline, served_as = _checked_pipeline(name, given), own_options
                inputs, outputs = own_options.inputs, own_options.outputs
            tool = _serve_pipeline(name, pipeline, inputs, outputs, served_as, pool)
        yield Source([tool], [pipeline])


def _serve_pipeline(
    name: str, pipeline: Any, chosen_inputs: Any, chosen_outputs: Any, options: ServeOptions, pool: CallPool
) -> ServedTool:
    served, sockets = _map_inputs(pipeline, chosen_inputs, options.bound)
    outputs = _map_outputs(pipeline, chosen_outputs)
    schema = InputSchema(served)
    observed = _observed(pipeline)
    run_options = {"include_outputs_from": {component for (component, _), _ in outputs.values()}}
    count = len(list(pipeline.walk()))

    async def body(arguments: dict[str, Any], call: ServedCall) -> Any:
        async with ProgressReporter(call, total=count, delays_first_report=True) as progress:
            data: dict[str, dict[str, Any]] = {}
            for name_of_input, value in arguments.items():
                for component, socket in sockets[name_of_input]:
                    data.setdefault(component, {})[socket] = value
            given = {"data": data, **run_options}
            component_outputs = await _run(observed, given, progress, call)
        return {
            name: await call.read_generator(value)
            for name, value in _results_for_clients(component_outputs, outputs).items()
        }

    return ServedTool.create(
        name=name,
        description=_description(pipeline),
        parameters=schema.json_schema,
        inputs=schema,
        body=body,
        options=options,
        pool=pool,
        kind="pipelines",
        output_schema=output_schema(
            {name: declared for name, (_, declared) in outputs.items()}, include_embeddings=options.include_embeddings
        ),
    )


# Called with the name of each component of a served pipeline before it runs. It can stop the run with an exception.
_before_component: ContextVar[Callable[[str], None]] = ContextVar("mcp_haystack_before_component")


async def _run(
    observed: Any, parameters: dict[str, Any], progress: ProgressReporter, call: ServedCall
) -> dict[str, Any]:
    runs_async = is_async_pipeline(observed)
    tasks: set[Any] = set()

    def before(component: str) -> None:
        call.check()
        if runs_async:
            tasks.add(asyncio.current_task())
        progress.step(f"Running {component}")

    token = _before_component.set(before)
    try:
        if runs_async:
            return dict(await observed.run_async(**parameters))
        return dict(await call.in_thread(lambda: observed.run(**parameters)))
    finally:
        _before_component.reset(token)
        # Haystack 2 does not end the tasks of other components if a run is cancelled, or a component fails.
        for task in tasks - {asyncio.current_task()}:
            task.cancel()


def _observed(pipeline: Any) -> Any:
    """
    Copy a pipeline so that `_before_component` is called for each component before it runs.

    All runs share one copy, because Haystack records in a pipeline when it last sent telemetry about it.

    :param pipeline: A pipeline. It is not changed, and shares its components and connections with the copy.
    :returns: The copy.
    """

    def announcing(run_component: Callable[..., Any]) -> Callable[..., Any]:
        # This works for coroutine functions as well, because the result is passed on.
        def run(component_name: str, *args: Any, **kwargs: Any) -> Any:
            _before_component.get()(component_name)
            return run_component(component_name, *args, **kwargs)

        return run

    observed = copy.copy(pipeline)
    for name in ("_run_component", "_run_component_async"):
        run_component = getattr(pipeline, name, None)
        if run_component is not None:
            setattr(observed, name, announcing(run_component))
    return observed


def _results_for_clients(
    component_outputs: Mapping[str, Any], outputs: Mapping[str, tuple[Socket, Any]]
) -> dict[str, Any]:
    """
    Return the outputs for clients, except None and outputs of branches that did not run.
    """
    results = {
        name: component_outputs.get(component, {}).get(output) for name, ((component, output), _) in outputs.items()
    }
    return as_declared(results, {name: declared for name, (_, declared) in outputs.items()})


def _checked_pipeline(name: str, given: Any) -> Any:
    pipeline = _load(name, given) if isinstance(given, str | Path) else given
    if not isinstance(pipeline, PipelineBase):
        msg = (
            "A pipeline is given as Pipeline, AsyncPipeline (Haystack 2), SuperComponent, YAML or path of a YAML file, "
            f"not as {type(given).__name__}."
        )
        raise ValueError(msg)
    return pipeline


def _sockets_of_names(given: Any, options: ServeOptions) -> tuple[Any, Any]:
    """
    Translate the names of a SuperComponent's inputs and outputs into sockets of its pipeline.

    Unlike names in options, its own names are not checked: they may be any text.
    """
    inputs: Any = None
    if options.inputs is not None or has_chosen_inputs(given):
        inputs = _resolve_names("inputs", options.inputs, given.input_mapping)
        inputs.update({name: given.input_mapping[name] for name in options.bound if name in given.input_mapping})
    outputs = _resolve_names("outputs", options.outputs, {name: path for path, name in given.output_mapping.items()})
    return inputs, outputs


def _docstring_of_subclass(given: Any) -> str | None:
    is_plain = type(given).__module__.startswith("haystack.")
    return None if is_plain else inspect.getdoc(type(given)) or None


def _resolve_names(option: str, chosen: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """
    Replace the names of a SuperComponent by the sockets that they stand for.
    """
    if chosen is None:
        return dict(known)
    by_name = chosen if isinstance(chosen, Mapping) else {name: name for name in chosen}
    replaced: dict[str, Any] = {}
    for name, names in by_name.items():
        for each in [names] if isinstance(names, str) else names:
            check_known(option, [each], known, f"the {option} of the SuperComponent")
            path = known[each]
            replaced[name] = path if isinstance(path, str) else [*replaced.get(name, []), *path]
    return replaced


def _load(name: str, given: str | Path) -> Pipeline:
    is_file = isinstance(given, Path) or ("\n" not in given and given.endswith(_YAML_SUFFIXES))
    source = f"the file {given}" if is_file else "the YAML that was given"
    problem = f"The pipeline '{name}' cannot be loaded from {source}"
    try:
        text = Path(given).read_text(encoding="utf-8") if is_file else str(given)
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{problem}: {error}. Pass the path of a readable file in UTF-8"
        raise DeserializationError(msg) from error
    try:
        return Pipeline.loads(text)
    except Exception as error:
        malformed: Any = error.__cause__ if isinstance(error.__cause__, yaml.YAMLError) else None
        # These errors may contain secrets: YAML quotes its lines, and Haystack the parameters of a component.
        reason = str(malformed or _QUOTED_DATA.sub(". ", str(error)))
        mark = getattr(malformed, "problem_mark", None)
        if mark is not None:
            reason = f"it is malformed in line {mark.line + 1}, column {mark.column + 1}: {malformed.problem}"
        msg = f"{problem}: {reason}"
        raise DeserializationError(msg) from error


def _description(pipeline: Any) -> str:
    description = pipeline.metadata.get("description")
    if isinstance(description, str) and description:
        return description
    return f"Runs a pipeline of {', '.join(name for name, _ in pipeline.walk())}."


def _map_inputs(
    pipeline: Any, chosen: Mapping[str, Any] | Sequence[str] | None, bound: Iterable[str]
) -> tuple[dict[str, ServedInput], dict[str, tuple[Socket, ...]]]:
    """
    Return the inputs that clients set, and the sockets of all arguments, including bound ones; both by name.

    By default, clients set the mandatory inputs and the variables of prompts.
    """
    sockets = {
        (component, name): socket for component, found in pipeline.inputs().items() for name, socket in found.items()
    }
    mapped = _default_inputs(pipeline, sockets) if chosen is None else _chosen_inputs(chosen, sockets)
    hidden = {name: mapped.pop(name) if name in mapped else _find("bound", name, sockets) for name in bound}
    bound_sockets = {socket for group in hidden.values() for socket in group}
    mapped = {
        name: unbound
        for name, group in mapped.items()
        if (unbound := tuple(each for each in group if each not in bound_sockets))
    }
    _check_mandatory(sockets, bound_sockets.union(*mapped.values()))
    served = {
        name: _served_input(name, [sockets[each] for each in group], pipeline, group) for name, group in mapped.items()
    }
    return served, {**mapped, **hidden}


def _map_outputs(pipeline: Any, chosen: Mapping[str, str] | Sequence[str] | None) -> dict[str, tuple[Socket, Any]]:
    """
    Return the sockets of the outputs that clients get, and their types, by the names for clients.

    By default, these are the outputs that no other component takes.
    """
    all_outputs = _output_types(pipeline.outputs(include_components_with_connected_outputs=True))
    if chosen is None:
        return {
            name: (socket, all_outputs[socket])
            for name, socket in _unique_names(_output_types(pipeline.outputs())).items()
        }
    path_by_name = chosen if isinstance(chosen, Mapping) else {each.rpartition(".")[2]: each for each in chosen}
    if len(path_by_name) < len(chosen):
        msg = f"Several of the outputs {list(chosen)} have the same name. Name them: {{'name': 'component.output'}}."
        raise ValueError(msg)
    mapped = {}
    for name, path in path_by_name.items():
        matches = _find("outputs", path, all_outputs)
        socket, *others = matches
        if others:
            msg = f"Several components have the output '{path}': {_socket_names(matches)}. Name one of them."
            raise ValueError(msg)
        mapped[name] = (socket, all_outputs[socket])
    return mapped


def _output_types(outputs: dict[str, dict[str, Any]]) -> dict[Socket, Any]:
    return {(component, name): info["type"] for component, found in outputs.items() for name, info in found.items()}


def _unique_names(sockets: Iterable[Socket]) -> dict[str, Socket]:
    """
    Name each socket by itself, or with its component if that would be ambiguous.
    """
    sockets = list(sockets)
    names = [name for _, name in sockets]
    return {name if names.count(name) == 1 else f"{component}_{name}": (component, name) for component, name in sockets}


def _default_inputs(pipeline: Any, sockets: dict[Socket, Any]) -> dict[str, tuple[Socket, ...]]:
    """
    Return the mandatory inputs, and the variables of prompts, which are not mandatory on Haystack 2.

    One argument is passed to all sockets of its name if their types are the same.
    """
    default_sockets = [
        (component, name)
        for (component, name), socket in sockets.items()
        if socket["is_mandatory"] or name in _prompt_variables(pipeline.get_component(component))
    ]
    groups: dict[str, tuple[Socket, ...]] = {}
    for name in dict.fromkeys(name for _, name in default_sockets):
        group = tuple(each for each in default_sockets if each[1] == name)
        if len({str(sockets[each]["type"]) for each in group if sockets[each]["type"] is not Any}) > 1:
            groups.update({f"{component}_{name}": ((component, name),) for component, _ in group})
        else:
            groups[name] = group
    return groups


def _prompt_variables(component: Any) -> Sequence[str]:
    """
    Return the variables that a prompt builder renders as empty if they are missing, because none is set as required.
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
        check_known(option, [path], map(".".join, sockets), "the sockets of the pipeline")
    return found


def _socket_names(sockets: Iterable[Socket]) -> str:
    return ", ".join(".".join(each) for each in sockets) or "none"


def _check_mandatory(sockets: dict[Socket, Any], set_sockets: set[Socket]) -> None:
    missing = [each for each, socket in sockets.items() if socket["is_mandatory"] and each not in set_sockets]
    if missing:
        msg = (
            f"Nothing sets {_socket_names(missing)}, without which the pipeline cannot run. Add to `inputs` or `bound`."
        )
        raise ValueError(msg)


def _served_input(name: str, found: list[dict[str, Any]], pipeline: Any, group: tuple[Socket, ...]) -> ServedInput:
    typed = [socket for socket in found if socket["type"] is not Any] or found
    if len({str(socket["type"]) for socket in typed}) > 1:
        shown = ", ".join(f"{'.'.join(each)} ({socket['type']})" for each, socket in zip(group, found, strict=True))
        msg = f"The input '{name}' goes to sockets of different types: {shown}. Give them different names."
        raise ValueError(msg)
    declared = typed[0]["type"]
    if not is_servable(declared):
        msg = (
            f"The input '{name}' ({_socket_names(group)}) is of type {declared}, which clients cannot send. "
            "Set it with `bound`, or connect it."
        )
        raise UnservableTypeError(msg)
    described = [
        parameter_descriptions(pipeline.get_component(component)).get(socket, "") for component, socket in group
    ]
    default = typed[0].get("default_value")
    return ServedInput(
        declared,
        required=any(socket["is_mandatory"] for socket in found),
        default=default,
        description=next(filter(None, described), ""),
    )
