# SPDX-FileCopyrightText: 2026-present the mcp-haystack authors
#
# SPDX-License-Identifier: Apache-2.0

from __future__ import annotations

import asyncio
import inspect
import re
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio.to_thread
import yaml
from fastmcp.exceptions import ToolError
from fastmcp.tools.base import ToolResult
from haystack import Pipeline
from haystack.core.errors import DeserializationError
from haystack.core.pipeline.base import PipelineBase

from haystack_integrations.tools.mcp.haystack_compat import (
    has_chosen_inputs,
    is_async_pipeline,
    super_component_class,
)
from haystack_integrations.tools.mcp.run_observers import component_observer, observed_pipeline
from haystack_integrations.tools.mcp.serving.client_errors import errors_for_client
from haystack_integrations.tools.mcp.serving.options import ServeOptions
from haystack_integrations.tools.mcp.serving.pool import CallPool
from haystack_integrations.tools.mcp.serving.progress import ProgressReporter
from haystack_integrations.tools.mcp.serving.schemas import InputSchema, output_schema
from haystack_integrations.tools.mcp.serving.served_tool import ServedCall, ServedTool
from haystack_integrations.tools.mcp.serving.sockets import InputMapping, Socket, map_inputs, map_outputs
from haystack_integrations.tools.mcp.serving.sources import Source

_YAML_SUFFIXES = (".yaml", ".yml")

_QUOTED_DATA = re.compile(r" with the following data:\n.*\n\n(?=Original error: )", re.DOTALL)


class PipelineSource(Source):
    """
    Serves each pipeline as a tool: its inputs are the arguments, its outputs the structured result.
    """

    def __init__(self, pipelines: Mapping[str, Any], *, options: Mapping[str, ServeOptions], pool: CallPool) -> None:
        """
        Initialize the PipelineSource.

        :param pipelines: Pipelines and SuperComponents by the names that clients see. A `Path`, or a text that ends
            with `.yaml` or `.yml`, is a YAML file; any other text is YAML itself. Both go through the checks of
            `Pipeline.loads`.
        :param options: What is said of them, by the same names.
        :param pool: Where their calls take their places.
        :raises ValueError: If one cannot be served; the message says why.
        :raises DeserializationError: If a YAML cannot be loaded.
        """
        super().__init__()
        if not isinstance(pipelines, Mapping):
            msg = f"`pipelines` must be a dictionary of names to pipelines, got {type(pipelines).__name__}"
            raise ValueError(msg)
        self._served = [
            _served_pipeline(name, given, options.get(name) or ServeOptions()) for name, given in pipelines.items()
        ]
        self._tools = [each.as_tool(pool) for each in self._served]

    @property
    def known_tools(self) -> list[ServedTool]:
        """
        The pipelines.
        """
        return list(self._tools)

    async def list_tools(self) -> list[ServedTool]:
        """
        List the pipelines.

        :returns: A tool for each.
        """
        return list(self._tools)

    async def warm_up(self) -> None:
        """
        Load models and open connections before the first call.
        """
        for each in self._served:
            await each.warm_up()

    async def close(self) -> None:
        """
        Release what the pipelines hold. Haystack 2 has no way to do that.
        """
        for each in self._served:
            await each.close()


@dataclass(frozen=True)
class _Chosen:
    """
    A pipeline, and what was chosen of its inputs and outputs.
    """

    pipeline: Any
    description: str
    inputs: Any = None
    outputs: Any = None


class _ServedPipeline:
    def __init__(self, name: str, chosen: _Chosen, options: ServeOptions) -> None:
        self._name = name
        self._description = chosen.description
        self._options = options
        self._pipeline = observed_pipeline(chosen.pipeline)
        self._runs_async = is_async_pipeline(chosen.pipeline)
        self._count = len(list(chosen.pipeline.walk()))
        self._inputs: InputMapping = map_inputs(chosen.pipeline, chosen.inputs, options.bound)
        self._outputs = map_outputs(chosen.pipeline, chosen.outputs)
        self._schema = InputSchema(self._inputs.served)

    def as_tool(self, pool: CallPool) -> ServedTool:
        declared = {name: declared for name, (_, declared) in self._outputs.items()}
        return ServedTool.create(
            name=self._name,
            description=self._description,
            parameters=self._schema.json_schema,
            body=self._run,
            options=self._options,
            pool=pool,
            kind="pipelines",
            output_schema=None
            if self._makes_result
            else output_schema(declared, include_embeddings=self._options.include_embeddings),
        )

    @property
    def _makes_result(self) -> bool:
        """
        Whether the only output is the result of the call, as a component made it.
        """
        return [declared for _, declared in self._outputs.values()] == [ToolResult]

    async def warm_up(self) -> None:
        if self._runs_async and hasattr(self._pipeline, "warm_up_async"):
            await self._pipeline.warm_up_async()
        else:
            await anyio.to_thread.run_sync(self._pipeline.warm_up)

    async def close(self) -> None:
        if self._runs_async and hasattr(self._pipeline, "close_async"):
            await self._pipeline.close_async()
        elif hasattr(self._pipeline, "close"):
            await anyio.to_thread.run_sync(self._pipeline.close)

    async def _run(self, arguments: dict[str, Any], call: ServedCall) -> Any:
        data = self._inputs.to_run(self._values(arguments))
        wanted = {component for (component, _), _ in self._outputs.values()}
        async with ProgressReporter(call, total=self._count, patient=True) as progress:
            with errors_for_client():
                if self._runs_async:
                    found = await self._run_in_loop(data, wanted, progress)
                else:
                    found = await self._run_in_thread(data, wanted, call, progress)
        results = _results(found, self._outputs)
        return next(iter(results.values()), None) if self._makes_result else results

    def _values(self, arguments: dict[str, Any]) -> dict[str, Any]:
        sent = {name: value for name, value in arguments.items() if name in self._inputs.served}
        bound = {name: value for name, value in arguments.items() if name not in sent}
        try:
            return {**self._schema.convert(sent), **bound}
        except ValueError as error:
            raise ToolError(str(error)) from None

    async def _run_in_loop(self, data: dict[str, Any], wanted: set[str], progress: ProgressReporter) -> dict[str, Any]:
        tasks: set[asyncio.Task[Any]] = set()

        def before(component: str) -> None:
            task = asyncio.current_task()
            if task is not None:
                tasks.add(task)
            progress.step(f"Running {component}")

        try:
            with _observing(before):
                found: dict[str, Any] = await self._pipeline.run_async(data, include_outputs_from=wanted)
            return found
        except asyncio.CancelledError:
            # Haystack 2 leaves the components that run behind.
            for task in tasks - {asyncio.current_task()}:
                task.cancel()
            raise

    async def _run_in_thread(
        self, data: dict[str, Any], wanted: set[str], call: ServedCall, progress: ProgressReporter
    ) -> dict[str, Any]:
        is_abandoned = threading.Event()

        def before(component: str) -> None:
            if is_abandoned.is_set():
                raise _AbandonedError
            progress.step(f"Running {component}")

        def run() -> dict[str, Any]:
            with _observing(before):
                found: dict[str, Any] = self._pipeline.run(data, include_outputs_from=wanted)
            return found

        try:
            return await call.in_thread(run)
        finally:
            # A component that runs cannot be stopped; those after it do not begin.
            is_abandoned.set()


class _AbandonedError(Exception):
    """Raised in a thread whose call was cancelled; nobody sees it."""


@contextmanager
def _observing(observer: Callable[[str], None]) -> Iterator[None]:
    token = component_observer.set(observer)
    try:
        yield
    finally:
        component_observer.reset(token)


def _results(found: Mapping[str, Any], outputs: Mapping[str, tuple[Socket, Any]]) -> dict[str, Any]:
    """
    Take the outputs that clients get. Those of branches that did not run are left out, and so is what is None.
    """
    results = {name: found.get(component, {}).get(output) for name, ((component, output), _) in outputs.items()}
    return {name: value for name, value in results.items() if value is not None}


def _served_pipeline(name: str, given: Any, options: ServeOptions) -> _ServedPipeline:
    try:
        return _ServedPipeline(name, _choose(name, given, options), options)
    except ValueError as error:
        msg = f"The pipeline '{name}' cannot be served. {error}"
        raise ValueError(msg) from error


def _choose(name: str, given: Any, options: ServeOptions) -> _Chosen:
    if isinstance(given, super_component_class()):
        return _choose_of_super_component(given, options)
    pipeline = _load(name, given) if isinstance(given, str | Path) else given
    if not isinstance(pipeline, PipelineBase):
        msg = (
            "A pipeline is given as Pipeline, AsyncPipeline (Haystack 2), SuperComponent, YAML or path of a YAML file, "
            f"not as {type(given).__name__}."
        )
        raise ValueError(msg)
    return _Chosen(pipeline, _description(pipeline), options.inputs, options.outputs)


def _choose_of_super_component(given: Any, options: ServeOptions) -> _Chosen:
    """
    The names of a SuperComponent's inputs and outputs take the place of those of its sockets.
    """
    inputs: Any = None
    if options.inputs is not None or has_chosen_inputs(given):
        inputs = _through("inputs", options.inputs, given.input_mapping)
        inputs.update({name: given.input_mapping[name] for name in options.bound if name in given.input_mapping})
    outputs = _through("outputs", options.outputs, {name: path for path, name in given.output_mapping.items()})
    is_plain = type(given).__module__.startswith("haystack.")
    description = (not is_plain and inspect.getdoc(type(given))) or _description(given.pipeline)
    return _Chosen(given.pipeline, description, inputs, outputs)


def _through(option: str, chosen: Any, known: Mapping[str, Any]) -> dict[str, Any]:
    """
    Replace the names of a SuperComponent by what they stand for.
    """
    if chosen is None:
        return dict(known)
    by_name = chosen if isinstance(chosen, Mapping) else {name: name for name in chosen}
    replaced: dict[str, Any] = {}
    for name, names in by_name.items():
        for each in [names] if isinstance(names, str) else names:
            if each not in known:
                msg = f"`{option}` names '{each}', which is not there. There are {', '.join(known)}."
                raise ValueError(msg)
            path = known[each]
            replaced[name] = path if isinstance(path, str) else [*replaced.get(name, []), *path]
    return replaced


def _load(name: str, given: str | Path) -> Pipeline:
    is_file = isinstance(given, Path) or ("\n" not in given and given.endswith(_YAML_SUFFIXES))
    where = f"the file {given}" if is_file else "the YAML that was given"
    tried = f"The pipeline '{name}' cannot be loaded from {where}"
    try:
        text = Path(given).read_text(encoding="utf-8") if is_file else str(given)
    except FileNotFoundError as error:
        msg = f"{tried}: there is no such file in {Path.cwd()}. Pass the full path, or start in the folder of the file"
        raise DeserializationError(msg) from error
    except (OSError, UnicodeDecodeError) as error:
        msg = f"{tried}: {error}. Pass the path of a readable file in UTF-8"
        raise DeserializationError(msg) from error
    try:
        return Pipeline.loads(text)
    except Exception as error:
        msg = f"{tried}: {_reason(text, error)}"
        raise DeserializationError(msg) from error


def _reason(text: str, error: Exception) -> str:
    """
    Say what is wrong with a YAML: Haystack does not say where, and takes anything for a pipeline.
    """
    try:
        content = yaml.safe_load(text)
    except yaml.MarkedYAMLError as malformed:
        mark = malformed.problem_mark or malformed.context_mark
        where = f" in line {mark.line + 1}, column {mark.column + 1}" if mark is not None else ""
        return f"it is malformed{where}: {malformed.problem or malformed.context}. Correct it there or just before"
    except yaml.YAMLError:
        # What only YAML with classes of Python has, which Haystack knows some of.
        return _without_data(str(error))
    if isinstance(content, Mapping):
        return _without_data(str(error))
    return (
        "it has no `components`, so it is no pipeline. Pass what `Pipeline.dumps` gives, or the path of a file with "
        "that, which ends with .yaml or .yml"
    )


def _without_data(text: str) -> str:
    """Leave out the parameters of a component, which Haystack quotes: there may be secrets among them."""
    return _QUOTED_DATA.sub(". ", text)


def _description(pipeline: Any) -> str:
    said = pipeline.metadata.get("description")
    if isinstance(said, str) and said:
        return said
    return f"Runs a pipeline of {', '.join(name for name, _ in pipeline.walk())}."
